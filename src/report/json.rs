//! JSON lines: an object for each finding, last a summary. Numbers that are not finite are `null`.

use serde::Serialize;

use crate::backend::Choice;
use crate::campaign::{Found, Summary};
use crate::oracle::Finding;

/// One finding.
#[derive(Serialize)]
struct FindingLine<'a> {
    r#type: &'static str,
    case: String,
    minimal: String,
    oracle: &'a str,
    tensor: Option<&'a str>,
    kind: String,
    error: f64,
    bound: f64,
    got: f64,
    want: f64,
    at: Option<String>,
    note: &'a str,
    backend: &'a str,
    fault: Option<&'a str>,
    kernel: Option<String>,
    runs: Option<usize>,
    one_minimal: bool,
    recurred: Option<u32>,
}

/// The summary.
#[derive(Serialize)]
struct SummaryLine<'a> {
    r#type: &'static str,
    backend: &'a str,
    device: Option<String>,
    fault: Option<&'a str>,
    kernel: Option<String>,
    seed: Option<u64>,
    cases: u64,
    findings: usize,
    failing: u64,
    refused: u64,
    seconds: f64,
    cases_per_second: f64,
    median_tokens: u64,
    share_over_256_tokens: f64,
    share_of_4_heads_or_more: f64,
}

/// A finding of a campaign or of a shrink.
pub fn finding(found: &Found, choice: &Choice) -> String {
    let minimal = found.minimal.to_string();
    let shrunk = found.shrunk.as_ref();
    let runs = shrunk.map(|shrunk| shrunk.runs);
    let one_minimal = found.is_steady() && shrunk.is_some_and(|shrunk| shrunk.complete());
    let recurred = Some(found.recurred);
    line(&found.lead, found.original.to_string(), minimal, choice, (runs, one_minimal, recurred))
}

/// A finding of a check or a replay, which are not shrunk: `minimal` is the case itself.
pub fn checked(finding: &Finding, case: &str, choice: &Choice) -> String {
    line(finding, case.to_string(), case.to_string(), choice, (None, false, None))
}

fn line(
    lead: &Finding,
    case: String,
    minimal: String,
    choice: &Choice,
    (runs, one_minimal, recurred): (Option<usize>, bool, Option<u32>),
) -> String {
    to_json(&FindingLine {
        r#type: "finding",
        case,
        minimal,
        oracle: lead.kind.oracle(),
        tensor: lead.tensor.map(|tensor| tensor.name()),
        kind: lead.kind.name(),
        error: lead.error(),
        bound: lead.bound,
        got: lead.got,
        want: lead.want,
        at: lead.at.map(|at| at.to_string()),
        note: &lead.note,
        backend: choice.descriptor.name,
        fault: choice.fault.map(|fault| fault.name),
        kernel: choice.custom.as_ref().map(|custom| custom.label().display().to_string()),
        runs,
        one_minimal,
        recurred,
    })
}

/// The summary of a campaign, or of a replay (`seed` is `None`, and `findings` counts failing
/// cases).
pub fn summary(summary: &Summary, findings: usize, seed: Option<u64>, choice: &Choice) -> String {
    let stats = &summary.stats;
    to_json(&SummaryLine {
        r#type: "summary",
        backend: choice.descriptor.name,
        device: choice.device(),
        fault: choice.fault.map(|fault| fault.name),
        kernel: choice.custom.as_ref().map(|custom| custom.label().display().to_string()),
        seed,
        cases: stats.cases,
        findings,
        failing: stats.failing,
        refused: stats.refused.values().sum(),
        seconds: summary.elapsed.as_secs_f64(),
        cases_per_second: summary.cases_per_second(),
        median_tokens: stats.tokens.quantile(0.5),
        share_over_256_tokens: stats.tokens.share(|n| n > 256),
        share_of_4_heads_or_more: stats.heads.share(|n| n >= 4),
    })
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("a struct of strings and numbers has a JSON form")
}
