//! Is the memory as it should be: every live element written and finite, dead rows as the contract
//! says, nothing written outside.
//!
//! Outputs start as a NaN that arithmetic never makes, so an element that still holds it was not
//! written, and a guard or dead row that no longer does was.

use super::{Coord, Evidence, Finding, Judgement, Kind};
use crate::contract::DeadRows;
use crate::outputs::Output;

/// At most one finding for each output and kind.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    for output in Output::ALL {
        findings.extend(guard(evidence, output));
        findings.extend(dead_rows(evidence, output));
    }
    findings.extend(live(evidence));
    findings
}

fn finding(evidence: &Evidence, tensor: Output, kind: Kind) -> Finding {
    Finding {
        call: evidence.call,
        tensor: Some(tensor),
        kind,
        at: None,
        got: f64::NAN,
        want: 0.0,
        bound: 0.0,
        note: String::new(),
    }
}

fn guard(evidence: &Evidence, output: Output) -> Option<Finding> {
    let tensor = evidence.outputs.get(output);
    let at = tensor.broken_guard()?;
    let side = if at < 0 { "before" } else { "behind" };
    let distance = if at < 0 { -at } else { at - tensor.len() as isize + 1 };
    let note = format!("memory {side} the tensor was written, {distance} elements away");
    Some(Finding { note, ..finding(evidence, output, Kind::Guard) })
}

fn dead_rows(evidence: &Evidence, output: Output) -> Option<Finding> {
    let tensor = evidence.outputs.get(output);
    let width = tensor.heads * tensor.dim;
    let wrong = |&index: &usize| match evidence.contract.dead_rows {
        DeadRows::Zero => tensor.at(index) != 0.0,
        DeadRows::Untouched => !tensor.is_poison(index),
        DeadRows::Anything => false,
    };
    let rows = output.dead_rows(&evidence.inputs.case);
    let elements = || rows.iter().flat_map(|row| row * width..(row + 1) * width);
    let first = elements().find(wrong)?;
    let count = elements().filter(wrong).count();
    let state = if tensor.is_poison(first) { "never written" } else { "written" };
    let note = format!(
        "{count} elements of dead rows are not {}; first in storage row {}, {state}",
        evidence.contract.dead_rows.name(),
        first / width
    );
    Some(Finding { got: tensor.at(first), note, ..finding(evidence, output, Kind::DeadRow) })
}

/// Live elements: unwritten, and not finite where a right backend's are.
fn live(evidence: &Evidence) -> Vec<Finding> {
    let mut found: Vec<(Output, Kind, Judgement, usize, Coord, f64, f64)> = Vec::new();
    for judgement in [Judgement::Forward, Judgement::Backward, Judgement::Chain] {
        for plane in evidence.truth.planes(evidence.inputs, judgement) {
            let tensor = evidence.outputs.get(plane.output);
            for (i, got) in plane.got(evidence.outputs).into_iter().enumerate() {
                let want = plane.bounded.value[i];
                if got.is_finite() || got == want {
                    continue;
                }
                let kind = match tensor.is_poison(plane.index(evidence.outputs, i)) {
                    true => Kind::Unwritten,
                    false if plane.bounded.tau[i] == f64::INFINITY => continue,
                    false => Kind::NonFinite,
                };
                match found.iter_mut().find(|f| (f.0, f.1) == (plane.output, kind)) {
                    // A gradient is looked at under two judgements: its elements count once.
                    Some(known) => known.3 += usize::from(known.2 == judgement),
                    None => found.push((plane.output, kind, judgement, 1, plane.coord(i), got, want)),
                }
            }
        }
    }
    let findings = found.into_iter().map(|(output, kind, _, count, at, got, want)| {
        let what = if kind == Kind::Unwritten { "never written" } else { "not finite" };
        let note = format!("{count} live elements {what}; first at {at}");
        Finding { at: Some(at), got, want, note, ..finding(evidence, output, kind) }
    });
    findings.collect()
}
