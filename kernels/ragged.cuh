// Where the sequences of a packed batch lie. All arithmetic on storage rows is 64-bit.

// The facts of one sequence, read once per block.
struct Sequence {
  i64 q_row, kv_row;        // storage row of position 0
  Mask mask;                // lengths and visibility
};

DEVICE Sequence read_sequence(const Params& p, i32 index) {
  return {p.q_offset[index], p.kv_offset[index], make_mask(p, p.q_len[index], p.kv_len[index])};
}

// First element of a storage row of one head.
template <class T> DEVICE T* row_of(const Tensor& tensor, i64 row, i32 head) {
  return (T*)tensor.data + row * tensor.row_stride + head * tensor.head_stride;
}

// Live rows of a tile of `block` positions of a sequence of `len`.
DEVICE i32 rows_in_tile(i32 len, i32 tile, i32 block) {
  const i32 left = len - tile * block;
  return left < block ? left : block;
}
