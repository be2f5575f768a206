//! Faults that act on finished gradients: where they are stored, and what is stored.

use std::ops::Range;

use super::bent::{Base, Gradients};
use super::observed::{Call, Seen, is_forward};
use super::solve::Guess;
use crate::case::Case;
use crate::oracle::budget::{self, Storage};
use crate::outputs::Output;

/// What is done to finished gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum After {
    /// They are stored at prefix sums of the lengths.
    AtPrefixSums(Gradients),
    /// Columns are lost.
    Columns {
        /// Of these gradients.
        of: Gradients,
        /// From this one on.
        from: Columns,
        /// What is there instead.
        left: Left,
    },
    /// Rows are stored as wide as those of the other operand, over what follows: which of two that store in one
    /// place is the last depends on the order of blocks.
    Spill(Gradients),
    /// They are added to what the calls before left.
    Stale(Gradients),
    /// They are multiplied by a number, which is fitted.
    Factor,
}

/// The first column that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// d_qk.
    OfKeys,
    /// d_v.
    OfValues,
    /// This one.
    Beyond(usize),
    /// The last multiple of this.
    Multiple(usize),
}

/// What lost columns hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Zeros.
    Zero,
    /// What was there before.
    Unwritten,
}

impl Columns {
    fn of(self, case: &Case, columns: usize) -> usize {
        match self {
            Columns::OfKeys => case.dims.qk as usize,
            Columns::OfValues => case.dims.v as usize,
            Columns::Beyond(width) => width,
            Columns::Multiple(step) => columns - columns % step,
        }
    }
}

/// The right gradients as guesses.
pub fn right(call: &Call) -> Vec<Guess> {
    let gradients = call.seen.iter().filter(|seen| !is_forward(seen.output));
    let guess = |seen: &Seen| Guess {
        output: seen.output,
        sequence: seen.sequence,
        head: seen.head,
        value: seen.want.clone(),
        tau: seen.tau.clone(),
    };
    gradients.map(guess).collect()
}

impl After {
    /// What becomes of the gradients of `calls[at]`; [`After::Factor`] is fitted elsewhere.
    pub fn apply(self, calls: &[Call], at: usize, guesses: &mut [Guess]) {
        let call = &calls[at];
        match self {
            After::AtPrefixSums(of) => {
                let moved = [Output::Dq, Output::Dk, Output::Dv].into_iter().filter(|&output| of.has(output));
                moved.for_each(|output| at_prefix_sums(call, output, guesses));
            }
            After::Columns { of, from, left } => {
                for guess in guesses.iter_mut().filter(|guess| of.has(guess.output)) {
                    let columns = call.outputs.get(guess.output).dim;
                    let lost = from.of(&call.inputs.case, columns).min(columns)..columns;
                    lose(guess, columns, &lost, left);
                }
            }
            After::Spill(of) => {
                guesses.iter_mut().filter(|guess| of.has(guess.output)).for_each(|guess| spill(call, guess));
            }
            After::Stale(of) => {
                let stale = [Output::Dq, Output::Dk, Output::Dv].into_iter().filter(|&output| of.has(output));
                stale.for_each(|output| add_stale(calls, at, output, guesses));
            }
            After::Factor => {}
        }
    }
}

fn lose(guess: &mut Guess, columns: usize, lost: &Range<usize>, left: Left) {
    let (value, tau) = if left == Left::Zero { (0.0, 0.0) } else { (f64::NAN, Guess::UNWRITTEN) };
    if lost.start == 0 {
        return;
    }
    for at in (0..guess.value.len()).filter(|at| lost.contains(&(at % columns))) {
        (guess.value[at], guess.tau[at]) = (value, tau);
    }
}

/// Zeros, which fill a tile's columns, where the row of a head before reaches and zeros were seen.
fn spill(call: &Call, guess: &mut Guess) {
    let Some(seen) = call.plane(guess.output, guess.sequence, guess.head) else { return };
    let width = call.inputs.case.dims.qk.max(call.inputs.case.dims.v) as usize;
    let behind_a_row = is_behind_a_row(call, guess);
    for at in (0..guess.value.len()).filter(|&at| seen.got[at] == 0.0) {
        let (row, column) = (at / seen.columns, at % seen.columns);
        let reached = width > column + seen.columns;
        if reached && (guess.head > 0 || row > 0 || behind_a_row) {
            (guess.value[at], guess.tau[at]) = (0.0, 0.0);
        }
    }
}

/// Is there a live row right before the first of this sequence?
fn is_behind_a_row(call: &Call, guess: &Guess) -> bool {
    let spans = if guess.output == Output::Dq { &call.inputs.q_spans } else { &call.inputs.kv_spans };
    let first = spans[guess.sequence].row;
    spans.iter().any(|span| span.len > 0 && span.row + span.len == first)
}

/// Every sequence's gradient stored at the prefix sum of lengths; a row that no sequence writes is
/// unwritten.
fn at_prefix_sums(call: &Call, output: Output, guesses: &mut [Guess]) {
    let spans = if output == Output::Dq { &call.inputs.q_spans } else { &call.inputs.kv_spans };
    let tensor = call.outputs.get(output);
    let index = |base: Base, guess: &Guess, at: usize| {
        let span = spans[guess.sequence];
        let first = if base == Base::Offset { span.row } else { span.token };
        tensor.index(first + at / tensor.dim, guess.head, at % tensor.dim)
    };
    let mut memory = vec![(f64::NAN, Guess::UNWRITTEN); tensor.len()];
    for guess in guesses.iter().filter(|guess| guess.output == output) {
        for at in 0..guess.value.len() {
            memory[index(Base::PrefixSum, guess, at)] = (guess.value[at], guess.tau[at]);
        }
    }
    for guess in guesses.iter_mut().filter(|guess| guess.output == output) {
        for at in 0..guess.value.len() {
            (guess.value[at], guess.tau[at]) = memory[index(Base::Offset, guess, at)];
        }
    }
}

/// Adds what the accumulators held after the calls before, each as it was stored but unscaled.
fn add_stale(calls: &[Call], at: usize, output: Output, guesses: &mut [Guess]) {
    let scale = |call: &Call| match output {
        Output::Dv => 1.0,
        _ => call.inputs.case.softmax_scale(),
    };
    let (mut held, mut factor) = (Vec::new(), 0.0_f64);
    for call in &calls[..at] {
        let tensor = call.outputs.get(output);
        held.resize(held.len().max(tensor.len()), 0.0);
        for seen in call.seen.iter().filter(|seen| seen.output == output) {
            for (i, got) in seen.got.iter().enumerate() {
                let place = tensor.index(seen.row + i / seen.columns, seen.head, i % seen.columns);
                (held[place], factor) = (got / scale(call), factor.max((1.0 / scale(call)).abs()));
            }
        }
    }
    let call = &calls[at];
    let (tensor, storage) = (call.outputs.get(output), Storage::of(call.inputs.case.dtype));
    for guess in guesses.iter_mut().filter(|guess| guess.output == output) {
        let Some(seen) = call.plane(output, guess.sequence, guess.head) else { continue };
        for i in 0..guess.value.len() {
            let place = tensor.index(seen.row + i / seen.columns, seen.head, i % seen.columns);
            let added = held.get(place).copied().unwrap_or(0.0) * scale(call);
            guess.value[i] += added;
            let size = added.abs() + guess.value[i].abs();
            let tau = budget::bent_sum(&storage, guess.tau[i], size, factor * scale(call));
            // Of a call whose scale is 0 nothing tells what its accumulators held.
            guess.tau[i] = if added.is_finite() { tau } else { f64::INFINITY };
        }
    }
}
