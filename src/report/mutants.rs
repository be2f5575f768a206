//! The hunt of mutants: a table for a person, JSON lines for a program.

use std::fmt::Write;

use serde::Serialize;

use crate::backend::Choice;
use crate::campaign::Found;
use crate::mutants::{Hunted, Verdict};
use crate::outputs::Output;

/// Above the rows.
pub fn header() -> String {
    format!(
        "{:<30} {:<12} {:>5}  {:<10} {:<32} {:>7} {:>7}  minimal case",
        "mutant", "class", "cases", "verdict", "first finding", "compile", "hunt"
    )
}

/// A mutant on one line.
pub fn row(hunted: &Hunted) -> String {
    let mut text = format!(
        "{:<30} {:<12} {:>5}  {:<10} {:<32} {:>6.1}s {:>6.1}s  ",
        hunted.mutant.name,
        hunted.mutant.class.escape_debug().to_string(),
        hunted.tried,
        hunted.verdict.name(),
        hunted.found.as_ref().map_or("-".to_string(), finding),
        hunted.compiling.as_secs_f64(),
        hunted.hunting.as_secs_f64(),
    );
    match &hunted.found {
        Some(found) if found.shrunk.is_some() => text.push_str(&found.minimal.to_string()),
        Some(found) => {
            let _ = write!(text, "(not shrunk) {}", found.original);
        }
        None => text.push('-'),
    }
    if hunted.showed().is_some_and(|showed| showed != hunted.mutant.shows) {
        let _ = write!(text, "  (expected: {})", hunted.mutant.shows.name());
    }
    text
}

/// `dQ backward (bound)`.
fn finding(found: &Found) -> String {
    let tensor = found.lead.tensor.map(|tensor| format!("{} ", Output::name(tensor))).unwrap_or_default();
    format!("{tensor}{} ({})", found.lead.kind.name(), found.lead.kind.oracle())
}

/// How many of each verdict, in a sentence.
pub fn summary<'a>(
    hunted: impl Iterator<Item = &'a Hunted>,
    choice: &Choice,
    seed: u64,
    seconds: f64,
) -> String {
    let counts = Counts::of(hunted);
    let mut text = format!(
        "{} of {} mutants found on {}, seed {seed}, {seconds:.0} s",
        counts.found,
        counts.hunted - counts.equivalent - counts.beyond,
        choice.with_device()
    );
    let others = [
        (counts.beyond, "of races that this backend does not see"),
        (counts.survived, "survived"),
        (counts.equivalent, "equivalent, as proved"),
        (counts.refuted, "found though proved equivalent"),
        (counts.stopped, "not hunted to the end"),
    ];
    for (n, what) in others.into_iter().filter(|(n, _)| *n > 0) {
        let _ = write!(text, "; {n} {what}");
    }
    text
}

#[derive(Default, Serialize)]
struct Counts {
    hunted: usize,
    found: usize,
    survived: usize,
    equivalent: usize,
    beyond: usize,
    refuted: usize,
    stopped: usize,
}

impl Counts {
    fn of<'a>(hunted: impl Iterator<Item = &'a Hunted>) -> Counts {
        let mut counts = Counts::default();
        for hunted in hunted {
            counts.hunted += 1;
            *match hunted.verdict {
                Verdict::Found => &mut counts.found,
                Verdict::Survived => &mut counts.survived,
                Verdict::Equivalent => &mut counts.equivalent,
                Verdict::Beyond => &mut counts.beyond,
                Verdict::Refuted => &mut counts.refuted,
                Verdict::Stopped => &mut counts.stopped,
            } += 1;
        }
        counts
    }
}

#[derive(Serialize)]
struct Line<'a> {
    r#type: &'static str,
    name: &'a str,
    file: &'a str,
    class: &'a str,
    gpu: bool,
    verdict: &'static str,
    expected: &'static str,
    shows: Option<&'static str>,
    cases: u64,
    oracle: Option<&'static str>,
    tensor: Option<&'static str>,
    kind: Option<String>,
    note: Option<&'a str>,
    case: Option<String>,
    minimal: Option<String>,
    one_minimal: bool,
    compile_seconds: f64,
    hunt_seconds: f64,
}

/// A mutant as an object.
pub fn json_row(hunted: &Hunted) -> String {
    let (mutant, found) = (&hunted.mutant, hunted.found.as_ref());
    let shrunk = found.and_then(|found| found.shrunk.as_ref());
    to_json(&Line {
        r#type: "mutant",
        name: &mutant.name,
        file: &mutant.file,
        class: &mutant.class,
        gpu: mutant.gpu,
        verdict: hunted.verdict.name(),
        expected: mutant.shows.name(),
        shows: hunted.showed().map(|shows| shows.name()),
        cases: hunted.tried,
        oracle: found.map(|found| found.lead.kind.oracle()),
        tensor: found.and_then(|found| found.lead.tensor).map(Output::name),
        kind: found.map(|found| found.lead.kind.name()),
        note: found.map(|found| found.lead.note.as_str()),
        case: found.map(|found| found.original.to_string()),
        minimal: shrunk.map(|shrunk| shrunk.minimal.to_string()),
        one_minimal: shrunk.is_some_and(|shrunk| shrunk.complete()),
        compile_seconds: hunted.compiling.as_secs_f64(),
        hunt_seconds: hunted.hunting.as_secs_f64(),
    })
}

#[derive(Serialize)]
struct SummaryLine {
    r#type: &'static str,
    seed: u64,
    cases: u64,
    seconds: f64,
    #[serde(flatten)]
    counts: Counts,
}

/// The end as an object.
pub fn json_summary<'a>(
    hunted: impl Iterator<Item = &'a Hunted>,
    seed: u64,
    cases: u64,
    seconds: f64,
) -> String {
    to_json(&SummaryLine { r#type: "summary", seed, cases, seconds, counts: Counts::of(hunted) })
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("a struct of strings and numbers has a JSON form")
}
