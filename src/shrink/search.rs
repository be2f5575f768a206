//! The search primitives. They know numbers and a question, nothing of cases.
//!
//! The question `works(n)` adopts what it says yes to, so a later question is put to what the
//! earlier ones left. None assumes that the answers are monotone; where they are, the result is
//! the exact boundary, and in any case every "yes" was real.

use std::ops::Range;

/// A large `n` for which `works(n)`, with `works(0)` taken as true: the first boundary found by
/// growing steps and bisection. One question where already `works(1)` fails.
pub fn find_integer(mut works: impl FnMut(u64) -> bool) -> u64 {
    let mut good = 0;
    let mut step = 1;
    while works(good + step) {
        good += step;
        // Answers are mostly small: the first few are asked one by one.
        step = if good < 3 { 1 } else { good };
    }
    bisect(good, good + step, works)
}

/// Between `good`, which works, and `bad`, which does not: a boundary, from the good side.
fn bisect(mut good: u64, mut bad: u64, mut works: impl FnMut(u64) -> bool) -> u64 {
    while good.abs_diff(bad) > 1 {
        let middle = good.min(bad) + good.abs_diff(bad) / 2;
        if works(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

/// The first of `values` below `from` that works.
pub fn first_of(from: u64, values: &[u64], mut works: impl FnMut(u64) -> bool) -> Option<u64> {
    values.iter().copied().filter(|&v| v < from).find(|&v| works(v))
}

/// A small value that works, at most `from`, which does: the ascending interesting `values` first,
/// then down from there. `values[0]` is the least legal value.
pub fn lower(from: u64, values: &[u64], mut works: impl FnMut(u64) -> bool) -> u64 {
    let best = first_of(from, values, &mut works).unwrap_or(from);
    match values.iter().copied().filter(|&v| v < best).max() {
        Some(bad) if best - bad > 1 && works(best - 1) => bisect(best - 1, bad, works),
        _ => best,
    }
}

/// The sizes of chunks to try to delete from `len` elements: all, half, a quarter, ... one.
pub fn chunk_sizes(len: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(len), |&size| Some(size / 2)).take_while(|&size| size > 0)
}

/// Offers each chunk of `size` of `len` elements for deletion, the last first, so that a deletion
/// moves no element that is still to come.
pub fn sweep_chunks(len: usize, size: usize, mut delete: impl FnMut(Range<usize>)) {
    let mut end = len;
    while end > 0 {
        let start = end.saturating_sub(size);
        delete(start..end);
        end = start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_integer_finds_every_boundary() {
        for boundary in (0..70).chain([127, 128, 129, 1000]) {
            let mut asked = 0;
            let found = find_integer(|n| {
                asked += 1;
                n <= boundary
            });
            assert_eq!(found, boundary);
            assert!(asked <= 4 + 2 * (boundary + 1).ilog2(), "{asked} questions for {boundary}");
        }
    }

    #[test]
    fn lower_finds_every_threshold_and_asks_little() {
        for threshold in 0..=300 {
            let mut asked = 0;
            let found = lower(300, &[0, 1, 2, 16, 128], |v| {
                asked += 1;
                v >= threshold
            });
            assert_eq!(found, threshold);
            assert!(asked <= 14, "{asked} questions for {threshold}");
        }
    }

    #[test]
    fn lower_takes_an_interesting_value_and_never_goes_below_the_first() {
        assert_eq!(lower(1000, &[0, 1, 64, 128], |v| v % 128 == 64), 64);
        assert_eq!(lower(9, &[4, 8], |v| v != 8), 4);
        assert_eq!(lower(7, &[0, 8], |v| v == 5), 7);
    }

    #[test]
    fn chunks_cover_everything_once_from_the_end() {
        assert_eq!(chunk_sizes(11).collect::<Vec<_>>(), [11, 5, 2, 1]);
        assert_eq!(chunk_sizes(0).count(), 0);
        let mut chunks = Vec::new();
        sweep_chunks(5, 2, |range| chunks.push(range));
        assert_eq!(chunks, [3..5, 1..3, 0..1]);
    }
}
