//! Which keys the rows of a sequence see in a kernel whose mask is bent.

use std::ops::Range;

use super::bent::{Bend, MaskBend, Tiles};
use crate::case::{Align, Mask};

/// The keys that rows see, as they should and as they do.
pub struct Sight {
    right: Vec<Range<usize>>,
    bent: Vec<Range<usize>>,
    tiles: Tiles,
    /// Of each tile, row after row of them.
    kinds: Vec<Kind>,
    /// Tiles in a row of them.
    across: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Empty,
    Partial,
    Full,
}

/// Lengths of a sequence, and the rows that are taken for its keys.
#[derive(Clone, Copy)]
pub struct Lengths {
    /// Queries.
    pub m: usize,
    /// Keys.
    pub n: usize,
    /// Keys and the rows behind them that are taken for keys.
    pub read: usize,
    /// Keys as the alignment of the mask counts them.
    pub counted: usize,
}

impl Sight {
    /// Of a sequence.
    pub fn new(mask: Mask, bend: &Bend, lengths: Lengths) -> Sight {
        let Lengths { m, n, read, counted } = lengths;
        let right: Vec<_> = (0..m).map(|i| mask.visible_keys(i, m, n)).collect();
        let wrong = bend.mask.of(mask);
        let bent: Vec<_> = match bend.mask == MaskBend::None && read == n {
            true => right.clone(),
            false => (0..m).map(|i| window(wrong, i, m, counted, read)).collect(),
        };
        let (kinds, across) = match bend.tiles {
            Tiles::All => (Vec::new(), 0),
            Tiles::Partial(tile) => (kinds(&right, tile, n), n.div_ceil(tile[1])),
            Tiles::Visited(tile) => (kinds(&bent, tile, n), n.div_ceil(tile[1])),
        };
        Sight { right, bent, tiles: bend.tiles, kinds, across }
    }

    /// Does query `i` see key `j`, as it should?
    pub fn right(&self, i: usize, j: usize) -> bool {
        self.right[i].contains(&j)
    }

    /// Does it, as the kernel is bent?
    pub fn bent(&self, i: usize, j: usize) -> bool {
        let kind = |[rows, keys]: [usize; 2]| {
            self.kinds.get(i / rows * self.across + j / keys).copied().unwrap_or(Kind::Partial)
        };
        match self.tiles {
            Tiles::All => self.bent[i].contains(&j),
            Tiles::Partial(tile) => match kind(tile) {
                Kind::Empty => false,
                Kind::Full => true,
                Kind::Partial => self.bent[i].contains(&j),
            },
            Tiles::Visited(tile) => self.right(i, j) && kind(tile) != Kind::Empty,
        }
    }
}

/// The keys of `0..read` that query `i` sees where the diagonal is aligned as if there were `counted`.
fn window(mask: Mask, i: usize, m: usize, counted: usize, read: usize) -> Range<usize> {
    let (left, right, align) = mask.window();
    let shift = if align == Align::TopLeft { 0 } else { counted as i64 - m as i64 };
    let diagonal = i as i64 + shift;
    let first = left.map_or(0, |left| diagonal.saturating_sub(left).clamp(0, read as i64));
    let end =
        right.map_or(read as i64, |right| diagonal.saturating_add(right).saturating_add(1).min(read as i64));
    first as usize..(end.max(first)) as usize
}

fn kinds(ranges: &[Range<usize>], [rows, keys]: [usize; 2], n: usize) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for tile in ranges.chunks(rows) {
        for first in (0..n).step_by(keys) {
            let (end, whole) = (first + keys, tile.len() == rows && first + keys <= n);
            let sees = |seen: &Range<usize>| seen.start.max(first) < seen.end.min(end);
            let all = |seen: &Range<usize>| seen.start <= first && seen.end >= end;
            kinds.push(match () {
                () if whole && tile.iter().all(all) => Kind::Full,
                () if tile.iter().any(sees) => Kind::Partial,
                () => Kind::Empty,
            });
        }
    }
    kinds
}
