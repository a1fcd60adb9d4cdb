//! Pools, graphs and callables that go, fail or are used in unusual orders.

use std::sync::mpsc::channel;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::once;
use crate::device::launch;
use crate::owned::{range, MIB};
use regraph::callables::{Callable, Options, Stage};
use regraph::driver::{CaptureMode, Driver, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{
    Capture, Error, Graph, Lease, Memory, Pool, PoolRefusal, StreamRefusal, Unknown,
};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged};

const SEEDS: u64 = 32;

type Driven = Arc<SimDriver>;

fn bench() -> (Driven, Arc<Engine<Driven>>) {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    (driver.clone(), Arc::new(Engine::new(driver, Config::default())))
}

/// A bench whose work runs in an order of its own, with two streams.
fn scheduled(seed: u64) -> (Driven, Arc<Engine<Driven>>, [StreamHandle; 2]) {
    let (driver, engine) = bench();
    driver.set_schedule_seed(seed);
    let streams = two_streams(&driver);
    (driver, engine, streams)
}

fn two_streams(driver: &SimDriver) -> [StreamHandle; 2] {
    [(); 2].map(|()| driver.create_stream().unwrap())
}

fn new_pool(engine: &Arc<Engine<Driven>>) -> Pool<Driven> {
    Pool::new(engine, PoolConfig::default())
}

fn write(driver: &SimDriver, stream: StreamHandle, outputs: &[Tagged]) {
    launch(driver, stream, (&[], outputs), 0);
}

fn read(driver: &SimDriver, stream: StreamHandle, inputs: &[Tagged]) {
    launch(driver, stream, (inputs, &[]), 0);
}

fn wrong(driver: &SimDriver) -> u64 {
    driver.synchronize().unwrap();
    driver.take_wrong_tags().unwrap()
}

fn reserved(engine: &Engine<Driven>) -> u64 {
    engine.statistics().unwrap().all.reserved_bytes.current
}

/// A graph that writes a temporary block of each pool and reads it again.
fn graph(
    engine: &Arc<Engine<Driven>>,
    stream: StreamHandle,
    pools: &[&Pool<Driven>],
    tag: u64,
) -> Result<Graph<Driven>, Error> {
    let driver = engine.driver();
    let body = |capture: &Capture<Driven>| {
        for pool in pools {
            capture.join(pool, stream)?;
            let memory = pool.allocate(2 * MIB, stream)?;
            write(driver, stream, &[range(&memory, tag)]);
            read(driver, stream, &[range(&memory, tag)]);
        }
        Ok::<_, Error>(())
    };
    Ok(engine.capture(stream, pools[0], CaptureMode::Relaxed, body)?.0)
}

#[test]
fn a_graph_is_ordered_in_every_pool_that_its_capture_used() {
    for seed in 0..SEEDS {
        let (driver, engine, [s, t]) = scheduled(seed);
        let (pool, other) = (new_pool(&engine), new_pool(&engine));
        // Without having joined it.
        let body = |_: &Capture<Driven>| {
            let memory = other.allocate(2 * MIB, s)?;
            write(&driver, s, &[range(&memory, 1)]);
            read(&driver, s, &[range(&memory, 1)]);
            Ok::<_, Error>(())
        };
        let (first, ()) = engine.capture(s, &pool, CaptureMode::Relaxed, body).unwrap();
        let second = graph(&engine, t, &[&other], 2).unwrap();
        for _ in 0..3 {
            first.launch(s).unwrap();
            second.launch(t).unwrap();
        }
        assert_eq!(wrong(&driver), 0, "seed {seed}");
        other.suspend_discarding_outputs().unwrap();
        let launched = first.launch(s);
        assert!(matches!(launched, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })));
        other.resume().unwrap();
        first.launch(s).unwrap();
        drop((first, second, other, pool));
        assert_eq!(reserved(&engine), 0);
    }
}

/// The driver gives the handle of a stream that is gone to the next one, while work of the first still runs.
#[test]
fn a_stream_made_again_comes_after_launches_on_the_one_before() {
    let (driver, engine) = bench();
    driver.give_streams_again();
    let pool = new_pool(&engine);
    let [captures, gone] = two_streams(&driver);
    let capture = |tag| {
        let body = |capture: &Capture<Driven>| {
            let memory = capture.allocate(2 * MIB, captures)?;
            write(&driver, captures, &[range(&memory, tag)]);
            Ok::<_, Error>(memory.address())
        };
        engine.capture(captures, &pool, CaptureMode::Relaxed, body).unwrap()
    };
    let [(first, address), (second, same)] = [1, 2].map(capture);
    assert_eq!(address, same);
    first.launch(gone).unwrap();
    driver.destroy_stream(gone).unwrap();
    let again = driver.create_stream().unwrap();
    assert_eq!(again, gone);
    second.launch(again).unwrap();
    // The first one's launch runs now, or only when all else is waited for.
    driver.complete(again).unwrap();
    driver.complete_all();
    let tags = driver.read_tags(address, 2 * MIB).unwrap();
    assert!(tags.iter().all(|&tag| tag == 2));
}

/// A host that makes the engine's calls itself has the same order, by a lease of the graph's id.
#[test]
fn a_graph_taken_over_by_its_id_is_ordered_and_released() {
    let (driver, engine) = bench();
    let (pool, other) = (new_pool(&engine), new_pool(&engine));
    let stream = driver.create_stream().unwrap();
    let reported = || {
        driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        let capture = engine.begin_capture(pool.id(), stream).unwrap();
        for pool in [&pool, &other] {
            let block = engine.allocate(pool.id(), 2 * MIB, stream).unwrap();
            engine.free(block.id).unwrap();
        }
        let graph = driver.end_capture(stream).unwrap();
        let report = engine.end_capture(capture, graph).unwrap();
        driver.destroy_graph(graph).unwrap();
        report.graph
    };
    let graph = reported();
    let lease = Lease::of(&engine, graph).unwrap();
    lease.launch::<Error>(&stream, |_| Ok(())).unwrap();
    driver.synchronize().unwrap();
    other.suspend_discarding_outputs().unwrap();
    let launched = lease.launch::<Error>(&stream, |_| Ok(()));
    assert!(matches!(launched, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })));
    other.resume().unwrap();
    drop(lease);
    assert!(
        matches!(engine.release_graph(graph), Err(Error::Unknown { what: Unknown::Graph(_), .. })),
        "released"
    );
    let gone = Lease::of(&engine, graph);
    assert!(matches!(gone, Err(Error::Unknown { what: Unknown::Graph(_), .. })), "{gone:?}");

    // Given up, it is the host's to release, and what it keeps stays.
    let kept = Arc::new(());
    driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    let capture = Capture::adopt(&pool, stream).unwrap();
    capture.keep(kept.clone());
    let (lease, report) = capture.accept(driver.end_capture(stream).unwrap()).unwrap();
    lease.give_up();
    engine.release_graph(report.graph).unwrap();
    assert_eq!(Arc::strong_count(&kept), 2);
    drop((pool, other));
    assert_eq!(reserved(&engine), 0);
}

/// It may have been submitted before the host's own code panicked.
#[test]
fn a_launch_that_panicked_comes_before_the_next() {
    for seed in 0..SEEDS {
        let (driver, engine, [s, t]) = scheduled(seed);
        let pool = new_pool(&engine);
        driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
        let capture = engine.begin_capture(pool.id(), s).unwrap();
        let block = engine.allocate(pool.id(), 2 * MIB, s).unwrap();
        engine.free(block.id).unwrap();
        let report = engine.end_capture(capture, driver.end_capture(s).unwrap()).unwrap();
        let lease = Lease::of(&engine, report.graph).unwrap();
        let other = graph(&engine, s, &[&pool], 2).unwrap();
        let work = [Tagged { address: block.address, bytes: 2 * MIB, tag: 1 }];
        let launched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lease.launch::<Error>(s, |stream| {
                write(&driver, stream, &work);
                read(&driver, stream, &work);
                panic!("the host's own fault")
            })
        }));
        assert!(launched.is_err());
        other.launch(t).unwrap();
        assert_eq!(wrong(&driver), 0, "seed {seed}");
    }
}

#[test]
fn a_graph_dropped_in_flight_that_keeps_its_pool_goes_with_it() {
    for ends_unseen in [false, true] {
        let (driver, engine) = bench();
        let stream = driver.create_stream().unwrap();
        let pool = new_pool(&engine);
        let body = |capture: &Capture<Driven>| {
            capture.keep(pool.clone());
            let memory = pool.allocate(2 * MIB, stream)?;
            write(&driver, stream, &[range(&memory, 1)]);
            Ok::<_, Error>(())
        };
        let (graph, ()) = engine.capture(stream, &pool, CaptureMode::Relaxed, body).unwrap();
        graph.launch(stream).unwrap();
        if ends_unseen {
            driver.fail_nth(Call::SynchronizeEvent, 0, ErrorKind::NotSupported);
        }
        drop((graph, pool));
        driver.synchronize().unwrap();
        assert_eq!(reserved(&engine) > 0, ends_unseen);
    }
}

#[test]
fn pools_of_a_graph_dropped_in_flight_go_in_any_order() {
    let (driver, engine) = bench();
    let stream = driver.create_stream().unwrap();
    let pairs: Vec<_> = (0..8).map(|_| vec![new_pool(&engine), new_pool(&engine)]).collect();
    for (number, mut pools) in pairs.into_iter().enumerate() {
        let both = graph(&engine, stream, &[&pools[0], &pools[1]], 1).unwrap();
        both.launch(stream).unwrap();
        drop(both);
        let ids: Vec<_> = pools.iter().map(Pool::id).collect();
        drop(pools.remove(number % 2));
        drop(pools);
        for id in ids {
            let gone = engine.pool_statistics(id);
            assert!(matches!(gone, Err(Error::Unknown { what: Unknown::Pool(_), .. })), "{gone:?}");
        }
        assert_eq!(reserved(&engine), 0);
    }
}

/// Whichever of its pools it was put aside in, and whichever pool is short.
#[test]
fn a_graph_dropped_in_flight_goes_where_memory_is_short() {
    for captures in [false, true] {
        let device = SimConfig { total_bytes: 8 * MIB, ..SimConfig::default() };
        let driver = Arc::new(SimDriver::new(device));
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let pools = [(); 2].map(|()| new_pool(&engine));
        let [s, t] = two_streams(&driver);
        for pool in [&pools[0], &pools[1], &new_pool(&engine)] {
            let both = graph(&engine, s, &[&pools[0], &pools[1]], 1).unwrap();
            both.launch(s).unwrap();
            drop(both);
            let begin = || Capture::begin(pool, t, CaptureMode::Relaxed).unwrap();
            let capture = captures.then(begin);
            driver.complete_all();
            match capture {
                Some(capture) => drop(capture.allocate(6 * MIB, t).unwrap()),
                None => drop(pool.allocate(6 * MIB, t).unwrap()),
            }
            engine.empty_cache().unwrap();
        }
    }
}

#[test]
fn a_pool_that_goes_while_work_runs_goes_later() {
    let (driver, engine) = bench();
    let [s, t] = two_streams(&driver);
    let pool = new_pool(&engine);
    let id = pool.id();
    let memory = pool.allocate(2 * MIB, s).unwrap();
    memory.record_stream(t).unwrap();
    write(&driver, t, &[range(&memory, 1)]);
    drop((memory, pool));
    assert!(engine.pool_statistics(id).is_ok(), "the work may still run");
    driver.synchronize().unwrap();
    let next = new_pool(&engine);
    let gone = engine.pool_statistics(id);
    assert!(matches!(gone, Err(Error::Unknown { what: Unknown::Pool(_), .. })), "{gone:?}");
    assert_eq!(reserved(&engine), 0);
    drop(next);
}

/// Takes memory and writes to it at once, when it is dropped.
struct Writer {
    pool: Pool<Driven>,
    stream: StreamHandle,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let next = self.pool.allocate(2 * MIB, self.stream).unwrap();
        let driver = self.pool.engine().driver();
        write(driver, self.stream, &[range(&next, 8)]);
        driver.complete(self.stream).unwrap();
    }
}

#[test]
fn what_moved_into_the_parts_of_a_callable_outlives_its_launches() {
    for seed in 0..SEEDS {
        let (driver, engine, [s, t]) = scheduled(seed);
        let (pool, eager) = (new_pool(&engine), new_pool(&engine));
        let weights = eager.allocate(2 * MIB, s).unwrap();
        write(&driver, s, &[range(&weights, 7)]);
        driver.synchronize().unwrap();
        let writer = Writer { pool: eager, stream: s };
        let owned = (weights, writer);
        let on = driver.clone();
        let mut callable = Callable::new(&pool, Options::default(), |_, ()| Ok::<_, Error>(()))
            .part(move |stage, (), (), (): &mut ()| {
                let (weights, _writer) = &owned;
                read(&on, stage.stream(), &[range(weights, 7)]);
                Ok(())
            });
        callable.call(s, &(), |()| Ok(())).unwrap();
        callable.call(t, &(), |()| Ok(())).unwrap();
        drop(callable);
        assert_eq!(wrong(&driver), 0, "seed {seed}");
    }
}

#[test]
fn inputs_that_were_filled_but_not_used_outlive_the_filling() {
    let mut panics = false;
    for seed in 0..SEEDS {
        let (driver, engine, [s, t]) = scheduled(seed);
        let (pool, eager) = (new_pool(&engine), new_pool(&engine));
        let mut callable =
            Callable::new(&pool, Options::default(), |_, ()| eager.allocate(2 * MIB, s)).part(
                |stage, (), input: &mut Memory<_>, (): &mut ()| {
                    read(&driver, stage.stream(), &[range(input, 7)]);
                    Ok(())
                },
            );
        callable
            .call(s, &(), |input| {
                write(&driver, s, &[range(input, 7)]);
                Ok(())
            })
            .unwrap();
        driver.synchronize().unwrap();
        driver.take_wrong_tags().unwrap();
        // The fill is submitted to another stream, and then the call comes to nothing.
        panics = !panics;
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            callable
                .call(t, &(), |input| {
                    write(&driver, t, &[range(input, 9)]);
                    read(&driver, t, &[range(input, 9)]);
                    assert!(!panics, "the host's own fault");
                    Err(Error::Stream { call: "join", stream: t, why: StreamRefusal::NotInCapture })
                })
                .is_err()
        }));
        assert_ne!(called.unwrap_or(false), panics);
        drop(callable);
        let next = eager.allocate(2 * MIB, s).unwrap();
        write(&driver, s, &[range(&next, 8)]);
        assert_eq!(wrong(&driver), 0, "seed {seed}");
    }
}

/// No one event stands behind the filling and the launches before it then. Where the filling cannot be waited for, as on
/// another device, nothing follows them, and nothing of them goes.
#[test]
fn a_filling_that_cannot_follow_loses_the_order() {
    let is_lost = |error: Error| matches!(error, Error::OrderLost { .. });
    let loses = |n, elsewhere: bool| {
        let (driver, engine) = bench();
        let second = driver.add_device(SimConfig::default());
        let pool = new_pool(&engine);
        let [s, here] = two_streams(&driver);
        let t = if elsewhere { second.create_stream().unwrap() } else { here };
        let options = Options::default().warm_ups(0);
        let mut callable = Callable::new(&pool, options, |_, ()| pool.allocate(2 * MIB, s)).part(
            |stage, (), input: &mut Memory<_>, (): &mut ()| {
                write(&driver, stage.stream(), &[range(input, 7)]);
                Ok(())
            },
        );
        callable.call(s, &(), |_| Ok(())).unwrap();
        let other = graph(&engine, s, &[&pool], 1).unwrap();
        let lending = pool.lend(s).unwrap();
        drop(lending.allocate(MIB).unwrap());
        let called = callable.call(t, &(), |_| {
            driver.fail_host_nth(n, ErrorKind::OutOfMemory);
            Err(Error::Stream { call: "join", stream: t, why: StreamRefusal::NotInCapture })
        });
        assert!(called.is_err());
        driver.forget_failures();
        let lost = callable.call(s, &(), |_| Ok(())).is_err_and(is_lost);
        assert_eq!(lending.allocate(MIB).is_err_and(is_lost), lost);
        assert_eq!(pool.suspend_discarding_all().is_err_and(is_lost), lost);
        let id = other.report().graph;
        drop((callable, lending, other));
        drop(pool);
        assert_eq!(engine.release_graph(id).is_ok(), lost);
        lost
    };
    // The stream's number, and the wait for the latest launch.
    assert_eq!([0, 1, 2].map(|n| loses(n, true)), [true, true, false]);
    assert_eq!([0, 1, 2].map(|n| loses(n, false)), [false; 3]);
}

/// The order holds then: launches go on once the pool is resumed.
#[test]
fn a_pool_may_be_suspended_while_a_call_fills() {
    let (driver, engine) = bench();
    let pool = new_pool(&engine);
    let [s, t] = two_streams(&driver);
    let make = |_: &Stage<'_, _>, (): &()| pool.allocate(2 * MIB, s);
    let mut callable = Callable::new(&pool, Options::default().warm_ups(0), make)
        .part(|_, (), _: &mut Memory<_>, (): &mut ()| Ok(()));
    callable.call(s, &(), |_| Ok(())).unwrap();
    let called = callable.call(t, &(), |_| pool.suspend_discarding_all().map(drop));
    assert!(matches!(called, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })));
    pool.resume().unwrap();
    callable.call(s, &(), |_| Ok(())).unwrap();
}

#[test]
fn a_filling_comes_after_the_latest_launch() {
    for seed in 0..SEEDS {
        let (driver, engine, [s, t]) = scheduled(seed);
        let (pool, eager) = (new_pool(&engine), new_pool(&engine));
        let options = Options::default().warm_ups(0);
        let mut callable = Callable::new(&pool, options, |_, ()| eager.allocate(2 * MIB, s)).part(
            |stage, (), input: &mut Memory<_>, (): &mut ()| {
                read(&driver, stage.stream(), &[range(input, 7)]);
                Ok(())
            },
        );
        for stream in [s, t, s] {
            let fill = |input: &mut Memory<_>| {
                [9, 7].iter().for_each(|&tag| write(&driver, stream, &[range(input, tag)]));
                Ok::<_, Error>(())
            };
            callable.call(stream, &(), fill).unwrap();
        }
        drop(callable);
        assert_eq!(wrong(&driver), 0, "seed {seed}");
    }
}

/// The driver could crash. The capture does not begin here, so that no later step of it has said so.
#[test]
fn when_a_capture_begins_no_other_thread_records_on_its_stream() {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let stream = driver.create_stream().unwrap();
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let pool = new_pool(&engine);
    let block = pool.allocate(MIB, stream).unwrap();
    driver.fail_host_nth(0, ErrorKind::OutOfMemory);
    Capture::begin(&pool, stream, CaptureMode::Relaxed).unwrap_err();
    let before = driver.calls(Call::RecordEvent);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(block);
            engine.empty_cache().unwrap();
        });
    });
    assert_eq!(driver.calls(Call::RecordEvent), before);
}

#[test]
fn a_graph_is_launched_on_streams_of_several_devices_in_turn() {
    let first = SimDriver::new(SimConfig::default());
    let second = first.add_device(SimConfig::default());
    let streams = [&first, &second].map(|driver| driver.create_stream().unwrap());
    let engine = Arc::new(Engine::new(Arc::new(first), Config::default()));
    let pool = new_pool(&engine);
    let graph = graph(&engine, streams[0], &[&pool], 1).unwrap();
    for stream in [0, 1, 0, 1] {
        graph.launch(streams[stream]).unwrap();
    }
    // What a wait for the pool's device does not cover is waited for too.
    let is_idle = || {
        let event = second.create_event().unwrap();
        second.record_event(event, streams[1]).unwrap();
        second.query_event(event).unwrap()
    };
    assert!(!is_idle());
    pool.suspend_discarding_outputs().unwrap();
    assert!(is_idle());
    pool.resume().unwrap();
    graph.launch(streams[1]).unwrap();
    pool.play_loan(MIB, streams[1]).unwrap();
    assert!(is_idle());
    // So is what the stream has borrowed and given back.
    let borrowed = pool.lend(streams[1]).unwrap().allocate(MIB).unwrap();
    second.launch_kernel(streams[1], regraph_sim::Launch::default()).unwrap();
    drop(borrowed);
    assert!(!is_idle());
    pool.play_loan(MIB, streams[1]).unwrap();
    assert!(is_idle());
}

#[test]
fn a_default_stream_says_too_little_where_the_pools_are_of_several_devices() {
    let first = SimDriver::new(SimConfig::default());
    let second = first.add_device(SimConfig::default()).with_peers(&[0]);
    let engines = [first.with_peers(&[1]), second]
        .map(|driver| Arc::new(Engine::new(Arc::new(driver), Config::default())));
    let [here, there] = engines.each_ref().map(new_pool);
    let driver = engines[0].driver();
    let stream = driver.create_stream().unwrap();
    let apart = driver.create_stream().unwrap();
    let on_both = |capture: &Capture<Driven>| {
        driver.begin_capture(apart, CaptureMode::Relaxed)?;
        let foreign = capture.join(&there, apart).unwrap_err();
        assert!(matches!(foreign, Error::Stream { why: StreamRefusal::NotInCapture, .. }));
        driver.destroy_graph(driver.end_capture(apart)?)?;
        capture.join(&there, stream)?;
        let memory = there.allocate(2 * MIB, stream)?;
        write(driver, stream, &[range(&memory, 1)]);
        Ok::<_, Error>(())
    };
    let (graph, ()) = engines[0].capture(stream, &here, CaptureMode::Relaxed, on_both).unwrap();
    for default in [0, 1] {
        let launched = graph.launch(StreamHandle::from_bits(default));
        assert!(matches!(launched, Err(Error::Stream { why: StreamRefusal::PerDevice, .. })));
    }
    graph.launch(stream).unwrap();
    driver.synchronize().unwrap();
    let foreign = self::graph(&engines[1], stream, &[&here], 1);
    assert!(matches!(foreign, Err(Error::Pool { why: PoolRefusal::Foreign, .. })));
}

#[test]
fn a_launch_on_another_device_that_cannot_be_marked_loses_the_order() {
    let first = SimDriver::new(SimConfig::default());
    let second = first.add_device(SimConfig::default());
    let driver = Arc::new(first);
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    for (stream, is_lost) in [(&*driver, false), (&second, true)]
        .map(|(driver, is_lost)| (driver.create_stream().unwrap(), is_lost))
    {
        let pool = new_pool(&engine);
        let on = driver.create_stream().unwrap();
        let graph = graph(&engine, on, &[&pool], 1).unwrap();
        driver.fail_nth(Call::CreateEvent, 0, ErrorKind::OutOfMemory);
        assert!(matches!(graph.launch(stream), Err(Error::Driver(_))));
        // Waiting for the engine's own device says nothing of the other's streams.
        let launched = graph.launch(on);
        assert_eq!(matches!(launched, Err(Error::OrderLost { .. })), is_lost, "{launched:?}");
        driver.synchronize().unwrap();
    }
}

/// The wait for a launch that could not be marked could ruin a capture that another thread began just then.
#[test]
fn no_capture_begins_while_a_launch_is_waited_for() {
    let (driver, engine, [s, t]) = scheduled(0);
    let (pool, other) = (new_pool(&engine), new_pool(&engine));
    let graph = graph(&engine, s, &[&pool], 1).unwrap();
    let ((begin, begun), (tell, told)) = (channel(), channel());
    let capture = move || begin.send(Capture::begin(&other, t, CaptureMode::Relaxed).is_ok());
    let beside = move || {
        thread::spawn(capture);
        tell.send(begun.recv_timeout(Duration::from_millis(200)).is_ok()).unwrap();
    };
    driver.before("cuCtxSynchronize", once(beside));
    driver.fail_nth(Call::CreateEvent, 0, ErrorKind::OutOfMemory);
    graph.launch(s).unwrap_err();
    assert!(!told.recv().unwrap());
}

/// Graphs, eager work and suspensions that share pools, each error taken as it comes.
fn program(driver: &Driven, engine: &Arc<Engine<Driven>>) -> Result<(), Error> {
    let pools = [new_pool(engine), new_pool(engine)];
    let [s, t] = two_streams(driver);
    let eager = |tag| {
        let Ok(memory) = pools[0].allocate(2 * MIB, t) else { return };
        write(driver, t, &[range(&memory, tag)]);
        read(driver, t, &[range(&memory, tag)]);
    };
    let first = graph(engine, s, &[&pools[0], &pools[1]], 1);
    let second = graph(engine, t, &[&pools[1]], 2);
    for graph in [&first, &second, &first].into_iter().flatten() {
        for stream in [s, t] {
            // One that was not launched is no reason to stop.
            let _ = graph.launch(stream);
        }
    }
    drop(first);
    eager(3);
    let third = graph(engine, t, &[&pools[0]], 4);
    if let Ok(third) = &third {
        let _ = third.launch(s);
    }
    eager(5);
    if driver.synchronize().is_ok() && pools[1].suspend_discarding_outputs().is_ok() {
        while pools[1].resume().is_err() {}
    }
    if let Ok(second) = &second {
        let _ = second.launch(s);
    }
    drop(pools);
    eager_elsewhere(driver, engine, s);
    second?.launch(t)?;
    third.map(|_| ())
}

fn eager_elsewhere(driver: &SimDriver, engine: &Arc<Engine<Driven>>, stream: StreamHandle) {
    let Ok(memory) = new_pool(engine).allocate(MIB, stream) else { return };
    write(driver, stream, &[range(&memory, 6)]);
    read(driver, stream, &[range(&memory, 6)]);
}

#[test]
fn whatever_call_fails_no_memory_is_used_twice() {
    for seed in 0..4 {
        let mut n = 0;
        loop {
            let (driver, engine) = bench();
            driver.set_schedule_seed(seed);
            driver.fail_any_nth(n, ErrorKind::OutOfMemory);
            let done = program(&driver, &engine);
            let calls = driver.total_calls();
            driver.forget_failures();
            assert_eq!(wrong(&driver), 0, "seed {seed}, call {n}");
            let left = engine.empty_cache().unwrap();
            if calls < n {
                done.unwrap();
                assert_eq!(left.reserved, 0);
                break;
            }
            n += 1;
        }
        assert!(n > 150, "{n} calls");
    }
}

/// What the engine's calls by name can do, owned memory can do.
#[test]
fn owned_memory_has_the_engines_doors() {
    let device = SimConfig { total_bytes: 100 * MIB, ..SimConfig::default() };
    let driver = Arc::new(SimDriver::new(device));
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let (pool, stream) = (new_pool(&engine), driver.create_stream().unwrap());
    let mut held = Some(pool.allocate(60 * MIB, stream).unwrap());
    let mut asked = 0;
    let release = || {
        asked += 1;
        pool.collect();
        held.take().is_some()
    };
    let block = pool.allocate_or_release(80 * MIB, stream, release).unwrap();
    assert_eq!((asked, held.is_none()), (1, true));
    // By its name, and owned again.
    let named = block.into_block();
    assert_eq!(pool.statistics().unwrap().blocks, 1);
    // SAFETY: it is live, of this pool, and freed by this value alone.
    let block = unsafe { Memory::from_block(&pool, named) };
    assert_eq!((block.address(), block.bytes()), (named.address, 80 * MIB));
    drop(block);
    assert_eq!(pool.statistics().unwrap().blocks, 0);
    // Given up, it is counted, and nothing frees it.
    let lost = pool.allocate(3 * MIB, stream).unwrap();
    let (id, address) = (lost.id(), lost.address());
    assert_eq!(lost.leak(), address);
    engine.reset_accumulated().unwrap();
    assert_eq!(engine.statistics().unwrap().lost_bytes, 3 * MIB);
    assert_eq!(engine.host().block_report(id).unwrap().address, address);
}

#[test]
fn a_callable_goes_on_on_another_thread() {
    let (driver, engine) = bench();
    let (pool, stream) = (new_pool(&engine), driver.create_stream().unwrap());
    let make = |stage: &Stage<'_, Driven>, (): &()| {
        let input = stage.allocate(2 * MIB)?;
        write(&driver, stage.stream(), &[range(&input, 1)]);
        Ok(input)
    };
    let mut callable = Callable::new(&pool, Options::default(), make).part(
        |stage, (), input: &mut Memory<Driven>, output: &mut Option<Memory<Driven>>| {
            let made = stage.allocate(2 * MIB)?;
            write(&driver, stage.stream(), &[range(&made, 2)]);
            read(&driver, stage.stream(), &[range(input, 1)]);
            *output = Some(made);
            Ok::<_, Error>(())
        },
    );
    let mut call = || {
        let fill = |input: &mut Memory<Driven>| {
            write(&driver, stream, &[range(input, 1)]);
            Ok(())
        };
        callable.call(stream, &(), fill).unwrap();
    };
    call();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            engine.mark_stream(stream).unwrap();
            call();
        });
    });
    assert_eq!(wrong(&driver), 0);
}

/// A pool that is made, and one that goes, looks at so many others that still wait for work, however many those are.
#[test]
fn pools_that_wait_for_work_cost_the_next_ones_no_more_the_more_they_are() {
    let (driver, engine) = bench();
    let stream = driver.create_stream().unwrap();
    let calls_of = |pools: usize| {
        let before = driver.total_calls();
        for _ in 0..pools {
            let memory = new_pool(&engine).allocate(MIB, stream).unwrap();
            write(&driver, stream, &[range(&memory, 1)]);
        }
        driver.total_calls() - before
    };
    calls_of(64);
    let few = calls_of(8);
    calls_of(64);
    assert_eq!(calls_of(8), few);
    driver.synchronize().unwrap();
    // Each is looked at in its turn.
    (0..8).for_each(|_| drop(new_pool(&engine)));
    assert_eq!(engine.pools().unwrap().len(), 0);
}
