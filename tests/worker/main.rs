//! Backends in child processes: right ones answer as in process, wrong ones are found out, and the
//! next case runs in a new child.

use std::path::PathBuf;
use std::time::Duration;

use thd_fuzz::backend::worker::{Deadline, Program, Worker};
use thd_fuzz::backend::{Answer, Backend, Choice, Failure, Run, RunError, Support};
use thd_fuzz::case::Case;
use thd_fuzz::check::{Outcome, Side, check_asking};
use thd_fuzz::contract::Contract;
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::{Ask, Depth};
use thd_fuzz::outputs::Output;

mod command;
mod kernel;
mod scripted;

/// The program that serves.
const PROGRAM: &str = env!("CARGO_BIN_EXE_thd-fuzz");

/// This project's worker of a backend.
fn worker(backend: &'static str, more: &[&str]) -> Worker {
    let args = ["worker", "--backend", backend].iter().chain(more).map(|arg| arg.into()).collect();
    let program = Program { path: PathBuf::from(PROGRAM), args };
    Worker::new(backend, program, |_| Support::Yes)
}

/// Soon, but of processor time: a busy machine makes no hang.
fn soon(_: &Case, _: Run) -> Deadline {
    Deadline { cpu: Duration::from_secs(1), wall: Duration::from_secs(100) }
}

fn run(backend: &mut dyn Backend, how: Run, text: &str) -> Result<Answer, RunError> {
    backend.reset();
    backend.run(how, &Inputs::new(&text.parse().expect("a valid case")))
}

/// How a backend failed, and what it said.
fn fault(backend: &mut dyn Backend, text: &str) -> (Failure, String) {
    match run(backend, Run::PLAIN, text) {
        Err(RunError::Fault { kind, detail }) => (kind, detail),
        other => panic!("{text}: {other:?}"),
    }
}

const CASES: [&str; 5] = [
    "[1]",
    "[65,3]x[130,7] h4/2 d40/72 f16 window-br(20,*) gap-q(1,2) dead=nan",
    "[5,0,7]x[0,4,64] h3 causal-br lead-kv=3 tail-q=9 dead=nan seed=5",
    "[0,64] d8",
    "[200] h2/1 d96 window(-3,10) scale=0.5",
];

fn same(text: &str, here: &Answer, there: &Answer) {
    assert_eq!(here.races, there.races, "{text}");
    for output in Output::ALL {
        let (a, b) = (here.outputs.get(output), there.outputs.get(output));
        assert_eq!(a.to_bytes(), b.to_bytes(), "{text}: {output}");
        assert_eq!(a.broken_guard(), b.broken_guard(), "{text}: {output}");
    }
}

#[test]
fn a_child_answers_as_this_process_does_to_the_bit() {
    for name in ["emulator", "model"] {
        let mut here = Choice::find(Some(name), None).unwrap().open_here().unwrap();
        let mut there = worker(name, &[]);
        for text in CASES {
            for how in [Run::PLAIN, Run::RACES] {
                let answers = (run(&mut *here, how, text).unwrap(), run(&mut there, how, text).unwrap());
                same(text, &answers.0, &answers.1);
            }
        }
        let hello = there.hello().expect("it has said hello");
        assert_eq!((hello.version, hello.backend.as_str()), (1, name));
    }
}

#[test]
fn a_planted_fault_goes_to_the_child() {
    let choice = Choice::find(None, Some("dq-scale")).unwrap();
    let (mut here, mut there) = (choice.open_here().unwrap(), worker("model", &["--fault", "dq-scale"]));
    let text = "[128] h2 causal";
    let right = run(&mut worker("model", &[]), Run::PLAIN, text).unwrap();
    let wrong = run(&mut there, Run::PLAIN, text).unwrap();
    same(text, &run(&mut *here, Run::PLAIN, text).unwrap(), &wrong);
    assert_ne!(right.outputs.dq.to_bytes(), wrong.outputs.dq.to_bytes());
}

#[test]
fn a_question_is_asked_of_a_new_child_and_an_unsupported_case_is_the_childs_to_refuse() {
    let mut child = worker("emulator", &[]);
    let mut check = |text: &str, name: &'static str| {
        let scenario = text.parse().expect("a valid scenario");
        let side =
            Side { backend: &mut child, contract: Contract::OWN, run: Run::PLAIN, depth: Depth::Whole };
        check_asking(&scenario, side, Ask::One(name)).expect("no fault of ours")
    };
    match check("[5,3] h2", "fresh-process") {
        Outcome::Judged(report) => {
            assert!(report.findings.is_empty(), "{:?}", report.findings);
            assert!(matches!(&report.asked[..], [one] if one.skipped.is_none()), "{:?}", report.asked);
        }
        Outcome::Refused(reason) => panic!("{reason}"),
    }
    let program = Program {
        path: PathBuf::from(PROGRAM),
        args: vec!["worker".into(), "--backend".into(), "emulator".into()],
    };
    let declares = |_: &Case| Support::No("nothing at all".into());
    let mut modest = Worker::new("emulator", program, declares);
    let side = Side { backend: &mut modest, contract: Contract::OWN, run: Run::PLAIN, depth: Depth::Whole };
    // The child does not know of it, and is right.
    match check_asking(&"[4]".parse().unwrap(), side, Ask::All).expect("no fault of ours") {
        Outcome::Refused(reason) => {
            assert_eq!(reason, "nothing at all; it answered all the same, and rightly");
        }
        Outcome::Judged(report) => panic!("{report:?}"),
    }
    for text in ["[4] d136", "[4] softcap=30"] {
        match check(text, "refusal") {
            Outcome::Refused(reason) => assert!(!reason.contains("answered"), "{text}: {reason}"),
            Outcome::Judged(report) => panic!("{text}: {report:?}"),
        }
    }
}

#[test]
fn a_refusal_comes_back_as_one() {
    match run(&mut worker("emulator", &[]), Run::PLAIN, "[4] d256") {
        Err(RunError::Refused(reason)) => assert!(reason.contains("256"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
