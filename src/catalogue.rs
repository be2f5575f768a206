//! The catalogue of planted faults: those of the model, and the mutants of the kernels.
//!
//! For each: what a campaign finds of it and after how many cases, what that shrinks to, and what the
//! diagnosis calls it, on that finding and on other random cases that fail.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;

use crate::backend::custom::{CustomError, Shop};
use crate::backend::{BACKENDS, Choice, UnknownName};
use crate::campaign::{CampaignError, Found, Settings, first_finding};
use crate::check::HarnessError;
use crate::diagnose::score::{Score, score};
use crate::diagnose::{Told, tell};
use crate::generate::{Budget, Softmax};
use crate::mutants::list::{self, ListError};
use crate::mutants::{Mutant, Shows};
use crate::oracle::Ask;

/// What a case may cost: every fault shows within a few tiles.
const BUDGET: Budget = Budget { max_tokens: 1024, max_work: 12_000_000, softmax: Softmax::PLAIN };
/// Random cases for each that is to fail.
const TRIES: u64 = 20;

/// The hypothesis that each fault is, where it is one. The faults that are not named here are kept out of
/// the table of hypotheses, so that it is seen what the diagnosis says of what it does not know.
pub const HYPOTHESIS_OF: &[(&str, &str)] = &[
    ("lse-transposed", "lse-transposed"),
    ("dq-scale", "constant-factor"),
    ("dk-tail-dropped", "partial-tile-dropped"),
    ("delta-omitted", "delta-missing"),
    ("causal-off-by-one", "causal-off-by-one"),
    ("gqa-last-head-only", "group-one-head"),
    ("neighbour-leak", "neighbour-seen"),
    ("workspace-dirty", "workspace-stale"),
    ("window-left-dropped", "window-left-dropped"),
    ("br-as-tl", "mask-in-other-corner"),
    ("scale-of-padded-d", "scale-of-padded-dim"),
    ("gaps-ignored", "at-prefix-sums"),
    ("one-tile-lse-stale", "lse-of-first-tile"),
    ("dv-width-of-dk", "columns-lost"),
    ("last-head-scaled", "constant-factor"),
    ("dout-stride-of-q", "strides-exchanged"),
    ("lse-base-2", "lse-base"),
    ("kv-head-modulo", "kv-head-dealt"),
    ("delta-of-first-head", "delta-of-other-head"),
    ("lse-of-next-row", "lse-of-neighbour-row"),
    ("kv-tail-unmasked", "tail-unmasked"),
    ("backward-kv-tail-unmasked", "tail-unmasked"),
    ("scale-cached", "scale-of-first-call"),
    ("delta-buffer-short", "delta-buffer-short"),
    ("lse-of-first-tile", "lse-of-first-tile"),
    ("delta-of-next-row", "delta-of-neighbour-row"),
    ("dq-unscaled", "scale-missing"),
    ("dk-unscaled", "scale-missing"),
    ("log2e-twice", "lse-base"),
    ("backward-causal-off-by-one", "causal-off-by-one"),
    ("last-query-of-window-skipped", "tile-loop-short"),
    ("bottom-right-as-top-left", "mask-in-other-corner"),
    ("group-last-head-only", "group-one-head"),
    ("forward-causal-off-by-one", "causal-off-by-one"),
    ("forward-kv-tail-unmasked", "tail-unmasked"),
    ("forward-kv-head", "kv-head-dealt"),
    ("forward-loop-short", "tile-loop-short"),
    ("lse-without-log", "lse-without-maximum"),
    ("lse-without-max", "lse-without-maximum"),
    ("dv-columns-of-dk", "columns-lost"),
];

/// The hypothesis that a fault is.
pub fn hypothesis_of(fault: &str) -> Option<&'static str> {
    HYPOTHESIS_OF.iter().find(|(name, _)| *name == fault).map(|&(_, hypothesis)| hypothesis)
}

/// Classes of the taxonomy without a fault here, and why.
pub const WITHOUT_FAULT: [(&str, &str); 2] = [
    (
        "DET",
        "outputs that differ from run to run: the question 'again' asks, and no fault for it is planted yet",
    ),
    ("EXTRA-GRAD", "dSink is judged, and no fault in it is planted yet; no backend computes dBias"),
];

/// A planted fault.
#[derive(Clone, Debug)]
pub enum Planted {
    /// Of a backend's own.
    Fault {
        /// The backend.
        backend: &'static str,
        /// The fault.
        fault: &'static crate::backend::FaultInfo,
    },
    /// A mutant of a kernel source, which the emulator runs.
    Mutant(Box<Mutant>),
}

impl Planted {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Planted::Fault { fault, .. } => fault.name,
            Planted::Mutant(mutant) => &mutant.name,
        }
    }

    /// Its class.
    pub fn class(&self) -> &str {
        match self {
            Planted::Fault { fault, .. } => fault.class,
            Planted::Mutant(mutant) => &mutant.class,
        }
    }

    /// What is wrong.
    pub fn about(&self) -> &str {
        match self {
            Planted::Fault { fault, .. } => fault.about,
            Planted::Mutant(mutant) => &mutant.about,
        }
    }

    /// Where it is planted.
    pub fn place(&self) -> &str {
        match self {
            Planted::Fault { backend, .. } => backend,
            Planted::Mutant(mutant) => &mutant.file,
        }
    }

    /// The case that is promised to be the smallest.
    pub fn promised(&self) -> Option<&'static str> {
        match self {
            Planted::Fault { fault, .. } => Some(fault.minimal),
            Planted::Mutant(_) => None,
        }
    }

    /// Are there outputs to diagnose, the same each time?
    pub fn shows_values(&self) -> bool {
        match self {
            Planted::Fault { .. } => true,
            Planted::Mutant(mutant) => mutant.shows == Shows::Values && !mutant.is_race(),
        }
    }

    /// The backend with the fault in it; a mutant is compiled.
    fn choice(&self, shop: &Shop, emulator: &Choice) -> Result<Choice, CatalogueError> {
        match self {
            Planted::Fault { backend, fault } => Ok(Choice::find(Some(backend), Some(fault.name))?),
            Planted::Mutant(mutant) => {
                let custom = shop.make(Path::new(&mutant.name), &[mutant.replacement()?])?;
                Ok(emulator.clone().with_custom(custom))
            }
        }
    }
}

/// Every planted fault: those of the backends, then the mutants that can show.
///
/// # Errors
/// A list of mutants that is wrong.
pub fn planted() -> Result<Vec<Planted>, ListError> {
    let of = |row: &'static crate::backend::Descriptor| {
        row.faults.iter().map(move |fault| Planted::Fault { backend: row.name, fault })
    };
    let faults = BACKENDS.iter().flat_map(of);
    let mutants = list::load(&[], &[])?.into_iter().filter(|mutant| mutant.equivalent.is_none());
    Ok(faults.chain(mutants.map(|mutant| Planted::Mutant(Box::new(mutant)))).collect())
}

/// A fault of ours, or of the list.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A name.
    #[error(transparent)]
    Name(#[from] UnknownName),
    /// The list of mutants.
    #[error(transparent)]
    List(#[from] ListError),
    /// A mutant that does not compile.
    #[error(transparent)]
    Custom(#[from] CustomError),
    /// The campaign.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
    /// The diagnosis.
    #[error(transparent)]
    Harness(#[from] HarnessError),
}

/// What to work out.
pub struct Plan<'a> {
    /// Seed of the campaigns.
    pub seed: u64,
    /// Most cases for each fault.
    pub cases: u64,
    /// Random failing cases of each fault whose names are counted; none where 0.
    pub scored: u64,
    /// Set from outside to stop early.
    pub stop: &'a AtomicBool,
}

/// A fault with what came of it.
#[derive(Debug)]
pub struct Row {
    /// The fault.
    pub planted: Planted,
    /// Its first finding.
    pub found: Option<Found>,
    /// What the report says of that.
    pub told: Option<Told>,
    /// The names that random failing cases got.
    pub score: Option<Score>,
}

/// Works the catalogue out, in the order of `planted`. `tell` hears of each as it is done.
///
/// # Errors
/// The first fault of ours.
pub fn work_out(
    planted: Vec<Planted>,
    plan: &Plan,
    told: impl Fn(&Row) + Sync,
) -> Result<Vec<Row>, CatalogueError> {
    let emulator = Choice::find(Some("emulator"), None)?;
    let shop = Shop::new(emulator.descriptor)?;
    let rows = planted.into_par_iter().map(|planted| {
        let row = row(planted, plan, &shop, &emulator)?;
        told(&row);
        Ok(row)
    });
    rows.collect()
}

fn row(planted: Planted, plan: &Plan, shop: &Shop, emulator: &Choice) -> Result<Row, CatalogueError> {
    let choice = planted.choice(shop, emulator)?;
    let settings = Settings {
        choice: choice.clone(),
        seed: plan.seed,
        cases: Some(plan.cases),
        time: None,
        ask: Ask::Nothing,
        with: None,
        stop_after: Some(1),
        budget: BUDGET,
        stop: plan.stop,
    };
    let found = first_finding(&settings, true)?.found;
    let told = match &found {
        Some(found) if planted.shows_values() => tell(&choice, &found.original, &found.minimal)?,
        _ => None,
    };
    let scored = plan.scored > 0 && planted.shows_values();
    // Other cases than those of the campaign.
    let wanted = [plan.scored, TRIES * plan.scored];
    let score = scored.then(|| score(&choice, plan.seed.wrapping_add(1), wanted, plan.stop));
    Ok(Row { planted, found, told, score: score.transpose()? })
}
