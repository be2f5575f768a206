//! `fuzz`: a campaign, its findings told and saved as they come.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::out::{self, Closed, Progress, settle};
use super::{Format, Fuzz, Status, stop};
use crate::backend::Choice;
use crate::campaign::{self, Event, Found};
use crate::case::{Case, Scenario};
use crate::corpus::{self, Entry, FoundBy, SaveError};
use crate::diagnose;
use crate::generate;
use crate::oracle::Finding;
use crate::report::{json, terminal};

/// How long a campaign is when nothing says.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// A seed that nobody chose: the time will do, since it is printed.
fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64 % 1_000_000_000)
}

/// Items as a case of one token that has them.
fn items(text: &str) -> anyhow::Result<Case> {
    format!("[1] {text}").parse().map_err(|error| anyhow::anyhow!("--with, read as '[1] {text}': {error}"))
}

/// Runs the campaign.
pub(super) fn run(args: &Fuzz) -> anyhow::Result<Status> {
    let choice = args.backend.choice()?;
    corpus::check_writable(&args.save)?;
    let stop = stop::flag()?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let settings = campaign::Settings {
        choice: choice.clone(),
        seed,
        cases: args.cases,
        time: args.time.or(args.cases.is_none().then_some(DEFAULT_TIME)),
        ask: args.ask,
        with: args.with.as_deref().map(items).transpose()?,
        stop_after: args.stop_after,
        budget: generate::Budget::default(),
        stop: &stop,
    };
    let json = args.format == Format::Json;
    let progress = Progress::new(json);
    progress.warn(&format!("fuzzing {}, seed {seed}", choice.with_device()));
    let mut teller =
        Teller { args, choice: &choice, stop: &stop, progress, status: Status::Clean, first: None };
    let (summary, result) = campaign::run(&settings, |event| teller.hear(event));
    teller.progress.end();
    let mut status = teller.status;
    if let Err(error) = result {
        out::warn(&error.to_string());
        status = Status::Fault;
    }
    let text = match json {
        true => json::summary(&summary, summary.found.len(), Some(seed), &choice),
        false => terminal::summary(&summary, &choice, seed),
    };
    Ok(settle(out::line(&text), status))
}

/// Prints and saves what a campaign tells.
struct Teller<'a> {
    args: &'a Fuzz,
    choice: &'a Choice,
    stop: &'a AtomicBool,
    progress: Progress,
    status: Status,
    /// The file of the finding that is being shrunk, as it was drawn.
    first: Option<PathBuf>,
}

impl Teller<'_> {
    fn hear(&mut self, event: Event) {
        match event {
            Event::Progress(summary) => self.progress.show(summary),
            Event::Failing(scenario, finding) => {
                // Told and saved before it is shrunk: whatever ends the shrink, nothing is lost.
                self.status = self.status.max(Status::Finding);
                let text = terminal::finding(finding);
                self.progress.warn(&format!("failing, to be shrunk: '{scenario}'\n  {text}"));
                self.first = self.save(scenario, scenario, finding).ok();
            }
            Event::Found(found) => self.found(found),
        }
    }

    fn found(&mut self, found: &Found) {
        let json = self.args.format == Format::Json;
        let told = diagnose::tell(self.choice, &found.original, &found.minimal).unwrap_or_else(|error| {
            self.progress.warn(&error.to_string());
            self.status = Status::Fault;
            None
        });
        let text = match json {
            true => json::finding(found, told.as_ref(), self.choice),
            false => terminal::found(found, told.as_ref(), self.choice),
        };
        self.print(&text);
        match self.save(&found.minimal, &found.original, &found.lead) {
            Ok(path) => {
                if let Some(first) = self.first.take().filter(|first| *first != path) {
                    // The smaller one is saved: a leftover of the larger one does no harm.
                    let _ = std::fs::remove_file(first);
                }
                if !json {
                    self.print(&format!("  saved    {}", path.display().to_string().escape_debug()));
                }
            }
            Err(error) => {
                self.progress.warn(&error.to_string());
                self.status = Status::Fault;
            }
        }
    }

    fn print(&mut self, text: &str) {
        if let Err(closed) = self.progress.print(text) {
            self.stop.store(true, Ordering::Relaxed);
            if closed == Closed::Failed {
                self.status = Status::Fault;
            }
        }
    }

    fn save(&self, case: &Scenario, original: &Scenario, lead: &Finding) -> Result<PathBuf, SaveError> {
        let entry = Entry {
            case: case.to_string(),
            title: None,
            origin: None,
            cause: None,
            class: Vec::new(),
            found: Some(FoundBy {
                backend: self.choice.name().to_string(),
                fault: self.choice.fault.map(|fault| fault.name.to_string()),
                kernel: self.choice.custom.as_ref().map(|custom| custom.label().display().to_string()),
                oracle: lead.kind.oracle().to_string(),
                tensor: lead.tensor.map(|tensor| tensor.name().to_string()),
                kind: lead.kind.name(),
                original: original.to_string(),
            }),
        };
        corpus::save(&self.args.save, &entry)
    }
}
