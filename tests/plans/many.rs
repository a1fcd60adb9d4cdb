//! A host with a pool of planned graphs, whose kernels check what they read.

use std::sync::Arc;

use regraph::driver::{CaptureMode, ExecutableHandle, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{Block, Config, Engine, GraphId, PoolConfig, PoolId};
use regraph::plan::Options;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

/// The device's unit of memory, in bytes.
pub const PAGE: u64 = 2 << 20;
const TOTAL: u64 = 4 << 30;

/// A block, and what its last kernel writes.
pub type Written = (Block, u64);

/// How a graph is captured.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Sizes of its blocks, in bytes: a chain, each read by what writes the next.
    pub sizes: Vec<u64>,
    /// How many of the last are outputs.
    pub kept: usize,
    /// Graphs whose outputs every kernel reads.
    pub sources: Vec<usize>,
    /// A block that the capture frees while a stream outside still uses it, in bytes; 0 for none.
    pub held: u64,
    /// Whether its memory comes with its blocks, though it is the same pool.
    pub planless: bool,
}

struct Made {
    graph: GraphId,
    executable: ExecutableHandle,
    shape: Shape,
    /// Blocks that live on after the capture, until they are freed.
    outputs: Vec<Written>,
    /// Whether any of them was freed.
    lost: bool,
}

/// The host.
pub struct ManyGraphs {
    /// The device.
    pub driver: Arc<SimDriver>,
    /// The engine, with one pool.
    pub engine: Engine<Arc<SimDriver>>,
    /// Its pool.
    pub pool: PoolId,
    /// The stream of captures and launches.
    pub stream: StreamHandle,
    outside: StreamHandle,
    graphs: Vec<Option<Made>>,
    /// A block of no graph.
    own: Option<Written>,
    tag: u64,
}

impl ManyGraphs {
    /// A host whose captures are planned within these bounds.
    pub fn new(options: Options) -> Self {
        let support = MemorySupport::Mapped { granularity: PAGE };
        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: TOTAL, support }));
        let config = Config::default().report_leaks(false);
        let engine = Engine::new(driver.clone(), config);
        let pool = engine.create_pool(PoolConfig::default().plan(options));
        let stream = driver.create_stream().expect("there is room for a stream");
        let outside = driver.create_stream().expect("there is room for a stream");
        Self { driver, engine, pool, stream, outside, graphs: Vec::new(), own: None, tag: 0 }
    }

    /// Graphs that are not released, by number.
    pub fn graphs(&self) -> Vec<usize> {
        (0..self.graphs.len()).filter(|&it| self.graphs[it].is_some()).collect()
    }

    /// How a graph was captured.
    pub fn shape(&self, graph: usize) -> Shape {
        self.graphs[graph].as_ref().map(|made| made.shape.clone()).unwrap_or_default()
    }

    fn work(&mut self, inputs: &[Written], block: Block) -> Written {
        self.tag += 1;
        let of = |(block, tag): &Written| Tagged {
            address: block.address,
            bytes: block.bytes,
            tag: *tag,
        };
        let inputs: Vec<_> = inputs.iter().map(of).collect();
        let output = (block, self.tag);
        let work = Work { inputs: &inputs, outputs: &[of(&output)], ..Work::default() };
        self.driver.launch(self.stream, work, false).expect("a legal launch");
        output
    }

    /// Captures a graph.
    ///
    /// # Panics
    /// Where the engine refuses what it has memory for.
    pub fn capture(&mut self, shape: Shape) -> usize {
        let (driver, pool, s) = (self.driver.clone(), self.pool, self.stream);
        driver.begin_capture(s, CaptureMode::Relaxed).expect("the stream is free");
        let capture = self.engine.begin_capture(pool, s).expect("the pool is awake");
        if shape.planless {
            self.engine.plans().plan_capture(capture, None).expect("the capture is under way");
        }
        let allocate = |host: &Self, bytes| {
            host.engine.allocate(pool, bytes, s).expect("there is room for a block")
        };
        let read = |graph: &usize| self.graphs[*graph].iter().flat_map(|it| it.outputs.clone());
        let read: Vec<Written> = shape.sources.iter().flat_map(read).collect();
        if shape.held > 0 {
            let block = allocate(self, shape.held);
            let written = self.work(&read, block);
            self.work(&[written], block);
            self.engine.record_stream(block.id, self.outside).expect("the block is live");
            self.engine.free(block.id).expect("the block is live");
        }
        let mut live: Vec<Written> = Vec::new();
        for &bytes in &shape.sizes {
            let block = allocate(self, bytes);
            // What others have left is read after blocks of this graph were written.
            let inputs: Vec<_> = live.last().copied().into_iter().chain(read.clone()).collect();
            live.push(self.work(&inputs, block));
            if live.len() > shape.kept.max(2) {
                self.engine.free(live.remove(0).0.id).expect("the block is live");
            }
        }
        while live.len() > shape.kept {
            self.engine.free(live.remove(0).0.id).expect("the block is live");
        }
        let graph = driver.end_capture(s).expect("the capture is sound");
        let report = self.engine.end_capture(capture, graph).expect("nothing is wrong with it");
        let executable = driver.instantiate(graph).expect("the graph is sound");
        let made = Made { graph: report.graph, executable, shape, outputs: live, lost: false };
        self.graphs.push(Some(made));
        self.graphs.len() - 1
    }

    /// Frees the first so many outputs of a graph that live.
    pub fn drop_outputs(&mut self, graph: usize, most: usize) {
        let Some(made) = self.graphs[graph].as_mut() else { return };
        let gone = most.min(made.outputs.len());
        made.lost |= gone > 0;
        for (block, _) in made.outputs.drain(..gone) {
            self.engine.free(block.id).expect("the block is live");
        }
    }

    /// Releases a graph with its readers.
    pub fn release(&mut self, graph: usize) {
        self.drop_outputs(graph, usize::MAX);
        let Some(made) = self.graphs[graph].take() else { return };
        self.engine.release_graph(made.graph).expect("the graph is known");
        for reader in self.graphs() {
            if self.shape(reader).sources.contains(&graph) {
                self.release(reader);
            }
        }
    }

    /// Gets a block that belongs to no graph, and writes it.
    pub fn keep_block(&mut self, bytes: u64) {
        if self.own.is_none() {
            let block = self.engine.allocate(self.pool, bytes, self.stream);
            self.own = Some(self.work(&[], block.expect("there is room for a block")));
        }
    }

    /// Frees the block that belongs to no graph.
    pub fn drop_block(&mut self) {
        let block = self.own.take();
        block.into_iter().for_each(|(it, _)| self.engine.free(it.id).expect("the block is live"));
    }

    /// Whether a graph may be launched out of turn: no output of it was freed, none that it reads, and it was planned.
    fn is_free(&self, graph: usize) -> bool {
        let whole = |it: &usize| self.graphs[*it].as_ref().is_some_and(|made| !made.lost);
        let Some(made) = self.graphs[graph].as_ref() else { return false };
        !made.lost && !made.shape.planless && made.shape.sources.iter().all(whole)
    }

    fn launch(&self, graph: usize) {
        if let Some(made) = &self.graphs[graph] {
            self.driver.replay(made.executable, self.stream).expect("the graph is sound");
        }
    }

    /// Launches all graphs in the order of their captures; after each, earlier ones may be launched once more
    /// that overwrite nothing of others: `again` chooses the first among so many, or says no.
    ///
    /// # Panics
    /// Where a kernel finds something wrong.
    pub fn replay(&self, mut again: impl FnMut(usize) -> Option<usize>) {
        let graphs = self.graphs();
        for (done, &graph) in graphs.iter().enumerate() {
            self.launch(graph);
            let free: Vec<_> =
                graphs[..=done].iter().copied().filter(|&it| self.is_free(it)).collect();
            if let Some(&other) = again(free.len()).and_then(|at| free.get(at)) {
                self.launch(other);
            }
        }
        self.driver.synchronize().expect("no graph met memory that was gone");
        let wrong = self.driver.take_wrong_tags().expect("the device answers");
        assert_eq!(wrong, 0, "kernels found wrong tags");
        self.require();
    }

    /// All blocks that live hold what was written last.
    ///
    /// # Panics
    /// If not.
    pub fn require(&self) {
        self.driver.synchronize().expect("the device answers");
        let outputs = self.graphs.iter().flatten().flat_map(|made| &made.outputs);
        for (block, tag) in outputs.chain(&self.own) {
            let tags = self.driver.read_tags(block.address, block.bytes);
            let tags = tags.expect("live blocks have memory");
            assert!(tags.iter().all(|held| held == tag), "block {:?} was overwritten", block.id);
        }
    }

    /// What the pool holds, in bytes.
    ///
    /// # Panics
    /// If the driver holds something else.
    pub fn reserved(&self) -> u64 {
        let reserved = self.engine.pool_statistics(self.pool).expect("the pool is there").reserved;
        assert_eq!(reserved, self.driver.used_bytes(), "the driver holds something else");
        reserved
    }

    /// What compaction would give back, once all work is done.
    pub fn excess(&self) -> u64 {
        // The first look marks how far streams are that freed blocks wait for.
        self.engine.host().excess_bytes(self.pool).expect("the pool is awake");
        self.driver.complete_all();
        self.engine.host().excess_bytes(self.pool).expect("the pool is awake")
    }

    /// Compacts the pool between launches; says how many bytes went, or that the checker refused it.
    ///
    /// # Panics
    /// If it gives back something else than was told, or a live block does not keep what it holds.
    pub fn compact(&self) -> u64 {
        /// The search for new pieces is no exact one: it may find better ones from those that it made.
        const TIMES: usize = 8;
        let mut all = 0;
        for _ in 0..TIMES {
            let excess = self.excess();
            let before = self.reserved();
            let gone =
                self.engine.host().compact_pool(self.pool).expect("a right compaction is accepted");
            assert_eq!((gone, self.reserved()), (excess, before - excess));
            self.require();
            all += gone;
            if gone == 0 {
                return all;
            }
        }
        panic!("compaction still finds something after {TIMES} times");
    }

    /// Gives all back.
    ///
    /// # Panics
    /// If something is left.
    pub fn finish(mut self) {
        self.replay(|_| None);
        self.compact();
        self.replay(|_| None);
        self.drop_block();
        (0..self.graphs.len()).for_each(|graph| self.release(graph));
        for _ in 0..2 {
            self.driver.complete_all();
            self.engine.empty_cache().expect("the engine is sound");
        }
        assert_eq!(self.reserved(), 0, "memory is left");
    }
}
