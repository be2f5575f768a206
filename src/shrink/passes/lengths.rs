//! Lengths: lower them together and apart, and shift tokens between sequences.

use std::cmp::Reverse;
use std::ops::Range;

use super::{CHUNK_PATIENCE, PATIENCE, Patience};
use crate::case::{Case, Scenario};
use crate::shrink::edit::{self, Which};
use crate::shrink::{Shrinker, search};

/// Lengths that kernels treat apart: small ones, and those around the sizes of tiles.
const INTERESTING: [u64; 33] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192, 255, 256, 257, 384,
    512, 640, 768, 1024, 2048, 4096,
];

/// Steps down from a length, tried where no interesting length works.
const STEPS: [u64; 4] = [128, 64, 8, 1];

/// Every pair of sequences is tried up to this many; beyond, neighbours and the last.
const MAX_PAIRED: usize = 6;

/// Attempts an edit of lengths; where that is refused and dO has one live row, the edit with that
/// row moved into what the edit leaves. A row beyond every sequence would make all of dO zero.
fn attempt(shrinker: &mut Shrinker<'_>, edit: impl Fn(&mut Scenario)) -> bool {
    if shrinker.attempt(&edit) {
        return true;
    }
    let has_live_row = |case: &Case| case.dout.row.is_some_and(|row| row < case.q.max_len());
    if !shrinker.current().calls.iter().any(has_live_row) {
        return false;
    }
    shrinker.attempt(|scenario| {
        edit(scenario);
        for case in &mut scenario.calls {
            let last = case.q.max_len().saturating_sub(1);
            case.dout.row = case.dout.row.map(|row| row.min(last));
        }
    })
}

/// Lowers a length from `from`: interesting values, smallest first, then by steps.
fn lower(from: u64, mut works: impl FnMut(u64) -> bool) {
    let mut now = search::first_of(from, &INTERESTING, &mut works).unwrap_or(from);
    for wide in [now / 128 * 128, now / 2] {
        if wide < now && works(wide) {
            now = wide;
        }
    }
    for step in STEPS {
        now -= step * search::find_integer(|k| step * k <= now && works(now - step * k));
    }
}

/// Lowers all sequences of all calls to one length at most, then all by the same amount.
pub fn lower_all(shrinker: &mut Shrinker<'_>) {
    for which in [Which::Both, Which::Q, Which::Kv] {
        let longest = |case: &Case| match which {
            Which::Both => case.q.max_len().max(case.kv.max_len()),
            Which::Q => case.q.max_len(),
            Which::Kv => case.kv.max_len(),
        };
        let from = shrinker.current().calls.iter().map(longest).max().unwrap_or(0);
        lower(u64::from(from), |v| {
            attempt(shrinker, |scenario| map_all(scenario, which, |n| n.min(v as u32)))
        });
        for step in STEPS {
            let start = shrinker.current().clone();
            search::find_integer(|k| {
                step * k <= u64::from(from)
                    && attempt(shrinker, |scenario| {
                        scenario.clone_from(&start);
                        map_all(scenario, which, |n| n.saturating_sub((step * k) as u32));
                    })
            });
        }
    }
}

fn map_all(scenario: &mut Scenario, which: Which, f: impl Fn(u32) -> u32) {
    for case in &mut scenario.calls {
        (0..case.sequences()).for_each(|i| edit::map_length(case, i, which, &f));
    }
}

/// The sequences of a call with a token, as (call, sequence).
fn live_sequences(scenario: &Scenario) -> Vec<(usize, usize)> {
    let calls = scenario.calls.iter().enumerate();
    let places = calls.flat_map(|(call, case)| (0..case.sequences()).map(move |i| (call, i)));
    let lengths = |(call, i): (usize, usize)| {
        let case: &Case = &scenario.calls[call];
        (case.q.lengths[i], case.kv.lengths[i])
    };
    places.filter(|&place| lengths(place) != (0, 0)).collect()
}

/// Empties sequences, half of them, a quarter, ... down to two at once.
pub fn empty_chunks(shrinker: &mut Shrinker<'_>) {
    let mut patience = Patience::of(CHUNK_PATIENCE);
    for size in
        search::chunk_sizes(live_sequences(shrinker.current()).len()).skip(1).take_while(|&size| size > 1)
    {
        let places = live_sequences(shrinker.current());
        search::sweep_chunks(places.len(), size, |range| {
            if patience.is_lost() {
                return;
            }
            patience.note(attempt(shrinker, |scenario| {
                for &(call, i) in &places[range.clone()] {
                    edit::map_length(&mut scenario.calls[call], i, Which::Both, |_| 0);
                }
            }));
        });
    }
}

/// Lowers each sequence: q and kv to the same length, each apart, and both by the same amount.
pub fn lower_each(shrinker: &mut Shrinker<'_>) {
    let mut patience = Patience::of(PATIENCE);
    for (call, i) in live_sequences(shrinker.current()) {
        if patience.is_lost() {
            return;
        }
        let before = shrinker.steps;
        for which in [Which::Both, Which::Q, Which::Kv] {
            let case = &shrinker.current().calls[call];
            let from = if which == Which::Kv { case.kv.lengths[i] } else { case.q.lengths[i] };
            lower(u64::from(from), |v| {
                attempt(shrinker, |scenario| {
                    edit::map_length(&mut scenario.calls[call], i, which, |_| v as u32);
                })
            });
        }
        lower_pair(shrinker, call, i);
        patience.note(shrinker.steps > before);
    }
}

/// Lowers q and kv of a sequence by the same amount, where they differ.
fn lower_pair(shrinker: &mut Shrinker<'_>, call: usize, i: usize) {
    let case = &shrinker.current().calls[call];
    let (q, kv) = (case.q.lengths[i], case.kv.lengths[i]);
    if q == kv {
        return;
    }
    let least = u64::from(q.min(kv));
    search::lower(least, &[0, 1, 2, 8, 16, 64, 128], |v| {
        attempt(shrinker, |scenario| {
            let case = &mut scenario.calls[call];
            let by = (least - v) as u32;
            (case.q.lengths[i], case.kv.lengths[i]) = (q - by, kv - by);
        })
    });
}

/// Merges neighbours, all, half of them, ... two, and any two of a few: fewer sequences of the same
/// tokens.
pub fn merge_sequences(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        let sequences = |shrinker: &Shrinker<'_>| shrinker.current().calls[call].sequences();
        let mut patience = Patience::of(CHUNK_PATIENCE);
        for size in search::chunk_sizes(sequences(shrinker)).take_while(|&size| size > 2) {
            search::sweep_chunks(sequences(shrinker), size, |range| {
                if range.len() > 1 && !patience.is_lost() {
                    patience.note(merge(shrinker, call, range));
                }
            });
        }
        for i in (1..sequences(shrinker)).rev() {
            if !patience.is_lost() {
                patience.note(merge(shrinker, call, i - 1..i + 1));
            }
        }
        merge_distant(shrinker, call);
    }
}

/// Puts the tokens of one of a few sequences into another, either way, and drops it.
fn merge_distant(shrinker: &mut Shrinker<'_>, call: usize) {
    let n = shrinker.current().calls[call].sequences();
    let pairs = if n <= MAX_PAIRED { pairs_of(n) } else { vec![] };
    for (i, j) in pairs.into_iter().flat_map(|(i, j)| [(i, j), (j, i)]) {
        let merged = shrinker.attempt(|scenario| {
            let case = &mut scenario.calls[call];
            edit::move_tokens(case, Which::Both, i, j, u32::MAX);
            edit::drop_sequences(case, i..i + 1);
        });
        if merged {
            return; // the pairs are stale now; the next round goes on
        }
    }
}

fn merge(shrinker: &mut Shrinker<'_>, call: usize, range: Range<usize>) -> bool {
    shrinker.attempt(|scenario| edit::merge_sequences(&mut scenario.calls[call], range))
}

/// Keeps a few of the sequences and lengthens them so that their number times their lengths stays what
/// it was: padded sizes are products of that kind. The longest are kept, and of a few all but each one.
pub fn keep_fewer_longer(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        let n = shrinker.current().calls[call].sequences();
        let all_but_one = (0..n).filter(|_| n <= MAX_PAIRED).map(|i| (0..n).filter(|&j| j != i).collect());
        let mut choices: Vec<Vec<usize>> = [1, 2, n / 2, n.saturating_sub(1)]
            .map(|keep| longest(&shrinker.current().calls[call], keep))
            .into();
        choices.extend(all_but_one);
        for keep in choices.into_iter().filter(|keep| !keep.is_empty() && keep.len() < n) {
            let factor = n.div_ceil(keep.len()) as u32;
            let longer = shrinker.attempt(|scenario| {
                let case = &mut scenario.calls[call];
                edit::keep_sequences(case, &keep);
                let sides = [&mut case.q, &mut case.kv];
                let lengths = sides.into_iter().flat_map(|side| &mut side.lengths);
                lengths.for_each(|len| *len = len.saturating_mul(factor));
            });
            if longer {
                break; // the choices are stale now; the next round goes on
            }
        }
    }
}

/// The longest `n` sequences, in their order.
fn longest(case: &Case, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..case.sequences()).collect();
    order.sort_by_key(|&i| Reverse(u64::from(case.q.lengths[i]) + u64::from(case.kv.lengths[i])));
    order.truncate(n);
    order.sort_unstable();
    order
}

/// Moves tokens from an earlier sequence to a later one: all, or as many as will go.
pub fn move_back(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        let n = shrinker.current().calls[call].sequences();
        let apart = shrinker.current().calls[call].q.lengths != shrinker.current().calls[call].kv.lengths;
        let sides: &[Which] = if apart { &[Which::Both, Which::Q, Which::Kv] } else { &[Which::Both] };
        let mut patience = Patience::of(PATIENCE);
        for (i, j) in pairs_of(n) {
            for &which in sides {
                if !patience.is_lost() && !shrinker.has_ended() {
                    patience.note(move_pair(shrinker, call, which, i, j));
                }
            }
        }
    }
}

/// All pairs of a few sequences; of more, each with its neighbour and with the last.
fn pairs_of(n: usize) -> Vec<(usize, usize)> {
    let partners = |i: usize| match n {
        0..=MAX_PAIRED => (i + 1..n).collect::<Vec<_>>(),
        _ if i + 2 < n => vec![i + 1, n - 1],
        _ => (i + 1..n).collect(),
    };
    (0..n).flat_map(|i| partners(i).into_iter().map(move |j| (i, j))).collect()
}

fn move_pair(shrinker: &mut Shrinker<'_>, call: usize, which: Which, i: usize, j: usize) -> bool {
    let start = shrinker.current().calls[call].clone();
    let most = if which == Which::Kv { start.kv.lengths[i] } else { start.q.lengths[i] };
    let mut moved = |n: u64| {
        n <= u64::from(most)
            && attempt(shrinker, |scenario| {
                scenario.calls[call].clone_from(&start);
                edit::move_tokens(&mut scenario.calls[call], which, i, j, n as u32);
            })
    };
    most > 0 && (moved(most.into()) || search::find_integer(moved) > 0)
}

/// Sorts the sequences by length, or swaps the neighbours that stand in the wrong order.
pub fn sort(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        let sorted = attempt(shrinker, |scenario| {
            let case = &mut scenario.calls[call];
            let mut pairs: Vec<(u32, u32)> =
                case.q.lengths.iter().copied().zip(case.kv.lengths.iter().copied()).collect();
            pairs.sort_unstable();
            (case.q.lengths, case.kv.lengths) = pairs.into_iter().unzip();
        });
        if sorted {
            continue;
        }
        let mut patience = Patience::of(PATIENCE);
        for i in 1..shrinker.current().calls[call].sequences() {
            let case = &shrinker.current().calls[call];
            let order = |i: usize| (case.q.lengths[i], case.kv.lengths[i]);
            if patience.is_lost() || order(i - 1) <= order(i) {
                continue;
            }
            patience.note(attempt(shrinker, |scenario| {
                let case = &mut scenario.calls[call];
                case.q.lengths.swap(i - 1, i);
                case.kv.lengths.swap(i - 1, i);
            }));
        }
    }
}
