//! Backends: whatever computes O, LSE, dQ, dK and dV of a case.
//!
//! [`BACKENDS`] is the one table; names, lists and help derive from it. A backend's answers are
//! four distinct things: outputs; refused, with the reason; its own fault; and a fault of ours.

use std::fmt;

use crate::case::Case;
use crate::contract::Contract;
use crate::inputs::Inputs;
use crate::outputs::Outputs;
use crate::tensor::Poison;

pub mod emulator;
pub mod kernels;
pub mod launch;
pub mod model;
pub mod params;

/// Can a backend take a case?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Yes.
    Yes,
    /// No, and why.
    No(String),
}

/// How a run may differ from the plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// What outputs hold before.
    pub poison: Poison,
    /// Look for races, where the backend can.
    pub races: bool,
}

impl Run {
    /// The case as it is, outputs poisoned with NaN.
    pub const PLAIN: Run = Run { poison: Poison::Nan, races: false };
    /// The same, several times slower where the backend can look for races.
    pub const RACES: Run = Run { poison: Poison::Nan, races: true };
}

/// What a run gave.
#[derive(Debug)]
pub struct Answer {
    /// The outputs.
    pub outputs: Outputs,
    /// Conflicting accesses, a sentence each, where races were asked for.
    pub races: Vec<String>,
}

/// Why a run gave no outputs.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The backend says that it does not do such cases. Not a finding.
    #[error("refused: {0}")]
    Refused(String),
    /// The backend is at fault. A finding.
    #[error("{kind:?}: {detail}")]
    Fault {
        /// How it failed.
        kind: Failure,
        /// What it said.
        detail: String,
    },
    /// We are at fault; the program stops with status 2.
    #[error("{0}")]
    Harness(String),
}

/// How a backend failed to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its process died.
    Crash,
    /// It did not answer in time.
    Hang,
    /// It answered with an error status.
    Error,
}

/// Something that computes attention forward and backward.
pub trait Backend: Send {
    /// Can it take this case? Asked before every run; a `No` is not a finding.
    fn supports(&self, case: &Case) -> Support;

    /// Forgets all state of earlier calls. Precedes every scenario: state lives inside one only.
    fn reset(&mut self);

    /// Runs forward and backward.
    ///
    /// # Errors
    /// [`RunError`], which keeps refusal, the backend's fault and ours apart.
    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError>;
}

/// A planted bug that a backend can carry, to measure the harness.
#[derive(Clone, Copy, Debug)]
pub struct FaultInfo {
    /// Its name on the command line.
    pub name: &'static str,
    /// Class of the bug taxonomy.
    pub class: &'static str,
    /// What is wrong.
    pub about: &'static str,
    /// What a campaign must shrink it to.
    pub minimal: &'static str,
}

/// One row of [`BACKENDS`].
pub struct Descriptor {
    /// Its name on the command line.
    pub name: &'static str,
    /// What runs.
    pub about: &'static str,
    /// What it needs.
    pub needs: &'static str,
    /// Planted bugs that it can carry.
    pub faults: &'static [FaultInfo],
    /// What it promises.
    pub contract: Contract,
    /// Can it look for races?
    pub finds_races: bool,
    open: fn(Option<&'static FaultInfo>) -> Box<dyn Backend>,
}

/// Every backend.
pub static BACKENDS: [Descriptor; 1] = [Descriptor {
    name: "model",
    about: "the fused algorithm in Rust, with the kernel's tiles and rounding points",
    needs: "nothing",
    faults: &model::FAULTS,
    contract: Contract::OWN,
    finds_races: false,
    open: model::open,
}];

/// A backend to open, with a planted bug or without: what `--backend` and `--fault` choose.
#[derive(Clone, Copy)]
pub struct Choice {
    /// The row.
    pub descriptor: &'static Descriptor,
    /// The planted bug.
    pub fault: Option<&'static FaultInfo>,
}

impl Choice {
    /// Looks both names up; without a backend's name, the default backend.
    ///
    /// # Errors
    /// A name that is in no table; the message lists those that are.
    pub fn find(backend: Option<&str>, fault: Option<&str>) -> Result<Choice, UnknownName> {
        let descriptor = match backend {
            None => &BACKENDS[0],
            Some(name) => BACKENDS.iter().find(|row| row.name == name).ok_or_else(|| UnknownName {
                what: "backend",
                name: name.into(),
                known: BACKENDS.iter().map(|row| row.name).collect::<Vec<_>>().join(", "),
            })?,
        };
        let find = |name: &str| {
            descriptor.faults.iter().find(|fault| fault.name == name).ok_or_else(|| UnknownName {
                what: "fault",
                name: name.into(),
                known: descriptor.faults.iter().map(|fault| fault.name).collect::<Vec<_>>().join(", "),
            })
        };
        Ok(Choice { descriptor, fault: fault.map(find).transpose()? })
    }

    /// Opens it.
    pub fn open(&self) -> Box<dyn Backend> {
        (self.descriptor.open)(self.fault)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.descriptor.name)?;
        self.fault.map_or(Ok(()), |fault| write!(f, " with the planted fault {}", fault.name))
    }
}

/// A name that is in no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} '{}'; known: {known}", .name.escape_debug())]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: String,
}
