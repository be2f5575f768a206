// What kernels.cc tells the emulator about each kernel.
#pragma once

namespace simt {

struct KernelRow {
  const char* name;
  void (*invoke)(const void* params);   // runs one thread
  unsigned long params_bytes;
  unsigned threads, shared_bytes;
};

extern const KernelRow KERNEL_TABLE[];
extern const unsigned KERNEL_COUNT;

}  // namespace simt
