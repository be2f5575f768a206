//! What the tensors hold, drawn so that a right answer is representable.
//!
//! f16 ends at 65504. A gradient beyond it would be infinite in a right kernel too and tell nothing,
//! so the factor of dO is chosen among those that keep every stored value in range, rather than
//! drawing a case and discarding it.

use arbitrary::{Result, Unstructured};

use super::draw::{between, one_of, weighted};
use crate::case::{Base, Case, Data, DeadFill, Dout};
use crate::tensor::DType;

/// Factors of dO other than 1, ascending.
const FACTORS: [f64; 13] = [1e-7, 1e-5, 1e-4, 1e-3, 0.1, 0.5, 4.0, 64.0, 128.0, 512.0, 1e3, 4096.0, 1e4];

pub(super) fn recipe(u: &mut Unstructured) -> Result<Data> {
    let bases = [
        (82, Base::Logits(1.0)),
        (14, Base::Logits(0.01)),
        (14, Base::Logits(0.1)),
        (18, Base::Logits(0.5)),
        (22, Base::Logits(2.0)),
        (26, Base::Logits(4.0)),
        (14, Base::Logits(8.0)),
        (8, Base::Logits(16.0)),
        (6, Base::Logits(50.0)),
        (16, Base::Ones),
        (22, Base::Dyadic),
        (7, Base::Flat),
        (7, Base::OneHot),
    ];
    let offsets = [
        (182, 0.0),
        (18, -110.0),
        (16, 100.0),
        (5, 200.0),
        (5, -200.0),
        (6, 1.0),
        (6, -1.0),
        (6, 10.0),
        (6, -10.0),
        (6, 30.0),
    ];
    let base = weighted(u, &bases)?;
    let offset = weighted(u, &offsets)?;
    let head_scale = weighted(u, &[(200, 1.0), (30, 2.0), (26, 8.0)])?;
    Ok(Data { base, offset, head_scale })
}

/// dO before the lengths are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoutPlan {
    ones: bool,
    row: Option<u16>,
    /// Place in the admitted factors; `None`: 1 where that is admitted.
    factor: Option<u8>,
}

pub(super) fn dout(u: &mut Unstructured) -> Result<DoutPlan> {
    let (ones, row) =
        weighted(u, &[(172, (false, false)), (40, (true, false)), (28, (false, true)), (16, (true, true))])?;
    let at = u.arbitrary()?;
    let other = weighted(u, &[(176, false), (80, true)])?;
    let factor = u.arbitrary()?;
    Ok(DoutPlan { ones, row: row.then_some(at), factor: other.then_some(factor) })
}

impl DoutPlan {
    /// The recipe of dO for a case whose every other dimension is set, within the dtype's range.
    pub(super) fn resolve(self, case: &Case) -> Dout {
        let rows = u64::from(case.q.max_len());
        let row = self.row.map(|draw| ((u64::from(draw) * rows) >> 16) as u32);
        let dout = Dout { ones: self.ones, row, scale: 1.0 };
        let limit = largest_factor(&Case { dout, ..case.clone() });
        let admitted = FACTORS.iter().filter(|&&factor| factor <= limit).count().max(1);
        let scale = match self.factor {
            // A quarter at the end of the range.
            Some(192..) => FACTORS[admitted - 1],
            Some(draw) => FACTORS[(usize::from(draw) * admitted) / 192],
            None if limit >= 1.0 => 1.0,
            None => FACTORS[admitted - 1],
        };
        Dout { scale, ..dout }
    }
}

/// Draws `case.dout` anew where it left the range of the case's dtype.
pub fn legalise(case: &mut Case) {
    let limit = largest_factor(case);
    if case.dout.scale > limit {
        let fitting = FACTORS.iter().rev().find(|&&factor| factor <= limit);
        case.dout.scale = *fitting.unwrap_or(&FACTORS[0]);
    }
}

/// Normal values are within this many standard deviations in tensors of our sizes.
const SIGMAS: f64 = 6.0;

/// Rows of q and k differ in size by up to this factor.
const ROW_FACTOR: f64 = 4.0;

/// The largest factor of dO for which dS, dQ, dK and dV stay within half of the dtype's range.
///
/// Sizes at factor 1: `dp` bounds the entries of dP = dO v^T, hence each row sum of |dS|. A sum over
/// the query rows of a group grows with their square root where the terms have no common sign, and
/// with their number where dO is the same in every row.
pub fn largest_factor(case: &Case) -> f64 {
    if case.dtype != DType::F16 {
        return f64::INFINITY;
    }
    let rows = f64::from(case.q.max_len()) * f64::from(case.heads.group());
    let scale = case.softmax_scale().abs();
    let d = f64::from(case.dims.qk);
    // Values that give logits of this spread at this scale; q takes the head's factor as well.
    let rms = match case.data.base {
        Base::Logits(spread) if scale > 0.0 => (spread / (scale * d.sqrt())).sqrt().max(1.0),
        // The height of a query over its key.
        Base::OneHot => 16.0,
        _ => 1.0,
    };
    let constant = if scale > 0.0 { (case.data.offset.abs() / scale).sqrt() } else { 0.0 };
    let k_max = SIGMAS * ROW_FACTOR * rms + constant;
    let q_rms = (2.0 * rms + constant) * case.data.head_scale;
    let q_max = k_max * case.data.head_scale;
    let dp = SIGMAS * f64::from(case.dims.v).sqrt();
    let coherent = if case.dout.ones { rows } else { 0.0 };
    let dv = if case.dout.ones { rows } else { SIGMAS * rows.sqrt() };
    let dq = scale * dp * k_max;
    let dk = scale * dp * (q_max * rows.sqrt() + 0.5 * q_rms * coherent);
    DType::F16.max_finite() / 2.0 / dv.max(dq).max(dk).max(dp)
}

/// The fill of dead rows; without dead rows there is nothing to fill, and the default prints nothing.
pub(super) fn dead(u: &mut Unstructured, has_dead_rows: bool) -> Result<DeadFill> {
    let fill = weighted(u, &[(56, DeadFill::Zero), (56, DeadFill::Big), (144, DeadFill::Nan)])?;
    Ok(if has_dead_rows { fill } else { DeadFill::Zero })
}

/// Data keys of `n` sequences or heads: their indices, mostly.
pub(super) fn keys(u: &mut Unstructured, n: u32) -> Result<Vec<u32>> {
    #[derive(Clone, Copy)]
    enum Kind {
        Index,
        Rotated,
        Holes,
        Equal,
    }
    let table = [(202, Kind::Index), (18, Kind::Rotated), (18, Kind::Holes), (18, Kind::Equal)];
    let kind = weighted(u, &table)?;
    let draw = between(u, 0, 0xFFFF)?;
    let mut keys: Vec<u32> = (0..n).collect();
    match kind {
        Kind::Index => {}
        Kind::Rotated if n > 1 => keys.rotate_left(1 + draw as usize % (n as usize - 1)),
        Kind::Rotated => {}
        // What dropping the sequences before a drawn one leaves.
        Kind::Holes => {
            let from = draw % n.max(1);
            keys.iter_mut().filter(|key| **key >= from).for_each(|key| *key += 1 + draw % 5);
        }
        Kind::Equal => {
            let distinct = (n / 2).max(1);
            keys.iter_mut().for_each(|key| *key %= distinct);
        }
    }
    Ok(keys)
}

/// The seed of the data: small and printable mostly, since it is part of every repro.
pub(super) fn seed(u: &mut Unstructured) -> Result<u64> {
    let bits = one_of(u, &[0u32, 8, 8, 16, 16, 16, 16, 64])?;
    let draw = u.arbitrary::<u64>()?;
    Ok(draw.checked_shr(64 - bits).unwrap_or(0))
}
