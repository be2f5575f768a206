//! Data for which right arithmetic rounds nothing: every probability is a power of two, and every other value an
//! integer of few bits times one.
//!
//! `flat`: q is 0, so that each of n keys has P = 1/n. Rows of v are a level of their column plus or minus a row
//! that two of them share, so that O is the level, and dP - D is an integer. `one-hot`: keys are rows of a Hadamard
//! matrix, and a query is sixteen times the key that it is to see alone. `docs/notation.md` spells both out.

use super::{At, Recipe, Stream, mix};
use crate::case::Base;

/// Elements of a row that are not 0.
const SPOTS: usize = 8;
/// What a query is of its key.
const HEIGHT: f64 = 16.0;

impl Recipe<'_> {
    /// Is the base one of the exact ones?
    pub(super) fn is_exact(&self) -> bool {
        matches!(self.case.data.base, Base::Flat | Base::OneHot)
    }

    /// A row of q, k, v or dO.
    pub(super) fn exact(&self, stream: Stream, at: At, out: &mut [f64]) {
        let flat = self.case.data.base == Base::Flat;
        match (stream, flat) {
            (Stream::Q, true) => out.fill(0.0),
            (Stream::V, true) => self.pair(at, out),
            (_, true) => spots(self.hash(stream, at), out),
            (Stream::Q, false) => self.aimed(at, out),
            (Stream::K, false) => self.hadamard(at, out),
            (_, false) => {
                let row = self.hash(stream, at);
                let whole = |column| (mix(row ^ column as u64) % 7) as f64 - 3.0;
                out.iter_mut().enumerate().for_each(|(column, x)| *x = whole(column));
            }
        }
    }

    /// A level of the column, and plus or minus what the row shares with another.
    fn pair(&self, at: At, out: &mut [f64]) {
        let head = At { row: 0, ..at };
        let level = self.hash(Stream::Level, head);
        let reach = match at.n {
            0 | 1 => 0,
            n => 1 + self.hash(Stream::Reach, head) % (n as u64 - 1),
        };
        let first = at.row.min(at.row ^ reach);
        if reach == 0 {
            out.fill(0.0);
        } else {
            spots(self.hash(Stream::V, At { row: first, ..at }), out);
        }
        let sign = if first == at.row { 1.0 } else { -1.0 };
        for (column, x) in out.iter_mut().enumerate() {
            *x = (mix(level ^ column as u64) % 5) as f64 - 2.0 + sign * *x;
        }
    }

    /// A key: plus or minus a row of the Hadamard matrix of as many rows as there are powers of two in d. Either
    /// each row is there once with each sign before any comes again, or each key has a neighbour that is equal.
    fn hadamard(&self, at: At, out: &mut [f64]) {
        let order = self.hash(Stream::Order, At { row: 0, ..at });
        let rows = 1u64 << out.len().ilog2();
        let index = at.row >> (order & 1);
        let (odd, start) = ((order >> 1) | 1, order >> 32);
        let row = index.wrapping_mul(odd).wrapping_add(start) & (rows - 1);
        let negative = (mix(order ^ row) ^ (index / rows)) & 1;
        for (column, x) in out.iter_mut().enumerate() {
            let ones = u64::from((row & column as u64).count_ones()) + negative;
            *x = if ones.is_multiple_of(2) { 1.0 } else { -1.0 };
        }
    }

    /// A query: sixteen times a key that it sees; 0 where it sees none.
    fn aimed(&self, at: At, out: &mut [f64]) {
        let visible = self.case.mask.visible_keys(at.row as usize, at.m, at.n);
        if visible.is_empty() {
            out.fill(0.0);
            return;
        }
        let key = visible.start as u64 + self.hash(Stream::Target, at) % visible.len() as u64;
        self.hadamard(At { row: key, head: at.head >> 32, ..at }, out);
        out.iter_mut().for_each(|x| *x *= HEIGHT);
    }
}

/// One element of each eighth of the row is plus or minus 1, the others are 0.
fn spots(row: u64, out: &mut [f64]) {
    let width = out.len() / SPOTS;
    for (column, x) in out.iter_mut().enumerate() {
        let h = mix(row ^ (column / width) as u64);
        let here = (h >> 1) % width as u64 == (column % width) as u64;
        *x = match (here, h & 1) {
            (false, _) => 0.0,
            (true, 0) => 1.0,
            (true, _) => -1.0,
        };
    }
}

#[cfg(test)]
mod tests {
    use crate::inputs::Inputs;
    use crate::tensor::Tensor;

    fn inputs(text: &str) -> Inputs {
        Inputs::new(&text.parse().unwrap())
    }

    fn row(of: &Tensor, row: usize, head: usize) -> Vec<f64> {
        of.rows_of_head(row..row + 1, head)
    }

    #[test]
    fn rows_of_flat_values_pair_up_around_their_level() {
        for n in [2, 8, 64] {
            let Inputs { q, k, v, dout, .. } = inputs(&format!("[{n}] h2/1 d16/24 data=flat seed={n}"));
            assert!((0..q.len()).all(|i| q.at(i) == 0.0));
            let of_one = |x: &[f64]| x.iter().filter(|x| x.abs() == 1.0).count();
            for i in 0..n {
                assert!(of_one(&row(&k, i, 0)) == 8 && of_one(&row(&dout, i, 1)) == 8);
            }
            let sum = |i: usize, j: usize| -> Vec<f64> {
                row(&v, i, 0).iter().zip(row(&v, j, 0)).map(|(x, y)| x + y).collect()
            };
            let mean: Vec<f64> =
                (0..24).map(|c| (0..n).map(|i| row(&v, i, 0)[c]).sum::<f64>() / n as f64).collect();
            let twice: Vec<f64> = mean.iter().map(|x| 2.0 * x).collect();
            assert!(mean.iter().all(|x| x.fract() == 0.0 && x.abs() <= 2.0), "{mean:?}");
            assert!((0..n).all(|i| (0..n).any(|j| i != j && sum(i, j) == twice)), "every row has its other");
        }
    }

    #[test]
    fn a_one_hot_query_is_aimed_at_a_key_that_it_sees() {
        let (mut twins, mut singles) = (0, 0);
        for seed in 0..20 {
            let text = format!("[40]x[60] h4/2 d32 window(9,3) data=one-hot seed={seed}");
            let inputs = inputs(&text);
            for head in 0..4 {
                for i in 0..40 {
                    let q = row(&inputs.q, i, head);
                    let seen = inputs.case.mask.visible_keys(i, 40, 60);
                    let dots = seen.map(|j| {
                        let k = row(&inputs.k, j, head / 2);
                        q.iter().zip(k).map(|(x, y)| x * y).sum::<f64>()
                    });
                    let dots: Vec<f64> = dots.collect();
                    let hits = dots.iter().filter(|&&x| x == 16.0 * 32.0).count();
                    assert!((1..=2).contains(&hits), "{text}: query {i} of head {head} hits {hits}");
                    assert!(dots.iter().all(|&x| x == 512.0 || x == 0.0 || x == -512.0));
                    twins += usize::from(hits == 2);
                    singles += usize::from(hits == 1);
                }
            }
        }
        assert!(twins > 100 && singles > 100, "{twins} twins, {singles} single keys");
    }

    /// Each tensor's elements as digits of a number of base 31, mod 2^64: what the page's words gave when they were
    /// followed in Python.
    #[test]
    fn the_recipes_are_those_of_the_page() {
        let shape = "[4,6]x[5,8] h4/2 d24/16";
        let told = [
            (
                "window(3,1) data=one-hot",
                [0x0446_80e9_d34f_ec00, 0x6af3_b5b5_4517_2558, 0x6bd5_d8c1_831f_d2d8, 0xe020_4ece_eb80_2d82],
            ),
            ("data=flat", [0, 0x09a4_6dce_dfc9_88ca, 0x4618_2205_f1e6_9d85, 0x8d83_a1b1_c330_b4b4]),
        ];
        for (recipe, numbers) in told {
            let inputs = inputs(&format!("{shape} {recipe} seed=9"));
            let number = |tensor: &Tensor| {
                let elements = (0..tensor.len()).map(|i| tensor.at(i) as i64 as u64);
                elements.fold(0u64, |number, x| number.wrapping_mul(31).wrapping_add(x))
            };
            assert_eq!([&inputs.q, &inputs.k, &inputs.v, &inputs.dout].map(number), numbers, "{recipe}");
        }
    }
}
