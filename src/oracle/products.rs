//! A product `Y = s A B` of the backward with all that its bound needs, accumulated block by block.

use super::budget::{self, Storage};
use crate::linalg;

/// Exact values with the largest error that a right backend may show at each.
#[derive(Clone, Debug, Default)]
pub struct Bounded {
    /// Y.
    pub value: Vec<f64>,
    /// tau; infinite where a right backend may overflow, or where Y itself has no meaning.
    pub tau: Vec<f64>,
}

/// The left operand on one block, `[rows][keys]`: the matrix that a fused kernel rounds.
pub struct Operand {
    /// A.
    pub value: Vec<f64>,
    /// A with the backend's rounding applied.
    pub rounded: Vec<f64>,
    /// Largest rounding error of each element.
    pub unit: Vec<f64>,
    /// fp32-level error of each element, accumulation of the product included.
    pub error: Vec<f64>,
}

impl Operand {
    /// Zeros, to be filled row by row.
    pub fn zeros(len: usize) -> Operand {
        let zeros = || vec![0.0; len];
        Operand { value: zeros(), rounded: zeros(), unit: zeros(), error: zeros() }
    }

    /// Sets element `i`.
    pub fn set(&mut self, i: usize, value: f64, rounded: f64, unit: f64, error: f64) {
        self.value[i] = value;
        self.rounded[i] = rounded;
        self.unit[i] = unit;
        self.error[i] = error;
    }

    fn squared_units(&self) -> Vec<f64> {
        self.unit.iter().map(|a| a * a).collect()
    }
}

/// A right operand with its absolute values and squares, `[rows][columns]`.
pub struct Right {
    /// Columns.
    pub columns: usize,
    /// B.
    pub value: Vec<f64>,
    /// |B|.
    pub abs: Vec<f64>,
    /// B^2, element by element.
    pub square: Vec<f64>,
}

impl Right {
    /// Of a matrix of `columns` columns.
    pub fn new(columns: usize, value: &[f64]) -> Right {
        let abs = value.iter().map(|x| x.abs()).collect();
        let square = value.iter().map(|x| x * x).collect();
        Right { columns, value: value.to_vec(), abs, square }
    }

    fn rows<'a>(&self, matrix: &'a [f64], rows: &std::ops::Range<usize>) -> &'a [f64] {
        &matrix[rows.start * self.columns..rows.end * self.columns]
    }
}

/// The sums of one product.
pub struct Product {
    /// Columns.
    pub columns: usize,
    /// Terms of each sum, at most.
    terms: usize,
    /// The factor on the accumulated product: c, or 1.
    pub scale: f64,
    /// A B.
    pub y: Vec<f64>,
    /// A B with A rounded.
    pub rounded: Vec<f64>,
    /// Worst case of the roundings.
    pub worst: Vec<f64>,
    /// Squares of the roundings.
    pub squares: Vec<f64>,
    /// fp32-level error of A and of the accumulation.
    pub linear: Vec<f64>,
    /// Whatever else is due, already scaled.
    pub extra: Vec<f64>,
}

impl Product {
    /// `[rows][columns]` zeros.
    pub fn new([rows, columns]: [usize; 2], terms: usize, scale: f64) -> Product {
        let zeros = || vec![0.0; rows * columns];
        Product {
            columns,
            terms,
            scale,
            y: zeros(),
            rounded: zeros(),
            worst: zeros(),
            squares: zeros(),
            linear: zeros(),
            extra: zeros(),
        }
    }

    /// Rows of the block: `Y[rows] = A B[keys]`.
    pub fn add_rows(
        &mut self,
        a: &Operand,
        rows: std::ops::Range<usize>,
        b: &Right,
        keys: std::ops::Range<usize>,
    ) {
        let range = rows.start * self.columns..rows.end * self.columns;
        let (m, k, n) = (rows.len(), keys.len(), self.columns);
        let (value, abs, square) = (b.rows(&b.value, &keys), b.rows(&b.abs, &keys), b.rows(&b.square, &keys));
        linalg::nn(m, k, n, &a.value, value, &mut self.y[range.clone()], true);
        linalg::nn(m, k, n, &a.rounded, value, &mut self.rounded[range.clone()], true);
        linalg::nn(m, k, n, &a.unit, abs, &mut self.worst[range.clone()], true);
        linalg::nn(m, k, n, &a.squared_units(), square, &mut self.squares[range.clone()], true);
        linalg::nn(m, k, n, &a.error, abs, &mut self.linear[range], true);
    }

    /// Columns of the block: `Y[keys] += A^T B[rows]`.
    pub fn add_columns(
        &mut self,
        a: &Operand,
        rows: std::ops::Range<usize>,
        b: &Right,
        keys: std::ops::Range<usize>,
    ) {
        let range = keys.start * self.columns..keys.end * self.columns;
        let (m, k, n) = (keys.len(), rows.len(), self.columns);
        let (value, abs, square) = (b.rows(&b.value, &rows), b.rows(&b.abs, &rows), b.rows(&b.square, &rows));
        linalg::tn_add(m, k, n, &a.value, value, &mut self.y[range.clone()]);
        linalg::tn_add(m, k, n, &a.rounded, value, &mut self.rounded[range.clone()]);
        linalg::tn_add(m, k, n, &a.unit, abs, &mut self.worst[range.clone()]);
        linalg::tn_add(m, k, n, &a.squared_units(), square, &mut self.squares[range.clone()]);
        linalg::tn_add(m, k, n, &a.error, abs, &mut self.linear[range]);
    }

    /// Element `i` with its errors before the output is rounded.
    pub fn element(&self, i: usize) -> Element {
        let s = self.scale.abs();
        let (y, rounded) = (self.scale * self.y[i], self.scale * self.rounded[i]);
        Element {
            value: y,
            rounded,
            rho: budget::roundings(s * self.worst[i], s * s * self.squares[i], rounded - y),
            lambda: s * self.linear[i] + budget::last_steps(y, s, self.terms),
            extra: self.extra[i],
        }
    }

    /// The values with their bounds. `open(row)`: rows whose bound is infinite.
    pub fn finish(&self, storage: &Storage, open: impl Fn(usize) -> bool) -> Bounded {
        let mut bounded = Bounded { value: Vec::with_capacity(self.y.len()), tau: Vec::new() };
        bounded.tau.reserve(self.y.len());
        for row in 0..self.y.len() / self.columns {
            let open = open(row);
            for i in row * self.columns..(row + 1) * self.columns {
                let element = self.element(i);
                let tau = budget::tau(storage, element.value, element.rho, element.lambda + element.extra);
                bounded.value.push(element.value);
                let open = open || tau.is_nan() || budget::accumulator_overflows(storage, self.worst[i]);
                bounded.tau.push(if open { f64::INFINITY } else { tau });
            }
        }
        bounded
    }
}

/// One element of a product.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    /// Y.
    pub value: f64,
    /// Y with the operand's roundings applied.
    pub rounded: f64,
    /// Storage-level error.
    pub rho: f64,
    /// fp32-level error.
    pub lambda: f64,
    /// What else is due.
    pub extra: f64,
}
