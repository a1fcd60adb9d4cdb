//! How captures end.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use crate::device::graph_of;
use regraph::driver::{CaptureMode, ErrorKind, StreamHandle};
use regraph::engine::{self, PoolConfig};
use regraph::graphs::{Capture, Error, Pool, PoolRefusal, StreamRefusal};
use regraph_sim::probe::Estimate;

use super::{launch, range, Bench, Device, MIB};

twins! {
    an_error_leaves_nothing_behind
    a_panic_leaves_nothing_behind
    a_stream_that_is_not_joined_is_an_error
    a_ruined_capture_is_an_error
    a_guard_does_what_the_closure_does
    the_host_may_begin_and_end_a_capture_itself
    what_does_not_belong_together_is_refused
    a_stream_that_captures_launches_no_graph
    captures_need_what_was_estimated
}

#[derive(Debug)]
enum Failure {
    Mine,
    Theirs(#[allow(dead_code, reason = "for its message")] Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Theirs(error)
    }
}

fn is_free<P: Device>(bench: &Bench<P>, stream: StreamHandle) {
    assert!(!bench.driver.is_capturing(stream).unwrap());
    let figures = bench.engine.pool_statistics(bench.pool.id()).unwrap();
    assert_eq!((figures.allocated, figures.blocks), (0, 0));
    // A capture goes on as if nothing had been.
    let chain = bench.chain([stream, bench.streams::<1>()[0]], (900, 4, MIB, 0)).unwrap();
    chain.0.launch(stream).unwrap();
    assert_eq!(bench.wrong(), 0);
}

fn an_error_leaves_nothing_behind<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t]) = Bench::new(driver).with_streams();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let result = bench.engine.capture(s, &bench.pool, mode, |capture| {
            let memory = capture.allocate(2 * MIB, s)?;
            launch(&*bench.driver, s, (&[], &[range(&memory, 1)]), 0);
            bench.driver.wait(t, s).map_err(Error::from)?;
            Err::<(), _>(Failure::Mine)
        });
        assert!(matches!(result, Err(Failure::Mine)), "{result:?}");
        is_free(&bench, s);
    }
    bench.close();
}

fn a_panic_leaves_nothing_behind<P: Device>(driver: &Arc<P>) {
    let (bench, [s]) = Bench::new(driver).with_streams();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        bench.engine.capture(s, &bench.pool, CaptureMode::Global, |capture| {
            let _memory = capture.allocate(2 * MIB, s)?;
            if capture.stream() == s {
                panic!("the body's own fault");
            }
            Ok::<_, Error>(())
        })
    }));
    assert!(panicked.is_err());
    is_free(&bench, s);
    bench.close();
}

fn a_stream_that_is_not_joined_is_an_error<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t]) = Bench::new(driver).with_streams();
    let result = bench.engine.capture(s, &bench.pool, CaptureMode::ThreadLocal, |capture| {
        let memory = capture.allocate(2 * MIB, s)?;
        bench.driver.wait(t, s)?;
        memory.record_stream(t)?;
        launch(&*bench.driver, t, (&[], &[range(&memory, 1)]), 0);
        Ok::<_, Error>(())
    });
    let Err(Error::Driver(error)) = result else { panic!("{result:?}") };
    assert_eq!(error.kind, ErrorKind::CaptureUnjoined);
    is_free(&bench, s);
    bench.close();
}

fn a_ruined_capture_is_an_error<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t, u]) = Bench::new(driver).with_streams();
    let result = bench.engine.capture(s, &bench.pool, CaptureMode::ThreadLocal, |capture| {
        let _memory = capture.allocate(2 * MIB, s)?;
        // Two captures must not meet.
        bench.driver.begin_capture(t, CaptureMode::ThreadLocal)?;
        assert!(bench.driver.wait(s, t).is_err());
        assert!(bench.driver.end_capture(t).is_err());
        assert!(bench.pool.allocate(MIB, u).is_ok(), "a stream outside goes on");
        Ok::<_, Error>(())
    });
    let Err(error) = result else { panic!("{result:?}") };
    assert!(matches!(error, engine::Error::CaptureInvalidated { .. }), "{error}");
    is_free(&bench, s);
    bench.close();
}

fn a_guard_does_what_the_closure_does<P: Device>(driver: &Arc<P>) {
    let (bench, [s]) = Bench::new(driver).with_streams();
    let capture = Capture::begin(&bench.pool, s, CaptureMode::Relaxed).unwrap();
    let memory = capture.allocate(MIB, s).unwrap();
    launch(&*bench.driver, s, (&[], &[range(&memory, 7)]), 0);
    let graph = capture.finish().unwrap();
    assert!(graph.report().verified);
    graph.launch(s).unwrap();
    assert_eq!(bench.wrong(), 0);
    assert!(bench.driver.read_tags(memory.address(), MIB).unwrap().iter().all(|&tag| tag == 7));
    // Dropped, it leaves nothing.
    let capture = Capture::begin(&bench.pool, s, CaptureMode::Relaxed).unwrap();
    drop((capture.allocate(MIB, s).unwrap(), memory, graph));
    drop(capture);
    is_free(&bench, s);
    bench.close();
}

fn the_host_may_begin_and_end_a_capture_itself<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t]) = Bench::new(driver).with_streams();
    for ended_first in [false, true] {
        bench.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
        let capture = Capture::adopt(&bench.pool, s).unwrap();
        let memory = capture.allocate(MIB, s).unwrap();
        launch(&*bench.driver, s, (&[], &[range(&memory, 7)]), 0);
        let mut graph = graph_of(&bench.driver, s);
        if ended_first {
            bench.engine.observe(s).unwrap();
            graph = bench.driver.end_capture(s).unwrap();
        }
        let (lease, report) = capture.accept(graph).unwrap();
        assert!(report.verified);
        if !ended_first {
            graph = bench.driver.end_capture(s).unwrap();
        }
        let executable = bench.driver.instantiate(graph).unwrap();
        for stream in [s, t, s] {
            lease
                .launch(stream, |on| Ok::<_, Error>(bench.driver.replay(executable, on)?))
                .unwrap();
        }
        assert_eq!(bench.wrong(), 0);
        bench.driver.destroy_executable(executable).unwrap();
        bench.driver.destroy_graph(graph).unwrap();
    }
    // One that is given up is the host's to end.
    bench.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    drop(Capture::adopt(&bench.pool, s).unwrap());
    assert!(bench.driver.is_capturing(s).unwrap());
    let graph = bench.driver.end_capture(s).unwrap();
    bench.driver.destroy_graph(graph).unwrap();
    is_free(&bench, s);
    bench.close();
}

fn what_does_not_belong_together_is_refused<P: Device>(driver: &Arc<P>) {
    let (bench, other) = (Bench::new(driver), Bench::new(driver));
    let [s, t] = bench.streams();
    let body = |_: &Capture<_>| Ok::<_, Error>(());
    let foreign = bench.engine.capture(s, &other.pool, CaptureMode::Relaxed, body);
    assert!(matches!(foreign, Err(Error::Pool { why: PoolRefusal::Foreign, .. })), "{foreign:?}");
    let second = Pool::new(&bench.engine, PoolConfig::default());
    let joined = bench.engine.capture(s, &bench.pool, CaptureMode::Relaxed, |capture| {
        let outside = capture.join(&second, t);
        assert!(
            matches!(outside, Err(Error::Stream { why: StreamRefusal::NotInCapture, .. })),
            "{outside:?}"
        );
        capture.join(&second, s)?;
        let memory = second.allocate(MIB, s)?;
        launch(&*bench.driver, s, (&[], &[range(&memory, 3)]), 0);
        Ok::<_, Error>(())
    });
    let (graph, ()) = joined.unwrap();
    graph.launch(t).unwrap();
    let in_use = bench.engine.destroy_pool(second.id());
    assert!(
        matches!(in_use, Err(engine::Error::Pool { why: engine::PoolRefusal::InUse { .. }, .. })),
        "{in_use:?}"
    );
    assert_eq!(bench.wrong(), 0);
    other.close_after(graph);
    second.synchronize().unwrap();
    bench.close_after(second);
}

fn a_stream_that_captures_launches_no_graph<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t]) = Bench::new(driver).with_streams();
    let (graph, output) = bench.chain([s, t], (10, 3, MIB, 0)).unwrap();
    let again = bench.engine.capture(t, &bench.pool, CaptureMode::Relaxed, |_| graph.launch(t));
    assert!(
        matches!(again, Err(Error::Stream { why: StreamRefusal::LaunchWhileCapturing, .. })),
        "{again:?}"
    );
    graph.launch(t).unwrap();
    assert_eq!(bench.wrong(), 0);
    bench.close_after((graph, output));
}

fn captures_need_what_was_estimated<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let streams = bench.streams();
    let sizes = [(100, 24, 8 * MIB, 0), (200, 12, 5 * MIB, 0), (300, 30, 11 * MIB, 0)];
    // As after a run of warming up: what the driver makes at the first executable is not counted.
    drop(bench.chain(streams, (1, 2, MIB, 0)).unwrap());
    bench.engine.empty_cache().unwrap();
    let mut estimate = Estimate::new(&bench.engine);
    let mut most = 0;
    for size in sizes {
        let shown = estimate.capture(streams[0], CaptureMode::ThreadLocal, |capture| {
            let output = bench.submit_chain(capture, streams, size)?;
            most = most.max(bench.reserved());
            Ok::<_, Box<dyn std::error::Error>>(output)
        });
        shown.unwrap();
        assert_eq!(bench.reserved(), 0, "a capture that was shown holds nothing");
    }
    let needs = estimate.needs().unwrap();
    drop(estimate);
    let graphs: Vec<_> =
        sizes.into_iter().map(|size| bench.chain(streams, size).unwrap()).collect();
    assert_eq!(needs.pool_bytes, bench.reserved());
    assert!(most < needs.pool_bytes, "{most} bytes were held for {needs:?}");
    let taken: u64 = graphs.iter().map(|(graph, _)| graph.driver_bytes()).sum();
    assert!(taken <= needs.bound().executable_bytes, "{taken} bytes, and {needs:?}");
    for (graph, _) in &graphs {
        graph.launch(streams[0]).unwrap();
    }
    assert_eq!(bench.wrong(), 0);
    bench.close_after(graphs);
}
