//! Each element of O, LSE, dQ, dK and dV within the bound computed beside the reference.

use std::collections::BTreeMap;

use super::{Coord, Evidence, Finding, Judgement, Kind, Plane, Truth};
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};

/// How the errors of elements lie within their bounds.
///
/// Where an output's own rounding is all that is uncertain, errors are uniform: a tenth of the elements in each
/// tenth of the bound, mean 0, root of the mean square 0.577. Elements to the bit what is expected, as zeros
/// and few-valued data are, are counted apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Errors {
    /// Elements without an error.
    pub exact: u64,
    /// Elements by tenths of |error|/tau.
    pub tenths: [u64; 10],
    /// Errors in bounds, added up: positive where the value is too large in size.
    pub signed: f64,
    /// Their squares, added up.
    pub squares: f64,
}

impl Errors {
    /// Takes in an element that is within its bound: `error` is in bounds, `want` what is expected.
    #[inline(always)]
    fn add(&mut self, error: f64, want: f64) {
        if error == 0.0 {
            self.exact += 1;
            return;
        }
        let last = self.tenths.len() - 1;
        self.tenths[((error.abs() * self.tenths.len() as f64) as usize).min(last)] += 1;
        self.signed += error * want.signum();
        self.squares += error * error;
    }

    /// Takes in others.
    pub fn join(&mut self, other: &Errors) {
        self.exact += other.exact;
        self.tenths.iter_mut().zip(other.tenths).for_each(|(sum, n)| *sum += n);
        self.signed += other.signed;
        self.squares += other.squares;
    }

    /// Elements with an error.
    pub fn elements(&self) -> u64 {
        self.tenths.iter().sum()
    }

    /// Mean of the signed errors, in bounds.
    pub fn mean(&self) -> f64 {
        self.signed / self.elements().max(1) as f64
    }

    /// Root of the mean square, in bounds.
    pub fn root_mean_square(&self) -> f64 {
        (self.squares / self.elements().max(1) as f64).sqrt()
    }
}

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
    /// How the others lie within their bounds.
    pub errors: Errors,
}

impl Measure {
    fn empty(output: Output, judgement: Judgement) -> Measure {
        let errors = Errors::default();
        Measure { output, judgement, worst: 0.0, at: None, beyond: 0, elements: 0, open: 0, errors }
    }
}

/// Compares every output with the reference, in the order of identity.
pub fn measure(inputs: &Inputs, outputs: &Outputs, truth: &Truth) -> Vec<Measure> {
    let mut measures: BTreeMap<(Output, Judgement), Measure> = BTreeMap::new();
    for judgement in [Judgement::Forward, Judgement::Backward, Judgement::Chain] {
        for plane in truth.planes(inputs, judgement) {
            let output = plane.output;
            let measure =
                measures.entry((output, judgement)).or_insert_with(|| Measure::empty(output, judgement));
            take_in(measure, &plane, outputs);
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
        let signed = if got == want { 0.0 } else { (got - want) / tau };
        let error = if signed.is_nan() { f64::INFINITY } else { signed.abs() }; // an infinity for another
        if error > 1.0 {
            measure.beyond += 1;
        } else {
            measure.errors.add(signed, want);
        }
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
