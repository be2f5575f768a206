//! Storage: dtypes with exact rounding, and tensors of (row, head, column) in guarded memory.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

mod bytes;

/// A storage dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// 8 bits of mantissa, the range of f32.
    Bf16,
    /// 11 bits of mantissa, largest finite value 65504.
    F16,
    /// 24 bits of mantissa; the LSE's dtype.
    F32,
}

impl DType {
    /// Its name in the notation.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bf16 => "bf16",
            DType::F16 => "f16",
            DType::F32 => "f32",
        }
    }

    /// Bits of the significand, the hidden one included.
    pub fn precision(self) -> u32 {
        match self {
            DType::Bf16 => 8,
            DType::F16 => 11,
            DType::F32 => 24,
        }
    }

    /// Smallest positive normal value.
    pub const fn min_normal(self) -> f64 {
        match self {
            DType::F16 => 1.0 / 16384.0,
            DType::Bf16 | DType::F32 => f32::MIN_POSITIVE as f64,
        }
    }

    /// Largest finite value.
    pub const fn max_finite(self) -> f64 {
        match self {
            DType::Bf16 => 255.0 * (1u128 << 120) as f64,
            DType::F16 => 65504.0,
            DType::F32 => f32::MAX as f64,
        }
    }

    /// An f32 rounded to this dtype, as hardware converts it.
    pub fn round_f32(self, x: f32) -> f32 {
        match self {
            DType::Bf16 => bf16::from_f32(x).to_f32(),
            DType::F16 => f16::from_f32(x).to_f32(),
            DType::F32 => x,
        }
    }

    /// The value of this dtype nearest to `x`, ties to even, beyond the range infinite.
    pub fn round(self, x: f64) -> f64 {
        let tiny = self.min_normal();
        if x.abs() < tiny {
            // Subnormals are multiples of one step.
            let step = tiny * 2f64.powi(1 - self.precision() as i32);
            return (x / step).round_ties_even() * step;
        }
        if !x.is_finite() {
            return x;
        }
        let shift = 53 - self.precision();
        let bits = x.to_bits();
        let half = (1u64 << (shift - 1)) - 1 + ((bits >> shift) & 1);
        let rounded = f64::from_bits((bits + half) & !((1u64 << shift) - 1));
        if rounded.abs() > self.max_finite() { f64::INFINITY.copysign(x) } else { rounded }
    }
}

/// The elements of a tensor in their storage dtype.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// bf16, as bits.
    Bf16(Vec<u16>),
    /// f16, as bits.
    F16(Vec<u16>),
    /// f32.
    F32(Vec<f32>),
}

/// What memory holds before a backend writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Poison {
    /// A signalling NaN of every dtype: arithmetic that reads it gives NaN, but never this NaN
    /// (it comes out quiet), so that "never written" and "computed from unwritten" stay apart.
    Nan,
    /// A finite value of no special meaning, for what would survive a NaN.
    Finite,
}

impl Poison {
    /// Every 16 bits of poisoned memory of a dtype.
    pub fn pattern(self, dtype: DType) -> u16 {
        match (self, dtype) {
            // Exponent all ones, quiet bit clear.
            (Poison::Nan, DType::Bf16 | DType::F32) => 0xFFA5,
            (Poison::Nan, DType::F16) => 0xFDA5,
            (Poison::Finite, _) => 0x5A3C,
        }
    }
}

/// Poisoned elements on either side of a tensor, which nobody may touch.
const GUARD: usize = 512;

/// A tensor of `rows` x `heads` x `dim` elements, row-major, with guards around it.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Storage rows.
    pub rows: usize,
    /// Heads.
    pub heads: usize,
    /// Elements of one row of one head.
    pub dim: usize,
    poison: Poison,
    elements: Elements,
}

impl Tensor {
    /// Poisoned memory of this shape. Guards are always NaN.
    pub fn poisoned(dtype: DType, [rows, heads, dim]: [usize; 3], poison: Poison) -> Tensor {
        let len = rows * heads * dim;
        let (guard, fill) = (Poison::Nan.pattern(dtype), poison.pattern(dtype));
        let halves = || {
            let mut bits = vec![guard; len + 2 * GUARD];
            bits[GUARD..GUARD + len].fill(fill);
            bits
        };
        let elements = match dtype {
            DType::Bf16 => Elements::Bf16(halves()),
            DType::F16 => Elements::F16(halves()),
            DType::F32 => Elements::F32(halves().into_iter().map(doubled).collect()),
        };
        Tensor { rows, heads, dim, poison, elements }
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        match self.elements {
            Elements::Bf16(_) => DType::Bf16,
            Elements::F16(_) => DType::F16,
            Elements::F32(_) => DType::F32,
        }
    }

    /// Index of an element inside the guards.
    pub fn index(&self, row: usize, head: usize, column: usize) -> usize {
        (row * self.heads + head) * self.dim + column
    }

    /// Elements, guards apart.
    pub fn len(&self) -> usize {
        self.rows * self.heads * self.dim
    }

    /// Has it no element?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at an index.
    pub fn at(&self, index: usize) -> f64 {
        let i = GUARD + index;
        match &self.elements {
            Elements::Bf16(bits) => f64::from(bf16::from_bits(bits[i]).to_f32()),
            Elements::F16(bits) => f64::from(f16::from_bits(bits[i]).to_f32()),
            Elements::F32(values) => f64::from(values[i]),
        }
    }

    /// Stores `x`, rounded to the dtype. Indices up to the guards' ends are memory; a store into a
    /// guard is what the hygiene oracle looks for. Beyond them a store panics, as a segment fault
    /// would on real memory.
    pub fn set(&mut self, index: isize, x: f64) {
        let i = usize::try_from(GUARD as isize + index).expect("a store inside the guarded memory");
        // Rounded here, once: the half crate's conversions from f64 round twice, and not alike on all
        // machines. What is left to it is exact.
        let x = self.dtype().round(x) as f32;
        match &mut self.elements {
            Elements::Bf16(bits) => bits[i] = bf16::from_f32(x).to_bits(),
            Elements::F16(bits) => bits[i] = f16::from_f32(x).to_bits(),
            Elements::F32(values) => values[i] = x,
        }
    }

    /// Stores a row of one head, each value rounded to the dtype once.
    pub fn set_row(&mut self, row: usize, head: usize, values: &[f64]) {
        let start = GUARD + self.index(row, head, 0);
        let range = start..start + self.dim;
        match &mut self.elements {
            Elements::Bf16(bits) => {
                store(&mut bits[range], values, |x| bf16::from_f32(DType::Bf16.round(x) as f32).to_bits())
            }
            Elements::F16(bits) => {
                store(&mut bits[range], values, |x| f16::from_f32(DType::F16.round(x) as f32).to_bits());
            }
            Elements::F32(to) => store(&mut to[range], values, |x| x as f32),
        }
    }

    /// Stores `x` in all of these rows.
    pub fn fill_rows(&mut self, rows: &[usize], x: f64) {
        let width = self.heads * self.dim;
        let elements = rows.iter().flat_map(|row| row * width..(row + 1) * width);
        elements.for_each(|index| self.set(index as isize, x));
    }

    /// First byte of the tensor and its size, guards apart, for a kernel that reads it.
    pub fn memory(&self) -> (*const u8, usize) {
        match &self.elements {
            Elements::Bf16(bits) | Elements::F16(bits) => {
                (bits[GUARD..].as_ptr().cast(), self.len() * size_of::<u16>())
            }
            Elements::F32(values) => (values[GUARD..].as_ptr().cast(), self.len() * size_of::<f32>()),
        }
    }

    /// First byte of the tensor and its size, guards apart, for a kernel that writes it.
    pub fn memory_mut(&mut self) -> (*mut u8, usize) {
        let bytes = self.memory().1;
        match &mut self.elements {
            // The pointer is to the whole allocation: a kernel that oversteps meets a guard.
            Elements::Bf16(bits) | Elements::F16(bits) => {
                (bits.as_mut_ptr().wrapping_add(GUARD).cast(), bytes)
            }
            Elements::F32(values) => (values.as_mut_ptr().wrapping_add(GUARD).cast(), bytes),
        }
    }

    /// First byte and size of each guard.
    pub fn guards(&self) -> [(*const u8, usize); 2] {
        let (data, bytes) = self.memory();
        let guard = match &self.elements {
            Elements::Bf16(_) | Elements::F16(_) => GUARD * size_of::<u16>(),
            Elements::F32(_) => GUARD * size_of::<f32>(),
        };
        [(data.wrapping_sub(guard), guard), (data.wrapping_add(bytes), guard)]
    }

    /// Does this element still hold the poison, to the bit?
    pub fn is_poison(&self, index: usize) -> bool {
        self.holds(GUARD + index, self.poison)
    }

    fn holds(&self, i: usize, poison: Poison) -> bool {
        let pattern = poison.pattern(self.dtype());
        match &self.elements {
            Elements::Bf16(bits) | Elements::F16(bits) => bits[i] == pattern,
            Elements::F32(values) => values[i].to_bits() == doubled(pattern).to_bits(),
        }
    }

    /// First guard element that was written, as an index relative to the tensor: negative before
    /// it, `len()` or more behind it.
    pub fn broken_guard(&self) -> Option<isize> {
        let len = self.len();
        let guards = (0..GUARD).chain(GUARD + len..2 * GUARD + len);
        guards.into_iter().find(|&i| !self.holds(i, Poison::Nan)).map(|i| i as isize - GUARD as isize)
    }

    /// The rows `rows` of one head as f64, row after row.
    pub fn rows_of_head(&self, rows: std::ops::Range<usize>, head: usize) -> Vec<f64> {
        // One match for all of them: the oracles read every element through here.
        match &self.elements {
            // The bits of a bf16 are the upper half of an f32's.
            Elements::Bf16(bits) => self.gather(bits, rows, head, |from, to| {
                to.extend(from.iter().map(|&bits| f64::from(f32::from_bits(u32::from(bits) << 16))));
            }),
            Elements::F16(bits) => self.gather(bits, rows, head, |from, to| {
                let start = to.len();
                to.resize(start + from.len(), 0.0);
                from.reinterpret_cast::<f16>().convert_to_f64_slice(&mut to[start..]);
            }),
            Elements::F32(values) => self.gather(values, rows, head, |from, to| {
                to.extend(from.iter().map(|&x| f64::from(x)));
            }),
        }
    }

    fn gather<T>(
        &self,
        elements: &[T],
        rows: std::ops::Range<usize>,
        head: usize,
        widen: impl Fn(&[T], &mut Vec<f64>),
    ) -> Vec<f64> {
        let mut values = Vec::with_capacity(rows.len() * self.dim);
        for row in rows {
            let start = GUARD + self.index(row, head, 0);
            widen(&elements[start..start + self.dim], &mut values);
        }
        values
    }
}

fn store<T>(to: &mut [T], values: &[f64], narrow: impl Fn(f64) -> T) {
    to.iter_mut().zip(values).for_each(|(to, &x)| *to = narrow(x));
}

fn doubled(pattern: u16) -> f32 {
    f32::from_bits(u32::from(pattern) << 16 | u32::from(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_agrees_with_the_half_crate_on_every_neighbourhood() {
        for bits in (0..=u16::MAX).step_by(7) {
            for nudge in [0.0, 1e-4, -1e-4, 1.0 / 512.0, -1.0 / 512.0, 1.0 / 4096.0, 0.3] {
                let x = bf16::from_bits(bits).to_f64() * (1.0 + nudge);
                same(DType::Bf16.round(x), bf16::from_f64(x).to_f64(), x);
                let x = f16::from_bits(bits).to_f64() * (1.0 + nudge);
                same(DType::F16.round(x), f16::from_f64(x).to_f64(), x);
                same(DType::F32.round(x), f64::from(x as f32), x);
            }
        }
        same(DType::F16.round(65519.0), 65504.0, 65519.0);
        assert!(DType::F16.round(65520.0).is_infinite());
    }

    #[test]
    fn a_store_next_to_a_tie_rounds_once() {
        // One unit beyond the tie, in bits that a detour through f32 would lose.
        for (dtype, ulp) in [(DType::Bf16, 2f64.powi(-7)), (DType::F16, 2f64.powi(-10))] {
            let mut tensor = Tensor::poisoned(dtype, [1, 1, 1], Poison::Nan);
            for sign in [1.0, -1.0] {
                tensor.set(0, sign * (1.0 + ulp / 2.0 + 2f64.powi(-40)));
                assert_eq!(tensor.at(0), sign * (1.0 + ulp), "{dtype:?}");
            }
        }
    }

    fn same(got: f64, want: f64, of: f64) {
        assert!(got == want || got.is_nan() && want.is_nan(), "rounding {of:e}: {got:e}, expected {want:e}");
    }

    #[test]
    fn limits_of_the_dtypes_are_those_of_their_crates() {
        assert_eq!(DType::Bf16.max_finite(), f64::from(bf16::MAX));
        assert_eq!(DType::F16.max_finite(), f64::from(f16::MAX));
        assert_eq!(DType::Bf16.min_normal(), f64::from(bf16::MIN_POSITIVE));
        assert_eq!(DType::F16.min_normal(), f64::from(f16::MIN_POSITIVE));
    }

    #[test]
    fn poison_is_nan_in_every_dtype_and_is_not_what_arithmetic_makes_of_it() {
        for dtype in [DType::Bf16, DType::F16, DType::F32] {
            let mut tensor = Tensor::poisoned(dtype, [1, 1, 4], Poison::Nan);
            assert!(tensor.at(0).is_nan() && tensor.is_poison(0), "{dtype:?}");
            tensor.set(0, tensor.at(1) + 1.0);
            assert!(tensor.at(0).is_nan() && !tensor.is_poison(0), "{dtype:?}");
            assert_eq!(tensor.broken_guard(), None);
            tensor.set(4, 0.0);
            assert_eq!(tensor.broken_guard(), Some(4));
            tensor.set(-3, 0.0);
            assert_eq!(tensor.broken_guard(), Some(-3));
            assert!(Tensor::poisoned(dtype, [1, 1, 1], Poison::Finite).at(0).is_finite());
        }
    }
}
