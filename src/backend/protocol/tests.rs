//! Messages come back as they went, and everything else is an error that says what is wrong.

use super::*;
use crate::backend::{Backend, Choice};

const CASE: &str = "[5,0,7]x[3,4,9] h4/2 d40/8 f16 causal gap-q(1,0,2) tail-kv=3 dead=nan seed=7";

fn inputs() -> Inputs {
    Inputs::new(&CASE.parse().unwrap())
}

fn answer(inputs: &Inputs) -> Answer {
    let mut model = Choice::find(Some("model"), None).unwrap().open_here().unwrap();
    let mut answer = Backend::run(&mut *model, Run::PLAIN, inputs).unwrap();
    answer.races = vec!["a \"race\"\n".to_string()];
    answer
}

#[test]
fn a_request_to_run_comes_back_to_the_bit() {
    let inputs = inputs();
    let run = Run { poison: Poison::Finite, races: true, ..Run::PLAIN };
    let bytes = Request::run(run, &inputs).encode().unwrap();
    assert!((bytes.len() as u64) < MAX_REQUEST);
    let Request::Run(got_run, got) = Request::decode(&bytes).unwrap() else { panic!("another request") };
    assert_eq!(got_run, run);
    assert_eq!(got.case, inputs.case);
    for (a, b) in [(&got.q, &inputs.q), (&got.k, &inputs.k), (&got.v, &inputs.v), (&got.dout, &inputs.dout)] {
        assert_eq!(a.to_bytes(), b.to_bytes());
    }
}

#[test]
fn an_answer_comes_back_to_the_bit_with_its_guards_and_races() {
    let inputs = inputs();
    let mut answer = answer(&inputs);
    assert!(answer.outputs.get_mut(Output::Dk).break_guard(-2));
    let bytes = Reply::Outputs(Box::new(answer.clone())).message().encode().unwrap();
    assert!(bytes.len() as u64 <= max_answer(&inputs.case));
    let Reply::Outputs(got) = Reply::decode(&bytes, Run::PLAIN, &inputs.case).unwrap() else { panic!() };
    for output in Output::ALL {
        assert_eq!(got.outputs.get(output).to_bytes(), answer.outputs.get(output).to_bytes());
        assert_eq!(got.outputs.get(output).broken_guard(), answer.outputs.get(output).broken_guard());
    }
    assert_eq!(got.races, answer.races);
}

#[test]
fn other_answers_come_back_as_they_went() {
    let case = CASE.parse().unwrap();
    let back = |reply: Reply| {
        let bytes = reply.message().encode().unwrap();
        format!("{:?}", Reply::decode(&bytes, Run::PLAIN, &case).unwrap())
    };
    assert_eq!(back(Reply::Refused("no".into())), "Refused(\"no\")");
    assert_eq!(back(Reply::Failure("we".into())), "Failure(\"we\")");
    for kind in [Failure::Hang, Failure::Error, Failure::DeviceFault] {
        let fault = back(Reply::Fault { kind, detail: "long".into() });
        assert_eq!(fault, format!("Fault {{ kind: {kind:?}, detail: \"long\" }}"));
    }
    assert_eq!(back(Reply::Refused("é".repeat(9000))).len(), "Refused(\" ...\")".len() + 4096);
}

#[test]
fn hello_comes_back_and_another_version_is_told() {
    let hello = Hello::ours("emulator");
    assert_eq!(Hello::decode(&hello.message().encode().unwrap()).unwrap(), hello);
    let newer = Hello { version: 2, ..hello }.message().encode().unwrap();
    let error = Hello::decode(&newer).unwrap_err().to_string();
    assert_eq!(error, "version 2 of the worker protocol, expected 1");
}

/// What is wrong with an answer that is `message`.
fn error(message: Message) -> String {
    let case = CASE.parse().unwrap();
    Reply::decode(&message.encode().unwrap(), Run::PLAIN, &case).unwrap_err().to_string()
}

#[test]
fn wrong_answers_say_what_is_wrong() {
    let inputs = inputs();
    let answer = answer(&inputs);
    let outputs = || outputs_message(&answer);
    let without = || Message::new("outputs").with("guards", "{}".into()).with("races", "[]".into());
    assert_eq!(error(without()), "tensor o: it is missing");
    let other = without().tensor("o", &inputs.k);
    assert_eq!(error(other), "tensor o: it is F16 [19, 2, 40], expected F16 [15, 4, 8]");
    assert_eq!(error(outputs().tensor("x", &inputs.k)), "tensor x: it belongs to no such message");
    let guards = "the text 'guards' of the message 'outputs' is not";
    assert!(error(outputs().with("guards", "7".into())).starts_with(guards));
    assert!(error(outputs().with("guards", "{\"dq\": 3}".into())).starts_with(guards));
    assert!(error(outputs().with("guards", "{\"q\": -1}".into())).starts_with(guards));
    assert!(error(outputs().with("races", "{}".into())).contains("JSON list of sentences"));
    assert_eq!(error(Message::new("fault")), "the message 'fault' lacks the text 'kind'");
    assert!(error(Message::new("no\n")).starts_with("a message 'no\\n', expected outputs"));
}

#[test]
fn wrong_requests_and_garbage_are_errors() {
    let inputs = inputs();
    let run = || Request::run(Run::PLAIN, &inputs);
    let bad = [
        run().with("case", "[1*4000000000]".into()),
        run().with("case", "[4]; [5]".into()),
        run().with("poison", "all".into()),
        run().with("races", "1".into()),
        run().with("case", CASE.replace("f16", "").replace("  ", " ")),
        run().tensor("o", &inputs.k),
        Message::new("outputs"),
        Message::new("reset").tensor("q", &inputs.q),
    ];
    for message in bad {
        assert!(Request::decode(&message.encode().unwrap()).is_err());
    }
    let whole = run().encode().unwrap();
    for cut in [0, 7, 8, 100, whole.len() - 1] {
        assert!(matches!(Request::decode(&whole[..cut]), Err(ProtocolError::Garbage(_))), "cut at {cut}");
    }
}

#[test]
fn frames_are_bounded_and_whole() {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, Message::new("reset")).unwrap();
    let mut twice = bytes.repeat(2);
    let mut from = &twice[..];
    assert!(read_frame(&mut from, 100).unwrap().is_some() && read_frame(&mut from, 100).unwrap().is_some());
    assert!(read_frame(&mut from, 100).unwrap().is_none());
    for cut in [3, 8, bytes.len() - 1] {
        assert!(matches!(read_frame(&mut &bytes[..cut], 100), Err(ProtocolError::Io(_))));
    }
    twice[7] = 1;
    assert!(matches!(read_frame(&mut &twice[..], 100), Err(ProtocolError::TooLong { limit: 100, .. })));
}
