//! Where NVRTC may lie.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use libloading::Library;

use super::PATH;

/// What the system's loader is asked for.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// How the name of the library begins that it opens itself.
const COMPANION: &str = "libnvrtc-builtins.so";
/// Variables that hold the toolkit's folder.
const TOOLKITS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
/// Where a toolkit is installed as a rule.
const USUAL_TOOLKIT: &str = "/usr/local/cuda";
/// Where a toolkit has its libraries.
const LIBRARIES: [&str; 2] = ["lib64", "targets/x86_64-linux/lib"];

/// NVRTC opens a second library by its bare name when it first compiles, and finds it only where the
/// system's loader looks or where it is loaded already: what lies beside a file that is named by its path.
pub(super) fn companions(file: &Path) -> Vec<Library> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Vec::new();
    };
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(COMPANION));
    // SAFETY: NVIDIA's by its name and place; it is data as code, without initialisers of its own.
    files.filter(named).filter_map(|path| unsafe { Library::new(path) }.ok()).collect()
}

/// A place to look at.
pub(super) struct Place {
    pub(super) name: OsString,
    /// The user said so: nothing else will do.
    pub(super) must: bool,
}

/// Where to look, in this order.
pub(super) fn places() -> Vec<Place> {
    if let Some(name) = std::env::var_os(PATH).filter(|name| !name.is_empty()) {
        return vec![Place { name, must: true }];
    }
    let toolkits = TOOLKITS.iter().filter_map(std::env::var_os).map(PathBuf::from);
    let toolkits: Vec<PathBuf> = toolkits.chain([USUAL_TOOLKIT.into()]).collect();
    let folders = toolkits.iter().flat_map(|toolkit| LIBRARIES.map(|folder| toolkit.join(folder)));
    let files = folders.flat_map(|folder| NAMES.map(|name| folder.join(name).into_os_string()));
    let names = NAMES.map(OsString::from).into_iter().chain(files);
    names.map(|name| Place { name, must: false }).collect()
}
