//! `cargo +nightly fuzz run thd_bwd`: libFuzzer on the emulated kernels, linked in and instrumented.
//! An input is the text of a scenario; `docs/fuzzing.md` says more.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_crossover, fuzz_mutator, fuzz_target};
use thd_fuzz::backend::emulator::abi::{Functions, Launch, Report};
use thd_fuzz::libfuzzer::{self, Verdict};

mod hooks;

unsafe extern "C" {
    fn thd_emulator_launch(launch: *const Launch, report: *mut Report) -> u32;
    safe fn thd_emulator_mode() -> u32;
}

fuzz_target!(init: libfuzzer::prepare(), |text: &[u8]| -> Corpus {
    let kernels = Functions { launch: thd_emulator_launch, mode: thd_emulator_mode() };
    match libfuzzer::run(text, kernels) {
        Verdict::Silent => Corpus::Keep,
        Verdict::Rejected => Corpus::Reject,
        Verdict::Failed => panic!("a finding, told above"),
    }
});

fuzz_mutator!(|text: &mut [u8], size: usize, max_size: usize, seed: u32| {
    libfuzzer::mutate_text(text, size, max_size, seed)
});

fuzz_crossover!(|a: &[u8], b: &[u8], out: &mut [u8], seed: u32| { libfuzzer::cross_texts(a, b, out, seed) });
