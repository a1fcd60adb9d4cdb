//! Pools that lend what their graphs do not keep between launches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

use fastrand::Rng;

use super::{launch, range, Bench, Device, MIB};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::graphs::{Error, Graph, Memory, PoolRefusal};
use regraph_testing::Features;

twins! {
    a_launch_comes_after_what_was_lent
    what_is_lent_comes_after_the_launch_before
    a_stream_borrows_between_all_launches
    outputs_that_were_freed_are_kept_for_their_readers
    inputs_that_a_capture_freed_are_kept
    all_but_outputs_is_lent
    threads_launch_and_borrow
    random_programs_borrow
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

fn a_launch_comes_after_what_was_lent<P: Device>(driver: &Arc<P>) {
    for seed in 0..8 {
        driver.schedule(seed);
        let bench = Bench::new(driver);
        let [s, t, u] = bench.streams();
        let graph = temporary(&bench, s, (8 * MIB, 1));
        let held = bench.reserved();
        let lending = bench.pool.lend(s).unwrap();
        let block = lending.allocate(8 * MIB).unwrap();
        assert_eq!(bench.reserved(), held, "it lies where the graph works");
        launch(driver.as_ref(), s, (&[], &[range(&block, 7)]), DELAY);
        // Another stream reads it.
        driver.wait(t, s).unwrap();
        block.record_stream(t).unwrap();
        launch(driver.as_ref(), t, (&[range(&block, 7)], &[]), DELAY);
        let refused = graph.launch(u).unwrap_err();
        assert!(
            matches!(&refused, Error::Pool { why: PoolRefusal::BlocksLent { blocks }, .. } if blocks.len() == 1)
        );
        let told = refused.to_string();
        assert!(told.contains(&format!("{:#x}", block.address())), "{told}");
        drop(block);
        graph.launch(u).unwrap();
        assert_eq!(bench.wrong(), 0, "seed {seed}");
        assert_eq!(bench.pool.statistics().unwrap().lent, 0);
        drop((graph, lending));
        bench.close();
    }
}

fn what_is_lent_comes_after_the_launch_before<P: Device>(driver: &Arc<P>) {
    for seed in 0..8 {
        driver.schedule(seed);
        let bench = Bench::new(driver);
        let [s, t] = bench.streams();
        let graph = temporary(&bench, s, (4 * MIB, 1));
        let lending = bench.pool.lend(t).unwrap();
        for round in 0..3 {
            graph.launch(s).unwrap();
            let block = lending.allocate(4 * MIB).unwrap();
            let whole = range(&block, 10 + round);
            launch(driver.as_ref(), t, (&[], &[whole]), 0);
            launch(driver.as_ref(), t, (&[whole], &[]), 0);
        }
        assert_eq!(bench.wrong(), 0, "seed {seed}");
        drop((graph, lending));
        bench.close();
    }
}

fn a_stream_borrows_between_all_launches<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let streams: [_; 3] = bench.streams();
    let graphs: Vec<_> =
        (0..3).map(|it| temporary(&bench, streams[it], (6 * MIB, 1 + it as u64))).collect();
    let held = bench.reserved();
    let lending = streams.map(|stream| bench.pool.lend(stream).unwrap());
    let mut random = Rng::with_seed(3);
    for round in 0..300 {
        let (stream, launched) = (random.usize(..3), random.usize(..3));
        let blocks: Vec<_> = (0..3).map(|_| lending[stream].allocate(MIB).unwrap()).collect();
        for (number, block) in (0..).zip(&blocks) {
            let whole = range(block, 100 + 3 * round + number);
            launch(driver.as_ref(), streams[stream], (&[], &[whole]), 1_000);
            launch(driver.as_ref(), streams[stream], (&[whole], &[]), 1_000);
        }
        drop(blocks);
        graphs[random.usize(..3)].launch(streams[launched]).unwrap();
    }
    assert_eq!(bench.wrong(), 0);
    assert_eq!(
        bench.reserved(),
        held,
        "what one stream gives back is another's after the next launch"
    );
    drop((graphs, lending));
    bench.close();
}

fn outputs_that_were_freed_are_kept_for_their_readers<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [s, t] = bench.streams();
    let (writer, output) = bench.chain([s, t], (100, 4, 2 * MIB, 0)).unwrap();
    let whole = range(&output, 103);
    let body = |capture: &regraph::graphs::Capture<Arc<P>>| {
        let memory = capture.allocate(2 * MIB, s)?;
        launch(driver.as_ref(), s, (&[whole], &[range(&memory, 200)]), 0);
        Ok::<_, Error>(())
    };
    let (reader, ()) = bench.engine.capture(s, &bench.pool, CaptureMode::Relaxed, body).unwrap();
    drop(output);
    driver.synchronize().unwrap();
    for round in 0..3 {
        writer.launch(s).unwrap();
        let lending = bench.pool.lend(t).unwrap();
        let blocks: Vec<Memory<_>> = (0..40).map(|_| lending.allocate(MIB).unwrap()).collect();
        let all: Vec<_> = blocks.iter().map(|block| range(block, 300 + round)).collect();
        for whole in &all {
            launch(driver.as_ref(), t, (&[], &[*whole]), 0);
        }
        drop(blocks);
        reader.launch(s).unwrap();
    }
    assert_eq!(bench.wrong(), 0);
    drop((writer, reader));
    bench.close();
}

fn inputs_that_a_capture_freed_are_kept<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [s, t] = bench.streams();
    drop(temporary(&bench, s, (12 * MIB, 1)));
    let graph = temporary(&bench, s, (12 * MIB, 1));
    // Copied into memory that is lent, as a host does that fills inputs before its capture.
    let lending = bench.pool.lend(s).unwrap();
    let mut input = Some(lending.allocate(4 * MIB).unwrap());
    let filled = range(input.as_ref().unwrap(), 50);
    launch(driver.as_ref(), s, (&[], &[filled]), 0);
    driver.synchronize().unwrap();
    bench.engine.host().expect_capture(s).unwrap();
    driver.synchronize().unwrap();
    let body = |capture: &regraph::graphs::Capture<Arc<P>>| {
        let memory = capture.allocate(MIB, s)?;
        launch(driver.as_ref(), s, (&[filled], &[range(&memory, 60)]), 0);
        drop(input.take());
        Ok::<_, Error>(())
    };
    let (reader, ()) = bench.engine.capture(s, &bench.pool, CaptureMode::Relaxed, body).unwrap();
    assert_eq!(bench.pool.statistics().unwrap().lent, 0, "it is the graph's now");
    for round in 0..3 {
        graph.launch(t).unwrap();
        bench.pool.follow(s).unwrap();
        launch(driver.as_ref(), s, (&[], &[filled]), DELAY);
        let other = bench.pool.lend(t).unwrap();
        let blocks: Vec<Memory<_>> = (0..12).map(|_| other.allocate(MIB).unwrap()).collect();
        for block in &blocks {
            launch(driver.as_ref(), t, (&[], &[range(block, 300 + round)]), 0);
        }
        drop(blocks);
        reader.launch(s).unwrap();
    }
    assert_eq!(bench.wrong(), 0);
    drop((graph, reader, lending));
    bench.close();
}

fn all_but_outputs_is_lent<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [s, t] = bench.streams();
    let (graph, output) = bench.chain([s, t], (100, 12, 8 * MIB, 0)).unwrap();
    graph.launch(s).unwrap();
    let held = bench.reserved();
    let lending = bench.pool.lend(s).unwrap();
    let mut blocks = Vec::new();
    while bench.reserved() == held {
        blocks.push(lending.allocate(MIB).unwrap());
    }
    blocks.pop();
    let statistics = bench.pool.statistics().unwrap();
    assert_eq!(statistics.lent, blocks.len() as u64 * MIB);
    assert!(statistics.lent + output.bytes() + 3 * MIB >= held, "{statistics:?} of {held}");
    for (number, block) in (0..).zip(&blocks) {
        launch(driver.as_ref(), s, (&[], &[range(block, 1000 + number)]), 0);
    }
    launch(driver.as_ref(), s, (&[range(&output, 111)], &[]), 0);
    drop(blocks);
    graph.launch(t).unwrap();
    assert_eq!(bench.wrong(), 0);
    drop((graph, output, lending));
    bench.close();
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
    drop(graphs);
    bench.close();
}

fn random_programs_borrow<P: Device>(driver: &Arc<P>) {
    let mut random = Rng::with_seed(11);
    for seed in 0..20 {
        driver.schedule(seed);
        let program: Vec<u8> = (0..600).map(|_| random.u8(..)).collect();
        let progress = |stream| driver.progress(stream);
        regraph_testing::graphs_on(driver, &program, Features::LOANS, &progress);
    }
}
