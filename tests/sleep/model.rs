//! What sleeps in tests: weights, and graphs with and without a plan.

use std::sync::Arc;

use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Memory, Pool};
use regraph::plan::Options;
use regraph::regions::{Regions, Tags};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged};

use crate::common::MIB;
use crate::device::launch;

pub type Device = Arc<SimDriver>;
/// A block with what it holds.
pub type Block = (Memory<Device>, u64);

pub struct Model {
    pub driver: Device,
    pub engine: Arc<Engine<Device>>,
    pub regions: Arc<Regions<Device>>,
    pub stream: StreamHandle,
    pub weights: Pool<Device>,
    /// The weights, and each graph's output.
    pub blocks: Vec<Block>,
    /// Each with its pool.
    pub graphs: Vec<(Graph<Device>, Pool<Device>)>,
}

pub fn range((block, tag): &Block) -> Tagged {
    Tagged { address: block.address(), bytes: block.bytes(), tag: *tag }
}

impl Model {
    /// With weights of 40 MiB, of 512 bytes, and of as many as are said.
    pub fn on(device: SimConfig, bytes: u64) -> Self {
        let driver = Arc::new(SimDriver::new(device));
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let regions = Arc::new(Regions::new(&engine));
        let stream = driver.create_stream().unwrap();
        let weights = Pool::new(&engine, PoolConfig::default().tag("weights"));
        let (blocks, graphs) = (Vec::new(), Vec::new());
        let mut model = Self { driver, engine, regions, stream, weights, blocks, graphs };
        for (tag, bytes) in [(1, 40 * MIB), (2, 512), (3, bytes)] {
            let block = (model.weights.allocate(bytes, stream).unwrap(), tag);
            model.write(&block);
            model.blocks.push(block);
        }
        let planned = PoolConfig::default().plan(Options::default());
        for (tag, config) in [(10, PoolConfig::default()), (20, planned)] {
            let pool = Pool::new(&model.engine, config.tag("graphs"));
            let (graph, output) = model.capture(&pool, tag);
            model.graphs.push((graph, pool));
            model.blocks.push(output);
        }
        model
    }

    /// A graph, which has been launched, with its output.
    pub fn capture(&self, pool: &Pool<Device>, tag: u64) -> (Graph<Device>, Block) {
        let body = |capture: &Capture<Device>| {
            let first = (capture.allocate(4 * MIB, self.stream)?, tag);
            self.write(&first);
            let output = (capture.allocate(2 * MIB, self.stream)?, tag + 1);
            self.submit(&[range(&first)], &[range(&output)]);
            Ok::<_, Error>(output)
        };
        let mode = CaptureMode::ThreadLocal;
        let (graph, output) = self.engine.capture(self.stream, pool, mode, body).unwrap();
        graph.launch(self.stream).unwrap();
        (graph, output)
    }

    pub fn write(&self, block: &Block) {
        self.submit(&[], &[range(block)]);
    }

    pub fn submit(&self, inputs: &[Tagged], outputs: &[Tagged]) {
        launch(&*self.driver, self.stream, (inputs, outputs), 0);
    }

    pub fn wakes_whole(&self) {
        self.regions.wake(Tags::All).unwrap();
        self.is_whole();
    }

    /// All blocks hold what they held, and graphs replay.
    pub fn is_whole(&self) {
        let held: Vec<Tagged> = self.blocks.iter().map(range).collect();
        self.submit(&held, &[]);
        for (graph, _) in &self.graphs {
            graph.launch(self.stream).unwrap();
        }
        self.submit(&held, &[]);
        self.driver.synchronize().unwrap();
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
        self.engine.host().verify().unwrap();
    }

    /// Ends everything: nothing may be left.
    pub fn close(self) {
        let Self { driver, engine, regions, weights, blocks, graphs, .. } = self;
        drop((blocks, graphs, weights));
        driver.complete_all();
        engine.empty_cache().unwrap();
        drop(regions);
        assert_eq!((driver.used_bytes(), driver.host_bytes()), (0, 0));
    }
}
