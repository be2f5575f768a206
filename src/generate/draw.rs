//! The few ways in which a choice is read from bytes.
//!
//! All of them spend a fixed number of bytes, so that changing one byte leaves the choices after it
//! alone, and all of them read exhausted input as zeros and zero as the simplest choice. Each is
//! monotone: neighbouring bytes give neighbouring choices of a table that is sorted by simplicity.

use arbitrary::{Result, Unstructured};

/// One value of a table of (weight, value). Weights add up to 256 at most; the first value is what
/// exhausted input gives.
pub(super) fn weighted<T: Copy>(u: &mut Unstructured, table: &[(u8, T)]) -> Result<T> {
    let total: u32 = table.iter().map(|&(weight, _)| u32::from(weight)).sum();
    let mut at = (u32::from(u.arbitrary::<u8>()?) * total) >> 8;
    for &(weight, value) in table {
        match at.checked_sub(u32::from(weight)) {
            Some(rest) => at = rest,
            None => return Ok(value),
        }
    }
    unreachable!("the draw is below the sum of the weights")
}

/// True with this many chances in 256; false for exhausted input.
pub(super) fn chance(u: &mut Unstructured, of_256: u8) -> Result<bool> {
    Ok(u32::from(u.arbitrary::<u8>()?) + u32::from(of_256) >= 256)
}

/// A number from `low` to `high`, both included; `low` for exhausted input or an empty range.
pub(super) fn between(u: &mut Unstructured, low: u32, high: u32) -> Result<u32> {
    let draw = u64::from(u.arbitrary::<u16>()?);
    let width = u64::from(high.saturating_sub(low)) + 1;
    Ok(low + ((draw * width) >> 16) as u32)
}

/// One of the values of a list that is not empty; the first for exhausted input.
pub(super) fn one_of<T: Copy>(u: &mut Unstructured, values: &[T]) -> Result<T> {
    let draw = usize::from(u.arbitrary::<u8>()?);
    Ok(values[(draw * values.len()) >> 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_input_draws_the_first_choice() {
        let mut u = Unstructured::new(&[]);
        assert_eq!(weighted(&mut u, &[(1, 'a'), (200, 'b')]).unwrap(), 'a');
        assert!(!chance(&mut u, 255).unwrap());
        assert_eq!(between(&mut u, 3, 9).unwrap(), 3);
        assert_eq!(one_of(&mut u, &[5, 6]).unwrap(), 5);
    }

    #[test]
    fn the_largest_bytes_draw_the_last_choice() {
        let mut u = Unstructured::new(&[255; 8]);
        assert_eq!(weighted(&mut u, &[(1, 'a'), (200, 'b')]).unwrap(), 'b');
        assert!(chance(&mut u, 1).unwrap());
        assert_eq!(between(&mut u, 3, 9).unwrap(), 9);
        assert_eq!(one_of(&mut u, &[5, 6]).unwrap(), 6);
    }
}
