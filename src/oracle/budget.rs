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
/// Terms that a tensor core adds before it truncates once.
const TERMS_PER_STEP: usize = 16;
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
    pub fn operand(&self, a: f64, error: f64) -> f64 {
        let size = a.abs() + error;
        if size == 0.0 { 0.0 } else { (self.u * size).max(self.eta) }
    }
}

/// Relative error of an fp32 accumulation of `n` products, worst case.
pub fn accumulation(n: usize) -> f64 {
    (n.div_ceil(TERMS_PER_STEP) + 2) as f64 * STEP
}

/// The same for `parts` sums of `n` products each that share an accumulator: every head of a group
/// starts tiles of its own, which are padded to whole steps.
pub fn accumulation_of_parts(parts: usize, n: usize) -> f64 {
    (parts * n.div_ceil(TERMS_PER_STEP) + 2) as f64 * STEP
}

/// Relative error of rescaling an accumulator each time that the running maximum may rise.
pub fn rescaling(n: usize, tile: usize) -> f64 {
    n.div_ceil(tile) as f64 * STEP
}

/// fp32-level error of a probability: of its exponent, and what a flush of subnormals loses.
pub fn probability(p: f64, e_score: f64) -> f64 {
    exp_minus_one(e_score) * p + TINY
}

/// `exp(x) - 1` for the small errors of exponents, without the cost of `exp_m1` where none is due.
pub fn exp_minus_one(x: f64) -> f64 {
    if x < 1e-3 { x * (1.0 + x) } else { x.exp_m1() }
}

/// Error of a logit as the exponential sees it: `dot` is `c |q| |k|`, `s` the logit, `l` the larger
/// of |L| and |row maximum|.
pub fn score(d: usize, dot: f64, s: f64, l: f64) -> f64 {
    accumulation(d) * dot + STEP * (3.0 * s.abs() + 2.0 * l + EXP_STEPS)
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

/// Error of dP: `dot` is `|dO| |v|`.
pub fn d_probability(d_v: usize, dot: f64) -> f64 {
    accumulation(d_v) * dot
}

/// fp32-level error of dS = P (dP - delta).
pub fn d_score(p: f64, dp: f64, delta: f64, ds: f64, e_score: f64, e_dp: f64, e_delta: f64) -> f64 {
    let inner = e_dp + e_delta + 2.0 * STEP * (dp.abs() + delta.abs());
    let e_p = exp_minus_one(e_score);
    (1.0 + e_p) * p * inner + (e_p + 2.0 * STEP) * ds.abs() + TINY * (1.0 + (dp - delta).abs())
}

/// What the LSE's error makes of dQ: P is off by the same factor all along a row, `exp(e)`, and so
/// is dQ; the factor covers the higher orders.
pub fn lse_in_dq(e_lse: f64, dq: f64) -> f64 {
    2.0 * e_lse * dq.abs()
}

/// Rounding error of a sum of independent roundings: at most its worst case, at most `TAIL`
/// root-sum-squares plus what repeated roundings add.
pub fn roundings(worst: f64, squares: f64, repeated: f64) -> f64 {
    worst.min(TAIL * squares.sqrt() + REPEATED * repeated.abs())
}

/// fp32 error of the last steps of an output: scaling, division, conversion; and what flushes of
/// subnormals lose in a sum of `terms` products that is then scaled by `s`.
pub fn last_steps(y: f64, s: f64, terms: usize) -> f64 {
    4.0 * STEP * y.abs() + TINY * (1.0 + s * terms as f64)
}

/// May an fp32 accumulator have left its range? `roundings` is the worst case of the operand's, at
/// least `u` times the sum of the products' sizes.
pub fn accumulator_overflows(storage: &Storage, roundings: f64) -> bool {
    roundings >= storage.u * f64::from(f32::MAX)
}

/// The bound of one output element: `y` exact, `rho` its storage-level and `lambda` its fp32-level
/// error before the output is rounded. Infinite where the output may overflow.
pub fn tau(storage: &Storage, y: f64, rho: f64, lambda: f64) -> f64 {
    let before = rho + lambda;
    let tau = before + storage.u * (y.abs() + before) + storage.eta;
    if y.abs() + tau < storage.overflow { tau } else { f64::INFINITY }
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
