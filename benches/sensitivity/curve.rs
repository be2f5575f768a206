//! Detection against the size of a fault, at `[512] h4` in bf16.

use std::fmt::Write;

use rayon::prelude::*;
use thd_fuzz::case::Case;
use thd_fuzz::inputs::Inputs;
use thd_fuzz::outputs::Outputs;

use crate::plant;
use crate::rules::{LowPrecision, RULES, alarms};

/// A fault whose size can be chosen.
pub struct Curve {
    /// Name of its figure.
    pub file: &'static str,
    /// What it is.
    pub about: &'static str,
    sizes: &'static [f64],
    plant: fn(&Inputs, &mut Outputs, f64),
}

/// Every curve; size 0 is a right backend.
pub const CURVES: [Curve; 3] = [
    Curve {
        file: "sensitivity-scale",
        about: "dQ of one of four heads is scaled by 1 + x",
        sizes: &[0.0, 1e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.5],
        plant: plant::scaled_head,
    },
    Curve {
        file: "sensitivity-lse",
        about: "the LSE of one row of one head is off by x as the backward reads it",
        sizes: &[0.0, 1e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.5],
        plant: plant::lse_of_a_row,
    },
    Curve {
        file: "sensitivity-tile",
        about: "a share x of one 64 x 64 tile's contribution to one head's dK is lost",
        sizes: &[0.0, 1e-4, 1e-3, 1e-2, 0.1, 1.0],
        plant: plant::tile_of_dk,
    },
];

const MASKS: [&str; 2] = ["full", "causal"];

/// A curve with its points.
pub struct Drawn {
    pub curve: &'static Curve,
    /// Size, and for each rule the percent of cases of both masks in which it found something.
    pub points: Vec<(f64, [f64; RULES.len()])>,
}

impl Curve {
    /// Draws it with so many cases a point, half of them of each mask.
    pub fn draw(&'static self, cases: u64) -> Drawn {
        // For each case, whether each rule alarms at each size.
        let of_case = |seed: u64| -> Vec<[bool; RULES.len()]> {
            let text = format!("[512] h4 {} seed={seed}", MASKS[seed as usize % 2]);
            let (inputs, right) = plant::right(&text.parse::<Case>().expect("a valid case"));
            let low = LowPrecision::of(&inputs);
            let at = |&size: &f64| {
                let mut outputs = right.clone();
                if size != 0.0 {
                    (self.plant)(&inputs, &mut outputs, size);
                }
                alarms(&inputs, &outputs, &low)
            };
            self.sizes.iter().map(at).collect()
        };
        let all: Vec<_> = (0..cases).into_par_iter().map(of_case).collect();
        let percent = |at: usize, rule: usize| {
            100.0 * all.iter().filter(|case| case[at][rule]).count() as f64 / cases as f64
        };
        let point = |(at, &size): (usize, &f64)| (size, std::array::from_fn(|rule| percent(at, rule)));
        let points = self.sizes.iter().enumerate().map(point).collect();
        Drawn { curve: self, points }
    }
}

impl Drawn {
    /// As a table of the page, with its figure.
    pub fn table(&self) -> String {
        let mut text = format!(
            "## {}\n\n`[512] h4` in bf16, half of the cases full, half causal.\n\n![detection against size]({}.svg)\n\n| x | {} |\n|---|{}\n",
            self.curve.about,
            self.curve.file,
            RULES.join(" | "),
            "---|".repeat(RULES.len())
        );
        for (size, found) in &self.points {
            let size = if *size == 0.0 { "0, a right backend".to_string() } else { format!("{size}") };
            let cells: Vec<String> = found.iter().map(|percent| format!("{percent:.0}")).collect();
            let _ = writeln!(text, "| {size} | {} |", cells.join(" | "));
        }
        text.push('\n');
        text
    }
}
