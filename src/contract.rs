//! What a backend promises beyond right values: its dead rows, and where it rounds.
//!
//! The bounds hold for any backend that rounds P, dS and its outputs to the storage dtype and
//! computes all else in fp32. The rounding recipe says how, so that roundings that are *not*
//! independent (equal probabilities round alike) are applied in the reference instead of being
//! bounded.

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
        rounding: Rounding { known: Known::Exactly, forward_tile: 64 },
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
    /// How well the rest is known.
    pub known: Known,
    /// The forward rounds `exp(S - m)`, `m` the row's running maximum after each tile of this many
    /// keys, counted from the sequence's first key; the division by the row sum comes last, in
    /// fp32.
    pub forward_tile: usize,
    // The backward rounds P = exp(S - L) and the unscaled dS as operands of the products; the
    // scale is applied to the fp32 accumulators. Backends that differ get a field here.
}

/// How well a backend's roundings are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Where it rounds what: its roundings are applied in the reference, and nothing is allowed for them
    /// but where fp32-level errors decide which way they go.
    Exactly,
    /// That it rounds P and dS somewhere on their way: bounded by their sizes.
    InKind,
}
