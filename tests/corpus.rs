//! The corpus: every file is readable, canonical, told of once, and passes on a right backend; the
//! classes of `corpus/README.md` are all there, but for those that it rules out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use thd_fuzz::axes;
use thd_fuzz::backend::{BACKENDS, Choice, Run};
use thd_fuzz::case::{Case, Item, Scenario};
use thd_fuzz::check::{Outcome, check};
use thd_fuzz::corpus::{self, Entry};

const README: &str = include_str!("../corpus/README.md");

/// Largest work of a regression, over all its calls.
const MAX_WORK: u64 = 200_000_000;

/// Shortest cause that can say anything.
const SHORTEST_CAUSE: usize = 40;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// The files of a folder, by name.
fn files(name: &str) -> BTreeMap<String, PathBuf> {
    let entries = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect()
}

fn regressions() -> Vec<(String, Entry)> {
    let read = |(name, path): (String, PathBuf)| {
        let text = std::fs::read_to_string(&path).unwrap();
        let entry = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, entry)
    };
    files("regressions").into_iter().map(read).collect()
}

/// The rows of the README's table of classes: the name, and whether the corpus must have it.
fn classes() -> Vec<(&'static str, bool)> {
    let table = README.split("## Classes").nth(1).expect("the section of classes");
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let class = |row: &'static str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let expressible = match cells[2].split(':').next() {
            Some("yes") => true,
            Some("no") => false,
            _ => panic!("'{}' is neither yes nor no", cells[2]),
        };
        assert!(expressible || cells[2].len() > "no: ".len(), "{}: no without a reason", cells[0]);
        (cells[0], expressible)
    };
    rows.map(class).collect()
}

fn is_short_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.chars().all(plain)
}

/// What is wrong with the story of a regression.
fn complaints(name: &str, entry: &Entry, known: &BTreeSet<&str>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            complaints.push(format!("{name}: {what}"));
        }
    };
    check(name.strip_suffix(".toml").is_some_and(is_short_name), "not a name like fa-2552-dv-96.toml");
    check(entry.title.as_ref().is_some_and(|title| !title.trim().is_empty()), "no title");
    let public = |origin: &String| origin.starts_with("https://") && !origin.contains(char::is_whitespace);
    check(entry.origin.as_ref().is_some_and(public), "no origin that is a public address");
    check(entry.cause.as_ref().is_some_and(|cause| cause.len() >= SHORTEST_CAUSE), "no cause to speak of");
    check(!entry.class.is_empty(), "no class");
    check(entry.class.iter().collect::<BTreeSet<_>>().len() == entry.class.len(), "a class twice");
    check(entry.class.iter().all(|class| known.contains(class.as_str())), "an unknown class");
    complaints.extend(scenario_complaints(name, &entry.case));
    complaints
}

/// What is wrong with a scenario's text.
fn scenario_complaints(name: &str, text: &str) -> Vec<String> {
    match text.parse::<Scenario>() {
        Err(error) => vec![format!("{name}: {error}")],
        Ok(scenario) if scenario.to_string() != text => vec![format!("{name}: prints as '{scenario}'")],
        Ok(scenario) => {
            let work: u64 = scenario.calls.iter().map(Case::work).sum();
            (work > MAX_WORK)
                .then(|| format!("{name}: {work} of work, at most {MAX_WORK}"))
                .into_iter()
                .collect()
        }
    }
}

/// Names that share a text.
fn repeated<'a>(texts: impl Iterator<Item = (&'a String, String)>) -> Vec<String> {
    let mut by_text: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    texts.for_each(|(name, text)| by_text.entry(text).or_default().push(name));
    let repeated = by_text.into_iter().filter(|(_, names)| names.len() > 1);
    repeated.map(|(text, names)| format!("'{text}' is in {names:?}")).collect()
}

#[test]
fn every_regression_is_canonical_cheap_unique_and_tells_its_story() {
    let entries = regressions();
    let known: BTreeSet<&str> = classes().into_iter().map(|(class, _)| class).collect();
    let mut failures: Vec<String> =
        entries.iter().flat_map(|(name, entry)| complaints(name, entry, &known)).collect();
    failures.extend(repeated(entries.iter().map(|(name, entry)| (name, entry.case.clone()))));
    assert!(entries.len() >= 30, "{} regressions", entries.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_class_is_in_the_corpus_or_ruled_out_and_not_both() {
    let classes = classes();
    let entries = regressions();
    let present: BTreeSet<&str> =
        entries.iter().flat_map(|(_, entry)| &entry.class).map(String::as_str).collect();
    let wrong: Vec<_> =
        classes.iter().filter(|(class, expressible)| present.contains(class) != *expressible).collect();
    assert!(wrong.is_empty(), "(class, expressible) against what is there: {wrong:?}");

    // The axes of a case and the planted faults speak of the same classes.
    let known: BTreeSet<&str> = classes.iter().map(|&(class, _)| class).collect();
    assert_eq!(known.len(), classes.len(), "a class twice");
    let reached = axes::all().flat_map(|axis| axis.reaches.split(", ")).filter(|class| !class.is_empty());
    let planted = BACKENDS.iter().flat_map(|row| row.faults).map(|fault| fault.class);
    let unknown: Vec<_> = reached.chain(planted).filter(|class| !known.contains(class)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_seed_of_the_fuzz_target_is_one_canonical_line_and_all_items_occur() {
    let files = files("thd_bwd");
    let (mut failures, mut texts) = (Vec::new(), Vec::new());
    for (name, path) in &files {
        let text = std::fs::read_to_string(path).unwrap();
        let case = text.strip_suffix('\n').unwrap_or(&text);
        if !is_short_name(name) || case.contains('\n') {
            failures.push(format!("{name}: not one line under a short name"));
        }
        failures.extend(scenario_complaints(name, case));
        texts.push((name, case.to_string()));
    }
    failures.extend(repeated(texts.iter().cloned()));
    let scenarios: Vec<Scenario> = texts.iter().filter_map(|(_, text)| text.parse().ok()).collect();
    let calls = || scenarios.iter().flat_map(|scenario| &scenario.calls);
    // The kernels, which the target runs, refuse softcap and sink.
    let taken = Item::ALL.iter().filter(|item| !matches!(item, Item::Softcap | Item::Sink));
    let absent = taken.filter(|item| !calls().any(|case| item.text(case).is_some()));
    failures.extend(absent.map(|item| format!("no seed has the item {item:?}")));
    assert!(files.len() >= 50, "{} seeds", files.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_whole_corpus_passes_on_the_right_model() {
    let (saved, errors) = corpus::load(&[folder("regressions"), folder("thd_bwd")]);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(saved.len(), files("regressions").len() + files("thd_bwd").len());
    let model = Choice::find(Some("model"), None).unwrap();
    let failures: Vec<String> = saved
        .par_iter()
        .filter_map(|case| {
            let outcome = check(
                &case.scenario,
                &mut *model.open().expect("it opens"),
                model.descriptor.contract,
                Run::PLAIN,
            );
            let complaint = match outcome {
                Ok(Outcome::Judged(report)) if report.findings.is_empty() => return None,
                Ok(Outcome::Judged(report)) => format!("{:?}", report.findings[0]),
                Ok(Outcome::Refused(reason)) => format!("refused: {reason}"),
                Err(error) => error.to_string(),
            };
            Some(format!("{}: '{}': {complaint}", case.path.display(), case.scenario))
        })
        .collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
