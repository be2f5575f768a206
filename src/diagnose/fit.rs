//! Does a variant explain what was seen?
//!
//! It does where every element, the wrong ones and the right ones, is as near to it as a kernel with that
//! fault would be, and where it takes away nearly all of the error of the wrong ones.

use super::after::{self, After};
use super::bent::Bend;
use super::hypotheses::Variant;
use super::observed::{Call, Observed, Seen, is_forward};
use super::solve::{Bent, Guess};
use crate::oracle::budget::{self, Storage};
use crate::outputs::Output;
use crate::reference::Unit;

/// The half of a kernel that a fault is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The forward.
    Forward,
    /// The backward.
    Backward,
    /// Both.
    Both,
}

impl Half {
    /// Words for a report.
    pub fn name(self) -> &'static str {
        match self {
            Half::Forward => "in the forward",
            Half::Backward => "in the backward",
            Half::Both => "in forward and backward",
        }
    }
}

/// A variant that explains a scenario.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Where.
    pub half: Half,
    /// The share of the squared error, over wrong elements, that it takes away.
    pub share: f64,
    /// The factor that was fitted.
    pub factor: Option<f64>,
    /// Does the scenario speak for it? One of whose wrong elements nothing can be said, such as those that
    /// may or may not overflow, speaks neither for it nor against it.
    pub speaks: bool,
}

/// What is left of the error.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Wrong elements that are explained.
    explained: usize,
    /// Wrong elements of which nothing can be said.
    open: usize,
    /// Squares of the error of the wrong elements, and of what is left of them.
    error: f64,
    left: f64,
}

impl Tally {
    /// Takes a plane in; `None` where an element is beyond what the guess allows.
    fn take(mut self, seen: &Seen, guess: &Guess) -> Option<Tally> {
        for i in 0..seen.got.len() {
            let (got, value, tau) = (seen.got[i], guess.value[i], guess.tau[i]);
            if seen.tau[i] == f64::INFINITY {
                continue;
            }
            let wrong = seen.is_wrong(i);
            if tau == f64::INFINITY {
                self.open += usize::from(wrong);
                continue;
            }
            let left = if got == value { 0.0 } else { (got - value).abs() };
            let fits = match value.is_nan() {
                true => !got.is_finite() && seen.unwritten[i] == (tau == Guess::UNWRITTEN),
                false => left <= tau,
            };
            if !fits {
                return None;
            }
            if wrong {
                self.explained += 1;
                let error = (got - seen.want[i]).powi(2);
                if error.is_finite() && left.is_finite() {
                    self.error += error;
                    self.left += left * left;
                }
            }
        }
        Some(self)
    }

    fn take_all(self, call: &Call, guesses: &[Guess]) -> Option<Tally> {
        guesses.iter().try_fold(self, |tally, guess| {
            let seen = call.plane(guess.output, guess.sequence, guess.head)?;
            tally.take(seen, guess)
        })
    }

    fn share(&self) -> f64 {
        if self.error == 0.0 { 1.0 } else { 1.0 - self.left / self.error }
    }

    /// What this comes to: an explanation, nothing, or `None` where error is left.
    fn fit(&self, half: Half) -> Option<Fit> {
        let share = self.share();
        let speaks = self.explained > 0 && self.explained >= self.open;
        let fits = share >= budget::LEAST_SHARE && (speaks || self.open > 0);
        fits.then_some(Fit { half, share, factor: None, speaks })
    }
}

/// Asks a variant about a scenario: where rows see no key, with their LSE read as it is or as 0.
pub fn fit(variant: &Variant, observed: &Observed) -> Option<Fit> {
    let plain = fit_as_it_is(variant, observed);
    let empty = |seen: &Seen| seen.output == Output::Lse && seen.got.contains(&f64::NEG_INFINITY);
    if plain.is_some() || !observed.calls.iter().flat_map(|call| &call.seen).any(empty) {
        return plain;
    }
    let bend = Bend { empty_as_zero: true, ..variant.bend };
    fit_as_it_is(&Variant { bend, ..variant.clone() }, observed)
}

/// Would the fault, in this half, show in a scenario that passes? A factor says nothing of where it applies.
pub fn is_contradicted(variant: &Variant, half: Half, passing: &Observed) -> bool {
    if variant.after == Some(After::Factor) {
        return false;
    }
    let forward = |tally: Tally| {
        let bend = variant.bend.after(&passing.calls[0].inputs.case);
        passing.calls.iter().try_fold(tally, |tally, call| each_unit(call, &bend, tally, Bent::forward))
    };
    let tally = Tally::default();
    let shows_forward = half != Half::Backward && !passing.calls.is_empty() && forward(tally).is_none();
    shows_forward || (half != Half::Forward && backward(variant, passing, tally).is_none())
}

fn fit_as_it_is(variant: &Variant, observed: &Observed) -> Option<Fit> {
    if variant.after == Some(After::Factor) {
        return fit_factor(observed);
    }
    if !observed.is_wrong(true) {
        let tally = backward(variant, observed, Tally::default())?;
        return tally.fit(Half::Backward);
    }
    if !variant.bend.bends_forward() {
        return None;
    }
    let mut tally = Tally::default();
    for call in &observed.calls {
        tally = each_unit(call, &variant.bend.after(&observed.calls[0].inputs.case), tally, Bent::forward)?;
    }
    if !observed.is_wrong(false) {
        return tally.fit(Half::Forward);
    }
    backward(variant, observed, tally)?.fit(Half::Both)
}

/// The gradients of all calls.
fn backward(variant: &Variant, observed: &Observed, mut tally: Tally) -> Option<Tally> {
    for (at, call) in observed.calls.iter().enumerate() {
        let Some(after) = variant.after else {
            tally =
                each_unit(call, &variant.bend.after(&observed.calls[0].inputs.case), tally, Bent::backward)?;
            continue;
        };
        let mut guesses = match variant.bend.bends_backward() {
            false => after::right(call),
            true => {
                let bent = Bent::new(&call.inputs, &call.outputs, &variant.bend);
                let units = Unit::all(&call.inputs.case).into_iter();
                units.flat_map(|(sequence, head)| bent.backward(sequence, head)).collect()
            }
        };
        after.apply(&observed.calls, at, &mut guesses);
        tally = tally.take_all(call, &guesses)?;
    }
    Some(tally)
}

/// Unit by unit, those first that are most wrong: what does not fit is known soon.
fn each_unit<'a>(
    call: &'a Call,
    bend: &'a Bend,
    mut tally: Tally,
    guess: impl Fn(&Bent<'a>, usize, usize) -> Vec<Guess>,
) -> Option<Tally> {
    let bent = Bent::new(&call.inputs, &call.outputs, bend);
    for &(sequence, head) in &call.units {
        tally = tally.take_all(call, &guess(&bent, sequence, head))?;
    }
    Some(tally)
}

/// Are the planes that are wrong all the same factor off?
fn fit_factor(observed: &Observed) -> Option<Fit> {
    if observed.is_wrong(true) {
        return None;
    }
    let planes = || observed.calls.iter().flat_map(|call| call.seen.iter().map(move |seen| (call, seen)));
    let wrong = || planes().filter(|(_, seen)| seen.wrong > 0 && !is_forward(seen.output));
    let sums = |pair: fn(f64, f64) -> f64| -> f64 {
        let all = wrong().flat_map(|(_, seen)| seen.got.iter().zip(&seen.want).zip(&seen.tau));
        all.filter(|(_, tau)| tau.is_finite()).map(|((got, want), _)| pair(*got, *want)).sum()
    };
    let factor = sums(|got, want| got * want) / sums(|_, want| want * want);
    // Nothing but zeros is not a factor: something was left out.
    if !factor.is_finite()
        || factor == 0.0
        || wrong().map(|(_, seen)| seen.wrong).sum::<usize>() < budget::LEAST_FITTED
    {
        return None;
    }
    let tally = wrong().try_fold(Tally::default(), |tally, (call, seen)| {
        let storage = Storage::of(call.inputs.case.dtype);
        let value: Vec<f64> = seen.want.iter().map(|want| factor * want).collect();
        let tau = value.iter().zip(&seen.tau);
        let tau =
            tau.map(|(value, tau)| budget::bent_sum(&storage, tau * factor.abs().max(1.0), *value, factor));
        let (output, sequence, head) = (seen.output, seen.sequence, seen.head);
        tally.take(seen, &Guess { output, sequence, head, tau: tau.collect(), value })
    })?;
    tally.fit(Half::Backward).map(|fit| Fit { factor: Some(factor), ..fit })
}
