//! What sanitizers call, and what instrumented code would.

use std::ffi::{CStr, c_char};

use thd_fuzz::libfuzzer;

/// Called by AddressSanitizer before it ends the process. Not a death callback: there is one only,
/// and libFuzzer saves the input in it.
#[unsafe(no_mangle)]
extern "C" fn __asan_on_error() {
    libfuzzer::tell_what_runs();
}

/// Likewise by UndefinedBehaviorSanitizer.
#[unsafe(no_mangle)]
extern "C" fn __ubsan_on_report() {
    libfuzzer::tell_what_runs();
}

/// Fake stacks and fibers do not mix; a quarantine of the default 256 MiB costs more cache than it
/// finds in buffers that live as long as their case; and few frames tell who allocated. The
/// variable ASAN_OPTIONS has the last word.
const OPTIONS: &CStr = c"detect_stack_use_after_return=0:quarantine_size_mb=16:malloc_context_size=8";

/// Called by AddressSanitizer as it starts.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    OPTIONS.as_ptr()
}

/// Functions that the linker calls instead of libFuzzer's, as `build.rs` says.
macro_rules! ignored {
    ($($name:ident: $operand:ty),* $(,)?) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(_: $operand, _: $operand) {}
        )*
    };
}

ignored!(
    __wrap___sanitizer_cov_trace_cmp1: u8,
    __wrap___sanitizer_cov_trace_cmp2: u16,
    __wrap___sanitizer_cov_trace_cmp4: u32,
    __wrap___sanitizer_cov_trace_cmp8: u64,
    __wrap___sanitizer_cov_trace_const_cmp1: u8,
    __wrap___sanitizer_cov_trace_const_cmp2: u16,
    __wrap___sanitizer_cov_trace_const_cmp4: u32,
    __wrap___sanitizer_cov_trace_const_cmp8: u64,
    __wrap___sanitizer_cov_8bit_counters_init: *const u8,
    __wrap___sanitizer_cov_pcs_init: *const usize,
);
