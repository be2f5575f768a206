//! Kernels that hang and that store wildly, in children.

use std::path::Path;
use std::sync::OnceLock;

use super::*;
use thd_fuzz::backend::emulator::compile::Mode;
use thd_fuzz::backend::emulator::library::Workshop;
use thd_fuzz::backend::kernels::{KERNELS, Replacement};

/// `name` with `from` replaced.
pub fn edited(name: &str, from: &str, to: &str) -> Replacement {
    let source = KERNELS.iter().find(|source| source.name == name).unwrap();
    assert!(source.text.contains(from), "{name} has changed");
    Replacement { name: name.to_string(), text: source.text.replace(from, to) }
}

/// The backward kernel, wrong in a way that the case's scale chooses: 7 hangs, 3 stores where nothing
/// is, 5 stores just behind dK, 2 loops over a barrier for ever.
pub fn wrong_backward() -> Replacement {
    let from = "  const BackwardWork work = backward_work(p);\n";
    let to = "  const BackwardWork work = backward_work(p);
  volatile i32 always = 1;
  if (p.scale == 7.0f) while (always) {}
  if (p.scale == 3.0f) *(volatile i32*)16 = 1;
  if (p.scale == 5.0f) ((volatile u16*)p.dk.data)[p.kv_len[0] * p.dk.row_stride] = 1;
  if (p.scale == 2.0f) while (always) __syncthreads();
";
    edited("backward.cu", from, to)
}

/// Compiled once, for one dtype and head dim.
fn library() -> &'static Path {
    static BUILT: OnceLock<(Workshop, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let all =
            "X(bf16, 32) X(bf16, 64) X(bf16, 96) X(bf16, 128) X(f16, 32) X(f16, 64) X(f16, 96) X(f16, 128)";
        let replacements = [wrong_backward(), edited("params.h", all, "X(bf16, 64)")];
        let workshop = Workshop::new().unwrap();
        let path = workshop.build(&replacements, Mode::Plain).unwrap();
        (workshop, path)
    });
    path
}

fn wrong() -> Worker {
    let path = library().to_str().unwrap();
    worker("emulator", &["--library", path, "--race-library", path]).with_deadline(soon)
}

#[test]
fn a_kernel_that_hangs_or_stores_wildly_is_found_out_and_the_next_case_passes() {
    use Failure::{Crash, Hang};
    let mut worker = wrong();
    let clean = |worker: &mut Worker| {
        let (here, there) =
            (run(&mut super::worker("emulator", &[]), Run::PLAIN, "[70]"), run(worker, Run::PLAIN, "[70]"));
        same("[70]", &here.unwrap(), &there.unwrap());
    };
    clean(&mut worker);
    let faults = [
        ("[70] scale=7", Hang, "no answer after"),
        ("[70] scale=3", Crash, "signal 11"),
        ("[1] scale=2", Hang, "switches"),
    ];
    for (text, kind, words) in faults {
        let (got, detail) = fault(&mut worker, text);
        assert!(got == kind && detail.contains(words), "{text}: {got:?}, {detail}");
        clean(&mut worker);
    }
    let broken = run(&mut worker, Run::PLAIN, "[70] scale=5").unwrap();
    assert_eq!(broken.outputs.dk.broken_guard(), Some(70 * 64));
    clean(&mut worker);
}
