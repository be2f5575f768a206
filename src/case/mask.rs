//! Which keys a query sees: the one definition of every mask.
//!
//! Every mask is a window `j - i` in `[-left, right]`, after the diagonal's shift. Positions are
//! those inside a sequence, never storage rows.

use std::ops::Range;

/// Which corner of the score matrix the diagonal starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Align {
    /// Query 0 is level with key 0.
    TopLeft,
    /// The last query is level with the last key.
    BottomRight,
}

/// A mask of the notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mask {
    /// Every key is visible.
    Full,
    /// `j <= i`, after the diagonal's shift.
    Causal(Align),
    /// `i - left <= j <= i + right`, after the shift; `None` is unbounded, and a bound may be
    /// negative, which moves the band off the diagonal.
    Window {
        /// How far back a query sees.
        left: Option<i64>,
        /// How far ahead a query sees.
        right: Option<i64>,
        /// The corner of the diagonal.
        align: Align,
    },
}

impl Mask {
    /// `(left, right, align)`, the window that every mask is.
    pub fn window(self) -> (Option<i64>, Option<i64>, Align) {
        match self {
            Mask::Full => (None, None, Align::TopLeft),
            Mask::Causal(align) => (None, Some(0), align),
            Mask::Window { left, right, align } => (left, right, align),
        }
    }

    /// The first and one past the last key that query `q` of a sequence of `q_len` queries and
    /// `kv_len` keys sees. Empty ranges are `0..0`.
    pub fn visible_keys(self, q: usize, q_len: usize, kv_len: usize) -> Range<usize> {
        let (left, right, align) = self.window();
        let shift = match align {
            Align::TopLeft => 0,
            Align::BottomRight => kv_len as i64 - q_len as i64,
        };
        let diagonal = q as i64 + shift;
        let first = left.map_or(0, |l| diagonal.saturating_sub(l).max(0));
        let end =
            right.map_or(kv_len as i64, |r| diagonal.saturating_add(r).saturating_add(1).min(kv_len as i64));
        if first < end { first as usize..end as usize } else { 0..0 }
    }

    /// Does query `q` see key `kv`? THE definition; all else follows it.
    pub fn visible(self, q: usize, kv: usize, q_len: usize, kv_len: usize) -> bool {
        self.visible_keys(q, q_len, kv_len).contains(&kv)
    }

    /// How many (query, key) pairs of a sequence are visible.
    pub fn pairs(self, q_len: usize, kv_len: usize) -> u64 {
        if self == Mask::Full {
            return q_len as u64 * kv_len as u64;
        }
        (0..q_len).map(|q| self.visible_keys(q, q_len, kv_len).len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The masks written out as inequalities, apart from the window form above.
    fn spelled_out(mask: Mask, i: i64, j: i64, m: i64, n: i64) -> bool {
        match mask {
            Mask::Full => true,
            Mask::Causal(Align::TopLeft) => j <= i,
            Mask::Causal(Align::BottomRight) => j - n <= i - m,
            Mask::Window { left, right, align } => {
                let i = if align == Align::BottomRight { i - m + n } else { i };
                left.is_none_or(|l| j >= i - l) && right.is_none_or(|r| j <= i + r)
            }
        }
    }

    #[test]
    fn visible_agrees_with_the_inequalities_for_all_small_shapes() {
        let bounds = [None, Some(-2), Some(-1), Some(0), Some(1), Some(3), Some(i64::MAX), Some(i64::MIN)];
        let mut masks = vec![Mask::Full, Mask::Causal(Align::TopLeft), Mask::Causal(Align::BottomRight)];
        for left in bounds {
            for right in bounds {
                for align in [Align::TopLeft, Align::BottomRight] {
                    masks.push(Mask::Window { left, right, align });
                }
            }
        }
        for mask in masks {
            for (m, n) in (0..6).flat_map(|m| (0..6).map(move |n| (m, n))) {
                let mut pairs = 0;
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    // i64::MIN as `left` overflows the naive inequality; saturate it as the code must.
                    let clamp = |b: Option<i64>| b.map(|b| b.clamp(-100, 100));
                    let plain = match mask {
                        Mask::Window { left, right, align } => {
                            Mask::Window { left: clamp(left), right: clamp(right), align }
                        }
                        other => other,
                    };
                    let want = spelled_out(plain, i as i64, j as i64, m as i64, n as i64);
                    assert_eq!(mask.visible(i, j, m, n), want, "{mask:?} q {i} of {m}, kv {j} of {n}");
                    pairs += u64::from(want);
                }
                assert_eq!(mask.pairs(m, n), pairs);
            }
        }
    }
}
