//! What a backend may have rounded a value to, when the value itself is only known to within an error.
//!
//! A fused kernel rounds P and dS to the storage dtype before it multiplies with them. Its value differs
//! from the reference's by an fp32-level error at most, so nearly always both round to the same number:
//! that number is *applied* in the reference, and no allowance is due. Only where a boundary between two
//! roundings lies inside the error may the backend have taken either.

use crate::tensor::DType;

/// The numbers of a storage dtype, overflow left to the caller.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Veltkamp's factor: leaves the dtype's leading bits of a product.
    split: f64,
    /// Least normal number.
    least: f64,
    /// Adding and subtracting it leaves whole steps of the subnormals.
    magic: f64,
    /// Half a step of a number in `[1, 2)`.
    u: f64,
}

impl Grid {
    /// Of a dtype.
    pub fn of(dtype: DType) -> Grid {
        let precision = dtype.precision() as i32;
        let least = dtype.min_normal();
        let step = least * 2f64.powi(1 - precision);
        let magic = step * (3u64 << 51) as f64;
        Grid { split: (1u64 << (53 - precision)) as f64 + 1.0, least, magic, u: 2f64.powi(-precision) }
    }

    /// The nearest number to `x`; either of two that are equally near.
    #[inline(always)]
    pub fn nearest(self, x: f64) -> f64 {
        let c = x * self.split;
        let normal = c - (c - x);
        let subnormal = (x + self.magic) - self.magic;
        if x.abs() < self.least { subnormal } else { normal }
    }

    /// The middle of what `x`, off by up to `error`, may have been rounded to, and half of the width: 0
    /// where all of it rounds alike.
    #[inline(always)]
    pub fn interval(self, x: f64, error: f64) -> (f64, f64) {
        let (low, high) = (self.nearest(x - error), self.nearest(x + error));
        (low.midpoint(high), high.midpoint(-low))
    }

    /// Half of the distance between neighbours at `x`: what a rounding is off by at most.
    #[inline(always)]
    pub fn half_step(self, x: f64) -> f64 {
        // The sign and the significand cleared: the power of two at or below |x|.
        let power = f64::from_bits(x.to_bits() & (0x7ff << 52));
        self.u * if power < self.least { self.least } else { power }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of every size that a dtype has, and both neighbours of boundaries.
    fn samples(dtype: DType) -> Vec<f64> {
        let mut values = vec![0.0, 1.0, 1.5, dtype.min_normal(), dtype.max_finite()];
        let mut x: u64 = 1;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let exponent = (x >> 59) as i32 - 28;
            values.push((1.0 + (x >> 12) as f64 * 2f64.powi(-52)) * 2f64.powi(exponent));
            values.push(dtype.min_normal() * (x >> 12) as f64 * 2f64.powi(-52));
        }
        values.iter().flat_map(|&x| [x, -x]).filter(|x| x.abs() < dtype.max_finite()).collect()
    }

    #[test]
    fn the_nearest_is_that_of_the_dtype_but_for_ties() {
        for dtype in [DType::Bf16, DType::F16] {
            let grid = Grid::of(dtype);
            for x in samples(dtype) {
                let (mine, exact) = (grid.nearest(x), dtype.round(x));
                assert!(mine == exact || (mine - x).abs() == (exact - x).abs(), "{dtype:?} {x:e}: {mine:e}");
                assert!((mine - x).abs() <= grid.half_step(x), "{dtype:?} {x:e}");
                assert_eq!(grid.nearest(exact), exact, "{dtype:?}: a number of the dtype stays");
            }
        }
    }

    #[test]
    fn an_interval_holds_the_rounding_of_everything_inside_the_error() {
        for dtype in [DType::Bf16, DType::F16] {
            let grid = Grid::of(dtype);
            let mut ambiguous = 0;
            for x in samples(dtype) {
                let error = x.abs() * 2f64.powi(-15);
                let (middle, half) = grid.interval(x, error);
                ambiguous += usize::from(half > 0.0);
                for y in [x - error, x - error / 2.0, x, x + error / 2.0, x + error] {
                    assert!((dtype.round(y) - middle).abs() <= half, "{dtype:?} {x:e}: {middle:e} {half:e}");
                }
            }
            assert!(ambiguous > 10, "{dtype:?}: no boundary was met");
        }
    }
}
