//! A host that runs random programs: it knows what each block holds and orders what it launches.
//!
//! Eager work and one capture at a time share a pool. Every kernel checks the tags of the blocks
//! that it reads when it starts and when it ends; the host makes its stream wait for the kernels that wrote
//! them, and a writer for those that read them. What the host does not order is up to the engine: that
//! memory is handed out only when no kernel uses it any more.

mod blocks;
mod graphs;

use std::sync::Arc;

use fastrand::Rng;
use regraph::driver::{
    CaptureId, CaptureMode, EventHandle, ExecutableHandle, GraphHandle, StreamHandle,
};
use regraph::engine::{Block, Config, Engine, Flaw, GraphId, PoolConfig, PoolId};
use regraph::settings::Settings;

use super::{launch, tagged, Device, MIB};

const MOST_BLOCKS: usize = 40;

/// What programs are like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Whether streams capture, and graphs are replayed.
    pub captures: bool,
    /// The most that the engine may hold, in bytes.
    pub limit: Option<u64>,
    /// A rule of the engine to leave out.
    pub flaw: Option<Flaw>,
}

/// A block that was not freed.
#[derive(Debug)]
struct Held {
    block: Block,
    owner: usize,
    captured: bool,
    /// What it holds, once written.
    tag: Option<u64>,
    writer: usize,
    /// Streams that read it since.
    readers: Vec<usize>,
    /// Streams that used it and that the engine has not been told of.
    untold: Vec<usize>,
}

#[derive(Debug)]
struct Capture {
    id: CaptureId,
    mode: CaptureMode,
    origin: usize,
    members: Vec<usize>,
    /// Eager blocks that it reads. No kernel writes them while the graph exists.
    weights: Vec<Held>,
}

#[derive(Debug)]
struct Graph {
    id: GraphId,
    graph: GraphHandle,
    executable: ExecutableHandle,
    weights: Vec<Held>,
    outputs: Vec<Held>,
    /// Recorded behind its last launch.
    done: EventHandle,
}

/// When all hosts of an engine have left: gives everything back, and returns how many tags were
/// wrong.
pub fn give_everything_back<P: Device>(engine: &Engine<Arc<P>>, pool: PoolId) -> u64 {
    engine.driver().synchronize().unwrap();
    let wrong = engine.driver().take_wrong_tags().unwrap();
    assert_eq!(engine.statistics().unwrap().all.allocated_bytes.current, 0);
    let emptied = engine.empty_cache().unwrap();
    assert_eq!((emptied.waiting, emptied.reserved), (0, 0), "{emptied:?}");
    engine.destroy_pool(pool).unwrap();
    wrong
}

#[derive(Debug)]
pub struct Host<P: Device> {
    driver: Arc<P>,
    engine: Arc<Engine<Arc<P>>>,
    pool: PoolId,
    streams: Vec<StreamHandle>,
    random: Rng,
    shape: Shape,
    blocks: Vec<Held>,
    capture: Option<Capture>,
    graphs: Vec<Graph>,
    /// The stream of the last replay: graphs of one pool never run at once.
    replayed_on: Option<usize>,
    tag: u64,
    /// Requests that failed for want of memory.
    pub failed: u64,
    /// Launches of graphs.
    pub replays: u64,
}

impl<P: Device> Host<P> {
    /// A host with an engine of its own.
    pub fn new(driver: &Arc<P>, seed: u64, shape: Shape) -> Self {
        driver.schedule(seed);
        let mut random = Rng::with_seed(seed);
        let collect = shape.limit.is_some() && seed.is_multiple_of(3);
        let settings = Settings::default()
            .memory_limit_bytes(shape.limit)
            .expandable_segments(random.u8(..100) < 60)
            .garbage_collection_threshold(collect.then_some(0.7));
        let config = Config::default().settings(settings).flaw(shape.flaw);
        let engine = Engine::new(driver.clone(), config);
        let pool = engine.create_pool(PoolConfig::default());
        Self::beside(&Arc::new(engine), pool, seed, shape)
    }

    /// A host that shares an engine and a pool with others, each in a thread of its own. Only one
    /// of them may capture.
    pub fn beside(engine: &Arc<Engine<Arc<P>>>, pool: PoolId, seed: u64, shape: Shape) -> Self {
        let driver = engine.driver().clone();
        let mut random = Rng::with_seed(seed);
        let count = 2 + random.usize(..7);
        Self {
            pool,
            engine: engine.clone(),
            streams: (0..count).map(|_| driver.create_stream().unwrap()).collect(),
            driver,
            random,
            shape,
            blocks: Vec::new(),
            capture: None,
            graphs: Vec::new(),
            replayed_on: None,
            tag: seed << 32,
            failed: 0,
            replays: 0,
        }
    }

    pub fn step(&mut self) {
        let stream = self.random.usize(..self.streams.len());
        match self.random.usize(..100) {
            0..=34 => self.allocate(stream),
            35..=52 => self.read(stream),
            53..=59 => self.write(stream),
            60..=84 => self.free_any(),
            85..=86 => {
                let on = self.random.usize(..self.streams.len());
                self.wait(stream, on);
            }
            87..=88 => {
                if !self.is_capturing(stream) {
                    self.driver.progress(self.streams[stream]);
                }
            }
            89 => self.housekeeping(stream),
            _ if !self.shape.captures => self.read(stream),
            90..=91 => self.begin_or_fork(stream),
            92 => self.end_capture(),
            93..=98 => self.replay(stream),
            _ => {
                if !self.graphs.is_empty() {
                    let graph = self.random.usize(..self.graphs.len());
                    self.release(graph);
                }
            }
        }
        if self.blocks.len() > MOST_BLOCKS {
            self.free_any();
        }
    }

    /// Checks everything that is left and frees it.
    pub fn leave(&mut self) {
        self.end_capture();
        for number in 0..self.blocks.len() {
            let (writer, tag) = (self.blocks[number].writer, self.blocks[number].tag);
            if let Some(tag) = tag {
                let held = tagged(self.blocks[number].block, tag);
                launch(&*self.driver, self.streams[writer], (&[held], &[]), 0);
                self.note_use(number, writer);
            }
        }
        while !self.graphs.is_empty() {
            self.release(0);
        }
        while !self.blocks.is_empty() {
            self.free_any();
        }
        for &stream in &self.streams {
            self.engine.retire_stream(stream).unwrap();
            self.driver.destroy_stream(stream).unwrap();
        }
    }

    /// Leaves, gives everything back, and returns how many tags were wrong in all.
    pub fn finish(mut self) -> u64 {
        self.leave();
        give_everything_back(&self.engine, self.pool)
    }

    fn is_capturing(&self, stream: usize) -> bool {
        self.capture.as_ref().is_some_and(|capture| capture.members.contains(&stream))
    }

    fn wait(&self, stream: usize, on: usize) {
        if stream != on && self.is_capturing(stream) == self.is_capturing(on) {
            self.driver.wait(self.streams[stream], self.streams[on]).unwrap();
        }
    }

    fn housekeeping(&mut self, stream: usize) {
        // Without its rules the engine would unmap what kernels use, which a device takes ill.
        let careful = self.shape.flaw.is_none();
        match self.random.usize(..5) {
            0 if careful => drop(self.engine.empty_cache().unwrap()),
            1 if careful => drop(self.engine.trim(24 * MIB).unwrap()),
            2 => self.engine.mark_stream(self.streams[stream]).unwrap(),
            3 => drop(self.engine.explain(self.pool, self.streams[stream]).unwrap()),
            _ => {
                let all = self.engine.statistics().unwrap().all;
                let parts = all.active_bytes.current + all.inactive_split_bytes.current;
                assert_eq!(all.reserved_bytes.current, parts);
            }
        }
    }
}
