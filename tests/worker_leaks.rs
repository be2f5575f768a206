//! What is left of children after many runs: nothing. Alone in its process, which it counts in.

use std::fs;
use std::path::PathBuf;

use thd_fuzz::backend::worker::{Program, Worker};
use thd_fuzz::backend::{Backend, Run, RunError, Support};
use thd_fuzz::inputs::Inputs;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

#[test]
fn two_hundred_runs_and_thirty_dead_children_leave_nothing() {
    let inputs = Inputs::new(&"[3]".parse().unwrap());
    let args = ["worker", "--backend", "model"].map(Into::into).into();
    let program = Program { path: PathBuf::from(env!("CARGO_BIN_EXE_thd-fuzz")), args };
    let mut worker = Worker::new("model", program.clone(), |_| Support::Yes);
    let run = |worker: &mut Worker| {
        worker.reset();
        worker.run(Run::PLAIN, &inputs).map(drop)
    };
    run(&mut worker).unwrap();
    let before = descriptors();
    for _ in 0..200 {
        run(&mut worker).unwrap();
    }
    assert_eq!((descriptors(), children()), (before, 1));
    let refused = Program { path: "/bin/false".into(), args: Vec::new() };
    let missing = Program { path: "/nowhere".into(), args: Vec::new() };
    for program in [program, refused, missing].iter().cycle().take(30) {
        let mut other = Worker::new("model", program.clone(), |_| Support::Yes);
        let ours = |result: &Result<(), RunError>| matches!(result, Ok(()) | Err(RunError::Harness(_)));
        assert!(ours(&run(&mut other)));
    }
    assert_eq!((descriptors(), children()), (before, 1));
    drop(worker);
    assert_eq!(children(), 0);
}
