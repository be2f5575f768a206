// Race mode. kernels.cc is compiled with -fsanitize=thread, nothing is linked with it: the compiler's callbacks end here.
//
// Every two bytes of shared memory and of the watched ranges remember their last write and last reads: which block, thread
// and barrier epoch, which pc. Two accesses, one of them a write, conflict unless they are one thread's, both atomic, or a
// barrier lies between. Blocks of a launch are never ordered. This does not depend on the schedule having gone wrong.
#include "machine.h"

#ifdef THD_RACE

#include <algorithm>
#include <string.h>

// The linker's: first byte and end of this library.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start, _end;

namespace simt {
namespace race {
namespace {

constexpr size_t GRAIN = 2;

struct Mark {
  u32 block = 0;                              // serial number over all launches of this machine; 0: none
  u32 epoch, warp_epoch, pc;
  u16 thread;
  bool atomic, pending;                       // pending: a cp.async that has not been waited for
};

struct Cell {
  Mark write, read, other_read;               // other_read: from another block if there was one, else another warp
  u32 open_in = 0;                            // shared memory: the block in which an array owns this
};

struct Region {
  const char* at;
  size_t bytes;
  u32 range;                                  // index into the launch's ranges
  bool read_only;
  std::vector<Cell> cells;                    // stale ones belong to older blocks and conflict with nothing
};

struct Array { size_t begin, end, fences; };  // of shared memory

}  // namespace

struct Shadow {
  u32 block_serial = 0, first_of_launch = 0;
  Region shared{};
  std::vector<Array> arrays;
  std::vector<Region> regions;                // sorted by address
  size_t region_count = 0, last_region = 0;
};

namespace {

Shadow& shadow() { return *machine->shadow; }

// ---- reports ---------------------------------------------------------------------------------------------------------

ThdAccess side(const Mark& mark) { return {mark.pc, mark.block - shadow().first_of_launch, mark.thread}; }

// Shared bytes as the kernel counts them, without our fences.
u64 kernel_offset(size_t byte) {
  size_t fences = 0;
  for (const Array& array : shadow().arrays)
    if (byte >= array.begin) fences = array.fences;
  return byte - fences;
}

void report(ThdRaceKind kind, const Region* region, const void* at, u32 bytes, const Mark& now, const Mark* earlier) {
  ThdReport& out = *machine->report;
  out.races_seen++;
  const u32 earlier_pc = earlier ? earlier->pc : 0;
  for (u32 i = 0; i < out.races_kept; i++)
    if (out.races[i].kind == kind && out.races[i].access.pc == now.pc && out.races[i].earlier.pc == earlier_pc) return;
  if (out.races_kept == THD_MAX_RACES) return;
  ThdRace& race = out.races[out.races_kept++];
  race.kind = kind;
  race.bytes = bytes;
  race.range = THD_NO_RANGE;
  race.in_shared = region == &shadow().shared;
  race.offset = region ? (const char*)at - region->at : (u64)at;
  if (race.in_shared) race.offset = kernel_offset(race.offset);
  else if (region) race.range = region->range;
  race.access = side(now);
  race.earlier = earlier ? side(*earlier) : ThdAccess{0, 0, THD_NO_THREAD};
}

// ---- the rule --------------------------------------------------------------------------------------------------------

bool conflict(const Mark& earlier, const Mark& now, bool in_shared) {
  if (earlier.block < shadow().first_of_launch || earlier.block == 0) return false;
  if (earlier.atomic && now.atomic) return false;
  if (earlier.block != now.block) return !in_shared;
  if (earlier.thread == now.thread || earlier.epoch != now.epoch) return false;
  return earlier.thread / WARP != now.thread / WARP || earlier.warp_epoch == now.warp_epoch;
}

bool is_pending(const Mark& write, const Mark& now) { return write.pending && write.block == now.block; }

void check_cell(const Region& region, Cell& cell, const void* at, u32 bytes, bool write, const Mark& now) {
  const bool in_shared = &region == &shadow().shared;
  if (in_shared && cell.open_in != now.block) report(THD_RACE_BETWEEN_ARRAYS, &region, at, bytes, now, nullptr);
  else if (is_pending(cell.write, now)) report(THD_RACE_PENDING_COPY, &region, at, bytes, now, &cell.write);
  else if (in_shared && !write && cell.write.block != now.block) report(THD_RACE_UNINITIALISED, &region, at, bytes, now, nullptr);
  else if (conflict(cell.write, now, in_shared))
    report(write ? THD_RACE_WRITE_AFTER_WRITE : THD_RACE_READ_AFTER_WRITE, &region, at, bytes, now, &cell.write);
  if (!write) return;
  if (conflict(cell.read, now, in_shared)) report(THD_RACE_WRITE_AFTER_READ, &region, at, bytes, now, &cell.read);
  else if (conflict(cell.other_read, now, in_shared)) report(THD_RACE_WRITE_AFTER_READ, &region, at, bytes, now, &cell.other_read);
}

void remember(Cell& cell, bool write, const Mark& now) {
  if (write) {
    cell.write = now;
    return;
  }
  const Mark& last = cell.read;
  const bool other_block = last.block != now.block, other_warp = last.thread / WARP != now.thread / WARP;
  const bool keeps_block = cell.other_read.block >= shadow().first_of_launch && cell.other_read.block != now.block;
  if (other_block || (other_warp && !keeps_block)) cell.other_read = last;
  cell.read = now;
}

Mark mark_now(bool atomic, bool pending, const void* pc) {
  const u32 relative = (u32)((const char*)pc - 1 - &__ehdr_start);   // pc is a return address: one back is inside the call
  return {shadow().block_serial, current->block_epoch, current->warp_epoch, relative, (u16)current->thread, atomic, pending};
}

// ---- where an address lies -------------------------------------------------------------------------------------------

bool within(const void* at, const void* begin, size_t bytes) {
  return (size_t)((const char*)at - (const char*)begin) < bytes;
}
bool within(const void* at, const Region& region) { return within(at, region.at, region.bytes); }

Region* region_of(const void* at) {
  Shadow& s = shadow();
  if (within(at, s.shared)) return &s.shared;
  if (s.last_region < s.region_count && within(at, s.regions[s.last_region])) return &s.regions[s.last_region];
  size_t low = 0, high = s.region_count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (s.regions[middle].at <= (const char*)at) low = middle + 1;
    else high = middle;
  }
  if (low == 0 || !within(at, s.regions[low - 1])) return nullptr;
  s.last_region = low - 1;
  return &s.regions[low - 1];
}

bool is_private(const void* at) {
  return within(at, current->stack, STACK_BYTES) || within(at, machine->params.data(), machine->params.size() * 8) ||
         within(at, &__ehdr_start, &_end - &__ehdr_start);
}

template <class Visit> void for_each_cell(Region& region, const void* at, u32 bytes, Visit visit) {
  const size_t offset = (const char*)at - region.at;
  const size_t end = std::min((offset + bytes + GRAIN - 1) / GRAIN, region.cells.size());
  for (size_t i = offset / GRAIN; i < end; i++) visit(region.cells[i]);
}

void touch(const void* at, u32 bytes, bool write, const Mark& now) {
  Region* region = region_of(at);
  if (!region || (const char*)at + bytes > region->at + region->bytes) {
    if (!region && is_private(at)) return;
    report(THD_RACE_OUT_OF_BOUNDS, region, at, bytes, now, nullptr);
    if (!region) return;
  }
  if (write && region->read_only) report(THD_RACE_READ_ONLY, region, at, bytes, now, nullptr);
  for_each_cell(*region, at, bytes, [&](Cell& cell) {
    check_cell(*region, cell, at, bytes, write, now);
    remember(cell, write, now);
  });
}

}  // namespace

// ---- what the emulator tells -----------------------------------------------------------------------------------------

void begin_launch(const ThdLaunch& launch) {
  if (!machine->shadow) machine->shadow = new Shadow();
  Shadow& s = shadow();
  s.first_of_launch = s.block_serial + 1;
  s.region_count = launch.range_count;
  if (s.regions.size() < s.region_count) s.regions.resize(s.region_count);
  for (u32 i = 0; i < s.region_count; i++) {
    const ThdRange& range = launch.ranges[i];
    Region& region = s.regions[i];
    region.at = (const char*)range.data;
    region.bytes = range.bytes;
    region.range = i;
    region.read_only = range.flags & THD_RANGE_READ_ONLY;
    region.cells.resize((range.bytes + GRAIN - 1) / GRAIN);
  }
  std::sort(s.regions.begin(), s.regions.begin() + s.region_count,
            [](const Region& a, const Region& b) { return a.at < b.at; });
}

void begin_block(const char* shared, size_t bytes) {
  Shadow& s = shadow();
  s.block_serial = s.first_of_launch + machine->block_number;
  s.shared.at = shared;
  s.shared.bytes = bytes;
  s.shared.cells.resize(bytes / GRAIN);
  s.arrays.clear();
}

// Serial numbers of the whole grid are used up, whatever ran.
void end_launch() {
  const ThdDim3& grid = machine->launch->grid;
  shadow().block_serial = shadow().first_of_launch + grid.x * grid.y * grid.z;
}

void release(Shadow* s) { delete s; }

void open_shared(const void* at, size_t bytes, size_t fences) {
  Shadow& s = shadow();
  const size_t begin = (const char*)at - s.shared.at;
  s.arrays.push_back({begin, begin + bytes, fences});
  for_each_cell(s.shared, at, (u32)bytes, [&](Cell& cell) { cell.open_in = s.block_serial; });
}

void access(const void* at, u32 bytes, bool write, bool atomic, const void* pc) {
  if (current && !within(at, current->stack, STACK_BYTES)) touch(at, bytes, write, mark_now(atomic, false, pc));
}

// From its issue on the copy may write at any time, so it conflicts like a write now, and with every access before its wait.
void copy_issued(const Copy& copy) {
  if (copy.valid) touch(copy.from, copy.bytes, false, mark_now(false, false, copy.pc));
  touch(copy.to, copy.bytes, true, mark_now(false, true, copy.pc));
}

void copy_landed(const Copy& copy) {
  const Mark now = mark_now(false, false, copy.pc);
  if (Region* region = region_of(copy.to))
    for_each_cell(*region, copy.to, copy.bytes, [&](Cell& cell) { cell.write = now; });
}

}  // namespace race
}  // namespace simt

// ---- the compiler's callbacks ----------------------------------------------------------------------------------------

#define PC __builtin_return_address(0)
#define READ(BYTES) simt::race::access(at, BYTES, false, false, PC)
#define WRITE(BYTES) simt::race::access(at, BYTES, true, false, PC)
#define ACCESSES(BYTES) \
  void __tsan_read##BYTES(void* at) { READ(BYTES); } \
  void __tsan_write##BYTES(void* at) { WRITE(BYTES); } \
  void __tsan_read_write##BYTES(void* at) { READ(BYTES); WRITE(BYTES); } \
  void __tsan_unaligned_read##BYTES(void* at) { READ(BYTES); } \
  void __tsan_unaligned_write##BYTES(void* at) { WRITE(BYTES); } \
  void __tsan_unaligned_read_write##BYTES(void* at) { READ(BYTES); WRITE(BYTES); }

extern "C" {
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
void __tsan_read_range(void* at, size_t bytes) { simt::race::access(at, (u32)bytes, false, false, PC); }
void __tsan_write_range(void* at, size_t bytes) { simt::race::access(at, (u32)bytes, true, false, PC); }
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  simt::race::access(from, (u32)bytes, false, false, PC);
  simt::race::access(to, (u32)bytes, true, false, PC);
  return memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  simt::race::access(from, (u32)bytes, false, false, PC);
  simt::race::access(to, (u32)bytes, true, false, PC);
  return memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  simt::race::access(to, (u32)bytes, true, false, PC);
  return memset(to, value, bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}

#endif
