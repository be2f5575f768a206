//! Stopping early: Ctrl-C and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Status;

/// A second signal sooner than this is the first one's echo: `timeout` signals a process and then its
/// group.
const ECHO: Duration = Duration::from_secs(1);

/// A flag that the first signal sets, for the work to end in good order; a later one ends the process
/// at once.
///
/// # Errors
/// A system that takes no signal handlers.
pub(super) fn flag() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for _ in signals.forever() {
            flag.store(true, Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() > ECHO {
                std::process::exit(Status::Fault as i32);
            }
        }
    });
    Ok(stop)
}
