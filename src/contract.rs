//! What a backend promises beyond right values: its dead rows, and where it rounds.
//!
//! The bounds hold for any backend that computes in fp32 and rounds to the storage dtype where its [`Recipe`]
//! says so. Where those roundings are known exactly they are applied in the reference instead of being bounded.

mod recipe;

pub use recipe::{Probabilities, RECIPES, Recipe, ScoreGradients, Weights};

/// A backend's promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Rows of the outputs that belong to no sequence.
    pub dead_rows: DeadRows,
    /// Where it rounds to the storage dtype.
    pub rounding: Rounding,
    /// Which outputs it gives to the bit.
    pub deterministic: Deterministic,
}

impl Contract {
    /// The project's own kernel, and its model.
    pub const OWN: Contract = Contract {
        dead_rows: DeadRows::Zero,
        rounding: Rounding { recipe: &Recipe::FUSED, known: Known::Exactly, forward_tile: 64 },
        deterministic: Deterministic::BUT_DQ,
    };
}

/// What a backend leaves in rows that belong to no sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadRows {
    /// Zeros.
    Zero,
    /// What was there before.
    Untouched,
    /// It promises nothing.
    Anything,
}

impl DeadRows {
    /// A word for reports.
    pub fn name(self) -> &'static str {
        match self {
            DeadRows::Zero => "zero",
            DeadRows::Untouched => "untouched",
            DeadRows::Anything => "anything",
        }
    }
}

/// Which outputs are, to the bit, a function of what they are computed from: the rows of one sequence and head
/// (for dK and dV, of one kv head's group) and which keys its queries see. Such an output is the same in whatever
/// batch the sequence stands, wherever in it and in memory, after whatever else, and however often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deterministic {
    /// O and LSE.
    pub forward: bool,
    /// dQ.
    pub dq: bool,
    /// dK and dV.
    pub dk_dv: bool,
    /// dSink, which sums over a batch: the same for the same batch.
    pub dsink: bool,
}

impl Deterministic {
    /// Every sum has an order of its own.
    pub const ALL: Deterministic = Deterministic { forward: true, dq: true, dk_dv: true, dsink: true };
    /// dQ is added up by atomics of the key tiles' blocks, in the order in which they come.
    pub const BUT_DQ: Deterministic = Deterministic { dq: false, dsink: false, ..Deterministic::ALL };
}

/// How a backend rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounding {
    /// What it rounds.
    pub recipe: &'static Recipe,
    /// How well that is known.
    pub known: Known,
    /// Of [`Weights::Running`]: the running maximum is taken after each tile of this many keys, counted from
    /// the sequence's first key.
    pub forward_tile: usize,
}

impl Rounding {
    /// Are its roundings applied in the reference, rather than allowed for?
    pub fn is_applied(&self) -> bool {
        self.known == Known::Exactly && self.recipe.is_applied()
    }
}

/// How well a backend's roundings are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// To the bit, but for fp32-level errors: where the reference can, it applies them, and nothing is allowed
    /// for them but where such errors decide which way they go.
    Exactly,
    /// That it rounds these values somewhere on their way: bounded by their sizes.
    InKind,
}
