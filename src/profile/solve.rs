//! One sequence and kv head in fp64 with a recipe's roundings, given the O and LSE that the backend stored.
//!
//! Nothing is bounded here: what a right backend of that recipe stores is within a few fp32 steps of these values, once
//! they are rounded.

use std::f64::consts::LOG2_E;
use std::ops::Range;

use crate::contract::{Probabilities, Recipe, ScoreGradients, Weights};
use crate::linalg;
use crate::oracle::rounding::Grid;
use crate::oracle::truth::Received;
use crate::reference::{Block, Unit, dot, probabilities};

/// O and gradients of a unit before they are rounded.
#[derive(Clone, Debug)]
pub struct Solved {
    /// O of each query head, `[m][e]`.
    pub o: Vec<Vec<f64>>,
    /// LSE of each query head, `[m]`.
    pub lse: Vec<Vec<f64>>,
    /// dQ of each query head, `[m][d]`.
    pub dq: Vec<Vec<f64>>,
    /// dK, `[n][d]`.
    pub dk: Vec<f64>,
    /// dV, `[n][e]`.
    pub dv: Vec<f64>,
}

/// Solves a unit as `recipe` rounds; of [`Weights::Running`] in tiles of `tile` keys. Rows without a finite
/// LSE contribute nothing. Memory is that of all pairs of the unit: for short sequences.
pub fn solve(unit: &Unit, grid: Grid, (recipe, tile): (&Recipe, usize), received: &Received) -> Solved {
    let solver = Solver { unit, grid, recipe, tile, k: scaled_keys(unit, grid, recipe) };
    let (mut dk, mut dv) = (vec![0.0; unit.n * unit.d], vec![0.0; unit.n * unit.e]);
    let (mut o, mut lse, mut dq) = (Vec::new(), Vec::new(), Vec::new());
    for head in 0..unit.q.len() {
        let s = solver.scores(head);
        let (of_head, lse_of_head) = solver.forward(head, &s);
        o.push(of_head);
        lse.push(lse_of_head);
        let pairs = solver.pairs(head, &s, (&received.o[head], &received.lse[head]));
        dq.push(solver.query_gradient(&pairs));
        solver.add_key_gradients(head, &pairs, [&mut dk, &mut dv]);
    }
    Solved { o, lse, dq, dk, dv }
}

/// K as the logits and dQ take it, where that is not K: times `c log2(e)`, rounded.
fn scaled_keys(unit: &Unit, grid: Grid, recipe: &Recipe) -> Option<Vec<f64>> {
    let factor = unit.scale * LOG2_E;
    recipe.scaled_k.then(|| unit.k.iter().map(|k| grid.nearest(k * factor)).collect())
}

struct Solver<'a> {
    unit: &'a Unit,
    grid: Grid,
    recipe: &'a Recipe,
    tile: usize,
    k: Option<Vec<f64>>,
}

/// P as dV takes it, and dS as the products take it, `[m][n]`.
struct Pairs {
    p: Vec<f64>,
    ds: Vec<f64>,
}

impl Solver<'_> {
    /// All rows and all keys.
    fn block(&self) -> Block {
        Block { rows: 0..self.unit.m, keys: 0..self.unit.n }
    }

    fn rounded(&self, does: bool, mut values: Vec<f64>) -> Vec<f64> {
        if does {
            values.iter_mut().filter(|x| x.is_finite()).for_each(|x| *x = self.grid.nearest(*x));
        }
        values
    }

    fn scores(&self, head: usize) -> Vec<f64> {
        let unit = self.unit;
        let s = match &self.k {
            None => unit.scores(head, &self.block()),
            Some(k) => {
                let (scale, k) = (LOG2_E.recip(), k.clone());
                Unit { scale, k, ..unit.clone() }.scores(head, &self.block())
            }
        };
        self.rounded(self.recipe.scores, s)
    }

    /// O and LSE of a head.
    fn forward(&self, head: usize, s: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (unit, n) = (self.unit, self.unit.n);
        let (mut p, mut lse) = (vec![0.0; s.len()], vec![unit.log_sum_exp(head, &[]); unit.m]);
        for ((i, p), s) in self.block().each_row(&mut p).zip(s.chunks(n.max(1))) {
            let l = unit.log_sum_exp(head, s);
            lse[i] = l;
            probabilities(s, l, p);
            match self.recipe.weights {
                Weights::Fp32 => {}
                Weights::Normalised => p.iter_mut().for_each(|p| *p = self.grid.nearest(*p)),
                Weights::Running => self.round_running((p, s), unit.visible(i), unit.sink[head], l),
            }
        }
        let mut o = vec![0.0; unit.m * unit.e];
        linalg::nn(unit.m, n, unit.e, &p, &unit.v, &mut o, false);
        (o, lse)
    }

    /// Rounds a row of P relative to the running maximum, which starts at the sink.
    fn round_running(&self, (p, s): (&mut [f64], &[f64]), visible: Range<usize>, sink: Option<f64>, l: f64) {
        let mut max = sink.unwrap_or(f64::NEG_INFINITY);
        let mut start = visible.start;
        while start < visible.end {
            let end = ((start / self.tile + 1) * self.tile).min(visible.end);
            max = s[start..end].iter().copied().fold(max, f64::max);
            let factor = (l - max).exp();
            p[start..end].iter_mut().for_each(|p| *p = self.grid.nearest(*p * factor) / factor);
            start = end;
        }
    }

    fn pairs(&self, head: usize, s: &[f64], (o, lse): (&[f64], &[f64])) -> Pairs {
        let (unit, recipe, e) = (self.unit, self.recipe, self.unit.e);
        let stored = recipe.p == Probabilities::Stored;
        let dp = self.rounded(recipe.dp, unit.d_probabilities(head, &self.block()));
        let mut pairs = Pairs { p: vec![0.0; s.len()], ds: vec![0.0; s.len()] };
        for (i, ds) in self.block().each_row(&mut pairs.ds).filter(|(i, _)| lse[*i].is_finite()) {
            let row = i * unit.n..(i + 1) * unit.n;
            let (s, dp, p) = (&s[row.clone()], &dp[row.clone()], &mut pairs.p[row]);
            probabilities(s, lse[i], p);
            if stored {
                p.iter_mut().for_each(|p| *p = self.grid.nearest(*p));
            }
            let of_row = i * e..(i + 1) * e;
            let delta = match recipe.p {
                Probabilities::Operand => dot(&o[of_row.clone()], &unit.dout[head][of_row]),
                Probabilities::Fp32 | Probabilities::Stored => dot(p, dp),
            };
            for (((ds, &p), &dp), &s) in ds.iter_mut().zip(&*p).zip(dp).zip(s) {
                let slope = if s.is_finite() { unit.slope(s) } else { 0.0 };
                *ds = self.rounded_ds(p * (dp - delta) * slope);
            }
        }
        pairs.p = self.rounded(recipe.p == Probabilities::Operand, pairs.p);
        pairs
    }

    /// dS without its scale, as far as that is possible.
    fn rounded_ds(&self, ds: f64) -> f64 {
        match self.recipe.ds {
            ScoreGradients::Fp32 => ds,
            ScoreGradients::Unscaled => self.grid.nearest(ds),
            ScoreGradients::Scaled => self.grid.nearest(ds * self.unit.scale) / self.unit.scale,
        }
    }

    fn query_gradient(&self, pairs: &Pairs) -> Vec<f64> {
        let unit = self.unit;
        let mut dq = vec![0.0; unit.m * unit.d];
        let (k, scale) = match &self.k {
            None => (&unit.k, unit.scale),
            Some(k) => (k, LOG2_E.recip()),
        };
        linalg::nn(unit.m, unit.n, unit.d, &pairs.ds, k, &mut dq, false);
        dq.iter_mut().for_each(|dq| *dq *= scale);
        dq
    }

    fn add_key_gradients(&self, head: usize, pairs: &Pairs, [dk, dv]: [&mut [f64]; 2]) {
        let (unit, m, n) = (self.unit, self.unit.m, self.unit.n);
        let (mut of_k, mut of_v) = (vec![0.0; dk.len()], vec![0.0; dv.len()]);
        linalg::tn_add(n, m, unit.d, &pairs.ds, &unit.q[head], &mut of_k);
        linalg::tn_add(n, m, unit.e, &pairs.p, &unit.dout[head], &mut of_v);
        of_k.iter_mut().for_each(|dk| *dk *= unit.scale);
        for (sum, of_head) in [(dk, of_k), (dv, of_v)] {
            let of_head = self.rounded(self.recipe.group, of_head);
            sum.iter_mut().zip(of_head).for_each(|(sum, x)| *sum += x);
        }
    }
}
