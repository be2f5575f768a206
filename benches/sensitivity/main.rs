//! How small a fault is found in one case, and how often a right backend is blamed: our judgement beside the
//! rules in common use, on the same outputs.
//!
//! `cargo bench --bench sensitivity` prints the tables; `-- --write docs` writes them, with a figure each, into a
//! folder. `-- --cases N` draws N cases for each point instead of 100.

use std::fmt::Write;

use rayon::prelude::*;

mod curve;
mod figure;
mod plant;
mod rules;
mod table;

/// Cases for each point of a curve and each row of a table.
const CASES: u64 = 100;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str| args.iter().position(|arg| arg == name).and_then(|i| args.get(i + 1));
    let cases = option("--cases").map_or(CASES, |n| n.parse().expect("--cases takes a number"));
    let mut page = String::from(
        "<!-- Written by cargo bench --bench sensitivity -- --write docs -->\n\n# How small a fault is found\n\n",
    );
    let _ = writeln!(
        page,
        "What was found in one case, in percent of {cases} cases of different data, by our judgement and by the rules in \
         common use (`benches/sensitivity/rules.rs` says how each is taken). The outputs are those of the `model` backend with \
         one fault planted; the rules see the same ones, per sequence and head, which flatters them.\n"
    );
    let curves: Vec<_> = curve::CURVES.par_iter().map(|curve| curve.draw(cases)).collect();
    curves.iter().for_each(|drawn| page.push_str(&drawn.table()));
    page.push_str(&table::render(cases));
    println!("{page}");
    if let Some(folder) = option("--write") {
        std::fs::write(format!("{folder}/sensitivity.md"), page).expect("the folder is writable");
        for drawn in &curves {
            let path = format!("{folder}/{}.svg", drawn.curve.file);
            figure::write(drawn, &path).expect("the folder is writable");
        }
    }
}
