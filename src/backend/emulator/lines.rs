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

    /// The kernel's line at `pc`, and after `<` each line that called it: a barrier is missing in the
    /// caller as a rule. The calls that are the emulator's own are left out.
    pub fn find(&self, pc: u64) -> String {
        let lines = self.look_up(pc).unwrap_or_default();
        if lines.is_empty() { format!("address {pc:#x}") } else { lines.join(" < ") }
    }

    fn look_up(&self, pc: u64) -> Option<Vec<String>> {
        let mut frames = self.loader.as_ref()?.find_frames(pc).ok()?;
        let mut lines = Vec::new();
        while let Some(frame) = frames.next().ok()? {
            let Some(location) = frame.location else { continue };
            let (Some(file), Some(line)) = (location.file, location.line) else { continue };
            let file = Path::new(file);
            let in_emulator = file.parent().is_some_and(|folder| folder.ends_with("emulator"));
            let name = file.file_name()?.to_string_lossy().into_owned();
            let kernel = name.ends_with(".cu") || name.ends_with(".cuh");
            if kernel || !in_emulator && !name.starts_with("bits") {
                lines.push(format!("{name}:{line}"));
            }
        }
        // The last is the entry point, which only calls the kernel's template.
        if lines.len() > 1 {
            lines.pop();
        }
        Some(lines)
    }
}
