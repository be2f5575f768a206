//! One walk over the blocks of a unit that works out all three judgements.

use std::ops::Range;

use super::super::Depth;
use super::super::budget::{self, Beside, OwnDelta, ScoreError, Storage};
use super::super::laws::LawSums;
use super::super::products::{Along, Applied, Bounded, Loose, Place, Product, Right, Shape, loops, unit_of};
use super::super::rounding::Grid;
use super::delta::{DeltaError, DeltaInDk};
use super::operands::{AppliedPair, LoosePair, Row, Terms, apply_scaled, score_errors};
use super::sink::{SinkRow, SinkSum};
use super::{Received, Sums, WholeSums};
use crate::case::Case;
use crate::contract::{Rounding, Weights};
use crate::reference::{Block, Unit, dot, probabilities};

/// What the backward of one judgement takes from the forward, row by row of a block.
pub(super) struct Forward {
    pub(super) lse: Vec<f64>,
    delta: Vec<f64>,
    /// Error of delta from its accumulation.
    e_delta: Vec<f64>,
    /// Permitted error of the LSE; 0 where it is given.
    e_lse: Vec<f64>,
}

/// What all judgements share of a block, `[rows][keys]`.
pub(in super::super) struct Shared {
    /// S, 0 where masked.
    pub(super) s: Vec<f64>,
    /// Largest S of each row, the sink among them, and the sink; -inf without one.
    max: Vec<f64>,
    sink: Vec<f64>,
    /// P at the exact L, 0 where masked.
    pub(in super::super) p: Vec<f64>,
    pub(in super::super) dp: Vec<f64>,
    /// The keys that each row sees, counted from the block's first.
    pub(in super::super) seen: Vec<Range<usize>>,
}

/// The operands of one query head.
pub(super) struct Queries {
    pub(super) q: Right,
    pub(super) dout: Right,
}

/// The walk over a unit's blocks, head by head.
pub(super) struct Walk<'a> {
    pub(super) unit: &'a Unit,
    pub(super) storage: Storage,
    pub(super) grid: Grid,
    rounding: Rounding,
    /// What is rounded beside P and dS.
    beside: Beside,
    /// The factor on dS when it is rounded.
    ds_factor: f64,
    pub(super) k: Right,
    v: Right,
    /// Powers of two that no element of q, dO and dS exceeds by much.
    pub(super) q_unit: f64,
    dout_unit: f64,
    /// What a row of dO counts for at least: subnormals are aligned as the least normal number.
    least_dout_norm: f64,
    pub(super) ds_unit: f64,
    pub(super) backward: Sums,
    /// The chain and the laws, where they are asked for.
    pub(super) whole: Option<WholeSums>,
    /// Buffers that are used again.
    terms: Terms,
    pair: LoosePair,
}

impl<'a> Walk<'a> {
    pub(super) fn new(unit: &'a Unit, case: &Case, rounding: Rounding, depth: Depth) -> Self {
        let storage = Storage::of(case.dtype);
        let k = Right::new(unit.d, &unit.k, unit_of(unit.k.iter()));
        let v = Right::new(unit.e, &unit.v, unit_of(unit.v.iter()));
        let [q_unit, dout_unit] = [&unit.q, &unit.dout].map(|heads| unit_of(heads.iter().flatten()));
        // |dP - D| is at most twice a product of norms, each at most sqrt(e) times its largest element.
        let ds_unit = ((2 * unit.e) as f64).log2().ceil().exp2() * dout_unit * v.unit;
        let subnormal = budget::is_subnormal(&storage, dout_unit);
        let least = case.dtype.min_normal() * (unit.e as f64).sqrt();
        let least_dout_norm = if subnormal { least } else { 0.0 };
        Walk {
            unit,
            storage,
            beside: Beside::new(rounding.recipe, &storage),
            ds_factor: rounding.recipe.ds.factor(unit.scale),
            grid: Grid::of(case.dtype),
            rounding,
            k,
            v,
            q_unit,
            dout_unit,
            least_dout_norm,
            ds_unit,
            backward: Sums::new(unit, ds_unit, !rounding.is_applied()),
            whole: (depth == Depth::Whole).then(|| WholeSums {
                chain: Sums::new(unit, ds_unit, true),
                chain_dq: Vec::new(),
                extra: DeltaInDk::zeros(unit.n * unit.d),
                sums: LawSums::new(unit, case, rounding),
            }),
            terms: Terms::default(),
            pair: LoosePair::default(),
        }
    }

    /// One query head: its O and LSE, and its share of all gradients.
    pub(super) fn head(&mut self, head: usize, received: &Received) -> (Product, Bounded) {
        let unit = self.unit;
        let queries = Queries {
            q: Right::new(unit.d, &unit.q[head], self.q_unit),
            dout: Right::new(unit.e, &unit.dout[head], self.dout_unit),
        };
        let mut o = self.output_of_forward();
        // What a row without a key has.
        let alone = unit.log_sum_exp(head, &[]);
        let tau = if alone.is_finite() { budget::lse(0.0, alone, 1) } else { 0.0 };
        let mut lse = Bounded { value: vec![alone; unit.m], tau: vec![tau; unit.m], ..Bounded::default() };
        let mut sinks = [SinkSum::default(), SinkSum::default()];
        let mut whole = self.whole.take();
        let mut given_dq = self.query_gradient(!self.rounding.is_applied());
        given_dq.meet(&self.k);
        self.backward.meet(&queries);
        let mut chain_dq = whole.as_mut().map(|whole| {
            whole.chain.meet(&queries);
            let mut dq = self.query_gradient(true);
            dq.meet(&self.k);
            dq
        });
        for block in unit.blocks().into_iter().filter(|block| !block.keys.is_empty()) {
            let shared = self.shared(head, &queries, &block, &mut lse);
            let shift = self.forward(&shared, &queries, &block, &mut o, &mut lse);
            if let (Some(whole), Some(dq)) = (&mut whole, &mut chain_dq) {
                let exact = self.exact(&shared, &queries, &block, (&o, &lse));
                let error = self.delta_error(&shared, &queries, &block, &shift, &o);
                whole.sums.add_block(&error);
                self.delta_in_chain(&shared, &queries, &block, (&exact, &error), (whole, dq));
                self.sink_gradient(head, &block, &exact, Some(&error), &mut sinks[1]);
                self.gradients_of_chain(&shared, &queries, &block, &exact, (&mut whole.chain, dq));
            }
            let given = self.given((head, &lse), &shared, &queries, &block, received);
            self.sink_gradient(head, &block, &given, None, &mut sinks[0]);
            self.gradients_given(&shared, &queries, &block, (&lse, &given), &mut given_dq);
        }
        let [given, chain] = sinks;
        self.backward.allow_for_head(&self.beside);
        self.backward.sinks.push(given);
        self.backward.finish_head(&self.storage, self.grid, given_dq);
        if let (Some(whole), Some(dq)) = (&mut whole, &chain_dq) {
            whole.chain.allow_for_head(&self.beside);
            whole.chain.sinks.push(chain);
            let elements = whole.chain.finish_head_with_elements(&self.storage, self.grid, dq);
            whole.chain_dq.push(elements);
            whole.sums.add_head(unit, head);
        }
        self.whole = whole;
        (o, lse)
    }

    fn output_of_forward(&self) -> Product {
        let (unit, n) = (self.unit, self.unit.n);
        let accumulation = budget::accumulation(n) + budget::rescaling(n, self.rounding.forward_tile);
        let shape = Shape {
            output: [unit.m, unit.e],
            terms: n,
            accumulation,
            scale: 1.0,
            unit: 1.0,
            loose: !self.rounding.is_applied(),
        };
        let mut o = Product::beside_exact(shape);
        o.meet(&self.v);
        o
    }

    fn query_gradient(&self, loose: bool) -> Product {
        let (unit, n) = (self.unit, self.unit.n);
        let accumulation = budget::accumulation_of_tiles(n) + self.beside.in_accumulation_of_dq();
        let output = [unit.m, unit.d];
        Product::new(Shape { output, terms: n, accumulation, scale: unit.scale, unit: self.ds_unit, loose })
    }

    /// S, P and dP of a block, and the LSE of its rows.
    fn shared(&self, head: usize, queries: &Queries, block: &Block, lse: &mut Bounded) -> Shared {
        let (unit, width) = (self.unit, block.keys.len());
        let (mut s, dp) = (unit.scores(head, block), unit.d_probabilities(head, block));
        let mut p = vec![0.0; s.len()];
        let (mut max, mut seen, mut sink) = (Vec::new(), Vec::new(), Vec::new());
        for (r, i) in block.rows.clone().enumerate() {
            let keys = unit.visible(i);
            let keys = if keys.is_empty() {
                0..0
            } else {
                keys.start - block.keys.start..keys.end - block.keys.start
            };
            let row = &mut s[r * width..(r + 1) * width];
            let visible = &row[keys.clone()];
            let l = unit.log_sum_exp(head, visible);
            probabilities(visible, l, &mut p[r * width..][keys.clone()]);
            // The running maximum starts at the sink.
            let start = unit.sink[head].unwrap_or(f64::NEG_INFINITY);
            max.push(visible.iter().copied().fold(start, f64::max));
            sink.push(start);
            row[..keys.start].fill(0.0);
            row[keys.end..].fill(0.0);
            lse.value[i] = l;
            seen.push(keys);
        }
        debug_assert_eq!(queries.q.norms.len(), unit.m);
        Shared { s, max, sink, p, dp, seen }
    }

    /// Errors of a row's logits, with the cap on them, if there is one; returns the largest.
    fn score_errors(
        &self,
        score: ScoreError,
        q_norm: f64,
        k_norms: &[f64],
        s: &[f64],
        errors: &mut Vec<f64>,
    ) -> f64 {
        errors.resize(s.len(), 0.0);
        match self.unit.softcap {
            None => score_errors(score, q_norm, k_norms, s, errors),
            Some(cap) => {
                for ((error, &s), &k) in errors.iter_mut().zip(s).zip(k_norms) {
                    *error = score.of_capped(q_norm * k, s, self.unit.slope(s), cap);
                }
                errors.iter().copied().fold(0.0, f64::max)
            }
        }
    }

    /// Adds a block's rows to dSink.
    fn sink_gradient(
        &self,
        head: usize,
        block: &Block,
        forward: &Forward,
        error: Option<&DeltaError>,
        sum: &mut SinkSum,
    ) {
        let Some(sink) = self.unit.sink[head] else { return };
        for r in 0..block.rows.len() {
            let of_forward = error.map_or((0.0, 0.0), |error| (error.bound[r], error.repeated[r]));
            sum.add(&SinkRow {
                sink,
                lse: forward.lse[r],
                e_lse: forward.e_lse[r],
                delta: forward.delta[r],
                e_delta: forward.e_delta[r],
                forward: of_forward,
            });
        }
    }

    /// Errors of the logits of row `r`, whose norm of q is `q`.
    fn score_error(&self, shared: &Shared, r: usize, l: f64, q: f64) -> ScoreError {
        let d = self.unit.d;
        self.beside.in_scores(ScoreError::new(d, l.abs().max(shared.max[r].abs())), d, q)
    }

    /// O and the bound of the LSE of a block's rows; returns what the forward's roundings move P by.
    fn forward(
        &self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        o: &mut Product,
        lse: &mut Bounded,
    ) -> Vec<f32> {
        let (unit, width) = (self.unit, block.keys.len());
        let mut applied = Applied { centre: vec![0.0; shared.p.len()], ties: Vec::new() };
        // Relative errors of P, and what they come from.
        let (mut relative, mut errors) = (vec![0.0; shared.p.len()], Vec::new());
        // How far the weights of a row's tiles may be off against each other.
        let mut weights = vec![0.0; block.rows.len()];
        for (r, i) in block.rows.clone().enumerate() {
            let seen = shared.seen[r].clone();
            if seen.is_empty() {
                continue;
            }
            let at = r * width + seen.start..r * width + seen.end;
            let (s, p) = (&shared.s[at.clone()], &shared.p[at]);
            let l = lse.value[i];
            let score = self.score_error(shared, r, l, queries.q.norms[i]);
            let q_norm = unit.scale.abs() * queries.q.norms[i];
            let k_norms = &self.k.norms[block.keys.start..][seen.clone()];
            let largest = self.score_errors(score, q_norm, k_norms, s, &mut errors);
            // The running maximum is off by as much as the logit that it is.
            budget::with_that_of_maximum(&mut errors, largest);
            relative[r * width + seen.start..][..errors.len()].copy_from_slice(&errors);
            let tiles = self.running_max(s, shared.sink[r], block.keys.start + seen.start);
            weights[r] = budget::weights_of_tiles(&tiles, largest);
            for (keys, max) in tiles {
                let factor = self.weight_of(l, max);
                let at = (r, width, seen.start + keys.start);
                apply_scaled(&mut applied, self.grid, at, factor, &p[keys.clone()], &errors[keys]);
            }
            lse.tau[i] = budget::lse(largest, l, seen.len() + usize::from(unit.sink[0].is_some()));
        }
        let shift = loops::differences(&applied.centre, &shared.p);
        let place = Place { along: Along::Rows, to: block.rows.clone(), from: block.keys.clone() };
        match self.rounding.is_applied() {
            true => o.add_beside_exact(&shared.p, &shift, &applied.ties, &place, &self.v),
            false => {
                let unit = shared.p.iter().map(|&p| self.storage.operand(p, 0.0)).collect();
                let error = relative.iter().zip(&shared.p).map(|(e, p)| e * p).collect();
                let eta = self.storage.eta;
                let p = Loose { value: shared.p.clone(), rounding: shift.clone(), unit, error, eta };
                o.add_loose(&p, &place, &self.v, |_| 0.0);
            }
        }
        for (weights, i) in weights.iter().zip(block.rows.clone()) {
            // The row sum divides O, and carries the error of every logit.
            for at in i * unit.e..(i + 1) * unit.e {
                o.extra[at] = lse.tau[i] * o.y[at].abs() + weights * o.size(at);
            }
        }
        shift
    }

    /// The factor on P when the forward rounds it, `max` being the running maximum.
    fn weight_of(&self, l: f64, max: f64) -> f64 {
        if self.rounding.recipe.weights == Weights::Running { (l - max).exp() } else { 1.0 }
    }

    /// The tiles of a row's keys, each with the maximum up to its end, relative to which P is rounded.
    fn running_max(&self, s: &[f64], sink: f64, first_key: usize) -> Vec<(Range<usize>, f64)> {
        let tile = self.rounding.forward_tile;
        let mut max = sink;
        let mut tiles = Vec::new();
        let mut start = 0;
        while start < s.len() {
            let end = ((first_key + start) / tile * tile + tile - first_key).min(s.len());
            max = s[start..end].iter().copied().fold(max, f64::max);
            tiles.push((start..end, max));
            start = end;
        }
        tiles
    }

    /// What the exact forward hands to the chain.
    fn exact(
        &self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        (o, lse): (&Product, &Bounded),
    ) -> Forward {
        let e = self.unit.e;
        let rows = block.rows.clone();
        let exact = &lse.value[rows.clone()];
        let o = &o.y[rows.start * e..rows.end * e];
        let mut forward = self.deltas(shared, queries, block, (o, exact.to_vec()), exact);
        forward.e_lse = lse.tau[rows].to_vec();
        forward
    }

    /// What the received forward hands to the backward; rows of no meaning are left open.
    fn given(
        &mut self,
        (head, lse): (usize, &Bounded),
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        received: &Received,
    ) -> Forward {
        let e = self.unit.e;
        let rows = block.rows.clone();
        let o = &received.o[head][rows.start * e..rows.end * e];
        let from = (o, received.lse[head][rows.clone()].to_vec());
        let forward = self.deltas(shared, queries, block, from, &lse.value[rows.clone()]);
        for (r, i) in rows.enumerate() {
            let usable = forward.lse[r].is_finite() && forward.delta[r].is_finite();
            if !usable && !self.unit.visible(i).is_empty() {
                self.backward.open(i, self.unit.visible(i));
            }
        }
        forward
    }

    /// delta of a block's rows and its error, from O and LSE; `exact` is the exact LSE.
    fn deltas(
        &self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        (o, lse): (&[f64], Vec<f64>),
        exact: &[f64],
    ) -> Forward {
        let e = self.unit.e;
        let dout = &queries.dout.value[block.rows.start * e..block.rows.end * e];
        let sizes = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(a, b)| (a * b).abs()).sum::<f64>();
        let (mut delta, mut e_delta) = (Vec::new(), Vec::new());
        for (r, (o, dout)) in o.chunks(e).zip(dout.chunks(e)).enumerate() {
            let of_o = sizes(o, dout);
            delta.push(dot(o, dout));
            e_delta.push(budget::delta(e, of_o));
            if self.beside.has_delta_of_its_own() {
                let row = self.own_delta(shared, queries, block, (r, lse[r], exact[r]), (of_o, dout));
                e_delta[r] += self.beside.in_delta(&row);
            }
        }
        Forward { e_lse: vec![0.0; lse.len()], lse, delta, e_delta }
    }

    /// What the error of a delta that is a sum over the keys of row `r` comes from; P is that at `l`, `o_dout` is
    /// `sum |O||dO|`.
    fn own_delta(
        &self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        (r, l, exact): (usize, f64, f64),
        (o_dout, dout): (f64, &[f64]),
    ) -> OwnDelta {
        let width = block.keys.len();
        let keys = shared.seen[r].clone();
        let at = r * width + keys.start..r * width + keys.end;
        let i = block.rows.start + r;
        let score = self.score_error(shared, r, l, queries.q.norms[i]);
        let norms = block.keys.start + keys.start..block.keys.start + keys.end;
        let q_norm = self.unit.scale.abs() * queries.q.norms[i];
        let s = &shared.s[at.clone()];
        let score = self.score_errors(score, q_norm, &self.k.norms[norms.clone()], s, &mut Vec::new());
        let sizes = shared.p[at.clone()].iter().zip(&shared.dp[at]).map(|(p, dp)| (p * dp).abs());
        let largest = self.v.norms[norms].iter().copied().fold(0.0, f64::max);
        OwnDelta {
            keys: keys.len(),
            d_v: self.unit.e,
            score,
            p_dp: (exact - l).exp() * sizes.sum::<f64>(),
            dp: queries.dout.norms[i] * largest,
            o_dout,
            dout: dout.iter().map(|x| x.abs()).sum(),
        }
    }

    /// Works out a row's P and dS; what may overflow leaves its row and keys open.
    fn row(
        &mut self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        (r, p): (usize, &[f64]),
        forward: &Forward,
        mut open: impl FnMut(usize, Range<usize>),
    ) {
        let (i, width, seen) = (block.rows.start + r, block.keys.len(), shared.seen[r].clone());
        let at = r * width + seen.start..r * width + seen.end;
        let keys = block.keys.start + seen.start..block.keys.start + seen.end;
        let row = Row {
            p,
            s: &shared.s[at.clone()],
            dp: &shared.dp[at],
            k_norms: &self.k.norms[keys.clone()],
            v_norms: &self.v.norms[keys.clone()],
            q_norm: self.unit.scale.abs() * queries.q.norms[i],
            dout_norm: queries.dout.norms[i].max(self.least_dout_norm),
            delta: forward.delta[r],
            e_delta: forward.e_delta[r],
            score: self.score_error(shared, r, forward.lse[r], queries.q.norms[i]),
            e: self.unit.e,
            cap: self.unit.softcap,
            beside: self.beside,
        };
        // Where the factor is more than 1, dS overflows the earlier.
        let overflow = self.storage.overflow / self.ds_factor.abs().max(1.0);
        if !self.terms.fill(&row, overflow) {
            return;
        }
        self.terms.tame(p, overflow, |j| open(i, keys.start + j..keys.start + j + 1));
    }

    /// Adds a block's share of dQ, dK and dV of the chain.
    fn gradients_of_chain(
        &mut self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        exact: &Forward,
        (chain, dq): (&mut Sums, &mut Product),
    ) {
        let (unit, width) = (self.unit, block.keys.len());
        let mut pair = std::mem::take(&mut self.pair);
        pair.clear(shared.p.len(), self.storage.eta, self.ds_factor);
        for (r, seen) in shared.seen.iter().enumerate().filter(|(_, seen)| !seen.is_empty()) {
            let p = &shared.p[r * width..][seen.clone()];
            self.row(shared, queries, block, (r, p), exact, |row, keys| chain.open(row, keys));
            pair.set(&self.storage, self.grid, (r, width), seen, (p, &self.terms, self.ds_factor));
        }
        let rows = Place { along: Along::Rows, to: block.rows.clone(), from: block.keys.clone() };
        dq.add_loose(&pair.ds, &rows, &self.k, |_| 0.0);
        self.allow_in_dq(&pair, block, dq);
        for (r, i) in block.rows.clone().enumerate() {
            for at in i * unit.d..(i + 1) * unit.d {
                dq.extra[at] += budget::lse_in_dq(exact.e_lse[r], unit.scale * dq.y[at]);
            }
        }
        let columns = Place { along: Along::Columns, to: block.keys.clone(), from: block.rows.clone() };
        let products = &mut chain.products;
        products.dk.add_loose(&pair.ds, &columns, &queries.q, |r| exact.e_lse[r]);
        products.dv.add_loose(&pair.p, &columns, &queries.dout, |r| exact.e_lse[r]);
        self.pair = pair;
    }

    /// Allows for what a recipe rounds of K in dQ, beside what its accumulation is charged with.
    fn allow_in_dq(&self, pair: &LoosePair, block: &Block, dq: &mut Product) {
        if self.beside.is_nothing() {
            return;
        }
        let (d, width) = (self.unit.d, block.keys.len());
        let rows = pair.ds.value.chunks(width).zip(pair.ds.error.chunks(width));
        for (i, (ds, error)) in block.rows.clone().zip(rows) {
            let size = ds.iter().zip(error).map(|(ds, error)| ds.abs() + error).sum();
            dq.extra[i * d..(i + 1) * d].iter_mut().for_each(|x| *x += self.beside.in_dq(size));
        }
    }

    /// Adds a block's share of dQ, dK and dV, given the O and LSE that the backend stored.
    fn gradients_given(
        &mut self,
        shared: &Shared,
        queries: &Queries,
        block: &Block,
        (lse, given): (&Bounded, &Forward),
        dq: &mut Product,
    ) {
        let (width, len) = (block.keys.len(), shared.p.len());
        let known = self.rounding.is_applied();
        let mut applied = AppliedPair::zeros(if known { len } else { 0 });
        let mut loose = LoosePair::default();
        loose.clear(if known { 0 } else { len }, self.storage.eta, self.ds_factor);
        let (mut p, mut opened) = (Vec::new(), Vec::new());
        for (r, seen) in shared.seen.iter().enumerate().filter(|(_, seen)| !seen.is_empty()) {
            let l = given.lse[r];
            if !l.is_finite() || !given.delta[r].is_finite() {
                continue;
            }
            let at = r * width + seen.start..r * width + seen.end;
            rescale(&shared.p[at.clone()], &shared.s[at], lse.value[block.rows.start + r], l, &mut p);
            self.row(shared, queries, block, (r, &p), given, |row, keys| opened.push((row, keys)));
            p.iter_mut().filter(|p| !p.is_finite()).for_each(|p| *p = 0.0);
            let factor = self.ds_factor;
            match known {
                true => applied.set(self.grid, (r, width), seen, (&p, &mut self.terms, factor)),
                false => loose.set(&self.storage, self.grid, (r, width), seen, (&p, &self.terms, factor)),
            }
        }
        opened.into_iter().for_each(|(row, keys)| self.backward.open(row, keys));
        let rows = Place { along: Along::Rows, to: block.rows.clone(), from: block.keys.clone() };
        let columns = Place { along: Along::Columns, to: block.keys.clone(), from: block.rows.clone() };
        if !known {
            self.allow_in_dq(&loose, block, dq);
        }
        let products = &mut self.backward.products;
        if known {
            dq.add_applied(&applied.ds, &rows, &self.k);
            products.dk.add_applied(&applied.ds, &columns, &queries.q);
            products.dv.add_applied(&applied.p, &columns, &queries.dout);
        } else {
            dq.add_loose(&loose.ds, &rows, &self.k, |_| 0.0);
            products.dk.add_loose(&loose.ds, &columns, &queries.q, |_| 0.0);
            products.dv.add_loose(&loose.p, &columns, &queries.dout, |_| 0.0);
        }
    }
}

/// `exp(S - l)` from P at the exact L.
fn rescale(p: &[f64], s: &[f64], exact: f64, l: f64, out: &mut Vec<f64>) {
    out.clear();
    // A factor is as good as an exponential each, unless P has underflowed.
    if (exact - l).abs() < 1.0 {
        let factor = (exact - l).exp();
        out.extend(p.iter().map(|p| p * factor));
    } else {
        out.extend(s.iter().map(|s| (s - l).exp()));
    }
}
