//! Starting processes from a thread that lives as long as this process.
//!
//! A child asks the kernel to be killed when its parent dies, and to Linux the parent is the *thread*
//! that started it. Backends move between threads, and those come and go.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::backend::protocol;

type Job = (Command, Sender<io::Result<Child>>);

/// Starts `command` from that thread.
///
/// # Errors
/// Whatever the system says.
pub fn spawn(command: Command) -> io::Result<Child> {
    static JOBS: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (sender, jobs) = channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, done) in jobs {
                let child = command.spawn();
                // This process's copies of the child's pipe ends go first: else a child that is asked
                // at once and ends at once would seem to live.
                drop(command);
                let _ = done.send(child);
            }
        });
        Mutex::new(sender)
    });
    let gone = || io::Error::other("the thread that starts processes has ended");
    let (done, child) = channel();
    jobs.lock().unwrap_or_else(PoisonError::into_inner).send((command, done)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// Sees to it that the descriptors which a child finds its pipes under are taken in this process, for
/// good: the standard library reports a failed start through a pipe of its own, and a child must not
/// put its requests in that pipe's place.
///
/// # Errors
/// Whatever the system says.
pub fn hold_descriptors() -> io::Result<()> {
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if !held.is_empty() {
        return Ok(());
    }
    loop {
        let file = File::open("/dev/null")?;
        let above = file.as_raw_fd() > protocol::ANSWERS;
        held.push(file);
        if above {
            return Ok(()); // the lowest free one is above: both are taken
        }
    }
}
