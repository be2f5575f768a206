//! Backends: whatever computes O, LSE, dQ, dK and dV of a case.
//!
//! [`BACKENDS`] is the one table; names, lists and help derive from it. A backend's answers are
//! four distinct things: outputs; refused, with the reason; its own fault; and a fault of ours.

use crate::case::Case;
use crate::contract::{Contract, Deterministic};
use crate::inputs::Inputs;
use crate::outputs::Outputs;
use crate::tensor::Poison;

mod choice;
pub mod cuda;
pub mod custom;
pub mod emulator;
pub mod foreign;
pub mod kernels;
pub mod launch;
pub mod model;
pub mod nvrtc;
pub mod params;
pub mod protocol;
pub mod worker;

pub use choice::{Choice, ChoiceError, UnknownName};

use cuda::open::CudaError;
use custom::Takes;
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

    /// Replaces the process that it runs in by a new one, as the next run of a program has; `false` where it
    /// has none of its own.
    fn renew(&mut self) -> bool {
        false
    }

    /// Runs forward and backward, whatever [`supports`](Backend::supports) says: a backend refuses by itself
    /// what it cannot do.
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
        contract: Contract { deterministic: Deterministic::ALL, ..Contract::OWN },
        finds_races: false,
        takes: Takes::Nothing,
        here_is: || Ok(None),
        open: model::open,
        open_here: model::open,
    },
];

/// Why a backend did not open: a fault of ours, or of the machine.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The emulated kernels.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A kind of backend in the place of one.
    #[error("'{0}' is a kind of backend: say {0}:PROGRAM")]
    NoProgram(&'static str),
}
