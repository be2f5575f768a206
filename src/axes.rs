//! Every dimension of a case: which values the generator reaches, what is pinned, what is left out.
//!
//! A fuzzer says little by passing unless it says what it tried. [`all`] lists that statement, one row
//! for each axis. `docs/COVERAGE.md` is its rendering, and a test proves it: every value of every
//! fuzzed axis, and every pair of values of two of them, occurs among the first [`CASES`] scenarios
//! of a campaign, but for the pairs that [`IMPOSSIBLE`] rules out with a reason.

use std::fmt::Write;

use crate::case::{Case, Scenario};

mod fixed;
mod fuzzed;
mod impossible;

pub use impossible::{IMPOSSIBLE, Rule};

/// All values and all possible pairs of values occur within this many scenarios. Six thousand are enough for the
/// seeds that were tried; the margin is for changes of the generator.
pub const CASES: u64 = 20_000;

/// One dimension of a case.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Its name.
    pub name: &'static str,
    /// How the notation writes it; empty where it does not.
    pub notation: &'static str,
    /// Classes of known faults that it reaches.
    pub reaches: &'static str,
    /// What the generator does with it.
    pub status: Status,
}

/// What the generator does with an axis.
#[derive(Clone, Copy, Debug)]
pub enum Status {
    /// Drawn. The values are the buckets that the test counts.
    Fuzzed {
        /// Names of the buckets.
        values: &'static [&'static str],
        /// The bucket of a scenario, as an index into `values`.
        bucket: Bucket,
    },
    /// Always the same, although the case could say otherwise or the harness decides it.
    Pinned {
        /// The value.
        value: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// Not covered.
    Excluded {
        /// Why, and what would bring it.
        reason: &'static str,
    },
}

/// How an axis reads its value.
#[derive(Clone, Copy, Debug)]
pub enum Bucket {
    /// From a case; of a scenario, the first call counts.
    Case(fn(&Case) -> usize),
    /// From the calls together.
    Scenario(fn(&Scenario) -> usize),
}

impl Bucket {
    /// The index of the scenario's value.
    pub fn of(self, scenario: &Scenario) -> usize {
        match self {
            Bucket::Case(bucket) => bucket(&scenario.calls[0]),
            Bucket::Scenario(bucket) => bucket(scenario),
        }
    }
}

/// Every axis: the fuzzed ones, then the pinned and the excluded.
pub fn all() -> impl Iterator<Item = &'static Axis> {
    fuzzed::AXES.iter().chain(fixed::AXES)
}

/// The fuzzed axes with their values and bucket functions.
pub fn fuzzed() -> impl Iterator<Item = (&'static Axis, &'static [&'static str], Bucket)> {
    all().filter_map(|axis| match axis.status {
        Status::Fuzzed { values, bucket } => Some((axis, values, bucket)),
        _ => None,
    })
}

/// The coverage page, in Markdown.
pub fn render() -> String {
    let mut page = HEADER.replace("{CASES}", &CASES.to_string());
    page.push_str("\n## Fuzzed\n\n| axis | notation | values | reaches |\n|---|---|---|---|\n");
    for (axis, values, _) in fuzzed() {
        let values = values.join("; ");
        row(&mut page, &[axis.name, &code(axis.notation), &values, axis.reaches]);
    }
    page.push_str("\n## Pinned\n\n| axis | notation | value | why | would reach |\n|---|---|---|---|---|\n");
    for axis in all() {
        if let Status::Pinned { value, reason } = axis.status {
            row(&mut page, &[axis.name, &code(axis.notation), value, reason, axis.reaches]);
        }
    }
    page.push_str("\n## Excluded\n\n| axis | notation | why | would reach |\n|---|---|---|---|\n");
    for axis in all() {
        if let Status::Excluded { reason } = axis.status {
            row(&mut page, &[axis.name, &code(axis.notation), reason, axis.reaches]);
        }
    }
    page.push_str(
        "\n## Pairs that cannot occur\n\n| axis | values | with | values | why |\n|---|---|---|---|---|\n",
    );
    for rule in IMPOSSIBLE {
        let [(a, a_values), (b, b_values)] = rule.sides;
        row(&mut page, &[a, &a_values.join("; "), b, &b_values.join("; "), rule.reason]);
    }
    page
}

const HEADER: &str = "\
<!-- Written by a test from src/axes: UPDATE_DOCS=1 cargo test --lib axes -->

# What is fuzzed, what is pinned, what is left out

Every value of every fuzzed axis, and every pair of values of two axes, occurs within the first
{CASES} scenarios of a campaign; a test counts them. A scenario of several calls counts with its first.
";

fn code(notation: &str) -> String {
    if notation.is_empty() { String::new() } else { format!("`{notation}`") }
}

fn row(page: &mut String, cells: &[&str]) {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    writeln!(page, "| {} |", cells.join(" | ")).expect("writing to a string");
}

#[cfg(test)]
mod tests;
