//! The commands that want a GPU or its compiler, where there is none.

use super::*;

#[test]
fn a_machine_without_cuda_costs_one_sentence_that_says_what_is_missing() {
    // Hides the GPU of a machine that has one.
    let without = |args: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program(args, folder.path());
        command.env("CUDA_VISIBLE_DEVICES", "").env("THD_FUZZ_NVRTC", "/nowhere/libnvrtc.so");
        finish(start(command))
    };
    let no_gpu = "the backend cuda has no GPU: ";
    for args in [
        &["check", "[1]", "--backend", "cuda"][..],
        &["fuzz", "--backend", "cuda", "--cases", "1"],
        &["bench", "[1]"],
        &["mutants", "--backend", "cuda"],
        &["check", "[1]", "--backend", "cuda", "--kernel", "clear.cu"],
    ] {
        let run = without(args);
        assert_eq!((run.status, sentences(&run.err).len()), (2, 1), "{args:?}: {}", run.err);
        assert!(run.err.contains(no_gpu), "{args:?}: {}", run.err);
    }
    let run = without(&["kernels"]);
    assert_eq!(run.status, 2, "{}", run.err);
    assert!(run.err.contains("'/nowhere/libnvrtc.so' is no NVRTC"), "{}", run.err);
    let run = without(&["backends"]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.out.contains("not here: ") && run.out.contains(no_gpu), "{}", run.out);
    let mut by_default = Command::new(PROGRAM);
    by_default.args(["check", "[1]"]).env("CUDA_VISIBLE_DEVICES", "");
    let run = finish(start(by_default));
    assert!(run.status == 0 && run.out.starts_with("[1] on emulator\n"), "{}", run.out);
}

#[test]
fn what_is_no_architecture_is_told_before_anything_compiles() {
    for arch in ["", "sm_90,", "compute_90", "sm_", "sm_9x", "bogus", "\u{1b}[31m"] {
        let run = ran(&["kernels", "--arch", arch]);
        assert_eq!(run.status, 2, "{arch}: {}", run.err);
        assert!(run.err.contains("no architecture") && is_calm(&run.err), "{arch}: {}", run.err);
    }
    let run = ran(&["kernels", "--check", "/nowhere"]);
    assert_eq!((run.status, sentences(&run.err).len()), (2, 1), "{}", run.err);
    assert!(run.err.contains("cannot read '/nowhere'"), "{}", run.err);
    let run = ran(&["mutants", "/nowhere"]);
    assert_eq!(run.err.matches("No such file").count(), 1, "{}", run.err);
    assert_eq!(ran(&["bench", "[1]", "--repeats", "1000000000000"]).status, 2);
}
