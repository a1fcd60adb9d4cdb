//! Captures that end badly, and memory that is short.

use std::sync::Arc;

use regraph::driver::CaptureMode;
use regraph::engine::{self, PoolConfig};
use regraph::graphs::{Capture, Error};
use regraph::plan::Options;

use super::{granules, launch, planned, range, Bench, Device, MIB};

twins! {
    an_abandoned_capture_leaves_nothing
    too_little_memory_refuses_the_capture_and_nothing_else
    captures_beside_each_other_share_nothing
    blocks_outlive_their_graph
    suspension_is_refused_or_undone
    compacted_graphs_run_at_their_addresses
}

fn an_abandoned_capture_leaves_nothing<P: Device>(driver: &Arc<P>) {
    let bench = planned(driver, Options::default());
    let [s] = bench.streams();
    let (graph, output) =
        bench.capture(s, |it| bench.line(it, s, (100, &[4 * MIB, 4 * MIB]))).unwrap();
    let before = bench.reserved();
    let mut held = None;
    let failed: Result<((), ()), Error> = bench
        .capture(s, |capture| {
            held = Some(bench.line(capture, s, (200, &[16 * MIB, 16 * MIB, 16 * MIB]))?);
            Err(engine::Error::Poisoned)
        })
        .map(|(_, never): (_, ())| ((), never));
    assert!(failed.is_err());
    // A block of it is live, without memory.
    assert_eq!(bench.reserved(), before);
    drop(held);
    graph.launch(s).unwrap();
    assert_eq!(bench.wrong(), 0);
    assert!(bench.holds(&output, 101));
    drop((graph, output));
    bench.close();
}

fn too_little_memory_refuses_the_capture_and_nothing_else<P: Device>(driver: &Arc<P>) {
    let bench =
        Bench::with(driver, PoolConfig::default().plan(Options::default()).max_bytes(24 * MIB));
    let [s] = bench.streams();
    let (graph, output) =
        bench.capture(s, |it| bench.line(it, s, (100, &[4 * MIB, 4 * MIB]))).unwrap();
    // Both blocks live at once, more than the pool may ever hold: no plan could help.
    let never = bench.capture(s, |it| bench.line(it, s, (200, &[16 * MIB, 12 * MIB]))).map(drop);
    assert!(matches!(never, Err(Error::OutOfMemory(_))), "{never:?}");
    // As much as the pool may hold, but not beside the output.
    let too_much = bench.capture(s, |it| bench.line(it, s, (200, &[12 * MIB, 10 * MIB]))).map(drop);
    let Err(Error::PlanOutOfMemory { room, new_bytes, .. }) = too_much else {
        panic!("{too_much:?}");
    };
    assert!(room.is_some_and(|room| room < new_bytes));
    assert_eq!(bench.reserved(), 8 * MIB);
    // As much as there is.
    let (more, _) = bench.capture(s, |it| bench.line(it, s, (300, &[12 * MIB, 8 * MIB]))).unwrap();
    more.launch(s).unwrap();
    graph.launch(s).unwrap();
    assert_eq!(bench.wrong(), 0);
    assert!(bench.holds(&output, 101));
    drop((graph, more, output));
    bench.close();
}

/// One of them might be the body of a conditional node of the other.
fn captures_beside_each_other_share_nothing<P: Device>(driver: &Arc<P>) {
    let bench = planned(driver, granules());
    let [s, t] = bench.streams();
    let (first, _) = bench.capture(s, |it| bench.line(it, s, (100, &[6 * MIB, 6 * MIB]))).unwrap();
    assert_eq!(bench.reserved(), 12 * MIB);
    let outer = Capture::begin(&bench.pool, s, CaptureMode::ThreadLocal).unwrap();
    let inner = Capture::begin(&bench.pool, t, CaptureMode::ThreadLocal).unwrap();
    drop(bench.line(&outer, s, (200, &[4 * MIB, 4 * MIB])).unwrap());
    drop(bench.line(&inner, t, (300, &[2 * MIB, 2 * MIB])).unwrap());
    let inner = inner.finish().unwrap();
    let outer = outer.finish().unwrap();
    assert_eq!(inner.report().plan.unwrap().new_bytes, 4 * MIB);
    assert_eq!(outer.report().plan.unwrap().new_bytes, 8 * MIB);
    for graph in [&first, &outer, &inner] {
        graph.launch(s).unwrap();
    }
    assert_eq!(bench.wrong(), 0);
    drop((first, inner, outer));
    bench.close();
}

fn blocks_outlive_their_graph<P: Device>(driver: &Arc<P>) {
    let bench = planned(driver, Options::default());
    let [s] = bench.streams();
    let (graph, output) =
        bench.capture(s, |it| bench.line(it, s, (100, &[8 * MIB, 4 * MIB]))).unwrap();
    graph.launch(s).unwrap();
    bench.driver.synchronize().unwrap();
    drop(graph);
    bench.engine.empty_cache().unwrap();
    assert!(bench.holds(&output, 101));
    // Its address is as good as any.
    launch(&*bench.driver, s, (&[range(&output, 101)], &[range(&output, 9)]), 0);
    bench.driver.progress(s);
    assert!(bench.holds(&output, 9));
    assert_eq!(bench.reserved(), 4 * MIB);
    drop(output);
    bench.close();
}

fn suspension_is_refused_or_undone<P: Device>(driver: &Arc<P>) {
    let bench = planned(driver, Options::default());
    let [s] = bench.streams();
    let (graph, output) =
        bench.capture(s, |it| bench.line(it, s, (100, &[8 * MIB, 4 * MIB]))).unwrap();
    graph.launch(s).unwrap();
    bench.driver.synchronize().unwrap();
    let before = bench.reserved();
    assert_eq!(bench.pool.suspend_discarding_all().unwrap(), before);
    assert_eq!(bench.reserved(), 0);
    assert_eq!(bench.pool.resume().unwrap(), before);
    assert_eq!(bench.reserved(), before);
    graph.launch(s).unwrap();
    assert_eq!(bench.wrong(), 0);
    assert!(bench.holds(&output, 101));
    drop((graph, output));
    bench.close();
}

/// Other memory comes to the addresses that executables have, and what lives is not moved.
fn compacted_graphs_run_at_their_addresses<P: Device>(driver: &Arc<P>) {
    let bench = planned(driver, Options::default().max_mappings(Some(1)));
    let [s, t] = bench.streams();
    let capture =
        |tag, sizes: &[u64]| bench.capture(s, |it| bench.line(it, s, (tag, sizes))).unwrap();
    let (large, output) = capture(100, &[44 * MIB, 4 * MIB]);
    drop(output);
    let (first, kept) = capture(200, &[8 * MIB, 6 * MIB]);
    let (second, output) = capture(300, &[20 * MIB, 24 * MIB]);
    drop(output);
    let (third, output) = capture(400, &[30 * MIB, 10 * MIB, 2 * MIB]);
    drop(output);
    bench.driver.synchronize().unwrap();
    drop(large);
    bench.engine.empty_cache().unwrap();
    let (before, excess) = (bench.reserved(), bench.pool.excess_bytes().unwrap());
    for graph in [&first, &second, &third] {
        graph.launch(s).unwrap();
    }
    // It waits for the launches.
    assert_eq!(bench.pool.compact().unwrap(), excess);
    assert!(excess > 0 && !bench.pool.is_short().unwrap());
    assert_eq!((bench.reserved(), bench.pool.excess_bytes().unwrap()), (before - excess, 0));
    assert_eq!(bench.wrong(), 0);
    assert!(bench.holds(&kept, 201), "a live output was moved");
    for _ in 0..3 {
        for graph in [&first, &second, &third] {
            graph.launch(t).unwrap();
        }
        assert_eq!(bench.wrong(), 0);
        assert!(bench.holds(&kept, 201));
    }
    drop((first, second, third, kept));
    bench.close();
}
