//! Heads, dims, dtype, mask, scale and the softmax's features: what a fused kernel picks its code path by.
//!
//! Tables list the simplest value first. Mask bounds are drawn before the lengths are known, as a
//! kind, and take their number from the longest sequence afterwards.

use arbitrary::{Result, Unstructured};

use super::Softmax;
use super::draw::{between, weighted};
use super::lengths::EDGES;
use crate::case::limits::HEAD_DIM_STEP;
use crate::case::{Align, Dims, Heads, Mask, Sink};
use crate::tensor::DType;

/// Largest head dim drawn. 256 follows by this one edit when our kernels have it: the tables hold
/// the larger dims already. The pair test of [`crate::axes`] then names the rules that fall.
pub const MAX_DIM: u32 = 128;

/// (weight, query heads, key/value heads). A group as large as the number of groups (4/2, 9/3) can
/// hide a transposed index, so most groupings are not square.
const HEADS: [(u8, (u32, u32)); 30] = [
    (52, (1, 1)),
    (30, (2, 2)),
    (12, (3, 3)),
    (20, (4, 4)),
    (9, (5, 5)),
    (3, (7, 7)),
    (15, (8, 8)),
    (3, (9, 9)),
    (8, (16, 16)),
    (2, (32, 32)),
    (8, (2, 1)),
    (7, (3, 1)),
    (6, (4, 1)),
    (3, (5, 1)),
    (3, (7, 1)),
    (5, (8, 1)),
    (3, (16, 1)),
    (2, (24, 1)),
    (9, (4, 2)),
    (4, (9, 3)),
    (5, (16, 4)),
    (4, (6, 2)),
    (4, (6, 3)),
    (9, (8, 2)),
    (3, (8, 4)),
    (6, (12, 3)),
    (2, (12, 4)),
    (5, (21, 7)),
    (5, (28, 4)),
    (3, (32, 8)),
];

/// Equal head dims that kernels are specialised for, or that fall between the specialisations.
const SQUARE: [(u8, u32); 16] = [
    (90, 64),
    (44, 128),
    (12, 32),
    (10, 16),
    (10, 8),
    (10, 40),
    (10, 72),
    (12, 80),
    (12, 96),
    (8, 104),
    (8, 120),
    (6, 160),
    (6, 192),
    (8, 256),
    (4, 136),
    (4, 176),
];

/// Unequal head dims that libraries have or lack special kernels for.
const PAIRS: [(u8, (u32, u32)); 11] = [
    (50, (128, 64)),
    (50, (64, 128)),
    (30, (128, 96)),
    (20, (96, 128)),
    (16, (64, 32)),
    (16, (32, 64)),
    (12, (80, 64)),
    (12, (64, 72)),
    (16, (192, 128)),
    (10, (128, 192)),
    (10, (256, 128)),
];

pub(super) fn heads(u: &mut Unstructured) -> Result<Heads> {
    let (q, kv) = weighted(u, &HEADS)?;
    Ok(Heads { q, kv })
}

pub(super) fn dims(u: &mut Unstructured) -> Result<Dims> {
    #[derive(Clone, Copy)]
    enum Kind {
        Square,
        Pair,
        Free,
    }
    let square: Vec<_> = SQUARE.into_iter().filter(|&(_, d)| d <= MAX_DIM).collect();
    let pairs: Vec<_> = PAIRS.into_iter().filter(|&(_, (qk, v))| qk.max(v) <= MAX_DIM).collect();
    let step = HEAD_DIM_STEP as u32;
    let kind = weighted(u, &[(160, Kind::Square), (48, Kind::Pair), (48, Kind::Free)])?;
    let (qk, v) = match kind {
        Kind::Square => {
            let d = weighted(u, &square)?;
            (d, d)
        }
        Kind::Pair => weighted(u, &pairs)?,
        Kind::Free => (step * between(u, 1, MAX_DIM / step)?, step * between(u, 1, MAX_DIM / step)?),
    };
    Ok(Dims { qk, v })
}

pub(super) fn dtype(u: &mut Unstructured) -> Result<DType> {
    weighted(u, &[(166, DType::Bf16), (90, DType::F16)])
}

/// A window bound before the lengths are known.
#[derive(Clone, Copy, Debug)]
enum Bound {
    None,
    Zero,
    /// At a tile's edge and shorter than the longest sequence, where one is.
    Edge(u16),
    /// Some of the sequence.
    Part(u16),
    /// As long as the longest sequence, or a little longer.
    Past(u16),
    Negative(u16),
}

/// A mask before the lengths are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskPlan {
    kind: Mask,
    left: Bound,
    right: Bound,
}

/// Draws the kind of a mask and of its bounds.
pub(super) fn mask(u: &mut Unstructured) -> Result<MaskPlan> {
    let window = |align| Mask::Window { left: None, right: None, align };
    let kinds = [
        (76, Mask::Full),
        (66, Mask::Causal(Align::TopLeft)),
        (34, Mask::Causal(Align::BottomRight)),
        (44, window(Align::TopLeft)),
        (36, window(Align::BottomRight)),
    ];
    Ok(MaskPlan { kind: weighted(u, &kinds)?, left: bound(u)?, right: bound(u)? })
}

fn bound(u: &mut Unstructured) -> Result<Bound> {
    // The width of every draw is fixed, so the number is drawn before it is known to be needed.
    let draw = u.arbitrary()?;
    let kinds = [
        (42, Bound::None),
        (46, Bound::Zero),
        (56, Bound::Part(draw)),
        (42, Bound::Edge(draw)),
        (36, Bound::Past(draw)),
        (34, Bound::Negative(draw)),
    ];
    weighted(u, &kinds)
}

impl Bound {
    fn resolve(self, longest: u32) -> Option<i64> {
        let pick = |draw: u16, n: usize| (usize::from(draw) * n) >> 16;
        match self {
            Bound::None => None,
            Bound::Zero => Some(0),
            Bound::Part(draw) => Some(1 + pick(draw, longest.saturating_sub(1) as usize) as i64),
            Bound::Edge(draw) => {
                let fitting = EDGES.iter().filter(|&&edge| edge + 1 < longest).count();
                if fitting == 0 {
                    return Bound::Part(draw).resolve(longest);
                }
                let at = pick(draw, 3 * fitting);
                Some(i64::from(EDGES[at / 3]) + (at % 3) as i64 - 1)
            }
            Bound::Past(draw) => Some(i64::from(longest) + [0, 1, 64, 1000][pick(draw, 4)]),
            Bound::Negative(draw) => Some(-[1, 2, 3, 8, 17, 64][pick(draw, 6)]),
        }
    }
}

impl MaskPlan {
    /// The mask, now that the longest sequence of either side is known.
    pub(super) fn resolve(self, longest: u32) -> Mask {
        match self.kind {
            Mask::Window { align, .. } => {
                let (left, right) = (self.left.resolve(longest), self.right.resolve(longest));
                Mask::Window { left, right, align }
            }
            kind => kind,
        }
    }
}

pub(super) fn scale(u: &mut Unstructured) -> Result<Option<f64>> {
    let table = [
        (188, None),
        (11, Some(0.5)),
        (11, Some(0.125)),
        (10, Some(1.0)),
        (8, Some(0.3)),
        (8, Some(0.07)),
        (6, Some(-0.125)),
        (6, Some(-0.5)),
        (8, Some(0.0)),
    ];
    weighted(u, &table)
}

pub(super) fn softcap(u: &mut Unstructured, softmax: Softmax) -> Result<Option<f64>> {
    let table =
        [(234, None), (8, Some(30.0)), (5, Some(50.0)), (4, Some(5.0)), (3, Some(1.0)), (2, Some(0.25))];
    Ok(weighted(u, &table)?.filter(|_| softmax.cap))
}

pub(super) fn sink(u: &mut Unstructured, softmax: Softmax) -> Result<Sink> {
    let sink = weighted(u, &[(232, Sink::None), (9, Sink::OffByOne), (15, Sink::Learnable)])?;
    Ok(if softmax.sink { sink } else { Sink::None })
}
