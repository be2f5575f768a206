//! Data for which right arithmetic has no rounding: any difference at all is a finding.
//!
//! A row of the scores whose largest logits are equal, `w` of them, w a power of two, and whose other logits are
//! so far below that fp32 gives them the probability 0, has P = 1/w there. If then every element of O, P, dS, dQ, dK
//! and dV is a value of the dtype, a fused kernel rounds nothing: it stores what exact arithmetic gives, in whatever
//! order it adds. [`expected`] is that arithmetic, in fp64, which is exact here, and it says `None` where any of these
//! conditions fails. The LSE is a logarithm, and left to its bound.

use rayon::prelude::*;

use super::{Coord, Evidence, Finding, Kind, budget};
use crate::case::{Base, Case, Sink};
use crate::linalg;
use crate::outputs::Output;
use crate::reference::{Unit, dot, query_heads};
use crate::tensor::DType;

/// What exact arithmetic gives for a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// O of each query head, `[m][e]`.
    pub o: Vec<Vec<f64>>,
    /// dQ of each query head, `[m][d]`.
    pub dq: Vec<Vec<f64>>,
    /// dK, `[n][d]`.
    pub dk: Vec<f64>,
    /// dV, `[n][e]`.
    pub dv: Vec<f64>,
}

/// A finding for each output of which an element differs, unless one is beyond its bound: then that says more.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let case = &evidence.inputs.case;
    // A P that is not rounded is not a power of two either; and S, dP and parts of sums need not be values of the dtype.
    if !may_be_exact(case) || !evidence.contract.rounding.recipe.rounds_operands() {
        return Vec::new();
    }
    let units = evidence.truth.units.par_iter().filter_map(|truth| {
        let exact = expected(&truth.unit, case.dtype)?;
        Some(differences(evidence, &truth.unit, &exact))
    });
    let all: Vec<Difference> = units.flatten_iter().collect();
    let outputs = [Output::O, Output::Dq, Output::Dk, Output::Dv];
    let of = |output: Output| {
        let mine = || all.iter().filter(|difference| difference.output == output);
        let first = mine().max_by(|a, b| (a.got - a.want).abs().total_cmp(&(b.got - b.want).abs()))?;
        let note = format!("{} elements are not to the bit what exact arithmetic gives", mine().count());
        Some(Finding {
            call: evidence.call,
            tensor: Some(output),
            kind: Kind::Inexact,
            at: Some(first.at),
            got: first.got,
            want: first.want,
            bound: 0.0,
            note,
        })
    };
    outputs.into_iter().filter(|&output| !evidence.is_beyond(output)).filter_map(of).collect()
}

/// Is it worth looking at? The conditions themselves are [`expected`]'s.
fn may_be_exact(case: &Case) -> bool {
    let recipe = matches!(case.data.base, Base::Flat | Base::OneHot);
    recipe && case.softcap.is_none() && case.sink == Sink::None && is_power_of_two(case.softmax_scale())
}

fn is_power_of_two(x: f64) -> bool {
    // No bit of the significand but the hidden one.
    x > 0.0 && x.is_normal() && x.to_bits().trailing_zeros() >= 52
}

/// What exact arithmetic gives; `None` where a right kernel may have something to round.
pub fn expected(unit: &Unit, dtype: DType) -> Option<Exact> {
    let (m, n, d, e) = (unit.m, unit.n, unit.d, unit.e);
    if m * unit.q.len() > budget::EXACT_ROWS {
        return None;
    }
    let (mut dk, mut dv) = (vec![0.0; n * d], vec![0.0; n * e]);
    let (mut o, mut dq) = (Vec::new(), Vec::new());
    for head in 0..unit.q.len() {
        let (mut head_o, mut head_dq) = (vec![0.0; m * e], vec![0.0; m * d]);
        for block in unit.blocks() {
            let (rows, keys) = (block.rows.clone(), block.keys.clone());
            let [height, width] = [rows.len(), keys.len()];
            let mut p = unit.scores(head, &block);
            p.chunks_mut(width.max(1)).try_for_each(probabilities)?;
            let (q, dout) = (unit.q_rows(head, &block), unit.dout_rows(head, &block));
            let block_o = &mut head_o[rows.start * e..rows.end * e];
            linalg::nn(height, width, e, &p, unit.v_rows(&block), block_o, false);
            let mut ds = unit.d_probabilities(head, &block);
            let deltas = dout.chunks(e).zip(block_o.chunks(e)).map(|(dout, o)| dot(dout, o));
            let of_rows = ds.chunks_mut(width.max(1)).zip(p.chunks(width.max(1)));
            for ((ds, p), delta) in of_rows.zip(deltas) {
                ds.iter_mut().zip(p).for_each(|(ds, p)| *ds = p * (*ds - delta));
            }
            (all_of(dtype, &p) && all_of(dtype, &ds)).then_some(())?;
            let block_dq = &mut head_dq[rows.start * d..rows.end * d];
            linalg::nn(height, width, d, &ds, unit.k_rows(&block), block_dq, false);
            linalg::tn_add(width, height, d, &ds, q, &mut dk[keys.start * d..keys.end * d]);
            linalg::tn_add(width, height, e, &p, dout, &mut dv[keys.start * e..keys.end * e]);
        }
        head_dq.iter_mut().for_each(|x| *x *= unit.scale);
        o.push(head_o);
        dq.push(head_dq);
    }
    dk.iter_mut().for_each(|x| *x *= unit.scale);
    let heads = o.iter().chain(&dq).all(|values| all_of(dtype, values));
    (heads && all_of(dtype, &dk) && all_of(dtype, &dv)).then_some(Exact { o, dq, dk, dv })
}

/// Turns a row of logits into the probabilities that fp32 gives; `None` where they are not powers of two and zeros.
fn probabilities(row: &mut [f64]) -> Option<()> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        row.fill(0.0);
        return Some(());
    }
    let winners = row.iter().filter(|&&s| s == top).count();
    let apart = row.iter().all(|&s| s == top || s <= top - budget::EXACT_GAP);
    if !apart || top.abs() > budget::EXACT_LOGIT || !winners.is_power_of_two() {
        return None;
    }
    let p = 1.0 / winners as f64;
    row.iter_mut().for_each(|s| *s = if *s == top { p } else { 0.0 });
    Some(())
}

/// Are all of these values of the dtype?
fn all_of(dtype: DType, values: &[f64]) -> bool {
    values.iter().all(|&x| x.is_finite() && dtype.round(x) == x)
}

struct Difference {
    output: Output,
    at: Coord,
    got: f64,
    want: f64,
}

fn differences(evidence: &Evidence, unit: &Unit, exact: &Exact) -> Vec<Difference> {
    let inputs = evidence.inputs;
    let (queries, keys) = (inputs.q_spans[unit.sequence].rows(), inputs.kv_spans[unit.sequence].rows());
    let mut found = Vec::new();
    let mut compare = |output: Output, head: usize, columns: usize, wanted: &[f64]| {
        let rows = if matches!(output, Output::Dk | Output::Dv) { keys.clone() } else { queries.clone() };
        let got = evidence.outputs.get(output).rows_of_head(rows, head);
        for (i, (got, &want)) in got.into_iter().zip(wanted).enumerate().filter(|(_, (x, y))| x != *y) {
            let at = Coord { sequence: unit.sequence, row: Some(i / columns), head, column: i % columns };
            found.push(Difference { output, at, got, want });
        }
    };
    for (i, head) in query_heads(&inputs.case, unit.kv_head).enumerate() {
        compare(Output::O, head, unit.e, &exact.o[i]);
        compare(Output::Dq, head, unit.d, &exact.dq[i]);
    }
    compare(Output::Dk, unit.kv_head, unit.d, &exact.dk);
    compare(Output::Dv, unit.kv_head, unit.e, &exact.dv);
    found
}
