// The kernel sources as C++, in the order of kernels/README.md, and the table of what can be launched.
//
// This file alone is instrumented (coverage, sanitizers, race mode). Any source can be replaced from the command line,
// e.g. -D'THD_BACKWARD_CU="/path/backward.cu"'.
#include "../params.h"
#include "device.h"
#include "kernel_table.h"

#ifndef THD_TILE_CUH
#define THD_TILE_CUH "../tile.cuh"
#endif
#ifndef THD_MASK_CUH
#define THD_MASK_CUH "../mask.cuh"
#endif
#ifndef THD_RAGGED_CUH
#define THD_RAGGED_CUH "../ragged.cuh"
#endif
#ifndef THD_PRODUCT_CUH
#define THD_PRODUCT_CUH "../product.cuh"
#endif
#ifndef THD_FORWARD_CU
#define THD_FORWARD_CU "../forward.cu"
#endif
#ifndef THD_BACKWARD_DELTA_CU
#define THD_BACKWARD_DELTA_CU "../backward_delta.cu"
#endif
#ifndef THD_BACKWARD_CU
#define THD_BACKWARD_CU "../backward.cu"
#endif
#ifndef THD_BACKWARD_CONVERT_CU
#define THD_BACKWARD_CONVERT_CU "../backward_convert.cu"
#endif
#ifndef THD_CLEAR_CU
#define THD_CLEAR_CU "../clear.cu"
#endif

#include THD_TILE_CUH
#include THD_MASK_CUH
#include THD_RAGGED_CUH
#include THD_PRODUCT_CUH
#include THD_FORWARD_CU
#include THD_BACKWARD_DELTA_CU
#include THD_BACKWARD_CU
#include THD_BACKWARD_CONVERT_CU
#include THD_CLEAR_CU

namespace simt {

template <void (*KERNEL)(Params)> void invoke(const void* params) { KERNEL(*(const Params*)params); }

#define ROW(KERNEL, THREADS, SMEM) {#KERNEL, invoke<KERNEL>, sizeof(Params), THREADS, SMEM},
#define FORWARD_ROW(T, D) ROW(thd_forward_##T##_d##D, FORWARD_THREADS, forward_smem_bytes<D>)
#define BACKWARD_ROW(T, D) ROW(thd_backward_##T##_d##D, BACKWARD_THREADS, backward_smem_bytes<D>)
#define DELTA_ROW(T) ROW(thd_backward_delta_##T, DELTA_THREADS, 0)
#define CONVERT_ROW(T) ROW(thd_backward_convert_##T, CONVERT_THREADS, 0)

const KernelRow KERNEL_TABLE[] = {
  THD_FOR_EACH_DTYPE_DIM(FORWARD_ROW)
  THD_FOR_EACH_DTYPE(DELTA_ROW)
  THD_FOR_EACH_DTYPE_DIM(BACKWARD_ROW)
  THD_FOR_EACH_DTYPE(CONVERT_ROW)
  ROW(thd_clear_forward, CLEAR_THREADS, 0)
  ROW(thd_clear_backward, CLEAR_THREADS, 0)
};
const unsigned KERNEL_COUNT = sizeof(KERNEL_TABLE) / sizeof(KERNEL_TABLE[0]);

}  // namespace simt
