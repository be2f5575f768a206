//! What recipes round beside the operands of the products: each as an error of the value that is rounded.
//!
//! With u and eta of the storage dtype, `c` the softmax scale, norms in the place of sums of products:
//!
//! ```text
//! S rounded                 e_S  + u|S| + eta
//! c log2(e) K rounded       e_S  + u c|q||k| + eta sqrt(d)|q|        dQ + u c|dS||K| + eta |dS|_1
//! dP rounded                e_dP + u|dP| + eta
//! fl(P) in the place of P   e_dS + (u P + eta)|dP - D|
//! delta from P dP           e_D  + sum max(u|O|, eta)|dO| + g(N)(sum P|dP| + |dO| max|v|) + g(e)|dO| max|v|
//!    of fl(P) and fl(dP)    e_D  + u sum P|dP| + eta besides
//! dK, dV of heads rounded   dK   + sum_h max(u|dK_h|, eta) + u times their own error
//! ```
//!
//! A factor of `exp(e_S)` on P where P is the backend's own. A delta of its own comes from the P that the forward
//! multiplied with V: it is kept, not computed again, so that errors of P are in O and in delta alike and the two differ by
//! O's rounding and by accumulation only. Worst cases all: where a recipe rounds so much, most of what is allowed is
//! that.

use super::{DotError, ScoreError, Storage, accumulation, exp_minus_one};
use crate::contract::{Probabilities, Recipe};

/// What a recipe rounds beside the operands of the products, in a storage dtype.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    recipe: &'static Recipe,
    u: f64,
    eta: f64,
}

impl Beside {
    /// Of a recipe.
    pub fn new(recipe: &'static Recipe, storage: &Storage) -> Beside {
        Beside { recipe, u: storage.u, eta: storage.eta }
    }

    /// Is it nothing?
    pub fn is_nothing(&self) -> bool {
        self.recipe.rounds_operands()
    }

    /// The errors of logits of `d` columns, where `q` is `|q|`.
    pub fn in_scores(&self, score: ScoreError, d: usize, q: f64) -> ScoreError {
        let mut score = score;
        if self.recipe.scores {
            score.per_size += self.u;
            score.shared += self.eta;
        }
        if self.recipe.scaled_k {
            score.per_dot += self.u;
            score.shared += self.eta * (d as f64).sqrt() * q;
        }
        score
    }

    /// The error of dP - delta.
    pub fn in_dot(&self, dot: DotError) -> DotError {
        if !self.recipe.dp {
            return dot;
        }
        DotError { per_size: dot.per_size + self.u, shared: dot.shared + self.eta, ..dot }
    }

    /// Does delta come from P and dP, rather than from O and dO?
    pub fn has_delta_of_its_own(&self) -> bool {
        self.recipe.p != Probabilities::Operand
    }

    /// The error of such a delta against `rowsum(dO * O)`.
    pub fn in_delta(&self, row: &OwnDelta) -> f64 {
        let e = exp_minus_one(row.score);
        let of_o = self.u * row.o_dout + self.eta * row.dout;
        let of_keys = accumulation(row.keys) * ((1.0 + e) * row.p_dp + row.dp);
        let in_fp32 = of_keys + accumulation(row.d_v) * row.dp;
        let of_dp =
            if self.recipe.dp { (1.0 + e) * (1.0 + self.u) * self.u * row.p_dp + self.eta } else { 0.0 };
        of_o + in_fp32 + of_dp
    }

    /// The error of dS where P, off by the factor `1 + e_p`, is rounded before, and `difference` is off too.
    #[inline(always)]
    pub fn in_d_score(&self, p: f64, e_p: f64, difference: f64, e_difference: f64) -> f64 {
        if self.recipe.p != Probabilities::Stored {
            return 0.0;
        }
        (self.u * (1.0 + e_p) * p + self.eta) * (difference.abs() + e_difference)
    }

    /// What is added to the error of dQ's accumulation, relative to the sizes of its terms.
    pub fn in_accumulation_of_dq(&self) -> f64 {
        if self.recipe.scaled_k { self.u } else { 0.0 }
    }

    /// What is added to an element of dQ, where `ds` is at least `sum |dS|` of its row.
    pub fn in_dq(&self, ds: f64) -> f64 {
        if self.recipe.scaled_k { self.eta * ds } else { 0.0 }
    }

    /// Are the gradients of each head rounded before they are added up?
    pub fn rounds_heads(&self) -> bool {
        self.recipe.group
    }

    /// What the rounding of a head's dK or dV, `y`, adds to their sum. `terms` is the sum of the sizes of its
    /// terms: `y` itself is off by less than twice their roundings.
    pub fn in_head(&self, y: f64, terms: f64) -> f64 {
        self.u * (y.abs() + (1.0 + 1.0) * self.u * terms) + self.eta
    }
}

/// A row whose delta is a sum over its keys.
#[derive(Clone, Copy, Debug)]
pub struct OwnDelta {
    /// Keys that it sees.
    pub keys: usize,
    /// d_v.
    pub d_v: usize,
    /// The largest error of a logit.
    pub score: f64,
    /// `sum P|dP|`.
    pub p_dp: f64,
    /// `|dO| max|v|`, which no dP exceeds.
    pub dp: f64,
    /// `sum |O||dO|`.
    pub o_dout: f64,
    /// `sum |dO|`.
    pub dout: f64,
}
