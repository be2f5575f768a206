//! Opening the emulator: in a child as a rule, here where that child serves it; with the project's
//! kernels, or with a source of the user's.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::library::{Library, LibraryError, Workshop};
use super::{Emulator, Kernels};
use crate::backend::kernels::{KERNELS, Replacement};
use crate::backend::worker::{Program, Worker};
use crate::backend::{Backend, Choice, OpenError, launch};

/// The emulator in a child process.
pub(in crate::backend) fn in_child(choice: &Choice) -> Result<Box<dyn Backend>, OpenError> {
    let mut args: Vec<OsString> = ["worker", "--backend", "emulator"].map(OsString::from).into();
    if let Some(kernel) = &choice.kernel {
        args.extend(["--library".into(), kernel.plain.clone().into()]);
        args.extend(["--race-library".into(), kernel.race.clone().into()]);
    }
    let worker = Worker::new("emulator", Program::this(args), launch::supports);
    Ok(Box::new(worker.keeping(choice.kernel.clone())))
}

/// The emulator in this process.
pub(in crate::backend) fn here(choice: &Choice) -> Result<Box<dyn Backend>, OpenError> {
    let Some(kernel) = &choice.kernel else { return Ok(Box::new(Emulator::own()?)) };
    let (plain, race) = (Library::load(&kernel.plain)?, Library::load(&kernel.race)?);
    Ok(Box::new(Emulator::with(Kernels::Loaded(plain.into(), Some(race.into())))))
}

/// Kernels that are not the project's own, compiled into the two libraries that the emulator loads.
pub struct KernelFile {
    /// The user's source, or the library where that is all that is known.
    file: PathBuf,
    plain: PathBuf,
    race: PathBuf,
    /// Where the libraries are, as long as this lives.
    _workshop: Option<Workshop>,
}

/// Why there is no such kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Another backend.
    #[error("the backend {backend} takes no --kernel; the emulator does")]
    NotTaken {
        /// The backend.
        backend: &'static str,
    },
    /// A source of a name that none of the kernel's has.
    #[error(
        "'{}' has no kernel source's name; those are {}", .file.display().to_string().escape_debug(),
        KERNELS.map(|source| source.name).join(", ")
    )]
    Name {
        /// The file.
        file: PathBuf,
    },
    /// A file that cannot be read.
    #[error("cannot read '{}': {source}", .file.display().to_string().escape_debug())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The compiler, or what it wrote.
    #[error(transparent)]
    Library(#[from] LibraryError),
}

impl KernelFile {
    /// Compiles the kernels with `file` in the place of the source of that name.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn compile(file: &Path) -> Result<KernelFile, KernelError> {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
        if !KERNELS.iter().any(|source| source.name == name) {
            return Err(KernelError::Name { file: file.into() });
        }
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|source| KernelError::Read { file: file.into(), source })?;
        KernelFile::of(file, &[Replacement { name, text }])
    }

    /// Compiles the kernels with these sources replaced; `file` is what they are called.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn of(file: &Path, replacements: &[Replacement]) -> Result<KernelFile, KernelError> {
        let workshop = Workshop::new()?;
        let (plain, race) = workshop.build_both(replacements)?;
        Ok(KernelFile { file: file.into(), plain, race, _workshop: Some(workshop) })
    }

    /// Compiled already.
    pub fn compiled(plain: PathBuf, race: PathBuf) -> KernelFile {
        KernelFile { file: plain.clone(), plain, race, _workshop: None }
    }

    /// What the user calls it.
    pub fn file(&self) -> &Path {
        &self.file
    }
}
