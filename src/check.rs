//! Runs a scenario on a backend, or on two, and asks the oracles: the only place that joins them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::backend::{Answer, Backend, Failure, OpenError, Run, RunError, Support};
use crate::case::{Scenario, limits};
use crate::contract::Contract;
use crate::inputs::Inputs;
use crate::oracle::bound::{self, Measure};
use crate::oracle::statistics::{self, Lean};
use crate::oracle::{self, Agreement, Ask, Depth, Evidence, Finding, Identity, Kind, Truth};
use crate::outputs::Outputs;

mod asking;
mod similarity;

pub use asking::Asked;
pub use similarity::Similarity;

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
    /// Findings of statistics that data of other seeds did not confirm.
    pub unconfirmed: Vec<Finding>,
    /// For each call that was answered.
    pub calls: Vec<CallReport>,
    /// Questions about further runs, of the last call where nothing was found before.
    pub asked: Vec<Asked>,
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
    /// Do the roundings of each head's gradients lean to one side? Only where the reference went to the whole
    /// depth.
    pub leans: Vec<Lean>,
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

/// A backend to check, and how.
pub struct Side<'a> {
    /// The backend.
    pub backend: &'a mut dyn Backend,
    /// What it promises.
    pub contract: Contract,
    /// How it runs.
    pub run: Run,
    /// How far the reference goes for an answer that passes; where anything is found it goes all the way.
    pub depth: Depth,
}

/// What came of a scenario on two backends.
#[derive(Debug)]
pub struct Both {
    /// Of each by itself.
    pub outcomes: [Outcome; 2],
    /// How their answers compare, over the calls that both answered; `None` where there is no such
    /// call, and where either refuses.
    pub agreement: Option<Agreement>,
}

/// Runs each call of `scenario` as `run` says, judges it, and asks nothing that needs further runs.
///
/// # Errors
/// [`HarnessError`]; whatever the backend does wrong is in the outcome instead.
pub fn check(
    scenario: &Scenario,
    backend: &mut dyn Backend,
    contract: Contract,
    run: Run,
) -> Result<Outcome, HarnessError> {
    check_asking(scenario, Side { backend, contract, run, depth: Depth::Whole }, Ask::Nothing)
}

/// Runs each call of `scenario`, judges it, and asks these questions of the last call where nothing was found.
///
/// # Errors
/// As [`check`].
pub fn check_asking(scenario: &Scenario, side: Side, ask: Ask) -> Result<Outcome, HarnessError> {
    let Side { backend, contract, run, depth } = side;
    panics_caught(|| {
        let mut trial = Trial::begin(scenario, Side { backend: &mut *backend, contract, run, depth }, 1)?;
        let last = trial.calls(scenario)?;
        if trial.refused.is_some() && ask.refusal() {
            return trial.refusal(scenario);
        }
        if let Some(base) = last.filter(|_| trial.report.findings.is_empty()) {
            asking::ask(&mut trial, &base, ask)?;
        }
        let mut outcome = trial.outcome();
        if let Outcome::Judged(report) = &mut outcome {
            confirm_statistics(scenario, report, |other| {
                let mut trial =
                    Trial::begin(other, Side { backend: &mut *backend, contract, run, depth }, 1)?;
                trial.calls(other)?;
                Ok(trial.outcome())
            })?;
        }
        Ok(outcome)
    })
}

/// Data of so many other seeds must show a statistical finding too.
const CONFIRMATIONS: u64 = 3;

/// Drops findings that are statements about chance, where nothing else supports them and data of other seeds
/// does not show them too.
fn confirm_statistics(
    scenario: &Scenario,
    report: &mut Report,
    mut check: impl FnMut(&Scenario) -> Result<Outcome, HarnessError>,
) -> Result<(), HarnessError> {
    let Some(identity) = report.identity() else { return Ok(()) };
    if !report.findings.iter().all(|finding| finding.kind.is_statistical()) {
        return Ok(());
    }
    for k in 1..=CONFIRMATIONS {
        let mut other = scenario.clone();
        other.calls.iter_mut().for_each(|case| case.seed = case.seed.wrapping_add(k));
        let again = match check(&other)? {
            Outcome::Judged(report) => identity.lead(&report.findings).is_some(),
            Outcome::Refused(_) => false,
        };
        if !again {
            report.unconfirmed = std::mem::take(&mut report.findings);
            return Ok(());
        }
    }
    Ok(())
}

/// Checks `scenario` on two backends, call by call, and compares their answers.
///
/// # Errors
/// As [`check`], with the memory of two references.
pub fn check_both(scenario: &Scenario, [a, b]: [Side; 2]) -> Result<Both, HarnessError> {
    panics_caught(|| {
        let (mut a, mut b) = (Trial::begin(scenario, a, 2)?, Trial::begin(scenario, b, 2)?);
        let mut agreement: Option<Agreement> = None;
        for (call, case) in scenario.calls.iter().enumerate() {
            let inputs = Inputs::new(case);
            let answers = (a.call(call, &inputs)?, b.call(call, &inputs)?);
            if let (Some((outputs, truth)), Some((other, other_truth))) = answers {
                let of_call = Agreement::of(&inputs, [&outputs, &other], [&truth, &other_truth]);
                agreement.get_or_insert_default().add(&of_call);
            }
        }
        let refused = a.refused.is_some() || b.refused.is_some();
        let outcomes = [a.outcome(), b.outcome()];
        Ok(Both { outcomes, agreement: agreement.filter(|_| !refused) })
    })
}

/// Checks `scenario` and shows what each call answered beside the truth, for whoever asks more of the
/// outputs than the oracles do. A call that the backend refuses or fails at is not shown.
///
/// # Errors
/// As [`check`].
pub fn observe(
    scenario: &Scenario,
    side: Side,
    mut show: impl FnMut(&Inputs, &Outputs, &Truth),
) -> Result<Outcome, HarnessError> {
    panics_caught(|| {
        let mut trial = Trial::begin(scenario, side, 1)?;
        for (call, case) in scenario.calls.iter().enumerate() {
            let inputs = Inputs::new(case);
            if let Some((outputs, truth)) = trial.call(call, &inputs)? {
                show(&inputs, &outputs, &truth);
            }
        }
        Ok(trial.outcome())
    })
}

fn panics_caught<T>(work: impl FnOnce() -> Result<T, HarnessError>) -> Result<T, HarnessError> {
    let result = catch_unwind(AssertUnwindSafe(work));
    result.unwrap_or_else(|panic| Err(HarnessError::Panic(panic_text(&*panic))))
}

/// A backend on its way through a scenario.
struct Trial<'a> {
    side: Side<'a>,
    report: Report,
    /// Why it does no such case.
    refused: Option<String>,
    /// Did it fail at a call? Then it gets no more of them.
    failed: bool,
}

impl<'a> Trial<'a> {
    /// Asks whether the calls can be run and judged; `truths` is how many are held at once.
    fn begin(scenario: &Scenario, side: Side<'a>, truths: u64) -> Result<Trial<'a>, HarnessError> {
        let mut refused = None;
        for case in &scenario.calls {
            let (work, bytes) = (case.reference_work(), truths.saturating_mul(case.reference_bytes()));
            if work > limits::MAX_WORK {
                return Err(HarnessError::TooMuchWork { work });
            }
            if bytes > limits::MAX_REFERENCE_BYTES {
                return Err(HarnessError::TooMuchMemory { bytes });
            }
            if let Support::No(reason) = side.backend.supports(case) {
                refused = Some(reason);
                break;
            }
        }
        if refused.is_none() {
            side.backend.reset();
        }
        Ok(Trial { side, report: Report::default(), refused, failed: false })
    }

    /// Runs and judges every call. The last with its answer, where all were answered.
    fn calls(&mut self, scenario: &Scenario) -> Result<Option<Answered>, HarnessError> {
        let mut last = None;
        for (call, case) in scenario.calls.iter().enumerate() {
            if self.is_over() {
                return Ok(None);
            }
            let inputs = Inputs::new(case);
            let answer = self.call(call, &inputs)?;
            last = answer.map(|(outputs, truth)| Answered { call, inputs, outputs, truth });
        }
        Ok(last)
    }

    fn is_over(&self) -> bool {
        self.refused.is_some() || self.failed
    }

    /// Runs and judges a call, unless it is over. The answer, where there is one, with its truth.
    fn call(&mut self, call: usize, inputs: &Inputs) -> Result<Option<(Outputs, Truth)>, HarnessError> {
        if self.is_over() {
            return Ok(None);
        }
        match self.side.backend.run(self.side.run, inputs) {
            Ok(answer) => {
                let (contract, depth) = (self.side.contract, self.side.depth);
                let truth = judge(call, inputs, &answer, (contract, depth), &mut self.report);
                return Ok(Some((answer.outputs, truth)));
            }
            Err(RunError::Refused(reason)) => self.refused = Some(reason),
            Err(RunError::Harness(message)) => return Err(HarnessError::Backend(message)),
            Err(RunError::Fault { kind, detail }) => {
                self.report.findings.push(backend_fault(call, kind, detail));
                self.failed = true;
            }
        }
        Ok(None)
    }

    fn outcome(self) -> Outcome {
        self.refused.map_or(Outcome::Judged(self.report), Outcome::Refused)
    }
}

/// A call with its answer.
struct Answered {
    call: usize,
    inputs: Inputs,
    outputs: Outputs,
    truth: Truth,
}

fn judge(
    call: usize,
    inputs: &Inputs,
    answer: &Answer,
    (contract, depth): (Contract, Depth),
    report: &mut Report,
) -> Truth {
    let outputs = &answer.outputs;
    let truth = Truth::work_out_to(depth, inputs, outputs, contract.rounding);
    let measures = bound::measure(inputs, outputs, &truth);
    let races = &answer.races;
    let evidence = Evidence { call, inputs, outputs, truth: &truth, contract, races, measures };
    let findings = oracle::judge(&evidence);
    if depth != Depth::Whole && !findings.is_empty() {
        return judge(call, inputs, answer, (contract, Depth::Whole), report);
    }
    report.findings.extend(findings);
    let similarities = similarity::of_outputs(&evidence);
    let leans = if depth == Depth::Whole { statistics::leans(&evidence) } else { Vec::new() };
    report.calls.push(CallReport { measures: evidence.measures, similarities, leans });
    truth
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

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests;
