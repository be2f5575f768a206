//! What a backend answers: O, LSE, dQ, dK and dV, in guarded memory that was poisoned before.

use std::fmt;

use crate::case::{Case, Side};
use crate::tensor::{DType, Poison, Tensor};

/// One of the five outputs; the order is that of a finding's identity.
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
}

impl Output {
    /// All five.
    pub const ALL: [Output; 5] = [Output::O, Output::Lse, Output::Dq, Output::Dk, Output::Dv];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Output::O => "O",
            Output::Lse => "LSE",
            Output::Dq => "dQ",
            Output::Dk => "dK",
            Output::Dv => "dV",
        }
    }

    /// The side whose rows it has.
    pub fn side(self, case: &Case) -> &Side {
        match self {
            Output::O | Output::Lse | Output::Dq => &case.q,
            Output::Dk | Output::Dv => &case.kv,
        }
    }

    /// `[rows, heads, columns]` in storage.
    pub fn shape(self, case: &Case) -> [usize; 3] {
        let rows = self.side(case).rows() as usize;
        let (heads, dims) = (case.heads, case.dims);
        let (heads, dim) = match self {
            Output::O => (heads.q, dims.v),
            Output::Lse => (heads.q, 1),
            Output::Dq => (heads.q, dims.qk),
            Output::Dk => (heads.kv, dims.qk),
            Output::Dv => (heads.kv, dims.v),
        };
        [rows, heads as usize, dim as usize]
    }

    /// Its storage dtype.
    pub fn dtype(self, case: &Case) -> DType {
        if self == Output::Lse { DType::F32 } else { case.dtype }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The five outputs of one call.
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
        }
    }

    /// One of the five.
    pub fn get(&self, output: Output) -> &Tensor {
        match output {
            Output::O => &self.o,
            Output::Lse => &self.lse,
            Output::Dq => &self.dq,
            Output::Dk => &self.dk,
            Output::Dv => &self.dv,
        }
    }

    /// One of the five, to be written.
    pub fn get_mut(&mut self, output: Output) -> &mut Tensor {
        match output {
            Output::O => &mut self.o,
            Output::Lse => &mut self.lse,
            Output::Dq => &mut self.dq,
            Output::Dk => &mut self.dk,
            Output::Dv => &mut self.dv,
        }
    }
    /// Was memory outside any of them written?
    pub fn any_broken_guard(&self) -> bool {
        Output::ALL.into_iter().any(|output| self.get(output).broken_guard().is_some())
    }
}
