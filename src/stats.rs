//! What a campaign has seen: counts, the distribution of its cases, and how near to their bounds
//! right outputs came. Without it a fuzzer that finds nothing looks like one that tests nothing.

use std::collections::BTreeMap;
use std::fmt;

use crate::case::Scenario;
use crate::check::{Outcome, Report};
use crate::oracle::bound::Errors;
use crate::oracle::{Agreement, Judgement};
use crate::outputs::Output;

/// Counts of whole numbers, with exact quantiles.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<u64, u64>);

impl Counts {
    /// Counts `value` once.
    pub fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The smallest value that at least a share `q` of all are at or below; 0 without any.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = (q * self.total() as f64).ceil() as u64;
        let mut seen = 0;
        for (&value, &count) in &self.0 {
            seen += count;
            if seen >= rank {
                return value;
            }
        }
        0
    }

    /// The share of values for which `holds`.
    pub fn share(&self, holds: impl Fn(u64) -> bool) -> f64 {
        let holding: u64 = self.0.iter().filter(|&(&value, _)| holds(value)).map(|(_, count)| count).sum();
        holding as f64 / self.total().max(1) as f64
    }
}

/// Values that chance alone would draw from the normal distribution of mean 0 and variance 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Normal {
    /// How many are within one of 0, within two, three, four, and beyond.
    pub within: [u64; 5],
    sum: f64,
    squares: f64,
}

impl Normal {
    /// Takes in a value.
    pub fn add(&mut self, z: f64) {
        self.within[(z.abs() as usize).min(self.within.len() - 1)] += 1;
        self.sum += z;
        self.squares += z * z;
    }

    /// How many there are.
    pub fn total(&self) -> u64 {
        self.within.iter().sum()
    }

    /// Their mean; 0 without any.
    pub fn mean(&self) -> f64 {
        self.sum / self.total().max(1) as f64
    }

    /// Root of their mean square; 0 without any.
    pub fn root_mean_square(&self) -> f64 {
        (self.squares / self.total().max(1) as f64).sqrt()
    }
}

/// Everything that a campaign counts.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Scenarios judged, refused ones apart.
    pub cases: u64,
    /// Scenarios that failed, repeats of a known finding included.
    pub failing: u64,
    /// Refusals by reason.
    pub refused: BTreeMap<String, u64>,
    /// Tokens of the longer side of the first call.
    pub tokens: Counts,
    /// Query heads of the first call.
    pub heads: Counts,
    /// d_qk of the first call.
    pub dims: Counts,
    /// Sequences of the first call.
    pub sequences: Counts,
    /// How often each question was asked that needs further runs.
    pub asked: BTreeMap<&'static str, u64>,
    /// Largest |error|/tau of passing scenarios, by output.
    pub nearest: BTreeMap<Output, f64>,
    /// How the errors of passing scenarios lie within their bounds, by output: of the forward, and of the
    /// backward given the O and LSE that were stored.
    pub errors: BTreeMap<Output, Errors>,
    /// To which side the roundings of each head of a gradient lean, over passing scenarios.
    pub leans: BTreeMap<Output, Normal>,
}

impl Stats {
    /// Takes in a judged scenario.
    pub fn add(&mut self, scenario: &Scenario, report: &Report) {
        self.cases += 1;
        for asked in report.asked.iter().filter(|asked| asked.skipped.is_none()) {
            *self.asked.entry(asked.question).or_default() += 1;
        }
        let first = &scenario.calls[0];
        self.tokens.add(first.q.tokens().max(first.kv.tokens()));
        self.heads.add(first.heads.q.into());
        self.dims.add(first.dims.qk.into());
        self.sequences.add(first.sequences() as u64);
        if !report.findings.is_empty() {
            self.failing += 1;
            return;
        }
        for lean in report.calls.iter().flat_map(|call| &call.leans) {
            self.leans.entry(lean.output).or_default().add(lean.z);
        }
        for measure in report.calls.iter().flat_map(|call| &call.measures) {
            let nearest = self.nearest.entry(measure.output).or_default();
            *nearest = nearest.max(measure.worst);
            if measure.judgement != Judgement::Chain {
                self.errors.entry(measure.output).or_default().join(&measure.errors);
            }
        }
    }

    /// Takes in whatever came of a scenario.
    pub fn count(&mut self, scenario: &Scenario, outcome: &Outcome) {
        match outcome {
            Outcome::Judged(report) => self.add(scenario, report),
            Outcome::Refused(reason) => self.refuse(reason.clone()),
        }
    }

    /// Refused scenarios, whatever the reason.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Takes in a refusal.
    pub fn refuse(&mut self, reason: String) {
        *self.refused.entry(reason).or_default() += 1;
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let quantiles = |counts: &Counts| {
            let [low, median, high, max] = [0.1, 0.5, 0.9, 1.0].map(|q| counts.quantile(q));
            format!("10 %: {low}, median {median}, 90 %: {high}, max {max}")
        };
        writeln!(
            f,
            "  tokens     {}; {} over 256",
            quantiles(&self.tokens),
            percent(self.tokens.share(|n| n > 256))
        )?;
        writeln!(f, "  sequences  {}", quantiles(&self.sequences))?;
        writeln!(
            f,
            "  heads      {}; {} with 4 or more",
            quantiles(&self.heads),
            percent(self.heads.share(|n| n >= 4))
        )?;
        let dims = [
            ("below 64", 0..64),
            ("64", 64..65),
            ("65 to 127", 65..128),
            ("128", 128..129),
            ("above", 129..4096),
        ];
        let dims =
            dims.map(|(name, range)| format!("{name}: {}", percent(self.dims.share(|d| range.contains(&d)))));
        writeln!(f, "  d_qk       {}", dims.join(", "))?;
        let nearest: Vec<_> =
            self.nearest.iter().map(|(output, worst)| format!("{output} {worst:.3}")).collect();
        write!(f, "  largest error of passing cases, in bounds: {}", nearest.join(", "))?;
        for (output, errors) in self.errors.iter().filter(|(_, errors)| errors.elements() > 0) {
            let share = |&n: &u64| format!("{:.1}", 100.0 * n as f64 / errors.elements() as f64);
            let tenths: Vec<_> = errors.tenths.iter().map(share).collect();
            let (mean, root) = (errors.mean(), errors.root_mean_square());
            write!(f, "\n  errors     {output}: {} % by tenths of the bound", tenths.join(" "))?;
            write!(f, "; mean {mean:+.3}, root mean square {root:.3}, {} elements", errors.elements())?;
            write!(f, " and {} exact", errors.exact)?;
        }
        for (output, leans) in &self.leans {
            let share = |&n: &u64| format!("{:.2}", 100.0 * n as f64 / leans.total() as f64);
            let within: Vec<_> = leans.within.iter().map(share).collect();
            let (mean, root) = (leans.mean(), leans.root_mean_square());
            write!(f, "\n  bias z     {output}: {} % within 1, 2, 3, 4, beyond", within.join(" "))?;
            write!(f, "; mean {mean:+.3}, root mean square {root:.3}, {} heads", leans.total())?;
        }
        let asked: Vec<_> =
            self.asked.iter().map(|(question, times)| format!("{question} {times}")).collect();
        if !asked.is_empty() {
            write!(f, "\n  asked      {}", asked.join(", "))?;
        }
        for (reason, count) in &self.refused {
            write!(f, "\n  refused    {count}: {}", reason.escape_debug())?;
        }
        Ok(())
    }
}

/// What a second backend gave to the scenarios of a first, and how their answers compare.
#[derive(Clone, Debug, Default)]
pub struct Against {
    /// Of the second by itself.
    pub stats: Stats,
    /// Scenarios of which answers were compared.
    pub compared: u64,
    /// Scenarios in which an element is beyond both bounds.
    pub disagreeing: u64,
    /// All comparisons together.
    pub total: Agreement,
}

impl Against {
    /// Takes in what the second gave, and the comparison where there was one.
    pub fn count(&mut self, scenario: &Scenario, outcome: &Outcome, agreement: Option<&Agreement>) {
        self.stats.count(scenario, outcome);
        if let Some(agreement) = agreement {
            self.compared += 1;
            self.disagreeing += u64::from(agreement.disagreement().is_some());
            self.total.add(agreement);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_values_are_counted_by_whole_deviations() {
        let mut normal = Normal::default();
        assert_eq!((normal.total(), normal.mean(), normal.root_mean_square()), (0, 0.0, 0.0));
        [0.5, -1.5, -0.0, 3.0, -40.0].into_iter().for_each(|z| normal.add(z));
        assert_eq!(normal.within, [2, 1, 0, 1, 1]);
        assert!((normal.mean() + 7.6).abs() < 1e-12);
    }

    #[test]
    fn quantiles_are_exact() {
        let mut counts = Counts::default();
        assert_eq!(counts.quantile(0.5), 0);
        (1..=10).for_each(|n| counts.add(n));
        counts.add(1000);
        assert_eq!([0.1, 0.5, 0.9, 1.0].map(|q| counts.quantile(q)), [2, 6, 10, 1000]);
        assert!((counts.share(|n| n > 9) - 2.0 / 11.0).abs() < 1e-12);
    }
}
