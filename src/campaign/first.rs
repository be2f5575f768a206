//! The first finding of a campaign, by one thread: nothing is run that a finding before it makes idle.
//! That matters where a run costs a watchdog's time, and where many campaigns run beside each other.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::pool::Pool;
use super::{CampaignError, Found, Settings, ask_of, depth_of, drawn, run_of, shrink_time};
use crate::case::Scenario;
use crate::check::{Outcome, Report};
use crate::oracle::Identity;

/// What came of it.
#[derive(Debug)]
pub struct First {
    /// The finding, if there was any; not shrunk where that was not asked for.
    pub found: Option<Found>,
    /// Cases that were run, those that were refused among them.
    pub tried: u64,
}

/// Runs a campaign up to its first finding. Its cases are those of [`super::run`], in the same order.
///
/// # Errors
/// A fault of ours.
pub fn first_finding(settings: &Settings, shrinks: bool) -> Result<First, CampaignError> {
    let start = Instant::now();
    let pool = Pool::new(settings.choice.clone());
    let budget = pool.within(settings.budget).map_err(|error| {
        let scenario = Scenario { calls: Vec::new() };
        CampaignError { scenario, error }
    })?;
    let mut tried = 0;
    while settings.cases.is_none_or(|cases| tried < cases)
        && settings.time.is_none_or(|time| start.elapsed() < time)
        && !settings.stop.load(Ordering::Relaxed)
    {
        let index = tried;
        let scenario = drawn(settings, index, &budget);
        let (run, ask) = (run_of(settings, index, &scenario), ask_of(settings, index));
        tried += 1;
        let report = match pool.check(&scenario, (run, depth_of(index, ask)), ask) {
            Ok(Outcome::Judged(report)) => report,
            Ok(Outcome::Refused(_)) => continue,
            Err(error) => return Err(CampaignError { scenario, error }),
        };
        let Some(identity) = report.identity() else { continue };
        let time = shrink_time(settings, start);
        let found = match shrinks {
            true => pool.reduce(index, scenario, &report, identity, settings.stop, time),
            false => as_drawn(index, scenario, &report, identity),
        };
        return Ok(First { found: Some(found), tried });
    }
    Ok(First { found: None, tried })
}

fn as_drawn(index: u64, scenario: Scenario, report: &Report, identity: Identity) -> Found {
    let lead = identity.lead(&report.findings).expect("an identity of these findings").clone();
    Found { index, original: scenario.clone(), minimal: scenario, lead, shrunk: None, recurred: 0 }
}
