//! Questions that need further runs: silent on right backends, and each finds what it is for.

use std::sync::atomic::AtomicBool;

use thd_fuzz::backend::{Answer, Backend, Choice, Failure, Run, RunError, Support};
use thd_fuzz::campaign::{self, Settings, ShrinkOutcome, shrink_scenario};
use thd_fuzz::case::{Case, Mask, Scenario};
use thd_fuzz::check::{Outcome, Report, Side, check_asking};
use thd_fuzz::contract::{Contract, Deterministic, Known, Rounding};
use thd_fuzz::generate::{Budget, Softmax, nth};
use thd_fuzz::inputs::Inputs;
use thd_fuzz::oracle::question::{Base, QUESTIONS, REFUSAL};
use thd_fuzz::oracle::{Ask, Depth, Kind, Truth};
use thd_fuzz::outputs::{Output, Outputs};
use thd_fuzz::tensor::{DType, Poison};

fn asked(scenario: &Scenario, backend: &mut dyn Backend, contract: Contract, ask: Ask) -> Outcome {
    let side = Side { backend, contract, run: Run::PLAIN, depth: Depth::Whole };
    check_asking(scenario, side, ask).expect("no fault of ours")
}

/// The counts of how often each question was asked of right backends that answered rightly.
fn silent(choice: &Choice, cases: u64, budget: Budget) -> Vec<(&'static str, u64)> {
    let mut backend = choice.open_here().expect("it opens");
    let mut counts: Vec<_> = QUESTIONS.iter().map(|question| (question.name, 0)).collect();
    for index in 0..cases {
        let scenario = nth(21, index, &budget);
        match asked(&scenario, &mut *backend, choice.descriptor.contract, Ask::All) {
            Outcome::Judged(report) => {
                assert!(report.findings.is_empty(), "{scenario}: {:#?}", report.findings);
                for asked in report.asked.iter().filter(|asked| asked.skipped.is_none()) {
                    let count = counts.iter_mut().find(|(name, _)| *name == asked.question).expect("a name");
                    count.1 += 1;
                }
            }
            Outcome::Refused(reason) => assert!(!reason.contains("answered"), "{scenario}: {reason}"),
        }
    }
    counts
}

/// What a wrong backend does to the answers of a right one.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// A call after another of the same size is a little off in dV.
    LeaksState,
    /// O is a little off where memory held numbers.
    AddsToMemory,
    /// The first call of a process is wrong.
    FirstOfProcess,
    /// dQ changes with dO's size, as where a dropout mask is drawn anew.
    NotLinear,
    /// The first sequence of a batch is treated otherwise.
    FirstSequence,
    /// A sequence with a neighbour is treated otherwise.
    Neighbours,
    /// Dead rows of v, where they are numbers other than 0, reach dK.
    ReadsDeadRows,
    /// Gaps move the offset of dV's last element.
    Gaps,
    /// Full masks, as they are named, take another path.
    FullPath,
    /// The last head of a group counts for a little less in dV.
    Group,
    /// An empty sequence ends the loop over sequences early: dK of the rest is a little off.
    StopsAtEmpty,
    /// The second kv head's dK is a little off.
    SecondHead,
}

/// A right backend whose answers are changed.
struct Faulty {
    model: Box<dyn Backend>,
    wrong: Wrong,
    /// Calls since the process began, and since the last reset.
    calls: [usize; 2],
    before: Vec<f64>,
}

impl Faulty {
    fn new(wrong: Wrong) -> Faulty {
        let model = Choice::find(Some("model"), None).expect("a name of the table");
        Faulty { model: model.open().expect("it needs nothing"), wrong, calls: [0; 2], before: Vec::new() }
    }
}

/// The next value of the dtype, away from zero: less than any bound.
fn nudge(outputs: &mut Outputs, output: Output, index: usize) {
    let tensor = outputs.get_mut(output);
    let x = tensor.at(index);
    let step = 1.0 + 2f64.powi(1 - tensor.dtype().precision() as i32);
    tensor.set(index as isize, x * step);
}

impl Backend for Faulty {
    fn supports(&self, case: &Case) -> Support {
        self.model.supports(case)
    }

    fn reset(&mut self) {
        self.calls[1] = 0;
        self.before.clear();
        self.model.reset();
    }

    fn renew(&mut self) -> bool {
        self.reset();
        self.calls[0] = 0;
        true
    }

    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError> {
        let mut answer = self.model.run(run, inputs)?;
        self.calls = self.calls.map(|n| n + 1);
        let (case, outputs) = (&inputs.case, &mut answer.outputs);
        let first = (0..case.sequences()).find(|&s| case.q.lengths[s] > 0 && case.kv.lengths[s] > 0);
        let dead = |value: f64| value != 0.0 && value.is_finite();
        match self.wrong {
            Wrong::LeaksState => {
                if self.before.len() == outputs.dv.len() && self.calls[1] > 1 {
                    nudge(outputs, Output::Dv, 0);
                }
                self.before = (0..outputs.dv.len()).map(|i| outputs.dv.at(i)).collect();
            }
            Wrong::AddsToMemory if run.poison == Poison::Finite => nudge(outputs, Output::O, 0),
            Wrong::FirstOfProcess if self.calls[0] == 1 => nudge(outputs, Output::O, 0),
            Wrong::NotLinear if case.dout.scale > 1.0 => nudge(outputs, Output::Dq, 0),
            Wrong::FirstSequence if first.is_some() && case.keys[0] == 0 => nudge(outputs, Output::O, 0),
            Wrong::Neighbours if case.sequences() > 1 => nudge(outputs, Output::Dv, 0),
            Wrong::ReadsDeadRows
                if case.kv.dead_rows().iter().any(|&row| dead(inputs.v.rows_of_head(row..row + 1, 0)[0])) =>
            {
                nudge(outputs, Output::Dk, 0)
            }
            Wrong::Gaps if case.kv.has_dead_rows() => nudge(outputs, Output::Dv, 0),
            Wrong::FullPath if case.mask == Mask::Full => nudge(outputs, Output::O, 0),
            Wrong::Group if case.heads.group() == 1 => scale_all(outputs, Output::Dv, 0.97),
            Wrong::StopsAtEmpty if case.q.lengths.contains(&0) => nudge(outputs, Output::Dk, 0),
            Wrong::SecondHead if case.heads.kv > 1 => {
                let second = outputs.dk.index(0, 1, 0);
                nudge(outputs, Output::Dk, second);
            }
            _ => {}
        }
        Ok(answer)
    }
}

fn scale_all(outputs: &mut Outputs, output: Output, factor: f64) {
    let tensor = outputs.get_mut(output);
    (0..tensor.len()).for_each(|i| tensor.set(i as isize, factor * tensor.at(i)));
}

/// Roundings that are known in kind only leave room for one more: the bounds alone do not see a nudge.
fn loose(deterministic: Deterministic) -> Contract {
    let rounding = Rounding { known: Known::InKind, ..Contract::OWN.rounding };
    Contract { deterministic, rounding, ..Contract::OWN }
}

fn of_faulty(text: &str, wrong: Wrong, ask: Ask) -> Report {
    let contract = loose(Deterministic::ALL);
    let scenario = text.parse().expect("a valid scenario");
    match asked(&scenario, &mut Faulty::new(wrong), contract, ask) {
        Outcome::Judged(report) => report,
        Outcome::Refused(reason) => panic!("{text}: {reason}"),
    }
}

/// The questions that find it, with the outputs.
fn found(report: &Report) -> Vec<(Kind, Option<Output>)> {
    report.findings.iter().map(|finding| (finding.kind, finding.tensor)).collect()
}

#[test]
fn each_question_finds_what_it_is_for() {
    use Wrong::*;
    let plan: [(&str, Wrong, &str, Output); 14] = [
        ("[4] h2", LeaksState, "again", Output::Dv),
        ("[4] h2", AddsToMemory, "other-poison", Output::O),
        ("[4] h2", LeaksState, "dirty-memory", Output::Dv),
        ("[4]; [4] seed=1", LeaksState, "without-earlier-calls", Output::Dv),
        ("[4]; [4] seed=1", FirstOfProcess, "fresh-process", Output::O),
        ("[4,5] h2", Neighbours, "alone", Output::Dv),
        ("[4,5] h2", FirstSequence, "reversed", Output::O),
        ("[4,5] tail-kv=1", Gaps, "no-gaps", Output::Dv),
        ("[4,5] tail-kv=1 dead=nan", ReadsDeadRows, "other-dead-rows", Output::Dk),
        ("[4,5]", FullPath, "other-mask", Output::O),
        ("[40] h4/2", Group, "mha", Output::Dv),
        ("[4] h2", NotLinear, "doubled", Output::Dq),
        ("[4,5]", StopsAtEmpty, "empty-sequence", Output::Dk),
        ("[4] h4/2", SecondHead, "other-head-order", Output::Dk),
    ];
    let names: Vec<_> = plan.iter().map(|row| row.2).collect();
    assert_eq!(names, QUESTIONS.iter().map(|question| question.name).collect::<Vec<_>>());
    for (text, wrong, name, output) in plan {
        let plain = of_faulty(text, wrong, Ask::Nothing);
        assert!(plain.findings.is_empty(), "{wrong:?}: a nudge is within bounds: {:?}", plain.findings);
        let report = of_faulty(text, wrong, Ask::One(name));
        assert_eq!(found(&report), [(Kind::Derived(name), Some(output))], "{text}: {wrong:?}");
        let identity = report.identity().expect("a finding");
        assert_eq!(identity.ask(), Ask::One(name), "what a shrink asks");
        assert!(report.asked.iter().all(|asked| asked.question == name && asked.skipped.is_none()));
        let all = of_faulty(text, wrong, Ask::All);
        assert!(found(&all).contains(&(Kind::Derived(name), Some(output))), "{text}: {wrong:?}");
    }
}

#[test]
fn what_is_not_claimed_to_the_bit_is_judged_by_both_bounds() {
    let scenario: Scenario = "[4] h2".parse().expect("a valid case");
    let mut faulty = Faulty::new(Wrong::NotLinear);
    let contract = loose(Deterministic::BUT_DQ);
    match asked(&scenario, &mut faulty, contract, Ask::One("doubled")) {
        Outcome::Judged(report) => assert!(report.findings.is_empty(), "{:?}", report.findings),
        Outcome::Refused(reason) => panic!("{reason}"),
    }
}

#[test]
fn nothing_is_asked_of_a_wrong_answer_and_one_question_in_turn() {
    let choice = Choice::find(Some("model"), Some("lse-transposed")).expect("a name of the table");
    let mut wrong = choice.open().expect("it needs nothing");
    let scenario: Scenario = "[4,5] h4/2 tail-q=1".parse().expect("a valid case");
    let contract = choice.descriptor.contract;
    let report = |outcome| match outcome {
        Outcome::Judged(report) => report,
        Outcome::Refused(reason) => panic!("{reason}"),
    };
    assert!(report(asked(&scenario, &mut *wrong, contract, Ask::All)).asked.is_empty());
    let mut right = Choice::find(Some("model"), None).expect("a name").open().expect("it needs nothing");
    let turn = |i| report(asked(&scenario, &mut *right, contract, Ask::InTurn(i))).asked;
    let names: Vec<Vec<_>> = (0..15).map(turn).map(|a| a.iter().map(|a| a.question).collect()).collect();
    assert!(names.iter().all(|names: &Vec<&str>| names.len() == 1), "{names:?}");
    // Without an earlier call and a process of its own, the next in the table is asked.
    assert_eq!([names[0][0], names[3][0], names[5][0], names[14][0]], ["again", "alone", "alone", "again"]);
}

#[test]
fn every_question_is_silent_on_the_model() {
    let choice = Choice::find(Some("model"), None).expect("a name of the table");
    let budget = Budget { max_tokens: 1024, max_work: 4_000_000, softmax: Softmax::ALL };
    let counts = silent(&choice, 300, budget);
    for (name, count) in counts {
        // The model runs in this process.
        assert!(count >= 20 || name == "fresh-process", "{name}: asked {count} times");
    }
}

#[test]
fn every_question_is_silent_on_the_emulator() {
    let choice = Choice::find(Some("emulator"), None).expect("a name of the table");
    let budget =
        Budget { max_tokens: 512, max_work: 1_000_000, softmax: Softmax { cap: false, sink: false } };
    let counts = silent(&choice, 30, budget);
    for (name, count) in counts {
        // It runs in this process.
        assert!(count > 0 || name == "fresh-process", "{name}: never asked");
    }
}

#[test]
fn a_finding_between_answers_is_shrunk_by_its_own_question_alone() {
    // The workspace is not cleared: no single call shows it.
    let choice = Choice::find(Some("model"), Some("workspace-dirty")).expect("a name of the table");
    let scenario: Scenario = "[40,9] h4/2 causal tail-q=3".parse().expect("a valid scenario");
    let stop = AtomicBool::new(false);
    let passes = shrink_scenario(choice.clone(), &scenario, Ask::Nothing, &stop).expect("no fault of ours");
    assert!(matches!(passes, ShrinkOutcome::Passes), "{passes:?}");
    match shrink_scenario(choice, &scenario, Ask::One("again"), &stop).expect("no fault of ours") {
        ShrinkOutcome::Found(found) => {
            assert_eq!((found.lead.kind, found.lead.tensor), (Kind::Derived("again"), Some(Output::Dq)));
            assert_eq!(found.minimal.to_string(), "[2]");
            assert!(found.is_steady() && found.shrunk.as_ref().is_some_and(|shrunk| shrunk.complete()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_campaign_asks_in_turn_counts_and_finds() {
    let campaign = |fault| {
        let settings = Settings {
            choice: Choice::find(Some("model"), fault).expect("a name of the table"),
            seed: 3,
            cases: Some(400),
            time: None,
            with: None,
            ask: Ask::InTurn(0),
            stop_after: Some(1),
            budget: Budget { max_tokens: 256, max_work: 500_000, softmax: Softmax::ALL },
            stop: &AtomicBool::new(false),
        };
        let (summary, result) = campaign::run(&settings, |_| {});
        result.expect("no fault of ours");
        summary
    };
    let right = campaign(None);
    assert!(right.found.is_empty(), "{:?}", right.found);
    let total: u64 = right.stats.asked.values().sum();
    assert!((50..=100).contains(&total) && right.stats.asked.len() >= 12, "{:?}", right.stats.asked);
    let wrong = campaign(Some("workspace-dirty"));
    assert_eq!(wrong.found.len(), 1);
}

/// What a backend does with a case that it declares unsupported.
#[derive(Clone, Copy, Debug)]
enum Declared {
    Refuses,
    Answers,
    Errs,
    Crashes,
}

struct Declaring {
    model: Box<dyn Backend>,
    does: Declared,
}

impl Backend for Declaring {
    fn supports(&self, case: &Case) -> Support {
        if case.heads.q == 3 { Support::No("three heads".into()) } else { Support::Yes }
    }

    fn reset(&mut self) {}

    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError> {
        let mut answer = self.model.run(run, inputs)?;
        match self.does {
            _ if inputs.case.heads.q != 3 => {}
            Declared::Refuses => return Err(RunError::Refused("three heads".into())),
            Declared::Answers => {}
            Declared::Errs => scale_all(&mut answer.outputs, Output::Dv, 2.0),
            Declared::Crashes => {
                return Err(RunError::Fault { kind: Failure::Crash, detail: "signal 11".into() });
            }
        }
        Ok(answer)
    }
}

#[test]
fn what_is_declared_unsupported_is_refused_or_answered_rightly() {
    let outcome = |does, ask| {
        let model = Choice::find(Some("model"), None).expect("a name").open().expect("it needs nothing");
        let scenario: Scenario = "[4]; [5] h3".parse().expect("a valid scenario");
        asked(&scenario, &mut Declaring { model, does }, Contract::OWN, ask)
    };
    let finding = |outcome| match outcome {
        Outcome::Judged(report) => match &report.findings[..] {
            [one, rest @ ..] => {
                // Given its own forward, and of the chain.
                assert!(rest.iter().all(|f| (f.kind, f.tensor) == (one.kind, one.tensor)), "{rest:?}");
                let again = report.identity().map(|id| id.ask());
                (one.kind, one.call, one.tensor, again, one.note.clone())
            }
            [] => panic!("nothing is found"),
        },
        Outcome::Refused(reason) => panic!("{reason}"),
    };
    let refused = |outcome| match outcome {
        Outcome::Refused(reason) => reason,
        Outcome::Judged(report) => panic!("{report:?}"),
    };
    for ask in [Ask::All, Ask::InTurn(3), Ask::One(REFUSAL)] {
        assert_eq!(refused(outcome(Declared::Refuses, ask)), "three heads");
        let rightly = refused(outcome(Declared::Answers, ask));
        assert_eq!(rightly, "three heads; it answered all the same, and rightly");
        for (does, tensor) in [(Declared::Errs, Some(Output::Dv)), (Declared::Crashes, None)] {
            let (kind, call, found, again, note) = finding(outcome(does, ask));
            assert_eq!((kind, call, found), (Kind::Refusal, 1, tensor), "{does:?}");
            assert_eq!(again, Some(Ask::One(REFUSAL)), "what a shrink asks");
            assert!(note.contains("that it declares unsupported"), "{note}");
        }
    }
    for ask in [Ask::Nothing, Ask::One("alone")] {
        assert_eq!(refused(outcome(Declared::Errs, ask)), "three heads", "nobody ran it");
    }
}

/// Every element of the inputs, to the bit.
fn bits(inputs: &Inputs) -> Vec<u64> {
    let tensors = [&inputs.q, &inputs.k, &inputs.v, &inputs.dout, &inputs.sink];
    tensors.iter().flat_map(|tensor| (0..tensor.len()).map(|i| tensor.at(i).to_bits())).collect()
}

#[test]
fn derived_inputs_are_those_of_their_case_where_a_text_can_say_it() {
    let choice = Choice::find(Some("model"), None).expect("a name of the table");
    let mut model = choice.open().expect("it needs nothing");
    let budget = Budget { max_tokens: 256, max_work: 500_000, softmax: Softmax::ALL };
    let mut compared = 0;
    for index in 0..150 {
        let case = nth(22, index, &budget).calls.remove(0);
        let inputs = Inputs::new(&case);
        let outputs = model.run(Run::PLAIN, &inputs).expect("it refuses nothing").outputs;
        let contract = choice.descriptor.contract;
        let truth = Truth::work_out(&inputs, &outputs, contract.rounding);
        let base = Base { call: 1, inputs: &inputs, outputs: &outputs, truth: &truth, contract };
        // Repeated keys belong to query heads at other places of their groups; a subnormal that is doubled is
        // not what doubled data round to.
        let told = |name| name != "mha" && (name != "doubled" || case.dtype == DType::Bf16);
        for question in QUESTIONS.iter().filter(|question| told(question.name)) {
            for step in question.plan(&base).into_iter().flatten() {
                let Some(derived) = step.inputs else { continue };
                if derived.case.validate().is_ok() {
                    let drawn = Inputs::new(&derived.case);
                    assert_eq!(
                        bits(&derived),
                        bits(&drawn),
                        "{}: {case} and {}",
                        question.name,
                        derived.case
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn another_mask_shows_the_same_pairs() {
    let choice = Choice::find(Some("model"), None).expect("a name of the table");
    let mut model = choice.open().expect("it needs nothing");
    let question = QUESTIONS.iter().find(|question| question.name == "other-mask").expect("a name");
    let masks =
        ["", "causal", "causal-br", "window(9,*)", "window-br(*,0)", "window(40,40)", "window-br(3,70)"];
    for mask in masks {
        let case: Case = format!("[5,9,2]x[9,5,7] {mask}").parse().expect("a valid case");
        let inputs = Inputs::new(&case);
        let outputs = model.run(Run::PLAIN, &inputs).expect("it refuses nothing").outputs;
        let contract = Contract::OWN;
        let truth = Truth::work_out(&inputs, &outputs, contract.rounding);
        let base = Base { call: 0, inputs: &inputs, outputs: &outputs, truth: &truth, contract };
        let plan = question.plan(&base).unwrap_or_else(|reason| panic!("{mask}: {reason}"));
        let other = &plan[0].inputs.as_ref().expect("another case").case;
        assert_ne!(other.mask, case.mask);
        for (&m, &n) in case.q.lengths.iter().zip(&case.kv.lengths) {
            for i in 0..m as usize {
                let keys = |mask: Mask| mask.visible_keys(i, m as usize, n as usize);
                assert_eq!(keys(other.mask), keys(case.mask), "{mask}: query {i} of {m}, {n} keys");
            }
        }
    }
}
