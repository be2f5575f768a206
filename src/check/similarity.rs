//! Outputs against the reference as bug reports compare them.

use crate::oracle::{Depth, Evidence, Judgement};
use crate::outputs::Output;

/// Cosine and norms of one output against the reference, over all live elements.
#[derive(Clone, Copy, Debug)]
pub struct Similarity {
    /// The output.
    pub output: Output,
    /// Cosine of the two, 1 where both are zero, NaN where one is or where either is not finite.
    pub cosine: f64,
    /// Norm of the backend's.
    pub norm: f64,
    /// Norm of the reference's.
    pub reference: f64,
}

/// Every output against the reference, of the whole chain where it goes so far.
pub(super) fn of_outputs(evidence: &Evidence) -> Vec<Similarity> {
    let mut sums = [[0.0; 3]; Output::ALL.len()];
    // Against the chain where there is one.
    let whole = evidence.truth.depth == Depth::Whole;
    let gradients = if whole { Judgement::Chain } else { Judgement::Backward };
    for judgement in [Judgement::Forward, gradients] {
        for plane in evidence.truth.planes(evidence.inputs, judgement) {
            let [dot, got, want] = &mut sums[plane.output as usize];
            for (x, &y) in plane.got(evidence.outputs).into_iter().zip(&plane.bounded.value) {
                if x == y && x.is_infinite() {
                    continue; // a row without keys, and its LSE of -inf
                }
                *dot += x * y;
                *got += x * x;
                *want += y * y;
            }
        }
    }
    let similarity = |output: Output| {
        let [dot, got, want] = sums[output as usize];
        let (norm, reference) = (got.sqrt(), want.sqrt());
        let cosine = if norm == 0.0 && reference == 0.0 { 1.0 } else { dot / (norm * reference) };
        Similarity { output, cosine, norm, reference }
    };
    let of_case = Output::ALL.into_iter().filter(|output| output.is_of(&evidence.inputs.case));
    of_case.map(similarity).collect()
}
