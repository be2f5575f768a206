//! Standard output that ends quietly when its reader goes away, and progress on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::Status;
use crate::campaign::Summary;
use crate::report::terminal;

/// Standard output takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// Its reader went away, as `head` does.
    #[error("standard output is closed")]
    Pipe,
    /// What was printed is lost, as on a full disk.
    #[error("standard output failed")]
    Failed,
}

/// The status of a command after printing: a reader that went away changes nothing, what was lost is
/// a fault.
pub fn settle(printed: Result<(), Closed>, status: Status) -> Status {
    match printed {
        Ok(()) | Err(Closed::Pipe) => status,
        Err(Closed::Failed) => Status::Fault,
    }
}

/// Prints a line.
///
/// # Errors
/// [`Closed`]; a failure is told on standard error.
pub fn line(text: &str) -> Result<(), Closed> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Closed::Pipe;
        }
        warn(&format!("cannot write to standard output: {error}"));
        Closed::Failed
    })
}

/// Tells a person, on standard error; if even that fails there is nobody to tell.
pub fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "thd-fuzz: {text}");
}

/// How often plain progress lines come.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// A progress line on a terminal, plain lines otherwise, nothing beside JSON.
pub enum Progress {
    /// A line that is redrawn.
    Bar(ProgressBar),
    /// Lines now and then.
    Plain(Instant),
    /// Nothing.
    Silent,
}

impl Progress {
    /// As standard error allows.
    pub fn new(silent: bool) -> Progress {
        if silent {
            return Progress::Silent;
        }
        if !io::stderr().is_terminal() {
            return Progress::Plain(Instant::now());
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Progress::Bar(bar)
    }

    /// Shows how far a campaign is.
    pub fn show(&mut self, summary: &Summary) {
        match self {
            Progress::Bar(bar) => bar.set_message(terminal::progress(summary)),
            Progress::Plain(last) if last.elapsed() >= PLAIN_EVERY => {
                *last = Instant::now();
                let text = terminal::progress(summary);
                warn(&format!("{:.0} s: {text}", summary.elapsed.as_secs_f64()));
            }
            Progress::Plain(_) | Progress::Silent => {}
        }
    }

    /// Prints a line on standard output without tearing the progress line.
    ///
    /// # Errors
    /// As [`line`].
    pub fn print(&self, text: &str) -> Result<(), Closed> {
        match self {
            Progress::Bar(bar) => bar.suspend(|| line(text)),
            _ => line(text),
        }
    }

    /// Says something on standard error without tearing the progress line.
    pub fn warn(&self, text: &str) {
        match self {
            Progress::Bar(bar) => bar.suspend(|| warn(text)),
            _ => warn(text),
        }
    }

    /// Takes the line away.
    pub fn end(&self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
