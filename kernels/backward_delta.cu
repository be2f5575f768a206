// Backward, first step: what the main kernel needs per query row.
//
//   delta = rowsum(dO * O)        dq_acc = 0
//
// One block per (q tile, q head): grid (q tiles, heads_q). Eight lanes share a row, 8 elements each at a time.
// Writes delta [rows_q][h_q] and dq_acc [rows_q][h_q][d_qk] (both fp32 workspace) of its own rows; dead rows are neither
// written here nor read later.

constexpr int DELTA_BLOCK_Q = 64, DELTA_THREADS = 128, LANES_PER_ROW = 8;

template <class T> DEVICE float dot(const Chunk& a, const Chunk& b) {
  float sum = 0.0f;
  UNROLL
  for (int i = 0; i < 4; i++) {
    sum += widen<T>((u16)a.word[i]) * widen<T>((u16)b.word[i]);
    sum += widen<T>((u16)(a.word[i] >> 16)) * widen<T>((u16)(b.word[i] >> 16));
  }
  return sum;
}

template <class T> DEVICE void backward_delta(const Params& p) {
  const Tile tile = p.q_tiles[blockIdx.x];
  const i32 head = blockIdx.y, lane = threadIdx.x % LANES_PER_ROW;
  const Sequence sequence = read_sequence(p, tile.sequence);
  const i32 live_rows = rows_in_tile(sequence.mask.q_len, tile.index, DELTA_BLOCK_Q);
  const i64 first_row = sequence.q_row + tile.index * DELTA_BLOCK_Q;

  for (i32 row0 = 0; row0 < DELTA_BLOCK_Q; row0 += DELTA_THREADS / LANES_PER_ROW) {
    const i32 row = row0 + threadIdx.x / LANES_PER_ROW;
    float delta = 0.0f;
    if (row < live_rows) {
      const T* o = row_of<const T>(p.o, first_row + row, head);
      const T* d_o = row_of<const T>(p.d_o, first_row + row, head);
      for (i32 col = lane * 8; col < p.d_v; col += LANES_PER_ROW * 8)
        delta += dot<T>(load_chunk(o + col), load_chunk(d_o + col));
      float* dq_acc = row_of<float>(p.dq_acc, first_row + row, head);
      for (i32 col = lane * 4; col < p.d_qk; col += LANES_PER_ROW * 4) store_chunk(dq_acc + col, Chunk{});
    }
    UNROLL
    for (int distance = LANES_PER_ROW / 2; distance > 0; distance /= 2)
      delta += __shfl_xor_sync(0xffffffffu, delta, distance);
    if (lane == 0 && row < live_rows) *row_of<float>(p.delta, first_row + row, head) = delta;
  }
}

#define THD_BACKWARD_DELTA(T) \
  extern "C" __global__ void __launch_bounds__(DELTA_THREADS) thd_backward_delta_##T(const Params p) { \
    backward_delta<T>(p); \
  }
THD_FOR_EACH_DTYPE(THD_BACKWARD_DELTA)
