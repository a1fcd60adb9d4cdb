//! Random programs of a host that knows memory by its address, names its pools, and asks the plug-in: eager work on
//! several streams, with captures now and then, whose kernels check the tags that they read.
//!
//! * [`world`]: what is known of the device, and what the host does with it; [`steps`]: how often.
//! * [`pools`]: pools by name, their users, and where requests go; [`graphs`]: what is captured there;
//!   [`checkpoints`]: going back.
//! * [`shared`]: blocks that are opened by their handles; [`sleep`]: a region that sleeps and wakes.
//! * [`figures`]: what the engine's figures must say, to the byte.
//!
//! Calls of the driver may be made to fail: each call of the plug-in must then end in success or in a clean error, with
//! its promises kept.

mod checkpoints;
mod figures;
mod graphs;
mod pools;
mod shared;
mod sleep;
mod steps;
mod world;

use std::sync::Arc;

use arbitrary::{Result, Unstructured};

use crate::given::{settings, Given};
pub use figures::Kept;
use pools::Pool;
use regraph::driver::{ErrorKind, MemorySupport};
use regraph::engine::{self, Checkpoint, CheckpointRefusal, Config, Engine, Statistics};
use regraph::settings::Settings;
use regraph_plugin::{Error, OpenedId, Plugin, PoolKey, Restored, Watched};
use regraph_sim::{Call, SimConfig, SimDriver};
use world::{Block, Fate, Stream, World, MIB};

/// The name of eager work's own pool.
const EAGER_POOL: PoolKey = (0, 0);

/// What calls fail with that were made to.
const INJECTED: &str = "as asked for";

/// Calls after whose failure the device holds more than the engine.
const GIVING_BACK: [Call; 5] =
    [Call::Release, Call::Unmap, Call::Unreserve, Call::Free, Call::CloseAllocation];

/// Calls after whose failure memory may be gone for good: allocations are not tried again, nor handles of a pool that has
/// gone, and what is freed where it is not known whether a stream captures is a graph's.
const LOSING: [Call; 4] = [Call::Free, Call::CloseAllocation, Call::Release, Call::CaptureStatus];

/// Calls after whose failure a pool may be short of memory for good, as this host resumes none.
const MAPPING: [Call; 2] = [Call::Map, Call::SetAccess];

/// Runs the program that the bytes spell and checks everything that it shows.
///
/// # Panics
/// Where the plug-in or the engine is wrong.
pub fn named(data: &[u8]) {
    let first = run(data);
    // Every program twice would cost as much as twice the programs.
    if data.first().is_some_and(|byte| byte.is_multiple_of(4)) {
        assert_eq!(first, run(data), "the same program got other addresses");
    }
}

/// Takes steps until the bytes end, at most so many; and where all blocks lay, in the order of their allocation.
fn run(data: &[u8]) -> Vec<u64> {
    const LONGEST: u64 = 450;
    let mut bytes = Unstructured::new(data);
    let mut world = World::named(&mut bytes);
    // The bytes never run dry with an error: what is missing reads as zero.
    while !bytes.is_empty() && world.now < LONGEST {
        world.step(&mut bytes).expect("missing bytes read as zeroes");
        world.host.plugin.engines().for_each(crate::judge_tables);
    }
    world.finish();
    world.blocks.iter().map(|it| it.address).collect()
}

/// The model's number of a pool: its place among those with names, and one behind them for eager work's own.
fn number(key: PoolKey) -> usize {
    key.1.checked_sub(1).map_or(3, |number| number as usize)
}

/// The host.
struct Host {
    plugin: Plugin<Arc<SimDriver>>,
    pools: Vec<Pool>,
    /// Pools that the thread's requests are sent to, the latest last.
    routes: Vec<usize>,
    /// Whether blocks of eager work are cached now, and whether some were not.
    caches: bool,
    uncached: bool,
    settings: Settings,
    /// What the device has, and the most that is to be held of it, in bytes.
    total: u64,
    limit: Option<u64>,
    /// Whether there is a region.
    sleeps: bool,
    opened: Vec<Opened>,
    /// Whether memory may be mapped still that was closed while something captured.
    lingers: bool,
    /// Whether a call was made to fail that gives memory back.
    lossy: bool,
    /// Whether one of [`LOSING`] was.
    keeps: bool,
    /// Whether the plug-in is not told of some captures, whose end it does not know of. It waits for the device where
    /// memory is short, which would ruin them: here it never is.
    strays: bool,
}

impl Host {
    fn engine(&self) -> &Engine<Watched<Arc<SimDriver>>> {
        self.plugin.engine(0).expect("the device is there")
    }

    /// Where the blocks of a pool lie that a checkpoint of it has now.
    fn live_in(&self, pool: usize) -> Vec<u64> {
        self.plugin.live_in_pool(0, self.pools[pool].key).unwrap_or_default()
    }
}

/// Memory that was opened, and the block behind it.
struct Opened {
    id: OpenedId,
    address: u64,
    block: usize,
}

/// What a program asks for.
fn size(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=9u8)? {
        0 => u.int_in_range(1..=2048)?,
        1 | 2 => 512 * u.int_in_range(1..=8)?,
        3 => u.int_in_range(1..=MIB + 1)?,
        4..=6 => 2 * MIB * u.int_in_range(1..=3)?,
        7 | 8 => MIB * u.int_in_range(1..=12)?,
        _ => u.int_in_range(1..=30 * MIB)?,
    })
}

impl World {
    fn named(u: &mut Unstructured<'_>) -> Self {
        let mut next = || u.arbitrary::<u8>().unwrap_or_default();
        let device = next();
        let support = match device % 4 {
            0 => MemorySupport::Allocated,
            1 => MemorySupport::Mapped { granularity: 512 << 10 },
            _ => MemorySupport::Mapped { granularity: 2 << 20 },
        };
        let total = match device / 4 % 4 {
            0 => 8 << 30,
            tight => u64::from(tight) * 32 * MIB,
        };
        let (shape, backup) = (next(), next());
        let settings = settings(next, total);
        let roomy = total > 1 << 30 && settings.memory_limit_bytes.is_none();
        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: total, support }));
        driver.give_streams_again();
        let config = Config::default().settings(settings.clone()).report_leaks(false);
        let connected = Arc::clone(&driver);
        let plugin = Plugin::new(config, move |_| Ok(Arc::clone(&connected)));
        if backup.is_multiple_of(2) {
            sleep::keep_in_files(&plugin);
        }
        let host = Host {
            plugin,
            pools: (1..=3).map(|number| Pool::new((0, number), false)).collect(),
            routes: Vec::new(),
            caches: true,
            uncached: false,
            total,
            limit: settings.memory_limit_bytes,
            settings,
            sleeps: (shape / 5).is_multiple_of(2),
            opened: Vec::new(),
            lingers: false,
            lossy: false,
            keeps: false,
            strays: (shape / 10).is_multiple_of(2) && roomy,
        };
        let given = Arc::new(Given::new(Arc::clone(&driver)));
        let mut world = Self::new(host, driver, given);
        for _ in 0..2 + usize::from(shape) % 4 {
            world.create_stream();
        }
        world.tell(format_args!("{} on {total} bytes, {support:?}", world.host.settings));
        world
    }

    fn checkpoint(&self, pool: usize) -> Option<Checkpoint> {
        match self.host.plugin.checkpoint(0, self.host.pools[pool].key) {
            Ok(checkpoint) => return Some(checkpoint),
            Err(Error::UnknownPool { .. }) => {}
            Err(Error::Engine(engine::Error::Checkpoint {
                why: CheckpointRefusal::Captures { .. },
                ..
            })) => {
                // A route that began later has the capture use another pool than its own. Where the driver does not say
                // whether a stream captures, the plug-in does not know that its capture is over.
                let unsure = self.captures_now() || self.faulted;
                assert!(unsure, "nothing captures into the pool");
            }
            Err(error) => self.excuse(&error),
        }
        None
    }

    fn go_back(&self, pool: usize, checkpoint: &Checkpoint) -> Option<Restored> {
        match self.host.plugin.restore(0, self.host.pools[pool].key, checkpoint) {
            Ok(restored) => return Some(restored),
            Err(
                Error::UnknownPool { .. }
                | Error::Engine(engine::Error::Checkpoint {
                    why: CheckpointRefusal::Gone { .. } | CheckpointRefusal::OtherPool { .. },
                    ..
                }),
            ) => {}
            Err(error) => self.excuse(&error),
        }
        None
    }

    /// Asks for a block, perhaps of a pool that no other request is sent to.
    fn allocate(&mut self, u: &mut Unstructured<'_>, row: usize) -> Result<()> {
        let elsewhere = u.ratio(1, 8)?;
        let aside = u.ratio(1, 8)? && self.host.routes.len() < pools::MOST_ROUTES;
        if aside {
            self.begin_route(u.choose_index(self.host.pools.len())?);
        }
        self.ask(u, row, elsewhere)?;
        if aside {
            self.end_route();
        }
        Ok(())
    }

    /// Asks for a block, perhaps on another thread or in the region.
    fn ask(&mut self, u: &mut Unstructured<'_>, row: usize, elsewhere: bool) -> Result<()> {
        let requested = size(u)?;
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
            Err(error) if error.out_of_memory().is_some() => {
                assert!(!self.must_fit(requested), "nothing is in use, and {error}");
                return Ok(());
            }
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
        let borrowed = asked == EAGER_POOL && self.host.caches && !in_region && lends(report.key);
        assert!(report.key == asked || borrowed, "{asked:?} was asked, {:?} gave", report.key);
        for pool in self.host.pools.iter_mut().filter(|pool| borrowed && pool.key == report.key) {
            pool.has_lent = true;
        }
        let around = self.host.plugin.surroundings_of(address).expect("the block is live");
        let whole = |key| self.host.pools.iter().any(|pool| pool.key == key && pool.no_split);
        let sole = around == (address, report.bytes);
        assert!(!whole(report.key) || sole, "a whole block was split");
        let apart = in_region || graph.is_some() || report.key != EAGER_POOL;
        let rounded = match self.host.caches || apart {
            true => self.host.settings.rounding.round(requested),
            false => requested.next_multiple_of(512),
        };
        // Or, where large ranges are not split, a little larger; where none is, all of its segment.
        let slack = self.host.settings.max_non_split_rounding_bytes;
        let unsplit = self.host.settings.max_split_bytes.is_some_and(|most| rounded >= most);
        let most = if unsplit { rounded + slack } else { rounded };
        let right = whole(report.key) || (rounded..=most).contains(&report.bytes);
        assert!(right, "{} given for {rounded}", report.bytes);
        self.judge_place((address, address + report.bytes), stream);
        self.enter(Block {
            pool: number(report.key),
            address,
            bytes: report.bytes,
            requested,
            users: vec![stream.row],
            home: graph,
            born: self.now,
            restored: false,
            live: true,
            large: rounded > MIB,
            tag: self.blocks.len() as u64 + 1,
            written: false,
        });
        Ok(())
    }

    /// Whether nothing is in use that could stand in the way of so many bytes.
    fn must_fit(&self, bytes: u64) -> bool {
        let idle = self.live().is_empty()
            && self.host.opened.is_empty()
            && !self.host.lingers
            && !self.faulted
            && !self.host.strays
            && self.host.pools.iter().all(|it| it.users() == 0)
            && self.captures.iter().all(|it| it.fate == Fate::Gone);
        let limits = [self.host.limit, Some(self.host.total)];
        let least = self.host.settings.rounding.round(bytes).next_multiple_of(2 * MIB);
        idle && limits.into_iter().flatten().all(|limit| least <= limit)
    }

    /// Makes a coming call of the driver fail, or has a source give an address that no block can have.
    fn inject(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let n = u64::from(u.arbitrary::<u8>()? % 12);
        let kind = match u.ratio(1, 3)? && !self.host.strays {
            true => ErrorKind::OutOfMemory,
            false => ErrorKind::Other(INJECTED.to_owned()),
        };
        if u.ratio(1, 8)? {
            self.faulted = true;
            self.given.misplace();
            return Ok(());
        }
        let call = *u.choose(Call::ALL)?;
        if MAPPING.contains(&call) {
            return Ok(());
        }
        self.tell(format_args!("call {n} of {call:?} will fail: {kind:?}"));
        self.faulted = true;
        self.host.keeps |= LOSING.contains(&call);
        self.host.lossy |= GIVING_BACK.contains(&call);
        // Once, or as long as this lasts.
        let often = if u.ratio(1, 2)? { 1 } else { 60 };
        (n..n + often).for_each(|n| self.driver.fail_nth(call, n, kind.clone()));
        Ok(())
    }

    /// An error of the plug-in's that is due to a call that was made to fail, and to nothing else.
    fn excuse(&self, error: &Error) {
        let failed = match error {
            Error::Driver(error) | Error::Engine(engine::Error::Driver(error)) => {
                let misplaced = error.to_string().contains("is not an address that blocks");
                let injected = error.kind == ErrorKind::Other(INJECTED.to_owned());
                error.is_out_of_memory() || injected || misplaced
            }
            // A capture that nothing was told of may be ruined by a wait for the device.
            Error::Engine(engine::Error::CaptureInvalidated { .. }) if self.host.strays => return,
            _ => true,
        };
        assert!(self.faulted && failed, "an error without a cause: {error}");
    }

    /// The figures of every pool, and of all of them, are right to the byte.
    fn judge_figures(&self) {
        let reports = self.host.plugin.pools(0).expect("the device is there");
        for key in self.host.pools.iter().map(|pool| pool.key).chain([EAGER_POOL]) {
            let reported = reports.iter().filter(|report| report.key == key);
            let reported: u64 = reported.map(|report| report.allocated).sum();
            let live = self.blocks.iter().filter(|block| block.live && block.pool == number(key));
            assert_eq!(reported, live.map(|block| block.bytes).sum::<u64>(), "pool {key:?}");
        }
        let held: u64 = reports.iter().map(|report| report.reserved).sum();
        let used = self.driver.used_bytes();
        match self.host.opened.is_empty() && !self.host.lingers && !self.host.lossy {
            true => assert_eq!(held, used, "held = in use on the device"),
            // What is mapped a second time stays with the device when it is given back.
            false => assert!(held <= used, "{held} held, {used} in use"),
        }
        let engine = self.host.engine();
        let all = engine.statistics().expect("the engine is sound");
        let pools = engine.pools().expect("the engine is sound").into_iter();
        let pools = pools.map(|it| engine.statistics_of(it.id).expect("the pool exists"));
        self.figures.judge(&all, &pools.collect::<Vec<Statistics>>());
    }

    /// Ends everything, frees everything and looks for what is missing.
    fn finish(&mut self) {
        self.driver.forget_failures();
        crate::judge_snapshot(self.host.engine());
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
        if !self.host.keeps && !self.host.strays {
            assert_eq!(self.driver.used_bytes(), 0, "device memory was lost");
            self.given.judge_balance();
        }
    }
}
