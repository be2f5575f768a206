//! What is wrong where, for faults that no hypothesis explains.

use std::collections::BTreeSet;

use super::observed::{Observed, Seen};
use crate::outputs::Output;

/// Sentences on each output that is wrong.
pub fn describe(observed: &Observed) -> Vec<String> {
    let mut lines = Vec::new();
    for (call, answered) in observed.calls.iter().enumerate() {
        for output in Output::ALL {
            let planes: Vec<&Seen> = answered.seen.iter().filter(|seen| seen.output == output).collect();
            if planes.iter().all(|seen| seen.wrong == 0) {
                continue;
            }
            let whose = if observed.calls.len() > 1 {
                format!("{output} of call {call}")
            } else {
                output.to_string()
            };
            lines.push(format!("{whose}: {}", sentence(&planes)));
        }
    }
    lines
}

/// The wrong elements of one output.
fn sentence(planes: &[&Seen]) -> String {
    let wrong: Vec<&Seen> = planes.iter().copied().filter(|seen| seen.wrong > 0).collect();
    let count: usize = wrong.iter().map(|seen| seen.wrong).sum();
    let all: usize = planes.iter().map(|seen| seen.got.len()).sum();
    let mut parts = vec![format!("{count} of {all} elements wrong")];
    parts.extend(what(&wrong));
    parts.extend(subset("head", planes, &wrong, |seen| seen.head));
    parts.extend(subset("sequence", planes, &wrong, |seen| seen.sequence));
    parts.extend(rows(&wrong));
    parts.extend(columns(&wrong));
    parts.join("; ")
}

/// Each wrong element of some planes, as (plane, index).
fn elements<'a>(wrong: &'a [&'a Seen]) -> impl Iterator<Item = (&'a Seen, usize)> + 'a {
    wrong.iter().flat_map(|seen| (0..seen.got.len()).filter(|&i| seen.is_wrong(i)).map(|i| (*seen, i)))
}

/// What wrong elements hold, where they all hold the like.
fn what(wrong: &[&Seen]) -> Vec<String> {
    let count = elements(wrong).count();
    let is = |test: &dyn Fn(&Seen, usize) -> bool| elements(wrong).filter(|(seen, i)| test(seen, *i)).count();
    let unwritten = is(&|seen, i| seen.unwritten[i]);
    let mut parts = Vec::new();
    let mut say = |n: usize, words: &str| match n {
        0 => {}
        n if n == count => parts.push(format!("all of them {words}")),
        n => parts.push(format!("{n} of them {words}")),
    };
    say(unwritten, "never written");
    say(is(&|seen, i| seen.got[i].is_nan()).saturating_sub(unwritten), "NaN");
    say(is(&|seen, i| seen.got[i].is_infinite()), "infinite");
    say(is(&|seen, i| seen.got[i] == 0.0), "zero");
    if let Some(factor) = common_factor(wrong) {
        parts.push(format!("about {} times what they should be", super::short(factor)));
    }
    parts.extend(another_row(wrong));
    parts
}

/// The factor between what is there and what should be, where it explains the greater part of the error.
fn common_factor(wrong: &[&Seen]) -> Option<f64> {
    let (mut product, mut square, mut error) = (0.0, 0.0, 0.0);
    for (seen, i) in elements(wrong).filter(|(seen, i)| seen.got[*i].is_finite()) {
        let (got, want) = (seen.got[i], seen.want[i]);
        (product, square, error) = (product + got * want, square + want * want, error + (got - want).powi(2));
    }
    let factor = product / square;
    // What is left is |got|^2 - factor * got.want, of the wrong elements.
    let moved = (factor - 1.0).powi(2) * square;
    (factor.is_finite() && factor != 0.0 && 2.0 * moved > error).then_some(factor)
}

/// Are the wrong rows of the first wrong plane what other rows, or another head, should be?
fn another_row(wrong: &[&Seen]) -> Option<String> {
    let first = *wrong.first()?;
    let columns = first.columns;
    let row = |values: &[f64], i: usize| values[i * columns..(i + 1) * columns].to_vec();
    let rows: Vec<usize> = (0..first.got.len() / columns)
        .filter(|r| (r * columns..(r + 1) * columns).any(|i| first.is_wrong(i)))
        .collect();
    let tau = |i: usize| &first.tau[i * columns..(i + 1) * columns];
    let is = |at: usize, want: &[f64]| {
        let got = row(&first.got, at);
        want.iter().any(|x| *x != 0.0)
            && got.iter().zip(want).zip(tau(at)).all(|((got, want), tau)| (got - want).abs() <= 2.0 * tau)
    };
    let len = first.got.len() / columns;
    let shift = (1 - len as isize..len as isize).filter(|by| *by != 0).find(|&by| {
        rows.iter().all(|&r| r.checked_add_signed(by).is_some_and(|o| o < len && is(r, &row(&first.want, o))))
    });
    if let Some(by) = shift {
        return Some(format!("wrong rows hold what the row {by:+} from them should"));
    }
    let head = wrong.iter().find(|other| {
        other.sequence == first.sequence
            && other.head != first.head
            && rows.iter().all(|&r| is(r, &row(&other.want, r)))
    })?;
    Some(format!("head {} holds what head {} should", first.head, head.head))
}

/// The heads, or sequences, that are wrong where not all are.
fn subset(what: &str, all: &[&Seen], wrong: &[&Seen], of: impl Fn(&Seen) -> usize) -> Option<String> {
    let set = |planes: &[&Seen]| planes.iter().map(|seen| of(seen)).collect::<BTreeSet<usize>>();
    let (all, wrong) = (set(all), set(wrong));
    (wrong.len() < all.len()).then(|| format!("in {} of {what}s {}", numbers(&wrong), all.len()))
}

/// `0, 3 to 5 and 9`, no more than a line of them.
fn numbers(set: &BTreeSet<usize>) -> String {
    const MOST: usize = 6;
    let all: Vec<usize> = set.iter().copied().collect();
    let runs: Vec<String> = all
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first} to {last}"),
            [] => String::new(),
        })
        .collect();
    match runs.len() > MOST {
        true => format!("{}, ..", runs[..MOST].join(", ")),
        false => runs.join(", "),
    }
}

/// Rows, where only some are wrong: the last, the first, or some of each tile.
fn rows(wrong: &[&Seen]) -> Option<String> {
    let of = |seen: &Seen, i: usize| i / seen.columns;
    let len = |seen: &Seen| seen.got.len() / seen.columns;
    let every =
        |test: &dyn Fn(&Seen, usize) -> bool| elements(wrong).all(|(seen, i)| test(seen, of(seen, i)));
    let total: usize = wrong.iter().map(|seen| len(seen)).sum();
    let bad: BTreeSet<(usize, usize, usize)> =
        elements(wrong).map(|(seen, i)| (seen.sequence, seen.head, of(seen, i))).collect();
    if bad.len() == total {
        return None;
    }
    if every(&|seen, row| row + 1 == len(seen)) {
        return Some("in the last row of sequences".into());
    }
    if every(&|_, row| row == 0) {
        return Some("in the first row of sequences".into());
    }
    for tile in [128, 64, 32, 16] {
        if every(&|seen, row| row / tile == (len(seen) - 1) / tile && len(seen) > tile) {
            return Some(format!("in the last tile of {tile} rows"));
        }
        if every(&|seen, row| row < tile && len(seen) > tile) {
            return Some(format!("in the first tile of {tile} rows"));
        }
        if every(&|seen, row| row >= tile && len(seen) > tile) {
            return Some(format!("in no row of the first tile of {tile}"));
        }
        let inside: BTreeSet<usize> = bad.iter().map(|&(.., row)| row % tile).collect();
        let longest = wrong.iter().map(|seen| len(seen)).max().unwrap_or(0);
        if longest > tile && inside.len() * 4 <= tile {
            return Some(format!("in rows {} of each tile of {tile}", numbers(&inside)));
        }
    }
    Some(format!("in rows {}", numbers(&bad.iter().map(|&(.., row)| row).collect())))
}

/// Columns, where only some are wrong.
fn columns(wrong: &[&Seen]) -> Option<String> {
    let width = wrong.first()?.columns;
    let bad: BTreeSet<usize> = elements(wrong).map(|(seen, i)| i % seen.columns).collect();
    (bad.len() < width).then(|| format!("in columns {} of {width}", numbers(&bad)))
}
