//! One message of the protocol: metadata and tensors as bytes, and what can be wrong with them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read, Write};

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, View};

use super::{MAX_SENTENCE, VERSION};
use crate::tensor::{DType, Poison, Tensor};

/// Why a message is none.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Its size is beyond what it may be; nothing of it was read.
    #[error("a message of {bytes} bytes, where at most {limit} are expected")]
    TooLong {
        /// What the size says.
        bytes: u64,
        /// What it may be.
        limit: u64,
    },
    /// The pipe.
    #[error("the pipe: {0}")]
    Io(#[from] io::Error),
    /// No safetensors.
    #[error("a message that is no safetensors: {0}")]
    Garbage(String),
    /// Text that is not there.
    #[error("the message '{}' lacks the text '{key}'", .message.escape_debug())]
    Missing {
        /// The message.
        message: String,
        /// The key of the metadata.
        key: &'static str,
    },
    /// Text that says nothing known.
    #[error("the text '{key}' of the message '{}' is not {expected}", .message.escape_debug())]
    BadText {
        /// The message.
        message: String,
        /// The key of the metadata.
        key: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// Another message than expected.
    #[error("a message '{}', expected {expected}", .message.escape_debug())]
    Unexpected {
        /// The message.
        message: String,
        /// What was expected.
        expected: &'static str,
    },
    /// Tensors that are not those of the case.
    #[error("tensor {name}: {problem}")]
    Tensor {
        /// Its name, escaped.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Bytes between two messages.
    #[error("bytes that nobody asked for")]
    Unasked,
    /// Another protocol.
    #[error("version {theirs} of the worker protocol, expected {VERSION}")]
    Version {
        /// The version.
        theirs: u32,
    },
}

/// A message to be sent.
#[derive(Debug)]
pub struct Message<'a> {
    metadata: HashMap<String, String>,
    tensors: Vec<(&'static str, Stored<'a>)>,
}

#[derive(Debug)]
struct Stored<'a> {
    tensor: &'a Tensor,
    shape: [usize; 3],
}

fn safetensors_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Bf16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::F32 => Dtype::F32,
    }
}

impl View for Stored<'_> {
    fn dtype(&self) -> Dtype {
        safetensors_dtype(self.tensor.dtype())
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.tensor.to_bytes())
    }

    fn data_len(&self) -> usize {
        self.tensor.memory().1
    }
}

impl<'a> Message<'a> {
    /// One of this name, without content.
    pub fn new(name: &str) -> Message<'a> {
        Message { metadata: HashMap::from([("message".into(), name.into())]), tensors: Vec::new() }
    }

    /// With a text.
    #[must_use]
    pub fn with(mut self, key: &str, text: String) -> Self {
        self.metadata.insert(key.into(), text);
        self
    }

    /// With a tensor.
    #[must_use]
    pub fn tensor(mut self, name: &'static str, tensor: &'a Tensor) -> Self {
        let shape = [tensor.rows, tensor.heads, tensor.dim];
        self.tensors.push((name, Stored { tensor, shape }));
        self
    }

    /// Its bytes, without the size before them.
    ///
    /// # Errors
    /// What the format cannot hold.
    pub fn encode(self) -> Result<Vec<u8>, ProtocolError> {
        safetensors::serialize(self.tensors, Some(self.metadata)).map_err(|e| garbage(&e))
    }
}

fn garbage(error: &SafeTensorError) -> ProtocolError {
    ProtocolError::Garbage(bounded(&error.to_string()))
}

/// Text of the other side, no longer than a reader wants it.
pub(super) fn bounded(text: &str) -> String {
    let mut end = MAX_SENTENCE.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == text.len() { text.to_string() } else { format!("{} ...", &text[..end]) }
}

/// Reads the bytes of a message; `None` where there is no further one.
///
/// # Errors
/// A size beyond `limit`, or whatever the pipe says.
pub fn read_frame(from: &mut impl Read, limit: u64) -> Result<Option<Vec<u8>>, ProtocolError> {
    let mut size = [0; 8];
    let mut got = 0;
    while got < size.len() {
        match from.read(&mut size[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let bytes = u64::from_le_bytes(size);
    if bytes > limit {
        return Err(ProtocolError::TooLong { bytes, limit });
    }
    // Grown as the bytes come, so that a size that lies costs nothing.
    let mut frame = Vec::new();
    if from.take(bytes).read_to_end(&mut frame)? as u64 != bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(Some(frame))
}

/// Writes a message with its size.
///
/// # Errors
/// Whatever the pipe says.
pub fn write_frame(to: &mut impl Write, message: Message) -> Result<(), ProtocolError> {
    let bytes = message.encode()?;
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(&bytes)?;
    Ok(to.flush()?)
}

/// A message that was read.
pub(super) struct Parsed<'a> {
    metadata: HashMap<String, String>,
    tensors: SafeTensors<'a>,
}

impl<'a> Parsed<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| garbage(&e))?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| garbage(&e))?;
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(Parsed { metadata, tensors })
    }

    /// What it calls itself; empty where it does not.
    pub(super) fn name(&self) -> &str {
        self.metadata.get("message").map_or("", String::as_str)
    }

    pub(super) fn expect(&self, name: &'static str) -> Result<(), ProtocolError> {
        if self.name() == name { self.no_tensors() } else { Err(self.unexpected(name)) }
    }

    pub(super) fn unexpected(&self, expected: &'static str) -> ProtocolError {
        ProtocolError::Unexpected { message: bounded(self.name()), expected }
    }

    /// A text that need not be there.
    pub(super) fn optional(&self, key: &'static str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.tensors.names().contains(&name)
    }

    pub(super) fn text(&self, key: &'static str) -> Result<&str, ProtocolError> {
        let missing = || ProtocolError::Missing { message: bounded(self.name()), key };
        self.metadata.get(key).map(String::as_str).ok_or_else(missing)
    }

    pub(super) fn sentence(&self, key: &'static str) -> Result<String, ProtocolError> {
        self.text(key).map(bounded)
    }

    pub(super) fn bad(&self, key: &'static str, expected: &'static str) -> ProtocolError {
        ProtocolError::BadText { message: bounded(self.name()), key, expected }
    }

    pub(super) fn no_tensors(&self) -> Result<(), ProtocolError> {
        self.only_tensors(&[])
    }

    /// Is there none beside these?
    pub(super) fn only_tensors(&self, names: &[&str]) -> Result<(), ProtocolError> {
        let stranger = self.tensors.names().into_iter().find(|name| !names.contains(name));
        stranger.map_or(Ok(()), |name| {
            Err(wrong(&bounded(name).escape_debug().to_string(), "it belongs to no such message".into()))
        })
    }

    /// The tensor of this name, which must be of this dtype and shape.
    pub(super) fn tensor(
        &self,
        name: &'static str,
        dtype: DType,
        shape: [usize; 3],
        poison: Poison,
    ) -> Result<Tensor, ProtocolError> {
        let view = self.tensors.tensor(name).map_err(|_| wrong(name, "it is missing".into()))?;
        let expected = safetensors_dtype(dtype);
        if view.dtype() != expected || view.shape() != shape {
            let (got, got_shape) = (view.dtype(), bounded(&format!("{:?}", view.shape())));
            return Err(wrong(name, format!("it is {got} {got_shape}, expected {expected} {shape:?}")));
        }
        let tensor = Tensor::from_bytes(dtype, shape, poison, view.data());
        tensor.ok_or_else(|| wrong(name, "its bytes are not those of its shape".into()))
    }
}

fn wrong(name: &str, problem: String) -> ProtocolError {
    ProtocolError::Tensor { name: name.to_string(), problem }
}
