//! A finding diagnosed and explained: what a report says of it beyond the finding itself.

use super::explain::{Explanation, explain};
use super::{Diagnosis, Observed, Witnesses, diagnose};
use crate::backend::{Backend, Choice, Run};
use crate::case::{Case, Scenario};
use crate::check::{HarnessError, Side};
use crate::oracle::{Depth, Identity};

/// Work up to which the case as it was drawn is put to the hypotheses besides the minimal one: each costs
/// about a run of the reference.
const MOST_WORK: u64 = 100_000_000;

/// What a report says of a finding.
#[derive(Debug)]
pub struct Told {
    /// What would make the outputs wrong in just this way.
    pub diagnosis: Diagnosis,
    /// What of the minimal case matters.
    pub explanation: Explanation,
}

/// Diagnoses the minimal scenario of a finding, and the one that it was shrunk from, and varies the minimal
/// one. `None` where it does not fail again, or where there is no output to look at.
///
/// # Errors
/// A fault of ours.
pub fn tell(choice: &Choice, original: &Scenario, minimal: &Scenario) -> Result<Option<Told>, HarnessError> {
    let mut backend = choice.open()?;
    let mut observe = |scenario: &Scenario| observe(choice, &mut *backend, scenario);
    // A finding between two answers leaves each of them right: there is nothing to bend.
    let wrong = |observed: &Observed| !observed.calls.is_empty() && !observed.findings.is_empty();
    let Some(small) = observe(minimal)?.filter(wrong) else {
        return Ok(None);
    };
    let work = |scenario: &Scenario| scenario.calls.iter().map(Case::work).fold(0, u64::saturating_add);
    let identity = Identity::of(&small.findings);
    let same = |observed: &Observed| identity.is_some_and(|id| id.lead(&observed.findings).is_some());
    let large = match original != minimal && work(original) <= MOST_WORK {
        true => observe(original)?.filter(|observed| same(observed)),
        false => None,
    };
    let failing: Vec<&Observed> = [Some(&small), large.as_ref()].into_iter().flatten().collect();
    let diagnosis = diagnose(&failing, &Witnesses::around(minimal, &mut observe)?);
    // A neighbour that is beyond what the reference takes on says nothing.
    let explanation = explain(minimal, |neighbour| match observe(neighbour) {
        Ok(Some(observed)) => Some(same(&observed)),
        Ok(None) => Some(false),
        Err(_) => None,
    });
    Ok(Some(Told { diagnosis, explanation }))
}

fn observe(
    choice: &Choice,
    backend: &mut dyn Backend,
    scenario: &Scenario,
) -> Result<Option<Observed>, HarnessError> {
    Observed::any(
        scenario,
        Side { backend, contract: choice.contract(), run: Run::PLAIN, depth: Depth::Whole },
    )
}
