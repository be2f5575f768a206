// Which key a query sees: the one definition on the device.
//
// Every mask of the case notation (full, causal, windows, either alignment) is a band of diagonals:
// lower <= kv_pos - q_pos <= upper. Positions count from the start of the sequence.

// Tiles [begin, end).
struct TileRange {
  i32 begin, end;
  DEVICE i32 count() const { return end > begin ? end - begin : 0; }
};

struct Mask {
  i32 q_len, kv_len;
  i32 lower, upper;         // within +-MAX_LENGTH, where they no longer bite

  DEVICE bool visible(i32 q_pos, i32 kv_pos) const {
    const i32 diagonal = kv_pos - q_pos;
    return q_pos < q_len && kv_pos < kv_len && lower <= diagonal && diagonal <= upper;
  }

  // Every pair of a BLOCK_Q x BLOCK_KV tile is visible: no element needs a test.
  template <int BLOCK_Q, int BLOCK_KV> DEVICE bool tile_is_full(i32 q_tile, i32 kv_tile) const {
    const i32 q_first = q_tile * BLOCK_Q, q_last = q_first + BLOCK_Q - 1;
    const i32 kv_first = kv_tile * BLOCK_KV, kv_last = kv_first + BLOCK_KV - 1;
    return q_last < q_len && kv_last < kv_len && lower <= kv_first - q_last && kv_last - q_first <= upper;
  }

  // KV tiles in which some row of a q tile may see something.
  template <int BLOCK_Q, int BLOCK_KV> DEVICE TileRange kv_tiles_of(i32 q_tile) const {
    const i32 q_first = q_tile * BLOCK_Q, q_last = min_of(q_first + BLOCK_Q, q_len) - 1;
    return tiles_of<BLOCK_KV>(q_first + lower, q_last + upper + 1, kv_len);
  }

  // Q tiles some row of which may see into a kv tile.
  template <int BLOCK_Q, int BLOCK_KV> DEVICE TileRange q_tiles_of(i32 kv_tile) const {
    const i32 kv_first = kv_tile * BLOCK_KV, kv_last = min_of(kv_first + BLOCK_KV, kv_len) - 1;
    return tiles_of<BLOCK_Q>(kv_first - upper, kv_last - lower + 1, q_len);
  }

  DEVICE static i32 min_of(i32 a, i32 b) { return a < b ? a : b; }
  DEVICE static i32 max_of(i32 a, i32 b) { return a > b ? a : b; }

  // Tiles of BLOCK positions that meet [first, end) within [0, len).
  template <int BLOCK> DEVICE static TileRange tiles_of(i32 first, i32 end, i32 len) {
    first = max_of(first, 0);
    end = min_of(end, len);
    if (first >= end) return {0, 0};
    return {first / BLOCK, (end - 1) / BLOCK + 1};
  }
};

DEVICE i32 clamp_diagonal(i64 diagonal) {
  return diagonal < -MAX_LENGTH ? -MAX_LENGTH : diagonal > MAX_LENGTH ? MAX_LENGTH : (i32)diagonal;
}

DEVICE Mask make_mask(const Params& p, i32 q_len, i32 kv_len) {
  const i64 shift = p.bottom_right ? (i64)kv_len - q_len : 0;
  const i32 lower = p.window_left == UNBOUNDED ? -MAX_LENGTH : clamp_diagonal(shift - p.window_left);
  const i32 upper = p.window_right == UNBOUNDED ? MAX_LENGTH : clamp_diagonal(shift + p.window_right);
  return {q_len, kv_len, lower, upper};
}
