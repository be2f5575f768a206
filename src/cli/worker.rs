//! `worker`: the other end of a backend in a child process.

use std::fs::File;
use std::os::fd::FromRawFd;

use anyhow::{Context, bail};

use super::{Status, Worker};
use crate::backend::custom::Custom;
use crate::backend::{Choice, protocol, worker};

/// Serves a backend until nobody asks any more.
pub(super) fn serve(args: &Worker) -> anyhow::Result<Status> {
    let (requests, answers) = (pipe(protocol::REQUESTS)?, pipe(protocol::ANSWERS)?);
    let mut choice = Choice::find(Some(&args.backend), args.fault.as_deref())?;
    if let (Some(plain), Some(race)) = (&args.library, &args.race_library) {
        choice = choice.with_custom(Custom::libraries(plain.clone(), race.clone()));
    }
    if let Some(folder) = &args.sources {
        choice = choice.with_custom(Custom::folder(folder.clone()));
    }
    let mut backend = choice.open_here()?;
    worker::serve(choice.descriptor.name, &mut *backend, requests, answers)?;
    Ok(Status::Clean)
}

/// A descriptor that whoever started this process left open for it.
fn pipe(number: i32) -> anyhow::Result<File> {
    let path = format!("/proc/self/fd/{number}");
    let target = std::fs::read_link(path).context("a worker is started by another thd-fuzz, not by hand");
    if !target?.to_string_lossy().starts_with("pipe:") {
        bail!("descriptor {number} is no pipe: a worker is started by another thd-fuzz, not by hand");
    }
    // SAFETY: it is open, and nothing else in this process reads or writes it.
    Ok(unsafe { File::from_raw_fd(number) })
}
