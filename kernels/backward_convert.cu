// Backward, last step: dQ = c dq_acc, rounded once to the storage type.
//
// One block per (q tile, q head): grid (q tiles, heads_q). Writes dq of its own rows.

constexpr int CONVERT_BLOCK_Q = 64, CONVERT_THREADS = 128;

template <class T> DEVICE Chunk scale_and_round(const float* from, float factor) {
  const Chunk low = load_chunk(from), high = load_chunk(from + 4);
  Chunk packed;
  UNROLL
  for (int i = 0; i < 2; i++) {
    packed.word[i] = pack2<T>(factor * as_float(low.word[2 * i]), factor * as_float(low.word[2 * i + 1]));
    packed.word[2 + i] = pack2<T>(factor * as_float(high.word[2 * i]), factor * as_float(high.word[2 * i + 1]));
  }
  return packed;
}

template <class T> DEVICE void backward_convert(const Params& p) {
  const Tile tile = p.q_tiles[blockIdx.x];
  const i32 head = blockIdx.y;
  const Sequence sequence = read_sequence(p, tile.sequence);
  const i32 live_rows = rows_in_tile(sequence.mask.q_len, tile.index, CONVERT_BLOCK_Q), chunks = p.d_qk / 8;
  const i64 first_row = sequence.q_row + tile.index * CONVERT_BLOCK_Q;

  for (i32 i = threadIdx.x; i < live_rows * chunks; i += CONVERT_THREADS) {
    const i64 row = first_row + i / chunks;
    const i32 col = i % chunks * 8;
    store_chunk(row_of<T>(p.dq, row, head) + col, scale_and_round<T>(row_of<float>(p.dq_acc, row, head) + col, p.scale));
  }
}

#define THD_BACKWARD_CONVERT(T) \
  extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) thd_backward_convert_##T(const Params p) { \
    backward_convert<T>(p); \
  }
THD_FOR_EACH_DTYPE(THD_BACKWARD_CONVERT)
