//! The command line tool. Everything it does is in the library.

use std::process::ExitCode;

use clap::Parser;
use thd_fuzz::cli::{self, Cli, Status};

/// The oracle and its matrix library allocate megabytes for each product: the system allocator maps
/// and unmaps them each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`, which the bindings leave unnamed.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

fn main() -> ExitCode {
    // SAFETY: sets a number that the allocator reads; no other thread runs yet.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::from_env("THD_FUZZ_LOG");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // A panic is a fault of ours: one sentence and status 2, with the backtrace on request.
    std::panic::set_hook(Box::new(|panic| tracing::debug!("{panic}")));
    let result = std::panic::catch_unwind(|| cli::run(cli));
    match result {
        Ok(Ok(status)) => status.into(),
        Ok(Err(error)) => {
            cli::warn(&cli::sentence(&error));
            Status::Fault.into()
        }
        Err(_) => {
            cli::warn("a panic of ours; THD_FUZZ_LOG=debug shows where. Please report it");
            Status::Fault.into()
        }
    }
}
