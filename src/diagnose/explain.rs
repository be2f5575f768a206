//! What of a minimal case matters: each part of it is varied, by itself, and the case run again.

use std::fmt;

use crate::case::{Align, Base, Case, Data, Dims, Dout, Heads, Mask, Scenario};
use crate::tensor::DType;

/// What varying the parts of a case showed.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// The parts in order.
    pub parts: Vec<Part>,
    /// Cases that were run.
    pub runs: usize,
}

/// One part of a case.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Neighbours that fail as the case itself does.
    pub fail: Vec<Scenario>,
    /// Neighbours that pass.
    pub pass: Vec<Scenario>,
}

impl Part {
    /// Does it fail whatever this part is?
    pub fn matters(&self) -> bool {
        !self.pass.is_empty()
    }
}

/// What is varied, and how.
type Variation = (&'static str, fn(&Case) -> Vec<Case>);

const VARIATIONS: [Variation; 10] = [
    ("seed", |case| vec![with(case, |c| c.seed += 1), with(case, |c| c.seed += 2)]),
    ("data", |case| {
        let bases = [Base::Logits(1.0), Base::Logits(4.0), Base::Ones, Base::Dyadic];
        let data = bases.map(|base| Data { base, ..Data::default() });
        let offset = Data { offset: 10.0, ..Data::default() };
        data.into_iter().chain([offset]).map(|data| with(case, |c| c.data = data)).collect()
    }),
    ("dO", |case| {
        let ones = Dout { ones: true, ..Dout::default() };
        [Dout::default(), ones].map(|dout| with(case, |c| c.dout = dout)).into()
    }),
    ("dtype", |case| [DType::Bf16, DType::F16].map(|dtype| with(case, |c| c.dtype = dtype)).into()),
    ("head dim", |case| {
        let same = [8, 32, 64, 128].map(|dim| Dims { qk: dim, v: dim });
        let apart = [Dims { qk: 64, v: 72 }, Dims { qk: 72, v: 64 }];
        same.into_iter().chain(apart).map(|dims| with(case, |c| c.dims = dims)).collect()
    }),
    ("mask", |case| {
        let window = Mask::Window { left: Some(1), right: Some(0), align: Align::TopLeft };
        let causal = [Align::TopLeft, Align::BottomRight].map(Mask::Causal);
        [Mask::Full, window].into_iter().chain(causal).map(|mask| with(case, |c| c.mask = mask)).collect()
    }),
    ("scale", |case| [None, Some(1.0)].map(|scale| with(case, |c| c.scale = scale)).into()),
    ("heads", |case| {
        let Heads { q, kv } = case.heads;
        let heads = [(1, 1), (q - q.min(1), kv - kv.min(1)), (q + 1, kv + 1), (2, 1), (4, 2)];
        heads.map(|(q, kv)| with(case, |c| set_heads(c, q, kv))).into()
    }),
    ("lengths", |case| {
        let lengths = [(1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1)];
        lengths.map(|(q, kv)| with(case, |c| lengthen(c, q, kv))).into()
    }),
    ("storage", |case| {
        let gaps = |case: &mut Case| {
            case.q.gaps.fill(1);
            case.kv.gaps.fill(1);
        };
        let packed = |case: &mut Case| {
            for side in [&mut case.q, &mut case.kv] {
                side.gaps.fill(0);
                (side.lead, side.tail) = (0, 0);
            }
        };
        vec![with(case, gaps), with(case, |c| (c.q.tail, c.kv.tail) = (1, 1)), with(case, packed)]
    }),
];

/// Neighbours at most.
const MOST_RUNS: usize = 40;

fn with(case: &Case, edit: impl FnOnce(&mut Case)) -> Case {
    let mut case = case.clone();
    edit(&mut case);
    case
}

fn set_heads(case: &mut Case, q: u32, kv: u32) {
    case.heads = Heads { q, kv };
    case.head_keys.truncate(kv as usize);
    case.head_keys.extend(case.head_keys.len() as u32..kv);
}

/// Makes each sequence longer or shorter.
fn lengthen(case: &mut Case, q: i32, kv: i32) {
    let longer = |lengths: &mut Vec<u32>, by: i32| {
        lengths.iter_mut().for_each(|length| *length = length.saturating_add_signed(by));
    };
    longer(&mut case.q.lengths, q);
    longer(&mut case.kv.lengths, kv);
}

/// Varies each part of `minimal`. `fails` runs a neighbour and says whether it fails as the case does;
/// `None` where it cannot be run.
pub fn explain(minimal: &Scenario, mut fails: impl FnMut(&Scenario) -> Option<bool>) -> Explanation {
    let mut explanation = Explanation::default();
    let mut asked = vec![minimal.to_string()];
    for (name, neighbours) in VARIATIONS {
        let mut part = Part { name, fail: Vec::new(), pass: Vec::new() };
        let all: Vec<Vec<Case>> = minimal.calls.iter().map(neighbours).collect();
        let count = all.iter().map(Vec::len).min().unwrap_or(0);
        for at in 0..count {
            let scenario = Scenario { calls: all.iter().map(|calls| calls[at].clone()).collect() };
            let text = scenario.to_string();
            if scenario.validate().is_err() || asked.contains(&text) || explanation.runs >= MOST_RUNS {
                continue;
            }
            asked.push(text);
            explanation.runs += 1;
            match fails(&scenario) {
                Some(true) => part.fail.push(scenario),
                Some(false) => part.pass.push(scenario),
                None => {}
            }
        }
        if !part.fail.is_empty() || !part.pass.is_empty() {
            explanation.parts.push(part);
        }
    }
    explanation
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle: Vec<&str> =
            self.parts.iter().filter(|part| !part.matters()).map(|part| part.name).collect();
        if !idle.is_empty() {
            write!(f, "does not matter: {}", idle.join(", "))?;
        }
        for (at, part) in self.parts.iter().filter(|part| part.matters()).enumerate() {
            let texts = |scenarios: &[Scenario]| {
                scenarios.iter().map(|scenario| format!("'{scenario}'")).collect::<Vec<_>>().join(", ")
            };
            let line = if at > 0 || !idle.is_empty() { "\n" } else { "" };
            write!(f, "{line}{} matters: {} passes", part.name, texts(&part.pass))?;
            if !part.fail.is_empty() {
                write!(f, "; {} fails", texts(&part.fail))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_a_predicate_asks_for_matter_and_no_others() {
        let minimal: Scenario = "[2] h2".parse().unwrap();
        let fails = |scenario: &Scenario| {
            let case = &scenario.calls[0];
            Some(case.heads.q >= 2 && case.q.lengths[0] >= 2)
        };
        let explanation = explain(&minimal, fails);
        let matter: Vec<&str> = explanation.parts.iter().filter(|p| p.matters()).map(|p| p.name).collect();
        assert_eq!(matter, ["heads", "lengths"]);
        assert!(explanation.parts.len() == VARIATIONS.len() && explanation.runs <= MOST_RUNS);
        let text = explanation.to_string();
        assert!(
            text.contains("does not matter: seed, data, dO, dtype, head dim, mask, scale, storage"),
            "{text}"
        );
        assert!(
            text.contains("heads matters: '[2]' passes; '[2] h3', '[2] h2/1', '[2] h4/2' fails"),
            "{text}"
        );
    }

    #[test]
    fn what_cannot_be_run_says_nothing() {
        let explanation = explain(&"[1]; []".parse().unwrap(), |_| None);
        assert!(explanation.parts.is_empty() && explanation.to_string().is_empty());
    }
}
