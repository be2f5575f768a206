//! Opened backends, and the reduction of what fails on them.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{Found, SHRINK_TIME};
use crate::backend::{Backend, Choice, Patience, Run, Support};
use crate::case::Scenario;
use crate::check::{HarnessError, Outcome, Report, Side, check_asking};
use crate::generate;
use crate::oracle::{Ask, Depth, Finding, Identity};
use crate::shrink::{self, Shrunk};

/// How often a minimal scenario is run again: a finding that comes and goes must be told as one.
pub const REPEATS: u32 = 3;

/// Opened backends, handed to whichever thread needs one.
pub(super) struct Pool {
    choice: Choice,
    idle: Mutex<Vec<Box<dyn Backend>>>,
}

impl Pool {
    pub(super) fn new(choice: Choice) -> Pool {
        Pool { choice, idle: Mutex::new(Vec::new()) }
    }

    /// The budget, without the features that the backend lacks as a whole.
    pub(super) fn within(&self, budget: generate::Budget) -> Result<generate::Budget, HarnessError> {
        let backend = self.choice.open()?;
        let softmax = generate::Softmax::supported(|case| backend.supports(case) == Support::Yes);
        let asked = budget.softmax;
        let softmax = generate::Softmax { cap: softmax.cap && asked.cap, sink: softmax.sink && asked.sink };
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(backend);
        Ok(generate::Budget { softmax, ..budget })
    }

    pub(super) fn check(
        &self,
        scenario: &Scenario,
        (run, depth): (Run, Depth),
        ask: Ask,
    ) -> Result<Outcome, HarnessError> {
        let idle = || self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let taken = idle().pop();
        let mut backend = match taken {
            Some(backend) => backend,
            None => self.choice.open()?,
        };
        let contract = self.choice.contract();
        let outcome = check_asking(scenario, Side { backend: &mut *backend, contract, run, depth }, ask);
        idle().push(backend);
        outcome
    }

    /// Shrinks what `report` of `original` found, and runs the result again.
    pub(super) fn reduce(
        &self,
        index: u64,
        original: Scenario,
        report: &Report,
        identity: Identity,
        stop: &AtomicBool,
        time: Duration,
    ) -> Found {
        let first = identity.lead(&report.findings).expect("an identity of these findings").clone();
        let run = run_for(identity);
        let deadline = Some(Instant::now() + time);
        let budget = shrink::Budget { deadline, stop: Some(stop), ..shrink::Budget::default() };
        let ask = identity.ask();
        // What only the chain or a law shows is looked for there. A hang has no reference at all.
        let shallow = ask.depth() == Depth::Whole
            || identity.is_hang()
            || self.finds(&original, identity, (run, ask.depth())).is_some();
        let depth = if shallow { ask.depth() } else { Depth::Whole };
        let check = |candidate: &Scenario, run: Run| self.check(candidate, (run, depth), ask);
        let (minimal, shrunk, lead) = match shrink_finding(check, &original, identity, budget) {
            Some((shrunk, lead)) => (shrunk.minimal.clone(), Some(shrunk), lead),
            None => (original.clone(), None, first),
        };
        // A hang costs a watchdog's time, and a shrink has seen it twice.
        let repeats = if identity.is_hang() { 0 } else { REPEATS };
        let again =
            (0..repeats).filter(|_| self.finds(&minimal, identity, (run, depth)).is_some()).count() as u32;
        let recurred = if identity.is_hang() { REPEATS } else { again };
        Found { index, original, minimal, lead, shrunk, recurred }
    }

    /// The finding of this identity in `scenario`, if it fails that way.
    fn finds(&self, scenario: &Scenario, identity: Identity, run: (Run, Depth)) -> Option<Finding> {
        let Ok(Outcome::Judged(report)) = self.check(scenario, run, identity.ask()) else { return None };
        identity.lead(&report.findings).cloned()
    }
}

/// The smallest scenario with the same identity, and its finding; `None` where `scenario` does not fail
/// again. `check` runs a scenario.
pub fn shrink_finding(
    mut check: impl FnMut(&Scenario, Run) -> Result<Outcome, HarnessError>,
    scenario: &Scenario,
    identity: Identity,
    budget: shrink::Budget,
) -> Option<(Shrunk, Finding)> {
    let full = run_for(identity);
    let run = if identity.is_hang() { Run { patience: Patience::Short, ..full } } else { full };
    let mut finds = |candidate: &Scenario, run: Run| {
        let Ok(Outcome::Judged(report)) = check(candidate, run) else { return None };
        identity.lead(&report.findings).cloned()
    };
    let mut lead = None;
    let shrunk = shrink::shrink(scenario.clone(), budget, |candidate| {
        let found = finds(candidate, run);
        let same = found.is_some();
        lead = found.or(lead.take());
        same
    });
    let shrunk = shrunk.ok()?;
    if run != full {
        // What hangs when watched impatiently may only be slow.
        lead = finds(&shrunk.minimal, full);
    }
    Some((shrunk, lead?))
}

/// What a run must look for to see a finding again.
fn run_for(identity: Identity) -> Run {
    if identity.needs_races() { Run::RACES } else { Run::PLAIN }
}

/// What came of a single shrink.
#[derive(Debug)]
pub enum ShrinkOutcome {
    /// It fails, and this is the smallest that does.
    Found(Box<Found>),
    /// It passes: there is nothing to shrink.
    Passes,
    /// The backend does not do such cases.
    Refused(String),
}

/// Checks one scenario and, where it fails, shrinks it.
///
/// # Errors
/// A fault of ours, as `check` tells it.
pub fn shrink_scenario(
    choice: Choice,
    scenario: &Scenario,
    ask: Ask,
    stop: &AtomicBool,
) -> Result<ShrinkOutcome, HarnessError> {
    let pool = Pool::new(choice);
    let run = pool.choice.thorough(scenario);
    let report = match pool.check(scenario, (run, Depth::Whole), ask)? {
        Outcome::Refused(reason) => return Ok(ShrinkOutcome::Refused(reason)),
        Outcome::Judged(report) => report,
    };
    let Some(identity) = report.identity() else { return Ok(ShrinkOutcome::Passes) };
    let found = pool.reduce(0, scenario.clone(), &report, identity, stop, SHRINK_TIME);
    Ok(ShrinkOutcome::Found(Box::new(found)))
}
