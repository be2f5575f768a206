//! The command line: what can be asked. `cli/commands.rs` answers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::backend::Choice;
use crate::oracle::Ask;

mod bench;
mod catalogue;
mod commands;
mod fuzz;
mod kernels;
mod mutants;
mod out;
mod replay;
mod rounding;
mod stop;
mod worker;

pub use commands::run;
pub use out::warn;

/// A differential fuzzer for fused attention backward kernels on packed variable-length batches.
#[derive(Debug, Parser)]
#[command(name = "thd-fuzz", version, about, after_help = STATUSES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const STATUSES: &str = "Exit status: 0 clean, 1 a finding, 2 wrong usage or a fault of thd-fuzz itself.";

/// The commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // one value a process
pub enum Command {
    /// Draw random cases until the time or the number is up; shrink and save what fails.
    Fuzz(Fuzz),
    /// Run one case and print its outputs beside the reference's.
    Check(Check),
    /// Run saved cases: files, or folders of them.
    Replay(Replay),
    /// Find the smallest case that fails as this one does.
    Shrink(Check),
    /// Plant bugs in the project's kernels, one at a time, and see whether a campaign finds each.
    Mutants(Mutants),
    /// Find and diagnose every planted fault, and print the table.
    Catalogue(Catalogue),
    /// Tell where a backend rounds, by what its outputs show, and whether that is as it declares.
    Rounding(Rounding),
    /// Compile the project's kernels for GPUs, whether one is here or not, and print what they take of it.
    Kernels(Kernels),
    /// Time the project's kernels on the GPU.
    Bench(Bench),
    /// List the backends, what each needs, and the faults that can be planted in it.
    Backends,
    /// Serve a backend over the worker protocol: what another thd-fuzz starts as its child.
    #[command(hide = true)]
    Worker(Worker),
}

/// Which backend runs.
#[derive(Debug, Args)]
pub struct BackendArgs {
    /// The backend, one of those that `thd-fuzz backends` lists, or cmd:PROGRAM, somebody else's that speaks the
    /// worker protocol; without it, the first that has the fault of --fault, or the first that can run here: a
    /// GPU where there is one.
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Plant a fault in the backend, to see the harness find it.
    #[arg(long, value_name = "NAME")]
    pub fault: Option<String>,
    /// Run this kernel source, say backward.cu, in the place of the project's file of that name.
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
}

impl BackendArgs {
    /// Looks the names up and compiles the kernel.
    ///
    /// # Errors
    /// A name that is in no table, a backend that cannot run here, or a kernel that does not compile.
    pub fn choice(&self) -> anyhow::Result<Choice> {
        let choice = Choice::named(self.backend.as_deref(), self.fault.as_deref())?;
        choice.descriptor.here_is()?;
        Ok(match &self.kernel {
            Some(file) => choice.with_kernel(file)?,
            None => choice,
        })
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a person.
    Human,
    /// An object a line: each finding, last a summary.
    Json,
}

/// `fuzz`.
#[derive(Debug, Args)]
pub struct Fuzz {
    /// Backend and planted fault.
    #[command(flatten)]
    pub backend: BackendArgs,
    /// Stop after this time, such as 60s or 8h. Without --time and --cases: 60s.
    #[arg(long, value_parser = some_time)]
    pub time: Option<Duration>,
    /// Stop after this many cases.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub cases: Option<u64>,
    /// Seed of the campaign; without it, a new one, which is printed.
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// What to ask of each case that passes and that needs further runs of it or of a case made of it: in-turn
    /// (one question of every fourth case), all, none, or a question's name.
    #[arg(long, value_name = "QUESTION", default_value = "in-turn")]
    pub ask: Ask,
    /// Stop after this many distinct findings.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub stop_after: Option<usize>,
    /// Give every case these items of the notation, say "do=ones" or "f16 causal", and draw the rest.
    #[arg(long, value_name = "ITEMS")]
    pub with: Option<String>,
    /// Folder for findings.
    #[arg(long, value_name = "DIR", default_value = "findings")]
    pub save: PathBuf,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// `check` and `shrink`.
#[derive(Debug, Args)]
pub struct Check {
    /// The case, in the notation of docs/notation.md; quote it for the shell.
    pub case: String,
    /// Backend and planted fault.
    #[command(flatten)]
    pub backend: BackendArgs,
    /// What to ask beside, which needs further runs of the case or of one made of it: all, none, or a question's
    /// name.
    #[arg(long, value_name = "QUESTION", default_value = "all")]
    pub ask: Ask,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct Replay {
    /// Files, or folders that are searched for them.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Backend and planted fault.
    #[command(flatten)]
    pub backend: BackendArgs,
    /// Run each case on this backend too, without fault and kernel, and hold the two against each
    /// other: every output element within both bounds. The same backend runs each case twice.
    #[arg(long, value_name = "NAME")]
    pub against: Option<String>,
    /// Without --against: what to ask beside, which needs further runs of the case or of one made of it: all, none, or
    /// a question's name.
    #[arg(long, value_name = "QUESTION", default_value = "all")]
    pub ask: Ask,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// `mutants`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 each was found, but those proved equivalent; 1 one survived; 2 a wrong list, or \
a fault of thd-fuzz itself.\nA list is code: what it puts into the kernels is compiled and run."
)]
pub struct Mutants {
    /// Lists of mutants, files or folders of them; without one, the project's own.
    pub paths: Vec<PathBuf>,
    /// The backend that runs them: emulator, or cuda, which sees no races.
    #[arg(long, value_name = "NAME", default_value = "emulator")]
    pub backend: String,
    /// Most cases for each mutant.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub cases: u64,
    /// Seed of the campaigns.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Mutants hunted at once; without it, as many as there are cores.
    #[arg(long, value_name = "J", value_parser = at_least_one)]
    pub jobs: Option<usize>,
    /// Hunt the mutant of this name alone; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Do not look for the smallest case.
    #[arg(long)]
    pub no_shrink: bool,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// `catalogue`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 each was found; 1 one was not; 2 a fault of thd-fuzz itself.")]
pub struct Catalogue {
    /// Seed of the campaigns.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Most cases for each fault.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub cases: u64,
    /// Diagnose this many random failing cases of each fault, and count the names that they get.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub score: u64,
    /// The fault or mutant of this name alone; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
}

/// `rounding`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 as declared; 1 otherwise; 2 a backend that answers no probe case, or a fault \
of thd-fuzz itself."
)]
pub struct Rounding {
    /// Backend and planted fault.
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// `kernels`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 compiled, and as in the file of --check; 1 it differs; 2 no compiler, \
or one of another version than the file's."
)]
pub struct Kernels {
    /// For these architectures.
    #[arg(long = "arch", value_name = "SM,..", value_delimiter = ',', default_value = ARCHITECTURES,
          value_parser = architecture)]
    pub architectures: Vec<String>,
    /// Compare with a table that was printed before.
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
}

/// Those that the kernels are written for.
const ARCHITECTURES: &str = "sm_80,sm_86,sm_89,sm_90,sm_100,sm_120";

/// Times that are kept of each launch.
const MAX_REPEATS: usize = 1_000_000;

/// `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// The case, in the notation of docs/notation.md; quote it for the shell.
    pub case: String,
    /// Repeats that count; some come before.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = repeats)]
    pub repeats: usize,
    /// Time this kernel source, say backward.cu, in the place of the project's file of that name.
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// `worker`.
#[derive(Debug, Args)]
pub struct Worker {
    /// The backend.
    #[arg(long, value_name = "NAME")]
    pub backend: String,
    /// Plant a fault in it.
    #[arg(long, value_name = "NAME")]
    pub fault: Option<String>,
    /// Emulated kernels, compiled, in the place of those that are built in.
    #[arg(long, value_name = "PATH", requires = "race_library")]
    pub library: Option<PathBuf>,
    /// The same with the race detector.
    #[arg(long, value_name = "PATH", requires = "library")]
    pub race_library: Option<PathBuf>,
    /// Kernel sources for a GPU, in the place of those that are built in.
    #[arg(long, value_name = "DIR")]
    pub sources: Option<PathBuf>,
}

/// An error with its causes, each said once: some errors hold their cause's words already.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(&format!(": {cause}"));
        }
    }
    text
}

fn some_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("no time at all: give at least 1s".into()) } else { Ok(time) }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".into()),
        Ok(n) => Ok(n),
        Err(error) => Err(format!("{error}")),
    }
}

fn repeats(text: &str) -> Result<usize, String> {
    match at_least_one(text)? {
        n if n > MAX_REPEATS => Err(format!("at most {MAX_REPEATS}")),
        n => Ok(n),
    }
}

/// A cubin's architecture: a virtual one, `compute_90`, gives no cubin.
fn architecture(text: &str) -> Result<String, String> {
    let number = text.strip_prefix("sm_").unwrap_or_default();
    let digits = number.strip_suffix(['a', 'f']).unwrap_or(number);
    match !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(text.to_string()),
        false => Err("no architecture: those are like sm_90".into()),
    }
}

/// What the process ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Nothing was found.
    Clean = 0,
    /// Something was.
    Finding = 1,
    /// Wrong usage, or a fault of ours.
    Fault = 2,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status as u8)
    }
}
