//! Lengths and storage of one side (q or kv): which storage row holds which token.
//!
//! A side is stored as `lead` dead rows, then each sequence followed by its gap, then `tail` dead
//! rows. Offsets are what libraries call `cu_seqlens_padded`; prefix sums of the lengths are
//! `cu_seqlens`.

use std::ops::Range;

/// Lengths and storage of the q side or of the kv side, in rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Side {
    /// Length of each sequence.
    pub lengths: Vec<u32>,
    /// Dead rows after each sequence; as many as `lengths`.
    pub gaps: Vec<u32>,
    /// Dead rows before the first sequence.
    pub lead: u32,
    /// Dead rows after the last sequence's gap.
    pub tail: u32,
}

impl Side {
    /// A side of these lengths, stored without any dead row.
    pub fn packed(lengths: Vec<u32>) -> Side {
        let gaps = vec![0; lengths.len()];
        Side { lengths, gaps, lead: 0, tail: 0 }
    }

    /// Live tokens.
    pub fn tokens(&self) -> u64 {
        self.lengths.iter().map(|&n| u64::from(n)).sum()
    }

    /// Storage rows, dead ones included.
    pub fn rows(&self) -> u64 {
        let gaps: u64 = self.gaps.iter().map(|&n| u64::from(n)).sum();
        self.tokens() + gaps + u64::from(self.lead) + u64::from(self.tail)
    }

    /// Longest sequence; 0 without any.
    pub fn max_len(&self) -> u32 {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// Has this side any dead row?
    pub fn has_dead_rows(&self) -> bool {
        self.rows() > self.tokens()
    }

    /// The sequences in order, each with its storage rows and its tokens.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::with_capacity(self.lengths.len());
        let (mut row, mut token) = (self.lead as usize, 0);
        for (&len, &gap) in self.lengths.iter().zip(&self.gaps) {
            let len = len as usize;
            spans.push(Span { row, token, len });
            row += len + gap as usize;
            token += len;
        }
        spans
    }

    /// The storage rows that belong to no sequence, in order.
    pub fn dead_rows(&self) -> Vec<usize> {
        let mut dead = Vec::new();
        let mut next = 0;
        for span in self.spans() {
            dead.extend(next..span.row);
            next = span.row + span.len;
        }
        dead.extend(next..self.rows() as usize);
        dead
    }
}

/// Where one sequence lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Storage row of its first token.
    pub row: usize,
    /// Index of its first token among the live tokens.
    pub token: usize,
    /// Its length.
    pub len: usize,
}

impl Span {
    /// Its storage rows.
    pub fn rows(&self) -> Range<usize> {
        self.row..self.row + self.len
    }

    /// Its tokens among the live tokens.
    pub fn tokens(&self) -> Range<usize> {
        self.token..self.token + self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_dead_rows_cover_the_storage_once() {
        let side = Side { lengths: vec![3, 0, 2], gaps: vec![1, 2, 0], lead: 4, tail: 2 };
        let spans = side.spans();
        assert_eq!(spans[0], Span { row: 4, token: 0, len: 3 });
        assert_eq!(spans[1], Span { row: 8, token: 3, len: 0 });
        assert_eq!(spans[2], Span { row: 10, token: 3, len: 2 });
        assert_eq!(side.dead_rows(), [0, 1, 2, 3, 7, 8, 9, 12, 13]);
        assert_eq!(side.rows(), 14);
        assert_eq!(side.dead_rows().len() as u64 + side.tokens(), side.rows());
    }
}
