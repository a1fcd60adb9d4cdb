//! Several devices in a process: on a simulated machine with two, and on two GPUs.
//!
//! ```text
//! cargo test --release --test gpu devices:: -- --ignored
//! ```
//!
//! * [`registry`]: which engine a stream or a pointer belongs to;
//! * [`machine`]: what the simulated machine refuses;
//! * [`captures`]: captures whose streams live on both;
//! * [`eager`]: blocks of one device used on streams of the other, outside captures;
//! * [`random`]: random programs over both, with tags, which two GPUs run too;
//! * [`graphs`]: graphs that own memory of both;
//! * [`gpus`]: what two GPUs do. Where there is only one these tests say so and do nothing.

use std::sync::Arc;

use crate::device::{graph_of, tagged};
use regraph::devices::Devices;
use regraph::driver::{CaptureId, CaptureMode, Driver, GraphHandle, HostApi, StreamHandle};
use regraph::engine::{Block, Config, Engine, PoolConfig, PoolId};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

mod captures;
mod eager;
#[cfg(feature = "cuda")]
mod gpus;
mod graphs;
mod machine;
mod random;
mod registry;

const MIB: u64 = 1 << 20;
/// How long a kernel waits between its looks at its inputs, in nanoseconds.
const DELAY: u32 = 20_000;

/// One device, with its engine and a pool.
struct Side<P: Program = SimDriver> {
    driver: Arc<P>,
    engine: Arc<Engine<Arc<P>>>,
    pool: PoolId,
}

/// Two devices of one machine that reach each other's memory.
struct Two<P: Program = SimDriver> {
    sides: [Side<P>; 2],
    devices: Devices<Arc<P>>,
}

fn two(config: &Config) -> Two {
    two_with([config.clone(), config.clone()])
}

/// Each side with a configuration of its own, for its number apart.
fn two_with(configs: [Config; 2]) -> Two {
    let first = SimDriver::new(SimConfig::default());
    let second = first.add_device(SimConfig::default()).with_peers(&[0]);
    on([first.with_peers(&[1]), second], configs)
}

/// 4 MiB that the driver has mapped.
fn mapped(driver: &impl Driver) -> u64 {
    let address = driver.reserve(4 * MIB).unwrap();
    let memory = driver.create(4 * MIB).unwrap();
    driver.map(address, 4 * MIB, memory).unwrap();
    driver.set_access(address, 4 * MIB).unwrap();
    address
}

fn on<P: Program>(drivers: [P; 2], configs: [Config; 2]) -> Two<P> {
    let mut devices = Devices::new();
    let mut sides = drivers.into_iter().zip(configs).map(|(driver, config)| {
        let driver = Arc::new(driver);
        let engine = Arc::new(Engine::new(driver.clone(), config));
        devices.add(engine.clone()).unwrap();
        let pool = engine.create_pool(PoolConfig::default());
        Side { driver, engine, pool }
    });
    let sides = [sides.next().unwrap(), sides.next().unwrap()];
    Two { sides, devices }
}

impl<P: Program> Side<P> {
    fn stream(&self) -> StreamHandle {
        self.driver.create_stream().unwrap()
    }

    /// A block of 4 MiB.
    fn allocate(&self, stream: StreamHandle) -> Block {
        self.engine.allocate(self.pool, 4 * MIB, stream).unwrap()
    }

    fn launch(&self, stream: StreamHandle) {
        self.driver.launch(stream, Work::default(), false).unwrap();
    }

    fn write(&self, stream: StreamHandle, block: Tagged) {
        let work = Work { outputs: &[block], delay: DELAY, ..Work::default() };
        self.driver.launch(stream, work, false).unwrap();
    }

    fn read(&self, stream: StreamHandle, block: Tagged) {
        let work = Work { inputs: &[block], delay: DELAY, ..Work::default() };
        self.driver.launch(stream, work, false).unwrap();
    }

    fn wait(&self, stream: StreamHandle, on: StreamHandle) {
        self.driver.wait(stream, on).unwrap();
    }

    fn graph(&self, stream: StreamHandle) -> GraphHandle {
        graph_of(&self.driver, stream)
    }
}

impl<P: Program> Two<P> {
    /// With a stream of each device.
    fn with_streams(self) -> (Self, [StreamHandle; 2]) {
        let streams = self.sides.each_ref().map(Side::stream);
        (self, streams)
    }

    /// Waits for both devices and counts the wrong tags since the last time.
    fn wrong_tags(&self) -> u64 {
        self.sides.iter().for_each(|side| side.driver.synchronize().unwrap());
        self.sides.iter().map(|side| side.driver.take_wrong_tags().unwrap()).sum()
    }

    /// Begins a capture on `a`, a stream of the first device, forks it to `b`, one of the second,
    /// and tells both engines.
    fn begin(&self, a: StreamHandle, b: StreamHandle) -> CaptureId {
        let [first, second] = &self.sides;
        first.driver.begin_capture(a, CaptureMode::ThreadLocal).unwrap();
        let capture = first.engine.begin_capture(first.pool, a).unwrap();
        second.wait(b, a);
        assert_eq!(second.engine.begin_capture(second.pool, b).unwrap(), capture);
        capture
    }
}
