//! Dead rows: gaps, lead and tail, and what they hold.

use super::{CHUNK_PATIENCE, Knob, PATIENCE, Patience, attempt_each};
use crate::case::{Case, DeadFill, Side};
use crate::shrink::{Shrinker, search};

/// Numbers of dead rows: one is enough for most, tiles for some.
const ROWS: &[u64] = &[0, 1, 2, 3, 8, 16, 64, 128];

const MARGINS: [Knob; 4] = [
    Knob { get: |case| case.q.lead.into(), set: |case, n| case.q.lead = n as u32, values: ROWS },
    Knob { get: |case| case.kv.lead.into(), set: |case, n| case.kv.lead = n as u32, values: ROWS },
    Knob { get: |case| case.q.tail.into(), set: |case, n| case.q.tail = n as u32, values: ROWS },
    Knob { get: |case| case.kv.tail.into(), set: |case, n| case.kv.tail = n as u32, values: ROWS },
];

/// The widest gap, lowered with all wider ones.
const WIDEST_GAPS: [Knob; 2] = [
    Knob { get: |case| widest(&case.q.gaps), set: |case, n| cap(&mut case.q.gaps, n), values: ROWS },
    Knob { get: |case| widest(&case.kv.gaps), set: |case, n| cap(&mut case.kv.gaps, n), values: ROWS },
];

fn widest(gaps: &[u32]) -> u64 {
    gaps.iter().copied().max().unwrap_or(0).into()
}

fn cap(gaps: &mut [u32], most: u64) {
    gaps.iter_mut().for_each(|gap| *gap = u64::from(*gap).min(most) as u32);
}

/// Lowers every number of dead rows, closes gaps in chunks and one by one, and tries milder fills.
pub fn lower_dead_rows(shrinker: &mut Shrinker<'_>) {
    MARGINS.iter().for_each(|knob| knob.lower(shrinker));
    for call in 0..shrinker.current().calls.len() {
        close_gaps(shrinker, call, |case| &mut case.q);
        close_gaps(shrinker, call, |case| &mut case.kv);
    }
    WIDEST_GAPS.iter().for_each(|knob| knob.lower(shrinker));
    for call in 0..shrinker.current().calls.len() {
        lower_gaps(shrinker, call, |case| &mut case.q);
        lower_gaps(shrinker, call, |case| &mut case.kv);
    }
    attempt_each(shrinker, &[|case| case.dead = case.dead.min(DeadFill::Big)]);
}

/// The sequences of a side that have a gap, and its width.
fn open_gaps(shrinker: &Shrinker<'_>, call: usize, side: fn(&mut Case) -> &mut Side) -> Vec<(usize, u32)> {
    let mut case = shrinker.current().calls[call].clone();
    side(&mut case).gaps.iter().copied().enumerate().filter(|&(_, gap)| gap > 0).collect()
}

fn close_gaps(shrinker: &mut Shrinker<'_>, call: usize, side: fn(&mut Case) -> &mut Side) {
    let mut patience = Patience::of(CHUNK_PATIENCE);
    for size in search::chunk_sizes(open_gaps(shrinker, call, side).len()) {
        let open = open_gaps(shrinker, call, side);
        search::sweep_chunks(open.len(), size, |range| {
            if patience.is_lost() {
                return;
            }
            patience.note(shrinker.attempt(|scenario| {
                let gaps = &mut side(&mut scenario.calls[call]).gaps;
                open[range].iter().for_each(|&(i, _)| gaps[i] = 0);
            }));
        });
    }
}

fn lower_gaps(shrinker: &mut Shrinker<'_>, call: usize, side: fn(&mut Case) -> &mut Side) {
    let mut patience = Patience::of(PATIENCE);
    for (i, gap) in open_gaps(shrinker, call, side) {
        let least = search::lower(gap.into(), ROWS, |v| {
            shrinker.attempt(|scenario| side(&mut scenario.calls[call]).gaps[i] = v as u32)
        });
        patience.note(least < gap.into());
        if patience.is_lost() {
            return;
        }
    }
}

/// Moves dead rows to where they say less: from q to kv, from between sequences to the ends.
pub fn move_dead_rows_back(shrinker: &mut Shrinker<'_>) {
    let moves: [fn(&mut Case); 10] = [
        |case| {
            let gaps = case.q.gaps.iter_mut().zip(&mut case.kv.gaps);
            gaps.for_each(|(q, kv)| *kv += std::mem::take(q));
        },
        |case| case.kv.lead += std::mem::take(&mut case.q.lead),
        |case| case.kv.tail += std::mem::take(&mut case.q.tail),
        |case| case.q.tail += take_gaps(&mut case.q),
        |case| case.kv.tail += take_gaps(&mut case.kv),
        |case| case.q.lead += take_gaps(&mut case.q),
        |case| case.kv.lead += take_gaps(&mut case.kv),
        |case| case.q.tail += std::mem::take(&mut case.q.lead),
        |case| case.kv.tail += std::mem::take(&mut case.kv.lead),
        |case| [&mut case.q, &mut case.kv].into_iter().for_each(move_gaps_back),
    ];
    attempt_each(shrinker, &moves);
}

/// Closes all gaps of a side; as many rows as they had.
fn take_gaps(side: &mut Side) -> u32 {
    side.gaps.iter_mut().map(std::mem::take).sum()
}

/// Each gap behind the next sequence instead.
fn move_gaps_back(side: &mut Side) {
    if side.gaps.last() == Some(&0) {
        side.gaps.rotate_right(1);
    }
}
