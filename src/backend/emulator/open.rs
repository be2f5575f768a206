//! Opening the emulator: in a child as a rule, here where that child serves it; with the project's
//! kernels, or with others.

use std::ffi::OsString;

use super::library::Library;
use super::{Emulator, Kernels};
use crate::backend::custom::Made;
use crate::backend::worker::{Program, Worker};
use crate::backend::{Backend, Choice, OpenError, launch};

/// The emulator in a child process.
pub(in crate::backend) fn in_child(choice: &Choice) -> Result<Box<dyn Backend>, OpenError> {
    let mut args: Vec<OsString> = ["worker", "--backend", "emulator"].map(OsString::from).into();
    if let Some(Made::Libraries { plain, race }) = choice.custom.as_ref().map(|custom| custom.made()) {
        args.extend(["--library".into(), plain.clone().into()]);
        args.extend(["--race-library".into(), race.clone().into()]);
    }
    let worker = Worker::new("emulator", Program::this(args), launch::supports);
    Ok(Box::new(worker.keeping(choice.custom.clone())))
}

/// The emulator in this process.
pub(in crate::backend) fn here(choice: &Choice) -> Result<Box<dyn Backend>, OpenError> {
    let made = choice.custom.as_ref().map(|custom| custom.made());
    let Some(Made::Libraries { plain, race }) = made else { return Ok(Box::new(Emulator::own()?)) };
    let (plain, race) = (Library::load(plain)?, Library::load(race)?);
    Ok(Box::new(Emulator::with(Kernels::Loaded(plain.into(), Some(race.into())))))
}
