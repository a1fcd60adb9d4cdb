//! The host: its device, streams, blocks and captures, under settings of all kinds.

use std::sync::Arc;

use arbitrary::Unstructured;

use super::super::given::Given;
use super::figures::{Device, Model};
use super::kinds::Kind;
use super::order::{Ranges, Streams};
use super::renamed::Renamed;
use regraph::driver::{
    CaptureId, DriverError, ErrorKind, ExecutableHandle, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{
    BlockId, Config, Engine, Error, Flaw, GraphId, ImportId, PoolConfig, PoolId, Spare,
};
use regraph::settings::{Rounding, Settings};
use regraph_sim::{Call, SimConfig, SimDriver};

pub(super) const MIB: u64 = 1 << 20;

/// Steps after which a program ends, even if bytes are left.
pub(super) const LONGEST: u64 = 500;

/// What calls fail with that were made to.
const INJECTED: &str = "as asked for";

const GIVING_BACK: [Call; 4] = [Call::Release, Call::Unmap, Call::Unreserve, Call::Free];

/// A stream that lives.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// The engine's name of it.
    pub name: StreamHandle,
    /// The simulated driver's.
    pub real: StreamHandle,
    /// The model's.
    pub row: usize,
    /// The capture that it captures.
    pub capture: Option<usize>,
}

/// What wrote a block's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    NotWritten,
    /// An operation of the block's own stream.
    Eager(usize),
    /// A node of a capture.
    Node(usize),
}

pub(super) struct Block {
    pub id: BlockId,
    pub pool: usize,
    pub address: u64,
    pub bytes: u64,
    pub requested: u64,
    /// The model's rows of the streams that may use it; its own first.
    pub users: Vec<usize>,
    /// The capture that allocated it.
    pub home: Option<usize>,
    /// When it was allocated.
    pub born: u64,
    /// How far each stream had come then.
    pub counts: Vec<usize>,
    pub live: bool,
    /// Whether it lies among large blocks.
    pub large: bool,
    /// Whether it was lent by a pool that was not asked.
    pub borrowed: bool,
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
    /// Its graph will never run, or never again.
    Gone,
}

pub(super) struct Capture {
    pub id: CaptureId,
    pub fate: Fate,
    /// When it got its latest node.
    pub latest: u64,
    pub graph: Option<GraphId>,
    /// Whether every pool was told of it before it began.
    pub told: bool,
    pub executable: Option<ExecutableHandle>,
}

/// Everything that a program has made so far.
pub(super) struct World {
    pub driver: Arc<SimDriver>,
    pub renamed: Arc<Renamed>,
    pub engine: Engine<Arc<Renamed>>,
    pub settings: Settings,
    pub total: u64,
    pub limit: Option<u64>,
    pub pool_limit: Option<u64>,
    pub flaw: Option<Flaw>,
    pub caught: bool,
    pub pools: Vec<PoolId>,
    /// What each is like.
    pub kinds: Vec<Kind>,
    /// Who may have what is free in each.
    pub spares: Vec<Spare>,
    /// Where pools with a source get their memory.
    pub given: Arc<Given>,
    /// Whether pools are of all kinds and lend to each other.
    pub various: bool,
    /// Memory of blocks that is mapped a second time, and the blocks; none once that memory is theirs no more.
    pub imports: Vec<(ImportId, u64, Option<usize>)>,
    /// Of each pool, whether it is suspended.
    pub suspended: Vec<bool>,
    pub streams: Vec<Stream>,
    pub spare_names: Vec<StreamHandle>,
    pub order: Streams,
    pub ranges: Ranges,
    pub figures: Model,
    pub blocks: Vec<Block>,
    pub captures: Vec<Capture>,
    /// Whether the driver's calls may be made to fail.
    pub faulty: bool,
    /// Whether one ever was.
    pub faulted: bool,
    pub device: Device,
    /// Whether there was a capture that the engine was not told of: what it may use is unknown.
    pub untold: bool,
    /// Whether figures are judged after every step.
    pub watched: bool,
    pub now: u64,
    pub next_name: usize,
    pub told: bool,
    pub addresses: Vec<u64>,
}

/// What a driver call gave that a legal program makes.
pub(super) fn must<T>(result: Result<T, DriverError>) -> T {
    result.expect("a legal call on the simulated driver succeeds")
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

impl World {
    pub(super) fn new(u: &mut Unstructured<'_>, flaw: Option<Flaw>) -> Self {
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
        let mut world = Self {
            limit: settings.memory_limit_bytes,
            figures: Model::new(pools.len()),
            driver,
            renamed,
            engine,
            settings,
            total,
            pool_limit,
            flaw,
            caught: false,
            suspended: vec![false; pools.len()],
            spares: vec![Spare::GivenBack; pools.len()],
            kinds,
            given,
            various,
            imports: Vec::new(),
            pools,
            streams: Vec::new(),
            spare_names: Vec::new(),
            order: Streams::default(),
            ranges: Ranges::default(),
            blocks: Vec::new(),
            captures: Vec::new(),
            faulty,
            faulted: false,
            device: Device::Exact,
            untold: false,
            watched,
            now: 0,
            next_name: 0x1000,
            told: std::env::var_os("REGRAPH_FUZZING_TOLD").is_some(),
            addresses: Vec::new(),
        };
        for _ in 0..count {
            world.create_stream();
        }
        world.tell(format_args!(
            "{} on {total} bytes, {support:?}, limits {:?} {pool_limit:?}, faulty {faulty}, {:?}",
            world.settings, world.limit, world.kinds
        ));
        world
    }

    /// A new stream, perhaps with the name of one that is gone.
    pub(super) fn create_stream(&mut self) {
        let name = self.spare_names.pop().unwrap_or_else(|| {
            self.next_name += 0x40;
            StreamHandle::from_bits(self.next_name)
        });
        let real = must(self.driver.create_stream());
        self.renamed.name(name, Some(real));
        let row = self.order.add();
        self.tell(format_args!("stream {row} is {name:?}"));
        self.streams.push(Stream { name, real, row, capture: None });
    }

    /// Prints what happens, where that was asked for.
    pub(super) fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.told {
            eprintln!("{:4} {what}", self.now);
        }
    }

    /// Makes a coming call of the driver fail.
    pub(super) fn inject(&mut self, u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let n = u64::from(u.arbitrary::<u8>()? % 12);
        let memory = u.ratio(1, 3)?;
        let kind =
            if memory { ErrorKind::OutOfMemory } else { ErrorKind::Other(INJECTED.to_owned()) };
        if self.various && u.ratio(1, 8)? {
            self.tell(format_args!("the source's next address will be odd"));
            self.faulted = true;
            self.given.misplace();
            return Ok(());
        }
        let call = *u.choose(Call::ALL)?;
        self.tell(format_args!("call {n} of {call:?} will fail: {kind:?}"));
        self.faulted = true;
        if GIVING_BACK.contains(&call) {
            self.device = Device::Lossy;
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

    pub(super) fn live(&self) -> Vec<usize> {
        (0..self.blocks.len()).filter(|&block| self.blocks[block].live).collect()
    }

    /// The stream of a model's row, while it lives.
    pub(super) fn of_row(&self, row: usize) -> Option<Stream> {
        self.streams.iter().copied().find(|stream| stream.row == row)
    }

    /// Judges all figures.
    pub(super) fn judge_figures(&mut self) {
        let all = self.engine.statistics().expect("the engine is sound");
        let pools: Vec<_> = (self.pools.iter())
            .map(|&pool| self.engine.statistics_of(pool).expect("the pool exists"))
            .collect();
        // What is mapped a second time stays with the device when it is given back.
        let device = if self.imports.is_empty() { self.device } else { Device::Lossy };
        self.figures.judge(&all, &pools, self.driver.used_bytes(), device);
    }
}
