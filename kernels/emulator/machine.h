// The emulator's inside: one Machine runs one launch at a time, block after block, on the host thread that called.
#pragma once

#include <stdint.h>
#include <vector>

#include "../params.h"
#include "abi.h"
#include "fiber.h"
#include "kernel_table.h"

namespace simt {

constexpr unsigned WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP;
constexpr u32 MAX_ARRAYS = 32;
constexpr u32 SHARED_FENCE = 128;             // bytes nobody owns behind every shared array
constexpr u32 SHARED_FILL = 0x7fff7fff;       // NaN as f32, and as two bf16 or f16

enum class Wait : unsigned char { NOTHING, BLOCK_BARRIER, WARP_BARRIER, SHUFFLE, PRODUCT };
const char* name_of(Wait wait);

struct Copy {                                 // a cp.async on its way
  void* to;
  const void* from;
  u32 bytes;
  bool valid;
  const void* pc;
};

// A CUDA thread.
struct Lane : Fiber {
  unsigned thread, warp, lane;
  Wait waiting_at;
  u32 block_epoch, warp_epoch;                // barriers passed, for race mode
  u32 arrays_taken;                           // of shared memory
  u32 meetings;                               // collectives passed: which exchange slot is next
  std::vector<Copy> copies;
  std::vector<size_t> copy_groups;            // ends of committed groups in copies
  // what this lane has recorded since the last finish_products; see collective.cc
  u32 row_count, product_count, op_count;
  float* first_acc;
  u64* ops = nullptr;                         // [2 * MAX_RECORDS]

  void forget_program() { row_count = product_count = op_count = 0; }
};

struct Warp {
  unsigned arrived;                           // lanes at the current collective
  Wait meeting;
  u32 runnable;                               // bit per lane
  u32 priority, first_lane;                   // drawn by the schedule
  float exchange[2][WARP];
  struct Row { u64 low, high; }* rows = nullptr;   // [MAX_RECORDS][WARP]
};

constexpr u32 MAX_RECORDS = 512;
constexpr u64 OP_PRODUCT = 0x80;               // an op is a RowKind, or this with type, a, b, accumulator

namespace race { struct Shadow; }

struct Machine {
  Fiber host;
  std::vector<Lane*> lanes;
  Warp warps[MAX_WARPS];
  unsigned thread_count = 0, warp_count = 0, live = 0, at_barrier = 0, last_warp = 0;
  uint64_t random_state = 0;
  const ThdLaunch* launch = nullptr;
  ThdReport* report = nullptr;
  const KernelRow* kernel = nullptr;
  std::vector<u64> params;                    // own copy, so that race mode knows where it lies
  ThdDim3 block{};
  u32 block_number = 0;
  char* shared = nullptr;                     // arrays with fences between them
  size_t shared_capacity = 0, shared_bytes = 0, shared_opened = 0;
  void* workspace = nullptr;                  // of products.cc
  race::Shadow* shadow = nullptr;             // of race.cc

  Machine() = default;
  Machine(const Machine&) = delete;
  ~Machine();
  bool reserve(unsigned threads, size_t kernel_bytes);
  void run_block();
  uint64_t random();
};

extern __thread Machine* machine __attribute__((tls_model("initial-exec")));
extern __thread Lane* current __attribute__((tls_model("initial-exec")));   // null outside a kernel

// Ends the launch with this status. Called on a kernel's fiber; does not come back.
[[noreturn]] __attribute__((format(printf, 2, 3))) void fail(ThdStatus status, const char* format, ...);

void switch_to_next();                        // the current lane waits until somebody makes it runnable
void compute_products(Warp& warp, Lane* const* lanes);

// ---- observers: empty unless the library is built for that mode ------------------------------------------------------

#ifdef THD_RACE
namespace race {
void begin_launch(const ThdLaunch& launch);
void begin_block(const char* shared, size_t bytes);
void end_launch();
void release(Shadow* shadow);
void open_shared(const void* at, size_t bytes, size_t fences);
void access(const void* at, u32 bytes, bool write, bool atomic, const void* pc);
void copy_issued(const Copy& copy);
void copy_landed(const Copy& copy);
}
#else
namespace race {
inline void begin_launch(const ThdLaunch&) {}
inline void begin_block(const char*, size_t) {}
inline void end_launch() {}
inline void release(Shadow*) {}
inline void open_shared(const void*, size_t, size_t) {}
inline void access(const void*, u32, bool, bool, const void*) {}
inline void copy_issued(const Copy&) {}
inline void copy_landed(const Copy&) {}
}
#endif

namespace asan {
#ifdef THD_ASAN
extern "C" void __asan_poison_memory_region(const volatile void*, size_t);
extern "C" void __asan_unpoison_memory_region(const volatile void*, size_t);
extern "C" void __asan_loadN(const void*, size_t);
extern "C" void __asan_storeN(const void*, size_t);
inline void poison(const void* at, size_t bytes) { __asan_poison_memory_region(at, bytes); }
inline void unpoison(const void* at, size_t bytes) { __asan_unpoison_memory_region(at, bytes); }
inline void check_load(const void* at, size_t bytes) { __asan_loadN(at, bytes); }
inline void check_store(const void* at, size_t bytes) { __asan_storeN(at, bytes); }
#else
inline void poison(const void*, size_t) {}
inline void unpoison(const void*, size_t) {}
inline void check_load(const void*, size_t) {}
inline void check_store(const void*, size_t) {}
#endif
}

}  // namespace simt
