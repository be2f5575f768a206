//! What the libFuzzer target does with a text, without libFuzzer: runs it on kernels that are linked
//! into this process, judges, tells; and changes it. `fuzz/` binds this to libFuzzer.
//!
//! A finding is told, shrunk here and told again; then the target panics and libFuzzer keeps the
//! text. Where the kernel's instrumentation ends the process instead, nothing can be shrunk any
//! more, so the target's hook tells which case runs and the command that shrinks it in a child.

use std::io::Write as _;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::backend::Run;
use crate::backend::emulator::abi::Functions;
use crate::backend::emulator::{Emulator, Kernels};
use crate::campaign::shrink_finding;
use crate::case::Scenario;
use crate::check::{HarnessError, Outcome, check};
use crate::contract::Contract;
use crate::mutate::{self, Limits};
use crate::oracle::Identity;
use crate::report::terminal;
use crate::shrink;

/// What an input may cost: 64 tiles of d64. One that costs more is rejected: libFuzzer needs many
/// runs, not long ones.
pub const MAX_PRICE: u64 = 1 << 24;
/// What a changed input may cost: 16 tiles of d64, some milliseconds.
const MAX_CHANGED_PRICE: u64 = 1 << 22;

/// Longest shrink.
const SHRINK_TIME: Duration = Duration::from_secs(60);
/// Most runs of a shrink.
const SHRINK_RUNS: usize = 400;

/// What came of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ran, and no oracle objects.
    Silent,
    /// Not a case, one that the kernel does not do, or one too dear: nothing ran.
    Rejected,
    /// A finding, or a fault of ours; told on standard error.
    Failed,
}

/// Prepares the process: everything on the calling thread, so that coverage is a function of the
/// input; and a panic tells which case ran.
pub fn prepare() {
    // An error means that a pool is there already, which costs time and nothing else.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    let next = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell_what_runs();
        next(panic);
    }));
}

/// Runs an input.
pub fn run(input: &[u8], kernels: Functions) -> Verdict {
    let limits = Limits { price: MAX_PRICE, text: usize::MAX };
    let Some(scenario) = parse(input).filter(|scenario| mutate::fits(scenario, &limits)) else {
        return Verdict::Rejected;
    };
    let mut emulator = Emulator::with(Kernels::Linked(kernels));
    let mut checked = |scenario: &Scenario, run: Run| {
        let running = Running::new(scenario.to_string());
        let outcome = check(scenario, &mut emulator, Contract::OWN, run);
        drop(running);
        outcome
    };
    let report = match checked(&scenario, Run::PLAIN) {
        Ok(Outcome::Refused(_)) => return Verdict::Rejected,
        Ok(Outcome::Judged(report)) => report,
        Err(error) => {
            tell(&format!("\nthd-fuzz: {error} (case '{scenario}')\n"));
            return Verdict::Failed;
        }
    };
    let Some(identity) = report.identity() else { return Verdict::Silent };
    let told = report.findings.iter().map(|finding| format!("FINDING  {}\n", terminal::finding(finding)));
    let told: String = told.collect();
    // Told before it is shrunk: a candidate may end the process.
    tell(&format!("\n{told}  case     {scenario}\n"));
    tell(&shrunk(&scenario, identity, checked));
    Verdict::Failed
}

/// The lines about the smallest case.
fn shrunk(
    scenario: &Scenario,
    identity: Identity,
    checked: impl FnMut(&Scenario, Run) -> Result<Outcome, HarnessError>,
) -> String {
    let deadline = Some(Instant::now() + SHRINK_TIME);
    let budget = shrink::Budget { max_runs: SHRINK_RUNS, deadline, stop: None };
    let (minimal, how) = match shrink_finding(checked, scenario, identity, budget) {
        Some((shrunk, _)) => (shrunk.minimal.clone(), shrunk.to_string()),
        None => (scenario.clone(), "not shrunk: it did not fail again".to_string()),
    };
    format!("  minimal  {minimal}\n           {how}\n  replay   {}\n", command("check", &minimal.to_string()))
}

/// The notation has no quote and no dollar in it, so single quotes keep a shell away from all of it.
fn command(what: &str, case: &str) -> String {
    format!("thd-fuzz {what} '{case}' --backend emulator")
}

/// Standard error, or nobody.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn parse(input: &[u8]) -> Option<Scenario> {
    std::str::from_utf8(input).ok()?.trim().parse().ok()
}

/// Changes the text in `data[..size]`, or replaces it where it is not a case; returns its new size,
/// at most `max_size`.
pub fn mutate_text(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let limits = Limits { price: MAX_CHANGED_PRICE, text: max_size };
    let changed = match parse(&data[..size]) {
        Some(scenario) => mutate::mutate(&scenario, u64::from(seed), &limits),
        None => mutate::fresh(u64::from(seed), &limits),
    };
    put(&changed, &mut data[..max_size.max(size)], max_size)
}

/// Writes a text that has something of both to `out` and returns its size; where one is not a case, a
/// change of the other.
pub fn cross_texts(a: &[u8], b: &[u8], out: &mut [u8], seed: u32) -> usize {
    let limits = Limits { price: MAX_CHANGED_PRICE, text: out.len() };
    let seed = u64::from(seed);
    let crossed = match (parse(a), parse(b)) {
        (Some(a), Some(b)) => mutate::crossover(&a, &b, seed, &limits),
        (Some(one), None) | (None, Some(one)) => mutate::mutate(&one, seed, &limits),
        (None, None) => mutate::fresh(seed, &limits),
    };
    let most = out.len();
    put(&crossed, out, most)
}

/// Writes as much of the text as fits: all of it, unless not even `[1]` does.
fn put(scenario: &Scenario, out: &mut [u8], max_size: usize) -> usize {
    let text = scenario.to_string();
    let size = text.len().min(max_size);
    out[..size].copy_from_slice(&text.as_bytes()[..size]);
    size
}

/// Text of the case that runs; null where none does. A hook reads it when the process is past
/// allocating, on a fiber's stack.
static TEXT: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static TEXT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Holds the text of the case that runs.
struct Running(#[allow(dead_code)] String);

impl Running {
    fn new(mut text: String) -> Running {
        TEXT_BYTES.store(text.len(), Ordering::Relaxed);
        TEXT.store(text.as_mut_ptr(), Ordering::Release);
        Running(text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        TEXT.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Tells which case runs, once, where one does, and how to shrink it. Allocates nothing.
pub fn tell_what_runs() {
    let text = TEXT.swap(ptr::null_mut(), Ordering::Acquire);
    if text.is_null() {
        return;
    }
    // SAFETY: `Running` holds the string from before TEXT is set until after it is cleared, and this
    // thread is inside of that: the hooks run on the thread that runs the case.
    let text = unsafe { std::slice::from_raw_parts(text, TEXT_BYTES.load(Ordering::Relaxed)) };
    let parts: [&[u8]; 5] = [
        b"\nDIED     the case\n  case     ",
        text,
        b"\n  shrink   thd-fuzz shrink '",
        text,
        b"' --backend emulator\n",
    ];
    for part in parts {
        let _ = rustix::io::write(std::io::stderr(), part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::emulator::compile::Mode;
    use crate::backend::emulator::library::Library;

    fn verdict(input: &[u8]) -> Verdict {
        run(input, Library::built_in(Mode::Plain).expect("the built-in library").functions())
    }

    #[test]
    fn only_an_affordable_case_runs() {
        assert_eq!(verdict(b"[5,3] h2 causal\n"), Verdict::Silent);
        assert_eq!(verdict(b"[]; [1]x[0]"), Verdict::Silent);
        for input in ["", "[", "[1] d136", "[4096]", "[1] tail-q=1000000", "[1*100000]", "[] h131072"] {
            assert_eq!(verdict(input.as_bytes()), Verdict::Rejected, "{input}");
        }
        assert_eq!(verdict(&[0xff]), Verdict::Rejected);
    }

    #[test]
    fn texts_are_changed_in_place_and_kept_short() {
        let mut buffer = [0; 64];
        buffer[..7].copy_from_slice(b"[9] h4\n");
        let mut at_most = |max_size: usize, seed: u32, size: usize| {
            let size = mutate_text(&mut buffer, size, max_size, seed);
            assert!(size <= max_size);
            (size, parse(&buffer[..size]).is_some())
        };
        assert!(at_most(60, 1, 7).1);
        for seed in 0..100 {
            assert!(at_most(40, seed, 50).1, "what is no case is replaced");
        }
        assert_eq!(at_most(1, 3, 5).0, 1);
        assert_eq!(at_most(0, 3, 0).0, 0);
        let mut out = [0; 30];
        for (a, b) in [("[3]", "[4] h2"), ("", "[4] h2"), ("[3]", "?"), ("", "")] {
            let size = cross_texts(a.as_bytes(), b.as_bytes(), &mut out, 5);
            assert!(parse(&out[..size]).is_some(), "{a} and {b}");
        }
    }
}
