// The C interface of an emulated-kernel library: all that a host program sees.
//
// One library holds the kernels and the emulator. Any number of host threads may call thd_emulator_launch at once.
#pragma once

#include <stdint.h>

#define THD_EMULATOR_ABI 1
#define THD_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// Outcome of a launch. From THD_DIVERGENCE on it is the kernel's fault.
enum ThdStatus {
  THD_OK = 0,
  THD_UNKNOWN_KERNEL = 1,      // no kernel of that name in this library
  THD_BAD_LAUNCH = 2,          // block size, parameter size, options: the caller's fault
  THD_RESOURCE = 3,            // no memory for stacks or shared memory
  THD_DIVERGENCE = 10,         // lanes of a warp at different collectives
  THD_DEADLOCK = 11,           // every thread waits
  THD_MISALIGNED = 12,         // 16-byte or 8-byte access at another address
  THD_SHARED_MEMORY = 13,      // more shared memory than the launch gave, or an address outside it
  THD_UNSUPPORTED = 14,        // something this emulator does not do (partial shuffle masks, ...)
  THD_TOO_LONG = 15,           // more context switches than the caller allowed
};

// How a product accumulates, 16 terms at a time.
enum ThdAccumulation {
  THD_TRUNCATE = 0,            // every addition rounds toward zero, as tensor cores do
  THD_NEAREST = 1,
};

enum ThdMode {                 // bits of thd_emulator_mode
  THD_MODE_RACE = 1,           // built with the race detector
  THD_MODE_ASAN = 2,           // built for AddressSanitizer
  THD_MODE_UCONTEXT = 4,       // fibers switch by swapcontext
};

enum ThdRaceKind {
  THD_RACE_READ_AFTER_WRITE = 1,
  THD_RACE_WRITE_AFTER_READ = 2,
  THD_RACE_WRITE_AFTER_WRITE = 3,
  THD_RACE_PENDING_COPY = 4,   // access to the destination of a cp.async that nobody has waited for
  THD_RACE_UNINITIALISED = 5,  // read of shared memory that nobody wrote in this block
  THD_RACE_OUT_OF_BOUNDS = 6,  // outside every watched range and outside shared memory
  THD_RACE_BETWEEN_ARRAYS = 7, // shared memory that no array owns
  THD_RACE_READ_ONLY = 8,      // write to a range watched as read-only
};

enum { THD_RANGE_READ_ONLY = 1, THD_RANGE_FORBIDDEN = 2, THD_NO_RANGE = 0xffffffff, THD_NO_THREAD = 0xffffffff };

typedef struct ThdDim3 { uint32_t x, y, z; } ThdDim3;

// Global memory the kernel may touch. Race mode looks at these ranges and needs every one of them.
// THD_RANGE_FORBIDDEN: memory of the host's that the kernel may not touch, such as rows of no sequence and guards around
// a tensor. Only a library built for AddressSanitizer takes such ranges; it poisons them while the launch runs.
typedef struct ThdRange {
  const char* name;
  const void* data;
  uint64_t bytes;
  uint32_t flags;
  uint32_t reserved;
} ThdRange;

typedef struct ThdLaunch {
  const char* kernel;
  const void* params;
  uint64_t params_bytes;
  ThdDim3 grid;                // any member 0: nothing runs
  ThdDim3 block;               // y = z = 1; x a multiple of 32, at most 1024
  uint32_t shared_bytes;
  uint32_t accumulation;       // ThdAccumulation
  uint64_t seed;               // of the schedule; 0 is a fixed one
  uint64_t max_switches;       // 0: no limit
  const ThdRange* ranges;
  uint64_t range_count;
} ThdLaunch;

// One side of a conflict. pc is relative to the library's first byte and lies inside the accessing instruction's call
// (addr2line -i -e library pc); block is the linear block index.
typedef struct ThdAccess {
  uint64_t pc;
  uint32_t block;
  uint32_t thread;             // THD_NO_THREAD: there is no other side
} ThdAccess;

typedef struct ThdRace {
  uint32_t kind;               // ThdRaceKind
  uint32_t range;              // index into ranges, or THD_NO_RANGE
  uint32_t in_shared;          // 1: offset is a byte of shared memory, counted as the kernel allocates it
  uint32_t bytes;              // size of the access that was noticed
  uint64_t offset;             // byte offset in the range or in shared memory, else the address
  ThdAccess access;            // the access that was noticed
  ThdAccess earlier;           // what it conflicts with
} ThdRace;

enum { THD_MAX_RACES = 16, THD_MESSAGE_BYTES = 512 };

typedef struct ThdReport {
  uint32_t status;             // ThdStatus
  uint32_t races_kept;         // in races[]; repetitions of the same pair of pcs are left out
  uint64_t races_seen;
  uint64_t switches;
  ThdRace races[THD_MAX_RACES];
  char message[THD_MESSAGE_BYTES];   // says more where status is not THD_OK
} ThdReport;

typedef struct ThdKernel {
  const char* name;
  uint64_t params_bytes;
  uint32_t threads;            // block.x to launch with
  uint32_t shared_bytes;
} ThdKernel;

THD_EXPORT uint32_t thd_emulator_abi(void);
THD_EXPORT uint32_t thd_emulator_mode(void);
// 1 and *kernel filled, or 0 past the last.
THD_EXPORT uint32_t thd_emulator_kernel(uint32_t index, ThdKernel* kernel);
// Returns report->status.
THD_EXPORT uint32_t thd_emulator_launch(const ThdLaunch* launch, ThdReport* report);

#ifdef __cplusplus
}
static_assert(sizeof(ThdRange) == 32 && sizeof(ThdLaunch) == 88 && sizeof(ThdRace) == 56 && sizeof(ThdKernel) == 24,
              "mirrored by the host");
static_assert(sizeof(ThdReport) == 24 + THD_MAX_RACES * 56 + THD_MESSAGE_BYTES, "mirrored by the host");
#endif
