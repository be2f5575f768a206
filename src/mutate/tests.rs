//! Whatever comes out can run, reads back, and reaches every dimension.

use std::collections::BTreeSet;

use super::*;

const LIMITS: Limits = Limits { price: 1 << 24, text: 4096 };

fn scenario(text: &str) -> Scenario {
    text.parse().expect(text)
}

fn check(scenario: &Scenario, limits: &Limits) {
    let text = scenario.to_string();
    assert!(fits(scenario, limits), "{text} costs {}", price(scenario));
    assert_eq!(text.parse::<Scenario>().as_ref(), Ok(scenario), "{text}");
}

const STARTS: [&str; 9] = [
    "[1]",
    "[]",
    "[0]",
    "[3,5]x[7,0] h4/2 d72/40 f16 window-br(3,*) gap-q(1,2) lead-kv=3 tail-q=9 dead=nan do=scale(64)",
    "[65] h3; [2] h3; []",
    "[1*200] keys=3,0*199",
    "[3,3] h6/3 head-keys=2,1,0 seed=18446744073709551615",
    "[1048576]",
    "[1] h65536/1 d576 lead-q=16",
];

#[test]
fn a_mutation_is_valid_within_the_limits_and_as_a_rule_another_case() {
    for start in STARTS.map(scenario) {
        let changed = |seed: &u64| {
            let changed = mutate(&start, *seed, &LIMITS);
            check(&changed, &LIMITS);
            changed != start
        };
        assert!((0..300).filter(changed).count() >= 299, "{start}");
    }
}

#[test]
fn a_chain_of_mutations_stays_valid_and_does_not_die_out() {
    let mut current = scenario("[128,96] h2 causal");
    let mut seen = BTreeSet::new();
    for seed in 0..3000 {
        current = mutate(&current, seed, &LIMITS);
        check(&current, &LIMITS);
        seen.insert(current.to_string());
    }
    assert!(seen.len() > 2500, "{} of 3000 are distinct", seen.len());
}

#[test]
fn a_tight_text_is_kept() {
    for text in [3, 8, 20, 60] {
        let limits = Limits { text, ..LIMITS };
        for (seed, start) in (0..200).flat_map(|seed| STARTS.map(|start| (seed, scenario(start)))) {
            check(&mutate(&start, seed, &limits), &limits);
            check(&crossover(&start, &scenario(STARTS[3]), seed, &limits), &limits);
        }
    }
}

#[test]
fn every_item_and_the_lengths_and_the_calls_change() {
    let start = scenario("[30,20] h4/2");
    // Softcap and sink are not drawn: what is fuzzed with it, the kernels, has neither.
    let missing = Item::ALL.into_iter().filter(|item| !matches!(item, Item::Softcap | Item::Sink));
    let mut missing: BTreeSet<Item> = missing.collect();
    let (mut lengths, mut sequences, mut calls) = (false, false, false);
    for seed in 0..1000 {
        let changed = mutate(&start, seed, &LIMITS);
        let (before, after) = (&start.calls[0], &changed.calls[0]);
        missing.retain(|item| item.text(before) == item.text(after));
        lengths |= before.q.lengths != after.q.lengths && before.sequences() == after.sequences();
        sequences |= before.sequences() != after.sequences();
        calls |= changed.calls.len() > 1;
    }
    assert!(missing.is_empty(), "never changed: {missing:?}");
    assert!(lengths && sequences && calls);
}

#[test]
fn most_mutations_change_one_dimension() {
    let start = scenario("[30,20] h4/2");
    let one = |seed: &u64| {
        let changed = mutate(&start, *seed, &LIMITS);
        let (before, after) = (&start.calls[0], &changed.calls[0]);
        let items = Item::ALL.into_iter().filter(|item| item.text(before) != item.text(after)).count();
        items + usize::from(before.q.lengths != after.q.lengths || before.kv.lengths != after.kv.lengths) <= 1
    };
    assert!((0..1000).filter(one).count() > 500);
}

#[test]
fn a_crossover_has_something_of_both() {
    let (a, b) = (scenario("[7,9] causal"), scenario("[30] h2 d32 f16 do=ones; [5] h2"));
    let (mut of_both, mut spliced) = (0, 0);
    for seed in 0..400 {
        let crossed = crossover(&a, &b, seed, &LIMITS);
        check(&crossed, &LIMITS);
        of_both += usize::from(crossed != a && crossed != b);
        spliced += usize::from(crossed.calls.contains(&a.calls[0]) && crossed.calls.contains(&b.calls[1]));
    }
    assert!(of_both > 350 && spliced > 20, "{of_both} of 400 are new, {spliced} have calls of both");
}

#[test]
fn both_are_pure() {
    let (a, b) = (scenario("[7,9] causal"), scenario("[30] h2"));
    for seed in 0..50 {
        assert_eq!(mutate(&a, seed, &LIMITS), mutate(&a, seed, &LIMITS));
        assert_eq!(crossover(&a, &b, seed, &LIMITS), crossover(&a, &b, seed, &LIMITS));
    }
    assert_ne!(fresh(1, &LIMITS), fresh(2, &LIMITS));
}
