//! Work on many things that several threads do at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

/// Does `work` with each number below `count`, by a thread for each of `own`, of which there is one at least, and tells the
/// calling thread of each result, in any order. After `done` has answered false no other is begun; what was begun is told
/// still.
///
/// Where there is more than one thread the work takes none of the locks that shuttle sees.
pub(super) fn each<S: Send, R: Send>(
    own: &mut [S],
    count: u64,
    work: impl Fn(&mut S, u64) -> R + Sync,
    mut done: impl FnMut(R) -> bool,
) {
    let Some((mine, others)) = own.split_first_mut() else { return };
    let (next, goes_on) = (AtomicU64::new(0), AtomicBool::new(true));
    let take = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        (number < count && goes_on.load(Ordering::Relaxed)).then_some(number)
    };
    let mut done = |result| {
        if !done(result) {
            goes_on.store(false, Ordering::Relaxed);
        }
    };
    let (work, take) = (&work, &take);
    thread::scope(|scope| {
        let (send, results) = channel();
        for (_, other) in (1..count).zip(others) {
            let send = send.clone();
            let run = move || {
                while let Some(number) = take() {
                    // The calling thread takes all results.
                    let _ = send.send(work(other, number));
                }
            };
            // Where the system has no more threads, those that there are do.
            if thread::Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        drop(send);
        while let Some(number) = take() {
            done(work(mine, number));
            results.try_iter().for_each(&mut done);
        }
        results.iter().for_each(&mut done);
    });
}

#[cfg(test)]
mod tests {
    use super::each;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_number_is_worked_on_once_whatever_the_number_of_threads() {
        for threads in [1, 2, 7, 200] {
            let (mut own, mut told) = (vec![0; threads], Vec::new());
            let work = |mine: &mut u64, number| {
                *mine += 1;
                number + 1
            };
            each(&mut own, 100, work, |result| {
                told.push(result);
                true
            });
            told.sort_unstable();
            assert_eq!(told, (1..=100).collect::<Vec<_>>(), "{threads}");
            assert_eq!(own.iter().sum::<u64>(), 100, "{threads}");
        }
    }

    #[test]
    fn what_was_begun_is_told_when_no_more_begins() {
        for threads in [1, 4] {
            let (begun, mut told) = (AtomicUsize::new(0), 0);
            let work = |_: &mut (), _| begun.fetch_add(1, Ordering::SeqCst);
            each(&mut vec![(); threads], u64::MAX, work, |_| {
                told += 1;
                told < 5
            });
            assert_eq!(begun.load(Ordering::SeqCst), told);
            assert!(told == 5 || threads > 1 && told > 5, "{told}");
        }
    }
}
