//! Children that misbehave by script: each is recorded as what it is, and the next case passes in a
//! child that is what it should be.

use std::fs;
use std::path::Path;

use super::*;
use thd_fuzz::backend::protocol::{Hello, Message, Reply, write_frame};

/// The shell's part that every script begins with: it has read the parent's hello and sent its own;
/// `$1` is the folder of messages. With `$1/done` there, it is a right worker.
const HELLO: &str = r#"
if [ -e "$1/done" ]; then exec "$PROGRAM" worker --backend emulator; fi
: > "$1/done"
head -c "$SIZE" <&3 > /dev/null
"#;

/// A worker that does `script` once.
fn scripted(folder: &Path, script: &str) -> Worker {
    let text = format!("PROGRAM='{PROGRAM}'; SIZE={}\n{HELLO}\n{script}\n", hello_size());
    let args = vec!["-c".into(), text.into(), "sh".into(), folder.into()];
    let program = Program { path: "/bin/sh".into(), args };
    Worker::new("emulator", program, |_| Support::Yes).with_deadline(soon)
}

fn hello_size() -> usize {
    frame(Hello::ours("emulator").message()).len()
}

fn frame(message: Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, message).unwrap();
    bytes
}

/// A folder with messages for scripts.
fn messages() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    save("hello", &frame(Hello::ours("emulator").message()));
    save("newer", &frame(Hello { version: 9, ..Hello::ours("emulator") }.message()));
    save("other", &frame(Hello::ours("model").message()));
    save("garbage", &frame(Message::new("outputs"))[..12].repeat(9));
    let other_case = run(&mut worker("emulator", &[]), Run::PLAIN, "[2]").unwrap();
    save("wrong-shape", &frame(Reply::Outputs(Box::new(other_case)).message()));
    save("no-tensors", &frame(Message::new("outputs").with("guards", "{}".into())));
    save("failure", &frame(Reply::Failure("a panic: so\u{1b} it is".into()).message()));
    save("hang", &frame(Reply::Fault { kind: Failure::Hang, detail: "4 switches".into() }.message()));
    let stopped = Reply::Fault { kind: Failure::DeviceFault, detail: "illegal address".into() };
    save("device", &frame(stopped.message()));
    folder
}

/// After hello, when a request has come.
fn after_hello(misdeed: &str) -> String {
    format!("cat \"$1/hello\" >&4; head -c 1 <&3 > /dev/null; {misdeed}")
}

fn next_case_passes(worker: &mut Worker) {
    let clean = run(worker, Run::PLAIN, "[5]").unwrap();
    assert!(clean.outputs.o.at(0).is_finite());
}

#[test]
fn misdeeds_are_the_backends_and_the_next_case_passes() {
    use Failure::{Crash, Error, Hang};
    let misdeeds = [
        ("exit 3", Crash, "it exited with status 3"),
        ("echo out; echo err >&2; exit 0", Crash, "status 0; it printed last: out\nerr"),
        ("kill -SEGV $$", Crash, "it was killed by signal 11 (SIGSEGV)"),
        ("printf '\\144\\0\\0\\0\\0\\0\\0\\0half' >&4", Crash, "it exited with status 0"),
        ("while :; do :; done", Hang, "s of processor time"),
        ("while :; do echo noise; done", Hang, "it printed last: noise"),
        (
            "printf '\\377\\377\\377\\377\\377\\377\\377\\377' >&4; sleep 60",
            Error,
            "18446744073709551615 bytes",
        ),
        ("cat \"$1/garbage\" >&4; sleep 60", Error, "a message"),
        (
            "cat \"$1/wrong-shape\" >&4; sleep 60",
            Error,
            "tensor o: it is BF16 [2, 1, 64], expected BF16 [5, 1, 64]",
        ),
        ("cat \"$1/no-tensors\" >&4; sleep 60", Error, "tensor o: it is missing"),
        ("cat \"$1/hello\" >&4; sleep 60", Error, "a message 'hello', expected outputs"),
        ("cat \"$1/hang\" >&4; sleep 60", Hang, "4 switches"),
    ];
    let folder = messages();
    for (misdeed, kind, words) in misdeeds {
        let _ = fs::remove_file(folder.path().join("done"));
        let mut worker = scripted(folder.path(), &after_hello(misdeed));
        let (got, detail) = fault(&mut worker, "[5]");
        assert!(got == kind && detail.contains(words), "{misdeed}: {got:?}, {detail}");
        next_case_passes(&mut worker);
    }
}

#[test]
fn a_child_whose_device_stopped_is_replaced_at_once_and_not_with_the_next_scenario() {
    let folder = messages();
    let mut worker = scripted(folder.path(), &after_hello("cat \"$1/device\" >&4; sleep 60"));
    let inputs = Inputs::new(&"[5]".parse().unwrap());
    match worker.run(Run::PLAIN, &inputs) {
        Err(RunError::Fault { kind: Failure::DeviceFault, detail }) => assert_eq!(detail, "illegal address"),
        other => panic!("{other:?}"),
    }
    // No reset between the two.
    assert!(worker.run(Run::PLAIN, &inputs).unwrap().outputs.o.at(0).is_finite());
}

#[test]
fn a_child_that_sleeps_is_a_hang_on_the_wall() {
    let folder = messages();
    let mut worker = scripted(folder.path(), &after_hello("sleep 60"));
    worker = worker
        .with_deadline(|_, _| Deadline { cpu: Duration::from_secs(9), wall: Duration::from_millis(300) });
    assert_eq!(fault(&mut worker, "[5]").0, Failure::Hang);
    worker = worker.with_deadline(soon);
    next_case_passes(&mut worker);
}

#[test]
fn a_child_that_does_not_begin_is_our_fault_and_the_next_case_passes() {
    let misdeeds = [
        ("echo no such module >&2; exit 1", "status 1; it printed last: no such module"),
        ("cat \"$1/newer\" >&4; sleep 60", "version 9 of the worker protocol, expected 1"),
        ("cat \"$1/other\" >&4; sleep 60", "it is the backend 'model', expected 'emulator'"),
        ("cat \"$1/garbage\" >&4; sleep 60", "instead of hello"),
        (&after_hello("kill -KILL $$"), "killed by signal 9 (SIGKILL), as a rule by a system short"),
        (&after_hello("cat \"$1/failure\" >&4; sleep 60"), "a panic: so\\u{1b} it is"),
    ];
    let folder = messages();
    for (misdeed, words) in misdeeds {
        let _ = fs::remove_file(folder.path().join("done"));
        let mut worker = scripted(folder.path(), misdeed);
        match run(&mut worker, Run::PLAIN, "[5]") {
            Err(RunError::Harness(text)) => assert!(text.contains(words), "{misdeed}: {text}"),
            other => panic!("{misdeed}: {other:?}"),
        }
        // A worker that failed lives on; this one only sleeps.
        if !misdeed.contains("failure") {
            next_case_passes(&mut worker);
        }
    }
}

#[test]
fn a_program_that_is_none_is_our_fault() {
    let program = Program { path: "/nowhere/thd-fuzz".into(), args: Vec::new() };
    match run(&mut Worker::new("emulator", program, |_| Support::Yes), Run::PLAIN, "[5]") {
        Err(RunError::Harness(text)) => assert!(text.contains("it does not start: No such file"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn prints_tear_no_message_and_more_than_was_asked_for_is_told() {
    let folder = messages();
    let hello = "cat \"$1/hello\" >&4";
    let print = format!("echo print; echo print >&2; {hello}; exec \"$PROGRAM\" worker --backend emulator");
    next_case_passes(&mut scripted(folder.path(), &print));
    let _ = fs::remove_file(folder.path().join("done"));
    let mut worker = scripted(folder.path(), "cat \"$1/hello\" \"$1/hello\" >&4; sleep 60");
    // Both at once, or the second when the request is under way: nonsense either way.
    let (kind, detail) = fault(&mut worker, "[5]");
    assert!(kind == Failure::Error && detail.contains("the worker sent"), "{detail}");
    next_case_passes(&mut worker);
}
