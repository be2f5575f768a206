//! Findings and tables as text: rendering only.

pub mod json;
pub mod terminal;

use crate::backend::Choice;
use crate::case::Scenario;

/// The command that runs `scenario` again. The notation has no quote and no dollar in it, so single
/// quotes keep a shell away from all of it.
pub fn replay_command(scenario: &Scenario, choice: &Choice) -> String {
    let fault = choice.fault.map(|fault| format!(" --fault {}", fault.name)).unwrap_or_default();
    format!("thd-fuzz check '{scenario}' --backend {}{fault}", choice.descriptor.name)
}
