//! JSON lines: an object for each finding, last a summary. Numbers that are not finite are `null`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::backend::Choice;
use crate::campaign::{Found, Summary};
use crate::case::Scenario;
use crate::diagnose::Told;
use crate::diagnose::explain::Part;
use crate::oracle::Finding;
use crate::oracle::agreement::{Agreement, Pair};
use crate::oracle::bound::Errors;
use crate::outputs::Output;
use crate::stats::{Against, Stats};

/// One finding.
#[derive(Serialize)]
struct FindingLine<'a> {
    r#type: &'static str,
    case: String,
    minimal: String,
    #[serde(flatten)]
    what: What<'a>,
    backend: &'a str,
    fault: Option<&'a str>,
    kernel: Option<String>,
    runs: Option<usize>,
    one_minimal: bool,
    recurred: Option<u32>,
}

/// What is wrong.
#[derive(Serialize)]
struct What<'a> {
    oracle: &'a str,
    tensor: Option<&'a str>,
    kind: String,
    error: f64,
    bound: f64,
    got: f64,
    want: f64,
    at: Option<String>,
    note: String,
    explained: Option<Explained>,
    #[serde(flatten)]
    sides: Option<Sides<'a>>,
}

/// What would make the outputs wrong in just this way, and what of the minimal case matters.
#[derive(Serialize)]
struct Explained {
    hypotheses: Vec<Explaining>,
    pattern: Vec<String>,
    idle: Vec<&'static str>,
    matters: Vec<Matters>,
}

/// A hypothesis that explains it; of several, the cases do not tell which.
#[derive(Serialize)]
struct Explaining {
    name: &'static str,
    says: &'static str,
    detail: String,
    half: &'static str,
    share: f64,
}

/// A part of the minimal case that matters, and its neighbours.
#[derive(Serialize)]
struct Matters {
    part: &'static str,
    passes: Vec<String>,
    fails: Vec<String>,
}

impl From<&Told> for Explained {
    fn from(told: &Told) -> Explained {
        let Told { diagnosis, explanation } = told;
        let texts = |scenarios: &[Scenario]| scenarios.iter().map(Scenario::to_string).collect();
        let (matter, idle): (Vec<&Part>, Vec<&Part>) =
            explanation.parts.iter().partition(|part| part.matters());
        Explained {
            hypotheses: diagnosis
                .named
                .iter()
                .map(|named| Explaining {
                    name: named.hypothesis.name,
                    says: named.hypothesis.says,
                    detail: named.detail.clone(),
                    half: named.half.name(),
                    share: named.share,
                })
                .collect(),
            pattern: diagnosis.pattern.clone(),
            idle: idle.iter().map(|part| part.name).collect(),
            matters: matter
                .iter()
                .map(|part| Matters { part: part.name, passes: texts(&part.pass), fails: texts(&part.fail) })
                .collect(),
        }
    }
}

/// Of a disagreement only: with whom, and the bound of each, of which `bound` is the sum.
#[derive(Serialize)]
struct Sides<'a> {
    against: &'a str,
    bounds: [f64; 2],
}

impl<'a> From<&'a Finding> for What<'a> {
    fn from(finding: &'a Finding) -> What<'a> {
        What {
            oracle: finding.kind.oracle(),
            tensor: finding.tensor.map(|tensor| tensor.name()),
            kind: finding.kind.name(),
            error: finding.error(),
            bound: finding.bound,
            got: finding.got,
            want: finding.want,
            at: finding.at.map(|at| at.to_string()),
            note: finding.note.clone(),
            explained: None,
            sides: None,
        }
    }
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
    asked: &'a BTreeMap<&'static str, u64>,
    median_tokens: u64,
    share_over_256_tokens: f64,
    share_of_4_heads_or_more: f64,
    errors: BTreeMap<&'static str, ErrorFields>,
    #[serde(flatten)]
    against: Option<AgainstFields<'a>>,
}

/// How the errors of one output lie within their bounds, over passing cases.
#[derive(Serialize)]
struct ErrorFields {
    /// Largest |error|/tau.
    largest: f64,
    /// Elements by tenths of |error|/tau; those without an error apart.
    tenths: [u64; 10],
    exact: u64,
    mean: f64,
    root_mean_square: f64,
    /// Heads by the lean of their roundings: within 1, 2, 3, 4 standard errors, and beyond.
    bias_z: Option<[u64; 5]>,
}

fn error_fields(stats: &Stats) -> BTreeMap<&'static str, ErrorFields> {
    let of_output = |(output, errors): (&Output, &Errors)| {
        let fields = ErrorFields {
            largest: stats.nearest.get(output).copied().unwrap_or(0.0),
            tenths: errors.tenths,
            exact: errors.exact,
            mean: errors.mean(),
            root_mean_square: errors.root_mean_square(),
            bias_z: stats.leans.get(output).map(|leans| leans.within),
        };
        (output.name(), fields)
    };
    stats.errors.iter().map(of_output).collect()
}

/// What a summary has besides where the cases ran on a second backend.
#[derive(Serialize)]
struct AgainstFields<'a> {
    against: &'a str,
    against_failing: u64,
    against_refused: u64,
    compared: u64,
    disagreeing: u64,
    elements: usize,
    furthest_apart: f64,
    refusals: Vec<Refusal<'a>>,
}

/// Cases that a backend refused for one reason.
#[derive(Serialize)]
struct Refusal<'a> {
    backend: &'a str,
    reason: &'a str,
    cases: u64,
}

/// A finding of a campaign or of a shrink.
pub fn finding(found: &Found, told: Option<&Told>, choice: &Choice) -> String {
    let minimal = found.minimal.to_string();
    let shrunk = found.shrunk.as_ref();
    let runs = shrunk.map(|shrunk| shrunk.runs);
    let one_minimal = found.is_steady() && shrunk.is_some_and(|shrunk| shrunk.complete());
    let recurred = Some(found.recurred);
    let what = What { explained: told.map(Explained::from), ..What::from(&found.lead) };
    line(what, found.original.to_string(), minimal, choice, (runs, one_minimal, recurred))
}

/// A finding of a check or a replay, which are not shrunk: `minimal` is the case itself.
pub fn checked(finding: &Finding, case: &str, choice: &Choice) -> String {
    line(finding.into(), case.to_string(), case.to_string(), choice, (None, false, None))
}

/// The pair by which two backends disagree most: `got` is what `choice` has, `want` what `other` has,
/// neither of them right for certain.
pub fn disagreement(pair: &Pair, agreement: &Agreement, case: &str, [choice, other]: [&Choice; 2]) -> String {
    let what = What {
        oracle: "agreement",
        tensor: Some(pair.output.name()),
        kind: "disagreement".into(),
        error: pair.apart(),
        bound: pair.bound(),
        got: pair.values[0],
        want: pair.values[1],
        at: Some(pair.at.to_string()),
        note: format!("{} of {} elements beyond both bounds", agreement.beyond, agreement.elements),
        explained: None,
        sides: Some(Sides { against: other.name(), bounds: pair.bounds }),
    };
    line(what, case.to_string(), case.to_string(), choice, (None, false, None))
}

fn line(
    what: What,
    case: String,
    minimal: String,
    choice: &Choice,
    (runs, one_minimal, recurred): (Option<usize>, bool, Option<u32>),
) -> String {
    to_json(&FindingLine {
        r#type: "finding",
        case,
        minimal,
        what,
        backend: choice.name(),
        fault: choice.fault.map(|fault| fault.name),
        kernel: choice.custom.as_ref().map(|custom| custom.label().display().to_string()),
        runs,
        one_minimal,
        recurred,
    })
}

/// The summary of a campaign.
pub fn summary(summary: &Summary, findings: usize, seed: Option<u64>, choice: &Choice) -> String {
    summary_line(summary, findings, seed, choice, None)
}

/// The summary of a replay, in which `findings` counts failing cases.
pub fn replayed(
    summary: &Summary,
    findings: usize,
    choice: &Choice,
    against: Option<(&Choice, &Against)>,
) -> String {
    let fields = against.map(|(other, against)| AgainstFields {
        against: other.name(),
        against_failing: against.stats.failing,
        against_refused: against.stats.refusals(),
        compared: against.compared,
        disagreeing: against.disagreeing,
        elements: against.total.elements,
        furthest_apart: against.total.apart(),
        refusals: refusals(&summary.stats, choice).chain(refusals(&against.stats, other)).collect(),
    });
    summary_line(summary, findings, None, choice, fields)
}

fn refusals<'a>(stats: &'a Stats, choice: &'a Choice) -> impl Iterator<Item = Refusal<'a>> {
    let backend = choice.name();
    stats.refused.iter().map(move |(reason, &cases)| Refusal { backend, reason, cases })
}

fn summary_line(
    summary: &Summary,
    findings: usize,
    seed: Option<u64>,
    choice: &Choice,
    against: Option<AgainstFields>,
) -> String {
    let stats = &summary.stats;
    to_json(&SummaryLine {
        r#type: "summary",
        backend: choice.name(),
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
        asked: &stats.asked,
        median_tokens: stats.tokens.quantile(0.5),
        share_over_256_tokens: stats.tokens.share(|n| n > 256),
        share_of_4_heads_or_more: stats.heads.share(|n| n >= 4),
        errors: error_fields(stats),
        against,
    })
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("a struct of strings and numbers has a JSON form")
}
