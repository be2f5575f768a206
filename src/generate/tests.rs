//! What the generator promises: valid, reproducible, in range, and spread as stated.

use proptest::prelude::*;

use super::*;
use crate::case::{Base, DeadFill};
use crate::tensor::DType;

const CASES: u64 = 20_000;

fn campaign(seed: u64, budget: &Budget) -> impl Iterator<Item = Scenario> {
    (0..CASES).map(move |index| nth(seed, index, budget))
}

fn check(scenario: &Scenario, budget: &Budget) {
    let text = scenario.to_string();
    scenario.validate().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(text.parse::<Scenario>().as_ref(), Ok(scenario), "{text}");
    let work: u64 = scenario.calls.iter().map(Case::work).sum();
    let charged: u64 = scenario.calls.iter().map(cost).sum();
    let tokens: u64 = scenario.calls.iter().map(tokens).sum();
    assert!(work <= charged && charged <= budget.max_work, "{text} costs {charged}, works {work}");
    assert!(tokens <= u64::from(budget.max_tokens), "{text}");
    for call in &scenario.calls {
        assert!(call.dead == DeadFill::Zero || call.q.has_dead_rows() || call.kv.has_dead_rows(), "{text}");
        assert!(call.dout.scale <= largest_factor(call), "{text}");
    }
}

#[test]
fn a_campaign_is_valid_within_budget_and_reads_back_from_its_text() {
    let budget = Budget::default();
    campaign(3, &budget).for_each(|scenario| check(&scenario, &budget));
}

proptest! {
    #[test]
    fn so_is_every_scenario_of_the_strategy(scenario in scenarios(Budget::default())) {
        check(&scenario, &Budget::default());
    }
}

#[test]
fn any_budget_is_kept() {
    for (max_tokens, max_work) in [(0, 0), (1, 1), (7, 300), (4096, 256), (100, 100_000), (u32::MAX, 1 << 26)]
    {
        let budget = Budget { max_tokens, max_work, ..Budget::default() };
        for index in 0..2000 {
            check(&nth(4, index, &budget), &budget);
        }
    }
}

#[test]
fn input_that_runs_out_is_the_simplest_case() {
    assert_eq!(from_bytes(&[], &Budget::default()).to_string(), "[1]");
    let long = [0xA7; BYTES];
    for len in 0..200 {
        check(&from_bytes(&long[..len], &Budget::default()), &Budget::default());
    }
    let mut u = Unstructured::new(&[]);
    assert_eq!(u.arbitrary::<Scenario>().unwrap().calls, [u.arbitrary::<Case>().unwrap()]);
}

#[test]
fn a_campaign_never_runs_out_of_bytes() {
    let mut bytes = [0; BYTES];
    let mut rng = ChaCha8Rng::from_seed([5; 32]);
    for _ in 0..CASES {
        rng.fill_bytes(&mut bytes);
        let mut u = Unstructured::new(&bytes);
        scenario(&mut u, &Budget::default()).unwrap();
        assert!(!u.is_empty());
    }
}

/// A failure here means that recorded (seed, index) pairs now name other cases. If that is intended,
/// change the texts and say so in the change log.
#[test]
fn the_streams_of_a_campaign_do_not_change_unnoticed() {
    let pinned = [
        (0, 33, "[] h8 d128 scale=1; [31,31,31]x[3,3,3] h3/1 d64/32 f16 causal scale=1 seed=3"),
        (0, 63, "[0,0,0]x[2304,9,8] h6/2 d8 causal sink=learnable do=ones+row(0) seed=12716"),
        (1, 11, "[5,16] h5 d128 causal-br data=logits(50)+head-scale(2) do=scale(128) seed=213"),
        (7, 1000026, "[16,5,9,12,10] h16 d128/96 softcap=1 sink=learnable data=offset(-1) do=row(6) seed=32"),
        (
            u64::MAX,
            u64::MAX - 22,
            "[2]x[0] h2/1 d80 sink=learnable gap-kv(2) tail-q=17 do=scale(64) dead=nan seed=227",
        ),
    ];
    for (seed, index, text) in pinned {
        assert_eq!(nth(seed, index, &Budget::default()).to_string(), text, "scenario {index} of seed {seed}");
    }
}

#[test]
fn sizes_are_spread_as_stated() {
    let all: Vec<_> = campaign(6, &Budget::default()).collect();
    let share = |holds: &dyn Fn(&Scenario) -> bool| {
        all.iter().filter(|scenario| holds(scenario)).count() as f64 / all.len() as f64
    };
    let more_tokens_than = |n| share(&|scenario| tokens(&scenario.calls[0]) > n);
    assert!(more_tokens_than(63) > 0.55, "the median is above 64 tokens");
    assert!(more_tokens_than(256) > 0.2);
    assert!((0.12..0.35).contains(&(1.0 - more_tokens_than(16))), "a share of tiny cases");
    assert!(share(&|scenario| scenario.calls[0].heads.q >= 4) > 0.4);
    assert!((0.85..0.93).contains(&share(&|scenario| scenario.calls.len() == 1)));
    let works: Vec<u64> = all.iter().map(|scenario| scenario.calls.iter().map(Case::work).sum()).collect();
    let mean = works.iter().sum::<u64>() as f64 / works.len() as f64;
    assert!((0.5e7..1.0e7).contains(&mean), "mean work {mean:e}");
    assert!(*works.iter().max().unwrap() > 60_000_000, "the budget is used");
}

/// The gradients of one group of a case by the plain formulas, at dO factor 1, from values of our
/// own: the largest magnitude of dS, dQ, dK and dV.
fn largest_gradient(case: &Case, rng: &mut ChaCha8Rng) -> f64 {
    let (m, n) = (case.q.max_len() as usize, case.kv.max_len() as usize);
    let (d, d_v) = (case.dims.qk as usize, case.dims.v as usize);
    let scale = case.softmax_scale();
    let uniform = |rng: &mut ChaCha8Rng| f64::from(rng.next_u32()) / f64::from(u32::MAX);
    let normal = |rng: &mut ChaCha8Rng| (0..12).map(|_| uniform(rng)).sum::<f64>() - 6.0;
    let spread = match case.data.base {
        Base::Logits(spread) if scale != 0.0 => spread,
        _ => 1.0,
    };
    let ones = case.data.base == Base::Ones;
    let size = if scale == 0.0 { 1.0 } else { (spread / (scale.abs() * (d as f64).sqrt())).sqrt() };
    let first = if scale == 0.0 { 0.0 } else { (case.data.offset.abs() / scale.abs()).sqrt() };
    let sign = if scale * case.data.offset < 0.0 { -1.0 } else { 1.0 };
    let mut rows = |count: usize, d: usize, size: f64, first: f64| -> Vec<Vec<f64>> {
        let row = |rng: &mut ChaCha8Rng| {
            let factor = size * 2f64.powf(2.0 * uniform(rng) - 1.0);
            let mut row: Vec<_> = (0..d).map(|_| if ones { 1.0 } else { factor * normal(rng) }).collect();
            row[0] += first;
            row
        };
        (0..count).map(|_| row(rng)).collect()
    };
    let (k, v) = (rows(n, d, size, first), rows(n, d_v, 0.7, 0.0));
    let (mut dk, mut dv, mut largest) = (vec![vec![0.0; d]; n], vec![vec![0.0; d_v]; n], 0f64);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let add =
        |to: &mut [f64], factor: f64, row: &[f64]| to.iter_mut().zip(row).for_each(|(t, x)| *t += factor * x);
    for _ in 0..m * case.heads.group() as usize {
        let q = rows(1, d, size * case.data.head_scale, sign * first).remove(0);
        let dout = if case.dout.ones { vec![1.0; d_v] } else { rows(1, d_v, 0.7, 0.0).remove(0) };
        let logits: Vec<_> = k.iter().map(|k| scale * dot(&q, k)).collect();
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let p: Vec<_> = logits.iter().map(|s| (s - top).exp()).collect();
        let sum: f64 = p.iter().sum();
        let dp: Vec<_> = v.iter().map(|v| dot(&dout, v)).collect();
        let delta = dot(&p, &dp) / sum;
        let mut dq = vec![0.0; d];
        for j in 0..n {
            let ds = p[j] / sum * (dp[j] - delta);
            add(&mut dq, scale * ds, &k[j]);
            add(&mut dk[j], scale * ds, &q);
            add(&mut dv[j], p[j] / sum, &dout);
            largest = largest.max(ds.abs());
        }
        largest = dq.iter().fold(largest, |top, x| top.max(x.abs()));
    }
    dk.iter().chain(&dv).flatten().fold(largest, |top, x| top.max(x.abs()))
}

#[test]
fn right_gradients_fit_f16() {
    let mut rng = ChaCha8Rng::from_seed([9; 32]);
    let (mut seen, mut closest) = (0, 0f64);
    for scenario in campaign(8, &Budget::default()) {
        for case in scenario.calls.iter().filter(|case| case.dtype == DType::F16) {
            if case.work() / u64::from(case.heads.kv) < 60_000 || case.dout.scale >= 64.0 {
                let size = case.dout.scale * largest_gradient(case, &mut rng);
                closest = closest.max(size);
                assert!(size < DType::F16.max_finite(), "{case}: {size}");
                seen += 1;
            }
        }
    }
    assert!(seen > 1000 && closest > 1000.0, "{seen} cases, largest gradient {closest}");
}
