//! Data for which right arithmetic rounds nothing: every probability is a power of two, and every other value an
//! integer of few bits times one.
//!
//! `flat`: q is 0, so that each of n keys has P = 1/n. Rows of v are a level of their column plus or minus a row
//! that two of them share, so that O is the level, and dP - D is an integer. `one-hot`: keys are rows of a Hadamard
//! matrix, and a query is sixteen times the key that it is to see alone. `docs/notation.md` spells both out.

use super::{At, Recipe, Stream, mix};
use crate::case::Base;

/// Elements of a row that are not 0.
const SPOTS: usize = 8;
/// What a query is of its key.
const HEIGHT: f64 = 16.0;

impl Recipe<'_> {
    /// Is the base one of the exact ones?
    pub(super) fn is_exact(&self) -> bool {
        matches!(self.case.data.base, Base::Flat | Base::OneHot)
    }

    /// A row of q, k, v or dO.
    pub(super) fn exact(&self, stream: Stream, at: At, out: &mut [f64]) {
        let flat = self.case.data.base == Base::Flat;
        match (stream, flat) {
            (Stream::Q, true) => out.fill(0.0),
            (Stream::V, true) => self.pair(at, out),
            (_, true) => spots(self.hash(stream, at), out),
            (Stream::Q, false) => self.aimed(at, out),
            (Stream::K, false) => self.hadamard(at, out),
            (_, false) => {
                let row = self.hash(stream, at);
                let whole = |column| (mix(row ^ column as u64) % 7) as f64 - 3.0;
                out.iter_mut().enumerate().for_each(|(column, x)| *x = whole(column));
            }
        }
    }

    /// A level of the column, and plus or minus what the row shares with another.
    fn pair(&self, at: At, out: &mut [f64]) {
        let head = At { row: 0, ..at };
        let level = self.hash(Stream::Level, head);
        let reach = match at.n {
            0 | 1 => 0,
            n => 1 + self.hash(Stream::Reach, head) % (n as u64 - 1),
        };
        let first = at.row.min(at.row ^ reach);
        if reach == 0 {
            out.fill(0.0);
        } else {
            spots(self.hash(Stream::V, At { row: first, ..at }), out);
        }
        let sign = if first == at.row { 1.0 } else { -1.0 };
        for (column, x) in out.iter_mut().enumerate() {
            *x = (mix(level ^ column as u64) % 5) as f64 - 2.0 + sign * *x;
        }
    }

    /// A key: plus or minus a row of the Hadamard matrix of as many rows as there are powers of two in d. Either
    /// each row is there once with each sign before any comes again, or each key has a neighbour that is equal.
    fn hadamard(&self, at: At, out: &mut [f64]) {
        let order = self.hash(Stream::Order, At { row: 0, ..at });
        let rows = 1u64 << out.len().ilog2();
        let index = at.row >> (order & 1);
        let (odd, start) = ((order >> 1) | 1, order >> 32);
        let row = index.wrapping_mul(odd).wrapping_add(start) & (rows - 1);
        let negative = (mix(order ^ row) ^ (index / rows)) & 1;
        for (column, x) in out.iter_mut().enumerate() {
            let ones = u64::from((row & column as u64).count_ones()) + negative;
            *x = if ones % 2 == 0 { 1.0 } else { -1.0 };
        }
    }

    /// A query: sixteen times a key that it sees; 0 where it sees none.
    fn aimed(&self, at: At, out: &mut [f64]) {
        let visible = self.case.mask.visible_keys(at.row as usize, at.m, at.n);
        if visible.is_empty() {
            out.fill(0.0);
            return;
        }
        let key = visible.start as u64 + self.hash(Stream::Target, at) % visible.len() as u64;
        self.hadamard(At { row: key, head: at.head >> 32, ..at }, out);
        out.iter_mut().for_each(|x| *x *= HEIGHT);
    }
}

/// One element of each eighth of the row is plus or minus 1, the others are 0.
fn spots(row: u64, out: &mut [f64]) {
    let width = out.len() / SPOTS;
    for (column, x) in out.iter_mut().enumerate() {
        let h = mix(row ^ (column / width) as u64);
        let here = (h >> 1) % width as u64 == (column % width) as u64;
        *x = match (here, h & 1) {
            (false, _) => 0.0,
            (true, 0) => 1.0,
            (true, _) => -1.0,
        };
    }
}
