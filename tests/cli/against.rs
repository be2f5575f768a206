//! `replay --against`: two backends on the same cases.

use std::os::unix::fs::PermissionsExt;

use thd_fuzz::backend::protocol::{Hello, write_frame};

use super::json::{FINDING_FIELDS, SUMMARY_FIELDS, fields};
use super::*;

/// Fields that a finding has besides where it is a disagreement of two backends.
const DISAGREEMENT_FIELDS: [&str; 2] = ["against", "bounds"];
/// Fields that a summary has besides where a replay had two backends.
const AGAINST_FIELDS: [&str; 8] = [
    "against",
    "against_failing",
    "against_refused",
    "compared",
    "disagreeing",
    "elements",
    "furthest_apart",
    "refusals",
];

fn with_more<'a>(fields: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let mut all = [fields, more].concat();
    all.sort_unstable();
    all
}

fn is_near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-12 * b.abs(), "{a} and {b}");
}

/// Replays two saved cases, the second of which the emulator refuses.
fn replayed_against(args: &[&str], prepare: impl FnOnce(&mut Command, &Path)) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("kept")).unwrap();
    fs::write(folder.path().join("kept/a"), "[65,2] h2 causal").unwrap();
    fs::write(folder.path().join("kept/b"), "[3] d136").unwrap();
    let mut command = program(&[&["replay", "kept"], args].concat(), folder.path());
    prepare(&mut command, folder.path());
    finish(start(command))
}

#[test]
fn backends_that_agree_are_clean_and_the_last_line_says_how_near_they_are() {
    for (args, names) in [
        (["--backend", "emulator", "--against", "model"], ["emulator", "model"]),
        (["--backend", "model", "--against", "emulator"], ["model", "emulator"]),
        (["--backend", "emulator", "--against", "emulator"], ["emulator", "emulator again"]),
    ] {
        let run = replayed_against(&args, |_, _| {});
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
        assert!(run.out.starts_with("ok   [65,2] h2 causal\n"), "{}", run.out);
        for name in names.iter().filter(|name| name.starts_with("emulator")) {
            assert!(run.out.contains(&format!("\n{name} refused 1: head dim 136")), "{}", run.out);
        }
        let last = run.out.lines().last().unwrap();
        assert!(last.starts_with(&format!("2 cases on {}: ", names[0])), "{last}");
        // O, dQ, dK and dV of 64 columns, and LSE.
        let compared =
            format!("1 compared, 0 disagree, {} elements, furthest apart 0.", 67 * 2 * (4 * 64 + 1));
        assert!(last.contains(&format!("; on {}: 0 failed, ", names[1])), "{last}");
        assert!(last.contains(&compared) && last.ends_with(" of both bounds"), "{last}");
    }
}

#[test]
fn backends_that_disagree_are_a_finding_that_says_where_and_by_how_much() {
    let args = ["--fault", "lse-transposed", "--against", "emulator"];
    let run = replayed_against(&args, |_, _| {});
    assert_eq!((run.status, run.err.as_str()), (1, ""), "{run:?}");
    assert!(run.out.starts_with("FAIL [65,2] h2 causal\n       dQ: backward (bound), at "), "{}", run.out);
    let told: Vec<&str> = run.out.lines().filter(|line| line.contains("backends disagree")).collect();
    assert_eq!(told.len(), 1, "{}", run.out);
    let (words, rest) = ([": backends disagree, at sequence ", ", row ", ", head ", ", column "], told[0]);
    assert!(words.iter().all(|word| rest.contains(word)), "{rest}");
    assert!(rest.contains(") on model with the planted fault lse-transposed, "), "{rest}");
    assert!(rest.contains(") on emulator, apart by ") && rest.contains(" of both bounds; "), "{rest}");
    assert!(run.out.lines().last().unwrap().contains("1 compared, 1 disagree, "), "{}", run.out);

    let run = replayed_against(&[&args[..], &["--format", "json"]].concat(), |_, _| {});
    assert_eq!(run.status, 1, "{run:?}");
    let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, findings) = lines.split_last().unwrap();
    let (pair, findings) = findings.split_last().unwrap();
    assert!(findings.iter().all(|finding| fields(finding) == FINDING_FIELDS));
    assert_eq!(fields(pair), with_more(&FINDING_FIELDS, &DISAGREEMENT_FIELDS));
    assert_eq!([&pair["kind"], &pair["against"], &pair["type"]], ["disagreement", "emulator", "finding"]);
    let number = |value: &Value| value.as_f64().unwrap();
    let (bound, error) = (number(&pair["bound"]), number(&pair["error"]));
    is_near(bound, number(&pair["bounds"][0]) + number(&pair["bounds"][1]));
    is_near(error, (number(&pair["got"]) - number(&pair["want"])).abs() / bound);
    assert_eq!(fields(summary), with_more(&SUMMARY_FIELDS, &AGAINST_FIELDS));
    is_near(number(&summary["furthest_apart"]), error);
    assert_eq!([&summary["findings"], &summary["compared"], &summary["disagreeing"]], [1, 1, 1]);
    assert_eq!([&summary["against_failing"], &summary["against_refused"]], [0, 1]);
    let refusal = &summary["refusals"][0];
    assert!(refusal["backend"] == "emulator" && refusal["cases"] == 1, "{summary}");
    assert!(refusal["reason"].as_str().unwrap().starts_with("head dim 136"), "{summary}");
}

#[test]
fn a_crash_of_the_other_backend_is_a_finding_that_names_it() {
    // A worker that says hello, takes a request, and dies.
    let crashing = |command: &mut Command, folder: &Path| {
        let mut hello = Vec::new();
        write_frame(&mut hello, Hello::ours("emulator").message()).unwrap();
        fs::write(folder.join("hello"), &hello).unwrap();
        let (size, script) = (hello.len(), folder.join("worker"));
        let text =
            format!("#!/bin/sh\nhead -c {size} <&3 >/dev/null\ncat hello >&4\nhead -c 1 <&3\nexit 3\n");
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        command.env("THD_FUZZ_WORKER", script);
    };
    let run = replayed_against(&["--backend", "model", "--against", "emulator"], crashing);
    assert_eq!((run.status, run.err.as_str()), (1, ""), "{run:?}");
    let told = "FAIL [65,2] h2 causal\n       on emulator: the backend: crash (backend); the process died";
    assert!(run.out.starts_with(told), "{}", run.out);
    let counts = "1 refused; 0 compared, 0 disagree, 0 elements";
    assert!(
        run.out.contains("2 passed, 0 failed") && run.out.contains("; on emulator: 1 failed, "),
        "{run:?}"
    );
    assert!(run.out.lines().last().unwrap().contains(counts), "{}", run.out);
}
