//! How a kernel may be bent: each field of [`Bend`] is one thing that an attention kernel decides, with
//! the ways in which it is known to go wrong. `solve` computes what comes of it.

use crate::case::{Align, Case, Mask};
use crate::outputs::Output;

/// A kernel with a fault in it. [`Bend::NONE`] is the right one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bend {
    /// The LSE that the backward reads for a row.
    pub lse: Statistic,
    /// The delta that the backward reads for a row.
    pub delta: Statistic,
    /// Is the LSE of a row that sees no key, -inf, read as 0? Of the right kernel it decides nothing.
    pub empty_as_zero: bool,
    /// The LSE that the forward stores.
    pub stored: Stored,
    /// Which keys a row sees.
    pub mask: MaskBend,
    /// Where the bent mask holds.
    pub tiles: Tiles,
    /// The gradients that the bent mask holds for.
    pub masked: Gradients,
    /// Rows behind the last key that are taken for keys.
    pub extra: Option<Extra>,
    /// The scale of the logits.
    pub logits: Scale,
    /// The scale of dQ.
    pub dq: Scale,
    /// The scale of dK.
    pub dk: Scale,
    /// The kv head of a query head.
    pub kv_head: KvHead,
    /// The heads of a group that contribute.
    pub group: Group,
    /// What is left out of sums.
    pub lost: Option<Lost>,
    /// Where the keys of a sequence begin, as they are read.
    pub keys: Base,
    /// The tensor and the strides that each operand is read with.
    pub reads: Reads,
}

impl Bend {
    /// The right kernel.
    pub const NONE: Bend = Bend {
        lse: Statistic::Own,
        delta: Statistic::Own,
        empty_as_zero: false,
        stored: Stored::Natural,
        mask: MaskBend::None,
        tiles: Tiles::All,
        masked: Gradients::ALL,
        extra: None,
        logits: Scale::Right,
        dq: Scale::Right,
        dk: Scale::Right,
        kv_head: KvHead::OfGroup,
        group: Group { heads: Heads::All, of: Gradients::ALL },
        lost: None,
        keys: Base::Offset,
        reads: Reads::Own,
    };

    /// In a scenario whose first call is of this case.
    pub fn after(&self, first: &Case) -> Bend {
        let of = |scale: Scale| match scale {
            Scale::OfFirstCall => Scale::Value(first.softmax_scale()),
            scale => scale,
        };
        Bend { logits: of(self.logits), dq: of(self.dq), dk: of(self.dk), ..*self }
    }

    /// Does it make a forward wrong?
    pub fn bends_forward(&self) -> bool {
        let Bend { lse, delta, empty_as_zero, dq, dk, group, masked, .. } = Bend::NONE;
        Bend { lse, delta, empty_as_zero, dq, dk, group, masked, ..*self } != Bend::NONE
    }

    /// Does it make a backward wrong that is given a right forward?
    pub fn bends_backward(&self) -> bool {
        Bend { stored: Stored::Natural, empty_as_zero: false, ..*self } != Bend::NONE
    }
}

/// A set of gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gradients {
    /// dQ.
    pub dq: bool,
    /// dK.
    pub dk: bool,
    /// dV.
    pub dv: bool,
}

impl Gradients {
    /// All three.
    pub const ALL: Gradients = Gradients { dq: true, dk: true, dv: true };
    /// dQ alone.
    pub const DQ: Gradients = Gradients { dq: true, dk: false, dv: false };
    /// dK alone.
    pub const DK: Gradients = Gradients { dq: false, dk: true, dv: false };
    /// dV alone.
    pub const DV: Gradients = Gradients { dq: false, dk: false, dv: true };
    /// What a kernel over tiles of keys computes.
    pub const DKV: Gradients = Gradients { dq: false, dk: true, dv: true };

    /// Is this one among them?
    pub fn has(self, output: Output) -> bool {
        match output {
            Output::Dq => self.dq,
            Output::Dk => self.dk,
            Output::Dv => self.dv,
            _ => false,
        }
    }

    /// Their names.
    pub fn names(self) -> String {
        let all = [Output::Dq, Output::Dk, Output::Dv].into_iter().filter(|&output| self.has(output));
        let names: Vec<&str> = all.map(Output::name).collect();
        match names.as_slice() {
            [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
            names => names.concat(),
        }
    }
}

/// A statistic of a row (its LSE, its delta) as the backward reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The row's own.
    Own,
    /// Times this: 0 where it is forgotten.
    Times(f64),
    /// 0 in storage rows beyond the first max_seqlen.
    WithinLongest,
    /// Of the other row of each even and odd pair.
    RowFlipped,
    /// Of the row this many behind it in storage.
    RowBehind(isize),
    /// Of the row this many behind it in its sequence; beyond the last or the first, of that one.
    RowClamped(isize),
    /// Of the same row of the first tile of this many rows.
    FirstTile(usize),
    /// Of the same row of a sequence before or behind, in storage.
    Sequence(isize),
    /// Of another head.
    Head(OtherHead),
    /// Written by one layout and read by another.
    Layout {
        /// As it is written.
        written: Layout,
        /// As it is read.
        read: Layout,
    },
}

/// A head that is not the row's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherHead {
    /// The first.
    First,
    /// The one behind, round the end.
    Next,
    /// The one of the kv head's number.
    OfKvHead,
}

/// How statistics lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[token][head]`, all sequences packed.
    Tokens,
    /// `[head][token]`, all sequences packed.
    Heads,
    /// Of each sequence `[head][token]`, the sequences packed.
    HeadsOfSequence,
    /// `[storage row][head]`.
    Rows,
    /// `[head][storage row]`.
    HeadsOfRows,
    /// `[sequence][token up to max_seqlen][head]`.
    PaddedTokens,
    /// `[sequence][head][token up to max_seqlen]`.
    PaddedHeads,
}

/// What the forward stores as the LSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The natural logarithm of the softmax's denominator.
    Natural,
    /// The logarithm to base 2.
    Base2,
    /// Without the row's maximum.
    WithoutMax,
    /// The row sum in the place of its logarithm.
    WithoutLog,
}

impl Stored {
    /// What is stored of a row of this LSE, maximum and row sum.
    pub fn of(self, lse: f64, max: f64, sum: f64) -> f64 {
        match self {
            Stored::Natural => lse,
            Stored::Base2 => lse * std::f64::consts::LOG2_E,
            Stored::WithoutMax if max == f64::NEG_INFINITY => lse,
            Stored::WithoutMax => sum.ln(),
            Stored::WithoutLog => max + sum,
        }
    }
}

/// A mask that is not the case's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskBend {
    /// It is the case's.
    None,
    /// The right bound moved.
    Right(i64),
    /// The left bound moved.
    Left(i64),
    /// No left bound.
    LeftDropped,
    /// No right bound.
    RightDropped,
    /// The two bounds swapped.
    Swapped,
    /// The right bound of causal masks moved.
    Causal(i64),
    /// The diagonal from the bottom right to the top left.
    ToTopLeft,
    /// The diagonal from the top left to the bottom right.
    ToBottomRight,
}

impl MaskBend {
    /// What it makes of a mask.
    pub fn of(self, mask: Mask) -> Mask {
        let (left, right, align) = mask.window();
        let moved = |bound: Option<i64>, by: i64| bound.map(|bound| bound.saturating_add(by));
        let (left, right, align) = match self {
            MaskBend::None => return mask,
            MaskBend::Right(by) => (left, moved(right, by), align),
            MaskBend::Left(by) => (moved(left, by), right, align),
            MaskBend::LeftDropped => (None, right, align),
            MaskBend::RightDropped => (left, None, align),
            MaskBend::Swapped => (right, left, align),
            MaskBend::Causal(by) if (left, right) == (None, Some(0)) => (left, moved(right, by), align),
            MaskBend::Causal(_) => return mask,
            MaskBend::ToTopLeft => (left, right, Align::TopLeft),
            MaskBend::ToBottomRight => (left, right, Align::BottomRight),
        };
        Mask::Window { left, right, align }
    }
}

/// Where a bent mask holds, given that a kernel works tile by tile: `[queries, keys]` of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiles {
    /// Everywhere.
    All,
    /// In tiles that are partly visible; those that are not visible are not visited, and in those that
    /// are all visible no element is tested.
    Partial([usize; 2]),
    /// It decides which tiles are visited, inside of which the right mask holds.
    Visited([usize; 2]),
}

/// Rows behind the last key of a sequence that are taken for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    /// How many: one, or up to the end of a tile of so many.
    pub tile: usize,
    /// What they hold.
    pub content: Content,
    /// Do they count as keys where a mask is aligned?
    pub counted: bool,
}

/// What rows behind the last key hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros.
    Zeros,
    /// The first keys of the next sequence.
    NextSequence,
    /// Whatever follows in storage.
    Storage,
}

/// A softmax scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// The case's.
    Right,
    /// None.
    Missing,
    /// The case's, twice.
    Twice,
    /// Of d_qk rounded up to a multiple of this, where none is asked for.
    OfPadded(u32),
    /// Of d_qk, though another scale is asked for.
    Default,
    /// Of d_v.
    OfValues,
    /// That of the scenario's first call.
    OfFirstCall,
    /// This.
    Value(f64),
}

impl Scale {
    /// The scale of a case.
    pub fn of(self, case: &Case) -> f64 {
        let root = |dim: u32| 1.0 / f64::from(dim).sqrt();
        let right = case.softmax_scale();
        match self {
            Scale::Right => right,
            Scale::Missing => 1.0,
            Scale::Twice => right * right,
            Scale::OfPadded(_) if case.scale.is_some() => right,
            Scale::OfPadded(step) => root(case.dims.qk.next_multiple_of(step)),
            Scale::Default => root(case.dims.qk),
            Scale::OfValues => root(case.dims.v),
            Scale::OfFirstCall => right,
            Scale::Value(value) => value,
        }
    }
}

/// The kv head that a query head reads, and adds its gradients to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvHead {
    /// That of its group.
    OfGroup,
    /// Dealt out in turn.
    Dealt,
    /// The first.
    First,
}

impl KvHead {
    /// Of query head `head`.
    pub fn of(self, case: &Case, head: usize) -> usize {
        match self {
            KvHead::OfGroup => head / case.heads.group() as usize,
            KvHead::Dealt => head % case.heads.kv as usize,
            KvHead::First => 0,
        }
    }
}

/// Which query heads of a group contribute to which gradients of their kv head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The heads.
    pub heads: Heads,
    /// The gradients that lack the others.
    pub of: Gradients,
}

/// Some heads of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// All.
    All,
    /// The first.
    First,
    /// The last.
    Last,
}

/// Terms that sums lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which terms.
    pub what: Dropped,
    /// Tiles of queries, or of keys?
    pub side: TileSide,
    /// Rows of a tile.
    pub tile: usize,
    /// The gradients that lack them.
    pub of: Gradients,
}

/// The side that is cut into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileSide {
    /// Of queries.
    Queries,
    /// Of keys.
    Keys,
}

/// Which tiles are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The last, where it is not whole.
    PartialTile,
    /// The last.
    LastTile,
    /// The first.
    FirstTile,
    /// All but the last.
    AllButLast,
    /// All but the first.
    AllButFirst,
}

impl Lost {
    /// Is the pair of query `i` and key `j`, of a sequence of `m` and `n`, left out?
    pub fn has(&self, i: usize, j: usize, m: usize, n: usize) -> bool {
        let (at, len) = match self.side {
            TileSide::Queries => (i, m),
            TileSide::Keys => (j, n),
        };
        let (tile, last) = (at / self.tile, len.saturating_sub(1) / self.tile);
        match self.what {
            Dropped::PartialTile => tile == last && len % self.tile != 0,
            Dropped::LastTile => tile == last,
            Dropped::FirstTile => tile == 0,
            Dropped::AllButLast => tile != last,
            Dropped::AllButFirst => tile != 0,
        }
    }
}

/// Where a sequence begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// At its offset.
    Offset,
    /// At the prefix sum of the lengths before it.
    PrefixSum,
}

/// The memory that operands are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Each from its own tensor, by its own strides.
    Own,
    /// K by V's strides.
    KAsV,
    /// V by K's strides.
    VAsK,
    /// K and V by each other's strides.
    Swapped,
    /// dO by Q's strides.
    DoutAsQ,
    /// V from K's memory, and K from V's.
    Exchanged,
}
