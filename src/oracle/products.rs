//! A product `Y = s A B` of attention with all that its bound needs, accumulated block by block.
//!
//! The values are sums in fp64. What bounds them (sizes, squares, what roundings come to) is summed in
//! f32 at twice the speed: a bound that is off by a millionth is as good, and `budget` covers it.

use std::ops::Range;

use super::budget;
use crate::linalg;

mod elements;
pub(super) mod loops;

pub use elements::Elements;
use loops::LooseRow;

/// Values with the largest error that a right backend may show at each.
#[derive(Clone, Debug, Default)]
pub struct Bounded {
    /// What is expected: with the backend's own roundings applied where they are known.
    pub value: Vec<f64>,
    /// tau; infinite where a right backend may overflow, or where the value itself has no meaning.
    pub tau: Vec<f64>,
    /// Where roundings are known in kind only: what is expected with the nearest roundings applied, for
    /// statistics over many elements; empty otherwise.
    pub rounded: Vec<f64>,
    /// fp32-level error beside the roundings, likewise; infinite where few terms make up the sum, whose
    /// roundings are no sample of any.
    pub noise: Vec<f64>,
}

/// Which way a block's share of a product goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// `Y[rows] += A B[keys]`: dQ and O.
    Rows,
    /// `Y[keys] += A^T B[rows]`: dK and dV.
    Columns,
}

/// Where a block lies: A is `[rows][keys]`.
#[derive(Clone, Debug)]
pub struct Place {
    /// Which way.
    pub along: Along,
    /// Output rows that the block adds to.
    pub to: Range<usize>,
    /// Rows of B that it takes.
    pub from: Range<usize>,
}

/// The left operand on one block as a backend rounds it, where its roundings are known.
#[derive(Default)]
pub struct Applied {
    /// The middle of what each element may have been rounded to.
    pub centre: Vec<f64>,
    /// Those that a right backend may round either way: row and column in the block, half of the width.
    pub ties: Vec<(u32, u32, f64)>,
}

/// The left operand on one block where the roundings are known in kind only.
#[derive(Default)]
pub struct Loose {
    /// A.
    pub value: Vec<f64>,
    /// The nearest rounding of A, less A.
    pub rounding: Vec<f32>,
    /// Largest rounding error of each element.
    pub unit: Vec<f64>,
    /// fp32-level error of each element.
    pub error: Vec<f64>,
    /// The least of all roundings that are not 0: half a step of the subnormals.
    pub eta: f64,
}

impl Loose {
    /// Zeros, to be filled row by row.
    pub fn clear(&mut self, len: usize, eta: f64) {
        for values in [&mut self.value, &mut self.unit, &mut self.error] {
            values.clear();
            values.resize(len, 0.0);
        }
        self.rounding.clear();
        self.rounding.resize(len, 0.0);
        self.eta = eta;
    }
}

/// A right operand `[rows][columns]`, in fp64 and, in units of a power of two, in f32.
pub struct Right {
    /// Columns.
    pub columns: usize,
    /// B.
    pub value: Vec<f64>,
    /// A power of two that no element exceeds.
    pub unit: f64,
    narrow: Vec<f32>,
    abs: Vec<f32>,
    square: Vec<f32>,
    /// Sum of squares of each column.
    column_squares: Vec<f64>,
    /// Euclidean norm of each row.
    pub norms: Vec<f64>,
}

impl Right {
    /// Of a matrix of `columns` columns, none of whose elements exceeds `unit`.
    pub fn new(columns: usize, value: &[f64], unit: f64) -> Right {
        let (mut narrow, mut abs, mut square) = (Vec::new(), Vec::new(), Vec::new());
        loops::narrow_and_squares(value, unit, [&mut narrow, &mut abs, &mut square]);
        let mut column_squares = vec![0.0; columns];
        let norms = value.chunks(columns).map(|row| loops::add_squares(row, &mut column_squares).sqrt());
        let norms = norms.collect();
        Right { columns, value: value.to_vec(), unit, narrow, abs, square, column_squares, norms }
    }

    /// Some rows in f32, their absolute values and their squares, in units of `unit`.
    pub fn narrow(&self, rows: &Range<usize>) -> [&[f32]; 3] {
        [&self.narrow, &self.abs, &self.square].map(|matrix| self.rows(matrix, rows))
    }

    /// Some rows in f32, in units of `unit`.
    pub fn narrow_rows(&self, rows: &Range<usize>) -> &[f32] {
        self.rows(&self.narrow, rows)
    }

    fn rows<'a, T>(&self, matrix: &'a [T], rows: &Range<usize>) -> &'a [T] {
        &matrix[rows.start * self.columns..rows.end * self.columns]
    }
}

/// The least power of two that no element exceeds; 1 where all are 0.
pub fn unit_of<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    let largest = values.fold(0.0, |top: f64, x| top.max(x.abs()));
    if largest == 0.0 { 1.0 } else { largest.log2().ceil().exp2() }
}

/// What a product is, before anything is summed.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows and columns of the output.
    pub output: [usize; 2],
    /// Terms of each sum, at most.
    pub terms: usize,
    /// Error of the fp32 accumulation, relative to the sum of the sizes of the terms.
    pub accumulation: f64,
    /// The factor on the accumulated product: c, or 1.
    pub scale: f64,
    /// A power of two that no element of A exceeds by much.
    pub unit: f64,
    /// Are its roundings known in kind only?
    pub loose: bool,
}

/// The sums of one product.
pub struct Product {
    shape: Shape,
    /// A B, or, where the roundings are applied, fl(A) B.
    pub y: Vec<f64>,
    /// (fl(A) - A) B, where `y` is A B; empty otherwise.
    repeated: Vec<f32>,
    /// Squares of the roundings, where they are known in kind only; empty otherwise.
    squares: Vec<f32>,
    /// |A| |B|.
    size: Vec<f32>,
    /// What roundings that may go either way come to.
    ties: Vec<f64>,
    /// Sums of squares of A's fp32-level errors, by row of the output, and of B, by column.
    error: Vec<f64>,
    right: Vec<f64>,
    /// The roundings of A's subnormals, added up by row of the output.
    small: Vec<f64>,
    /// The largest unit of B, and the least.
    right_unit: f64,
    least_right_unit: f64,
    /// Whatever else is due, already scaled.
    pub extra: Vec<f64>,
    /// The left operand of a product in f32.
    scratch: Vec<f32>,
}

impl Product {
    /// Zeros.
    pub fn new(shape: Shape) -> Product {
        let [rows, columns] = shape.output;
        let len = rows * columns;
        let narrow = || if shape.loose { vec![0.0; len] } else { Vec::new() };
        Product {
            shape,
            y: vec![0.0; len],
            repeated: narrow(),
            squares: narrow(),
            size: vec![0.0; len],
            ties: vec![0.0; len],
            error: vec![0.0; rows],
            right: vec![0.0; columns],
            small: vec![0.0; rows],
            right_unit: 0.0,
            least_right_unit: f64::INFINITY,
            extra: vec![0.0; len],
            scratch: Vec::new(),
        }
    }

    /// Zeros, with A B beside fl(A) B.
    pub fn beside_exact(shape: Shape) -> Product {
        let [rows, columns] = shape.output;
        Product { repeated: vec![0.0; rows * columns], ..Product::new(shape) }
    }

    /// Columns of the output.
    pub fn columns(&self) -> usize {
        self.shape.output[1]
    }

    /// The factor on the accumulated product.
    pub fn scale(&self) -> f64 {
        self.shape.scale
    }

    /// Takes note of a right operand, once for all of its blocks.
    pub fn meet(&mut self, b: &Right) {
        self.right.iter_mut().zip(&b.column_squares).for_each(|(sum, x)| *sum += x);
        self.right_unit = self.right_unit.max(b.unit);
        self.least_right_unit = self.least_right_unit.min(b.unit);
    }

    /// Adds a block whose roundings are known.
    pub fn add_applied(&mut self, a: &Applied, place: &Place, b: &Right) {
        self.add_values(&a.centre, place, b);
        self.add_ties(&a.ties, place, b);
    }

    /// The same where the exact product is asked for too: `shift` is what the roundings move `value` by.
    pub fn add_beside_exact(
        &mut self,
        value: &[f64],
        shift: &[f32],
        ties: &[(u32, u32, f64)],
        place: &Place,
        b: &Right,
    ) {
        self.add_values(value, place, b);
        self.add_repeated(shift, place, b);
        self.add_ties(ties, place, b);
    }

    fn add_ties(&mut self, ties: &[(u32, u32, f64)], place: &Place, b: &Right) {
        let columns = self.columns();
        for &(row, column, width) in ties {
            let (to, from) = match place.along {
                Along::Rows => (row as usize, column as usize),
                Along::Columns => (column as usize, row as usize),
            };
            let (to, from) = (place.to.start + to, place.from.start + from);
            let b = &b.value[from * columns..(from + 1) * columns];
            let sums = &mut self.ties[to * columns..(to + 1) * columns];
            loops::add_sizes(sums, width, b);
        }
    }

    fn add_repeated(&mut self, shift: &[f32], place: &Place, b: &Right) {
        let unit = self.shape.unit as f32;
        loops::in_units(shift, unit, &mut self.scratch);
        add_narrow(place, &self.scratch, b.narrow_rows(&place.from), &mut self.repeated, b.columns);
    }

    /// Adds a block whose roundings are known in kind. `charge`: a further relative error of each row of
    /// the block.
    pub fn add_loose(&mut self, a: &Loose, place: &Place, b: &Right, charge: impl Fn(usize) -> f64) {
        let unit = self.shape.unit;
        self.add_values(&a.value, place, b);
        self.add_repeated(&a.rounding, place, b);
        loops::squares(&a.unit, unit, &mut self.scratch);
        let [_, _, square] = b.narrow(&place.from);
        add_narrow(place, &self.scratch, square, &mut self.squares, b.columns);
        let width = match place.along {
            Along::Rows => place.from.len(),
            Along::Columns => place.to.len(),
        };
        let rows = a.value.chunks(width).zip(a.unit.chunks(width)).zip(a.error.chunks(width));
        for (r, ((value, units), error)) in rows.enumerate() {
            let charge = charge(r);
            let row = LooseRow { value, unit: units, error, charge, of_block: unit, eta: a.eta };
            match place.along {
                Along::Rows => {
                    let (error, small) = loops::row_terms(row);
                    self.error[place.to.start + r] += error;
                    self.small[place.to.start + r] += small;
                }
                Along::Columns => {
                    let to = place.to.clone();
                    loops::add_row_terms(row, &mut self.error[to.clone()], &mut self.small[to]);
                }
            }
        }
    }

    fn add_values(&mut self, a: &[f64], place: &Place, b: &Right) {
        let columns = b.columns;
        let range = place.to.start * columns..place.to.end * columns;
        let value = b.rows(&b.value, &place.from);
        let y = &mut self.y[range];
        match place.along {
            Along::Rows => linalg::nn(place.to.len(), place.from.len(), columns, a, value, y, true),
            Along::Columns => linalg::tn_add(place.to.len(), place.from.len(), columns, a, value, y),
        }
        loops::sizes(a, self.shape.unit, &mut self.scratch);
        let [_, abs, _] = b.narrow(&place.from);
        add_narrow(place, &self.scratch, abs, &mut self.size, columns);
    }

    /// The sum of the sizes of element `i`'s terms, before it is scaled.
    pub fn size(&self, i: usize) -> f64 {
        self.shape.unit * self.right_unit * budget::IN_F32 * f64::from(self.size[i])
    }

    /// Rows of the output.
    pub fn rows(&self) -> usize {
        self.shape.output[0]
    }
}

fn add_narrow(place: &Place, a: &[f32], b: &[f32], c: &mut [f32], columns: usize) {
    let c = &mut c[place.to.start * columns..place.to.end * columns];
    match place.along {
        Along::Rows => linalg::nn_add_f32(place.to.len(), place.from.len(), columns, a, b, c),
        Along::Columns => linalg::tn_add_f32(place.to.len(), place.from.len(), columns, a, b, c),
    }
}
