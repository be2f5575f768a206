//! Changing a scenario a little: what libFuzzer's mutator and crossover do, on scenarios instead of
//! bytes.
//!
//! A move (`moves.rs`) changes one dimension: to a value of a generated scenario, or to a neighbour of
//! its own. What comes out is brought back within [`Limits`] by simplifying it, never refused, so
//! every call gives a case that can run. Both functions are pure: the same seed, the same result.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::case::{Case, DeadFill, Item, Scenario};
use crate::generate::{self, legalise};
use crate::shrink::edit;

mod moves;
#[cfg(test)]
mod tests;

/// What a scenario may cost an emulated run, and how long its text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most [`price`].
    pub price: u64,
    /// Longest text, in bytes. `[1]` is what remains where nothing else fits.
    pub text: usize,
}

/// Rows and columns of the kernel's tiles: the emulator computes a tile whole.
const TILE: u32 = 64;
/// Compiled head dims are multiples of this.
const DIM: u32 = 32;
/// Donors of a mutation are drawn within this.
const DONORS: generate::Budget =
    generate::Budget { max_tokens: 512, max_work: 1 << 22, softmax: generate::Softmax::PLAIN };
/// Attempts at a change before a fresh scenario is drawn instead.
const TRIES: usize = 16;

/// What an emulated run costs: multiply-adds of one product, of whole tiles, and every byte of the
/// tensors, dead rows included, as four of them.
pub fn price(scenario: &Scenario) -> u64 {
    scenario.calls.iter().map(price_of_call).fold(0, u64::saturating_add)
}

fn price_of_call(case: &Case) -> u64 {
    let padded = |n: u32| u64::from(n.max(1).next_multiple_of(TILE));
    let lengths = case.q.lengths.iter().zip(&case.kv.lengths);
    let scores = lengths.map(|(&q, &kv)| padded(q) * padded(kv)).fold(0, u64::saturating_add);
    let width = u64::from(case.heads.q) * u64::from(case.dims.qk.max(case.dims.v).next_multiple_of(DIM));
    // Without a sequence the heads still cost something.
    scores.max(1).saturating_mul(width).saturating_add(case.bytes().saturating_mul(4))
}

/// Is it valid, within the limits, and such that a right kernel's answer is finite?
pub fn fits(scenario: &Scenario, limits: &Limits) -> bool {
    let finite = |case: &Case| case.dout.scale <= generate::largest_factor(case);
    let runs = |case: &Case| case.dims.qk.max(case.dims.v) <= generate::MAX_DIM;
    scenario.validate().is_ok()
        && scenario.calls.iter().all(|case| finite(case) && runs(case))
        && price(scenario) <= limits.price
        && scenario.to_string().len() <= limits.text
}

/// Changes one dimension, now and then two.
pub fn mutate(scenario: &Scenario, seed: u64, limits: &Limits) -> Scenario {
    let mut dice = Dice::new(seed);
    for _ in 0..TRIES {
        let mut changed = scenario.clone();
        for _ in 0..dice.one_of(&[1, 1, 1, 2]) {
            moves::any(&mut changed, &mut dice);
        }
        let changed = fit(changed, limits);
        if changed != *scenario {
            return changed;
        }
    }
    fit(dice.scenario(), limits)
}

/// A scenario that has something of both: the lengths of one with the features of the other, the
/// sequences or the calls of both, or each item from either.
pub fn crossover(a: &Scenario, b: &Scenario, seed: u64, limits: &Limits) -> Scenario {
    let mut dice = Dice::new(seed);
    let (a, b) = if dice.below(2) == 0 { (a, b) } else { (b, a) };
    let mut crossed = a.clone();
    moves::cross(&mut crossed, b, &mut dice);
    fit(crossed, limits)
}

/// A generated scenario within the limits.
pub fn fresh(seed: u64, limits: &Limits) -> Scenario {
    fit(Dice::new(seed).scenario(), limits)
}

/// Brings a scenario within the limits: what means nothing goes first, then what costs most.
fn fit(mut scenario: Scenario, limits: &Limits) -> Scenario {
    scenario.calls.iter_mut().for_each(tidy);
    while !fits(&scenario, limits) {
        if !reduce(&mut scenario, limits) {
            return Case::new(vec![1]).into();
        }
        scenario.calls.iter_mut().for_each(tidy);
    }
    scenario
}

/// Undoes what a change of another dimension made pointless or impossible.
fn tidy(case: &mut Case) {
    if !case.q.has_dead_rows() && !case.kv.has_dead_rows() {
        case.dead = DeadFill::Zero;
    }
    legalise(case);
}

/// One step towards the limits; false where nothing is left to take away.
fn reduce(scenario: &mut Scenario, limits: &Limits) -> bool {
    if scenario.calls.len() > 1 {
        scenario.calls.pop();
        return true;
    }
    let Some(case) = scenario.calls.first_mut() else { return false };
    let dear = price_of_call(case) > limits.price;
    let longest = case.q.max_len().max(case.kv.max_len());
    if dear && case.heads.q > 1 && longest <= 4 * TILE {
        let kv = (case.heads.kv / 2).max(1);
        let group = if case.heads.kv > 1 { case.heads.group() } else { case.heads.q / 2 };
        edit::set_heads(case, kv * group.max(1), kv);
    } else if case.sequences() > 1 {
        edit::drop_sequences(case, case.sequences().div_ceil(2)..case.sequences());
    } else if dear && longest > TILE {
        edit::map_length(case, 0, edit::Which::Both, |n| n.min(longest / 2));
    } else {
        let Some(item) = Item::ALL.into_iter().rev().find(|item| item.text(case).is_some()) else {
            return false;
        };
        edit::reset(case, edit::Part::Item(item));
    }
    true
}

/// Choices drawn from a seed.
struct Dice(ChaCha8Rng);

impl Dice {
    fn new(seed: u64) -> Dice {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Dice(ChaCha8Rng::from_seed(key))
    }

    /// A number below `n`, or 0.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// One of a list that is not empty.
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// A generated scenario.
    fn scenario(&mut self) -> Scenario {
        generate::nth(self.0.next_u64(), 0, &DONORS)
    }

    /// A generated call.
    fn case(&mut self) -> Case {
        let mut scenario = self.scenario();
        scenario.calls.swap_remove(0)
    }
}
