//! Somebody else's program as a backend: the example that docs/protocol.md points to, right and with a bug, and
//! programs that are no workers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thd-fuzz");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/worker.py");

fn thd_fuzz(args: &[&str]) -> (Output, String) {
    let output = Command::new(PROGRAM).args(args).output().expect("it starts");
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    (output, text)
}

fn check(case: &str, worker: &str) -> (Option<i32>, String) {
    let (output, text) = thd_fuzz(&["check", case, "--backend", &format!("cmd:{worker}")]);
    (output.status.code(), text)
}

/// The example with one line changed.
fn changed(folder: &Path, from: &str, to: &str) -> String {
    let text = fs::read_to_string(EXAMPLE).expect("the example");
    assert_eq!(text.matches(from).count(), 1, "{from}");
    script(folder, &text.replace(from, to))
}

fn script(folder: &Path, text: &str) -> String {
    let file = folder.join("worker");
    fs::write(&file, text).expect("the folder is ours");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("so is the file");
    file.display().to_string()
}

#[test]
fn the_example_is_right_for_every_mask_grouping_and_storage() {
    for case in [
        "[3,2] h4/2 d8 f16 causal gap-q(1,2) dead=nan",
        "[5,0,2]x[3,1,4] h2 d8/16 f16 causal-br lead-kv=2",
        "[6] h3/1 d16 f16 window(1,0) data=logits(4) do=ones",
        "[4]x[0] d8 f16",
    ] {
        let (status, text) = check(case, EXAMPLE);
        assert_eq!(status, Some(0), "{case}: {text}");
    }
}

#[test]
fn what_the_example_does_not_do_it_refuses_with_its_reason() {
    let (status, text) = check("[3] d8", EXAMPLE);
    assert!(text.contains("f16 without softcap and sink is all that it does"), "{status:?}: {text}");
}

#[test]
fn bugs_of_a_foreign_program_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    for (from, to) in [
        ("ds = c * x * (y - dot(p, dp))", "ds = c * x * y"),
        ("g = h // (hq // hk)", "g = h % hk"),
        (r#"out["lse"][(q0 + i) * hq + h] = lse"#, r#"out["lse"][(q0 + i) * hq + h] = lse / math.log(2)"#),
    ] {
        let worker = changed(folder.path(), from, to);
        let (status, text) = check("[5,3] h4/2 d8 f16 causal", &worker);
        assert_eq!(status, Some(1), "{to}: {text}");
    }
}

#[test]
fn dead_rows_are_held_to_what_the_program_says_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let filled = |promise: &str| {
        let file = changed(folder.path(), r#"**{"dead-rows": "zero"}"#, promise);
        let text = fs::read_to_string(&file).expect("it was written");
        script(folder.path(), &text.replacen("[0.0] * len(given[like][1])", "[7.0] * len(given[like][1])", 1))
    };
    // No live row is added to: nothing has a key.
    let case = "[0]x[0] d8 f16 tail-q=1 tail-kv=1";
    assert_eq!(check(case, &filled(r#"**{"dead-rows": "anything"}"#)).0, Some(0));
    let (status, text) = check(case, &filled(r#"**{"dead-rows": "zero"}"#));
    assert_eq!(status, Some(1), "{text}");
}

#[test]
fn what_is_no_worker_costs_one_sentence_and_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let bad_promise = changed(folder.path(), r#"rounding="fp32""#, r#"rounding="none""#);
    for worker in ["", "/nonexistent/worker", "true", &bad_promise] {
        let (status, text) = check("[3] d8 f16", worker);
        assert_eq!(status, Some(2), "{worker}: {text}");
        assert_eq!(text.trim().lines().count(), 1, "{worker}: {text}");
    }
}

#[test]
fn a_program_that_dies_is_a_finding_and_the_campaign_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let dies = changed(
        folder.path(),
        "        write(attention(plan, tensors), message=\"outputs\")",
        "        os.abort()",
    );
    let (backend, save) = (format!("cmd:{dies}"), folder.path().join("found").display().to_string());
    let args =
        ["fuzz", "--backend", &backend, "--cases", "12", "--seed", "1", "--with", "f16", "--save", &save];
    let (output, text) = thd_fuzz(&[&args[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = output.stdout.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty());
    let summary: serde_json::Value = serde_json::from_slice(last.expect("a summary")).expect("JSON");
    let count = |name: &str| summary[name].as_u64().expect("a number");
    assert!(count("failing") > 1 && count("failing") + count("refused") == 12, "{text}");
}
