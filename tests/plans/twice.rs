//! Capturing twice: the second capture lies by a layout that was planned from the first one, where
//! it is the same, and is as good as any other where it is not.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::common::{bench_on, Bench, Draw, MIB};
use crate::device::trace;
use regraph::driver::{CaptureMode, Driver, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{
    BlockId, CaptureReport, Config, Engine, Error, Followed, GraphId, PoolConfig, PoolId, Unknown,
    Why,
};
use regraph::graphs::{self, Pool};
use regraph::settings::{Programmatic, Reuse};
use regraph_cli::replay::{replay, Options, Plan, Replayed};
use regraph_lab::sweep::{Sizes, Workload};
use regraph_plan::layout::Layout;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};
use regraph_trace::Trace;

pub(crate) const SUPPORTS: [MemorySupport; 2] =
    [MemorySupport::Mapped { granularity: 2 * MIB }, MemorySupport::Allocated];

/// What a host does in a capture. Streams and blocks by number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Launch(usize, bool),
    Wait(usize, usize),
    Allocate(usize, u64, usize),
    Use(usize, usize),
    LastUse(usize, usize),
    Free(usize),
}

/// A request costs no more, however many have found no place before it.
#[test]
fn a_place_is_searched_for_among_so_many() {
    const FAR: usize = 2_080;
    let (b, [s]) = bench_on(SimConfig::default(), Config::default()).with_streams();
    let size = |row: usize| if row == FAR { 1024 } else { 512 };
    let first = b.begin(s);
    let allocate = |bytes: u64| b.engine.allocate(b.pool, bytes, s).unwrap();
    (0..=FAR).map(size).for_each(|bytes| _ = allocate(bytes));
    let layout = b.engine.plans().layout_of(first).unwrap();
    b.engine.abandon_capture(first).unwrap();
    b.driver.end_capture(s).unwrap();
    let second = b.begin(s);
    b.engine.plans().follow_layout(second, layout).unwrap();
    allocate(512);
    (0..=FAR).for_each(|_| _ = allocate(1536));
    allocate(1024);
    assert_eq!(b.finish(s, second).layout.unwrap().followed, 1);
}

pub(crate) fn program(seed: u64, streams: u64, steps: usize, early: bool) -> Vec<Step> {
    let mut draw = Draw(seed);
    let mut made = Vec::new();
    let (mut live, mut next) = (Vec::new(), 0);
    while made.len() < steps {
        let stream = draw.below(streams) as usize;
        let other = draw.below(streams) as usize;
        let picked = |draw: &mut Draw, live: &[usize]| live[draw.below(live.len() as u64) as usize];
        match draw.below(10) {
            0..=2 => made.push(Step::Launch(stream, early && draw.below(4) == 0)),
            3 if other != stream => made.push(Step::Wait(stream, other)),
            4..=6 => {
                let bytes = [700, 40 << 10, 3 * MIB, 5 * MIB, 512][draw.below(5) as usize];
                made.push(Step::Allocate(next, bytes, stream));
                if draw.below(5) > 0 {
                    made.push(Step::Launch(stream, false));
                }
                live.push(next);
                next += 1;
            }
            7 if !live.is_empty() => {
                let block = picked(&mut draw, &live);
                made.push(Step::Use(block, stream));
                if draw.below(3) == 0 {
                    made.push(Step::LastUse(block, stream));
                }
            }
            8..=9 if live.len() > 3 => {
                let block = live.remove(draw.below(live.len() as u64) as usize);
                made.push(Step::Free(block));
            }
            _ => {}
        }
    }
    made
}

/// Does the steps with blocks of a pool, and returns those that are left. A request may fail, where that is said, and
/// its block is left out then.
pub(crate) fn perform(
    (bench, pool): (&Bench, PoolId),
    streams: &[StreamHandle],
    steps: &[Step],
    may_fail: bool,
) -> Vec<BlockId> {
    let mut live = BTreeMap::new();
    perform_with(&mut live, (bench, pool), streams, steps, may_fail);
    live.into_values().collect()
}

/// Does the steps with blocks of a pool, and with `live` ones from before, to which those are added that are left.
pub(crate) fn perform_with(
    live: &mut BTreeMap<usize, BlockId>,
    (bench, pool): (&Bench, PoolId),
    streams: &[StreamHandle],
    steps: &[Step],
    may_fail: bool,
) {
    let Bench { engine, driver, .. } = bench;
    for &step in steps {
        match step {
            Step::Launch(stream, early) => {
                driver.launch(streams[stream], Work::default(), early).unwrap();
            }
            Step::Wait(stream, on) => driver.wait(streams[stream], streams[on]).unwrap(),
            Step::Allocate(block, bytes, stream) => {
                match engine.allocate(pool, bytes, streams[stream]) {
                    Ok(given) => drop(live.insert(block, given.id)),
                    Err(error) => assert!(may_fail, "{error}"),
                }
            }
            Step::Use(block, stream) => {
                if let Some(&id) = live.get(&block) {
                    engine.record_stream(id, streams[stream]).unwrap();
                }
            }
            Step::LastUse(block, stream) => {
                if let Some(&id) = live.get(&block) {
                    engine.record_use(id, streams[stream]).unwrap();
                }
            }
            Step::Free(block) => {
                if let Some(id) = live.remove(&block) {
                    engine.free(id).unwrap();
                }
            }
        }
    }
}

/// Does the steps in a capture that has begun on the first stream, which all others join and come back to.
pub(crate) fn run_on(
    bench: &Bench,
    streams: &[StreamHandle],
    steps: &[Step],
    may_fail: bool,
) -> Vec<BlockId> {
    for &stream in &streams[1..] {
        bench.driver.wait(stream, streams[0]).unwrap();
    }
    let live = perform((bench, bench.pool), streams, steps, may_fail);
    for &stream in &streams[1..] {
        bench.driver.wait(streams[0], stream).unwrap();
    }
    live
}

pub(crate) fn run(bench: &Bench, streams: &[StreamHandle], steps: &[Step]) -> Vec<BlockId> {
    run_on(bench, streams, steps, false)
}

/// Captures the steps, throws the graph away and returns a layout.
pub(crate) fn rehearse(bench: &Bench, streams: &[StreamHandle], steps: &[Step]) -> Layout {
    let capture = bench.begin(streams[0]);
    bench.launch(streams[0]);
    let live = run(bench, streams, steps);
    let layout = bench.engine.plans().layout_of(capture).unwrap();
    live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
    bench.engine.abandon_capture(capture).unwrap();
    let graph = bench.driver.end_capture(streams[0]).unwrap();
    bench.driver.destroy_graph(graph).unwrap();
    layout
}

pub(crate) fn follow(
    bench: &Bench,
    streams: &[StreamHandle],
    steps: &[Step],
    layout: Layout,
) -> (CaptureReport, Vec<BlockId>) {
    let capture = bench.begin(streams[0]);
    bench.engine.plans().follow_layout(capture, layout).unwrap();
    bench.launch(streams[0]);
    let live = run(bench, streams, steps);
    let report = bench.finish(streams[0], capture);
    assert!(report.verified);
    (report, live)
}

pub(crate) fn device(support: MemorySupport) -> SimConfig {
    SimConfig { total_bytes: 4 << 30, support }
}

pub(crate) fn followed(report: &CaptureReport) -> Followed {
    report.layout.clone().unwrap()
}

#[test]
fn the_same_again_lies_where_it_was_planned() {
    for support in SUPPORTS {
        for seed in 0..24 {
            let (bench, streams) = bench_on(device(support), Config::default()).with_streams::<3>();
            let steps = program(seed, 1 + seed % 3, 200, false);
            let layout = rehearse(&bench, &streams, &steps);
            let online = bench.reserved();
            let planned = layout.bytes();
            let (report, live) = follow(&bench, &streams, &steps, layout);
            let layout = followed(&report);
            assert!(layout.is_whole(), "seed {seed}: {layout}");
            assert_eq!(bench.reserved(), planned.next_multiple_of(2 * MIB), "seed {seed}");
            assert!(bench.reserved() <= online, "seed {seed}");
            nothing_stays(&bench, live, report.graph);
        }
    }
}

#[test]
fn every_policy_may_be_followed() {
    for seed in 0..8 {
        for &programmatic in &[Programmatic::Lag, Programmatic::Trust] {
            for &reuse in Reuse::ALL {
                let config = Config::default().programmatic(programmatic).reuse(reuse);
                let (bench, streams) =
                    bench_on(device(SUPPORTS[seed as usize % 2]), config).with_streams::<3>();
                let steps = program(seed, 3, 200, true);
                let layout = rehearse(&bench, &streams, &steps);
                let (report, _) = follow(&bench, &streams, &steps, layout);
                let layout = followed(&report);
                // Blocks that several streams used wait for the end then; no layout knows.
                assert!(layout.is_whole() || reuse == Reuse::Deferred, "seed {seed}: {layout}");
            }
        }
    }
}

/// Everything that can be different at one step.
pub(super) fn variants(steps: &[Step], at: usize) -> Vec<Vec<Step>> {
    let mut variants = Vec::new();
    let mut with = |change: &dyn Fn(&mut Vec<Step>)| {
        let mut changed = steps.to_vec();
        change(&mut changed);
        variants.push(changed);
    };
    with(&|steps| _ = steps.remove(at));
    with(&|steps| steps.insert(at, Step::Allocate(10_000, 3 * MIB, 1)));
    with(&|steps| steps.insert(at, Step::Wait(0, 1)));
    if at + 1 < steps.len() {
        with(&|steps| steps.swap(at, at + 1));
    }
    if let Step::Allocate(block, bytes, stream) = steps[at] {
        with(&|steps| steps[at] = Step::Allocate(block, bytes + 512, stream));
        with(&|steps| steps[at] = Step::Allocate(block, bytes, (stream + 1) % 3));
    }
    variants
}

#[test]
fn anything_else_is_served_all_the_same() {
    let (mut whole, mut fell) = (0, HashSet::new());
    for (seed, support) in [(3, SUPPORTS[0]), (5, SUPPORTS[1])] {
        let steps = program(seed, 3, 90, false);
        for at in 0..steps.len() {
            for changed in variants(&steps, at) {
                let (bench, streams) =
                    bench_on(device(support), Config::default()).with_streams::<3>();
                let layout = rehearse(&bench, &streams, &steps);
                let (report, live) = follow(&bench, &streams, &changed, layout);
                let layout = followed(&report);
                match layout.fell_back {
                    None => whole += 1,
                    Some(fallen) => {
                        assert!(fallen.block <= layout.followed);
                        fell.insert(std::mem::discriminant(&fallen.why));
                    }
                }
                nothing_stays(&bench, live, report.graph);
            }
        }
    }
    assert!(whole > 50, "what matters not is followed: {whole}");
    let [planned, found] = [0, 0];
    for why in [Why::Taken, Why::More, Why::Size { planned: 0, found: 0 }] {
        assert!(fell.contains(&std::mem::discriminant(&why)), "{why}");
    }
    let stream = Why::Stream { planned, found };
    assert!(fell.contains(&std::mem::discriminant(&stream)));
}

/// With its blocks and its graph a pool gives all memory back.
pub(super) fn nothing_stays(bench: &Bench, live: Vec<BlockId>, graph: GraphId) {
    live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
    bench.engine.release_graph(graph).unwrap();
    bench.driver.complete_all();
    bench.engine.destroy_pool(bench.pool).unwrap();
    assert_eq!(bench.driver.used_bytes(), 0);
}

/// Kernels find the tags that were written for them, in recorded work and in such as a seed draws, which `config` goes
/// by as well.
pub(super) fn tags_hold<P: Program>(
    driver: &Arc<P>,
    plan: Plan,
    config: fn(u64) -> Config,
) -> Vec<Replayed> {
    let replayed = |trace: &Trace, seed, config| {
        let options = Options {
            config,
            tags: true,
            seed,
            delay: 2_000,
            launches: 3,
            plan,
            ..Options::default()
        };
        let replayed = replay(driver, trace, &options).unwrap();
        assert!(replayed.verified, "seed {seed}");
        replayed
    };
    let recorded = ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5"].into_iter();
    let recorded = recorded.map(|name| replayed(&trace(name), 1, Config::default()));
    let drawn = (0..6).map(|seed| {
        let workload = Workload {
            streams: [2, 4, 8][seed as usize % 3],
            operations: 500,
            alloc: 0.3,
            free: 0.28,
            join: 0.3,
            sizes: Sizes::Mixed,
            seed,
        };
        replayed(&workload.trace().unwrap(), seed, config(seed))
    });
    recorded.chain(drawn).collect()
}

fn all_tags_hold<P: Program>(driver: &Arc<P>) {
    let config = |seed| Config::default().programmatic(Programmatic::ALL[seed as usize % 3]);
    for replayed in tags_hold(driver, Plan::Twice, config) {
        assert!(replayed.layouts.iter().all(|layout| layout.is_whole()), "{:?}", replayed.layouts);
    }
}

#[test]
fn tags_hold_on_the_simulated_driver() {
    for support in SUPPORTS {
        all_tags_hold(&Arc::new(SimDriver::new(device(support))));
    }
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tags_hold_on_a_gpu() {
    let gpu = crate::device::gpu::open();
    all_tags_hold(&gpu.driver);
}

#[test]
fn several_captures_share_one_pool() {
    for support in SUPPORTS {
        let (bench, streams) = bench_on(device(support), Config::default()).with_streams::<3>();
        let mut most = 0;
        // The largest first: then the others lie in its memory.
        let mut programs: Vec<_> = (0..4).map(|seed| program(seed, 3, 150, false)).collect();
        programs.sort_by_key(|steps| {
            let (alone, streams) = bench_on(device(support), Config::default()).with_streams::<3>();
            std::cmp::Reverse(rehearse(&alone, &streams, steps).bytes())
        });
        for steps in &programs {
            let layout = rehearse(&bench, &streams, steps);
            most = most.max(layout.bytes());
            let (report, live) = follow(&bench, &streams, steps, layout);
            assert!(followed(&report).is_whole(), "{}", followed(&report));
            // No outputs: they would keep their memory from the next graph.
            live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
            bench.driver.complete_all();
        }
        assert_eq!(bench.reserved(), most.next_multiple_of(2 * MIB));
    }
}

#[test]
fn a_capture_without_a_journal_has_no_layout() {
    let config = Config::default().check(false);
    let (bench, [stream], capture) = bench_on(SimConfig::default(), config).capturing();
    assert!(matches!(bench.engine.plans().layout_of(capture), Err(Error::NoJournal { .. })));
    bench.engine.host().keep_journals(true).unwrap();
    let report = bench.finish(stream, capture);
    assert_eq!(report.layout, None);
    let capture = bench.begin(stream);
    assert_eq!(bench.engine.plans().layout_of(capture).unwrap().bytes(), 0);
    bench.finish(stream, capture);
    let refused = bench.engine.plans().layout_of(capture);
    assert!(matches!(refused, Err(Error::Unknown { what: Unknown::Capture(_), .. })));
    let layout = Layout::default();
    assert!(bench.engine.plans().follow_layout(capture, layout).is_err());
}

#[test]
fn work_that_is_refused_is_not_captured_for_the_second_time() {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let pool = Pool::new(&engine, PoolConfig::default());
    let s = driver.create_stream().unwrap();
    let mut calls = 0;
    let captured = pool.capture_twice(s, CaptureMode::Relaxed, |capture| {
        calls += 1;
        let launch = || driver.launch(s, Work::default(), false);
        launch()?;
        let before = driver.terminals(s)?;
        let first = capture.allocate(3 * MIB, s)?;
        launch()?;
        drop(first);
        let second = capture.allocate(3 * MIB, s)?;
        driver.set_terminals(s, &before)?;
        launch()?;
        Ok::<_, graphs::Error>(second)
    });
    assert!(matches!(captured, Err(graphs::Error::Refused(_))));
    assert_eq!(calls, 1);
    assert!(!driver.is_capturing(s).unwrap());
}
