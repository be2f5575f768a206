//! How many sequences, how long on either side, and the dead rows around them.
//!
//! A length is drawn among the values that the rest of the budget still pays for, so nothing is
//! drawn and thrown away. Zeros are laid over the finished lists: they only make a case cheaper.

use arbitrary::{Result, Unstructured};

use super::draw::{between, chance, one_of, weighted};
use crate::case::Side;

/// Lengths below any tile, where loops run once or a row is the whole sequence.
const SMALL: [u32; 6] = [1, 2, 3, 5, 7, 8];

/// The edges of the tiles in use (16 to 128 rows, and unions of them); drawn with both neighbours.
pub(super) const EDGES: [u32; 8] = [16, 32, 64, 128, 192, 256, 384, 512];

/// Powers of two beyond the edges; drawn with both neighbours.
const POWERS: [u32; 8] = [4, 8, 16, 32, 64, 256, 1024, 2048];

/// What a partition may still spend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purse {
    /// Tokens left, of the longer side.
    pub tokens: u32,
    /// Scores left: (query, key) pairs of one head.
    pub pairs: u64,
    /// No length is drawn above this.
    pub longest: u32,
}

/// A query or key row is charged at least this many scores: reading and rounding it costs as much.
pub(super) const ROW_COST: u64 = 32;

/// What a sequence of these lengths is charged, in scores.
pub(super) fn sequence_cost(q: u32, kv: u32) -> u64 {
    let (q, kv) = (u64::from(q), u64::from(kv));
    (q * kv).max(ROW_COST * q.max(kv))
}

impl Purse {
    /// The part of the purse that one sequence may take when `left` are still to come, itself
    /// included: an even share, or all but one token for each of the others.
    fn part(self, left: u32, even: bool) -> Purse {
        let others = left.saturating_sub(1);
        if even {
            return Purse { tokens: self.tokens / left, pairs: self.pairs / u64::from(left), ..self };
        }
        Purse {
            tokens: self.tokens.saturating_sub(others),
            pairs: self.pairs.saturating_sub(ROW_COST * u64::from(others)),
            ..self
        }
    }

    /// The longest sequence with as many queries as keys.
    fn tied(self) -> u32 {
        self.any().min(self.pairs.isqrt() as u32)
    }

    /// The longest sequence of one side that goes with one token of the other.
    fn any(self) -> u32 {
        let rows = (self.pairs / ROW_COST).min(u64::from(u32::MAX)) as u32;
        self.longest.min(self.tokens).min(rows)
    }

    /// The longest sequence that goes with `other` tokens of the other side.
    fn beside(self, other: u32) -> u32 {
        let rows = self.pairs / u64::from(other).max(ROW_COST);
        self.longest.min(self.tokens).min(rows.min(u64::from(u32::MAX)) as u32)
    }

    fn pay(&mut self, q: u32, kv: u32) {
        self.tokens -= q.max(kv);
        self.pairs -= sequence_cost(q, kv);
    }
}

/// How kv lengths go with q lengths.
#[derive(Clone, Copy, PartialEq)]
enum Relation {
    Alike,
    /// The same lengths one place on: equal totals, which a mix-up of the two offset arrays survives.
    Rotated,
    Independent,
    QLonger,
    KvLonger,
}

/// Where a side has zero-length sequences.
#[derive(Clone, Copy, PartialEq)]
enum Zeros {
    Nowhere,
    First,
    Middle,
    Last,
    Several,
    Everywhere,
}

/// One length from 1 to `limit`, with a taste for edges; 0 where the limit is 0.
fn length(u: &mut Unstructured, limit: u32) -> Result<u32> {
    #[derive(Clone, Copy)]
    enum Kind {
        Small,
        Edge,
        Power,
        Blocks,
        Uniform,
    }
    let kinds =
        [(40, Kind::Small), (110, Kind::Edge), (26, Kind::Power), (26, Kind::Blocks), (54, Kind::Uniform)];
    let kind = weighted(u, &kinds)?;
    let draw = u.arbitrary::<u16>()?;
    let pick = |n: usize| (usize::from(draw) * n) >> 16;
    // Largest table entries that fit with their upper neighbour; the tables are sorted.
    let near = |table: &[u32]| {
        let fitting = table.iter().filter(|&&edge| edge < limit).count();
        (fitting > 0).then(|| {
            let at = pick(3 * fitting);
            table[at / 3] + (at % 3) as u32 - 1
        })
    };
    let drawn = match kind {
        Kind::Small => Some(SMALL[pick(SMALL.len())]),
        Kind::Edge => near(&EDGES),
        Kind::Power => near(&POWERS),
        Kind::Blocks => (limit >= 128).then(|| 128 * (1 + pick(limit as usize / 128) as u32)),
        Kind::Uniform => None,
    };
    Ok(drawn.unwrap_or_else(|| 1 + pick(limit as usize) as u32).min(limit))
}

/// The lengths of one sequence that `purse` pays for.
fn sequence(u: &mut Unstructured, purse: Purse, relation: Relation, longest_q: u32) -> Result<(u32, u32)> {
    match relation {
        Relation::Alike | Relation::Rotated => {
            let s = length(u, purse.tied().min(longest_q))?;
            Ok((s, s))
        }
        Relation::Independent => {
            let q = length(u, purse.any().min(longest_q))?;
            Ok((q, length(u, purse.beside(q))?))
        }
        Relation::QLonger => {
            let q = length(u, purse.any().min(longest_q))?;
            Ok((q, length(u, purse.beside(q).min((q / 8).max(1)))?))
        }
        Relation::KvLonger => {
            let kv = length(u, purse.any())?;
            Ok((length(u, purse.beside(kv).min((kv / 8).max(1)).min(longest_q))?, kv))
        }
    }
}

fn count(u: &mut Unstructured) -> Result<u32> {
    let classes = [(56, (1, 1)), (48, (2, 2)), (88, (3, 8)), (8, (0, 0)), (34, (9, 32)), (22, (33, 130))];
    let (low, high) = weighted(u, &classes)?;
    between(u, low, high)
}

fn zeros(u: &mut Unstructured) -> Result<Zeros> {
    let table = [
        (172, Zeros::Nowhere),
        (16, Zeros::First),
        (20, Zeros::Middle),
        (16, Zeros::Last),
        (18, Zeros::Several),
        (14, Zeros::Everywhere),
    ];
    weighted(u, &table)
}

fn lay_zeros(lengths: &mut [u32], zeros: Zeros, stride: u8) {
    let n = lengths.len();
    if n == 0 {
        return;
    }
    match zeros {
        Zeros::Nowhere => {}
        Zeros::First => lengths[0] = 0,
        Zeros::Middle => lengths[n / 2] = 0,
        Zeros::Last => lengths[n - 1] = 0,
        Zeros::Several => {
            let step = 2 + usize::from(stride) % 3;
            lengths.iter_mut().step_by(step).for_each(|len| *len = 0);
        }
        Zeros::Everywhere => lengths.fill(0),
    }
}

/// Moves each length to the sequence before; among equal lengths, one token to the last sequence.
fn rotate(lengths: &mut [u32]) {
    let alike = lengths.windows(2).all(|pair| pair[0] == pair[1]);
    match lengths {
        [first, .., last] if alike && *first > 0 => {
            *first -= 1;
            *last += 1;
        }
        [_, _, ..] => lengths.rotate_left(1),
        _ => {}
    }
}

/// The lengths of both sides. `heads`: a longest query length that is worth hitting, since a layout
/// whose two extents are equal can be mistaken for its transpose.
pub(super) fn partition(u: &mut Unstructured, mut purse: Purse, heads: u32) -> Result<(Vec<u32>, Vec<u32>)> {
    let wanted = count(u)?;
    let relations = [
        (132, Relation::Alike),
        (14, Relation::Rotated),
        (62, Relation::Independent),
        (24, Relation::QLonger),
        (24, Relation::KvLonger),
    ];
    let relation = weighted(u, &relations)?;
    let (equal, as_heads, apart) = (chance(u, 40)?, chance(u, 14)? && heads > 1, chance(u, 60)?);
    let zeros_q = zeros(u)?;
    let zeros_kv = zeros(u)?;
    let stride = u.arbitrary()?;
    let longest_q = if as_heads { heads } else { u32::MAX };
    // Rotated by one place, neighbours meet: at most twice the cost of each with itself.
    if relation == Relation::Rotated {
        purse.pairs /= 2;
    }
    // Every sequence is paid for at least one token: zeros are where `Zeros` puts them.
    let affordable = (purse.pairs / ROW_COST).min(u64::from(purse.tokens));
    let n = u64::from(wanted).min(affordable) as u32;
    let (mut q, mut kv) = (Vec::new(), Vec::new());
    for i in 0..n {
        let draw = u.arbitrary::<u8>()?;
        let part = purse.part(n - i, equal || draw < 128);
        let last = q.last().copied().zip(kv.last().copied());
        let (a, b) = match last {
            // A repeat of what fitted an even share fits every later share.
            Some(pair) if equal => pair,
            Some((a, b))
                if draw % 16 == 15 && sequence_cost(a, b) <= part.pairs && a.max(b) <= part.tokens =>
            {
                (a, b)
            }
            None if as_heads && matches!(relation, Relation::Alike | Relation::Rotated) => {
                let s = heads.min(part.tied());
                (s, s)
            }
            None if as_heads => {
                let a = heads.min(part.any());
                (a, length(u, part.beside(a))?)
            }
            _ => sequence(u, part, relation, longest_q)?,
        };
        purse.pay(a, b);
        q.push(a);
        kv.push(b);
    }
    lay_zeros(&mut q, zeros_q, stride);
    match relation {
        Relation::Rotated => {
            kv.clone_from(&q);
            rotate(&mut kv);
        }
        Relation::Alike if !apart => lay_zeros(&mut kv, zeros_q, stride),
        _ => lay_zeros(&mut kv, zeros_kv, stride),
    }
    Ok((q, kv))
}

/// Stores `lengths` with dead rows before, between and after the sequences, or `packed` with none.
/// Many libraries take packed batches only: about half of the cases are for them.
pub(super) fn storage(u: &mut Unstructured, lengths: Vec<u32>, packed: bool) -> Result<Side> {
    #[derive(Clone, Copy)]
    enum Gaps {
        Nowhere,
        Last,
        Each,
        Scattered,
    }
    let mut side = Side::packed(lengths);
    if packed {
        return Ok(side);
    }
    let rows: [(u8, u32); 9] =
        [(192, 0), (10, 1), (6, 2), (8, 4), (4, 8), (6, 16), (8, 17), (10, 64), (8, 128)];
    side.lead = weighted(u, &rows)?;
    side.tail = weighted(u, &rows)?;
    let plans = [(184, Gaps::Nowhere), (22, Gaps::Last), (24, Gaps::Each), (26, Gaps::Scattered)];
    let plan = weighted(u, &plans)?;
    let size = one_of(u, &[1, 3, 2, 7, 8, 16, 64])?;
    let n = side.gaps.len();
    // A gap of a tile behind each of a hundred sequences is memory and no news.
    let size = if n > 8 { size.min(3) } else { size };
    match plan {
        Gaps::Nowhere => {}
        Gaps::Last => side.gaps.iter_mut().skip(n.saturating_sub(1)).for_each(|gap| *gap = size),
        Gaps::Each => side.gaps.fill(size),
        Gaps::Scattered => {
            for gap in &mut side.gaps {
                *gap = if chance(u, 128)? { size } else { 0 };
            }
        }
    }
    Ok(side)
}
