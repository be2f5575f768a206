// The arithmetic of mma: what one warp recorded, computed at once.
//
// 16 x 16 x 16 blocks. The 16 terms of an element are summed in fp32, then added to the accumulator. Profile `truncate`
// sets the rounding mode toward zero meanwhile: products of two bf16 or f16 are exact in fp32, so only the additions round,
// as in a tensor core, which keeps a few more bits of the terms than this.
#include "machine.h"
#include "primitives.h"

#include <fenv.h>
#include <string.h>

#ifdef __clang__
#pragma clang fp contract(fast)
#endif

namespace simt {
namespace {

typedef u16 u16x8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef u32 u32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
#define INLINE inline __attribute__((always_inline))

// A fragment as fp32, laid out when first used.
struct Operand {
  float at[16][16];                           // A: [m][k], B: [k][n]
  bool ready;
};

struct Accumulator {
  u32 distance;
  float at[16][16];                           // [m][n]
};

struct Workspace {
  Operand operands[MAX_RECORDS];
  Accumulator accumulators[MAX_RECORDS];
  u32 accumulator_count;
};

INLINE void widen(Product type, const Warp::Row& row, f32x8& wide) {
  const u32x8 bits = __builtin_convertvector(*(const u16x8*)&row, u32x8);
  if (type == PRODUCT_BF16) {
    wide = (f32x8)(bits << 16);
    return;
  }
  const u32x8 magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
  const u32x8 special = (u32x8)(magnitude >= 0x7c00) & 0x7f800000;        // infinity, NaN
  const f32x8 scaled = (f32x8)(magnitude << 13) * 0x1p112f;               // exponent bias 15 -> 127; exact
  wide = (f32x8)((u32x8)scaled | special | sign);
}

INLINE void transpose(f32x8 (&row)[8]) {
  f32x8 pairs[8], quads[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    pairs[i + 1] = __builtin_shufflevector(row[i], row[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      quads[i + j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + j + 2] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; i++) {
    row[i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    row[i + 4] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Words of four neighbouring lanes form a row of a matrix, where the fragment came from registers.
INLINE Warp::Row register_row(const Warp::Row* lanes, int matrix, int row) {
  u32 words[4];
  for (int i = 0; i < 4; i++) words[i] = ((const u32*)&lanes[4 * row + i])[matrix];
  Warp::Row packed;
  memcpy(&packed, words, 16);
  return packed;
}

// Lays out a fragment as A (rows are m, matrices 0 2 / 1 3) or as B (B^T has rows n, matrices 0 1 / 2 3).
INLINE void lay_out(Operand& operand, u64 kind, Product type, const Warp::Row* lanes, bool as_a) {
  const bool transposed = as_a == (kind == ROWS_TRANS);
  for (int matrix = 0; matrix < 4; matrix++) {
    const int row0 = matrix % 2 * 8, col0 = matrix / 2 * 8;
    f32x8 wide[8];
    for (int row = 0; row < 8; row++) {
      const Warp::Row bits = kind == REGISTERS ? register_row(lanes, matrix, row) : lanes[matrix * 8 + row];
      widen(type, bits, wide[row]);
    }
    if (transposed) transpose(wide);
    for (int row = 0; row < 8; row++) *(f32x8*)&operand.at[row0 + row][col0] = wide[row];
  }
  operand.ready = true;
}

// Lane l holds of half h, element e: row l/4 + 8(e/2), column 8h + 2(l%4) + e%2.
INLINE void gather(Accumulator& acc, Lane* const* lanes) {
  for (int l = 0; l < 32; l++) {
    const float* from = lanes[l]->first_acc + (int)acc.distance;
    for (int half = 0; half < 2; half++)
      for (int pair = 0; pair < 2; pair++)
        memcpy(&acc.at[l / 4 + 8 * pair][8 * half + 2 * (l % 4)], from + 4 * half + 2 * pair, 8);
  }
}
INLINE void scatter(const Accumulator& acc, Lane* const* lanes) {
  for (int l = 0; l < 32; l++) {
    float* to = lanes[l]->first_acc + (int)acc.distance;
    for (int half = 0; half < 2; half++)
      for (int pair = 0; pair < 2; pair++)
        memcpy(to + 4 * half + 2 * pair, &acc.at[l / 4 + 8 * pair][8 * half + 2 * (l % 4)], 8);
  }
}

// Four rows of A by all of B; eight sums in registers.
INLINE void multiply_block(float (&c)[16][16], const float (&a)[16][16], const float (&b)[16][16]) {
  for (int m = 0; m < 16; m += 4) {
    f32x8 sum00 = {}, sum01 = {}, sum10 = {}, sum11 = {}, sum20 = {}, sum21 = {}, sum30 = {}, sum31 = {};
    for (int k = 0; k < 16; k++) {
      const f32x8 b0 = *(const f32x8*)&b[k][0], b1 = *(const f32x8*)&b[k][8];
      sum00 += a[m][k] * b0;
      sum01 += a[m][k] * b1;
      sum10 += a[m + 1][k] * b0;
      sum11 += a[m + 1][k] * b1;
      sum20 += a[m + 2][k] * b0;
      sum21 += a[m + 2][k] * b1;
      sum30 += a[m + 3][k] * b0;
      sum31 += a[m + 3][k] * b1;
    }
    f32x8* to = (f32x8*)&c[m][0];
    to[0] += sum00;
    to[1] += sum01;
    to[2] += sum10;
    to[3] += sum11;
    to[4] += sum20;
    to[5] += sum21;
    to[6] += sum30;
    to[7] += sum31;
  }
}

INLINE Accumulator& accumulator_of(Workspace& w, u32 distance, Lane* const* lanes) {
  for (u32 i = w.accumulator_count; i > 0; i--)
    if (w.accumulators[i - 1].distance == distance) return w.accumulators[i - 1];
  Accumulator& fresh = w.accumulators[w.accumulator_count++];
  fresh.distance = distance;
  gather(fresh, lanes);
  return fresh;
}

INLINE void compute(Workspace& w, const Warp& warp, Lane* const* lanes) {
  const u64* ops = lanes[0]->ops;
  u64 kinds[MAX_RECORDS];
  u32 rows = 0;
  w.accumulator_count = 0;
  for (u32 i = 0; i < lanes[0]->op_count; i++) {
    const u64 op = ops[i];
    if (!(op & OP_PRODUCT)) {
      w.operands[rows].ready = false;
      kinds[rows++] = op;
      continue;
    }
    const Product type = (Product)(op >> 8 & 15);
    const u32 a = op >> 12 & 1023, b = op >> 22 & 1023;
    if (!w.operands[a].ready) lay_out(w.operands[a], kinds[a], type, &warp.rows[a * WARP], true);
    if (!w.operands[b].ready) lay_out(w.operands[b], kinds[b], type, &warp.rows[b * WARP], false);
    multiply_block(accumulator_of(w, (u32)(op >> 32), lanes).at, w.operands[a].at, w.operands[b].at);
  }
  for (u32 i = 0; i < w.accumulator_count; i++) scatter(w.accumulators[i], lanes);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"), noinline)) void compute_avx2(Workspace& w, const Warp& warp, Lane* const* lanes) {
  compute(w, warp, lanes);
}
#endif
__attribute__((noinline)) void compute_portable(Workspace& w, const Warp& warp, Lane* const* lanes) {
  compute(w, warp, lanes);
}

}  // namespace

void compute_products(Warp& warp, Lane* const* lanes) {
  if (!machine->workspace) machine->workspace = ::operator new(sizeof(Workspace));
  Workspace& w = *(Workspace*)machine->workspace;
  const int rounding = fegetround();
  if (machine->launch->accumulation == THD_TRUNCATE) fesetround(FE_TOWARDZERO);
#ifdef __x86_64__
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) compute_avx2(w, warp, lanes);
  else compute_portable(w, warp, lanes);
#else
  compute_portable(w, warp, lanes);
#endif
  fesetround(rounding);
}

}  // namespace simt
