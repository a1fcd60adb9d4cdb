//! The host: its streams, blocks, pools and graphs, and what a block may lie on.

use std::sync::Arc;

use arbitrary::Unstructured;

use super::super::eager::order::{Ranges, Streams};
use super::super::given::Given;
use super::pools::Pool;
use regraph::driver::{
    DriverError, ErrorKind, ExecutableHandle, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{self, Checkpoint, Config};
use regraph::settings::Settings;
use regraph_plugin::{Error, OpenedId, Plugin, PoolKey};
use regraph_sim::{Call, SimConfig, SimDriver};

pub(super) const MIB: u64 = 1 << 20;

/// Steps after which a program ends, even if bytes are left.
pub(super) const LONGEST: u64 = 400;

/// The name of eager work's own pool.
pub(super) const EAGER: PoolKey = (0, 0);

/// A stream, whose row in the model is its number.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub name: StreamHandle,
    /// The graph that it captures.
    pub graph: Option<usize>,
}

/// What wrote a block's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    NoWork,
    /// An operation of the block's own stream.
    Eager(usize),
    /// A node of a graph.
    Node(usize),
}

pub(super) struct Block {
    pub key: PoolKey,
    pub address: u64,
    pub bytes: u64,
    /// The streams that may use it; its own first.
    pub users: Vec<usize>,
    /// The graph that it was captured in.
    pub home: Option<usize>,
    /// When it was handed out.
    pub born: u64,
    /// Whether a checkpoint has brought it back to life.
    pub restored: bool,
    /// How far each stream had come when it was handed out.
    pub counts: Vec<usize>,
    pub live: bool,
    pub tag: u64,
    pub writer: Writer,
}

impl Block {
    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    UnderWay,
    Accepted,
    /// It will never run, or never again.
    Gone,
}

pub(super) struct Graph {
    pub key: PoolKey,
    pub pool: usize,
    /// How many routes the thread had when it began.
    pub route: usize,
    /// When it got its latest node.
    pub latest: u64,
    pub fate: Fate,
    pub executable: Option<ExecutableHandle>,
}

/// A checkpoint, with the model's blocks that were live then.
pub(super) struct Saved {
    pub pool: usize,
    pub checkpoint: Checkpoint,
    pub blocks: Vec<usize>,
}

/// Memory that was opened, and the block behind it.
pub(super) struct Opened {
    pub id: OpenedId,
    pub address: u64,
    pub block: usize,
}

/// Everything that a program has made so far.
pub(super) struct World {
    pub driver: Arc<SimDriver>,
    pub plugin: Plugin<Arc<SimDriver>>,
    pub given: Arc<Given>,
    pub streams: Vec<Stream>,
    pub pools: Vec<Pool>,
    /// Pools that the thread's requests are sent to, the latest last.
    pub routes: Vec<usize>,
    pub caches: bool,
    /// Whether there is a region.
    pub sleeps: bool,
    pub order: Streams,
    pub ranges: Ranges,
    pub blocks: Vec<Block>,
    pub graphs: Vec<Graph>,
    /// Operations that are launches of graphs, and which: graphs of one pool never run at once.
    pub replays: Vec<((usize, usize), usize)>,
    pub saved: Vec<Saved>,
    pub opened: Vec<Opened>,
    /// Whether memory may be mapped still that was closed while something captured.
    pub lingers: bool,
    /// Whether a call of the driver was made to fail.
    pub faulted: bool,
    pub now: u64,
    pub told: bool,
}

/// What a driver call gave that a legal program makes.
pub(super) fn must<T>(result: Result<T, DriverError>) -> T {
    result.expect("a legal call on the simulated driver succeeds")
}

impl World {
    pub(super) fn new(u: &mut Unstructured<'_>) -> Self {
        let mut next = || u.arbitrary::<u8>().unwrap_or_default();
        let device = next();
        let support = match device % 4 {
            0 => MemorySupport::Allocated,
            _ => MemorySupport::Mapped { granularity: 2 << 20 },
        };
        let total_bytes = if (device / 4).is_multiple_of(2) { 8 << 30 } else { 64 * MIB };
        let shape = next();
        let settings = Settings::default()
            .expandable_segments(!shape.is_multiple_of(3))
            .exportable((shape / 3).is_multiple_of(2));
        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes, support }));
        let config = Config::default().settings(settings).report_leaks(false);
        let connected = Arc::clone(&driver);
        let plugin = Plugin::new(config, move |_| Ok(Arc::clone(&connected)));
        let mut order = Streams::default();
        let streams = (0..2 + usize::from(shape / 6) % 3).map(|_| {
            order.add();
            Stream { name: must(driver.create_stream()), graph: None }
        });
        Self {
            streams: streams.collect(),
            given: Arc::new(Given::new(Arc::clone(&driver))),
            pools: (1..=3).map(|number| Pool::new((0, number), false)).collect(),
            driver,
            plugin,
            routes: Vec::new(),
            caches: true,
            sleeps: !(shape / 18).is_multiple_of(2),
            order,
            ranges: Ranges::default(),
            blocks: Vec::new(),
            graphs: Vec::new(),
            replays: Vec::new(),
            saved: Vec::new(),
            opened: Vec::new(),
            lingers: false,
            faulted: false,
            now: 0,
            told: std::env::var_os("REGRAPH_FUZZING_TOLD").is_some(),
        }
    }

    /// Prints what happens, where that was asked for.
    pub(super) fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.told {
            eprintln!("{:4} {what}", self.now);
        }
    }

    /// Makes a coming call of the driver that gets memory fail.
    pub(super) fn inject(&mut self, u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        // Where mapping fails at a capture's end its pool is suspended, which this host cannot undo.
        let calls = [Call::Create, Call::Reserve, Call::Allocate];
        let (call, n) = (*u.choose(&calls)?, u64::from(u.arbitrary::<u8>()? % 6));
        self.tell(format_args!("call {n} of {call:?} will fail"));
        self.faulted = true;
        if u.ratio(1, 4)? {
            self.given.misplace();
        } else {
            self.driver.fail_nth(call, n, ErrorKind::OutOfMemory);
        }
        Ok(())
    }

    /// An error of the plug-in's that is due to a failed call of the driver's, and to nothing else.
    pub(super) fn excuse(&self, error: &Error) {
        let failed = match error {
            Error::Driver(error) | Error::Engine(engine::Error::Driver(error)) => {
                error.is_out_of_memory() || error.to_string().contains("is not an address that")
            }
            // Memory could not be had for a piece that was exchanged: the pool is short of it for good, as this
            // host cannot resume it.
            Error::Engine(engine::Error::Pool {
                why: engine::PoolRefusal::Suspended { .. },
                ..
            }) => true,
            _ => false,
        };
        assert!(self.faulted && failed, "an error without a cause: {error}");
    }

    pub(super) fn live(&self) -> Vec<usize> {
        (0..self.blocks.len()).filter(|&block| self.blocks[block].live).collect()
    }

    /// Enters a block that was handed out, or brought back to life.
    pub(super) fn enter(&mut self, block: Block) {
        let number = self.blocks.len();
        for bytes in self.ranges.between(block.address, block.end()) {
            assert_eq!(bytes.live, None, "two live blocks at {:#x}", block.address);
            bytes.live = Some(number);
        }
        for address in [block.address, block.end() - 512] {
            use regraph_tagged::Program;
            assert!(self.driver.read_tags(address, 512).is_ok(), "{address:#x} is not mapped");
        }
        self.blocks.push(block);
    }

    /// Bytes of a pool may be given to a stream.
    pub(super) fn judge_place(&mut self, key: PoolKey, (start, end): (u64, u64), row: usize) {
        let in_pool = |graph: usize| {
            self.blocks.iter().any(|block| block.home == Some(graph) && block.key == key)
        };
        let replays = self.replays.iter().filter(|(_, graph)| in_pool(*graph));
        let replays: Vec<_> = replays.map(|&(operation, _)| operation).collect();
        self.order.refresh(&self.driver);
        let graph = self.streams[row].graph;
        let order = &self.order;
        for bytes in self.ranges.between(start, end) {
            assert_eq!(bytes.live, None, "handed out over a live block");
            bytes.uses.retain(|&used| !order.is_complete(used));
            bytes.graphs.retain(|&graph| self.graphs[graph].fate != Fate::Gone);
            // A graph may be launched on any stream: an order of this one proves nothing.
            let early = bytes.uses.iter().find(|&&used| match graph {
                None => !order.precedes(used, row),
                Some(_) => !replays.contains(&used) && !bytes.by_word.contains(&used),
            });
            let shared = bytes.graphs.iter().find(|&&other| match graph {
                None => true,
                Some(own) => other != own && self.graphs[other].fate == Fate::UnderWay,
            });
            assert!(
                early.is_none() && shared.is_none(),
                "{start:#x}..{end:#x} for stream {row}, graph {graph:?}: still in use by operation \
                 {early:?}, by graph {shared:?}"
            );
        }
    }

    /// Nothing has gone wrong on the device so far.
    pub(super) fn judge_device(&mut self) {
        let done = self.driver.complete_all_checked();
        let wrong = must(regraph_tagged::Program::take_wrong_tags(&*self.driver));
        let sound = done.is_ok() && wrong == 0;
        assert!(sound, "a block was taken away while in use: {done:?}");
    }

    /// The figures of every pool add up to the byte.
    pub(super) fn judge_figures(&self) {
        let reports = self.plugin.pools(0).expect("the device is there");
        for key in self.pools.iter().map(|pool| pool.key).chain([EAGER]) {
            let reported = reports.iter().filter(|report| report.key == key);
            let reported: u64 = reported.map(|report| report.allocated).sum();
            let live = self.blocks.iter().filter(|block| block.live && block.key == key);
            assert_eq!(reported, live.map(|block| block.bytes).sum::<u64>(), "pool {key:?}");
        }
        let held: u64 = reports.iter().map(|report| report.reserved).sum();
        let used = self.driver.used_bytes();
        match self.opened.is_empty() && !self.lingers {
            true => assert_eq!(held, used, "held = in use on the device"),
            // What is mapped a second time stays with the device when it is given back.
            false => assert!(held <= used, "{held} held, {used} in use"),
        }
    }

    /// Ends everything, frees everything and looks for what is missing.
    pub(super) fn finish(&mut self) {
        self.driver.forget_failures();
        for stream in 0..self.streams.len() {
            self.end_graph(stream, false);
        }
        while !self.routes.is_empty() {
            self.end_route();
        }
        for graph in 0..self.graphs.len() {
            self.replay(graph, 0);
        }
        for block in self.live() {
            self.free(block);
        }
        for graph in 0..self.graphs.len() {
            self.release_graph(graph);
        }
        while !self.opened.is_empty() {
            self.close(0);
        }
        for pool in 0..self.pools.len() {
            while self.pools[pool].objects > 0 {
                self.drop_object(pool);
            }
        }
        self.judge_device();
        self.judge_figures();
        self.plugin.empty_cache().expect("nothing fails any more");
        assert_eq!(self.driver.used_bytes(), 0, "device memory was lost");
        self.given.judge_balance();
    }
}
