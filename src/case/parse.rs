//! Reads the notation: `docs/notation.md` is the grammar, this file is its only reader.
//!
//! Every limit on counts is checked on the runs as written, before a run is expanded.

use std::str::FromStr;

use winnow::ascii::multispace0;
use winnow::combinator::{alt, opt, separated};
use winnow::error::ErrMode;
use winnow::prelude::*;
use winnow::stream::{LocatingSlice, Location, Stream};
use winnow::token::take_while;

use super::notation::Item;
use super::{Align, Base, Case, Data, DeadFill, Dims, Dout, Heads, Mask, ParseError, Scenario, Side, Sink};
use super::{Invalid, limits};
use crate::tensor::DType;

mod tokens;

use tokens::{Fault, Input, Parsed, argument, expect, fail, fail_at, list, real, uint, uint32, unexpected};

/// `[4,4]`: the lengths of one side.
fn lengths(input: &mut Input<'_>) -> Parsed<Vec<u32>> {
    let start = input.checkpoint();
    expect(input, '[', "'[' and a list of sequence lengths")?;
    let empty: Option<char> = opt(']').parse_next(input)?;
    if empty.is_some() {
        return Ok(Vec::new());
    }
    let values = list(input, "a sequence length", limits::MAX_TOKENS)?;
    expect(input, ']', "',' or ']'")?;
    let tokens: u64 = values.iter().map(|&n| u64::from(n)).sum();
    if tokens > limits::MAX_TOKENS {
        let message = format!("{tokens} tokens, the limit is {}", limits::MAX_TOKENS);
        return fail_at(input, &start, message);
    }
    Ok(values)
}

/// `(0,3)` or `=3,0` entries, as many as there are `n` of `what`.
fn counted(input: &mut Input<'_>, what: &str, max: u64, n: usize, of: &str) -> Parsed<Vec<u32>> {
    let start = input.checkpoint();
    let values = list(input, what, max)?;
    if values.len() != n {
        return fail_at(input, &start, format!("{} entries for {n} {of}", values.len()));
    }
    Ok(values)
}

fn bound(input: &mut Input<'_>) -> Parsed<Option<i64>> {
    let unbounded: Option<char> = opt('*').parse_next(input)?;
    if unbounded.is_some() {
        return Ok(None);
    }
    let negative: Option<char> = opt('-').parse_next(input)?;
    let n = uint(input, "a window bound ('*' for none)", limits::MAX_TOKENS)? as i64;
    Ok(Some(if negative.is_some() { -n } else { n }))
}

fn window(input: &mut Input<'_>, align: Align) -> Parsed<Mask> {
    expect(input, '(', "'('")?;
    let left = bound(input)?;
    expect(input, ',', "','")?;
    let right = bound(input)?;
    expect(input, ')', "')'")?;
    Ok(Mask::Window { left, right, align })
}

fn name<'a>(input: &mut Input<'a>, what: &str) -> Parsed<&'a str> {
    expect(input, take_while(1.., |c: char| c.is_ascii_lowercase() || c == '-'), what)
}

/// `logits(4)+offset(-110)+head-scale(8)`.
fn data(input: &mut Input<'_>) -> Parsed<Data> {
    let mut data = Data::default();
    let mut seen = Vec::new();
    loop {
        let start = input.checkpoint();
        let what = "logits(..), ones, dyadic, flat, one-hot, offset(..) or head-scale(..)";
        let term = name(input, what)?;
        let kind = if matches!(term, "logits" | "ones" | "dyadic" | "flat" | "one-hot") {
            "one of logits, ones, dyadic, flat and one-hot"
        } else {
            term
        };
        if seen.contains(&kind) {
            return fail_at(input, &start, format!("data: a second {kind}"));
        }
        seen.push(kind);
        match term {
            "ones" => data.base = Base::Ones,
            "dyadic" => data.base = Base::Dyadic,
            "flat" => data.base = Base::Flat,
            "one-hot" => data.base = Base::OneHot,
            // Ranges are judged with the call as a whole, by `Case::validate`.
            "logits" => data.base = Base::Logits(argument(input, "the spread of the logits")?),
            "offset" => data.offset = argument(input, "the offset of the logits")?,
            "head-scale" => data.head_scale = argument(input, "the range of the head scales")?,
            _ => return unexpected(input, &start, what),
        }
        if opt('+').parse_next(input)?.is_none() {
            return Ok(data);
        }
    }
}

/// `ones+row(7)+scale(1e4)`.
fn dout(input: &mut Input<'_>) -> Parsed<Dout> {
    let mut dout = Dout::default();
    let mut seen = Vec::new();
    loop {
        let start = input.checkpoint();
        let what = "ones, row(..) or scale(..)";
        let term = name(input, what)?;
        if seen.contains(&term) {
            return fail_at(input, &start, format!("a second '{term}' term of do"));
        }
        seen.push(term);
        match term {
            "ones" => dout.ones = true,
            "row" => {
                expect(input, '(', "'('")?;
                dout.row = Some(uint32(input, "a row", limits::MAX_TOKENS)?);
                expect(input, ')', "')'")?;
            }
            "scale" => dout.scale = argument(input, "the factor of dO")?,
            _ => return unexpected(input, &start, what),
        }
        if opt('+').parse_next(input)?.is_none() {
            return Ok(dout);
        }
    }
}

/// `8` or `8/2` after `h` or `d`.
fn pair(input: &mut Input<'_>, what: &str, max: u64) -> Parsed<(u32, u32)> {
    let first = uint32(input, what, max)?;
    let second: Option<char> = opt('/').parse_next(input)?;
    match second {
        Some(_) => Ok((first, uint32(input, what, max)?)),
        None => Ok((first, first)),
    }
}

/// Reads one item into `case`, and says which dimension it was.
fn item(input: &mut Input<'_>, case: &mut Case) -> Parsed<Item> {
    let start = input.checkpoint();
    let what = "an item such as h8/2, d128, f16, causal, window(64,0), scale=0.5, gap-q(..), data=.., seed=7";
    let rows = |input: &mut Input<'_>| -> Parsed<u32> {
        expect(input, '=', "'='")?;
        uint32(input, "a number of rows", limits::MAX_ROWS)
    };
    let word = expect(input, take_while(1.., |c: char| c.is_ascii_lowercase() || c == '-'), what)?;
    let sequences = case.sequences();
    Ok(match word {
        "h" => {
            let (q, kv) = pair(input, "a number of heads", limits::MAX_HEADS)?;
            case.heads = Heads { q, kv };
            Item::Heads
        }
        "d" => {
            let (qk, v) = pair(input, "a head dim", limits::MAX_HEAD_DIM)?;
            case.dims = Dims { qk, v };
            Item::Dims
        }
        "bf" | "f" => {
            expect(input, "16", "'16': the dtypes are bf16 and f16")?;
            case.dtype = if word == "f" { DType::F16 } else { DType::Bf16 };
            Item::DType
        }
        "full" | "causal" | "causal-br" | "window" | "window-br" => {
            case.mask = match word {
                "full" => Mask::Full,
                "causal" => Mask::Causal(Align::TopLeft),
                "causal-br" => Mask::Causal(Align::BottomRight),
                "window" => window(input, Align::TopLeft)?,
                _ => window(input, Align::BottomRight)?,
            };
            Item::Mask
        }
        "scale" => {
            expect(input, '=', "'='")?;
            case.scale = Some(real(input, "the softmax scale")?);
            Item::Scale
        }
        "softcap" => {
            expect(input, '=', "'='")?;
            case.softcap = Some(real(input, "the cap of the logits")?);
            Item::Softcap
        }
        "sink" => {
            expect(input, '=', "'='")?;
            let sink = alt((
                "none".value(Sink::None),
                "off-by-one".value(Sink::OffByOne),
                "learnable".value(Sink::Learnable),
            ));
            case.sink = expect(input, sink, "none, off-by-one or learnable")?;
            Item::Sink
        }
        "gap-q" | "gap-kv" => {
            expect(input, '(', "'('")?;
            let gaps = counted(input, "a gap in rows", limits::MAX_ROWS, sequences, "sequences")?;
            expect(input, ')', "')'")?;
            let (side, item) = match word {
                "gap-q" => (&mut case.q, Item::GapQ),
                _ => (&mut case.kv, Item::GapKv),
            };
            side.gaps = gaps;
            item
        }
        "lead-q" => (case.q.lead = rows(input)?, Item::LeadQ).1,
        "lead-kv" => (case.kv.lead = rows(input)?, Item::LeadKv).1,
        "tail-q" => (case.q.tail = rows(input)?, Item::TailQ).1,
        "tail-kv" => (case.kv.tail = rows(input)?, Item::TailKv).1,
        "data" => {
            expect(input, '=', "'='")?;
            case.data = data(input)?;
            Item::Data
        }
        "do" => {
            expect(input, '=', "'='")?;
            case.dout = dout(input)?;
            Item::Dout
        }
        "dead" => {
            expect(input, '=', "'='")?;
            let fill =
                alt(("zero".value(DeadFill::Zero), "big".value(DeadFill::Big), "nan".value(DeadFill::Nan)));
            case.dead = expect(input, fill, "zero, big or nan")?;
            Item::Dead
        }
        "keys" => {
            expect(input, '=', "'='")?;
            case.keys = counted(input, "a data key", u64::MAX, sequences, "sequences")?;
            Item::Keys
        }
        "head-keys" => {
            // Heads may come later in the text: the count is checked when the call is whole.
            expect(input, '=', "'='")?;
            case.head_keys = list(input, "a data key", u64::MAX)?;
            Item::HeadKeys
        }
        "seed" => {
            expect(input, '=', "'='")?;
            case.seed = uint(input, "the seed", u64::MAX)?;
            Item::Seed
        }
        _ => return unexpected(input, &start, what),
    })
}

/// Is this the end of a call?
fn at_end(input: &Input<'_>) -> bool {
    let rest: &str = input.as_ref();
    rest.is_empty() || rest.starts_with(';')
}

fn call(input: &mut Input<'_>) -> Parsed<Case> {
    multispace0.parse_next(input)?;
    let begin = input.current_token_start();
    let q = lengths(input)?;
    let start = input.checkpoint();
    let kv = match opt('x').parse_next(input)? {
        Some(_) => lengths(input)?,
        None => q.clone(),
    };
    if kv.len() != q.len() {
        let message = format!("{} kv lengths for {} q lengths", kv.len(), q.len());
        return fail_at(input, &start, message);
    }
    let mut case = Case::new(q);
    case.kv = Side::packed(kv);
    let mut seen: Vec<(Item, usize)> = Vec::new();
    loop {
        let space = multispace0.parse_next(input)?;
        if at_end(input) {
            break;
        }
        if space.is_empty() {
            return expect(input, ' ', "a space, ';' or the end").map(|_| case);
        }
        let (start, at) = (input.checkpoint(), input.current_token_start());
        let item = item(input, &mut case)?;
        if seen.iter().any(|&(other, _)| other == item) {
            return fail_at(input, &start, "the same item twice");
        }
        seen.push((item, at));
    }
    finish(case, begin, &seen)
}

/// What can only be judged once the call is whole; the error stands at the item it speaks of.
fn finish(mut case: Case, start: usize, seen: &[(Item, usize)]) -> Parsed<Case> {
    let place = |item| seen.iter().find(|&&(i, _)| i == item).map(|&(_, at)| at);
    if place(Item::HeadKeys).is_none() && u64::from(case.heads.kv) <= limits::MAX_HEADS {
        case.head_keys = (0..case.heads.kv).collect();
    }
    match case.validate() {
        Ok(()) => Ok(case),
        Err(Invalid { item, message }) => {
            let at = item.and_then(place).unwrap_or(start);
            Err(ErrMode::Cut(Fault { message, at: Some(at) }))
        }
    }
}

impl FromStr for Scenario {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.len() > limits::MAX_TEXT {
            let message = format!("{} bytes of text, the limit is {}", text.len(), limits::MAX_TEXT);
            return Err(ParseError { column: 1, message });
        }
        let calls = separated(1..=limits::MAX_CALLS, call, ';');
        let mut whole = (calls, |input: &mut Input<'_>| match *input.as_ref() {
            "" => Ok(()),
            _ => fail(format!("at most {} calls", limits::MAX_CALLS)),
        });
        match whole.parse(LocatingSlice::new(text)) {
            Ok((calls, ())) => Ok(Scenario { calls }),
            Err(error) => {
                let stopped = error.offset();
                let Fault { message, at } = error.into_inner();
                let column = text[..at.unwrap_or(stopped)].chars().count() + 1;
                Err(ParseError { column, message })
            }
        }
    }
}

impl FromStr for Case {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut scenario: Scenario = text.parse()?;
        match scenario.calls.len() {
            1 => Ok(scenario.calls.remove(0)),
            n => Err(ParseError { column: 1, message: format!("{n} calls where one is expected") }),
        }
    }
}
