//! `bench`: how long the kernels take on the GPU.

use std::time::Duration;

use anyhow::bail;
use serde_json::json;

use super::out::{self, Closed, settle};
use super::{Bench, Format, Status};
use crate::backend::Choice;
use crate::backend::cuda::bench::{Timing, measure};
use crate::case::Scenario;

/// Times a case.
pub(super) fn run(args: &Bench) -> anyhow::Result<Status> {
    let scenario: Scenario = args.case.parse().map_err(|error| anyhow::anyhow!("the case: {error}"))?;
    let [case] = &scenario.calls[..] else { bail!("a single call is timed, not {}", scenario.calls.len()) };
    let mut choice = Choice::find(Some("cuda"), None)?;
    if let Some(file) = &args.kernel {
        choice = choice.with_kernel(file)?;
    }
    let timing = measure(&choice, case, args.repeats)?;
    let printed = match args.format {
        Format::Human => human(&timing, &case.to_string(), args.repeats),
        Format::Json => out::line(&as_json(&timing, &case.to_string())),
    };
    Ok(settle(printed, Status::Clean))
}

fn human(timing: &Timing, case: &str, repeats: usize) -> Result<(), Closed> {
    out::line(&format!("{case} on {}, {repeats} repeats, microseconds\n", timing.device))?;
    out::line(&format!("{:<28} {:>10} {:>10} {:>10}", "", "median", "10 %", "90 %"))?;
    let row = |name: &str, times: &[Duration]| {
        let at = |share| quantile(times, share);
        out::line(&format!("{name:<28} {:>10.1} {:>10.1} {:>10.1}", at(0.5), at(0.1), at(0.9)))
    };
    for (name, whole, is_forward) in
        [("forward", &timing.forward, true), ("backward", &timing.backward, false)]
    {
        row(name, whole)?;
        for launch in timing.launches.iter().filter(|launch| launch.forward == is_forward) {
            row(&format!("  {}", launch.kernel), &launch.times)?;
        }
    }
    Ok(())
}

fn as_json(timing: &Timing, case: &str) -> String {
    let of = |times: &[Duration]| json!({"median": quantile(times, 0.5), "p10": quantile(times, 0.1), "p90": quantile(times, 0.9)});
    let launches = timing.launches.iter().map(|launch| (launch.kernel.clone(), of(&launch.times)));
    json!({
        "type": "bench",
        "case": case,
        "device": timing.device,
        "unit": "us",
        "forward": of(&timing.forward),
        "backward": of(&timing.backward),
        "launches": serde_json::Map::from_iter(launches),
    })
    .to_string()
}

/// In microseconds; NaN of nothing.
fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        let times = [5, 1, 4, 2, 3].map(Duration::from_micros);
        assert_eq!([0.0, 0.5, 1.0].map(|share| quantile(&times, share).round()), [1.0, 3.0, 5.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
