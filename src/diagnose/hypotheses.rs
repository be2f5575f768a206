//! The table of hypotheses: what would make the outputs wrong in just this way.
//!
//! A hypothesis is a fault that has a name; its variants are the ways in which it occurs (which layout,
//! which tile, which gradient). Each variant is a [`Bend`] of the fp64 kernel, or a change of its finished
//! gradients, or both. The order is that of simplicity: of two that explain the same, the first leads.

use super::after::{After, Columns, Left};
use super::bent::{
    Base, Bend, Content, Dropped, Extra, Gradients, Group, Heads, KvHead, Layout, Lost, MaskBend, OtherHead,
    Reads, Scale, Statistic, Stored, TileSide, Tiles,
};

/// A fault that has a name.
pub struct Hypothesis {
    /// Its name.
    pub name: &'static str,
    /// Its class in the taxonomy of bugs.
    pub class: &'static str,
    /// What is wrong.
    pub says: &'static str,
    /// The ways in which it occurs.
    pub variants: fn() -> Vec<Variant>,
}

/// One way in which a fault occurs.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What sets it apart from the others; may be empty.
    pub detail: String,
    /// What is bent.
    pub bend: Bend,
    /// What is done to the finished gradients.
    pub after: Option<After>,
}

/// Rows of a tile of the kernels in use.
const TILES: [usize; 4] = [64, 128, 32, 16];
/// Tiles of queries and keys.
const SHAPES: [[usize; 2]; 6] = [[64, 64], [128, 64], [64, 128], [128, 128], [32, 32], [16, 16]];
/// What a kernel of a backward computes: all, or dQ in one kernel and dK and dV in another.
const KERNELS: [Gradients; 3] = [Gradients::ALL, Gradients::DQ, Gradients::DKV];
/// What one product or kernel computes.
const PRODUCTS: [Gradients; 5] =
    [Gradients::ALL, Gradients::DQ, Gradients::DK, Gradients::DV, Gradients::DKV];

fn one(bend: Bend) -> Vec<Variant> {
    vec![Variant { detail: String::new(), bend, after: None }]
}

fn named(detail: impl Into<String>, bend: Bend) -> Variant {
    Variant { detail: detail.into(), bend, after: None }
}

fn after(detail: impl Into<String>, after: After) -> Variant {
    Variant { detail: detail.into(), bend: Bend::NONE, after: Some(after) }
}

fn lse(lse: Statistic) -> Bend {
    Bend { lse, ..Bend::NONE }
}

fn delta(delta: Statistic) -> Bend {
    Bend { delta, ..Bend::NONE }
}

/// A transposition: `[token][head]` read as `[head][token]`, of each sequence, of the batch, of the
/// storage, or padded; and the reverse.
fn transposed(of: fn(Statistic) -> Bend) -> Vec<Variant> {
    use Layout::{Heads, HeadsOfRows, HeadsOfSequence, PaddedHeads, PaddedTokens, Rows, Tokens};
    let pairs = [
        (Tokens, HeadsOfSequence, "of a sequence, [token][head] read as [head][token]"),
        (HeadsOfSequence, Tokens, "of a sequence, [head][token] read as [token][head]"),
        (Tokens, Heads, "of the batch, [token][head] read as [head][token]"),
        (Heads, Tokens, "of the batch, [head][token] read as [token][head]"),
        (Rows, HeadsOfRows, "of the storage, [row][head] read as [head][row]"),
        (HeadsOfRows, Rows, "of the storage, [head][row] read as [row][head]"),
        (Tokens, PaddedHeads, "[token][head] read as [sequence][head][max_seqlen]"),
        (PaddedHeads, Tokens, "[sequence][head][max_seqlen] read as [token][head]"),
        (Heads, PaddedHeads, "[head][token] read as [sequence][head][max_seqlen]"),
        (PaddedHeads, Heads, "[sequence][head][max_seqlen] read as [head][token]"),
        (PaddedTokens, PaddedHeads, "[sequence][max_seqlen][head] read as [sequence][head][max_seqlen]"),
        (PaddedHeads, PaddedTokens, "[sequence][head][max_seqlen] read as [sequence][max_seqlen][head]"),
    ];
    let variant = |(written, read, detail)| named(detail, of(Statistic::Layout { written, read }));
    pairs.into_iter().map(variant).collect()
}

fn offsets(of: fn(Statistic) -> Bend) -> Vec<Variant> {
    use Layout::{PaddedTokens, Rows, Tokens};
    let pairs = [
        (Rows, Tokens, "written at padded offsets, read at prefix sums"),
        (Tokens, Rows, "written at prefix sums, read at padded offsets"),
        (Tokens, PaddedTokens, "written packed, read as padded to max_seqlen"),
        (PaddedTokens, Tokens, "written as padded to max_seqlen, read packed"),
    ];
    let variant = |(written, read, detail)| named(detail, of(Statistic::Layout { written, read }));
    pairs.into_iter().map(variant).collect()
}

fn first_tile(of: fn(Statistic) -> Bend) -> Vec<Variant> {
    TILES.map(|tile| named(format!("tiles of {tile}"), of(Statistic::FirstTile(tile)))).into()
}

fn neighbour_row(of: fn(Statistic) -> Bend) -> Vec<Variant> {
    vec![
        named("of the next row", of(Statistic::RowBehind(1))),
        named("of the row before", of(Statistic::RowBehind(-1))),
        named("of the next row, inside a sequence", of(Statistic::RowClamped(1))),
        named("of the row before, inside a sequence", of(Statistic::RowClamped(-1))),
        named("even and odd rows exchanged", of(Statistic::RowFlipped)),
    ]
}

fn other_sequence(of: fn(Statistic) -> Bend) -> Vec<Variant> {
    vec![
        named("of the sequence before", of(Statistic::Sequence(-1))),
        named("of the next sequence", of(Statistic::Sequence(1))),
        named("of the first sequence", of(Statistic::Sequence(isize::MIN))),
    ]
}

fn other_head(of: fn(Statistic) -> Bend) -> Vec<Variant> {
    vec![
        named("of the first head", of(Statistic::Head(OtherHead::First))),
        named("of the next head", of(Statistic::Head(OtherHead::Next))),
        named("of the head of the kv head's number", of(Statistic::Head(OtherHead::OfKvHead))),
    ]
}

/// A scale in the place of the right one, of the logits, of dQ, of dK, of both, of all.
fn scales(scale: Scale) -> Vec<Variant> {
    let bend = |logits: bool, dq: bool, dk: bool| {
        let of = |bent: bool| if bent { scale } else { Scale::Right };
        Bend { logits: of(logits), dq: of(dq), dk: of(dk), ..Bend::NONE }
    };
    vec![
        named("the logits'", bend(true, false, false)),
        named("dQ's", bend(false, true, false)),
        named("dK's", bend(false, false, true)),
        named("dQ's and dK's", bend(false, true, true)),
        named("all", bend(true, true, true)),
    ]
}

/// A bent mask: everywhere, or in tiles that are partly visible; of all gradients, or of one kernel's.
fn masks(bends: &[(MaskBend, &str)]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for masked in KERNELS {
        for &(mask, says) in bends {
            let whose =
                if masked == Gradients::ALL { String::new() } else { format!(", of {}", masked.names()) };
            let bend = Bend { mask, masked, ..Bend::NONE };
            variants.push(named(format!("{says}{whose}"), bend));
            for shape in SHAPES {
                let detail = format!("{says}, in partly visible tiles of {} x {}{whose}", shape[0], shape[1]);
                variants.push(named(detail, Bend { tiles: Tiles::Partial(shape), ..bend }));
            }
        }
    }
    variants
}

/// A loop over tiles that ends, or begins, a row off.
fn loops() -> Vec<Variant> {
    let mut variants = Vec::new();
    for (mask, says) in [(MaskBend::Right(-1), "right"), (MaskBend::Left(-1), "left")] {
        for masked in KERNELS {
            for shape in SHAPES {
                let detail =
                    format!("the {says} bound, tiles of {} x {}, {}", shape[0], shape[1], masked.names());
                let tiles = Tiles::Visited(shape);
                variants.push(named(detail, Bend { mask, masked, tiles, ..Bend::NONE }));
            }
        }
    }
    variants
}

fn lost(whats: &[(Dropped, &str)]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for side in [TileSide::Queries, TileSide::Keys] {
        for of in PRODUCTS {
            for tile in TILES {
                for &(what, says) in whats {
                    let rows = if side == TileSide::Queries { "queries" } else { "keys" };
                    let detail = format!("{says} {tile} {rows}, {}", of.names());
                    let lost = Some(Lost { what, side, tile, of });
                    variants.push(named(detail, Bend { lost, ..Bend::NONE }));
                }
            }
        }
    }
    variants
}

fn extra(content: Content, tiles: &[usize]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for &tile in tiles {
        for counted in [true, false] {
            let rows = if tile == 1 { "one row".into() } else { format!("up to a tile of {tile}") };
            let counts = if counted { "" } else { ", not counted in the mask's alignment" };
            let extra = Some(Extra { tile, content, counted });
            variants.push(named(format!("{rows}{counts}"), Bend { extra, ..Bend::NONE }));
        }
    }
    variants
}

fn groups() -> Vec<Variant> {
    let mut variants = Vec::new();
    for (heads, says) in [(Heads::Last, "last"), (Heads::First, "first")] {
        for of in [Gradients::DKV, Gradients::DK, Gradients::DV] {
            let detail = format!("the {says}, {}", of.names());
            variants.push(named(detail, Bend { group: Group { heads, of }, ..Bend::NONE }));
        }
    }
    variants
}

fn prefix_sums() -> Vec<Variant> {
    let keys = Bend { keys: Base::PrefixSum, ..Bend::NONE };
    let both = Some(After::AtPrefixSums(Gradients::DKV));
    let stored = |of: Gradients| after(format!("{} stored there", of.names()), After::AtPrefixSums(of));
    let mut variants: Vec<Variant> = KERNELS.map(stored).into();
    variants.push(named("keys are read there", keys));
    variants.push(Variant {
        detail: "keys are read, dK and dV stored there".into(),
        bend: keys,
        after: both,
    });
    variants
}

fn columns() -> Vec<Variant> {
    let mut variants = Vec::new();
    for left in [Left::Zero, Left::Unwritten] {
        let says = if left == Left::Zero { "left zero" } else { "not written" };
        let mut add = |of: Gradients, from: Columns, which: String| {
            variants
                .push(after(format!("{} {which}, {says}", of.names()), After::Columns { of, from, left }));
        };
        add(Gradients::DV, Columns::OfKeys, "beyond d_qk".into());
        for of in [Gradients::DK, Gradients::DQ] {
            add(of, Columns::OfValues, "beyond d_v".into());
        }
        for of in PRODUCTS {
            for width in [64, 128] {
                add(of, Columns::Beyond(width), format!("beyond {width}"));
            }
            for step in [16, 32, 64] {
                add(of, Columns::Multiple(step), format!("beyond the last multiple of {step}"));
            }
        }
    }
    variants
}

/// Rows as wide as those of the other operand, over the heads and rows that follow.
fn spills() -> Vec<Variant> {
    let of = |of: Gradients| {
        let detail = format!("{} stored as wide as the other operand, over what follows", of.names());
        after(detail, After::Spill(of))
    };
    [Gradients::DV, Gradients::DK, Gradients::DQ].map(of).into()
}

/// Every hypothesis, the simplest first.
pub static HYPOTHESES: &[Hypothesis] = &[
    Hypothesis {
        name: "lse-transposed",
        class: "STATS",
        says: "the softmax statistics (LSE) are transposed between rows and heads",
        variants: || transposed(lse),
    },
    Hypothesis {
        name: "lse-at-other-offsets",
        class: "STATS",
        says: "the LSE is written at one kind of offsets and read at another",
        variants: || offsets(lse),
    },
    Hypothesis {
        name: "lse-of-first-tile",
        class: "STATS",
        says: "every tile of queries reads the LSE of its sequence's first tile",
        variants: || first_tile(lse),
    },
    Hypothesis {
        name: "lse-of-neighbour-row",
        class: "STATS",
        says: "rows read the LSE of a neighbour",
        variants: || neighbour_row(lse),
    },
    Hypothesis {
        name: "lse-of-other-sequence",
        class: "STATS",
        says: "rows read the LSE of another sequence",
        variants: || other_sequence(lse),
    },
    Hypothesis {
        name: "lse-of-other-head",
        class: "STATS",
        says: "rows read the LSE of another head",
        variants: || other_head(lse),
    },
    Hypothesis {
        name: "lse-without-maximum",
        class: "LSE-CONV",
        says: "the LSE is stored without the row's maximum, or without the logarithm",
        variants: || {
            vec![
                named("without the maximum", Bend { stored: Stored::WithoutMax, ..Bend::NONE }),
                named("without the logarithm", Bend { stored: Stored::WithoutLog, ..Bend::NONE }),
            ]
        },
    },
    Hypothesis {
        name: "lse-missing",
        class: "STATS",
        says: "the backward takes the LSE for 0",
        variants: || one(lse(Statistic::Times(0.0))),
    },
    Hypothesis {
        name: "delta-buffer-short",
        class: "WS-SIZE",
        says: "delta is zero in the storage rows beyond the first max_seqlen",
        variants: || one(delta(Statistic::WithinLongest)),
    },
    Hypothesis {
        name: "delta-missing",
        class: "DROP-FEATURE",
        says: "dS = P dP: delta is forgotten",
        variants: || one(delta(Statistic::Times(0.0))),
    },
    Hypothesis {
        name: "delta-sign",
        class: "STATS",
        says: "delta is added, or counted twice",
        variants: || {
            vec![
                named("added", delta(Statistic::Times(-1.0))),
                named("counted twice", delta(Statistic::Times(2.0))),
            ]
        },
    },
    Hypothesis {
        name: "delta-of-neighbour-row",
        class: "STATS",
        says: "rows read the delta of a neighbour",
        variants: || neighbour_row(delta),
    },
    Hypothesis {
        name: "delta-of-first-tile",
        class: "STATS",
        says: "every tile of queries reads the delta of its sequence's first tile",
        variants: || first_tile(delta),
    },
    Hypothesis {
        name: "delta-of-other-sequence",
        class: "STATS",
        says: "rows read the delta of another sequence",
        variants: || other_sequence(delta),
    },
    Hypothesis {
        name: "delta-of-other-head",
        class: "STATS",
        says: "rows read the delta of another head",
        variants: || other_head(delta),
    },
    Hypothesis {
        name: "delta-transposed",
        class: "STATS",
        says: "delta is transposed between rows and heads",
        variants: || transposed(delta),
    },
    Hypothesis {
        name: "delta-at-other-offsets",
        class: "STATS",
        says: "delta is written at one kind of offsets and read at another",
        variants: || offsets(delta),
    },
    Hypothesis {
        name: "scale-of-first-call",
        class: "CACHE",
        says: "a later call runs with the softmax scale of the first",
        variants: || scales(Scale::OfFirstCall),
    },
    Hypothesis {
        name: "scale-missing",
        class: "SCALE",
        says: "the softmax scale is left out",
        variants: || scales(Scale::Missing),
    },
    Hypothesis {
        name: "scale-of-padded-dim",
        class: "SCALE",
        says: "the softmax scale comes from d_qk rounded up",
        variants: || {
            let of = |step: u32| {
                scales(Scale::OfPadded(step)).into_iter().map(move |variant| Variant {
                    detail: format!("{}, up to a multiple of {step}", variant.detail),
                    ..variant
                })
            };
            [64, 32, 128, 16].into_iter().flat_map(of).collect()
        },
    },
    Hypothesis {
        name: "lse-base",
        class: "LSE-CONV",
        says: "the LSE is taken for one of another base",
        variants: || {
            let (to_e, to_2) = (std::f64::consts::LN_2, std::f64::consts::LOG2_E);
            let both = Bend { stored: Stored::Base2, ..lse(Statistic::Times(to_e)) };
            vec![
                named("the natural LSE read as one of base 2", lse(Statistic::Times(to_e))),
                named("taken to base 2 twice", lse(Statistic::Times(to_2))),
                named("stored to base 2", Bend { stored: Stored::Base2, ..Bend::NONE }),
                named("stored to base 2, and read so", both),
            ]
        },
    },
    Hypothesis {
        name: "scale-twice",
        class: "SCALE",
        says: "the softmax scale is applied twice",
        variants: || scales(Scale::Twice),
    },
    Hypothesis {
        name: "scale-ignored",
        class: "SCALE",
        says: "the softmax scale is 1/sqrt(d_qk), or 1/sqrt(d_v), whatever was asked for",
        variants: || [scales(Scale::Default), scales(Scale::OfValues)].concat(),
    },
    Hypothesis {
        name: "window-left-dropped",
        class: "WINDOW",
        says: "a window's left bound is ignored",
        variants: || masks(&[(MaskBend::LeftDropped, "ignored")]),
    },
    Hypothesis {
        name: "mask-in-other-corner",
        class: "SQ!=SK",
        says: "the mask is aligned to the other corner",
        variants: || {
            masks(&[
                (MaskBend::ToTopLeft, "to the top left"),
                (MaskBend::ToBottomRight, "to the bottom right"),
            ])
        },
    },
    Hypothesis {
        name: "causal-off-by-one",
        class: "WINDOW",
        says: "a query sees one key more, or one less, ahead",
        variants: || {
            masks(&[
                (MaskBend::Right(1), "one more"),
                (MaskBend::Right(-1), "one less"),
                (MaskBend::Causal(1), "one more, in causal masks"),
                (MaskBend::Causal(-1), "one less, in causal masks"),
            ])
        },
    },
    Hypothesis {
        name: "window-right-dropped",
        class: "WINDOW",
        says: "a window's right bound, or the causal mask, is ignored",
        variants: || masks(&[(MaskBend::RightDropped, "ignored")]),
    },
    Hypothesis {
        name: "window-left-off-by-one",
        class: "WINDOW",
        says: "a query sees one key more, or one less, behind",
        variants: || masks(&[(MaskBend::Left(1), "one more"), (MaskBend::Left(-1), "one less")]),
    },
    Hypothesis {
        name: "window-swapped",
        class: "WINDOW",
        says: "a window's bounds are swapped",
        variants: || masks(&[(MaskBend::Swapped, "swapped")]),
    },
    Hypothesis {
        name: "partial-tile-dropped",
        class: "TAIL",
        says: "the last, partial tile of rows does not contribute",
        variants: || lost(&[(Dropped::PartialTile, "the partial tile of")]),
    },
    Hypothesis {
        name: "tile-dropped",
        class: "TAIL",
        says: "one tile of rows does not contribute",
        variants: || lost(&[(Dropped::LastTile, "the last"), (Dropped::FirstTile, "the first")]),
    },
    Hypothesis {
        name: "tiles-overwritten",
        class: "TAIL",
        says: "a sum over tiles holds one tile only",
        variants: || {
            lost(&[(Dropped::AllButLast, "all but the last"), (Dropped::AllButFirst, "all but the first")])
        },
    },
    Hypothesis {
        name: "tile-loop-short",
        class: "SQ!=SK",
        says: "the loop over tiles leaves out a tile of which one row or column is visible",
        variants: loops,
    },
    Hypothesis {
        name: "neighbour-seen",
        class: "PAD-POISON",
        says: "rows of the next sequence are seen as keys",
        variants: || extra(Content::NextSequence, &[1, 64, 128, 32, 16]),
    },
    Hypothesis {
        name: "tail-unmasked",
        class: "TAIL",
        says: "the zeros that fill the last tile of keys are seen as keys",
        variants: || extra(Content::Zeros, &[64, 128, 32, 16]),
    },
    Hypothesis {
        name: "row-behind-seen",
        class: "PAD-POISON",
        says: "what lies in storage behind the last key is seen as a key",
        variants: || extra(Content::Storage, &[1, 64, 128, 32, 16]),
    },
    Hypothesis {
        name: "group-one-head",
        class: "GQA",
        says: "the gradient of a kv head holds one query head of its group",
        variants: groups,
    },
    Hypothesis {
        name: "kv-head-dealt",
        class: "GQA",
        says: "query heads read the wrong kv head",
        variants: || {
            vec![
                named("h % h_kv", Bend { kv_head: KvHead::Dealt, ..Bend::NONE }),
                named("the first", Bend { kv_head: KvHead::First, ..Bend::NONE }),
            ]
        },
    },
    Hypothesis {
        name: "at-prefix-sums",
        class: "GAP",
        says: "a sequence is looked for at the prefix sum of lengths, not at its offset",
        variants: prefix_sums,
    },
    Hypothesis {
        name: "strides-exchanged",
        class: "STRIDE",
        says: "an operand is read by another's strides",
        variants: || {
            let of = |reads: Reads, says: &str| named(says, Bend { reads, ..Bend::NONE });
            vec![
                of(Reads::Exchanged, "K and V exchanged"),
                of(Reads::Swapped, "K by V's and V by K's"),
                of(Reads::KAsV, "K by V's"),
                of(Reads::VAsK, "V by K's"),
                of(Reads::DoutAsQ, "dO by Q's"),
            ]
        },
    },
    Hypothesis {
        name: "columns-lost",
        class: "HEAD-DIM",
        says: "some columns of a gradient are lost",
        variants: || [columns(), spills()].concat(),
    },
    Hypothesis {
        name: "workspace-stale",
        class: "STALE-WS",
        says: "a gradient is added to what the call before left",
        variants: || {
            let one = |of: Gradients| after(of.names().to_string(), After::Stale(of));
            [Gradients::DQ, Gradients::DK, Gradients::DV, Gradients::DKV, Gradients::ALL].map(one).into()
        },
    },
    Hypothesis {
        name: "constant-factor",
        class: "SCALE",
        says: "a gradient is a constant factor off",
        variants: || vec![after("", After::Factor)],
    },
];
