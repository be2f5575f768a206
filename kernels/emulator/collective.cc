// Operations of a whole warp, and asynchronous copies.
//
// A meeting: each lane leaves its part in a place of the warp, the last of the 32 to arrive does the work, all go on.
// Products would need hundreds of meetings for one warp tile, and switching fibers costs more than the arithmetic. So
// ldmatrix and mma only record what they are asked for (ldmatrix with the row it read), and mma_wait is the one meeting:
// the last lane checks that all 32 recorded the same program and computes it from the 32 lanes' rows.
#include "machine.h"
#include "primitives.h"

#include <string.h>

namespace simt {

// All 32 lanes of a warp arrive, or the launch ends. `work` is done once, by the last.
template <class Work> static void meet(Wait at, Work work) {
  Lane* me = current;
  Warp& warp = machine->warps[me->warp];
  if (at != Wait::PRODUCT && me->op_count) fail(THD_UNSUPPORTED, "%s before mma_wait", name_of(at));
  if (warp.arrived == 0) warp.meeting = at;
  if (warp.meeting != at)
    fail(THD_DIVERGENCE, "a warp diverged: this lane is at %s, another at %s", name_of(at), name_of(warp.meeting));
  me->waiting_at = at;
  if (++warp.arrived < WARP) {
    switch_to_next();
  } else {
    warp.arrived = 0;
    work(warp);
    for (unsigned lane = 0; lane < WARP; lane++) machine->lanes[me->warp * WARP + lane]->waiting_at = Wait::NOTHING;
    warp.runnable = machine->launch->seed ? 0xffffffff : ~(1u << me->lane);
    if (machine->launch->seed) switch_to_next();
  }
  me->meetings++;
}

void sync_warp() {
  meet(Wait::WARP_BARRIER, [](Warp&) {});
  current->warp_epoch++;
}

// Two slots in turn: a fast lane may already write the next value while a slow one has yet to read this one.
float shuffle_xor(u32 mask, float value, int lane_mask) {
  Lane* me = current;
  if (mask != 0xffffffff) fail(THD_UNSUPPORTED, "shuffle mask %08x: only whole warps", mask);
  float* slot = machine->warps[me->warp].exchange[me->meetings % 2];
  slot[me->lane] = value;
  meet(Wait::SHUFFLE, [](Warp&) {});
  return slot[(me->lane ^ lane_mask) % WARP];
}

// ---- products --------------------------------------------------------------------------------------------------------

static bool in_shared(const void* at, u32 bytes) {
  const size_t offset = (const char*)at - machine->shared;
  return offset < machine->shared_bytes && bytes <= machine->shared_bytes - offset;
}

u32 record_rows(RowKind kind, const void* row, u64 low, u64 high) {
  Lane* me = current;
  if (kind != REGISTERS && !in_shared(row, 16)) fail(THD_SHARED_MEMORY, "ldmatrix from outside shared memory");
  if (me->row_count == MAX_RECORDS) fail(THD_UNSUPPORTED, "more than %u fragments before one mma_wait", MAX_RECORDS);
  const u32 index = me->row_count++;
  machine->warps[me->warp].rows[index * WARP + me->lane] = {low, high};
  me->ops[me->op_count++] = kind;
  return index;
}

// An accumulator is named by its distance from the lane's first one: the same in all lanes, as they run the same code.
void record_product(Product type, float* c, u32 a, u32 b) {
  Lane* me = current;
  if (me->op_count == 2 * MAX_RECORDS) fail(THD_UNSUPPORTED, "more than %u products before one mma_wait", MAX_RECORDS);
  if (me->product_count++ == 0) me->first_acc = c;
  const u32 distance = (u32)(c - me->first_acc);
  me->ops[me->op_count++] = OP_PRODUCT | (u64)type << 8 | (u64)a << 12 | (u64)b << 22 | (u64)distance << 32;
}

static bool same_program(const Lane& a, const Lane& b) {
  return a.op_count == b.op_count && memcmp(a.ops, b.ops, a.op_count * sizeof(u64)) == 0;
}

void finish_products() {
  meet(Wait::PRODUCT, [](Warp& warp) {
    Lane* const* lanes = &machine->lanes[current->warp * WARP];
    for (unsigned lane = 1; lane < WARP; lane++)
      if (!same_program(*lanes[lane], *lanes[0]))
        fail(THD_DIVERGENCE, "a warp diverged: lanes 0 and %u ask for different products", lane);
    compute_products(warp, lanes);
    for (unsigned lane = 0; lane < WARP; lane++) lanes[lane]->forget_program();
  });
}

// ---- asynchronous copies: they land at the wait that promises them, as late as PTX allows ----------------------

void cp_async(void* to, const void* from, u32 bytes, bool valid) {
  if ((u64)to % bytes) misaligned(to, bytes);
  if (valid && (u64)from % bytes) misaligned(from, bytes);
  if (!in_shared(to, bytes)) fail(THD_SHARED_MEMORY, "cp.async to outside shared memory");
  asan::check_store(to, bytes);
  if (valid) asan::check_load(from, bytes);
  const Copy copy = {to, from, bytes, valid, __builtin_return_address(0)};
  race::copy_issued(copy);
  current->copies.push_back(copy);
}

void cp_async_commit() { current->copy_groups.push_back(current->copies.size()); }

static void land(const Copy& copy) {
  race::copy_landed(copy);
  if (copy.valid) memcpy(copy.to, copy.from, copy.bytes);
  else memset(copy.to, 0, copy.bytes);
}

void cp_async_wait(u32 pending) {
  std::vector<Copy>& copies = current->copies;
  std::vector<size_t>& groups = current->copy_groups;
  if (groups.size() <= pending) return;
  const size_t done = groups.size() - pending, landed = groups[done - 1];
  for (size_t i = 0; i < landed; i++) land(copies[i]);
  copies.erase(copies.begin(), copies.begin() + landed);
  groups.erase(groups.begin(), groups.begin() + done);
  for (size_t& end : groups) end -= landed;
}

void atomic_add(float* to, float value) {
  asan::check_store(to, 4);
  race::access(to, 4, true, true, __builtin_return_address(0));
  *to += value;                               // blocks of a launch run one after another, threads never inside here
}

}  // namespace simt
