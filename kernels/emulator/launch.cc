// The exported functions: check the launch, find a machine, run the blocks.
#include <algorithm>
#include <mutex>
#include <new>
#include <stdio.h>
#include <string.h>
#include <vector>

#include "machine.h"
#include "primitives.h"

namespace simt {

// Machines wait here between launches: their stacks and shared memory are kept.
class Pool {
 public:
  ~Pool() {
    for (Machine* m : idle_) delete m;
  }
  Machine* take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return new Machine();
    Machine* m = idle_.back();
    idle_.pop_back();
    return m;
  }
  void give_back(Machine* m) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(m);
  }

 private:
  std::mutex mutex_;
  std::vector<Machine*> idle_;
};
static Pool pool;

static u32 refuse(ThdReport* report, ThdStatus status, const char* why) {
  report->status = status;
  snprintf(report->message, THD_MESSAGE_BYTES, "%s", why);
  return status;
}

static const KernelRow* find_kernel(const char* name) {
  for (unsigned i = 0; i < KERNEL_COUNT; i++)
    if (strcmp(KERNEL_TABLE[i].name, name) == 0) return &KERNEL_TABLE[i];
  return nullptr;
}

static const char* wrong_with(const ThdLaunch& launch, const KernelRow& kernel) {
  if (launch.params_bytes != kernel.params_bytes) return "the parameters have another size than this kernel's";
  if (launch.block.y != 1 || launch.block.z != 1) return "blocks are one-dimensional here";
  if (launch.block.x == 0 || launch.block.x % WARP || launch.block.x > MAX_THREADS)
    return "a block has whole warps, at most 1024 threads";
  if (launch.shared_bytes > 227 * 1024) return "no GPU gives a block more than 227 KiB of shared memory";
  if ((u64)launch.grid.x * launch.grid.y * launch.grid.z >= 1ull << 31) return "more blocks than 2^31";
  if (launch.accumulation > THD_NEAREST) return "unknown accumulation";
  return nullptr;
}

static bool run_numbered_block(Machine& m, u32 number) {
  const ThdDim3& grid = m.launch->grid;
  m.block_number = number;
  m.block = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
  m.run_block();
  return m.report->status == THD_OK;
}

// Blocks in order, or shuffled by the seed, until one fails.
static void run_blocks(Machine& m, const ThdLaunch& launch) {
  const u32 count = launch.grid.x * launch.grid.y * launch.grid.z;
  if (launch.seed == 0) {
    for (u32 number = 0; number < count && run_numbered_block(m, number); number++) {}
    return;
  }
  std::vector<u32> order(count);
  for (u32 i = 0; i < count; i++) order[i] = i;
  for (u32 i = count; i > 1; i--) std::swap(order[i - 1], order[m.random() % i]);
  for (u32 number : order)
    if (!run_numbered_block(m, number)) return;
}

// Memory of the host's that a kernel must not touch, for AddressSanitizer to watch while a launch runs.
class Fences {
 public:
  explicit Fences(const ThdLaunch& launch) : launch_(launch) { each(asan::poison); }
  ~Fences() { each(asan::unpoison); }

 private:
  void each(void (*apply)(const void*, size_t)) {
    for (u64 i = 0; i < launch_.range_count; i++)
      if (launch_.ranges[i].flags & THD_RANGE_FORBIDDEN) apply(launch_.ranges[i].data, launch_.ranges[i].bytes);
  }
  const ThdLaunch& launch_;
};

static u32 run(const ThdLaunch& launch, ThdReport* report) {
  const KernelRow* kernel = find_kernel(launch.kernel);
  if (!kernel) return refuse(report, THD_UNKNOWN_KERNEL, "no such kernel in this library");
  if (const char* why = wrong_with(launch, *kernel)) return refuse(report, THD_BAD_LAUNCH, why);

  Machine* m = pool.take();
  if (!m->reserve(launch.block.x, launch.shared_bytes)) {
    pool.give_back(m);
    return refuse(report, THD_RESOURCE, "no memory for stacks or shared memory");
  }
  m->launch = &launch;
  m->report = report;
  m->kernel = kernel;
  m->host = Fiber();                          // another host thread than last time, perhaps
  m->random_state = launch.seed;
  m->params.resize((launch.params_bytes + 7) / 8);
  memcpy(m->params.data(), launch.params, launch.params_bytes);
  machine = m;
  race::begin_launch(launch);
  {
    Fences fences(launch);
    run_blocks(*m, launch);
  }
  race::end_launch();
  machine = nullptr;
  current = nullptr;
  pool.give_back(m);
  return report->status;
}

static u32 pick(const ThdDim3& size, u32 axis) { return axis == 0 ? size.x : axis == 1 ? size.y : size.z; }

u32 thread_number() { return current->thread; }
u32 block_number(u32 axis) { return pick(machine->block, axis); }
u32 grid_size(u32 axis) { return pick(machine->launch->grid, axis); }
u32 block_size() { return machine->thread_count; }

}  // namespace simt

extern "C" {

uint32_t thd_emulator_abi() { return THD_EMULATOR_ABI; }

uint32_t thd_emulator_mode() {
  uint32_t mode = 0;
#ifdef THD_RACE
  mode |= THD_MODE_RACE;
#endif
#ifdef THD_ASAN
  mode |= THD_MODE_ASAN;
#endif
#ifdef THD_UCONTEXT
  mode |= THD_MODE_UCONTEXT;
#endif
  return mode;
}

uint32_t thd_emulator_kernel(uint32_t index, ThdKernel* kernel) {
  if (index >= simt::KERNEL_COUNT) return 0;
  const simt::KernelRow& row = simt::KERNEL_TABLE[index];
  *kernel = {row.name, row.params_bytes, row.threads, row.shared_bytes};
  return 1;
}

uint32_t thd_emulator_launch(const ThdLaunch* launch, ThdReport* report) {
  memset(report, 0, sizeof *report);
  try {
    return simt::run(*launch, report);
  } catch (const std::bad_alloc&) {           // outside any fiber: the shadow, the order of blocks
    simt::machine = nullptr;
    return simt::refuse(report, THD_RESOURCE, "out of memory");
  }
}
}
