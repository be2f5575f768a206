//! Did the backend see conflicting accesses while it ran? Values may be right all the same: the
//! schedule that shows a missing barrier is rare, the missing barrier is not.

use super::{Evidence, Finding, Kind};

/// One finding for all conflicts of a call; the note tells the first and how many there are.
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let Some(first) = evidence.races.first() else { return Vec::new() };
    let more = evidence.races.len() - 1;
    let note = if more == 0 { first.clone() } else { format!("{first}; and {more} more") };
    let (got, want, bound) = (f64::NAN, 0.0, 0.0);
    vec![Finding { call: evidence.call, tensor: None, kind: Kind::Race, at: None, got, want, bound, note }]
}
