//! The clean kernel in this process: right, free of races, and told apart from wrong ones.

use super::*;
use crate::check::{Outcome, Report, check};
use crate::contract::Contract;

fn run(text: &str, backend: &mut Emulator, run: Run) -> Report {
    let scenario = text.parse().expect("a valid case");
    match check(&scenario, backend, Contract::OWN, run).expect("no fault of ours") {
        Outcome::Judged(report) => report,
        Outcome::Refused(reason) => panic!("{text} refused: {reason}"),
    }
}

const CASES: [&str; 8] = [
    "[1]",
    "[128,96] h2 d128 causal do=ones",
    "[65,3]x[130,7] h4/2 d40/72 f16 window-br(20,*) gap-q(1,2) dead=nan",
    "[5,0,7]x[0,4,64] h3 causal-br lead-kv=3 tail-q=9 dead=nan seed=5",
    "[0,64] d8",
    "[200] h2/1 d96 window(-3,10) data=logits(8)+offset(-110) scale=0.5",
    "[17,17,17] d120/8 f16 data=ones",
    "[2]; [3] h2",
];

#[test]
fn fibers_that_switch_by_swapcontext_give_the_same_bits() {
    let workshop = library::Workshop::new().expect("a folder");
    let path = workshop.build(&[], compile::Mode::Portable).expect("the kernels compile");
    let portable = Arc::new(Library::open(&path).expect("it loads"));
    assert_eq!(portable.functions().mode, abi::MODE_UCONTEXT);
    let (mut own, mut other) =
        (Emulator::own().expect("the built-in ones"), Emulator::with(Kernels::Loaded(portable, None)));
    for text in CASES.iter().flat_map(|text| text.split("; ")) {
        let inputs = Inputs::new(&text.parse().expect("a valid case"));
        let run = |emulator: &mut Emulator| emulator.run(Run::PLAIN, &inputs).expect("outputs").outputs;
        let (own, other) = (run(&mut own), run(&mut other));
        for output in crate::outputs::Output::ALL {
            assert_eq!(own.get(output).to_bytes(), other.get(output).to_bytes(), "{text}: {output}");
        }
    }
}

#[test]
fn the_kernel_is_silent_plain_and_in_race_mode() {
    let mut emulator = Emulator::own().expect("the built-in libraries");
    for text in CASES {
        for how in [Run::PLAIN, Run::RACES] {
            let report = run(text, &mut emulator, how);
            assert!(report.findings.is_empty(), "{text}: {:?}", report.findings);
        }
    }
}
