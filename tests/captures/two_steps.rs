//! Ends of captures in two steps: the checker judges on a thread of its own while the host goes on.

use std::sync::Arc;

use crate::common::{bench, remove_last_edge, Bench, MIB};
use crate::device::graph_of;
use regraph::driver::{CaptureId, CaptureMode, GraphHandle, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, Error, PoolConfig, PoolRefusal};
use regraph::graphs::{Capture, Pool};
use regraph::settings::Programmatic;
use regraph_sim::{Launch, SimConfig, SimDriver};

/// Captures of any size are judged by a thread.
fn aside() -> Config {
    Config::default().find_late_uses(false).judge_aside(0)
}

impl Bench {
    fn close(&self, stream: StreamHandle, capture: CaptureId) -> Result<GraphHandle, Error> {
        self.engine.close_capture(capture, self.graph(stream))?;
        Ok(self.driver.end_capture(stream).unwrap())
    }
}

/// A capture in which one block takes another's place, by an edge that the host removes where it is to be refused.
fn reuse(b: &Bench, stream: StreamHandle, sound: bool) -> CaptureId {
    let capture = b.begin(stream);
    let block = b.temporary(stream);
    let next = b.allocate(stream);
    assert_eq!(next.address, block.address);
    b.launch_and_free(stream, next);
    if !sound {
        remove_last_edge(&b.driver, stream);
    }
    capture
}

#[test]
fn the_verdict_is_that_of_one_step() {
    for sound in [true, false] {
        let (one, two) = (bench(aside()), bench(aside()));
        let [s] = one.streams();
        let capture = reuse(&one, s, sound);
        let at_once = one.try_finish(s, capture);
        let [s] = two.streams();
        let capture = reuse(&two, s, sound);
        two.close(s, capture).unwrap();
        let later = two.engine.verdict(capture);
        match (at_once, later) {
            (Ok(at_once), Ok(later)) if sound => {
                assert!(later.verified);
                for (b, report) in [(&one, &at_once), (&two, &later)] {
                    let spent = b.engine.statistics().unwrap().counts.check_ns;
                    assert!(report.check_ns > 0 && spent == report.check_ns);
                }
                assert_eq!(at_once.nodes, later.nodes);
                assert_eq!(at_once.blocks, later.blocks);
                let minimum = |report: regraph::engine::CaptureReport| {
                    report.minimum().map(|minimum| minimum.bytes)
                };
                assert_eq!(minimum(at_once), minimum(later));
            }
            (Err(Error::Refused(at_once)), Err(Error::Refused(later))) if !sound => {
                let kind = std::mem::discriminant(&*at_once);
                assert_eq!(kind, std::mem::discriminant(&*later));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(one.reserved(), two.reserved());
        // Without a graph the memory is for work outside captures in both.
        for b in [one, two] {
            if !sound {
                let [t] = b.streams();
                b.allocate(t);
                assert_eq!(b.reserved(), 4 * MIB);
            }
        }
    }
}

/// The graph that has no verdict may be launched by a host that errs: its memory stays.
#[test]
fn a_pool_waits_for_the_verdict() {
    let (b, [s]) = bench(aside()).with_streams();
    let capture = reuse(&b, s, true);
    b.close(s, capture).unwrap();
    let refused = b.engine.destroy_pool(b.pool);
    assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::InUse { graphs: 1, .. }, .. })));
    // With the verdict under way.
    drop(b.engine);
    assert_eq!(b.driver.used_bytes(), 4 * MIB);
}

/// Captures that are small or searched for late uses are refused by the first step; where there is no
/// checker the verdict accepts without a thread.
#[test]
fn some_captures_are_judged_at_once() {
    for config in [aside().judge_aside(256), aside().find_late_uses(true)] {
        let (b, [s]) = bench(config).with_streams();
        let capture = reuse(&b, s, false);
        let refused = b.engine.close_capture(capture, b.graph(s));
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        b.driver.end_capture(s).unwrap();
        let capture = reuse(&b, s, true);
        b.close(s, capture).unwrap();
        assert!(b.engine.verdict(capture).unwrap().verified);
    }
    let (b, [s]) = bench(aside().check(false).programmatic(Programmatic::Deny)).with_streams();
    let capture = reuse(&b, s, true);
    b.close(s, capture).unwrap();
    assert!(!b.engine.verdict(capture).unwrap().verified);
}

#[test]
fn a_refusal_leaves_nothing_of_a_graph() {
    let driver = SimDriver::new(SimConfig::default());
    let engine = Arc::new(Engine::new(driver, aside()));
    let driver = engine.driver();
    let pool = Pool::new(&engine, PoolConfig::default());
    let stream = driver.create_stream().unwrap();
    for adopted in [false, true] {
        let capture = if adopted {
            driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
            Capture::adopt(&pool, stream).unwrap()
        } else {
            Capture::begin(&pool, stream, CaptureMode::Relaxed).unwrap()
        };
        for _ in 0..2 {
            drop(capture.allocate(4 * MIB, stream).unwrap());
            driver.launch_kernel(stream, Launch::default()).unwrap();
        }
        let block = capture.allocate(4 * MIB, stream).unwrap();
        driver.launch_kernel(stream, Launch::default()).unwrap();
        drop(block);
        let block = capture.allocate(4 * MIB, stream).unwrap();
        driver.launch_kernel(stream, Launch::default()).unwrap();
        let graph = graph_of(driver, stream);
        remove_last_edge(driver, stream);
        let refused = if adopted {
            let judging = capture.close(graph).unwrap();
            let graph = driver.end_capture(stream).unwrap();
            let executable = driver.instantiate(graph).unwrap();
            let refused = judging.verdict().map(|_| ());
            driver.destroy_executable(executable).unwrap();
            driver.destroy_graph(graph).unwrap();
            refused
        } else {
            capture.finish().map(|_| ())
        };
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        drop(block);
    }
    let id = pool.id();
    drop(pool);
    assert!(engine.pool_statistics(id).is_err(), "the pool is gone");
    assert_eq!(engine.driver().used_bytes(), 0);
}
