//! What the softmax has beside the logits: a cap on them, and a sink in its denominator.
//!
//! ```text
//! S' = cap tanh(S / cap)                 softcap: S the scaled logit, before the mask
//! L  = log(exp(sink) + sum_j exp S'_j)   sink: one more term, which no value belongs to
//! ```
//!
//! The LSE includes the sink. A row without a visible key has L = sink and O = 0.

/// The sink: a logit that takes part in the softmax and has neither key nor value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Sink {
    /// None.
    #[default]
    None,
    /// A logit of 0: "softmax off by one".
    OffByOne,
    /// A logit for each query head, fp32, with a gradient.
    Learnable,
}

impl Sink {
    /// Its name in the notation.
    pub fn name(self) -> &'static str {
        match self {
            Sink::None => "none",
            Sink::OffByOne => "off-by-one",
            Sink::Learnable => "learnable",
        }
    }
}
