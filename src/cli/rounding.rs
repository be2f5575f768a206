//! `rounding`: where a backend rounds.

use super::out::{self, settle};
use super::{Rounding, Status};
use crate::profile;
use crate::report::profile as report;

/// Works the profile out and prints it.
pub(super) fn run(args: &Rounding) -> anyhow::Result<Status> {
    let choice = args.backend.choice()?;
    let profile = profile::work_out(&choice)?;
    let status = if profile.is_as_declared() { Status::Clean } else { Status::Finding };
    Ok(settle(out::line(report::page(&profile, &choice).trim_end()), status))
}
