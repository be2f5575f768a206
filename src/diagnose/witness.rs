//! Further cases that bear witness: variations of a failing case, of which some fail and some pass.
//!
//! One case often cannot tell two faults apart, and now and then is explained by one that is not there. A
//! variation that fails must be explained by the same fault, and where a fault would show in one that passes,
//! that speaks for another.

use super::Observed;
use crate::case::Scenario;
use crate::check::HarnessError;
use crate::mutate::{self, Limits};

/// Variations that are run at most: each costs a run of the backend and one of the reference.
const MOST_RUNS: u64 = 48;
/// Failing and passing ones that are kept; each is put to every hypothesis that is left.
const WANTED: [usize; 2] = [8, 12];
/// Changes from the case to a variation, in turn: near ones differ in little, far ones in much.
const CHANGES: [u64; 3] = [1, 2, 4];
/// Work of a variation, unless the case itself is beyond it.
const LEAST_PRICE: u64 = 1 << 24;
/// Longest text of a variation.
const TEXT: usize = 4096;

/// What variations of a case showed.
#[derive(Default)]
pub struct Witnesses {
    /// Those that fail, with gradients or a forward that is wrong.
    pub failing: Vec<Observed>,
    /// Those that pass.
    pub passing: Vec<Observed>,
}

impl Witnesses {
    /// Looks for them around a scenario. `observe` runs one; it gives none where the backend refuses.
    ///
    /// # Errors
    /// A fault of ours; a variation that the reference does not take on is passed over.
    pub fn around(
        scenario: &Scenario,
        mut observe: impl FnMut(&Scenario) -> Result<Option<Observed>, HarnessError>,
    ) -> Result<Witnesses, HarnessError> {
        let limits = Limits { price: mutate::price(scenario).max(LEAST_PRICE), text: TEXT };
        let mut witnesses = Witnesses::default();
        for run in 0..MOST_RUNS {
            let [failing, passing] = WANTED;
            if witnesses.failing.len() >= failing && witnesses.passing.len() >= passing {
                break;
            }
            let changes = CHANGES[run as usize % CHANGES.len()];
            let seeds = (0..changes).map(|step| run * MOST_RUNS + step);
            let varied = seeds.fold(scenario.clone(), |varied, seed| mutate::mutate(&varied, seed, &limits));
            match observe(&varied) {
                Ok(Some(observed)) => witnesses.take(observed),
                Ok(None) | Err(HarnessError::TooMuchWork { .. } | HarnessError::TooMuchMemory { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(witnesses)
    }

    fn take(&mut self, observed: Observed) {
        let [failing, passing] = WANTED;
        if observed.findings.is_empty() {
            if self.passing.len() < passing {
                self.passing.push(observed);
            }
        } else if self.failing.len() < failing && (observed.is_wrong(true) || observed.is_wrong(false)) {
            self.failing.push(observed);
        }
    }
}

/// What witnesses say of one hypothesis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Failing variations that it explains.
    pub explained: usize,
    /// Failing variations that it does not explain.
    pub unexplained: usize,
    /// Failing variations that ask for another factor than the case: a factor is fitted, and fits more by chance.
    pub other_factor: usize,
    /// Passing variations that would fail by it.
    pub contradicted: usize,
}

impl Heard {
    /// Does more speak against it than for it? A fault may have company, or overflow into something that no
    /// reference can foretell, so that one variation is not enough; and a bug may need a condition that
    /// the hypothesis does not know, so that those that pass do not refute it.
    pub fn is_refuted(&self) -> bool {
        self.unexplained > self.explained || self.other_factor > 0
    }

    /// What speaks against it: of those that are left, the one with the least comes first.
    pub fn against(&self) -> usize {
        self.unexplained + self.contradicted
    }
}
