//! The operands of the backward's products, P and dS, row by row: their values, their fp32-level errors,
//! and what the backend makes of them.

use std::ops::Range;

use multiversion::multiversion;

use super::super::budget::{self, Beside, ScoreError, Storage};
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
    /// The cap of the logits.
    pub(super) cap: Option<f64>,
    /// What is rounded beside P and dS.
    pub(super) beside: Beside,
}

/// Values and errors of P and dS of a row, in buffers that are used again.
#[derive(Default)]
pub(super) struct Terms {
    pub(super) ds: Vec<f64>,
    pub(super) e_p: Vec<f64>,
    pub(super) e_ds: Vec<f64>,
    /// What a rounding may be off by, element by element.
    half: Vec<f64>,
}

impl Terms {
    /// Works out a row; may any element of P and dS come to `overflow`?
    pub(super) fn fill(&mut self, row: &Row, overflow: f64) -> bool {
        let n = row.p.len();
        for values in [&mut self.ds, &mut self.e_p, &mut self.e_ds, &mut self.half] {
            values.resize(n, 0.0);
        }
        let dot = budget::DotError::new(row.e, row.dout_norm, row.delta, row.e_delta);
        let to = [&mut self.ds[..], &mut self.e_p, &mut self.e_ds];
        match row.cap {
            None if row.beside.is_nothing() => fill(row, dot, overflow, to),
            cap => fill_any(row, row.beside.in_dot(dot), overflow, cap, to),
        }
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

/// Errors of a row's logits without a cap; returns the largest.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(super) fn score_errors(
    score: ScoreError,
    q_norm: f64,
    k_norms: &[f64],
    s: &[f64],
    errors: &mut [f64],
) -> f64 {
    let n = errors.len();
    let (k_norms, s) = (&k_norms[..n], &s[..n]);
    for j in 0..n {
        errors[j] = score.of(q_norm * k_norms[j], s[j]);
    }
    errors.iter().fold(0.0, |top, &e| if e > top { e } else { top })
}

/// The loop of [`Terms::fill`].
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
fn fill(row: &Row, dot: budget::DotError, overflow: f64, [ds, e_p, e_ds]: [&mut [f64]; 3]) -> bool {
    let n = row.p.len();
    let (ds, e_p, e_ds) = (&mut ds[..n], &mut e_p[..n], &mut e_ds[..n]);
    let (p, s, dp) = (&row.p[..n], &row.s[..n], &row.dp[..n]);
    let (k_norms, v_norms) = (&row.k_norms[..n], &row.v_norms[..n]);
    let mut large = 0u64;
    for j in 0..n {
        let e = budget::exp_minus_one(row.score.of(row.q_norm * k_norms[j], s[j]));
        let difference = dp[j] - row.delta;
        let value = p[j] * difference;
        ds[j] = value;
        e_p[j] = budget::probability(p[j], e);
        e_ds[j] = budget::d_score(p[j], difference, value, e, dot.of(v_norms[j], dp[j]));
        // A NaN is not below anything.
        let fits = (value.abs() + e_ds[j] < overflow) & (p[j] + e_p[j] < overflow);
        large |= u64::from(!fits);
    }
    large != 0
}

/// The same under a softcap, and of recipes that round more than P and dS.
fn fill_any(
    row: &Row,
    dot: budget::DotError,
    overflow: f64,
    cap: Option<f64>,
    [ds, e_p, e_ds]: [&mut [f64]; 3],
) -> bool {
    let mut large = false;
    for (j, (&p, &s)) in row.p.iter().zip(row.s).enumerate() {
        let of_dot = row.q_norm * row.k_norms[j];
        let slope = cap.map_or(1.0, |cap| (1.0 - s / cap) * (1.0 + s / cap));
        let score =
            cap.map_or_else(|| row.score.of(of_dot, s), |cap| row.score.of_capped(of_dot, s, slope, cap));
        let e = budget::exp_minus_one(score);
        let difference = row.dp[j] - row.delta;
        let value = p * difference;
        let e_difference = dot.of(row.v_norms[j], row.dp[j]);
        let e_value = budget::d_score(p, difference, value, e, e_difference)
            + row.beside.in_d_score(p, e, difference, e_difference);
        let e_slope = cap.map_or(0.0, |cap| budget::slope(s, score, cap));
        ds[j] = value * slope;
        e_p[j] = budget::probability(p, e);
        e_ds[j] = budget::sloped(e_value, value, slope, e_slope);
        let fits = value.abs() + e_value < overflow && p + e_p[j] < overflow;
        large |= !fits;
    }
    large
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

    /// Sets what row `r` of `width` columns has in columns `seen`; dS is rounded with this factor on it.
    pub(super) fn set(
        &mut self,
        grid: Grid,
        (r, width): (usize, usize),
        seen: &Range<usize>,
        (p, terms, factor): (&[f64], &mut Terms, f64),
    ) {
        let at = (r, width, seen.start);
        let half = &mut terms.half[..p.len()];
        apply(&mut self.p, grid, at, (p, &terms.e_p, 1.0), half);
        apply(&mut self.ds, grid, at, (&terms.ds, &terms.e_ds, factor), half);
    }
}

/// Applies the roundings of a row that begins in column `first`, with a factor on its values; `half` is a buffer.
fn apply(
    to: &mut Applied,
    grid: Grid,
    (r, width, first): (usize, usize, usize),
    (values, errors, factor): (&[f64], &[f64], f64),
    half: &mut [f64],
) {
    let start = r * width + first;
    let centre = &mut to.centre[start..start + values.len()];
    if factor == 1.0 {
        round(grid, values, errors, centre, half);
    } else {
        let scaled = |x: &[f64], by: f64| -> Vec<f64> { x.iter().map(|x| x * by).collect() };
        round(grid, &scaled(values, factor), &scaled(errors, factor.abs()), centre, half);
        centre.iter_mut().for_each(|x| *x /= factor);
        half.iter_mut().for_each(|x| *x /= factor.abs());
    }
    push_ties(&mut to.ties, (r, first), half);
}

/// The middles and half widths of what values may round to.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
fn round(grid: Grid, values: &[f64], errors: &[f64], centre: &mut [f64], half: &mut [f64]) {
    let n = values.len();
    let (errors, centre, half) = (&errors[..n], &mut centre[..n], &mut half[..n]);
    for j in 0..n {
        (centre[j], half[j]) = grid.interval(values[j], errors[j]);
    }
}

/// Elements that are looked through at once: most have no tie.
const CHUNK: usize = 16;

fn push_ties(ties: &mut Vec<(u32, u32, f64)>, (r, first): (usize, usize), half: &[f64]) {
    for (chunk, widths) in half.chunks(CHUNK).enumerate() {
        let any = widths.iter().fold(false, |any, &width| any | (width > budget::FLUSHED));
        if any {
            let first = first + chunk * CHUNK;
            let tied = widths.iter().enumerate().filter(|(_, width)| **width > budget::FLUSHED);
            ties.extend(tied.map(|(j, &width)| (r as u32, (first + j) as u32, width)));
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
    let mut half = vec![0.0; values.len()];
    round_scaled(grid, factor, values, errors, &mut to.centre[start..start + values.len()], &mut half);
    push_ties(&mut to.ties, (r, first), &half);
}

#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
fn round_scaled(
    grid: Grid,
    factor: f64,
    values: &[f64],
    errors: &[f64],
    centre: &mut [f64],
    half: &mut [f64],
) {
    let n = values.len();
    let (errors, centre, half) = (&errors[..n], &mut centre[..n], &mut half[..n]);
    let inverse = 1.0 / factor;
    for j in 0..n {
        let x = values[j] * factor;
        let (middle, width) = grid.interval(x, budget::probability(x, errors[j]));
        (centre[j], half[j]) = (middle * inverse, width * inverse);
    }
}

/// P and dS of a block where the roundings are known in kind.
#[derive(Default)]
pub(super) struct LoosePair {
    pub(super) p: Loose,
    pub(super) ds: Loose,
}

impl LoosePair {
    /// Zeros again; dS is rounded with this factor on it.
    pub(super) fn clear(&mut self, len: usize, eta: f64, factor: f64) {
        self.p.clear(len, eta);
        self.ds.clear(len, eta / factor.abs());
    }

    /// Sets a row, as [`AppliedPair::set`].
    pub(super) fn set(
        &mut self,
        storage: &Storage,
        grid: Grid,
        (r, width): (usize, usize),
        seen: &Range<usize>,
        (p, terms, factor): (&[f64], &Terms, f64),
    ) {
        let start = r * width + seen.start;
        let of_ds = Storage { eta: storage.eta / factor.abs(), ..*storage };
        loosen(&mut self.p, (storage, grid, 1.0), start, p, &terms.e_p);
        loosen(&mut self.ds, (&of_ds, grid, factor), start, &terms.ds, &terms.e_ds);
    }
}

/// Sets a row that is rounded with a factor on it; `storage` is that of the values without it.
fn loosen(
    to: &mut Loose,
    (storage, grid, factor): (&Storage, Grid, f64),
    start: usize,
    values: &[f64],
    errors: &[f64],
) {
    let range = start..start + values.len();
    to.value[range.clone()].copy_from_slice(values);
    to.error[range.clone()].copy_from_slice(errors);
    let to = (&mut to.rounding[range.clone()], &mut to.unit[range]);
    loosen_row(*storage, (grid, factor), values, errors, to);
}

#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
fn loosen_row(
    storage: Storage,
    (grid, factor): (Grid, f64),
    values: &[f64],
    errors: &[f64],
    (rounding, unit): (&mut [f32], &mut [f64]),
) {
    let n = values.len();
    let inverse = 1.0 / factor;
    let (errors, rounding, unit) = (&errors[..n], &mut rounding[..n], &mut unit[..n]);
    for j in 0..n {
        rounding[j] = (grid.nearest(values[j] * factor) * inverse - values[j]) as f32;
        unit[j] = storage.operand(values[j], errors[j]);
    }
}
