//! Loading a library of emulated kernels: the two that are built in, or one compiled at run time.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

use super::abi::{ABI, Functions, LaunchFn};
use super::compile::{self, CompileError, Job, Mode};
use crate::backend::kernels::{self, Replacement};

static PLAIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libthd_kernels_plain.so"));
static RACE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libthd_kernels_race.so"));

/// Why there is no library.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It did not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It did not load, or is of another version.
    #[error("loading the emulated kernels: {0}")]
    Load(String),
    /// The file system.
    #[error("writing the kernels' sources: {0}")]
    Files(#[from] io::Error),
}

/// A loaded library; unloaded when the last user drops it.
#[derive(Debug)]
pub struct Library {
    functions: Functions,
    /// Where its bytes are, for looking up source lines.
    path: PathBuf,
    // After `functions`, which point into it.
    _loaded: libloading::Library,
    _memory: Option<File>,
}

impl Library {
    /// The library that was built with this program.
    ///
    /// # Errors
    /// [`LibraryError::Load`]; so for a mode that is not built in.
    pub fn built_in(mode: Mode) -> Result<Arc<Library>, LibraryError> {
        static LOADED: [OnceLock<Arc<Library>>; 2] = [OnceLock::new(), OnceLock::new()];
        let (slot, bytes) = match mode {
            Mode::Plain => (&LOADED[0], PLAIN),
            Mode::Race => (&LOADED[1], RACE),
            Mode::Portable => return Err(LibraryError::Load("the portable one is not built in".into())),
        };
        if let Some(library) = slot.get() {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Library::from_bytes(mode.name(), bytes)?);
        Ok(Arc::clone(slot.get_or_init(|| library)))
    }

    /// From bytes that need no file system: `/tmp` may be mounted noexec.
    fn from_bytes(name: &str, bytes: &[u8]) -> Result<Library, LibraryError> {
        let fd = memfd_create(format!("thd-kernels-{name}"), MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut memory = File::from(fd);
        memory.write_all(bytes)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
        let mut library = Library::open(&path)?;
        library._memory = Some(memory);
        Ok(library)
    }

    /// Loads a copy of a library file, so that the file may lie where nothing may be executed.
    ///
    /// # Errors
    /// [`LibraryError`] where it cannot be read or is no library of this interface.
    pub fn load(path: &Path) -> Result<Library, LibraryError> {
        let unreadable = |e| LibraryError::Load(format!("{}: {e}", path.display()));
        Library::from_bytes("loaded", &std::fs::read(path).map_err(unreadable)?)
    }

    /// Opens a library file.
    ///
    /// # Errors
    /// [`LibraryError::Load`] where it is no library of this interface.
    pub fn open(path: &Path) -> Result<Library, LibraryError> {
        let load = |error: libloading::Error| LibraryError::Load(error.to_string());
        // SAFETY: the library is one of this project's; its initialisers only set up C++ objects.
        let loaded = unsafe { libloading::Library::new(path) }.map_err(load)?;
        // SAFETY: the symbols have these types in abi.h, and the version is checked before use.
        let functions = unsafe {
            let abi = loaded.get::<unsafe extern "C" fn() -> u32>(b"thd_emulator_abi").map_err(load)?;
            let mode = loaded.get::<unsafe extern "C" fn() -> u32>(b"thd_emulator_mode").map_err(load)?;
            let launch = loaded.get::<LaunchFn>(b"thd_emulator_launch").map_err(load)?;
            let version = abi();
            if version != ABI {
                return Err(LibraryError::Load(format!("interface version {version}, expected {ABI}")));
            }
            Functions { launch: *launch, mode: mode() }
        };
        Ok(Library { functions, path: path.to_path_buf(), _loaded: loaded, _memory: None })
    }

    /// Its functions; valid as long as the library is held.
    pub fn functions(&self) -> Functions {
        self.functions
    }

    /// Where its bytes are.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Compiles other kernels: a folder with the sources and the emulator's objects, kept for the next.
/// Threads may share it.
pub struct Workshop {
    compiler: OsString,
    folder: tempfile::TempDir,
    serial: AtomicUsize,
    /// Of each mode: are the emulator's own objects there?
    machines: [Mutex<bool>; 3],
}

impl Workshop {
    /// An empty one, in the system's temporary folder.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn new() -> Result<Workshop, LibraryError> {
        let folder = tempfile::Builder::new().prefix("thd-kernels-").tempdir()?;
        Ok(Workshop {
            compiler: compile::compiler(),
            folder,
            serial: AtomicUsize::new(0),
            machines: Default::default(),
        })
    }

    /// Compiles the kernels with these sources replaced and returns the library's file, which lives
    /// as long as the workshop.
    ///
    /// # Errors
    /// [`LibraryError`], with what the compiler said.
    pub fn build(&self, replacements: &[Replacement], mode: Mode) -> Result<PathBuf, LibraryError> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let sources = self.folder.path().join(format!("sources-{serial}"));
        kernels::write_to(&sources, replacements)?;
        let library = self.folder.path().join(format!("libkernels-{serial}-{}.so", mode.name()));
        let job = Job {
            compiler: &self.compiler,
            sources: &sources,
            objects: self.folder.path(),
            mode,
            library: &library,
        };
        let build = || compile::build(&job).map_err(|error| told_by_source(error, &sources));
        // The first of a mode compiles the emulator's objects for all; the others wait for it.
        let mut machine = self.machines[mode as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if *machine {
            drop(machine);
            build()?;
        } else {
            build()?;
            *machine = true;
        }
        Ok(library)
    }

    /// Both libraries, compiled at once: without the race detector, and with it.
    ///
    /// # Errors
    /// As [`Workshop::build`].
    pub fn build_both(&self, replacements: &[Replacement]) -> Result<(PathBuf, PathBuf), LibraryError> {
        let (plain, race) = std::thread::scope(|scope| {
            let race = scope.spawn(|| self.build(replacements, Mode::Race));
            let plain = self.build(replacements, Mode::Plain);
            (plain, race.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        Ok((plain?, race?))
    }
}

/// What the compiler said, with names of sources instead of paths that nobody knows.
fn told_by_source(error: CompileError, sources: &Path) -> CompileError {
    match error {
        CompileError::Failed { what, message } => {
            let folder = format!("{}/", sources.display());
            CompileError::Failed { what, message: message.replace(&folder, "").replace("emulator/../", "") }
        }
        start => start,
    }
}
