//! The text form of a case: printing, and the error of reading. Reading itself is `parse`.
//!
//! `Display` prints what differs from the default, in one order; `FromStr` takes any order. The
//! grammar is in `docs/notation.md`.

use std::fmt;

use super::{Align, Base, Case, Data, DeadFill, Dout, Mask, Scenario, Sink};
use crate::tensor::DType;

/// Equal neighbours from this many on print as `length*count`.
const RUN_FROM: usize = 4;

/// A text that is not a case: where, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct ParseError {
    /// 1-based column, in characters.
    pub column: usize,
    /// What was expected, or which limit is passed.
    pub message: String,
}

/// One dimension of a case as it prints; shrinking counts and orders by these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // each is the item of the notation by the same name
pub enum Item {
    Heads,
    Dims,
    DType,
    Mask,
    Scale,
    Softcap,
    Sink,
    GapQ,
    GapKv,
    LeadQ,
    LeadKv,
    TailQ,
    TailKv,
    Data,
    Dout,
    Dead,
    Keys,
    HeadKeys,
    Seed,
}

impl Item {
    /// Every item, in the order of printing.
    pub const ALL: [Item; 19] = [
        Item::Heads,
        Item::Dims,
        Item::DType,
        Item::Mask,
        Item::Scale,
        Item::Softcap,
        Item::Sink,
        Item::GapQ,
        Item::GapKv,
        Item::LeadQ,
        Item::LeadKv,
        Item::TailQ,
        Item::TailKv,
        Item::Data,
        Item::Dout,
        Item::Dead,
        Item::Keys,
        Item::HeadKeys,
        Item::Seed,
    ];

    /// The item's text in `case`, or `None` where the case has the default.
    pub fn text(self, case: &Case) -> Option<String> {
        let default_keys = |keys: &[u32]| keys.iter().enumerate().all(|(i, &k)| k as usize == i);
        let gap = |name: &str, gaps: &[u32]| {
            gaps.iter().any(|&g| g != 0).then(|| format!("{name}({})", runs(gaps)))
        };
        let rows = |name: &str, n: u32| (n != 0).then(|| format!("{name}={n}"));
        match self {
            Item::Heads => pair("h", case.heads.q, case.heads.kv, 1),
            Item::Dims => pair("d", case.dims.qk, case.dims.v, 64),
            Item::DType => (case.dtype != DType::Bf16).then(|| case.dtype.name().to_string()),
            Item::Mask => mask(case.mask),
            Item::Scale => case.scale.map(|scale| format!("scale={scale}")),
            Item::Softcap => case.softcap.map(|cap| format!("softcap={cap}")),
            Item::Sink => (case.sink != Sink::None).then(|| format!("sink={}", case.sink.name())),
            Item::GapQ => gap("gap-q", &case.q.gaps),
            Item::GapKv => gap("gap-kv", &case.kv.gaps),
            Item::LeadQ => rows("lead-q", case.q.lead),
            Item::LeadKv => rows("lead-kv", case.kv.lead),
            Item::TailQ => rows("tail-q", case.q.tail),
            Item::TailKv => rows("tail-kv", case.kv.tail),
            Item::Data => data(&case.data),
            Item::Dout => dout(&case.dout),
            Item::Dead => match case.dead {
                DeadFill::Zero => None,
                DeadFill::Big => Some("dead=big".into()),
                DeadFill::Nan => Some("dead=nan".into()),
            },
            Item::Keys => (!default_keys(&case.keys)).then(|| format!("keys={}", runs(&case.keys))),
            Item::HeadKeys => {
                (!default_keys(&case.head_keys)).then(|| format!("head-keys={}", runs(&case.head_keys)))
            }
            Item::Seed => (case.seed != 0).then(|| format!("seed={}", case.seed)),
        }
    }
}

/// `h8`, `h8/2`; nothing where both are the default.
fn pair(name: &str, a: u32, b: u32, default: u32) -> Option<String> {
    match (a == b, a == default) {
        (true, true) => None,
        (true, false) => Some(format!("{name}{a}")),
        (false, _) => Some(format!("{name}{a}/{b}")),
    }
}

fn mask(mask: Mask) -> Option<String> {
    let suffix = |align| if align == Align::BottomRight { "-br" } else { "" };
    let bound = |b: Option<i64>| b.map_or("*".to_string(), |b| b.to_string());
    match mask {
        Mask::Full => None,
        Mask::Causal(align) => Some(format!("causal{}", suffix(align))),
        Mask::Window { left, right, align } => {
            Some(format!("window{}({},{})", suffix(align), bound(left), bound(right)))
        }
    }
}

fn data(data: &Data) -> Option<String> {
    let mut terms = Vec::new();
    match data.base {
        base if base == Data::default().base => {}
        Base::Logits(spread) => terms.push(format!("logits({spread})")),
        Base::Ones => terms.push("ones".into()),
        Base::Dyadic => terms.push("dyadic".into()),
        Base::Flat => terms.push("flat".into()),
        Base::OneHot => terms.push("one-hot".into()),
    }
    if data.offset != 0.0 {
        terms.push(format!("offset({})", data.offset));
    }
    if data.head_scale != 1.0 {
        terms.push(format!("head-scale({})", data.head_scale));
    }
    (!terms.is_empty()).then(|| format!("data={}", terms.join("+")))
}

fn dout(dout: &Dout) -> Option<String> {
    let mut terms = Vec::new();
    if dout.ones {
        terms.push("ones".to_string());
    }
    if let Some(row) = dout.row {
        terms.push(format!("row({row})"));
    }
    if dout.scale != 1.0 {
        terms.push(format!("scale({})", dout.scale));
    }
    (!terms.is_empty()).then(|| format!("do={}", terms.join("+")))
}

/// `2,600*8`: a list with runs of equal values folded.
fn runs(values: &[u32]) -> String {
    let mut parts = Vec::new();
    for run in values.chunk_by(|a, b| a == b) {
        if run.len() >= RUN_FROM {
            parts.push(format!("{}*{}", run[0], run.len()));
        } else {
            parts.extend(run.iter().map(u32::to_string));
        }
    }
    parts.join(",")
}

impl Case {
    /// How many items print after the lengths, `x[..]`, `/kv` and `/d_v` counted one each.
    pub fn printed_items(&self) -> usize {
        let items = Item::ALL.iter().filter(|item| item.text(self).is_some()).count();
        let extra =
            [self.q.lengths != self.kv.lengths, self.heads.q != self.heads.kv, self.dims.qk != self.dims.v];
        items + extra.iter().filter(|&&x| x).count()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", runs(&self.q.lengths))?;
        if self.q.lengths != self.kv.lengths {
            write!(f, "x[{}]", runs(&self.kv.lengths))?;
        }
        Item::ALL.iter().filter_map(|item| item.text(self)).try_for_each(|text| write!(f, " {text}"))
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, call) in self.calls.iter().enumerate() {
            write!(f, "{}{call}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
