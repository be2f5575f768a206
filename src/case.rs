//! A case: plain data, everything that decides the inputs and the question. Its text is the repro.
//!
//! The default of every dimension is its simplest value and is not printed, so a fault that depends
//! on a length alone prints as `[128]`. The text form is in [`notation`]; `docs/notation.md` has
//! the grammar.

pub mod limits;
pub mod mask;
pub mod notation;
mod parse;
pub mod partition;
pub mod recipe;
pub mod softmax;

pub use mask::{Align, Mask};
pub use notation::{Item, ParseError};
pub use partition::{Side, Span};
pub use recipe::{Base, Data, DeadFill, Dout};
pub use softmax::Sink;

use crate::tensor::DType;

/// Query and key/value heads. `q` is a multiple of `kv`; equal: MHA; `kv == 1`: MQA; else GQA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Heads {
    /// Query heads.
    pub q: u32,
    /// Key/value heads.
    pub kv: u32,
}

impl Heads {
    /// Query heads that share a key/value head.
    pub fn group(self) -> u32 {
        self.q / self.kv
    }
}

/// Head dims of the logits (q, k) and of the values (v, o, dO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dims {
    /// d_qk.
    pub qk: u32,
    /// d_v.
    pub v: u32,
}

/// One call of a backend: forward and backward over one packed batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Lengths and storage of q, O, dO, dQ and LSE.
    pub q: Side,
    /// Lengths and storage of k, v, dK and dV.
    pub kv: Side,
    /// Heads.
    pub heads: Heads,
    /// Head dims.
    pub dims: Dims,
    /// Storage dtype of all tensors but the LSE, which is f32.
    pub dtype: DType,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Softmax scale; `None` is `1/sqrt(d_qk)`.
    pub scale: Option<f64>,
    /// Cap of the logits: `cap tanh(S / cap)`; `None`: uncapped.
    pub softcap: Option<f64>,
    /// What the softmax's denominator has beside the keys.
    pub sink: Sink,
    /// What q, k and v hold.
    pub data: Data,
    /// What dO holds.
    pub dout: Dout,
    /// What dead rows of the inputs hold.
    pub dead: DeadFill,
    /// Data key of each sequence: its index unless sequences before it were dropped.
    pub keys: Vec<u32>,
    /// Data key of each key/value head, likewise.
    pub head_keys: Vec<u32>,
    /// Seed of the data.
    pub seed: u64,
}

impl Case {
    /// The case of these lengths, q and kv alike, and every other dimension at its default.
    pub fn new(lengths: Vec<u32>) -> Case {
        let keys = (0..lengths.len() as u32).collect();
        Case {
            q: Side::packed(lengths.clone()),
            kv: Side::packed(lengths),
            heads: Heads { q: 1, kv: 1 },
            dims: Dims { qk: 64, v: 64 },
            dtype: DType::Bf16,
            mask: Mask::Full,
            scale: None,
            softcap: None,
            sink: Sink::None,
            data: Data::default(),
            dout: Dout::default(),
            dead: DeadFill::default(),
            keys,
            head_keys: vec![0],
            seed: 0,
        }
    }

    /// How many sequences.
    pub fn sequences(&self) -> usize {
        self.q.lengths.len()
    }

    /// The softmax scale as a number.
    pub fn softmax_scale(&self) -> f64 {
        self.scale.unwrap_or(1.0 / f64::from(self.dims.qk).sqrt())
    }

    /// Visible (query, key) pairs of one head.
    pub fn pairs(&self) -> u64 {
        let lengths = self.q.lengths.iter().zip(&self.kv.lengths);
        lengths.map(|(&m, &n)| self.mask.pairs(m as usize, n as usize)).sum()
    }

    /// Multiply-adds of one product of all heads: what a run of the reference is proportional to.
    pub fn work(&self) -> u64 {
        let dim = u64::from(self.dims.qk.max(self.dims.v));
        let dense: u64 = (self.q.lengths.iter().zip(&self.kv.lengths))
            .map(|(&m, &n)| u64::from(m) * u64::from(n))
            .fold(0, u64::saturating_add);
        dense.saturating_mul(u64::from(self.heads.q)).saturating_mul(dim)
    }

    /// What a run of the reference and its bounds costs, in multiply-adds of one product: the work,
    /// and what each (sequence, kv head) costs however short it is.
    pub fn reference_work(&self) -> u64 {
        self.work().saturating_add(self.units().saturating_mul(limits::UNIT_WORK))
    }

    /// What the reference and its bounds take, in bytes: a value and a bound for each element of O and
    /// the LSE, and two of both for each of the gradients.
    pub fn reference_bytes(&self) -> u64 {
        let (qk, v) = (u64::from(self.dims.qk), u64::from(self.dims.v));
        let queries = self.q.tokens() * u64::from(self.heads.q) * (v + 1 + 2 * qk);
        let keys = self.kv.tokens() * u64::from(self.heads.kv) * 2 * (qk + v);
        16 * (queries + keys) + self.units() * limits::UNIT_BYTES
    }

    /// Pairs of a sequence that has any token and a kv head.
    fn units(&self) -> u64 {
        let lengths = self.q.lengths.iter().zip(&self.kv.lengths);
        let live = lengths.filter(|&(&m, &n)| m > 0 || n > 0).count() as u64;
        live * u64::from(self.heads.kv)
    }

    /// Checks every limit and every invariant.
    ///
    /// # Errors
    /// The first dimension that is out of its limits, as a sentence. The parser reports the same
    /// with the column.
    pub fn validate(&self) -> Result<(), Invalid> {
        let n = self.sequences();
        let counted = [
            (None, "kv lengths", self.kv.lengths.len(), n),
            (Some(Item::GapQ), "gap-q", self.q.gaps.len(), n),
            (Some(Item::GapKv), "gap-kv", self.kv.gaps.len(), n),
            (Some(Item::Keys), "keys", self.keys.len(), n),
            (Some(Item::HeadKeys), "head-keys", self.head_keys.len(), self.heads.kv as usize),
        ];
        for (item, what, got, want) in counted {
            if got != want {
                return Err(Invalid { item, message: format!("{what}: {got} entries, expected {want}") });
            }
        }
        at_most(None, "sequences", n as u64, limits::MAX_SEQUENCES)?;
        let sides = [("q", &self.q, Item::GapQ), ("kv", &self.kv, Item::GapKv)];
        for (name, side, gap) in sides {
            at_most(None, &format!("{name} tokens"), side.tokens(), limits::MAX_TOKENS)?;
            at_most(Some(gap), &format!("{name} storage rows"), side.rows(), limits::MAX_ROWS)?;
        }
        self.validate_heads_and_dims()?;
        let sequence_heads = n as u64 * u64::from(self.heads.q);
        let what = "pairs of a sequence and a head";
        at_most(Some(Item::Heads), what, sequence_heads, limits::MAX_SEQUENCE_HEADS)?;
        at_most(None, "bytes of all tensors together", self.bytes(), limits::MAX_BYTES)?;
        self.validate_numbers()
    }

    fn validate_numbers(&self) -> Result<(), Invalid> {
        let spread = match self.data.base {
            Base::Logits(spread) => spread,
            Base::Ones | Base::Dyadic | Base::Flat | Base::OneHot => 1.0,
        };
        let in_range = [
            (Item::Scale, "the softmax scale", self.scale.unwrap_or(1.0), limits::MAX_FACTOR),
            (Item::Data, "the spread of the logits", spread, 1e4),
            (Item::Data, "the offset of the logits", self.data.offset, 1e4),
            (Item::Data, "the range of the head scales", self.data.head_scale, 1e3),
            (Item::Dout, "the factor of dO", self.dout.scale, limits::MAX_FACTOR),
        ];
        for (item, what, x, max) in in_range {
            if x != 0.0 && !(limits::MIN_FACTOR..=max).contains(&x.abs()) {
                let message =
                    format!("{what} is {x:e}: its size must be 0, or {:e} to {max:e}", limits::MIN_FACTOR);
                return Err(Invalid { item: Some(item), message });
            }
        }
        if let Some(cap) = self.softcap
            && !(limits::MIN_SOFTCAP..=limits::MAX_SOFTCAP).contains(&cap)
        {
            let (least, most) = (limits::MIN_SOFTCAP, limits::MAX_SOFTCAP);
            let message = format!("softcap is {cap}: it must be {least} to {most}");
            return Err(Invalid { item: Some(Item::Softcap), message });
        }
        if spread < 0.0 || self.data.head_scale < 1.0 {
            let message = "a spread is at least 0, a range of head scales at least 1".to_string();
            return Err(Invalid { item: Some(Item::Data), message });
        }
        Ok(())
    }

    fn validate_heads_and_dims(&self) -> Result<(), Invalid> {
        let Heads { q, kv } = self.heads;
        if q == 0 || kv == 0 || q % kv != 0 {
            let heads = if q == kv { format!("h{q}") } else { format!("h{q}/{kv}") };
            let message = format!("{heads}: at least 1 head, and the query heads a multiple of the kv heads");
            return Err(Invalid { item: Some(Item::Heads), message });
        }
        at_most(Some(Item::Heads), "query heads", u64::from(q), limits::MAX_HEADS)?;
        for (name, dim) in [("d_qk", self.dims.qk), ("d_v", self.dims.v)] {
            if dim == 0 || u64::from(dim) % limits::HEAD_DIM_STEP != 0 {
                let message = format!("{name} is {dim}: it must be a multiple of 8, at least 8");
                return Err(Invalid { item: Some(Item::Dims), message });
            }
            at_most(Some(Item::Dims), name, u64::from(dim), limits::MAX_HEAD_DIM)?;
        }
        Ok(())
    }

    /// Bytes of all tensors of a call.
    pub fn bytes(&self) -> u64 {
        let (qk, v) = (u64::from(self.dims.qk), u64::from(self.dims.v));
        let q_side = u64::from(self.heads.q) * (2 * 2 * (qk + v) + 4);
        let kv_side = u64::from(self.heads.kv) * 2 * 2 * (qk + v);
        let q = self.q.rows().saturating_mul(q_side);
        q.saturating_add(self.kv.rows().saturating_mul(kv_side))
    }
}

fn at_most(item: Option<Item>, what: &str, got: u64, limit: u64) -> Result<(), Invalid> {
    if got > limit {
        return Err(Invalid { item, message: format!("{got} {what}, the limit is {limit}") });
    }
    Ok(())
}

/// A case that no text could describe or that is beyond the limits; the sentence says which.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// The dimension at fault, where it is one that prints as an item.
    pub item: Option<Item>,
    /// What is wrong, with the limit.
    pub message: String,
}

/// One or more calls, run one after another in one process: `[1,2] h2/1; [0,3] h2/1`.
///
/// State (a workspace, a compile cache) lives inside a scenario only.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The calls in order; at least one.
    pub calls: Vec<Case>,
}

impl From<Case> for Scenario {
    fn from(case: Case) -> Self {
        Scenario { calls: vec![case] }
    }
}

impl Scenario {
    /// Checks every call, and how many there are.
    ///
    /// # Errors
    /// As [`Case::validate`].
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.calls.is_empty() {
            return Err(Invalid { item: None, message: "a scenario without a call".into() });
        }
        at_most(None, "calls", self.calls.len() as u64, limits::MAX_CALLS as u64)?;
        self.calls.iter().try_for_each(Case::validate)
    }
}
