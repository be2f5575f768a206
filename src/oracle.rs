//! Oracles: questions asked of a backend's outputs. Pure; none runs a backend.
//!
//! [`ORACLES`] lists them in the order of a finding's identity. [`budget`] is the only file with a
//! tolerance in it.

use std::fmt;

use rayon::prelude::*;

use crate::contract::{Contract, Rounding};
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};
use crate::reference::{Unit, query_heads};

pub mod bound;
pub mod budget;
pub mod hygiene;
pub mod laws;
pub mod products;
pub mod truth;

use bound::Measure;
use products::Bounded;
use truth::{Received, UnitTruth};

/// An oracle.
pub struct Oracle {
    /// Its name in reports and corpus files.
    pub name: &'static str,
    /// The question it asks.
    pub question: &'static str,
    judge: fn(&Evidence) -> Vec<Finding>,
}

/// Every oracle, in the order of identity.
pub const ORACLES: [Oracle; 3] = [
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
        name: "laws",
        question: "the conservation laws: sum dV = sum dO, sum dK = 0, <q,dQ> = <k,dK>, <v,dV> = <o,dO>",
        judge: laws::judge,
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
    /// How the outputs compare, which more than one asks for.
    pub measures: Vec<Measure>,
}

impl<'a> Evidence<'a> {
    /// Works out the truth's comparison with the outputs.
    pub fn new(
        call: usize,
        inputs: &'a Inputs,
        outputs: &'a Outputs,
        truth: &'a Truth,
        contract: Contract,
    ) -> Self {
        let measures = bound::measure(inputs, outputs, truth);
        Evidence { call, inputs, outputs, truth, contract, measures }
    }
}

/// Asks every oracle.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    ORACLES.iter().flat_map(|oracle| (oracle.judge)(evidence)).collect()
}

/// The bounded reference of a whole call, computed once and shared by all oracles.
#[derive(Debug)]
pub struct Truth {
    /// In the order of [`Unit::all`].
    pub units: Vec<UnitTruth>,
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
    /// Works out every unit, on all cores.
    pub fn work_out(inputs: &Inputs, outputs: &Outputs, rounding: Rounding) -> Truth {
        let case = &inputs.case;
        let units = Unit::all(case).into_par_iter().map(|(sequence, kv_head)| {
            let rows = inputs.q_spans[sequence].rows();
            let heads = || query_heads(case, kv_head);
            let received = Received {
                o: heads().map(|h| outputs.o.rows_of_head(rows.clone(), h)).collect(),
                lse: heads().map(|h| outputs.lse.rows_of_head(rows.clone(), h)).collect(),
            };
            truth::work_out(Unit::new(inputs, sequence, kv_head), case, rounding, &received)
        });
        Truth { units: units.collect() }
    }

    /// The planes of one judgement.
    pub fn planes<'a>(&'a self, inputs: &'a Inputs, judgement: Judgement) -> Vec<Plane<'a>> {
        let mut planes = Vec::new();
        for truth in &self.units {
            let (unit, sequence) = (&truth.unit, truth.unit.sequence);
            let plane = |output: Output, head: usize, columns: usize, bounded: &'a Bounded| {
                let spans = match output {
                    Output::Dk | Output::Dv => &inputs.kv_spans,
                    Output::O | Output::Lse | Output::Dq => &inputs.q_spans,
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
                Judgement::Chain => &truth.chain,
            };
            for (i, head) in query_heads(&inputs.case, unit.kv_head).enumerate() {
                planes.push(plane(Output::Dq, head, unit.d, &gradients.dq[i]));
            }
            planes.push(plane(Output::Dk, unit.kv_head, unit.d, &gradients.dk));
            planes.push(plane(Output::Dv, unit.kv_head, unit.e, &gradients.dv));
        }
        planes
    }
}

/// Where in an output, in logical coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coord {
    /// Index of the sequence.
    pub sequence: usize,
    /// Row inside the sequence; `None` where a sum over rows is judged.
    pub row: Option<usize>,
    /// Head of the output's own side.
    pub head: usize,
    /// Column.
    pub column: usize,
}

impl fmt::Display for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}, ", self.sequence)?;
        match self.row {
            Some(row) => write!(f, "row {row}, ")?,
            None => write!(f, "all rows, ")?,
        }
        write!(f, "head {}, column {}", self.head, self.column)
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The backend's process died.
    Crash,
    /// The backend did not answer in time.
    Hang,
    /// The backend answered with an error status.
    Error,
    /// A live element that nobody wrote.
    Unwritten,
    /// A dead row that is not as the contract says.
    DeadRow,
    /// Memory outside a tensor that was written.
    Guard,
    /// A live element that is not finite.
    NonFinite,
    /// An element of O or LSE beyond its bound.
    Forward,
    /// An element of a gradient beyond its bound, given the backend's own O and LSE.
    Backward,
    /// An element of a gradient beyond its bound, forward's error included.
    Chain,
    /// A conservation law broken.
    Law(u8),
}

impl Kind {
    /// The oracle that reports it; "backend" for the backend's own faults.
    pub fn oracle(self) -> &'static str {
        match self {
            Kind::Crash | Kind::Hang | Kind::Error => "backend",
            Kind::Unwritten | Kind::DeadRow | Kind::Guard | Kind::NonFinite => "hygiene",
            Kind::Forward | Kind::Backward | Kind::Chain => "bound",
            Kind::Law(_) => "laws",
        }
    }

    /// Its name in reports.
    pub fn name(self) -> String {
        match self {
            Kind::Crash => "crash".into(),
            Kind::Hang => "hang".into(),
            Kind::Error => "error".into(),
            Kind::Unwritten => "unwritten".into(),
            Kind::DeadRow => "dead-row".into(),
            Kind::Guard => "guard".into(),
            Kind::NonFinite => "non-finite".into(),
            Kind::Forward => "forward".into(),
            Kind::Backward => "backward".into(),
            Kind::Chain => "chain".into(),
            Kind::Law(law) => format!("law-{law}"),
        }
    }

    /// The class that a finding's identity keeps. A NaN is a value that is wrong without bound, and
    /// a smaller case may show the same fault as a finite one; a law is kept apart, since it sees
    /// what no element shows.
    fn class(self) -> Class {
        match self {
            Kind::Crash => Class::Crash,
            Kind::Hang => Class::Hang,
            Kind::Error => Class::Error,
            Kind::Unwritten => Class::Unwritten,
            Kind::DeadRow => Class::DeadRow,
            Kind::Guard => Class::Guard,
            Kind::NonFinite | Kind::Forward | Kind::Backward | Kind::Chain => Class::Value,
            Kind::Law(_) => Class::Law,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Class {
    Crash,
    Hang,
    Error,
    Unwritten,
    DeadRow,
    Guard,
    Value,
    Law,
}

/// Something wrong in one call.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Index of the call in its scenario.
    pub call: usize,
    /// The output at fault; `None` where the backend gave none.
    pub tensor: Option<Output>,
    /// What is wrong.
    pub kind: Kind,
    /// Where it is worst.
    pub at: Option<Coord>,
    /// What was there.
    pub got: f64,
    /// What should be.
    pub want: f64,
    /// How far apart they may be.
    pub bound: f64,
    /// More for a reader, such as how many elements are wrong; may be empty.
    pub note: String,
}

impl Finding {
    /// The size of the error in units of its bound: above 1. Infinite where a value is not finite
    /// or nothing but equality is allowed.
    pub fn error(&self) -> f64 {
        let error = (self.got - self.want).abs() / self.bound;
        if error.is_nan() { f64::INFINITY } else { error }
    }
}

/// What a shrinker keeps: the first class that fires, and the first output in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    class: Class,
    tensor: Option<Output>,
}

impl Identity {
    /// Of a scenario's findings; `None` without any.
    pub fn of(findings: &[Finding]) -> Option<Identity> {
        findings.iter().map(|f| Identity { class: f.kind.class(), tensor: f.tensor }).min()
    }

    /// The finding that a report leads with: the worst one of this identity.
    pub fn lead<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        let mine = findings.iter().filter(|f| f.kind.class() == self.class && f.tensor == self.tensor);
        mine.max_by(|a, b| a.error().total_cmp(&b.error()))
    }
}
