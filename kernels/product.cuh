// Tiles in shared memory, and products of them by one warp.
//
// A warp's accumulator is float acc[M][N][2][4]: M x N blocks of 16 x 16, [half][e] as mma leaves them (acc_row, acc_col).

DEVICE int lane_id() { return threadIdx.x % 32; }
DEVICE int warp_id() { return threadIdx.x / 32; }

// Row-major tile whose 16-byte chunks are permuted within a row, so that the 8 rows one ldmatrix phase reads lie in 8
// different groups of banks. Rows of 128 bytes or a multiple start at bank 0: permute by row % 8. Rows of 64 or 192 bytes
// alternate between two halves of the banks: permute the 4 chunks of a half by row / 2 % 4.
template <class T, int COLS> struct SharedTile {
  static_assert(COLS % 32 == 0, "the permutation needs whole groups of 4 chunks");
  T* data;
  DEVICE T* at(int row, int col) const {
    const int permutation = COLS % 64 == 0 ? row % 8 : row / 2 % 4;
    return data + row * COLS + ((col / 8) ^ permutation) * 8 + col % 8;
  }
};

template <class T, int COLS> DEVICE SharedTile<T, COLS> take_tile(SharedMemory& shared, int rows) {
  return {shared.take<T>(rows * COLS)};
}

// ---- global <-> shared ---------------------------------------------------------------------------------------------

// Starts copying `rows` rows of `cols` columns; all else of the tile becomes zero, so that nothing beyond a sequence
// or beyond the real head dimension is ever multiplied in. The first row is storage row `first_row` of one head.
template <int ROWS, int THREADS, class T, int COLS>
DEVICE void load_tile(SharedTile<T, COLS> tile, const Tensor& tensor, i64 first_row, i32 head, int rows, int cols) {
  constexpr int CHUNKS = COLS / 8;
  const T* from = row_of<const T>(tensor, first_row, head);
  UNROLL
  for (int i = recompute(threadIdx.x); i < ROWS * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, col = i % CHUNKS * 8;
    const bool live = row < rows && col < cols;
    cp_async16(tile.at(row, col), live ? from + row * tensor.row_stride + col : from, live);
  }
}

// Starts copying one fp32 value a row; zeros beyond `rows`.
template <int ROWS> DEVICE void load_column(float* column, const Tensor& tensor, i64 first_row, i32 head, int rows) {
  const float* from = row_of<const float>(tensor, first_row, head);
  const int row = recompute(threadIdx.x);
  if (row < ROWS) cp_async4(column + row, row < rows ? from + row * tensor.row_stride : from, row < rows);
}

// Writes the live part of the tile rows [first, first + ROWS), 16 bytes a thread; `thread` is one of THREADS that share them.
template <int ROWS, int THREADS, class T, int COLS>
DEVICE void store_tile(SharedTile<T, COLS> tile, int first, int thread, const Tensor& tensor, i64 first_row, i32 head,
                       int rows, int cols) {
  constexpr int CHUNKS = COLS / 8;
  T* to = row_of<T>(tensor, first_row, head);
  for (int i = thread; i < ROWS * CHUNKS; i += THREADS) {
    const int row = first + i / CHUNKS, col = i % CHUNKS * 8;
    if (row < rows && col < cols) store_chunk(to + row * tensor.row_stride + col, load_chunk(tile.at(row, col)));
  }
}

// ---- fragments -----------------------------------------------------------------------------------------------------

// Columns are multiples of 16 here, so ^ adds the lane's 8; it folds into the tile's permutation.

// A[16 m][16 k] out of a tile stored [m][k], or stored [k][m].
template <class T, int COLS> DEVICE Fragment load_a(SharedTile<T, COLS> tile, int m, int k, int lane) {
  return ldmatrix(tile.at(m + lane % 16, k ^ lane / 16 * 8));
}
template <class T, int COLS> DEVICE Fragment load_a_trans(SharedTile<T, COLS> tile, int m, int k, int lane) {
  return ldmatrix_trans(tile.at(k + lane % 8 + lane / 16 * 8, m ^ lane / 8 % 2 * 8));
}

// B[16 k][16 n] out of a tile stored [n][k], or stored [k][n].
template <class T, int COLS> DEVICE Fragment load_b(SharedTile<T, COLS> tile, int n, int k, int lane) {
  return ldmatrix(tile.at(n + lane % 8 + lane / 16 * 8, k ^ lane / 8 % 2 * 8));
}
template <class T, int COLS> DEVICE Fragment load_b_trans(SharedTile<T, COLS> tile, int n, int k, int lane) {
  return ldmatrix_trans(tile.at(k + lane % 16, n ^ lane / 16 * 8));
}

// Row and column, inside a warp's accumulator, of acc[m][n][half][e].
DEVICE int acc_row(int m, int e, int lane) { return 16 * m + lane / 4 + e / 2 * 8; }
DEVICE int acc_col(int n, int half, int e, int lane) { return 16 * n + 8 * half + lane % 4 * 2 + e % 2; }

// ---- products ------------------------------------------------------------------------------------------------------

// acc += A B^T, a stored [m][k], b stored [n][k]
template <int K, class T, int M, int N, int A_COLS, int B_COLS>
DEVICE void multiply_abt(float (&acc)[M][N][2][4], SharedTile<T, A_COLS> a, int m0, SharedTile<T, B_COLS> b, int n0) {
  const int lane = recompute(lane_id());
  UNROLL
  for (int k = 0; k < K; k += 16) {
    Fragment a_frag[M];
    UNROLL
    for (int m = 0; m < M; m++) a_frag[m] = load_a(a, m0 + 16 * m, k, lane);
    UNROLL
    for (int n = 0; n < N; n++) {
      const Fragment b_frag = load_b(b, n0 + 16 * n, k, lane);
      UNROLL
      for (int m = 0; m < M; m++) mma_m16n16k16<T>(acc[m][n], a_frag[m], b_frag);
    }
  }
}

// acc += A^T B, a stored [k][m], b stored [k][n]
template <int K, class T, int M, int N, int A_COLS, int B_COLS>
DEVICE void multiply_atb(float (&acc)[M][N][2][4], SharedTile<T, A_COLS> a, int m0, SharedTile<T, B_COLS> b, int n0) {
  const int lane = recompute(lane_id());
  UNROLL
  for (int k = 0; k < K; k += 16) {
    Fragment a_frag[M];
    UNROLL
    for (int m = 0; m < M; m++) a_frag[m] = load_a_trans(a, m0 + 16 * m, k, lane);
    UNROLL
    for (int n = 0; n < N; n++) {
      const Fragment b_frag = load_b_trans(b, n0 + 16 * n, k, lane);
      UNROLL
      for (int m = 0; m < M; m++) mma_m16n16k16<T>(acc[m][n], a_frag[m], b_frag);
    }
  }
}

// acc += A B, a stored [m][k], b stored [k][n]
template <int K, class T, int M, int N, int A_COLS, int B_COLS>
DEVICE void multiply_ab(float (&acc)[M][N][2][4], SharedTile<T, A_COLS> a, int m0, SharedTile<T, B_COLS> b, int n0) {
  const int lane = recompute(lane_id());
  UNROLL
  for (int k = 0; k < K; k += 16) {
    Fragment a_frag[M];
    UNROLL
    for (int m = 0; m < M; m++) a_frag[m] = load_a(a, m0 + 16 * m, k, lane);
    UNROLL
    for (int n = 0; n < N; n++) {
      const Fragment b_frag = load_b_trans(b, n0 + 16 * n, k, lane);
      UNROLL
      for (int m = 0; m < M; m++) mma_m16n16k16<T>(acc[m][n], a_frag[m], b_frag);
    }
  }
}

// Rounds factor * acc into a tile; the warp's block starts at (row0, col0).
template <class T, int M, int N, int COLS>
DEVICE void stage_accumulator(SharedTile<T, COLS> tile, int row0, int col0, const float (&acc)[M][N][2][4], float factor) {
  const int lane = lane_id();
  UNROLL
  for (int m = 0; m < M; m++)
    UNROLL
    for (int n = 0; n < N; n++)
      UNROLL
      for (int half = 0; half < 2; half++)
        UNROLL
        for (int e = 0; e < 4; e += 2)
          *(u32*)tile.at(row0 + acc_row(m, e, lane), col0 + acc_col(n, half, e, lane)) =
              pack2<T>(factor * acc[m][n][half][e], factor * acc[m][n][half][e + 1]);
}
