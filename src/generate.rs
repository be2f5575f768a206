//! The one generator: bytes in, a scenario within a budget out.
//!
//! libFuzzer-style input, `proptest` and campaigns are thin doors onto [`scenario`], so that what
//! one of them can reach the others reach too. Nothing drawn is thrown away: sizes are chosen among
//! those that the rest of the budget pays for, and data among what the dtype can hold, so every
//! input is a case that every limit admits.
//!
//! Order of draws: choices of fixed width come first, lists last, calls one after another. A changed
//! byte then changes one dimension where that is possible, and more bytes add sequences or calls.
//! Input that runs out reads as zeros, and zero is the simplest choice: no bytes at all are `[1]`.

use arbitrary::{Arbitrary, Result, Unstructured};
use proptest::prelude::{Strategy, any};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::case::{Case, Dims, Heads, Scenario, Sink};

mod data;
mod draw;
mod features;
mod lengths;

pub use data::{largest_factor, legalise};
pub use features::MAX_DIM;

use draw::weighted;
use lengths::Purse;

/// What one scenario may cost, its calls together.
///
/// A case costs the oracle some 45 products of its [`Case::work`], so these two numbers decide how
/// many cases a minute sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most live tokens, of the longer side of each call.
    pub max_tokens: u32,
    /// Most work, as [`Case::work`] counts it; a row of a short sequence is charged as 32 scores.
    pub max_work: u64,
    /// Which features of the softmax may be drawn.
    pub softmax: Softmax,
}

/// Features of the softmax that a backend may lack as a whole: a campaign on one that does draws none, rather
/// than lose those cases. Every other draw stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// A softcap.
    pub cap: bool,
    /// A sink, of either kind.
    pub sink: bool,
}

impl Softmax {
    /// All of them.
    pub const ALL: Softmax = Softmax { cap: true, sink: true };
    /// None, as the project's kernels have it.
    pub const PLAIN: Softmax = Softmax { cap: false, sink: false };

    /// Those that are among `supported`: asked of a small case each.
    pub fn supported(supports: impl Fn(&Case) -> bool) -> Softmax {
        let mut case = Case::new(vec![1]);
        case.softcap = Some(1.0);
        let cap = supports(&case);
        let case = Case { softcap: None, sink: Sink::Learnable, ..case };
        Softmax { cap, sink: supports(&case) }
    }
}

impl Default for Budget {
    /// Up to one call of `[512] h4`, or of `[1100]`; the mean is a tenth of the maximum. Where one side is
    /// short, up to 8192 tokens.
    fn default() -> Self {
        Budget { max_tokens: 8192, max_work: 80_000_000, softmax: Softmax::ALL }
    }
}

impl Budget {
    /// What is left after `case`.
    fn after(self, case: &Case) -> Budget {
        Budget {
            max_tokens: self.max_tokens.saturating_sub(tokens(case) as u32),
            max_work: self.max_work.saturating_sub(cost(case)),
            ..self
        }
    }
}

/// Live tokens of the longer side.
pub fn tokens(case: &Case) -> u64 {
    case.q.tokens().max(case.kv.tokens())
}

/// What a case is charged: its work, or that of its rows where it has few scores.
pub fn cost(case: &Case) -> u64 {
    let lengths = case.q.lengths.iter().zip(&case.kv.lengths);
    let scores: u64 = lengths.map(|(&q, &kv)| lengths::sequence_cost(q, kv)).sum();
    scores * width(case.heads, case.dims)
}

/// Multiply-adds that a score costs in one product.
fn width(heads: Heads, dims: Dims) -> u64 {
    u64::from(heads.q) * u64::from(dims.qk.max(dims.v))
}

/// How large a case tries to be. Half of the known faults show at tiny lengths, the other half
/// needs several tiles; a uniform draw would hardly ever be tiny.
#[derive(Clone, Copy)]
struct Size {
    /// No sequence is drawn longer.
    longest: u32,
    /// The case may take one part in this many of the work left.
    share: u64,
}

const SIZES: [(u8, Size); 4] = [
    (62, Size { longest: 18, share: 64 }),
    (46, Size { longest: 66, share: 16 }),
    (92, Size { longest: 258, share: 4 }),
    (56, Size { longest: u32::MAX, share: 1 }),
];

/// Draws a scenario: one call mostly, else up to three, of which the later ones are often variations
/// of the first, since caches and workspaces are what they test.
///
/// # Errors
/// None in practice: exhausted input gives simple choices. The type is what `arbitrary` asks for.
pub fn scenario(u: &mut Unstructured, limits: &Budget) -> Result<Scenario> {
    let first = case(u, limits)?;
    let mut left = limits.after(&first);
    let mut calls = vec![first];
    let more = weighted(u, &[(226, 0), (20, 1), (10, 2)])?;
    for _ in 0..more {
        let next = later_call(u, &calls[0], &left)?;
        left = left.after(&next);
        calls.push(next);
    }
    Ok(Scenario { calls })
}

/// Draws one case.
///
/// # Errors
/// None in practice, as [`scenario`].
pub fn case(u: &mut Unstructured, limits: &Budget) -> Result<Case> {
    let size = weighted(u, &SIZES)?;
    let mut heads = features::heads(u)?;
    let mut dims = features::dims(u)?;
    // Where not even a few rows of this width are affordable, the narrowest are.
    if width(heads, dims) * lengths::ROW_COST * 4 > limits.max_work / size.share {
        heads = Heads { q: 1, kv: 1 };
        dims = Dims { qk: 8, v: 8 };
    }
    let mut case = Case::new(Vec::new());
    case.heads = heads;
    case.dims = dims;
    fill(u, &mut case, size, limits)?;
    Ok(case)
}

/// Draws every dimension but heads and dims.
fn fill(u: &mut Unstructured, case: &mut Case, size: Size, limits: &Budget) -> Result<()> {
    case.dtype = features::dtype(u)?;
    let mask = features::mask(u)?;
    case.scale = features::scale(u)?;
    case.softcap = features::softcap(u, limits.softmax)?;
    case.sink = features::sink(u, limits.softmax)?;
    case.data = data::recipe(u)?;
    let dout = data::dout(u)?;
    case.seed = data::seed(u)?;
    case.head_keys = data::keys(u, case.heads.kv)?;
    lay_out(u, case, size, limits)?;
    case.mask = mask.resolve(case.q.max_len().max(case.kv.max_len()));
    case.dout = dout.resolve(case);
    Ok(())
}

/// Draws the sequences, their storage and their keys.
fn lay_out(u: &mut Unstructured, case: &mut Case, size: Size, limits: &Budget) -> Result<()> {
    let pairs = limits.max_work / size.share / width(case.heads, case.dims);
    let purse = Purse { tokens: limits.max_tokens, pairs, longest: size.longest };
    let (q, kv) = lengths::partition(u, purse, case.heads.q)?;
    let packed = !draw::chance(u, 140)?;
    case.q = lengths::storage(u, q, packed)?;
    case.kv = lengths::storage(u, kv, packed)?;
    case.dead = data::dead(u, case.q.has_dead_rows() || case.kv.has_dead_rows())?;
    case.keys = data::keys(u, case.q.lengths.len() as u32)?;
    Ok(())
}

/// Draws a later call of a scenario.
fn later_call(u: &mut Unstructured, first: &Case, left: &Budget) -> Result<Case> {
    #[derive(Clone, Copy)]
    enum Kind {
        OtherLengths,
        OneOther,
        Unrelated,
    }
    let kind = weighted(u, &[(110, Kind::OtherLengths), (90, Kind::OneOther), (56, Kind::Unrelated)])?;
    let affordable = cost(first) <= left.max_work && tokens(first) <= u64::from(left.max_tokens);
    match kind {
        Kind::Unrelated => case(u, left),
        Kind::OneOther if affordable => one_other(u, first, left.softmax),
        Kind::OtherLengths | Kind::OneOther => {
            let mut next = first.clone();
            let size = weighted(u, &SIZES)?;
            lay_out(u, &mut next, size, left)?;
            if let Some(row) = &mut next.dout.row {
                *row = (*row).min(next.q.max_len().saturating_sub(1));
            }
            data::legalise(&mut next);
            Ok(next)
        }
    }
}

/// The same batch with one dimension drawn anew: what a cache key may have forgotten.
fn one_other(u: &mut Unstructured, first: &Case, softmax: Softmax) -> Result<Case> {
    #[derive(Clone, Copy)]
    enum Other {
        Data,
        Mask,
        Scale,
        DType,
        Storage,
        Softmax,
    }
    let mut next = first.clone();
    let others = [
        (1, Other::Data),
        (1, Other::Mask),
        (1, Other::Scale),
        (1, Other::DType),
        (1, Other::Storage),
        (1, Other::Softmax),
    ];
    match weighted(u, &others)? {
        Other::Data => {
            next.data = data::recipe(u)?;
            next.seed = data::seed(u)?;
        }
        Other::Mask => next.mask = features::mask(u)?.resolve(next.q.max_len().max(next.kv.max_len())),
        Other::Scale => next.scale = features::scale(u)?,
        Other::DType => next.dtype = features::dtype(u)?,
        Other::Softmax => {
            next.softcap = features::softcap(u, softmax)?;
            next.sink = features::sink(u, softmax)?;
        }
        Other::Storage => {
            next.q = lengths::storage(u, next.q.lengths, false)?;
            next.kv = lengths::storage(u, next.kv.lengths, false)?;
            next.dead = data::dead(u, next.q.has_dead_rows() || next.kv.has_dead_rows())?;
        }
    }
    data::legalise(&mut next);
    Ok(next)
}

/// More bytes than a scenario reads, as a test holds; what is behind the end reads as zeros.
const BYTES: usize = 6144;

/// Scenario `index` of a campaign with this seed: a pure function of both and of the budget, so that
/// any number of threads sees the same campaign and any of its cases can be drawn alone.
///
/// The bytes are ChaCha8's for key `seed` and stream `index`; a release that changes what a byte
/// means is seen by a test that pins some cases.
pub fn nth(seed: u64, index: u64, budget: &Budget) -> Scenario {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(index);
    let mut bytes = [0; BYTES];
    rng.fill_bytes(&mut bytes);
    from_bytes(&bytes, budget)
}

/// The scenario that these bytes stand for.
pub fn from_bytes(bytes: &[u8], budget: &Budget) -> Scenario {
    let drawn = scenario(&mut Unstructured::new(bytes), budget);
    drawn.expect("every draw reads exhausted input as zeros")
}

/// The generator as a `proptest` strategy. It does not shrink: shrinking works on cases, not bytes,
/// and is the same for every door.
pub fn scenarios(budget: Budget) -> impl Strategy<Value = Scenario> {
    proptest::collection::vec(any::<u8>(), 0..BYTES)
        .no_shrink()
        .prop_map(move |bytes| from_bytes(&bytes, &budget))
}

impl<'a> Arbitrary<'a> for Scenario {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        scenario(u, &Budget::default())
    }
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        case(u, &Budget::default())
    }
}

#[cfg(test)]
mod tests;
