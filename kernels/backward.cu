// Backward: dK, dV, and dQ before its last scaling.
//
//   P  = exp(S - LSE)          S = c Q K^T
//   dV = P^T dO                dP = dO V^T
//   dS = P * (dP - delta)      dK = c dS^T Q        dQ = c dS K
//
// One block per (kv tile, kv head): grid (kv tiles, heads_kv). K and V stay in shared memory; a step is one q tile of one
// q head of the group, so dK and dV are summed over the group in the same fp32 accumulators. dQ is summed over the kv
// tiles by atomic adds into dq_acc, which thd_backward_delta zeroed and thd_backward_convert scales and rounds.
//
// Four warps, 2 x 2, each a quarter of every product (32 rows):
//   S, dP   [BLOCK_Q][BLOCK_KV]      dK, dV  [BLOCK_KV][HEAD_DIM]      dQ  [BLOCK_Q][HEAD_DIM]
//
// Writes dk, dv of its own rows (zeros if no query sees them) and adds to dq_acc of the rows it visits.
// Rounding: P and dS, unscaled, to the storage type as operands; dK and dV once, after scaling in fp32.

constexpr int BACKWARD_BLOCK_Q = 64, BACKWARD_BLOCK_KV = 64;
constexpr int BACKWARD_THREADS = 128;
static_assert(BACKWARD_BLOCK_Q == 64 && BACKWARD_BLOCK_KV == 64, "2 x 2 warps of 32 rows each");

template <int HEAD_DIM> constexpr int backward_smem_bytes =
    (3 * BACKWARD_BLOCK_Q + 2 * BACKWARD_BLOCK_KV) * HEAD_DIM * 2      // q (two stages), dO; k, v
    + 2 * BACKWARD_BLOCK_Q * BACKWARD_BLOCK_KV * 2                     // p, ds
    + 4 * BACKWARD_BLOCK_Q * 4;                                        // lse, delta (two stages)
static_assert(backward_smem_bytes<128> <= 99 * 1024, "the least a block may have among the targets (sm_86, sm_120)");

// Blocks an SM should hold: what 64K registers and 227 KiB of shared memory allow.
template <int HEAD_DIM> constexpr int backward_blocks_per_sm = HEAD_DIM <= 64 ? 3 : 2;

// What changes from step to step; two of them, so that the next step's Q loads while this one computes.
template <class T, int HEAD_DIM> struct BackwardStage {
  SharedTile<T, HEAD_DIM> q_smem;                  // [BLOCK_Q][HEAD_DIM]
  float *lse_smem, *delta_smem;                    // [BLOCK_Q]
};

template <class T, int HEAD_DIM> struct BackwardShared {
  SharedTile<T, HEAD_DIM> k_smem, v_smem;          // [BLOCK_KV][HEAD_DIM]; dK, dV are staged through them at the end
  SharedTile<T, HEAD_DIM> do_smem;                 // [BLOCK_Q][HEAD_DIM]
  SharedTile<T, BACKWARD_BLOCK_KV> p_smem, ds_smem;   // [BLOCK_Q][BLOCK_KV]
  BackwardStage<T, HEAD_DIM> even, odd;

  // By distance, a constant to the compiler: choosing between six pointers costs registers.
  DEVICE BackwardStage<T, HEAD_DIM> stage(i32 parity) const {
    return {{even.q_smem.data + parity * (odd.q_smem.data - even.q_smem.data)},
            even.lse_smem + parity * (odd.lse_smem - even.lse_smem),
            even.delta_smem + parity * (odd.delta_smem - even.delta_smem)};
  }
};

template <class T, int HEAD_DIM> DEVICE BackwardShared<T, HEAD_DIM> backward_shared() {
  SharedMemory shared;
  BackwardShared<T, HEAD_DIM> smem;
  smem.k_smem = take_tile<T, HEAD_DIM>(shared, BACKWARD_BLOCK_KV);
  smem.v_smem = take_tile<T, HEAD_DIM>(shared, BACKWARD_BLOCK_KV);
  smem.do_smem = take_tile<T, HEAD_DIM>(shared, BACKWARD_BLOCK_Q);
  smem.p_smem = take_tile<T, BACKWARD_BLOCK_KV>(shared, BACKWARD_BLOCK_Q);
  smem.ds_smem = take_tile<T, BACKWARD_BLOCK_KV>(shared, BACKWARD_BLOCK_Q);
  smem.even.q_smem = take_tile<T, HEAD_DIM>(shared, BACKWARD_BLOCK_Q);
  smem.even.lse_smem = shared.take<float>(BACKWARD_BLOCK_Q);
  smem.even.delta_smem = shared.take<float>(BACKWARD_BLOCK_Q);
  smem.odd.q_smem = take_tile<T, HEAD_DIM>(shared, BACKWARD_BLOCK_Q);
  smem.odd.lse_smem = shared.take<float>(BACKWARD_BLOCK_Q);
  smem.odd.delta_smem = shared.take<float>(BACKWARD_BLOCK_Q);
  return smem;
}

// What one block works on: the q tiles [q_tiles.begin, q_tiles.end) of the q heads up to head_end.
struct BackwardWork {
  Sequence sequence;
  i32 kv_tile, kv_head;
  TileRange q_tiles;
  i32 head_end;
};

// One step: a q tile of a q head.
struct BackwardStep {
  i32 head, q_tile;
};

DEVICE BackwardWork backward_work(const Params& p) {
  const Tile tile = p.kv_tiles[blockIdx.x];
  const i32 kv_head = blockIdx.y, group = p.heads_q / p.heads_kv;
  const Sequence sequence = read_sequence(p, tile.sequence);
  const TileRange q_tiles = sequence.mask.q_tiles_of<BACKWARD_BLOCK_Q, BACKWARD_BLOCK_KV>(tile.index);
  return {sequence, tile.index, kv_head, q_tiles, (kv_head + 1) * group};
}

// All q tiles of a head, then the next head. No step at all if there is no q tile.
DEVICE BackwardStep first_step(const Params& p, const BackwardWork& work) {
  const i32 first_head = work.kv_head * (p.heads_q / p.heads_kv);
  return {work.q_tiles.count() > 0 ? first_head : work.head_end, work.q_tiles.begin};
}
DEVICE BackwardStep next_step(const BackwardWork& work, const BackwardStep& at) {
  if (at.q_tile + 1 < work.q_tiles.end) return {at.head, at.q_tile + 1};
  return {at.head + 1, work.q_tiles.begin};
}
DEVICE bool is_step(const BackwardWork& work, const BackwardStep& at) { return at.head < work.head_end; }

DEVICE i32 live_q_rows(const BackwardWork& work, const BackwardStep& at) {
  return rows_in_tile(work.sequence.mask.q_len, at.q_tile, BACKWARD_BLOCK_Q);
}
DEVICE i64 first_q_row(const BackwardWork& work, const BackwardStep& at) {
  return work.sequence.q_row + at.q_tile * BACKWARD_BLOCK_Q;
}

// ---- load ----------------------------------------------------------------------------------------------------------

template <class T, int HEAD_DIM>
DEVICE void load_kv(const Params& p, const BackwardWork& work, const BackwardShared<T, HEAD_DIM>& smem) {
  const i32 rows = rows_in_tile(work.sequence.mask.kv_len, work.kv_tile, BACKWARD_BLOCK_KV);
  const i64 kv_row = work.sequence.kv_row + work.kv_tile * BACKWARD_BLOCK_KV;
  load_tile<BACKWARD_BLOCK_KV, BACKWARD_THREADS>(smem.k_smem, p.k, kv_row, work.kv_head, rows, p.d_qk);
  load_tile<BACKWARD_BLOCK_KV, BACKWARD_THREADS>(smem.v_smem, p.v, kv_row, work.kv_head, rows, p.d_v);
}

template <class T, int HEAD_DIM>
DEVICE void load_q(const Params& p, const BackwardWork& work, const BackwardStep& at,
                   const BackwardStage<T, HEAD_DIM>& stage) {
  const i32 rows = live_q_rows(work, at);
  const i64 q_row = first_q_row(work, at);
  load_tile<BACKWARD_BLOCK_Q, BACKWARD_THREADS>(stage.q_smem, p.q, q_row, at.head, rows, p.d_qk);
  load_column<BACKWARD_BLOCK_Q>(stage.lse_smem, p.lse, q_row, at.head, rows);
  load_column<BACKWARD_BLOCK_Q>(stage.delta_smem, p.delta, q_row, at.head, rows);
}

template <class T, int HEAD_DIM>
DEVICE void load_do(const Params& p, const BackwardWork& work, const BackwardStep& at, SharedTile<T, HEAD_DIM> do_smem) {
  load_tile<BACKWARD_BLOCK_Q, BACKWARD_THREADS>(do_smem, p.d_o, first_q_row(work, at), at.head,
                                                live_q_rows(work, at), p.d_v);
}

// ---- compute -------------------------------------------------------------------------------------------------------

DEVICE int warp_row() { return warp_id() / 2 * 32; }       // first of a warp's 32 rows, in every product
DEVICE int warp_half() { return warp_id() % 2; }           // which half of the columns

// S and dP become P and dS, rounded, in shared memory.
template <class T, int HEAD_DIM>
DEVICE void score_gradient(const Params& p, const BackwardWork& work, const BackwardStep& at,
                           const BackwardStage<T, HEAD_DIM>& stage, const BackwardShared<T, HEAD_DIM>& smem) {
  constexpr int N = BACKWARD_BLOCK_KV / 2 / 16;
  const int q0 = warp_row(), kv0 = warp_half() * (BACKWARD_BLOCK_KV / 2);
  float s[2][N][2][4] = {}, dp[2][N][2][4] = {};           // [32 q][BLOCK_KV / 2]
  multiply_abt<HEAD_DIM>(s, stage.q_smem, q0, smem.k_smem, kv0);
  multiply_abt<HEAD_DIM>(dp, smem.do_smem, q0, smem.v_smem, kv0);
  mma_wait();

  const Mask& mask = work.sequence.mask;
  const bool full = mask.tile_is_full<BACKWARD_BLOCK_Q, BACKWARD_BLOCK_KV>(at.q_tile, work.kv_tile);
  const i32 q_first = at.q_tile * BACKWARD_BLOCK_Q, kv_first = work.kv_tile * BACKWARD_BLOCK_KV;
  const float c_log2e = p.scale * LOG2_E;
  const int lane = recompute(lane_id());
  UNROLL
  for (int m = 0; m < 2; m++)
    UNROLL
    for (int e = 0; e < 4; e += 2) {
      const int row = q0 + acc_row(m, e, lane);
      const float lse_log2e = stage.lse_smem[row] * LOG2_E, delta = stage.delta_smem[row];
      UNROLL
      for (int n = 0; n < N; n++)
        UNROLL
        for (int half = 0; half < 2; half++) {
          const int col = kv0 + acc_col(n, half, e, lane);
          float prob[2], ds[2];
          UNROLL
          for (int i = 0; i < 2; i++) {
            const bool visible = full || mask.visible(q_first + row, kv_first + col + i);
            prob[i] = visible ? exp2_approx(s[m][n][half][e + i] * c_log2e - lse_log2e) : 0.0f;
            ds[i] = visible ? prob[i] * (dp[m][n][half][e + i] - delta) : 0.0f;
          }
          *(u32*)smem.p_smem.at(row, col) = pack2<T>(prob[0], prob[1]);
          *(u32*)smem.ds_smem.at(row, col) = pack2<T>(ds[0], ds[1]);
        }
    }
}

// dq_acc += dS K, for this warp's quarter of the q tile.
template <class T, int HEAD_DIM>
DEVICE void add_dq(const Params& p, const BackwardWork& work, const BackwardStep& at,
                   const BackwardShared<T, HEAD_DIM>& smem) {
  constexpr int N = HEAD_DIM / 2 / 16;
  const int q0 = warp_row(), col0 = warp_half() * (HEAD_DIM / 2);
  float dq[2][N][2][4] = {};                               // [32 q][HEAD_DIM / 2]
  multiply_ab<BACKWARD_BLOCK_KV>(dq, smem.ds_smem, q0, smem.k_smem, col0);
  mma_wait();
  const i32 rows = live_q_rows(work, at);
  const i64 q_row = first_q_row(work, at);
  const int lane = recompute(lane_id());
  UNROLL
  for (int m = 0; m < 2; m++)
    UNROLL
    for (int e = 0; e < 4; e += 2) {
      const int row = q0 + acc_row(m, e, lane);
      if (row >= rows) continue;
      float* to = row_of<float>(p.dq_acc, q_row + row, at.head);
      UNROLL
      for (int n = 0; n < N; n++)
        UNROLL
        for (int half = 0; half < 2; half++) {
          const int col = col0 + acc_col(n, half, e, lane);
          if (col < p.d_qk) atomic_add2(to + col, dq[m][n][half][e], dq[m][n][half][e + 1]);
        }
    }
}

// ---- finish --------------------------------------------------------------------------------------------------------

template <class T, int HEAD_DIM, int N>
DEVICE void store_dk_dv(const Params& p, const BackwardShared<T, HEAD_DIM>& smem, const float (&dk_acc)[2][N][2][4],
                        const float (&dv_acc)[2][N][2][4]) {
  const BackwardWork work = backward_work(p);              // read again: through the loop it would cost registers
  const int col0 = warp_half() * (HEAD_DIM / 2);
  __syncthreads();                                         // nobody reads K or V any more
  stage_accumulator(smem.k_smem, warp_row(), col0, dk_acc, p.scale);
  stage_accumulator(smem.v_smem, warp_row(), col0, dv_acc, 1.0f);
  __syncthreads();
  const i32 rows = rows_in_tile(work.sequence.mask.kv_len, work.kv_tile, BACKWARD_BLOCK_KV);
  const i64 kv_row = work.sequence.kv_row + work.kv_tile * BACKWARD_BLOCK_KV;
  store_tile<BACKWARD_BLOCK_KV, BACKWARD_THREADS>(smem.k_smem, 0, threadIdx.x, p.dk, kv_row, work.kv_head, rows, p.d_qk);
  store_tile<BACKWARD_BLOCK_KV, BACKWARD_THREADS>(smem.v_smem, 0, threadIdx.x, p.dv, kv_row, work.kv_head, rows, p.d_v);
}

template <class T, int HEAD_DIM> DEVICE void backward(const Params& p) {
  constexpr int N = HEAD_DIM / 2 / 16;
  const BackwardShared<T, HEAD_DIM> smem = backward_shared<T, HEAD_DIM>();
  const BackwardWork work = backward_work(p);
  const int col0 = warp_half() * (HEAD_DIM / 2);

  float dk_acc[2][N][2][4] = {}, dv_acc[2][N][2][4] = {};  // [32 kv][HEAD_DIM / 2], unscaled
  BackwardStep at = first_step(p, work);
  if (is_step(work, at)) {
    load_kv(p, work, smem);
    load_q(p, work, at, smem.even);
    load_do(p, work, at, smem.do_smem);
    cp_async_commit();
  }
  for (i32 parity = 0; is_step(work, at); parity ^= 1) {
    const BackwardStage<T, HEAD_DIM> stage = smem.stage(parity);
    const BackwardStep next = next_step(work, at);
    cp_async_wait<0>();
    __syncthreads();                                       // Q and dO have landed; nobody reads the other stage, P or dS
    if (is_step(work, next)) load_q(p, work, next, smem.stage(parity ^ 1));
    cp_async_commit();
    score_gradient(p, work, at, stage, smem);
    __syncthreads();                                       // P and dS are complete
    multiply_atb<BACKWARD_BLOCK_Q>(dv_acc, smem.p_smem, warp_row(), smem.do_smem, col0);
    multiply_atb<BACKWARD_BLOCK_Q>(dk_acc, smem.ds_smem, warp_row(), stage.q_smem, col0);
    mma_wait();
    __syncthreads();                                       // nobody reads dO any more
    if (is_step(work, next)) load_do(p, work, next, smem.do_smem);
    cp_async_commit();
    add_dq(p, work, at, smem);
    at = next;
  }
  store_dk_dv(p, smem, dk_acc, dv_acc);
}

#define THD_BACKWARD(T, D) \
  extern "C" __global__ void __launch_bounds__(BACKWARD_THREADS, backward_blocks_per_sm<D>) \
      thd_backward_##T##_d##D(const Params p) { backward<T, D>(p); }
THD_FOR_EACH_DTYPE_DIM(THD_BACKWARD)
