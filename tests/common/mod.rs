//! An engine on a simulated device, and the calls that tests make all the time.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod messages;
pub mod noted;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::device::graph_of;
use regraph::driver::{CaptureId, CaptureMode, Driver, GraphHandle, HostApi, StreamHandle};
use regraph::engine::{Block, CaptureReport, Config, Engine, Error, PoolConfig, PoolId};
use regraph::snapshot::Snapshot;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

pub const MIB: u64 = 1 << 20;

/// Gives a type what one of its fields can do.
macro_rules! deref {
    ($name:ident.$field:tt as $target:ty) => {
        impl std::ops::Deref for $name {
            type Target = $target;

            fn deref(&self) -> &$target {
                &self.$field
            }
        }
    };
}
pub(crate) use deref;

/// A small generator, whose numbers are the same on every machine.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

/// Has another thread do something while the caller waits for that: whether it came to its end before a time that is far
/// longer than any call takes.
pub fn while_it_waits(act: impl FnOnce() + Send + 'static) -> bool {
    let (send, receive) = channel();
    thread::spawn(move || {
        act();
        send.send(())
    });
    receive.recv_timeout(Duration::from_secs(20)).is_ok()
}

/// A function of the first call, which later calls find done.
pub fn once(act: impl FnOnce() + Send + 'static) -> impl Fn() + Send + Sync + 'static {
    let act = Mutex::new(Some(act));
    move || {
        let act = act.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
    }
}

/// Removes the edge that leads to the last node of a stream that captures.
pub fn remove_last_edge(driver: &SimDriver, stream: StreamHandle) {
    let last = driver.terminals(stream).unwrap()[0].node;
    let mut edges = Vec::new();
    driver.dependencies(last, &mut edges).unwrap();
    driver.remove_dependency(graph_of(driver, stream), edges[0], last).unwrap();
}

pub struct Bench {
    pub driver: Arc<SimDriver>,
    pub engine: Engine<Arc<SimDriver>>,
    pub pool: PoolId,
}

pub fn bench(config: Config) -> Bench {
    bench_on(SimConfig::default(), config)
}

pub fn bench_on(device: SimConfig, config: Config) -> Bench {
    let driver = Arc::new(SimDriver::new(device));
    let engine = Engine::new(driver.clone(), config);
    let pool = engine.create_pool(PoolConfig::default());
    Bench { driver, engine, pool }
}

impl Bench {
    pub fn streams<const N: usize>(&self) -> [StreamHandle; N] {
        std::array::from_fn(|_| self.driver.create_stream().unwrap())
    }

    pub fn with_streams<const N: usize>(self) -> (Self, [StreamHandle; N]) {
        let streams = self.streams();
        (self, streams)
    }

    /// With streams, the first of which captures.
    pub fn capturing<const N: usize>(self) -> (Self, [StreamHandle; N], CaptureId) {
        let (bench, streams) = self.with_streams();
        let capture = bench.begin(streams[0]);
        (bench, streams, capture)
    }

    pub fn begin(&self, stream: StreamHandle) -> CaptureId {
        self.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        self.engine.begin_capture(self.pool, stream).unwrap()
    }

    pub fn graph(&self, stream: StreamHandle) -> GraphHandle {
        graph_of(&self.driver, stream)
    }

    /// A block of 4 MiB.
    pub fn allocate(&self, stream: StreamHandle) -> Block {
        self.engine.allocate(self.pool, 4 * MIB, stream).unwrap()
    }

    pub fn launch(&self, stream: StreamHandle) {
        self.driver.launch(stream, Work::default(), false).unwrap();
    }

    pub fn launch_early(&self, stream: StreamHandle) {
        self.driver.launch(stream, Work::default(), true).unwrap();
    }

    pub fn launch_and_free(&self, stream: StreamHandle, block: Block) {
        self.launch(stream);
        self.engine.free(block.id).unwrap();
    }

    /// A block of 4 MiB that is freed behind a kernel.
    pub fn temporary(&self, stream: StreamHandle) -> Block {
        let block = self.allocate(stream);
        self.launch_and_free(stream, block);
        block
    }

    /// A block takes another's place, behind an edge that is removed then.
    pub fn reuse_without_edge(&self, stream: StreamHandle) {
        let first = self.temporary(stream);
        let second = self.allocate(stream);
        assert_eq!(first.address, second.address);
        self.launch(stream);
        self.engine.observe(stream).unwrap();
        remove_last_edge(&self.driver, stream);
    }

    pub fn try_finish(
        &self,
        stream: StreamHandle,
        capture: CaptureId,
    ) -> Result<CaptureReport, Error> {
        let result = self.engine.end_capture(capture, self.graph(stream));
        self.driver.end_capture(stream).unwrap();
        result
    }

    pub fn finish(&self, stream: StreamHandle, capture: CaptureId) -> CaptureReport {
        self.try_finish(stream, capture).unwrap()
    }

    /// Ends a capture for the driver first.
    pub fn end(&self, stream: StreamHandle, capture: CaptureId) -> CaptureReport {
        let graph = self.driver.end_capture(stream).unwrap();
        self.engine.end_capture(capture, graph).unwrap()
    }

    pub fn reserved(&self) -> u64 {
        self.engine.pool_statistics(self.pool).unwrap().reserved
    }

    /// Figures and snapshot agree with each other and with the device.
    pub fn judge_figures(&self) -> Snapshot {
        let all = self.engine.statistics().unwrap().all;
        assert_eq!(all.reserved_bytes.current, self.driver.used_bytes());
        assert_eq!(
            all.reserved_bytes.current + all.suspended_bytes.current,
            all.active_bytes.current + all.inactive_split_bytes.current
        );
        for figure in [all.reserved_bytes, all.suspended_bytes, all.segment] {
            assert!(figure.peak >= figure.current);
            assert_eq!(figure.allocated - figure.freed, figure.current);
        }
        let snapshot = self.engine.snapshot().unwrap();
        regraph_trace::snapshot::validate(&snapshot).unwrap();
        regraph_trace::snapshot::validate_history(&snapshot).unwrap();
        let shown: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
        assert_eq!(shown, all.reserved_bytes.current);
        snapshot
    }
}
