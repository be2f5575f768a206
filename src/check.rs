//! Runs a scenario on a backend and asks the oracles: the only place that joins the two.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::backend::{Answer, Backend, Failure, OpenError, Run, RunError, Support};
use crate::case::{Scenario, limits};
use crate::contract::Contract;
use crate::inputs::Inputs;
use crate::oracle::bound::{self, Measure};
use crate::oracle::{self, Evidence, Finding, Identity, Judgement, Kind, Truth};
use crate::outputs::Output;

/// What came of a scenario.
#[derive(Debug)]
pub enum Outcome {
    /// The backend answered every call, or failed at one; findings, if any, say what is wrong.
    Judged(Report),
    /// The backend does not do such cases.
    Refused(String),
}

/// Everything that a scenario's answers showed.
#[derive(Debug, Default)]
pub struct Report {
    /// Findings of all calls, in order.
    pub findings: Vec<Finding>,
    /// For each call that was answered.
    pub calls: Vec<CallReport>,
}

impl Report {
    /// What a shrinker must keep; `None` where nothing was found.
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(&self.findings)
    }
}

/// How the outputs of one call compare.
#[derive(Debug)]
pub struct CallReport {
    /// In bounds, by output and judgement.
    pub measures: Vec<Measure>,
    /// By direction and norm, as bug reports give them.
    pub similarities: Vec<Similarity>,
}

/// Cosine and norms of one output against the reference, over all live elements.
#[derive(Clone, Copy, Debug)]
pub struct Similarity {
    /// The output.
    pub output: Output,
    /// Cosine of the two, 1 where both are zero, NaN where one is or where either is not finite.
    pub cosine: f64,
    /// Norm of the backend's.
    pub norm: f64,
    /// Norm of the reference's.
    pub reference: f64,
}

/// A fault of ours: the program stops with status 2.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The reference would take too long.
    #[error(
        "the case needs {work} multiply-adds a product, more than the reference takes on ({}): \
         shorten it",
        limits::MAX_WORK
    )]
    TooMuchWork {
        /// `Case::reference_work`.
        work: u64,
    },
    /// The reference would take too much memory.
    #[error(
        "the case needs about {} MiB for the reference, more than it takes ({} MiB): shorten it",
        bytes >> 20,
        limits::MAX_REFERENCE_BYTES >> 20
    )]
    TooMuchMemory {
        /// `Case::reference_bytes`.
        bytes: u64,
    },
    /// A panic of ours.
    #[error("a panic of ours: {0}; please report it with this case")]
    Panic(String),
    /// The backend's side of the harness.
    #[error("{0}")]
    Backend(String),
    /// A backend that does not open.
    #[error("the backend does not open: {0}")]
    Open(#[from] OpenError),
}

/// Runs each call of `scenario` as `run` says, and judges it.
///
/// # Errors
/// [`HarnessError`]; whatever the backend does wrong is in the outcome instead.
pub fn check(
    scenario: &Scenario,
    backend: &mut dyn Backend,
    contract: Contract,
    run: Run,
) -> Result<Outcome, HarnessError> {
    for case in &scenario.calls {
        if case.reference_work() > limits::MAX_WORK {
            return Err(HarnessError::TooMuchWork { work: case.reference_work() });
        }
        if case.reference_bytes() > limits::MAX_REFERENCE_BYTES {
            return Err(HarnessError::TooMuchMemory { bytes: case.reference_bytes() });
        }
        if let Support::No(reason) = backend.supports(case) {
            return Ok(Outcome::Refused(reason));
        }
    }
    let guarded = catch_unwind(AssertUnwindSafe(|| run_calls(scenario, backend, contract, run)));
    guarded.unwrap_or_else(|panic| Err(HarnessError::Panic(panic_text(&*panic))))
}

fn run_calls(
    scenario: &Scenario,
    backend: &mut dyn Backend,
    contract: Contract,
    run: Run,
) -> Result<Outcome, HarnessError> {
    backend.reset();
    let mut report = Report::default();
    for (call, case) in scenario.calls.iter().enumerate() {
        let inputs = Inputs::new(case);
        match backend.run(run, &inputs) {
            Ok(answer) => judge(call, &inputs, &answer, contract, &mut report),
            Err(RunError::Refused(reason)) => return Ok(Outcome::Refused(reason)),
            Err(RunError::Harness(message)) => return Err(HarnessError::Backend(message)),
            Err(RunError::Fault { kind, detail }) => {
                report.findings.push(backend_fault(call, kind, detail));
                break;
            }
        }
    }
    Ok(Outcome::Judged(report))
}

fn judge(call: usize, inputs: &Inputs, answer: &Answer, contract: Contract, report: &mut Report) {
    let outputs = &answer.outputs;
    let truth = Truth::work_out(inputs, outputs, contract.rounding);
    let measures = bound::measure(inputs, outputs, &truth);
    let races = &answer.races;
    let evidence = Evidence { call, inputs, outputs, truth: &truth, contract, races, measures };
    report.findings.extend(oracle::judge(&evidence));
    let similarities = similarities(&evidence);
    report.calls.push(CallReport { measures: evidence.measures, similarities });
}

fn backend_fault(call: usize, failure: Failure, detail: String) -> Finding {
    let kind = match failure {
        Failure::Crash => Kind::Crash,
        Failure::Hang => Kind::Hang,
        Failure::Error => Kind::Error,
        Failure::DeviceFault => Kind::DeviceFault,
    };
    Finding { call, tensor: None, kind, at: None, got: f64::NAN, want: 0.0, bound: 0.0, note: detail }
}

/// Every output against the reference of the whole chain.
fn similarities(evidence: &Evidence) -> Vec<Similarity> {
    let mut sums = [[0.0; 3]; Output::ALL.len()];
    for judgement in [Judgement::Forward, Judgement::Chain] {
        for plane in evidence.truth.planes(evidence.inputs, judgement) {
            let [dot, got, want] = &mut sums[plane.output as usize];
            for (x, &y) in plane.got(evidence.outputs).into_iter().zip(&plane.bounded.value) {
                if x == y && x.is_infinite() {
                    continue; // a row without keys, and its LSE of -inf
                }
                *dot += x * y;
                *got += x * x;
                *want += y * y;
            }
        }
    }
    let similarity = |output: Output| {
        let [dot, got, want] = sums[output as usize];
        let (norm, reference) = (got.sqrt(), want.sqrt());
        let cosine = if norm == 0.0 && reference == 0.0 { 1.0 } else { dot / (norm * reference) };
        Similarity { output, cosine, norm, reference }
    };
    Output::ALL.into_iter().map(similarity).collect()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
