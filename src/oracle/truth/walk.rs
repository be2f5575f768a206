//! One walk over the blocks of a unit that works out all three judgements.

use super::super::budget::{self, Storage};
use super::super::laws::LawSums;
use super::super::products::{Bounded, Operand, Product, Right};
use super::delta::DeltaInDk;
use super::{Received, Sums};
use crate::case::Case;
use crate::contract::Rounding;
use crate::linalg;
use crate::reference::{Block, Unit, dot, log_sum_exp, probabilities};

/// What the backward of one judgement takes from the forward, row by row of a block.
pub(super) struct Forward {
    pub(super) lse: Vec<f64>,
    delta: Vec<f64>,
    /// Error of delta from its accumulation.
    e_delta: Vec<f64>,
    /// Permitted error of the LSE; 0 where it is given.
    e_lse: Vec<f64>,
}

/// The products of a block that all judgements share, `[rows][keys]`.
pub(super) struct Shared {
    s: Vec<f64>,
    /// `|c| |Q| |K|^T`.
    s_abs: Vec<f64>,
    pub(super) dp: Vec<f64>,
    /// `|dO| |V|^T`.
    dp_abs: Vec<f64>,
    pub(super) q: Right,
    pub(super) dout: Right,
}

/// The walk over a unit's blocks, head by head.
pub(super) struct Walk<'a> {
    pub(super) unit: &'a Unit,
    pub(super) storage: Storage,
    rounding: Rounding,
    pub(super) k: Right,
    v: Right,
    pub(super) backward: Sums,
    pub(super) chain: Sums,
    pub(super) extra: DeltaInDk,
    pub(super) sums: LawSums,
}

impl<'a> Walk<'a> {
    pub(super) fn new(unit: &'a Unit, case: &Case, rounding: Rounding) -> Self {
        let zeros = || vec![0.0; unit.n * unit.d];
        Walk {
            unit,
            storage: Storage::of(case.dtype),
            rounding,
            k: Right::new(unit.d, &unit.k),
            v: Right::new(unit.e, &unit.v),
            backward: Sums::new(unit),
            chain: Sums::new(unit),
            extra: DeltaInDk { worst: zeros(), squares: zeros(), repeated: zeros() },
            sums: LawSums::new(unit, case),
        }
    }

    /// One query head: its O and LSE, and its share of all gradients.
    pub(super) fn head(&mut self, head: usize, received: &Received) -> (Product, Bounded) {
        let unit = self.unit;
        let mut o = Product::new([unit.m, unit.e], unit.n, 1.0);
        let mut lse = Bounded { value: vec![f64::NEG_INFINITY; unit.m], tau: vec![0.0; unit.m] };
        let mut chain_dq = Product::new([unit.m, unit.d], unit.n, unit.scale);
        let mut given_dq = Product::new([unit.m, unit.d], unit.n, unit.scale);
        for block in unit.blocks().into_iter().filter(|block| !block.keys.is_empty()) {
            let shared = self.shared(head, &block);
            let p = self.forward(&shared, &block, &mut o, &mut lse);
            let exact = self.exact(&shared, &block, &o, &lse);
            let error = self.delta_error(&shared, &block, &p, &o);
            self.sums.add_block(&block, &shared.dp, &p, &error.repeated);
            self.delta_in_chain(&shared, &block, &p, &exact, &error, &mut chain_dq);
            self.gradients(&shared, &block, &exact, &mut chain_dq, true);
            let given = self.given(head, &shared, &block, received);
            self.gradients(&shared, &block, &given, &mut given_dq, false);
        }
        self.chain.finish_head(&self.storage, &chain_dq);
        self.backward.finish_head(&self.storage, &given_dq);
        self.chain.products.dq.push(chain_dq);
        self.sums.add_head(unit, head);
        (o, lse)
    }

    fn shared(&self, head: usize, block: &Block) -> Shared {
        let unit = self.unit;
        let (q, dout) = (unit.q_rows(head, block), unit.dout_rows(head, block));
        let (q, dout) = (Right::new(unit.d, q), Right::new(unit.e, dout));
        let (rows, keys) = (block.rows.len(), block.keys.len());
        let (mut s_abs, mut dp_abs) = (vec![0.0; rows * keys], vec![0.0; rows * keys]);
        let k_abs = &self.k.abs[block.keys.start * unit.d..block.keys.end * unit.d];
        let v_abs = &self.v.abs[block.keys.start * unit.e..block.keys.end * unit.e];
        linalg::nt(rows, unit.d, keys, &q.abs, k_abs, &mut s_abs);
        linalg::nt(rows, unit.e, keys, &dout.abs, v_abs, &mut dp_abs);
        s_abs.iter_mut().for_each(|x| *x *= unit.scale.abs());
        let (s, dp) = (unit.scores(head, block), unit.d_probabilities(head, block));
        Shared { s, s_abs, dp, dp_abs, q, dout }
    }

    /// O and LSE of a block's rows; returns P with its roundings.
    fn forward(&self, shared: &Shared, block: &Block, o: &mut Product, lse: &mut Bounded) -> Operand {
        let (unit, width) = (self.unit, block.keys.len());
        let mut p = Operand::zeros(shared.s.len());
        let mut row = vec![0.0; width];
        for (r, i) in block.rows.clone().enumerate() {
            let at = r * width..(r + 1) * width;
            let (s, s_abs) = (&shared.s[at.clone()], &shared.s_abs[at.clone()]);
            let l = log_sum_exp(s);
            if l == f64::NEG_INFINITY {
                continue;
            }
            let max = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let seen = unit.visible(i).len();
            let sum = budget::accumulation(seen) + budget::rescaling(seen, self.rounding.forward_tile);
            probabilities(s, l, &mut row);
            let rounded = self.running_max_rounding(s, &row, l, block.keys.start);
            let mut largest: f64 = 0.0;
            for j in (0..width).filter(|&j| s[j] != f64::NEG_INFINITY) {
                let e = budget::score(unit.d, s_abs[j], s[j], l.abs().max(max.abs()));
                largest = largest.max(e);
                let error = budget::probability(row[j], e);
                let unit = self.storage.operand(row[j], error);
                p.set(at.start + j, row[j], rounded[j], unit, error + sum * row[j]);
            }
            lse.value[i] = l;
            lse.tau[i] = budget::lse(largest, l, seen);
        }
        o.add_rows(&p, block.rows.clone(), &self.v, block.keys.clone());
        for i in block.rows.clone() {
            // The row sum divides O, and carries the error of every logit.
            for at in i * unit.e..(i + 1) * unit.e {
                o.extra[at] = lse.tau[i] * o.y[at].abs();
            }
        }
        p
    }

    /// P of one row as a forward rounds it: relative to the maximum of the tiles so far.
    fn running_max_rounding(&self, s: &[f64], p: &[f64], l: f64, first_key: usize) -> Vec<f64> {
        let tile = self.rounding.forward_tile;
        let mut max = f64::NEG_INFINITY;
        let mut rounded = Vec::with_capacity(s.len());
        let mut j = 0;
        while j < s.len() {
            let end = ((first_key + j) / tile * tile + tile - first_key).min(s.len());
            max = s[j..end].iter().copied().fold(max, f64::max);
            let factor = (l - max).exp();
            let round = |p: f64| self.storage.dtype.round(p * factor) / factor;
            rounded.extend(p[j..end].iter().map(|&p| if max > f64::NEG_INFINITY { round(p) } else { 0.0 }));
            j = end;
        }
        rounded
    }

    /// What the exact forward hands to the chain.
    fn exact(&self, shared: &Shared, block: &Block, o: &Product, lse: &Bounded) -> Forward {
        let o_rows: Vec<f64> =
            (block.rows.start * self.unit.e..block.rows.end * self.unit.e).map(|i| o.y[i]).collect();
        let mut forward = self.deltas(shared, &o_rows, lse.value[block.rows.clone()].to_vec());
        forward.e_lse = lse.tau[block.rows.clone()].to_vec();
        forward
    }

    /// What the received forward hands to the backward; rows of no meaning are left open.
    fn given(&mut self, head: usize, shared: &Shared, block: &Block, received: &Received) -> Forward {
        let e = self.unit.e;
        let o = &received.o[head][block.rows.start * e..block.rows.end * e];
        let lse = &received.lse[head][block.rows.clone()];
        let forward = self.deltas(shared, o, lse.to_vec());
        for (r, i) in block.rows.clone().enumerate() {
            let usable = forward.lse[r].is_finite() && forward.delta[r].is_finite();
            if !usable && !self.unit.visible(i).is_empty() {
                self.backward.open_rows[i] = true;
                self.unit.visible(i).for_each(|j| self.backward.open_keys[j] = true);
            }
        }
        forward
    }

    fn deltas(&self, shared: &Shared, o: &[f64], lse: Vec<f64>) -> Forward {
        let e = self.unit.e;
        let rows = || o.chunks(e).zip(shared.dout.value.chunks(e));
        let delta = rows().map(|(o, dout)| dot(o, dout)).collect();
        let abs = |o: &[f64], dout: &[f64]| o.iter().zip(dout).map(|(a, b)| (a * b).abs()).sum();
        let e_delta = rows().map(|(o, dout)| budget::delta(e, abs(o, dout))).collect();
        Forward { e_lse: vec![0.0; lse.len()], lse, delta, e_delta }
    }

    /// Adds a block's share of dQ, dK and dV, given what the forward handed over.
    fn gradients(
        &mut self,
        shared: &Shared,
        block: &Block,
        forward: &Forward,
        dq: &mut Product,
        chain: bool,
    ) {
        let unit = self.unit;
        let sums = if chain { &mut self.chain } else { &mut self.backward };
        let (mut p, mut ds) = operands(unit, &self.storage, shared, block, forward, sums);
        let (rows, keys) = (block.rows.clone(), block.keys.clone());
        let over_keys = budget::accumulation(unit.n);
        let over_rows = budget::accumulation_of_parts(unit.q.len(), unit.m);
        charge(&mut ds, keys.len(), |_| over_keys);
        dq.add_rows(&ds, rows.clone(), &self.k, keys.clone());
        if chain {
            for (r, i) in rows.clone().enumerate() {
                for at in i * unit.d..(i + 1) * unit.d {
                    dq.extra[at] += budget::lse_in_dq(forward.e_lse[r], unit.scale * dq.y[at]);
                }
            }
        }
        charge(&mut ds, keys.len(), |r| over_rows - over_keys + forward.e_lse[r]);
        charge(&mut p, keys.len(), |r| over_rows + forward.e_lse[r]);
        let rows = 0..rows.len();
        sums.products.dk.add_columns(&ds, rows.clone(), &shared.q, keys.clone());
        sums.products.dv.add_columns(&p, rows, &shared.dout, keys);
    }
}

/// Adds a relative error, by row, to an operand's fp32-level error.
fn charge(a: &mut Operand, width: usize, relative: impl Fn(usize) -> f64) {
    for (r, (error, value)) in a.error.chunks_mut(width).zip(a.value.chunks(width)).enumerate() {
        let relative = relative(r);
        error.iter_mut().zip(value).for_each(|(e, x)| *e += relative * x.abs());
    }
}

/// P and dS of a block with their roundings and fp32-level errors, accumulation apart.
fn operands(
    unit: &Unit,
    storage: &Storage,
    shared: &Shared,
    block: &Block,
    forward: &Forward,
    sums: &mut Sums,
) -> (Operand, Operand) {
    let width = block.keys.len();
    let (mut p, mut ds) = (Operand::zeros(shared.s.len()), Operand::zeros(shared.s.len()));
    for (r, i) in block.rows.clone().enumerate() {
        let (l, delta) = (forward.lse[r], forward.delta[r]);
        if !l.is_finite() || !delta.is_finite() {
            continue;
        }
        for (j, at) in block.keys.clone().zip(r * width..) {
            let s = shared.s[at];
            if s == f64::NEG_INFINITY {
                continue;
            }
            let (x, dp) = ((s - l).exp(), shared.dp[at]);
            let y = x * (dp - delta);
            let e_score = budget::score(unit.d, shared.s_abs[at], s, l.abs());
            let e_dp = budget::d_probability(unit.e, shared.dp_abs[at]);
            let e_ds = budget::d_score(x, dp, delta, y, e_score, e_dp, forward.e_delta[r]);
            let e_p = budget::probability(x, e_score);
            let finite = x + e_p < storage.overflow && y.abs() + e_ds < storage.overflow;
            if !finite {
                // A right backend may round this to infinity, and then anything follows.
                sums.open_rows[i] = true;
                sums.open_keys[j] = true;
                // Still part of the values, for whoever looks at them, as far as they are numbers.
                let number = |x: f64| if x.is_finite() { x } else { 0.0 };
                p.set(at, number(x), number(x), 0.0, 0.0);
                ds.set(at, number(y), number(y), 0.0, 0.0);
                continue;
            }
            p.set(at, x, storage.dtype.round(x), storage.operand(x, e_p), e_p);
            ds.set(at, y, storage.dtype.round(y), storage.operand(y, e_ds), e_ds);
        }
    }
    (p, ds)
}
