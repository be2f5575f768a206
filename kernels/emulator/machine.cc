// Fibers, the schedule and the run of one block.
//
// A fiber gives way only where it must wait: at a barrier or a collective. seed 0: the running warp goes on while it can,
// lowest lane first. Otherwise the runnable warp of highest priority runs, lanes from a drawn one upwards; priorities and
// first lanes are redrawn now and then, so that some warps run far ahead of others.
#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "primitives.h"

namespace simt {

__thread Machine* machine;
__thread Lane* current;

#ifndef THD_UCONTEXT
asm(R"(
.text
.globl thd_switch_stack
.hidden thd_switch_stack
.type thd_switch_stack, @function
thd_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size thd_switch_stack, .-thd_switch_stack
)");
#endif

const char* name_of(Wait wait) {
  switch (wait) {
    case Wait::NOTHING: return "nothing";
    case Wait::BLOCK_BARRIER: return "__syncthreads";
    case Wait::WARP_BARRIER: return "__syncwarp";
    case Wait::SHUFFLE: return "__shfl_xor_sync";
    case Wait::PRODUCT: return "mma_wait";
  }
  return "?";
}

// ---- schedule --------------------------------------------------------------------------------------------------------

uint64_t Machine::random() {                  // splitmix64
  uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static void draw(Machine& m, Warp& warp) {
  const uint64_t bits = m.random();
  warp.priority = (u32)(bits >> 32);
  warp.first_lane = bits % WARP;
}

static Warp* next_warp(Machine& m) {
  if (m.launch->seed == 0) {
    for (unsigned tried = 0; tried < m.warp_count; tried++) {
      if (m.warps[m.last_warp].runnable) return &m.warps[m.last_warp];
      m.last_warp = m.last_warp + 1 == m.warp_count ? 0 : m.last_warp + 1;
    }
    return nullptr;
  }
  const uint64_t bits = m.random();
  if (bits % 256 == 0) draw(m, m.warps[(bits >> 32) % m.warp_count]);
  Warp* best = nullptr;
  for (unsigned w = 0; w < m.warp_count; w++)
    if (m.warps[w].runnable && (!best || m.warps[w].priority > best->priority)) best = &m.warps[w];
  return best;
}

static Lane* next_lane(Machine& m) {
  Warp* warp = next_warp(m);
  if (!warp) return nullptr;
  const u32 later = warp->runnable & (0xffffffffu << warp->first_lane);
  const unsigned lane = __builtin_ctz(later ? later : warp->runnable);
  warp->runnable &= ~(1u << lane);
  return m.lanes[(warp - m.warps) * WARP + lane];
}

static void go(Fiber& from, Lane* to) {
  if (machine->launch->max_switches && machine->report->switches >= machine->launch->max_switches)
    fail(THD_TOO_LONG, "more than %llu context switches", (unsigned long long)machine->launch->max_switches);
  machine->report->switches++;
  current = to;
  switch_fiber(from, *to);
}

[[noreturn]] static void fail_deadlock() {
  unsigned waiting[5] = {};
  for (unsigned t = 0; t < machine->thread_count; t++) waiting[(int)machine->lanes[t]->waiting_at]++;
  fail(THD_DEADLOCK,
       "deadlock: of %u threads %u wait at __syncthreads, %u at __syncwarp, %u at __shfl_xor_sync, %u at mma_wait, "
       "%u have returned",
       machine->thread_count, waiting[1], waiting[2], waiting[3], waiting[4], machine->thread_count - machine->live);
}

void switch_to_next() {
  Lane* me = current;
  Lane* next = next_lane(*machine);
  if (!next) fail_deadlock();
  if (next != me) go(*me, next);
}

static void release_barrier(Machine& m) {
  m.at_barrier = 0;
  for (unsigned t = 0; t < m.thread_count; t++) {
    Lane& lane = *m.lanes[t];
    if (lane.waiting_at != Wait::BLOCK_BARRIER) continue;
    lane.waiting_at = Wait::NOTHING;
    m.warps[lane.warp].runnable |= 1u << lane.lane;
  }
}

void sync_threads() {
  Lane* me = current;
  if (me->op_count) fail(THD_UNSUPPORTED, "__syncthreads before mma_wait");
  me->waiting_at = Wait::BLOCK_BARRIER;
  if (++machine->at_barrier == machine->live) release_barrier(*machine);
  switch_to_next();
  me->block_epoch++;
}

// ---- failures --------------------------------------------------------------------------------------------------------

void fail(ThdStatus status, const char* format, ...) {
  Machine& m = *machine;
  Lane* me = current;
  m.report->status = status;
  const int used = snprintf(m.report->message, THD_MESSAGE_BYTES, "block %u,%u,%u thread %u: ", m.block.x, m.block.y,
                            m.block.z, me->thread);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(m.report->message + used, THD_MESSAGE_BYTES - used, format, arguments);
  va_end(arguments);
  current = nullptr;
  switch_fiber(*me, m.host);                  // the other fibers are never resumed; run_block prepares them anew
  __builtin_unreachable();
}

void misaligned(const void* address, u32 alignment) {
  fail(THD_MISALIGNED, "address ...%03llx of an access that needs %u-byte alignment",
       (unsigned long long)address % 4096, alignment);
}

// ---- shared memory ---------------------------------------------------------------------------------------------------

// `used` counts bytes as the kernel does; in our memory every array is followed by a fence.
void* take_shared(u32& used, u64 bytes) {
  Machine& m = *machine;
  if (used + bytes > m.launch->shared_bytes)
    fail(THD_SHARED_MEMORY, "the kernel takes %llu bytes of shared memory, the launch gave %u",
         (unsigned long long)(used + bytes), m.launch->shared_bytes);
  const size_t fences = current->arrays_taken++ * SHARED_FENCE;
  char* at = m.shared + used + fences;
  const size_t end = at - m.shared + bytes;
  if (end > m.shared_bytes) fail(THD_UNSUPPORTED, "more than %u shared arrays", MAX_ARRAYS);
  if (end > m.shared_opened) {
    m.shared_opened = end;
    asan::unpoison(at, bytes);
    race::open_shared(at, bytes, fences);
  }
  used += (u32)bytes;
  return at;
}

// ---- a block ---------------------------------------------------------------------------------------------------------

static void lane_entry() {
  Machine& m = *machine;
  Lane* me = current;
#ifdef THD_ASAN
  const void* left_stack;
  size_t left_bytes;
  __sanitizer_finish_switch_fiber(nullptr, &left_stack, &left_bytes);
  if (!m.host.stack) {                        // the first fiber of a launch comes from the host thread
    m.host.stack = (char*)left_stack;
    m.host.stack_bytes = left_bytes;
  }
#endif
  m.kernel->invoke(m.params.data());
  if (me->op_count) fail(THD_UNSUPPORTED, "the kernel returned before mma_wait");
  me->waiting_at = Wait::NOTHING;
  m.live--;
  if (m.live && m.at_barrier == m.live) release_barrier(m);   // CUDA counts only threads that have not returned
  if (!m.live) {
    current = nullptr;
    switch_fiber(*me, m.host);
  }
  Lane* next = next_lane(m);
  if (!next) fail_deadlock();
  go(*me, next);
  __builtin_unreachable();
}

static char* map_memory(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : (char*)at;
}
static void unmap_memory(void* at, size_t bytes) {
  if (!at) return;
  asan::unpoison(at, bytes);
  munmap(at, bytes);
}

constexpr size_t GUARD_BYTES = 4096;          // below every stack
constexpr size_t OPS_BYTES = 2 * MAX_RECORDS * sizeof(u64), ROWS_BYTES = MAX_RECORDS * WARP * sizeof(Warp::Row);

static bool prepare_memory(Lane& lane, Warp& warp) {
  char* memory = map_memory(GUARD_BYTES + STACK_BYTES);
  if (!memory) return false;
  lane.stack = memory + GUARD_BYTES;
  lane.stack_bytes = STACK_BYTES;
  lane.ops = (u64*)map_memory(OPS_BYTES);
  if (!warp.rows) warp.rows = (Warp::Row*)map_memory(ROWS_BYTES);
  return mprotect(memory, GUARD_BYTES, PROT_NONE) == 0 && lane.ops && warp.rows;
}

static void release_memory(Lane& lane) {
  if (lane.stack) unmap_memory(lane.stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
  unmap_memory(lane.ops, OPS_BYTES);
}

static Lane* new_lane(Machine& m) {
  Lane* lane = new Lane();
  lane->thread = m.lanes.size();
  lane->warp = lane->thread / WARP;
  lane->lane = lane->thread % WARP;
  if (prepare_memory(*lane, m.warps[lane->warp])) return lane;
  release_memory(*lane);
  delete lane;
  return nullptr;
}

Machine::~Machine() {
  for (Lane* lane : lanes) {
    release_memory(*lane);
    delete lane;
  }
  for (Warp& warp : warps) unmap_memory(warp.rows, ROWS_BYTES);
  unmap_memory(shared, shared_capacity);
  ::operator delete(workspace);
  race::release(shadow);
}

bool Machine::reserve(unsigned threads, size_t kernel_bytes) {
  while (lanes.size() < threads) {
    Lane* lane = new_lane(*this);
    if (!lane) return false;
    lanes.push_back(lane);
  }
  shared_bytes = (kernel_bytes + MAX_ARRAYS * SHARED_FENCE + 15) / 16 * 16;
  const size_t capacity = (shared_bytes + 4095) / 4096 * 4096;
  if (capacity > shared_capacity) {
    unmap_memory(shared, shared_capacity);
    shared = map_memory(capacity);
    shared_capacity = shared ? capacity : 0;
  }
  thread_count = threads;
  warp_count = threads / WARP;
  return shared != nullptr;
}

static void prepare_lane(Lane& lane) {
  asan::unpoison(lane.stack, STACK_BYTES);
  lane.waiting_at = Wait::NOTHING;
  lane.arrays_taken = lane.block_epoch = lane.warp_epoch = lane.meetings = 0;
  lane.forget_program();
  lane.copies.clear();
  lane.copy_groups.clear();
  lane.prepare(lane_entry, lane.lane * 128);
}

void Machine::run_block() {
  asan::unpoison(shared, shared_bytes);
  for (u32* word = (u32*)shared; word < (u32*)(shared + shared_bytes); word++) *word = SHARED_FILL;
  asan::poison(shared, shared_bytes);
  shared_opened = 0;
  race::begin_block(shared, shared_bytes);
  for (unsigned t = 0; t < thread_count; t++) prepare_lane(*lanes[t]);
  for (unsigned w = 0; w < warp_count; w++) {
    warps[w].arrived = 0;
    warps[w].runnable = 0xffffffff;
    warps[w].priority = warps[w].first_lane = 0;
    if (launch->seed) draw(*this, warps[w]);
  }
  live = thread_count;
  at_barrier = last_warp = 0;
  Lane* first = next_lane(*this);
  report->switches++;
  current = first;
  switch_fiber(host, *first);
}

}  // namespace simt
