//! Rounding recipes: each is told by its outputs, and a right backend of each is within the bounds that allow for it.

use thd_fuzz::backend::{Answer, Backend, Choice, Run, RunError, Support};
use thd_fuzz::case::{Case, Scenario, Sink};
use thd_fuzz::check::{Outcome, Side, check_asking};
use thd_fuzz::contract::{Contract, Known, RECIPES, Recipe, Rounding};
use thd_fuzz::generate::{self, Budget};
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::rounding::Grid;
use thd_fuzz::oracle::truth::Received;
use thd_fuzz::oracle::{Ask, Depth};
use thd_fuzz::outputs::{Output, Outputs};
use thd_fuzz::profile::solve::{Solved, solve};
use thd_fuzz::profile::{self, Profile};
use thd_fuzz::reference::{Unit, query_heads};

/// A backend that rounds as a recipe says and computes all else in fp64.
struct Follows {
    recipe: &'static Recipe,
    tile: usize,
    /// What dQ is multiplied by.
    wrong: f64,
}

impl Follows {
    fn new(recipe: &'static Recipe) -> Follows {
        Follows { recipe, tile: 64, wrong: 1.0 }
    }

    fn unit(&self, inputs: &Inputs, outputs: &mut Outputs, (sequence, kv_head): (usize, usize)) {
        let unit = Unit::new(inputs, sequence, kv_head);
        let dtype = inputs.case.dtype;
        let how = (self.recipe, self.tile);
        let nothing = Received {
            o: vec![vec![0.0; unit.m * unit.e]; unit.q.len()],
            lse: vec![vec![f64::NEG_INFINITY; unit.m]; unit.q.len()],
        };
        let rounded = |x: &[f64]| x.iter().map(|&x| dtype.round(x)).collect::<Vec<f64>>();
        let Solved { o, lse, .. } = solve(&unit, Grid::of(dtype), how, &nothing);
        let narrow = |x: &[f64]| x.iter().map(|&x| f64::from(x as f32)).collect::<Vec<f64>>();
        let received = Received {
            o: o.iter().map(|o| rounded(o)).collect(),
            lse: lse.iter().map(|lse| narrow(lse)).collect(),
        };
        let Solved { mut dq, dk, dv, .. } = solve(&unit, Grid::of(dtype), how, &received);
        dq.iter_mut().flatten().for_each(|x| *x *= self.wrong);
        let mut put = |output: Output, head: usize, row: usize, columns: usize, values: &[f64]| {
            for (r, values) in values.chunks(columns).enumerate() {
                outputs.get_mut(output).set_row(row + r, head, values);
            }
        };
        let (q, kv) = (inputs.q_spans[sequence].row, inputs.kv_spans[sequence].row);
        for (at, head) in query_heads(&inputs.case, kv_head).enumerate() {
            put(Output::O, head, q, unit.e, &received.o[at]);
            put(Output::Lse, head, q, 1, &received.lse[at]);
            put(Output::Dq, head, q, unit.d, &rounded(&dq[at]));
        }
        put(Output::Dk, kv_head, kv, unit.d, &rounded(&dk));
        put(Output::Dv, kv_head, kv, unit.e, &rounded(&dv));
    }
}

impl Backend for Follows {
    fn supports(&self, case: &Case) -> Support {
        match case.sink {
            Sink::Learnable => Support::No("no gradient of a sink".into()),
            _ => Support::Yes,
        }
    }

    fn reset(&mut self) {}

    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError> {
        let mut outputs = Outputs::poisoned(&inputs.case, run.poison);
        for output in Output::ALL {
            let dead = output.dead_rows(&inputs.case);
            outputs.get_mut(output).fill_rows(&dead, 0.0);
        }
        Unit::all(&inputs.case).into_iter().for_each(|unit| self.unit(inputs, &mut outputs, unit));
        Ok(Answer { outputs, races: Vec::new() })
    }
}

fn contract(recipe: &'static Recipe, known: Known) -> Contract {
    Contract { rounding: Rounding { recipe, known, ..Contract::OWN.rounding }, ..Contract::OWN }
}

#[test]
fn every_recipe_is_told_by_what_it_leaves() {
    for recipe in &RECIPES {
        let profile = profile::of_backend(&mut Follows::new(recipe), contract(recipe, Known::InKind));
        let profile = profile.expect("it answers");
        assert_eq!(profile.best(), recipe, "{profile:?}");
        assert!(profile.alike().is_empty() && profile.is_explained(), "{}: {profile:?}", recipe.name);
        assert!(profile.is_as_declared(), "{}: {profile:?}", recipe.name);
        // Nothing is left but the outputs' own roundings.
        assert!((profile.recipes[0].1.total() - 1.0).abs() < 0.01, "{}: {profile:?}", recipe.name);
    }
}

#[test]
fn another_recipe_than_declared_and_another_tile_are_told() {
    for recipe in &RECIPES[1..] {
        let profile = profile::of_backend(&mut Follows::new(recipe), Contract::OWN).expect("it answers");
        assert!(!profile.is_as_declared(), "{}: {profile:?}", recipe.name);
    }
    let mut other = Follows { tile: 128, ..Follows::new(&RECIPES[0]) };
    let profile = profile::of_backend(&mut other, Contract::OWN).expect("it answers");
    assert_eq!((profile.best(), profile.tiles[0].0), (&RECIPES[0], 128));
    assert!(!profile.is_as_declared(), "{profile:?}");
}

/// In this process: a test has no worker to start.
fn of_choice(choice: &Choice) -> Profile {
    let mut backend = choice.open_here().expect("it opens");
    profile::of_backend(&mut *backend, choice.descriptor.contract).expect("it answers")
}

#[test]
fn the_projects_backends_round_as_they_declare() {
    for name in ["model", "emulator"] {
        let choice = Choice::find(Some(name), None).expect("a name of the table");
        let profile = of_choice(&choice);
        assert!(profile.is_as_declared() && profile.alike().is_empty(), "{name}: {profile:?}");
    }
}

/// The project's backward with the scale on dS before it is rounded, and off again after.
#[test]
fn a_kernel_that_is_changed_to_round_elsewhere_is_told() {
    let own = include_str!("../kernels/backward.cu");
    let edits = [
        ("? prob[i] * (dp[", "? p.scale * prob[i] * (dp["),
        (
            "dq[m][n][half][e], dq[m][n][half][e + 1]",
            "dq[m][n][half][e] / p.scale, dq[m][n][half][e + 1] / p.scale",
        ),
        ("col0, dk_acc, p.scale)", "col0, dk_acc, 1.0f)"),
    ];
    let changed = edits.iter().fold(own.to_string(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("backward.cu");
    std::fs::write(&file, changed).expect("it is ours");
    let choice = Choice::find(Some("emulator"), None).expect("a name of the table");
    let choice = choice.with_kernel(&file).expect("it compiles");
    let profile = of_choice(&choice);
    assert_eq!(profile.best().name, "fused-scaled-ds", "{profile:?}");
    assert!(profile.is_explained() && !profile.is_as_declared(), "{profile:?}");
}

/// Cases of every kind, small enough to be solved in whole.
fn draws(seed: u64) -> impl Iterator<Item = Scenario> {
    let budget = Budget { max_tokens: 160, ..Budget::default() };
    (0..).map(move |index| generate::nth(seed, index, &budget))
}

/// How many of a number of cases are judged, and how many fail.
fn judged(follows: &mut Follows, contract: Contract, seed: u64, cases: usize) -> (usize, Vec<String>) {
    let (mut answered, mut failed) = (0, Vec::new());
    for scenario in draws(seed).take(cases) {
        let side = Side { backend: follows, contract, run: Run::PLAIN, depth: Depth::Whole };
        match check_asking(&scenario, side, Ask::Nothing).expect("no fault of ours") {
            Outcome::Refused(_) => {}
            Outcome::Judged(report) => {
                answered += 1;
                failed.extend(report.findings.first().map(|finding| format!("{scenario}: {finding:?}")));
            }
        }
    }
    (answered, failed)
}

const CASES: usize = 150;

#[test]
fn a_right_backend_of_every_recipe_is_within_its_bounds() {
    for (at, recipe) in RECIPES.iter().enumerate() {
        for known in [Known::InKind, Known::Exactly] {
            let seed = 8100 + at as u64;
            let (answered, failed) = judged(&mut Follows::new(recipe), contract(recipe, known), seed, CASES);
            assert!(answered > CASES / 2, "{}: {answered}", recipe.name);
            assert!(
                failed.is_empty(),
                "{} {known:?}: {} of {answered}: {failed:#?}",
                recipe.name,
                failed.len()
            );
        }
    }
}

#[test]
fn what_a_recipe_rounds_beside_operands_is_beyond_the_bounds_of_those_that_do_not() {
    for recipe in RECIPES.iter().filter(|recipe| !recipe.rounds_operands()) {
        let (answered, failed) =
            judged(&mut Follows::new(recipe), contract(&RECIPES[0], Known::InKind), 8200, CASES);
        assert!(failed.len() * 20 > answered, "{}: {} of {answered}", recipe.name, failed.len());
    }
}

#[test]
fn a_wrong_backend_of_every_recipe_is_beyond_its_bounds() {
    for recipe in &RECIPES {
        let mut follows = Follows { wrong: 1.1, ..Follows::new(recipe) };
        let (answered, failed) = judged(&mut follows, contract(recipe, Known::InKind), 8300, CASES);
        assert!(failed.len() * 2 > answered, "{}: {} of {answered}", recipe.name, failed.len());
    }
}
