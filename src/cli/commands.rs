//! What each command does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use super::out::{self, Closed, Progress};
use super::{Check, Cli, Command, Format, Fuzz, Replay, Status, worker};
use crate::backend::{BACKENDS, Choice, Run};
use crate::campaign::{self, Event, Found, ShrinkOutcome, Summary};
use crate::check::{Outcome, check};
use crate::corpus::{self, Entry, FoundBy};
use crate::generate;
use crate::report::{json, terminal};

/// How long a campaign is when nothing says.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// Runs a command. A closed standard output ends it quietly, with the status of what was found.
///
/// # Errors
/// Wrong usage, or a fault of ours: one sentence.
pub fn run(cli: Cli) -> anyhow::Result<Status> {
    match cli.command {
        Command::Fuzz(args) => fuzz(&args),
        Command::Check(args) => check_one(&args),
        Command::Shrink(args) => shrink_one(&args),
        Command::Replay(args) => replay(&args),
        Command::Worker(args) => worker::serve(&args),
        Command::Backends => Ok(quiet(backends().map(|()| Status::Clean), Status::Clean)),
    }
}

/// The status of a command whose reader may have gone away.
fn quiet(result: Result<Status, Closed>, so_far: Status) -> Status {
    result.unwrap_or(so_far)
}

/// Set by the first Ctrl-C or SIGTERM; the second ends the process at once.
fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, Status::Fault as i32, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// A seed that nobody chose: the time will do, since it is printed.
fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64 % 1_000_000_000)
}

fn fuzz(args: &Fuzz) -> anyhow::Result<Status> {
    let choice = args.backend.choice()?;
    let stop = stop_flag()?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let time = args.time.or(args.cases.is_none().then_some(DEFAULT_TIME));
    let settings = campaign::Settings {
        choice: choice.clone(),
        seed,
        cases: args.cases,
        time,
        stop_after: args.stop_after,
        budget: generate::Budget::default(),
        stop: &stop,
    };
    let json = args.format == Format::Json;
    let mut progress = Progress::new(json);
    progress.warn(&format!("fuzzing {choice}, seed {seed}"));
    let mut worst = Status::Clean;
    let mut closed = false;
    let (summary, result) = campaign::run(&settings, |event| match event {
        Event::Progress(summary) => progress.show(summary),
        Event::Failing(scenario, finding) => {
            // Told before it is shrunk: a shrink that is cut short loses nothing.
            let text = terminal::finding(finding);
            progress.warn(&format!("failing, to be shrunk: '{scenario}'\n  {text}"));
        }
        Event::Found(found) => {
            let text = if json { json::finding(found, &choice) } else { terminal::found(found, &choice) };
            worst = worst.max(Status::Finding);
            closed |= progress.print(&text).is_err();
            match save(&args.save, found, &choice) {
                Ok(path) if !json => closed |= progress.print(&format!("  saved    {path}")).is_err(),
                Ok(_) => {}
                Err(error) => {
                    progress.warn(&error.to_string());
                    worst = Status::Fault;
                }
            }
            if closed {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    progress.end();
    if let Err(error) = result {
        out::warn(&error.to_string());
        worst = Status::Fault;
    }
    let text = match json {
        true => json::summary(&summary, summary.found.len(), Some(seed), &choice),
        false => terminal::summary(&summary, &choice, seed),
    };
    Ok(quiet(out::line(&text).map(|()| worst), worst))
}

fn save(folder: &std::path::Path, found: &Found, choice: &Choice) -> Result<String, corpus::SaveError> {
    let entry = Entry {
        case: found.minimal.to_string(),
        title: None,
        origin: None,
        cause: None,
        class: Vec::new(),
        found: Some(FoundBy {
            backend: choice.descriptor.name.to_string(),
            fault: choice.fault.map(|fault| fault.name.to_string()),
            kernel: choice.kernel.as_ref().map(|kernel| kernel.file().display().to_string()),
            oracle: found.lead.kind.oracle().to_string(),
            tensor: found.lead.tensor.map(|tensor| tensor.name().to_string()),
            kind: found.lead.kind.name(),
            original: found.original.to_string(),
        }),
    };
    corpus::save(folder, &entry).map(|path| path.display().to_string().escape_debug().to_string())
}

fn check_one(args: &Check) -> anyhow::Result<Status> {
    let choice = args.backend.choice()?;
    let mut backend = choice.open()?;
    let start = Instant::now();
    let outcome = check(&args.case, &mut *backend, choice.descriptor.contract, Run::RACES)?;
    let report = match outcome {
        Outcome::Refused(reason) => {
            let text = format!("{choice} refuses the case: {}", reason.escape_debug());
            return Ok(quiet(out::line(&text).map(|()| Status::Clean), Status::Clean));
        }
        Outcome::Judged(report) => report,
    };
    let status = if report.findings.is_empty() { Status::Clean } else { Status::Finding };
    let print = || -> Result<Status, Closed> {
        if args.format == Format::Json {
            let case = args.case.to_string();
            report.findings.iter().try_for_each(|f| out::line(&json::checked(f, &case, &choice)))?;
            let mut summary = Summary { elapsed: start.elapsed(), ..Summary::default() };
            summary.stats.add(&args.case, &report);
            out::line(&json::summary(&summary, report.findings.len(), None, &choice))?;
            return Ok(status);
        }
        out::line(&format!("{} on {choice}\n", args.case))?;
        out::line(&terminal::table(&args.case, &report))?;
        report.findings.iter().try_for_each(|f| out::line(&terminal::finding(f)))?;
        Ok(status)
    };
    Ok(quiet(print(), status))
}

fn shrink_one(args: &Check) -> anyhow::Result<Status> {
    let choice = args.backend.choice()?;
    let stop = stop_flag()?;
    let (text, status) = match campaign::shrink_scenario(choice.clone(), &args.case, &stop)? {
        ShrinkOutcome::Found(found) if args.format == Format::Json => {
            (json::finding(&found, &choice), Status::Finding)
        }
        ShrinkOutcome::Found(found) => (terminal::found(&found, &choice), Status::Finding),
        ShrinkOutcome::Passes => {
            (format!("nothing to shrink: '{}' passes on {choice}", args.case), Status::Clean)
        }
        ShrinkOutcome::Refused(reason) => {
            (format!("{choice} refuses the case: {}", reason.escape_debug()), Status::Clean)
        }
    };
    Ok(quiet(out::line(&text).map(|()| status), status))
}

fn replay(args: &Replay) -> anyhow::Result<Status> {
    let choice = args.backend.choice()?;
    let stop = stop_flag()?;
    let start = Instant::now();
    let (saved, errors) = corpus::load(&args.paths);
    errors.iter().for_each(|error| out::warn(&error.to_string()));
    let mut status = if errors.is_empty() { Status::Clean } else { Status::Fault };
    let mut summary = Summary::default();
    let mut backend = choice.open()?;
    for case in saved {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (lines, of_case) =
            match check(&case.scenario, &mut *backend, choice.descriptor.contract, Run::RACES) {
                Ok(Outcome::Judged(report)) => {
                    summary.stats.add(&case.scenario, &report);
                    let status = if report.findings.is_empty() { Status::Clean } else { Status::Finding };
                    (replay_lines(args.format, &case, &report, &choice), status)
                }
                Ok(Outcome::Refused(reason)) => {
                    summary.stats.refuse(reason);
                    (Vec::new(), Status::Clean)
                }
                Err(error) => {
                    out::warn(&format!("{error} (case '{}')", case.scenario));
                    (Vec::new(), Status::Fault)
                }
            };
        status = status.max(of_case);
        if lines.iter().try_for_each(|text| out::line(text)).is_err() {
            return Ok(status);
        }
    }
    summary.elapsed = start.elapsed();
    let text = match args.format {
        Format::Json => json::summary(&summary, summary.stats.failing as usize, None, &choice),
        Format::Human => replay_summary(&summary, errors.len(), &choice),
    };
    Ok(quiet(out::line(&text).map(|()| status), status))
}

fn replay_lines(
    format: Format,
    case: &corpus::Saved,
    report: &crate::check::Report,
    choice: &Choice,
) -> Vec<String> {
    let text = case.scenario.to_string();
    if format == Format::Json {
        return report.findings.iter().map(|f| json::checked(f, &text, choice)).collect();
    }
    let title = case.title.as_ref().map(|t| format!("  ({})", t.escape_debug())).unwrap_or_default();
    let verdict = if report.findings.is_empty() { "ok  " } else { "FAIL" };
    let mut lines = vec![format!("{verdict} {text}{title}")];
    lines.extend(report.findings.iter().map(|f| format!("       {}", terminal::finding(f))));
    lines
}

fn replay_summary(summary: &Summary, unreadable: usize, choice: &Choice) -> String {
    let stats = &summary.stats;
    format!(
        "{} cases on {choice}: {} passed, {} failed, {} refused, {unreadable} files unreadable",
        stats.cases + stats.refused.values().sum::<u64>(),
        stats.cases - stats.failing,
        stats.failing,
        stats.refused.values().sum::<u64>(),
    )
}

fn backends() -> Result<(), Closed> {
    for row in &BACKENDS {
        out::line(&format!("{}\n  {}\n  needs: {}", row.name, row.about, row.needs))?;
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
