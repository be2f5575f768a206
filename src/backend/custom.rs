//! Kernels that are not the project's own: a source of the user's or a mutant, compiled for a backend.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::Descriptor;
use super::cuda::open::{self, CudaError};
use super::emulator::library::{LibraryError, Workshop};
use super::kernels::{KERNELS, Replacement};

/// What a backend takes in the place of the project's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// It has none.
    Nothing,
    /// Libraries for the emulator.
    Libraries,
    /// A folder of sources and cubins.
    Folder,
}

/// Compiled kernels, there as long as this lives.
pub struct Custom {
    label: PathBuf,
    made: Made,
    /// Where they are.
    _home: Home,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The emulator's two libraries.
    Libraries {
        /// Without the race detector.
        plain: PathBuf,
        /// With it.
        race: PathBuf,
    },
    /// The joined source and cubins.
    Folder(PathBuf),
}

/// What goes when the kernels go: held, and looked at by nobody.
#[allow(dead_code)]
enum Home {
    /// Nothing: they are somebody else's.
    Foreign,
    /// Two files of a shared folder.
    Files(Arc<Workshop>, [PathBuf; 2]),
    /// A folder of its own.
    Folder(TempDir),
}

impl Drop for Home {
    fn drop(&mut self) {
        // What stays goes with the workshop's folder.
        if let Home::Files(_, files) = self {
            files.iter().for_each(|file| drop(std::fs::remove_file(file)));
        }
    }
}

/// Why there is no such kernel.
#[derive(Debug, thiserror::Error)]
pub enum CustomError {
    /// The backend runs no kernel of the project's.
    #[error("the backend {backend} takes no --kernel; emulator and cuda do")]
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
    /// The compiler of the emulator's libraries, or what it wrote.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The compiler for the GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl Custom {
    /// Libraries that somebody else compiled and keeps.
    pub fn libraries(plain: PathBuf, race: PathBuf) -> Custom {
        Custom { label: plain.clone(), made: Made::Libraries { plain, race }, _home: Home::Foreign }
    }

    /// A folder that somebody else keeps.
    pub fn folder(folder: PathBuf) -> Custom {
        Custom { label: folder.clone(), made: Made::Folder(folder), _home: Home::Foreign }
    }

    /// What they are called.
    pub fn label(&self) -> &Path {
        &self.label
    }

    /// Where they are.
    pub fn made(&self) -> &Made {
        &self.made
    }
}

/// Compiles kernels for one backend. Threads may share it; what all kernels share is compiled once.
pub struct Shop {
    tools: Tools,
}

enum Tools {
    Emulator(Arc<Workshop>),
    Cuda,
}

impl Shop {
    /// For the backend of this row.
    ///
    /// # Errors
    /// A backend that takes none, or whatever the file system says.
    pub fn new(backend: &Descriptor) -> Result<Shop, CustomError> {
        let tools = match backend.takes {
            Takes::Nothing => return Err(CustomError::NotTaken { backend: backend.name }),
            Takes::Libraries => Tools::Emulator(Arc::new(Workshop::new()?)),
            Takes::Folder => {
                open::can_make()?;
                Tools::Cuda
            }
        };
        Ok(Shop { tools })
    }

    /// The kernels with these sources replaced; `label` is what they are called.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn make(&self, label: &Path, replacements: &[Replacement]) -> Result<Custom, CustomError> {
        let (made, home) = match &self.tools {
            Tools::Emulator(workshop) => {
                let (plain, race) = workshop.build_both(replacements)?;
                let home = Home::Files(Arc::clone(workshop), [plain.clone(), race.clone()]);
                (Made::Libraries { plain, race }, home)
            }
            Tools::Cuda => {
                let folder = tempfile::Builder::new().prefix("thd-kernels-").tempdir();
                let folder = folder.map_err(CudaError::from)?;
                open::make(folder.path(), replacements)?;
                (Made::Folder(folder.path().into()), Home::Folder(folder))
            }
        };
        Ok(Custom { label: label.into(), made, _home: home })
    }

    /// The kernels with the file in the place of the source of that name.
    ///
    /// # Errors
    /// [`CustomError`].
    pub fn make_of(&self, file: &Path) -> Result<Custom, CustomError> {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
        if !KERNELS.iter().any(|source| source.name == name) {
            return Err(CustomError::Name { file: file.into() });
        }
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|source| CustomError::Read { file: file.into(), source })?;
        self.make(file, &[Replacement { name, text }])
    }
}
