//! Questions that ask for more runs than the case itself: what each plans, and how the answers are compared.
//!
//! A question is a law that relates answers. Its plan derives inputs from those of a case that was answered and
//! judged; whoever runs them ([`crate::check`] does) hands the answers back to `judge`. Nothing here runs a
//! backend. Values are compared where the law says that they are equal: to the bit where the backend claims to be
//! deterministic there, else within the sum of both bounds. The reference of a sequence and head depends on nothing
//! outside them, so the planes of the case's truth bound the derived answer as well; only where a law changes
//! values or sums is the derived case's own truth worked out.

use std::collections::HashMap;
use std::str::FromStr;

use super::agreement::Pair;
use super::products::Bounded;
use super::{Depth, Finding, Judgement, Kind, Plane, Truth, budget, metamorphic, repeat};
use crate::case::Sink;
use crate::contract::Contract;
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};
use crate::tensor::Poison;

/// A question.
#[derive(Debug)]
pub struct Question {
    /// Its name on the command line and in findings.
    pub name: &'static str,
    /// The oracle that it belongs to.
    pub oracle: &'static str,
    /// The law, with `f` for the backend.
    pub law: &'static str,
    pub(super) plan: fn(&Base) -> Result<Vec<Step>, String>,
}

/// Every question, in the order in which they are asked.
pub static QUESTIONS: [Question; 14] = [
    repeat::AGAIN,
    repeat::OTHER_POISON,
    repeat::DIRTY_MEMORY,
    repeat::WITHOUT_EARLIER_CALLS,
    repeat::FRESH_PROCESS,
    metamorphic::ALONE,
    metamorphic::REVERSED,
    metamorphic::NO_GAPS,
    metamorphic::OTHER_DEAD_ROWS,
    metamorphic::OTHER_MASK,
    metamorphic::MHA,
    metamorphic::DOUBLED,
    metamorphic::EMPTY_SEQUENCE,
    metamorphic::OTHER_HEAD_ORDER,
];

/// Name of the question whether a backend refuses what it declares unsupported; it has no plan, since the case
/// has no answer to compare with.
pub const REFUSAL: &str = "refusal";

/// Which questions a check asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// None.
    Nothing,
    /// One: the first that applies, from this place of the table on; and [`REFUSAL`].
    InTurn(u64),
    /// This one.
    One(&'static str),
    /// All that apply.
    All,
}

impl Ask {
    /// The questions, in the order in which they are to be tried.
    pub fn questions(self) -> Vec<&'static Question> {
        let mut all: Vec<&Question> = QUESTIONS.iter().collect();
        match self {
            Ask::Nothing => all.clear(),
            Ask::InTurn(turn) => all.rotate_left((turn % QUESTIONS.len() as u64) as usize),
            Ask::One(name) => all.retain(|question| question.name == name),
            Ask::All => {}
        }
        all
    }

    /// How far the reference must go: questions of more runs compare by the bounds of the chain.
    pub fn depth(self) -> Depth {
        if self == Ask::Nothing { Depth::Halves } else { Depth::Whole }
    }

    /// Is one answer enough?
    pub fn is_one(self) -> bool {
        matches!(self, Ask::InTurn(_) | Ask::One(_))
    }

    /// Is a backend to be run on what it declares unsupported?
    pub fn refusal(self) -> bool {
        self == Ask::One(REFUSAL) || matches!(self, Ask::InTurn(_) | Ask::All)
    }
}

/// A text that names no question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no question '{}'; known: all, none, in-turn, {known}", .name.escape_debug())]
pub struct UnknownQuestion {
    name: String,
    known: String,
}

impl FromStr for Ask {
    type Err = UnknownQuestion;

    fn from_str(text: &str) -> Result<Ask, UnknownQuestion> {
        let mut names = QUESTIONS.iter().map(|question| question.name).chain([REFUSAL]);
        match text {
            "all" => Ok(Ask::All),
            "none" => Ok(Ask::Nothing),
            "in-turn" => Ok(Ask::InTurn(0)),
            _ => names.clone().find(|&name| name == text).map(Ask::One).ok_or_else(|| {
                let first = names.next().unwrap_or_default().to_string();
                let known = names.fold(first, |list, name| list + ", " + name);
                UnknownQuestion { name: text.into(), known }
            }),
        }
    }
}

/// The call that a question is asked of: the last of its scenario, answered and found right.
pub struct Base<'a> {
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
}

/// What happens before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing: whatever state earlier calls left is there.
    Nothing,
    /// The backend forgets earlier calls.
    Reset,
    /// The backend's process is replaced by a new one.
    NewProcess,
}

/// One run of a plan.
#[derive(Clone, Debug)]
pub struct Step {
    /// What happens before.
    pub before: Before,
    /// What outputs hold before.
    pub poison: Poison,
    /// What goes in; `None`: what went into the base.
    pub inputs: Option<Inputs>,
    /// What the answer is to be like; `None` where the run only leaves state behind.
    pub like: Option<Likeness>,
}

/// Which values of a derived answer are those of the base.
#[derive(Clone, Debug)]
pub struct Likeness {
    /// For each sequence of the base, the one that is equal to it.
    pub sequences: Vec<Option<usize>>,
    /// For each query head of the base, the one that is equal to it.
    pub q_heads: Vec<usize>,
    /// For each kv head of the base, those whose dK and dV sum to its own.
    pub kv_heads: Vec<Vec<usize>>,
    /// By what the gradients are multiplied.
    pub factor: f64,
}

impl Likeness {
    /// Everything equals itself.
    pub fn whole(inputs: &Inputs) -> Likeness {
        let heads = inputs.case.heads;
        Likeness {
            sequences: (0..inputs.case.sequences()).map(Some).collect(),
            q_heads: (0..heads.q as usize).collect(),
            kv_heads: (0..heads.kv as usize).map(|head| vec![head]).collect(),
            factor: 1.0,
        }
    }

    /// Are values other than those of the base, or sums of others? Then their bounds are other ones too.
    fn needs_truth(&self) -> bool {
        self.factor != 1.0 || self.sums()
    }

    fn sums(&self) -> bool {
        self.kv_heads.iter().any(|heads| heads.len() > 1)
    }

    /// Where the values of a plane of the base are found: sequence and heads. Empty where nowhere.
    fn of(&self, plane: &Plane) -> (usize, &[usize]) {
        let sequence = match plane.output {
            // A sum over the whole batch.
            Output::Dsink if self.sequences.iter().all(Option::is_some) => Some(0),
            Output::Dsink => None,
            _ => self.sequences[plane.sequence],
        };
        let heads = match plane.output {
            Output::Dk | Output::Dv => &self.kv_heads[plane.head],
            _ => std::slice::from_ref(&self.q_heads[plane.head]),
        };
        sequence.map_or((0, &[]), |sequence| (sequence, heads))
    }
}

impl Question {
    /// The runs that it asks for, or why there are none.
    ///
    /// # Errors
    /// Why it does not apply, as a phrase.
    pub fn plan(&self, base: &Base) -> Result<Vec<Step>, String> {
        (self.plan)(base)
    }

    /// The kind of its findings.
    pub fn kind(&self) -> Kind {
        Kind::Derived(self.name)
    }

    /// Compares the answer to a step with the base's: a finding for each output that is not as it should be.
    pub fn judge(&self, base: &Base, step: &Step, outputs: &Outputs) -> Vec<Finding> {
        let Some(like) = &step.like else { return Vec::new() };
        let inputs = step.inputs.as_ref().unwrap_or(base.inputs);
        let own = like.needs_truth().then(|| Truth::work_out(inputs, outputs, base.contract.rounding));
        let mut comparison = Comparison { base, like, inputs, outputs, own: HashMap::new() };
        let mut worst: Vec<Finding> = Vec::new();
        for judgement in [Judgement::Forward, Judgement::Chain] {
            let planes = own.as_ref().map(|truth| truth.planes(inputs, judgement)).unwrap_or_default();
            let planes = planes.into_iter().map(|p| ((p.output, p.sequence, p.head), p.bounded));
            comparison.own = planes.collect();
            for plane in base.truth.planes(base.inputs, judgement) {
                let Some((pair, bits, count)) = comparison.plane(&plane, judgement) else { continue };
                let finding = self.finding(base.call, &pair, bits, count, inputs);
                match worst.iter_mut().find(|known| known.tensor == finding.tensor) {
                    Some(known) if known.error() >= finding.error() => {}
                    Some(known) => *known = finding,
                    None => worst.push(finding),
                }
            }
        }
        let guards = Output::ALL.into_iter().filter(|&output| outputs.get(output).broken_guard().is_some());
        worst.extend(guards.map(|output| {
            let note = format!("memory outside the tensor was written, for {}", inputs.case);
            Finding::of_derived(base.call, Some(output), self.kind(), note)
        }));
        worst
    }

    fn finding(&self, call: usize, pair: &Pair, bits: bool, count: usize, inputs: &Inputs) -> Finding {
        let how = if bits { "to the bit" } else { "within both bounds" };
        let note = format!("{count} elements not equal {how}: {}; other run: {}", self.law, inputs.case);
        Finding {
            at: Some(pair.at),
            got: pair.values[1],
            want: pair.values[0],
            bound: if bits { 0.0 } else { pair.bound() },
            ..Finding::of_derived(call, Some(pair.output), self.kind(), note)
        }
    }
}

/// The question of this name.
pub fn find(name: &str) -> Option<&'static Question> {
    QUESTIONS.iter().find(|question| question.name == name)
}

/// Two answers that a law relates.
struct Comparison<'a> {
    base: &'a Base<'a>,
    like: &'a Likeness,
    inputs: &'a Inputs,
    outputs: &'a Outputs,
    /// Planes of the derived case's own truth, by sequence and head, where the base's do not serve.
    own: HashMap<(Output, usize, usize), &'a Bounded>,
}

impl Comparison<'_> {
    /// The worst pair of a plane that is not as it should be, whether bits were compared, and how many such
    /// pairs there are.
    fn plane(&self, plane: &Plane, judgement: Judgement) -> Option<(Pair, bool, usize)> {
        let (sequence, heads) = self.like.of(plane);
        if heads.is_empty() {
            return None;
        }
        let gradient = judgement == Judgement::Chain;
        let factor = if gradient { self.like.factor } else { 1.0 };
        let wanted = plane.got(self.base.outputs);
        // The zero that adds nothing, not even a sign.
        let (mut got, mut tau) = (vec![-0.0; wanted.len()], vec![0.0; wanted.len()]);
        for &head in heads {
            let rows = self.rows(plane, sequence, wanted.len());
            let values = self.outputs.get(plane.output).rows_of_head(rows, head);
            got.iter_mut().zip(values).for_each(|(sum, x)| *sum += x / factor);
            let own = self.own.get(&(plane.output, sequence, head)).unwrap_or(&plane.bounded);
            tau.iter_mut().zip(&own.tau).for_each(|(sum, t)| *sum += t / factor.abs());
        }
        let bits = heads.len() == 1 && self.claims(plane.output) && (factor == 1.0 || self.doubles(plane));
        let mut worst: Option<(Pair, usize)> = None;
        for i in 0..wanted.len() {
            let bounds = [plane.bounded.tau[i], tau[i]];
            let pair = Pair { output: plane.output, at: plane.coord(i), values: [wanted[i], got[i]], bounds };
            if !is_apart(&pair, bits) {
                continue;
            }
            match &mut worst {
                Some((known, count)) => {
                    *count += 1;
                    if pair.apart() > known.apart() {
                        *known = pair;
                    }
                }
                None => worst = Some((pair, 1)),
            }
        }
        worst.map(|(pair, count)| (pair, bits, count))
    }

    fn rows(&self, plane: &Plane, sequence: usize, len: usize) -> std::ops::Range<usize> {
        let first = match plane.output {
            Output::Dk | Output::Dv => self.inputs.kv_spans[sequence].row,
            Output::O | Output::Lse | Output::Dq => self.inputs.q_spans[sequence].row,
            Output::Dsink => 0,
        };
        first..first + len / plane.columns
    }

    /// Does the backend claim this output to the bit?
    fn claims(&self, output: Output) -> bool {
        let claims = self.base.contract.deterministic;
        let same_batch = || self.like.sequences.iter().enumerate().all(|(i, &to)| to == Some(i));
        match output {
            Output::O | Output::Lse => claims.forward,
            Output::Dq => claims.dq,
            Output::Dk | Output::Dv => claims.dk_dv,
            Output::Dsink => claims.dsink && same_batch(),
        }
    }

    /// Is a gradient to the bit doubled when dO is?
    fn doubles(&self, plane: &Plane) -> bool {
        let case = &self.base.inputs.case;
        let plain = case.softcap.is_none() && case.sink == Sink::None;
        let spread = || metamorphic::spread(self.base.inputs, plane.sequence);
        plain && budget::doubles_to_the_bit(case.dtype, spread(), case.dout.scale)
    }
}

/// Are two values further apart than they may be? A NaN is a NaN; where either may overflow, nothing is asked
/// but bits.
fn is_apart(pair: &Pair, bits: bool) -> bool {
    let [x, y] = pair.values;
    match bits {
        true => x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan()),
        false => pair.bound().is_finite() && pair.apart() > 1.0,
    }
}
