//! A campaign: generated scenarios through a backend, findings shrunk and told as they come.
//!
//! Scenario `i` of a campaign is a pure function of (seed, i), and results are taken in that order,
//! so a campaign of N cases finds the same whatever the number of threads. The first finding of
//! each identity is shrunk, and told unless it shrinks to a case that was told before; later ones
//! of the same identity are counted.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::backend::{Choice, Run};
use crate::case::{Case, Scenario};
use crate::check::{HarnessError, Outcome, Report};
use crate::generate;
use crate::oracle::{Ask, Depth, Finding, Identity};
use crate::shrink::{Shrunk, edit};
use crate::stats::Stats;

mod first;
mod ordered;
mod pool;

pub use first::{First, first_finding};
use pool::Pool;
pub use pool::{REPEATS, ShrinkOutcome, shrink_finding, shrink_scenario};

/// Longest shrink of one finding, so that a campaign keeps its time. A hang costs the watchdog's time at
/// each step: then it is watched less patiently, and the result once more with full patience.
const SHRINK_TIME: Duration = Duration::from_secs(60);
/// What a shrink gets though the campaign's time is up: enough for most.
const LEAST_SHRINK_TIME: Duration = Duration::from_secs(10);
/// One scenario in so many is looked through for races.
const RACE_SHARE: u64 = 8;
/// One scenario in so many is asked a question that takes more runs: each costs as much as the scenario again.
const ASK_SHARE: u64 = 4;
/// One scenario in so many is judged as a whole though its halves pass: a check of our own bounds, of which
/// those of the chain follow from the others.
const WHOLE_SHARE: u64 = 8;
/// Most work of a scenario that is looked through for races, which takes several times as long.
const RACE_WORK: u64 = 10_000_000;
/// What to run, and for how long.
pub struct Settings<'a> {
    /// The backend.
    pub choice: Choice,
    /// Seed of the campaign.
    pub seed: u64,
    /// Most cases.
    pub cases: Option<u64>,
    /// Longest time. The last cases are finished, and each new finding among them is shrunk for up to
    /// ten seconds.
    pub time: Option<Duration>,
    /// Stops after this many distinct findings.
    pub stop_after: Option<usize>,
    /// What is asked of scenarios that pass; in turn: one question of every fourth, another each time.
    pub ask: Ask,
    /// What one scenario may cost.
    pub budget: generate::Budget,
    /// Items that every case is given; those that print.
    pub with: Option<Case>,
    /// Set from outside to stop early, as Ctrl-C does.
    pub stop: &'a AtomicBool,
}

/// A distinct finding.
#[derive(Debug)]
pub struct Found {
    /// Index of the scenario in its campaign.
    pub index: u64,
    /// The scenario as drawn.
    pub original: Scenario,
    /// The smallest that shows the same.
    pub minimal: Scenario,
    /// What leads the report: the worst finding of the minimal scenario.
    pub lead: Finding,
    /// How the shrink ended; `None` where the finding did not recur.
    pub shrunk: Option<Shrunk>,
    /// How often the minimal scenario failed again, of [`REPEATS`] runs after the shrink.
    pub recurred: u32,
}

impl Found {
    /// Did the minimal scenario fail every time?
    pub fn is_steady(&self) -> bool {
        self.recurred == REPEATS
    }
}

/// What a campaign tells while it runs.
pub enum Event<'a> {
    /// Another scenario is done.
    Progress(&'a Summary),
    /// A failing scenario of a new identity, before it is shrunk.
    Failing(&'a Scenario, &'a Finding),
    /// The same, shrunk.
    Found(&'a Found),
}

/// The state of a campaign, and at its end the whole of it.
#[derive(Debug, Default)]
pub struct Summary {
    /// Counts and distributions.
    pub stats: Stats,
    /// Distinct findings, by identity, with how often each occurred.
    pub found: Vec<(Found, u64)>,
    /// Time since the start.
    pub elapsed: Duration,
}

impl Summary {
    /// Judged scenarios in a second.
    pub fn cases_per_second(&self) -> f64 {
        self.stats.cases as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// A fault of ours that ended a campaign, with the scenario that showed it.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", of_case(scenario))]
pub struct CampaignError {
    /// The scenario.
    pub scenario: Scenario,
    /// The fault.
    pub error: HarnessError,
}

/// Which case it was; there is none where a backend did not open.
fn of_case(scenario: &Scenario) -> String {
    if scenario.calls.is_empty() { String::new() } else { format!(" (case '{scenario}')") }
}

/// Runs a campaign. `tell` hears of everything as it happens; the summary is complete whether the
/// campaign came to its end or not.
///
/// # Errors
/// A fault of ours; the summary holds what was found before.
pub fn run(settings: &Settings, mut tell: impl FnMut(Event)) -> (Summary, Result<(), CampaignError>) {
    let start = Instant::now();
    let pool = Pool::new(settings.choice.clone());
    let mut summary = Summary::default();
    let budget = match pool.within(settings.budget) {
        Ok(budget) => budget,
        Err(error) => {
            return (summary, Err(CampaignError { scenario: Scenario { calls: Vec::new() }, error }));
        }
    };
    let mut known: HashMap<Identity, usize> = HashMap::new();
    let mut result = Ok(());
    let more = |index: u64| !is_over(settings, start, index);
    let work = |index: u64| checked(settings, budget, &pool, index);
    ordered::in_order(rayon::current_num_threads(), more, work, |(index, scenario, outcome)| {
        match outcome {
            Ok(Outcome::Refused(reason)) => summary.stats.refuse(reason),
            Ok(Outcome::Judged(report)) => {
                summary.stats.add(&scenario, &report);
                if let Some(identity) = report.identity() {
                    let reduce = |scenario: Scenario| {
                        let time = shrink_time(settings, start);
                        pool.reduce(index, scenario, &report, identity, settings.stop, time)
                    };
                    summary.take_failing(&mut known, (scenario, &report, identity), reduce, &mut tell);
                }
            }
            Err(error) => {
                result = Err(CampaignError { scenario, error });
                return ControlFlow::Break(());
            }
        }
        summary.elapsed = start.elapsed();
        tell(Event::Progress(&summary));
        let enough = settings.stop_after.is_some_and(|n| summary.found.len() >= n);
        if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    summary.elapsed = start.elapsed();
    (summary, result)
}

impl Summary {
    /// Counts a failing scenario; the first of its identity is reduced, and told unless that gives what was
    /// told before.
    fn take_failing(
        &mut self,
        known: &mut HashMap<Identity, usize>,
        (scenario, report, identity): (Scenario, &Report, Identity),
        reduce: impl FnOnce(Scenario) -> Found,
        tell: &mut impl FnMut(Event),
    ) {
        if let Some(&at) = known.get(&identity) {
            self.found[at].1 += 1;
            return;
        }
        let first = identity.lead(&report.findings).expect("an identity of these findings");
        tell(Event::Failing(&scenario, first));
        let found = reduce(scenario);
        // Another output of a finding that is already told shrinks to the same case.
        let told = self.found.iter().position(|(other, _)| other.minimal == found.minimal);
        known.insert(identity, told.unwrap_or(self.found.len()));
        match told {
            Some(at) => self.found[at].1 += 1,
            None => {
                tell(Event::Found(&found));
                self.found.push((found, 1));
            }
        }
    }
}

/// Is scenario `next` not to be begun?
fn is_over(settings: &Settings, start: Instant, next: u64) -> bool {
    settings.stop.load(Ordering::Relaxed)
        || settings.cases.is_some_and(|cases| next >= cases)
        || settings.time.is_some_and(|time| start.elapsed() >= time)
        || settings.stop_after == Some(0)
}

/// How long a shrink may take: less towards the end of a campaign.
fn shrink_time(settings: &Settings, start: Instant) -> Duration {
    let left = |time: Duration| time.saturating_sub(start.elapsed());
    settings.time.map_or(SHRINK_TIME, |time| left(time).clamp(LEAST_SHRINK_TIME, SHRINK_TIME))
}

type Checked = (u64, Scenario, Result<Outcome, HarnessError>);

/// Scenario `index` with what came of it.
fn checked(settings: &Settings, budget: generate::Budget, pool: &Pool, index: u64) -> Checked {
    let scenario = drawn(settings, index, &budget);
    let (run, ask) = (run_of(settings, index, &scenario), ask_of(settings, index));
    let outcome = pool.check(&scenario, (run, depth_of(index, ask)), ask);
    (index, scenario, outcome)
}

/// Scenario `index` of a campaign, with the items that every case is given.
fn drawn(settings: &Settings, index: u64, budget: &generate::Budget) -> Scenario {
    let mut scenario = generate::nth(settings.seed, index, budget);
    if let Some(with) = &settings.with {
        for case in &mut scenario.calls {
            edit::give_items(case, with);
            generate::legalise(case);
        }
    }
    scenario
}

/// What is asked of scenario `index`.
fn ask_of(settings: &Settings, index: u64) -> Ask {
    match settings.ask {
        Ask::InTurn(_) if !index.is_multiple_of(ASK_SHARE) => Ask::Nothing,
        Ask::InTurn(first) => Ask::InTurn(first.wrapping_add(index / ASK_SHARE)),
        ask => ask,
    }
}

/// How far the reference goes for scenario `index`.
fn depth_of(index: u64, ask: Ask) -> Depth {
    if index.is_multiple_of(WHOLE_SHARE) { Depth::Whole } else { ask.depth() }
}

/// How scenario `index` runs: some look for races, where the backend can and the case is not too long
/// for that.
fn run_of(settings: &Settings, index: u64, scenario: &Scenario) -> Run {
    let work: u64 = scenario.calls.iter().map(Case::work).sum();
    let look = index.is_multiple_of(RACE_SHARE) && work <= RACE_WORK;
    if look { settings.choice.thorough(scenario) } else { Run::PLAIN }
}
