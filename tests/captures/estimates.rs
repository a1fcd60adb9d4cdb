//! Captures that are shown and come to nothing: what they will need, before there is memory for them.

use std::cell::Cell;
use std::sync::Arc;

use regraph::driver::{
    CaptureMode, Driver, ErrorKind, GraphHandle, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{Config, Engine, Error, PoolConfig, PoolRefusal};
use regraph::graphs::{Capture, Memory, Pool};
use regraph::settings::{PlanChoice, Settings};
use regraph_plugin::{Plugin, PoolKey};
use regraph_sim::probe::{Estimate, Needs, Probe};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

const MIB: u64 = 1 << 20;
const KEY: PoolKey = (0, 1);
const SIZES: [u64; 8] = [64, 48, 32, 24, 16, 8, 3, 1];

struct Host {
    driver: Arc<SimDriver>,
    plugin: Plugin<Arc<SimDriver>>,
    main: StreamHandle,
    side: StreamHandle,
    /// What a library allocates in the first capture and keeps, in bytes.
    keeps: u64,
    /// Whether it has it.
    kept: Cell<bool>,
}

fn settings(plan: PlanChoice) -> Settings {
    Settings::default().plan(plan)
}

fn host(plan: PlanChoice) -> Host {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let shared = Arc::clone(&driver);
    let config = Config::default().settings(settings(plan));
    let plugin = Plugin::new(config, move |_| Ok(Arc::clone(&shared)));
    let (main, side) = (driver.create_stream().unwrap(), driver.create_stream().unwrap());
    Host { driver, plugin, main, side, keeps: 0, kept: Cell::new(false) }
}

impl Host {
    fn run(&self, stream: StreamHandle, bytes: u64) -> u64 {
        let block = self.plugin.allocate(bytes, 0, stream).unwrap();
        self.driver.launch(stream, Work::default(), false).unwrap();
        block
    }

    /// Blocks of gated units for so many rows, the gates on a second stream. Returns the output.
    fn model(&self, rows: u64) -> u64 {
        const ROW: u64 = 3 << 20;
        let (main, side) = (self.main, self.side);
        let free = |block| self.plugin.free(block, 0).unwrap();
        let mut x = self.run(main, rows * ROW);
        if self.keeps > 0 && !self.kept.replace(true) {
            self.run(main, self.keeps);
        }
        for layer in 0..6 {
            self.driver.wait(side, main).unwrap();
            self.plugin.record_stream(x, side).unwrap();
            let gate = self.run(side, rows * ROW * 3);
            let up = self.run(main, rows * ROW * (3 + layer % 2));
            self.driver.wait(main, side).unwrap();
            self.plugin.record_stream(gate, main).unwrap();
            let down = self.run(main, rows * ROW);
            free(gate);
            free(up);
            free(x);
            x = down;
        }
        x
    }

    fn allocated(&self) -> u64 {
        let pools = self.plugin.pools(0).unwrap();
        pools.iter().filter(|pool| pool.key == KEY).map(|pool| pool.allocated).sum()
    }

    fn reserved(&self) -> u64 {
        self.plugin.pools(0).unwrap().iter().map(|pool| pool.reserved).sum()
    }

    /// As PyTorch begins a capture, whose graph it can name when it has ended.
    fn begin(&self) {
        let driver = Arc::clone(&self.driver);
        let filter = move |stream| driver.is_capturing(stream) != Ok(false);
        let graph_of = |_| Some(GraphHandle::from_bits(1));
        let (filter, ended) = (Arc::new(filter), Arc::new(graph_of));
        let route = self.plugin.begin_pool_of(0, KEY, filter, Some(ended)).unwrap();
        self.driver.begin_capture(self.main, CaptureMode::Relaxed).unwrap();
        self.plugin.capture_begun(0, self.main, route, true).unwrap();
    }

    /// The captures of all sizes, in one pool.
    fn captured(&self) -> u64 {
        for rows in SIZES {
            self.begin();
            self.model(rows);
            self.plugin.capture_ending(0, self.main, |_, _| ()).unwrap();
            self.driver.end_capture(self.main).unwrap();
            self.plugin.end_pool(0, KEY).unwrap();
            self.plugin.capture_ended(0, self.main).unwrap();
        }
        self.reserved()
    }

    /// What they are estimated to hold, and the most that the device gave for that.
    fn estimated(&self, plan: PlanChoice) -> (u64, u64) {
        self.plugin.estimate(true);
        let (mut traces, mut most) = (Vec::new(), 0);
        for rows in SIZES {
            self.begin();
            let output = self.model(rows);
            most = most.max(self.driver.used_bytes());
            let show = |_, journal: &_| {
                traces.push(
                    regraph_trace::from_journal(
                        journal,
                        self.main,
                        0,
                        &regraph_trace::Sources::default(),
                    )
                    .unwrap(),
                );
            };
            self.plugin.capture_shown(0, self.main, show).unwrap();
            // An executable may be made of it, over what its addresses have.
            let graph = self.driver.end_capture(self.main).unwrap();
            self.plugin.end_pool(0, KEY).unwrap();
            let executable = self.driver.instantiate(graph).unwrap();
            self.plugin.capture_failed(0, self.main).unwrap();
            // A host sees what is kept of such a capture, which has no memory any more.
            assert!(self.allocated() > self.keeps);
            self.plugin.free(output, 0).unwrap();
            assert_eq!(self.allocated(), self.keeps);
            self.plugin.release_pool(0, KEY).unwrap();
            self.driver.destroy_executable(executable).unwrap();
            self.driver.destroy_graph(graph).unwrap();
        }
        self.plugin.estimate(false);
        let driver = self.plugin.engine(0).unwrap().driver();
        let probe = Probe::like(driver, Config::default().settings(settings(plan))).unwrap();
        let held: Vec<_> = traces.iter().map(|trace| probe.replay(trace).unwrap()).collect();
        let reserved = probe.reserved().unwrap();
        drop(held);
        (reserved, most)
    }
}

#[test]
fn captures_need_what_was_estimated_before() {
    let plans = [PlanChoice::None, PlanChoice::Exact];
    for (plan, keeps) in plans.into_iter().flat_map(|plan| [(plan, 0), (plan, 32 * MIB)]) {
        let mut host = host(plan);
        host.keeps = keeps;
        let (estimated, most) = host.estimated(plan);
        // What lies behind addresses for the time is no more than 170 MiB; nothing of it is left.
        assert!(most <= 170 * MIB && estimated > 1500 * MIB, "{plan:?}: {most} of {estimated}");
        host.plugin.empty_cache().unwrap();
        assert_eq!(host.driver.used_bytes(), 0, "{plan:?}");
        // Of another stream, which the library has nothing for yet.
        host.kept.set(false);
        let captured = host.captured();
        let off = estimated.abs_diff(captured) as f64 / captured as f64;
        assert!(off <= 0.05, "{plan:?}: {} estimated, {} MiB", estimated / MIB, captured / MIB);
    }
}

#[test]
fn captures_that_are_not_shown_have_their_memory_while_others_are_estimated() {
    let host = host(PlanChoice::None);
    host.plugin.estimate(true);
    let captured = host.captured();
    assert!(captured > 10 * MIB);
    assert!(host.plugin.capture_shown(0, host.main, |_, _| ()).is_err());
    host.plugin.estimate(false);
}

#[test]
fn captures_of_other_threads_have_their_memory_at_once_while_one_estimates() {
    let host = host(PlanChoice::None);
    std::thread::scope(|scope| {
        scope.spawn(|| host.plugin.estimate(true)).join().unwrap();
    });
    let before = host.driver.used_bytes();
    host.begin();
    let block = host.plugin.allocate(400 * MIB, 0, host.main).unwrap();
    // What a library writes there now is there when the graph runs.
    assert!(host.driver.used_bytes() - before >= 400 * MIB);
    host.plugin.free(block, 0).unwrap();
    host.plugin.capture_ending(0, host.main, |_, _| ()).unwrap();
    host.driver.end_capture(host.main).unwrap();
    host.plugin.end_pool(0, KEY).unwrap();
    host.plugin.capture_ended(0, host.main).unwrap();
}

type Failure = Box<dyn std::error::Error>;
type Owned = Engine<Arc<SimDriver>>;

/// An engine with streams, for graphs that own their memory.
fn owned(plan: PlanChoice) -> (Arc<SimDriver>, Arc<Owned>, [StreamHandle; 2]) {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let streams = [driver.create_stream().unwrap(), driver.create_stream().unwrap()];
    let config = Config::default().settings(settings(plan));
    let engine = Arc::new(Engine::new(driver.clone(), config));
    (driver, engine, streams)
}

/// Layers of two branches for so many rows, in a capture or outside, and what the last one leaves.
fn branches(
    driver: &SimDriver,
    pool: &Pool<Arc<SimDriver>>,
    [main, side]: [StreamHandle; 2],
    rows: u64,
) -> Result<Memory<Arc<SimDriver>>, Failure> {
    let run = |stream, blocks| {
        let block = pool.allocate(rows * MIB * blocks, stream)?;
        driver.launch(stream, Work::default(), false)?;
        Ok::<_, Failure>(block)
    };
    let mut x = run(main, 1)?;
    for _ in 0..4 {
        driver.wait(side, main)?;
        x.record_stream(side)?;
        let (linear, gate) = (run(side, 4)?, run(side, 4)?);
        drop(linear);
        let (linear, up) = (run(main, 4)?, run(main, 4)?);
        drop(linear);
        driver.wait(main, side)?;
        gate.record_stream(main)?;
        let product = run(main, 4)?;
        drop((gate, up));
        let (down, sum) = (run(main, 1)?, run(main, 1)?);
        drop((product, down));
        x = sum;
    }
    Ok(x)
}

#[test]
fn graphs_that_own_their_memory_need_what_was_estimated() {
    let plans = [PlanChoice::None, PlanChoice::Exact, PlanChoice::Auto];
    let mut reserved = Vec::new();
    for (plan, warm_up) in [false, true].into_iter().flat_map(|warm| plans.map(|it| (it, warm))) {
        let (driver, engine, streams) = owned(plan);
        driver.charge_executables(3000);
        if warm_up {
            let eager = Pool::new(&engine, PoolConfig::default());
            for rows in SIZES {
                branches(&driver, &eager, streams, rows).unwrap();
            }
            driver.complete_all();
            drop(eager);
            engine.empty_cache().unwrap();
        }
        let mut estimate = Estimate::new(&engine);
        let mut most = 0;
        let shown = estimate.pool().clone();
        for rows in SIZES {
            let shown = estimate.capture(streams[0], CaptureMode::Relaxed, |_| {
                let output = branches(&driver, &shown, streams, rows);
                most = most.max(driver.used_bytes() - driver.executable_memory());
                output
            });
            shown.unwrap();
        }
        let needs = estimate.needs().unwrap();
        assert_eq!(driver.executables(), SIZES.len(), "none has gone");
        let executables = driver.executable_memory();
        assert!(
            needs.executable_bytes.abs_diff(executables) < 64 << 10,
            "{needs:?}, {executables}"
        );
        drop((estimate, shown));
        engine.empty_cache().unwrap();
        assert_eq!(
            (driver.executables(), engine.statistics().unwrap().all.segment.current),
            (0, 0)
        );
        assert!(most <= 170 * MIB && needs.pool_bytes > 2 * most, "{plan:?}: {most} of {needs:?}");
        let pool = Pool::new(&engine, PoolConfig::default());
        let captured = SIZES.map(|rows| {
            let body = |_: &Capture<_>| branches(&driver, &pool, streams, rows);
            engine.capture(streams[0], &pool, CaptureMode::Relaxed, body).unwrap()
        });
        assert_eq!(needs.pool_bytes, pool.reserved().unwrap(), "{plan:?}, {warm_up}");
        reserved.push(needs.pool_bytes);
        let taken: u64 = captured.iter().map(|(graph, _)| graph.driver_bytes()).sum();
        assert_eq!(taken, 0, "the driver has what the estimate's executables had");
    }
    assert!(reserved[5] < reserved[2], "captures follow what was run before: {reserved:?}");
}

#[test]
fn an_estimate_says_what_each_part_may_come_to_at_most() {
    let most = |pool, executables| Needs::new(pool * MIB, executables * MIB).bound();
    assert_eq!(most(96, 400), Needs::new(98 * MIB, 420 * MIB));
    assert_eq!(most(0, 2), Needs::new(2 * MIB, 12 * MIB));
    assert_eq!(most(4, 0).total_bytes(), 6 * MIB);
}

#[test]
fn what_fails_in_an_estimate_leaves_it_as_it_was() {
    let (driver, engine, streams) = owned(PlanChoice::None);
    let mut estimate = Estimate::new(&engine);
    let pool = estimate.pool().clone();
    let show = |estimate: &mut Estimate<_>, rows| {
        estimate
            .capture(streams[0], CaptureMode::Relaxed, |_| branches(&driver, &pool, streams, rows))
    };
    show(&mut estimate, 8).unwrap();
    let before = estimate.needs().unwrap();
    let failed = estimate.capture(streams[0], CaptureMode::Relaxed, |_| {
        branches(&driver, &pool, streams, 64)?;
        Err::<(), Failure>("the host's own fault".into())
    });
    assert!(failed.unwrap_err().to_string().contains("own fault"));
    // A stream that is not joined again.
    let open = estimate.capture(streams[0], CaptureMode::Relaxed, |capture| {
        driver.wait(streams[1], streams[0])?;
        driver.launch(streams[1], Work::default(), false)?;
        Ok::<_, Failure>(capture.allocate(MIB, streams[1])?)
    });
    assert!(open.unwrap_err().to_string().contains("joined"));
    driver.fail_host_nth(6, ErrorKind::OutOfMemory);
    show(&mut estimate, 64).unwrap_err();
    assert_eq!(estimate.needs().unwrap(), before);
    assert!(streams.iter().all(|&stream| driver.is_capturing(stream) == Ok(false)));
    show(&mut estimate, 16).unwrap();
    assert!(estimate.needs().unwrap().pool_bytes > before.pool_bytes);
    drop((estimate, pool));
    engine.empty_cache().unwrap();
    assert_eq!((driver.executables(), driver.used_bytes()), (0, 0));
}

#[test]
fn captures_that_were_not_shown_are_no_estimate_of_nothing() {
    let (driver, engine, [stream, _]) = owned(PlanChoice::None);
    let estimate = Estimate::new(&engine);
    let refused = || match estimate.needs() {
        Err(Error::Pool { call: "needs", why: PoolRefusal::NotShown, .. }) => {}
        other => panic!("{other:?}"),
    };
    let capture = estimate.begin(stream, CaptureMode::Relaxed).unwrap();
    drop(capture.allocate(40 * MIB, stream).unwrap());
    driver.launch(stream, Work::default(), false).unwrap();
    refused();
    drop(capture.finish().unwrap());
    refused();
    // One that was given up does not count.
    let other = Estimate::new(&engine);
    drop(other.begin(stream, CaptureMode::Relaxed).unwrap());
    assert_eq!(other.needs().unwrap(), Needs::default());
}

#[test]
fn nothing_is_estimated_without_virtual_memory_management() {
    let driver =
        SimDriver::new(SimConfig { support: MemorySupport::Allocated, ..SimConfig::default() });
    let driver = Arc::new(driver);
    let stream = driver.create_stream().unwrap();
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let begun = Estimate::new(&engine).begin(stream, CaptureMode::Relaxed);
    assert!(matches!(begun, Err(Error::CannotPlan { .. })), "{begun:?}");
    assert_eq!(driver.is_capturing(stream), Ok(false));
}
