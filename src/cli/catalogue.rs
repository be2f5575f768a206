//! `catalogue`: the page of planted faults.

use super::out::{self, settle};
use super::{Catalogue, Status, stop};
use crate::catalogue::{Plan, planted, work_out};
use crate::report;

/// Works it out and prints it.
pub(super) fn run(args: &Catalogue) -> anyhow::Result<Status> {
    let stop = stop::flag()?;
    let mut planted = planted()?;
    let asked = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    planted.retain(|planted| asked(planted.name()));
    if planted.is_empty() {
        anyhow::bail!("no planted fault is called that: see thd-fuzz backends and thd-fuzz mutants");
    }
    let plan = Plan { seed: args.seed, cases: args.cases, scored: args.score, stop: &stop };
    let rows = work_out(planted, &plan, |row| {
        let name = row.planted.name();
        out::warn(&match (&row.found, &row.score) {
            (None, _) => format!("{name}: not found"),
            (Some(found), None) => format!("{name}: case {}, {}", found.index + 1, found.minimal),
            (Some(found), Some(score)) => {
                let names = score.examples.iter().map(|(name, case)| {
                    format!("\n    {} {}: {case}", name.unwrap_or("no hypothesis"), score.names[name])
                });
                let names: String = names.collect();
                format!("{name}: case {}, {}{names}", found.index + 1, found.minimal)
            }
        });
    })?;
    let command = format!("thd-fuzz catalogue --seed {} --score {}", args.seed, args.score);
    let page = report::catalogue::page(&rows, &command);
    let missed = rows.iter().any(|row| row.found.is_none());
    let status = if missed { Status::Finding } else { Status::Clean };
    Ok(settle(out::line(page.trim_end()), status))
}
