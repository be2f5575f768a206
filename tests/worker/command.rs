//! The command line with kernels in children.

use std::fs;
use std::path::Path;
use std::process::{Command, Output as Ended, Stdio};
use std::thread::sleep;
use std::time::Instant;

use super::kernel::wrong_backward;
use super::*;

fn thd_fuzz(args: &[&str]) -> Ended {
    Command::new(PROGRAM).args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_users_kernel_is_compiled_run_and_its_crash_is_shrunk() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backward.cu");
    fs::write(&file, wrong_backward().text).unwrap();
    let file = file.to_str().unwrap();
    let ended = thd_fuzz(&["shrink", "[70,9] h2 causal scale=3", "--kernel", file, "--format", "json"]);
    let line = String::from_utf8(ended.stdout).unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{line} {said}");
    assert!(line.contains(r#""kind":"crash""#) && line.contains(r#""minimal":"[1] scale=3""#), "{line}");
}

#[test]
fn wrong_kernels_are_a_sentence_and_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> String {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (bad, strange) = (file("clear.cu", "\nnonsense;\n"), file("mine.cu", ""));
    let missing = folder.path().join("forward.cu").to_str().unwrap().to_string();
    let told = [
        (vec!["--kernel", &bad], "compiling the kernels: clear.cu:2:1: error:"),
        (vec!["--kernel", &strange], "has no kernel source's name; those are params.h,"),
        (vec!["--kernel", &missing], "cannot read '"),
        (vec!["--kernel", &bad, "--backend", "model"], "the backend model takes no --kernel"),
    ];
    for (args, words) in told {
        let ended = thd_fuzz(&[&["check", "[1]"], &args[..]].concat());
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(2) && said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_worker_started_by_hand_says_so() {
    let ended = thd_fuzz(&["worker", "--backend", "emulator"]);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(2) && said.contains("not by hand"), "{said}");
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Waits until `holds`.
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(5));
    }
}

fn lives(pid: u32) -> bool {
    // One that ended and that nobody waited for is dead too.
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Path::new(&format!("/proc/{pid}")).exists() && !text.contains(") Z ")
}

#[test]
fn a_killed_parent_leaves_no_child_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut parent = Command::new(PROGRAM)
        .args(["fuzz", "--backend", "emulator", "--time", "100s"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the campaign starts a child", || !children(parent.id()).is_empty());
    let left = children(parent.id());
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the children die with their parent", || !left.iter().any(|&pid| lives(pid)));
}
