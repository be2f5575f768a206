//! Heads, dims and the mask.

use super::{Knob, PATIENCE, Patience, attempt_each, scopes};
use crate::case::{Align, Case, Item, Mask};
use crate::shrink::edit::{self, Part, Which};
use crate::shrink::{Shrinker, search};

/// As many query as kv heads, then kv heads with the groups kept, then smaller groups.
const HEADS: [Knob; 3] = [
    Knob {
        get: |case| u64::from(case.heads.q),
        set: |case, n| edit::set_heads(case, n as u32, n as u32),
        values: &[1, 2, 3, 4],
    },
    Knob {
        get: |case| u64::from(case.heads.kv),
        set: |case, n| edit::set_heads(case, n as u32 * case.heads.group(), n as u32),
        values: &[1, 2, 3, 4],
    },
    Knob {
        get: |case| u64::from(case.heads.group()),
        set: |case, n| edit::set_heads(case, case.heads.kv * n as u32, case.heads.kv),
        values: &[1, 2, 3, 4],
    },
];

/// Lowers the numbers of heads; kv heads go from the end, and from the front where the last ones
/// are needed.
pub fn lower_heads(shrinker: &mut Shrinker<'_>) {
    HEADS.iter().for_each(|knob| knob.lower(shrinker));
    for scope in scopes(shrinker) {
        for step in [u32::MAX, 1] {
            shrinker.attempt(|scenario| {
                scenario.calls[scope.clone()].iter_mut().for_each(|case| edit::drop_first_heads(case, step));
            });
        }
    }
}

/// Steps of 8: 64, the default, has been tried with the other items.
const DIM_STEPS: &[u64] = &[1, 2, 3, 4, 8, 16, 24];

const DIMS: [Knob; 3] = [
    Knob {
        get: |case| u64::from(case.dims.qk.max(case.dims.v) / 8),
        set: |case, n| set_dims(case, Which::Both, n),
        values: DIM_STEPS,
    },
    Knob {
        get: |case| u64::from(case.dims.qk / 8),
        set: |case, n| set_dims(case, Which::Q, n),
        values: DIM_STEPS,
    },
    Knob {
        get: |case| u64::from(case.dims.v / 8),
        set: |case, n| set_dims(case, Which::Kv, n),
        values: DIM_STEPS,
    },
];

fn set_dims(case: &mut Case, which: Which, steps: u64) {
    if which != Which::Kv {
        case.dims.qk = 8 * steps as u32;
    }
    if which != Which::Q {
        case.dims.v = 8 * steps as u32;
    }
}

/// Lowers the head dims together and apart; either alone may also rise to 64, which tells less, and
/// both where more heads make up for it.
pub fn lower_dims(shrinker: &mut Shrinker<'_>) {
    let edits: [fn(&mut Case); 4] = [
        |case| {
            let factor = case.dims.qk.max(case.dims.v).div_ceil(64);
            edit::set_heads(case, case.heads.q * factor, case.heads.kv * factor);
            edit::reset(case, Part::Item(Item::Dims));
        },
        |case| case.dims.qk = 64,
        |case| case.dims.v = 64,
        |case| std::mem::swap(&mut case.dims.qk, &mut case.dims.v),
    ];
    attempt_each(shrinker, &edits);
    DIMS.iter().for_each(|knob| knob.lower(shrinker));
}

/// Bounds are lengths, so the interesting ones are too.
const BOUND_STEPS: &[u64] = &[0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128];

const BOUNDS: [Knob; 2] = [
    Knob {
        get: |case| bound(case.mask.window().0),
        set: |case, n| map_window(case, |left, right, align| (with_size(left, n), right, align)),
        values: BOUND_STEPS,
    },
    Knob {
        get: |case| bound(case.mask.window().1),
        set: |case, n| map_window(case, |left, right, align| (left, with_size(right, n), align)),
        values: BOUND_STEPS,
    },
];

fn bound(bound: Option<i64>) -> u64 {
    bound.map_or(0, i64::unsigned_abs)
}

fn with_size(bound: Option<i64>, size: u64) -> Option<i64> {
    bound.map(|b| if b < 0 { -(size as i64) } else { size as i64 })
}

type Window = (Option<i64>, Option<i64>, Align);

/// Changes a window; other masks stay.
fn map_window(case: &mut Case, f: impl Fn(Option<i64>, Option<i64>, Align) -> Window) {
    if let Mask::Window { left, right, align } = case.mask {
        let (left, right, align) = f(left, right, align);
        case.mask = Mask::Window { left, right, align };
    }
}

/// Turns a window into a causal mask, a bottom-right mask into a top-left one, bounds into none,
/// into positive ones, and into smaller ones.
pub fn simplify_mask(shrinker: &mut Shrinker<'_>) {
    let masks: [fn(&mut Case); 8] = [
        |case| case.mask = Mask::Causal(Align::TopLeft),
        |case| case.mask = Mask::Causal(Align::BottomRight),
        |case| map_window(case, |left, right, _| (left, right, Align::TopLeft)),
        |case| map_window(case, |_, _, align| (None, None, align)),
        |case| map_window(case, |_, right, align| (None, right, align)),
        |case| map_window(case, |left, _, align| (left, None, align)),
        |case| map_window(case, |left, right, align| (left.map(i64::saturating_abs), right, align)),
        |case| map_window(case, |left, right, align| (left, right.map(i64::saturating_abs), align)),
    ];
    attempt_each(shrinker, &masks);
    BOUNDS.iter().for_each(|knob| knob.lower(shrinker));
    lower_bounds_together(shrinker);
}

/// Narrows or shifts both bounds by the same amount, as a band of a given width needs.
fn lower_bounds_together(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        let Mask::Window { left: Some(left), right: Some(right), align } =
            shrinker.current().calls[call].mask
        else {
            continue;
        };
        for (dl, dr) in [(-left.signum(), left.signum()), (-left.signum(), -right.signum())] {
            search::find_integer(|k| {
                let k = k as i64;
                k.unsigned_abs() <= left.unsigned_abs()
                    && shrinker.attempt(|scenario| {
                        let (left, right) = (left.saturating_add(k * dl), right.saturating_add(k * dr));
                        scenario.calls[call].mask =
                            Mask::Window { left: Some(left), right: Some(right), align };
                    })
            });
        }
    }
}

/// Drops the mask but leaves a sequence without keys: what it masked may be what matters.
pub fn mask_by_lengths(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        let mut patience = Patience::of(PATIENCE);
        for i in 0..shrinker.current().calls[call].sequences() {
            let case = &shrinker.current().calls[call];
            if case.mask == Mask::Full || patience.is_lost() {
                break;
            }
            if case.kv.lengths[i] == 0 {
                continue;
            }
            patience.note(shrinker.attempt(|scenario| {
                let case = &mut scenario.calls[call];
                case.mask = Mask::Full;
                case.kv.lengths[i] = 0;
            }));
        }
    }
}

/// Lowers the lengths and a bound by the same amount, as a length just beyond a window needs.
pub fn lower_bounds_and_lengths(shrinker: &mut Shrinker<'_>) {
    for call in 0..shrinker.current().calls.len() {
        for knob in &BOUNDS {
            let start = shrinker.current().calls[call].clone();
            let size = (knob.get)(&start);
            search::find_integer(|k| {
                k <= size
                    && shrinker.attempt(|scenario| {
                        let case = &mut scenario.calls[call];
                        case.clone_from(&start);
                        (knob.set)(case, size - k);
                        for i in 0..case.sequences() {
                            edit::map_length(case, i, Which::Both, |n| n.saturating_sub(k as u32));
                        }
                    })
            });
        }
    }
}
