//! What kernels take of a GPU: a table that can be committed and compared.

use std::fmt::Write;

use crate::backend::nvrtc::{Resources, Version};

/// The table: first the compiler's version, which decides all else.
pub fn table(version: Version, architectures: &[(String, Vec<Resources>)]) -> String {
    let mut text = format!("NVRTC {version}\n");
    for (architecture, all) in architectures {
        let _ = writeln!(
            text,
            "\n{:<28} registers  stack  spill stores  spill loads  static shared",
            architecture
        );
        for r in all {
            let _ = writeln!(
                text,
                "{:<28} {:>9} {:>6} {:>13} {:>12} {:>14}",
                r.kernel, r.registers, r.stack, r.spill_stores, r.spill_loads, r.shared
            );
        }
    }
    text
}

/// Lines that are not the same, each under its architecture: `-` as it was, `+` as it is.
pub fn differences(was: &str, is: &str) -> String {
    let (was, is) = (rows(was), rows(is));
    let mut text = String::new();
    for row in was.iter().filter(|row| !is.contains(row)) {
        let _ = writeln!(text, "- {}  {}", row.0.escape_debug(), row.1.escape_debug());
    }
    for row in is.iter().filter(|row| !was.contains(row)) {
        let _ = writeln!(text, "+ {}  {}", row.0.escape_debug(), row.1.escape_debug());
    }
    text
}

/// Every line with the architecture that it stands under.
fn rows(table: &str) -> Vec<(&str, &str)> {
    let mut architecture = "";
    let mut rows = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty()) {
        match line.starts_with("sm_") {
            true => architecture = line.split(' ').next().unwrap_or_default(),
            false => rows.push((architecture, line)),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(registers: u32) -> Vec<(String, Vec<Resources>)> {
        let [stack, spill_stores, spill_loads, shared] = [0; 4];
        let kernel = "thd_backward_bf16_d64".to_string();
        let one = Resources { kernel, registers, stack, spill_stores, spill_loads, shared };
        vec![("sm_80".into(), vec![one.clone()]), ("sm_90".into(), vec![Resources { registers: 168, ..one }])]
    }

    #[test]
    fn a_difference_is_told_under_its_architecture() {
        let version = Version { major: 13, minor: 0 };
        let (was, is) = (table(version, &of(168)), table(version, &of(170)));
        assert_eq!(differences(&was, &was), "");
        let text = differences(&was, &is);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("- sm_80  thd_backward_bf16_d64") && lines[0].contains(" 168 "));
        assert!(lines[1].starts_with("+ sm_80  thd_backward_bf16_d64") && lines[1].contains(" 170 "));
    }
}
