//! Each element of O, LSE, dQ, dK and dV within the bound computed beside the reference.

use std::collections::BTreeMap;

use super::{Coord, Evidence, Finding, Judgement, Kind, Plane, Truth};
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};

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
    /// Elements whose bound is infinite: a right backend may overflow there.
    pub open: usize,
}

/// Compares every output with the reference, in the order of identity.
pub fn measure(inputs: &Inputs, outputs: &Outputs, truth: &Truth) -> Vec<Measure> {
    let mut measures: BTreeMap<(Output, Judgement), Measure> = BTreeMap::new();
    for judgement in [Judgement::Forward, Judgement::Backward, Judgement::Chain] {
        for plane in truth.planes(inputs, judgement) {
            let output = plane.output;
            let empty = Measure { output, judgement, worst: 0.0, at: None, beyond: 0, elements: 0, open: 0 };
            take_in(measures.entry((output, judgement)).or_insert(empty), &plane, outputs);
        }
    }
    measures.into_values().collect()
}

fn take_in(measure: &mut Measure, plane: &Plane, outputs: &Outputs) {
    let mut worst: Option<usize> = None;
    let got = plane.got(outputs);
    let expected = plane.bounded.value.iter().zip(&plane.bounded.tau);
    for (i, (&got, (&want, &tau))) in got.iter().zip(expected).enumerate() {
        if tau == f64::INFINITY {
            measure.open += 1;
            continue;
        }
        measure.elements += 1;
        if !got.is_finite() && want.is_finite() {
            continue; // the hygiene oracle's; it must not hide what is finite and wrong
        }
        // Equal covers the -inf of a row without keys, whose bound is 0.
        let error = if got == want { 0.0 } else { (got - want).abs() / tau };
        let error = if error.is_nan() { f64::INFINITY } else { error }; // an infinity for another
        measure.beyond += usize::from(error > 1.0);
        if error > measure.worst {
            measure.worst = error;
            worst = Some(i);
        }
    }
    if let Some(i) = worst {
        measure.at = Some((plane.coord(i), got[i], plane.bounded.value[i], plane.bounded.tau[i]));
    }
}

/// A finding for each output and judgement that is beyond its bound somewhere.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let beyond = evidence.measures.iter().filter(|m| m.beyond > 0);
    let findings = beyond.filter_map(|m| {
        let (at, got, want, bound) = m.at?;
        let kind = match m.judgement {
            Judgement::Forward => Kind::Forward,
            Judgement::Backward => Kind::Backward,
            Judgement::Chain => Kind::Chain,
        };
        let note = format!("{} of {} elements beyond their bound", m.beyond, m.elements);
        let (call, tensor) = (evidence.call, Some(m.output));
        Some(Finding { call, tensor, kind, at: Some(at), got, want, bound, note })
    });
    findings.collect()
}
