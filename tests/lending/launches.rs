//! What a pool's graphs do not keep is lent between their launches: what else may happen meanwhile.

use std::sync::Arc;
use std::thread;

use crate::device::simulated;
use crate::owned::{self, MIB};
use regraph::driver::{CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Config, Error, Lent, PoolConfig, PoolRefusal, Spare, StreamRefusal};
use regraph::graphs::{Capture, Graph, Lending, Memory, Pool};
use regraph::plan::Options;
use regraph_sim::{Call, SimDriver};
use regraph_tagged::Program;

type Sim = Arc<SimDriver>;

type Bench = owned::Bench<SimDriver>;

fn bench_of(config: PoolConfig) -> Bench {
    Bench::of(&simulated(), Config::default().report_leaks(false), config)
}

fn bench() -> Bench {
    bench_of(PoolConfig::default())
}

impl Bench {
    /// A graph with one temporary block of so many bytes.
    fn graph(&self, stream: StreamHandle, bytes: u64) -> Graph<Sim> {
        let body = |capture: &Capture<Sim>| {
            let memory = capture.allocate(bytes, stream)?;
            self.write(stream, &memory, 1);
            self.read(stream, &memory, 1);
            Ok::<_, Error>(())
        };
        self.engine.capture(stream, &self.pool, CaptureMode::Relaxed, body).unwrap().0
    }

    fn lent(&self) -> u64 {
        self.pool.statistics().unwrap().lent
    }

    fn sound(&self) {
        self.driver.complete_all_checked().unwrap();
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
    }
}

fn is_refused(graph: &Graph<Sim>, stream: StreamHandle) -> bool {
    matches!(graph.launch(stream), Err(Error::Pool { why: PoolRefusal::BlocksLent { .. }, .. }))
}

fn borrow(lending: &Lending<Sim>, b: &Bench, bytes: u64) -> Memory<Sim> {
    let before = b.lent();
    let block = lending.allocate(bytes).unwrap();
    assert_eq!(b.lent(), before + bytes, "it is lent");
    block
}

#[test]
fn another_thread_marks_what_it_has_done_or_the_host_waits() {
    let (b, [s, t]) = bench().with_streams();
    let graph = b.graph(s, 8 * MIB);
    let (to_main, from_other) = std::sync::mpsc::channel();
    let (to_other, from_main) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let b = &b;
        scope.spawn(move || {
            let lending = b.pool.lend(t).unwrap();
            let block = borrow(&lending, b, 4 * MIB);
            b.write(t, &block, 9);
            to_main.send(block).unwrap();
            from_main.recv().unwrap();
            drop(lending);
            to_main.send(b.pool.lend(t).unwrap().allocate(4 * MIB).unwrap()).unwrap();
            from_main.recv().unwrap();
        });
        // Freed here, on a stream that is the other thread's to mark.
        drop(from_other.recv().unwrap());
        assert!(
            matches!(graph.launch(s), Err(Error::Pool { why: PoolRefusal::LentWork { stream }, .. }) if stream == t)
        );
        to_other.send(()).unwrap();
        let block = from_other.recv().unwrap();
        b.write(t, &block, 10);
        drop(block);
        let refused = graph.launch(s);
        assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::LentWork { .. }, .. })));
        assert!(b.engine.wait_for_device().unwrap());
        graph.launch(s).unwrap();
        to_other.send(()).unwrap();
    });
    b.sound();
}

#[test]
fn a_launch_comes_after_what_another_thread_has_marked() {
    let (b, [s, t]) = bench().with_streams();
    let graph = b.graph(s, 8 * MIB);
    thread::scope(|scope| {
        let (to_main, from_other) = std::sync::mpsc::channel();
        let (to_other, from_main) = std::sync::mpsc::channel::<()>();
        let b = &b;
        scope.spawn(move || {
            let lending = b.pool.lend(t).unwrap();
            let block = borrow(&lending, b, 8 * MIB);
            b.write(t, &block, 9);
            b.read(t, &block, 9);
            drop((block, lending));
            to_main.send(()).unwrap();
            // The stream stays this thread's.
            from_main.recv().unwrap();
        });
        from_other.recv().unwrap();
        graph.launch(s).unwrap();
        to_other.send(()).unwrap();
    });
    b.sound();
}

#[test]
fn a_graph_of_two_pools_is_launched_while_one_lends() {
    let (b, [s, t]) = bench().with_streams();
    let other = Pool::new(&b.engine, PoolConfig::default());
    let body = |capture: &Capture<Sim>| {
        capture.join(&other, s)?;
        let both = [capture.allocate(8 * MIB, s)?, other.allocate(8 * MIB, s)?];
        both.iter().for_each(|memory| b.write(s, memory, 1));
        Ok::<_, Error>(())
    };
    let (graph, ()) = b.engine.capture(s, &b.pool, CaptureMode::Relaxed, body).unwrap();
    let [first, second] = [&b.pool, &other].map(|pool| pool.lend(t).unwrap());
    let block = first.allocate(8 * MIB).unwrap();
    b.write(t, &block, 7);
    drop(block);
    let block = second.allocate(8 * MIB).unwrap();
    b.write(t, &block, 8);
    assert!(is_refused(&graph, s));
    drop(block);
    // The refusal has forgotten nothing of what the other pool's borrower did.
    graph.launch(s).unwrap();
    b.sound();
}

#[test]
fn what_comes_at_a_captures_end_is_not_lent() {
    let (b, [s]) = bench_of(PoolConfig::default().plan(Options::default())).with_streams();
    let graph = b.graph(s, 32 * MIB);
    let lending = b.pool.lend(s).unwrap();
    let block = lending.allocate(8 * MIB).unwrap();
    assert_eq!(b.lent(), 0);
    b.write(s, &block, 7);
    graph.launch(s).unwrap();
    b.read(s, &block, 7);
    drop(block);
    b.driver.complete_all();
    b.pool.compact().unwrap();
    graph.launch(s).unwrap();
    b.sound();
}

/// Nor does one that comes to nothing after its first step: its graph never runs.
#[test]
fn a_capture_that_is_closed_in_vain_leaves_what_was_lent() {
    let (b, [s]) = bench().with_streams();
    let graph = b.graph(s, 8 * MIB);
    let block = b.engine.host().lend(b.pool.id(), 8 * MIB, s, Lent::AllFree).unwrap().unwrap();
    // Not ended in the driver; not instantiated; accepted, and not put on the device.
    for call in 0..3 {
        let capture = Capture::begin(&b.pool, s, CaptureMode::Relaxed).unwrap();
        b.driver.fail_host_nth(call, ErrorKind::NotSupported);
        assert!(matches!(capture.finish(), Err(Error::Driver(_))), "{call}");
        b.driver.forget_failures();
        b.driver.end_capture(s).ok();
        let was_accepted = call == 2;
        assert_eq!(b.lent() == 0, was_accepted, "{call}");
    }
    b.engine.free(block.id).unwrap();
    graph.launch(s).unwrap();
    b.sound();
}

/// A launch that cannot be marked waits for the device; while a stream captures that would ruin the capture.
#[test]
fn a_launch_that_cannot_be_marked_leaves_captures_alone() {
    let (b, [s, t]) = bench().with_streams();
    let graph = b.graph(s, 8 * MIB);
    let other = Pool::new(&b.engine, PoolConfig::default());
    let capture = Capture::begin(&other, t, CaptureMode::Relaxed).unwrap();
    b.driver.fail_nth(Call::CreateEvent, 0, ErrorKind::NotSupported);
    assert!(matches!(graph.launch(s), Err(Error::Driver(_))));
    assert!(matches!(graph.launch(s), Err(Error::OrderLost { .. })));
    let memory = capture.allocate(MIB, t).unwrap();
    b.write(t, &memory, 1);
    drop(memory);
    capture.finish().unwrap();
}

#[test]
fn a_pool_that_lends_nothing_asks_nothing_at_its_launches() {
    let (b, [s]) = bench().with_streams();
    let graph = b.graph(s, 8 * MIB);
    let calls = |b: &Bench| {
        let before = b.driver.total_calls() + b.driver.host_calls();
        graph.launch(s).unwrap();
        b.driver.total_calls() + b.driver.host_calls() - before
    };
    calls(&b);
    let alone = calls(&b);
    let lending = b.pool.lend(s).unwrap();
    assert_eq!(calls(&b), alone);
    drop(borrow(&lending, &b, MIB));
    assert_eq!(calls(&b), alone, "on the stream of the launch its own order does");
    b.sound();
}

/// The event behind a mark went into a capture that began and ended beside its record.
#[test]
fn an_event_that_a_capture_has_taken_is_recorded_anew() {
    let (b, [s, t]) = bench().with_streams();
    let graph = b.graph(s, 8 * MIB);
    let lending = b.pool.lend(t).unwrap();
    let block = borrow(&lending, &b, 8 * MIB);
    b.write(t, &block, 7);
    b.read(t, &block, 7);
    drop(block);
    drop(lending);
    b.driver.fail_nth(Call::QueryEvent, 0, ErrorKind::CapturedEvent);
    // Asks for the event.
    b.engine.empty_cache().unwrap();
    graph.launch(s).unwrap();
    b.sound();
}

/// What is refused says which call refuses, and gives advice for that call.
#[test]
fn refusals_name_the_call_that_lends_or_follows() {
    let (b, [s, t]) = bench().with_streams();
    let _graph = b.graph(s, 4 * MIB);
    let lending = b.pool.lend(t).unwrap();
    let refusals = || {
        [
            ("follow", b.pool.follow(t).unwrap_err()),
            ("lend", b.pool.lend(t).map(drop).unwrap_err()),
            ("allocate", lending.allocate(MIB).map(drop).unwrap_err()),
            ("lend_to_process", b.pool.lend_to_process(MIB, t).map(drop).unwrap_err()),
        ]
    };
    b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
    for (name, refused) in refusals() {
        let text = refused.to_string();
        let Error::Stream { call, why: StreamRefusal::OrderWhileCapturing, .. } = refused else {
            panic!("{text}");
        };
        assert!(call == name && !text.contains("launch the graph"), "{text}");
    }
    b.driver.end_capture(t).unwrap();
    b.pool.suspend_discarding_outputs().unwrap();
    for (name, refused) in refusals() {
        let text = refused.to_string();
        assert!(text.starts_with(&format!("{name}: ")) && text.contains("suspended"), "{text}");
    }
}

/// Blocks of another pool kept it, for as long as one of them lived.
#[test]
fn a_pool_that_was_dropped_offers_nothing() {
    let (b, [s, t]) = bench().with_streams();
    let id = b.pool.id();
    b.engine.host().set_spare(id, Spare::Offered).unwrap();
    let [used, spare] = [(); 2].map(|()| b.pool.allocate(4 * MIB, s).unwrap());
    used.record_stream(t).unwrap();
    b.write(t, &used, 1);
    drop((used, spare));
    let Bench { driver, engine, pool } = b;
    drop(pool);
    let takes = Pool::new(&engine, PoolConfig::default().takes_offers(true));
    let _block = takes.allocate(4 * MIB, s).unwrap();
    driver.complete_all();
    engine.empty_cache().unwrap();
    let pools = engine.pools().unwrap();
    assert!(pools.iter().all(|pool| pool.id != id), "{pools:?}");
}
