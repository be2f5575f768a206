//! Names for planted faults.

use thd_fuzz::backend::{BACKENDS, Choice, Run};
use thd_fuzz::check::Side;
use thd_fuzz::diagnose::score::score;
use thd_fuzz::diagnose::{Diagnosis, Observed, diagnose};

fn diagnosed(fault: &str, text: &str) -> Diagnosis {
    let choice = Choice::find(None, Some(fault)).unwrap();
    let mut backend = choice.open().unwrap();
    let side = Side { backend: &mut *backend, contract: choice.descriptor.contract, run: Run::PLAIN };
    let observed = Observed::new(&text.parse().unwrap(), side).unwrap().expect("it fails");
    diagnose(&[&observed])
}

#[test]
fn dev_minimal() {
    for row in &BACKENDS {
        for fault in row.faults {
            println!("== {} {}\n{}", fault.name, fault.minimal, diagnosed(fault.name, fault.minimal));
        }
    }
}

#[test]
fn dev_score() {
    let n = std::env::var("N").map_or(10, |n| n.parse().unwrap());
    let only = std::env::var("ONLY").unwrap_or_default();
    for row in &BACKENDS {
        for fault in row.faults.iter().filter(|f| f.name.contains(&only)) {
            let start = std::time::Instant::now();
            let choice = Choice::find(Some(row.name), Some(fault.name)).unwrap();
            let score = score(&choice, 1, n, 40 * n).unwrap();
            println!(
                "== {} {} {:.1}s {:?}",
                fault.name,
                score.failing,
                start.elapsed().as_secs_f64(),
                score.names
            );
            for (name, example) in &score.examples {
                println!("     {name:?} {example}");
            }
        }
    }
}

#[test]
fn dev_one() {
    let fault = std::env::var("FAULT").unwrap();
    println!("{}", diagnosed(&fault, &std::env::var("CASE").unwrap()));
}
