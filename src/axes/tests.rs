//! The page and its claims.

use super::*;
use crate::generate::{Budget, nth};

/// How often each pair of values of two axes occurred, as a square over all values.
struct Counts {
    /// Index of each axis' first value.
    starts: Vec<usize>,
    names: Vec<(&'static str, &'static str)>,
    pairs: Vec<u32>,
}

fn count() -> Counts {
    let axes: Vec<_> = fuzzed().collect();
    let (mut starts, mut names) = (Vec::new(), Vec::new());
    for (axis, values, _) in &axes {
        starts.push(names.len());
        names.extend(values.iter().map(|value| (axis.name, *value)));
    }
    let n = names.len();
    let mut pairs = vec![0; n * n];
    let budget = Budget::default();
    for i in 0..CASES {
        let scenario = nth(0, i, &budget);
        let at: Vec<_> =
            axes.iter().zip(&starts).map(|((_, _, bucket), start)| start + bucket.of(&scenario)).collect();
        for (i, a) in at.iter().enumerate() {
            at[i..].iter().for_each(|b| pairs[a * n + b] += 1);
        }
    }
    Counts { starts, names, pairs }
}

fn ruled_out(a: (&str, &str), b: (&str, &str)) -> bool {
    let holds = |(axis, values): (&str, &[&str]), x: (&str, &str)| axis == x.0 && values.contains(&x.1);
    IMPOSSIBLE.iter().any(|rule| {
        let [first, second] = rule.sides;
        holds(first, a) && holds(second, b) || holds(first, b) && holds(second, a)
    })
}

#[test]
fn every_value_and_every_possible_pair_is_generated_and_no_other() {
    let counts = count();
    let n = counts.names.len();
    let (mut missing, mut contradicted) = (Vec::new(), Vec::new());
    for (i, &a) in counts.names.iter().enumerate() {
        assert!(counts.pairs[i * n + i] > 0, "{a:?} never occurs");
        let next = counts.starts.iter().copied().find(|&start| start > i).unwrap_or(n);
        for (j, &b) in counts.names.iter().enumerate().skip(next) {
            match (counts.pairs[i * n + j], ruled_out(a, b)) {
                (0, false) => missing.push(format!("{a:?} with {b:?}")),
                (1.., true) => contradicted.push(format!("{a:?} with {b:?}")),
                _ => {}
            }
        }
    }
    assert!(missing.is_empty(), "{} pairs never occur:\n{}", missing.len(), missing.join("\n"));
    assert!(contradicted.is_empty(), "declared impossible, yet generated:\n{}", contradicted.join("\n"));
}

#[test]
fn rules_name_axes_and_values_that_exist() {
    for rule in IMPOSSIBLE {
        for (name, values) in rule.sides {
            let (_, known, _) = fuzzed().find(|(axis, ..)| axis.name == name).expect(name);
            assert!(values.iter().all(|value| known.contains(value)), "{name}: {values:?}");
        }
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = all().map(|axis| axis.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
}

/// Every item that prints must have an axis that says what becomes of it.
#[test]
fn every_item_of_the_notation_has_an_axis() {
    use crate::case::Item;
    let notations: Vec<_> = fuzzed().map(|(axis, ..)| axis.notation).collect();
    let samples = "[4,4]x[4,0] h8/2 d128/64 f16 causal scale=0.5 softcap=30 sink=learnable gap-q(0,3) gap-kv(1,0) lead-q=4 lead-kv=4 \
                   tail-q=16 tail-kv=16 data=logits(4) do=ones dead=nan keys=3,0 head-keys=1,0 seed=7";
    let case: Case = samples.parse().unwrap();
    for item in Item::ALL {
        let text = item.text(&case).expect("a sample of every item");
        let name =
            text.split(['=', '(']).next().unwrap().trim_end_matches(|c: char| c.is_ascii_digit() || c == '/');
        assert!(notations.iter().any(|notation| notation.starts_with(name)), "no axis for {item:?}, {text}");
    }
}

#[test]
fn the_coverage_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/COVERAGE.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, render()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == render(),
        "docs/COVERAGE.md is out of date: UPDATE_DOCS=1 cargo test --lib axes rewrites it"
    );
}
