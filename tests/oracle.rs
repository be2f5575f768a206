//! The oracles on outputs made by hand: a right backend's, with one thing changed.

use thd_fuzz::backend::{Answer, Choice, Run};
use thd_fuzz::case::{Case, Scenario};
use thd_fuzz::contract::{Contract, DeadRows, Known, Rounding};
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::{self, Evidence, Finding, Judgement, Kind, Truth, bound};
use thd_fuzz::outputs::{Output, Outputs};
use thd_fuzz::tensor::Poison;

fn right(case: &Case) -> (Inputs, Outputs) {
    let inputs = Inputs::new(case);
    let model = Choice::find(Some("model"), None).expect("the model is in the table");
    let Answer { outputs, .. } =
        model.open().expect("it needs nothing").run(Run::PLAIN, &inputs).expect("the model refuses nothing");
    (inputs, outputs)
}

fn judge(inputs: &Inputs, outputs: &Outputs, contract: Contract) -> Vec<Finding> {
    let truth = Truth::work_out(inputs, outputs, contract.rounding);
    let measures = bound::measure(inputs, outputs, &truth);
    oracle::judge(&Evidence { call: 0, inputs, outputs, truth: &truth, contract, races: &[], measures })
}

/// The kinds and outputs found after `change`, for a case that is clean without it.
fn after(text: &str, change: impl FnOnce(&Inputs, &mut Outputs)) -> Vec<(Kind, Output)> {
    let case: Case = text.parse().expect("a valid case");
    let (inputs, mut outputs) = right(&case);
    let clean = judge(&inputs, &outputs, Contract::OWN);
    assert!(clean.is_empty(), "{text} unchanged: {clean:?}");
    change(&inputs, &mut outputs);
    let found = judge(&inputs, &outputs, Contract::OWN);
    found.into_iter().filter_map(|f| Some((f.kind, f.tensor?))).collect()
}

#[test]
fn one_element_beyond_its_bound_is_found_and_one_within_is_not() {
    let case: Case = "[70] h2 d40/24 causal".parse().unwrap();
    let (inputs, outputs) = right(&case);
    let truth = Truth::work_out(&inputs, &outputs, Contract::OWN.rounding);
    for (judgement, output) in [
        (Judgement::Forward, Output::O),
        (Judgement::Forward, Output::Lse),
        (Judgement::Backward, Output::Dq),
        (Judgement::Backward, Output::Dk),
        (Judgement::Backward, Output::Dv),
    ] {
        let planes = truth.planes(&inputs, judgement);
        let plane = planes.iter().find(|plane| plane.output == output && plane.head == 1).unwrap();
        let middle = plane.bounded.value.len() / 2;
        let (value, tau) = (plane.bounded.value[middle], plane.bounded.tau[middle]);
        // The bound of a stored element is little more than half a step of the dtype's grid: of the
        // neighbours of the expected value only the nearest is within it.
        let beyond = if output == Output::Lse { 1.6 } else { 3.2 };
        for (share, alarm) in [(beyond, true), (-beyond, true), (0.0, false)] {
            let mut changed = outputs.clone();
            let index = plane.index(&changed, middle) as isize;
            changed.get_mut(output).set(index, value + share * tau);
            let found = judge(&inputs, &changed, Contract::OWN);
            let mine = found.iter().any(|f| f.tensor == Some(output) && f.kind.oracle() == "bound");
            assert_eq!(mine, alarm, "{output} off by {share} bounds: {found:?}");
        }
    }
}

#[test]
fn the_backward_is_judged_by_the_forward_it_was_given() {
    // The LSE a little wrong, and gradients to match: the backward is right, the forward is not.
    let found = after("[40] data=logits(2)", |inputs, outputs| {
        for i in 0..outputs.lse.len() {
            outputs.lse.set(i as isize, outputs.lse.at(i) + 0.05);
        }
        let truth = Truth::work_out(inputs, outputs, Contract::OWN.rounding);
        for plane in truth.planes(inputs, Judgement::Backward) {
            for (i, &value) in plane.bounded.value.iter().enumerate() {
                let index = plane.index(outputs, i) as isize;
                outputs.get_mut(plane.output).set(index, value);
            }
        }
    });
    assert!(found.contains(&(Kind::Forward, Output::Lse)), "{found:?}");
    assert!(found.contains(&(Kind::Chain, Output::Dv)), "{found:?}");
    assert!(found.iter().all(|(kind, _)| *kind != Kind::Backward), "all follows from the LSE: {found:?}");
}

#[test]
fn memory_that_is_not_as_it_should_be_is_named() {
    let text = "[3,2] gap-q(1,0) tail-kv=2";
    let case: Case = text.parse().unwrap();
    let poisoned = Outputs::poisoned(&case, Poison::Nan);
    let found = after(text, |_, outputs| outputs.dq = poisoned.dq.clone());
    assert!(found.contains(&(Kind::Unwritten, Output::Dq)) && found.contains(&(Kind::DeadRow, Output::Dq)));
    let found = after(text, |_, outputs| outputs.dk.set(-3, 1.0));
    assert_eq!(found, [(Kind::Guard, Output::Dk)]);
    let found = after(text, |_, outputs| {
        let dead = outputs.dv.index(6, 0, 5) as isize;
        outputs.dv.set(dead, 1e-3);
    });
    assert_eq!(found, [(Kind::DeadRow, Output::Dv)]);
    let found = after(text, |_, outputs| outputs.o.set(0, f64::INFINITY));
    assert!(found.contains(&(Kind::NonFinite, Output::O)), "{found:?}");
}

#[test]
fn dead_rows_are_judged_by_the_contract() {
    let case: Case = "[2] tail-q=1".parse().unwrap();
    let (inputs, outputs) = right(&case);
    let dead = |dead_rows| judge(&inputs, &outputs, Contract { dead_rows, ..Contract::OWN }).len();
    assert_eq!([dead(DeadRows::Zero), dead(DeadRows::Anything)], [0, 0]);
    assert_eq!(dead(DeadRows::Untouched), 3, "O, LSE and dQ were zeroed where nothing was to be touched");
}

#[test]
fn a_small_error_of_one_sign_breaks_a_law_before_it_shows_in_any_element() {
    // A backend whose roundings are known in kind only: its elements have room that a law has not.
    let contract =
        Contract { rounding: Rounding { known: Known::InKind, ..Contract::OWN.rounding }, ..Contract::OWN };
    let case: Case = "[512] d8 data=logits(1)".parse().unwrap();
    let (inputs, mut outputs) = right(&case);
    assert!(judge(&inputs, &outputs, contract).is_empty());
    // Every second element of dV one step up, where its bound leaves room for it.
    let truth = Truth::work_out(&inputs, &outputs, contract.rounding);
    let bounded = &truth.units[0].backward.dv;
    for i in (0..outputs.dv.len()).step_by(2) {
        let (x, room) = (outputs.dv.at(i), 0.9 * bounded.tau[i]);
        let up = x + x.abs() / 128.0;
        if up <= bounded.value[i] + room {
            outputs.dv.set(i as isize, up);
        }
    }
    let found: Vec<_> = judge(&inputs, &outputs, contract).into_iter().map(|f| (f.kind, f.tensor)).collect();
    assert!(found.contains(&(Kind::Law(1), Some(Output::Dv))), "{found:?}");
    assert!(found.iter().all(|(kind, _)| ["laws", "statistics"].contains(&kind.oracle())), "{found:?}");
}

/// What a backend of roundings known in kind only is judged by.
const IN_KIND: Contract =
    Contract { rounding: Rounding { known: Known::InKind, ..Contract::OWN.rounding }, ..Contract::OWN };

#[test]
fn a_fraction_of_a_percent_in_one_head_shows_in_statistics_where_no_element_does() {
    for (factor, alarm) in [(1.002, true), (1.0, false)] {
        let case: Case = "[512] h4".parse().unwrap();
        let (inputs, mut outputs) = right(&case);
        let truth = Truth::work_out(&inputs, &outputs, IN_KIND.rounding);
        for plane in truth.planes(&inputs, Judgement::Backward) {
            if plane.output == Output::Dq && plane.head == 2 {
                for (i, &value) in plane.bounded.rounded.iter().enumerate() {
                    let index = plane.index(&outputs, i) as isize;
                    outputs.dq.set(index, value * factor);
                }
            }
        }
        let found = judge(&inputs, &outputs, IN_KIND);
        let heads: Vec<_> = found.iter().filter_map(|f| Some((f.kind, f.tensor?, f.at?.head))).collect();
        assert_eq!(heads.contains(&(Kind::Bias, Output::Dq, 2)), alarm, "{found:?}");
        assert!(found.iter().all(|f| alarm && f.kind.is_statistical()), "{found:?}");
    }
}

#[test]
fn an_error_of_no_direction_shows_in_the_spread() {
    let case: Case = "[512] h2".parse().unwrap();
    let (inputs, mut outputs) = right(&case);
    let truth = Truth::work_out(&inputs, &outputs, IN_KIND.rounding);
    let planes = truth.planes(&inputs, Judgement::Backward);
    let plane = planes.iter().find(|plane| plane.output == Output::Dk && plane.head == 1).unwrap();
    for (i, &value) in plane.bounded.rounded.iter().enumerate() {
        // A step more or less than the nearest, which no accumulation in fp32 makes.
        let step = value.abs() / 128.0 * if i % 2 == 0 { 1.0 } else { -1.0 };
        if (value + 1.5 * step - plane.bounded.value[i]).abs() < plane.bounded.tau[i] {
            outputs.dk.set(plane.index(&outputs, i) as isize, value + step);
        }
    }
    let found = judge(&inputs, &outputs, IN_KIND);
    assert!(found.iter().any(|f| (f.kind, f.tensor) == (Kind::Spread, Some(Output::Dk))), "{found:?}");
    assert!(found.iter().all(|f| f.kind.is_statistical()), "{found:?}");
}

#[test]
fn garbage_in_the_forward_never_hides_behind_a_bound_that_is_not_a_number() {
    for garbage in [f64::NAN, f64::INFINITY, -1e30, 1e30] {
        let found = after("[5] h2", |_, outputs| outputs.lse.set(3, garbage));
        assert!(found.iter().any(|(_, output)| *output == Output::Lse), "LSE {garbage}: {found:?}");
        let found = after("[5] h2", |_, outputs| outputs.dv.set(3, garbage));
        assert!(found.iter().any(|(_, output)| *output == Output::Dv), "dV {garbage}: {found:?}");
    }
}

/// Data of which the roundings repeat: where a rule of independent roundings would alarm.
#[test]
fn a_right_backend_is_silent_where_roundings_repeat() {
    let recipes = [
        "do=ones",
        "data=ones",
        "data=ones do=ones",
        "data=dyadic",
        "data=logits(0.01) do=ones",
        "data=offset(-110)",
        "data=logits(0.01)+offset(-110) do=ones",
        "data=logits(0)",
        "do=row(3)",
        "do=ones+scale(0.001)",
    ];
    let shapes = ["[128] d128 causal", "[57]x[200] h3/1 f16", "[256] d8", "[3,64] h2 window(8,3) f16"];
    for shape in shapes {
        for (seed, recipe) in recipes.iter().enumerate() {
            let seed = seed + 1;
            let scenario: Scenario = format!("{shape} {recipe} seed={seed}").parse().unwrap();
            let (inputs, outputs) = right(&scenario.calls[0]);
            let found = judge(&inputs, &outputs, Contract::OWN);
            assert!(found.is_empty(), "{scenario}: {found:?}");
        }
    }
}
