//! The other end: a backend of this program, served to whoever started it as a worker.

use std::any::Any;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::backend::protocol::{self, Hello, Message, ProtocolError, Reply, Request};
use crate::backend::{Backend, Run, RunError};
use crate::inputs::Inputs;

/// Answers requests until they end.
///
/// # Errors
/// Requests that are none: then whoever asks is at fault, and nobody is left to tell but a person.
pub fn serve(
    name: &str,
    backend: &mut dyn Backend,
    mut requests: impl Read,
    mut answers: impl Write,
) -> Result<(), ProtocolError> {
    while let Some(bytes) = protocol::read_frame(&mut requests, protocol::MAX_REQUEST)? {
        let request = match Request::decode(&bytes) {
            // Who speaks another version finds ours in the answer.
            Err(ProtocolError::Version { .. }) => Request::Hello(Hello::ours(name)),
            request => request?,
        };
        drop(bytes);
        match request {
            Request::Hello(_) => protocol::write_frame(&mut answers, hello(name, backend).message())?,
            Request::Reset => backend.reset(),
            Request::Run(run, inputs) => {
                let reply = answer(backend, run, &inputs);
                protocol::write_frame(&mut answers, reply.message())?;
            }
            Request::Bye => return protocol::write_frame(&mut answers, Message::new("bye")),
        }
    }
    Ok(())
}

fn hello(name: &str, backend: &dyn Backend) -> Hello {
    let mut hello = Hello::ours(name);
    let about = backend.about();
    if !about.is_empty() {
        hello.about.push_str(&format!("; {about}"));
    }
    hello
}

fn answer(backend: &mut dyn Backend, run: Run, inputs: &Inputs) -> Reply {
    match catch_unwind(AssertUnwindSafe(|| backend.run(run, inputs))) {
        Ok(Ok(answer)) => Reply::Outputs(Box::new(answer)),
        Ok(Err(RunError::Refused(reason))) => Reply::Refused(reason),
        Ok(Err(RunError::Harness(detail))) => Reply::Failure(detail),
        Ok(Err(RunError::Fault { kind, detail })) => Reply::Fault { kind, detail },
        Err(panic) => Reply::Failure(format!("a panic: {}", text(&*panic))),
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    panic.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Answer, Support};
    use crate::case::Case;

    struct Panicking;

    impl Backend for Panicking {
        fn supports(&self, _: &Case) -> Support {
            Support::Yes
        }

        fn reset(&mut self) {}

        fn run(&mut self, _: Run, inputs: &Inputs) -> Result<Answer, RunError> {
            panic!("at {}", inputs.case)
        }
    }

    #[test]
    fn a_panic_is_a_failure_and_the_worker_goes_on() {
        let case: Case = "[3]".parse().unwrap();
        let inputs = Inputs::new(&case);
        let mut requests = Vec::new();
        for message in [Hello::ours("x").message(), Request::run(Run::PLAIN, &inputs), Message::new("bye")] {
            protocol::write_frame(&mut requests, message).unwrap();
        }
        let mut answers = Vec::new();
        serve("x", &mut Panicking, &requests[..], &mut answers).unwrap();
        let mut from = &answers[..];
        let mut next = || protocol::read_frame(&mut from, protocol::MAX_SHORT_ANSWER).unwrap();
        assert_eq!(Hello::decode(&next().unwrap()).unwrap(), Hello::ours("x"));
        let failure = Reply::decode(&next().unwrap(), Run::PLAIN, &case).unwrap();
        assert!(matches!(failure, Reply::Failure(detail) if detail == "a panic: at [3]"));
        assert!(next().is_some() && next().is_none());
    }
}
