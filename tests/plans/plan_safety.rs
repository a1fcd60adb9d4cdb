//! Captures whose memory comes at their end, where something goes wrong or comes at an odd moment.

use std::sync::Arc;

use crate::common::{self, bench, bench_on, deref, MIB};
use crate::device::{launch, tagged};
use regraph::driver::{
    CaptureId, CaptureMode, Driver, ErrorKind, ExecutableHandle, HostApi, MemorySupport,
    StreamHandle,
};
use regraph::engine::{Block, CaptureReport, Config, Engine, Error, PlanReport, PoolConfig};
use regraph::plan::Options;
use regraph::settings::Programmatic;
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

/// The granularity of the device, in bytes.
const PAGE: u64 = 2 * MIB;

struct Bench {
    bench: common::Bench,
    s: StreamHandle,
    t: StreamHandle,
}

deref!(Bench.bench as common::Bench);

impl Bench {
    fn new(config: Config, pool: PoolConfig) -> Self {
        let support = MemorySupport::Mapped { granularity: PAGE };
        let mut bench = bench_on(SimConfig { total_bytes: 256 * MIB, support }, config);
        bench.pool = bench.engine.create_pool(pool);
        let [s, t] = bench.streams();
        Self { bench, s, t }
    }

    fn planned() -> Self {
        Self::new(Config::default(), PoolConfig::default().plan(Options::default()))
    }

    fn begin(&self) -> CaptureId {
        self.bench.begin(self.s)
    }

    fn end(&self, capture: CaptureId) -> Result<(CaptureReport, ExecutableHandle), Error> {
        let graph = self.driver.end_capture(self.s).unwrap();
        let report = self.engine.end_capture(capture, graph)?;
        Ok((report, self.driver.instantiate(graph).unwrap()))
    }

    fn allocate(&self, bytes: u64) -> Block {
        self.engine.allocate(self.pool, bytes, self.s).unwrap()
    }

    fn work(&self, stream: StreamHandle, inputs: &[(&Block, u64)], outputs: &[(&Block, u64)]) {
        let of = |blocks: &[(&Block, u64)]| -> Vec<_> {
            blocks.iter().map(|&(block, tag)| tagged(*block, tag)).collect()
        };
        launch(&*self.driver, stream, (&of(inputs), &of(outputs)), 0);
    }

    fn runs_well(&self, executable: ExecutableHandle) {
        self.driver.replay(executable, self.s).unwrap();
        self.driver.synchronize().unwrap();
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
    }
}

/// Each graph kept so many addresses that a process had none left for the 2,049th, whatever they needed.
#[test]
fn addresses_do_for_many_graphs() {
    let bench = Bench::planned();
    bench.driver.reserve((1 << 47) - (8 << 40)).unwrap();
    for _ in 0..256 {
        let capture = bench.begin();
        bench.launch_and_free(bench.s, bench.allocate(PAGE));
        bench.end(capture).unwrap();
    }
}

/// Memory that the driver would not take back is not used again.
#[test]
fn what_could_not_be_unmapped_is_not_shared() {
    let bench = Bench::planned();
    let capture = bench.begin();
    let block = bench.allocate(4 * PAGE);
    bench.work(bench.s, &[], &[(&block, 1)]);
    bench.engine.free(block.id).unwrap();
    let (report, _) = bench.end(capture).unwrap();
    // In three pieces, of two pages and twice of one.
    (0..3).for_each(|_| bench.driver.fail_nth(Call::Unmap, 0, ErrorKind::InvalidValue));
    bench.engine.release_graph(report.graph).unwrap();
    assert_eq!(bench.reserved(), 4 * PAGE);

    let capture = bench.begin();
    let first = bench.allocate(4 * PAGE);
    bench.work(bench.s, &[], &[(&first, 2)]);
    let second = bench.allocate(2 * PAGE);
    bench.work(bench.s, &[(&first, 2)], &[(&second, 3)]);
    bench.work(bench.s, &[(&first, 2), (&second, 3)], &[]);
    bench.engine.free(first.id).unwrap();
    bench.engine.free(second.id).unwrap();
    // The first attempt fails, and what can go goes before the second.
    bench.driver.fail_nth(Call::Map, 0, ErrorKind::OutOfMemory);
    let (report, executable) = bench.end(capture).unwrap();
    bench.runs_well(executable);
    bench.engine.release_graph(report.graph).unwrap();
    bench.engine.empty_cache().unwrap();
    assert_eq!(bench.driver.used_bytes(), 0);
}

/// What the error says that the pool may hold is what it may hold.
#[test]
fn a_plan_that_fails_says_how_much_room_there_was() {
    let limit = 32 * PAGE;
    let bench = Bench::new(
        Config::default(),
        PoolConfig::default().plan(Options::default()).max_bytes(limit),
    );
    let capture = bench.begin();
    let blocks = [8, 4].map(|pages| bench.allocate(pages * PAGE));
    bench.work(bench.s, &[], &[(&blocks[0], 1), (&blocks[1], 2)]);
    assert!(bench.reserved() > 0);
    // The device has none, however often it is asked.
    (0..64).for_each(|_| bench.driver.fail_nth(Call::Create, 0, ErrorKind::OutOfMemory));
    let ended = bench.end(capture).map(drop);
    let Err(Error::PlanOutOfMemory { room, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(room, Some(limit));
    blocks.into_iter().for_each(|block| bench.engine.free(block.id).unwrap());
}

/// A device of 256 MiB, and pool and engine with and without a limit of 64 MiB.
fn capacities(pool: PoolConfig) -> [(Bench, u64); 3] {
    let least = 64 * MIB;
    let limited = Bench::new(Config::default(), pool.clone());
    limited.engine.set_memory_limit(Some(least)).unwrap();
    [
        (Bench::new(Config::default(), pool.clone()), 256 * MIB),
        (Bench::new(Config::default(), pool.max_bytes(least)), least),
        (limited, least),
    ]
}

/// One block that is larger than all the memory there is, with and without a plan, in a capture and outside.
#[test]
fn a_block_beyond_the_capacity_is_refused_without_a_call_for_memory() {
    let planned = PoolConfig::default().plan(Options::default());
    for (bench, capacity) in [PoolConfig::default(), planned].into_iter().flat_map(capacities) {
        let refused = |bytes: u64, fixed: bool| {
            let calls = [Call::Create, Call::Release, Call::Map, Call::Unmap, Call::Reserve];
            let count = || calls.map(|call| bench.driver.calls(call));
            let before = count();
            let result = if fixed {
                bench.engine.allocate_fixed(bench.pool, bytes, bench.s)
            } else {
                bench.engine.allocate(bench.pool, bytes, bench.s)
            };
            assert!(matches!(result, Err(Error::OutOfMemory(_))), "{bytes}: {result:?}");
            assert_eq!(count(), before, "{bytes}: what is idle stays, and nothing is tried");
        };
        let idle = bench.allocate(capacity / 2);
        bench.engine.free(idle.id).unwrap();
        bench.driver.complete_all();
        for bytes in [capacity + 512, 16 << 40, 100 << 40, u64::MAX] {
            refused(bytes, false);
        }
        bench.engine.empty_cache().unwrap();
        let capture = bench.begin();
        for bytes in [capacity + 512, 16 << 40, 100 << 40, u64::MAX] {
            refused(bytes, false);
            refused(bytes, true);
        }
        let all = bench.allocate(capacity);
        bench.work(bench.s, &[], &[(&all, 1)]);
        bench.engine.free(all.id).unwrap();
        let (_, executable) = bench.end(capture).unwrap();
        bench.runs_well(executable);
    }
}

/// Blocks that are live at one time need memory each; blocks after each other do not.
#[test]
fn planned_blocks_that_can_never_have_memory_together_are_refused() {
    for (bench, capacity) in capacities(PoolConfig::default().plan(Options::default())) {
        let capture = bench.begin();
        for turn in 0..3 {
            let most = (capacity / (5 * PAGE)) as usize;
            let blocks: Vec<Block> = (0..most).map(|_| bench.allocate(5 * PAGE)).collect();
            let fixed = turn == 1;
            let more = if fixed {
                bench.engine.allocate_fixed(bench.pool, 5 * PAGE, bench.s)
            } else {
                bench.engine.allocate(bench.pool, 5 * PAGE, bench.s)
            };
            assert!(matches!(more, Err(Error::OutOfMemory(_))), "{most} and one: {more:?}");
            let outputs: Vec<_> = blocks.iter().zip(1..).collect();
            bench.work(bench.s, &[], &outputs);
            bench.work(bench.s, &outputs, &[]);
            blocks.iter().for_each(|block| bench.engine.free(block.id).unwrap());
        }
        let (_, executable) = bench.end(capture).unwrap();
        bench.runs_well(executable);
    }
}

/// What the host does in a small capture; on which of two streams, where that matters.
#[derive(Clone, Copy, Debug)]
enum Step {
    Short(bool),
    Long(bool),
    Free,
    FreeLast,
    Wait(bool),
}

const STEPS: [Step; 8] = [
    Step::Short(false),
    Step::Short(true),
    Step::Long(false),
    Step::Long(true),
    Step::Free,
    Step::FreeLast,
    Step::Wait(false),
    Step::Wait(true),
];

/// Every capture of a few steps: its plan is judged, and no kernel sees another's bytes.
fn small_captures(length: u32) {
    for number in 0..8_u32.pow(length) {
        let steps = (0..length).map(|at| STEPS[(number >> (3 * at) & 7) as usize]);
        let steps: Vec<Step> = steps.collect();
        let blocks = steps.iter().filter(|it| matches!(it, Step::Short(_) | Step::Long(_)));
        if blocks.count() < 2 {
            continue;
        }
        let bench = Bench::planned();
        let [s, t] = [bench.s, bench.t];
        let capture = bench.begin();
        bench.work(s, &[], &[]);
        bench.driver.wait(t, s).unwrap();
        let mut live: Vec<Block> = Vec::new();
        for (tag, step) in (1..).zip(&steps) {
            let mut block = |bytes: u64, other: bool| {
                let stream = if other { t } else { s };
                let block = bench.engine.allocate(bench.pool, bytes, stream).unwrap();
                bench.work(stream, &[], &[(&block, tag)]);
                bench.work(stream, &[(&block, tag)], &[]);
                live.push(block);
            };
            match *step {
                Step::Short(other) => block(MIB, other),
                Step::Long(other) => block(3 * MIB, other),
                Step::Free if !live.is_empty() => bench.engine.free(live.remove(0).id).unwrap(),
                Step::FreeLast => {
                    live.pop().into_iter().for_each(|block| bench.engine.free(block.id).unwrap());
                }
                Step::Free => {}
                Step::Wait(false) => bench.driver.wait(t, s).unwrap(),
                Step::Wait(true) => bench.driver.wait(s, t).unwrap(),
            }
        }
        bench.driver.wait(s, t).unwrap();
        bench.work(s, &[], &[]);
        let (_, executable) = bench.end(capture).unwrap_or_else(|error| {
            panic!("{steps:?}: {error}");
        });
        bench.driver.set_schedule_seed(u64::from(number));
        bench.runs_well(executable);
    }
}

#[test]
fn every_small_capture() {
    small_captures(4);
}

#[test]
#[ignore = "takes long; every capture of one step more"]
fn every_capture_that_is_not_quite_so_small() {
    small_captures(5);
}

/// Blocks that are a little smaller than a page lie one behind the other where each would need one more page than
/// there ever were, and one that comes later goes into the gap across two of their pages.
#[test]
fn blocks_smaller_than_a_page_lie_across_pages() {
    let bench = Bench::planned();
    let capture = bench.begin();
    let bytes = PAGE / 10 * 7 / 512 * 512;
    let mut blocks: Vec<Block> = (0..40).map(|_| bench.allocate(bytes)).collect();
    let outputs: Vec<(&Block, u64)> = blocks.iter().zip(1..).collect();
    bench.work(bench.s, &[], &outputs);
    // Each lies on the ends of two pages.
    for at in [1, 14, 27] {
        assert_ne!(blocks[at].address / PAGE, (blocks[at].address + bytes - 1) / PAGE);
        bench.engine.free(blocks[at].id).unwrap();
        let next = bench.allocate(bytes);
        assert_eq!(next.address, blocks[at].address);
        bench.work(bench.s, &[(&blocks[at + 1], at as u64 + 2)], &[(&next, 100 + at as u64)]);
        blocks[at] = next;
    }
    let (report, executable) = bench.end(capture).unwrap();
    bench.runs_well(executable);
    assert_eq!(report.plan.unwrap().bytes, (40 * bytes).next_multiple_of(PAGE));
}

/// What lay in the pool before is in the record, though that began late: an engine that hands it out
/// too early is found out.
#[cfg(debug_assertions)]
#[test]
fn a_late_record_knows_what_stands_in_the_pool() {
    use regraph::engine::Flaw;
    for early in [false, true] {
        let config = PoolConfig::default();
        let config = if early { config.plan(Options::default()) } else { config };
        let flawed = Config::default().check(false).flaw(Some(Flaw::OlderBlocks));
        let bench = Bench::new(flawed, config);
        let standing = bench.engine.allocate(bench.pool, 4096, bench.t).unwrap();
        let capture = bench.begin();
        if !early {
            bench.engine.plans().plan_capture(capture, Some(Options::default())).unwrap();
        }
        bench.work(bench.t, &[], &[(&standing, 1)]);
        bench.engine.plans().plan_capture(capture, None).unwrap();
        bench.engine.record_stream(standing.id, bench.s).unwrap();
        bench.engine.free(standing.id).unwrap();
        let small = bench.allocate(4096);
        assert_eq!(small.address, standing.address);
        bench.engine.plans().plan_capture(capture, Some(Options::default())).unwrap();
        let block = bench.allocate(PAGE);
        bench.work(bench.s, &[], &[(&block, 2), (&small, 3)]);
        let ended = bench.end(capture).map(drop);
        assert!(matches!(ended, Err(Error::Refused(_))), "early: {early}");
    }
}

/// Nothing is proven behind a programmatic edge, so no block has the memory of another, planned or in the least memory.
#[test]
fn blocks_of_programmatic_launches_share_nothing() {
    let count = 150;
    let support = MemorySupport::Mapped { granularity: PAGE };
    let driver = Arc::new(SimDriver::new(SimConfig { support, ..SimConfig::default() }));
    let engine = Engine::new(driver.clone(), Config::default().programmatic(Programmatic::Deny));
    let pool = engine.create_pool(PoolConfig::default().plan(Options::default()));
    let s = driver.create_stream().unwrap();
    driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let capture = engine.begin_capture(pool, s).unwrap();
    let blocks: Vec<Block> = (0..count)
        .map(|_| {
            let block = engine.allocate(pool, PAGE, s).unwrap();
            driver.launch(s, Work::default(), true).unwrap();
            block
        })
        .collect();
    blocks.into_iter().for_each(|block| engine.free(block.id).unwrap());
    assert_eq!(engine.plans().preview_plan(capture).unwrap()[0].1.bytes(), count * PAGE);
    let graph = driver.end_capture(s).unwrap();
    let report = engine.end_capture(capture, graph).unwrap();
    assert_eq!(report.minimum().unwrap().bytes, count * PAGE);
}

/// Pieces are cut for later graphs; not those of the last that the host expects.
#[test]
fn the_last_graph_of_a_pool_has_whole_pieces() {
    for (graphs, cut) in [(None, [true, true]), (Some(1), [false; 2]), (Some(2), [true, false])] {
        let options = Options::default().pool_graphs(graphs);
        let bench = Bench::new(Config::default(), PoolConfig::default().plan(options));
        let mut kept = Vec::new();
        for cut in cut {
            let capture = bench.begin();
            let block = bench.allocate(4 * PAGE);
            bench.work(bench.s, &[], &[(&block, 1)]);
            let (report, executable) = bench.end(capture).unwrap();
            bench.runs_well(executable);
            let plan = report.plan.unwrap();
            assert_eq!(plan.pieces > 1, cut, "{graphs:?}: {plan:?}");
            // Outputs that live, so that no graph has another's memory.
            kept.push((report.graph, block.id));
        }
        assert_eq!(bench.reserved(), 8 * PAGE);
        for (graph, block) in kept {
            bench.engine.release_graph(graph).unwrap();
            bench.engine.free(block).unwrap();
        }
        bench.engine.destroy_pool(bench.pool).unwrap();
        assert_eq!(bench.driver.used_bytes(), 0);
    }
}

/// A mapping of any size costs the same: scratch memory comes in pieces as large as the blocks allow.
#[test]
fn scratch_memory_takes_few_mappings() {
    let bench = Bench::planned();
    let capture = bench.begin();
    let blocks: Vec<Block> = (0..12).map(|_| bench.allocate(4 * PAGE)).collect();
    bench.driver.wait(bench.t, bench.s).unwrap();
    let others: Vec<Block> =
        (0..12).map(|_| bench.engine.allocate(bench.pool, 4 * PAGE, bench.t).unwrap()).collect();
    bench.driver.wait(bench.s, bench.t).unwrap();
    for (tag, block) in (1..).zip(blocks.iter().chain(&others)) {
        bench.work(bench.s, &[], &[(block, tag)]);
    }
    let (report, executable) = bench.end(capture).unwrap();
    bench.runs_well(executable);
    let plan = report.plan.unwrap();
    assert_eq!(plan.bytes, 96 * PAGE);
    assert!((2..=10).contains(&plan.scratch_mappings), "{plan:?}");
}

#[test]
fn a_report_says_how_many_mappings_would_be_cheap() {
    let mut plan = PlanReport::default();
    (plan.mappings, plan.scratch_mappings) = (100, 20);
    (plan.capturing_ns, plan.planning_ns, plan.binding_ns) = (1_000_000, 50_000, 440_000);
    assert_eq!(plan.share_percent(), 49);
    assert_eq!(plan.mappings_within(49), None);
    // 15 that come and 20 scratch mappings that go take 100 us, planning 50.
    assert_eq!(plan.mappings_within(PlanReport::SHARE_PERCENT), Some(15));
    assert_eq!(plan.mappings_within(5), Some(0));
    assert_eq!(PlanReport::default().mappings_within(0), None);
}

#[test]
fn a_capture_s_report_sums_the_plans_of_its_pools() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let pools =
        [(); 2].map(|()| b.engine.create_pool(PoolConfig::default().plan(Options::default())));
    b.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let capture = b.engine.begin_capture(pools[0], s).unwrap();
    for (pool, pages) in pools.into_iter().zip([2, 3]) {
        b.engine.allocate(pool, pages * PAGE, s).unwrap();
        b.launch(s);
    }
    let plan = b.finish(s, capture).plan.unwrap();
    assert_eq!((plan.bytes, plan.new_bytes, plan.minimum_bytes), (5 * PAGE, 5 * PAGE, 5 * PAGE));
    assert!(plan.pieces >= 2 && plan.mappings >= 2 && plan.scratch_mappings >= 2);
}
