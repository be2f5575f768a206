//! From an address in a library to the kernel's source line.

use std::path::Path;

/// Looks addresses up in one library's debug information, read once.
pub struct Lines {
    loader: Option<addr2line::Loader>,
}

impl Lines {
    /// Of a library; without debug information, one that knows nothing.
    pub fn of(library: &Path) -> Lines {
        Lines { loader: addr2line::Loader::new(library).ok() }
    }

    /// The kernel's line at `pc`: the innermost of the inlined calls that is not the emulator's own.
    pub fn find(&self, pc: u64) -> String {
        self.look_up(pc).unwrap_or_else(|| format!("address {pc:#x}"))
    }

    fn look_up(&self, pc: u64) -> Option<String> {
        let mut frames = self.loader.as_ref()?.find_frames(pc).ok()?;
        while let Some(frame) = frames.next().ok()? {
            let Some(location) = frame.location else { continue };
            let (Some(file), Some(line)) = (location.file, location.line) else { continue };
            let file = Path::new(file);
            let in_emulator = file.parent().is_some_and(|folder| folder.ends_with("emulator"));
            let name = file.file_name()?.to_string_lossy().into_owned();
            let kernel = name.ends_with(".cu") || name.ends_with(".cuh");
            if kernel || !in_emulator && !name.starts_with("bits") {
                return Some(format!("{name}:{line}"));
            }
        }
        None
    }
}
