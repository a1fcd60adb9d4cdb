//! A host that runs scripts in captures, on the simulated driver.

use std::sync::Arc;
use std::time::{Duration, Instant};

use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, Driver, GraphHandle, HostApi, StreamHandle,
};
use regraph::engine::{BlockId, Config, Engine, PoolConfig, PoolId};
use regraph::settings::Programmatic;
use regraph::Journal;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

use super::meter::{counted, Meter, Timed};
use super::script::{Call, Script};

/// What scripts allocate from.
pub trait Allocator {
    /// How it names a block.
    type Block: Copy;
    /// Hands out a block.
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Self::Block;
    /// Records a stream for a block.
    fn record_stream(&self, block: Self::Block, stream: StreamHandle);
    /// Takes a block back.
    fn free(&self, block: Self::Block);
}

/// A pool of an engine's.
struct Pooled<'a>(&'a Engine<Arc<SimDriver>>, PoolId);

impl Allocator for Pooled<'_> {
    type Block = BlockId;

    #[inline]
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> BlockId {
        self.0.allocate(self.1, bytes, stream).expect(FINE).id
    }

    #[inline]
    fn record_stream(&self, block: BlockId, stream: StreamHandle) {
        self.0.record_stream(block, stream).expect(FINE);
    }

    #[inline]
    fn free(&self, block: BlockId) {
        self.0.free(block).expect(FINE);
    }
}

/// A driver with streams, the first of which captures and has forked to the others.
pub fn forked(streams: usize, begin: impl FnOnce(&SimDriver, StreamHandle)) -> Forked {
    let sim = SimConfig { total_bytes: 1 << 40, ..SimConfig::default() };
    let driver = Arc::new(SimDriver::new(sim));
    let streams: Vec<_> = (0..streams).map(|_| driver.create_stream().expect(FINE)).collect();
    begin(&driver, streams[0]);
    driver.launch(streams[0], Work::default(), false).expect(FINE);
    for &stream in &streams[1..] {
        driver.wait(stream, streams[0]).expect(FINE);
    }
    (driver, streams)
}

/// A driver and its streams.
pub type Forked = (Arc<SimDriver>, Vec<StreamHandle>);

/// Makes some calls. `blocks` are those so far, in the order of allocation.
pub fn run<A: Allocator>(
    allocator: &A,
    (driver, streams): (&SimDriver, &[StreamHandle]),
    blocks: &mut Vec<A::Block>,
    calls: &[Call],
    meter: &mut impl Meter,
) {
    for call in calls {
        match *call {
            Call::Alloc { stream, bytes } => {
                let stream = streams[stream];
                blocks.push(meter.allocate(|| allocator.allocate(bytes, stream)));
            }
            Call::Free { block } => meter.free(|| allocator.free(blocks[block])),
            Call::Launch { stream } => {
                driver.launch(streams[stream], Work::default(), false).expect(FINE);
            }
            Call::Wait { stream, on } => {
                driver.wait(streams[stream], streams[on]).expect(FINE);
            }
            Call::Record { block, stream } => {
                allocator.record_stream(blocks[block], streams[stream]);
            }
        }
    }
}

/// A configuration without the checker. Scripts have no programmatic launch, so that `deny` is safe, and
/// without the checker `auto` would be `lag`, which is slower and takes more memory.
pub fn unchecked() -> Config {
    Config::default().check(false).programmatic(Programmatic::Deny)
}

const FINE: &str = "scripts are valid and the simulated driver does not fail";

/// A capture under way.
#[derive(Debug)]
pub struct Host {
    driver: Arc<SimDriver>,
    engine: Engine<Arc<SimDriver>>,
    pool: PoolId,
    streams: Vec<StreamHandle>,
    capture: CaptureId,
    blocks: Vec<BlockId>,
}

impl Host {
    /// Begins a capture and forks it to all streams. Everything is new: driver, engine, pool.
    pub fn begin(config: Config, streams: usize) -> Self {
        let (driver, streams) = forked(streams, |driver, origin| {
            driver.begin_capture(origin, CaptureMode::Relaxed).expect(FINE);
        });
        let engine = Engine::new(driver.clone(), config);
        let pool = engine.create_pool(PoolConfig::default());
        let capture = engine.begin_capture(pool, streams[0]).expect(FINE);
        Self { driver, engine, pool, streams, capture, blocks: Vec::new() }
    }

    /// Makes some calls.
    pub fn run(&mut self, calls: &[Call], meter: &mut impl Meter) {
        let Self { driver, engine, pool, streams, blocks, .. } = self;
        run(&Pooled(engine, *pool), (driver, streams), blocks, calls, meter);
    }

    /// Joins all streams and ends the capture. Says how long the engine took for its part.
    pub fn end(&mut self) -> Duration {
        let origin = self.streams[0];
        self.join();
        let graph = self.graph();
        let start = Instant::now();
        counted(|| self.engine.end_capture(self.capture, graph)).expect(FINE);
        let time = start.elapsed();
        self.driver.end_capture(origin).expect(FINE);
        time
    }

    /// Joins all streams and says what a judge of the capture is given: the journal, the driver and the graph.
    pub fn record(&mut self) -> (Journal, Arc<SimDriver>, GraphHandle) {
        self.join();
        let journal = self.engine.host().journal(self.capture).expect(FINE);
        (journal.expect("the capture keeps a journal"), self.driver.clone(), self.graph())
    }

    /// What the pool holds, in bytes.
    pub fn reserved(&self) -> u64 {
        self.engine.pool_statistics(self.pool).expect(FINE).reserved
    }

    fn join(&self) {
        for &stream in &self.streams[1..] {
            self.driver.wait(self.streams[0], stream).expect(FINE);
        }
    }

    fn graph(&self) -> GraphHandle {
        match self.driver.capture_status(self.streams[0], &mut Vec::new()).expect(FINE) {
            CaptureStatus::Active { graph, .. } => graph,
            status => unreachable!("{FINE}: {status:?}"),
        }
    }
}

/// The times of single calls in a capture.
pub fn calls(config: Config, script: &Script) -> Timed {
    let mut host = Host::begin(config, script.streams);
    let mut meter = Timed::default();
    host.run(&script.calls, &mut meter);
    meter
}
