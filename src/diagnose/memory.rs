//! The operands of one kv head of one sequence, as a bent kernel reads them.

use super::bent::{Base, Bend, Content, Reads};
use super::sight::Lengths;
use crate::inputs::Inputs;
use crate::tensor::Tensor;

/// K and V, and the queries of the heads that read them.
pub struct Operands {
    /// Query heads.
    pub heads: Vec<usize>,
    /// Q of each, `[m][d]`.
    pub q: Vec<Vec<f64>>,
    /// dO of each, `[m][e]`.
    pub dout: Vec<Vec<f64>>,
    /// K, `[read][d]`.
    pub k: Vec<f64>,
    /// V, `[read][e]`.
    pub v: Vec<f64>,
    /// Keys that hold what is no number; zeros stand in their place above.
    pub nan: Vec<bool>,
    /// How many there are.
    pub lengths: Lengths,
}

impl Operands {
    /// Of kv head `kv_head` of sequence `sequence`.
    pub fn new(inputs: &Inputs, bend: &Bend, sequence: usize, kv_head: usize) -> Operands {
        let case = &inputs.case;
        let (queries, keys) = (inputs.q_spans[sequence], inputs.kv_spans[sequence]);
        let mut rows: Vec<Option<usize>> = match bend.keys {
            Base::Offset => keys.rows().map(Some).collect(),
            Base::PrefixSum => keys.tokens().map(Some).collect(),
        };
        rows.extend(extra_rows(inputs, bend, sequence));
        let heads: Vec<usize> =
            (0..case.heads.q as usize).filter(|&head| bend.kv_head.of(case, head) == kv_head).collect();
        let [d, e] = [case.dims.qk as usize, case.dims.v as usize];
        let reads = |one: Reads| bend.reads == one || bend.reads == Reads::Swapped;
        let (k_memory, v_memory) = match bend.reads {
            Reads::Exchanged => (&inputs.v, &inputs.k),
            _ => (&inputs.k, &inputs.v),
        };
        let k_stride = if reads(Reads::KAsV) { e } else { k_memory.dim };
        let v_stride = if reads(Reads::VAsK) { d } else { v_memory.dim };
        let dout_stride = if bend.reads == Reads::DoutAsQ { d } else { e };
        let gathered = |memory: &Tensor, stride: usize, columns: usize| -> Vec<f64> {
            rows.iter().flat_map(|&row| read(memory, stride, columns, row, kv_head)).collect()
        };
        let (mut k, mut v) = (gathered(k_memory, k_stride, d), gathered(v_memory, v_stride, e));
        let of_queries = |memory: &Tensor, stride: usize, columns: usize, head: usize| -> Vec<f64> {
            queries.rows().flat_map(|row| read(memory, stride, columns, Some(row), head)).collect()
        };
        let nan = k.chunks_mut(d).zip(v.chunks_mut(e)).map(|(k, v)| {
            let wild = k.iter().chain(v.iter()).any(|x| !x.is_finite());
            k.iter_mut().chain(v.iter_mut()).for_each(|x| *x = if wild { 0.0 } else { *x });
            wild
        });
        let nan: Vec<bool> = nan.collect();
        let counted = bend.extra.is_some_and(|extra| extra.counted);
        let counted = if counted { rows.len() } else { keys.len };
        Operands {
            q: heads.iter().map(|&head| of_queries(&inputs.q, d, d, head)).collect(),
            dout: heads.iter().map(|&head| of_queries(&inputs.dout, dout_stride, e, head)).collect(),
            heads,
            k,
            v,
            nan,
            lengths: Lengths { m: queries.len, n: keys.len, read: rows.len(), counted },
        }
    }
}

/// The storage rows behind the last key that are taken for keys; `None` is a row of zeros.
fn extra_rows(inputs: &Inputs, bend: &Bend, sequence: usize) -> Vec<Option<usize>> {
    let keys = inputs.kv_spans[sequence];
    let Some(extra) = bend.extra.filter(|_| keys.len > 0) else { return Vec::new() };
    let count = match extra.tile {
        1 => 1,
        tile => keys.len.next_multiple_of(tile) - keys.len,
    };
    match extra.content {
        Content::Zeros => vec![None; count],
        Content::NextSequence => {
            let next = inputs.kv_spans.get(sequence + 1);
            next.map_or(Vec::new(), |next| next.rows().take(count).map(Some).collect())
        }
        Content::Storage => {
            let behind = keys.row + keys.len..inputs.k.rows;
            behind.take(count).map(Some).collect()
        }
    }
}

/// A row of a head of `memory`, whose rows are taken to be of `stride` columns.
fn read(memory: &Tensor, stride: usize, columns: usize, row: Option<usize>, head: usize) -> Vec<f64> {
    let Some(row) = row else { return vec![0.0; columns] };
    if stride == memory.dim && columns == stride {
        return memory.rows_of_head(row..row + 1, head);
    }
    let first = (row * memory.heads + head) * stride;
    (first..first + columns).map(|at| if at < memory.len() { memory.at(at) } else { f64::NAN }).collect()
}
