//! Which rounding recipe does a backend follow? The one that leaves the least of its outputs unexplained.
//!
//! On a few probe cases every recipe is solved in fp64. What an output differs from it by is measured
//! against what the output's own rounding alone comes to: 1.00 is left by the right recipe, and 1.2 to 2 by
//! one that rounds anything else.

use rayon::prelude::*;

use crate::backend::{Backend, Choice, Run};
use crate::case::Scenario;
use crate::check::{HarnessError, Outcome, Side, observe};
use crate::contract::{Contract, RECIPES, Recipe, Rounding, Weights};
use crate::inputs::Inputs;
use crate::oracle::budget;
use crate::oracle::rounding::Grid;
use crate::oracle::truth::Received;
use crate::oracle::{Depth, Kind};
use crate::outputs::{Output, Outputs};
use crate::reference::{Unit, query_heads};

pub mod solve;

use solve::{Solved, solve};

/// Cases that tell recipes apart: groups of heads, scales that are no powers of two, several tiles of keys, sequences
/// of unlike lengths, both dtypes. Not every backend takes all of them.
pub const PROBES: [&str; 6] = [
    "[300,77] h4/2 d72 causal-br",
    "[300,77] h4/2 d72 causal-br f16",
    "[64,200]x[330,90] h6/2 d128 data=logits(2)",
    "[64,200]x[330,90] h6/2 d128 data=logits(2) f16",
    "[150,31]x[150,31] h2 d64 scale=0.2 causal",
    "[150,31]x[150,31] h2 d64 scale=0.2 causal f16",
];

/// Tiles of keys that the forward's running maximum may be taken after.
pub const TILES: [usize; 7] = [16, 32, 64, 80, 96, 128, 256];

/// Outputs that recipes differ in, in the order of [`Residual`].
pub const OUTPUTS: [Output; 4] = [Output::O, Output::Dq, Output::Dk, Output::Dv];

/// What a recipe leaves unexplained of the outputs, in units of their own rounding: root mean squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Residual([f64; OUTPUTS.len()]);

impl Residual {
    /// Of one output.
    pub fn of(&self, output: Output) -> f64 {
        OUTPUTS.iter().position(|&one| one == output).map_or(0.0, |at| self.0[at])
    }

    /// Of all together.
    pub fn total(&self) -> f64 {
        (self.0.iter().map(|x| x * x).sum::<f64>() / self.0.len() as f64).sqrt()
    }
}

/// Squares, added up: of what is left, and of what an output's own rounding leaves.
#[derive(Clone, Copy, Debug, Default)]
struct Squares {
    left: [f64; OUTPUTS.len()],
    planes: [f64; OUTPUTS.len()],
}

impl Squares {
    /// Takes in a plane of an output: each counts alike, whatever its size.
    fn add(&mut self, output: usize, (got, want): (&[f64], &[f64]), grid: Grid) {
        let (mut left, mut rounding) = (0.0, 0.0);
        for (&got, &want) in got.iter().zip(want) {
            left += (got - want).powi(2);
            rounding += (grid.nearest(want) - want).powi(2);
        }
        if rounding > 0.0 {
            self.left[output] += left / rounding;
            self.planes[output] += 1.0;
        }
    }

    fn join(mut self, other: Squares) -> Squares {
        for at in 0..OUTPUTS.len() {
            self.left[at] += other.left[at];
            self.planes[at] += other.planes[at];
        }
        self
    }

    fn residual(&self) -> Residual {
        let mut of = [0.0; OUTPUTS.len()];
        for (at, of) in of.iter_mut().enumerate() {
            *of = (self.left[at] / self.planes[at].max(1.0)).sqrt();
        }
        Residual(of)
    }
}

/// What a probe case gave.
struct Observed {
    inputs: Inputs,
    outputs: Outputs,
}

/// How a backend rounds.
#[derive(Debug)]
pub struct Profile {
    /// What it declares.
    pub declared: Rounding,
    /// Every recipe with what it leaves, the least first.
    pub recipes: Vec<(&'static Recipe, Residual)>,
    /// Every tile with what is left of O, the least first; empty where the best recipe has none.
    pub tiles: Vec<(usize, f64)>,
    /// Probe cases that the backend refused, each with its reason.
    pub refused: Vec<(&'static str, String)>,
}

impl Profile {
    /// The recipe that leaves the least.
    pub fn best(&self) -> &'static Recipe {
        self.recipes[0].0
    }

    /// Does the best recipe explain the outputs, down to their own rounding?
    pub fn is_explained(&self) -> bool {
        OUTPUTS.iter().all(|&output| self.recipes[0].1.of(output) <= budget::EXPLAINED)
    }

    /// Recipes that cannot be told from the best by what they leave.
    pub fn alike(&self) -> Vec<&'static Recipe> {
        let least = self.recipes[0].1.total();
        let near = |(_, residual): &&(_, Residual)| residual.total() <= least * budget::SAME_RESIDUAL;
        self.recipes[1..].iter().filter(near).map(|(recipe, _)| *recipe).collect()
    }

    /// Does the backend round as it declares?
    pub fn is_as_declared(&self) -> bool {
        let recipe = *self.declared.recipe == *self.best() || self.alike().contains(&self.declared.recipe);
        let tile = self.declared.forward_tile;
        let least = self.tiles.first().map_or(0.0, |(_, left)| *left);
        let is_near = |left: f64| left <= least * budget::SAME_RESIDUAL;
        let tiles = self.tiles.iter().find(|(of, _)| *of == tile).is_none_or(|(_, left)| is_near(*left));
        self.is_explained() && recipe && tiles
    }
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A fault of ours.
    #[error(transparent)]
    Harness(#[from] HarnessError),
    /// The backend answers none of the probe cases.
    #[error("the backend refuses every case that would tell: '{case}', for one, because: {reason}")]
    Refused {
        /// The first of them.
        case: &'static str,
        /// Why.
        reason: String,
    },
    /// Outputs that are wrong say nothing of roundings.
    #[error(
        "the backend fails at the probe case '{case}' ({what}): see thd-fuzz check, and ask again once it passes"
    )]
    Fails {
        /// The case.
        case: &'static str,
        /// The first finding.
        what: String,
    },
}

/// Runs the probe cases on a backend, and tries every recipe on what it answers.
///
/// # Errors
/// [`ProfileError`].
pub fn work_out(choice: &Choice) -> Result<Profile, ProfileError> {
    let mut backend = choice.open().map_err(HarnessError::Open)?;
    of_backend(&mut *backend, choice.contract())
}

/// The same of a backend that is open.
///
/// # Errors
/// [`ProfileError`].
pub fn of_backend(backend: &mut dyn Backend, contract: Contract) -> Result<Profile, ProfileError> {
    let (mut observed, mut refused) = (Vec::new(), Vec::new());
    for probe in PROBES {
        let scenario: Scenario = probe.parse().expect("probe cases are cases");
        let side = Side { backend: &mut *backend, contract, run: Run::PLAIN, depth: Depth::Halves };
        let show = |inputs: &Inputs, outputs: &Outputs, _: &_| {
            observed.push(Observed { inputs: inputs.clone(), outputs: outputs.clone() });
        };
        match observe(&scenario, side, show)? {
            Outcome::Refused(reason) => refused.push((probe, reason)),
            Outcome::Judged(report) => {
                if let Some(finding) = report.findings.iter().find(|finding| !is_about_values(finding.kind)) {
                    let what = format!("{}, {}", finding.kind.name(), finding.note);
                    return Err(ProfileError::Fails { case: probe, what });
                }
            }
        }
    }
    if observed.is_empty() {
        let (case, reason) = refused.swap_remove(0);
        return Err(ProfileError::Refused { case, reason });
    }
    Ok(fit(&observed, contract.rounding, refused))
}

/// Findings that a backend's roundings may be the cause of, where it does not round as it declares.
fn is_about_values(kind: Kind) -> bool {
    matches!(kind, Kind::Forward | Kind::Backward | Kind::Chain | Kind::Bias | Kind::Spread | Kind::Law(_))
}

/// Tries every recipe, and every tile.
fn fit(observed: &[Observed], declared: Rounding, refused: Vec<(&'static str, String)>) -> Profile {
    let left_by = |recipe, tile| squares(observed, recipe, tile).residual();
    // What the forward rounds tells its tile.
    let mut tiles: Vec<(usize, f64)> =
        TILES.iter().map(|&tile| (tile, left_by(&Recipe::FUSED, tile).of(Output::O))).collect();
    tiles.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut recipes: Vec<(&'static Recipe, Residual)> =
        RECIPES.iter().map(|recipe| (recipe, left_by(recipe, tiles[0].0))).collect();
    recipes.sort_by(|a, b| a.1.total().total_cmp(&b.1.total()));
    if recipes[0].0.weights != Weights::Running {
        tiles.clear();
    }
    Profile { declared, recipes, tiles, refused }
}

/// What a recipe leaves of all that was observed.
fn squares(observed: &[Observed], recipe: &Recipe, tile: usize) -> Squares {
    let of_call = |call: &Observed| {
        let units = Unit::all(&call.inputs.case).into_par_iter();
        let of_unit = |(sequence, kv_head)| of_unit(call, (sequence, kv_head), recipe, tile);
        units.map(of_unit).reduce(Squares::default, Squares::join)
    };
    observed.iter().map(of_call).fold(Squares::default(), Squares::join)
}

fn of_unit(call: &Observed, (sequence, kv_head): (usize, usize), recipe: &Recipe, tile: usize) -> Squares {
    let (inputs, outputs) = (&call.inputs, &call.outputs);
    let unit = Unit::new(inputs, sequence, kv_head);
    let (q_rows, kv_rows) = (inputs.q_spans[sequence].rows(), inputs.kv_spans[sequence].rows());
    let heads = || query_heads(&inputs.case, kv_head);
    let received = Received {
        o: heads().map(|h| outputs.o.rows_of_head(q_rows.clone(), h)).collect(),
        lse: heads().map(|h| outputs.lse.rows_of_head(q_rows.clone(), h)).collect(),
    };
    let grid = Grid::of(inputs.case.dtype);
    let Solved { o, dq, dk, dv, .. } = solve(&unit, grid, (recipe, tile), &received);
    let mut squares = Squares::default();
    for (at, head) in heads().enumerate() {
        let got = outputs.dq.rows_of_head(q_rows.clone(), head);
        squares.add(0, (&received.o[at], &o[at]), grid);
        squares.add(1, (&got, &dq[at]), grid);
    }
    for (output, got, want) in [(2, &outputs.dk, &dk), (3, &outputs.dv, &dv)] {
        squares.add(output, (&got.rows_of_head(kv_rows.clone(), kv_head), want), grid);
    }
    squares
}
