//! The model's forward: online softmax over tiles of keys.

use super::{Fault, View, tile_is_empty, tiles};
use crate::linalg::sgemm_add;
use crate::outputs::Outputs;

/// O and LSE of one query head.
pub(super) fn head(view: &View, head: usize, outputs: &mut Outputs) {
    let visible = view.visible(view.inputs.case.mask);
    let (d, e) = (view.d, view.e);
    for rows in tiles(view.queries.len) {
        let q = view.query_rows(&view.inputs.q, &rows, head);
        let mut softmax = Softmax::new(rows.len(), e, view.sink2(head), view.is(Fault::SoftmaxWithoutMax));
        for keys in tiles(view.n).filter(|keys| !tile_is_empty(&visible, &rows, keys)) {
            let mut s = vec![0.0; rows.len() * keys.len()];
            let k = &view.k[keys.start * d..keys.end * d];
            sgemm_add([rows.len(), d, keys.len()], (&q, d, 1), (k, 1, d), &mut s);
            for (r, i) in rows.clone().enumerate() {
                let row = &mut s[r * keys.len()..(r + 1) * keys.len()];
                for (j, s) in keys.clone().zip(row.iter_mut()) {
                    *s = if visible[i].contains(&j) {
                        view.logit(*s, view.scale2())
                    } else {
                        f32::NEG_INFINITY
                    };
                }
                softmax.row(r, row, |p| view.round(p));
            }
            let v = &view.v[keys.start * e..keys.end * e];
            sgemm_add([rows.len(), keys.len(), e], (&s, keys.len(), 1), (v, e, 1), &mut softmax.acc);
        }
        store(view, head, rows, &softmax, outputs);
    }
}

/// Running maximum (base 2), row sum and unnormalised O of a tile of rows.
struct Softmax {
    columns: usize,
    /// A bug: exponentials are not relative to the maximum.
    absolute: bool,
    max: Vec<f32>,
    sum: Vec<f32>,
    acc: Vec<f32>,
}

impl Softmax {
    /// The sink, where there is one, is the first term.
    fn new(rows: usize, columns: usize, sink: Option<f32>, absolute: bool) -> Self {
        let first = if absolute { sink.map(|_| 0.0) } else { sink };
        Softmax {
            columns,
            absolute,
            max: vec![first.unwrap_or(f32::NEG_INFINITY); rows],
            sum: vec![sink.map_or(0.0, |sink| if absolute { sink.exp2() } else { 1.0 }); rows],
            acc: vec![0.0; rows * columns],
        }
    }

    /// Turns a row of logits into rounded probabilities relative to the running maximum, and
    /// rescales what was there.
    fn row(&mut self, r: usize, logits: &mut [f32], round: impl Fn(f32) -> f32) {
        let max = logits.iter().copied().fold(self.max[r], f32::max);
        let max = if self.absolute && max > f32::NEG_INFINITY { 0.0 } else { max };
        if max == f32::NEG_INFINITY {
            logits.fill(0.0);
            return;
        }
        let factor = (self.max[r] - max).exp2();
        self.max[r] = max;
        self.sum[r] *= factor;
        self.acc[r * self.columns..(r + 1) * self.columns].iter_mut().for_each(|x| *x *= factor);
        for x in logits {
            let p = (*x - max).exp2();
            self.sum[r] += p;
            *x = round(p);
        }
    }
}

fn store(view: &View, head: usize, rows: std::ops::Range<usize>, softmax: &Softmax, outputs: &mut Outputs) {
    for (r, i) in rows.enumerate() {
        let (max, sum) = (softmax.max[r], softmax.sum[r]);
        let masked = sum == 0.0 && !view.is(Fault::MaskedRowNan);
        let (inverse, lse) = match masked {
            true => (0.0, f32::NEG_INFINITY),
            false => (1.0 / sum, (max + sum.log2()) * std::f32::consts::LN_2),
        };
        let lse = if view.is(Fault::LseBase2) { lse * super::LOG2_E } else { lse };
        let row = view.queries.row + i;
        let at = outputs.lse.index(row, head, 0) as isize;
        outputs.lse.set(at, lse.into());
        let at = outputs.o.index(row, head, 0) as isize;
        for (c, x) in softmax.acc[r * view.e..(r + 1) * view.e].iter().enumerate() {
            outputs.o.set(at + c as isize, f64::from(x * inverse));
        }
    }
}
