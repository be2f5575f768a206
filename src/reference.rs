//! Attention forward and backward in fp64: what every output is compared with.
//!
//! ```text
//! S = c Q K^T (+ mask)   L = logsumexp_j S   P = exp(S - L)   O = P V
//! dP = dO V^T    D = rowsum(dO * O)    dS = P * (dP - D)
//! dQ = c dS K    dK = c dS^T Q         dV = P^T dO     (dK, dV summed over a kv head's query heads)
//! ```
//!
//! With a softcap S is `cap tanh(S / cap)`, and dS is multiplied by the slope `1 - (S / cap)^2`. A sink adds
//! `exp(sink)` to the softmax's denominator, and `dSink = -sum_i exp(sink - L_i) D_i` per query head.
//!
//! A row without a visible key has O = 0, L = -inf (or the sink) and contributes nothing. The unit of work is one
//! sequence and one kv head; its rows are taken in blocks that hold all of their keys, so memory
//! stays small at any length. The bounds of the oracle walk the same blocks.

use std::ops::Range;

use rayon::prelude::*;

use crate::case::{Case, Mask};
use crate::inputs::Inputs;
use crate::linalg;

/// Scores of a block at most; with as many rows as fit.
const BLOCK_SCORES: usize = 1 << 15;
/// Rows of a block at most.
const BLOCK_ROWS: usize = 64;

/// One sequence and one kv head, with the query heads of its group.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Index of the sequence.
    pub sequence: usize,
    /// Index of the kv head.
    pub kv_head: usize,
    /// Queries.
    pub m: usize,
    /// Keys.
    pub n: usize,
    /// d_qk.
    pub d: usize,
    /// d_v.
    pub e: usize,
    /// Softmax scale c.
    pub scale: f64,
    /// Cap of the logits.
    pub softcap: Option<f64>,
    /// The sink's logit of each query head.
    pub sink: Vec<Option<f64>>,
    /// Mask.
    pub mask: Mask,
    /// Q of each query head, `[m][d]`.
    pub q: Vec<Vec<f64>>,
    /// dO of each query head, `[m][e]`.
    pub dout: Vec<Vec<f64>>,
    /// K, `[n][d]`.
    pub k: Vec<f64>,
    /// V, `[n][e]`.
    pub v: Vec<f64>,
}

/// Some rows of a unit, with the range of keys that any of them sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Query positions.
    pub rows: Range<usize>,
    /// Key positions.
    pub keys: Range<usize>,
}

impl Unit {
    /// Sequence `sequence`, kv head `kv_head` of the inputs.
    pub fn new(inputs: &Inputs, sequence: usize, kv_head: usize) -> Unit {
        let case = &inputs.case;
        let (queries, keys) = (inputs.q_spans[sequence], inputs.kv_spans[sequence]);
        let heads = query_heads(case, kv_head);
        Unit {
            sequence,
            kv_head,
            m: queries.len,
            n: keys.len,
            d: case.dims.qk as usize,
            e: case.dims.v as usize,
            scale: case.softmax_scale(),
            softcap: case.softcap,
            sink: heads.clone().map(|h| inputs.sink_logit(h)).collect(),
            mask: case.mask,
            q: heads.clone().map(|h| inputs.q.rows_of_head(queries.rows(), h)).collect(),
            dout: heads.map(|h| inputs.dout.rows_of_head(queries.rows(), h)).collect(),
            k: inputs.k.rows_of_head(keys.rows(), kv_head),
            v: inputs.v.rows_of_head(keys.rows(), kv_head),
        }
    }

    /// (sequence, kv head) of every unit of a case that has a query or a key.
    pub fn all(case: &Case) -> Vec<(usize, usize)> {
        let heads = case.heads.kv as usize;
        let some = |&s: &usize| case.q.lengths[s] > 0 || case.kv.lengths[s] > 0;
        (0..case.sequences()).filter(some).flat_map(|s| (0..heads).map(move |h| (s, h))).collect()
    }

    /// The rows in blocks. Rows that see no key are in blocks with an empty range of keys or with
    /// others that see some.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut start = 0;
        let height = (BLOCK_SCORES / self.n.max(1)).clamp(1, BLOCK_ROWS);
        while start < self.m {
            let rows = start..(start + height).min(self.m);
            let seen = rows.clone().map(|i| self.visible(i)).filter(|keys| !keys.is_empty());
            let keys = seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
            start = rows.end;
            blocks.push(Block { rows, keys });
        }
        blocks
    }

    /// The keys that query `i` sees.
    pub fn visible(&self, i: usize) -> Range<usize> {
        self.mask.visible_keys(i, self.m, self.n)
    }

    /// S of one query head on a block, capped, `[rows][keys]`, -inf where masked.
    pub fn scores(&self, head: usize, block: &Block) -> Vec<f64> {
        let (q, k) = (self.q_rows(head, block), self.k_rows(block));
        let mut s = vec![0.0; block.rows.len() * block.keys.len()];
        linalg::nt(block.rows.len(), self.d, block.keys.len(), q, k, &mut s);
        for (i, row) in block.each_row(&mut s) {
            let visible = self.visible(i);
            for (j, s) in block.keys.clone().zip(row) {
                *s = if visible.contains(&j) { self.cap(*s * self.scale) } else { f64::NEG_INFINITY };
            }
        }
        s
    }

    /// A scaled logit with the cap on it.
    fn cap(&self, s: f64) -> f64 {
        self.softcap.map_or(s, |cap| cap * (s / cap).tanh())
    }

    /// The slope of the cap at a capped logit: what dS is multiplied by.
    pub fn slope(&self, capped: f64) -> f64 {
        self.softcap.map_or(1.0, |cap| (1.0 - capped / cap) * (1.0 + capped / cap))
    }

    /// L of a row of one head.
    pub fn log_sum_exp(&self, head: usize, scores: &[f64]) -> f64 {
        log_sum_exp_with(self.sink[head], scores)
    }

    /// dP of one query head on a block, `[rows][keys]`.
    pub fn d_probabilities(&self, head: usize, block: &Block) -> Vec<f64> {
        let mut dp = vec![0.0; block.rows.len() * block.keys.len()];
        let (dout, v) = (self.dout_rows(head, block), self.v_rows(block));
        linalg::nt(block.rows.len(), self.e, block.keys.len(), dout, v, &mut dp);
        dp
    }

    /// Q of a block's rows.
    pub fn q_rows(&self, head: usize, block: &Block) -> &[f64] {
        &self.q[head][block.rows.start * self.d..block.rows.end * self.d]
    }

    /// dO of a block's rows.
    pub fn dout_rows(&self, head: usize, block: &Block) -> &[f64] {
        &self.dout[head][block.rows.start * self.e..block.rows.end * self.e]
    }

    /// K of a block's keys.
    pub fn k_rows(&self, block: &Block) -> &[f64] {
        &self.k[block.keys.start * self.d..block.keys.end * self.d]
    }

    /// V of a block's keys.
    pub fn v_rows(&self, block: &Block) -> &[f64] {
        &self.v[block.keys.start * self.e..block.keys.end * self.e]
    }
}

impl Block {
    /// The rows of a `[rows][keys]` matrix with their query positions.
    pub fn each_row<'a>(&self, matrix: &'a mut [f64]) -> impl Iterator<Item = (usize, &'a mut [f64])> {
        self.rows.clone().zip(matrix.chunks_mut(self.keys.len().max(1)))
    }
}

/// The query heads that share a kv head.
pub fn query_heads(case: &Case, kv_head: usize) -> Range<usize> {
    let group = case.heads.group() as usize;
    kv_head * group..(kv_head + 1) * group
}

/// logsumexp of a row; -inf where every score is. Scores are finite or masked: the limits of a case
/// keep fp64 from overflowing.
pub fn log_sum_exp(scores: &[f64]) -> f64 {
    log_sum_exp_with(None, scores)
}

/// The same with a sink among the scores.
fn log_sum_exp_with(sink: Option<f64>, scores: &[f64]) -> f64 {
    debug_assert!(scores.iter().all(|s| !s.is_nan() && *s < f64::INFINITY));
    let sink = sink.unwrap_or(f64::NEG_INFINITY);
    let max = scores.iter().copied().fold(sink, f64::max);
    if max == f64::NEG_INFINITY {
        return max;
    }
    max + ((sink - max).exp() + scores.iter().map(|s| (s - max).exp()).sum::<f64>()).ln()
}

/// `exp(S - L)` of one row, 0 where masked or where the row sees nothing.
pub fn probabilities(scores: &[f64], lse: f64, out: &mut [f64]) {
    for (p, &s) in out.iter_mut().zip(scores) {
        *p = if s == f64::NEG_INFINITY { 0.0 } else { (s - lse).exp() };
    }
}

/// The exact outputs of one unit.
#[derive(Clone, Debug, Default)]
pub struct Solution {
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
    /// This unit's share of dSink, one for each query head; 0 without a sink.
    pub dsink: Vec<f64>,
}

/// Solves every unit of a call, in the order of [`Unit::all`], on all cores.
pub fn solve(inputs: &Inputs) -> Vec<Solution> {
    Unit::all(&inputs.case).into_par_iter().map(|(s, h)| solve_unit(&Unit::new(inputs, s, h))).collect()
}

/// Solves one unit.
pub fn solve_unit(unit: &Unit) -> Solution {
    let (m, n, d, e) = (unit.m, unit.n, unit.d, unit.e);
    let mut all = Solution { dk: vec![0.0; n * d], dv: vec![0.0; n * e], ..Solution::default() };
    for head in 0..unit.q.len() {
        let (mut o, mut lse, mut dq) = (vec![0.0; m * e], vec![0.0; m], vec![0.0; m * d]);
        let mut dsink = 0.0;
        for block in unit.blocks() {
            let (rows, keys) = (block.rows.clone(), block.keys.clone());
            let scores = unit.scores(head, &block);
            let mut p = vec![0.0; scores.len()];
            for (i, p) in block.each_row(&mut p) {
                let scores = &scores[(i - rows.start) * keys.len()..][..keys.len()];
                lse[i] = unit.log_sum_exp(head, scores);
                probabilities(scores, lse[i], p);
            }
            if keys.is_empty() {
                lse[rows].fill(unit.log_sum_exp(head, &[]));
                continue;
            }
            let o = &mut o[rows.start * e..rows.end * e];
            linalg::nn(rows.len(), keys.len(), e, &p, unit.v_rows(&block), o, false);
            let dout = unit.dout_rows(head, &block);
            linalg::tn_add(keys.len(), rows.len(), e, &p, dout, &mut all.dv[keys.start * e..keys.end * e]);

            let mut ds = unit.d_probabilities(head, &block);
            let deltas = dout.chunks(e).zip(o.chunks(e)).map(|(a, b)| dot(a, b));
            let of_rows = p.chunks(keys.len()).zip(scores.chunks(keys.len()));
            for (((i, ds), (p, s)), delta) in block.each_row(&mut ds).zip(of_rows).zip(deltas) {
                ds.iter_mut().zip(p).for_each(|(ds, p)| *ds = unit.scale * p * (*ds - delta));
                if unit.softcap.is_some() {
                    let seen = ds.iter_mut().zip(s).filter(|(_, s)| s.is_finite());
                    seen.for_each(|(ds, &s)| *ds *= unit.slope(s));
                }
                dsink -= unit.sink[head].map_or(0.0, |sink| (sink - lse[i]).exp() * delta);
            }
            let dq = &mut dq[rows.start * d..rows.end * d];
            linalg::nn(rows.len(), keys.len(), d, &ds, unit.k_rows(&block), dq, false);
            let dk = &mut all.dk[keys.start * d..keys.end * d];
            linalg::tn_add(keys.len(), rows.len(), d, &ds, unit.q_rows(head, &block), dk);
        }
        all.o.push(o);
        all.lse.push(lse);
        all.dq.push(dq);
        all.dsink.push(dsink);
    }
    all
}

/// The scalar product.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests;
