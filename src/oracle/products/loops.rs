//! The loops over elements that the bounds spend their time in, compiled for the vectors of the machine at
//! hand.
//!
//! A sum is kept in eight parts whatever the machine, so that its order, and with it its last bits, are the
//! same everywhere.

use multiversion::multiversion;

use super::super::budget::{self, Storage};

const LANES: usize = 8;

/// `|a| / unit` in f32.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(in super::super) fn sizes(a: &[f64], unit: f64, out: &mut Vec<f32>) {
    out.clear();
    let inverse = 1.0 / unit;
    out.extend(a.iter().map(|x| (x.abs() * inverse) as f32));
}

/// `a / unit`.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(in super::super) fn in_units(a: &[f32], unit: f32, out: &mut Vec<f32>) {
    out.clear();
    let inverse = 1.0 / unit;
    out.extend(a.iter().map(|x| x * inverse));
}

/// The squares of `a / unit` as f32 sums take them.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(in super::super) fn squares(a: &[f64], unit: f64, out: &mut Vec<f32>) {
    out.clear();
    let inverse = 1.0 / unit;
    out.extend(a.iter().map(|x| budget::square_in_f32(x * inverse)));
}

/// `a - b` in f32.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(in super::super) fn differences(a: &[f64], b: &[f64]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| (a - b) as f32).collect()
}

/// One row of a block's left operand, whose roundings are known in kind.
#[derive(Clone, Copy)]
pub(super) struct LooseRow<'a> {
    pub(super) value: &'a [f64],
    pub(super) unit: &'a [f64],
    pub(super) error: &'a [f64],
    /// A further relative error of the whole row.
    pub(super) charge: f64,
    /// The unit of the operand, and the least rounding of all.
    pub(super) of_block: f64,
    pub(super) eta: f64,
}

impl LooseRow<'_> {
    /// The square of element `j`'s fp32-level error, and whether its rounding is that of a subnormal.
    #[inline(always)]
    fn term(&self, j: usize) -> (f64, f64) {
        let rounding = self.unit[j];
        let error = self.error[j] + self.charge * self.value[j].abs();
        let error = error + budget::lost_in_f32(rounding, self.of_block);
        (error * error, if rounding == self.eta { self.eta } else { 0.0 })
    }
}

/// The terms of a row, added up.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(super) fn row_terms(row: LooseRow) -> (f64, f64) {
    let n = row.value.len();
    let row = LooseRow { unit: &row.unit[..n], error: &row.error[..n], ..row };
    let (mut errors, mut small) = ([0.0; LANES], [0.0; LANES]);
    let whole = n - n % LANES;
    for start in (0..whole).step_by(LANES) {
        for lane in 0..LANES {
            let term = row.term(start + lane);
            errors[lane] += term.0;
            small[lane] += term.1;
        }
    }
    for j in whole..n {
        let term = row.term(j);
        errors[0] += term.0;
        small[0] += term.1;
    }
    (errors.iter().sum(), small.iter().sum())
}

/// Adds each term of a row to the sums of its column.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(super) fn add_row_terms(row: LooseRow, errors: &mut [f64], small: &mut [f64]) {
    let n = row.value.len();
    let row = LooseRow { unit: &row.unit[..n], error: &row.error[..n], ..row };
    let (errors, small) = (&mut errors[..n], &mut small[..n]);
    for j in 0..n {
        let term = row.term(j);
        errors[j] += term.0;
        small[j] += term.1;
    }
}

/// What the roundings of a row of P make of its product with dP: the sizes added up, their squares, and what
/// the roundings that `shift` holds come to.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(in super::super) fn roundings_times(storage: Storage, p: &[f64], dp: &[f64], shift: &[f32]) -> [f64; 3] {
    let n = p.len();
    let (dp, shift) = (&dp[..n], &shift[..n]);
    let mut sums = [[0.0; LANES]; 3];
    let mut take = |j: usize, lane: usize| {
        let x = storage.operand(p[j], 0.0) * dp[j];
        sums[0][lane] += x.abs();
        sums[1][lane] += x * x;
        sums[2][lane] += f64::from(shift[j]) * dp[j];
    };
    let whole = n - n % LANES;
    for start in (0..whole).step_by(LANES) {
        (0..LANES).for_each(|lane| take(start + lane, lane));
    }
    (whole..n).for_each(|j| take(j, 0));
    sums.map(|lanes| lanes.iter().sum())
}

/// Each row of `p` times its factor, in f32.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(in super::super) fn rows_times(p: &[f32], columns: usize, factors: &[f64], unit: f64) -> Vec<f32> {
    let mut out = Vec::with_capacity(p.len());
    for (row, factor) in p.chunks(columns).zip(factors) {
        let factor = (factor / unit) as f32;
        out.extend(row.iter().map(|p| p * factor));
    }
    out
}

/// Adds `width |b|` to sums.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(super) fn add_sizes(sums: &mut [f64], width: f64, b: &[f64]) {
    sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += width * b.abs());
}

/// Values over `unit` in f32, their sizes and their squares.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(super) fn narrow_and_squares(values: &[f64], unit: f64, [narrow, abs, square]: [&mut Vec<f32>; 3]) {
    let inverse = 1.0 / unit;
    narrow.extend(values.iter().map(|x| (x * inverse) as f32));
    abs.extend(narrow.iter().map(|x| x.abs()));
    square.extend(narrow.iter().map(|x| x * x));
}

/// Adds the squares of a row to the sums of its columns; returns their sum.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2+fma"))]
pub(super) fn add_squares(row: &[f64], sums: &mut [f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for (row, sums) in row.chunks(LANES).zip(sums.chunks_mut(LANES)) {
        for ((x, sum), lane) in row.iter().zip(sums).zip(&mut lanes) {
            *sum += x * x;
            *lane += x * x;
        }
    }
    lanes.iter().sum()
}
