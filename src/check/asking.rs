//! Runs what questions plan, on the backend that answered the case, and hands the answers to their judge.

use super::{Answered, HarnessError, Outcome, Trial, backend_fault, judge};
use crate::backend::{Run, RunError, Support};
use crate::case::{Case, Scenario, limits};
use crate::inputs::Inputs;
use crate::oracle::question::{Base, Before, Question, REFUSAL, Step};
use crate::oracle::{Ask, Depth, Finding, Kind};
use crate::outputs::Outputs;

/// A question that was to be asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its name.
    pub question: &'static str,
    /// Why it was not.
    pub skipped: Option<String>,
}

/// What came of a derived run.
enum Derived {
    Answer(Box<Outputs>),
    /// It cannot be run, and that is no finding.
    Skipped(String),
    Failed(String),
}

/// Asks what is to be asked of an answered call.
pub(super) fn ask(trial: &mut Trial, answered: &Answered, ask: Ask) -> Result<(), HarnessError> {
    let Answered { call, inputs, outputs, truth } = answered;
    let base = Base { call: *call, inputs, outputs, truth, contract: trial.side.contract };
    for question in ask.questions() {
        let skipped = put(trial, &base, question)?;
        let answered = skipped.is_none();
        if answered || !matches!(ask, Ask::InTurn(_)) {
            trial.report.asked.push(Asked { question: question.name, skipped });
        }
        if answered && ask.is_one() {
            break;
        }
    }
    Ok(())
}

/// Asks one question; why not, where it could not be asked.
fn put(trial: &mut Trial, base: &Base, question: &Question) -> Result<Option<String>, HarnessError> {
    let steps = match question.plan(base) {
        Ok(steps) => steps,
        Err(reason) => return Ok(Some(reason)),
    };
    for step in &steps {
        if let Some(reason) = step.inputs.as_ref().and_then(|inputs| too_much(&inputs.case)) {
            return Ok(Some(reason));
        }
    }
    for step in &steps {
        let case = &step.inputs.as_ref().unwrap_or(base.inputs).case;
        match run(trial, base, step)? {
            Derived::Answer(outputs) => trial.report.findings.extend(question.judge(base, step, &outputs)),
            Derived::Skipped(reason) => return Ok(Some(reason)),
            Derived::Failed(detail) => {
                let note = format!("{detail}; {}; other run: {case}", question.law);
                let finding = Finding::of_derived(base.call, None, question.kind(), note);
                trial.report.findings.push(finding);
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// Why a derived case is not run, where it is beyond what the harness takes on.
fn too_much(case: &Case) -> Option<String> {
    let invalid = case.validate().err().map(|invalid| invalid.message);
    // Its truth beside that of the base.
    let bytes = case.reference_bytes().saturating_mul(2);
    let dear = case.reference_work() > limits::MAX_WORK || bytes > limits::MAX_REFERENCE_BYTES;
    invalid.or_else(|| dear.then(|| "the other run is beyond the limits of the reference".into()))
}

fn run(trial: &mut Trial, base: &Base, step: &Step) -> Result<Derived, HarnessError> {
    let inputs = step.inputs.as_ref().unwrap_or(base.inputs);
    let backend = &mut *trial.side.backend;
    if let Support::No(reason) = backend.supports(&inputs.case) {
        return Ok(Derived::Skipped(format!("the other run is unsupported: {reason}")));
    }
    match step.before {
        Before::Nothing => {}
        Before::Reset => backend.reset(),
        Before::NewProcess if backend.renew() => {}
        Before::NewProcess => return Ok(Derived::Skipped("the backend has no process of its own".into())),
    }
    let run = Run { poison: step.poison, races: false, ..trial.side.run };
    match backend.run(run, inputs) {
        Ok(answer) => Ok(Derived::Answer(Box::new(answer.outputs))),
        Err(RunError::Refused(reason)) => Ok(Derived::Skipped(format!("the other run is refused: {reason}"))),
        Err(RunError::Fault { kind, detail }) => {
            Ok(Derived::Failed(format!("the other run failed ({kind:?}): {detail}")))
        }
        Err(RunError::Harness(message)) => Err(HarnessError::Backend(message)),
    }
}

impl Trial<'_> {
    /// Runs the call that the backend declares unsupported all the same: it must refuse by itself. An answer is
    /// judged like any other.
    pub(super) fn refusal(mut self, scenario: &Scenario) -> Result<Outcome, HarnessError> {
        let reason = self.refused.take().unwrap_or_default();
        let mut calls = scenario.calls.iter().enumerate();
        let unsupported = |case: &Case| self.side.backend.supports(case) != Support::Yes;
        let Some((call, case)) = calls.find(|(_, case)| unsupported(case)) else {
            // It declared the case supported and refused it when it ran.
            return Ok(Outcome::Refused(reason));
        };
        self.side.backend.reset();
        let inputs = Inputs::new(case);
        let run = Run { races: false, ..self.side.run };
        let what = match self.side.backend.run(run, &inputs) {
            Err(RunError::Refused(_)) => return Ok(Outcome::Refused(reason)),
            Err(RunError::Harness(message)) => return Err(HarnessError::Backend(message)),
            Err(RunError::Fault { kind, detail }) => {
                vec![(backend_fault(call, kind, detail), "failed at a case that it declares unsupported")]
            }
            Ok(answer) => {
                self.report.calls.clear();
                self.report.findings.clear();
                judge(call, &inputs, &answer, (self.side.contract, Depth::Whole), &mut self.report);
                let findings = std::mem::take(&mut self.report.findings);
                let wrong = findings.into_iter().filter(|finding| !finding.kind.is_statistical());
                wrong.map(|f| (f, "answered a case that it declares unsupported, wrongly")).collect()
            }
        };
        if what.is_empty() {
            return Ok(Outcome::Refused(format!("{reason}; it answered all the same, and rightly")));
        }
        self.report.findings.extend(what.into_iter().map(|(finding, what)| {
            let kind = finding.kind.name();
            let note = format!("it {what} ({reason}): {kind} {}", finding.note);
            Finding { kind: Kind::Refusal, note, ..finding }
        }));
        self.report.asked.push(Asked { question: REFUSAL, skipped: None });
        Ok(Outcome::Judged(self.report))
    }
}
