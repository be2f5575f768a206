//! The passes: every way in which a scenario may become simpler, in one table.
//!
//! A pass proposes edits through the shrinker and lets it judge. It is deterministic, it does not
//! run itself to a fixed point (the rounds do), and on a scenario where each of its single steps is
//! refused it adopts nothing: that is what the final round proves.
//!
//! Cuts come first, since each makes every later run cheaper.

use std::ops::Range;

use super::{Shrinker, search};
use crate::case::Case;

mod cut;
mod lengths;
mod shape;
mod storage;
mod values;

/// When a pass has its turn within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Whole calls, sequences and items.
    Cut,
    /// Lengths, heads, dims and the mask: what a run costs.
    Shape,
    /// Storage, data and keys: what the reader has left to wonder about.
    Value,
}

/// One way to simplify.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// What it does, as a verb.
    pub name: &'static str,
    /// When it has its turn.
    pub tier: Tier,
    pub(super) run: fn(&mut Shrinker<'_>),
}

const fn pass(tier: Tier, name: &'static str, run: fn(&mut Shrinker<'_>)) -> Pass {
    Pass { name, tier, run }
}

/// Every pass, in the order of a round.
pub static PASSES: [Pass; 27] = [
    pass(Tier::Cut, "drop calls", cut::drop_calls),
    pass(Tier::Cut, "merge calls", cut::merge_calls),
    pass(Tier::Cut, "empty calls", cut::empty_calls),
    pass(Tier::Cut, "drop sequences", cut::drop_sequences),
    pass(Tier::Cut, "reset items", cut::reset_items),
    pass(Tier::Cut, "reset pairs of items", cut::reset_pairs),
    pass(Tier::Cut, "swap calls and move their items", cut::move_items_between_calls),
    pass(Tier::Cut, "drop sequences but not their gaps", cut::drop_edges_into_margins),
    pass(Tier::Cut, "merge sequences", lengths::merge_sequences),
    pass(Tier::Cut, "keep fewer, longer sequences", lengths::keep_fewer_longer),
    pass(Tier::Shape, "lower all lengths", lengths::lower_all),
    pass(Tier::Shape, "empty sequences", lengths::empty_chunks),
    pass(Tier::Shape, "lower lengths", lengths::lower_each),
    pass(Tier::Shape, "move tokens back", lengths::move_back),
    pass(Tier::Shape, "sort sequences", lengths::sort),
    pass(Tier::Shape, "lower heads", shape::lower_heads),
    pass(Tier::Shape, "lower dims", shape::lower_dims),
    pass(Tier::Shape, "simplify the mask", shape::simplify_mask),
    pass(Tier::Shape, "drop the mask but not its keyless rows", shape::mask_by_lengths),
    pass(Tier::Shape, "lower bounds and lengths together", shape::lower_bounds_and_lengths),
    pass(Tier::Value, "lower dead rows", storage::lower_dead_rows),
    pass(Tier::Value, "move dead rows back", storage::move_dead_rows_back),
    pass(Tier::Value, "simplify the scale", values::simplify_scale),
    pass(Tier::Value, "simplify the softcap and the sink", values::simplify_softmax),
    pass(Tier::Value, "simplify the data", values::simplify_data),
    pass(Tier::Value, "simplify dO", values::simplify_dout),
    pass(Tier::Value, "lower keys and seed", values::lower_draws),
];

/// The calls an edit is tried on: all together where there are several, then each alone.
///
/// Together, because a fault of two calls may need them alike.
fn scopes(shrinker: &Shrinker<'_>) -> Vec<Range<usize>> {
    let calls = shrinker.current().calls.len();
    let all = (calls > 1).then_some(0..calls);
    all.into_iter().chain((0..calls).map(|i| i..i + 1)).collect()
}

/// As many sequences or pairs of them are tried in vain in a row.
const PATIENCE: usize = 32;

/// As many chunks are: all those of 32 sequences, from the whole down to each alone.
const CHUNK_PATIENCE: usize = 64;

/// Refusals in a row after which a pass over very many sequences leaves the rest alone, so that the
/// other passes get their runs.
struct Patience {
    refusals: usize,
    most: usize,
}

impl Patience {
    fn of(most: usize) -> Patience {
        Patience { refusals: 0, most }
    }

    /// Takes note of an attempt.
    fn note(&mut self, adopted: bool) {
        self.refusals = if adopted { 0 } else { self.refusals + 1 };
    }

    fn is_lost(&self) -> bool {
        self.refusals >= self.most
    }
}

/// A whole number of a case that may be lowered.
struct Knob {
    /// Its value; 0 where the case has none to lower.
    get: fn(&Case) -> u64,
    /// Sets a smaller value.
    set: fn(&mut Case, u64),
    /// Values worth trying, ascending from the least legal one.
    values: &'static [u64],
}

impl Knob {
    /// Lowers the number in every scope.
    fn lower(&self, shrinker: &mut Shrinker<'_>) {
        for scope in scopes(shrinker) {
            let values = shrinker.current().calls[scope.clone()].iter().map(self.get);
            let from = values.max().unwrap_or(0);
            search::lower(from, self.values, |v| {
                shrinker.attempt(|scenario| {
                    let higher = scenario.calls[scope.clone()].iter_mut().filter(|case| (self.get)(case) > v);
                    higher.for_each(|case| (self.set)(case, v));
                })
            });
        }
    }
}

/// Tries each edit on every scope; all of them, whichever are adopted.
fn attempt_each(shrinker: &mut Shrinker<'_>, edits: &[fn(&mut Case)]) {
    for scope in scopes(shrinker) {
        for edit in edits {
            shrinker.attempt(|scenario| scenario.calls[scope.clone()].iter_mut().for_each(edit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_stand_in_tiers_under_distinct_names() {
        assert!(PASSES.is_sorted_by_key(|pass| pass.tier));
        let mut names = PASSES.map(|pass| pass.name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
