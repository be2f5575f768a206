//! What right outputs are, with the largest error that a right backend may show at each element.
//!
//! Three judgements are kept apart. The *forward*: O and LSE against fp64. The *backward* alone:
//! gradients given the O and LSE that the backend stored, the tight one, which says which half is
//! at fault. The *chain*: gradients against fp64 throughout, with the forward's permitted error
//! propagated. All three come from one walk over the reference's blocks; the formulas and their
//! names are those of `docs/oracle.md`, the constants those of [`budget`].

use super::budget::{self, Storage};
use super::laws::{LawBudget, LawSums};
use super::products::{Bounded, Operand, Product, Right};
use crate::case::Case;
use crate::contract::Rounding;
use crate::linalg;
use crate::reference::{Block, Unit, dot, log_sum_exp, probabilities};

/// O and LSE of a unit as the backend stored them, a vector for each query head.
#[derive(Clone, Debug)]
pub struct Received {
    /// `[m][e]`.
    pub o: Vec<Vec<f64>>,
    /// `[m]`.
    pub lse: Vec<Vec<f64>>,
}

/// Gradients of a unit with their bounds.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// dQ of each query head, `[m][d]`.
    pub dq: Vec<Bounded>,
    /// dK, `[n][d]`.
    pub dk: Bounded,
    /// dV, `[n][e]`.
    pub dv: Bounded,
}

/// Everything that a unit's outputs are judged by.
#[derive(Debug)]
pub struct UnitTruth {
    /// The unit.
    pub unit: Unit,
    /// O of each query head, `[m][e]`.
    pub o: Vec<Bounded>,
    /// LSE of each query head, `[m]`.
    pub lse: Vec<Bounded>,
    /// Gradients given the received O and LSE.
    pub backward: Gradients,
    /// Gradients of the whole chain.
    pub chain: Gradients,
    /// What the conservation laws may be off by.
    pub laws: LawBudget,
}

/// Works out a unit. `received` is what the backend stored.
pub fn work_out(unit: Unit, case: &Case, rounding: Rounding, received: &Received) -> UnitTruth {
    let mut walk = Walk::new(&unit, case, rounding);
    let (mut o, mut lse) = (Vec::new(), Vec::new());
    for head in 0..unit.q.len() {
        let (head_o, head_lse) = walk.head(head, received);
        o.push(head_o);
        lse.push(head_lse);
    }
    let Walk { storage, backward, mut chain, sums, extra, .. } = walk;
    for (i, x) in chain.products.dk.extra.iter_mut().enumerate() {
        *x += unit.scale.abs() * budget::roundings(extra.worst[i], extra.squares[i], extra.repeated[i]);
    }
    let o_bounded: Vec<_> = o.iter().map(|o| o.finish(&storage, |_| false)).collect();
    let backward = backward.finish(&storage).1;
    let (products, chain) = chain.finish(&storage);
    let laws = sums.budget(&storage, &unit, (&products, &chain), (&o, &o_bounded));
    let o = o_bounded;
    UnitTruth { o, lse, backward, chain, laws, unit }
}

/// The products that the gradients of one judgement are.
pub(super) struct GradientProducts {
    /// dQ of each query head; empty where nobody asks for it again.
    pub(super) dq: Vec<Product>,
    pub(super) dk: Product,
    pub(super) dv: Product,
}

/// Gradient sums of one judgement.
struct Sums {
    products: GradientProducts,
    dq: Vec<Bounded>,
    /// Rows of dQ, then of dK and dV, that may overflow or have no meaning.
    open_rows: Vec<bool>,
    open_keys: Vec<bool>,
}

impl Sums {
    fn new(unit: &Unit) -> Sums {
        let dk = Product::new(unit.n, unit.d, unit.scale);
        let dv = Product::new(unit.n, unit.e, 1.0);
        Sums {
            products: GradientProducts { dq: Vec::new(), dk, dv },
            dq: Vec::new(),
            open_rows: vec![false; unit.m],
            open_keys: vec![false; unit.n],
        }
    }

    /// Bounds a head's dQ, whose rows no other head shares.
    fn finish_head(&mut self, storage: &Storage, dq: &Product) {
        self.dq.push(dq.finish(storage, |row| self.open_rows[row]));
        self.open_rows.fill(false);
    }

    fn finish(self, storage: &Storage) -> (GradientProducts, Gradients) {
        let open = |key: usize| self.open_keys[key];
        let dk = self.products.dk.finish(storage, open);
        let dv = self.products.dv.finish(storage, open);
        (self.products, Gradients { dq: self.dq, dk, dv })
    }
}

/// What the forward's error of delta adds to dK: worst case, squares and repeated roundings.
struct DeltaInDk {
    worst: Vec<f64>,
    squares: Vec<f64>,
    repeated: Vec<f64>,
}

/// What the backward of one judgement takes from the forward, row by row of a block.
struct Forward {
    lse: Vec<f64>,
    delta: Vec<f64>,
    /// Error of delta from its accumulation.
    e_delta: Vec<f64>,
    /// Permitted error of the LSE; 0 where it is given.
    e_lse: Vec<f64>,
}

/// Error of delta that the forward's roundings of P and O pass on.
struct DeltaError {
    bound: Vec<f64>,
    repeated: Vec<f64>,
}

/// The products of a block that all judgements share, `[rows][keys]`.
struct Shared {
    s: Vec<f64>,
    /// `|c| |Q| |K|^T`.
    s_abs: Vec<f64>,
    dp: Vec<f64>,
    /// `|dO| |V|^T`.
    dp_abs: Vec<f64>,
    q: Right,
    dout: Right,
}

struct Walk<'a> {
    unit: &'a Unit,
    storage: Storage,
    rounding: Rounding,
    k: Right,
    v: Right,
    backward: Sums,
    chain: Sums,
    extra: DeltaInDk,
    sums: LawSums,
}

impl<'a> Walk<'a> {
    fn new(unit: &'a Unit, case: &Case, rounding: Rounding) -> Self {
        let zeros = || vec![0.0; unit.n * unit.d];
        Walk {
            unit,
            storage: Storage::of(case.dtype),
            rounding,
            k: Right::new(unit.d, &unit.k),
            v: Right::new(unit.e, &unit.v),
            backward: Sums::new(unit),
            chain: Sums::new(unit),
            extra: DeltaInDk { worst: zeros(), squares: zeros(), repeated: zeros() },
            sums: LawSums::new(unit, case),
        }
    }

    /// One query head: its O and LSE, and its share of all gradients.
    fn head(&mut self, head: usize, received: &Received) -> (Product, Bounded) {
        let unit = self.unit;
        let mut o = Product::new(unit.m, unit.e, 1.0);
        let mut lse = Bounded { value: vec![f64::NEG_INFINITY; unit.m], tau: vec![0.0; unit.m] };
        let mut chain_dq = Product::new(unit.m, unit.d, unit.scale);
        let mut given_dq = Product::new(unit.m, unit.d, unit.scale);
        for block in unit.blocks().into_iter().filter(|block| !block.keys.is_empty()) {
            let shared = self.shared(head, &block);
            let p = self.forward(&shared, &block, &mut o, &mut lse);
            let exact = self.exact(&shared, &block, &o, &lse);
            let error = self.delta_error(&shared, &block, &p, &o);
            self.sums.add_block(&block, &shared.dp, &p, &error.repeated);
            self.delta_in_chain(&shared, &block, &p, &exact, &error, &mut chain_dq);
            self.gradients(&shared, &block, &exact, &mut chain_dq, true);
            let given = self.given(head, &shared, &block, received);
            self.gradients(&shared, &block, &given, &mut given_dq, false);
        }
        self.chain.finish_head(&self.storage, &chain_dq);
        self.backward.finish_head(&self.storage, &given_dq);
        self.chain.products.dq.push(chain_dq);
        self.sums.add_head(unit, head);
        (o, lse)
    }

    fn shared(&self, head: usize, block: &Block) -> Shared {
        let unit = self.unit;
        let (q, dout) = (unit.q_rows(head, block), unit.dout_rows(head, block));
        let (q, dout) = (Right::new(unit.d, q), Right::new(unit.e, dout));
        let (rows, keys) = (block.rows.len(), block.keys.len());
        let (mut s_abs, mut dp_abs) = (vec![0.0; rows * keys], vec![0.0; rows * keys]);
        let k_abs = &self.k.abs[block.keys.start * unit.d..block.keys.end * unit.d];
        let v_abs = &self.v.abs[block.keys.start * unit.e..block.keys.end * unit.e];
        linalg::nt(rows, unit.d, keys, &q.abs, k_abs, &mut s_abs);
        linalg::nt(rows, unit.e, keys, &dout.abs, v_abs, &mut dp_abs);
        s_abs.iter_mut().for_each(|x| *x *= unit.scale.abs());
        let (s, dp) = (unit.scores(head, block), unit.d_probabilities(head, block));
        Shared { s, s_abs, dp, dp_abs, q, dout }
    }

    /// O and LSE of a block's rows; returns P with its roundings.
    fn forward(&self, shared: &Shared, block: &Block, o: &mut Product, lse: &mut Bounded) -> Operand {
        let (unit, width) = (self.unit, block.keys.len());
        let mut p = Operand::zeros(shared.s.len());
        let mut row = vec![0.0; width];
        for (r, i) in block.rows.clone().enumerate() {
            let at = r * width..(r + 1) * width;
            let (s, s_abs) = (&shared.s[at.clone()], &shared.s_abs[at.clone()]);
            let l = log_sum_exp(s);
            if l == f64::NEG_INFINITY {
                continue;
            }
            let max = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let seen = unit.visible(i).len();
            probabilities(s, l, &mut row);
            let rounded = self.running_max_rounding(s, &row, l, block.keys.start);
            let mut largest: f64 = 0.0;
            for j in (0..width).filter(|&j| s[j] != f64::NEG_INFINITY) {
                let e = budget::score(unit.d, s_abs[j], s[j], l.abs().max(max.abs()));
                largest = largest.max(e);
                let error = (budget::exp_minus_one(e) + budget::accumulation(seen)) * row[j];
                p.set(at.start + j, row[j], rounded[j], self.storage.operand(row[j], 1.0), error);
            }
            lse.value[i] = l;
            lse.tau[i] = budget::lse(largest, l, seen);
        }
        o.add_rows(&p, block.rows.clone(), &self.v, block.keys.clone());
        for i in block.rows.clone() {
            // The row sum divides O, and carries the error of every logit.
            for at in i * unit.e..(i + 1) * unit.e {
                o.extra[at] = lse.tau[i] * o.y[at].abs();
            }
        }
        p
    }

    /// P of one row as a forward rounds it: relative to the maximum of the tiles so far.
    fn running_max_rounding(&self, s: &[f64], p: &[f64], l: f64, first_key: usize) -> Vec<f64> {
        let tile = self.rounding.forward_tile;
        let mut max = f64::NEG_INFINITY;
        let mut rounded = Vec::with_capacity(s.len());
        let mut j = 0;
        while j < s.len() {
            let end = ((first_key + j) / tile * tile + tile - first_key).min(s.len());
            max = s[j..end].iter().copied().fold(max, f64::max);
            let factor = (l - max).exp();
            let round = |p: f64| self.storage.dtype.round(p * factor) / factor;
            rounded.extend(p[j..end].iter().map(|&p| if max > f64::NEG_INFINITY { round(p) } else { 0.0 }));
            j = end;
        }
        rounded
    }

    /// What the exact forward hands to the chain.
    fn exact(&self, shared: &Shared, block: &Block, o: &Product, lse: &Bounded) -> Forward {
        let o_rows: Vec<f64> =
            (block.rows.start * self.unit.e..block.rows.end * self.unit.e).map(|i| o.value(i)).collect();
        let mut forward = self.deltas(shared, &o_rows, lse.value[block.rows.clone()].to_vec());
        forward.e_lse = lse.tau[block.rows.clone()].to_vec();
        forward
    }

    /// What the received forward hands to the backward; rows of no meaning are left open.
    fn given(&mut self, head: usize, shared: &Shared, block: &Block, received: &Received) -> Forward {
        let e = self.unit.e;
        let o = &received.o[head][block.rows.start * e..block.rows.end * e];
        let lse = &received.lse[head][block.rows.clone()];
        let forward = self.deltas(shared, o, lse.to_vec());
        for (r, i) in block.rows.clone().enumerate() {
            let usable = forward.lse[r].is_finite() && forward.delta[r].is_finite();
            if !usable && !self.unit.visible(i).is_empty() {
                self.backward.open_rows[i] = true;
                self.unit.visible(i).for_each(|j| self.backward.open_keys[j] = true);
            }
        }
        forward
    }

    fn deltas(&self, shared: &Shared, o: &[f64], lse: Vec<f64>) -> Forward {
        let e = self.unit.e;
        let rows = || o.chunks(e).zip(shared.dout.value.chunks(e));
        let delta = rows().map(|(o, dout)| dot(o, dout)).collect();
        let abs = |o: &[f64], dout: &[f64]| o.iter().zip(dout).map(|(a, b)| (a * b).abs()).sum();
        let e_delta = rows().map(|(o, dout)| budget::delta(e, abs(o, dout))).collect();
        Forward { e_lse: vec![0.0; lse.len()], lse, delta, e_delta }
    }

    /// What the roundings of P and O in the forward make of delta, row by row.
    fn delta_error(&self, shared: &Shared, block: &Block, p: &Operand, o: &Product) -> DeltaError {
        let (e, u, width) = (self.unit.e, self.storage.u, block.keys.len());
        let mut error = DeltaError { bound: Vec::new(), repeated: Vec::new() };
        for (r, i) in block.rows.clone().enumerate() {
            let (mut worst, mut squares, mut from_p) = (0.0, 0.0, 0.0);
            for at in r * width..(r + 1) * width {
                let x = p.unit[at] * shared.dp[at];
                worst += x.abs();
                squares += x * x;
                from_p += (p.rounded[at] - p.value[at]) * shared.dp[at];
            }
            let mut bound = budget::roundings(worst, squares, from_p);
            let (mut worst, mut squares, mut from_o) = (0.0, 0.0, 0.0);
            for k in 0..e {
                let (at, dout) = (i * e + k, shared.dout.value[r * e + k]);
                let x = (u * o.value(at)).abs().max(self.storage.eta) * dout;
                worst += x.abs();
                squares += x * x;
                from_o += dout * (self.storage.dtype.round(o.rounded(at)) - o.rounded(at));
                bound += o.lambda(at) * dout.abs();
            }
            bound += budget::roundings(worst, squares, from_o);
            error.bound.push(bound);
            error.repeated.push(from_p + from_o);
        }
        error
    }

    /// What delta's and the LSE's permitted errors add to dQ and dK of the chain.
    fn delta_in_chain(
        &mut self,
        shared: &Shared,
        block: &Block,
        p: &Operand,
        exact: &Forward,
        error: &DeltaError,
        dq: &mut Product,
    ) {
        let (unit, d) = (self.unit, self.unit.d);
        let (rows, keys) = (block.rows.len(), block.keys.len());
        let k = &self.k.value[block.keys.start * d..block.keys.end * d];
        let mut pk = vec![0.0; rows * d];
        linalg::nn(rows, keys, d, &p.value, k, &mut pk, false);
        for (r, i) in block.rows.clone().enumerate() {
            for c in 0..d {
                dq.extra[i * d + c] += unit.scale.abs() * error.bound[r] * pk[r * d + c].abs();
            }
        }
        let times = |factor: &[f64]| -> Vec<f64> {
            let rows = p.value.chunks(keys).zip(factor);
            rows.flat_map(|(p, f)| p.iter().map(move |p| p * f)).collect()
        };
        let bound = times(&error.bound);
        let squares: Vec<f64> = bound.iter().map(|x| x * x).collect();
        let range = block.keys.start * d..block.keys.end * d;
        let extra = &mut self.extra;
        linalg::tn_add(keys, rows, d, &bound, &shared.q.abs, &mut extra.worst[range.clone()]);
        linalg::tn_add(keys, rows, d, &squares, &shared.q.square, &mut extra.squares[range.clone()]);
        let repeated = times(&error.repeated);
        linalg::tn_add(keys, rows, d, &repeated, &shared.q.value, &mut extra.repeated[range]);
        let seen = exact.lse.iter().map(|l| l.is_finite());
        self.sums.add_delta_error(&shared.q, seen, error.bound.iter().zip(&error.repeated));
    }

    /// Adds a block's share of dQ, dK and dV, given what the forward handed over.
    fn gradients(
        &mut self,
        shared: &Shared,
        block: &Block,
        forward: &Forward,
        dq: &mut Product,
        chain: bool,
    ) {
        let unit = self.unit;
        let sums = if chain { &mut self.chain } else { &mut self.backward };
        let (mut p, mut ds) = operands(unit, &self.storage, shared, block, forward, sums);
        let (rows, keys) = (block.rows.clone(), block.keys.clone());
        let over_keys = budget::accumulation(unit.n);
        let over_rows = budget::accumulation(unit.m * unit.q.len());
        charge(&mut ds, keys.len(), |_| over_keys);
        dq.add_rows(&ds, rows.clone(), &self.k, keys.clone());
        if chain {
            for (r, i) in rows.clone().enumerate() {
                for at in i * unit.d..(i + 1) * unit.d {
                    dq.extra[at] += 2.0 * forward.e_lse[r] * dq.value(at).abs();
                }
            }
        }
        charge(&mut ds, keys.len(), |r| over_rows - over_keys + forward.e_lse[r]);
        charge(&mut p, keys.len(), |r| over_rows + forward.e_lse[r]);
        let rows = 0..rows.len();
        sums.products.dk.add_columns(&ds, rows.clone(), &shared.q, keys.clone());
        sums.products.dv.add_columns(&p, rows, &shared.dout, keys);
    }
}

/// Adds a relative error, by row, to an operand's fp32-level error.
fn charge(a: &mut Operand, width: usize, relative: impl Fn(usize) -> f64) {
    for (r, (error, value)) in a.error.chunks_mut(width).zip(a.value.chunks(width)).enumerate() {
        let relative = relative(r);
        error.iter_mut().zip(value).for_each(|(e, x)| *e += relative * x.abs());
    }
}

/// P and dS of a block with their roundings and fp32-level errors, accumulation apart.
fn operands(
    unit: &Unit,
    storage: &Storage,
    shared: &Shared,
    block: &Block,
    forward: &Forward,
    sums: &mut Sums,
) -> (Operand, Operand) {
    let (width, c) = (block.keys.len(), unit.scale.abs());
    let (mut p, mut ds) = (Operand::zeros(shared.s.len()), Operand::zeros(shared.s.len()));
    for (r, i) in block.rows.clone().enumerate() {
        let (l, delta) = (forward.lse[r], forward.delta[r]);
        if !l.is_finite() || !delta.is_finite() {
            continue;
        }
        for (j, at) in block.keys.clone().zip(r * width..) {
            let s = shared.s[at];
            if s == f64::NEG_INFINITY {
                continue;
            }
            let (x, dp) = ((s - l).exp(), shared.dp[at]);
            let y = x * (dp - delta);
            let e_score = budget::score(unit.d, shared.s_abs[at], s, l.abs());
            let e_dp = budget::d_probability(unit.e, shared.dp_abs[at]);
            let e_ds = budget::d_score(x, dp, delta, y, e_score, e_dp, forward.e_delta[r]);
            let e_p = budget::exp_minus_one(e_score) * x;
            let finite = x + e_p < storage.overflow && y.abs() + e_ds < storage.overflow;
            if !finite {
                // A right backend may round this to infinity, and then anything follows.
                sums.open_rows[i] = true;
                sums.open_keys[j] = true;
                continue;
            }
            p.set(at, x, storage.dtype.round(x), storage.operand(x, 1.0), e_p);
            ds.set(at, y, storage.dtype.round(y), storage.operand(y, c), e_ds);
        }
    }
    (p, ds)
}
