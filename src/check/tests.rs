//! Two backends on one scenario: what of one does to the other, and to the comparison.

use super::*;
use crate::backend::Choice;
use crate::case::Case;
use crate::oracle::Depth;
use crate::outputs::Output;

/// What a stub does with a call.
#[derive(Clone, Copy)]
enum Does {
    Answers,
    /// Answers, with one element of dQ doubled.
    Errs,
    Refuses,
    Crashes,
}

/// The model, which from the second call on does something else.
struct Stub {
    model: Box<dyn Backend>,
    does: Does,
    calls: usize,
}

impl Stub {
    fn new(does: Does) -> Stub {
        let model = Choice::find(Some("model"), None).expect("a name of the table");
        Stub { model: model.open().expect("it needs nothing"), does, calls: 0 }
    }

    fn side(&mut self) -> Side<'_> {
        Side { backend: self, contract: Contract::OWN, run: Run::PLAIN, depth: Depth::Whole }
    }
}

impl Backend for Stub {
    fn supports(&self, case: &Case) -> Support {
        match case.heads.q {
            3 => Support::No("three heads".into()),
            _ => Support::Yes,
        }
    }

    fn reset(&mut self) {
        self.calls = 0;
    }

    fn run(&mut self, run: Run, inputs: &Inputs) -> Result<Answer, RunError> {
        self.calls += 1;
        let mut answer = self.model.run(run, inputs)?;
        match self.does {
            Does::Errs if self.calls > 1 => answer.outputs.dq.set(0, 2.0 * answer.outputs.dq.at(0)),
            Does::Refuses if self.calls > 1 => return Err(RunError::Refused("the second".into())),
            Does::Crashes if self.calls > 1 => {
                return Err(RunError::Fault { kind: Failure::Crash, detail: "the second".into() });
            }
            _ => {}
        }
        Ok(answer)
    }
}

fn both(text: &str, does: [Does; 2]) -> Both {
    let scenario = text.parse().expect("a valid scenario");
    let [mut a, mut b] = does.map(Stub::new);
    check_both(&scenario, [a.side(), b.side()]).expect("no fault of ours")
}

/// The kinds of what was found.
fn kinds(outcome: &Outcome) -> Vec<Kind> {
    match outcome {
        Outcome::Judged(report) => report.findings.iter().map(|f| f.kind).collect(),
        Outcome::Refused(reason) => panic!("refused: {reason}"),
    }
}

#[test]
fn every_call_is_compared_and_each_backend_judged_by_itself() {
    let right = both("[3] h2; [2]", [Does::Answers; 2]);
    let agreement = right.agreement.expect("both answer");
    // O, dQ, dK and dV of 64 columns, and LSE.
    assert_eq!((agreement.elements, agreement.apart()), ((3 * 2 + 2) * (4 * 64 + 1), 0.0));
    for does in [[Does::Answers, Does::Errs], [Does::Errs, Does::Answers]] {
        let found = both("[3] h2; [2]", does);
        let wrong = usize::from(matches!(does[1], Does::Errs));
        assert!(kinds(&found.outcomes[wrong]).contains(&Kind::Backward), "{found:?}");
        assert!(kinds(&found.outcomes[1 - wrong]).is_empty(), "{found:?}");
        let pair = *found.agreement.as_ref().and_then(Agreement::disagreement).expect("dQ is doubled");
        assert_eq!(pair.output, Output::Dq);
        assert_eq!(pair.values[wrong], 2.0 * pair.values[1 - wrong]);
    }
}

#[test]
fn what_either_refuses_is_not_compared_and_the_other_is_judged_all_the_same() {
    for (text, reason) in [("[3] h2; [2]", "the second"), ("[3] h3; [2]", "three heads")] {
        let found = both(text, [Does::Refuses, Does::Errs]);
        assert!(matches!(&found.outcomes[0], Outcome::Refused(why) if why == reason), "{found:?}");
        assert!(found.agreement.is_none(), "{found:?}");
    }
    let found = both("[3] h2; [2]", [Does::Errs, Does::Refuses]);
    assert!(kinds(&found.outcomes[0]).contains(&Kind::Backward), "{found:?}");
    assert!(matches!(found.outcomes[1], Outcome::Refused(_)) && found.agreement.is_none());
}

#[test]
fn a_crash_ends_one_backend_and_what_both_answered_before_is_compared() {
    let found = both("[3] h2; [2]; [1]", [Does::Crashes, Does::Errs]);
    assert_eq!(kinds(&found.outcomes[0]), [Kind::Crash]);
    assert!(kinds(&found.outcomes[1]).contains(&Kind::Backward), "{found:?}");
    let first = both("[3] h2", [Does::Answers; 2]).agreement.expect("both answer");
    let agreement = found.agreement.expect("both answer the first call");
    assert_eq!((agreement.elements, agreement.beyond), (first.elements, 0));
}
