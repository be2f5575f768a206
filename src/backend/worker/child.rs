//! A child process that speaks the protocol: started, asked, ended. Nothing here waits for it without
//! a deadline.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};

use super::exchange::{Deadline, Lost, Reading, Sending, Watch};
use super::spawner;
use super::tail::Tail;
use crate::backend::protocol::{self, ProtocolError};

/// How long a child that closed its answers may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long a killed child may take to go, which is long only where a driver holds it.
const LAST: Duration = Duration::from_secs(10);
/// What a pipe should hold: fewer switches for a large tensor.
const PIPE: usize = 1 << 20;

/// What to run as a child.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// A running child.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    requests: OwnedFd,
    answers: OwnedFd,
    said: Tail,
}

impl Child {
    /// Starts a program.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn start(program: &Program) -> io::Result<Child> {
        spawner::hold_descriptors()?;
        let (their_requests, requests) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answers, their_answers) = pipe_with(PipeFlags::CLOEXEC)?;
        let (said, their_output) = pipe_with(PipeFlags::CLOEXEC)?;
        for pipe in [&requests, &answers] {
            // Refused where the user's pipes are many already; it works with any size.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE);
        }
        for ours in [&requests, &answers, &said] {
            rustix::io::ioctl_fionbio(ours, true)?;
        }
        let mut command = Command::new(&program.path);
        command.args(&program.args).stdin(Stdio::null());
        command.stdout(their_output.try_clone()?).stderr(their_output);
        // A group of its own: a Ctrl-C on the terminal is this process's to handle.
        command.process_group(0);
        let parent = rustix::process::getpid();
        let prepare = move || prepare(parent, &their_requests, &their_answers);
        // SAFETY: between fork and exec; `prepare` makes system calls and nothing else.
        unsafe { command.pre_exec(prepare) };
        let process = spawner::spawn(command)?;
        Ok(Child { process, requests, answers, said: Tail::new(said) })
    }

    /// Sends messages and waits for one of at most `limit` bytes.
    ///
    /// # Errors
    /// [`Lost`]; then the child is good for nothing but [`Child::end`].
    pub fn ask(&mut self, messages: &[Vec<u8>], limit: u64, deadline: Deadline) -> Result<Vec<u8>, Lost> {
        self.said.clear();
        if self.is_readable() {
            let extra = rustix::io::read(&self.answers, &mut [0; 1][..]);
            return Err(if extra == Ok(1) { Lost::Nonsense(ProtocolError::Unasked) } else { Lost::Ended });
        }
        let mut sending = Sending::new(messages);
        let mut reading = Reading::new(limit);
        let mut watch = Watch::new(deadline, self.process.id());
        loop {
            if let Some(frame) = reading.done() {
                return Ok(frame);
            }
            self.wait(!sending.is_done(), watch.next_look());
            self.said.read();
            sending.write(&self.requests);
            reading.read(&self.answers)?;
            watch.look()?;
        }
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.answers, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
    }

    /// Until there is something to do, or for `time`.
    fn wait(&self, sends: bool, time: Duration) {
        let mut fds = vec![PollFd::new(&self.answers, PollFlags::IN)];
        fds.extend(self.said.source().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(sends.then(|| PollFd::new(&self.requests, PollFlags::OUT)));
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        // Interrupted or not: whoever calls looks what there is.
        let _ = poll(&mut fds, Some(&time));
    }

    /// Ends the child, by force where it does not end by itself in `grace`, and all that it started.
    /// How it ended, and the last lines that it printed.
    pub fn end(mut self, grace: Duration) -> (Option<ExitStatus>, String) {
        let status = self.stop(grace);
        self.said.read();
        (status, self.said.lines())
    }

    /// As [`Child::end`], for a child that closed its answers.
    pub fn autopsy(self) -> (Option<ExitStatus>, String) {
        self.end(GRACE)
    }

    fn stop(&mut self, grace: Duration) -> Option<ExitStatus> {
        let pid = Pid::from_child(&self.process);
        let ended = || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            !matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None))
        };
        let wait = |limit: Duration| {
            let start = Instant::now();
            while !ended() && start.elapsed() < limit {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait(grace);
        // Not yet waited for, so that the group's number is still its own. Fails where all are gone.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        wait(LAST);
        self.process.try_wait().ok().flatten()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// In the child, before it becomes the program.
fn prepare(parent: Pid, requests: &OwnedFd, answers: &OwnedFd) -> io::Result<()> {
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        return Err(Errno::SRCH.into()); // it died before the line above
    }
    // Both away from the numbers that they shall have, before either takes one.
    let above = protocol::ANSWERS + 1;
    let requests = rustix::io::fcntl_dupfd_cloexec(requests.as_fd(), above)?;
    let answers = rustix::io::fcntl_dupfd_cloexec(answers.as_fd(), above)?;
    for (fd, number) in [(requests, protocol::REQUESTS), (answers, protocol::ANSWERS)] {
        // SAFETY: whatever has this number, nobody here owns; it is given up again below.
        let mut place = unsafe { OwnedFd::from_raw_fd(number) };
        let placed = rustix::io::dup2(&fd, &mut place);
        std::mem::forget(place);
        placed?;
    }
    Ok(())
}

/// How a process ended, in words.
pub fn describe(status: Option<ExitStatus>) -> String {
    let Some(status) = status else { return "it cannot be waited for".into() };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with status {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}{}", signal_name(signal)),
        (None, None) => format!("it ended with {status}"),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
