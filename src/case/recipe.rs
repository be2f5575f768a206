//! What the tensors hold: the data recipe of q, k, v, the recipe of dO, and the fill of dead rows.

/// Where the values of q, k and v start from, before offset and head scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Base {
    /// Near-normal values; the scaled logits have this nominal standard deviation.
    Logits(f64),
    /// All ones: every row alike, every probability `1/n`.
    Ones,
    /// Halves in `-1..=1`: few values, all exact in every dtype.
    Dyadic,
    /// Every probability `1/n`, every other value an integer over n: no rounding where n is a power of two.
    Flat,
    /// Every query sees one key, or two that are equal: no rounding where logits are far enough apart.
    OneHot,
}

/// Recipe of q, k and v.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Data {
    /// Where the values start from.
    pub base: Base,
    /// Added to every logit, through column 0 of q and k. 0: none.
    pub offset: f64,
    /// Query heads are scaled by factors drawn from `1/head_scale ..= head_scale`. 1: none.
    pub head_scale: f64,
}

impl Default for Data {
    /// Logits of nominal spread 1; rows and heads differ by factors of up to four, so that the
    /// softmax statistics differ between any two of them.
    fn default() -> Self {
        Data { base: Base::Logits(1.0), offset: 0.0, head_scale: 1.0 }
    }
}

/// Recipe of dO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dout {
    /// Ones everywhere, as `out.sum().backward()` gives, instead of near-normal values.
    pub ones: bool,
    /// Only this row of each sequence is non-zero.
    pub row: Option<u32>,
    /// Factor on all of dO.
    pub scale: f64,
}

impl Default for Dout {
    fn default() -> Self {
        Dout { ones: false, row: None, scale: 1.0 }
    }
}

/// What rows that belong to no sequence hold in the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum DeadFill {
    /// Zeros, which hide most faults.
    #[default]
    Zero,
    /// A large finite value, [`DeadFill::BIG`].
    Big,
    /// NaN, which no multiplication by a masked zero hides.
    Nan,
}

impl DeadFill {
    /// The large finite value, exact in both storage dtypes.
    pub const BIG: f64 = 16384.0;

    /// The fill as a number.
    pub fn value(self) -> f64 {
        match self {
            DeadFill::Zero => 0.0,
            DeadFill::Big => Self::BIG,
            DeadFill::Nan => f64::NAN,
        }
    }
}
