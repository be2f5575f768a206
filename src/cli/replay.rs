//! `replay`: saved cases again, on one backend, or on two that are held against each other.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::out::{self, settle};
use super::{BackendArgs, Format, Replay, Status, stop};
use crate::backend::{Backend, Choice, OpenError, Run};
use crate::campaign::Summary;
use crate::case::Scenario;
use crate::check::{Both, HarnessError, Outcome, Side, check_asking, check_both};
use crate::corpus::{self, Saved};
use crate::oracle::{Agreement, Ask, Depth, Finding};
use crate::report::{json, terminal};
use crate::stats::Against;

/// Runs them.
pub(super) fn run(args: &Replay) -> anyhow::Result<Status> {
    let choice = args.backend.choice()?;
    let named = |name: &String| BackendArgs { backend: Some(name.clone()), fault: None, kernel: None };
    let other = args.against.as_ref().map(|name| named(name).choice()).transpose()?;
    let mut replayer = Replayer::open(args, choice, other)?;
    let stop = stop::flag()?;
    let start = Instant::now();
    let (saved, errors) = corpus::load(&args.paths);
    errors.iter().for_each(|error| out::warn(&error.to_string()));
    let mut status = if errors.is_empty() { Status::Clean } else { Status::Fault };
    for case in saved {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (lines, of_case) = replayer.replay(&case).unwrap_or_else(|error| {
            out::warn(&format!("{error} (case '{}')", case.scenario));
            (Vec::new(), Status::Fault)
        });
        status = status.max(of_case);
        if let Err(closed) = lines.iter().try_for_each(|text| out::line(text)) {
            return Ok(settle(Err(closed), status));
        }
    }
    replayer.summary.elapsed = start.elapsed();
    let lines = replayer.summary_lines(errors.len());
    Ok(settle(lines.iter().try_for_each(|text| out::line(text)), status))
}

/// A backend that is open.
struct Opened {
    choice: Choice,
    backend: Box<dyn Backend>,
}

impl Opened {
    fn new(choice: Choice) -> Result<Opened, OpenError> {
        Ok(Opened { backend: choice.open()?, choice })
    }

    fn side(&mut self, run: Run) -> Side<'_> {
        Side { backend: &mut *self.backend, contract: self.choice.contract(), run, depth: Depth::Whole }
    }
}

/// The second backend.
struct Other {
    opened: Opened,
    /// What the lines call it.
    name: String,
    seen: Against,
}

/// Runs saved cases, and counts what comes of them.
struct Replayer {
    format: Format,
    ask: Ask,
    first: Opened,
    other: Option<Other>,
    /// Of the first backend.
    summary: Summary,
    /// Cases in which anything was found.
    failing: usize,
}

/// What came of a case on the first backend, and on the second with the comparison.
type Played = (Outcome, Option<(Outcome, Option<Agreement>)>);

impl Replayer {
    fn open(args: &Replay, choice: Choice, other: Option<Choice>) -> Result<Replayer, OpenError> {
        let open_other = |other: Choice| {
            let again = if other.to_string() == choice.to_string() { " again" } else { "" };
            let name = format!("{other}{again}");
            Ok::<_, OpenError>(Other { opened: Opened::new(other)?, name, seen: Against::default() })
        };
        let other = other.map(open_other).transpose()?;
        let first = Opened::new(choice)?;
        let (format, ask) = (args.format, args.ask);
        Ok(Replayer { format, ask, first, other, summary: Summary::default(), failing: 0 })
    }

    /// Runs a case. What to print of it, and its status.
    fn replay(&mut self, case: &Saved) -> Result<(Vec<String>, Status), HarnessError> {
        let (outcome, second) = self.play(&case.scenario)?;
        self.summary.stats.count(&case.scenario, &outcome);
        if let (Some(other), Some((outcome, agreement))) = (&mut self.other, &second) {
            other.seen.count(&case.scenario, outcome, agreement.as_ref());
        }
        let judged = matches!(outcome, Outcome::Judged(_));
        let wrong = self.wrong(&case.scenario.to_string(), &(outcome, second));
        let status = if wrong.is_empty() { Status::Clean } else { Status::Finding };
        self.failing += usize::from(!wrong.is_empty());
        if self.format == Format::Json || !judged && wrong.is_empty() {
            return Ok((wrong, status));
        }
        let title = case.title.as_ref().map(|t| format!("  ({})", t.escape_debug())).unwrap_or_default();
        let verdict = if wrong.is_empty() { "ok  " } else { "FAIL" };
        let mut lines = vec![format!("{verdict} {}{title}", case.scenario)];
        lines.extend(wrong.iter().map(|text| format!("       {text}")));
        Ok((lines, status))
    }

    /// Runs a scenario on the first backend as thoroughly as it can, on the second plainly.
    fn play(&mut self, scenario: &Scenario) -> Result<Played, HarnessError> {
        let run = self.first.choice.thorough(scenario);
        let first = self.first.side(run);
        let Some(other) = &mut self.other else {
            return Ok((check_asking(scenario, first, self.ask)?, None));
        };
        let Both { outcomes: [outcome, second], agreement } =
            check_both(scenario, [first, other.opened.side(Run::PLAIN)])?;
        Ok((outcome, Some((second, agreement))))
    }

    /// Everything that is wrong with a case, a line each.
    fn wrong(&self, case: &str, (outcome, second): &Played) -> Vec<String> {
        let json = self.format == Format::Json;
        let one = &self.first.choice;
        let finding = |f| if json { json::checked(f, case, one) } else { terminal::finding(f) };
        let mut lines: Vec<String> = findings(outcome).iter().map(finding).collect();
        let (Some(Other { opened, name, .. }), Some((outcome, agreement))) = (&self.other, second) else {
            return lines;
        };
        let other = &opened.choice;
        lines.extend(findings(outcome).iter().map(|f| match json {
            true => json::checked(f, case, other),
            false => format!("on {name}: {}", terminal::finding(f)),
        }));
        let apart = agreement.as_ref().and_then(|agreement| Some((agreement.disagreement()?, agreement)));
        lines.extend(apart.map(|(pair, agreement)| match json {
            true => json::disagreement(pair, agreement, case, [one, other]),
            false => terminal::disagreement(pair, agreement, [&one.to_string(), name]),
        }));
        lines
    }

    /// The end of it; the last line has the counts.
    fn summary_lines(&self, unreadable: usize) -> Vec<String> {
        let other = self.other.as_ref().map(|other| (&other.opened.choice, &other.seen));
        if self.format == Format::Json {
            return vec![json::replayed(&self.summary, self.failing, &self.first.choice, other)];
        }
        let mut last = replay_summary(&self.summary, unreadable, &self.first.choice);
        let Some(other) = &self.other else { return vec![last] };
        last += &terminal::against(&other.seen, &other.name);
        let first = (self.first.choice.to_string(), &self.summary.stats);
        let both = [first, (other.name.clone(), &other.seen.stats)];
        let reasons = both.iter().flat_map(|(name, stats)| terminal::refusals(stats, name));
        reasons.chain([last]).collect()
    }
}

/// What an outcome holds against the backend.
fn findings(outcome: &Outcome) -> &[Finding] {
    match outcome {
        Outcome::Judged(report) => &report.findings,
        Outcome::Refused(_) => &[],
    }
}

fn replay_summary(summary: &Summary, unreadable: usize, choice: &Choice) -> String {
    let stats = &summary.stats;
    format!(
        "{} cases on {}: {} passed, {} failed, {} refused, {unreadable} files unreadable",
        stats.cases + stats.refusals(),
        choice.with_device(),
        stats.cases - stats.failing,
        stats.failing,
        stats.refusals(),
    )
}
