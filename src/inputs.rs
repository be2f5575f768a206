//! The tensors of a case: each element a pure function of (seed, tensor, sequence's data key, row,
//! head's data key, column), rounded once to the dtype.
//!
//! Deleting a sequence or a head, adding a gap or changing a length leaves every other value as it
//! was: derived runs and shrink steps compare like with like. The recipe uses integer arithmetic,
//! multiplication, division and square root only, so that a script in another language rebuilds
//! the same bits in a few lines; `docs/notation.md` spells it out.

use crate::case::{Base, Case, Sink, Span};
use crate::tensor::{DType, Poison, Tensor};

mod derive;
mod exact;

pub use derive::Origin;

/// The stream of values that a hash is drawn from; part of the recipe, never renumbered.
#[derive(Clone, Copy)]
enum Stream {
    Q = 0,
    K = 1,
    V = 2,
    Dout = 3,
    RowGain = 4,
    HeadGain = 5,
    HeadScale = 6,
    Sink = 7,
    Level = 8,
    Reach = 9,
    Order = 10,
    Target = 11,
}

/// Standard deviation of the sum of four independent uniforms over `0..65536`.
const FOUR_UNIFORMS: f64 = 37837.0;

/// q, k, v and dO of one call, in storage.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The case they came from.
    pub case: Case,
    /// Where each sequence lies on the q side.
    pub q_spans: Vec<Span>,
    /// Where each sequence lies on the kv side.
    pub kv_spans: Vec<Span>,
    /// `[rows_q][h_q][d_qk]`.
    pub q: Tensor,
    /// `[rows_kv][h_kv][d_qk]`.
    pub k: Tensor,
    /// `[rows_kv][h_kv][d_v]`.
    pub v: Tensor,
    /// `[rows_q][h_q][d_v]`.
    pub dout: Tensor,
    /// The sink's logits, f32, `[1][h_q][1]`; `[0][h_q][1]` unless they are learnable.
    pub sink: Tensor,
}

impl Inputs {
    /// Materialises a valid case.
    pub fn new(case: &Case) -> Inputs {
        let (q_spans, kv_spans) = (case.q.spans(), case.kv.spans());
        let recipe = Recipe::new(case);
        let (d, e) = (case.dims.qk as usize, case.dims.v as usize);
        let queries = Layout { spans: &q_spans, dead: &case.q.dead_rows(), rows: case.q.rows(), query: true };
        let keys =
            Layout { spans: &kv_spans, dead: &case.kv.dead_rows(), rows: case.kv.rows(), query: false };
        let q = queries.fill(case, d, |at, out| recipe.q(at, out));
        let k = keys.fill(case, d, |at, out| recipe.k(at, out));
        let v = keys.fill(case, e, |at, out| recipe.v(at, out));
        let dout = queries.fill(case, e, |at, out| recipe.dout(at, out));
        let sink = recipe.sinks(|head| queries.head_key(case, head));
        Inputs { case: case.clone(), q_spans, kv_spans, q, k, v, dout, sink }
    }

    /// `[rows, heads, columns]` of the sink's logits.
    pub fn sink_shape(case: &Case) -> [usize; 3] {
        [usize::from(case.sink == Sink::Learnable), case.heads.q as usize, 1]
    }

    /// The sink's logit of a query head; `None` without a sink.
    pub fn sink_logit(&self, head: usize) -> Option<f64> {
        match self.case.sink {
            Sink::None => None,
            Sink::OffByOne => Some(0.0),
            Sink::Learnable => Some(self.sink.at(head)),
        }
    }
}

/// One row of one head of one sequence, by data keys; and how many queries and keys the sequence has.
#[derive(Clone, Copy)]
struct At {
    sequence: u64,
    row: u64,
    head: u64,
    m: usize,
    n: usize,
}

/// The rows of one side.
struct Layout<'a> {
    spans: &'a [Span],
    dead: &'a [usize],
    rows: u64,
    query: bool,
}

impl Layout<'_> {
    /// A tensor of this side, `values` writing one row of one head at a time.
    fn fill(&self, case: &Case, dim: usize, values: impl Fn(At, &mut [f64])) -> Tensor {
        let heads = if self.query { case.heads.q } else { case.heads.kv } as usize;
        let mut tensor = Tensor::poisoned(case.dtype, [self.rows as usize, heads, dim], Poison::Nan);
        let limit = case.dtype.max_finite();
        let mut row = vec![0.0; dim];
        for (sequence, (span, &key)) in self.spans.iter().zip(&case.keys).enumerate() {
            let [m, n] = [&case.q, &case.kv].map(|side| side.lengths[sequence] as usize);
            for i in 0..span.len {
                for head in 0..heads {
                    let head_key = self.head_key(case, head);
                    let at = At { sequence: key.into(), row: i as u64, head: head_key, m, n };
                    values(at, &mut row);
                    row.iter_mut().for_each(|x| *x = x.clamp(-limit, limit));
                    tensor.set_row(span.row + i, head, &row);
                }
            }
        }
        tensor.fill_rows(self.dead, case.dead.value());
        tensor
    }

    /// A key/value head's data key; for a query head, that of its kv head and its place in the
    /// group, so that both survive the loss of other heads.
    fn head_key(&self, case: &Case, head: usize) -> u64 {
        if !self.query {
            return case.head_keys[head].into();
        }
        let group = case.heads.group() as usize;
        u64::from(case.head_keys[head / group]) << 32 | (head % group) as u64
    }
}

struct Recipe<'a> {
    case: &'a Case,
    /// Standard deviation of q and k.
    sigma: f64,
    /// Column 0 of q and of k where logits are offset.
    offset: Option<(f64, f64)>,
}

impl<'a> Recipe<'a> {
    fn new(case: &'a Case) -> Self {
        let scale = case.softmax_scale();
        let sigma = match case.data.base {
            Base::Logits(spread) if scale != 0.0 => {
                (spread / (scale.abs() * f64::from(case.dims.qk).sqrt())).sqrt()
            }
            _ => 1.0,
        };
        let offset = (case.data.offset != 0.0 && scale != 0.0).then(|| {
            let q = (case.data.offset / scale).abs().sqrt();
            (q, case.data.offset / scale / q)
        });
        Recipe { case, sigma, offset }
    }

    fn hash(&self, stream: Stream, at: At) -> u64 {
        let parts = [stream as u64, at.sequence, at.row, at.head];
        parts.into_iter().fold(mix(self.case.seed), |h, part| mix(h ^ part))
    }

    /// Values of the base recipe, times `factor` where they are natural.
    fn base(&self, stream: Stream, at: At, factor: f64, out: &mut [f64]) {
        if self.is_exact() {
            return self.exact(stream, at, out);
        }
        let row = self.hash(stream, at);
        for (column, x) in out.iter_mut().enumerate() {
            let h = mix(row ^ column as u64);
            *x = match self.case.data.base {
                Base::Ones => 1.0,
                Base::Dyadic => (h % 5) as f64 * 0.5 - 1.0,
                _ => normal(h) * factor,
            };
        }
    }

    fn q(&self, at: At, out: &mut [f64]) {
        let head = At { sequence: 0, row: 0, ..at };
        let row_gain = gain(self.hash(Stream::RowGain, at));
        let head_gain = gain(self.hash(Stream::HeadGain, head));
        let range = self.case.data.head_scale;
        let head_scale = 1.0 / range + (range - 1.0 / range) * unit(self.hash(Stream::HeadScale, head));
        self.base(Stream::Q, at, self.sigma * row_gain * head_gain, out);
        if range != 1.0 {
            out.iter_mut().for_each(|x| *x *= head_scale);
        }
        if let Some((q, _)) = self.offset {
            out[0] = q;
        }
    }

    fn k(&self, at: At, out: &mut [f64]) {
        self.base(Stream::K, at, self.sigma, out);
        if let Some((_, k)) = self.offset {
            out[0] = k;
        }
    }

    fn v(&self, at: At, out: &mut [f64]) {
        self.base(Stream::V, at, 1.0, out);
    }

    /// Logits near those of the keys, so that the sink has a share of the softmax that is neither all nor
    /// nothing of it.
    fn sinks(&self, key: impl Fn(usize) -> u64) -> Tensor {
        let mut tensor = Tensor::poisoned(DType::F32, Inputs::sink_shape(self.case), Poison::Nan);
        let offset = if self.offset.is_some() { self.case.data.offset } else { 0.0 };
        for head in 0..tensor.len() {
            let at = At { sequence: 0, row: 0, head: key(head), m: 0, n: 0 };
            tensor.set(head as isize, offset + 2.0 * normal(self.hash(Stream::Sink, at)));
        }
        tensor
    }

    fn dout(&self, at: At, out: &mut [f64]) {
        let dout = &self.case.dout;
        if dout.row.is_some_and(|row| u64::from(row) != at.row) {
            out.fill(0.0);
            return;
        }
        if dout.ones {
            out.fill(1.0);
        } else if self.is_exact() {
            self.exact(Stream::Dout, at, out);
        } else {
            let row = self.hash(Stream::Dout, at);
            for (column, x) in out.iter_mut().enumerate() {
                let h = mix(row ^ column as u64);
                *x = if self.case.data.base == Base::Dyadic { (h % 5) as f64 * 0.5 - 1.0 } else { normal(h) };
            }
        }
        out.iter_mut().for_each(|x| *x *= dout.scale);
    }
}

/// The finaliser of splitmix64 after its increment.
fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Four 16-bit uniforms summed: mean 0, standard deviation 1, tails to 3.46.
fn normal(h: u64) -> f64 {
    let sum: u64 = (0..4).map(|i| (h >> (16 * i)) & 0xffff).sum();
    (sum as f64 - 131_070.0) / FOUR_UNIFORMS
}

/// Uniform in `[0, 1)`.
fn unit(h: u64) -> f64 {
    (h >> 11) as f64 * 2f64.powi(-53)
}

/// Uniform in `[0.5, 2)`: how much one row's or head's logits are spread more than another's.
fn gain(h: u64) -> f64 {
    0.5 + 1.5 * unit(h)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(text: &str) -> Inputs {
        Inputs::new(&text.parse().unwrap())
    }

    #[test]
    fn values_follow_their_keys_through_dropped_sequences_heads_and_new_gaps() {
        let whole = inputs("[3,2,4] h4/2");
        let part = inputs("[4]x[4] h2/1 gap-q(2) lead-q=3 keys=2 head-keys=1");
        for row in 0..4 {
            assert_eq!(whole.q.rows_of_head(5 + row..6 + row, 2), part.q.rows_of_head(3 + row..4 + row, 0));
            assert_eq!(whole.k.rows_of_head(5 + row..6 + row, 1), part.k.rows_of_head(row..row + 1, 0));
            assert_eq!(
                whole.dout.rows_of_head(5 + row..6 + row, 3),
                part.dout.rows_of_head(3 + row..4 + row, 1)
            );
        }
        assert_ne!(whole.q.rows_of_head(0..1, 0), whole.q.rows_of_head(3..4, 0), "sequences differ");
    }

    #[test]
    fn an_offset_moves_every_logit() {
        for scale in ["", " scale=-0.5"] {
            let case: Case = format!("[8] data=logits(0.01)+offset(-110){scale}").parse().unwrap();
            let Inputs { q, k, .. } = Inputs::new(&case);
            let (q, k) = (q.rows_of_head(0..1, 0), k.rows_of_head(5..6, 0));
            let dot: f64 = q.iter().zip(&k).map(|(a, b)| a * b).sum();
            let logit = dot * case.softmax_scale();
            assert!((-112.0..-108.0).contains(&logit), "{logit}");
        }
    }

    #[test]
    fn dead_rows_hold_their_fill_and_live_rows_are_finite() {
        let inputs = inputs("[2,1] gap-kv(1,0) tail-kv=2 dead=nan f16 data=logits(10000)");
        for row in 0..6 {
            let dead = [2, 4, 5].contains(&row);
            assert_eq!(inputs.k.rows_of_head(row..row + 1, 0).iter().all(|x| x.is_nan()), dead);
            assert_eq!(inputs.v.rows_of_head(row..row + 1, 0).iter().all(|x| x.is_finite()), !dead);
        }
    }
}
