//! How often the diagnosis is right: a planted fault, random cases that fail with it, the name each gets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Observed, diagnose};
use crate::backend::{Choice, Run};
use crate::check::{HarnessError, Side};
use crate::generate::{self, Budget, Softmax};
use crate::oracle::Depth;

/// What a case may cost: every fault shows within a few tiles, and each case is put to every hypothesis.
pub const BUDGET: Budget = Budget { max_tokens: 256, max_work: 1_000_000, softmax: Softmax::PLAIN };

/// The names that failing cases got.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Cases that failed and were diagnosed.
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

/// Diagnoses `wanted` random cases that fail on `choice`, each by itself, of `tries` at most; fewer once
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
        let side = Side {
            backend: &mut *backend,
            contract: choice.contract(),
            run: Run::PLAIN,
            depth: Depth::Whole,
        };
        let Some(observed) = Observed::new(&scenario, side)? else { continue };
        let name = diagnose(&[&observed]).name();
        score.failing += 1;
        *score.names.entry(name).or_default() += 1;
        score.examples.entry(name).or_insert_with(|| scenario.to_string());
    }
    Ok(score)
}
