//! Every tolerance of the project, with its derivation. No other file holds one.
//!
//! A fused backward makes two kinds of error. *fp32-level* errors (accumulation, exponentials, the
//! row sum) are bounded at their worst: they are small and biased, since tensor cores truncate as
//! they accumulate. *Storage-level* errors are the roundings of P, dS and the outputs to bf16 or
//! f16. Each is at most `u`, and where values differ they are independent with mean zero, so a sum
//! of them obeys Hoeffding: `P(|sum eps_j x_j| > u t sqrt(sum x_j^2)) <= 2 exp(-t^2/2)`. At
//! [`TAIL`] that is 1e-12 an element: ten million elements a night give 1e-5 false alarms. Where
//! values repeat, roundings repeat with them; that part is not bounded but *computed*, by applying
//! the backend's roundings in the reference (`Yt`), and the bound adds `2 |Yt - Y|`. `docs/oracle.md`
//! has the whole derivation.

use std::ops::Range;

mod additions;
mod beside;

pub use additions::{OF_DROPOUT, with_bias};
pub use beside::{Beside, OwnDelta};

use super::rounding::Grid;
use crate::case::{Base, Data, Dout};
use crate::tensor::DType;

/// An fp32 step, truncation allowed: 2^-23.
pub const STEP: f64 = 1.0 / 8_388_608.0;
/// Least normal fp32 value: hardware may flush what is below it, in the exponential above all.
const TINY: f64 = f32::MIN_POSITIVE as f64;
/// Half an fp32 step: what one correctly rounded fp32 addition is off by at most, relatively.
const HALF_STEP: f64 = STEP / 2.0;
/// `sqrt(2 ln(2/p))` at p = 1e-12: how many root-sum-squares a sum of independent roundings stays
/// within.
pub const TAIL: f64 = 7.5;
/// Terms that a tensor core instruction takes at once.
const TERMS_PER_STEP: usize = 16;
/// What such a step loses on hardware, in fp32 steps of the largest that it adds, the accumulator included: its
/// terms and the accumulator are aligned by the largest exponent, keeping two bits more than fp32 has (Hopper;
/// a quarter of a step lost of each of 16), and their sum is truncated. Terms of one sign and one size make the
/// most of it: an H200 lost 390 steps of a sum in 343 steps of the instruction.
const LOST_PER_STEP: usize = 5;
/// What a sum that truncates each addition loses instead, as the emulator's does: 16 terms among themselves, and
/// one for each step.
const LOST_AMONG_TERMS: usize = 16;
/// The conversion of the result, and the reference's own.
const LOST_AT_THE_END: usize = 2;
/// Error of the hardware's exponential and of folding log2(e) into its argument, in fp32 steps.
const EXP_STEPS: f64 = 4.0;
/// The same rounding may fall on either side of a tie: a computed rounding counts this many times.
pub const REPEATED: f64 = 2.0;

/// Forward and backward round P apart, relative to different maxima: law 4 sees both.
pub const ROUNDINGS_OF_P: f64 = 2.0;
/// Logits of a smaller spread give probabilities within a few roundings of each other.
const NATURAL_SPREAD: f64 = 0.25;

/// Are roundings of neighbouring values independent of each other? Only then may sums of them be
/// judged by their squares; constant, few-valued or nearly flat data round alike.
pub fn is_natural(data: &Data, dout: &Dout) -> bool {
    let least = |spread: f64| spread / data.head_scale;
    let spread = matches!(data.base, Base::Logits(spread) if least(spread) >= NATURAL_SPREAD);
    spread && !dout.ones
}

/// What the storage dtype contributes.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    /// The dtype.
    pub dtype: DType,
    /// Unit roundoff u: 2^-8 (bf16), 2^-11 (f16).
    pub u: f64,
    /// Half of the least subnormal: 2^-134 (bf16), 2^-25 (f16).
    pub eta: f64,
    /// From here on a rounding gives infinity.
    pub overflow: f64,
}

impl Storage {
    /// Of a 2-byte dtype.
    pub fn of(dtype: DType) -> Storage {
        let u = 2f64.powi(-(dtype.precision() as i32));
        let eta = dtype.min_normal() * u;
        Storage { dtype, u, eta, overflow: dtype.max_finite() * (1.0 + u / 2.0) }
    }

    /// Largest rounding error of an operand element `a` that is itself off by up to `error`. What is
    /// rounded is unscaled: P, or dS.
    #[inline(always)]
    pub fn operand(&self, a: f64, error: f64) -> f64 {
        let size = a.abs() + error;
        let rounding = if self.u * size > self.eta { self.u * size } else { self.eta };
        if size == 0.0 { 0.0 } else { rounding }
    }
}

/// Relative error of an fp32 accumulation of `n` products, worst case.
pub fn accumulation(n: usize) -> f64 {
    accumulation_of_parts(1, n)
}

/// The same for `parts` sums of `n` products each that share an accumulator: every head of a group
/// starts tiles of its own, which are padded to whole steps.
pub fn accumulation_of_parts(parts: usize, n: usize) -> f64 {
    let steps = parts * n.div_ceil(TERMS_PER_STEP);
    ((LOST_PER_STEP * steps).max(steps + LOST_AMONG_TERMS) + LOST_AT_THE_END) as f64 * STEP
}

/// Rows or keys of the smallest tile whose sum a backend may add to others apart.
const LEAST_TILE: usize = 64;

/// The same where the sums of tiles are added to each other, as atomic adds do.
pub fn accumulation_of_tiles(n: usize) -> f64 {
    accumulation(n) + n.div_ceil(LEAST_TILE) as f64 * STEP
}

/// Relative error of rescaling an accumulator each time that the running maximum may rise.
pub fn rescaling(n: usize, tile: usize) -> f64 {
    n.div_ceil(tile) as f64 * STEP
}

/// fp32-level error of a probability whose exponential is off by the factor `1 + e` at most: of its
/// exponent, and what a flush of subnormals loses.
#[inline(always)]
pub fn probability(p: f64, e: f64) -> f64 {
    e * p + TINY
}

/// Roundings of operands that differ by no more than this are not told apart one by one:
/// [`last_steps`] has them.
pub const FLUSHED: f64 = 2.0 * TINY;

/// `exp(x) - 1` for errors of exponents. From 1 on the exponential has no meaning.
#[inline(always)]
pub fn exp_minus_one(x: f64) -> f64 {
    if x < 1.0 { x * (1.0 + x) } else { f64::INFINITY }
}

/// Relative errors of probabilities before they are divided, from those of their logits: the running maximum that
/// is subtracted is off by as much as the logit that it is.
pub fn with_that_of_maximum(errors: &mut [f64], largest: f64) {
    errors.iter_mut().for_each(|e| *e = exp_minus_one(*e + largest));
}

/// Error of a logit as the exponential sees it, along a row: `per_dot` times the bound of `c |q| |k|`,
/// `per_size` times its own size, and what the whole row shares.
#[derive(Clone, Copy, Debug)]
pub struct ScoreError {
    per_dot: f64,
    per_size: f64,
    shared: f64,
}

impl ScoreError {
    /// Of `d` columns; `l` is the larger of |L| and |row maximum|.
    pub fn new(d: usize, l: f64) -> ScoreError {
        ScoreError { per_dot: accumulation(d), per_size: 3.0 * STEP, shared: STEP * (2.0 * l + EXP_STEPS) }
    }

    /// The error of a logit `s`, where `dot` is at least `c |q| |k|`.
    #[inline(always)]
    pub fn of(&self, dot: f64, s: f64) -> f64 {
        self.per_dot * dot + self.per_size * s.abs() + self.shared
    }

    /// The same of a logit that is `s` with a cap on it. Before, it is off by its share of `dot`, which is
    /// its size at most; the cap's slope takes that down, and changes by less than 1 / cap for each unit.
    pub fn of_capped(&self, dot: f64, s: f64, slope: f64, cap: f64) -> f64 {
        let before = (self.per_dot + self.per_size) * dot;
        before * (slope + before / cap).min(1.0) + TANH_STEPS * STEP * s.abs() + self.of(0.0, s)
    }
}

/// How far the weights of tiles may be off against each other, relatively: what a tile contributed is rescaled
/// each time that the running maximum rises, by an exponential of a difference of maxima, which are off by
/// as much as any logit. The row's tiles come with the maximum up to the end of each.
pub fn weights_of_tiles(tiles: &[(Range<usize>, f64)], largest_score_error: f64) -> f64 {
    let finite = || tiles.iter().map(|tile| tile.1).filter(|max| max.is_finite());
    let rises = finite().zip(finite().skip(1)).filter(|(a, b)| a < b).count();
    if rises == 0 {
        return 0.0;
    }
    let range = finite().next_back().unwrap_or(0.0) - finite().next().unwrap_or(0.0);
    2.0 * largest_score_error + STEP * ((EXP_STEPS + 1.0) * rises as f64 + 3.0 * range)
}

/// Relative error of the softmax's row sum over `n` keys; rescalings by the running maximum are
/// fewer than the additions and no worse.
pub fn row_sum(n: usize) -> f64 {
    (n + 4) as f64 * HALF_STEP
}

/// Error of the LSE: the largest logit error of the row, the row sum, and its own storage.
pub fn lse(largest_score_error: f64, l: f64, n: usize) -> f64 {
    largest_score_error + row_sum(n) + 2.0 * STEP * l.abs()
}

/// Error of delta from its accumulation: `dot` is `sum |dO| |O|` over `d_v` columns.
pub fn delta(d_v: usize, dot: f64) -> f64 {
    d_v as f64 * HALF_STEP * dot
}

/// Error of dP - delta along a row.
#[derive(Clone, Copy, Debug)]
pub struct DotError {
    per_norm: f64,
    per_size: f64,
    shared: f64,
}

impl DotError {
    /// `dout` is `|dO|`, a norm over `d_v` columns, `e_delta` the error of delta.
    pub fn new(d_v: usize, dout: f64, delta: f64, e_delta: f64) -> DotError {
        let shared = e_delta + 2.0 * STEP * delta.abs();
        DotError { per_norm: accumulation(d_v) * dout, per_size: 2.0 * STEP, shared }
    }

    /// Where `v` is the norm of the key's values.
    #[inline(always)]
    pub fn of(&self, v: f64, dp: f64) -> f64 {
        self.per_norm * v + self.shared + self.per_size * dp.abs()
    }
}

/// fp32-level error of `ds = p * difference`, `difference` being dP - delta and off by `e_difference`, p by
/// the factor `1 + e_p`.
#[inline(always)]
pub fn d_score(p: f64, difference: f64, ds: f64, e_p: f64, e_difference: f64) -> f64 {
    (1.0 + e_p) * p * e_difference + (e_p + 2.0 * STEP) * ds.abs() + TINY * (1.0 + difference.abs())
}

/// What the LSE's error makes of dQ: P is off by the same factor all along a row, `exp(e)`, and so
/// is dQ; the factor covers the higher orders.
pub fn lse_in_dq(e_lse: f64, dq: f64) -> f64 {
    2.0 * e_lse * dq.abs()
}

/// Rounding error of a sum of independent roundings: at most its worst case, at most `TAIL`
/// root-sum-squares plus what repeated roundings add.
#[inline(always)]
pub fn roundings(worst: f64, squares: f64, repeated: f64) -> f64 {
    let likely = TAIL * squares.sqrt() + REPEATED * repeated.abs();
    if worst < likely { worst } else { likely }
}

/// fp32 error of the last steps of an output: scaling, division, conversion; and what flushes of
/// subnormals lose in its sum, `terms` being the number of terms times the largest right factor of one.
#[inline(always)]
pub fn last_steps(y: f64, terms: f64) -> f64 {
    4.0 * STEP * y.abs() + TINY * (1.0 + FLUSHES * terms)
}

/// A term may lose a flushed operand in the backend, another in the reference's own f32 sums, and its
/// rounding may go either way there.
const FLUSHES: f64 = 4.0;

/// Operands of which none is larger than so many least normal numbers are subnormals for the most part.
const SUBNORMAL_AS_A_WHOLE: f64 = 1024.0;

/// Is an operand of such elements made of subnormals?
pub fn is_subnormal(storage: &Storage, largest: f64) -> bool {
    largest < SUBNORMAL_AS_A_WHOLE * storage.dtype.min_normal()
}

/// What a tensor core's sum of `n` terms loses where operands are subnormal: it aligns products by the exponents
/// of their operands, which is that of the least normal number for all subnormals (an H200 does so). `left` and
/// `right` are the largest factors beside a subnormal one on the other side; 0 where there is none.
pub fn alignment(storage: &Storage, n: usize, left: f64, right: f64) -> f64 {
    n as f64 * STEP * storage.dtype.min_normal() * (left + right)
}

/// A square below this is left out of f32 sums, and its root is taken for an fp32-level error instead:
/// the worst case in the place of the square, where both are nothing beside what is large.
const LEAST_SQUARE: f64 = 1.0 / (1u64 << 60) as f64;

/// The square of a rounding as f32 sums take it.
#[inline(always)]
pub fn square_in_f32(x: f64) -> f32 {
    if x < LEAST_SQUARE { 0.0 } else { (x * x) as f32 }
}

/// What `n` terms that were left out may come to, in units of the largest.
pub fn lost_squares(n: usize) -> f64 {
    n as f64 * LEAST_SQUARE
}

/// The rounding itself, where [`square_in_f32`] leaves it out; in units of `unit`.
#[inline(always)]
pub fn lost_in_f32(x: f64, unit: f64) -> f64 {
    if x < LEAST_SQUARE * unit { x } else { 0.0 }
}

/// What sums in f32 of up to a million positive terms may be too small by, as a factor.
pub const IN_F32: f64 = 1.0 + 1.0 / 1024.0;

/// The bound of one output element: `noise` is its error before the output is rounded to the nearest.
/// Infinite where the output may overflow.
#[inline(always)]
pub fn tau(storage: &Storage, grid: Grid, y: f64, noise: f64) -> f64 {
    let tau = noise + grid.half_step(y.abs() + noise);
    // A NaN is below nothing.
    if y.abs() + tau < storage.overflow { tau } else { f64::INFINITY }
}

/// How many root-sum-squares a sum of roundings of no common sign stays within: a uniform variable is as
/// concentrated as a normal one of its variance, so `2 exp(-8^2 / 2)`, 3e-14 a sum.
pub const BIAS: f64 = 8.0;

/// The largest root mean square of roundings in units of their standard deviation: 1 is due, noise of up to
/// a third of a rounding adds little, and of [`LEAST_SAMPLE`] elements the mean of the squares is off by a
/// sixteenth.
pub const SPREAD: f64 = 1.35;

/// Elements below which a root mean square says nothing.
pub const LEAST_SAMPLE: usize = 256;

/// Of so many elements one must be distinct: values that repeat round alike.
pub const REPEATS_AT_MOST: usize = 4;

/// Noise beside a rounding, in units of the rounding's standard deviation, below which an element says something
/// about roundings. What the noise may add to a sum is allowed for besides.
const NOISE_SHARE: f64 = 0.6;

/// Is what is left of an element its own rounding? `half` is half a step at its value; subnormals, whose
/// steps are alike, are left out.
#[inline(always)]
pub fn is_rounding_dominated(storage: &Storage, half: f64, want: f64, noise: f64) -> bool {
    // 64 steps of the subnormals.
    noise < NOISE_SHARE * half / 3f64.sqrt() && want.abs() * storage.u > 64.0 * storage.eta
}

/// Standard deviation of an element: a rounding is uniform within half a step, noise within its bound.
#[inline(always)]
pub fn sigma(half: f64, noise: f64) -> f64 {
    (half * half / 3.0 + noise * noise / 9.0).sqrt()
}

/// A value without the bits by which equal sums may differ.
pub fn without_last_bits(x: f64) -> u64 {
    x.to_bits() >> 20
}

/// Terms of equal size below which a sum's rounding is no sample of many: a product of two short significands,
/// say, has few values to round. The sizes of `n` equal roundings add up to `sqrt(n)` times the root of their squares.
const LEAST_TERMS: f64 = 8.0;

/// Do few terms make up a sum? `rho` bounds its roundings, at most by their sizes added up, and `squares` is the sum of
/// their squares.
#[inline(always)]
pub fn are_few_terms(rho: f64, squares: f64) -> bool {
    let many = rho * rho >= LEAST_TERMS * squares;
    !many
}

/// fp32-level error of a term `p * delta` of dSink, p being off by the factor `1 + e`.
pub fn sink_term(p: f64, term: f64, e: f64, e_delta: f64, delta: f64) -> f64 {
    (1.0 + e) * p * (e_delta + 2.0 * STEP * delta.abs())
        + (e + 2.0 * STEP) * term.abs()
        + TINY * (1.0 + delta.abs())
}

/// The bound of dSink: `size` is the sum of the sizes of its `terms` terms, which are added in any order, and
/// `error` what each is off by.
pub fn sink(value: f64, size: f64, terms: usize, error: f64) -> f64 {
    error + (terms + 2) as f64 * HALF_STEP * size + 2.0 * STEP * value.abs() + TINY
}

/// Error of the hyperbolic tangent, of the quotient before and the product behind it, in fp32 steps.
const TANH_STEPS: f64 = 4.0;

/// Error of the slope of the cap, `1 - t^2`, where `capped` is off by `error`.
pub fn slope(capped: f64, error: f64, cap: f64) -> f64 {
    2.0 * error / cap * (capped.abs() + error) / cap + STEP
}

/// What the cap's slope makes of an error of dS.
pub fn sloped(e_ds: f64, ds: f64, slope: f64, e_slope: f64) -> f64 {
    e_ds * (slope + e_slope) + ds.abs() * (e_slope + STEP)
}

// Of the diagnosis. A hypothesis is a kernel of its own, which makes the same roundings as a right one, of
// operands that the fault may have made much larger. What is allowed for them is what the backward of any
// backend is allowed: each rounding of an operand at most `u` of it, and independent of the others; where
// values repeat, at its worst. They are not applied a second time, as the judgement of a right kernel
// does: a fault is large beside them, or it is not named.

/// The least share of the error, over the elements that are wrong, that a hypothesis must explain. What a
/// right hypothesis leaves there is roundings: of an element that is only just beyond its bound, a root
/// mean square of 0.3 of it at most (a rounding to nearest of the output is one that is uniform, of
/// deviation `1/sqrt(3)`, in a bound that holds an operand's as well), so a tenth of the squares.
pub const LEAST_SHARE: f64 = 0.9;

/// A factor is a number that is fitted, so it needs more wrong elements than one to speak for it.
pub const LEAST_FITTED: usize = 8;

/// Two shares that differ by less are alike: the residue is roundings.
pub const SHARE_STEP: f64 = 0.01;

/// Two fits of a factor, over different elements, are the same where they are this near, relatively: some
/// roundings of the storage dtype.
pub const FACTOR_STEP: f64 = 0.02;

/// The error of a logit of a hypothesis: `dot` bounds `c |q| |k|`.
pub fn bent_score(d: usize, dot: f64, s: f64, l: f64) -> f64 {
    accumulation(d) * dot + STEP * (3.0 * s.abs() + 2.0 * l.abs() + 4.0)
}

/// The relative error of an exponential whose argument is off by `e`.
pub fn bent_exponential(e: f64) -> f64 {
    e.exp_m1()
}

/// fp32-level error of P (dP - delta) of a hypothesis, `dot` bounding `|dO| |v|` and `|dO| |O|`.
pub fn bent_d_score(columns: usize, p: f64, difference: f64, dot: f64, e_p: f64) -> f64 {
    let inner = (accumulation(columns) + columns as f64 * STEP + 2.0 * STEP) * dot;
    (1.0 + e_p) * p * inner + (e_p + 4.0 * STEP) * (p * difference).abs()
}

/// How far an output may be from a hypothesis: `roundings` of its operand, squared and at their worst,
/// `linear` the fp32-level errors, `natural` data whose roundings are independent. The hypothesis' operands
/// and values are rounded as the output's are, and where an error moves one over a tie the two are twice a
/// rounding apart.
pub fn bent_tau(storage: &Storage, y: f64, [squares, worst, linear]: [f64; 3], natural: bool) -> f64 {
    let rho = if natural { (2.0 * worst).min(TAIL * squares.sqrt()) } else { 2.0 * worst };
    let before = rho + linear + 4.0 * STEP * y.abs();
    before + 2.0 * storage.u * (y.abs() + before) + 2.0 * storage.eta + TINY
}

/// How far an LSE may be from a hypothesis over `n` keys, the largest error of whose logits is `e_score`.
pub fn bent_lse(e_score: f64, l: f64, n: usize) -> f64 {
    e_score + (n + 8) as f64 * STEP + 4.0 * STEP * l.abs()
}

/// How far a sum may be from a hypothesis where what is added to a right value of bound `tau` was itself
/// read from storage: `added` in size, and multiplied by `factor` since.
pub fn bent_sum(storage: &Storage, tau: f64, added: f64, factor: f64) -> f64 {
    tau + 4.0 * storage.u * added.abs() + storage.eta * (1.0 + 2.0 * factor.abs())
}

/// May an fp32 accumulator leave its range? `worst` is at least `u` times the sum of its products' sizes.
pub fn bent_overflows(storage: &Storage, worst: f64) -> bool {
    worst >= storage.u * f64::from(f32::MAX)
}

/// What an fp32 value of this size, off by up to `error`, comes out as: a number, perhaps one, or none.
pub fn bent_range(x: f64, error: f64) -> Range32 {
    match x.abs() {
        x if x >= 2.0 * f64::from(f32::MAX) => Range32::Infinite,
        x if x + error < f64::from(f32::MAX) => Range32::Finite,
        _ => Range32::Unknown,
    }
}

/// Whether an fp32 value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range32 {
    /// It is.
    Finite,
    /// It may be.
    Unknown,
    /// It is not.
    Infinite,
}

/// Spread of a row's logits, in nats, up to which nothing in a backward leaves the normal fp32 values: the
/// least P is then above 2^-61; a product of two stored values of ours is a multiple of 2^-48, and so is dP - D
/// where it is not 0; and 2^-17 is left for the last factor. 2^-126 is the least normal value.
const NORMAL_SPREAD: f64 = 42.0;

/// Is a backward linear in a factor of two on dO to the bit? In bf16, whose range is that of fp32, where no value
/// on the way is subnormal. In f16 dS is subnormal below 2^-14, and rounds otherwise when it is doubled.
/// `spread` is what the logits of a row may differ by; `factor` is that of dO.
pub fn doubles_to_the_bit(dtype: DType, spread: f64, factor: f64) -> bool {
    let small = factor.abs().min(1.0);
    dtype == DType::Bf16 && small > 0.0 && spread - small.ln() <= NORMAL_SPREAD
}

// Of rounding profiles, which say what a backend rounds by what is left of its outputs, in units of their own
// rounding's root mean square: 1 is left by the recipe that it follows.

/// A recipe explains outputs of which it leaves no more: besides their own rounding, the errors in fp32 of up to a few
/// hundred terms, some hundredths of it. Another rounding of one operand adds a fifth and more.
pub const EXPLAINED: f64 = 1.1;

/// Recipes are not told apart by less: a hundred thousand elements have a root mean square to within half a percent.
pub const SAME_RESIDUAL: f64 = 1.01;

// Of exact cases. Nothing there is a tolerance of an output: these say where a probability, computed in fp32,
// is a power of two once it is rounded to the dtype, and where it is 0.

/// Logits, in nats, that are this far below the largest have a probability of 0 in fp32: below 2^-150 nothing is
/// left, half of the least subnormal, which is 150 ln 2 = 103.97; and a little for the logits' own errors.
pub const EXACT_GAP: f64 = 105.0;

/// Largest logit, in nats: its error in fp32, some 2^-23 of it on either side of the difference, is then a factor of
/// P that is nearer to 1 than the half step of f16 below a power of two, 2^-12.
pub const EXACT_LOGIT: f64 = 256.0;

/// Most rows of a kv head's group: their sum of values of up to 11 bits, 16 times a key each, takes no more
/// than the 24 bits of fp32.
pub const EXACT_ROWS: usize = 512;
