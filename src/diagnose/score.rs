//! How often the diagnosis is right: a planted fault, random cases that fail with it, the name each gets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Observed, Witnesses, diagnose};
use crate::backend::{Choice, Run};
use crate::case::Scenario;
use crate::check::{HarnessError, Side};
use crate::generate::{self, Budget, Softmax};
use crate::oracle::Depth;

/// What a case may cost: every fault shows within a few tiles, and each case is put to every hypothesis.
pub const BUDGET: Budget = Budget { max_tokens: 256, max_work: 1_000_000, softmax: Softmax::PLAIN };

/// The names that failing cases got.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Cases with elements that are wrong, which were diagnosed.
    pub failing: u64,
    /// Cases that were run.
    pub tried: u64,
    /// How often each name led; `None` is "no hypothesis".
    pub names: BTreeMap<Option<&'static str>, u64>,
    /// For each name that led, one of its cases.
    pub examples: BTreeMap<Option<&'static str>, String>,
}

impl Score {
    /// How often this name led.
    pub fn of(&self, name: Option<&str>) -> u64 {
        self.names.iter().filter(|(led, _)| **led == name).map(|(_, times)| times).sum()
    }
}

/// Diagnoses `wanted` random cases that fail on `choice`, each with variations of it, of `tries` at most; fewer once
/// `stop` is set.
///
/// # Errors
/// A fault of ours.
pub fn score(
    choice: &Choice,
    seed: u64,
    [wanted, tries]: [u64; 2],
    stop: &AtomicBool,
) -> Result<Score, HarnessError> {
    let mut backend = choice.open()?;
    let mut score = Score::default();
    while score.failing < wanted && score.tried < tries && !stop.load(Ordering::Relaxed) {
        let scenario = generate::nth(seed, score.tried, &BUDGET);
        score.tried += 1;
        let mut observe = |scenario: &Scenario| {
            let (contract, run, depth) = (choice.contract(), Run::PLAIN, Depth::Whole);
            Observed::any(scenario, Side { backend: &mut *backend, contract, run, depth })
        };
        // Where all live elements are right, as after a write beyond the end, there is nothing to name.
        let wrong = |observed: &Observed| observed.is_wrong(true) || observed.is_wrong(false);
        let Some(observed) = observe(&scenario)?.filter(wrong) else { continue };
        let name = diagnose(&[&observed], &Witnesses::around(&scenario, observe)?).name();
        score.failing += 1;
        *score.names.entry(name).or_default() += 1;
        score.examples.entry(name).or_insert_with(|| scenario.to_string());
    }
    Ok(score)
}
