//! Oracles: questions asked of a backend's outputs. Pure; none runs a backend.
//!
//! [`ORACLES`] lists them in the order of a finding's identity. [`budget`] is the only file with a
//! tolerance in it.

use rayon::prelude::*;

use crate::case::Case;
use crate::contract::{Contract, Rounding};
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};
use crate::reference::{Unit, query_heads};

pub mod agreement;
pub mod bound;
pub mod budget;
pub mod exact;
pub mod finding;
pub mod hygiene;
pub mod laws;
pub mod metamorphic;
pub mod products;
pub mod question;
pub mod race;
pub mod repeat;
pub mod rounding;
pub mod statistics;
pub mod truth;

pub use agreement::Agreement;
use bound::Measure;
pub use finding::{Coord, Finding, Identity, Kind};
use products::Bounded;
pub use question::Ask;
use truth::sink::SinkSum;
use truth::{Gradients, Received, UnitTruth};

/// An oracle.
pub struct Oracle {
    /// Its name in reports and corpus files.
    pub name: &'static str,
    /// The question it asks.
    pub question: &'static str,
    judge: fn(&Evidence) -> Vec<Finding>,
}

/// Every oracle, in the order of identity.
pub const ORACLES: [Oracle; 6] = [
    Oracle {
        name: "hygiene",
        question: "every live element written and finite, dead rows as the contract says, guards intact",
        judge: hygiene::judge,
    },
    Oracle {
        name: "bound",
        question: "every element of O, LSE, dQ, dK and dV within the bound computed beside the reference",
        judge: bound::judge,
    },
    Oracle {
        name: "statistics",
        question: "what is left of O, dQ, dK and dV, once every rounding is applied, is noise of no direction",
        judge: statistics::judge,
    },
    Oracle {
        name: "laws",
        question: "the conservation laws: sum dV = sum dO, sum dK = 0, <q,dQ> = <k,dK>, <v,dV> = <o,dO>",
        judge: laws::judge,
    },
    Oracle {
        name: "exact",
        question: "to the bit what exact arithmetic gives, where nothing is to be rounded",
        judge: exact::judge,
    },
    Oracle {
        name: "race",
        question: "no two accesses in conflict, where the backend can tell",
        judge: race::judge,
    },
];

/// What an oracle judges: one call's inputs and outputs, beside the truth.
pub struct Evidence<'a> {
    /// Index of the call in its scenario.
    pub call: usize,
    /// What went in.
    pub inputs: &'a Inputs,
    /// What came out.
    pub outputs: &'a Outputs,
    /// What should have come out, with bounds.
    pub truth: &'a Truth,
    /// What the backend promises.
    pub contract: Contract,
    /// Conflicting accesses that the backend saw.
    pub races: &'a [String],
    /// How the outputs compare, which more than one asks for.
    pub measures: Vec<Measure>,
}

impl Evidence<'_> {
    /// Is any element of an output beyond its bound, or not a number? Then sums over them say no more.
    pub fn is_beyond(&self, output: Output) -> bool {
        self.measures.iter().any(|m| m.output == output && m.beyond > 0)
    }
}

/// Asks every oracle.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    ORACLES.iter().flat_map(|oracle| (oracle.judge)(evidence)).collect()
}

/// How far the reference goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The forward, and the backward given the O and LSE that the backend stored. Outputs within the bounds of
    /// both are within those of the chain, which allows for both: where all roundings are known, the chain
    /// and the laws tell no more of an answer that passes, and are most of the cost.
    Halves,
    /// The chain and the laws too.
    Whole,
}

/// The bounded reference of a whole call, computed once and shared by all oracles.
#[derive(Debug)]
pub struct Truth {
    /// How far it goes.
    pub depth: Depth,
    /// In the order of [`Unit::all`].
    pub units: Vec<UnitTruth>,
    /// dSink of each query head, where the case has it: given the received O and LSE, and of the chain.
    pub dsink: Option<[Vec<Bounded>; 2]>,
}

/// Which of the three comparisons with the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Judgement {
    /// O and LSE.
    Forward,
    /// Gradients given the received O and LSE.
    Backward,
    /// Gradients of the whole chain.
    Chain,
}

/// One output of one head of one sequence, `[span.len][columns]`, with its bounds.
pub struct Plane<'a> {
    /// Which output.
    pub output: Output,
    /// Index of the sequence.
    pub sequence: usize,
    /// Head, of its own side.
    pub head: usize,
    /// First storage row.
    pub row: usize,
    /// Columns.
    pub columns: usize,
    /// The values.
    pub bounded: &'a Bounded,
}

impl Plane<'_> {
    /// The backend's values, in the order of the bounds.
    pub fn got(&self, outputs: &Outputs) -> Vec<f64> {
        let rows = self.bounded.value.len() / self.columns;
        outputs.get(self.output).rows_of_head(self.row..self.row + rows, self.head)
    }

    /// Index of element `i` in the output's tensor.
    pub fn index(&self, outputs: &Outputs, i: usize) -> usize {
        outputs.get(self.output).index(self.row + i / self.columns, self.head, i % self.columns)
    }

    /// Coordinates of element `i`.
    pub fn coord(&self, i: usize) -> Coord {
        Coord {
            sequence: self.sequence,
            row: Some(i / self.columns),
            head: self.head,
            column: i % self.columns,
        }
    }
}

impl Truth {
    /// Works out every unit to the whole depth, on all cores.
    pub fn work_out(inputs: &Inputs, outputs: &Outputs, rounding: Rounding) -> Truth {
        Truth::work_out_to(Depth::Whole, inputs, outputs, rounding)
    }

    /// Works out every unit, on all cores; to the whole depth where roundings are not applied.
    pub fn work_out_to(depth: Depth, inputs: &Inputs, outputs: &Outputs, rounding: Rounding) -> Truth {
        let depth = if rounding.is_applied() { depth } else { Depth::Whole };
        let case = &inputs.case;
        let units = Unit::all(case).into_par_iter().map(|(sequence, kv_head)| {
            let rows = inputs.q_spans[sequence].rows();
            let heads = || query_heads(case, kv_head);
            let received = Received {
                o: heads().map(|h| outputs.o.rows_of_head(rows.clone(), h)).collect(),
                lse: heads().map(|h| outputs.lse.rows_of_head(rows.clone(), h)).collect(),
            };
            truth::work_out(Unit::new(inputs, sequence, kv_head), case, (rounding, depth), &received)
        });
        let units: Vec<UnitTruth> = units.collect();
        let dsink = Output::Dsink.is_of(case).then(|| {
            let of =
                |gradients: fn(&UnitTruth) -> Option<&Gradients>| sink_gradients(case, &units, gradients);
            [of(|unit| Some(&unit.backward)), of(|unit| unit.chain.as_ref())]
        });
        Truth { depth, units, dsink }
    }

    /// The planes of one judgement; none of the chain where the reference does not go so far.
    pub fn planes<'a>(&'a self, inputs: &'a Inputs, judgement: Judgement) -> Vec<Plane<'a>> {
        let mut planes = Vec::new();
        for truth in &self.units {
            let (unit, sequence) = (&truth.unit, truth.unit.sequence);
            let plane = |output: Output, head: usize, columns: usize, bounded: &'a Bounded| {
                let spans = match output {
                    Output::Dk | Output::Dv => &inputs.kv_spans,
                    Output::O | Output::Lse | Output::Dq | Output::Dsink => &inputs.q_spans,
                };
                Plane { output, sequence, head, row: spans[sequence].row, columns, bounded }
            };
            let gradients = match judgement {
                Judgement::Forward => {
                    for (i, head) in query_heads(&inputs.case, unit.kv_head).enumerate() {
                        planes.push(plane(Output::O, head, unit.e, &truth.o[i]));
                        planes.push(plane(Output::Lse, head, 1, &truth.lse[i]));
                    }
                    continue;
                }
                Judgement::Backward => &truth.backward,
                Judgement::Chain => match &truth.chain {
                    Some(chain) => chain,
                    None => continue,
                },
            };
            for (i, head) in query_heads(&inputs.case, unit.kv_head).enumerate() {
                planes.push(plane(Output::Dq, head, unit.d, &gradients.dq[i]));
            }
            planes.push(plane(Output::Dk, unit.kv_head, unit.d, &gradients.dk));
            planes.push(plane(Output::Dv, unit.kv_head, unit.e, &gradients.dv));
        }
        let sinks = self.dsink.as_ref().and_then(|[backward, chain]| match judgement {
            Judgement::Forward => None,
            Judgement::Backward => Some(backward),
            Judgement::Chain => Some(chain),
        });
        for (head, bounded) in sinks.into_iter().flatten().enumerate() {
            planes.push(Plane { output: Output::Dsink, sequence: 0, head, row: 0, columns: 1, bounded });
        }
        planes
    }
}

/// dSink of every query head, summed over the sequences; nothing where the gradients were not worked out.
fn sink_gradients(
    case: &Case,
    units: &[UnitTruth],
    of: fn(&UnitTruth) -> Option<&Gradients>,
) -> Vec<Bounded> {
    let mut sums = vec![SinkSum::default(); case.heads.q as usize];
    for truth in units {
        let Some(gradients) = of(truth) else { return Vec::new() };
        for (head, share) in query_heads(case, truth.unit.kv_head).zip(&gradients.sinks) {
            sums[head].join(share);
        }
    }
    sums.iter().map(SinkSum::finish).collect()
}
