//! Backends that are somebody else's: a program that speaks the worker protocol.
//!
//! `cmd:PROGRAM` names one. It is started once when it is chosen, to hear who it is, what it promises and
//! whether it is a worker at all; each of a campaign's threads then has one of its own.

use std::path::PathBuf;

use super::custom::Takes;
use super::protocol::Hello;
use super::worker::{Program, Worker};
use super::{Backend, Choice, Descriptor, OpenError, RunError, Support};
use crate::contract::Contract;

/// Every kind of them: the name is followed by a colon and what is to be run.
pub static FOREIGN: [Descriptor; 1] = [Descriptor {
    name: "cmd",
    about: "a program that speaks the worker protocol, as cmd:PROGRAM",
    needs: "the program: docs/protocol.md says what it reads and writes, examples/worker.py is one",
    faults: &[],
    contract: super::protocol::LEAST,
    finds_races: false,
    takes: Takes::Nothing,
    here_is: || Ok(None),
    open,
    open_here: open,
}];

/// A program that said hello.
#[derive(Debug)]
pub struct Foreign {
    /// As it was asked for.
    name: String,
    program: Program,
    hello: Hello,
}

/// Why a program serves as no backend.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// Nothing behind the colon.
    #[error("'{0}:' lacks the program: say {0}:PROGRAM")]
    NoProgram(&'static str),
    /// It does not start, or says no hello.
    #[error("{0}; docs/protocol.md says what a worker is")]
    NoWorker(String),
}

impl Foreign {
    /// The row of a name such as `cmd:PROGRAM`, with what stands behind the colon.
    pub fn row_of(name: &str) -> Option<(&'static Descriptor, &str)> {
        let (kind, what) = name.split_once(':')?;
        FOREIGN.iter().find(|row| row.name == kind).map(|row| (row, what))
    }

    /// Starts the program and hears who it is.
    ///
    /// # Errors
    /// [`ForeignError`].
    pub fn new(row: &'static Descriptor, what: &str) -> Result<Foreign, ForeignError> {
        if what.is_empty() {
            return Err(ForeignError::NoProgram(row.name));
        }
        let program = Program { path: PathBuf::from(what), args: Vec::new() };
        let mut worker = Worker::of_anyone(program.clone());
        let hello = worker.greet().map_err(|error| match error {
            RunError::Harness(message) => ForeignError::NoWorker(message),
            other => ForeignError::NoWorker(other.to_string()),
        })?;
        Ok(Foreign { name: format!("{}:{what}", row.name), program, hello })
    }

    /// As it was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it calls itself, with its library and device.
    pub fn about(&self) -> String {
        format!("{}: {}", self.hello.backend, self.hello.about)
    }

    /// What it promises.
    pub fn contract(&self) -> Contract {
        self.hello.contract
    }
}

fn open(choice: &Choice) -> Result<Box<dyn Backend>, OpenError> {
    let foreign = choice.foreign.as_ref().ok_or(OpenError::NoProgram(choice.descriptor.name))?;
    Ok(Box::new(Worker::of_anyone(foreign.program.clone())))
}

/// What a program refuses it says itself, when it is asked to run.
pub(super) fn supports(_: &crate::case::Case) -> Support {
    Support::Yes
}
