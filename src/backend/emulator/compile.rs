//! Compiles the kernels and the emulator into one shared library. Used by `build.rs` for the
//! default libraries and at run time for mutants and `--kernel`, so it uses `std` alone.
//!
//! The flags are those of `kernels/emulator/README.md`, which says why each is there.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a library is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Speed.
    Plain,
    /// Detecting races, uninitialised shared memory and accesses outside named buffers.
    Race,
    /// As on a processor that is not x86-64, whatever this one is: fibers switch by swapcontext.
    Portable,
}

impl Mode {
    /// A word for file names.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Race => "race",
            Mode::Portable => "portable",
        }
    }

    /// Flags of every file.
    fn everywhere(self) -> &'static [&'static str] {
        match self {
            Mode::Plain => &[],
            Mode::Race => &["-DTHD_RACE"],
            Mode::Portable => &["-DTHD_UCONTEXT"],
        }
    }

    /// Flags of the kernels alone.
    fn kernels_alone(self) -> &'static [&'static str] {
        match self {
            Mode::Plain | Mode::Portable => &[],
            // Nothing of it is linked: the emulator supplies what the instrumentation calls.
            Mode::Race => &["-fsanitize=thread"],
        }
    }
}

/// Flags of every file in every mode.
pub const COMMON: [&str; 6] =
    ["-g", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-w"];
/// The emulator's own files; compiled once for each mode and folder of objects.
pub const MACHINE: [&str; 5] = ["machine", "collective", "products", "race", "launch"];

/// One library to build.
pub struct Job<'a> {
    /// The C++ compiler.
    pub compiler: &'a OsStr,
    /// Folder of the sources, as `kernels/` is laid out.
    pub sources: &'a Path,
    /// Folder for objects. Those of the emulator itself are kept and found again here.
    pub objects: &'a Path,
    /// What the library is for.
    pub mode: Mode,
    /// Where it goes.
    pub library: &'a Path,
}

/// The C++ compiler: what `CXX` names, or `c++`.
pub fn compiler() -> OsString {
    std::env::var_os("CXX").filter(|cxx| !cxx.is_empty()).unwrap_or_else(|| "c++".into())
}

/// Why a library was not built.
#[derive(Debug)]
pub enum CompileError {
    /// The compiler did not start.
    Start {
        /// The compiler.
        compiler: String,
        /// Why.
        source: io::Error,
    },
    /// The compiler said no.
    Failed {
        /// What was compiled.
        what: String,
        /// The start of what it said.
        message: String,
    },
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Start { compiler, source } => {
                write!(f, "cannot start the C++ compiler '{compiler}': {source}; set CXX to one")
            }
            CompileError::Failed { what, message } => write!(f, "compiling {what}: {message}"),
        }
    }
}

impl std::error::Error for CompileError {}

/// Builds a library: the emulator's objects where they are not there yet, the kernels, the link.
///
/// # Errors
/// [`CompileError`], with what the compiler said.
pub fn build(job: &Job) -> Result<(), CompileError> {
    let object = |name: &str| job.objects.join(format!("{}-{name}.o", job.mode.name()));
    let emulator = job.sources.join("emulator");
    let mut running = Vec::new();
    for name in MACHINE {
        if !object(name).exists() {
            let mut command = compile(job, "-O3", &[]);
            // Renamed when whole: another process may share the folder.
            let partial = job.objects.join(format!("{}-{name}-{}.part", job.mode.name(), std::process::id()));
            command.arg(emulator.join(format!("{name}.cc"))).arg("-o").arg(&partial);
            running.push((start(command, job)?, name.to_string(), Some((partial, object(name)))));
        }
    }
    let kernels = job.library.with_extension("o");
    let mut command = compile(job, "-O2", job.mode.kernels_alone());
    command.arg(emulator.join("kernels.cc")).arg("-o").arg(&kernels);
    running.push((start(command, job)?, "the kernels".to_string(), None));
    for (child, what, rename) in running {
        finish(child, &what)?;
        if let Some((from, to)) = rename {
            let renamed = std::fs::rename(&from, &to);
            renamed.map_err(|e| CompileError::Failed { what, message: e.to_string() })?;
        }
    }
    let mut link = Command::new(job.compiler);
    let mut exports = OsString::from("-Wl,--version-script=");
    exports.push(emulator.join("exports.map"));
    // Static runtimes: the library is carried to machines without this compiler's.
    link.args(["-shared", "-static-libgcc", "-static-libstdc++"]).arg(exports).arg("-o").arg(job.library);
    link.args(MACHINE.map(object)).arg(&kernels);
    finish(start(link, job)?, "the library")?;
    // The link has taken it in; whether the file stays is no matter.
    let _ = std::fs::remove_file(kernels);
    Ok(())
}

fn compile(job: &Job, level: &str, more: &[&str]) -> Command {
    let mut command = Command::new(job.compiler);
    command.arg(level).args(COMMON).args(job.mode.everywhere()).args(more).arg("-c");
    command
}

fn start(mut command: Command, job: &Job) -> Result<std::process::Child, CompileError> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let compiler = PathBuf::from(job.compiler).display().to_string();
    child.map_err(|source| CompileError::Start { compiler, source })
}

fn finish(child: std::process::Child, what: &str) -> Result<(), CompileError> {
    let failed = |message: String| CompileError::Failed { what: what.to_string(), message };
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let mut lines = said.lines().filter(|line| line.contains("error"));
    let line = lines.next().or_else(|| said.lines().next()).unwrap_or("the compiler failed");
    Err(failed(line.to_string()))
}
