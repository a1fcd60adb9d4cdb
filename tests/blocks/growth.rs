//! What growth costs in captures: few mappings, and not a byte more at the end.

use std::sync::Arc;

use crate::common::{bench, bench_on, Bench, MIB};
use crate::device::{tagged, trace};
use regraph::driver::{CaptureMode, Driver, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Block, Config, Error, PoolConfig, PoolRefusal};
use regraph::settings::Settings;
use regraph_cli::replay::{replay, Options, Replayed};
use regraph_lab::sweep::{Sizes, Workload};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Work};
use regraph_trace::Trace;

const STEP: u64 = 64 * MIB;

fn config(step: u64) -> Config {
    Config::default().settings(Settings::default().growth_step_bytes(Some(step)).history(10_000))
}

fn write(b: &Bench, stream: StreamHandle, block: Block, tag: u64) {
    let outputs = [tagged(block, tag)];
    b.driver.launch(stream, Work { outputs: &outputs, ..Work::default() }, false).unwrap();
}

fn holds(b: &Bench, block: Block, tag: u64) -> bool {
    // Some stream may be capturing.
    b.driver.complete_all_checked().unwrap();
    let found = b.driver.read_tags(block.address, block.bytes).unwrap();
    found.iter().all(|&found| found == tag)
}

/// Figures and snapshot agree, also on the blocks of the bench's only pool.
fn judge(b: &Bench) {
    let snapshot = b.judge_figures();
    if !b.engine.host().is_suspended(b.pool).unwrap() {
        let all = b.engine.statistics().unwrap().all;
        let blocks: usize = snapshot.segments.iter().map(|segment| segment.blocks.len()).sum();
        assert_eq!(blocks as u64, all.active.current + all.inactive_split.current);
    }
}

/// A capture of blocks of these sizes that all stay live, each written by a kernel.
fn fill(b: &Bench, stream: StreamHandle, sizes: &[u64]) -> Result<Vec<Block>, Error> {
    let block = |(number, &bytes): (usize, &u64)| {
        let block = b.engine.allocate(b.pool, bytes, stream)?;
        write(b, stream, block, 1 + number as u64);
        Ok(block)
    };
    sizes.iter().enumerate().map(block).collect()
}

fn run(trace: &Trace, step: u64) -> (Replayed, Arc<SimDriver>) {
    let driver =
        Arc::new(SimDriver::new(SimConfig { total_bytes: 64 << 30, ..Default::default() }));
    let options = Options { config: config(step), ..Options::default() };
    let replayed = replay(&driver, trace, &options).unwrap();
    (replayed, driver)
}

/// What the driver's calls for memory take on an H200 until all is held, in microseconds.
fn cost(driver: &SimDriver) -> u64 {
    let of = [(Call::Create, 8), (Call::Map, 1), (Call::SetAccess, 22)];
    of.into_iter().map(|(call, cost)| driver.calls(call) * cost).sum()
}

/// Both ways place alike and hold alike; the mappings that each needed, and what they cost.
fn compare(trace: &Trace) -> [(u64, u64); 2] {
    let (small, small_driver) = run(trace, 0);
    let (large, large_driver) = run(trace, STEP);
    assert_eq!(small.placements, large.placements);
    assert_eq!(small.reserved_bytes, large.reserved_bytes);
    assert_eq!(small.nodes, large.nodes);
    [small_driver, large_driver].map(|driver| (driver.calls(Call::SetAccess), cost(&driver)))
}

#[test]
fn steps_change_neither_places_nor_what_is_held() {
    for sizes in [Sizes::Fixed, Sizes::Mixed] {
        for workload in Workload::all(sizes, 1) {
            if workload.operations > 1_000 {
                continue;
            }
            let [small, large] = compare(&workload.trace().unwrap());
            assert!(large.0 <= small.0 + 2, "{workload:?}: {small:?}, {large:?}");
        }
    }
}

#[test]
fn recorded_captures_hold_what_they_held() {
    let held = [("decoder_s1", 46), ("moe_s6", 156), ("googlenet_s4", 246), ("pipeline_s5", 256)];
    for (name, held) in held {
        let trace = trace(name);
        compare(&trace);
        assert_eq!(run(&trace, STEP).0.reserved_bytes / MIB, held, "{name}");
    }
}

/// The table of all captures of the sweep: how many mappings, and what they cost on an H200.
#[test]
#[ignore = "a table"]
fn mappings_of_the_sweep() {
    for sizes in [Sizes::Fixed, Sizes::Mixed] {
        for workload in Workload::all(sizes, 1) {
            let trace = workload.trace().unwrap();
            let [small, large] = compare(&trace);
            let held = run(&trace, STEP).0.reserved_bytes / MIB;
            println!("{sizes} {workload:?}: {held} MiB; {small:?}, {large:?}");
        }
    }
}

#[test]
fn a_capture_that_grows_maps_seldom() {
    for (count, most) in [(1, 1), (64, 10), (512, 26)] {
        let (b, [s], capture) = bench(config(STEP)).capturing();
        fill(&b, s, &vec![2 * MIB; count]).unwrap();
        let [mapped, whole] = [Call::SetAccess, Call::Create].map(|call| b.driver.calls(call));
        assert!(mapped <= most && mapped == whole, "{count}: {mapped}");
        judge(&b);
        let reserved = b.reserved();
        b.finish(s, capture);
        // One piece is exchanged at most.
        let exchanged = b.driver.calls(Call::SetAccess) - mapped;
        assert!(exchanged <= 1);
        assert_eq!(b.reserved(), 2 * MIB * count as u64);
        let peak = b.engine.statistics().unwrap().all.reserved_bytes.peak;
        assert!(peak >= reserved + exchanged, "what was held is told, also if for a moment");
        judge(&b);
    }
}

#[test]
fn what_fitted_fits_under_every_limit() {
    // Of which some are small blocks.
    let sizes: Vec<u64> = (0..30).flat_map(|_| [3 * MIB, MIB]).collect();
    let needed = 30 * 4 * MIB;
    for below in [0, 2 * MIB] {
        let allowed = needed - below;
        let of_device = SimConfig { total_bytes: allowed, ..SimConfig::default() };
        let settings = |limit| {
            let settings = Settings::default().growth_step_bytes(Some(STEP));
            Config::default().settings(settings.memory_limit_bytes(limit))
        };
        let limited = [
            (bench_on(of_device, config(STEP)), None),
            (bench(settings(Some(allowed))), None),
            (bench(config(STEP)), Some(allowed)),
        ];
        for (mut b, most) in limited {
            if let Some(most) = most {
                b.pool = b.engine.create_pool(PoolConfig::default().max_bytes(most));
            }
            let [s] = b.streams();
            let capture = b.begin(s);
            let filled = fill(&b, s, &sizes);
            assert_eq!(filled.is_ok(), below == 0, "{filled:?}");
            assert!(b.engine.statistics().unwrap().all.reserved_bytes.peak <= allowed);
            if filled.is_ok() {
                b.finish(s, capture);
                assert_eq!(b.reserved(), needed);
            }
            judge(&b);
        }
    }
}

/// Work outside that lies in a piece keeps it, where nothing can be exchanged at the time.
#[test]
fn work_outside_beside_another_thread_s_capture_keeps_what_it_wrote() {
    // Wherever in its piece the memory lies.
    (1..16).for_each(work_outside_beside_another_thread_s_capture);
}

fn work_outside_beside_another_thread_s_capture(blocks: usize) {
    let (b, [s, t]) = bench(config(STEP)).with_streams();
    let (send, receive) = std::sync::mpsc::channel();
    let (done, ended) = std::sync::mpsc::channel();
    let eager = std::thread::scope(|scope| {
        let b = &b;
        scope.spawn(move || {
            let capture = b.begin(s);
            fill(b, s, &vec![MIB + 512; blocks]).unwrap();
            // Free for everyone, in a piece with room behind it.
            let unused = b.engine.allocate(b.pool, MIB + 512, s).unwrap();
            b.engine.free(unused.id).unwrap();
            send.send(unused.address).unwrap();
            ended.recv().unwrap();
            b.finish(s, capture);
        });
        let free = receive.recv().unwrap();
        let eager = b.engine.allocate(b.pool, MIB + 512, t).unwrap();
        assert_eq!(eager.address, free);
        write(b, t, eager, 99);
        done.send(()).unwrap();
        eager
    });
    assert!(holds(&b, eager, 99));
    judge(&b);
}

/// The graph of a capture that does not map ahead may run before its end: nothing of what it has is
/// exchanged at the end of another.
#[test]
fn a_capture_that_may_run_keeps_what_is_behind_its_blocks() {
    let (b, [s, t]) = bench(config(STEP)).with_streams();
    let first = b.begin(s);
    fill(&b, s, &[2 * MIB + 512; 4]).unwrap();
    b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
    let second = b.engine.host().begin_served(b.pool, t, Some(0)).unwrap();
    // Fits into the rest of the last piece.
    let block = fill(&b, t, &[MIB + 512]).unwrap()[0];
    let behind = b.driver.behind(block.address, block.bytes);
    assert!(behind.is_some());
    b.finish(s, first);
    assert_eq!(b.driver.behind(block.address, block.bytes), behind);
    b.finish(t, second);
    judge(&b);
}

#[test]
fn another_thread_s_capture_is_not_pulled_from_under_it() {
    let device = SimConfig { total_bytes: 40 * MIB, ..SimConfig::default() };
    let (b, [s, t]) = bench_on(device, config(STEP)).with_streams();
    let (send, receive) = std::sync::mpsc::channel();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let b = &b;
        scope.spawn(move || {
            let capture = b.begin(s);
            fill(b, s, &[2 * MIB; 5]).unwrap();
            send.send(()).unwrap();
            ended.recv().unwrap();
            b.finish(s, capture);
        });
        receive.recv().unwrap();
        let held = b.reserved();
        let unmapped = b.driver.calls(Call::Unmap);
        let other = b.engine.create_pool(PoolConfig::default());
        let refused = b.engine.allocate(other, 30 * MIB, t);
        // In the pool itself it stays where it is, and is there for work outside.
        let placed = b.engine.allocate(b.pool, 2 * MIB, t);
        let after = (b.reserved(), b.driver.calls(Call::Unmap));
        done.send(()).unwrap();
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        assert_eq!((placed.is_ok(), after), (true, (held, unmapped)));
    });
    judge(&b);
}

/// Ends a capture with a piece to exchange in a pool where other blocks live, while the n-th call fails and
/// perhaps another, and then resumes the pool while calls fail. Whether there was an n-th call, and
/// whether the pool was short of a part.
fn end_failing_beside_others(n: u64, second: Option<u64>, kind: &ErrorKind) -> (bool, bool) {
    let (b, [s, t]) = bench(config(STEP)).with_streams();
    let own = b.engine.allocate(b.pool, 4 * MIB, t).unwrap();
    write(&b, t, own, 91);
    let first = b.begin(s);
    let output = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    write(&b, s, output, 92);
    b.engine.end_capture(first, b.graph(s)).unwrap();
    let graph = b.driver.end_capture(s).unwrap();
    let executable = b.driver.instantiate(graph).unwrap();
    b.driver.replay(executable, s).unwrap();
    let lives = |when: &str| {
        assert!(holds(&b, own, 91), "{n}, {second:?}: a block lost what it held {when}");
        assert!(holds(&b, output, 92), "{n}, {second:?}: an output lost what it held {when}");
    };
    lives("before anything failed");
    let capture = b.begin(s);
    fill(&b, s, &[2 * MIB; 5]).unwrap();
    let graph = b.driver.end_capture(s).unwrap();
    let started = b.driver.total_calls();
    b.driver.fail_any_nth(n, kind.clone());
    if let Some(second) = second {
        b.driver.fail_any_nth(n + second, kind.clone());
    }
    let ended = b.engine.end_capture(capture, graph);
    let failed = b.driver.total_calls() - started > n;
    b.driver.forget_failures();
    lives("when the capture ended");
    let short = b.engine.host().is_short(b.pool).unwrap();
    assert_eq!(b.engine.host().is_suspended(b.pool).unwrap(), short);
    if short {
        assert!(matches!(ended, Err(Error::Driver(_))), "{ended:?}");
        let asked = b.engine.allocate(b.pool, MIB, t);
        assert!(matches!(asked, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })));
        let refused = b.engine.host().suspend_discarding_outputs(b.pool);
        assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::HasBlocks { .. }, .. })));
        for n in 0.. {
            let started = b.driver.total_calls();
            b.driver.lose_device_at(n, ErrorKind::InvalidValue);
            let resumed = b.engine.host().resume_pool(b.pool);
            let failed = b.driver.total_calls() - started > n;
            b.driver.forget_failures();
            lives("when resuming failed");
            assert_eq!(resumed.is_err(), b.engine.host().is_short(b.pool).unwrap());
            if !failed {
                break;
            }
        }
        b.engine.host().resume_pool(b.pool).unwrap();
    }
    // What could not be released goes now.
    b.engine.empty_cache().unwrap();
    lives("at the end");
    judge(&b);
    (failed, short)
}

#[test]
fn what_lives_in_a_pool_outlasts_failed_exchanges() {
    let mut short = 0;
    for kind in [ErrorKind::OutOfMemory, ErrorKind::InvalidValue] {
        for second in [None, Some(0), Some(1), Some(2), Some(3), Some(4)] {
            let mut n = 0;
            loop {
                let (failed, was_short) = end_failing_beside_others(n, second, &kind);
                short += u32::from(was_short);
                if !failed {
                    break;
                }
                n += 1;
            }
            assert!(n > 5, "an exchange makes calls");
        }
    }
    assert!(short > 0, "a piece was never lost");
}

#[test]
fn a_pool_that_lost_memory_refuses_its_captures() {
    let (b, [s, t, u]) = bench(config(STEP)).with_streams();
    // Freed, and in use until work completes that goes on all the while: its free is told once.
    let waiting = b.engine.allocate(b.pool, 2 * MIB, u).unwrap();
    b.engine.record_stream(waiting.id, t).unwrap();
    write(&b, t, waiting, 91);
    b.engine.free(waiting.id).unwrap();
    let [first, second] = [s, t].map(|stream| b.begin(stream));
    fill(&b, s, &[2 * MIB; 5]).unwrap();
    // The new piece cannot be mapped, nor the old one again.
    b.driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
    b.driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
    assert!(matches!(b.try_finish(s, first), Err(Error::Driver(_))));
    assert!(b.engine.host().is_suspended(b.pool).unwrap());
    judge(&b);
    b.engine.host().resume_pool(b.pool).unwrap();
    judge(&b);
    // It has nothing there, but it might have.
    assert!(matches!(b.try_finish(t, second), Err(Error::Driver(_))));
    assert_eq!(b.engine.statistics().unwrap().counts.num_captures_refused, 2);
    b.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let third = b.engine.begin_capture(b.pool, s).unwrap();
    fill(&b, s, &[2 * MIB; 5]).unwrap();
    b.finish(s, third);
    judge(&b);
}

/// A block's memory comes in several pieces or not at all.
#[test]
fn growth_that_fails_halfway_leaves_nothing() {
    for call in [Call::Create, Call::Map, Call::SetAccess] {
        for (n, in_a_hole) in (0..4).flat_map(|n| [(n, false), (n, true)]) {
            let (b, [stream]) = bench(Config::default()).with_streams();
            let allocate = |bytes| b.engine.allocate(b.pool, bytes, stream);
            let (hole, behind) = (allocate(100 * MIB).unwrap(), allocate(2 * MIB).unwrap());
            if in_a_hole {
                b.engine.free(hole.id).unwrap();
                b.driver.complete(stream).unwrap();
                b.engine.empty_cache().unwrap();
            }
            let before = b.driver.used_bytes();
            b.driver.fail_nth(call, n, ErrorKind::NotPermitted);
            let refused = allocate(100 * MIB);
            // All pieces are given access at once.
            assert_eq!(refused.is_err(), call != Call::SetAccess || n == 0, "{call:?} {n}");
            if refused.is_err() {
                assert_eq!(b.driver.used_bytes(), before, "{call:?} {n}");
            }
            judge(&b);
            let block = refused.or_else(|_| allocate(100 * MIB)).unwrap();
            assert_eq!(block.address == hole.address, in_a_hole);
            assert!(block.address < behind.address || !in_a_hole);
            write(&b, stream, block, 1);
            assert!(holds(&b, block, 1));
            assert_eq!(b.engine.host().verify(), Ok(()));
        }
    }
}

/// Where the blocks of a capture lie in its pool, and what that holds.
type Held = (Vec<u64>, u64);

/// Captures of blocks of these sizes, each in a pool of its own, and how often memory was mapped and unmapped in each.
fn captures_in_pools(step: u64, captures: &[Vec<u64>]) -> (Vec<Held>, Vec<[u64; 2]>) {
    let mut b = bench(config(step));
    let stream = b.driver.create_stream().unwrap();
    let in_pool = |sizes: &Vec<u64>| {
        b.pool = b.engine.create_pool(PoolConfig::default());
        let kinds = [Call::Map, Call::Unmap];
        let before = kinds.map(|kind| b.driver.calls(kind));
        let capture = b.begin(stream);
        let blocks = fill(&b, stream, sizes).unwrap();
        b.end(stream, capture);
        judge(&b);
        let first = blocks.iter().map(|block| block.address).min().unwrap();
        let places = blocks.iter().map(|block| block.address - first).collect();
        let held = b.engine.pool_statistics(b.pool).unwrap().reserved;
        let after = kinds.map(|kind| b.driver.calls(kind));
        ((places, held), [0, 1].map(|kind| after[kind] - before[kind]))
    };
    captures.iter().map(in_pool).unzip()
}

/// What the latest two captures held is mapped at once; a larger one goes on from there, and a smaller one gives back.
#[test]
fn a_capture_like_the_latest_ones_maps_once() {
    let sizes = |count: usize| vec![2 * MIB; count];
    let captures = [5, 5, 5, 9, 9, 9, 3, 5].map(sizes);
    let (places, calls) = captures_in_pools(STEP, &captures);
    assert_eq!(calls[2], [1, 0], "{calls:?}");
    assert_eq!(calls[5], [1, 0], "{calls:?}");
    // Nine were usual: what is over is exchanged. Then three are.
    assert_eq!(calls[6], [2, 1], "{calls:?}");
    assert_eq!(calls[7], [2, 0], "{calls:?}");
    assert_eq!(places, captures_in_pools(0, &captures).0);
}

/// CUDA has addresses for 128 TiB in a process, so pools cannot reserve a large device's size each.
#[test]
fn three_thousand_pools_of_a_large_device_have_addresses() {
    let (b, [stream]) = bench(Config::default()).with_streams();
    let pools: Vec<_> = (0..3_000).map(|_| b.engine.create_pool(PoolConfig::default())).collect();
    for &pool in &pools {
        for bytes in [MIB / 2, 2 * MIB] {
            b.engine.allocate(pool, bytes, stream).unwrap();
        }
    }
    // The last has reserved little; the rest of the device is in its reach all the same.
    let last = pools[pools.len() - 1];
    let rest = b.driver.memory_info().unwrap().free;
    for _ in 0..rest / (512 * MIB) {
        b.engine.allocate(last, 512 * MIB, stream).unwrap();
    }
    let free = b.driver.memory_info().unwrap().free;
    assert!(free < 512 * MIB, "{free} bytes are free");
}

/// What others in the process have reserved is not there.
#[test]
fn a_pool_reserves_less_where_addresses_are_scarce() {
    let (b, [stream]) = bench(Config::default()).with_streams();
    let most = (1 << 47) - (5 << 30);
    let others = b.driver.reserve(most).unwrap();
    let allocate = || b.engine.allocate(b.pool, 3 << 30, stream);
    let first = allocate().unwrap();
    assert!(allocate().unwrap_err().out_of_memory().is_some());
    b.driver.unreserve(others, most).unwrap();
    assert_ne!(allocate().unwrap().address, first.address);
}
