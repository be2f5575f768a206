//! What each command does.

use std::time::Instant;

use super::out::{self, Closed, settle};
use super::{
    Check, Cli, Command, Format, Status, bench, catalogue, fuzz, kernels, mutants, replay, rounding, stop,
    worker,
};
use crate::backend::BACKENDS;
use crate::campaign::{self, ShrinkOutcome, Summary};
use crate::case::Scenario;
use crate::check::{Outcome, Side, check_asking};
use crate::diagnose;
use crate::oracle::Depth;
use crate::report::{json, terminal};

/// Runs a command. A closed standard output ends it quietly, with the status of what was found.
///
/// # Errors
/// Wrong usage, or a fault of ours: one sentence.
pub fn run(cli: Cli) -> anyhow::Result<Status> {
    bound_threads();
    match cli.command {
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Check(args) => check_one(&args),
        Command::Shrink(args) => shrink_one(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Catalogue(args) => catalogue::run(&args),
        Command::Rounding(args) => rounding::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Worker(args) => worker::serve(&args),
        Command::Backends => Ok(settle(backends(), Status::Clean)),
    }
}

/// Threads at most: more than any machine's cores, fewer than what exhausts it.
const MAX_THREADS: usize = 512;

/// Sets up the threads: as many as `RAYON_NUM_THREADS` says or as there are cores, within reason.
fn bound_threads() {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = asked.unwrap_or_else(cores).min(MAX_THREADS);
    // An error means that the threads are there already.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

fn check_one(args: &Check) -> anyhow::Result<Status> {
    let scenario = scenario(&args.case)?;
    let choice = args.backend.choice()?;
    let start = Instant::now();
    let mut backend = choice.open()?;
    let (contract, run) = (choice.contract(), choice.thorough(&scenario));
    let outcome = check_asking(
        &scenario,
        Side { backend: &mut *backend, contract, run, depth: Depth::Whole },
        args.ask,
    )?;
    let mut summary = Summary::default();
    let (mut lines, findings) = match outcome {
        Outcome::Refused(reason) => {
            let text = format!("{choice} refuses the case: {}", reason.escape_debug());
            summary.stats.refuse(reason);
            (vec![text], Vec::new())
        }
        Outcome::Judged(report) => {
            summary.stats.add(&scenario, &report);
            let mut lines = vec![
                format!("{scenario} on {}\n", choice.with_device()),
                terminal::table(&scenario, &report),
            ];
            lines.extend(report.findings.iter().map(terminal::finding));
            lines.extend(terminal::asked(&report));
            (lines, report.findings)
        }
    };
    if args.format == Format::Json {
        let case = scenario.to_string();
        summary.elapsed = start.elapsed();
        lines = findings.iter().map(|f| json::checked(f, &case, &choice)).collect();
        lines.push(json::summary(&summary, findings.len(), None, &choice));
    }
    let status = if findings.is_empty() { Status::Clean } else { Status::Finding };
    Ok(settle(lines.iter().try_for_each(|text| out::line(text)), status))
}

fn shrink_one(args: &Check) -> anyhow::Result<Status> {
    let scenario = scenario(&args.case)?;
    let choice = args.backend.choice()?;
    let stop = stop::flag()?;
    let mut summary = Summary::default();
    let start = Instant::now();
    let outcome = campaign::shrink_scenario(choice.clone(), &scenario, args.ask, &stop)?;
    let (text, found) = match outcome {
        ShrinkOutcome::Found(found) => {
            summary.stats.cases = 1;
            summary.stats.failing = 1;
            let told = diagnose::tell(&choice, &found.original, &found.minimal)?;
            (terminal::found(&found, told.as_ref(), &choice), Some((found, told)))
        }
        ShrinkOutcome::Passes => {
            summary.stats.cases = 1;
            (format!("nothing to shrink: '{scenario}' passes on {choice}"), None)
        }
        ShrinkOutcome::Refused(reason) => {
            let text = format!("{choice} refuses the case: {}", reason.escape_debug());
            summary.stats.refuse(reason);
            (text, None)
        }
    };
    summary.elapsed = start.elapsed();
    let lines = match args.format {
        Format::Human => vec![text],
        Format::Json => {
            let finding = found.iter().map(|(found, told)| json::finding(found, told.as_ref(), &choice));
            let last = json::summary(&summary, found.iter().count(), None, &choice);
            finding.chain([last]).collect()
        }
    };
    let status = if found.is_some() { Status::Finding } else { Status::Clean };
    Ok(settle(lines.iter().try_for_each(|text| out::line(text)), status))
}

/// Reads a case of the command line.
fn scenario(text: &str) -> anyhow::Result<Scenario> {
    text.parse::<Scenario>().map_err(|error| anyhow::anyhow!("the case: {error}"))
}

fn backends() -> Result<(), Closed> {
    for row in &BACKENDS {
        out::line(&format!("{}\n  {}\n  needs: {}", row.name, row.about, row.needs))?;
        match row.here_is() {
            Ok(None) => {}
            Ok(Some(device)) => out::line(&format!("  here: {device}"))?,
            Err(why) => out::line(&format!("  not here: {why}"))?,
        }
        if !row.faults.is_empty() {
            out::line("  faults that --fault plants, with the case each shrinks to:")?;
        }
        for fault in row.faults {
            out::line(&format!(
                "    {:20} {:24} {} [{}]",
                fault.name, fault.minimal, fault.about, fault.class
            ))?;
        }
    }
    Ok(())
}
