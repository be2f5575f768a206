//! Which backend runs, with which planted bug and whose kernels: what the command line chooses.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::custom::{Custom, CustomError, Shop};
use super::foreign::{Foreign, ForeignError};
use super::{BACKENDS, Backend, Descriptor, FaultInfo, OpenError, Run};
use crate::case::{Case, Scenario};
use crate::contract::Contract;

/// Most bytes of a call's tensors that are watched for races: a shadow takes some fifty times as much.
const RACE_BYTES: u64 = 8 << 20;

/// A backend to open, with a planted bug or without: what `--backend`, `--fault` and `--kernel` choose.
#[derive(Clone)]
pub struct Choice {
    /// The row.
    pub descriptor: &'static Descriptor,
    /// The planted bug.
    pub fault: Option<&'static FaultInfo>,
    /// Kernels in the place of the project's.
    pub custom: Option<Arc<Custom>>,
    /// Somebody else's program, of a row that runs one.
    pub foreign: Option<Arc<Foreign>>,
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
            return Ok(Choice { descriptor, fault: None, custom: None, foreign: None });
        };
        let found = faults().find(|(_, fault)| fault.name == name);
        let (descriptor, fault) =
            found.ok_or_else(|| UnknownName::new("fault", name, faults().map(|(_, fault)| fault.name)))?;
        Ok(Choice { descriptor, fault: Some(fault), custom: None, foreign: None })
    }

    /// As [`find`](Choice::find), and `cmd:PROGRAM` and the like too: such a program is started to hear who it is.
    ///
    /// # Errors
    /// A name that is in no table, or a program that is no worker.
    pub fn named(backend: Option<&str>, fault: Option<&str>) -> Result<Choice, ChoiceError> {
        let Some((row, what)) = backend.and_then(Foreign::row_of) else {
            return Ok(Choice::find(backend, fault)?);
        };
        if let Some(name) = fault {
            return Err(UnknownName::new("fault", name, std::iter::empty()).into());
        }
        let foreign = Foreign::new(row, what)?;
        Ok(Choice { descriptor: row, fault: None, custom: None, foreign: Some(Arc::new(foreign)) })
    }

    /// Its name on the command line.
    pub fn name(&self) -> &str {
        self.foreign.as_ref().map_or(self.descriptor.name, |foreign| foreign.name())
    }

    /// What the backend promises.
    pub fn contract(&self) -> Contract {
        self.foreign.as_ref().map_or(self.descriptor.contract, |foreign| foreign.contract())
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
        match &self.foreign {
            Some(foreign) => Some(foreign.about()),
            None => self.descriptor.here_is().ok().flatten(),
        }
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
        write!(f, "{}", self.name().escape_debug())?;
        if let Some(custom) = &self.custom {
            write!(f, " with the kernel {}", custom.label().display().to_string().escape_debug())?;
        }
        self.fault.map_or(Ok(()), |fault| write!(f, " with the planted fault {}", fault.name))
    }
}

/// Why there is no such choice.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// A name that is in no table.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// A program that is no worker.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
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
