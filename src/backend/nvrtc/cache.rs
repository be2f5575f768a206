//! Cubins kept on disk: compiling takes seconds a kernel, and a campaign starts a process a core.
//!
//! A file's name is the digest of all that decides its content: source, options, architecture and the
//! compiler's version. Its first 32 bytes are the digest of the rest, so that a torn file is no cubin.
//! One process compiles while the others wait for it. A folder that cannot be written keeps nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Nvrtc, NvrtcError, Unit, Version};

/// Environment variable that names the folder.
pub const FOLDER: &str = "THD_FUZZ_CACHE";

/// Bytes of a digest.
const DIGEST: usize = 32;

/// A folder of cubins.
#[derive(Clone, Debug)]
pub struct Cache {
    /// `None`: nothing is kept.
    folder: Option<PathBuf>,
}

impl Cache {
    /// The user's: [`FOLDER`], or the place that the system has for such files.
    pub fn of_user() -> Cache {
        let named = std::env::var_os(FOLDER).filter(|name| !name.is_empty()).map(PathBuf::from);
        Cache { folder: named.or_else(|| Some(dirs::cache_dir()?.join("thd-fuzz"))) }
    }

    /// In a folder.
    pub fn at(folder: &Path) -> Cache {
        Cache { folder: Some(folder.into()) }
    }

    /// The cubin of a unit, compiled where it is not kept yet.
    ///
    /// # Errors
    /// What the compiler refuses; a folder that keeps nothing is no error.
    pub fn cubin(&self, nvrtc: &Nvrtc, unit: &Unit) -> Result<Vec<u8>, NvrtcError> {
        self.kept(&name_of(unit, nvrtc.version()), || Ok(nvrtc.compile(unit)?.image))
    }

    fn kept<E>(&self, name: &str, make: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
        let Some(folder) = &self.folder else { return make() };
        let path = folder.join(format!("{name}.cubin"));
        if let Some(image) = read(&path) {
            return Ok(image);
        }
        // Held until this function ends; released by the system where the process dies.
        let _lock = lock(folder, name);
        if let Some(image) = read(&path) {
            return Ok(image);
        }
        let image = make()?;
        // What cannot be kept is compiled again next time.
        let _ = write(folder, &path, &image);
        Ok(image)
    }
}

fn name_of(unit: &Unit, version: Version) -> String {
    let mut digest = Sha256::new();
    let texts = [&unit.source, &unit.architecture, &version.to_string()];
    for text in texts.into_iter().chain(&unit.options) {
        // The length keeps two texts from being taken for two others.
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let (digest, image) = bytes.split_at_checked(DIGEST)?;
    (Sha256::digest(image).as_slice() == digest).then(|| image.to_vec())
}

fn write(folder: &Path, path: &Path, image: &[u8]) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&Sha256::digest(image))?;
    file.write_all(image)?;
    file.persist(path)?;
    Ok(())
}

fn lock(folder: &Path, name: &str) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let file = File::create(folder.join(format!("{name}.lock")))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn make(bytes: &[u8]) -> Result<Vec<u8>, NvrtcError> {
        Ok(bytes.to_vec())
    }

    fn never() -> Result<Vec<u8>, NvrtcError> {
        panic!("it is kept")
    }

    #[test]
    fn what_is_kept_is_not_made_again_and_what_is_torn_is() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("new"));
        assert_eq!(cache.kept("a", || make(b"image")).unwrap(), b"image");
        assert_eq!(cache.kept("a", never).unwrap(), b"image");
        let path = folder.path().join("new/a.cubin");
        let whole = fs::read(&path).unwrap();
        for torn in [&whole[..whole.len() - 1], &whole[..7], b""] {
            fs::write(&path, torn).unwrap();
            assert_eq!(cache.kept("a", || make(b"again")).unwrap(), b"again");
        }
        assert_eq!(cache.kept("a", never).unwrap(), b"again");
    }

    #[test]
    fn many_wait_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let make = || {
                        made.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        make(b"image")
                    };
                    assert_eq!(Cache::at(folder.path()).kept("a", make).unwrap(), b"image");
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_written_keeps_nothing_and_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for _ in 0..2 {
            assert_eq!(Cache::at(&file.join("below")).kept("a", || make(b"x")).unwrap(), b"x");
        }
    }

    #[test]
    fn a_name_tells_every_part_apart() {
        let version = Version { major: 13, minor: 0 };
        let unit = Unit { source: "s".into(), options: vec!["o".into()], architecture: "sm_90".into() };
        let base = name_of(&unit, version);
        assert_eq!(base.len(), 2 * DIGEST);
        let others = [
            name_of(&Unit { source: "t".into(), ..unit.clone() }, version),
            name_of(&Unit { options: vec!["p".into()], ..unit.clone() }, version),
            name_of(&Unit { options: vec!["o".into(), String::new()], ..unit.clone() }, version),
            name_of(&Unit { architecture: "sm_80".into(), ..unit.clone() }, version),
            name_of(&unit, Version { major: 12, minor: 9 }),
        ];
        assert!(others.iter().all(|other| *other != base));
    }
}
