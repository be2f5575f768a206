//! Is what is left of an output, once every rounding is applied, the noise of its own rounding?
//!
//! Where a backend's roundings are known exactly, an element's own bound says so already: little more than
//! half a step of the dtype is left of it. Where they are known in kind only, the bound allows every operand
//! to be rounded either way, and an error of a fraction of a percent hides in it. Many elements together show
//! it: the rounding of an output is as often up as down, so over `n` of them
//!
//! ```text
//! z_i = (got_i - Yt_i) / sigma_i      sigma_i^2 = (half step)^2 / 3 + (noise_i / 3)^2
//! bias    |sum z_i sign(Yt_i)| / sqrt(n)      at most BIAS, and what the fp32-level errors may add up to
//! spread  sqrt(mean z_i^2)                    at most SPREAD
//! ```
//!
//! `Yt` is the expected value with the nearest roundings applied. The bias is asked of each (sequence, head)
//! of a gradient as a whole, of every block of rows and of every row; the spread of the whole. Values that
//! repeat round alike and say nothing: data that is not natural is left out, sums of few terms too, and a plane
//! of which less than a quarter of the values are distinct.
//!
//! These are statements about chance, so a finding that nothing else supports must recur on data of other
//! seeds before it is one: [`crate::check`] sees to that.

use std::collections::HashSet;

use super::budget::{self, Storage};
use super::products::Bounded;
use super::rounding::Grid;
use super::{Coord, Evidence, Finding, Judgement, Kind, Plane};
use crate::outputs::Output;

/// Rows of a block, as kernels tile them.
const BLOCK: usize = 64;

/// One output of one head of one sequence: a sum over some of its elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Elements.
    pub n: usize,
    /// `sum z sign(Yt)`.
    pub signed: f64,
    /// `sum z^2`.
    pub squares: f64,
    /// What fp32-level errors may add to `signed`.
    pub allowance: f64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.n += other.n;
        self.signed += other.signed;
        self.squares += other.squares;
        self.allowance += other.allowance;
    }

    /// The bias in units of its bound; 0 where there are too few elements.
    pub fn bias(&self) -> f64 {
        let root = (self.n as f64).sqrt();
        if self.n == 0 { 0.0 } else { self.signed.abs() / (budget::BIAS * root + self.allowance) }
    }

    /// The root mean square of z in units of its bound; 0 where there are too few elements.
    pub fn spread(&self) -> f64 {
        if self.n < budget::LEAST_SAMPLE {
            return 0.0;
        }
        (self.squares / self.n as f64).sqrt() / budget::SPREAD
    }
}

/// What a plane's elements say, row by row.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// Of each row.
    pub rows: Vec<Sums>,
    /// Of all rows together.
    pub whole: Sums,
}

/// What is expected of element `i` with the nearest roundings applied, the fp32-level error beside them, and half
/// a step of the dtype there. Where roundings are known exactly, they are in the value, and the error is what
/// its bound allows besides half a step.
#[inline(always)]
fn expected(bounded: &Bounded, i: usize, grid: Grid) -> (f64, f64, f64) {
    match bounded.rounded.get(i) {
        Some(&want) => (want, bounded.noise[i], grid.half_step(want)),
        None => {
            let half = grid.half_step(bounded.value[i]);
            (bounded.value[i], (bounded.tau[i] - half).max(0.0), half)
        }
    }
}

/// Scores the elements of a plane whose rounding is what is left of them; `None` where too many repeat.
pub fn score(plane: &Plane, got: &[f64], storage: &Storage, grid: Grid) -> Option<Scores> {
    let bounded = plane.bounded;
    let mut scores = Scores::default();
    let mut distinct = HashSet::new();
    for (row, got) in got.chunks(plane.columns).enumerate() {
        let mut sums = Sums::default();
        for (column, &got) in got.iter().enumerate() {
            let (want, noise, half) = expected(bounded, row * plane.columns + column, grid);
            if !got.is_finite() || !budget::is_rounding_dominated(storage, half, want, noise) {
                continue;
            }
            let sigma = budget::sigma(half, noise);
            let z = (got - want) / sigma;
            sums.n += 1;
            sums.signed += z * want.signum();
            sums.squares += z * z;
            sums.allowance += noise / sigma;
            distinct.insert(budget::without_last_bits(want));
        }
        scores.whole.add(&sums);
        scores.rows.push(sums);
    }
    let natural = distinct.len() * budget::REPEATS_AT_MOST >= scores.whole.n;
    (natural && scores.whole.n > 0).then_some(scores)
}

/// To which side the roundings of one head of a gradient lean.
#[derive(Clone, Copy, Debug)]
pub struct Lean {
    /// The gradient.
    pub output: Output,
    /// `sum z_i sign(Yt_i) / sqrt(n)`: by chance alone normal, with mean 0 and variance 1.
    pub z: f64,
}

/// The leans of a call's heads: of natural data, with enough elements whose own rounding is what is left.
pub fn leans(evidence: &Evidence) -> Vec<Lean> {
    let case = &evidence.inputs.case;
    let operands = evidence.contract.rounding.recipe.rounds_operands();
    if !operands || !budget::is_natural(&case.data, &case.dout) {
        return Vec::new();
    }
    let (storage, grid) = (Storage::of(case.dtype), Grid::of(case.dtype));
    let planes = evidence.truth.planes(evidence.inputs, Judgement::Backward);
    let of_plane = |plane: Plane| {
        let whole = score(&plane, &plane.got(evidence.outputs), &storage, grid)?.whole;
        let z = whole.signed / (whole.n as f64).sqrt();
        (whole.n >= budget::LEAST_SAMPLE).then_some(Lean { output: plane.output, z })
    };
    planes.into_iter().filter_map(of_plane).collect()
}

/// At most one finding for each output and statistic: the plane, block or row that is furthest off.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let case = &evidence.inputs.case;
    let (storage, grid) = (Storage::of(case.dtype), Grid::of(case.dtype));
    let mut worst: Vec<Finding> = Vec::new();
    let rounding = evidence.contract.rounding;
    // Where roundings are applied the bounds say it all. Those of P and dS are what is left otherwise.
    let asked = !rounding.is_applied() && rounding.recipe.rounds_operands();
    if !asked || !budget::is_natural(&case.data, &case.dout) {
        return worst;
    }
    for plane in evidence.truth.planes(evidence.inputs, Judgement::Backward) {
        if evidence.is_beyond(plane.output) {
            continue;
        }
        let Some(scores) = score(&plane, &plane.got(evidence.outputs), &storage, grid) else { continue };
        for finding in findings(evidence, &plane, &scores) {
            let same = worst.iter_mut().find(|w| (w.tensor, w.kind) == (finding.tensor, finding.kind));
            match same {
                Some(known) if known.error() >= finding.error() => {}
                Some(known) => *known = finding,
                None => worst.push(finding),
            }
        }
    }
    worst
}

/// What is beyond its bound in one plane: of the whole, the blocks and the rows, what is furthest off.
fn findings(evidence: &Evidence, plane: &Plane, scores: &Scores) -> Vec<Finding> {
    let mut found = Vec::new();
    let finding = |kind: Kind, row: Option<usize>, got: f64, bound: f64, note: String| Finding {
        call: evidence.call,
        tensor: Some(plane.output),
        kind,
        at: Some(Coord { row, ..plane.coord(0) }),
        got,
        want: 0.0,
        bound,
        note,
    };
    let blocks = scores.rows.chunks(BLOCK).enumerate().map(|(i, rows)| {
        let mut sums = Sums::default();
        rows.iter().for_each(|row| sums.add(row));
        (Some(i * BLOCK), sums, format!("in rows {} to {}", i * BLOCK, i * BLOCK + rows.len() - 1))
    });
    let rows = scores.rows.iter().enumerate().map(|(i, sums)| (Some(i), *sums, "in this row".to_string()));
    let whole = (None, scores.whole, "in all rows".to_string());
    let all = std::iter::once(whole).chain(blocks).chain(rows);
    if let Some((row, sums, place)) = all.max_by(|a, b| a.1.bias().total_cmp(&b.1.bias()))
        && sums.bias() > 1.0
    {
        let toward = if sums.signed > 0.0 { "too large" } else { "too small" };
        let note = format!("values are {toward} on the whole {place}, {} elements", sums.n);
        let root = (sums.n as f64).sqrt();
        let bound = budget::BIAS + sums.allowance / root;
        found.push(finding(Kind::Bias, row, sums.signed / root, bound, note));
    }
    if scores.whole.spread() > 1.0 {
        let note = format!("errors are larger than roundings, {} elements", scores.whole.n);
        let got = scores.whole.spread() * budget::SPREAD;
        found.push(finding(Kind::Spread, None, got, budget::SPREAD, note));
    }
    found
}
