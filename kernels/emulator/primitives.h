// What the emulator offers to device.h: barriers, exchanges between lanes, asynchronous copies, shared memory.
#pragma once

#include "../params.h"

namespace simt {

// Constant within a thread, so the compiler may ask once.
__attribute__((const)) u32 thread_number();
__attribute__((const)) u32 block_number(u32 axis);
__attribute__((const)) u32 grid_size(u32 axis);
__attribute__((const)) u32 block_size();

struct Index { u32 x, y, z; };

enum Product : u32 { PRODUCT_BF16, PRODUCT_F16 };
enum RowKind : u32 { ROWS, ROWS_TRANS, REGISTERS };
void sync_threads();
void sync_warp();
float shuffle_xor(u32 mask, float value, int lane_mask);

u32 record_rows(RowKind kind, const void* row, u64 low, u64 high);
void record_product(Product type, float* c, u32 a, u32 b);
void finish_products();

void cp_async(void* to, const void* from, u32 bytes, bool valid);
void cp_async_commit();
void cp_async_wait(u32 pending);
void atomic_add(float* to, float value);

void* take_shared(u32& used, u64 bytes);
[[noreturn]] void misaligned(const void* address, u32 alignment);

}  // namespace simt
