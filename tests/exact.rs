//! Exact cases: right backends give them to the bit, and the last bit of an element is a finding.

use thd_fuzz::backend::{Backend, Choice, Run};
use thd_fuzz::case::{Base, Case, Data};
use thd_fuzz::contract::{Contract, Known, Rounding};
use thd_fuzz::generate::{Budget, Softmax, nth};
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::{self, Evidence, Finding, Kind, Truth, bound, exact};
use thd_fuzz::outputs::{Output, Outputs};
use thd_fuzz::reference::{Solution, Unit, solve_unit};

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
            for n in [1, 3, 17, 64, 100, 127, 200] {
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

#[test]
fn generated_shapes_with_exact_data_are_silent_on_the_model() {
    let choice = Choice::find(Some("model"), None).expect("a name of the table");
    let mut backend = choice.open_here().expect("it opens");
    let budget = Budget { max_tokens: 1024, max_work: 4_000_000, softmax: Softmax::ALL };
    let (mut exact, mut all) = ([0; 2], [0; 2]);
    for index in 0..300 {
        let recipe = (index % 2) as usize;
        let mut case = nth(5, index, &budget).calls.remove(0);
        case.data = Data { base: [Base::Flat, Base::OneHot][recipe], ..Data::default() };
        case.dout.scale = 1.0;
        case.scale = Some(0.125);
        if case.validate().is_err() {
            continue;
        }
        let inputs = Inputs::new(&case);
        let found = judge(&inputs, &answer(&mut *backend, &inputs), choice.descriptor.contract);
        assert!(found.is_empty(), "{case}: {found:#?}");
        let of_case = exact_units(&inputs);
        exact[recipe] += of_case[0];
        all[recipe] += of_case[1];
    }
    // Lengths that are no power of two are not flat, head dims below 64 leave no gap.
    assert!((0..2).all(|recipe| exact[recipe] > 50 && exact[recipe] < all[recipe]), "{exact:?} of {all:?}");
}

#[test]
fn the_reference_rounded_is_what_exact_arithmetic_gives() {
    for text in ["[64] h4/2 data=flat", "[100] h2 causal f16 data=one-hot seed=3"] {
        let inputs = Inputs::new(&case(text));
        for (sequence, kv_head) in Unit::all(&inputs.case) {
            let unit = Unit::new(&inputs, sequence, kv_head);
            let exact = exact::expected(&unit, inputs.case.dtype).expect("an exact case");
            let Solution { o, dq, dk, dv, .. } = solve_unit(&unit);
            let pairs = [
                (o.concat(), exact.o.concat()),
                (dq.concat(), exact.dq.concat()),
                (dk, exact.dk),
                (dv, exact.dv),
            ];
            for (reference, exact) in pairs {
                assert_eq!(reference.len(), exact.len());
                for (x, y) in reference.iter().zip(&exact) {
                    assert!((x - y).abs() <= 1e-9 * y.abs().max(1.0), "{text}: {x} and {y}");
                }
            }
        }
    }
}

#[test]
fn the_last_bit_of_an_element_is_found_where_its_bound_lets_it_pass() {
    let rounding = Rounding { known: Known::InKind, ..Contract::OWN.rounding };
    let contract = Contract { rounding, ..Contract::OWN };
    let choice = Choice::find(Some("model"), None).expect("a name of the table");
    let mut backend = choice.open_here().expect("it opens");
    let mut met = Vec::new();
    for text in ["[64] h2 data=flat", "[64] h2 f16 causal data=one-hot", "[64] data=one-hot seed=2"] {
        let inputs = Inputs::new(&case(text));
        let right = answer(&mut *backend, &inputs);
        assert!(judge(&inputs, &right, contract).is_empty(), "{text}");
        for output in [Output::O, Output::Dq, Output::Dk, Output::Dv] {
            let tensor = right.get(output);
            let Some(index) = (0..tensor.len()).find(|&i| tensor.at(i) != 0.0) else { continue };
            let mut wrong = right.clone();
            let step = 1.0 + 2f64.powi(1 - tensor.dtype().precision() as i32);
            wrong.get_mut(output).set(index as isize, step * tensor.at(index));
            let found = judge(&inputs, &wrong, contract);
            let kinds: Vec<_> = found.iter().map(|finding| (finding.kind, finding.tensor)).collect();
            // Some bounds are so tight that they see it themselves.
            if kinds == [(Kind::Inexact, Some(output))] {
                met.push(output);
            } else {
                assert!(found.iter().any(|f| f.kind.oracle() == "bound"), "{text}, {output}: {kinds:?}");
            }
        }
    }
    // The bound of dQ sees it by itself: few terms make it up.
    for output in [Output::O, Output::Dk, Output::Dv] {
        assert!(met.contains(&output), "{output} was never left to the exact oracle: {met:?}");
    }
}

#[test]
fn a_case_in_which_something_is_rounded_is_not_exact() {
    let cases = [
        "[3] data=flat",
        "[8] causal data=flat",
        "[8] d128 data=flat",
        "[8] d16 data=one-hot",
        "[8] data=one-hot+head-scale(3)",
        "[64] data=flat do=scale(0.3)",
        "[8]",
    ];
    for text in cases {
        assert_eq!(exact_units(&Inputs::new(&case(text)))[0], 0, "{text}");
    }
}
