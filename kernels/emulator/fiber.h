// Switching between stacks: a hand-written switch on x86-64 System V, swapcontext elsewhere or with -DTHD_UCONTEXT.
#pragma once

#if !defined(__x86_64__) && !defined(THD_UCONTEXT)
#define THD_UCONTEXT
#endif

#ifdef THD_UCONTEXT
#include <ucontext.h>
#endif
#ifdef THD_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#include <stddef.h>

namespace simt {

#ifdef THD_ASAN
constexpr size_t STACK_BYTES = 256 << 10;   // sanitizers make frames large
#else
constexpr size_t STACK_BYTES = 64 << 10;
#endif

// Callee-saved registers stay on the old stack.
extern "C" void thd_switch_stack(void** save_sp, void* load_sp);

struct Fiber {
#ifdef THD_UCONTEXT
  ucontext_t context;
#else
  void* sp = nullptr;
#endif
  char* stack = nullptr;            // of the host thread: known once it has been left, and only to ASan
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;       // ASan's

  // entry never returns. `colour` staggers stacks, so that equal frames do not fall into the same cache sets.
  void prepare(void (*entry)(), unsigned colour) {
#ifdef THD_UCONTEXT
    (void)colour;
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
#else
    void** top = (void**)(stack + stack_bytes - colour) - 1;   // rsp % 16 == 8 on entry, as after a call
    *--top = (void*)entry;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    sp = top;
#endif
  }
};

inline void switch_fiber(Fiber& from, Fiber& to) {
#ifdef THD_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
#ifdef THD_UCONTEXT
  swapcontext(&from.context, &to.context);
#else
  thd_switch_stack(&from.sp, to.sp);
#endif
#ifdef THD_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

}  // namespace simt
