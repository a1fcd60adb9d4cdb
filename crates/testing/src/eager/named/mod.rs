//! A host that knows memory by its address, names its pools, and asks the plug-in.
//!
//! * [`pools`]: pools by name, their users, and where requests go; [`graphs`]: what is captured there, and
//!   checkpoints.
//! * [`shared`]: blocks that are opened by their handles; [`sleep`]: a region that sleeps and wakes.

mod graphs;
mod pools;
mod shared;
mod sleep;

use std::sync::Arc;

use arbitrary::{Result, Unstructured};

use super::checkpoints::Restored;
use super::features::Step;
use super::world::{must, Block, Host, Stream, World, Writer, MIB};
use crate::given::Given;
use crate::weights::Weights;
use pools::Pool;
use regraph::driver::{ErrorKind, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{self, Checkpoint, Config, Engine};
use regraph::settings::Settings;
use regraph_plugin::{Error, OpenedId, Plugin, PoolKey, Watched};
use regraph_sim::{Call, SimConfig, SimDriver};

/// The name of eager work's own pool.
const EAGER: PoolKey = (0, 0);

/// The model's number of a pool: its place among those with names, and one behind them for eager work's own.
fn number(key: PoolKey) -> usize {
    key.1.checked_sub(1).map_or(3, |number| number as usize)
}

/// The host.
pub(super) struct Named {
    pub(super) plugin: Plugin<Arc<SimDriver>>,
    pools: Vec<Pool>,
    /// The one that the step at hand is about.
    pool: usize,
    /// Pools that the thread's requests are sent to, the latest last.
    routes: Vec<usize>,
    caches: bool,
    /// Whether there is a region.
    sleeps: bool,
    opened: Vec<Opened>,
    /// Whether memory may be mapped still that was closed while something captured.
    lingers: bool,
}

/// Where a graph's memory comes from.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub key: PoolKey,
    pub pool: usize,
    /// How many routes the thread had when its capture began.
    pub route: usize,
}

/// Memory that was opened, and the block behind it.
pub(super) struct Opened {
    pub id: OpenedId,
    pub address: u64,
    pub block: usize,
}

/// What a program asks for.
fn size(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=7u8)? {
        0 | 1 => 512 * u.int_in_range(1..=8)?,
        2 => u.int_in_range(1..=MIB + 1)?,
        3..=5 => 2 * MIB * u.int_in_range(1..=3)?,
        6 => MIB * u.int_in_range(1..=12)?,
        _ => u.int_in_range(1..=24 * MIB)?,
    })
}

impl Host for Named {
    type Id = ();
    type Detail = Made;
    type Error = Error;
    type Driver = Watched<Arc<SimDriver>>;

    fn allocate(world: &mut World<Self>, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        world.allocate_block(u, stream)
    }

    fn give_back(world: &mut World<Self>, block: usize, _: Option<StreamHandle>) {
        let address = world.blocks[block].address;
        world.host.plugin.free(address, 0).expect("the block is live");
    }

    fn record(
        world: &World<Self>,
        block: usize,
        stream: StreamHandle,
        _: bool,
    ) -> std::result::Result<(), Error> {
        world.host.plugin.record_stream(world.blocks[block].address, stream)
    }

    fn excuse(world: &World<Self>, error: &Error) {
        world.excuse(error);
    }

    fn choose(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.pool = u.choose_index(self.pools.len())?;
        Ok(())
    }

    fn is_graph_of(graph: &Made, pool: usize) -> bool {
        number(graph.key) == pool
    }

    fn engine(&self) -> &Engine<Self::Driver> {
        self.plugin.engine(0).expect("the device is there")
    }

    fn live_in(world: &World<Self>, pool: usize) -> Vec<u64> {
        world.host.plugin.live_in_pool(0, world.host.pools[pool].key).unwrap_or_default()
    }

    fn checkpoint(world: &World<Self>, pool: usize) -> Option<Checkpoint> {
        match world.host.plugin.checkpoint(0, world.host.pools[pool].key) {
            Ok(checkpoint) => return Some(checkpoint),
            Err(Error::UnknownPool { .. }) => {}
            Err(Error::Engine(engine::Error::Checkpoint {
                why: engine::CheckpointRefusal::Captures { .. },
                ..
            })) => {
                // A route that began later has the capture use another pool than its own.
                assert!(world.captures_now(), "nothing captures into the pool");
            }
            Err(error) => world.excuse(&error),
        }
        None
    }

    fn restore(
        world: &World<Self>,
        pool: usize,
        checkpoint: &Checkpoint,
    ) -> Option<Restored<Self::Id>> {
        match world.host.plugin.restore(0, world.host.pools[pool].key, checkpoint) {
            Ok(restored) => {
                let live = restored.live.into_iter().map(|address| (address, ())).collect();
                return Some(Restored { freed: restored.freed, live });
            }
            Err(
                Error::UnknownPool { .. }
                | Error::Engine(engine::Error::Checkpoint {
                    why:
                        engine::CheckpointRefusal::Gone { .. }
                        | engine::CheckpointRefusal::OtherPool { .. },
                    ..
                }),
            ) => {}
            Err(error) => world.excuse(&error),
        }
        None
    }

    fn step(
        world: &mut World<Self>,
        step: Step,
        stream: usize,
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        let pool = world.host.pool;
        match step {
            Step::Free => {
                if let Some(block) = world.any_block(u)? {
                    world.free(block, None);
                }
            }
            Step::Share => {
                if let Some(block) = world.any_block(u)? {
                    world.share(block, stream, false);
                }
            }
            Step::MakeObject => world.make_object(pool, u)?,
            Step::DropObject => world.drop_object(pool),
            Step::BeginRoute => world.begin_route(pool),
            Step::EndRoute => world.end_route(),
            Step::UseOnOom => world.use_on_oom(pool, u.arbitrary()?),
            Step::EmptyPool => world.empty_pool(pool),
            Step::EmptyCache => world.empty_cache(),
            Step::Caching => {
                world.host.caches = u.arbitrary()?;
                world.host.plugin.set_caching(world.host.caches);
            }
            Step::Begin => world.begin_graph(pool, stream, u.arbitrary()?),
            Step::End => world.end_graph(stream, u.ratio(1, 6)?),
            Step::Replay if !world.captures.is_empty() => {
                let graph = u.choose_index(world.captures.len())?;
                world.replay(graph, stream);
            }
            Step::Release if !world.captures.is_empty() => {
                let graph = u.choose_index(world.captures.len())?;
                world.release_graph(graph);
            }
            Step::Save => world.save(pool),
            Step::Restore if !world.saved.is_empty() => {
                let saved = u.choose_index(world.saved.len())?;
                world.restore(saved);
            }
            Step::Open => {
                if let Some(block) = world.any_block(u)? {
                    world.open(block);
                }
            }
            Step::Close if !world.host.opened.is_empty() => {
                let opened = u.choose_index(world.host.opened.len())?;
                world.close(opened);
            }
            Step::Judge => world.judge_leaks(),
            Step::Inject => world.inject(u)?,
            _ => world.nap(),
        }
        Ok(())
    }

    fn end_call(world: &World<Self>) {
        // No pool has this name: the call only ends, which is when sources take back what was theirs.
        world.host.plugin.empty_pool(EAGER).expect("nothing happens to an unknown pool");
    }

    fn judge(world: &mut World<Self>) {
        world.judge_figures();
    }
}

impl World<Named> {
    pub(super) fn named(u: &mut Unstructured<'_>, steps: Weights<Step>) -> Self {
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
        if !(shape / 36).is_multiple_of(2) {
            sleep::keep_in_files(&plugin);
        }
        let host = Named {
            plugin,
            pools: (1..=3).map(|number| Pool::new((0, number), false)).collect(),
            pool: 0,
            routes: Vec::new(),
            caches: true,
            sleeps: !(shape / 18).is_multiple_of(2),
            opened: Vec::new(),
            lingers: false,
        };
        let given = Arc::new(Given::new(Arc::clone(&driver)));
        let mut world = Self::new(host, driver, given, steps);
        for _ in 0..2 + usize::from(shape / 6) % 3 {
            let name = must(world.driver.create_stream());
            world.add_stream(name, name);
        }
        world
    }

    fn allocate_block(&mut self, u: &mut Unstructured<'_>, row: usize) -> Result<()> {
        let requested = size(u)?;
        let elsewhere = u.ratio(1, 8)?;
        let in_region = self.host.sleeps && !elsewhere && u.ratio(1, 6)?;
        let stream = self.streams[row];
        let Stream { name, capture: graph, .. } = stream;
        let ask = || match in_region {
            true => self.in_region(|| self.host.plugin.allocate(requested, 0, name)),
            false => self.host.plugin.allocate(requested, 0, name),
        };
        let given = if elsewhere {
            std::thread::scope(|scope| scope.spawn(ask).join().expect("no thread panics"))
        } else {
            ask()
        };
        let address = match given {
            Ok(address) => address,
            Err(error) if error.out_of_memory().is_some() => return Ok(()),
            Err(error) => {
                self.excuse(&error);
                return Ok(());
            }
        };
        let report = self.host.plugin.live_block(address).expect("the block is live");
        self.tell(format_args!(
            "block {} on {row}: {address:#x}+{:#x}, {:?}, graph {graph:?}, elsewhere {elsewhere}",
            self.blocks.len(),
            report.bytes,
            report.key
        ));
        assert_eq!((report.requested, report.stream), (requested, name));
        assert!(report.bytes >= requested && address.is_multiple_of(512));
        let route = self
            .host
            .routes
            .last()
            .filter(|_| !elsewhere && !in_region)
            .map(|&pool| self.host.pools[pool].key);
        let asked = self.route_of(graph, route);
        let lends = |key| self.host.pools.iter().any(|pool| pool.key == key && pool.lends());
        let borrowed = asked == EAGER && self.host.caches && !in_region && lends(report.key);
        assert!(report.key == asked || borrowed, "{asked:?} was asked, {:?} gave", report.key);
        for pool in self.host.pools.iter_mut().filter(|pool| borrowed && pool.key == report.key) {
            pool.has_lent = true;
        }
        let around = self.host.plugin.surroundings_of(address).expect("the block is live");
        let whole = |key| self.host.pools.iter().any(|pool| pool.key == key && pool.no_split);
        let sole = around == (address, report.bytes);
        assert!(!whole(report.key) || sole, "a whole block was split");
        self.judge_place(number(report.key), (address, address + report.bytes), stream);
        self.enter(Block {
            id: (),
            pool: number(report.key),
            address,
            bytes: report.bytes,
            requested,
            users: vec![row],
            home: graph,
            born: self.now,
            restored: false,
            counts: self.order.counts(),
            live: true,
            large: false,
            borrowed,
            tag: self.blocks.len() as u64 + 1,
            writer: Writer::NotWritten,
        });
        Ok(())
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

    /// The figures of every pool add up to the byte.
    pub(super) fn judge_figures(&self) {
        let reports = self.host.plugin.pools(0).expect("the device is there");
        for key in self.host.pools.iter().map(|pool| pool.key).chain([EAGER]) {
            let reported = reports.iter().filter(|report| report.key == key);
            let reported: u64 = reported.map(|report| report.allocated).sum();
            let live = self.blocks.iter().filter(|block| block.live && block.pool == number(key));
            assert_eq!(reported, live.map(|block| block.bytes).sum::<u64>(), "pool {key:?}");
        }
        let held: u64 = reports.iter().map(|report| report.reserved).sum();
        let used = self.driver.used_bytes();
        match self.host.opened.is_empty() && !self.host.lingers {
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
        while !self.host.routes.is_empty() {
            self.end_route();
        }
        for graph in 0..self.captures.len() {
            self.replay(graph, 0);
        }
        for block in self.live() {
            self.free(block, None);
        }
        for graph in 0..self.captures.len() {
            self.release_graph(graph);
        }
        while !self.host.opened.is_empty() {
            self.close(0);
        }
        for pool in 0..self.host.pools.len() {
            while self.host.pools[pool].objects > 0 {
                self.drop_object(pool);
            }
        }
        self.judge_device();
        self.judge_figures();
        self.host.plugin.empty_cache().expect("nothing fails any more");
        assert_eq!(self.driver.used_bytes(), 0, "device memory was lost");
        self.given.judge_balance();
    }
}
