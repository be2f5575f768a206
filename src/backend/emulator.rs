//! The project's kernel on a CPU: the CUDA sources compiled as C++, every thread a fiber.
//!
//! This is the kernel in this process. A kernel that may be wrong can hang or kill its process, so
//! the backend of the command line runs it in a child (`backend::worker`); tests of the clean
//! kernel and cargo-fuzz run it here.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use super::launch::{self, Launch, WorkLists};
use super::params::{Params, TensorParam};
use super::{Answer, Backend, Failure, Run, RunError, Support};
use crate::case::{Case, Side};
use crate::inputs::Inputs;
use crate::outputs::Outputs;
use crate::tensor::{DType, Poison, Tensor};

pub mod abi;
pub mod compile;
pub mod library;
mod lines;
pub mod open;

use abi::Functions;
use library::{Library, LibraryError};
use lines::Lines;

/// Context switches that a launch may take for each thread of each step of its work: a thousand
/// times what the kernels take, so that only a loop that never ends reaches it.
const SWITCHES: u64 = 1 << 20;

/// Most bytes of all tensors of a case that is looked through for races: the detector's memory is
/// more than thirty times as much, and a case beyond it would be killed for that.
const MAX_RACE_BYTES: u64 = 32 << 20;

/// Where kernels come from.
#[derive(Clone)]
pub enum Kernels {
    /// Loaded libraries; the second with the race detector, where races may be asked for.
    Loaded(Arc<Library>, Option<Arc<Library>>),
    /// Linked into this program, without a race detector.
    Linked(Functions),
}

/// The emulator.
pub struct Emulator {
    kernels: Kernels,
}

impl Emulator {
    /// The project's own kernels.
    ///
    /// # Errors
    /// A library that does not load.
    pub fn own() -> Result<Emulator, LibraryError> {
        use compile::Mode;
        let (plain, race) = (Library::built_in(Mode::Plain)?, Library::built_in(Mode::Race)?);
        Ok(Emulator::with(Kernels::Loaded(plain, Some(race))))
    }

    /// Other kernels.
    pub fn with(kernels: Kernels) -> Emulator {
        Emulator { kernels }
    }

    fn functions(&self, races: bool) -> Functions {
        match &self.kernels {
            Kernels::Linked(functions) => *functions,
            Kernels::Loaded(_, Some(race)) if races => race.functions(),
            Kernels::Loaded(plain, _) => plain.functions(),
        }
    }
}

impl Backend for Emulator {
    fn supports(&self, case: &Case) -> Support {
        launch::supports(case)
    }

    fn reset(&mut self) {}

    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError> {
        let case = &inputs.case;
        if let Support::No(reason) = launch::supports(case) {
            return Err(RunError::Refused(reason));
        }
        let lists = WorkLists::new(case);
        let mut outputs = Outputs::poisoned(case, run.poison);
        let mut workspace = Workspace::new(case, run.poison);
        let functions = self.functions(run.races && case.bytes() <= MAX_RACE_BYTES);
        let params = params(inputs, &lists, &mut outputs, &mut workspace);
        let mut ranges = Ranges::new(inputs, &lists, &mut outputs, &mut workspace);
        if functions.mode & abi::MODE_ASAN != 0 {
            ranges.fence(inputs, &outputs, &workspace);
        }
        let mut races = Vec::new();
        for launch in launch::launches(case, &lists) {
            let report = run_launch(functions, &launch, &params, &ranges, case)?;
            if functions.mode & abi::MODE_RACE != 0 {
                races.extend(self.describe(&report, &ranges));
            }
        }
        if let Some(name) = workspace.overrun() {
            let detail = format!("memory beside the workspace {name} was written");
            return Err(RunError::Fault { kind: Failure::Error, detail });
        }
        Ok(Answer { outputs, races })
    }
}

impl Emulator {
    /// Each conflict as a sentence with the kernel's lines.
    fn describe(&self, report: &abi::Report, ranges: &Ranges) -> Vec<String> {
        let Kernels::Loaded(_, Some(library)) = &self.kernels else { return Vec::new() };
        if report.races_kept == 0 {
            return Vec::new();
        }
        let lines = Lines::of(library.path());
        let kept = &report.races[..(report.races_kept as usize).min(abi::MAX_RACES)];
        kept.iter().map(|race| sentence(race, &lines, ranges)).collect()
    }
}

fn sentence(race: &abi::Race, lines: &Lines, ranges: &Ranges) -> String {
    let place = match (race.in_shared != 0, ranges.names.get(race.range as usize)) {
        (true, _) => format!("shared memory, byte {}", race.offset),
        (false, Some(name)) => format!("{}, byte {}", name.to_string_lossy(), race.offset),
        (false, None) => format!("address {:#x}", race.offset),
    };
    let side = |access: &abi::Access| {
        format!("{} (block {}, thread {})", lines.find(access.pc), access.block, access.thread)
    };
    let mut text = format!("{} in {place}: {}", abi::race_name(race.kind), side(&race.access));
    if race.earlier.thread != abi::NO_THREAD {
        text.push_str(&format!(", against {}", side(&race.earlier)));
    }
    text
}

fn run_launch(
    functions: Functions,
    launch: &Launch,
    params: &Params,
    ranges: &Ranges,
    case: &Case,
) -> Result<abi::Report, RunError> {
    let kernel = CString::new(launch.kernel.as_str()).map_err(|e| RunError::Harness(e.to_string()))?;
    let bytes = params.as_bytes();
    let blocks = u64::from(launch.grid[0]) * u64::from(launch.grid[1]);
    let steps = 1 + case.work() / 4096;
    let request = abi::Launch {
        kernel: kernel.as_ptr(),
        params: bytes.as_ptr().cast(),
        params_bytes: bytes.len() as u64,
        grid: [launch.grid[0], launch.grid[1], 1],
        block: [launch::THREADS, 1, 1],
        shared_bytes: launch.shared_bytes,
        accumulation: 0,
        // The schedule is a function of the case, so that a case replays as it was.
        seed: case.seed,
        max_switches: SWITCHES.saturating_mul(blocks + steps),
        ranges: ranges.ranges.as_ptr(),
        range_count: ranges.ranges.len() as u64,
    };
    let mut report = abi::Report::empty();
    // SAFETY: every pointer is to memory that outlives the call: the name, the parameters, the
    // ranges, and through the parameters the tensors, lists and workspaces of the caller, which are
    // as large as the case's shapes say. A kernel that is wrong may still write anywhere; whoever
    // runs doubtful kernels does so in a child process.
    let status = unsafe { (functions.launch)(&request, &mut report) };
    match status {
        0 => Ok(report),
        abi::TOO_LONG => {
            let detail = format!("{}: {}", launch.kernel, report.message());
            Err(RunError::Fault { kind: Failure::Hang, detail })
        }
        abi::FIRST_KERNEL_FAULT.. => {
            let detail = format!("{}: {}", launch.kernel, report.message());
            Err(RunError::Fault { kind: Failure::Error, detail })
        }
        _ => Err(RunError::Harness(format!("the emulator refused {}: {}", launch.kernel, report.message()))),
    }
}

/// fp32 memory between the kernels, poisoned like the outputs: nobody clears it but they.
struct Workspace {
    delta: Tensor,
    dq_acc: Tensor,
}

impl Workspace {
    fn new(case: &Case, poison: Poison) -> Workspace {
        let (rows, heads) = (case.q.rows() as usize, case.heads.q as usize);
        let make = |dim: u32| Tensor::poisoned(DType::F32, [rows, heads, dim as usize], poison);
        Workspace { delta: make(1), dq_acc: make(case.dims.qk) }
    }

    fn overrun(&self) -> Option<&'static str> {
        let tensors = [("delta", &self.delta), ("dq_acc", &self.dq_acc)];
        tensors.into_iter().find(|(_, tensor)| tensor.broken_guard().is_some()).map(|(name, _)| name)
    }
}

fn address<T>(list: &[T]) -> u64 {
    list.as_ptr() as u64
}

fn tensor_param(tensor: &Tensor, data: u64) -> TensorParam {
    assert!(data.is_multiple_of(16), "allocations of a kilobyte and more are aligned to 16 bytes");
    TensorParam::packed(data, tensor.heads, tensor.dim)
}

fn params(inputs: &Inputs, lists: &WorkLists, outputs: &mut Outputs, workspace: &mut Workspace) -> Params {
    let read = |tensor: &Tensor| tensor_param(tensor, tensor.memory().0 as u64);
    let write = |tensor: &mut Tensor| {
        let data = tensor.memory_mut().0 as u64;
        tensor_param(tensor, data)
    };
    Params {
        q_offset: address(&lists.q_offset),
        kv_offset: address(&lists.kv_offset),
        q_len: address(&lists.q_len),
        kv_len: address(&lists.kv_len),
        q_tiles: address(&lists.q_tiles),
        kv_tiles: address(&lists.kv_tiles),
        q_dead: address(&lists.q_dead),
        kv_dead: address(&lists.kv_dead),
        q_dead_count: lists.q_dead.len() as i32,
        kv_dead_count: lists.kv_dead.len() as i32,
        q: read(&inputs.q),
        k: read(&inputs.k),
        v: read(&inputs.v),
        d_o: read(&inputs.dout),
        o: write(&mut outputs.o),
        lse: write(&mut outputs.lse),
        dq: write(&mut outputs.dq),
        dk: write(&mut outputs.dk),
        dv: write(&mut outputs.dv),
        delta: write(&mut workspace.delta),
        dq_acc: write(&mut workspace.dq_acc),
        ..Params::of(&inputs.case)
    }
}

/// Every buffer that a kernel may touch, with its name. Of the inputs only live rows are named, so
/// that race mode reports a read of a dead row.
struct Ranges {
    names: Vec<CString>,
    ranges: Vec<abi::Range>,
}

impl Ranges {
    fn new(inputs: &Inputs, lists: &WorkLists, outputs: &mut Outputs, workspace: &mut Workspace) -> Ranges {
        let mut ranges = Ranges { names: Vec::new(), ranges: Vec::new() };
        let case = &inputs.case;
        ranges.list("q_offset", &lists.q_offset);
        ranges.list("kv_offset", &lists.kv_offset);
        ranges.list("q_len", &lists.q_len);
        ranges.list("kv_len", &lists.kv_len);
        ranges.list("q_tiles", &lists.q_tiles);
        ranges.list("kv_tiles", &lists.kv_tiles);
        ranges.list("q_dead", &lists.q_dead);
        ranges.list("kv_dead", &lists.kv_dead);
        ranges.live_rows("q", &inputs.q, &case.q);
        ranges.live_rows("k", &inputs.k, &case.kv);
        ranges.live_rows("v", &inputs.v, &case.kv);
        ranges.live_rows("dO", &inputs.dout, &case.q);
        let written = [
            ("o", &mut outputs.o),
            ("lse", &mut outputs.lse),
            ("dq", &mut outputs.dq),
            ("dk", &mut outputs.dk),
            ("dv", &mut outputs.dv),
            ("delta", &mut workspace.delta),
            ("dq_acc", &mut workspace.dq_acc),
        ];
        for (name, tensor) in written {
            let (data, bytes) = tensor.memory_mut();
            ranges.add(name, data.cast_const().cast(), bytes, 0);
        }
        ranges
    }

    fn list<T>(&mut self, name: &str, list: &[T]) {
        self.add(name, list.as_ptr().cast(), std::mem::size_of_val(list), abi::RANGE_READ_ONLY);
    }

    fn live_rows(&mut self, name: &str, tensor: &Tensor, side: &Side) {
        let (data, bytes) = tensor.memory();
        let row = bytes / tensor.rows.max(1);
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for span in side.spans().into_iter().filter(|span| span.len > 0) {
            match runs.last_mut() {
                Some(run) if run.end == span.row => run.end += span.len,
                _ => runs.push(span.rows()),
            }
        }
        for run in runs {
            let start = data.wrapping_add(run.start * row);
            self.add(name, start.cast(), run.len() * row, abi::RANGE_READ_ONLY);
        }
    }

    /// What no kernel may touch: the guards of all tensors and the dead rows of the inputs.
    fn fence(&mut self, inputs: &Inputs, outputs: &Outputs, workspace: &Workspace) {
        // No kernel knows of dSink yet.
        let Outputs { o, lse, dq, dk, dv, .. } = outputs;
        let case = &inputs.case;
        let read =
            [(&inputs.q, &case.q), (&inputs.k, &case.kv), (&inputs.v, &case.kv), (&inputs.dout, &case.q)];
        let written = [o, lse, dq, dk, dv, &workspace.delta, &workspace.dq_acc];
        for tensor in read.into_iter().map(|(tensor, _)| tensor).chain(written) {
            for (data, bytes) in tensor.guards() {
                self.add("guard", data.cast(), bytes, abi::RANGE_FORBIDDEN);
            }
        }
        for (tensor, side) in read {
            let (data, bytes) = tensor.memory();
            let row = bytes / tensor.rows.max(1);
            for at in side.dead_rows() {
                self.add("dead row", data.wrapping_add(at * row).cast(), row, abi::RANGE_FORBIDDEN);
            }
        }
    }

    fn add(&mut self, name: &str, data: *const c_void, bytes: usize, flags: u32) {
        if bytes == 0 {
            return;
        }
        let name = CString::new(name).unwrap_or_default();
        self.ranges.push(abi::Range { name: name.as_ptr(), data, bytes: bytes as u64, flags, reserved: 0 });
        self.names.push(name);
    }
}

#[cfg(test)]
mod tests;
