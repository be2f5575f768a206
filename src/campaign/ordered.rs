//! Work on all threads whose results are taken in order.
//!
//! No thread waits for the slowest of a batch: cases differ in cost by a factor of a thousand.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

/// How far the threads may run ahead of what was taken, for each of them.
const AHEAD: u64 = 32;

/// What the threads share.
#[derive(Default)]
struct Turn {
    /// The next index to begin.
    next: u64,
    /// How many results were taken.
    taken: u64,
    /// Is nothing to be begun any more?
    over: bool,
}

struct Turns {
    turn: Mutex<Turn>,
    moved: Condvar,
    ahead: u64,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An index to begin; `None` once there is nothing more.
    fn begin(&self, more: impl Fn(u64) -> bool) -> Option<u64> {
        let mut turn = self.lock();
        loop {
            turn.over |= !more(turn.next);
            if turn.over {
                return None;
            }
            if turn.next < turn.taken + self.ahead {
                turn.next += 1;
                return Some(turn.next - 1);
            }
            turn = self.moved.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Turn)) {
        change(&mut self.lock());
        self.moved.notify_all();
    }
}

/// Ends it on any way out of the taker, a panic included: threads that wait for their turn would wait for ever.
struct Over<'a>(&'a Turns);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.change(|turn| turn.over = true);
    }
}

/// Hands `work(0)`, `work(1)`, .. to `take` in this order, worked out on `threads` threads, until `more` of
/// an index is false or `take` breaks. What was begun is finished; after a break it is not taken.
pub(super) fn in_order<T: Send>(
    threads: usize,
    more: impl Fn(u64) -> bool + Sync,
    work: impl Fn(u64) -> T + Sync,
    mut take: impl FnMut(T) -> ControlFlow<()>,
) {
    let turns = Turns { turn: Mutex::default(), moved: Condvar::new(), ahead: AHEAD * threads as u64 };
    let (send, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let send = send.clone();
            let (turns, more, work) = (&turns, &more, &work);
            scope.spawn(move || {
                while let Some(index) = turns.begin(more) {
                    // Nobody listens after a break.
                    let _ = send.send((index, work(index)));
                }
            });
        }
        drop(send);
        let _over = Over(&turns);
        let (mut early, mut due) = (BTreeMap::new(), 0);
        for (index, result) in results {
            early.insert(index, result);
            while let Some(result) = early.remove(&due) {
                due += 1;
                turns.change(|turn| turn.taken = due);
                if take(result).is_break() {
                    return;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Takes what `work` gives of the indices below `count`.
    fn taken(threads: usize, count: u64, work: impl Fn(u64) -> u64 + Sync) -> Vec<u64> {
        let mut all = Vec::new();
        in_order(
            threads,
            |index| index < count,
            work,
            |x| {
                all.push(x);
                ControlFlow::Continue(())
            },
        );
        all
    }

    #[test]
    fn results_come_in_order_whichever_is_first_done() {
        let slow_first = |index: u64| {
            thread::sleep(Duration::from_millis(if index.is_multiple_of(7) { 5 } else { 0 }));
            index * index
        };
        let want: Vec<u64> = (0..500).map(|x| x * x).collect();
        assert_eq!(taken(1, 500, slow_first), want);
        assert_eq!(taken(9, 500, slow_first), want);
    }

    #[test]
    fn a_break_ends_it_with_threads_that_wait_for_their_turn() {
        let mut count = 0;
        in_order(
            4,
            |_| true,
            |index| index,
            |index| {
                count += 1;
                assert!(index < 300);
                thread::sleep(Duration::from_micros(50));
                if index == 299 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(count, 300);
    }

    #[test]
    fn nobody_runs_far_ahead_of_a_slow_taker() {
        let begun = std::sync::atomic::AtomicU64::new(0);
        let work = |index: u64| begun.fetch_max(index, std::sync::atomic::Ordering::Relaxed);
        let mut taken = 0;
        in_order(
            2,
            |index| index < 1000,
            work,
            |_| {
                thread::sleep(Duration::from_micros(20));
                taken += 1;
                assert!(begun.load(std::sync::atomic::Ordering::Relaxed) <= taken + 2 * AHEAD);
                ControlFlow::Continue(())
            },
        );
        assert_eq!(taken, 1000);
    }
}
