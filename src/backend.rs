//! Backends: whatever computes O, LSE, dQ, dK and dV of a case.
//!
//! [`BACKENDS`] is the one table; names, lists and help derive from it. A backend's answers are
//! four distinct things: outputs; refused, with the reason; its own fault; and a fault of ours.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::case::{Case, Scenario};
use crate::contract::Contract;
use crate::inputs::Inputs;
use crate::outputs::Outputs;
use crate::tensor::Poison;

pub mod cuda;
pub mod custom;
pub mod emulator;
pub mod kernels;
pub mod launch;
pub mod model;
pub mod nvrtc;
pub mod params;
pub mod protocol;
pub mod worker;

use cuda::open::CudaError;
use custom::{Custom, CustomError, Shop, Takes};
use emulator::library::LibraryError;

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
    /// How soon a run that does not end is called a hang, where the backend is watched.
    pub patience: Patience,
}

/// How long a backend may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// So long that no right backend takes longer, whatever the machine does beside.
    Full,
    /// Shorter, while a case that hangs is shrunk: each smaller one that hangs too costs this time.
    Short,
}

impl Run {
    /// The case as it is, outputs poisoned with NaN.
    pub const PLAIN: Run = Run { poison: Poison::Nan, races: false, patience: Patience::Full };
    /// The same, several times slower where the backend can look for races.
    pub const RACES: Run = Run { races: true, ..Run::PLAIN };
}

/// What a run gave.
#[derive(Clone, Debug)]
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
    /// The device that it runs on stopped, and serves its process no more.
    DeviceFault,
}

/// Something that computes attention forward and backward.
pub trait Backend: Send {
    /// Can it take this case? Asked before every run; a `No` is not a finding.
    fn supports(&self, case: &Case) -> Support;

    /// Library and device with their versions, for a reader; empty where there is nothing to tell.
    fn about(&self) -> String {
        String::new()
    }

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
    /// What it takes in the place of the project's kernels.
    pub takes: Takes,
    here_is: fn() -> Result<Option<String>, OpenError>,
    open: fn(&Choice) -> Result<Box<dyn Backend>, OpenError>,
    /// In this process, as a worker serves it.
    open_here: fn(&Choice) -> Result<Box<dyn Backend>, OpenError>,
}

impl Descriptor {
    /// Can it run here? Then with what device and library, where it has any.
    ///
    /// # Errors
    /// What is missing.
    pub fn here_is(&self) -> Result<Option<String>, OpenError> {
        (self.here_is)()
    }
}

/// Every backend; the first that can run here is the default.
pub static BACKENDS: [Descriptor; 3] = [
    Descriptor {
        name: "cuda",
        about: "the project's CUDA kernels on a GPU, in a child process",
        needs: "an NVIDIA GPU of compute capability 8.0 or more, its driver, and NVRTC 12 or newer",
        faults: &[],
        contract: Contract::OWN,
        finds_races: false,
        takes: Takes::Folder,
        here_is: cuda::open::here_is,
        open: cuda::open::in_child,
        open_here: cuda::open::here,
    },
    Descriptor {
        name: "emulator",
        about: "the project's CUDA kernels compiled for the CPU, in a child process",
        needs: "a C++ compiler at build time",
        faults: &[],
        contract: Contract::OWN,
        finds_races: true,
        takes: Takes::Libraries,
        here_is: || Ok(None),
        open: emulator::open::in_child,
        open_here: emulator::open::here,
    },
    Descriptor {
        name: "model",
        about: "the fused algorithm in Rust, with the kernel's tiles and rounding points",
        needs: "nothing",
        faults: &model::FAULTS,
        contract: Contract::OWN,
        finds_races: false,
        takes: Takes::Nothing,
        here_is: || Ok(None),
        open: model::open,
        open_here: model::open,
    },
];

/// Most bytes of a call's tensors that are watched for races: a shadow takes some fifty times as much.
const RACE_BYTES: u64 = 8 << 20;

/// Why a backend did not open: a fault of ours, or of the machine.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The emulated kernels.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// A backend to open, with a planted bug or without: what `--backend`, `--fault` and `--kernel` choose.
#[derive(Clone)]
pub struct Choice {
    /// The row.
    pub descriptor: &'static Descriptor,
    /// The planted bug.
    pub fault: Option<&'static FaultInfo>,
    /// Kernels in the place of the project's.
    pub custom: Option<Arc<Custom>>,
}

impl Choice {
    /// Looks both names up; without a backend's name, the backend that has the fault, or the default.
    ///
    /// # Errors
    /// A name that is in no table; the message lists those that are.
    pub fn find(backend: Option<&str>, fault: Option<&str>) -> Result<Choice, UnknownName> {
        let rows: Vec<&'static Descriptor> = match backend {
            None => BACKENDS.iter().collect(),
            Some(name) => {
                let row = BACKENDS.iter().find(|row| row.name == name);
                let names = BACKENDS.iter().map(|row| row.name);
                vec![row.ok_or_else(|| UnknownName::new("backend", name, names))?]
            }
        };
        let faults = || rows.iter().flat_map(|&row| row.faults.iter().map(move |fault| (row, fault)));
        let Some(name) = fault else {
            // The last needs nothing.
            let first = rows.iter().find(|row| backend.is_some() || row.here_is().is_ok());
            let descriptor = first.unwrap_or(&rows[rows.len() - 1]);
            return Ok(Choice { descriptor, fault: None, custom: None });
        };
        let found = faults().find(|(_, fault)| fault.name == name);
        let (descriptor, fault) =
            found.ok_or_else(|| UnknownName::new("fault", name, faults().map(|(_, fault)| fault.name)))?;
        Ok(Choice { descriptor, fault: Some(fault), custom: None })
    }

    /// With the user's own source in the place of the kernel source of the same file name. Compiles it.
    ///
    /// # Errors
    /// A backend that takes none, a file that is no kernel source, or what the compiler said.
    pub fn with_kernel(self, file: &Path) -> Result<Choice, CustomError> {
        let custom = Shop::new(self.descriptor)?.make_of(file)?;
        Ok(self.with_custom(custom))
    }

    /// With other kernels, which were made for this backend.
    pub fn with_custom(self, custom: Custom) -> Choice {
        Choice { custom: Some(Arc::new(custom)), ..self }
    }

    /// With the device and the library that it runs on, where it has any: what a log should say.
    pub fn with_device(&self) -> String {
        match self.device() {
            Some(device) => format!("{self} ({device})"),
            None => self.to_string(),
        }
    }

    /// The device and the library that it runs on.
    pub fn device(&self) -> Option<String> {
        self.descriptor.here_is().ok().flatten()
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self) -> Result<Box<dyn Backend>, OpenError> {
        (self.descriptor.open)(self)
    }

    /// The most thorough way to run a scenario: looking for races too, where the backend can and the
    /// memory that it watches is not too much.
    pub fn thorough(&self, scenario: &Scenario) -> Run {
        let bytes: u64 = scenario.calls.iter().map(Case::bytes).max().unwrap_or(0);
        let look = self.descriptor.finds_races && bytes <= RACE_BYTES;
        if look { Run::RACES } else { Run::PLAIN }
    }

    /// Opens it in this process, where a crash or a hang of the backend is one of the process.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_here(&self) -> Result<Box<dyn Backend>, OpenError> {
        (self.descriptor.open_here)(self)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.descriptor.name)?;
        if let Some(custom) = &self.custom {
            write!(f, " with the kernel {}", custom.label().display().to_string().escape_debug())?;
        }
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

impl UnknownName {
    fn new<'a>(what: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> UnknownName {
        let known = known.collect::<Vec<_>>().join(", ");
        UnknownName { what, name: name.into(), known: if known.is_empty() { "none".into() } else { known } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_with_their_defaults() {
        let find = |backend, fault| Choice::find(backend, fault).map(|choice| choice.to_string());
        let default = if BACKENDS[0].here_is().is_ok() { "cuda" } else { "emulator" };
        assert_eq!(find(None, None).unwrap(), default);
        assert_eq!(find(Some("model"), None).unwrap(), "model");
        assert_eq!(find(None, Some("dq-scale")).unwrap(), "model with the planted fault dq-scale");
        assert!(find(None, Some("x")).unwrap_err().to_string().contains("known: "));
        let unknown = find(Some("emulator"), Some("dq-scale")).unwrap_err();
        assert_eq!(unknown.to_string(), "unknown fault 'dq-scale'; known: none");
        let unknown = find(Some("x"), None).unwrap_err();
        assert_eq!(unknown.to_string(), "unknown backend 'x'; known: cuda, emulator, model");
    }
}
