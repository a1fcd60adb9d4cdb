//! A host that asks the engine itself, under settings of all kinds.
//!
//! * [`memory`], [`captures`], [`suspend`]: what it does.
//! * [`kinds`]: pools of all kinds: with memory of the host's own, whole blocks, or none cached; who
//!   lends to whom; and blocks that are mapped a second time.
//! * [`figures`]: what the engine's figures must say, to the byte.
//! * [`finish`]: everything ends, and all memory must be back.

mod captures;
mod figures;
mod finish;
mod kinds;
mod memory;
mod suspend;

use std::sync::Arc;

use arbitrary::{Result, Unstructured};

use super::checkpoints::Restored;
use super::features::Step;
use super::renamed::Renamed;
use super::world::{must, Host, Stream, World, MIB};
use crate::given::Given;
use crate::weights::Weights;
use figures::{Device, Model};
use kinds::Kind;
use regraph::driver::{CaptureId, ErrorKind, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{
    BlockId, Checkpoint, CheckpointRefusal, Config, Engine, Error, Flaw, GraphId, ImportId,
    PoolConfig, PoolId, PoolRefusal, Spare, StreamRefusal,
};
use regraph::settings::{Rounding, Settings};
use regraph_sim::{Call, SimConfig, SimDriver};

/// What calls fail with that were made to.
const INJECTED: &str = "as asked for";

const GIVING_BACK: [Call; 4] = [Call::Release, Call::Unmap, Call::Unreserve, Call::Free];

/// The host.
pub(super) struct Direct {
    renamed: Arc<Renamed>,
    pub(super) engine: Engine<Arc<Renamed>>,
    settings: Settings,
    total: u64,
    limit: Option<u64>,
    pool_limit: Option<u64>,
    pools: Vec<PoolId>,
    /// What each is like.
    kinds: Vec<Kind>,
    /// Who may have what is free in each.
    spares: Vec<Spare>,
    /// Whether pools are of all kinds and lend to each other.
    various: bool,
    /// Memory of blocks that is mapped a second time, and the blocks; none once that memory is theirs no more.
    imports: Vec<(ImportId, u64, Option<usize>)>,
    /// Of each pool, whether it is suspended.
    suspended: Vec<bool>,
    spare_names: Vec<StreamHandle>,
    figures: Model,
    /// Whether the driver's calls may be made to fail.
    faulty: bool,
    device: Device,
    /// Whether there was a capture that the engine was not told of: what it may use is unknown.
    untold: bool,
    /// Whether figures are judged after every step.
    watched: bool,
    next_name: usize,
}

/// What the engine was told of a capture, and calls it.
pub(super) struct Told {
    pub id: CaptureId,
    pub graph: Option<GraphId>,
    /// Whether every pool was told of it before it began.
    pub all: bool,
}

/// Settings of all kinds.
fn settings(mut next: impl FnMut() -> u8, total: u64) -> Settings {
    let mut settings = Settings::default()
        .caching(!next().is_multiple_of(8))
        .expandable_segments(!next().is_multiple_of(3))
        .max_split_bytes(next().is_multiple_of(4).then_some(20 * MIB))
        .max_non_split_rounding_bytes(u64::from(next() % 3) * 2 * MIB);
    let strict = next();
    if strict.is_multiple_of(3) {
        settings.memory_limit_bytes = Some(total / 2 + u64::from(strict) * MIB / 8);
        let threshold = 0.2 + f64::from(next()) / 400.0;
        settings.garbage_collection_threshold = strict.is_multiple_of(2).then_some(threshold);
    }
    let divisions = next();
    if divisions.is_multiple_of(3) {
        let rounding = Rounding::uniform(1 << (divisions / 3 % 4));
        settings.rounding = rounding.expect("a power of two");
    }
    settings.history = if next().is_multiple_of(4) { 64 } else { 0 };
    settings
}

impl Host for Direct {
    type Id = BlockId;
    type Detail = Told;
    type Error = Error;
    type Driver = Arc<Renamed>;

    fn allocate(world: &mut World<Self>, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        world.allocate_block(u, stream)
    }

    fn give_back(world: &mut World<Self>, number: usize, from: Option<StreamHandle>) {
        let block = &world.blocks[number];
        let engine = &world.host.engine;
        let recorded = from.map_or(Ok(()), |stream| engine.record_stream(block.id, stream));
        recorded.and_then(|()| engine.free(block.id)).expect("the block is live");
        world.host.figures.remove((block.pool, block.large), block.bytes, block.requested);
    }

    fn record(
        world: &World<Self>,
        block: usize,
        stream: StreamHandle,
        last: bool,
    ) -> std::result::Result<(), Error> {
        let id = world.blocks[block].id;
        match last {
            true => world.host.engine.record_use(id, stream),
            false => world.host.engine.record_stream(id, stream),
        }
    }

    fn excuse(world: &World<Self>, error: &Error) {
        world.excuse(error);
    }

    fn step(
        world: &mut World<Self>,
        step: Step,
        stream: usize,
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        let pool =
            |world: &World<Self>, u: &mut Unstructured<'_>| u.choose_index(world.host.pools.len());
        match step {
            Step::Suspend => world.suspend(pool(world, u)?),
            Step::Resume => world.resume(pool(world, u)?),
            Step::Free => {
                let from = u.ratio(1, 6)?.then_some(stream);
                if let Some(block) = world.any_block(u)? {
                    // What a capture allocated is used and freed in its own order here.
                    let from = from.filter(|_| world.blocks[block].home.is_none());
                    if let Some(stream) = from {
                        world.share(block, stream, false);
                    }
                    let named =
                        |&it: &usize| world.blocks[block].users.contains(&world.streams[it].row);
                    let from = from.filter(named);
                    world.free(block, from);
                }
            }
            Step::Share => {
                let last = u.ratio(1, 6)?;
                if let Some(block) = world.any_block(u)? {
                    world.share(block, stream, last);
                }
            }
            Step::VaryOrMark | Step::VaryOrReplace if world.host.various => world.vary(u)?,
            Step::VaryOrMark => world.mark(stream),
            Step::VaryOrReplace | Step::Replace => world.replace_stream(stream),
            Step::Limit => world.change_limit(u)?,
            Step::Reset => world.reset(u)?,
            Step::Begin => world.begin(u, stream)?,
            Step::End => {
                let (abandon, engine_first) = (u.ratio(1, 6)?, u.arbitrary()?);
                world.end(stream, abandon, engine_first);
            }
            Step::ReplayOrRelease => {
                let (number, run) = (u.arbitrary::<u8>()?, u.ratio(2, 3)?);
                if !world.captures.is_empty() {
                    let number = usize::from(number) % world.captures.len();
                    if run {
                        world.replay(number, stream);
                    } else {
                        world.release(number);
                    }
                }
            }
            Step::Judge => match u.int_in_range(0..=2u8)? {
                0 => world.judge_leaks(),
                1 => world.judge_figures(),
                _ => {
                    let pool = pool(world, u)?;
                    world.explain(pool, stream);
                }
            },
            Step::Save => {
                let pool = pool(world, u)?;
                world.save(pool);
            }
            Step::Restore => {
                if !world.saved.is_empty() {
                    let saved = u.choose_index(world.saved.len())?;
                    world.restore(saved);
                }
            }
            Step::Misuse => world.misuse(u)?,
            Step::Inject if world.host.faulty => world.inject(u)?,
            _ => world.judge_figures(),
        }
        Ok(())
    }

    fn judge(world: &mut World<Self>) {
        if world.host.watched && !world.caught {
            world.judge_figures();
        }
    }

    fn is_graph_of(graph: &Told, _: usize) -> bool {
        graph.all
    }

    fn engine(&self) -> &Engine<Self::Driver> {
        &self.engine
    }

    fn live_in(world: &World<Self>, pool: usize) -> Vec<u64> {
        let live = world.host.engine.host().live_blocks(world.host.pools[pool]);
        live.expect("the pool exists").iter().map(|block| block.address).collect()
    }

    fn checkpoint(world: &World<Self>, pool: usize) -> Option<Checkpoint> {
        match world.host.engine.host().checkpoint(world.host.pools[pool]) {
            Ok(checkpoint) => return Some(checkpoint),
            Err(error) => world.judge_no_checkpoint(pool, &error),
        }
        None
    }

    fn restore(
        world: &World<Self>,
        pool: usize,
        checkpoint: &Checkpoint,
    ) -> Option<Restored<BlockId>> {
        match world.host.engine.host().restore(world.host.pools[pool], checkpoint) {
            Ok(restored) => {
                let live = restored.live.iter().map(|block| (block.address, block.id)).collect();
                let freed = restored.freed.iter().map(|block| block.address).collect();
                return Some(Restored { freed, live });
            }
            Err(Error::Checkpoint { why: CheckpointRefusal::Gone { .. }, .. }) => {}
            Err(error) => world.judge_no_checkpoint(pool, &error),
        }
        None
    }

    fn note_gone(world: &mut World<Self>, block: usize) {
        let block = &world.blocks[block];
        world.host.figures.remove((block.pool, block.large), block.bytes, block.requested);
    }

    fn note_back(world: &mut World<Self>, block: usize) {
        let block = &world.blocks[block];
        world.host.figures.add((block.pool, block.large), block.bytes, block.requested);
    }

    fn kept(world: &World<Self>) -> Vec<u64> {
        let keeps = |pool: &usize| {
            matches!(world.host.spares[*pool], Spare::Kept | Spare::OfferedWhenShort)
                && !world.is_uncached(*pool)
        };
        let pools = (0..world.host.pools.len()).filter(keeps);
        let held = |pool: usize| {
            let figures = world.host.engine.statistics_of(world.host.pools[pool]);
            figures.expect("the pool exists").all.reserved_bytes.current
        };
        pools.map(held).collect()
    }

    fn keeps_free(&self) -> bool {
        self.settings.caching && !self.kinds.iter().any(|kind| kind.uncached)
    }

    fn sleeps(&self, pool: usize) -> bool {
        self.suspended[pool]
    }
}

impl World<Direct> {
    pub(super) fn direct(
        u: &mut Unstructured<'_>,
        steps: Weights<Step>,
        flaw: Option<Flaw>,
    ) -> Self {
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
        let various = device >= 64;
        let shape = next();
        let pools = if various { 3 } else { 1 + usize::from(shape) % 2 };
        let count = 2 + usize::from(shape / 2) % 4;
        let pool_limit = (shape / 8).is_multiple_of(5).then_some(24 * MIB);
        let faulty = (shape / 40).is_multiple_of(3) && flaw.is_none();
        let watched = next().is_multiple_of(2);
        let kinds: Vec<_> = match various {
            true => (0..pools).map(|_| Kind::new(next())).collect(),
            false => vec![Kind::default(); pools],
        };
        let exportable = various && next().is_multiple_of(3);
        let settings = settings(next, total).exportable(exportable);

        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: total, support }));
        let renamed = Arc::new(Renamed::new(driver.clone()));
        let config = Config::default().settings(settings.clone()).flaw(flaw).report_leaks(false);
        let engine = Engine::new(renamed.clone(), config);
        let given = Arc::new(Given::new(driver.clone()));
        let pool = |kind: &Kind| {
            let mut config = PoolConfig::default();
            config.max_bytes = pool_limit;
            engine.create_pool(kind.apply(config, &given))
        };
        let pools: Vec<_> = kinds.iter().map(pool).collect();
        let host = Direct {
            limit: settings.memory_limit_bytes,
            figures: Model::new(pools.len()),
            renamed,
            engine,
            settings,
            total,
            pool_limit,
            suspended: vec![false; pools.len()],
            spares: vec![Spare::GivenBack; pools.len()],
            kinds,
            various,
            imports: Vec::new(),
            pools,
            spare_names: Vec::new(),
            faulty,
            device: Device::Exact,
            untold: false,
            watched,
            next_name: 0x1000,
        };
        let mut world = Self::new(host, driver, given, steps);
        world.flawed = flaw.is_some();
        for _ in 0..count {
            world.create_stream();
        }
        world.tell(format_args!(
            "{} on {total} bytes, {support:?}, limits {:?} {pool_limit:?}, faulty {faulty}, {:?}",
            world.host.settings, world.host.limit, world.host.kinds
        ));
        world
    }

    /// Why a pool has no checkpoint, or does not go back to one.
    fn judge_no_checkpoint(&self, pool: usize, error: &Error) {
        let known = match error {
            Error::Checkpoint { why: CheckpointRefusal::Captures { .. }, .. } => {
                self.captures_now()
            }
            Error::Checkpoint { why: CheckpointRefusal::NoWayBack, .. } => self.is_uncached(pool),
            Error::Pool { why: PoolRefusal::Suspended { .. }, .. } => self.host.suspended[pool],
            _ => false,
        };
        if !known {
            self.excuse(error);
        }
    }

    /// A new stream, perhaps with the name of one that is gone.
    pub(super) fn create_stream(&mut self) {
        let host = &mut self.host;
        let name = host.spare_names.pop().unwrap_or_else(|| {
            host.next_name += 0x40;
            StreamHandle::from_bits(host.next_name)
        });
        let real = must(self.driver.create_stream());
        host.renamed.name(name, Some(real));
        self.add_stream(name, real);
    }

    /// Makes a coming call of the driver fail.
    pub(super) fn inject(&mut self, u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let n = u64::from(u.arbitrary::<u8>()? % 12);
        let memory = u.ratio(1, 3)?;
        let kind =
            if memory { ErrorKind::OutOfMemory } else { ErrorKind::Other(INJECTED.to_owned()) };
        if self.host.various && u.ratio(1, 8)? {
            self.tell(format_args!("the source's next address will be odd"));
            self.faulted = true;
            self.given.misplace();
            return Ok(());
        }
        let call = *u.choose(Call::ALL)?;
        self.tell(format_args!("call {n} of {call:?} will fail: {kind:?}"));
        self.faulted = true;
        if GIVING_BACK.contains(&call) {
            self.host.device = Device::Lossy;
        }
        self.driver.fail_nth(call, n, kind);
        Ok(())
    }

    /// An error of the engine's that is due to a call that was made to fail, and to nothing else.
    pub(super) fn excuse(&self, error: &Error) {
        let injected = match error {
            Error::Driver(error) => {
                let misplaced = error.to_string().contains("is not an address that blocks");
                let injected = error.kind == ErrorKind::Other(INJECTED.to_owned());
                error.is_out_of_memory() || injected || misplaced
            }
            _ => true,
        };
        assert!(self.faulted && injected, "an error without a cause: {error}");
    }

    /// Destroys a stream that only its own blocks name, and makes another.
    pub(super) fn replace_stream(&mut self, stream: usize) {
        let Stream { name, real, row, capture } = self.streams[stream];
        let foreign = |block: &usize| self.blocks[*block].users[1..].contains(&row);
        if capture.is_some() || self.live().iter().any(foreign) {
            return;
        }
        // A host that goes back to checkpoints promises that what uses a pool later comes after all that has used it: that
        // goes for a stream that is new as well. It can wait for no stream that captures or is gone.
        let promises = !self.saved.is_empty();
        if promises && self.captures_now() {
            return;
        }
        self.tell(format_args!("stream {row} retires"));
        match self.host.engine.retire_stream(name) {
            Ok(()) => {}
            Err(error @ Error::Stream { why: StreamRefusal::InUse, .. }) => {
                return self.excuse(&error)
            }
            Err(error) => panic!("retire_stream: {error}"),
        }
        must(self.driver.destroy_stream(real));
        self.host.renamed.name(name, None);
        self.host.spare_names.push(name);
        self.streams.remove(stream);
        if promises {
            self.judge_device();
        }
        self.create_stream();
    }

    fn change_limit(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let step = u.arbitrary::<u8>()?;
        self.host.limit = (!step.is_multiple_of(3)).then_some(u64::from(step) * MIB);
        self.tell(format_args!("limit {:?}", self.host.limit));
        self.host.engine.set_memory_limit(self.host.limit).expect("the engine is sound");
        Ok(())
    }

    fn reset(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if u.arbitrary()? {
            self.host.engine.reset_peaks().expect("the engine is sound");
            self.host.figures.reset_peaks();
        } else {
            self.host.engine.reset_accumulated().expect("the engine is sound");
            self.host.figures.reset_accumulated();
        }
        Ok(())
    }

    /// Judges all figures.
    pub(super) fn judge_figures(&mut self) {
        let all = self.host.engine.statistics().expect("the engine is sound");
        let pools: Vec<_> = (self.host.pools.iter())
            .map(|&pool| self.host.engine.statistics_of(pool).expect("the pool exists"))
            .collect();
        // What is mapped a second time stays with the device when it is given back.
        let device = if self.host.imports.is_empty() { self.host.device } else { Device::Lossy };
        self.host.figures.judge(&all, &pools, self.driver.used_bytes(), device);
    }
}
