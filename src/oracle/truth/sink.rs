//! dSink: the gradient of the sink's logit, a sum over every row of a head.
//!
//! ```text
//! dSink = -sum_i p_i D_i      p_i = exp(sink - L_i), D_i = delta
//! ```
//!
//! No operand is rounded on its way, so all of its error is fp32-level, and what the forward hands over.

use super::super::budget::{self, ScoreError};
use super::super::products::Bounded;

/// A head's sum so far, with what its bound needs.
#[derive(Clone, Debug, Default)]
pub struct SinkSum {
    value: f64,
    /// Sizes of the terms, how many there are, and their errors.
    size: f64,
    terms: usize,
    error: f64,
    /// What delta's error by the forward's roundings adds: worst case, squares, repeated part.
    worst: f64,
    squares: f64,
    repeated: f64,
    /// May a term be without meaning?
    open: bool,
}

/// One row of one head.
pub(super) struct SinkRow {
    /// The sink's logit.
    pub(super) sink: f64,
    /// L, and what it may be off by.
    pub(super) lse: f64,
    pub(super) e_lse: f64,
    /// delta, with its error by accumulation.
    pub(super) delta: f64,
    pub(super) e_delta: f64,
    /// delta's error by the forward's roundings, and its repeated part.
    pub(super) forward: (f64, f64),
}

impl SinkSum {
    pub(super) fn add(&mut self, row: &SinkRow) {
        let p = (row.sink - row.lse).exp();
        let term = p * row.delta;
        self.terms += 1;
        if !term.is_finite() {
            self.open = true;
            return;
        }
        let size = row.lse.abs().max(row.sink.abs());
        let e = budget::exp_minus_one(ScoreError::new(0, size).of(0.0, row.sink) + row.e_lse);
        self.value -= term;
        self.size += term.abs();
        self.error += budget::sink_term(p, term, e, row.e_delta, row.delta);
        let (bound, repeated) = row.forward;
        self.worst += p * bound;
        self.squares += (p * bound).powi(2);
        self.repeated += p * repeated;
    }

    /// Adds the sum of another sequence.
    pub(in super::super) fn join(&mut self, other: &SinkSum) {
        self.value += other.value;
        self.size += other.size;
        self.terms += other.terms;
        self.error += other.error;
        self.worst += other.worst;
        self.squares += other.squares;
        self.repeated += other.repeated;
        self.open |= other.open;
    }

    /// The sum with its bound.
    pub(in super::super) fn finish(&self) -> Bounded {
        let forward = budget::roundings(self.worst, self.squares, self.repeated);
        let tau = budget::sink(self.value, self.size, self.terms, self.error + forward);
        let tau = if self.open || tau.is_nan() { f64::INFINITY } else { tau };
        Bounded { value: vec![self.value], tau: vec![tau], ..Bounded::default() }
    }
}
