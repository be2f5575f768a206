//! delta = rowsum(dO * O) as the chain sees it: what the forward's permitted roundings make of it, and
//! what that makes of dQ and dK.

use super::super::budget;
use super::super::products::{Operand, Product};
use super::walk::{Forward, Shared, Walk};
use crate::linalg;
use crate::reference::Block;

/// What the forward's error of delta adds to dK: worst case, squares and repeated roundings.
pub(super) struct DeltaInDk {
    pub(super) worst: Vec<f64>,
    pub(super) squares: Vec<f64>,
    pub(super) repeated: Vec<f64>,
}

/// Error of delta that the forward's roundings of P and O pass on.
pub(super) struct DeltaError {
    bound: Vec<f64>,
    pub(super) repeated: Vec<f64>,
}

impl Walk<'_> {
    /// What the roundings of P and O in the forward make of delta, row by row.
    pub(super) fn delta_error(&self, shared: &Shared, block: &Block, p: &Operand, o: &Product) -> DeltaError {
        let (e, u, width) = (self.unit.e, self.storage.u, block.keys.len());
        let mut error = DeltaError { bound: Vec::new(), repeated: Vec::new() };
        for (r, i) in block.rows.clone().enumerate() {
            let (mut worst, mut squares, mut from_p) = (0.0, 0.0, 0.0);
            for at in r * width..(r + 1) * width {
                let x = p.unit[at] * shared.dp[at];
                worst += x.abs();
                squares += x * x;
                from_p += (p.rounded[at] - p.value[at]) * shared.dp[at];
            }
            let mut bound = budget::roundings(worst, squares, from_p);
            let (mut worst, mut squares, mut from_o) = (0.0, 0.0, 0.0);
            for k in 0..e {
                let (o, dout) = (o.element(i * e + k), shared.dout.value[r * e + k]);
                let x = (u * o.value).abs().max(self.storage.eta) * dout;
                worst += x.abs();
                squares += x * x;
                from_o += dout * (self.storage.dtype.round(o.rounded) - o.rounded);
                bound += (o.lambda + o.extra) * dout.abs();
            }
            bound += budget::roundings(worst, squares, from_o);
            error.bound.push(bound);
            error.repeated.push(from_p + from_o);
        }
        error
    }

    /// What delta's and the LSE's permitted errors add to dQ and dK of the chain.
    pub(super) fn delta_in_chain(
        &mut self,
        shared: &Shared,
        block: &Block,
        p: &Operand,
        exact: &Forward,
        error: &DeltaError,
        dq: &mut Product,
    ) {
        let (unit, d) = (self.unit, self.unit.d);
        let (rows, keys) = (block.rows.len(), block.keys.len());
        let k = &self.k.value[block.keys.start * d..block.keys.end * d];
        let mut pk = vec![0.0; rows * d];
        linalg::nn(rows, keys, d, &p.value, k, &mut pk, false);
        for (r, i) in block.rows.clone().enumerate() {
            for c in 0..d {
                dq.extra[i * d + c] += unit.scale.abs() * error.bound[r] * pk[r * d + c].abs();
            }
        }
        let times = |factor: &[f64]| -> Vec<f64> {
            let rows = p.value.chunks(keys).zip(factor);
            rows.flat_map(|(p, f)| p.iter().map(move |p| p * f)).collect()
        };
        let bound = times(&error.bound);
        let squares: Vec<f64> = bound.iter().map(|x| x * x).collect();
        let range = block.keys.start * d..block.keys.end * d;
        let extra = &mut self.extra;
        linalg::tn_add(keys, rows, d, &bound, &shared.q.abs, &mut extra.worst[range.clone()]);
        linalg::tn_add(keys, rows, d, &squares, &shared.q.square, &mut extra.squares[range.clone()]);
        let repeated = times(&error.repeated);
        linalg::tn_add(keys, rows, d, &repeated, &shared.q.value, &mut extra.repeated[range]);
        let seen = exact.lse.iter().map(|l| l.is_finite());
        self.sums.add_delta_error(&shared.q, seen, error.bound.iter().zip(&error.repeated));
    }
}
