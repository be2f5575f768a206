// The machine: every PTX instruction the kernels use, behind one small function each.
//
// On the CPU emulator/device.h supplies the same names, and this file is empty.
#ifdef __CUDACC__

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "mma.m16n8k16 and cp.async need compute capability 8.0"
#endif

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

extern __shared__ Chunk dynamic_shared_memory[];

// Hands out dynamic shared memory front to back.
struct SharedMemory {
  unsigned char* next;
  __device__ SharedMemory() : next((unsigned char*)dynamic_shared_memory) {}
  template <class T> __device__ T* take(int count) {
    T* array = (T*)next;
    next += sizeof(T) * count;
    return array;
  }
};

DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// The value, but what depends on it is not computed ahead of a loop and kept: shared-memory addresses of five tiles would
// take the registers that accumulators need.
DEVICE int recompute(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// ---- numbers -------------------------------------------------------------------------------------------------------

// Two fp32 values rounded to nearest even, the first in the low half.
template <class T> DEVICE u32 pack2(float low, float high);
template <> DEVICE u32 pack2<bf16>(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <> DEVICE u32 pack2<f16>(float low, float high) {
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <class T> DEVICE float widen(u16 bits);
template <> DEVICE float widen<bf16>(u16 bits) { return __uint_as_float((u32)bits << 16); }
template <> DEVICE float widen<f16>(u16 bits) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
  return wide;
}

DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }
DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float natural_log(float x) { return logf(x); }
DEVICE float negative_infinity() { return __int_as_float(0xff800000); }

// ---- memory --------------------------------------------------------------------------------------------------------

DEVICE Chunk load_chunk(const void* from) {
  const uint4 words = *(const uint4*)from;
  return {{words.x, words.y, words.z, words.w}};
}
DEVICE void store_chunk(void* to, const Chunk& chunk) {
  *(uint4*)to = make_uint4(chunk.word[0], chunk.word[1], chunk.word[2], chunk.word[3]);
}

// Asynchronous copy global -> shared; when not valid, zeros are written and `from` is not read.
DEVICE void cp_async16(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
DEVICE void cp_async4(void* to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               ::"r"(shared_address(to)), "l"(from), "r"(valid ? 4 : 0) : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// to[0] += a, to[1] += b, each atomically; `to` is 8-byte aligned.
DEVICE void atomic_add2(float* to, float a, float b) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b) : "memory");
#else
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(a) : "memory");
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to + 1), "f"(b) : "memory");
#endif
}

// ---- warp matrix product -------------------------------------------------------------------------------------------

// Four 8x8 matrices spread over a warp. Lane l holds of matrix i the elements (l/4, 2(l%4)) and (l/4, 2(l%4)+1).
struct Fragment { u32 matrix[4]; };

// Lane l supplies row l%8 of matrix l/8.
DEVICE Fragment ldmatrix(const void* row) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.matrix[0]), "=r"(f.matrix[1]), "=r"(f.matrix[2]), "=r"(f.matrix[3])
               : "r"(shared_address(row)) : "memory");
  return f;
}
DEVICE Fragment ldmatrix_trans(const void* row) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.matrix[0]), "=r"(f.matrix[1]), "=r"(f.matrix[2]), "=r"(f.matrix[3])
               : "r"(shared_address(row)) : "memory");
  return f;
}
DEVICE Fragment fragment_of(u32 m0, u32 m1, u32 m2, u32 m3) { return {{m0, m1, m2, m3}}; }

template <class T> DEVICE void mma_m16n8k16(float (&c)[4], const Fragment& a, u32 b0, u32 b1);
template <> DEVICE void mma_m16n8k16<bf16>(float (&c)[4], const Fragment& a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a.matrix[0]), "r"(a.matrix[1]), "r"(a.matrix[2]), "r"(a.matrix[3]), "r"(b0), "r"(b1));
}
template <> DEVICE void mma_m16n8k16<f16>(float (&c)[4], const Fragment& a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a.matrix[0]), "r"(a.matrix[1]), "r"(a.matrix[2]), "r"(a.matrix[3]), "r"(b0), "r"(b1));
}

// C[16][16] += A[16][16] B[16][16]; c[half] are columns 8*half .. 8*half+7.
// A = (matrix 0, 2 / 1, 3) by rows; B^T = (0, 1 / 2, 3).
template <class T> DEVICE void mma_m16n16k16(float (&c)[2][4], const Fragment& a, const Fragment& b) {
  mma_m16n8k16<T>(c[0], a, b.matrix[0], b.matrix[1]);
  mma_m16n8k16<T>(c[1], a, b.matrix[2], b.matrix[3]);
}

// Accumulators may be read after this. mma.sync has nothing to wait for; the emulator computes here.
DEVICE void mma_wait() {}

#endif
