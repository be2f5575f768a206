// Zeroes the dead rows of the outputs: rows before, between and after the sequences.
//
// One block per range: grid (max(q_dead_count, kv_dead_count)). The host cuts long ranges, so that blocks share the work.
//   thd_clear_forward    writes o, lse       of the ranges q_dead
//   thd_clear_backward   writes dq           of the ranges q_dead, dk, dv of the ranges kv_dead
// Not launched at all where both lists are empty.

constexpr int CLEAR_THREADS = 128;

// A 2-byte tensor.
DEVICE void clear_rows(const Tensor& tensor, const RowRange& range, i32 heads, i32 cols) {
  const i32 chunks = cols / 8, per_row = heads * chunks;
  for (i64 i = threadIdx.x; i < range.count * per_row; i += CLEAR_THREADS) {
    const i32 in_row = (i32)(i % per_row);
    store_chunk(row_of<u16>(tensor, range.first + i / per_row, in_row / chunks) + in_row % chunks * 8, Chunk{});
  }
}

DEVICE void clear_statistics(const Tensor& lse, const RowRange& range, i32 heads) {
  for (i64 i = threadIdx.x; i < range.count * heads; i += CLEAR_THREADS)
    *row_of<float>(lse, range.first + i / heads, (i32)(i % heads)) = 0.0f;
}

extern "C" __global__ void __launch_bounds__(CLEAR_THREADS) thd_clear_forward(const Params p) {
  const i32 index = blockIdx.x;
  if (index >= p.q_dead_count) return;
  clear_rows(p.o, p.q_dead[index], p.heads_q, p.d_v);
  clear_statistics(p.lse, p.q_dead[index], p.heads_q);
}

extern "C" __global__ void __launch_bounds__(CLEAR_THREADS) thd_clear_backward(const Params p) {
  const i32 index = blockIdx.x;
  if (index < p.q_dead_count) clear_rows(p.dq, p.q_dead[index], p.heads_q, p.d_qk);
  if (index < p.kv_dead_count) {
    clear_rows(p.dk, p.kv_dead[index], p.heads_kv, p.d_qk);
    clear_rows(p.dv, p.kv_dead[index], p.heads_kv, p.d_v);
  }
}
