//! Inputs made of other inputs: sequences and heads picked, left out, repeated and reordered, their values
//! copied row by row. Whoever compares the answers compares like with like.

use super::Inputs;
use crate::case::{Case, Span};
use crate::tensor::{Poison, Tensor};

/// Where the values of derived inputs come from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// For each sequence, that of the base that it is; `None` for one without tokens.
    pub sequences: Vec<Option<usize>>,
    /// For each query head, that of the base.
    pub q_heads: Vec<usize>,
    /// For each kv head, that of the base.
    pub kv_heads: Vec<usize>,
    /// Factor on dO, a power of two.
    pub dout: f64,
}

impl Origin {
    /// All of a case as it is.
    pub fn whole(case: &Case) -> Origin {
        Origin {
            sequences: (0..case.sequences()).map(Some).collect(),
            q_heads: (0..case.heads.q as usize).collect(),
            kv_heads: (0..case.heads.kv as usize).collect(),
            dout: 1.0,
        }
    }
}

impl Inputs {
    /// The inputs of `case`, every live value copied from where `origin` says. Dead rows hold what `case` says.
    ///
    /// # Panics
    /// Where a sequence of `case` is not as long as the one that it is copied from.
    pub fn derived(&self, case: Case, origin: &Origin) -> Inputs {
        let (q_spans, kv_spans) = (case.q.spans(), case.kv.spans());
        let side = |to: &Tensor, query: bool, factor: f64| {
            let (spans, from, heads) = match query {
                true => (&q_spans, &self.q_spans, &origin.q_heads),
                false => (&kv_spans, &self.kv_spans, &origin.kv_heads),
            };
            let (side, dim) = (if query { &case.q } else { &case.kv }, to.dim);
            let shape = [side.rows() as usize, heads.len(), dim];
            let mut tensor = Tensor::poisoned(case.dtype, shape, Poison::Nan);
            tensor.fill_rows(&side.dead_rows(), case.dead.value());
            for (span, sequence) in spans.iter().zip(&origin.sequences) {
                let none = Span { row: 0, token: 0, len: 0 };
                let source = sequence.map_or(none, |sequence| from[sequence]);
                assert_eq!(span.len, source.len, "a sequence is as long as its origin");
                for (head, &source_head) in heads.iter().enumerate() {
                    let values = to.rows_of_head(source.rows(), source_head);
                    for (i, x) in values.into_iter().enumerate() {
                        let index = tensor.index(span.row + i / dim, head, i % dim);
                        tensor.set(index as isize, x * factor);
                    }
                }
            }
            tensor
        };
        let (q, dout) = (side(&self.q, true, 1.0), side(&self.dout, true, origin.dout));
        let (k, v) = (side(&self.k, false, 1.0), side(&self.v, false, 1.0));
        let mut sink = Tensor::poisoned(self.sink.dtype(), Inputs::sink_shape(&case), Poison::Nan);
        for (head, &from) in origin.q_heads.iter().enumerate().take(sink.len()) {
            sink.set(head as isize, self.sink.at(from));
        }
        Inputs { case, q_spans, kv_spans, q, k, v, dout, sink }
    }
}
