//! Terms of a bias and of dropout, for the day when cases have them: derived in `docs/oracle.md`, and tested in simulation
//! like the rest.
//!
//! ```text
//! S = c Q K^T + B                      dB = sum of dS over what B is shared by
//! Pd = Z r P   O = Pd V                dP = Z r (dO V^T)   D = rowsum(dO * O)   dS = P * (dP - D)   dV = Pd^T dO
//! ```
//!
//! with `Z` 0 for dropped pairs and 1 for others, and `r = 1 / (1 - p)`.

use super::{DotError, STEP, Storage};

/// Error of a logit to which `bias` is added, `score` being that without: the addition is off by a step of what it
/// adds, and so is the product with `log2(e)` that follows.
#[inline(always)]
pub fn with_bias(score: f64, bias: f64) -> f64 {
    score + (STEP + STEP) * bias.abs()
}

/// Relative error that the factor r brings to O and dV, whichever of operand and sum it is applied to: its own
/// rounding and that of the product.
pub const OF_DROPOUT: f64 = STEP + STEP;

impl DotError {
    /// Of dP - delta under dropout: dP is `factor` times a sum of products, and 0 where the pair is dropped.
    #[must_use]
    pub fn with_dropout(self, factor: f64) -> DotError {
        DotError { per_norm: self.per_norm * factor, per_size: self.per_size + OF_DROPOUT, ..self }
    }
}

impl Storage {
    /// Largest rounding error of `factor a`, be it the product that is rounded or `a` alone.
    pub fn dropped_operand(&self, a: f64, error: f64, factor: f64) -> f64 {
        factor * self.operand(a, error)
    }
}
