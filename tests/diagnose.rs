//! The diagnosis names what is planted, and says so where it does not know.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use thd_fuzz::backend::{BACKENDS, Choice, Run};
use thd_fuzz::catalogue::{HYPOTHESIS_OF, WITHOUT_FAULT, hypothesis_of, planted};
use thd_fuzz::check::Side;
use thd_fuzz::diagnose::hypotheses::HYPOTHESES;
use thd_fuzz::diagnose::score::score;
use thd_fuzz::diagnose::{Diagnosis, Observed, Witnesses, diagnose, tell};
use thd_fuzz::oracle::Depth;

/// Failing cases of each fault in the quick score, and cases that are tried for them.
const QUICK: [u64; 2] = [10, 400];

fn observed(choice: &Choice, text: &str) -> Option<Observed> {
    let mut backend = choice.open().expect("it opens");
    let side = Side {
        backend: &mut *backend,
        contract: choice.descriptor.contract,
        run: Run::PLAIN,
        depth: Depth::Whole,
    };
    Observed::new(&text.parse().expect(text), side).expect("no fault of ours")
}

fn of_model(fault: &str) -> Choice {
    Choice::find(Some("model"), Some(fault)).expect("a name of the table")
}

fn diagnosed(fault: &str, texts: &[&str]) -> Diagnosis {
    let failing: Vec<Observed> =
        texts.iter().map(|text| observed(&of_model(fault), text).expect("it fails")).collect();
    diagnose(&failing.iter().collect::<Vec<_>>(), &Witnesses::default())
}

#[test]
fn the_seeds_cause_is_named_on_the_seeds_cases() {
    for text in ["[128,96] h8 d128 causal do=ones", "[128,96] h8 d128", "[128] h8 d128 data=logits(0.1)"] {
        let diagnosis = diagnosed("lse-transposed", &[text]);
        assert_eq!(diagnosis.name(), Some("lse-transposed"), "{text}: {diagnosis}");
        assert!(diagnosis.to_string().contains("[token][head] read as [head][token]"), "{diagnosis}");
        assert_eq!(diagnosis.named.len(), 1, "{text}: {diagnosis}");
    }
}

#[test]
fn a_larger_case_tells_apart_what_a_minimal_one_cannot() {
    let small = diagnosed("causal-off-by-one", &["[2] causal"]);
    assert!(small.named.len() > 1 && small.to_string().contains("cannot be told apart"), "{small}");
    let both = diagnosed("causal-off-by-one", &["[2] causal", "[9] causal"]);
    assert_eq!((both.name(), both.named.len()), (Some("causal-off-by-one"), 1), "{both}");
}

#[test]
fn a_factor_is_told_with_its_value() {
    let diagnosis = diagnosed("last-head-scaled", &["[64] h2"]);
    assert_eq!(diagnosis.name(), Some("constant-factor"), "{diagnosis}");
    let detail = &diagnosis.named[0].detail;
    let factor: f64 = detail.trim_start_matches("times ").parse().expect("a number");
    assert!((factor - 1.0625).abs() < 0.005, "{detail}");
}

#[test]
fn what_is_no_hypothesis_is_described() {
    let cases = [
        ("masked-row-nan", "[1]x[0]", "O: 64 of 64 elements wrong; all of them NaN"),
        (
            "tail-row-unwritten",
            "[65]",
            "dV: 64 of 4160 elements wrong; all of them never written; in the last row",
        ),
        ("single-query-pairs", "[1]x[2]", "each of a pair of rows holds what the other should"),
    ];
    for (fault, text, words) in cases {
        let diagnosis = diagnosed(fault, &[text]);
        assert_eq!(diagnosis.name(), None, "{fault}: {diagnosis}");
        assert!(diagnosis.to_string().contains(words), "{fault}: {diagnosis}");
    }
}

#[test]
fn a_right_backend_gives_nothing_to_diagnose() {
    let right = Choice::find(Some("model"), None).expect("the model");
    assert!(observed(&right, "[128,96] h8 d128 causal do=ones").is_none());
    assert!(diagnose(&[], &Witnesses::default()).named.is_empty());
}

#[test]
fn a_finding_is_told_with_its_cause_and_what_matters() {
    let (original, minimal) = ("[8,31]x[0,2] h3 d40/88 gap-q(0,8) seed=40", "[2] h2");
    let choice = of_model("lse-transposed");
    let told =
        tell(&choice, &original.parse().unwrap(), &minimal.parse().unwrap()).unwrap().expect("it fails");
    assert_eq!(told.diagnosis.name(), Some("lse-transposed"));
    let text = told.explanation.to_string();
    assert!(text.contains("does not matter: seed, dO, dtype, head dim"), "{text}");
    assert!(text.contains("'[2]' passes") && told.explanation.runs <= 40, "{text}");
}

/// Faults that leave every live element right: there is nothing to name.
const BESIDE_ELEMENTS: [&str; 2] = ["dead-rows-unwritten", "guard-overrun"];

/// Ten cases of each fault, of which nine must get the right name; the catalogue scores a hundred.
#[test]
fn random_failing_cases_get_the_right_name_or_none() {
    let mut failures = Vec::new();
    for fault in BACKENDS.iter().flat_map(|row| row.faults) {
        let never = AtomicBool::new(false);
        let score = score(&of_model(fault.name), 7, QUICK, &never).expect("no fault of ours");
        let right = score.of(hypothesis_of(fault.name));
        let shows = !BESIDE_ELEMENTS.contains(&fault.name);
        if right + 1 < score.failing || (score.failing > 0) != shows {
            failures.push(format!("{}: {right} of {}: {:?}", fault.name, score.failing, score.examples));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_hypothesis_is_of_a_known_class_and_every_name_is_one() {
    let classes = classes();
    let names: BTreeSet<&str> = HYPOTHESES.iter().map(|hypothesis| hypothesis.name).collect();
    assert_eq!(names.len(), HYPOTHESES.len(), "a name twice");
    for hypothesis in HYPOTHESES {
        assert!(classes.contains(hypothesis.class), "{}: {}", hypothesis.name, hypothesis.class);
        assert!(!(hypothesis.variants)().is_empty(), "{}", hypothesis.name);
    }
    let faults = planted().expect("the lists");
    for (fault, hypothesis) in HYPOTHESIS_OF {
        assert!(names.contains(hypothesis), "{fault}: {hypothesis}");
        assert!(faults.iter().any(|planted| planted.name() == *fault), "no fault is called {fault}");
    }
    let values = faults.iter().filter(|planted| planted.shows_values());
    let outside = values.filter(|planted| hypothesis_of(planted.name()).is_none()).count();
    assert!(outside >= 6, "{outside} faults are no hypothesis");
}

/// The classes of the taxonomy.
fn classes() -> BTreeSet<&'static str> {
    let table = include_str!("../corpus/README.md").split("## Classes").nth(1).expect("the classes");
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').next().unwrap().trim()).collect()
}

#[test]
fn every_class_has_a_fault_or_a_reason() {
    let faults = planted().expect("the lists");
    let covered: BTreeSet<&str> = faults.iter().map(|planted| planted.class()).collect();
    let reasons: BTreeSet<&str> = WITHOUT_FAULT.iter().map(|&(class, _)| class).collect();
    for class in classes() {
        assert!(
            covered.contains(class) != reasons.contains(class) || class == "UNCLASSIFIED",
            "{class}: covered {}, reason {}",
            covered.contains(class),
            reasons.contains(class)
        );
    }
}
