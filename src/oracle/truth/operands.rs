//! The operands of the backward's products, P and dS, row by row: their values, their fp32-level errors,
//! and what the backend makes of them.

use std::ops::Range;

use super::super::budget::{self, ScoreError, Storage};
use super::super::products::{Applied, Loose};
use super::super::rounding::Grid;

/// One row of a block: what P and dS come from, over the keys that the row sees.
pub(super) struct Row<'a> {
    /// P.
    pub(super) p: &'a [f64],
    /// S.
    pub(super) s: &'a [f64],
    /// dP.
    pub(super) dp: &'a [f64],
    /// Norms of the keys and of the values.
    pub(super) k_norms: &'a [f64],
    pub(super) v_norms: &'a [f64],
    /// `|c| |q|` and `|dO|`.
    pub(super) q_norm: f64,
    pub(super) dout_norm: f64,
    /// delta, and its error as far as it is the accumulation's.
    pub(super) delta: f64,
    pub(super) e_delta: f64,
    /// The errors of the logits.
    pub(super) score: ScoreError,
    /// d_v.
    pub(super) e: usize,
}

/// Values and errors of P and dS of a row, in buffers that are used again.
#[derive(Default)]
pub(super) struct Terms {
    pub(super) ds: Vec<f64>,
    pub(super) e_p: Vec<f64>,
    pub(super) e_ds: Vec<f64>,
    /// The largest size of P and dS with its error; NaN counts as infinite.
    pub(super) largest: f64,
}

impl Terms {
    /// Works out a row.
    pub(super) fn fill(&mut self, row: &Row) {
        let n = row.p.len();
        [&mut self.ds, &mut self.e_p, &mut self.e_ds].into_iter().for_each(|values| values.resize(n, 0.0));
        let dot = budget::DotError::new(row.e, row.dout_norm, row.delta, row.e_delta);
        let (ds, e_p, e_ds) = (&mut self.ds[..n], &mut self.e_p[..n], &mut self.e_ds[..n]);
        let (p, s, dp) = (&row.p[..n], &row.s[..n], &row.dp[..n]);
        let (k_norms, v_norms) = (&row.k_norms[..n], &row.v_norms[..n]);
        let mut largest = 0.0;
        for j in 0..n {
            let e = budget::exp_minus_one(row.score.of(row.q_norm * k_norms[j], s[j]));
            let difference = dp[j] - row.delta;
            let value = p[j] * difference;
            ds[j] = value;
            e_p[j] = budget::probability(p[j], e);
            e_ds[j] = budget::d_score(p[j], difference, value, e, dot.of(v_norms[j], dp[j]));
            let size = (value.abs() + e_ds[j]).max(p[j] + e_p[j]);
            largest = if size > largest || size.is_nan() { size } else { largest };
        }
        self.largest = if largest.is_nan() { f64::INFINITY } else { largest };
    }

    /// Tells which elements a right backend may round to infinity, after which anything may follow, and
    /// leaves numbers in their place for whoever looks at the values.
    pub(super) fn tame(&mut self, p: &[f64], overflow: f64, mut open: impl FnMut(usize)) {
        let errors = self.e_p.iter_mut().zip(&mut self.e_ds);
        for (j, ((&p, ds), (e_p, e_ds))) in p.iter().zip(&mut self.ds).zip(errors).enumerate() {
            let finite = p + *e_p < overflow && ds.abs() + *e_ds < overflow;
            if !finite {
                open(j);
                (*e_p, *e_ds) = (0.0, 0.0);
                *ds = if ds.is_finite() { *ds } else { 0.0 };
            }
        }
    }
}

/// P and dS of a block as the backend rounds them, where that is known.
#[derive(Default)]
pub(super) struct AppliedPair {
    pub(super) p: Applied,
    pub(super) ds: Applied,
}

impl AppliedPair {
    pub(super) fn zeros(len: usize) -> AppliedPair {
        let zeros = || Applied { centre: vec![0.0; len], ties: Vec::new() };
        AppliedPair { p: zeros(), ds: zeros() }
    }

    /// Sets what row `r` of `width` columns has in columns `seen`.
    pub(super) fn set(
        &mut self,
        grid: Grid,
        r: usize,
        width: usize,
        seen: &Range<usize>,
        row: (&[f64], &Terms),
    ) {
        let (p, terms) = row;
        apply(&mut self.p, grid, (r, width, seen.start), p, &terms.e_p);
        apply(&mut self.ds, grid, (r, width, seen.start), &terms.ds, &terms.e_ds);
    }
}

/// Applies the roundings of a row that begins in column `first`.
fn apply(
    to: &mut Applied,
    grid: Grid,
    (r, width, first): (usize, usize, usize),
    values: &[f64],
    errors: &[f64],
) {
    let start = r * width + first;
    let centre = &mut to.centre[start..start + values.len()];
    for (j, ((centre, &x), &error)) in centre.iter_mut().zip(values).zip(errors).enumerate() {
        let (middle, half) = grid.interval(x, error);
        *centre = middle;
        if half > budget::FLUSHED {
            to.ties.push((r as u32, (first + j) as u32, half));
        }
    }
}

/// Applies the roundings of `factor` times the values, whose errors are relative.
pub(super) fn apply_scaled(
    to: &mut Applied,
    grid: Grid,
    (r, width, first): (usize, usize, usize),
    factor: f64,
    values: &[f64],
    errors: &[f64],
) {
    let start = r * width + first;
    let centre = &mut to.centre[start..start + values.len()];
    for (j, ((centre, &x), &error)) in centre.iter_mut().zip(values).zip(errors).enumerate() {
        let x = x * factor;
        let (middle, half) = grid.interval(x, budget::probability(x, error));
        *centre = middle / factor;
        if half > budget::FLUSHED {
            to.ties.push((r as u32, (first + j) as u32, half / factor));
        }
    }
}

/// P and dS of a block where the roundings are known in kind.
#[derive(Default)]
pub(super) struct LoosePair {
    pub(super) p: Loose,
    pub(super) ds: Loose,
}

impl LoosePair {
    /// Zeros again.
    pub(super) fn clear(&mut self, len: usize, eta: f64) {
        self.p.clear(len, eta);
        self.ds.clear(len, eta);
    }

    /// Sets a row, as [`AppliedPair::set`].
    pub(super) fn set(
        &mut self,
        storage: &Storage,
        grid: Grid,
        (r, width): (usize, usize),
        seen: &Range<usize>,
        (p, terms): (&[f64], &Terms),
    ) {
        let start = r * width + seen.start;
        loosen(&mut self.p, storage, grid, start, p, &terms.e_p);
        loosen(&mut self.ds, storage, grid, start, &terms.ds, &terms.e_ds);
    }
}

fn loosen(to: &mut Loose, storage: &Storage, grid: Grid, start: usize, values: &[f64], errors: &[f64]) {
    let range = start..start + values.len();
    to.value[range.clone()].copy_from_slice(values);
    to.error[range.clone()].copy_from_slice(errors);
    let rest = to.rounding[range.clone()].iter_mut().zip(&mut to.unit[range]);
    for ((rounding, unit), (&x, &error)) in rest.zip(values.iter().zip(errors)) {
        *rounding = (grid.nearest(x) - x) as f32;
        *unit = storage.operand(x, error);
    }
}
