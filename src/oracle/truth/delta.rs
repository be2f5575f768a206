//! delta = rowsum(dO * O) as the chain sees it: what the forward's permitted roundings make of it, and
//! what that makes of dQ and dK.

use super::super::budget;
use super::super::products::{Product, loops};
use super::WholeSums;
use super::walk::{Forward, Queries, Shared, Walk};
use crate::linalg;
use crate::reference::Block;

/// What the forward's error of delta adds to dK: worst case, squares and repeated roundings, in units of
/// dS and q.
pub(super) struct DeltaInDk {
    worst: Vec<f32>,
    squares: Vec<f32>,
    repeated: Vec<f32>,
}

impl DeltaInDk {
    pub(super) fn zeros(len: usize) -> DeltaInDk {
        DeltaInDk { worst: vec![0.0; len], squares: vec![0.0; len], repeated: vec![0.0; len] }
    }

    /// Element `i` of what is due in dK, before its scale; `unit` is that of dS times that of q, `rows` how
    /// many terms there are.
    pub(super) fn due(&self, i: usize, unit: f64, rows: usize) -> f64 {
        let [worst, squares, repeated] =
            [self.worst[i], self.squares[i], self.repeated[i]].map(|x| budget::IN_F32 * f64::from(x));
        unit * (budget::roundings(worst, squares, repeated) + budget::lost_squares(rows))
    }
}

/// Error of delta that the forward's roundings of P and O pass on.
#[derive(Default)]
pub(in super::super) struct DeltaError {
    /// The error, and the part of it that repeats, by row.
    pub(in super::super) bound: Vec<f64>,
    pub(in super::super) repeated: Vec<f64>,
    /// Squares of the roundings in `P * dP`, and what is computed of them, all rows together.
    pub(in super::super) p_squares: f64,
    pub(in super::super) p_repeated: f64,
}

impl Walk<'_> {
    /// What the roundings of P and O in the forward make of delta, row by row. `shift` is what the roundings
    /// of P move it by.
    pub(super) fn delta_error(
        &self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        shift: &[f32],
        o: &Product,
    ) -> DeltaError {
        let (e, u, width) = (self.unit.e, self.storage.u, block.keys.len());
        let mut error = DeltaError::default();
        let outputs = o.elements(&self.storage, block.rows.clone());
        for (r, i) in block.rows.clone().enumerate() {
            let at = r * width + shared.seen[r].start..r * width + shared.seen[r].end;
            let (p, dp) = (&shared.p[at.clone()], &shared.dp[at.clone()]);
            let [worst, squares, from_p] = loops::roundings_times(self.storage, p, dp, &shift[at]);
            error.p_squares += squares;
            error.p_repeated += from_p;
            let mut bound = budget::roundings(worst, squares, from_p);
            let (mut worst, mut squares, mut from_o) = (0.0, 0.0, 0.0);
            let dout = &queries.dout.value[i * e..(i + 1) * e];
            let row = r * e..(r + 1) * e;
            let values = outputs.value[row.clone()].iter().zip(&outputs.rounded()[row.clone()]);
            let errors =
                outputs.rho[row.clone()].iter().zip(&outputs.lambda[row.clone()]).zip(&outputs.extra[row]);
            for (((value, rounded), ((rho, lambda), extra)), dout) in values.zip(errors).zip(dout) {
                let x = (u * value).abs().max(self.storage.eta) * dout;
                worst += x.abs();
                squares += x * x;
                from_o += dout * (self.grid.nearest(*rounded) - rounded);
                bound += (rho + lambda + extra) * dout.abs();
            }
            bound += budget::roundings(worst, squares, from_o);
            error.bound.push(bound);
            error.repeated.push(from_p + from_o);
        }
        error
    }

    /// What delta's permitted error adds to dQ and dK of the chain.
    pub(super) fn delta_in_chain(
        &self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        (exact, error): (&Forward, &DeltaError),
        (whole, dq): (&mut WholeSums, &mut Product),
    ) {
        let (unit, d, ds_unit) = (self.unit, self.unit.d, self.ds_unit);
        let (rows, keys) = (block.rows.len(), block.keys.len());
        // dS is P (dP - delta), times the slope of a cap.
        let p: Vec<f32> = match unit.softcap {
            None => shared.p.iter().map(|&p| p as f32).collect(),
            Some(_) => shared.p.iter().zip(&shared.s).map(|(&p, &s)| (p * unit.slope(s)) as f32).collect(),
        };
        let mut pk = vec![0.0; rows * d];
        linalg::nn_add_f32(rows, keys, d, &p, self.k.narrow_rows(&block.keys), &mut pk);
        for (r, i) in block.rows.clone().enumerate() {
            let due = unit.scale.abs() * error.bound[r] * self.k.unit;
            for c in 0..d {
                dq.extra[i * d + c] += due * (f64::from(pk[r * d + c].abs()) + budget::lost_squares(keys));
            }
        }
        let times = |factor: &[f64]| loops::rows_times(&p, keys, factor, ds_unit);
        let bound = times(&error.bound);
        let squares: Vec<f32> = bound.iter().map(|&x| budget::square_in_f32(x.into())).collect();
        let range = block.keys.start * d..block.keys.end * d;
        let [value, abs, square] = queries.q.narrow(&block.rows);
        let extra = &mut whole.extra;
        linalg::tn_add_f32(keys, rows, d, &bound, abs, &mut extra.worst[range.clone()]);
        linalg::tn_add_f32(keys, rows, d, &squares, square, &mut extra.squares[range.clone()]);
        linalg::tn_add_f32(keys, rows, d, &times(&error.repeated), value, &mut extra.repeated[range]);
        let q = &queries.q.value[block.rows.start * d..block.rows.end * d];
        let seen = exact.lse.iter().map(|l| l.is_finite());
        whole.sums.add_delta_error(q, seen, error.bound.iter().zip(&error.repeated));
    }
}
