//! The axes that the generator draws, each with its buckets and how a case falls into them.

use super::Bucket::{self, Case as OfCase, Scenario as OfScenario};
use super::{Axis, Status};
use crate::case::{Align, Base, Case, DeadFill, Mask, Scenario, Side};
use crate::tensor::DType;

const fn axis(
    name: &'static str,
    notation: &'static str,
    reaches: &'static str,
    values: &'static [&'static str],
    bucket: Bucket,
) -> Axis {
    Axis { name, notation, reaches, status: Status::Fuzzed { values, bucket } }
}

const ZEROS: &[&str] = &["none", "first", "middle", "last", "several", "every"];
const CLASSES: &[&str] = &["64", "128", "another multiple of 16", "an odd multiple of 8"];
const BOUNDS: &[&str] = &[
    "no window",
    "*",
    "negative",
    "0",
    "1 or more, inside",
    "a tile's edge or next to it",
    "the longest length or more",
];
const GAPS: &[&str] = &["none", "after the last only", "elsewhere"];
const ROWS: &[&str] = &["0", "1 to 16", "17 or more"];
const KEYS: &[&str] = &["the index", "permuted", "with holes", "equal"];

/// The fuzzed axes, in the order of the notation.
#[rustfmt::skip]
pub(super) static AXES: &[Axis] = &[
    axis("sequences", "[..]", "EMPTY, OOB-META, DEGEN",
        &["none", "1", "2", "3 to 8", "9 to 32", "33 or more"], OfCase(sequences)),
    axis("sequences, power of two", "[..]", "OOB-META, RACE", &["yes", "no"],
        OfCase(|case| usize::from(!case.sequences().is_power_of_two()))),
    axis("longest sequence", "[..]x[..]", "TAIL, STATS",
        &["0", "1", "2 to 8", "9 to 32", "33 to 64", "65 to 128", "129 to 256", "257 to 512", "513 or more"],
        OfCase(longest)),
    axis("longest sequence and tiles of 64", "[..]x[..]", "TAIL, STATS, WINDOW",
        &["below 63", "one below a multiple", "a multiple", "one above", "between"], OfCase(tile)),
    axis("q lengths", "[..]", "DEGEN, DROP-FEATURE",
        &["fewer than two", "all equal", "uneven"], OfCase(repeats)),
    axis("zero-length q", "[..]", "EMPTY", ZEROS, OfCase(|case| zeros(&case.q))),
    axis("zero-length kv", "x[..]", "EMPTY, STALE-WS", ZEROS, OfCase(|case| zeros(&case.kv))),
    axis("q and kv lengths", "[..]x[..]", "SQ!=SK, MASKED-ROW",
        &["alike", "others, as many tokens", "q longer", "q 8 times longer", "kv longer", "kv 8 times longer"],
        OfCase(relation)),
    axis("query heads", "h8", "STATS, GQA, INT-OVF",
        &["1", "2", "3", "4", "5 to 7", "8 to 15", "16 or more"], OfCase(heads)),
    axis("head groups", "h8/2", "GQA", &["MHA", "MQA", "GQA, square", "GQA, not square"], OfCase(groups)),
    axis("query heads and longest q", "[4] h4", "STRIDE, STATS", &["unequal", "equal, 2 or more"],
        OfCase(|case| usize::from(case.heads.q > 1 && case.heads.q == case.q.max_len()))),
    axis("d_qk", "d128", "HEAD-DIM, SCALE", CLASSES, OfCase(|case| dim(case.dims.qk))),
    axis("d_v", "d64/128", "HEAD-DIM, STATS", CLASSES, OfCase(|case| dim(case.dims.v))),
    axis("d_v against d_qk", "d128/64", "HEAD-DIM", &["equal", "smaller", "larger"],
        OfCase(|case| usize::from(case.dims.v != case.dims.qk) + usize::from(case.dims.v > case.dims.qk))),
    axis("dtype", "f16", "DTYPE, RANGE", &["bf16", "f16"],
        OfCase(|case| usize::from(case.dtype != DType::Bf16))),
    axis("mask", "causal", "DROP-FEATURE, WINDOW, SQ!=SK",
        &["full", "causal", "causal-br", "window", "window-br"], OfCase(mask)),
    axis("window, left", "window(64,0)", "WINDOW", BOUNDS, OfCase(|case| bound(case, true))),
    axis("window, right", "window(*,1)", "WINDOW", BOUNDS, OfCase(|case| bound(case, false))),
    axis("query rows without a key", "", "MASKED-ROW, LSE-CONV", &["none", "some", "all"], OfCase(masked_rows)),
    axis("scale", "scale=0.5", "SCALE",
        &["default", "a power of two", "another", "negative", "0"], OfCase(scale)),
    axis("softcap", "softcap=30", "DROP-FEATURE", &["none", "1 or less", "5", "30 or more"], OfCase(softcap)),
    axis("sink", "sink=learnable", "EXTRA-GRAD, DROP-FEATURE", &["none", "off-by-one", "learnable"],
        OfCase(|case| case.sink as usize)),
    axis("gaps of q", "gap-q(0,3)", "GAP, PAD-POISON", GAPS, OfCase(|case| gaps(&case.q))),
    axis("gaps of kv", "gap-kv(1,0)", "GAP, PAD-POISON", GAPS, OfCase(|case| gaps(&case.kv))),
    axis("lead of q", "lead-q=4", "GAP", ROWS, OfCase(|case| rows(case.q.lead))),
    axis("lead of kv", "lead-kv=4", "GAP", ROWS, OfCase(|case| rows(case.kv.lead))),
    axis("tail of q", "tail-q=16", "PAD-POISON, GAP", ROWS, OfCase(|case| rows(case.q.tail))),
    axis("tail of kv", "tail-kv=16", "PAD-POISON, GAP", ROWS, OfCase(|case| rows(case.kv.tail))),
    axis("data", "data=logits(4)", "STATS, RANGE, TAIL",
        &["logits(1)", "logits below 0.25", "logits(0.5)", "logits 2 to 4", "logits 8 to 50", "ones", "dyadic", "flat", "one-hot"],
        OfCase(base)),
    axis("offset of the logits", "data=offset(-110)", "TAIL, RANGE",
        &["0", "-110", "100", "-200 or 200", "-30 to 30"], OfCase(offset)),
    axis("scale of the heads", "data=head-scale(8)", "STATS", &["1", "2", "8"],
        OfCase(|case| index(&[1.0, 2.0, 8.0], case.data.head_scale))),
    axis("dO", "do=ones", "STRIDE, STATS",
        &["normal", "ones", "one row", "one row of ones"],
        OfCase(|case| usize::from(case.dout.ones) + 2 * usize::from(case.dout.row.is_some()))),
    axis("scale of dO", "do=scale(64)", "RANGE",
        &["1", "below 0.01", "0.01 to 1", "1 to 100", "above 100"], OfCase(dout_scale)),
    axis("fill of dead rows", "dead=nan", "PAD-POISON, TAIL", &["zero", "big", "nan"],
        OfCase(|case| match case.dead { DeadFill::Zero => 0, DeadFill::Big => 1, DeadFill::Nan => 2 })),
    axis("keys of sequences", "keys=3,0", "CACHE", KEYS, OfCase(|case| keys(&case.keys))),
    axis("keys of kv heads", "head-keys=1", "GQA", KEYS, OfCase(|case| keys(&case.head_keys))),
    axis("seed", "seed=7", "", &["0", "another"], OfCase(|case| usize::from(case.seed != 0))),
    axis("calls", "[..]; [..]", "STALE-WS, CACHE, GRAPH", &["1", "2", "3"],
        OfScenario(|scenario| scenario.calls.len() - 1)),
    axis("second call", "[..]; [..]", "STALE-WS, CACHE",
        &["none", "the same lengths, heads and dims", "other lengths", "other heads or dims"],
        OfScenario(second_call)),
];

fn sequences(case: &Case) -> usize {
    match case.sequences() {
        n @ 0..=2 => n,
        3..=8 => 3,
        9..=32 => 4,
        _ => 5,
    }
}

fn longest_of(case: &Case) -> u32 {
    case.q.max_len().max(case.kv.max_len())
}

fn longest(case: &Case) -> usize {
    let ends = [0, 1, 8, 32, 64, 128, 256, 512];
    ends.iter().position(|&end| longest_of(case) <= end).unwrap_or(ends.len())
}

fn tile(case: &Case) -> usize {
    match longest_of(case) {
        0..63 => 0,
        n => match n % 64 {
            63 => 1,
            0 => 2,
            1 => 3,
            _ => 4,
        },
    }
}

fn repeats(case: &Case) -> usize {
    match case.q.lengths.as_slice() {
        [] | [_] => 0,
        lengths if lengths.windows(2).all(|pair| pair[0] == pair[1]) => 1,
        _ => 2,
    }
}

fn zeros(side: &Side) -> usize {
    let n = side.lengths.len();
    let mut at = side.lengths.iter().enumerate().filter(|&(_, &len)| len == 0).map(|(i, _)| i);
    match (at.next(), 1 + at.count()) {
        (None, _) => 0,
        (_, count) if count == n => 5,
        (_, 2..) => 4,
        (Some(0), _) => 1,
        (Some(i), _) if i + 1 == n => 3,
        _ => 2,
    }
}

fn relation(case: &Case) -> usize {
    let (q, kv) = (case.q.tokens(), case.kv.tokens());
    match () {
        () if case.q.lengths == case.kv.lengths => 0,
        () if q == kv => 1,
        () if q >= 8 * kv => 3,
        () if kv >= 8 * q => 5,
        () if q > kv => 2,
        () => 4,
    }
}

fn heads(case: &Case) -> usize {
    match case.heads.q {
        n @ 1..=4 => n as usize - 1,
        5..=7 => 4,
        8..=15 => 5,
        _ => 6,
    }
}

fn groups(case: &Case) -> usize {
    match (case.heads.group(), case.heads.kv) {
        (1, _) => 0,
        (_, 1) => 1,
        (group, kv) if group == kv => 2,
        _ => 3,
    }
}

fn dim(dim: u32) -> usize {
    match dim {
        64 => 0,
        128 => 1,
        _ if dim.is_multiple_of(16) => 2,
        _ => 3,
    }
}

fn mask(case: &Case) -> usize {
    match case.mask {
        Mask::Full => 0,
        Mask::Causal(Align::TopLeft) => 1,
        Mask::Causal(Align::BottomRight) => 2,
        Mask::Window { align: Align::TopLeft, .. } => 3,
        Mask::Window { align: Align::BottomRight, .. } => 4,
    }
}

fn bound(case: &Case, of_left: bool) -> usize {
    let Mask::Window { left, right, .. } = case.mask else { return 0 };
    let longest = i64::from(longest_of(case));
    match if of_left { left } else { right } {
        None => 1,
        Some(..0) => 2,
        Some(0) => 3,
        Some(n) if n >= longest => 6,
        Some(15..=17 | 31..=33 | 63..=65 | 127..=129) => 5,
        Some(_) => 4,
    }
}

fn masked_rows(case: &Case) -> usize {
    let (mut some, mut all) = (false, true);
    for (&q_len, &kv_len) in case.q.lengths.iter().zip(&case.kv.lengths) {
        for q in 0..q_len as usize {
            let masked = case.mask.visible_keys(q, q_len as usize, kv_len as usize).is_empty();
            some |= masked;
            all &= masked;
        }
    }
    usize::from(some) + usize::from(some && all)
}

fn scale(case: &Case) -> usize {
    match case.scale {
        None => 0,
        Some(0.0) => 4,
        Some(..0.0) => 3,
        Some(scale) if scale.log2().fract() == 0.0 => 1,
        Some(_) => 2,
    }
}

fn softcap(case: &Case) -> usize {
    match case.softcap {
        None => 0,
        Some(..=1.0) => 1,
        Some(..30.0) => 2,
        Some(_) => 3,
    }
}

fn gaps(side: &Side) -> usize {
    match side.gaps.split_last() {
        Some((_, before)) if before.iter().any(|&gap| gap > 0) => 2,
        Some((1.., _)) => 1,
        _ => 0,
    }
}

fn rows(rows: u32) -> usize {
    match rows {
        0 => 0,
        1..=16 => 1,
        _ => 2,
    }
}

fn base(case: &Case) -> usize {
    match case.data.base {
        Base::Logits(1.0) => 0,
        Base::Logits(..0.25) => 1,
        Base::Logits(..1.0) => 2,
        Base::Logits(..=4.0) => 3,
        Base::Logits(_) => 4,
        Base::Ones => 5,
        Base::Dyadic => 6,
        Base::Flat => 7,
        Base::OneHot => 8,
    }
}

fn offset(case: &Case) -> usize {
    match case.data.offset {
        0.0 => 0,
        -110.0 => 1,
        100.0 => 2,
        -200.0 | 200.0 => 3,
        _ => 4,
    }
}

fn index(values: &[f64], value: f64) -> usize {
    values.iter().position(|&v| v == value).expect("a value that the axis lists")
}

fn dout_scale(case: &Case) -> usize {
    match case.dout.scale {
        1.0 => 0,
        ..0.01 => 1,
        ..1.0 => 2,
        ..=100.0 => 3,
        _ => 4,
    }
}

fn keys(keys: &[u32]) -> usize {
    let n = keys.len();
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    match () {
        () if keys.iter().enumerate().all(|(i, &key)| key as usize == i) => 0,
        () if sorted.len() < n => 3,
        () if sorted.last().is_some_and(|&key| key as usize >= n) => 2,
        () => 1,
    }
}

fn second_call(scenario: &Scenario) -> usize {
    match scenario.calls.as_slice() {
        [a, b, ..] if (a.heads, a.dims) != (b.heads, b.dims) => 3,
        [a, b, ..] if (&a.q.lengths, &a.kv.lengths) != (&b.q.lengths, &b.kv.lengths) => 2,
        [_, _, ..] => 1,
        _ => 0,
    }
}
