// The CPU side of tile.cuh: the same names, for one CUDA thread that is a fiber.
//
// Loads and stores that the kernel asks for happen here, in the file that is compiled with the kernel, so that sanitizers
// see them at the kernel's own lines. Only registers travel to the emulator.
#pragma once

#include <math.h>
#include <string.h>

#include "primitives.h"

#define __global__
#define __device__
#define __launch_bounds__(...)
#ifdef THD_RACE
#define DEVICE inline __attribute__((always_inline))   // so that a pc tells the whole chain of callers
#else
#define DEVICE inline
#endif
#define UNROLL

#define threadIdx (simt::Index{simt::thread_number(), 0, 0})
#define blockIdx (simt::Index{simt::block_number(0), simt::block_number(1), simt::block_number(2)})
#define blockDim (simt::Index{simt::block_size(), 1, 1})
#define gridDim (simt::Index{simt::grid_size(0), simt::grid_size(1), simt::grid_size(2)})

DEVICE void __syncthreads() { simt::sync_threads(); }
DEVICE void __syncwarp() { simt::sync_warp(); }
DEVICE float __shfl_xor_sync(u32 mask, float value, int lane_mask) { return simt::shuffle_xor(mask, value, lane_mask); }

struct SharedMemory {
  u32 used = 0;
  template <class T> DEVICE T* take(int count) { return (T*)simt::take_shared(used, sizeof(T) * (u64)count); }
};

DEVICE int recompute(int value) { return value; }

// ---- numbers -------------------------------------------------------------------------------------------------------

DEVICE float as_float(u32 bits) { float f; memcpy(&f, &bits, 4); return f; }
DEVICE u32 as_bits(float f) { u32 bits; memcpy(&bits, &f, 4); return bits; }

// Rounds to nearest even, as cvt.rn does; NaN becomes the one that cvt gives.
template <class T> DEVICE u32 round_to(float value);
template <> DEVICE u32 round_to<bf16>(float value) {
  const u32 bits = as_bits(value);
  if (value != value) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
template <> DEVICE u32 round_to<f16>(float value) {
  const u32 bits = as_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;                      // 65520 and above
  if (magnitude < 0x38800000) {                                           // below 2^-14: units of 2^-24
    const float shifted = as_float(magnitude) + 0.5f;                     // the addition rounds to that unit
    return sign | (as_bits(shifted) - 0x3f000000);
  }
  const u32 rebased = magnitude - 0x38000000;                             // exponent bias 127 -> 15
  return sign | (rebased + 0xfff + (rebased >> 13 & 1)) >> 13;
}

template <class T> DEVICE u32 pack2(float low, float high) { return round_to<T>(low) | round_to<T>(high) << 16; }

template <class T> DEVICE float widen(u16 bits);
template <> DEVICE float widen<bf16>(u16 bits) { return as_float((u32)bits << 16); }
template <> DEVICE float widen<f16>(u16 bits) {
  const u32 sign = (u32)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  return as_float(sign | as_bits(as_float(magnitude << 13) * 0x1p112f));  // exact, denormals included
}

DEVICE float exp2_approx(float x) { return exp2f(x); }
DEVICE float natural_log(float x) { return logf(x); }
DEVICE float negative_infinity() { return -INFINITY; }

// ---- memory --------------------------------------------------------------------------------------------------------

DEVICE void check_aligned(const void* address, u32 alignment) {
  if ((u64)address % alignment) simt::misaligned(address, alignment);
}

// Word by word: g++ does not instrument the copy of a struct for races.
DEVICE Chunk load_chunk(const void* from) {
  check_aligned(from, 16);
  const u32* word = (const u32*)from;
  return {{word[0], word[1], word[2], word[3]}};
}
DEVICE void store_chunk(void* to, const Chunk& chunk) {
  check_aligned(to, 16);
  u32* word = (u32*)to;
  word[0] = chunk.word[0]; word[1] = chunk.word[1]; word[2] = chunk.word[2]; word[3] = chunk.word[3];
}

DEVICE void cp_async16(void* to, const void* from, bool valid) { simt::cp_async(to, from, 16, valid); }
DEVICE void cp_async4(void* to, const void* from, bool valid) { simt::cp_async(to, from, 4, valid); }
DEVICE void cp_async_commit() { simt::cp_async_commit(); }
template <int PENDING> DEVICE void cp_async_wait() { simt::cp_async_wait(PENDING); }

DEVICE void atomic_add2(float* to, float a, float b) {
  check_aligned(to, 8);
  simt::atomic_add(to, a);
  simt::atomic_add(to + 1, b);
}

// ---- warp matrix product -------------------------------------------------------------------------------------------

// A fragment's number in the list of what this warp has to multiply; see collective.cc.
struct Fragment { u32 index; };

DEVICE Fragment record_row(simt::RowKind kind, const void* row) {
  check_aligned(row, 16);
  const u64* half = (const u64*)row;
  return {simt::record_rows(kind, row, half[0], half[1])};
}
DEVICE Fragment ldmatrix(const void* row) { return record_row(simt::ROWS, row); }
DEVICE Fragment ldmatrix_trans(const void* row) { return record_row(simt::ROWS_TRANS, row); }
DEVICE Fragment fragment_of(u32 m0, u32 m1, u32 m2, u32 m3) {
  return {simt::record_rows(simt::REGISTERS, nullptr, m0 | (u64)m1 << 32, m2 | (u64)m3 << 32)};
}

template <class T> DEVICE void mma_m16n16k16(float (&c)[2][4], Fragment a, Fragment b);
template <> DEVICE void mma_m16n16k16<bf16>(float (&c)[2][4], Fragment a, Fragment b) {
  simt::record_product(simt::PRODUCT_BF16, &c[0][0], a.index, b.index);
}
template <> DEVICE void mma_m16n16k16<f16>(float (&c)[2][4], Fragment a, Fragment b) {
  simt::record_product(simt::PRODUCT_F16, &c[0][0], a.index, b.index);
}
DEVICE void mma_wait() { simt::finish_products(); }
