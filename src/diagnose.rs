//! What would make the outputs wrong in just this way.
//!
//! [`hypotheses`] is a table of faults, each the fp64 kernel with that one thing bent ([`bent`], [`solve`])
//! or its finished gradients changed ([`after`]). A hypothesis is named where it explains every output of
//! every failing case to within the errors that a kernel with that fault would make ([`fit`]); where none
//! does, that is the answer, and the [`pattern`] of what is wrong is described instead.

use std::fmt;

use rayon::prelude::*;

use crate::oracle::budget;

pub mod after;
pub mod bent;
pub mod explain;
pub mod fit;
pub mod hypotheses;
mod memory;
pub mod observed;
pub mod pattern;
pub mod score;
mod sight;
pub mod solve;
mod statistics;
pub mod told;
pub mod witness;

use fit::{Fit, Half};
use hypotheses::{HYPOTHESES, Hypothesis, Variant};
pub use observed::Observed;
pub use told::{Told, tell};
pub use witness::{Heard, Witnesses};

/// What is the matter.
#[derive(Debug)]
pub struct Diagnosis {
    /// The hypotheses that explain every case, the best first; of several the cases cannot tell which.
    pub named: Vec<Named>,
    /// What is wrong where, in sentences.
    pub pattern: Vec<String>,
}

/// A hypothesis that explains what was seen.
pub struct Named {
    /// The hypothesis.
    pub hypothesis: &'static Hypothesis,
    /// In which way.
    pub detail: String,
    /// In which half.
    pub half: Half,
    /// The share of the error that it explains, at least.
    pub share: f64,
    /// What variations of the case say of it.
    pub heard: Heard,
}

impl Diagnosis {
    /// The name of the best hypothesis.
    pub fn name(&self) -> Option<&'static str> {
        self.named.first().map(|named| named.hypothesis.name)
    }
}

/// Diagnoses scenarios that fail in one way: a hypothesis must explain all of them, and more of the
/// witnesses than not.
pub fn diagnose(failing: &[&Observed], witnesses: &Witnesses) -> Diagnosis {
    let mut scenarios: Vec<&Observed> = failing.to_vec();
    // What a small case rules out is not asked of a large one.
    scenarios.sort_by_key(|observed| observed.elements());
    let wrong = scenarios.iter().all(|observed| observed.is_wrong(true) || observed.is_wrong(false));
    let name = |hypothesis| name(hypothesis, &scenarios, witnesses);
    let mut named: Vec<Named> = match wrong && !scenarios.is_empty() {
        true => HYPOTHESES.par_iter().filter_map(name).collect(),
        false => Vec::new(),
    };
    named.sort_by_key(|named| (named.heard.against(), std::cmp::Reverse(step(named.share))));
    let pattern = scenarios.last().map_or(Vec::new(), |observed| pattern::describe(observed));
    Diagnosis { named, pattern }
}

/// Shares that differ by less than a step are alike.
fn step(share: f64) -> i64 {
    (share / budget::SHARE_STEP).round() as i64
}

/// The first of a hypothesis' variants that explains most of all scenarios and of the witnesses.
fn name(hypothesis: &'static Hypothesis, scenarios: &[&Observed], witnesses: &Witnesses) -> Option<Named> {
    let variants = (hypothesis.variants)();
    let named = variants.par_iter().filter_map(|variant| {
        let fits: Option<Vec<Fit>> = scenarios.iter().map(|observed| fit::fit(variant, observed)).collect();
        let fits = fits.filter(|fits| fits.iter().any(|fit| fit.speaks))?;
        let detail = detail(variant, &fits)?;
        let half = fits.iter().map(|fit| fit.half).reduce(|a, b| if a == b { a } else { Half::Both })?;
        let share = fits.iter().map(|fit| fit.share).fold(1.0, f64::min);
        let heard = hear(variant, &variants, (half, &fits), witnesses);
        (!heard.is_refuted()).then_some(Named { hypothesis, detail, half, share, heard })
    });
    let named: Vec<Named> = named.collect();
    let better =
        |a: &Named, b: &Named| (b.heard.against(), -step(b.share)) < (a.heard.against(), -step(a.share));
    named.into_iter().reduce(|a, b| if better(&a, &b) { b } else { a })
}

/// What the witnesses say of a variant that has these fits. Another variant of the hypothesis may explain a
/// failing one: a kernel's tiles depend on the head dims.
fn hear(variant: &Variant, all: &[Variant], (half, fits): (Half, &[Fit]), witnesses: &Witnesses) -> Heard {
    let mut heard = Heard::default();
    for witness in &witnesses.failing {
        let fit = fit::fit(variant, witness);
        if let Some(fit) = fit.as_ref().filter(|fit| fit.factor.is_some()) {
            let other = detail(variant, &[fits, std::slice::from_ref(fit)].concat()).is_none();
            heard.other_factor += usize::from(other);
        }
        match fit.or_else(|| all.iter().find_map(|other| fit::fit(other, witness))) {
            Some(fit) => heard.explained += usize::from(fit.speaks),
            None => heard.unexplained += 1,
        }
    }
    let contradicts = |passing: &&Observed| fit::is_contradicted(variant, half, passing);
    heard.contradicted = witnesses.passing.iter().filter(contradicts).count();
    heard
}

/// What sets a variant apart; `None` where the scenarios ask different factors of it.
fn detail(variant: &Variant, fits: &[Fit]) -> Option<String> {
    let factors: Vec<f64> = fits.iter().filter_map(|fit| fit.factor).collect();
    let Some(&first) = factors.first() else { return Some(variant.detail.clone()) };
    let near = |x: &&f64| (*x - first).abs() <= budget::FACTOR_STEP * first.abs().max(budget::FACTOR_STEP);
    if factors.iter().filter(near).count() < factors.len() {
        return None;
    }
    Some(format!("times {}", short(factors.iter().sum::<f64>() / factors.len() as f64)))
}

/// A factor to four digits.
fn short(x: f64) -> String {
    let text = format!("{x:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.hypothesis.name, self.hypothesis.says, self.half.name())?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        write!(f, "; {:.1} % of the error explained", 100.0 * self.share)?;
        let Heard { explained, unexplained, .. } = self.heard;
        match explained + unexplained {
            0 => Ok(()),
            failing => write!(f, ", and {explained} of {failing} variations that fail"),
        }
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.named.as_slice() {
            [] => write!(f, "no hypothesis explains it")?,
            [first, others @ ..] => {
                write!(f, "{first}")?;
                for other in others {
                    write!(f, "\ncannot be told apart here from {other}")?;
                }
                return Ok(());
            }
        }
        self.pattern.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}
