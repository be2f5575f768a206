//! `mutants`: what the harness finds of bugs that are planted in the kernels.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::out::{self, settle};
use super::{Format, Mutants, Status, stop};
use crate::backend::Choice;
use crate::mutants::{HuntError, Hunted, Plan, Verdict, hunt_all, list};
use crate::report::mutants as report;

/// Hunts them.
pub(super) fn run(args: &Mutants) -> anyhow::Result<Status> {
    let mutants = list::load(&args.paths, &args.only)?;
    let stop = stop::flag()?;
    let start = Instant::now();
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let choice = Choice::find(Some(&args.backend), None)?;
    choice.descriptor.here_is()?;
    let plan = Plan {
        choice: &choice,
        cases: args.cases,
        seed: args.seed,
        jobs,
        shrinks: !args.no_shrink,
        stop: &stop,
    };
    let json = args.format == Format::Json;
    let mut printed = if json { Ok(()) } else { out::line(&report::header()) };
    let all = hunt_all(&mutants, &plan, |hunted| {
        match hunted {
            Ok(hunted) if printed.is_ok() => {
                let text = if json { report::json_row(hunted) } else { report::row(hunted) };
                printed = out::line(&text);
            }
            Ok(_) => {}
            Err(error) => out::warn(&error.to_string()),
        }
        if printed.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    let hunted = || all.iter().flatten();
    let seconds = start.elapsed().as_secs_f64();
    let text = match json {
        true => report::json_summary(hunted(), plan.seed, plan.cases, seconds),
        false => report::summary(hunted(), &choice, plan.seed, seconds),
    };
    let missing = all.len() < mutants.len();
    let status = all.iter().map(status).max().unwrap_or(Status::Clean);
    let status = if missing { status.max(Status::Finding) } else { status };
    Ok(settle(printed.and_then(|()| out::line(&text)), status))
}

/// A survivor is what this command looks for; a list that is wrong is a fault of ours.
fn status(hunted: &Result<Hunted, HuntError>) -> Status {
    match hunted.as_ref().map(|hunted| hunted.verdict) {
        Ok(Verdict::Found | Verdict::Equivalent | Verdict::Beyond) => Status::Clean,
        Ok(Verdict::Survived | Verdict::Stopped) => Status::Finding,
        Ok(Verdict::Refuted) | Err(_) => Status::Fault,
    }
}
