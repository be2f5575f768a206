// Forward: O and LSE.
//
//   S = c Q K^T        P = exp(S - m)        l = rowsum(P)        O = P V / l        LSE = m + ln(l)
//
// One block per (q tile, q head): grid (q tiles, heads_q). It walks the KV tiles its rows can see, keeping the running
// maximum m, the sum l and the unnormalised O in registers (online softmax). A row that sees nothing: O = 0, LSE = -inf.
//
// Four warps, each 16 rows of the tile and all columns. P never leaves registers.
//   q_smem  [BLOCK_Q][HEAD_DIM]    resident; O is staged through it at the end
//   k_smem  [BLOCK_KV][HEAD_DIM]   K of the next tile is on its way while P V is computed
//   v_smem  [BLOCK_KV][HEAD_DIM]   V while S is computed
//
// Writes o, lse of its own rows. Rounding: P to the storage type after exp, relative to the running maximum; l sums the
// unrounded P; O once, after the division. Exponents are taken to base 2: x = S log2(e).

constexpr int FORWARD_BLOCK_Q = 64, FORWARD_BLOCK_KV = 64;
constexpr int FORWARD_THREADS = 128;
static_assert(FORWARD_BLOCK_Q == FORWARD_THREADS / 32 * 16, "a warp owns 16 rows, so that row sums stay inside it");

template <int HEAD_DIM> constexpr int forward_smem_bytes = (FORWARD_BLOCK_Q + 2 * FORWARD_BLOCK_KV) * HEAD_DIM * 2;
static_assert(forward_smem_bytes<128> <= 99 * 1024, "the least a block may have among the targets (sm_86, sm_120)");

template <class T, int HEAD_DIM> struct ForwardShared {
  SharedTile<T, HEAD_DIM> q_smem, k_smem, v_smem;
};

// Of one warp's 16 rows; each thread holds two of them, e / 2 says which.
template <int HEAD_DIM> struct ForwardRows {
  float o_acc[1][HEAD_DIM / 16][2][4];   // [16][HEAD_DIM]
  float max_x[2];                        // running maximum of x, -inf before the first visible key
  float sum[2];                          // this thread's share of l
};

// One row lies in 4 neighbouring lanes.
DEVICE float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
DEVICE float row_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// s becomes x = c log2(e) S, -inf where nothing is visible.
template <int N>
DEVICE void scale_and_mask(float (&s)[1][N][2][4], const Mask& mask, float c_log2e, i32 q_tile, i32 kv_tile) {
  const bool full = mask.tile_is_full<FORWARD_BLOCK_Q, FORWARD_BLOCK_KV>(q_tile, kv_tile);
  const i32 q_first = q_tile * FORWARD_BLOCK_Q + warp_id() * 16, kv_first = kv_tile * FORWARD_BLOCK_KV;
  const int lane = recompute(lane_id());
  UNROLL
  for (int n = 0; n < N; n++)
    UNROLL
    for (int half = 0; half < 2; half++)
      UNROLL
      for (int e = 0; e < 4; e++) {
        const bool visible = full || mask.visible(q_first + acc_row(0, e, lane), kv_first + acc_col(n, half, e, lane));
        s[0][n][half][e] = visible ? s[0][n][half][e] * c_log2e : negative_infinity();
      }
}

// x becomes P relative to the new maximum; what was summed before is rescaled to it.
template <int N, int HEAD_DIM> DEVICE void online_softmax(float (&x)[1][N][2][4], ForwardRows<HEAD_DIM>& rows) {
  UNROLL
  for (int r = 0; r < 2; r++) {
    float tile_max = negative_infinity();
    UNROLL
    for (int n = 0; n < N; n++)
      UNROLL
      for (int half = 0; half < 2; half++)
        tile_max = fmaxf(tile_max, fmaxf(x[0][n][half][2 * r], x[0][n][half][2 * r + 1]));
    const float new_max = fmaxf(rows.max_x[r], row_max(tile_max));
    const float reference = new_max == negative_infinity() ? 0.0f : new_max;   // -inf - -inf is NaN
    const float rescale = exp2_approx(rows.max_x[r] - reference);
    rows.max_x[r] = new_max;
    rows.sum[r] *= rescale;
    UNROLL
    for (int n = 0; n < N; n++)
      UNROLL
      for (int half = 0; half < 2; half++)
        UNROLL
        for (int e = 2 * r; e < 2 * r + 2; e++) {
          x[0][n][half][e] = exp2_approx(x[0][n][half][e] - reference);
          rows.sum[r] += x[0][n][half][e];
        }
    UNROLL
    for (int n = 0; n < HEAD_DIM / 16; n++)
      UNROLL
      for (int half = 0; half < 2; half++)
        UNROLL
        for (int e = 2 * r; e < 2 * r + 2; e++) rows.o_acc[0][n][half][e] *= rescale;
  }
}

// o_acc += P V. P's accumulator layout is, pair by pair, the layout of an A fragment.
template <class T, int N, int HEAD_DIM>
DEVICE void add_pv(ForwardRows<HEAD_DIM>& rows, const float (&p)[1][N][2][4], SharedTile<T, HEAD_DIM> v_smem) {
  const int lane = recompute(lane_id());
  UNROLL
  for (int k = 0; k < N; k++) {
    const float(&block)[2][4] = p[0][k];
    const Fragment p_frag = fragment_of(pack2<T>(block[0][0], block[0][1]), pack2<T>(block[0][2], block[0][3]),
                                        pack2<T>(block[1][0], block[1][1]), pack2<T>(block[1][2], block[1][3]));
    UNROLL
    for (int n = 0; n < HEAD_DIM / 16; n++)
      mma_m16n16k16<T>(rows.o_acc[0][n], p_frag, load_b_trans(v_smem, 16 * n, 16 * k, lane));
  }
  mma_wait();
}

// Divides, rounds and writes this warp's rows.
template <class T, int HEAD_DIM>
DEVICE void forward_finish(const Params& p, const Sequence& sequence, i32 q_tile, i32 head, ForwardRows<HEAD_DIM>& rows,
                           SharedTile<T, HEAD_DIM> o_smem) {
  const i32 live_rows = rows_in_tile(sequence.mask.q_len, q_tile, FORWARD_BLOCK_Q);
  const i64 first_row = sequence.q_row + q_tile * FORWARD_BLOCK_Q;
  const int lane = lane_id();
  UNROLL
  for (int r = 0; r < 2; r++) {
    const float l = row_sum(rows.sum[r]);
    const float inverse = l > 0.0f ? 1.0f / l : 0.0f;
    UNROLL
    for (int n = 0; n < HEAD_DIM / 16; n++)
      UNROLL
      for (int half = 0; half < 2; half++)
        UNROLL
        for (int e = 2 * r; e < 2 * r + 2; e++)
          rows.o_acc[0][n][half][e] = l == l ? rows.o_acc[0][n][half][e] * inverse : l;   // NaN scores stay visible
    const i32 row = warp_id() * 16 + acc_row(0, 2 * r, lane);
    if (lane % 4 == 0 && row < live_rows)
      *row_of<float>(p.lse, first_row + row, head) =
          l == 0.0f ? negative_infinity() : rows.max_x[r] * LN_2 + natural_log(l);
  }
  stage_accumulator(o_smem, warp_id() * 16, 0, rows.o_acc, 1.0f);
  __syncwarp();
  store_tile<16, 32>(o_smem, warp_id() * 16, lane, p.o, first_row, head, live_rows, p.d_v);
}

template <class T, int HEAD_DIM> DEVICE void forward(const Params& p) {
  SharedMemory shared;
  ForwardShared<T, HEAD_DIM> smem;
  smem.q_smem = take_tile<T, HEAD_DIM>(shared, FORWARD_BLOCK_Q);
  smem.k_smem = take_tile<T, HEAD_DIM>(shared, FORWARD_BLOCK_KV);
  smem.v_smem = take_tile<T, HEAD_DIM>(shared, FORWARD_BLOCK_KV);

  const Tile tile = p.q_tiles[blockIdx.x];
  const i32 head = blockIdx.y, kv_head = head / (p.heads_q / p.heads_kv);
  const Sequence sequence = read_sequence(p, tile.sequence);
  const TileRange kv_tiles = sequence.mask.kv_tiles_of<FORWARD_BLOCK_Q, FORWARD_BLOCK_KV>(tile.index);

  const auto load_kv = [&](SharedTile<T, HEAD_DIM> to, const Tensor& from, i32 kv_tile, i32 cols) {
    load_tile<FORWARD_BLOCK_KV, FORWARD_THREADS>(
        to, from, sequence.kv_row + kv_tile * FORWARD_BLOCK_KV, kv_head,
        rows_in_tile(sequence.mask.kv_len, kv_tile, FORWARD_BLOCK_KV), cols);
    cp_async_commit();
  };

  ForwardRows<HEAD_DIM> rows = {{}, {negative_infinity(), negative_infinity()}, {}};
  if (kv_tiles.count() > 0) {
    load_tile<FORWARD_BLOCK_Q, FORWARD_THREADS>(
        smem.q_smem, p.q, sequence.q_row + tile.index * FORWARD_BLOCK_Q, head,
        rows_in_tile(sequence.mask.q_len, tile.index, FORWARD_BLOCK_Q), p.d_qk);
    load_kv(smem.k_smem, p.k, kv_tiles.begin, p.d_qk);
  }
  for (i32 kv_tile = kv_tiles.begin; kv_tile < kv_tiles.end; kv_tile++) {
    cp_async_wait<0>();
    __syncthreads();                                       // K has landed; nobody reads V any more
    load_kv(smem.v_smem, p.v, kv_tile, p.d_v);
    float s[1][FORWARD_BLOCK_KV / 16][2][4] = {};          // [16][BLOCK_KV] of this warp
    multiply_abt<HEAD_DIM>(s, smem.q_smem, warp_id() * 16, smem.k_smem, 0);
    mma_wait();
    scale_and_mask(s, sequence.mask, p.scale * LOG2_E, tile.index, kv_tile);
    online_softmax(s, rows);
    cp_async_wait<0>();
    __syncthreads();                                       // V has landed; nobody reads K any more
    if (kv_tile + 1 < kv_tiles.end) load_kv(smem.k_smem, p.k, kv_tile + 1, p.d_qk);
    add_pv<T>(rows, s, smem.v_smem);
  }
  forward_finish(p, sequence, tile.index, head, rows, smem.q_smem);
}

#define THD_FORWARD(T, D) \
  extern "C" __global__ void __launch_bounds__(FORWARD_THREADS, 2) thd_forward_##T##_d##D(const Params p) { \
    forward<T, D>(p); \
  }
THD_FOR_EACH_DTYPE_DIM(THD_FORWARD)
