//! The formulas as plain loops: no blocks, no matrix product, one query row after another.
//!
//! Where there is a choice it is another one than the reference's: the mask is spelled out as
//! inequalities, P is a quotient of exponentials, D is `sum_j P dP` rather than `<dO, O>`.

use crate::case::{Align, Mask};
use crate::reference::{Solution, Unit};

/// The outputs and, beside each element, the sum of the absolute values of its terms: what the
/// rounding errors of any way to add them up are proportional to.
pub struct Naive {
    pub value: Solution,
    pub size: Solution,
}

pub fn evaluate(unit: &Unit) -> Naive {
    let zeros = |rows: usize, columns: usize| vec![0.0; rows * columns];
    let of_heads = |columns: usize| vec![zeros(unit.m, columns); unit.q.len()];
    let empty = Solution {
        o: of_heads(unit.e),
        lse: of_heads(1),
        dq: of_heads(unit.d),
        dk: zeros(unit.n, unit.d),
        dv: zeros(unit.n, unit.e),
        dsink: zeros(unit.q.len(), 1),
    };
    let mut all = Naive { value: empty.clone(), size: empty };
    for head in 0..unit.q.len() {
        for i in 0..unit.m {
            row(unit, head, i, &mut all);
        }
    }
    all
}

fn sees(mask: Mask, i: usize, j: usize, m: usize, n: usize) -> bool {
    let (i, j, m, n) = (i as i64, j as i64, m as i64, n as i64);
    match mask {
        Mask::Full => true,
        Mask::Causal(Align::TopLeft) => i >= j,
        Mask::Causal(Align::BottomRight) => m - i <= n - j,
        Mask::Window { left, right, align } => {
            let ahead = if align == Align::TopLeft { j - i } else { (j - n) - (i - m) };
            left.is_none_or(|left| ahead >= -left) && right.is_none_or(|right| ahead <= right)
        }
    }
}

/// What one query row adds to the outputs.
fn row(unit: &Unit, head: usize, i: usize, all: &mut Naive) {
    let (d, c) = (unit.d, unit.scale);
    let keys: Vec<usize> = (0..unit.n).filter(|&j| sees(unit.mask, i, j, unit.m, unit.n)).collect();
    if keys.is_empty() {
        all.value.lse[head][i] = unit.sink[head].unwrap_or(f64::NEG_INFINITY);
        return;
    }
    let q = &unit.q[head][i * d..][..d];
    let key = |j: usize| &unit.k[j * d..][..d];
    let capped = |s: f64| match unit.softcap {
        // Another form of the hyperbolic tangent than the library's.
        Some(cap) => cap * (1.0 - 2.0 / ((2.0 * s / cap).exp() + 1.0)),
        None => s,
    };
    let scores: Vec<f64> = keys.iter().map(|&j| capped(c * product(q, key(j), same))).collect();
    let sink = unit.sink[head];
    let largest = scores.iter().copied().fold(sink.unwrap_or(f64::NEG_INFINITY), f64::max);
    let of_keys: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
    let of_sink = sink.map_or(0.0, |sink| (sink - largest).exp());
    let sum = of_keys + of_sink;
    let p: Vec<f64> = scores.iter().map(|s| (s - largest).exp() / sum).collect();
    all.value.lse[head][i] = largest + sum.ln();
    let products = keys.iter().map(|&j| c.abs() * product(q, key(j), f64::abs));
    all.size.lse[head][i] = 1.0 + products.fold(0.0, f64::max);

    // d/dS of cap tanh(S / cap) is 1 / cosh^2(S / cap).
    let slopes: Vec<f64> = match unit.softcap {
        Some(cap) => keys.iter().map(|&j| (c * product(q, key(j), same) / cap).cosh().powi(-2)).collect(),
        None => vec![1.0; keys.len()],
    };
    let row = Row { keys: &keys, p: &p, slopes: &slopes, of_sink: of_sink / sum };
    add_terms(unit, head, i, &row, &mut all.value, same);
    // Where a logit is at its cap, 1 - t^2 cancels: its error is absolute.
    let slopes: Vec<f64> = slopes.iter().map(|slope| slope.max(1e-3)).collect();
    add_terms(unit, head, i, &Row { slopes: &slopes, ..row }, &mut all.size, f64::abs);
}

/// One query row: the keys that it sees, P and the slopes of the cap, and the sink's share.
struct Row<'a> {
    keys: &'a [usize],
    p: &'a [f64],
    slopes: &'a [f64],
    of_sink: f64,
}

/// Adds one row's terms to the outputs, each as it is or as `of` makes it: its absolute value.
fn add_terms(unit: &Unit, head: usize, i: usize, row: &Row, out: &mut Solution, of: fn(f64) -> f64) {
    let (d, e) = (unit.d, unit.e);
    let q = &unit.q[head][i * d..][..d];
    let dout = &unit.dout[head][i * e..][..e];
    let Row { keys, p, slopes, of_sink } = *row;
    let dp: Vec<f64> = keys.iter().map(|&j| product(dout, &unit.v[j * e..][..e], of)).collect();
    let delta: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
    out.dsink[head] += of(-of_sink) * delta;
    for (((&j, &p), &dp), &slope) in keys.iter().zip(p).zip(&dp).zip(slopes) {
        let ds = of(unit.scale) * p * (dp + of(-1.0) * delta) * slope;
        for (y, &dout) in dout.iter().enumerate() {
            out.o[head][i * e + y] += of(p * unit.v[j * e + y]);
            out.dv[j * e + y] += of(p * dout);
        }
        for (x, &q) in q.iter().enumerate() {
            out.dq[head][i * d + x] += of(ds * unit.k[j * d + x]);
            out.dk[j * d + x] += of(ds * q);
        }
    }
}

fn product(a: &[f64], b: &[f64], of: fn(f64) -> f64) -> f64 {
    let mut sum = 0.0;
    for (a, b) in a.iter().zip(b) {
        sum += of(a * b);
    }
    sum
}

fn same(x: f64) -> f64 {
    x
}
