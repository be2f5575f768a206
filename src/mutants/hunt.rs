//! The hunt: each mutant is compiled and a campaign runs on it, in a child process, until its first
//! finding.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::list::{ListError, Mutant, Shows};
use crate::backend::Choice;
use crate::backend::custom::{CustomError, Shop};
use crate::campaign::{CampaignError, Found, Settings, first_finding};
use crate::generate::{Budget, Softmax};
use crate::oracle::Ask;

/// What a case may cost: a seventh of a campaign's own. Every mutant shows within a few tiles, and a
/// survivor costs all its cases.
const BUDGET: Budget = Budget { max_tokens: 1024, max_work: 12_000_000, softmax: Softmax::PLAIN };

/// How to hunt.
pub struct Plan<'a> {
    /// The backend that runs the kernels.
    pub choice: &'a Choice,
    /// Most cases for each mutant.
    pub cases: u64,
    /// Seed of the campaigns: all mutants see the same cases.
    pub seed: u64,
    /// Mutants at once.
    pub jobs: usize,
    /// Are findings shrunk?
    pub shrinks: bool,
    /// Set from outside to stop early.
    pub stop: &'a AtomicBool,
}

/// What came of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was found.
    Found,
    /// It was not, and should have been.
    Survived,
    /// It was not, and cannot be.
    Equivalent,
    /// It was not, and this backend cannot be relied on to show it: the emulator does.
    Beyond,
    /// It was found though the list has a proof that it cannot be.
    Refuted,
    /// The hunt was stopped before its end.
    Stopped,
}

impl Verdict {
    /// Of a mutant that was found or not, after all of its cases or fewer, on a backend that sees races
    /// or does not.
    fn of(mutant: &Mutant, found: bool, whole: bool, sees_races: bool) -> Verdict {
        match (found, mutant.equivalent.is_some()) {
            (true, false) => Verdict::Found,
            (true, true) => Verdict::Refuted,
            (false, _) if !whole => Verdict::Stopped,
            (false, true) => Verdict::Equivalent,
            (false, false) if !sees_races && (!mutant.gpu || mutant.is_race()) => Verdict::Beyond,
            (false, false) => Verdict::Survived,
        }
    }

    /// Its word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Found => "found",
            Verdict::Survived => "SURVIVED",
            Verdict::Equivalent => "equivalent",
            Verdict::Beyond => "beyond",
            Verdict::Refuted => "REFUTED",
            Verdict::Stopped => "stopped",
        }
    }
}

/// A mutant after its hunt.
#[derive(Debug)]
pub struct Hunted {
    /// The mutant.
    pub mutant: Mutant,
    /// Its first finding.
    pub found: Option<Found>,
    /// Cases that were run.
    pub tried: u64,
    /// What came of it.
    pub verdict: Verdict,
    /// Time to compile it.
    pub compiling: Duration,
    /// Time of the campaign and of the shrink.
    pub hunting: Duration,
}

impl Hunted {
    /// How it showed.
    pub fn showed(&self) -> Option<Shows> {
        self.found.as_ref().map(|found| Shows::of(found.lead.kind))
    }
}

/// A fault of ours, or of the list.
#[derive(Debug, thiserror::Error)]
#[error("the mutant '{mutant}': {fault}")]
pub struct HuntError {
    /// Its name.
    pub mutant: String,
    /// What is wrong.
    pub fault: HuntFault,
}

/// What a hunt can fail by.
#[derive(Debug, thiserror::Error)]
pub enum HuntFault {
    /// The list does not fit the sources.
    #[error(transparent)]
    List(#[from] ListError),
    /// It does not compile.
    #[error(transparent)]
    Custom(#[from] CustomError),
    /// The campaign.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
}

/// Hunts all of them, some at once: while one runs, another is compiled. `tell` hears of each as it
/// ends; the result is in the order of the list, without those that were not begun before the stop.
///
/// # Errors
/// A backend that takes no kernels, or no folder to compile in.
pub fn hunt_all(
    mutants: &[Mutant],
    plan: &Plan,
    mut tell: impl FnMut(&Result<Hunted, HuntError>),
) -> Result<Vec<Result<Hunted, HuntError>>, CustomError> {
    let shop = Shop::new(plan.choice.descriptor)?;
    let next = AtomicUsize::new(0);
    let (sender, ended) = channel();
    let mut all: Vec<_> = std::iter::repeat_with(|| None).take(mutants.len()).collect();
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.clamp(1, mutants.len().max(1)) {
            let (sender, shop, next) = (sender.clone(), &shop, &next);
            scope.spawn(move || {
                while !plan.stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mutant) = mutants.get(at) else { break };
                    let hunted = hunt(mutant, shop, plan)
                        .map_err(|fault| HuntError { mutant: mutant.name.clone(), fault });
                    if sender.send((at, hunted)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (at, hunted) in ended {
            tell(&hunted);
            all[at] = Some(hunted);
        }
    });
    Ok(all.into_iter().flatten().collect())
}

fn hunt(mutant: &Mutant, shop: &Shop, plan: &Plan) -> Result<Hunted, HuntFault> {
    let start = Instant::now();
    let custom = shop.make(Path::new(&mutant.name), &[mutant.replacement()?])?;
    let compiling = start.elapsed();
    let choice = plan.choice.clone().with_custom(custom);
    let sees_races = choice.descriptor.finds_races;
    let settings = Settings {
        choice,
        seed: plan.seed,
        cases: Some(plan.cases),
        time: None,
        ask: Ask::Nothing,
        with: None,
        stop_after: Some(1),
        budget: BUDGET,
        stop: plan.stop,
    };
    let first = first_finding(&settings, plan.shrinks)?;
    let whole = first.tried >= plan.cases;
    let verdict = Verdict::of(mutant, first.found.is_some(), whole, sees_races);
    let hunting = start.elapsed() - compiling;
    Ok(Hunted { mutant: mutant.clone(), found: first.found, tried: first.tried, verdict, compiling, hunting })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::list::load;

    #[test]
    fn only_a_race_may_stay_unseen_and_only_where_races_are_not_seen() {
        let mutant = |name: &str| load(&[], &[name.to_string()]).unwrap().remove(0);
        let of = |name, found, whole, sees_races| Verdict::of(&mutant(name), found, whole, sees_races);
        let (race, value, proved) = ("wait-missing", "dq-unscaled", "q-tail-unmasked");
        assert_eq!(of(race, false, true, true), Verdict::Survived);
        assert_eq!(of(race, false, true, false), Verdict::Beyond);
        assert_eq!(of(value, false, true, false), Verdict::Survived);
        assert_eq!(of(value, false, false, false), Verdict::Stopped);
        assert_eq!(of(race, true, false, false), Verdict::Found);
        assert_eq!(of(proved, false, true, false), Verdict::Equivalent);
        assert_eq!(of(proved, true, false, true), Verdict::Refuted);
    }
}
