//! Ends of captures in two steps: the checker judges on a thread of its own while the host goes on.

use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;

use crate::common::{bench, remove_last_edge, Bench, MIB};
use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, Driver, GraphHandle, HostApi, StreamHandle,
};
use regraph::engine::{Block, Config, Engine, Error, GraphId, PoolConfig, PoolRefusal};
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

/// A capture in which one block takes another's place, by an edge that the host removes where it is to
/// be refused.
fn reuse(b: &Bench, stream: StreamHandle, sound: bool) -> CaptureId {
    let capture = b.begin(stream);
    let block = b.allocate(stream);
    b.launch(stream);
    b.engine.free(block.id).unwrap();
    let next = b.allocate(stream);
    assert_eq!(next.address, block.address);
    b.launch(stream);
    b.engine.free(next.id).unwrap();
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
    let b = bench(aside());
    let [s] = b.streams();
    let capture = reuse(&b, s, true);
    b.close(s, capture).unwrap();
    let refused = b.engine.destroy_pool(b.pool);
    assert!(
        matches!(refused, Err(Error::Pool { why: PoolRefusal::InUse { graphs: 1, .. }, .. })),
        "{refused:?}"
    );
    // With the verdict under way.
    drop(b.engine);
    assert_eq!(b.driver.used_bytes(), 4 * MIB);
}

/// Captures that are small or searched for late uses are refused by the first step; where there is no
/// checker the verdict accepts without a thread.
#[test]
fn some_captures_are_judged_at_once() {
    for config in [aside().judge_aside(256), aside().find_late_uses(true)] {
        let b = bench(config);
        let [s] = b.streams();
        let capture = reuse(&b, s, false);
        let refused = b.engine.close_capture(capture, b.graph(s));
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        b.driver.end_capture(s).unwrap();
        let capture = reuse(&b, s, true);
        b.close(s, capture).unwrap();
        assert!(b.engine.verdict(capture).unwrap().verified);
    }
    let b = bench(aside().check(false).programmatic(Programmatic::Deny));
    let [s] = b.streams();
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
        let CaptureStatus::Active { graph, .. } = driver.capture_of(stream).unwrap() else {
            panic!("the stream captures");
        };
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

/// A capture whose memory is a graph's, or may become one's.
struct Captured {
    stream: StreamHandle,
    id: CaptureId,
    sound: bool,
    closed: bool,
    graph: Option<GraphId>,
    /// Where its blocks have lain, and those that are live.
    places: Vec<Range<u64>>,
    live: Vec<Block>,
}

fn place(block: &Block) -> Range<u64> {
    block.address..block.address + block.bytes
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Captures begin, close, are judged and are released in any order, beside work outside them: that gets
/// no memory that a graph uses or may come to use, and no block lies on a live one.
#[test]
fn verdicts_may_come_at_any_time() {
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let b = bench(aside());
        let mut captures: Vec<Captured> = Vec::new();
        let mut outside: Vec<(StreamHandle, Block)> = Vec::new();
        // Outputs of captures that are over.
        let mut left: Vec<Block> = Vec::new();
        for _ in 0..250 {
            let row = random.usize(..captures.len().max(1));
            let open = captures.iter().filter(|it| !it.closed).count();
            match (random.u8(..12), captures.get_mut(row)) {
                (0, _) if open < 3 => {
                    let [stream] = b.streams();
                    captures.push(Captured {
                        stream,
                        id: b.begin(stream),
                        sound: true,
                        closed: false,
                        graph: None,
                        places: Vec::new(),
                        live: Vec::new(),
                    });
                }
                (1..=5, Some(it)) if !it.closed => {
                    let bytes = random.u64(1..6) * MIB;
                    let block = b.engine.allocate(b.pool, bytes, it.stream).unwrap();
                    b.launch(it.stream);
                    it.places.push(place(&block));
                    it.live.push(block);
                    if random.bool() {
                        let row = random.usize(..it.live.len());
                        b.engine.free(it.live.swap_remove(row).id).unwrap();
                    }
                }
                (6, Some(it)) if !it.closed => {
                    it.sound = random.bool();
                    if !it.sound {
                        let first = b.allocate(it.stream);
                        b.launch(it.stream);
                        b.engine.free(first.id).unwrap();
                        let second = b.engine.allocate(b.pool, first.bytes, it.stream).unwrap();
                        b.launch(it.stream);
                        // Elsewhere they need no order.
                        it.sound = !meet(&place(&first), &place(&second));
                        it.places.extend([place(&first), place(&second)]);
                        it.live.push(second);
                        if !it.sound {
                            b.engine.observe(it.stream).unwrap();
                            remove_last_edge(&b.driver, it.stream);
                        }
                    }
                    b.close(it.stream, it.id).unwrap();
                    it.closed = true;
                }
                (7, Some(it)) if it.closed && it.graph.is_none() => {
                    let verdict = b.engine.verdict(it.id);
                    assert_eq!(verdict.is_ok(), it.sound, "seed {seed}: {verdict:?}");
                    match verdict {
                        Ok(report) => it.graph = Some(report.graph),
                        Err(_) => left.extend(captures.swap_remove(row).live),
                    }
                }
                (8, Some(it)) if it.closed => {
                    match it.graph {
                        Some(graph) => b.engine.release_graph(graph).unwrap(),
                        None => b.engine.abandon_capture(it.id).unwrap(),
                    }
                    left.extend(captures.swap_remove(row).live);
                }
                (9 | 10, _) => {
                    let [stream] = b.streams();
                    let bytes = random.u64(1..6) * MIB;
                    let block = b.engine.allocate(b.pool, bytes, stream).unwrap();
                    let mut graphs = captures.iter().flat_map(|it| &it.places);
                    let taken = graphs.find(|it| meet(it, &place(&block)));
                    assert_eq!(taken, None, "seed {seed}: {block:?} lies on a graph's memory");
                    outside.push((stream, block));
                }
                (11, _) if !outside.is_empty() => {
                    let row = random.usize(..outside.len());
                    b.engine.free(outside.swap_remove(row).1.id).unwrap();
                    if let Some(block) = left.pop() {
                        b.engine.free(block.id).unwrap();
                    }
                }
                _ => {}
            }
            let all = captures.iter().flat_map(|it| &it.live).chain(&left);
            let mut live: Vec<_> = all.chain(outside.iter().map(|it| &it.1)).map(place).collect();
            live.sort_by_key(|it| it.start);
            assert!(live.windows(2).all(|two| !meet(&two[0], &two[1])), "seed {seed}");
        }
    }
}
