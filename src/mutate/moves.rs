//! The moves: each changes one dimension of a scenario. None needs to keep the limits; all keep the
//! lists of a case in step.

use super::Dice;
use crate::case::{Align, Case, Item, Mask, Scenario, limits};
use crate::generate::MAX_DIM;
use crate::shrink::edit::{self, Which};

/// A change of one call.
type Move = fn(&mut Case, &mut Dice);

/// Every change of a call; one that is listed twice is drawn twice as often.
const MOVES: [Move; 18] = [
    take_item,
    take_item,
    take_item,
    take_item,
    take_lengths,
    take_sequence,
    nudge_length,
    nudge_length,
    nudge_length,
    repeat_sequence,
    drop_sequence,
    reorder,
    join_or_split,
    change_heads,
    change_dims,
    change_mask,
    change_storage,
    simplify,
];

/// Distances at which tiles, warps and copies of 16 bytes end.
const STEPS: [i64; 8] = [1, -1, 8, -8, 16, -16, 64, -64];
/// Lengths around which something ends.
const EDGES: [u32; 11] = [0, 1, 2, 8, 16, 32, 63, 64, 65, 128, 129];
/// Donors that are looked at for one that differs.
const DONORS: usize = 8;

/// A change of one call, or of the calls.
pub(super) fn any(scenario: &mut Scenario, dice: &mut Dice) {
    if scenario.calls.is_empty() || dice.below(12) == 0 {
        return change_calls(scenario, dice);
    }
    let call = dice.below(scenario.calls.len());
    dice.one_of(&MOVES)(&mut scenario.calls[call], dice);
}

/// Gives `scenario` something of `other`, both of at least one call.
pub(super) fn cross(scenario: &mut Scenario, other: &Scenario, dice: &mut Dice) {
    let donor = &other.calls[dice.below(other.calls.len())];
    let at = dice.below(scenario.calls.len());
    let call = &mut scenario.calls[at];
    match dice.below(4) {
        0 => give_lengths(call, donor),
        1 => edit::append_sequences(call, donor),
        2 => {
            for item in Item::ALL {
                if dice.below(2) == 0 {
                    give_item(call, donor, item);
                }
            }
        }
        _ => {
            let first = dice.below(other.calls.len());
            scenario.calls.truncate(at + 1);
            scenario.calls.extend_from_slice(&other.calls[first..]);
            scenario.calls.truncate(limits::MAX_CALLS);
        }
    }
}

fn change_calls(scenario: &mut Scenario, dice: &mut Dice) {
    let calls = &mut scenario.calls;
    let at = dice.below(calls.len());
    match dice.below(6) {
        0 | 1 if calls.len() < limits::MAX_CALLS && !calls.is_empty() => {
            let mut again = calls[at].clone();
            if dice.below(2) == 0 {
                dice.one_of(&MOVES)(&mut again, dice);
            }
            calls.insert(at + 1, again);
        }
        2 if calls.len() < limits::MAX_CALLS => calls.insert(at, dice.case()),
        3 if calls.len() > 1 => calls.rotate_left(1),
        4 | 5 if calls.len() > 1 => drop(calls.remove(at)),
        _ => *scenario = dice.scenario(),
    }
}

/// One item of a generated call, as a rule one that differs.
fn take_item(call: &mut Case, dice: &mut Dice) {
    let item = dice.one_of(&Item::ALL);
    let before = item.text(call);
    for _ in 0..DONORS {
        give_item(call, &dice.case(), item);
        if item.text(call) != before {
            return;
        }
    }
}

/// Copies an item; lists go round where they are too short.
fn give_item(to: &mut Case, from: &Case, item: Item) {
    let mut from = from.clone();
    let sequences = to.sequences();
    for list in [&mut from.q.gaps, &mut from.kv.gaps, &mut from.keys] {
        go_round(list, sequences);
    }
    (from.q.lengths, from.kv.lengths) = (to.q.lengths.clone(), to.kv.lengths.clone());
    if item == Item::HeadKeys {
        go_round(&mut from.head_keys, to.heads.kv as usize);
        from.heads = to.heads;
    }
    edit::copy_item(to, &from, item);
}

fn go_round(list: &mut Vec<u32>, n: usize) {
    *list = if list.is_empty() {
        (0..n as u32).collect()
    } else {
        list.iter().copied().cycle().take(n).collect()
    };
}

fn give_lengths(to: &mut Case, from: &Case) {
    (to.q, to.kv) = (from.q.clone(), from.kv.clone());
    to.keys.clone_from(&from.keys);
}

fn take_lengths(call: &mut Case, dice: &mut Dice) {
    give_lengths(call, &dice.case());
}

fn take_sequence(call: &mut Case, dice: &mut Dice) {
    let mut donor = dice.case();
    if donor.sequences() == 0 {
        return;
    }
    let chosen = dice.below(donor.sequences());
    edit::keep_sequences(&mut donor, &[chosen]);
    edit::append_sequences(call, &donor);
    let order = moved(call.sequences(), call.sequences() - 1, dice.below(call.sequences()));
    edit::keep_sequences(call, &order);
}

/// The numbers below `n`, with the one at `from` moved to `to`.
fn moved(n: usize, from: usize, to: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let chosen = order.remove(from);
    order.insert(to, chosen);
    order
}

fn nudge_length(call: &mut Case, dice: &mut Dice) {
    if call.sequences() == 0 {
        return take_sequence(call, dice);
    }
    let at = dice.below(call.sequences());
    let which = dice.one_of(&[Which::Both, Which::Both, Which::Q, Which::Kv]);
    let (step, edge) = (dice.one_of(&STEPS), dice.one_of(&EDGES));
    let how = dice.below(8);
    edit::map_length(call, at, which, |n| match how {
        0 => n / 2,
        1 => n.saturating_mul(2),
        2 | 3 => edge,
        _ => shifted(n, step),
    });
}

fn shifted(n: u32, step: i64) -> u32 {
    (i64::from(n) + step).clamp(0, limits::MAX_TOKENS as i64) as u32
}

fn repeat_sequence(call: &mut Case, dice: &mut Dice) {
    if call.sequences() == 0 {
        return take_sequence(call, dice);
    }
    let at = dice.below(call.sequences());
    let times = dice.one_of(&[1, 1, 1, 2, 7]);
    let order: Vec<usize> = (0..call.sequences()).chain(std::iter::repeat_n(at, times)).collect();
    edit::keep_sequences(call, &order);
}

fn drop_sequence(call: &mut Case, dice: &mut Dice) {
    if call.sequences() > 0 {
        let at = dice.below(call.sequences());
        edit::drop_sequences(call, at..at + 1);
    }
}

fn reorder(call: &mut Case, dice: &mut Dice) {
    let n = call.sequences();
    if n < 2 {
        return repeat_sequence(call, dice);
    }
    let order = moved(n, dice.below(n), dice.below(n));
    edit::keep_sequences(call, &order);
}

fn join_or_split(call: &mut Case, dice: &mut Dice) {
    let n = call.sequences();
    if n < 2 {
        return repeat_sequence(call, dice);
    }
    let at = dice.below(n - 1);
    if dice.below(2) == 0 {
        return edit::merge_sequences(call, at..at + 2);
    }
    let which = dice.one_of(&[Which::Both, Which::Q, Which::Kv]);
    let (from, to) = if dice.below(2) == 0 { (at, at + 1) } else { (at + 1, at) };
    edit::move_tokens(call, which, from, to, dice.one_of(&[1, 8, 64]));
}

fn change_heads(call: &mut Case, dice: &mut Dice) {
    let (q, kv) = (call.heads.q, call.heads.kv);
    match dice.below(6) {
        0 => edit::set_heads(call, q.saturating_mul(2), kv),
        1 => edit::set_heads(call, q.saturating_add(q / kv), kv.saturating_add(1)),
        2 => edit::set_heads(call, q, 1),
        3 => edit::set_heads(call, q, q),
        4 => edit::set_heads(call, kv, kv),
        _ => edit::drop_first_heads(call, 1),
    }
}

fn change_dims(call: &mut Case, dice: &mut Dice) {
    let step = dice.one_of(&[8, -8, 32, -32]);
    let stepped = |dim: u32| shifted(dim, step).clamp(8, MAX_DIM);
    match dice.below(5) {
        0 => call.dims.qk = stepped(call.dims.qk),
        1 => call.dims.v = stepped(call.dims.v),
        2 => std::mem::swap(&mut call.dims.qk, &mut call.dims.v),
        3 => call.dims.v = call.dims.qk,
        _ => (call.dims.qk, call.dims.v) = (stepped(call.dims.qk), stepped(call.dims.v)),
    }
}

/// The same window by another corner, or one bound of it moved.
fn change_mask(call: &mut Case, dice: &mut Dice) {
    let (mut left, mut right, mut align) = call.mask.window();
    let step = dice.one_of(&STEPS);
    let longest = i64::from(call.q.max_len().max(call.kv.max_len()));
    let near = |bound: Option<i64>| {
        let most = limits::MAX_TOKENS as i64;
        Some((bound.unwrap_or(longest) + step).clamp(-most, most))
    };
    match dice.below(4) {
        0 => align = if align == Align::TopLeft { Align::BottomRight } else { Align::TopLeft },
        1 => left = near(left),
        2 => right = near(right),
        _ => (left, right) = (right, left),
    }
    call.mask = match (left, right) {
        (None, None | Some(0)) => Mask::Causal(align),
        _ => Mask::Window { left, right, align },
    };
}

/// A few dead rows more or less, somewhere.
fn change_storage(call: &mut Case, dice: &mut Dice) {
    let step = dice.one_of(&STEPS);
    let at = dice.below(call.sequences());
    let side = if dice.below(2) == 0 { &mut call.q } else { &mut call.kv };
    let place = match dice.below(3) {
        0 => &mut side.lead,
        1 => &mut side.tail,
        _ => side.gaps.get_mut(at).unwrap_or(&mut side.lead),
    };
    *place = shifted(*place, step);
}

/// One part that prints goes back to its default.
fn simplify(call: &mut Case, dice: &mut Dice) {
    let parts = edit::printed_parts(call);
    if !parts.is_empty() {
        edit::reset(call, dice.one_of(&parts));
    }
}
