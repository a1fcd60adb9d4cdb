//! The host: its streams, captures and blocks, and a log of every launch.

use std::sync::Arc;

use arbitrary::Unstructured;

use super::contents::{Content, Contents};
use super::graph::NodeTable;
use super::Finding;
use regraph::driver::{
    CaptureId, CaptureStatus, Dependency, Driver, DriverError, ExecutableHandle, GraphHandle,
    HostApi, MemorySupport, NodeHandle, StreamHandle,
};
use regraph::engine::{Attempt, BlockId, Config, Engine, Flaw, GraphId, PoolConfig, PoolId};
use regraph::plan::Options;
use regraph::settings::Settings;
use regraph::settings::{PlanChoice, Programmatic, Reuse};
use regraph_sim::{SimConfig, SimDriver, SimEvent};

/// Steps after which a program ends, even if bytes are left.
pub(super) const LONGEST: u64 = 400;

/// How a stream stands, by the simulated driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Eager,
    Inside(usize),
    Ruined(usize),
}

/// How captures end in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    AtOnce,
    /// Each is judged by a thread of its own.
    InTwoSteps,
}

/// What became of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    UnderWay,
    Accepted,
    /// Its graph will never run.
    Dead,
}

/// What a capture holds that proofs and the checker may stumble over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traits {
    pub programmatic: bool,
    pub launch_order: bool,
    pub set_back: bool,
    /// A node was added that is behind no stream's terminals.
    pub stray: bool,
    /// Edges were added or removed.
    pub edited: bool,
    pub removed: bool,
    /// Some streams were not looked at before the driver ended it.
    pub unseen: bool,
}

pub(super) struct Capture {
    pub id: CaptureId,
    pub graph: GraphHandle,
    pub origin: usize,
    /// The outermost capture around it: itself, unless it is a conditional node's body.
    pub family: usize,
    pub fate: Fate,
    pub traits: Traits,
    /// When the engine learnt that it uses each pool.
    pub seen: Vec<Option<u64>>,
    /// When the engine ended it.
    pub ended: Option<u64>,
    pub nodes: NodeTable,
    pub report: Option<GraphId>,
    pub released: Option<u64>,
    pub executable: Option<ExecutableHandle>,
    /// What the host has said of it.
    pub attempt: Attempt,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Launched {
    Node { capture: usize, node: NodeHandle },
    Eager(SimEvent),
}

/// One launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub time: u64,
    pub stream: usize,
    pub what: Launched,
}

/// A use's last moment, as the host declared it.
#[derive(Clone, Debug)]
pub(super) struct LastUse {
    pub time: u64,
    pub terminals: Vec<NodeHandle>,
    /// Whether the stream was in the block's capture then.
    pub inside: bool,
}

pub(super) struct Block {
    pub id: BlockId,
    pub pool: usize,
    pub requested: u64,
    pub address: u64,
    pub bytes: u64,
    pub born: u64,
    pub home: Option<usize>,
    /// Every stream's terminals when it was born.
    pub terminals: Vec<Vec<NodeHandle>>,
    /// Its own stream first.
    pub uses: Vec<(usize, Option<LastUse>)>,
    /// Streams named after a capture of theirs may have ended: too late for what they did there.
    pub late: Vec<(usize, u64)>,
    pub freed: Option<u64>,
    /// What its first launch writes, and the launch.
    pub tag: u64,
    pub writer: Option<usize>,
    /// The physical memory behind it since its capture's end: memory, offset and bytes.
    pub behind: Vec<(u32, u64, u64)>,
    /// The physical memory behind it when it was handed out: memory, offset and bytes.
    pub behind_first: Vec<(u32, u64, u64)>,
}

impl Block {
    pub(super) fn owner(&self) -> usize {
        self.uses[0].0
    }

    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes
    }

    /// Whether two blocks share an address, or physical memory.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let addresses = other.address < self.end() && self.address < other.end();
        addresses
            || self.behind.iter().any(|&(memory, offset, bytes)| {
                let shared = |&(its, start, length): &(u32, u64, u64)| {
                    its == memory && start < offset + bytes && offset < start + length
                };
                other.behind.iter().any(shared)
            })
    }
}

/// Everything that a program has made so far.
pub(super) struct World {
    pub driver: Arc<SimDriver>,
    pub engine: Engine<Arc<SimDriver>>,
    pub programmatic: Programmatic,
    /// Which attempts the host says its captures are, in turn.
    pub attempts: u8,
    /// Whether the engine was told of launches to foresee.
    pub foresees: bool,
    pub reuse: Reuse,
    /// Of captures that get their memory at their end.
    pub plan: Option<Options>,
    /// Whether captures lie by what earlier ones, and work outside captures, have asked for.
    pub learns: bool,
    /// The most that a pool may hold, in bytes.
    pub capacity: u64,
    pub flaw: Option<Flaw>,
    /// Whether every edge that the program makes orders completely and stays, and streams that are set
    /// back are seen to be.
    pub ordered: bool,
    pub ends: Ends,
    pub pools: Vec<PoolId>,
    pub streams: Vec<StreamHandle>,
    /// Never captures and never works: for questions that shall change nothing.
    pub observer: StreamHandle,
    pub captures: Vec<Capture>,
    pub blocks: Vec<Block>,
    pub launches: Vec<Launch>,
    /// Events of the host, each with the capture that it was recorded in.
    pub events: Vec<(SimEvent, Option<usize>)>,
    /// By pool.
    pub contents: Vec<Contents>,
    /// By block: what lay there before.
    pub displaced: Vec<Vec<(u64, u64, Content)>>,
    /// Terminals that streams had once, to set them back to.
    pub past: Vec<(usize, Vec<Dependency>)>,
    /// Zero: the host does by hand what it likes; one: programmatic launches; else neither.
    pub wild: u8,
    pub now: u64,
    /// Whether to print every step, to read a failure.
    pub told: bool,
    pub addresses: Vec<u64>,
    pub finding: Finding,
    /// Of each capture that was judged, in turn.
    pub verdicts: Vec<Verdict>,
}

/// What the checker said of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub capture: usize,
    pub accepted: bool,
    /// How many blocks had been handed out.
    pub blocks: usize,
}

/// What a driver call gave that a legal program makes.
pub(super) fn must<T>(result: Result<T, DriverError>) -> T {
    result.expect("a legal call on the simulated driver succeeds")
}

/// The bounds of plans, if there are to be any.
fn plan(byte: u8) -> Option<Options> {
    let mut options = Options::default();
    match byte % 4 {
        0 | 1 => return None,
        2 => {}
        _ => {
            options.max_mappings = Some(usize::from(byte / 16));
            options.max_piece_bytes = (byte & 4 > 0).then_some(2 << 20);
        }
    }
    Some(options)
}

impl World {
    pub(super) fn new(
        u: &mut Unstructured<'_>,
        flaw: Option<Flaw>,
        ordered: bool,
        ends: Ends,
    ) -> Self {
        let mut next = || u.arbitrary::<u8>().unwrap_or_default();
        let policies = next();
        let programmatic = Programmatic::ALL[usize::from(policies) / 4 % 4];
        let reuse = match policies / 16 % 6 {
            0 => Reuse::OwnStream,
            1 => Reuse::Deferred,
            _ => Reuse::CrossStream,
        };
        let device = next();
        let support = match device % 4 {
            0 => MemorySupport::Allocated,
            1 => MemorySupport::Mapped { granularity: 512 << 10 },
            _ => MemorySupport::Mapped { granularity: 2 << 20 },
        };
        let total_bytes = if (device / 4).is_multiple_of(4) { 64 << 20 } else { 8 << 30 };
        let shape = next();
        let streams = 1 + usize::from(shape) % 6;
        let pools = 1 + usize::from(shape / 6) % 2;
        let limit = ((shape / 12).is_multiple_of(4)).then_some(48 << 20);

        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes, support }));
        let mut settings = Settings::default();
        let ways = next();
        settings.expandable_segments = !ways.is_multiple_of(4);
        if (ways / 4).is_multiple_of(4) {
            settings.memory_limit_bytes = Some(total_bytes / 2);
            settings.garbage_collection_threshold = Some(0.5);
        }
        settings.growth_step_bytes = (ways % 8 != 1).then_some(64 << 20);
        settings.history = if ways >= 192 { 32 } else { 0 };
        let planning = next();
        let plan = plan(planning);
        let learns = planning % 4 == 1;
        if learns {
            settings.plan = PlanChoice::Auto;
        }
        let config = Config::default().settings(settings).report_leaks(false);
        // A capture that is searched for late uses is judged at once.
        let config = config.find_late_uses(ends == Ends::AtOnce).judge_aside(0);
        let config = config.programmatic(programmatic).reuse(reuse).flaw(flaw);
        let engine = Engine::new(driver.clone(), config);
        let pools: Vec<_> = (0..pools)
            .map(|number: usize| {
                let config = PoolConfig::default();
                let plan = plan.as_ref().filter(|_| number == 0);
                let config = plan.map_or(config.clone(), |plan| config.plan(plan.clone()));
                engine.create_pool(limit.map_or(config.clone(), |limit| config.max_bytes(limit)))
            })
            .collect();
        Self {
            programmatic,
            attempts: policies % 4,
            foresees: false,
            reuse,
            plan,
            learns,
            capacity: limit.unwrap_or(total_bytes).min(total_bytes),
            flaw,
            ordered,
            ends,
            streams: (0..streams).map(|_| must(driver.create_stream())).collect(),
            observer: must(driver.create_stream()),
            contents: pools.iter().map(|_| Contents::default()).collect(),
            pools,
            driver,
            engine,
            displaced: Vec::new(),
            captures: Vec::new(),
            blocks: Vec::new(),
            launches: Vec::new(),
            events: Vec::new(),
            past: Vec::new(),
            wild: 2,
            now: 0,
            told: std::env::var_os("REGRAPH_FUZZING_TOLD").is_some(),
            addresses: Vec::new(),
            finding: Finding::default(),
            verdicts: Vec::new(),
        }
    }

    /// The first of the verdicts, so many.
    pub(super) fn verdicts_until(&self, end: usize) -> &[Verdict] {
        &self.verdicts[..end.min(self.verdicts.len())]
    }

    /// The addresses of the first blocks, so many.
    pub(super) fn addresses_until(&self, end: usize) -> &[u64] {
        &self.addresses[..end.min(self.addresses.len())]
    }

    pub(super) fn standing(&self, stream: usize) -> Standing {
        let handle = self.streams[stream];
        match must(self.driver.capture_status(handle, &mut Vec::new())) {
            CaptureStatus::None => Standing::Eager,
            CaptureStatus::Active { capture, .. } => {
                let index = self.captures.iter().position(|known| known.id == capture);
                Standing::Inside(index.expect("the host began every capture"))
            }
            // The driver does not say which; at most one capture of this origin is under way.
            CaptureStatus::Invalidated => {
                let index = self.captures.iter().rposition(|known| {
                    known.ended.is_none() && known.nodes.streams.contains(&stream)
                });
                Standing::Ruined(index.expect("the host forked every stream"))
            }
        }
    }

    /// Prints what happens, where that was asked for.
    pub(super) fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.told {
            eprintln!("{:4} {what}", self.now);
        }
    }

    /// Whether the driver still captures, and the capture is not ruined.
    pub(super) fn is_sound(&self, capture: usize) -> bool {
        self.standing(self.captures[capture].origin) == Standing::Inside(capture)
    }

    pub(super) fn capture_of(&self, stream: usize) -> Option<usize> {
        match self.standing(stream) {
            Standing::Inside(capture) => Some(capture),
            Standing::Eager | Standing::Ruined(_) => None,
        }
    }

    /// A stream's terminals; none outside captures.
    pub(super) fn terminals(&self, stream: usize) -> Vec<Dependency> {
        match self.standing(stream) {
            Standing::Inside(_) => must(self.driver.terminals(self.streams[stream])),
            Standing::Eager | Standing::Ruined(_) => Vec::new(),
        }
    }

    pub(super) fn terminal_nodes(&self, stream: usize) -> Vec<NodeHandle> {
        self.terminals(stream).iter().map(|terminal| terminal.node).collect()
    }

    /// The streams that are in a capture.
    pub(super) fn members(&self, capture: usize) -> Vec<usize> {
        let all = 0..self.streams.len();
        all.filter(|&stream| self.capture_of(stream) == Some(capture)).collect()
    }

    pub(super) fn live(&self) -> Vec<usize> {
        let all = 0..self.blocks.len();
        all.filter(|&block| self.blocks[block].freed.is_none()).collect()
    }

    pub(super) fn under_way(&self) -> Vec<usize> {
        let all = 0..self.captures.len();
        all.filter(|&capture| self.captures[capture].ended.is_none()).collect()
    }

    /// The traits of a capture and of all around and inside it.
    pub(super) fn family_traits(&self, capture: usize) -> Traits {
        let family = self.captures[capture].family;
        let mut all = Traits::default();
        for member in self.captures.iter().filter(|member| member.family == family) {
            all.programmatic |= member.traits.programmatic;
            all.launch_order |= member.traits.launch_order;
            all.set_back |= member.traits.set_back;
            all.stray |= member.traits.stray;
            all.edited |= member.traits.edited;
            all.removed |= member.traits.removed;
        }
        all
    }

    /// Notes that the engine rolled a ruined capture back of its own accord.
    pub(super) fn bury(&mut self, capture: usize) {
        let buried = &mut self.captures[capture];
        buried.fate = Fate::Dead;
        for contents in &mut self.contents {
            contents.forget(capture);
        }
    }
}
