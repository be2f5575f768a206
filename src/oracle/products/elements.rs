//! What the sums of a product come to: each element with its errors, and the bounds made of them.

use std::ops::Range;

use multiversion::multiversion;

use super::super::budget::{self, Storage};
use super::super::rounding::Grid;
use super::{Bounded, Product, Shape};

impl Product {
    /// Some rows' elements with their errors before the output is rounded.
    pub fn elements(&self, storage: &Storage, rows: Range<usize>) -> Elements {
        let columns = self.columns();
        let range = rows.start * columns..rows.end * columns;
        let zeros = || vec![0.0; range.len()];
        let (value, lambda, rho, squares) = (zeros(), zeros(), zeros(), zeros());
        let rounded = if self.shape.loose { zeros() } else { Vec::new() };
        let extra = self.extra[range.clone()].to_vec();
        let mut all = Elements { value, rounded, rho, lambda, squares, extra };
        let none = vec![0.0; columns];
        for (row, to) in rows.zip((0..range.len()).step_by(columns.max(1))) {
            let (at, to) = (row * columns..(row + 1) * columns, to..to + columns);
            let repeated = self.repeated.get(at.clone()).unwrap_or(&none);
            let (y, size) = (&self.y[at.clone()], &self.size[at.clone()]);
            let sums = RowSums { y, size, ties: &self.ties[at.clone()], repeated };
            let factors = self.factors(storage, row);
            if !self.shape.loose {
                known_row(factors, sums, &mut all.value[to.clone()], &mut all.lambda[to]);
                continue;
            }
            let out = [&mut all.value, &mut all.rounded, &mut all.rho, &mut all.lambda, &mut all.squares];
            let out = out.map(|values| &mut values[to.clone()]);
            loose_row(*storage, factors, sums, (&self.squares[at], &self.right), out);
        }
        all
    }

    /// What the sums of a row are multiplied by.
    fn factors(&self, storage: &Storage, row: usize) -> Factors {
        let Shape { scale, accumulation, unit, terms, .. } = self.shape;
        let s = scale.abs();
        let left = if budget::is_subnormal(storage, self.least_right_unit) { unit } else { 0.0 };
        // The f32 sums are in units of both operands.
        let unit = unit * self.right_unit;
        Factors {
            scale,
            shift: scale * unit,
            size: s * unit * budget::IN_F32,
            squares: s * s * unit * unit * budget::IN_F32,
            accumulation,
            terms: s * terms as f64 * self.right_unit,
            aligned: s * budget::alignment(storage, terms, left, self.right_unit),
            small: s * self.small[row] * self.right_unit,
            error: self.error[row],
        }
    }

    /// The values with their bounds, and the elements that these come from. `open(row)`: rows whose bound is
    /// infinite.
    pub fn finish(&self, storage: &Storage, grid: Grid, open: impl Fn(usize) -> bool) -> (Bounded, Elements) {
        let elements = self.elements(storage, 0..self.rows());
        let mut bounded = elements.bounded(storage, grid, self.shape.loose);
        bounded.leave_open(self.rows(), self.columns(), open);
        (bounded, elements)
    }

    /// The same values and bounds without their elements: where roundings are known, in the memory of the sums.
    pub fn into_bounded(self, storage: &Storage, grid: Grid, open: impl Fn(usize) -> bool) -> Bounded {
        if self.shape.loose {
            return self.finish(storage, grid, open).0;
        }
        let (rows, columns) = (self.rows(), self.columns());
        let factors: Vec<Factors> = (0..rows).map(|row| self.factors(storage, row)).collect();
        let Product { y: mut value, extra: mut tau, size, ties, repeated, .. } = self;
        let none = vec![0.0; columns];
        for (row, factors) in factors.into_iter().enumerate() {
            let at = row * columns..(row + 1) * columns;
            let repeated = repeated.get(at.clone()).unwrap_or(&none);
            let sums = (&size[at.clone()], &ties[at.clone()], repeated);
            bound_row((*storage, grid), factors, sums, &mut value[at.clone()], &mut tau[at]);
        }
        let mut bounded = Bounded { value, tau, ..Bounded::default() };
        bounded.leave_open(rows, columns, open);
        bounded
    }
}

impl Bounded {
    /// Takes the bound from some of the rows.
    fn leave_open(&mut self, rows: usize, columns: usize, open: impl Fn(usize) -> bool) {
        for row in (0..rows).filter(|&row| open(row)) {
            self.tau[row * columns..(row + 1) * columns].fill(f64::INFINITY);
        }
    }
}

/// One row of a product's sums.
#[derive(Clone, Copy)]
struct RowSums<'a> {
    y: &'a [f64],
    size: &'a [f32],
    ties: &'a [f64],
    repeated: &'a [f32],
}

/// What the sums of a row are multiplied by.
#[derive(Clone, Copy)]
struct Factors {
    scale: f64,
    shift: f64,
    size: f64,
    squares: f64,
    accumulation: f64,
    terms: f64,
    aligned: f64,
    small: f64,
    error: f64,
}

impl Factors {
    /// fp32-level error of an element; infinite where an accumulator may leave its range.
    #[inline(always)]
    fn fp32(&self, value: f64, size: f64, ties: f64) -> f64 {
        let error = self.accumulation * size + self.scale.abs() * ties;
        let error = error + budget::last_steps(value, self.terms) + self.aligned;
        if size < self.scale.abs() * f64::from(f32::MAX) { error } else { f64::INFINITY }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
fn known_row(factors: Factors, sums: RowSums, value: &mut [f64], lambda: &mut [f64]) {
    let n = value.len();
    let RowSums { y, size, ties, repeated } = sums;
    let (y, size, ties, repeated) = (&y[..n], &size[..n], &ties[..n], &repeated[..n]);
    let lambda = &mut lambda[..n];
    for c in 0..n {
        value[c] = factors.scale * y[c] + factors.shift * f64::from(repeated[c]);
        lambda[c] = factors.fp32(value[c], factors.size * f64::from(size[c]), ties[c]);
    }
}

/// [`known_row`] and [`taus`] in one, in place: `value` holds the sums before, `tau` what else is due.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
fn bound_row(
    (storage, grid): (Storage, Grid),
    factors: Factors,
    (size, ties, repeated): (&[f32], &[f64], &[f32]),
    value: &mut [f64],
    tau: &mut [f64],
) {
    let n = value.len();
    let (size, ties, repeated, tau) = (&size[..n], &ties[..n], &repeated[..n], &mut tau[..n]);
    for c in 0..n {
        value[c] = factors.scale * value[c] + factors.shift * f64::from(repeated[c]);
        let lambda = factors.fp32(value[c], factors.size * f64::from(size[c]), ties[c]);
        tau[c] = budget::tau(&storage, grid, value[c], lambda + tau[c]);
    }
}

#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
fn loose_row(
    storage: Storage,
    factors: Factors,
    sums: RowSums,
    (squares, right): (&[f32], &[f64]),
    [value, rounded, rho, lambda, out_squares]: [&mut [f64]; 5],
) {
    let n = value.len();
    let RowSums { y, size, ties, repeated } = sums;
    let (y, size, ties, repeated) = (&y[..n], &size[..n], &ties[..n], &repeated[..n]);
    let (squares, right) = (&squares[..n], &right[..n]);
    let (rounded, rho) = (&mut rounded[..n], &mut rho[..n]);
    let (lambda, out_squares) = (&mut lambda[..n], &mut out_squares[..n]);
    for c in 0..n {
        value[c] = factors.scale * y[c];
        let shift = factors.shift * f64::from(repeated[c]);
        rounded[c] = value[c] + shift;
        let size = factors.size * f64::from(size[c]);
        let linear = factors.scale.abs() * (factors.error * right[c]).sqrt();
        let worst = storage.u * (size + linear) + factors.small;
        out_squares[c] = factors.squares * f64::from(squares[c]);
        rho[c] = budget::roundings(worst, out_squares[c], shift);
        lambda[c] = factors.fp32(rounded[c], size, ties[c]) + linear;
    }
}

/// Elements of a product, each with its errors before the output is rounded.
#[derive(Debug, Default)]
pub struct Elements {
    /// What is expected.
    pub value: Vec<f64>,
    /// The same with the operand's nearest roundings applied; empty where `value` has them.
    pub rounded: Vec<f64>,
    /// Storage-level error of the operand.
    pub rho: Vec<f64>,
    /// fp32-level error; infinite where an accumulator may leave its range.
    pub lambda: Vec<f64>,
    /// Squares of the operand's roundings.
    pub squares: Vec<f64>,
    /// What else is due.
    pub extra: Vec<f64>,
}

impl Elements {
    /// The values with the nearest roundings applied.
    pub fn rounded(&self) -> &[f64] {
        if self.rounded.is_empty() { &self.value } else { &self.rounded }
    }

    fn bounded(&self, storage: &Storage, grid: Grid, loose: bool) -> Bounded {
        let mut bounded =
            Bounded { value: self.value.clone(), tau: vec![0.0; self.value.len()], ..Bounded::default() };
        taus(*storage, grid, self, &mut bounded.tau);
        if loose {
            bounded.rounded = self.rounded.clone();
            let sums = self.lambda.iter().zip(&self.extra).zip(self.rho.iter().zip(&self.squares));
            // A sum of few terms: its roundings' sizes are not much more than their root of squares.
            let noise =
                sums.map(
                    |((lambda, extra), (rho, squares))| {
                        if budget::are_few_terms(*rho, *squares) { f64::INFINITY } else { lambda + extra }
                    },
                );
            bounded.noise = noise.collect();
        }
        bounded
    }
}

#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
fn taus(storage: Storage, grid: Grid, elements: &Elements, tau: &mut [f64]) {
    let n = tau.len();
    let (value, rho) = (&elements.value[..n], &elements.rho[..n]);
    let (lambda, extra) = (&elements.lambda[..n], &elements.extra[..n]);
    for i in 0..n {
        tau[i] = budget::tau(&storage, grid, value[i], rho[i] + lambda[i] + extra[i]);
    }
}
