//! The harness is measured by bugs that are planted on purpose: a campaign must find each one, and
//! shrink it to the case that its row of [`BACKENDS`] promises.

use std::sync::atomic::AtomicBool;

use thd_fuzz::backend::{BACKENDS, Choice, Descriptor, FaultInfo, Run};
use thd_fuzz::campaign::{self, Found, Settings};
use thd_fuzz::case::Scenario;
use thd_fuzz::check::{Outcome, Report, check};
use thd_fuzz::generate::{Budget, Softmax};
use thd_fuzz::oracle::Ask;
use thd_fuzz::outputs::Output;

/// Campaigns of different seeds see different cases first.
const SEEDS: [u64; 2] = [1, 2];

/// Cases within which every fault must show.
const CASES: u64 = 2000;

/// Smaller than a campaign's own, for the test's time: every fault shows within a few tiles.
const BUDGET: Budget = Budget { max_tokens: 1024, max_work: 12_000_000, softmax: Softmax::ALL };

/// Other ends of a shrink than the promised one, and why there is more than one.
///
/// A shrink keeps the identity of the finding that it starts from, the first output in which the
/// fault shows; where another output is the first, another case is the smallest. And it stops where no
/// single step leads on, even if a simpler case lies two steps away.
const OTHER_ENDS: [(&str, &str, &str); 13] = [
    ("lse-transposed", "[2]x[1] h2", "found in dV: with a single key dS, dQ and dK are 0 whatever P is"),
    ("scale-of-padded-d", "[1] d8", "found in dV: with a single key dS, dQ and dK are 0 whatever P is"),
    ("gqa-last-head-only", "[2] h2/1", "found in dK, which is 0 for a single key"),
    ("neighbour-leak", "[1,1] data=ones", "found in the LSE: the mean of equal rows of v is right"),
    ("window-left-dropped", "[1] window(-1,*)", "two steps away: one token less and a bound below 0"),
    ("br-as-tl", "[2]x[1] causal-br", "two steps away: a query less and a key more"),
    ("dv-width-of-dk", "[1] d8/64", "two steps away: both dims are others"),
    ("kv-tail-unmasked", "[3] f16 data=logits(5)", "an LSE below -11 by chance, with no offset"),
    (
        "kv-tail-unmasked",
        "[1] d8 data=logits(10)+head-scale(2) keys=3 seed=9238064717833510824",
        "the same in bf16, whose range takes an LSE below -88: of few seeds",
    ),
    ("kv-tail-unmasked", "[1] data=offset(-87)", "the same in bf16, by an offset"),
    (
        "kv-tail-unmasked",
        "[1] data=logits(15)+offset(-7)+head-scale(2) keys=1 head-keys=3 seed=107",
        "the same, by chance and an offset: each alone is not enough with these keys",
    ),
    ("scale-cached", "[]; [1] d8", "found in the LSE, which shows the scale of a single key's logit"),
    ("delta-buffer-short", "[1] lead-q=1", "two steps away: another sequence in the place of the dead row"),
];

fn planted() -> impl Iterator<Item = (&'static Descriptor, &'static FaultInfo)> {
    BACKENDS.iter().flat_map(|row| row.faults.iter().map(move |fault| (row, fault)))
}

/// The first finding of a campaign.
fn first_finding(choice: &Choice, seed: u64) -> Result<Found, String> {
    let settings = Settings {
        choice: choice.clone(),
        seed,
        cases: Some(CASES),
        time: None,
        ask: Ask::Nothing,
        with: None,
        stop_after: Some(1),
        budget: BUDGET,
        stop: &AtomicBool::new(false),
    };
    let (summary, result) = campaign::run(&settings, |_| {});
    result.map_err(|error| format!("{choice}, seed {seed}: {error}"))?;
    let first = summary.found.into_iter().next();
    first.map(|(found, _)| found).ok_or_else(|| format!("{choice}, seed {seed}: nothing in {CASES} cases"))
}

/// Is this what the table promises, or an end that is explained?
fn as_promised(fault: &FaultInfo, minimal: &Scenario) -> bool {
    let text = minimal.to_string();
    text == fault.minimal || OTHER_ENDS.iter().any(|&(name, end, _)| name == fault.name && text == end)
}

fn choice(fault: Option<&str>) -> Choice {
    Choice::find(Some("model"), fault).expect("a name of the table")
}

fn judged(scenario: &Scenario, choice: Choice) -> Report {
    match check(scenario, &mut *choice.open().expect("it opens"), choice.descriptor.contract, Run::PLAIN) {
        Ok(Outcome::Judged(report)) => report,
        other => panic!("{scenario} on {choice}: {other:?}"),
    }
}

#[test]
fn every_planted_fault_is_found_and_shrinks_to_the_promised_case() {
    let mut failures = Vec::new();
    for (row, fault) in planted() {
        let choice = Choice::find(Some(row.name), Some(fault.name)).expect("a name of the table");
        for seed in SEEDS {
            match first_finding(&choice, seed) {
                Err(failure) => failures.push(failure),
                Ok(found) if as_promised(fault, &found.minimal) => {}
                Ok(found) => failures.push(format!(
                    "{choice}, seed {seed}, case {}: shrank to '{}', not to '{}'; {} {} from '{}'",
                    found.index,
                    found.minimal,
                    fault.minimal,
                    found.lead.kind.name(),
                    found.lead.tensor.map_or("run", Output::name),
                    found.original,
                )),
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_promised_case_fails_with_its_fault_alone_and_prints_as_promised() {
    let promised = planted().map(|(_, fault)| (fault.name, fault.minimal));
    let explained = OTHER_ENDS.iter().map(|&(name, end, _)| (name, end));
    let mut failures = Vec::new();
    for (name, text) in promised.chain(explained) {
        let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{name}: '{text}': {error}"));
        assert_eq!(scenario.to_string(), text, "{name}");
        if judged(&scenario, choice(Some(name))).findings.is_empty() {
            failures.push(format!("'{text}' passes with {name}"));
        }
        if !judged(&scenario, choice(None)).findings.is_empty() {
            failures.push(format!("'{text}' fails without {name}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The seed report's table: the forward right, the gradient's direction wrong.
#[test]
fn the_seeds_four_cases_fail_by_the_seeds_fault_as_the_report_shows() {
    for lengths in ["[128]", "[128,96]", "[128,128]", "[256,256]"] {
        let scenario: Scenario = format!("{lengths} h8 d128 causal do=ones").parse().unwrap();
        let right = judged(&scenario, choice(None));
        assert!(right.findings.is_empty(), "{lengths}: {:?}", right.findings);
        let wrong = judged(&scenario, choice(Some("lse-transposed")));
        assert!(!wrong.findings.is_empty(), "{lengths}");
        for similarity in &wrong.calls[0].similarities {
            let (output, cosine) = (similarity.output, similarity.cosine);
            match output {
                Output::O | Output::Lse => assert!(cosine > 0.9999, "{lengths} {output}: {cosine}"),
                Output::Dq | Output::Dk | Output::Dv | Output::Dsink => {
                    assert!(cosine < 0.99, "{lengths} {output}: {cosine}");
                }
            }
        }
        let gradients_first =
            wrong.findings.iter().all(|finding| !matches!(finding.tensor, Some(Output::O | Output::Lse)));
        assert!(gradients_first, "{lengths}: the forward is blamed");
    }
}
