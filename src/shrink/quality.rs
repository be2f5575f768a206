//! How good the shrinker is: predicates in, exact minima out.
//!
//! Each fault of the table must end at its true minimum from so many of its random starts;
//! `cargo test shrink_quality -- --nocapture` prints what they did and what it cost.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering as Atomic};
use std::time::Instant;

use super::faults::{FAULTS, Fault, STARTS, any, fault, length, neighbours};
use super::pool::Pool;
use super::{Budget, Ending, Shrinker, Shrunk, StartError, order, shrink};
use crate::case::{Case, Scenario};

/// What a full shrink may cost, on average and at worst, for any of the faults.
const MEAN_RUNS: usize = 150;
const MAX_RUNS: usize = 300;

fn parse(text: &str) -> Scenario {
    text.parse().expect(text)
}

fn unlimited() -> Budget<'static> {
    Budget { max_runs: usize::MAX, ..Budget::default() }
}

fn text_after(text: &str, interesting: impl FnMut(&Scenario) -> bool) -> String {
    shrink(parse(text), unlimited(), interesting).expect("it reproduces").minimal.to_string()
}

#[test]
fn exact_minima_by_hand() {
    let long = |s: &Scenario| length(s, |n| n > 0 && n % 128 == 0);
    assert_eq!(text_after("[96,256,7] h8/2 d128 causal do=ones gap-q(0,3,0) seed=99", long), "[128]");
    let heads = |s: &Scenario| any(s, |c| c.heads.q >= 2 && c.q.max_len() >= 2);
    assert_eq!(text_after("[77,3]x[5,900] h12/3 d192/128 f16", heads), "[2] h2");
    let state = |s: &Scenario| s.calls.len() > 1 && s.calls[0].q.max_len() >= 2;
    assert_eq!(text_after("[700,2] h4; [3]; [9] seed=4", state), "[2]; []");
    let stranger = |s: &Scenario| any(s, |c| c.keys.contains(&3));
    assert_eq!(text_after("[5,6,7,8]", stranger), "[0] keys=3");
}

/// From every start of every fault: the share at the true minimum, and what holds for any predicate.
#[test]
fn shrink_quality() {
    let (mut all, mut good) = (0, true);
    let mut report = String::new();
    for (i, fault) in FAULTS.iter().enumerate() {
        let minimum = parse(fault.minimum);
        assert!((fault.interesting)(&minimum), "{}: {}", fault.name, fault.minimum);
        let mut reached = 0;
        let mut runs = Vec::new();
        let mut other = String::new();
        let starts = Pool::new(100 + i as u64).scenarios_where(STARTS, &fault.interesting);
        assert_eq!(starts.len(), STARTS, "{}: the pool has too few", fault.name);
        for start in starts {
            let shrunk = shrink(start.clone(), unlimited(), fault.interesting).expect("it reproduces");
            assert!(shrunk.complete() && (fault.interesting)(&shrunk.minimal));
            assert!(order::compare(&shrunk.minimal, &start).is_le());
            assert!(order::compare(&shrunk.minimal, &minimum).is_ge(), "{}: {}", fault.name, shrunk.minimal);
            if shrunk.minimal == minimum {
                reached += 1;
            } else {
                other = format!("; or {}", shrunk.minimal);
            }
            runs.push(shrunk.runs);
        }
        let mean = runs.iter().sum::<usize>() / runs.len();
        let max = runs.iter().max().expect("some starts");
        report +=
            &format!("{:3}/{STARTS} {mean:4} {max:5}  {} -> {}{other}\n", reached, fault.name, fault.minimum);
        all += reached;
        good &= reached >= fault.at_least && mean <= MEAN_RUNS && *max <= MAX_RUNS;
    }
    let share = 100.0 * all as f64 / (FAULTS.len() * STARTS) as f64;
    println!("at minimum, mean and max runs, fault\n{report}{share:.1} % in all");
    assert!(good && share >= 97.0, "a row is below what it must reach");
}

/// Two faults of the table at once, which no pass was written for: starts that differ should end alike.
#[test]
fn conjunctions_of_faults_end_alike() {
    let mut pool = Pool::new(4);
    let (mut all, mut alike, mut runs) = (0, 0, 0);
    let mut report = String::new();
    for _ in 0..60 {
        let mut pick = || &FAULTS[pool.below(FAULTS.len() as u64) as usize];
        let (a, b) = (pick(), pick());
        let both = |s: &Scenario| (a.interesting)(s) && (b.interesting)(s);
        let starts = pool.scenarios_where(12, &both);
        let shrink = |start: Scenario| shrink(start, unlimited(), both).expect("it reproduces");
        let ends: Vec<Shrunk> = starts.into_iter().map(shrink).collect();
        let Some(best) = ends.iter().min_by_key(|end| order::key(&end.minimal)) else { continue };
        let at_best = ends.iter().filter(|end| end.minimal == best.minimal).count();
        let other = ends.iter().find(|end| end.minimal != best.minimal);
        let other = other.map_or(String::new(), |end| format!("; or {}", end.minimal));
        let cost = ends.iter().map(|end| end.runs).sum::<usize>();
        report += &format!(
            "{at_best:2}/{:2} {:4} {} and {} -> {}{other}\n",
            ends.len(),
            cost / ends.len(),
            a.name,
            b.name,
            best.minimal
        );
        (all, alike, runs) = (all + ends.len(), alike + at_best, runs + cost);
    }
    let share = 100.0 * alike as f64 / all as f64;
    println!("{report}{share:.1} % of {all} alike, {} runs on average", runs / all);
    assert!(share >= 90.0 && runs / all <= MEAN_RUNS);
}

/// Faults of a number of sequences, heads or tokens, far beyond what can be tried one by one.
#[test]
fn very_many_sequences_end_within_the_default_budget() {
    let mut pool = Pool::new(77);
    let lengths = |n: usize, pool: &mut Pool| (0..n).map(|_| pool.below(12) as u32).collect();
    let many: Scenario = Case::new(lengths(70_000, &mut pool)).into();
    let faults = [
        fault("sequences", "[0*65536]", 1, |s| any(s, |c| c.sequences() > 65_535)),
        fault("a length", "[11]", 1, |s| length(s, |n| n == 11)),
        fault("neighbours", "[4,7]", 1, |s| neighbours(s, |a, b| a == 4 && b == 7)),
        fault("tokens", "[10001]", 1, |s| any(s, |c| c.q.tokens() > 10_000)),
    ];
    for Fault { name, minimum, interesting, .. } in faults {
        let shrunk = shrink(many.clone(), Budget::default(), interesting).expect("it reproduces");
        let text = shrunk.minimal.to_string();
        assert!(text == minimum, "{name}: {} bytes of text, {:.60}", text.len(), text);
        assert!(shrunk.complete() && shrunk.runs < 400, "{name}: {shrunk}");
        println!("{name}: {shrunk}");
    }
}

#[test]
fn every_result_is_one_minimal() {
    for fault in &FAULTS {
        for start in Pool::new(7).scenarios_where(3, &fault.interesting) {
            let first = shrink(start, unlimited(), fault.interesting).expect("it reproduces");
            let again = shrink(first.minimal.clone(), unlimited(), fault.interesting).expect("it reproduces");
            assert_eq!((&again.minimal, again.steps), (&first.minimal, 0), "{}", fault.name);
        }
    }
}

/// Whatever the predicate says, texts are asked once, get simpler with each yes, and parse back.
#[test]
fn any_predicate_terminates_and_never_grows() {
    for (i, start) in Pool::new(31).scenarios(60).into_iter().enumerate() {
        let mut asked = HashSet::new();
        let mut best = start.clone();
        let shrunk = shrink(start.clone(), unlimited(), |candidate| {
            let text = candidate.to_string();
            assert_eq!(candidate, &parse(&text), "a candidate is what its text says");
            assert!(asked.insert(text.clone()), "{text} was asked before");
            assert!(order::compare(candidate, &best).is_lt() || *candidate == start, "{text} is not simpler");
            // As good as random, one answer in four a yes.
            let yes =
                *candidate == start || text.bytes().fold(i, |h, b| h * 31 % 65521 + b as usize) % 4 == 0;
            if yes {
                best = candidate.clone();
            }
            yes
        })
        .expect("the start is interesting");
        assert!(shrunk.complete());
        assert_eq!(shrunk.minimal, best);
    }
}

#[test]
fn a_shrink_is_deterministic() {
    let predicate = |s: &Scenario| length(s, |n| n % 7 == 3);
    let start = Pool::new(5).scenarios_where(1, &predicate).remove(0);
    let once = || shrink(start.clone(), unlimited(), predicate).expect("it reproduces");
    assert_eq!(once(), once());
}

#[test]
fn a_start_that_does_not_reproduce_or_is_invalid_is_refused() {
    let error = shrink(parse("[5]"), unlimited(), |_| false).unwrap_err();
    assert_eq!(error, StartError::NotInteresting { scenario: "[5]".into() });
    assert_eq!(error.to_string(), "nothing to shrink: '[5]' does not reproduce the finding");
    let mut invalid = parse("[5]");
    invalid.calls[0].keys.clear();
    let error = shrink(invalid, unlimited(), |_| panic!("an invalid start is not run")).unwrap_err();
    assert!(matches!(error, StartError::Invalid(_)));
}

#[test]
fn a_budget_that_ends_returns_the_best_so_far() {
    let predicate = |s: &Scenario| length(s, |n| n >= 100);
    let start = parse("[999,998,997] h8 causal seed=5");
    let full = shrink(start.clone(), unlimited(), predicate).expect("it reproduces");
    for max_runs in 1..full.runs {
        let asked = Cell::new(0);
        let counted = |s: &Scenario| {
            asked.set(asked.get() + 1);
            predicate(s)
        };
        let budget = Budget { max_runs, ..Budget::default() };
        let cut = shrink(start.clone(), budget, counted).expect("it reproduces");
        assert_eq!((cut.runs, asked.get()), (max_runs, max_runs));
        assert_eq!(cut.ending, Ending::Runs);
        assert!(predicate(&cut.minimal) && order::compare(&cut.minimal, &start).is_le());
    }
    let enough = Budget { max_runs: full.runs, ..Budget::default() };
    assert_eq!(shrink(start, enough, predicate).expect("it reproduces"), full);
}

#[test]
fn a_deadline_far_off_hinders_no_step_to_a_little_more_work() {
    let long_keys = |s: &Scenario| {
        std::thread::sleep(std::time::Duration::from_millis(2));
        any(s, |c| c.kv.max_len() == 65)
    };
    let deadline = Some(std::time::Instant::now() + std::time::Duration::from_secs(60));
    let budget = Budget { deadline, ..Budget::default() };
    let shrunk = shrink(parse("[0,0]x[65,3]"), budget, long_keys).expect("it reproduces");
    assert_eq!(shrunk.minimal.to_string(), "[65]");
}

#[test]
fn a_deadline_and_a_stop_flag_end_it() {
    let start = parse("[999] h8");
    let budget = Budget { deadline: Some(Instant::now()), ..Budget::default() };
    let late = shrink(start.clone(), budget, |_| true).expect("it reproduces");
    assert_eq!((late.ending, late.runs, &late.minimal), (Ending::Deadline, 1, &start));
    let flag = AtomicBool::new(false);
    let budget = Budget { stop: Some(&flag), ..Budget::default() };
    let stopped = shrink(start, budget, |s| {
        flag.store(s.calls[0].sequences() == 0, Atomic::Relaxed);
        true
    });
    let stopped = stopped.expect("it reproduces");
    assert_eq!((stopped.ending, stopped.minimal.to_string().as_str()), (Ending::Stopped, "[] h8"));
    assert_eq!(stopped.to_string(), "interrupted: it may shrink further (runs: 2, simplifications: 1)");
}

#[test]
fn a_refused_text_is_not_asked_again() {
    let mut shrinker = Shrinker::new(parse("[9]"), Budget::default(), |s| s.calls[0].q.tokens() == 9)
        .expect("it reproduces");
    let to = |n: u32| move |s: &mut Scenario| *s = Case::new(vec![n]).into();
    assert!(!shrinker.attempt(to(8)) && !shrinker.attempt(to(8)));
    assert_eq!((shrinker.runs, shrinker.cached), (2, 1));
    assert!(!shrinker.attempt(to(10)) && !shrinker.attempt(to(9)), "not simpler");
    assert_eq!((shrinker.runs, shrinker.cached), (2, 1));
}
