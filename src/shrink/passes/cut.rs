//! Cuts: whole calls, sequences and items.

use std::ops::Range;

use super::{CHUNK_PATIENCE, Patience, scopes};
use crate::case::{Case, Item, Scenario};
use crate::shrink::edit::{self, Part};
use crate::shrink::{Shrinker, search};

/// More sequences than this are many.
const MANY: usize = 64;

/// Pairs of items are tried up to this many printed ones: beyond, single items will go first.
const MAX_PAIRED: usize = 8;

/// Drops calls; the last go first, so that what is left keeps its past.
pub fn drop_calls(shrinker: &mut Shrinker<'_>) {
    for size in search::chunk_sizes(shrinker.current().calls.len()) {
        search::sweep_chunks(shrinker.current().calls.len(), size, |range| {
            shrinker.attempt(|scenario| drop(scenario.calls.drain(range)));
        });
    }
}

/// Makes one call of two: the items of both, those of the kept one where they differ, and the sequences
/// of both or of the kept one.
pub fn merge_calls(shrinker: &mut Shrinker<'_>) {
    for (keep, gone) in ordered_pairs(shrinker.current().calls.len()) {
        for sequences_too in [true, false] {
            let merged = shrinker.attempt(|scenario| {
                let other = scenario.calls[gone].clone();
                if sequences_too {
                    edit::append_sequences(&mut scenario.calls[keep], &other);
                }
                edit::absorb_items(&mut scenario.calls[keep], &other);
                scenario.calls.remove(gone);
            });
            if merged {
                return; // the pairs are stale now; the next round goes on
            }
        }
    }
}

/// Leaves one of two calls with nothing to do, the other with its sequences or with those of both.
pub fn empty_calls(shrinker: &mut Shrinker<'_>) {
    for (to, from) in ordered_pairs(shrinker.current().calls.len()) {
        for whole in [true, false] {
            shrinker.attempt(|scenario| {
                let moved = std::mem::replace(&mut scenario.calls[from], Case::new(vec![]));
                if whole {
                    scenario.calls[to] = moved;
                } else {
                    edit::append_sequences(&mut scenario.calls[to], &moved);
                    edit::absorb_items(&mut scenario.calls[to], &moved);
                }
            });
        }
    }
}

/// Swaps calls, and moves items from one call to another, all and each, where the order prefers it.
pub fn move_items_between_calls(shrinker: &mut Shrinker<'_>) {
    for (from, to) in ordered_pairs(shrinker.current().calls.len()) {
        shrinker.attempt(|scenario| scenario.calls.swap(from, to));
        move_items(shrinker, from, to, &Item::ALL);
        Item::ALL.chunks(1).for_each(|item| move_items(shrinker, from, to, item));
    }
}

/// Moves those of `items` that print.
fn move_items(shrinker: &mut Shrinker<'_>, from: usize, to: usize, items: &[Item]) {
    let case = &shrinker.current().calls[from];
    let printed: Vec<Item> = items.iter().copied().filter(|item| item.text(case).is_some()).collect();
    if printed.is_empty() {
        return;
    }
    shrinker.attempt(|scenario| {
        let moved = scenario.calls[from].clone();
        for item in printed {
            edit::reset(&mut scenario.calls[from], Part::Item(item));
            edit::copy_item(&mut scenario.calls[to], &moved, item);
        }
    });
}

fn ordered_pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (0..n).filter(move |&j| j != i).map(move |j| (i, j)))
}

/// Drops sequences, from all calls alike and from each; the others keep their data.
pub fn drop_sequences(shrinker: &mut Shrinker<'_>) {
    for scope in scopes(shrinker) {
        drop_many(shrinker, &scope);
        let mut patience = Patience::of(CHUNK_PATIENCE);
        for size in search::chunk_sizes(fewest(shrinker, &scope)) {
            search::sweep_chunks(fewest(shrinker, &scope), size, |range| {
                if !patience.is_lost() {
                    patience.note(drop_range(shrinker, &scope, range));
                }
            });
        }
    }
}

/// The smallest number of sequences of a call in `scope`.
fn fewest(shrinker: &Shrinker<'_>, scope: &Range<usize>) -> usize {
    let calls = shrinker.current().calls[scope.clone()].iter();
    calls.map(Case::sequences).min().unwrap_or(0)
}

fn drop_range(shrinker: &mut Shrinker<'_>, scope: &Range<usize>, range: Range<usize>) -> bool {
    shrinker.attempt(|scenario| {
        let calls = scenario.calls[scope.clone()].iter_mut();
        calls.for_each(|case| edit::drop_sequences(case, range.clone()));
    })
}

/// Of very many sequences, drops all but a few, or as many of the last as will go: a fault of
/// their number has no chunk that is not needed.
fn drop_many(shrinker: &mut Shrinker<'_>, scope: &Range<usize>) {
    let n = fewest(shrinker, scope);
    if n <= MANY || drop_range(shrinker, scope, 1..n) {
        return;
    }
    let mut left = n;
    search::find_integer(|k| {
        let keep = n.saturating_sub(k as usize);
        let dropped = keep > 0 && keep < left && drop_range(shrinker, scope, keep..left);
        left = if dropped { keep } else { left };
        dropped
    });
}

/// The printed parts of every call, the same part of all calls side by side: those go together.
fn printed(scenario: &Scenario) -> Vec<(usize, Part)> {
    let mut parts: Vec<(usize, Part)> = Vec::new();
    for (call, case) in scenario.calls.iter().enumerate() {
        for part in edit::printed_parts(case) {
            let after = parts.iter().rposition(|&(_, other)| other == part);
            parts.insert(after.map_or(parts.len(), |i| i + 1), (call, part));
        }
    }
    parts
}

fn reset(shrinker: &mut Shrinker<'_>, parts: &[(usize, Part)]) -> bool {
    shrinker.attempt(|scenario| {
        parts.iter().for_each(|&(call, part)| edit::reset(&mut scenario.calls[call], part))
    })
}

/// Sets items back to their defaults: all, half of them, ... each alone.
pub fn reset_items(shrinker: &mut Shrinker<'_>) {
    for size in search::chunk_sizes(printed(shrinker.current()).len()) {
        let parts = printed(shrinker.current());
        search::sweep_chunks(parts.len(), size, |range| {
            reset(shrinker, &parts[range]);
        });
    }
}

/// Sets two items back at once, such as a bottom-right mask and the kv lengths it speaks of.
pub fn reset_pairs(shrinker: &mut Shrinker<'_>) {
    let parts = printed(shrinker.current());
    if parts.len() > MAX_PAIRED {
        return;
    }
    for (i, &second) in parts.iter().enumerate() {
        for &first in &parts[..i] {
            if reset(shrinker, &[first, second]) {
                return; // the list is stale now; the next round goes on
            }
        }
    }
}

/// Drops the first or last sequence and keeps its gap, as leading or trailing dead rows.
pub fn drop_edges_into_margins(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        let has_gap = |shrinker: &Shrinker<'_>, first: bool| {
            let case = &shrinker.current().calls[call];
            let edge = |gaps: &[u32]| if first { gaps.first().copied() } else { gaps.last().copied() };
            edge(&case.q.gaps).unwrap_or(0) > 0 || edge(&case.kv.gaps).unwrap_or(0) > 0
        };
        if has_gap(shrinker, true) {
            shrinker.attempt(|scenario| {
                let case = &mut scenario.calls[call];
                case.q.lead += case.q.gaps[0];
                case.kv.lead += case.kv.gaps[0];
                edit::drop_sequences(case, 0..1);
            });
        }
        if has_gap(shrinker, false) {
            shrinker.attempt(|scenario| {
                let case = &mut scenario.calls[call];
                let last = case.sequences() - 1;
                case.q.tail += case.q.gaps[last];
                case.kv.tail += case.kv.gaps[last];
                edit::drop_sequences(case, last..last + 1);
            });
        }
    }
}
