//! The statistics of rows, LSE and delta, as a bent backward reads them.

use std::collections::HashMap;

use super::bent::{Layout, OtherHead, Statistic};
use crate::case::Case;
use crate::inputs::Inputs;
use crate::outputs::Outputs;
use crate::reference::dot;

/// A value for each (sequence, head, row); NaN where a reader would find memory of no meaning.
#[derive(Clone, Debug)]
pub struct Grid {
    heads: usize,
    /// Of (sequence, head), the rows.
    rows: Vec<Vec<f64>>,
}

impl Grid {
    fn new(case: &Case, mut value: impl FnMut(usize, usize, usize) -> f64) -> Grid {
        let heads = case.heads.q as usize;
        let mut rows = Vec::with_capacity(case.sequences() * heads);
        for (sequence, &len) in case.q.lengths.iter().enumerate() {
            for head in 0..heads {
                rows.push((0..len as usize).map(|row| value(sequence, head, row)).collect());
            }
        }
        Grid { heads, rows }
    }

    /// The rows of a head of a sequence.
    pub fn rows(&self, sequence: usize, head: usize) -> &[f64] {
        &self.rows[sequence * self.heads + head]
    }

    fn at(&self, sequence: usize, head: usize, row: usize) -> f64 {
        self.rows(sequence, head).get(row).copied().unwrap_or(f64::NAN)
    }
}

/// The LSE that the forward stored.
pub fn lse(inputs: &Inputs, outputs: &Outputs) -> Grid {
    Grid::new(&inputs.case, |s, h, i| outputs.lse.at(outputs.lse.index(inputs.q_spans[s].row + i, h, 0)))
}

/// rowsum(dO * O), O as the forward stored it.
pub fn delta(inputs: &Inputs, outputs: &Outputs) -> Grid {
    Grid::new(&inputs.case, |s, h, i| {
        let row = inputs.q_spans[s].row + i;
        let of = |tensor: &crate::tensor::Tensor| tensor.rows_of_head(row..row + 1, h);
        dot(&of(&outputs.o), &of(&inputs.dout))
    })
}

/// What is read in the place of each value of `own`.
pub fn read(own: &Grid, bend: Statistic, inputs: &Inputs) -> Grid {
    let case = &inputs.case;
    let heads = case.heads.q as usize;
    match bend {
        Statistic::Own => own.clone(),
        Statistic::Times(factor) => Grid::new(case, |s, h, i| factor * own.at(s, h, i)),
        Statistic::WithinLongest => {
            let longest = case.q.max_len() as usize;
            let inside = |s: usize, i: usize| inputs.q_spans[s].row + i < longest;
            Grid::new(case, |s, h, i| if inside(s, i) { own.at(s, h, i) } else { 0.0 })
        }
        // Behind the last row a tile is filled with zeros.
        Statistic::RowFlipped => Grid::new(case, |s, h, i| own.rows(s, h).get(i ^ 1).copied().unwrap_or(0.0)),
        Statistic::RowBehind(by) => {
            let stored = Stored::new(own, inputs);
            Grid::new(case, |s, h, i| stored.at(inputs.q_spans[s].row + i, by, h))
        }
        Statistic::RowClamped(by) => {
            Grid::new(case, |s, h, i| own.at(s, h, i.saturating_add_signed(by).min(own.rows(s, h).len() - 1)))
        }
        Statistic::FirstTile(tile) => Grid::new(case, |s, h, i| own.at(s, h, i % tile)),
        Statistic::Sequence(by) => {
            let stored = Stored::new(own, inputs);
            Grid::new(case, |s, h, i| {
                let other = s.saturating_add_signed(by).min(case.sequences() - 1);
                stored.at(inputs.q_spans[other].row + i, 0, h)
            })
        }
        Statistic::Head(other) => Grid::new(case, |s, h, i| {
            let head = match other {
                OtherHead::First => 0,
                OtherHead::Next => (h + 1) % heads,
                OtherHead::OfKvHead => h / case.heads.group() as usize,
            };
            own.at(s, head, i)
        }),
        Statistic::Layout { written, read } => {
            let mut memory = HashMap::new();
            let (written, read) = (Place::new(written, inputs), Place::new(read, inputs));
            Grid::new(case, |s, h, i| {
                memory.insert(written.of(s, h, i), own.at(s, h, i));
                0.0
            });
            Grid::new(case, |s, h, i| memory.get(&read.of(s, h, i)).copied().unwrap_or(f64::NAN))
        }
    }
}

/// Statistics by storage row; those of dead rows are zero.
struct Stored<'a> {
    own: &'a Grid,
    /// (sequence, row inside it) of each storage row.
    rows: Vec<Option<(usize, usize)>>,
}

impl<'a> Stored<'a> {
    fn new(own: &'a Grid, inputs: &Inputs) -> Self {
        let mut rows = vec![None; inputs.case.q.rows() as usize];
        for (sequence, span) in inputs.q_spans.iter().enumerate() {
            (0..span.len).for_each(|i| rows[span.row + i] = Some((sequence, i)));
        }
        Stored { own, rows }
    }

    fn at(&self, row: usize, by: isize, head: usize) -> f64 {
        match row.checked_add_signed(by).and_then(|row| self.rows.get(row)) {
            None => f64::NAN,
            Some(None) => 0.0,
            Some(&Some((sequence, i))) => self.own.at(sequence, head, i),
        }
    }
}

/// Where a layout puts a statistic.
struct Place<'a> {
    layout: Layout,
    inputs: &'a Inputs,
    heads: usize,
    tokens: usize,
    rows: usize,
    longest: usize,
}

impl<'a> Place<'a> {
    fn new(layout: Layout, inputs: &'a Inputs) -> Self {
        let side = &inputs.case.q;
        Place {
            layout,
            inputs,
            heads: inputs.case.heads.q as usize,
            tokens: side.tokens() as usize,
            rows: side.rows() as usize,
            longest: side.max_len() as usize,
        }
    }

    fn of(&self, sequence: usize, head: usize, row: usize) -> usize {
        let (span, heads) = (self.inputs.q_spans[sequence], self.heads);
        match self.layout {
            Layout::Tokens => (span.token + row) * heads + head,
            Layout::Heads => head * self.tokens + span.token + row,
            Layout::HeadsOfSequence => span.token * heads + head * span.len + row,
            Layout::Rows => (span.row + row) * heads + head,
            Layout::HeadsOfRows => head * self.rows + span.row + row,
            Layout::PaddedTokens => (sequence * self.longest + row) * heads + head,
            Layout::PaddedHeads => (sequence * heads + head) * self.longest + row,
        }
    }
}
