//! Outputs, graphs and pools that go while work runs.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use regraph::driver::{CaptureMode, CaptureStatus};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Memory, Pool, PoolRefusal};
use regraph::settings::Settings;

use super::{launch, range, Bench, Device, MIB};

twins! {
    a_held_output_is_overwritten_by_no_later_graph
    an_output_s_place_goes_to_a_later_graph_once_it_is_dropped
    a_graph_dropped_in_flight_keeps_its_memory_until_it_has_finished
    what_a_graph_keeps_goes_when_it_has_finished
    a_launch_that_panics_is_ordered_too
    a_suspended_pool_launches_nothing_until_it_is_resumed
    a_pool_outlives_its_name
    pieces_that_were_exchanged_hold_what_graphs_write
}

fn a_held_output_is_overwritten_by_no_later_graph<P: Device>(driver: &Arc<P>) {
    for seed in 0..8 {
        driver.schedule(seed);
        let bench = Bench::new(driver);
        let streams: [_; 3] = bench.streams();
        let mut graphs = Vec::new();
        for number in 0..6_u64 {
            let pair = [streams[(number % 2) as usize], streams[2]];
            let shape = (100 * (number + 1), 5, (6 - number) * MIB, 1_000);
            graphs.push((bench.chain(pair, shape).unwrap(), 100 * (number + 1) + 4));
            for (launched, ((graph, _), _)) in graphs.iter().enumerate() {
                graph.launch(streams[launched % 3]).unwrap();
            }
            assert_eq!(bench.wrong(), 0);
            for ((_, output), tag) in &graphs {
                let tags = bench.driver.read_tags(output.address(), output.bytes()).unwrap();
                assert!(tags.iter().all(|found| found == tag), "seed {seed}: {tag}");
            }
        }
        drop(graphs);
        bench.close();
    }
}

fn an_output_s_place_goes_to_a_later_graph_once_it_is_dropped<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [s, t] = bench.streams();
    let (first, output) = bench.chain([s, t], (100, 4, 3 * MIB, 0)).unwrap();
    let reserved = bench.reserved();
    drop(output);
    bench.driver.synchronize().unwrap();
    let (second, _output) = bench.chain([s, t], (200, 4, 3 * MIB, 0)).unwrap();
    assert_eq!(bench.reserved(), reserved);
    for stream in [s, t, s, t] {
        first.launch(stream).unwrap();
        second.launch(stream).unwrap();
    }
    assert_eq!(bench.wrong(), 0);
    drop((first, second, _output));
    bench.close();
}

fn a_graph_dropped_in_flight_keeps_its_memory_until_it_has_finished<P: Device>(driver: &Arc<P>) {
    for seed in 0..8 {
        driver.schedule(seed);
        let bench = Bench::new(driver);
        let [s, t, u] = bench.streams();
        let (graph, output) = bench.chain([s, t], (100, 8, 2 * MIB, 2_000_000)).unwrap();
        graph.launch(s).unwrap();
        drop((graph, output));
        // Work outside captures would get memory that no graph uses, and write to it at once.
        for number in 0..8 {
            let memory = bench.pool.allocate(2 * MIB, u).unwrap();
            launch(&*bench.driver, u, (&[], &[range(&memory, 500 + number)]), 0);
        }
        bench.engine.empty_cache().unwrap();
        // Launches of others go on meanwhile, and do not keep it alive.
        let (other, _) = bench.chain([u, t], (300, 4, MIB, 0)).unwrap();
        other.launch(u).unwrap();
        assert_eq!(bench.wrong(), 0, "seed {seed}");
        other.launch(u).unwrap();
        drop(other);
        bench.close();
    }
}

struct Noted(Arc<AtomicBool>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn what_a_graph_keeps_goes_when_it_has_finished<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [s, t] = bench.streams();
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
    drop(next);
    bench.close();
}

fn a_pool_outlives_its_name<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [s, t] = bench.streams();
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
        let bench = Bench::new(driver);
        let [s, t, u] = bench.streams();
        let (slow, _) = bench.chain([s, t], (100, 6, MIB, 100_000)).unwrap();
        let (quick, _) = bench.chain([s, t], (200, 6, MIB, 0)).unwrap();
        driver.begin_capture(u, CaptureMode::Relaxed).unwrap();
        let capture = Capture::adopt(&bench.pool, u).unwrap();
        launch(&**driver, u, (&[], &[]), 0);
        let CaptureStatus::Active { graph, .. } = driver.capture_of(u).unwrap() else { panic!() };
        let (lease, _) = capture.accept(graph).unwrap();
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
        drop((slow, quick, lease));
        bench.close();
    }
}

fn a_suspended_pool_launches_nothing_until_it_is_resumed<P: Device>(driver: &Arc<P>) {
    for seed in 0..4 {
        driver.schedule(seed);
        let bench = Bench::new(driver);
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
            assert_eq!(bench.pool.resume().unwrap(), reserved);
            assert_eq!(bench.pool.resume().unwrap(), 0);
            graphs.iter().rev().for_each(|(graph, _)| graph.launch(t).unwrap());
            assert_eq!(bench.wrong(), 0, "seed {seed}");
        }
        bench.pool.suspend_discarding_all().unwrap();
        drop(graphs);
        bench.close();
    }
}

/// A capture that grows often, with pieces exchanged at its end and without: it holds the same, and
/// its graph writes and reads what it should, before and after a suspension.
fn pieces_that_were_exchanged_hold_what_graphs_write<P: Device>(driver: &Arc<P>) {
    let mut held = Vec::new();
    for step in [0, 64 * MIB] {
        let settings = Settings::default().growth_step_bytes(Some(step));
        let engine = Arc::new(Engine::new(driver.clone(), Config::default().settings(settings)));
        let pool = Pool::new(&engine, PoolConfig::default());
        let bench = Bench { driver: driver.clone(), engine, pool };
        let [s, t] = bench.streams();
        for blocks in [3, 5, 9, 24] {
            let body = |capture: &Capture<Arc<P>>| {
                let mut outputs: Vec<(Memory<_>, u64)> = Vec::new();
                driver.wait(t, s)?;
                for number in 0..blocks {
                    let stream = if number % 3 == 0 { t } else { s };
                    let bytes = if number % 4 == 3 { MIB / 2 } else { 3 * MIB };
                    let memory = capture.allocate(bytes, stream)?;
                    let tag = 1_000 * blocks + number;
                    launch(&**driver, stream, (&[], &[range(&memory, tag)]), 0);
                    outputs.push((memory, tag));
                }
                driver.wait(s, t)?;
                Ok::<_, Error>(outputs)
            };
            let captured = bench.engine.capture(s, &bench.pool, CaptureMode::ThreadLocal, body);
            let (graph, outputs) = captured.unwrap();
            held.push(bench.reserved());
            for _ in 0..2 {
                graph.launch(s).unwrap();
                assert_eq!(bench.wrong(), 0);
                for (memory, tag) in &outputs {
                    let tags = driver.read_tags(memory.address(), memory.bytes()).unwrap();
                    assert!(tags.iter().all(|found| found == tag), "{blocks} blocks: {tag}");
                }
                bench.pool.suspend_discarding_all().unwrap();
                bench.pool.resume().unwrap();
            }
            drop((graph, outputs));
        }
        bench.close();
    }
    let (small, large) = held.split_at(held.len() / 2);
    assert_eq!(small, large);
}
