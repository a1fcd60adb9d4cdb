//! Outputs, graphs and pools that go while work runs.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::device::graph_of;
use regraph::driver::CaptureMode;
use regraph::engine::{Config, PoolConfig};
use regraph::graphs::{Capture, Error, Pool, PoolRefusal};
use regraph::settings::Settings;

use super::{launch, range, Bench, Device, MIB};

twins! {
    what_a_graph_keeps_goes_when_it_has_finished
    a_launch_that_panics_is_ordered_too
    a_suspended_pool_launches_nothing_until_it_is_resumed
    a_pool_outlives_its_name
}

struct Noted(Arc<AtomicBool>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn what_a_graph_keeps_goes_when_it_has_finished<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t]) = Bench::new(driver).with_streams();
    let gone = Arc::new(AtomicBool::new(false));
    let weights = Arc::new(bench.pool.allocate(MIB, s).unwrap());
    launch(&*bench.driver, s, (&[], &[range(&weights, 9)]), 0);
    let weights_range = range(&weights, 9);
    let (graph, ()) = bench
        .engine
        .capture(s, &bench.pool, CaptureMode::Relaxed, |capture| {
            launch(&*bench.driver, s, (&[weights_range], &[]), 50_000_000);
            capture.keep((Arc::clone(&weights), Noted(gone.clone())));
            Ok::<_, Error>(())
        })
        .unwrap();
    drop(weights);
    graph.launch(s).unwrap();
    assert!(!gone.load(Ordering::Relaxed));
    drop(graph);
    assert!(gone.load(Ordering::Relaxed));
    // The block that gets the memory now is written at once.
    let next = bench.pool.allocate(MIB, t).unwrap();
    launch(&*bench.driver, t, (&[], &[range(&next, 10)]), 0);
    assert_eq!(bench.wrong(), 0);
    bench.close_after(next);
}

fn a_pool_outlives_its_name<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t]) = Bench::new(driver).with_streams();
    let (graph, output) = bench.chain([s, t], (100, 4, MIB, 0)).unwrap();
    let Bench { driver, engine, pool } = bench;
    drop(pool);
    graph.launch(s).unwrap();
    driver.synchronize().unwrap();
    assert_eq!(driver.take_wrong_tags().unwrap(), 0);
    drop(graph);
    assert!(engine.statistics().unwrap().all.reserved_bytes.current > 0);
    drop(output);
    assert_eq!(engine.statistics().unwrap().all.reserved_bytes.current, 0);
}

/// A host that panics after its launch: what it launched still runs.
fn a_launch_that_panics_is_ordered_too<P: Device>(driver: &Arc<P>) {
    for seed in 0..8 {
        driver.schedule(seed);
        let (bench, [s, t, u]) = Bench::new(driver).with_streams();
        let (slow, _) = bench.chain([s, t], (100, 6, MIB, 100_000)).unwrap();
        let (quick, _) = bench.chain([s, t], (200, 6, MIB, 0)).unwrap();
        driver.begin_capture(u, CaptureMode::Relaxed).unwrap();
        let capture = Capture::adopt(&bench.pool, u).unwrap();
        launch(&**driver, u, (&[], &[]), 0);
        let (lease, _) = capture.accept(graph_of(driver, u)).unwrap();
        let graph = driver.end_capture(u).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            lease.launch(s, |on| {
                driver.replay(slow.executable().unwrap(), on).unwrap();
                panic!("the host's own fault");
                #[allow(unreachable_code, reason = "it tells the type")]
                Ok::<_, Error>(())
            })
        }));
        let what = panicked.unwrap_err();
        assert_eq!(what.downcast_ref(), Some(&"the host's own fault"));
        quick.launch(u).unwrap();
        assert_eq!(bench.wrong(), 0, "seed {seed}");
        driver.destroy_graph(graph).unwrap();
        bench.close_after((slow, quick, lease));
    }
}

fn a_suspended_pool_launches_nothing_until_it_is_resumed<P: Device>(driver: &Arc<P>) {
    for seed in 0..8 {
        driver.schedule(seed);
        let settings = Settings::default().expandable_segments(seed % 2 == 0);
        let config = Config::default().settings(settings);
        let bench = Bench::of(driver, config, PoolConfig::default());
        let other = Pool::new(&bench.engine, PoolConfig::default());
        let [s, t] = bench.streams();
        let graphs: Vec<_> = (1..4)
            .map(|number| bench.chain([s, t], (100 * number, 6, number * MIB, 20_000)).unwrap())
            .collect();
        let reserved = bench.pool.reserved().unwrap();
        for round in 0..3 {
            graphs.iter().for_each(|(graph, _)| graph.launch(s).unwrap());
            // While they run.
            let free = bench.driver.memory_info().unwrap().free;
            assert_eq!(bench.pool.suspend_discarding_all().unwrap(), reserved, "round {round}");
            assert_eq!(bench.pool.reserved().unwrap(), 0);
            assert!(bench.driver.memory_info().unwrap().free >= free + reserved);
            let launched = graphs[0].0.launch(t);
            assert!(
                matches!(launched, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })),
                "{launched:?}"
            );
            assert!(bench.pool.allocate(MIB, s).is_err());
            assert!(bench.pool.is_suspended());
            // Others use the memory meanwhile.
            let block = other.allocate(reserved, t).unwrap();
            let whole = range(&block, 1_000 + round);
            launch(&**driver, t, (&[], &[whole]), 0);
            launch(&**driver, t, (&[whole], &[]), 0);
            drop(block);
            assert_eq!(bench.pool.resume().unwrap(), reserved);
            assert_eq!(bench.pool.resume().unwrap(), 0);
            graphs.iter().rev().for_each(|(graph, _)| graph.launch(t).unwrap());
            assert_eq!(bench.wrong(), 0, "seed {seed}");
        }
        bench.pool.suspend_discarding_all().unwrap();
        bench.close_after((graphs, other));
    }
}
