//! Each element of O, LSE, dQ, dK and dV within the bound computed beside the reference.

use super::{Coord, Evidence, Finding, Judgement, Kind, Plane};
use crate::outputs::Output;

/// How one output compares under one judgement, over a whole call.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// The output.
    pub output: Output,
    /// The comparison.
    pub judgement: Judgement,
    /// Largest |error|/tau over elements with a finite bound.
    pub worst: f64,
    /// Where that is, with what was there, what should be, and tau.
    pub at: Option<(Coord, f64, f64, f64)>,
    /// Elements beyond their bound.
    pub beyond: usize,
    /// Elements judged.
    pub elements: usize,
}

/// Compares every output with the reference, in the order of identity.
pub fn measure(evidence: &Evidence) -> Vec<Measure> {
    let mut measures: Vec<Measure> = Vec::new();
    for judgement in [Judgement::Forward, Judgement::Backward, Judgement::Chain] {
        for plane in evidence.truth.planes(evidence.inputs, judgement) {
            let known = measures.iter().position(|m| m.output == plane.output && m.judgement == judgement);
            let at = known.unwrap_or_else(|| {
                let empty =
                    Measure { output: plane.output, judgement, worst: 0.0, at: None, beyond: 0, elements: 0 };
                measures.push(empty);
                measures.len() - 1
            });
            take_in(&mut measures[at], &plane, evidence);
        }
    }
    measures.sort_by_key(|m| (m.output, m.judgement));
    measures
}

fn take_in(measure: &mut Measure, plane: &Plane, evidence: &Evidence) {
    let tensor = evidence.outputs.get(plane.output);
    for (i, index) in plane.elements(evidence.outputs) {
        let (got, want, tau) = (tensor.at(index), plane.bounded.value[i], plane.bounded.tau[i]);
        if tau == f64::INFINITY {
            continue;
        }
        measure.elements += 1;
        // Equal covers the -inf of a row without keys, whose bound is 0.
        let error = if got == want { 0.0 } else { (got - want).abs() / tau };
        let error = if error.is_nan() { f64::INFINITY } else { error };
        measure.beyond += usize::from(error > 1.0);
        if error > measure.worst {
            measure.worst = error;
            measure.at = Some((plane.coord(i), got, want, tau));
        }
    }
}

/// A finding for each output and judgement that is beyond its bound somewhere.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let beyond = measure(evidence).into_iter().filter(|m| m.beyond > 0);
    let findings = beyond.filter_map(|m| {
        let (at, got, want, bound) = m.at?;
        let kind = match m.judgement {
            _ if !got.is_finite() && want.is_finite() => Kind::NonFinite,
            Judgement::Forward => Kind::Forward,
            Judgement::Backward => Kind::Backward,
            Judgement::Chain => Kind::Chain,
        };
        let note = format!("{} of {} elements beyond their bound", m.beyond, m.elements);
        Some(Finding {
            call: evidence.call,
            tensor: Some(m.output),
            kind,
            at: Some(at),
            got,
            want,
            bound,
            note,
        })
    });
    findings.filter(|f| f.kind != Kind::NonFinite).collect()
}
