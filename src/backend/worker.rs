//! A backend in a child process that can be killed: its crash is a finding, so is its hang, and the
//! next case runs in a new child.
//!
//! The child speaks [`protocol`]. It starts when the first case comes, and dies with
//! this process. Its time is measured as processor time, so that a busy machine makes no hangs, with a
//! longer limit on the wall for a child that sleeps.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use super::custom::Custom;
use super::launch::TILE;
use super::protocol::{self, Hello, Message, Reply, Request};
use super::{Answer, Backend, Failure, Patience, Run, RunError, Support, foreign};
use crate::case::Case;
use crate::inputs::Inputs;

mod child;
mod exchange;
mod serve;
mod spawner;
mod tail;

pub use child::Program;
pub use exchange::Deadline;
pub use serve::serve;

use child::Child;
use exchange::Lost;

/// Environment variable that names another program to run as a child, for tests.
pub const PROGRAM: &str = "THD_FUZZ_WORKER";

/// How long a child may take to say hello: Python with a large library takes half a minute.
const START: Deadline = Deadline { cpu: Duration::from_secs(120), wall: Duration::from_secs(300) };
/// How long a child may take to say goodbye before it is killed.
const GOODBYE: Duration = Duration::from_millis(500);

/// What a right run takes, in nanoseconds of processor time for each multiply-add of one product,
/// tiles counted whole. The emulator takes 2 to 3.
const PER_PRODUCT: f64 = 10.0;
/// Likewise for each byte of the tensors: copies on both sides of the pipes, and memory's first use.
const PER_BYTE: f64 = 5.0;
/// How much longer a run takes that looks for races. The emulator takes 4 to 8 times as long.
const RACES: f64 = 10.0;
/// Time that no case goes below: set-up of libraries and devices falls into the first run.
const LEAST: Duration = Duration::from_secs(20);
/// Likewise where the case is known to hang and a smaller one is looked for.
const LEAST_SHORT: Duration = Duration::from_secs(2);
/// How many times longer than a right run takes is a hang.
const FACTOR: f64 = 20.0;
/// How much longer the wall's limit is than that of processor time.
const WALL: u32 = 6;

impl Deadline {
    /// Of a case, where nobody says otherwise.
    pub fn of(case: &Case, run: Run) -> Deadline {
        let races = if run.races { RACES } else { 1.0 };
        let nanoseconds = whole_tiles(case) * PER_PRODUCT * races + case.bytes() as f64 * PER_BYTE;
        let right = Duration::from_secs_f64(nanoseconds * 1e-9);
        let least = if run.patience == Patience::Short { LEAST_SHORT } else { LEAST };
        let cpu = right.mul_f64(FACTOR).max(least);
        Deadline { cpu, wall: cpu * WALL }
    }
}

/// Multiply-adds of one product of all heads, tiles counted whole: a tile of one row costs as much as
/// a full one.
fn whole_tiles(case: &Case) -> f64 {
    let tiles = |n: u32| f64::from(n.div_ceil(TILE as u32)) * TILE as f64;
    let pairs: f64 = case.q.lengths.iter().zip(&case.kv.lengths).map(|(&m, &n)| tiles(m) * tiles(n)).sum();
    pairs * f64::from(case.heads.q) * f64::from(case.dims.qk.max(case.dims.v))
}

impl Program {
    /// This program as a worker, or the one that [`PROGRAM`] names.
    pub fn this(args: Vec<OsString>) -> Program {
        // Unlike `current_exe` right too when the file was replaced by a newer build meanwhile.
        let path = std::env::var_os(PROGRAM).map_or_else(|| "/proc/self/exe".into(), PathBuf::from);
        Program { path, args }
    }
}

/// A backend in a child process.
pub struct Worker {
    /// Who must answer; `None` where anyone may.
    backend: Option<&'static str>,
    program: Program,
    supports: fn(&Case) -> Support,
    deadline: fn(&Case, Run) -> Deadline,
    child: Option<Child>,
    hello: Option<Hello>,
    /// To be reset before the next call.
    reset: bool,
    /// It failed, or wrote where it should not: what else it hit nobody knows, so that its state ends
    /// with the scenario.
    doubtful: bool,
    /// Files that the child opens when it starts.
    custom: Option<Arc<Custom>>,
}

impl Worker {
    /// Of the backend of this name; `supports` answers without asking the child.
    pub fn new(backend: &'static str, program: Program, supports: fn(&Case) -> Support) -> Worker {
        let mut worker = Worker::of_anyone(program);
        (worker.backend, worker.supports) = (Some(backend), supports);
        worker
    }

    /// Of whatever backend the program says that it is. It refuses for itself.
    pub fn of_anyone(program: Program) -> Worker {
        Worker {
            backend: None,
            program,
            supports: foreign::supports,
            deadline: Deadline::of,
            child: None,
            hello: None,
            reset: true,
            doubtful: false,
            custom: None,
        }
    }

    /// With other deadlines than [`Deadline::of`].
    #[must_use]
    pub fn with_deadline(mut self, deadline: fn(&Case, Run) -> Deadline) -> Worker {
        self.deadline = deadline;
        self
    }

    /// With files that must be there as long as it is.
    #[must_use]
    pub fn keeping(mut self, custom: Option<Arc<Custom>>) -> Worker {
        self.custom = custom;
        self
    }

    /// What the child said of itself, once it runs.
    pub fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// Starts the child, unless it runs, and tells who it says that it is.
    ///
    /// # Errors
    /// A program that does not start, or is no worker.
    pub fn greet(&mut self) -> Result<Hello, RunError> {
        if let (Some(hello), Some(_)) = (&self.hello, &self.child) {
            return Ok(hello.clone());
        }
        let child = self.start()?;
        self.child = Some(child);
        let nobody = || RunError::Harness("a worker that started said nothing".into());
        self.hello.clone().ok_or_else(nobody)
    }

    /// What is run, for a reader.
    fn name(&self) -> String {
        self.program.path.display().to_string().escape_debug().to_string()
    }

    /// Starts a child and hears who it is.
    fn start(&mut self) -> Result<Child, RunError> {
        let name = self.name();
        let ours = |what: String| RunError::Harness(format!("the worker '{name}': {what}"));
        let mut child = Child::start(&self.program).map_err(|e| ours(format!("it does not start: {e}")))?;
        let hello = encode(Hello::ours(self.backend.unwrap_or("any")).message())?;
        let heard = child.ask(&[hello], protocol::MAX_SHORT_ANSWER, START);
        match heard.and_then(|bytes| Hello::decode(&bytes).map_err(Lost::Nonsense)) {
            Ok(hello) if self.backend.is_none_or(|backend| hello.backend == backend) => {
                self.hello = Some(hello);
                Ok(child)
            }
            Ok(hello) => {
                let (is, should) =
                    (hello.backend.escape_debug().to_string(), self.backend.unwrap_or_default());
                Err(ours(format!("it is the backend '{is}', expected '{should}'")))
            }
            Err(lost) => {
                let (_, detail) = failure(child, lost);
                Err(ours(format!("instead of hello: {}", detail.escape_debug())))
            }
        }
    }

    /// The worker failed, not its backend.
    fn at_fault(&self, detail: &str) -> RunError {
        let who = self.backend.map_or_else(|| self.name(), str::to_string);
        RunError::Harness(format!("the worker of {who}: {}", detail.escape_debug()))
    }

    fn ask(&mut self, run: Run, inputs: &Inputs) -> Result<Reply, RunError> {
        let mut child = match self.child.take() {
            Some(child) => child,
            None => self.start()?,
        };
        let mut messages = Vec::new();
        if self.reset {
            messages.push(encode(Message::new("reset"))?);
        }
        messages.push(encode(Request::run(run, inputs))?);
        let (case, limit) = (&inputs.case, protocol::max_answer(&inputs.case));
        let answer = child.ask(&messages, limit, (self.deadline)(case, run));
        match answer.and_then(|bytes| Reply::decode(&bytes, run, case).map_err(Lost::Nonsense)) {
            Ok(reply) => {
                self.reset = false;
                self.child = Some(child);
                Ok(reply)
            }
            Err(lost) => {
                let (kind, detail) = failure(child, lost);
                Err(match kind {
                    Some(kind) => RunError::Fault { kind, detail },
                    None => self.at_fault(&detail),
                })
            }
        }
    }
}

impl Backend for Worker {
    fn supports(&self, case: &Case) -> Support {
        (self.supports)(case)
    }

    fn reset(&mut self) {
        if std::mem::take(&mut self.doubtful) {
            self.child = None;
        }
        // Sent with the next request.
        self.reset = true;
    }

    fn renew(&mut self) -> bool {
        self.child = None;
        self.reset = true;
        true
    }

    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError> {
        match self.ask(run, inputs)? {
            Reply::Outputs(answer) => {
                self.doubtful |= answer.outputs.any_broken_guard();
                Ok(*answer)
            }
            Reply::Refused(reason) => Err(RunError::Refused(reason)),
            Reply::Failure(detail) => Err(self.at_fault(&detail)),
            Reply::Fault { kind, detail } => {
                self.doubtful = true;
                if kind == Failure::DeviceFault {
                    // Whatever else it is asked, its device gives the same answer.
                    self.child = None;
                }
                Err(RunError::Fault { kind, detail })
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let Ok(bye) = Message::new("bye").encode() else { return };
        let deadline = Deadline { cpu: GOODBYE, wall: GOODBYE };
        if child.ask(&[bye], protocol::MAX_SHORT_ANSWER, deadline).is_ok() {
            child.end(GOODBYE);
        }
    }
}

fn encode(message: Message) -> Result<Vec<u8>, RunError> {
    message.encode().map_err(|error| RunError::Harness(error.to_string()))
}

/// Ends a child that gave no answer. How its backend failed, and what there is to say; `None` where it
/// did not: no code kills its own process by SIGKILL, but a system short of memory does.
fn failure(child: Child, lost: Lost) -> (Option<Failure>, String) {
    let (kind, said, mut detail) = match lost {
        Lost::Ended => {
            let (status, said) = child.autopsy();
            let killed = status.and_then(|status| status.signal()) == Some(Signal::KILL.as_raw());
            let why = if killed { ", as a rule by a system short of memory" } else { "" };
            let detail = format!("the process died: {}{why}", child::describe(status));
            ((!killed).then_some(Failure::Crash), said, detail)
        }
        Lost::Late { wall, cpu } => {
            let (wall, cpu) = (wall.as_secs_f64(), cpu.as_secs_f64());
            let detail = format!("no answer after {wall:.1} s, {cpu:.1} s of processor time");
            (Some(Failure::Hang), child.end(Duration::ZERO).1, detail)
        }
        Lost::Nonsense(error) => {
            (Some(Failure::Error), child.end(Duration::ZERO).1, format!("the worker sent {error}"))
        }
    };
    if !said.is_empty() {
        detail.push_str(&format!("; it printed last: {said}"));
    }
    (kind, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_grows_with_the_case_and_has_a_floor() {
        let of = |text: &str, run| Deadline::of(&text.parse().unwrap(), run).cpu.as_secs();
        let short = Run { patience: Patience::Short, ..Run::PLAIN };
        assert_eq!((of("[1]", Run::PLAIN), of("[1]", Run::RACES), of("[1]", short)), (20, 20, 2));
        let whole = of("[4096]", Run::PLAIN);
        assert_eq!((whole, of("[4096]", short)), (215, 215), "beyond the floor, 20 times a right run");
        assert!(of("[4033]", Run::PLAIN) + 1 >= whole, "a tile of one row costs as much as a full one");
        assert!((9 * whole..=10 * whole).contains(&of("[4096]", Run::RACES)));
        assert!(of("[65536] h32 d128", Run::RACES) > 0);
    }
}
