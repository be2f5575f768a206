//! Attention as a bent kernel computes it, in fp64 with the roundings of its operands, and how far a
//! kernel with that fault may be from it.
//!
//! One sequence and one kv head at a time, as the reference does; the backward takes the O and LSE that
//! the backend itself stored.

use super::bent::{Bend, Heads};
use super::memory::Operands;
use super::sight::Sight;
use super::statistics::{self, Grid};
use crate::inputs::Inputs;
use crate::linalg;
use crate::oracle::budget::{self, Range32, Storage};
use crate::outputs::{Output, Outputs};

/// Rows that are worked on at once.
const ROWS: usize = 64;

/// One output of one head of one sequence as a fault would have it.
#[derive(Clone, Debug)]
pub struct Guess {
    /// The output.
    pub output: Output,
    /// Index of the sequence.
    pub sequence: usize,
    /// Head.
    pub head: usize,
    /// The values; NaN where no number is expected.
    pub value: Vec<f64>,
    /// How far from them a kernel with the fault may be; infinite where nothing can be said.
    pub tau: Vec<f64>,
}

/// A bent kernel on one call.
pub struct Bent<'a> {
    inputs: &'a Inputs,
    bend: &'a Bend,
    lse: Grid,
    delta: Grid,
    storage: Storage,
    natural: bool,
}

impl<'a> Bent<'a> {
    /// Of the statistics that the forward stored.
    pub fn new(inputs: &'a Inputs, outputs: &Outputs, bend: &'a Bend) -> Self {
        let case = &inputs.case;
        let lse = statistics::lse(inputs, outputs);
        let delta = statistics::delta(inputs, outputs);
        Bent {
            inputs,
            bend,
            lse: statistics::read(&lse, bend.lse, inputs),
            delta: statistics::read(&delta, bend.delta, inputs),
            storage: Storage::of(case.dtype),
            natural: budget::is_natural(&case.data, &case.dout),
        }
    }

    /// The gradients of one sequence and kv head.
    pub fn backward(&self, sequence: usize, kv_head: usize) -> Vec<Guess> {
        let operands = Operands::new(self.inputs, self.bend, sequence, kv_head);
        let case = &self.inputs.case;
        let (d, e) = (case.dims.qk as usize, case.dims.v as usize);
        let (m, n, read) = (operands.lengths.m, operands.lengths.n, operands.lengths.read);
        let sight = Sight::new(case.mask, self.bend, operands.lengths);
        let scale = |scale: super::bent::Scale| scale.of(case);
        let mut dk = Sum::new(read, d, scale(self.bend.dk));
        let mut dv = Sum::new(read, e, 1.0);
        let mut guesses = Vec::new();
        for at in 0..operands.heads.len() {
            let mut dq = Sum::new(m, d, scale(self.bend.dq));
            for first in (0..m).step_by(ROWS) {
                let rows = first..(first + ROWS).min(m);
                let pairs = self.pairs(&operands, &sight, sequence, at, rows.clone());
                let block = |columns: usize| rows.start * columns..rows.end * columns;
                dq.rows(
                    rows.start,
                    &pairs.ds,
                    |j| self.has(Output::Dq, &pairs, j, &operands, at),
                    &operands.k,
                );
                let q = &operands.q[at][block(d)];
                dk.columns(&pairs.ds, |j| self.has(Output::Dk, &pairs, j, &operands, at), q);
                let dout = &operands.dout[at][block(e)];
                dv.columns(&pairs.p, |j| self.has(Output::Dv, &pairs, j, &operands, at), dout);
            }
            guesses.push(self.guess(Output::Dq, sequence, operands.heads[at], &dq, m));
        }
        guesses.push(self.guess(Output::Dk, sequence, kv_head, &dk, n));
        guesses.push(self.guess(Output::Dv, sequence, kv_head, &dv, n));
        guesses
    }

    /// Does a pair of a block contribute to an output?
    fn has(&self, output: Output, pairs: &Pairs, at: usize, operands: &Operands, head: usize) -> bool {
        let (i, j) = (pairs.first_row + at / pairs.width, at % pairs.width);
        let seen = if self.bend.masked.has(output) { pairs.bent[at] } else { pairs.right[at] };
        let group = self.bend.group;
        let head_counts = match group.heads {
            Heads::First if group.of.has(output) => head == 0,
            Heads::Last if group.of.has(output) => head + 1 == operands.heads.len(),
            _ => true,
        };
        let lost = self.bend.lost.filter(|lost| lost.of.has(output));
        let (m, n) = (operands.lengths.m, operands.lengths.n);
        seen && head_counts && lost.is_none_or(|lost| !lost.has(i, j, m, n))
    }

    /// P and dS of some rows of a head.
    fn pairs(
        &self,
        operands: &Operands,
        sight: &Sight,
        sequence: usize,
        at: usize,
        rows: std::ops::Range<usize>,
    ) -> Pairs {
        let case = &self.inputs.case;
        let (d, e) = (case.dims.qk as usize, case.dims.v as usize);
        let (height, width) = (rows.len(), operands.lengths.read);
        let q = &operands.q[at][rows.start * d..rows.end * d];
        let dout = &operands.dout[at][rows.start * e..rows.end * e];
        let (mut s, mut dp) = (vec![0.0; height * width], vec![0.0; height * width]);
        linalg::nt(height, d, width, q, &operands.k, &mut s);
        linalg::nt(height, e, width, dout, &operands.v, &mut dp);
        let (k_norms, v_norms) = (norms(&operands.k, d), norms(&operands.v, e));
        let scale = self.bend.logits.of(case);
        let (lse, delta) =
            (self.lse.rows(sequence, operands.heads[at]), self.delta.rows(sequence, operands.heads[at]));
        let mut pairs = Pairs::new(rows.start, height, width);
        for (r, i) in rows.clone().enumerate() {
            let (q_norm, dout_norm) = (norm(&q[r * d..(r + 1) * d]), norm(&dout[r * e..(r + 1) * e]));
            for j in 0..width {
                let x = r * width + j;
                (pairs.right[x], pairs.bent[x]) = (sight.right(i, j), sight.bent(i, j));
                if !pairs.right[x] && !pairs.bent[x] {
                    continue;
                }
                if operands.nan[j] {
                    pairs.p.wild(x);
                    pairs.ds.wild(x);
                    continue;
                }
                let empty = lse[i] == f64::NEG_INFINITY && self.bend.empty_as_zero;
                let (l, s) = (if empty { 0.0 } else { lse[i] }, scale * s[x]);
                let (p, difference) = ((s - l).exp(), dp[x] - delta[i]);
                let e_s = budget::bent_score(d, scale.abs() * q_norm * k_norms[j], s, l);
                let e_p = budget::bent_exponential(e_s);
                let dot = dout_norm * v_norms[j] + delta[i].abs();
                let e_ds = budget::bent_d_score(e, p, difference, dot, e_p);
                if difference.is_nan() {
                    // dO is no number there.
                    pairs.p.set(x, p, e_p * p, height.max(width), &self.storage);
                    pairs.ds.wild(x);
                    continue;
                }
                match budget::bent_range(p, e_p * p) {
                    Range32::Finite => {
                        pairs.p.set(x, p, e_p * p, height.max(width), &self.storage);
                        pairs.ds.set(x, p * difference, e_ds, height.max(width), &self.storage);
                    }
                    // dS comes from P before it is rounded.
                    Range32::Unknown => {
                        pairs.p.open(x);
                        pairs.ds.open(x);
                    }
                    Range32::Infinite => {
                        pairs.p.wild(x);
                        pairs.ds.wild(x);
                    }
                }
            }
        }
        pairs
    }

    /// O and LSE of one sequence and kv head.
    pub fn forward(&self, sequence: usize, kv_head: usize) -> Vec<Guess> {
        let operands = Operands::new(self.inputs, self.bend, sequence, kv_head);
        let case = &self.inputs.case;
        let (d, e) = (case.dims.qk as usize, case.dims.v as usize);
        let (m, width) = (operands.lengths.m, operands.lengths.read);
        let sight = Sight::new(case.mask, self.bend, operands.lengths);
        let scale = self.bend.logits.of(case);
        let k_norms = norms(&operands.k, d);
        let mut guesses = Vec::new();
        for (at, &head) in operands.heads.iter().enumerate() {
            let mut lse = Guess::new(Output::Lse, sequence, head, m);
            let mut o = Sum::new(m, e, 1.0);
            for first in (0..m).step_by(ROWS) {
                let rows = first..(first + ROWS).min(m);
                let q = &operands.q[at][rows.start * d..rows.end * d];
                let mut s = vec![0.0; rows.len() * width];
                linalg::nt(rows.len(), d, width, q, &operands.k, &mut s);
                let mut p = Terms::new(rows.len() * width);
                let lost = |i: usize, j: usize| {
                    let lengths = operands.lengths;
                    self.bend.lost.is_some_and(|lost| lost.has(i, j, lengths.m, lengths.n))
                };
                for (r, i) in rows.clone().enumerate() {
                    let q_norm = norm(&q[r * d..(r + 1) * d]);
                    let keys: Vec<usize> = (0..width).filter(|&j| sight.bent(i, j) && !lost(i, j)).collect();
                    let logit = |j: usize| if operands.nan[j] { f64::NAN } else { scale * s[r * width + j] };
                    let row: Vec<f64> = keys.iter().map(|&j| logit(j)).collect();
                    if row.is_empty() && (0..width).any(|j| sight.bent(i, j)) {
                        // All its keys are lost: a row of nothing, which looks alike whatever it comes of.
                        (lse.tau[i], o.open[i]) = (f64::INFINITY, true);
                        continue;
                    }
                    let dots = keys.iter().map(|&j| scale.abs() * q_norm * k_norms[j]);
                    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = row.iter().map(|s| (s - max).exp()).sum();
                    let l = if row.is_empty() { f64::NEG_INFINITY } else { max + sum.ln() };
                    let errors =
                        dots.zip(&row).map(|(dot, &s)| budget::bent_score(d, dot, s, l.abs().max(max.abs())));
                    let worst = errors.fold(0.0, f64::max);
                    lse.value[i] = self.bend.stored.of(l, max, sum);
                    let size = l.abs().max(max.abs()).max(lse.value[i].abs());
                    lse.tau[i] = if row.is_empty() { 0.0 } else { budget::bent_lse(worst, size, row.len()) };
                    if self.bend.stored == super::bent::Stored::WithoutLog {
                        lse.tau[i] += lse.tau[i] * sum;
                    }
                    for (&j, &s) in keys.iter().zip(&row) {
                        if operands.nan[j] {
                            p.wild(r * width + j);
                            continue;
                        }
                        let x = (s - l).exp();
                        let error = x * (2.0 * lse.tau[i]);
                        p.set(r * width + j, x, error, width, &self.storage);
                    }
                }
                o.rows(rows.start, &p, |_| true, &operands.v);
            }
            guesses.push(self.guess(Output::O, sequence, head, &o, m));
            guesses.push(lse);
        }
        guesses
    }

    fn guess(&self, output: Output, sequence: usize, head: usize, sum: &Sum, rows: usize) -> Guess {
        let mut guess = Guess::new(output, sequence, head, rows * sum.columns);
        for at in 0..guess.value.len() {
            let (value, tau) = sum.element(at, &self.storage, self.natural);
            (guess.value[at], guess.tau[at]) = (value, tau);
        }
        guess
    }
}

impl Guess {
    /// The tau of an element that is not written at all; its value is NaN.
    pub const UNWRITTEN: f64 = f64::NEG_INFINITY;

    fn new(output: Output, sequence: usize, head: usize, len: usize) -> Guess {
        Guess { output, sequence, head, value: vec![0.0; len], tau: vec![0.0; len] }
    }
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn norms(matrix: &[f64], columns: usize) -> Vec<f64> {
    matrix.chunks(columns).map(norm).collect()
}

/// The left operand of a product on one block: values as they are rounded, and their errors.
struct Terms {
    value: Vec<f64>,
    unit: Vec<f64>,
    error: Vec<f64>,
}

impl Terms {
    fn new(len: usize) -> Terms {
        Terms { value: vec![0.0; len], unit: vec![0.0; len], error: vec![0.0; len] }
    }

    /// A term that may be infinite, or that comes of the statistics of nothing: nothing can be said of its sum.
    fn open(&mut self, at: usize) {
        self.error[at] = f64::INFINITY;
    }

    /// A term that is infinite however it is rounded, or no number: nor is anything that it is part of.
    fn wild(&mut self, at: usize) {
        self.value[at] = f64::NAN;
    }

    /// Sets a term of a sum over `terms` of them, itself off by up to `error`.
    fn set(&mut self, at: usize, value: f64, error: f64, terms: usize, storage: &Storage) {
        if value.abs() >= 2.0 * storage.overflow {
            return self.wild(at);
        }
        if value.is_nan() || value.abs() + error >= storage.overflow || !error.is_finite() {
            return self.open(at);
        }
        self.value[at] = storage.dtype.round(value);
        self.unit[at] = storage.operand(value, error);
        self.error[at] = error + budget::accumulation(terms) * value.abs();
    }
}

/// What pairs of queries and keys hold, `[rows][keys]`.
struct Pairs {
    first_row: usize,
    width: usize,
    right: Vec<bool>,
    bent: Vec<bool>,
    p: Terms,
    ds: Terms,
}

impl Pairs {
    fn new(first_row: usize, height: usize, width: usize) -> Pairs {
        let len = height * width;
        let (right, bent) = (vec![false; len], vec![false; len]);
        Pairs { first_row, width: width.max(1), right, bent, p: Terms::new(len), ds: Terms::new(len) }
    }
}

/// A product `s A B` with the squares of its roundings and its fp32-level errors.
struct Sum {
    columns: usize,
    scale: f64,
    value: Vec<f64>,
    squares: Vec<f64>,
    worst: Vec<f64>,
    linear: Vec<f64>,
    /// Rows of which nothing can be said.
    open: Vec<bool>,
    /// Rows that hold no number.
    nan: Vec<bool>,
}

impl Sum {
    fn new(rows: usize, columns: usize, scale: f64) -> Sum {
        let zeros = || vec![0.0; rows * columns];
        Sum {
            columns,
            scale,
            value: zeros(),
            squares: zeros(),
            worst: zeros(),
            linear: zeros(),
            open: vec![false; rows],
            nan: vec![false; rows],
        }
    }

    /// `Y[first..] = A B`, of the terms that `has` keeps.
    fn rows(&mut self, first: usize, a: &Terms, has: impl Fn(usize) -> bool, b: &[f64]) {
        let n = self.columns;
        let k = b.len() / n;
        if k == 0 {
            return;
        }
        let m = a.value.len() / k;
        let kept = self.kept(a, has, |at| first + at / k);
        let (abs, square) = (map(b, f64::abs), map(b, |x| x * x));
        let at = first * n..(first + m) * n;
        linalg::nn(m, k, n, &kept[0], b, &mut self.value[at.clone()], true);
        linalg::nn(m, k, n, &map(&kept[1], |x| x * x), &square, &mut self.squares[at.clone()], true);
        linalg::nn(m, k, n, &kept[1], &abs, &mut self.worst[at.clone()], true);
        linalg::nn(m, k, n, &kept[2], &abs, &mut self.linear[at], true);
    }

    /// `Y += A^T B`, of the terms that `has` keeps.
    fn columns(&mut self, a: &Terms, has: impl Fn(usize) -> bool, b: &[f64]) {
        let n = self.columns;
        let m = self.open.len();
        if m == 0 {
            return;
        }
        let k = a.value.len() / m;
        let kept = self.kept(a, has, |at| at % m);
        let (abs, square) = (map(b, f64::abs), map(b, |x| x * x));
        linalg::tn_add(m, k, n, &kept[0], b, &mut self.value);
        linalg::tn_add(m, k, n, &map(&kept[1], |x| x * x), &square, &mut self.squares);
        linalg::tn_add(m, k, n, &kept[1], &abs, &mut self.worst);
        linalg::tn_add(m, k, n, &kept[2], &abs, &mut self.linear);
    }

    /// Values, units and errors of the terms that `has` keeps, zeros elsewhere; rows of the sum that a
    /// term makes wild are marked.
    fn kept(
        &mut self,
        a: &Terms,
        has: impl Fn(usize) -> bool,
        row: impl Fn(usize) -> usize,
    ) -> [Vec<f64>; 3] {
        let mut kept = [vec![0.0; a.value.len()], vec![0.0; a.value.len()], vec![0.0; a.value.len()]];
        for at in (0..a.value.len()).filter(|&at| has(at)) {
            if a.value[at].is_nan() {
                self.nan[row(at)] = true;
            } else if a.error[at] == f64::INFINITY {
                self.open[row(at)] = true;
            } else {
                (kept[0][at], kept[1][at], kept[2][at]) = (a.value[at], a.unit[at], a.error[at]);
            }
        }
        kept
    }

    fn element(&self, at: usize, storage: &Storage, natural: bool) -> (f64, f64) {
        let row = at / self.columns;
        if self.nan[row] {
            return (f64::NAN, 0.0);
        }
        if self.open[row] {
            return (0.0, f64::INFINITY);
        }
        let (s, y) = (self.scale.abs(), self.scale * self.value[at]);
        if y.is_nan() {
            return (y, 0.0);
        }
        let errors = [s * s * self.squares[at], s * self.worst[at], s * self.linear[at]];
        let tau = budget::bent_tau(storage, y, errors, natural);
        let open = y.abs() + tau >= storage.overflow || tau.is_nan();
        let open = open || budget::bent_overflows(storage, self.worst[at]);
        (storage.dtype.round(y), if open { f64::INFINITY } else { tau })
    }
}

fn map(values: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    values.iter().map(|&x| f(x)).collect()
}
