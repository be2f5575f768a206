//! Predicates that stand for faults, each with its true minimum under the order.

use crate::case::{Align, Case, DeadFill, Mask, Scenario};
use crate::tensor::DType;

/// Random starts that each fault is shrunk from.
pub const STARTS: usize = 60;

/// A predicate, its true minimum, and how many of the starts must reach it.
pub struct Fault {
    pub name: &'static str,
    pub minimum: &'static str,
    pub interesting: fn(&Scenario) -> bool,
    pub at_least: usize,
}

pub const fn fault(
    name: &'static str,
    minimum: &'static str,
    at_least: usize,
    interesting: fn(&Scenario) -> bool,
) -> Fault {
    Fault { name, minimum, interesting, at_least }
}

pub fn any(scenario: &Scenario, f: impl Fn(&Case) -> bool) -> bool {
    scenario.calls.iter().any(f)
}

/// Some q length of some call.
pub fn length(scenario: &Scenario, f: impl Fn(u32) -> bool) -> bool {
    any(scenario, |case| case.q.lengths.iter().any(|&n| f(n)))
}

/// Two q lengths that stand side by side.
pub fn neighbours(scenario: &Scenario, f: impl Fn(u32, u32) -> bool) -> bool {
    any(scenario, |case| case.q.lengths.windows(2).any(|w| f(w[0], w[1])))
}

/// The q and kv length of one sequence.
fn pair(scenario: &Scenario, f: impl Fn(&Case, i64, i64) -> bool) -> bool {
    any(scenario, |case| {
        let mut pairs = case.q.lengths.iter().zip(&case.kv.lengths);
        pairs.any(|(&m, &n)| f(case, m.into(), n.into()))
    })
}

fn right(case: &Case) -> Option<i64> {
    match case.mask {
        Mask::Window { right, .. } => right,
        _ => None,
    }
}

pub static FAULTS: [Fault; 47] = [
    fault("anything", "[]", 60, |_| true),
    fault("length a positive multiple of 128", "[128]", 60, |s| length(s, |n| n > 0 && n % 128 == 0)),
    fault("length % 128 == 64", "[64]", 60, |s| length(s, |n| n % 128 == 64)),
    fault("length > 1000 and % 8 == 5", "[1005]", 60, |s| length(s, |n| n > 1000 && n % 8 == 5)),
    fault("odd number of 64-tiles >= 5", "[257]", 60, |s| {
        length(s, |n| n.div_ceil(64) % 2 == 1 && n.div_ceil(64) >= 5)
    }),
    fault("h >= 2 and a length >= 2", "[2] h2", 60, |s| {
        any(s, |c| c.heads.q >= 2 && c.q.lengths.iter().any(|&n| n >= 2))
    }),
    fault("two non-empty neighbours", "[1,1]", 60, |s| neighbours(s, |a, b| a > 0 && b > 0)),
    fault("empty before live", "[0,1]", 60, |s| neighbours(s, |a, b| a == 0 && b > 0)),
    fault("live before empty", "[1,0]", 60, |s| neighbours(s, |a, b| a > 0 && b == 0)),
    fault("longer before shorter, both >= 17", "[18,17]", 60, |s| neighbours(s, |a, b| a > b && b >= 17)),
    fault("two equal lengths >= 17", "[17,17]", 60, |s| neighbours(s, |a, b| a == b && b >= 17)),
    fault("three sequences, more than 300 tokens", "[0,0,301]", 60, |s| {
        any(s, |c| c.sequences() >= 3 && c.q.tokens() > 300)
    }),
    fault("longest * sequences > 4096", "[4097]", 60, |s| {
        any(s, |c| u64::from(c.q.max_len()) * c.sequences() as u64 > 4096)
    }),
    fault("odd count of sequences >= 3", "[0,0,0]", 60, |s| {
        any(s, |c| c.sequences() % 2 == 1 && c.sequences() >= 3)
    }),
    fault("q - kv > 3 under causal-br", "[4]x[0] causal-br", 60, |s| {
        pair(s, |c, m, n| m - n > 3 && c.mask == Mask::Causal(Align::BottomRight))
    }),
    fault("kv > q >= 10", "[10]x[11]", 60, |s| pair(s, |_, m, n| n > m && m >= 10)),
    fault("second call, first has length >= 2", "[2]; []", 60, |s| {
        s.calls.len() >= 2 && s.calls[0].q.max_len() >= 2
    }),
    fault("second call shorter than the first", "[1]; [0]", 60, |s| {
        s.calls.windows(2).any(|w| w[1].q.max_len() < w[0].q.max_len() && w[1].sequences() > 0)
    }),
    fault("two calls of the same d_qk > 64", "[] d72; [] d72", 60, |s| {
        s.calls.windows(2).any(|w| w[0].dims.qk == w[1].dims.qk && w[0].dims.qk > 64)
    }),
    fault("d_v != d_qk", "[] d8/64", 60, |s| any(s, |c| c.dims.qk != c.dims.v)),
    fault("d_qk > 64 and a length > 64", "[65] d72", 60, |s| {
        any(s, |c| c.dims.qk > 64 && c.q.max_len() > 64)
    }),
    fault("GQA", "[] h2/1", 60, |s| any(s, |c| c.heads.group() >= 2)),
    fault("3 kv heads and a length > 16", "[17] h3", 60, |s| {
        any(s, |c| c.heads.kv >= 3 && c.q.max_len() > 16)
    }),
    fault("head key 2 present", "[] head-keys=2", 60, |s| any(s, |c| c.head_keys.contains(&2))),
    fault("f16 and right bound > 0", "[] f16 window(*,1)", 60, |s| {
        any(s, |c| c.dtype == DType::F16 && right(c).is_some_and(|r| r > 0))
    }),
    fault("a query without keys", "[1]x[0]", 60, |s| {
        pair(s, |c, m, n| (0..m).any(|i| c.mask.visible_keys(i as usize, m as usize, n as usize).is_empty()))
    }),
    fault("gap before the last sequence", "[0,0] gap-q(1,0)", 60, |s| {
        any(s, |c| c.q.gaps.iter().rev().skip(1).any(|&g| g > 0))
    }),
    fault("storage row of a live sequence >= 5 beyond its token", "[1] lead-q=5", 60, |s| {
        any(s, |c| c.q.spans().iter().any(|span| span.len > 0 && span.row >= span.token + 5))
    }),
    fault("NaN in a dead row", "[] tail-kv=1 dead=nan", 60, |s| {
        any(s, |c| c.dead == DeadFill::Nan && (c.q.has_dead_rows() || c.kv.has_dead_rows()))
    }),
    fault("offset <= -50", "[] data=offset(-50)", 60, |s| any(s, |c| c.data.offset <= -50.0)),
    fault("0 < scale < 0.3", "[] scale=0.1", 60, |s| any(s, |c| c.scale.is_some_and(|x| 0.0 < x && x < 0.3))),
    fault("live row >= 5 of dO", "[6] do=row(5)", 60, |s| {
        any(s, |c| c.dout.row.is_some_and(|row| row >= 5 && row < c.q.max_len()))
    }),
    fault("seed % 3 == 1", "[] seed=1", 60, |s| any(s, |c| c.seed % 3 == 1)),
    fault("key 3 present", "[0] keys=3", 60, |s| any(s, |c| c.keys.contains(&3))),
    fault("length 5 beyond the left bound", "[5] window(0,*)", 60, |s| {
        let left = |c: &Case| matches!(c.mask, Mask::Window { .. }).then(|| c.mask.window().0).flatten();
        pair(s, |c, m, _| left(c).is_some_and(|left| left >= 0 && m == left + 5))
    }),
    fault("h * d_qk >= 1024", "[] h16", 0, |s| any(s, |c| c.heads.q * c.dims.qk >= 1024)),
    fault("longer than 64 in two calls", "[65]; [65]", 60, |s| {
        s.calls.windows(2).any(|w| w.iter().all(|c| c.q.max_len() > 64))
    }),
    fault("unaligned start", "[1,1]", 60, |s| {
        any(s, |c| c.q.spans().iter().any(|span| span.len > 0 && span.token % 64 != 0))
    }),
    fault("start beyond 100 tokens", "[100,1]", 60, |s| {
        any(s, |c| c.q.spans().iter().any(|span| span.len > 0 && span.token >= 100))
    }),
    fault("one live sequence of four", "[0,0,0,65]", 60, |s| {
        any(s, |c| c.sequences() >= 4 && c.q.max_len() > 64 && c.q.tokens() == u64::from(c.q.max_len()))
    }),
    fault("mean below a third of the longest > 100", "[0,0,0,101]", 60, |s| {
        any(s, |c| c.q.max_len() > 100 && 3 * c.q.tokens() < u64::from(c.q.max_len()) * c.sequences() as u64)
    }),
    fault("6 pairs of tiles", "[129]", 60, |s| pair(s, |_, m, n| (m + 63) / 64 * ((n + 63) / 64) >= 6)),
    fault("groups of 4, two kv heads", "[] h8/2", 60, |s| {
        any(s, |c| c.heads.group() == 4 && c.heads.kv >= 2)
    }),
    fault("head scale > 2, two heads", "[] h2 data=head-scale(3)", 60, |s| {
        any(s, |c| c.data.head_scale > 2.0 && c.heads.q >= 2)
    }),
    // What no pass looks for: its smallest length is near no other that matters.
    fault("length > 50 of a hash", "[57]", 0, |s| {
        length(s, |n| n > 50 && n.wrapping_mul(2_654_435_761) >> 7 & 7 == 0)
    }),
    fault("total a positive multiple of 128, two sequences", "[0,128]", 60, |s| {
        any(s, |c| c.sequences() >= 2 && c.q.tokens() > 0 && c.q.tokens() % 128 == 0)
    }),
    fault("kv shorter than q by a tile, causal", "[64]x[0] causal", 60, |s| {
        pair(s, |c, m, n| m - n >= 64 && matches!(c.mask, Mask::Causal(_)))
    }),
];
