//! What a backend answers: O, LSE, dQ, dK, dV and dSink, in guarded memory that was poisoned before.

use std::fmt;

use crate::case::{Case, Side, Sink};
use crate::tensor::{DType, Poison, Tensor};

/// One of the outputs; the order is that of a finding's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Output {
    /// `[rows_q][h_q][d_v]`.
    O,
    /// Natural logarithm of the softmax's denominator, f32, `[rows_q][h_q][1]`.
    Lse,
    /// `[rows_q][h_q][d_qk]`.
    Dq,
    /// `[rows_kv][h_kv][d_qk]`.
    Dk,
    /// `[rows_kv][h_kv][d_v]`.
    Dv,
    /// Gradient of the sink's logits, f32, `[1][h_q][1]`; `[0][h_q][1]` where none is learnable.
    Dsink,
}

impl Output {
    /// All of them.
    pub const ALL: [Output; 6] = [Output::O, Output::Lse, Output::Dq, Output::Dk, Output::Dv, Output::Dsink];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Output::O => "O",
            Output::Lse => "LSE",
            Output::Dq => "dQ",
            Output::Dk => "dK",
            Output::Dv => "dV",
            Output::Dsink => "dSink",
        }
    }

    /// The side whose rows it has; dSink has none.
    pub fn side(self, case: &Case) -> Option<&Side> {
        match self {
            Output::O | Output::Lse | Output::Dq => Some(&case.q),
            Output::Dk | Output::Dv => Some(&case.kv),
            Output::Dsink => None,
        }
    }

    /// Its storage rows that belong to no sequence, in order.
    pub fn dead_rows(self, case: &Case) -> Vec<usize> {
        self.side(case).map(Side::dead_rows).unwrap_or_default()
    }

    /// Has a case of this kind such an output?
    pub fn is_of(self, case: &Case) -> bool {
        self != Output::Dsink || case.sink == Sink::Learnable
    }

    /// `[rows, heads, columns]` in storage.
    pub fn shape(self, case: &Case) -> [usize; 3] {
        let rows = match self.side(case) {
            Some(side) => side.rows() as usize,
            None => usize::from(self.is_of(case)),
        };
        let (heads, dims) = (case.heads, case.dims);
        let (heads, dim) = match self {
            Output::O => (heads.q, dims.v),
            Output::Lse => (heads.q, 1),
            Output::Dq => (heads.q, dims.qk),
            Output::Dk => (heads.kv, dims.qk),
            Output::Dv => (heads.kv, dims.v),
            Output::Dsink => (heads.q, 1),
        };
        [rows, heads as usize, dim as usize]
    }

    /// Its storage dtype.
    pub fn dtype(self, case: &Case) -> DType {
        if matches!(self, Output::Lse | Output::Dsink) { DType::F32 } else { case.dtype }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The outputs of one call.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// O.
    pub o: Tensor,
    /// LSE, in (token, head) order whatever the backend's own order.
    pub lse: Tensor,
    /// dQ.
    pub dq: Tensor,
    /// dK.
    pub dk: Tensor,
    /// dV.
    pub dv: Tensor,
    /// dSink.
    pub dsink: Tensor,
}

impl Outputs {
    /// Poisoned memory of the shapes of `case`.
    pub fn poisoned(case: &Case, poison: Poison) -> Outputs {
        let make = |output: Output| Tensor::poisoned(output.dtype(case), output.shape(case), poison);
        Outputs {
            o: make(Output::O),
            lse: make(Output::Lse),
            dq: make(Output::Dq),
            dk: make(Output::Dk),
            dv: make(Output::Dv),
            dsink: make(Output::Dsink),
        }
    }

    /// One of them.
    pub fn get(&self, output: Output) -> &Tensor {
        match output {
            Output::O => &self.o,
            Output::Lse => &self.lse,
            Output::Dq => &self.dq,
            Output::Dk => &self.dk,
            Output::Dv => &self.dv,
            Output::Dsink => &self.dsink,
        }
    }

    /// One of them, to be written.
    pub fn get_mut(&mut self, output: Output) -> &mut Tensor {
        match output {
            Output::O => &mut self.o,
            Output::Lse => &mut self.lse,
            Output::Dq => &mut self.dq,
            Output::Dk => &mut self.dk,
            Output::Dv => &mut self.dv,
            Output::Dsink => &mut self.dsink,
        }
    }

    /// Was memory outside any of them written?
    pub fn any_broken_guard(&self) -> bool {
        Output::ALL.into_iter().any(|output| self.get(output).broken_guard().is_some())
    }
}
