//! The inputs and the fp64 reference against a second implementation: numpy's rebuild of the data
//! recipe and torch.float64 autograd, by `tests/data/torch_reference.py`, which says how to make
//! the data anew.

use std::collections::HashMap;

use serde::Deserialize;
use thd_fuzz::case::Case;
use thd_fuzz::inputs::Inputs;
use thd_fuzz::outputs::Output;
use thd_fuzz::reference::{self, Unit};
use thd_fuzz::tensor::Tensor;

/// Included, so that the test does not build without it.
const DATA: &str = include_str!("data/torch_reference.json");

/// Largest difference, in units of the sum of absolute terms: both sides add up to a few hundred
/// products in fp64, in different orders, and the exponential magnifies an error of a logit by
/// no more than the logit's own size, which is below 200 in every case.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
struct Data {
    cases: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    case: String,
    inputs: HashMap<String, String>,
    outputs: HashMap<String, Summary>,
}

/// One output over all sequences, its live elements in (token, head, column) order.
#[derive(Deserialize)]
struct Summary {
    count: usize,
    sum: f64,
    squares: f64,
    /// Sum of the sizes of all elements.
    size: f64,
    /// Sum of their squares.
    squared_size: f64,
    /// Indices of the sampled elements.
    at: Vec<usize>,
    /// Their values; `None` is -inf.
    value: Vec<Option<f64>>,
    /// The largest sum of absolute terms in each one's row.
    sizes: Vec<f64>,
}

fn entries() -> Vec<(Case, Entry)> {
    let data: Data = serde_json::from_str(DATA).expect("the data file is JSON of this form");
    assert!(data.cases.len() >= 30, "{} cases: the data file is cut short", data.cases.len());
    let parsed = data.cases.into_iter().map(|entry| {
        let case: Case = entry.case.parse().unwrap_or_else(|e| panic!("{}: {e}", entry.case));
        assert_eq!(case.to_string(), entry.case, "the text is the case's own");
        (case, entry)
    });
    parsed.collect()
}

/// The script's checksum: of every element in storage, dead rows included.
fn checksum(tensor: &Tensor) -> String {
    let bits = |i| match tensor.at(i) {
        x if x.is_nan() => 0x7ff8_0000,
        x => x.to_bits() >> 32,
    };
    let sum =
        (0..tensor.len()).fold(0u64, |sum, i| sum.wrapping_add((2 * i as u64 + 1).wrapping_mul(bits(i))));
    format!("{sum:016x}")
}

#[test]
fn inputs_are_those_that_numpy_makes_of_the_recipe() {
    let mut wrong = Vec::new();
    for (case, entry) in entries() {
        let Inputs { q, k, v, dout, .. } = Inputs::new(&case);
        assert_eq!(entry.inputs.len(), 4);
        for (name, tensor) in [("q", q), ("k", k), ("v", v), ("dO", dout)] {
            if checksum(&tensor) != entry.inputs[name] {
                wrong.push(format!("{name} of {case}"));
            }
        }
    }
    assert!(wrong.is_empty(), "other values than numpy's in\n{}", wrong.join("\n"));
}

/// One output of every unit, its live elements in (token, head, column) order.
fn logical(case: &Case, output: Output, solutions: &[reference::Solution]) -> Vec<f64> {
    let [_, heads, columns] = output.shape(case);
    let side = output.side(case).expect("an output of a side");
    let mut values = vec![f64::NAN; side.tokens() as usize * heads * columns];
    for (&(sequence, kv_head), solution) in Unit::all(case).iter().zip(solutions) {
        let of_heads: Vec<(usize, &[f64])> = match output {
            Output::Dk => vec![(kv_head, &solution.dk)],
            Output::Dv => vec![(kv_head, &solution.dv)],
            Output::Dsink => unreachable!("no case of the file has a sink"),
            Output::O | Output::Lse | Output::Dq => {
                let all = match output {
                    Output::O => &solution.o,
                    Output::Lse => &solution.lse,
                    _ => &solution.dq,
                };
                reference::query_heads(case, kv_head).zip(all.iter().map(Vec::as_slice)).collect()
            }
        };
        for (head, rows) in of_heads {
            for (token, row) in side.spans()[sequence].tokens().zip(rows.chunks(columns)) {
                values[(token * heads + head) * columns..][..columns].copy_from_slice(row);
            }
        }
    }
    values
}

/// In two levels: thousands of equal values added one by one would round the same way each time.
fn sum(values: &[f64]) -> f64 {
    values.chunks(256).map(|chunk| chunk.iter().sum::<f64>()).sum()
}

/// Largest difference in units of the size; the panic names what differs.
fn compare(values: &[f64], want: &Summary, what: &str) -> f64 {
    assert_eq!(values.len(), want.count, "elements of {what}");
    let samples = want.at.len();
    assert!(samples >= want.count.min(12), "{what}: {samples} samples of {}", want.count);
    assert!(want.value.len() == samples && want.sizes.len() == samples, "{what}: ragged samples");
    let live: Vec<f64> = values.iter().copied().filter(|x| *x != f64::NEG_INFINITY).collect();
    let squares: Vec<f64> = live.iter().map(|x| x * x).collect();
    let mut pairs = vec![
        ("the sum".to_string(), sum(&live), want.sum, want.size),
        // Squares move by twice the value's size times its error.
        ("the sum of squares".to_string(), sum(&squares), want.squares, 2.0 * want.squared_size),
    ];
    for ((&at, &value), &size) in want.at.iter().zip(&want.value).zip(&want.sizes) {
        pairs.push((format!("element {at}"), values[at], value.unwrap_or(f64::NEG_INFINITY), size));
    }
    let mut worst = 0f64;
    for (place, got, want, size) in pairs {
        if got == want {
            continue; // -inf too
        }
        let difference = (got - want).abs();
        assert!(
            difference <= TOLERANCE * size,
            "{what}, {place}: {got:e}, torch has {want:e}, size {size:e}"
        );
        worst = worst.max(difference / size);
    }
    worst
}

#[test]
fn the_reference_agrees_with_torch_autograd() {
    let (mut elements, mut worst) = (0, (0.0, String::new()));
    for (case, entry) in entries() {
        let solutions = reference::solve(&Inputs::new(&case));
        let outputs = || Output::ALL.into_iter().filter(|output| output.is_of(&case));
        assert_eq!(entry.outputs.len(), outputs().count());
        for output in outputs() {
            let values = logical(&case, output, &solutions);
            let what = format!("{output} of {case}");
            let difference = compare(&values, &entry.outputs[output.name()], &what);
            worst = if difference > worst.0 { (difference, what) } else { worst };
            elements += values.len();
        }
    }
    assert!(elements > 500_000, "only {elements} elements were compared");
    println!("largest difference {:.1e} of a size, {}", worst.0, worst.1);
}
