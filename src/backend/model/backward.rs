//! The model's backward: for each tile of keys, over the group's heads and the tiles of queries.

use std::ops::Range;

use super::{Fault, LOG2_E, View, tile_is_empty, tiles};
use crate::case::{Align, Case, Mask};
use crate::linalg::sgemm_add;
use crate::outputs::Outputs;
use crate::reference::query_heads;
use crate::tensor::DType;

/// dK and dV of one kv head, and dQ of its query heads.
pub(super) fn kv_head(view: &View, outputs: &mut Outputs, workspace: &mut [f32], dsink: &mut [f32]) {
    let case = &view.inputs.case;
    let of_group = |&head: &usize| match view.fault {
        Some(Fault::KvHeadModulo) => head % case.heads.kv as usize == view.kv_head,
        _ => query_heads(case, view.kv_head).contains(&head),
    };
    let heads: Vec<usize> = (0..case.heads.q as usize).filter(of_group).collect();
    let heads = || heads.iter().copied();
    if view.is(Fault::EmptyQueriesSkipped) && view.queries.len == 0 {
        return;
    }
    let statistics: Vec<Statistics> = heads().map(|h| Statistics::read(view, h, outputs)).collect();
    for (head, statistics) in heads().zip(&statistics) {
        if let Some(sum) = dsink.get_mut(head) {
            *sum += statistics.sink_gradient(view.sink2(head).unwrap_or(f32::NEG_INFINITY));
        }
    }
    let visible = view.visible(backward_mask(view));
    for keys in tiles(view.n) {
        let mut acc = KeyTile::new(view, &keys);
        for (head, statistics) in heads().zip(&statistics) {
            if view.is(Fault::GqaLastHeadOnly) {
                acc = KeyTile::new(view, &keys);
            }
            for rows in tiles(view.queries.len) {
                if !tile_is_empty(&visible, &rows, &keys) {
                    acc.step(view, head, &rows, &visible, statistics, outputs, workspace);
                }
            }
        }
        acc.store(view, outputs);
    }
    heads().for_each(|head| store_dq(view, head, outputs, workspace));
}

/// The mask that the backward applies: the forward's, unless a bug bends it.
fn backward_mask(view: &View) -> Mask {
    let mask = view.inputs.case.mask;
    match (view.fault, mask) {
        (Some(Fault::CausalOffByOne), Mask::Causal(align)) => {
            Mask::Window { left: None, right: Some(1), align }
        }
        (Some(Fault::WindowLeftDropped), Mask::Window { right, align, .. }) => {
            Mask::Window { left: None, right, align }
        }
        (Some(Fault::BottomRightAsTopLeft), Mask::Causal(_)) => Mask::Causal(Align::TopLeft),
        (Some(Fault::BottomRightAsTopLeft), Mask::Window { left, right, .. }) => {
            Mask::Window { left, right, align: Align::TopLeft }
        }
        _ => mask,
    }
}

/// The scale of the backward's logits.
fn backward_scale(view: &View, case: &Case) -> f32 {
    if view.is(Fault::ScaleOfPaddedDim) && case.scale.is_none() {
        return 1.0 / (view.d.next_multiple_of(64) as f32).sqrt();
    }
    case.softmax_scale() as f32
}

/// What the backward reads of the forward, for each query of one head.
struct Statistics {
    /// LSE in base 2; 0 where the row sees no key.
    lse2: Vec<f32>,
    delta: Vec<f32>,
}

impl Statistics {
    fn read(view: &View, head: usize, outputs: &Outputs) -> Statistics {
        let (m, heads) = (view.queries.len, outputs.lse.heads);
        let lse = |i: usize| {
            let at = match view.fault {
                // The sequence's statistics are [m][heads]; this reads [heads][m].
                Some(Fault::LseTransposed) => view.queries.row * heads + head * m + i,
                Some(Fault::OneTileLseStale) => {
                    outputs.lse.index(view.queries.row + i % super::TILE, head, 0)
                }
                Some(Fault::LseOfNextRow) => {
                    outputs.lse.index(view.queries.row + (i + 1).min(m - 1), head, 0)
                }
                _ => outputs.lse.index(view.queries.row + i, head, 0),
            };
            let lse = outputs.lse.at(at) as f32;
            if lse == f32::NEG_INFINITY {
                return 0.0;
            }
            if view.is(Fault::LseBase2) { lse } else { lse * LOG2_E }
        };
        let delta = |i: usize| {
            if view.is(Fault::DeltaOmitted) {
                return 0.0;
            }
            let longest = view.inputs.case.q.max_len() as usize;
            if view.is(Fault::DeltaBufferShort) && view.queries.row + i >= longest {
                return 0.0;
            }
            let (o, dout) = (&outputs.o, &view.inputs.dout);
            let head = if view.is(Fault::DeltaOfFirstHead) { 0 } else { head };
            let at = o.index(view.queries.row + i, head, 0);
            (at..at + view.e).map(|c| o.at(c) as f32 * dout.at(c) as f32).sum()
        };
        Statistics { lse2: (0..m).map(lse).collect(), delta: (0..m).map(delta).collect() }
    }

    /// This sequence's share of a head's dSink.
    fn sink_gradient(&self, sink2: f32) -> f32 {
        let rows = self.lse2.iter().zip(&self.delta);
        -rows.map(|(lse2, delta)| (sink2 - lse2).exp2() * delta).sum::<f32>()
    }
}

/// Accumulators of one tile of keys.
struct KeyTile {
    keys: Range<usize>,
    /// `[keys][d]`, unscaled.
    dk: Vec<f32>,
    /// `[keys][e]`.
    dv: Vec<f32>,
}

impl KeyTile {
    fn new(view: &View, keys: &Range<usize>) -> Self {
        let zeros = |columns: usize| vec![0.0; keys.len() * columns];
        KeyTile { keys: keys.clone(), dk: zeros(view.d), dv: zeros(view.e) }
    }

    /// One tile of queries: dV += P^T dO, dK += dS^T Q, dQ += dS K.
    #[allow(clippy::too_many_arguments)] // what a block of the kernel holds
    fn step(
        &mut self,
        view: &View,
        head: usize,
        rows: &Range<usize>,
        visible: &[Range<usize>],
        statistics: &Statistics,
        outputs: &Outputs,
        workspace: &mut [f32],
    ) {
        let (d, e, keys) = (view.d, view.e, self.keys.clone());
        let (m, n) = (rows.len(), keys.len());
        let q = view.query_rows(&view.inputs.q, rows, head);
        let dout = dout_rows(view, rows, head);
        let k = &view.k[keys.start * d..keys.end * d];
        let v = &view.v[keys.start * e..keys.end * e];
        let (mut p, mut ds) = (vec![0.0; m * n], vec![0.0; m * n]);
        sgemm_add([m, d, n], (&q, d, 1), (k, 1, d), &mut p);
        sgemm_add([m, e, n], (&dout, e, 1), (v, 1, e), &mut ds);
        let scale2 = backward_scale(view, &view.inputs.case) * LOG2_E;
        for (r, i) in rows.clone().enumerate() {
            let (lse2, delta) = (statistics.lse2[i], statistics.delta[i]);
            for (c, j) in keys.clone().enumerate() {
                let (p, ds) = (&mut p[r * n + c], &mut ds[r * n + c]);
                // Masked products are set, not multiplied: what lies there may be NaN.
                if !visible[i].contains(&j) {
                    (*p, *ds) = (0.0, 0.0);
                    continue;
                }
                let logit = view.logit(*p, scale2);
                let exact = (logit - lse2).exp2();
                *ds = view.round(exact * (*ds - delta) * view.slope(logit));
                *p = view.round(exact);
            }
        }
        sgemm_add([n, m, e], (&p, 1, n), (&dout, e, 1), &mut self.dv);
        let partial = m < super::TILE && rows.end == view.queries.len;
        if !(partial && view.is(Fault::DkTailDropped)) {
            sgemm_add([n, m, d], (&ds, 1, n), (&q, d, 1), &mut self.dk);
        }
        let mut dq = vec![0.0; m * d];
        sgemm_add([m, n, d], (&ds, n, 1), (k, d, 1), &mut dq);
        for (r, i) in rows.clone().enumerate() {
            let at = outputs.dq.index(view.queries.row + i, head, 0);
            let mut unmasked = 0.0;
            if view.is(Fault::KvTailUnmasked) && zeros_are_seen(view, i, &keys) {
                // One of the keys of zeros: S = dP = 0.
                let p = (-statistics.lse2[i]).exp2();
                unmasked = view.round(p * -statistics.delta[i]) * 0.0;
            }
            workspace[at..at + d].iter_mut().zip(&dq[r * d..]).for_each(|(sum, x)| *sum += x + unmasked);
        }
    }

    fn store(&self, view: &View, outputs: &mut Outputs) {
        let scale = view.inputs.case.softmax_scale() as f32;
        let first = match view.fault {
            Some(Fault::GapsIgnored) => view.keys.token,
            _ => view.keys.row,
        };
        let len = view.keys.len;
        for (r, j) in self.keys.clone().enumerate().filter(|&(_, j)| j < len) {
            let pairs = view.is(Fault::SingleQueryPairs) && view.queries.len == 1 && (j ^ 1) < len;
            let j = if pairs { j ^ 1 } else { j };
            let at = outputs.dk.index(first + j, view.kv_head, 0) as isize;
            for (c, x) in self.dk[r * view.d..(r + 1) * view.d].iter().enumerate() {
                outputs.dk.set(at + c as isize, f64::from(x * scale));
            }
            if view.is(Fault::TailRowUnwritten) && len % super::TILE == 1 && j + 1 == len && len > 1 {
                continue;
            }
            let at = outputs.dv.index(first + j, view.kv_head, 0) as isize;
            for (c, &x) in self.dv[r * view.e..(r + 1) * view.e].iter().enumerate() {
                let lost = view.is(Fault::DvWidthOfDk) && c >= view.d;
                let x = if view.is(Fault::DvThroughBf16) { DType::Bf16.round_f32(x) } else { x };
                outputs.dv.set(at + c as isize, if lost { 0.0 } else { f64::from(x) });
            }
        }
    }
}

/// Scales and stores dQ of one head.
fn store_dq(view: &View, head: usize, outputs: &mut Outputs, workspace: &[f32]) {
    let case = &view.inputs.case;
    let mut scale = case.softmax_scale() as f32;
    if view.is(Fault::DqScale) && view.queries.len.is_multiple_of(128) {
        scale *= 2.0;
    }
    if view.is(Fault::LastHeadScaled) && case.heads.q > 1 && head + 1 == case.heads.q as usize {
        scale *= 1.0625;
    }
    for i in 0..view.queries.len {
        let row = view.queries.row + i;
        let at = outputs.dq.index(row, head, 0);
        let to = if view.is(Fault::RowWraps) { outputs.dq.index(row % 256, head, 0) } else { at };
        for (c, x) in workspace[at..at + view.d].iter().enumerate() {
            outputs.dq.set((to + c) as isize, f64::from(x * scale));
        }
    }
}

/// dO of a tile of queries.
fn dout_rows(view: &View, rows: &Range<usize>, head: usize) -> Vec<f32> {
    let dout = &view.inputs.dout;
    if !view.is(Fault::DoutStrideOfQ) {
        return view.query_rows(dout, rows, head);
    }
    let row = |i: usize| {
        let first = ((view.queries.row + i) * dout.heads + head) * view.d;
        // What lies beyond the tensor is a guard, and no number.
        (first..first + view.e).map(|at| if at < dout.len() { dout.at(at) as f32 } else { f32::NAN })
    };
    rows.clone().flat_map(row).collect()
}

/// Does the mask let a query see any of the zeros that fill a tile of keys, were they keys?
fn zeros_are_seen(view: &View, i: usize, keys: &Range<usize>) -> bool {
    let (left, right, align) = view.inputs.case.mask.window();
    let shift = if align == Align::TopLeft { 0 } else { view.n as i64 - view.queries.len as i64 };
    let end = (keys.start + super::TILE) as i64;
    let sees = |j: i64| {
        let distance = j - (i as i64 + shift);
        left.is_none_or(|left| distance >= left.saturating_neg())
            && right.is_none_or(|right| distance <= right)
    };
    (keys.end as i64..end).any(sees)
}
