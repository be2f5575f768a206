//! NVRTC, NVIDIA's run-time compiler: CUDA C++ to a cubin of one architecture.
//!
//! Loaded when it is first needed, so that neither the build nor a machine without it needs CUDA.
//! It compiles for architectures that the machine does not have, too: `thd-fuzz kernels` needs no GPU.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;

pub mod cache;
mod find;
mod resources;

pub use resources::{Resources, resources};

use find::{Place, companions, places};

/// Environment variable that names the library's file, where it lies in no usual place.
pub const PATH: &str = "THD_FUZZ_NVRTC";

/// Why there is no compiler, or no cubin.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NvrtcError {
    /// It is nowhere.
    #[error(
        "NVRTC was not found (libnvrtc.so.13 or .12): install the CUDA toolkit or the Python package \
         nvidia-cuda-nvrtc, and put its folder into LD_LIBRARY_PATH or its file into {PATH}"
    )]
    Missing,
    /// A file that is not it.
    #[error("'{}' is no NVRTC that this program can use: {}", .file.escape_debug(), .problem.escape_debug())]
    Unusable {
        /// The file, or the name that the system's loader found it by.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// An architecture that it is too old for.
    #[error("NVRTC {version} does not compile for {architecture}: that is too new for it, or too old")]
    Architecture {
        /// Its version.
        version: Version,
        /// What was asked for.
        architecture: String,
    },
    /// The sources.
    #[error("the kernels do not compile for {architecture}: {}", .message.escape_debug())]
    Sources {
        /// What was asked for.
        architecture: String,
        /// Its first complaint.
        message: String,
    },
    /// One of its functions failed.
    #[error("NVRTC's {function}: {}", .problem.escape_debug())]
    Failed {
        /// The function.
        function: &'static str,
        /// What it said.
        problem: String,
    },
}

/// A version of NVRTC, which is that of its toolkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 13 of 13.0.
    pub major: i32,
    /// 0 of 13.0.
    pub minor: i32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The whole text: it includes nothing.
    pub source: String,
    /// The compiler's options beside the architecture.
    pub options: Vec<String>,
    /// Such as `sm_90`.
    pub architecture: String,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Cubin {
    /// What the driver loads.
    pub image: Vec<u8>,
    /// What the compiler printed.
    pub log: String,
}

type Program = *mut c_void;
type Status = c_int;

/// The functions that are used, all of them there since CUDA 11.1.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Status,
}

/// The compiler. Threads may share it.
pub struct Nvrtc {
    functions: Functions,
    version: Version,
    /// Holds what the functions are in.
    _library: Library,
    /// Found by their names as long as they are loaded.
    _companions: Vec<Library>,
}

const SUCCESS: Status = 0;
const COMPILATION: Status = 6;

impl Nvrtc {
    /// The one of this machine, looked for once.
    ///
    /// # Errors
    /// [`NvrtcError::Missing`], or [`NvrtcError::Unusable`] where what was found first is not it.
    pub fn find() -> Result<&'static Nvrtc, NvrtcError> {
        static FOUND: OnceLock<Result<Nvrtc, NvrtcError>> = OnceLock::new();
        FOUND.get_or_init(|| Nvrtc::first_of(&places())).as_ref().map_err(NvrtcError::clone)
    }

    fn first_of(places: &[Place]) -> Result<Nvrtc, NvrtcError> {
        for place in places {
            let companions = companions(Path::new(&place.name));
            // SAFETY: a library of NVIDIA's by its name, or what the user names: its initialisers run.
            match unsafe { Library::new(&place.name) } {
                Ok(library) => return Nvrtc::new(library, companions, &place.name),
                Err(error) if place.must => return Err(unusable(&place.name, &error)),
                Err(_) => {}
            }
        }
        Err(NvrtcError::Missing)
    }

    fn new(library: Library, companions: Vec<Library>, name: &OsString) -> Result<Nvrtc, NvrtcError> {
        let lacks = |error: libloading::Error| unusable(name, &error);
        // SAFETY: the symbols have these types in nvrtc.h, of every version since 11.1.
        let functions = unsafe {
            Functions {
                version: *library.get(b"nvrtcVersion").map_err(lacks)?,
                error_string: *library.get(b"nvrtcGetErrorString").map_err(lacks)?,
                create: *library.get(b"nvrtcCreateProgram").map_err(lacks)?,
                destroy: *library.get(b"nvrtcDestroyProgram").map_err(lacks)?,
                compile: *library.get(b"nvrtcCompileProgram").map_err(lacks)?,
                log_size: *library.get(b"nvrtcGetProgramLogSize").map_err(lacks)?,
                log: *library.get(b"nvrtcGetProgramLog").map_err(lacks)?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize").map_err(lacks)?,
                cubin: *library.get(b"nvrtcGetCUBIN").map_err(lacks)?,
            }
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two integers to write to.
        let status = unsafe { (functions.version)(&mut major, &mut minor) };
        let version = Version { major, minor };
        let nvrtc = Nvrtc { functions, version, _library: library, _companions: companions };
        nvrtc.done("nvrtcVersion", status)?;
        Ok(nvrtc)
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Compiles.
    ///
    /// # Errors
    /// What the sources or the options are refused for.
    pub fn compile(&self, unit: &Unit) -> Result<Cubin, NvrtcError> {
        let failed = |problem: String| NvrtcError::Failed { function: "nvrtcCreateProgram", problem };
        let source = CString::new(unit.source.as_str()).map_err(|error| failed(error.to_string()))?;
        let architecture = format!("--gpu-architecture={}", unit.architecture);
        let options = unit.options.iter().chain([&architecture]).map(|option| CString::new(option.as_str()));
        let options: Vec<CString> = options.collect::<Result<_, _>>().map_err(|e| failed(e.to_string()))?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let program = OpenProgram::new(self, &source)?;
        // SAFETY: the program is open; the options outlive the call.
        let status =
            unsafe { (self.functions.compile)(program.handle, options.len() as c_int, options.as_ptr()) };
        let log = program.text()?;
        match status {
            SUCCESS => Ok(Cubin { image: program.image()?, log }),
            COMPILATION => Err(NvrtcError::Sources {
                architecture: unit.architecture.clone(),
                message: first_complaint(&log).to_string(),
            }),
            _ if log.contains("gpu-architecture") => Err(NvrtcError::Architecture {
                version: self.version,
                architecture: unit.architecture.clone(),
            }),
            _ => Err(self.done("nvrtcCompileProgram", status).expect_err("it is no success")),
        }
    }

    fn done(&self, function: &'static str, status: Status) -> Result<(), NvrtcError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: it returns a static string for every number.
        let text = unsafe { CStr::from_ptr((self.functions.error_string)(status)) };
        Err(NvrtcError::Failed { function, problem: text.to_string_lossy().into_owned() })
    }
}

/// A program of NVRTC's, destroyed in the end.
struct OpenProgram<'a> {
    nvrtc: &'a Nvrtc,
    handle: Program,
}

impl<'a> OpenProgram<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &CStr) -> Result<OpenProgram<'a>, NvrtcError> {
        let mut handle = std::ptr::null_mut();
        let (name, none) = (c"kernels.cu", std::ptr::null());
        // SAFETY: the strings outlive the call, which copies them; no headers.
        let status =
            unsafe { (nvrtc.functions.create)(&mut handle, source.as_ptr(), name.as_ptr(), 0, none, none) };
        nvrtc.done("nvrtcCreateProgram", status)?;
        Ok(OpenProgram { nvrtc, handle })
    }

    /// What was printed.
    fn text(&self) -> Result<String, NvrtcError> {
        let functions = &self.nvrtc.functions;
        let bytes = self.bytes("nvrtcGetProgramLog", functions.log_size, functions.log)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string())
    }

    fn image(&self) -> Result<Vec<u8>, NvrtcError> {
        let functions = &self.nvrtc.functions;
        self.bytes("nvrtcGetCUBIN", functions.cubin_size, functions.cubin)
    }

    fn bytes(
        &self,
        function: &'static str,
        size_of: unsafe extern "C" fn(Program, *mut usize) -> Status,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program is open.
        self.nvrtc.done(function, unsafe { size_of(self.handle, &mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: as many bytes as the call says that it writes.
        self.nvrtc.done(function, unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for OpenProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: it is open, and nobody uses it any more.
        let _ = unsafe { (self.nvrtc.functions.destroy)(&mut self.handle) };
    }
}

fn unusable(name: &OsString, error: &dyn std::error::Error) -> NvrtcError {
    // The loader's own words, where it said any.
    let problem = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    NvrtcError::Unusable { file: name.to_string_lossy().into_owned(), problem }
}

/// The first line that says what is wrong.
fn first_complaint(log: &str) -> &str {
    let says = |line: &&str| line.contains("error") || line.contains("fatal");
    log.lines().find(says).or_else(|| log.lines().next()).unwrap_or("no message").trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_nvrtc_is_said_by_name() {
        let first = |places: &[(&str, bool)]| {
            let place = |&(name, must): &(&str, bool)| Place { name: name.into(), must };
            Nvrtc::first_of(&places.iter().map(place).collect::<Vec<_>>()).err().map(|e| e.to_string())
        };
        let none = first(&[("/nowhere/libnvrtc.so", false)]).unwrap();
        assert!(none.contains("install the CUDA toolkit") && none.contains(PATH), "{none}");
        let named = first(&[("/nowhere/libnvrtc.so", true)]).unwrap();
        assert!(named.starts_with("'/nowhere/libnvrtc.so' is no NVRTC"), "{named}");
        // A library, but another one.
        let other = first(&[("libc.so.6", false)]).unwrap();
        assert!(other.contains("libc.so.6") && other.contains("nvrtcVersion"), "{other}");
    }

    #[test]
    fn the_first_complaint_is_told() {
        let log = "kernels.cu(3): warning #1\nforward.cu(7): error: no such name\n1 error detected\n";
        assert_eq!(first_complaint(log), "forward.cu(7): error: no such name");
        assert_eq!(first_complaint(""), "no message");
    }
}
