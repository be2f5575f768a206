//! A tensor as bytes, for the way to another process and back.

use super::{DType, Elements, GUARD, Poison, Tensor, doubled};

impl Tensor {
    /// The elements, little-endian, guards apart.
    pub fn to_bytes(&self) -> Vec<u8> {
        let inside = GUARD..GUARD + self.len();
        let mut bytes = vec![0; self.memory().1];
        // Chunk by chunk into memory that is there: compilers make one copy of it.
        match &self.elements {
            Elements::Bf16(bits) | Elements::F16(bits) => {
                let to = bytes.as_chunks_mut().0.iter_mut();
                to.zip(&bits[inside]).for_each(|(to, x)| *to = x.to_le_bytes());
            }
            Elements::F32(values) => {
                let to = bytes.as_chunks_mut().0.iter_mut();
                to.zip(&values[inside]).for_each(|(to, x)| *to = x.to_bits().to_le_bytes());
            }
        }
        bytes
    }

    /// A tensor that holds `bytes`, as [`Tensor::to_bytes`] gives them, between whole guards; `None`
    /// where they are not as many as the shape says. `poison` is what unwritten elements hold.
    pub fn from_bytes(dtype: DType, shape: [usize; 3], poison: Poison, bytes: &[u8]) -> Option<Tensor> {
        let [rows, heads, dim] = shape;
        let len = rows * heads * dim;
        let width = if dtype == DType::F32 { size_of::<f32>() } else { size_of::<u16>() };
        if bytes.len() != len * width {
            return None;
        }
        let guard = Poison::Nan.pattern(dtype);
        let halves = || guarded(guard, bytes.as_chunks().0.iter().map(|&x| u16::from_le_bytes(x)), len);
        let elements = match dtype {
            DType::Bf16 => Elements::Bf16(halves()),
            DType::F16 => Elements::F16(halves()),
            DType::F32 => {
                let values = bytes.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x));
                Elements::F32(guarded(doubled(guard), values, len))
            }
        };
        Some(Tensor { rows, heads, dim, poison, elements })
    }

    /// Marks the guard element at `index` as written: what another process saw there. `false`, and
    /// nothing done, where `index` is in no guard.
    pub fn break_guard(&mut self, index: isize) -> bool {
        let (len, guard) = (self.len() as isize, GUARD as isize);
        let inside = (-guard..0).contains(&index) || (len..len + guard).contains(&index);
        if inside {
            self.set(index, 0.0);
        }
        inside
    }
}

/// `values`, `len` of them, between two guards.
fn guarded<T: Copy>(guard: T, values: impl Iterator<Item = T>, len: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(len + 2 * GUARD);
    all.resize(GUARD, guard);
    all.extend(values);
    all.resize(len + 2 * GUARD, guard);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_survives_the_way_through_bytes() {
        for dtype in [DType::Bf16, DType::F16, DType::F32] {
            for poison in [Poison::Nan, Poison::Finite] {
                let mut tensor = Tensor::poisoned(dtype, [3, 2, 8], poison);
                tensor.set(5, -1.5);
                let copy = Tensor::from_bytes(dtype, [3, 2, 8], poison, &tensor.to_bytes()).unwrap();
                assert_eq!(copy.to_bytes(), tensor.to_bytes());
                assert!(copy.is_poison(4) && !copy.is_poison(5) && copy.broken_guard().is_none());
                assert!(Tensor::from_bytes(dtype, [3, 2, 7], poison, &tensor.to_bytes()).is_none());
            }
        }
    }

    #[test]
    fn a_guard_breaks_where_it_is_told_and_nowhere_else() {
        let mut tensor = Tensor::poisoned(DType::Bf16, [1, 1, 8], Poison::Nan);
        for index in [0, 7, -1 - GUARD as isize, 8 + GUARD as isize, isize::MIN, isize::MAX] {
            assert!(!tensor.break_guard(index));
        }
        assert_eq!(tensor.broken_guard(), None);
        assert!(tensor.break_guard(9));
        assert_eq!(tensor.broken_guard(), Some(9));
    }
}
