//! Findings and tables as text: rendering only.

pub mod catalogue;
pub mod json;
pub mod kernels;
pub mod mutants;
pub mod profile;
pub mod terminal;

use std::path::Path;

use crate::backend::Choice;
use crate::case::Scenario;

/// The command that runs `scenario` again. The notation has no quote and no dollar in it, so single
/// quotes keep a shell away from all of it.
pub fn replay_command(scenario: &Scenario, choice: &Choice) -> String {
    let fault = choice.fault.map(|fault| format!(" --fault {}", fault.name)).unwrap_or_default();
    let kernel = choice.custom.as_ref().map(|custom| format!(" --kernel {}", word(custom.label())));
    let kernel = kernel.unwrap_or_default();
    format!("thd-fuzz check '{scenario}' --backend {}{fault}{kernel}", word(Path::new(choice.name())))
}

/// A path as one word of a shell.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:".contains(c);
    if text.chars().all(plain) {
        return text;
    }
    let visible: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("'{}'", visible.replace('\'', "'\\''"))
}
