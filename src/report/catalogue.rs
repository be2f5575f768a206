//! The catalogue of planted faults as a page.

use std::fmt::Write;

use crate::catalogue::{Row, WITHOUT_FAULT, hypothesis_of};
use crate::outputs::Output;

/// The page, in Markdown. `command` made it.
pub fn page(rows: &[Row], command: &str) -> String {
    let mut text = format!(
        "# The planted faults\n\nWritten by `{command}`; what is planted is listed in `src/backend/model/faults.rs` and \
         `tests/mutants`. Each fault is a bug as a kernel's author would make it, and what follows is what the \
         harness made of it, knowing nothing of it: which oracle found it, on the how manieth case of a \
         campaign, what that shrank to, and what the diagnosis called it. A fault in a file of `kernels/` ran on \
         the emulator.\n\n\
         | class | fault | planted in | found by | case | minimal case | diagnosis |\n|---|---|---|---|---:|---|---|\n"
    );
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(|row| row.planted.class());
    for row in sorted {
        let _ = writeln!(text, "{}", line(row));
    }
    text.push_str("\nClasses without a fault:\n\n");
    for (class, why) in WITHOUT_FAULT {
        let _ = writeln!(text, "* {class}: {why}.");
    }
    if rows.iter().any(|row| row.score.is_some()) {
        scores(rows, &mut text);
    }
    text
}

fn line(row: &Row) -> String {
    let planted = &row.planted;
    let mut cells = vec![
        planted.class().to_string(),
        format!("{}: {}", planted.name(), planted.about()).replace('|', "\\|"),
        planted.place().to_string(),
    ];
    match &row.found {
        None => cells.extend(["not found", "", "", ""].map(String::from)),
        Some(found) => {
            let tensor = found.lead.tensor.map(|tensor| format!(", {}", Output::name(tensor)));
            cells.push(format!("{}{}", found.lead.kind.oracle(), tensor.unwrap_or_default()));
            cells.push((found.index + 1).to_string());
            cells.push(format!("`{}`", found.minimal));
            cells.push(row.told.as_ref().map_or("-".into(), |told| {
                let names: Vec<&str> =
                    told.diagnosis.named.iter().map(|named| named.hypothesis.name).collect();
                if names.is_empty() { "no hypothesis".into() } else { names.join(", or ") }
            }));
        }
    }
    format!("| {} |", cells.join(" | ").replace('\n', " "))
}

/// How often the diagnosis is right.
fn scores(rows: &[Row], text: &mut String) {
    text.push_str(
        "\n## How often the diagnosis is right\n\nRandom cases in which elements are wrong, each diagnosed with variations of it, as a finding \
         is: how often the hypothesis that the fault is led. Of several that they cannot tell apart, the simplest leads, so \
         a few are another's.\n\n| fault | hypothesis | right | of | otherwise |\n|---|---|---:|---:|---|\n",
    );
    let known = |row: &&&Row| hypothesis_of(row.planted.name()).is_some();
    let all: Vec<&Row> =
        rows.iter().filter(|row| row.score.as_ref().is_some_and(|score| score.failing > 0)).collect();
    all.iter().filter(known).for_each(|row| score(row, text));
    text.push_str(
        "\nFaults that are no hypothesis, of which the diagnosis should say so:\n\n\
         | fault | hypothesis | right | of | otherwise |\n|---|---|---:|---:|---|\n",
    );
    all.iter().filter(|row| !known(row)).for_each(|row| score(row, text));
}

fn score(row: &Row, text: &mut String) {
    let Some(score) = &row.score else { return };
    let expected = hypothesis_of(row.planted.name());
    let word = |name: Option<&str>| name.unwrap_or("no hypothesis").to_string();
    let others = score.names.iter().filter(|(name, _)| **name != expected);
    let others: Vec<String> = others.map(|(name, times)| format!("{} {times}", word(*name))).collect();
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | {} |",
        row.planted.name(),
        word(expected),
        score.of(expected),
        score.failing,
        others.join(", ")
    );
}
