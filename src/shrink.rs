//! The shrinker: from a scenario that fails to the simplest one that fails in the same way.
//!
//! It knows three things: the current best scenario, an order ([`order`]) and a predicate. It knows
//! neither backends nor oracles; "interesting" is whatever its caller says, as a rule "still gives
//! a finding of the same identity". Every attempt goes through one `consider`, which refuses what
//! is invalid, what is not simpler and what was asked before; so the text never grows, no text is
//! asked twice, and the search ends.
//!
//! Passes ([`passes`]) propose; they run in rounds until a whole round is refused. Then the result
//! is 1-minimal: no single step of any pass is still interesting. The price of that promise is the
//! last round, some tens of runs on the smallest, cheapest scenarios.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::case::{Case, Invalid, Scenario, limits};

pub(crate) mod edit;
#[cfg(test)]
mod faults;
pub mod order;
pub mod passes;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod quality;
mod search;

use order::Key;

/// What a shrink may cost.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// Most runs of the predicate, the first one of the start included.
    pub max_runs: usize,
    /// No run starts after this.
    pub deadline: Option<Instant>,
    /// No run starts once this is set: a Ctrl-C keeps the best so far.
    pub stop: Option<&'a AtomicBool>,
}

impl Default for Budget<'_> {
    /// A thousand runs: a full shrink takes about a tenth of it.
    fn default() -> Self {
        Budget { max_runs: 1000, deadline: None, stop: None }
    }
}

/// Why a shrink could not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The start is beyond the limits of a case.
    #[error("nothing to shrink: {0}")]
    Invalid(#[from] Invalid),
    /// The predicate says no to the start itself.
    #[error("nothing to shrink: '{scenario}' does not reproduce the finding")]
    NotInteresting {
        /// The text of the start.
        scenario: String,
    },
}

/// Why a shrink ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No single step of any pass is still interesting.
    Minimal,
    /// The runs were used up.
    Runs,
    /// The deadline passed.
    Deadline,
    /// The stop flag was set.
    Stopped,
}

/// What a shrink found, and what it cost. Its `Display` is the sentence of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Shrunk {
    /// The simplest interesting scenario found.
    pub minimal: Scenario,
    /// Runs of the predicate, the first one of the start included.
    pub runs: usize,
    /// Attempts that were spared a run because their text had been asked before.
    pub cached: usize,
    /// Attempts that were adopted.
    pub steps: usize,
    /// Why it ended.
    pub ending: Ending,
}

impl Shrunk {
    /// Is the result 1-minimal: was every single step of every pass refused?
    pub fn complete(&self) -> bool {
        self.ending == Ending::Minimal
    }
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self.ending {
            Ending::Minimal => "1-minimal: no single simplification still reproduces it",
            Ending::Runs => "stopped at the limit on runs: it may shrink further",
            Ending::Deadline => "stopped at the time limit: it may shrink further",
            Ending::Stopped => "interrupted: it may shrink further",
        };
        write!(f, "{sentence} (runs: {}, simplifications: {})", self.runs, self.steps)
    }
}

/// Multiply-adds up to which a simpler scenario may cost more than the current one: fewer sequences or
/// items can mean more tokens or heads.
const MAX_GROWN_WORK: u64 = limits::MAX_WORK >> 6;
/// Where there is a deadline, no run of more work than the current scenario's may be expected to take
/// more than this share of the time that is left: a few such runs would be all of the shrink.
const SHARE_OF_TIME: u32 = 20;
/// Work that any run is counted as, however little it has: else the pace of runs of empty sequences
/// would make every other look endless.
const LEAST_WORK: u64 = 1 << 20;

/// 128 bits that stand for a text: a text of a million sequences is megabytes.
type Fingerprint = [u64; 2];

fn fingerprint(text: &str) -> Fingerprint {
    [0_u8, 1].map(|lane| {
        let mut hasher = DefaultHasher::new();
        (lane, text).hash(&mut hasher);
        hasher.finish()
    })
}

fn work(scenario: &Scenario) -> u64 {
    scenario.calls.iter().map(Case::work).fold(0, u64::saturating_add)
}

/// A shrink under way: the current best scenario and the question it must keep answering.
pub struct Shrinker<'a> {
    current: Scenario,
    key: Key,
    interesting: Box<dyn FnMut(&Scenario) -> bool + 'a>,
    budget: Budget<'a>,
    /// Texts the predicate said no to. A text it said yes to became current and is never simpler
    /// than what is current later.
    refused: HashSet<Fingerprint>,
    runs: usize,
    cached: usize,
    steps: usize,
    /// Time and work of the runs so far.
    spent: Duration,
    worked: u64,
    ended: Option<Ending>,
}

/// Shrinks `start` as far as `budget` allows.
///
/// # Errors
/// As [`Shrinker::new`].
pub fn shrink<'a>(
    start: Scenario,
    budget: Budget<'a>,
    interesting: impl FnMut(&Scenario) -> bool + 'a,
) -> Result<Shrunk, StartError> {
    Ok(Shrinker::new(start, budget, interesting)?.run())
}

impl<'a> Shrinker<'a> {
    /// Asks the predicate about `start` once. A finding that recurs only now and then needs a
    /// predicate that repeats.
    ///
    /// # Errors
    /// A start that is invalid, or not interesting: shrinking it would only lose the finding.
    pub fn new(
        start: Scenario,
        budget: Budget<'a>,
        interesting: impl FnMut(&Scenario) -> bool + 'a,
    ) -> Result<Self, StartError> {
        start.validate()?;
        let mut interesting = Box::new(interesting);
        if !interesting(&start) {
            return Err(StartError::NotInteresting { scenario: start.to_string() });
        }
        Ok(Shrinker {
            key: order::key(&start),
            current: start,
            interesting,
            budget,
            refused: HashSet::new(),
            runs: 1,
            cached: 0,
            steps: 0,
            spent: Duration::ZERO,
            worked: 0,
            ended: None,
        })
    }

    /// The simplest interesting scenario so far.
    pub fn current(&self) -> &Scenario {
        &self.current
    }

    /// Runs every pass, round after round, until a whole round adopts nothing or the budget ends.
    pub fn run(mut self) -> Shrunk {
        let ending = loop {
            let before = self.steps;
            passes::PASSES.iter().for_each(|pass| (pass.run)(&mut self));
            match self.ended {
                Some(ending) => break ending,
                None if self.steps == before => break Ending::Minimal,
                None => {}
            }
        };
        Shrunk { minimal: self.current, runs: self.runs, cached: self.cached, steps: self.steps, ending }
    }

    /// Has the budget ended? Every attempt is refused then.
    fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Considers the current scenario after `edit`; says whether it was adopted.
    fn attempt(&mut self, edit: impl FnOnce(&mut Scenario)) -> bool {
        if self.has_ended() {
            return false;
        }
        let mut candidate = self.current.clone();
        edit(&mut candidate);
        self.consider(candidate)
    }

    /// The one gate of all attempts: adopts `candidate` where it is valid, simpler and interesting.
    fn consider(&mut self, candidate: Scenario) -> bool {
        if candidate.validate().is_err() {
            return false;
        }
        let key = order::key(&candidate);
        if key >= self.key {
            return false;
        }
        let (cost, now) = (work(&candidate), work(&self.current));
        if cost > now && (cost > MAX_GROWN_WORK || self.takes_too_long(cost)) {
            return false;
        }
        let text = fingerprint(&candidate.to_string());
        if self.refused.contains(&text) {
            self.cached += 1;
            return false;
        }
        if self.out_of_budget() {
            return false;
        }
        self.runs += 1;
        let start = Instant::now();
        let interesting = (self.interesting)(&candidate);
        self.spent += start.elapsed();
        self.worked = self.worked.saturating_add(cost.max(LEAST_WORK));
        if !interesting {
            self.refused.insert(text);
            return false;
        }
        self.steps += 1;
        (self.current, self.key) = (candidate, key);
        true
    }

    /// Would a run of this much work, at the pace so far, take too much of the time that is left?
    fn takes_too_long(&self, cost: u64) -> bool {
        let Some(deadline) = self.budget.deadline else { return false };
        let left = deadline.saturating_duration_since(Instant::now());
        let pace = self.spent.as_secs_f64() / self.worked.max(1) as f64;
        cost as f64 * pace > (left / SHARE_OF_TIME).as_secs_f64()
    }

    /// Is this the end? Asked only where a run would follow, so a shrink whose last round is all
    /// cached is complete even at its limit.
    fn out_of_budget(&mut self) -> bool {
        let Budget { max_runs, deadline, stop } = self.budget;
        self.ended = if stop.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            Some(Ending::Stopped)
        } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some(Ending::Deadline)
        } else if self.runs >= max_runs {
            Some(Ending::Runs)
        } else {
            None
        };
        self.ended.is_some()
    }
}

impl fmt::Debug for Shrinker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shrinker")
            .field("current", &self.current.to_string())
            .field("runs", &self.runs)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}
