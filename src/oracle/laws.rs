//! The conservation laws of attention: sums that hold whatever the softmax came out as.
//!
//! ```text
//! (1) sum_j dV_j = sum_i dO_i                    over query rows that see a key, a group's heads
//! (2) sum_j dK_j = 0                             S is linear in K, so shifting all keys does nothing
//! (3) sum_i <q_i, dQ_i> = sum_j <k_j, dK_j>      both are c sum dS * QK^T
//! (4) sum_j <v_j, dV_j> = sum_i <o_i, dO_i>      both are sum P * dP
//! ```
//!
//! per sequence and kv head. A sink is part of the softmax without a value, so it breaks (1) and (2), and a
//! softcap breaks (2); (3) and (4) hold with both. A sum of
//! errors that are small each but of one sign shows here before it shows in any element. Each law
//! may be off by the tolerances of its terms added up, or, where data is natural and roundings so
//! independent, by the root of the sum of their squares with what repeats computed beside it.

use std::collections::BTreeMap;

use super::budget::{self, REPEATED, Storage, TAIL};
use super::products::{Bounded, Elements};
use super::rounding::Grid;
use super::truth::delta::DeltaError;
use super::truth::{GradientElements, Gradients, UnitTruth};
use super::{Coord, Evidence, Finding, Kind};
use crate::case::{Case, Sink};
use crate::contract::Rounding;
use crate::outputs::Output;
use crate::reference::{Unit, dot, query_heads};

/// What each law's two sides may differ by.
#[derive(Clone, Debug)]
pub struct LawBudget {
    /// Law 1: the sum of dO, and the tolerance, for each column of dV.
    pub dv_sums: Vec<(f64, f64)>,
    /// Law 2: the tolerance for each column of dK.
    pub dk_sums: Vec<f64>,
    /// Law 3: the tolerance.
    pub qk: f64,
    /// Law 4: the tolerance.
    pub ov: f64,
}

/// Sums over a unit's blocks that the tolerances need.
#[derive(Debug)]
pub struct LawSums {
    natural: bool,
    /// Sum of dO over rows that see a key, by column.
    dout: Vec<f64>,
    /// Squares and repeated part of delta's error in the sum of dK, by column.
    delta_squares: Vec<f64>,
    delta_repeated: Vec<f64>,
    /// Squares and repeated parts of the roundings in `sum P * dP`, backward and forward.
    p_squares: f64,
    p_repeated: f64,
    o_repeated: f64,
}

impl LawSums {
    /// Empty sums of a unit.
    pub fn new(unit: &Unit, case: &Case, rounding: Rounding) -> LawSums {
        // Of other recipes the bounds are all that is known.
        let natural = budget::is_natural(&case.data, &case.dout) && rounding.recipe.rounds_operands();
        LawSums {
            natural,
            dout: vec![0.0; unit.e],
            delta_squares: vec![0.0; unit.d],
            delta_repeated: vec![0.0; unit.d],
            p_squares: 0.0,
            p_repeated: 0.0,
            o_repeated: 0.0,
        }
    }

    /// Takes in a block: what the forward's roundings make of delta.
    pub(super) fn add_block(&mut self, error: &DeltaError) {
        self.p_squares += error.p_squares;
        self.p_repeated += error.p_repeated;
        self.o_repeated += error.repeated.iter().sum::<f64>();
    }

    /// Takes in a block's rows of Q with the bound and the repeated part of delta's error.
    pub fn add_delta_error<'a>(
        &mut self,
        q: &[f64],
        seen: impl Iterator<Item = bool>,
        error: impl Iterator<Item = (&'a f64, &'a f64)>,
    ) {
        let columns = self.delta_squares.len();
        for ((q, (bound, repeated)), _) in q.chunks(columns).zip(error).zip(seen).filter(|(_, seen)| *seen) {
            for (c, q) in q.iter().enumerate() {
                self.delta_squares[c] += (bound * q).powi(2);
                self.delta_repeated[c] += repeated * q;
            }
        }
    }

    /// Takes in dO of a head's rows that see a key.
    pub fn add_head(&mut self, unit: &Unit, head: usize) {
        for (i, row) in unit.dout[head].chunks(unit.e).enumerate() {
            if !unit.visible(i).is_empty() {
                self.dout.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
        }
    }

    /// The tolerances, from the products of the whole chain.
    pub(super) fn budget(
        self,
        storage: &Storage,
        unit: &Unit,
        chain: (&GradientElements, &Gradients),
        o: (&[Elements], &[Bounded]),
    ) -> LawBudget {
        let c = unit.scale.abs();
        let delta = |column: usize| {
            c * (TAIL * self.delta_squares[column].sqrt() + REPEATED * self.delta_repeated[column].abs())
        };
        let dv_tolerance = self.column_sums(storage, (&chain.0.dv, &chain.1.dv), unit.e, |_| 0.0);
        let dk_sums = self.column_sums(storage, (&chain.0.dk, &chain.1.dk), unit.d, delta);
        LawBudget {
            dv_sums: self.dout.iter().copied().zip(dv_tolerance).collect(),
            dk_sums,
            qk: self.qk(storage, unit, chain),
            ov: self.ov(storage, unit, (&chain.0.dv, &chain.1.dv), o),
        }
    }

    /// Tolerance of the sum over all rows of `product`, by column.
    fn column_sums(
        &self,
        storage: &Storage,
        (elements, bounded): (&Elements, &Bounded),
        columns: usize,
        extra: impl Fn(usize) -> f64,
    ) -> Vec<f64> {
        let mut sums = vec![ColumnSum::default(); columns];
        for row in bounded.tau.chunks(columns) {
            sums.iter_mut().zip(row).for_each(|(sum, tau)| sum.worst += tau);
        }
        if self.natural {
            let grid = Grid::of(storage.dtype);
            let rounded = elements.rounded();
            for start in (0..elements.value.len()).step_by(columns) {
                for (c, sum) in sums.iter_mut().enumerate() {
                    let (i, rounded) = (start + c, rounded[start + c]);
                    let value = elements.value[i];
                    sum.squares += elements.squares[i];
                    sum.output += (storage.u * value) * (storage.u * value);
                    sum.repeated += rounded - value;
                    sum.stored += grid.nearest(rounded) - rounded;
                    sum.fp32 += elements.lambda[i] + storage.eta;
                }
            }
        }
        let tolerance = |(c, sum): (usize, &ColumnSum)| {
            let independent = TAIL * (sum.squares.sqrt() + sum.output.sqrt())
                + REPEATED * (sum.repeated.abs() + sum.stored.abs())
                + sum.fp32
                + extra(c);
            self.tolerance(sum.worst, independent)
        };
        sums.iter().enumerate().map(tolerance).collect()
    }

    /// Law 3. Both sides share dS and its roundings: what is left is the outputs' roundings.
    fn qk(&self, storage: &Storage, unit: &Unit, (elements, chain): (&GradientElements, &Gradients)) -> f64 {
        // Nor does the forward's error of delta and LSE tell them apart, which is all of `extra`.
        let mut terms = Terms::default();
        for (q, dq) in unit.q.iter().zip(elements.dq.iter().zip(&chain.dq)) {
            terms.add(storage, q, dq, |elements, i| elements.lambda[i]);
        }
        terms.add(storage, &unit.k, (&elements.dk, &chain.dk), |elements, i| elements.lambda[i]);
        self.tolerance(terms.worst, terms.independent())
    }

    /// Law 4.
    fn ov(
        &self,
        storage: &Storage,
        unit: &Unit,
        dv: (&Elements, &Bounded),
        (elements, o): (&[Elements], &[Bounded]),
    ) -> f64 {
        let mut terms = Terms::default();
        let fp32 = |elements: &Elements, i: usize| elements.lambda[i] + elements.extra[i];
        terms.add(storage, &unit.v, dv, fp32);
        for (dout, o) in unit.dout.iter().zip(elements.iter().zip(o)) {
            terms.add(storage, dout, o, fp32);
        }
        let roundings = TAIL * budget::ROUNDINGS_OF_P * self.p_squares.sqrt()
            + REPEATED * (self.p_repeated.abs() + self.o_repeated.abs());
        self.tolerance(terms.worst, terms.independent() + roundings)
    }

    /// The bounds added up; by squares where roundings are independent, and no term is without bound.
    fn tolerance(&self, worst: f64, independent: f64) -> f64 {
        if self.natural && worst.is_finite() { worst.min(independent) } else { worst }
    }
}

/// What the rows of one column add up to.
#[derive(Clone, Copy, Default)]
struct ColumnSum {
    worst: f64,
    squares: f64,
    output: f64,
    repeated: f64,
    stored: f64,
    fp32: f64,
}

/// Tolerance of a sum of products of an output with known values.
#[derive(Default)]
struct Terms {
    worst: f64,
    squares: f64,
    fp32: f64,
}

impl Terms {
    fn add(
        &mut self,
        storage: &Storage,
        known: &[f64],
        (elements, bounded): (&Elements, &Bounded),
        fp32: impl Fn(&Elements, usize) -> f64,
    ) {
        for (i, ((x, tau), value)) in known.iter().zip(&bounded.tau).zip(&elements.value).enumerate() {
            self.worst += x.abs() * tau;
            self.squares += (storage.u * value * x).powi(2);
            self.fp32 += x.abs() * (fp32(elements, i) + storage.eta);
        }
    }

    fn independent(&self) -> f64 {
        TAIL * self.squares.sqrt() + self.fp32
    }
}

/// Judges the four laws: at most one finding each, for the unit and column that is furthest off.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let mut worst: BTreeMap<u8, (Finding, usize)> = BTreeMap::new();
    for truth in evidence.truth.units.iter().filter(|truth| truth.laws.is_some()) {
        for (law, finding) in Sides::of(truth, evidence).findings(truth, evidence) {
            let (known, broken) = worst.entry(law).or_insert_with(|| (finding.clone(), 0));
            *broken += 1;
            if finding.error() > known.error() {
                *known = finding;
            }
        }
    }
    let all = evidence.truth.units.len();
    let noted = |(finding, broken): (Finding, usize)| {
        let note = format!("broken in {broken} of {all} pairs of sequence and kv head");
        Finding { note, ..finding }
    };
    worst.into_values().map(noted).collect()
}

/// The left sides of the laws, from a backend's outputs.
struct Sides {
    dv: Vec<f64>,
    dk: Vec<f64>,
    q_dq: f64,
    k_dk: f64,
    v_dv: f64,
    o_dout: f64,
}

impl Sides {
    fn of(truth: &UnitTruth, evidence: &Evidence) -> Sides {
        let (unit, outputs) = (&truth.unit, evidence.outputs);
        let case = &evidence.inputs.case;
        let queries = evidence.inputs.q_spans[unit.sequence].rows();
        let keys = evidence.inputs.kv_spans[unit.sequence].rows();
        let dk = outputs.dk.rows_of_head(keys.clone(), unit.kv_head);
        let dv = outputs.dv.rows_of_head(keys, unit.kv_head);
        let (mut q_dq, mut o_dout) = (0.0, 0.0);
        for (i, head) in query_heads(case, unit.kv_head).enumerate() {
            q_dq += dot(&unit.q[i], &outputs.dq.rows_of_head(queries.clone(), head));
            o_dout += dot(&unit.dout[i], &outputs.o.rows_of_head(queries.clone(), head));
        }
        let sums = |values: &[f64], columns: usize| -> Vec<f64> {
            (0..columns).map(|c| values.iter().skip(c).step_by(columns).sum()).collect()
        };
        Sides {
            dv: sums(&dv, unit.e),
            dk: sums(&dk, unit.d),
            q_dq,
            k_dk: dot(&unit.k, &dk),
            v_dv: dot(&unit.v, &dv),
            o_dout,
        }
    }

    /// At most one finding a law: the column that is furthest off.
    fn findings(&self, truth: &UnitTruth, evidence: &Evidence) -> Vec<(u8, Finding)> {
        let Some(laws) = &truth.laws else { return Vec::new() };
        let unit = &truth.unit;
        let one = self.dv.iter().zip(&laws.dv_sums).map(|(&got, &(want, bound))| (got, want, bound));
        let two = self.dk.iter().zip(&laws.dk_sums).map(|(&got, &bound)| (got, 0.0, bound));
        let worst = |law: u8, tensor: Output, sides: &mut dyn Iterator<Item = (f64, f64, f64)>| {
            let off = |&(_, (got, want, bound)): &(usize, (f64, f64, f64))| (got - want).abs() / bound;
            let (column, (got, want, bound)) = sides.enumerate().max_by(|a, b| off(a).total_cmp(&off(b)))?;
            // A sum that is not finite is the hygiene oracle's to report, with its element.
            let broken = got.is_finite() && (got - want).abs() > bound;
            let at = Coord { sequence: unit.sequence, row: None, head: unit.kv_head, column };
            let (call, tensor, kind, at) = (evidence.call, Some(tensor), Kind::Law(law), Some(at));
            let note = String::new();
            broken.then_some((law, Finding { call, tensor, kind, at, got, want, bound, note }))
        };
        let mut qk = std::iter::once((self.q_dq, self.k_dk, laws.qk));
        let mut ov = std::iter::once((self.v_dv, self.o_dout, laws.ov));
        let case = &evidence.inputs.case;
        // With a sink a row's probabilities do not add up to 1, nor its dS to 0; a cap ends linearity in K.
        let sums_to_one = case.sink == Sink::None;
        let linear = sums_to_one && case.softcap.is_none();
        let found = [
            if sums_to_one { worst(1, Output::Dv, &mut { one }) } else { None },
            if linear { worst(2, Output::Dk, &mut { two }) } else { None },
            worst(3, Output::Dq, &mut qk),
            worst(4, Output::Dv, &mut ov),
        ];
        found.into_iter().flatten().collect()
    }
}
