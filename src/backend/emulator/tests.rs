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
fn the_kernel_is_silent_plain_and_in_race_mode() {
    let mut emulator = Emulator::own().expect("the built-in libraries");
    for text in CASES {
        for how in [Run::PLAIN, Run::RACES] {
            let report = run(text, &mut emulator, how);
            assert!(report.findings.is_empty(), "{text}: {:?}", report.findings);
        }
    }
}
