//! What a person reads: the table of the seed report, findings, the summary.

use std::fmt::{Display, Write};

use crate::backend::Choice;
use crate::campaign::{Found, REPEATS, Summary};
use crate::case::{Case, Scenario};
use crate::check::{CallReport, Report};
use crate::diagnose::Told;
use crate::oracle::Finding;
use crate::oracle::agreement::{Agreement, Pair};
use crate::outputs::Output;
use crate::report::replay_command;
use crate::stats::{Against, Stats};

/// Widest lengths that the table shows whole.
const LENGTHS: usize = 22;

/// The table of bug reports: per call the lengths, the forward's cosine, each gradient's cosine and
/// norm beside the reference's, the worst error in bounds, and the verdict.
pub fn table(scenario: &Scenario, report: &Report) -> String {
    let mut text = format!(
        "{:LENGTHS$}  {:>9}  {:<27} {:<27} {:<27} {:>8}  verdict\n",
        "lengths", "O cos", "dQ cos  norm (reference)", "dK", "dV", "worst"
    );
    for (call, (case, answer)) in scenario.calls.iter().zip(&report.calls).enumerate() {
        let bad = report.findings.iter().any(|f| f.call == call);
        let _ = writeln!(text, "{}", row(case, answer, bad));
    }
    text
}

fn row(case: &Case, answer: &CallReport, bad: bool) -> String {
    let of = |output: Output| answer.similarities.iter().find(|s| s.output == output);
    let gradient = |output: Output| match of(output) {
        Some(s) => format!("{:>7} {:.3e} ({:.3e})", cosine(s.cosine, 4), s.norm, s.reference),
        None => "-".to_string(),
    };
    let worst = answer.measures.iter().map(|m| m.worst).fold(0.0, f64::max);
    format!(
        "{:LENGTHS$}  {:>9}  {:<27} {:<27} {:<27} {:>8}  {}",
        lengths(case),
        cosine(of(Output::O).map_or(f64::NAN, |s| s.cosine), 6),
        gradient(Output::Dq),
        gradient(Output::Dk),
        gradient(Output::Dv),
        size(worst),
        verdict(answer, bad)
    )
}

fn verdict(answer: &CallReport, bad: bool) -> String {
    let open: usize = answer.measures.iter().map(|m| m.open).sum();
    let judged: usize = answer.measures.iter().map(|m| m.elements).sum();
    match (bad, open) {
        (true, _) => "BAD".into(),
        (false, 0) => "ok".into(),
        // A right backend may overflow there, so nothing was asked of those elements.
        (false, _) => format!("ok, {judged} of {} judged", judged + open),
    }
}

/// A cosine, or a dash where there is none: one of the two is zero.
fn cosine(cosine: f64, digits: usize) -> String {
    if cosine.is_nan() { "-".into() } else { format!("{cosine:.digits$}") }
}

fn lengths(case: &Case) -> String {
    let text = case.to_string();
    let text = text.split(' ').next().unwrap_or_default();
    match text.len() > LENGTHS {
        true => format!("{}..", &text[..LENGTHS - 2]),
        false => text.to_string(),
    }
}

/// An error in bounds: three digits, or a power of ten.
fn size(error: f64) -> String {
    if error.is_finite() && error < 1e4 { format!("{error:.3}") } else { format!("{error:.1e}") }
}

/// One finding on one or two lines, without its case.
pub fn finding(finding: &Finding) -> String {
    let tensor = finding.tensor.map_or("the backend", Output::name);
    let mut text = format!("{tensor}: {} ({})", finding.kind.name(), finding.kind.oracle());
    if let Some(at) = finding.at {
        let _ = write!(
            text,
            ", at {at}: got {:.6e}, expected {:.6e}, off by {} bounds of {:.2e}",
            finding.got,
            finding.want,
            size(finding.error()),
            finding.bound
        );
    }
    if !finding.note.is_empty() {
        let _ = write!(text, "; {}", finding.note.escape_debug());
    }
    text
}

/// Which questions were asked; where none was, why not. Of many that do not apply the reasons are of no use to
/// a reader.
pub fn asked(report: &Report) -> Option<String> {
    let names = report.asked.iter().filter(|asked| asked.skipped.is_none()).map(|asked| asked.question);
    let names: Vec<_> = names.collect();
    let reasons = report.asked.iter().filter_map(|asked| {
        let reason = asked.skipped.as_ref()?;
        Some(format!("{} ({})", asked.question, reason.escape_debug()))
    });
    let reasons: Vec<_> = reasons.collect();
    match (names.is_empty(), reasons.is_empty()) {
        (true, true) => None,
        (true, false) => Some(format!("not asked: {}", reasons.join(", "))),
        (false, _) => Some(format!("asked: {}", names.join(", "))),
    }
}

/// The pair by which two backends disagree most, on one line.
pub fn disagreement(pair: &Pair, agreement: &Agreement, names: [&str; 2]) -> String {
    let [one, other] =
        [0, 1].map(|i| format!("{:.6e} (bound {:.2e}) on {}", pair.values[i], pair.bounds[i], names[i]));
    format!(
        "{}: backends disagree, at {}: {one}, {other}, apart by {} of both bounds; \
         {} of {} elements beyond both bounds",
        pair.output,
        pair.at,
        size(pair.apart()),
        agreement.beyond,
        agreement.elements
    )
}

/// What a comparison of two backends came to, as the end of a summary's line.
pub fn against(against: &Against, name: &str) -> String {
    let Against { stats, compared, disagreeing, total } = against;
    format!(
        "; on {name}: {} failed, {} refused; {compared} compared, {disagreeing} disagree, {} elements, \
         furthest apart {} of both bounds",
        stats.failing,
        stats.refusals(),
        total.elements,
        size(total.apart())
    )
}

/// Why a backend refused cases, a line for each reason.
pub fn refusals(stats: &Stats, name: &str) -> Vec<String> {
    let refused = stats.refused.iter();
    refused.map(|(reason, cases)| format!("{name} refused {cases}: {}", reason.escape_debug())).collect()
}

/// A finding of a campaign or of a shrink, with the case, the minimal case, what would explain it, and how
/// to replay it.
pub fn found(found: &Found, told: Option<&Told>, choice: &Choice) -> String {
    let mut text = format!("FINDING  {}\n", finding(&found.lead));
    let _ = writeln!(text, "  case     {}", found.original);
    match &found.shrunk {
        Some(shrunk) => {
            let _ = writeln!(text, "  minimal  {}", found.minimal);
            let _ = writeln!(text, "           {shrunk}");
            if !found.is_steady() {
                let _ = writeln!(
                    text,
                    "           it comes and goes: {} of {REPEATS} more runs failed",
                    found.recurred
                );
            }
        }
        None => {
            let _ = writeln!(text, "  minimal  not shrunk: it did not fail again");
        }
    }
    if let Some(told) = told {
        let indented = |text: &dyn Display| text.to_string().replace('\n', "\n           ");
        let _ = writeln!(text, "  cause    {}", indented(&told.diagnosis));
        if !told.explanation.parts.is_empty() {
            let _ = writeln!(text, "  varied   {}", indented(&told.explanation));
        }
    }
    let _ = write!(text, "  replay   {}", replay_command(&found.minimal, choice));
    text
}

/// The end of a campaign.
pub fn summary(summary: &Summary, choice: &Choice, seed: u64) -> String {
    let Summary { stats, found, elapsed } = summary;
    let mut text = format!(
        "{} on {}, seed {seed}: {} in {:.1} s ({:.1} cases/s), {} ({} failing)\n{stats}",
        if found.is_empty() { "clean" } else { "NOT CLEAN" },
        choice.with_device(),
        plural(stats.cases, "case"),
        elapsed.as_secs_f64(),
        summary.cases_per_second(),
        plural(found.len() as u64, "finding"),
        plural(stats.failing, "case"),
    );
    for (found, times) in found {
        let tensor = found.lead.tensor.map_or("the backend", Output::name);
        let _ = write!(text, "\n  {} times  {tensor} {}: {}", times, found.lead.kind.name(), found.minimal);
    }
    text
}

/// One line on how a campaign goes.
pub fn progress(summary: &Summary) -> String {
    format!(
        "{} cases, {:.1}/s, {}",
        summary.stats.cases,
        summary.cases_per_second(),
        plural(summary.found.len() as u64, "finding")
    )
}

fn plural(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
