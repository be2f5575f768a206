//! The worker protocol, version 1: how a backend in a child process is asked, in whatever language
//! the child is written.
//!
//! The child reads requests from descriptor 3 and writes answers to descriptor 4; its standard input
//! is `/dev/null`, and its standard output goes where its standard error goes, so that no library's
//! prints tear a message. A message is its size as a little-endian u64, then as many bytes of
//! [safetensors](https://github.com/huggingface/safetensors). The metadata key `message` names it;
//! other keys, all text, and the tensors are its content:
//!
//! | request | metadata | tensors | answered by |
//! |---|---|---|---|
//! | `hello` | `version`, `backend`, `about` | | `hello`, alike: the worker's library and device in `about`; and what it promises |
//! | `reset` | | | nothing: forget all state of earlier calls |
//! | `run` | `case`, `plan`, `poison` (`nan`, `finite`), `races` (`true`, `false`) | `q k v do sink` | one of the following |
//! | `bye` | | | `bye`, and the worker ends; so it does when its requests end |
//!
//! | answer to `run` | metadata | tensors |
//! |---|---|---|
//! | `outputs` | `guards`: JSON, name to index of the first broken guard element; `races`: JSON list of sentences | `o lse dq dk dv dsink` |
//! | `refused` | `reason`: the backend does not do such cases | |
//! | `fault` | `kind` (`error`, `hang`, `device-fault`), `detail`: the backend failed, the worker lives; after `device-fault` it is replaced | |
//! | `failure` | `detail`: the worker itself is at fault, not the backend | |
//!
//! Tensors are `[rows, heads, columns]` in storage, dead rows included, in the case's dtype; `lse` is
//! F32 with one column. Outputs start as the poison of [`Poison::pattern`], so that whoever asked
//! sees to the bit what nobody wrote. `poison` and `races` are those of [`Run`].
//!
//! `docs/protocol.md` has all of it for whoever writes a worker.
//!
//! Neither side trusts the other: a message is refused by its size before anything is allocated for
//! it, and its tensors are those of the case or it is a [`ProtocolError`].

use std::collections::BTreeMap;

use super::{Answer, Failure, Run};
use crate::case::{Case, limits};
use crate::contract::Contract;
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};
use crate::tensor::{DType, Poison, Tensor};

mod message;
mod plan;
mod promises;

pub use message::{Message, ProtocolError, read_frame, write_frame};
pub use plan::Plan;
pub use promises::LEAST;

/// Version of the protocol that this program speaks.
pub const VERSION: u32 = 1;
/// Descriptor that a worker reads requests from.
pub const REQUESTS: i32 = 3;
/// Descriptor that a worker writes answers to.
pub const ANSWERS: i32 = 4;

/// Most bytes of a message beside its tensors and its case.
const MAX_TEXT: u64 = 1 << 20;
/// Longest sentence that is kept of what a worker says, in bytes.
const MAX_SENTENCE: usize = 4096;
/// Most races that are kept of an answer.
const MAX_RACES: usize = 256;

/// Most bytes of any request: the tensors and the text of the largest case.
pub const MAX_REQUEST: u64 = limits::MAX_BYTES + 2 * limits::MAX_TEXT as u64 + MAX_TEXT;
/// Most bytes of an answer without tensors.
pub const MAX_SHORT_ANSWER: u64 = MAX_TEXT;

/// Most bytes of an answer to `case`.
pub fn max_answer(case: &Case) -> u64 {
    let bytes = |output: Output| {
        let width = if output.dtype(case) == DType::F32 { 4 } else { 2 };
        output.shape(case).into_iter().fold(width, |bytes, n| bytes * n as u64)
    };
    Output::ALL.into_iter().map(bytes).sum::<u64>() + MAX_TEXT
}

/// What each side says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of the protocol.
    pub version: u32,
    /// Name of the backend.
    pub backend: String,
    /// Versions of the library and of the device, for a reader.
    pub about: String,
    /// What a worker promises of its backend; of those that this program serves its own table says it.
    pub contract: Contract,
}

impl Hello {
    /// As this program says it.
    pub fn ours(backend: &str) -> Hello {
        let about = concat!("thd-fuzz ", env!("CARGO_PKG_VERSION")).to_string();
        Hello { version: VERSION, backend: backend.to_string(), about, contract: promises::LEAST }
    }

    /// As a message.
    pub fn message(&self) -> Message<'static> {
        let message = Message::new("hello").with("version", self.version.to_string());
        message.with("backend", self.backend.clone()).with("about", self.about.clone())
    }

    /// From a message; of another version only the version is looked at.
    ///
    /// # Errors
    /// Whatever else it is.
    pub fn decode(bytes: &[u8]) -> Result<Hello, ProtocolError> {
        let parsed = message::Parsed::new(bytes)?;
        parsed.expect("hello")?;
        let version = parsed.text("version")?;
        let version = version.parse().map_err(|_| parsed.bad("version", "a number"))?;
        if version != VERSION {
            return Err(ProtocolError::Version { theirs: version });
        }
        let (backend, about) = (parsed.sentence("backend")?, parsed.sentence("about")?);
        Ok(Hello { version, backend, about, contract: promises::read(&parsed)? })
    }
}

/// What a worker is asked.
#[derive(Debug)]
pub enum Request {
    /// Who are you?
    Hello(Hello),
    /// Forget all state.
    Reset,
    /// Run this.
    Run(Run, Box<Inputs>),
    /// End.
    Bye,
}

impl Request {
    /// A request to run, of inputs that stay with the caller.
    pub fn run(run: Run, inputs: &Inputs) -> Message<'_> {
        let poison = if run.poison == Poison::Nan { "nan" } else { "finite" };
        let message = Message::new("run").with("case", inputs.case.to_string());
        let message = message.with("plan", Plan::of(&inputs.case).json());
        let message = message.with("poison", poison.to_string()).with("races", run.races.to_string());
        let Inputs { q, k, v, dout, sink, .. } = inputs;
        let tensors = [("q", q), ("k", k), ("v", v), ("do", dout), ("sink", sink)];
        tensors.into_iter().fold(message, |message, (name, tensor)| message.tensor(name, tensor))
    }

    /// Reads a request.
    ///
    /// # Errors
    /// Anything that is not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Request, ProtocolError> {
        let parsed = message::Parsed::new(bytes)?;
        match parsed.name() {
            "hello" => Ok(Request::Hello(Hello::decode(bytes)?)),
            "reset" => parsed.no_tensors().map(|()| Request::Reset),
            "bye" => parsed.no_tensors().map(|()| Request::Bye),
            "run" => decode_run(&parsed),
            _ => Err(parsed.unexpected("hello, reset, run or bye")),
        }
    }
}

fn decode_run(parsed: &message::Parsed) -> Result<Request, ProtocolError> {
    // The parser holds every limit.
    let case: Case = parsed.text("case")?.parse().map_err(|_| parsed.bad("case", "one valid case"))?;
    let poison = match parsed.text("poison")? {
        "nan" => Poison::Nan,
        "finite" => Poison::Finite,
        _ => return Err(parsed.bad("poison", "nan or finite")),
    };
    let races = parsed.text("races")?.parse().map_err(|_| parsed.bad("races", "true or false"))?;
    let run = Run { poison, races, ..Run::PLAIN };
    parsed.only_tensors(&["q", "k", "v", "do", "sink"])?;
    let read = |name: &'static str, like: Output, columns: u32| {
        let [rows, ..] = like.shape(&case);
        let heads = if like == Output::O { case.heads.q } else { case.heads.kv };
        let shape = [rows, heads as usize, columns as usize];
        parsed.tensor(name, case.dtype, shape, Poison::Nan)
    };
    let (d, e) = (case.dims.qk, case.dims.v);
    let (q, k) = (read("q", Output::O, d)?, read("k", Output::Dk, d)?);
    let (v, dout) = (read("v", Output::Dv, e)?, read("do", Output::O, e)?);
    let sink = parsed.tensor("sink", DType::F32, Inputs::sink_shape(&case), Poison::Nan)?;
    let (q_spans, kv_spans) = (case.q.spans(), case.kv.spans());
    Ok(Request::Run(run, Box::new(Inputs { case, q_spans, kv_spans, q, k, v, dout, sink })))
}

/// How a worker answers a request to run.
#[derive(Debug)]
pub enum Reply {
    /// Outputs.
    Outputs(Box<Answer>),
    /// The backend does not do such cases.
    Refused(String),
    /// The backend failed.
    Fault {
        /// How; a crash nobody tells.
        kind: Failure,
        /// What it said.
        detail: String,
    },
    /// The worker is at fault.
    Failure(String),
}

/// How a worker names the failures that it outlives.
const KINDS: [(&str, Failure); 3] =
    [("error", Failure::Error), ("hang", Failure::Hang), ("device-fault", Failure::DeviceFault)];

const NAMES: [&str; 6] = ["o", "lse", "dq", "dk", "dv", "dsink"];

impl Reply {
    /// As a message.
    pub fn message(&self) -> Message<'_> {
        let text = |name, key, text: &String| Message::new(name).with(key, text.clone());
        match self {
            Reply::Outputs(answer) => outputs_message(answer),
            Reply::Refused(reason) => text("refused", "reason", reason),
            Reply::Failure(detail) => text("failure", "detail", detail),
            Reply::Fault { kind, detail } => {
                let named = KINDS.iter().find(|(_, failure)| failure == kind);
                let kind = named.map_or("error", |(name, _)| name);
                text("fault", "detail", detail).with("kind", kind.to_string())
            }
        }
    }

    /// Reads an answer to `case`, run as `run` says.
    ///
    /// # Errors
    /// Anything that is not exactly one.
    pub fn decode(bytes: &[u8], run: Run, case: &Case) -> Result<Reply, ProtocolError> {
        let parsed = message::Parsed::new(bytes)?;
        match parsed.name() {
            "outputs" => decode_outputs(&parsed, run, case),
            "refused" => parsed.sentence("reason").map(Reply::Refused),
            "failure" => parsed.sentence("detail").map(Reply::Failure),
            "fault" => {
                let name = parsed.text("kind")?;
                let known = KINDS.iter().find(|(known, _)| *known == name);
                let (_, kind) = known.ok_or_else(|| parsed.bad("kind", "error, hang or device-fault"))?;
                Ok(Reply::Fault { kind: *kind, detail: parsed.sentence("detail")? })
            }
            _ => Err(parsed.unexpected("outputs, refused, fault or failure")),
        }
    }
}

fn outputs_message(answer: &Answer) -> Message<'_> {
    let tensors = Output::ALL.map(|output| (NAMES[output as usize], answer.outputs.get(output)));
    let broken = tensors.iter().filter_map(|(name, tensor)| Some((*name, tensor.broken_guard()?)));
    let guards: BTreeMap<&str, isize> = broken.collect();
    let json = "text and numbers have a JSON form";
    let message = Message::new("outputs")
        .with("guards", serde_json::to_string(&guards).expect(json))
        .with("races", serde_json::to_string(&answer.races).expect(json));
    tensors.into_iter().fold(message, |message, (name, tensor)| message.tensor(name, tensor))
}

fn decode_outputs(parsed: &message::Parsed, run: Run, case: &Case) -> Result<Reply, ProtocolError> {
    parsed.only_tensors(&NAMES)?;
    let read = |output: Output| -> Result<Tensor, ProtocolError> {
        parsed.tensor(NAMES[output as usize], output.dtype(case), output.shape(case), run.poison)
    };
    let mut outputs = Outputs {
        o: read(Output::O)?,
        lse: read(Output::Lse)?,
        dq: read(Output::Dq)?,
        dk: read(Output::Dk)?,
        dv: read(Output::Dv)?,
        // What has no element need not be sent.
        dsink: match Output::Dsink.is_of(case) || parsed.has_tensor("dsink") {
            true => read(Output::Dsink)?,
            false => Outputs::poisoned(case, run.poison).dsink,
        },
    };
    let guards: BTreeMap<String, isize> = serde_json::from_str(parsed.optional("guards").unwrap_or("{}"))
        .map_err(|_| parsed.bad("guards", "a JSON object of numbers"))?;
    for (name, index) in guards {
        let output = Output::ALL.into_iter().find(|&output| NAMES[output as usize] == name);
        let broken = output.is_some_and(|output| outputs.get_mut(output).break_guard(index));
        if !broken {
            return Err(parsed.bad("guards", "names of outputs, with indices in their guards"));
        }
    }
    let races: Vec<String> = serde_json::from_str(parsed.optional("races").unwrap_or("[]"))
        .map_err(|_| parsed.bad("races", "a JSON list of sentences"))?;
    let races = races.into_iter().take(MAX_RACES).map(|race| message::bounded(&race)).collect();
    Ok(Reply::Outputs(Box::new(Answer { outputs, races })))
}

#[cfg(test)]
mod tests;
