//! Rounding recipes: what a fused or unfused attention rounds to the storage dtype on its way.
//!
//! All compute the same attention in fp32 beside that, and round their outputs once, at the end. Two that round in
//! different places differ by as much as an output's own rounding, so outputs tell which one a backend
//! follows: `thd-fuzz rounding` asks.

/// Where values are rounded to the storage dtype between the inputs and the outputs.
#[derive(Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Its name in reports.
    pub name: &'static str,
    /// Who computes so, and why.
    pub reason: &'static str,
    /// S, with its scale, before the softmax.
    pub scores: bool,
    /// K times `c log2(e)`: S and dQ are computed from the rounded product.
    pub scaled_k: bool,
    /// What the forward multiplies with V.
    pub weights: Weights,
    /// P in the backward.
    pub p: Probabilities,
    /// dP.
    pub dp: bool,
    /// dS.
    pub ds: ScoreGradients,
    /// The dK and dV of each query head, before they are added up over a kv head's group.
    pub group: bool,
}

/// What the forward multiplies with V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// fl(exp(S - m)), `m` the row's running maximum after each tile of keys; divided by the row sum at the end.
    Running,
    /// fl(P).
    Normalised,
    /// P, in fp32.
    Fp32,
}

/// What the backward does with P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probabilities {
    /// It is never rounded; delta = sum_j P dP.
    Fp32,
    /// dV = fl(P)^T dO; dS is computed from P itself, delta from O.
    Operand,
    /// fl(P) is all that is kept: dV, dS and delta = sum_j fl(P) dP come from it.
    Stored,
}

/// What the backward rounds of dS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreGradients {
    /// Nothing.
    Fp32,
    /// fl(P (dP - D)): the scale is applied to the sums.
    Unscaled,
    /// fl(c P (dP - D)).
    Scaled,
}

impl ScoreGradients {
    /// The factor on P (dP - D) when it is rounded, of a softmax scale. A scale of 0 leaves nothing of dS, whatever it
    /// was rounded to.
    pub fn factor(self, scale: f64) -> f64 {
        if self == ScoreGradients::Scaled && scale != 0.0 { scale } else { 1.0 }
    }
}

impl Recipe {
    /// The operands of the products and nothing else.
    pub const FUSED: Recipe = Recipe {
        name: "fused",
        reason: "FlashAttention's backward and the project's kernels: P and the unscaled dS are operands of tensor cores, \
                 all else stays in fp32 registers",
        scores: false,
        scaled_k: false,
        weights: Weights::Running,
        p: Probabilities::Operand,
        dp: false,
        ds: ScoreGradients::Unscaled,
        group: false,
    };

    /// One of [`RECIPES`].
    pub fn named(name: &str) -> Option<&'static Recipe> {
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// Are the products' operands, P and dS, all that it rounds, if anything?
    pub fn is_operands_only(&self) -> bool {
        let beside = self.scores || self.scaled_k || self.dp || self.group;
        !beside && self.p != Probabilities::Stored
    }

    /// Does the backward round both operands, P and dS, and nothing beside?
    pub fn rounds_operands(&self) -> bool {
        self.is_operands_only() && self.p == Probabilities::Operand && self.ds != ScoreGradients::Fp32
    }

    /// Are all of its roundings among those that the reference applies? Those of others are allowed for by size.
    pub fn is_applied(&self) -> bool {
        self.rounds_operands() && self.weights == Weights::Running
    }
}

/// Every recipe that is known.
pub static RECIPES: [Recipe; 6] = [
    Recipe::FUSED,
    Recipe {
        name: "fused-scaled-ds",
        reason: "graphs that multiply dS by the scale as an operation of its own, before the products, as cuDNN's backward graph is written",
        ds: ScoreGradients::Scaled,
        ..Recipe::FUSED
    },
    Recipe {
        name: "fused-scaled-k",
        reason: "kernels that fold c log2(e) into K once, to save a multiplication for each logit, as Triton's tutorial does",
        scaled_k: true,
        ..Recipe::FUSED
    },
    Recipe {
        name: "fused-rounded-groups",
        reason: "GQA served as MHA, whose dK and dV are stored for each query head and added up after, as FlashAttention 2 does",
        group: true,
        ..Recipe::FUSED
    },
    Recipe {
        name: "unfused",
        reason: "one operation after another with every result stored: S, P, dP and dS",
        scores: true,
        scaled_k: false,
        weights: Weights::Normalised,
        p: Probabilities::Stored,
        dp: true,
        ds: ScoreGradients::Unscaled,
        group: false,
    },
    Recipe {
        name: "fp32",
        reason: "inputs converted to fp32, outputs converted back, as PyTorch's math path does",
        weights: Weights::Fp32,
        p: Probabilities::Fp32,
        ds: ScoreGradients::Fp32,
        ..Recipe::FUSED
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_differ_in_more_than_their_names() {
        for (at, recipe) in RECIPES.iter().enumerate() {
            assert_eq!(Recipe::named(recipe.name), Some(recipe));
            for other in &RECIPES[..at] {
                assert_ne!(Recipe { name: other.name, reason: other.reason, ..*recipe }, *other);
            }
        }
    }

    #[test]
    fn the_reference_applies_roundings_of_operands() {
        let applied: Vec<&str> =
            RECIPES.iter().filter(|recipe| recipe.is_applied()).map(|recipe| recipe.name).collect();
        assert_eq!(applied, ["fused", "fused-scaled-ds"]);
    }
}
