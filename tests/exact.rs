//! Exact cases: right backends give them to the bit, and the last bit of an element is a finding.

use thd_fuzz::backend::{Backend, Choice, Run};
use thd_fuzz::case::Case;
use thd_fuzz::contract::{Contract, Known, Rounding};
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::{self, Evidence, Finding, Kind, Truth, bound, exact};
use thd_fuzz::outputs::{Output, Outputs};
use thd_fuzz::reference::Unit;

fn case(text: &str) -> Case {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn answer(backend: &mut dyn Backend, inputs: &Inputs) -> Outputs {
    backend.run(Run::PLAIN, inputs).expect("it refuses nothing").outputs
}

fn judge(inputs: &Inputs, outputs: &Outputs, contract: Contract) -> Vec<Finding> {
    let truth = Truth::work_out(inputs, outputs, contract.rounding);
    let measures = bound::measure(inputs, outputs, &truth);
    oracle::judge(&Evidence { call: 0, inputs, outputs, truth: &truth, contract, races: &[], measures })
}

/// How many units of a case are exact, of how many.
fn exact_units(inputs: &Inputs) -> [usize; 2] {
    let case = &inputs.case;
    let all = Unit::all(case);
    let exact = all.iter().filter(|&&(sequence, head)| {
        exact::expected(&Unit::new(inputs, sequence, head), case.dtype).is_some()
    });
    [exact.count(), all.len()]
}

/// Cases of both recipes that fulfil every condition.
fn exact_cases() -> Vec<String> {
    let mut cases = Vec::new();
    for dtype in ["", " f16"] {
        for n in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
            cases.push(format!("[{n}]{dtype} data=flat seed={n}"));
        }
        cases.push(format!("[4,16,64] h4/2{dtype} data=flat gap-q(1,0,2) gap-kv(0,3,0) tail-kv=1 dead=nan"));
        cases.push(format!("[30,100]x[128,32] h3{dtype} data=flat do=scale(0.5)"));
        cases.push(format!("[65]x[64] h2 d128{dtype} scale=0.125 data=flat"));
        for mask in ["", " causal", " causal-br", " window(9,2)"] {
            for n in [1, 3, 17, 64, 100, 128, 200] {
                cases.push(format!("[{n}] h2{dtype}{mask} data=one-hot seed={n}"));
            }
        }
        cases.push(format!("[40,7,90] h6/3{dtype} data=one-hot gap-kv(0,3,1) lead-q=2 dead=nan"));
        cases.push(format!("[50]x[70] d128{dtype} scale=0.125 data=one-hot do=scale(-2)"));
    }
    cases
}

fn bit_exact_on(name: &str, cases: &[String]) {
    let choice = Choice::find(Some(name), None).expect("a name of the table");
    let mut backend = choice.open_here().expect("it opens");
    let mut failures = Vec::new();
    for text in cases {
        let inputs = Inputs::new(&case(text));
        let [exact, all] = exact_units(&inputs);
        if exact < all {
            failures.push(format!("{text}: {exact} of {all} units are exact"));
            continue;
        }
        let found = judge(&inputs, &answer(&mut *backend, &inputs), choice.descriptor.contract);
        failures.extend(found.first().map(|first| format!("{text}: {first:?}")));
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_model_is_exact_to_the_bit() {
    bit_exact_on("model", &exact_cases());
}

#[test]
fn the_kernel_is_exact_to_the_bit_on_the_emulator() {
    bit_exact_on("emulator", &exact_cases());
}
