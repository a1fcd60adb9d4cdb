//! Captures that are shown and come to nothing: what they will need, before there is memory for them.

use std::cell::Cell;
use std::sync::Arc;

use regraph::driver::{CaptureMode, Driver, GraphHandle, HostApi, StreamHandle};
use regraph::engine::Config;
use regraph::settings::{PlanChoice, Settings};
use regraph_plugin::{Plugin, PoolKey};
use regraph_sim::probe::Probe;
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
    let mut settings = Settings::default();
    settings.plan = plan;
    settings
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
}
