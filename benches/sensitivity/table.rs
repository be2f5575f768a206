//! The whole catalogue of planted faults on generated cases, gross and subtle, and false alarms.

use std::fmt::Write;

use rayon::prelude::*;
use thd_fuzz::backend::BACKENDS;
use thd_fuzz::case::Case;
use thd_fuzz::generate::{Budget, Softmax, nth};
use thd_fuzz::inputs::Inputs;
use thd_fuzz::outputs::{Output, Outputs};

use crate::plant;
use crate::rules::{LowPrecision, RULES, alarms};

/// Small enough for thousands of cases.
const BUDGET: Budget = Budget { max_tokens: 600, max_work: 4_000_000, softmax: Softmax::ALL };

/// Cases that are looked through for one in which a fault shows, for each that counts.
const TRIES: u64 = 200;

/// A fault of a percent or so in a part of one output.
struct Subtle {
    name: &'static str,
    plant: fn(&Inputs, &mut Outputs),
}

#[rustfmt::skip]
const SUBTLE: [Subtle; 8] = [
    Subtle { name: "dQ of one head x 1.005", plant: |i, o| part(i, o, Output::Dq, |_, x| x * 1.005) },
    Subtle { name: "dK of one head x 0.99", plant: |i, o| part(i, o, Output::Dk, |_, x| x * 0.99) },
    Subtle { name: "dV of one head x 1.01", plant: |i, o| part(i, o, Output::Dv, |_, x| x * 1.01) },
    Subtle { name: "first 8 columns of dV x 1.02", plant: |i, o| columns(i, o, Output::Dv, 1.02) },
    Subtle { name: "first 8 columns of dQ x 0.98", plant: |i, o| columns(i, o, Output::Dq, 0.98) },
    Subtle { name: "LSE + 0.02 in every row, backward only", plant: |i, o| read_lse(i, o, 0.02, 1) },
    Subtle { name: "LSE + 0.02 in every 16th row, backward only", plant: |i, o| read_lse(i, o, 0.02, 16) },
    Subtle { name: "one element of dK in 500 lost", plant: |i, o| part(i, o, Output::Dk, |at, x| if at % 500 == 7 { 0.0 } else { x }) },
];

fn part(inputs: &Inputs, outputs: &mut Outputs, output: Output, value: fn(usize, f64) -> f64) {
    plant::store(inputs, outputs, output, |plane| plane.head == 0, value);
}

fn columns(inputs: &Inputs, outputs: &mut Outputs, output: Output, factor: f64) {
    let width = output.shape(&inputs.case)[2];
    let value = |i: usize, x: f64| if i % width < 8 { x * factor } else { x };
    plant::store(inputs, outputs, output, |plane| plane.head == 0, value);
}

fn read_lse(inputs: &Inputs, outputs: &mut Outputs, size: f64, step: usize) {
    let right = outputs.lse.clone();
    for i in (0..right.len()).step_by(step) {
        outputs.lse.set(i as isize, right.at(i) + size);
    }
    for output in [Output::Dq, Output::Dk, Output::Dv] {
        plant::store(inputs, outputs, output, |_| true, |_, x| x);
    }
    outputs.lse = right;
}

/// A case of one call in which a planted fault changes what is stored, with what it stores.
fn showing(index: u64, plant: impl Fn(&Case) -> Option<Outputs>) -> Option<(Inputs, Outputs)> {
    (0..TRIES).find_map(|k| {
        let case = nth(9, index * TRIES + k, &BUDGET).calls.swap_remove(0);
        let (inputs, right) = plant::right(&case);
        let outputs = plant(&case)?;
        let differs = Output::ALL.into_iter().any(|output| {
            let (a, b) = (right.get(output), outputs.get(output));
            (0..a.len()).any(|i| a.at(i).to_bits() != b.at(i).to_bits())
                || a.broken_guard() != b.broken_guard()
        });
        differs.then_some((inputs, outputs))
    })
}

/// In how many cases each rule found something, and how many there were.
fn count(cases: impl ParallelIterator<Item = (Inputs, Outputs)>) -> ([u64; RULES.len()], u64) {
    let one = |(inputs, outputs): (Inputs, Outputs)| {
        (alarms(&inputs, &outputs, &LowPrecision::of(&inputs)).map(u64::from), 1)
    };
    let add = |(mut a, n): ([u64; RULES.len()], u64), (b, m): ([u64; RULES.len()], u64)| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        (a, n + m)
    };
    cases.map(one).reduce(|| ([0; RULES.len()], 0), add)
}

/// The tables of the page: each fault, and the sums.
pub fn render(cases: u64) -> String {
    let faults: Vec<_> = BACKENDS.iter().flat_map(|row| row.faults).collect();
    // Faults of state need a call before; the rules, too, see one call.
    let gross: Vec<_> = faults
        .iter()
        .map(|fault| {
            let case = |index: u64| showing(index, |case| plant::run(case, Some(fault.name)));
            (fault.name, count((0..cases).into_par_iter().filter_map(case)))
        })
        .filter(|(_, (_, n))| *n > 0)
        .collect();
    let subtle: Vec<_> = SUBTLE
        .iter()
        .map(|fault| {
            let plant = |case: &Case| {
                let (inputs, mut outputs) = plant::right(case);
                (fault.plant)(&inputs, &mut outputs);
                Some(outputs)
            };
            (fault.name, count((0..cases).into_par_iter().filter_map(|index| showing(index, plant))))
        })
        .collect();
    let right = (0..10 * cases).into_par_iter();
    let right = count(right.map(|index| plant::right(&nth(8, index, &BUDGET).calls[0])));
    let sum = |rows: &[(&str, ([u64; RULES.len()], u64))]| {
        rows.iter().fold(([0; RULES.len()], 0), |(mut sum, n), (_, (found, m))| {
            sum.iter_mut().zip(found).for_each(|(sum, x)| *sum += x);
            (sum, n + m)
        })
    };
    let mut text = format!(
        "## The whole catalogue, on generated cases\n\nGross: the faults of `thd-fuzz backends`, in cases of one call in which \
         what is stored differs at all from what the right backend stores. Subtle: a percent or so in a part of one output. \
         A right backend: generated cases without a fault.\n\n| | cases | {} |\n|---|---|{}\n",
        RULES.join(" | "),
        "---|".repeat(RULES.len())
    );
    let mut line = |name: &str, (found, n): ([u64; RULES.len()], u64)| {
        let percent =
            |x: u64| if n == 0 { "-".into() } else { format!("{:.1}", 100.0 * x as f64 / n as f64) };
        let _ = writeln!(text, "| {name} | {n} | {} |", found.map(percent).join(" | "));
    };
    line("**gross**", sum(&gross));
    line("**subtle**", sum(&subtle));
    line("**a right backend**", right);
    gross.iter().chain(&subtle).for_each(|(name, counts)| line(name, *counts));
    text
}
