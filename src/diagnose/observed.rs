//! What a scenario showed: every live element beside what it should be.

use crate::case::Scenario;
use crate::check::{HarnessError, Outcome, Side, observe};
use crate::inputs::Inputs;
use crate::oracle::{Finding, Judgement, Truth};
use crate::outputs::{Output, Outputs};
use crate::reference::Unit;

/// One output of one head of one sequence: `[rows][columns]`.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The output.
    pub output: Output,
    /// Index of the sequence.
    pub sequence: usize,
    /// Head, of the output's own side.
    pub head: usize,
    /// First storage row.
    pub row: usize,
    /// Columns.
    pub columns: usize,
    /// What was there.
    pub got: Vec<f64>,
    /// What should be: gradients given the received O and LSE.
    pub want: Vec<f64>,
    /// How far apart the two may be; infinite where nothing is asked.
    pub tau: Vec<f64>,
    /// Of each element: was it never written?
    pub unwritten: Vec<bool>,
    /// Elements beyond their bound, or not finite.
    pub wrong: usize,
}

impl Seen {
    /// Is element `i` beyond its bound?
    pub fn is_wrong(&self, i: usize) -> bool {
        let (got, want, tau) = (self.got[i], self.want[i], self.tau[i]);
        got != want && tau < f64::INFINITY && (got - want).abs().partial_cmp(&tau).is_none_or(|o| o.is_gt())
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// What went in.
    pub inputs: Inputs,
    /// What came out.
    pub outputs: Outputs,
    /// Every plane of every output.
    pub seen: Vec<Seen>,
    /// (sequence, kv head) of every unit, those first that are most wrong.
    pub units: Vec<(usize, usize)>,
}

/// A scenario that was run.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its calls that were answered.
    pub calls: Vec<Call>,
    /// What the oracles hold against them; empty where it passes.
    pub findings: Vec<Finding>,
}

impl Observed {
    /// Runs a scenario; `None` where it passes, or where the backend refuses it.
    ///
    /// # Errors
    /// As [`check`](mod@crate::check).
    pub fn new(scenario: &Scenario, side: Side) -> Result<Option<Observed>, HarnessError> {
        Ok(Observed::any(scenario, side)?.filter(|observed| !observed.findings.is_empty()))
    }

    /// Runs a scenario, which may pass; `None` where the backend refuses it.
    ///
    /// # Errors
    /// As [`check`](mod@crate::check).
    pub fn any(scenario: &Scenario, side: Side) -> Result<Option<Observed>, HarnessError> {
        let mut calls = Vec::new();
        let show =
            |inputs: &Inputs, outputs: &Outputs, truth: &Truth| calls.push(Call::new(inputs, outputs, truth));
        match observe(scenario, side, show)? {
            Outcome::Judged(report) => Ok(Some(Observed { calls, findings: report.findings })),
            Outcome::Refused(_) => Ok(None),
        }
    }

    /// Is any element of O or LSE wrong, or any of the gradients, as `forward` says?
    pub fn is_wrong(&self, forward: bool) -> bool {
        self.calls.iter().any(|call| call.is_wrong(forward))
    }

    /// Live elements.
    pub fn elements(&self) -> usize {
        self.calls.iter().flat_map(|call| &call.seen).map(|seen| seen.got.len()).sum()
    }
}

impl Call {
    /// Of what a call answered, and its truth.
    pub fn new(inputs: &Inputs, outputs: &Outputs, truth: &Truth) -> Call {
        let planes =
            [Judgement::Forward, Judgement::Backward].map(|judgement| truth.planes(inputs, judgement));
        let seen = planes.iter().flatten().map(|plane| {
            let got = plane.got(outputs);
            let poison = |i: usize| outputs.get(plane.output).is_poison(plane.index(outputs, i));
            let mut seen = Seen {
                output: plane.output,
                sequence: plane.sequence,
                head: plane.head,
                row: plane.row,
                columns: plane.columns,
                unwritten: (0..got.len()).map(poison).collect(),
                got,
                want: plane.bounded.value.clone(),
                tau: plane.bounded.tau.clone(),
                wrong: 0,
            };
            seen.wrong = (0..seen.got.len()).filter(|&i| seen.is_wrong(i)).count();
            seen
        });
        let seen: Vec<Seen> = seen.collect();
        let mut units = Unit::all(&inputs.case);
        let group = inputs.case.heads.group() as usize;
        let of_unit = |seen: &Seen, (sequence, kv_head): (usize, usize)| {
            let keys = matches!(seen.output, Output::Dk | Output::Dv);
            seen.sequence == sequence && (if keys { seen.head } else { seen.head / group }) == kv_head
        };
        units.sort_by_cached_key(|&unit| {
            let wrong: usize = seen.iter().filter(|seen| of_unit(seen, unit)).map(|seen| seen.wrong).sum();
            std::cmp::Reverse(wrong)
        });
        Call { seen, units, inputs: inputs.clone(), outputs: outputs.clone() }
    }

    /// Is any element of O or LSE wrong, or any of the gradients, as `forward` says?
    pub fn is_wrong(&self, forward: bool) -> bool {
        self.seen.iter().any(|seen| seen.wrong > 0 && is_forward(seen.output) == forward)
    }

    /// The plane of an output.
    pub fn plane(&self, output: Output, sequence: usize, head: usize) -> Option<&Seen> {
        let is_it = |seen: &&Seen| seen.output == output && seen.sequence == sequence && seen.head == head;
        self.seen.iter().find(is_it)
    }
}

/// Is it an output of the forward?
pub fn is_forward(output: Output) -> bool {
    matches!(output, Output::O | Output::Lse)
}
