//! Pools that lend what their graphs do not keep between launches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

use super::{launch, range, Bench, Device, MIB};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::graphs::{Error, Graph, PoolRefusal};

twins! {
    threads_launch_and_borrow
}

const DELAY: u32 = 50_000;

/// A graph of one temporary block of so many bytes, which it writes and reads.
fn temporary<P: Device>(
    bench: &Bench<P>,
    stream: StreamHandle,
    (bytes, tag): (u64, u64),
) -> Graph<Arc<P>> {
    let body = |capture: &regraph::graphs::Capture<Arc<P>>| {
        let memory = capture.allocate(bytes, stream)?;
        launch(&*bench.driver, stream, (&[], &[range(&memory, tag)]), DELAY);
        launch(&*bench.driver, stream, (&[range(&memory, tag)], &[]), DELAY);
        Ok::<_, Error>(())
    };
    bench.engine.capture(stream, &bench.pool, CaptureMode::Relaxed, body).unwrap().0
}

/// Counts a thread out when it ends, by a panic too.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

fn threads_launch_and_borrow<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let streams: [_; 4] = bench.streams();
    let graphs: Vec<_> =
        (0..2).map(|it| temporary(&bench, streams[it], (6 * MIB, 1 + it as u64))).collect();
    let (mut launched, mut lent) = (0, 0);
    let borrow = AtomicUsize::new(2);
    thread::scope(|scope| {
        let launching: Vec<_> = (0..2)
            .map(|it| {
                let (graph, stream, driver, borrow) = (&graphs[it], streams[it], driver, &borrow);
                scope.spawn(move || {
                    let mut launched = 0;
                    // Beside those that borrow, and once after them: how often there is room is the scheduler's.
                    while borrow.load(Ordering::Acquire) > 0 || launched == 0 {
                        match graph.launch(stream) {
                            Ok(()) => launched += 1,
                            Err(
                                Error::Pool { why: PoolRefusal::BlocksLent { .. }, .. }
                                | Error::Pool { why: PoolRefusal::LentWork { .. }, .. },
                            ) => {
                                driver.progress(stream);
                                thread::yield_now();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                    launched
                })
            })
            .collect();
        let borrowing: Vec<_> = (2..4)
            .map(|it| {
                let (pool, stream, driver, borrow) = (&bench.pool, streams[it], driver, &borrow);
                scope.spawn(move || {
                    let _done = Done(borrow);
                    let mut lent = 0;
                    for round in 0..200 {
                        let lending = pool.lend(stream).unwrap();
                        let block = lending.allocate(2 * MIB).unwrap();
                        let whole = range(&block, 1000 * it as u64 + round);
                        launch(driver.as_ref(), stream, (&[], &[whole]), 1_000);
                        launch(driver.as_ref(), stream, (&[whole], &[]), 1_000);
                        lent += u64::from(pool.statistics().unwrap().lent > 0);
                        drop(block);
                    }
                    lent
                })
            })
            .collect();
        launched = launching.into_iter().map(|it| it.join().unwrap()).sum();
        lent = borrowing.into_iter().map(|it| it.join().unwrap()).sum();
    });
    assert!(launched > 0 && lent > 0, "{launched} launches, {lent} blocks lent");
    assert_eq!(bench.wrong(), 0);
    bench.close_after(graphs);
}
