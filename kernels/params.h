// What the host hands to the kernels: plain structs of fixed-width members, mirrored by the host program.
//
// First file of the concatenation (README.md gives the order). No includes: NVRTC needs no include path.
#ifndef THD_PARAMS_H
#define THD_PARAMS_H

typedef int i32;
typedef unsigned u32;
typedef unsigned short u16;
typedef long long i64;
typedef unsigned long long u64;

// Exponentials are taken to base 2, as the hardware does.
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

// Storage types. Nothing is computed in them: operands are widened to fp32 or fed to mma as bits.
struct bf16 { u16 bits; };
struct f16 { u16 bits; };

// 16 bytes = 8 elements, the unit of every global load and store.
struct alignas(16) Chunk { u32 word[4]; };

// A tensor [rows][heads][columns]. Strides in elements; columns are contiguous.
// 2-byte tensors: data 16-byte aligned, strides multiples of 8. fp32 tensors: dq_acc likewise, lse and delta any stride.
struct Tensor {
  void* data;
  i64 row_stride;
  i64 head_stride;
};

// One unit of work: tile `index` of sequence `sequence`.
struct Tile {
  i32 sequence;
  i32 index;
};

// Storage rows that belong to no sequence.
struct RowRange {
  i64 first;
  i64 count;
};

// Window bound that never bites.
constexpr i32 UNBOUNDED = 0x7fffffff;

// Lengths stay below this, so that a difference of two positions plus one fits in 32 bits.
constexpr i32 MAX_LENGTH = 0x3fffffff;

// Everything, for every kernel; each reads the members it needs and the rest may be null.
struct Params {
  // per sequence
  const i64* q_offset;      // storage row of the first query token
  const i64* kv_offset;
  const i32* q_len;
  const i32* kv_len;

  // work lists made by the host
  const Tile* q_tiles;      // forward, delta, convert: every BLOCK_Q tile of every sequence
  const Tile* kv_tiles;     // backward: every BLOCK_KV tile of every sequence
  const RowRange* q_dead;   // clear: rows of o, lse, dq to zero
  const RowRange* kv_dead;  // clear: rows of dk, dv to zero

  Tensor q, k, v;           // T    [rows][heads][d_qk | d_qk | d_v]
  Tensor o;                 // T    [rows_q][h_q][d_v]
  Tensor lse;               // f32  [rows_q][h_q], natural logarithm
  Tensor d_o;               // T    [rows_q][h_q][d_v]
  Tensor delta;             // f32  [rows_q][h_q], workspace
  Tensor dq_acc;            // f32  [rows_q][h_q][d_qk], workspace
  Tensor dq, dk, dv;        // T    like q, k, v

  i32 heads_q, heads_kv;    // heads_q is a multiple of heads_kv
  i32 d_qk, d_v;            // multiples of 8, at most the kernel's HEAD_DIM
  i32 q_dead_count, kv_dead_count;

  // kv_pos is visible to q_pos iff q_pos + shift - left <= kv_pos <= q_pos + shift + right,
  // shift = bottom_right ? kv_len - q_len : 0. Negative bounds are legal.
  i32 window_left, window_right;
  i32 bottom_right;

  float scale;              // c of S = c Q K^T; may be zero or negative
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2, "elements are two bytes in memory");
static_assert(sizeof(Tensor) == 24, "mirrored by the host");
static_assert(sizeof(Tile) == 8 && sizeof(RowRange) == 16, "mirrored by the host");
static_assert(sizeof(Params) == 8 * 8 + 11 * 24 + 10 * 4, "mirrored by the host: no hidden padding");

// The compiled instances. A build may narrow them, e.g. -D'THD_FOR_EACH_DTYPE_DIM(X)=X(bf16,64)'.
#ifndef THD_FOR_EACH_DTYPE_DIM
#define THD_FOR_EACH_DTYPE_DIM(X) \
  X(bf16, 32) X(bf16, 64) X(bf16, 96) X(bf16, 128) X(f16, 32) X(f16, 64) X(f16, 96) X(f16, 128)
#endif
#ifndef THD_FOR_EACH_DTYPE
#define THD_FOR_EACH_DTYPE(X) X(bf16) X(f16)
#endif

#endif
