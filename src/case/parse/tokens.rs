//! Numbers, lists and errors: what the items of the notation are made of.

use winnow::ascii::digit1;
use winnow::combinator::{alt, opt, separated};
use winnow::error::{ErrMode, ParserError};
use winnow::prelude::*;
use winnow::stream::{LocatingSlice, Stream};
use winnow::token::one_of;

use crate::case::limits;

pub(super) type Input<'a> = LocatingSlice<&'a str>;
pub(super) type Parsed<T> = Result<T, ErrMode<Fault>>;

/// What was expected, at a byte offset; `None`: where the input stopped.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) at: Option<usize>,
}

impl<'a> ParserError<Input<'a>> for Fault {
    type Inner = Self;

    fn from_input(_: &Input<'a>) -> Self {
        Fault { message: "expected something else".into(), at: None }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

pub(super) fn fail<T>(message: impl Into<String>) -> Parsed<T> {
    Err(ErrMode::Cut(Fault { message: message.into(), at: None }))
}

/// Fails at `start` instead of where the input stands.
pub(super) fn fail_at<'a, T>(
    input: &mut Input<'a>,
    start: &<Input<'a> as Stream>::Checkpoint,
    message: impl Into<String>,
) -> Parsed<T> {
    input.reset(start);
    fail(message)
}

/// Runs `parser`; where it does not match, `what` was expected.
pub(super) fn expect<'a, T>(
    input: &mut Input<'a>,
    mut parser: impl Parser<Input<'a>, T, ErrMode<Fault>>,
    what: &str,
) -> Parsed<T> {
    let start = input.checkpoint();
    match parser.parse_next(input) {
        Err(ErrMode::Backtrack(_)) => unexpected(input, &start, what),
        other => other,
    }
}

/// Fails at `start`: `what` was expected, and this was found (escaped, since it may be anybody's).
pub(super) fn unexpected<'a, T>(
    input: &mut Input<'a>,
    start: &<Input<'a> as Stream>::Checkpoint,
    what: &str,
) -> Parsed<T> {
    input.reset(start);
    let rest: &str = input.as_ref();
    let word: String = rest.chars().take_while(|c| !c.is_whitespace()).take(16).collect();
    let found = match (rest.is_empty(), word.is_empty()) {
        (true, _) => "the end".into(),
        (false, true) => "a space".into(),
        _ => format!("'{}'", word.escape_debug()),
    };
    fail(format!("expected {what}, found {found}"))
}

/// An unsigned number of at most `max`.
pub(super) fn uint(input: &mut Input<'_>, what: &str, max: u64) -> Parsed<u64> {
    let start = input.checkpoint();
    let digits = expect(input, digit1, what)?;
    match digits.parse() {
        Ok(n) if n <= max => Ok(n),
        _ => fail_at(input, &start, format!("{what} is at most {max}")),
    }
}

pub(super) fn uint32(input: &mut Input<'_>, what: &str, max: u64) -> Parsed<u32> {
    uint(input, what, max.min(u64::from(u32::MAX))).map(|n| n as u32)
}

/// A finite decimal number.
pub(super) fn real(input: &mut Input<'_>, what: &str) -> Parsed<f64> {
    let start = input.checkpoint();
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1);
    let digits = (opt('-'), alt(((digit1, opt(('.', digit1))).void(), ('.', digit1).void())), opt(exponent));
    let text: &str = expect(input, digits.take(), what)?;
    match text.parse::<f64>() {
        // `+ 0.0` turns -0 into 0: they print differently and mean the same.
        Ok(x) if x.is_finite() => Ok(x + 0.0),
        _ => fail_at(input, &start, format!("{what} is not a finite number")),
    }
}

/// `( number )` after a name.
pub(super) fn argument(input: &mut Input<'_>, what: &str) -> Parsed<f64> {
    expect(input, '(', "'('")?;
    let x = real(input, what)?;
    expect(input, ')', "')'")?;
    Ok(x)
}

/// `count` copies of `value`, at a byte offset of the text.
struct Run {
    value: u32,
    count: u64,
}

/// `2,600*8`: values with optional repeat counts, at most `max_total` of them, expanded.
pub(super) fn list(input: &mut Input<'_>, what: &str, max_value: u64) -> Parsed<Vec<u32>> {
    let mut total = 0u64;
    let run = |input: &mut Input<'_>| -> Parsed<Run> {
        let start = input.checkpoint();
        let value = uint32(input, what, max_value)?;
        let count = match opt('*').parse_next(input)? {
            Some(_) => uint(input, "a count of repeats", u64::MAX)?,
            None => 1,
        };
        if count == 0 {
            return fail_at(input, &start, "a count of repeats is at least 1");
        }
        total = total.saturating_add(count);
        if total > limits::MAX_SEQUENCES {
            let message = format!("{total} entries so far, the limit is {}", limits::MAX_SEQUENCES);
            return fail_at(input, &start, message);
        }
        Ok(Run { value, count })
    };
    let runs: Vec<Run> = separated(1.., run, ',').parse_next(input)?;
    let mut values = Vec::with_capacity(total as usize);
    for run in runs {
        values.extend(std::iter::repeat_n(run.value, run.count as usize));
    }
    Ok(values)
}
