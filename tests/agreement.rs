//! Emulator and model compute the same thing by different code: on every saved case each output of one
//! is within both bounds of the other's.

use std::path::PathBuf;

use thd_fuzz::backend::{Backend, Choice, Run};
use thd_fuzz::corpus;
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::{Judgement, Truth};
use thd_fuzz::outputs::Outputs;

fn open(name: &str) -> (Choice, Box<dyn Backend>) {
    let choice = Choice::find(Some(name), None).expect("a name of the table");
    let backend = choice.open_here().expect("it opens");
    (choice, backend)
}

/// Where the two are furthest apart, in units of the sum of their bounds, and how many elements were
/// compared.
fn furthest_apart(inputs: &Inputs, [a, b]: [&Outputs; 2], [of_a, of_b]: [&Truth; 2]) -> (f64, usize) {
    let (mut furthest, mut compared) = (0.0f64, 0);
    // The chain's bounds: the backward's are each relative to a forward of its own.
    for judgement in [Judgement::Forward, Judgement::Chain] {
        let planes = of_a.planes(inputs, judgement).into_iter().zip(of_b.planes(inputs, judgement));
        for (plane, other) in planes {
            let values = plane.got(a).into_iter().zip(plane.got(b));
            let bounds = plane.bounded.tau.iter().zip(&other.bounded.tau);
            for ((x, y), (tau, other_tau)) in values.zip(bounds) {
                let both = tau + other_tau;
                if both.is_finite() && x != y {
                    let apart = (x - y).abs() / both;
                    furthest = furthest.max(if apart.is_nan() { f64::INFINITY } else { apart });
                }
                compared += usize::from(both.is_finite());
            }
        }
    }
    (furthest, compared)
}

#[test]
fn emulator_and_model_agree_within_their_bounds_on_every_saved_case() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let (saved, errors) = corpus::load(&[folder]);
    assert!(errors.is_empty() && saved.len() > 100, "{} cases, {errors:?}", saved.len());
    let ((emulated, mut emulator), (modelled, mut model)) = (open("emulator"), open("model"));
    let (mut failures, mut furthest, mut all) = (Vec::new(), 0.0f64, 0);
    for case in &saved {
        emulator.reset();
        model.reset();
        for call in &case.scenario.calls {
            let inputs = Inputs::new(call);
            let a = emulator.run(Run::PLAIN, &inputs).expect("the emulator takes every saved case").outputs;
            let b = model.run(Run::PLAIN, &inputs).expect("the model takes every case").outputs;
            let of_a = Truth::work_out(&inputs, &a, emulated.descriptor.contract.rounding);
            let of_b = Truth::work_out(&inputs, &b, modelled.descriptor.contract.rounding);
            let (apart, compared) = furthest_apart(&inputs, [&a, &b], [&of_a, &of_b]);
            if apart > 1.0 {
                failures.push(format!("{}: '{call}' apart by {apart} of both bounds", case.path.display()));
            }
            furthest = furthest.max(apart);
            all += compared;
        }
    }
    println!("{} cases, {all} elements, furthest apart {furthest:.3} of both bounds", saved.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
