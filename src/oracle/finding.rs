//! Findings: what is wrong, where, by how much, and which of them are the same.

use std::fmt;

use super::question::{self, Ask};
use crate::outputs::Output;

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
    /// The device that the backend runs on stopped at a fault.
    DeviceFault,
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
    /// Elements that are off by a fraction of a rounding, all the same way.
    Bias,
    /// Elements that are off by more than roundings are, on the whole.
    Spread,
    /// A conservation law broken.
    Law(u8),
    /// An element that is not what exact arithmetic gives, where nothing is rounded.
    Inexact,
    /// Accesses in conflict.
    Race,
    /// An answer that is not what another answer says that it should be, by the question of this name.
    Derived(&'static str),
    /// A wrong answer to a case that the backend declares unsupported, or a fault of it there.
    Refusal,
}

impl Kind {
    /// The oracle that reports it; "backend" for the backend's own faults.
    pub fn oracle(self) -> &'static str {
        match self {
            Kind::Crash | Kind::DeviceFault | Kind::Hang | Kind::Error => "backend",
            Kind::Unwritten | Kind::DeadRow | Kind::Guard | Kind::NonFinite => "hygiene",
            Kind::Forward | Kind::Backward | Kind::Chain => "bound",
            Kind::Bias | Kind::Spread => "statistics",
            Kind::Law(_) => "laws",
            Kind::Inexact => "exact",
            Kind::Race => "race",
            Kind::Derived(name) => question::find(name).map_or("derived", |question| question.oracle),
            Kind::Refusal => "refusal",
        }
    }

    /// Its name in reports.
    pub fn name(self) -> String {
        match self {
            Kind::Crash => "crash".into(),
            Kind::DeviceFault => "device-fault".into(),
            Kind::Hang => "hang".into(),
            Kind::Error => "error".into(),
            Kind::Unwritten => "unwritten".into(),
            Kind::DeadRow => "dead-row".into(),
            Kind::Guard => "guard".into(),
            Kind::NonFinite => "non-finite".into(),
            Kind::Forward => "forward".into(),
            Kind::Backward => "backward".into(),
            Kind::Chain => "chain".into(),
            Kind::Bias => "bias".into(),
            Kind::Spread => "spread".into(),
            Kind::Law(law) => format!("law-{law}"),
            Kind::Inexact => "inexact".into(),
            Kind::Race => "race".into(),
            Kind::Derived(name) => name.into(),
            Kind::Refusal => "answered".into(),
        }
    }

    /// Is it a statement about chance, which other data must confirm?
    pub fn is_statistical(self) -> bool {
        self.class() == Class::Statistic
    }

    /// The class that a finding's identity keeps. A NaN is a value that is wrong without bound, and
    /// a smaller case may show the same fault as a finite one; a law is kept apart, since it sees
    /// what no element shows.
    fn class(self) -> Class {
        match self {
            Kind::Crash => Class::Crash,
            Kind::DeviceFault => Class::DeviceFault,
            Kind::Hang => Class::Hang,
            Kind::Error => Class::Error,
            Kind::Unwritten => Class::Unwritten,
            Kind::DeadRow => Class::DeadRow,
            Kind::Guard => Class::Guard,
            Kind::NonFinite | Kind::Forward | Kind::Backward | Kind::Chain => Class::Value,
            Kind::Bias | Kind::Spread => Class::Statistic,
            Kind::Law(_) => Class::Law,
            Kind::Inexact => Class::Inexact,
            Kind::Race => Class::Race,
            Kind::Derived(name) => Class::Derived(name),
            Kind::Refusal => Class::Refusal,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Class {
    Crash,
    DeviceFault,
    Hang,
    Error,
    Unwritten,
    DeadRow,
    Guard,
    Value,
    Statistic,
    Law,
    Inexact,
    Race,
    Derived(&'static str),
    Refusal,
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
    /// Of a run beside the case's own, where nothing but a sentence tells of it.
    pub fn of_derived(call: usize, tensor: Option<Output>, kind: Kind, note: String) -> Finding {
        Finding { call, tensor, kind, at: None, got: f64::NAN, want: 0.0, bound: 0.0, note }
    }

    /// The size of the error in units of its bound: above 1. Infinite where a value is not finite
    /// or nothing but equality is allowed.
    pub fn error(&self) -> f64 {
        let error = (self.got - self.want).abs() / self.bound;
        if error.is_nan() { f64::INFINITY } else { error }
    }
}

/// What a shrinker keeps: a class of wrong, and the output that shows it.
///
/// A scenario is known by the first class that fires and the first output in it. A smaller one shows
/// the same as long as this is among what it shows: what else fails there, fails beside it.
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

    /// Must a run look for races to see it?
    pub fn needs_races(&self) -> bool {
        self.class == Class::Race
    }

    /// What must be asked to see it again.
    pub fn ask(&self) -> Ask {
        match self.class {
            Class::Derived(name) => Ask::One(name),
            Class::Refusal => Ask::One(question::REFUSAL),
            _ => Ask::Nothing,
        }
    }

    /// Does it cost a run's whole time to see it?
    pub fn is_hang(&self) -> bool {
        self.class == Class::Hang
    }

    /// The worst finding of this identity; `None` where it is not among `findings`.
    pub fn lead<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        let mine = findings.iter().filter(|f| f.kind.class() == self.class && f.tensor == self.tensor);
        mine.max_by(|a, b| a.error().total_cmp(&b.error()))
    }
}
