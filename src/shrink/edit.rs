//! Edits of a case that touch several fields at once and keep them in step.

use std::ops::Range;

use crate::case::{Case, Heads, Item};

/// Which lengths of a sequence an edit touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Both,
    Q,
    Kv,
}

/// What can print on its own and can be set back on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `x[..]`, by the kv lengths following q.
    KvLengths,
    /// `x[..]`, by the q lengths following kv.
    QLengths,
    /// `/kv` heads, by fewer query heads.
    QHeads,
    /// `/kv` heads, by more kv heads.
    KvHeads,
    /// `/d_v`, by d_v following d_qk.
    DimV,
    /// `/d_v`, by d_qk following d_v.
    DimQk,
    /// A whole item.
    Item(Item),
}

/// The parts of `case` that print.
pub fn printed_parts(case: &Case) -> Vec<Part> {
    let mut parts = Vec::new();
    if case.q.lengths != case.kv.lengths {
        parts.extend([Part::QLengths, Part::KvLengths]);
    }
    if case.heads.q != case.heads.kv {
        parts.extend([Part::KvHeads, Part::QHeads]);
    }
    if case.dims.qk != case.dims.v {
        parts.extend([Part::DimQk, Part::DimV]);
    }
    parts.extend(Item::ALL.into_iter().filter(|item| item.text(case).is_some()).map(Part::Item));
    parts
}

/// Sets `part` back to its default.
pub fn reset(case: &mut Case, part: Part) {
    match part {
        Part::KvLengths => case.kv.lengths = case.q.lengths.clone(),
        Part::QLengths => case.q.lengths = case.kv.lengths.clone(),
        Part::QHeads => set_heads(case, case.heads.kv, case.heads.kv),
        Part::KvHeads => set_heads(case, case.heads.q, case.heads.q),
        Part::DimV => case.dims.v = case.dims.qk,
        Part::DimQk => case.dims.qk = case.dims.v,
        // Not by copying: a plain case has one head key.
        Part::Item(Item::HeadKeys) => case.head_keys = (0..case.heads.kv).collect(),
        Part::Item(item) => copy_item(case, &Case::new(vec![0; case.sequences()]), item),
    }
}

/// Gives `to` the value that `item` has in `from`; entries per sequence only where they fit.
pub fn copy_item(to: &mut Case, from: &Case, item: Item) {
    let fits = to.sequences() == from.sequences();
    match item {
        Item::Heads => set_heads(to, from.heads.q, from.heads.kv),
        Item::Dims => to.dims = from.dims,
        Item::DType => to.dtype = from.dtype,
        Item::Mask => to.mask = from.mask,
        Item::Scale => to.scale = from.scale,
        Item::Softcap => to.softcap = from.softcap,
        Item::Sink => to.sink = from.sink,
        Item::GapQ if fits => to.q.gaps.clone_from(&from.q.gaps),
        Item::GapKv if fits => to.kv.gaps.clone_from(&from.kv.gaps),
        Item::LeadQ => to.q.lead = from.q.lead,
        Item::LeadKv => to.kv.lead = from.kv.lead,
        Item::TailQ => to.q.tail = from.q.tail,
        Item::TailKv => to.kv.tail = from.kv.tail,
        Item::Data => to.data = from.data,
        Item::Dout => to.dout = from.dout,
        Item::Dead => to.dead = from.dead,
        Item::Keys if fits => to.keys.clone_from(&from.keys),
        Item::HeadKeys if to.heads.kv == from.heads.kv => to.head_keys.clone_from(&from.head_keys),
        Item::Seed => to.seed = from.seed,
        Item::GapQ | Item::GapKv | Item::Keys | Item::HeadKeys => {}
    }
}

/// Gives `to` every item that is printed in `from`.
pub fn give_items(to: &mut Case, from: &Case) {
    for item in Item::ALL.into_iter().filter(|item| item.text(from).is_some()) {
        copy_item(to, from, item);
    }
}

/// Gives `to` every item that is printed in `from` but not in `to`.
pub fn absorb_items(to: &mut Case, from: &Case) {
    for item in Item::ALL {
        if item.text(to).is_none() {
            copy_item(to, from, item);
        }
    }
}

/// Gives `to` the sequences of `from`, with their gaps and keys, behind its own.
pub fn append_sequences(to: &mut Case, from: &Case) {
    for (to, from) in [(&mut to.q, &from.q), (&mut to.kv, &from.kv)] {
        to.lengths.extend(&from.lengths);
        to.gaps.extend(&from.gaps);
    }
    to.keys.extend(&from.keys);
}

/// Sets the numbers of heads: kv heads go from the end, with their keys; new ones get their index.
pub fn set_heads(case: &mut Case, q: u32, kv: u32) {
    case.heads = Heads { q, kv };
    case.head_keys.truncate(kv as usize);
    case.head_keys.extend(case.head_keys.len() as u32..kv);
}

/// Removes the first `n` kv heads with their query heads and keys; not all of them.
pub fn drop_first_heads(case: &mut Case, n: u32) {
    let Heads { q, kv } = case.heads;
    let n = n.min(kv - 1);
    case.head_keys.drain(..n as usize);
    case.heads = Heads { q: q - n * (q / kv), kv: kv - n };
}

/// Removes sequences with their gaps and keys.
pub fn drop_sequences(case: &mut Case, range: Range<usize>) {
    let sides = [&mut case.q, &mut case.kv];
    let lists = sides.into_iter().flat_map(|side| [&mut side.lengths, &mut side.gaps]);
    lists.chain([&mut case.keys]).for_each(|list| drop(list.drain(range.clone())));
}

/// Keeps these sequences, in this order, with their gaps and keys.
pub fn keep_sequences(case: &mut Case, keep: &[usize]) {
    let sides = [&mut case.q, &mut case.kv];
    let lists = sides.into_iter().flat_map(|side| [&mut side.lengths, &mut side.gaps]);
    lists.chain([&mut case.keys]).for_each(|list| *list = keep.iter().map(|&i| list[i]).collect());
}

/// Makes one sequence of several neighbours, with the first one's key and the last one's gap.
pub fn merge_sequences(case: &mut Case, range: Range<usize>) {
    let last = range.end - 1;
    for side in [&mut case.q, &mut case.kv] {
        side.lengths[last] = side.lengths[range.clone()].iter().sum();
    }
    case.keys[last] = case.keys[range.start];
    drop_sequences(case, range.start..last);
}

/// Replaces a length of sequence `i` by what `f` makes of it.
pub fn map_length(case: &mut Case, i: usize, which: Which, f: impl Fn(u32) -> u32) {
    if which != Which::Kv {
        case.q.lengths[i] = f(case.q.lengths[i]);
    }
    if which != Which::Q {
        case.kv.lengths[i] = f(case.kv.lengths[i]);
    }
}

/// Moves at most `n` tokens of either side from sequence `i` to sequence `j`.
pub fn move_tokens(case: &mut Case, which: Which, i: usize, j: usize, n: u32) {
    let sides = [(Which::Q, &mut case.q), (Which::Kv, &mut case.kv)];
    for (_, side) in sides.into_iter().filter(|&(side, _)| which == side || which == Which::Both) {
        let moved = n.min(side.lengths[i]);
        side.lengths[i] -= moved;
        side.lengths[j] += moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shrink::pool::Pool;

    fn case(text: &str) -> Case {
        text.parse().expect(text)
    }

    fn edited(text: &str, edit: impl FnOnce(&mut Case)) -> String {
        let mut case = case(text);
        edit(&mut case);
        case.validate().expect("an edit keeps a case valid");
        case.to_string()
    }

    #[test]
    fn a_dropped_sequence_takes_its_gaps_and_leaves_the_other_keys() {
        let after = edited("[1,2,3]x[4,5,6] gap-q(7,8,9) gap-kv(0,1,0)", |c| drop_sequences(c, 1..2));
        assert_eq!(after, "[1,3]x[4,6] gap-q(7,9) keys=0,2");
        assert_eq!(edited("[1,2,3]", |c| drop_sequences(c, 0..3)), "[]");
        assert_eq!(
            edited("[1,2,3] gap-q(7,8,9)", |c| keep_sequences(c, &[0, 2])),
            "[1,3] gap-q(7,9) keys=0,2"
        );
        assert_eq!(edited("[1,2,3] gap-q(7,8,9)", |c| merge_sequences(c, 0..2)), "[3,3] gap-q(8,9) keys=0,2");
    }

    #[test]
    fn dropped_heads_take_their_keys() {
        assert_eq!(edited("[] h8/4", |c| drop_first_heads(c, 3)), "[] h2/1 head-keys=3");
        assert_eq!(edited("[] h8/4", |c| drop_first_heads(c, 9)), "[] h2/1 head-keys=3");
        assert_eq!(edited("[] h8/4 head-keys=5,6,7,8", |c| set_heads(c, 2, 2)), "[] h2 head-keys=5,6");
        assert_eq!(edited("[] h8/2", |c| reset(c, Part::KvHeads)), "[] h8");
        assert_eq!(edited("[] h8/2", |c| reset(c, Part::QHeads)), "[] h2");
    }

    #[test]
    fn a_case_takes_over_what_another_says() {
        let other = case("[3]x[4] h4/2 causal gap-kv(1) seed=5");
        assert_eq!(
            edited("[1] d8 seed=2", |c| absorb_items(c, &other)),
            "[1] h4/2 d8 causal gap-kv(1) seed=2"
        );
        assert_eq!(
            edited("[1] seed=2", |c| append_sequences(c, &other)),
            "[1,3]x[1,4] gap-kv(0,1) keys=0,0 seed=2"
        );
    }

    #[test]
    fn tokens_move_between_sequences() {
        assert_eq!(edited("[5,1]", |c| move_tokens(c, Which::Both, 0, 1, 9)), "[0,6]");
        assert_eq!(edited("[5,1]", |c| move_tokens(c, Which::Kv, 0, 1, 2)), "[5,1]x[3,3]");
    }

    #[test]
    fn a_part_that_is_reset_prints_no_more() {
        for scenario in Pool::new(21).scenarios(200) {
            for before in scenario.calls {
                for part in printed_parts(&before) {
                    let mut after = before.clone();
                    reset(&mut after, part);
                    assert!(!printed_parts(&after).contains(&part), "{part:?} of {before}");
                    assert!(after.printed_items() < before.printed_items(), "{part:?} of {before}");
                    after.validate().expect("still valid");
                }
            }
        }
    }
}
