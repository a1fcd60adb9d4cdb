//! What is known of the device: streams, blocks, captures, and who has used which byte.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use regraph::driver::{DriverError, ExecutableHandle, HostApi, StreamHandle};
use regraph::engine::{self, FreeRange, Refusal, StreamRefusal};
use regraph_plugin::{Error, PoolKey};
use regraph_sim::{Call, SimDriver, SimEvent};
use regraph_tagged::{Program, Tagged, Work};

use super::checkpoints::Saved;
use super::features::Step;
use super::figures::Model;
use super::order::{Ranges, Streams};
use super::pools::Pool;
use super::Host;
use crate::given::Given;
use crate::weights::Weights;

pub(super) const MIB: u64 = 1 << 20;

/// A stream that lives.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub name: StreamHandle,
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

#[derive(Clone)]
pub(super) struct Block {
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
    /// Whether a checkpoint has brought it back to life.
    pub restored: bool,
    /// How far each stream had come then.
    pub counts: Vec<usize>,
    pub live: bool,
    /// Whether it lies among large blocks.
    pub large: bool,
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
    pub fate: Fate,
    /// When it got its latest node.
    pub latest: u64,
    pub executable: Option<ExecutableHandle>,
    /// Where its memory comes from, and the model's number of that pool; none where the plug-in was not told of it.
    pub pool: Option<(PoolKey, usize)>,
    /// How many routes the thread had when it began.
    pub route: usize,
}

/// Everything that a program has made so far.
pub(super) struct World {
    pub host: Host,
    pub driver: Arc<SimDriver>,
    /// Where pools with a source get their memory.
    pub given: Arc<Given>,
    pub steps: Weights<Step>,
    pub streams: Vec<Stream>,
    pub order: Streams,
    pub ranges: Ranges,
    pub blocks: Vec<Block>,
    pub captures: Vec<Capture>,
    /// Operations that are launches of graphs, and which: graphs of one pool never run at once.
    pub replays: Vec<((usize, usize), usize)>,
    pub saved: Vec<Saved>,
    pub figures: Model,
    /// Whether the engine lacks one of its safety rules, and whether that has shown.
    pub flawed: bool,
    pub caught: bool,
    /// Whether a call of the driver was made to fail.
    pub faulted: bool,
    pub now: u64,
    pub told: bool,
}

/// What a driver call gave that a legal program makes.
pub(super) fn must<T>(result: std::result::Result<T, DriverError>) -> T {
    result.expect("a legal call on the simulated driver succeeds")
}

impl World {
    pub(super) fn new(
        host: Host,
        driver: Arc<SimDriver>,
        given: Arc<Given>,
        steps: Weights<Step>,
    ) -> Self {
        Self {
            host,
            given,
            driver,
            steps,
            streams: Vec::new(),
            order: Streams::default(),
            ranges: Ranges::default(),
            blocks: Vec::new(),
            captures: Vec::new(),
            replays: Vec::new(),
            saved: Vec::new(),
            figures: Model::default(),
            flawed: false,
            caught: false,
            faulted: false,
            now: 0,
            told: std::env::var_os("REGRAPH_FUZZING_TOLD").is_some(),
        }
    }

    pub(super) fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.now += 1;
        let step = self.steps.draw(u)?;
        let stream = u.choose_index(self.streams.len())?;
        let pool = u.choose_index(self.host.pools.len())?;
        match step {
            Step::Launch => self.launch(stream),
            Step::Allocate => self.allocate(u, stream)?,
            Step::Free => {
                let from = u.ratio(1, 6)?.then_some(stream);
                if let Some(block) = self.any_block(u)? {
                    // What a capture allocated is used and freed in its own order here.
                    let from = from.filter(|_| self.blocks[block].home.is_none());
                    if let Some(stream) = from {
                        self.share(block, stream);
                    }
                    let named =
                        |&it: &usize| self.blocks[block].users.contains(&self.streams[it].row);
                    self.free(block, from.filter(named));
                }
            }
            Step::Share => {
                if let Some(block) = self.any_block(u)? {
                    self.share(block, stream);
                }
            }
            Step::Wait => {
                let on = u.choose_index(self.streams.len())?;
                self.wait(stream, on);
            }
            Step::Complete => self.complete(stream),
            Step::JudgeDevice => self.judge_device(),
            Step::Trim => self.trim(None),
            Step::TrimTo => {
                let keep = u64::from(u.arbitrary::<u8>()?) * MIB / 2;
                self.trim(Some(keep));
            }
            Step::Learn => self.learn(u.arbitrary()?),
            Step::Mark => self.mark(stream),
            Step::Replace => self.replace_stream(stream),
            Step::Limit => {
                let step = u.arbitrary::<u8>()?;
                let limits = !step.is_multiple_of(3) && !self.host.strays;
                self.limit(limits.then_some(u64::from(step) * MIB));
            }
            Step::Reset => self.reset(u.arbitrary()?),
            Step::MakeObject => self.make_object(pool, u)?,
            Step::DropObject => self.drop_object(pool),
            Step::BeginRoute => self.begin_route(pool),
            Step::EndRoute => self.end_route(),
            Step::UseOnOom => self.use_on_oom(pool, u.arbitrary()?),
            Step::EmptyPool => self.empty_pool(pool),
            Step::EmptyCache => self.empty_cache(),
            Step::Caching => {
                self.host.caches = u.arbitrary()?;
                self.host.uncached |= !self.host.caches;
                self.host.plugin.set_caching(self.host.caches);
            }
            Step::Begin => self.begin_graph(pool, stream, u)?,
            Step::End => self.end_graph(stream, u.ratio(1, 6)?),
            Step::Replay if !self.captures.is_empty() => {
                let graph = u.choose_index(self.captures.len())?;
                self.replay(graph, stream);
            }
            Step::Release if !self.captures.is_empty() => {
                let graph = u.choose_index(self.captures.len())?;
                self.release_graph(graph);
            }
            Step::Save => self.save(pool),
            Step::Restore if !self.saved.is_empty() => {
                let saved = u.choose_index(self.saved.len())?;
                self.restore(saved);
            }
            Step::Open => {
                if let Some(block) = self.any_block(u)? {
                    self.open(block);
                }
            }
            Step::Close if !self.host.opened.is_empty() => {
                let opened = u.choose_index(self.host.opened.len())?;
                self.close(opened);
            }
            Step::Judge => {
                self.judge_leaks();
                self.explain(stream);
                self.misuse(stream);
            }
            Step::Inject => self.inject(u)?,
            Step::Nap | Step::Replay | Step::Release | Step::Restore | Step::Close => self.nap(),
        }
        if !self.caught {
            self.judge_figures();
        }
        Ok(())
    }

    /// Prints what happens, where that was asked for.
    pub(super) fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.told {
            eprintln!("{:4} {what}", self.now);
        }
    }

    pub(super) fn live(&self) -> Vec<usize> {
        (0..self.blocks.len()).filter(|&block| self.blocks[block].live).collect()
    }

    pub(super) fn any_block(&self, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
        let live = self.live();
        if live.is_empty() {
            return Ok(None);
        }
        Ok(Some(live[u.choose_index(live.len())?]))
    }

    /// The stream of a model's row, while it lives.
    pub(super) fn of_row(&self, row: usize) -> Option<Stream> {
        self.streams.iter().copied().find(|stream| stream.row == row)
    }

    /// A new stream, perhaps with the handle of one that is gone.
    pub(super) fn create_stream(&mut self) {
        let (name, row) = (must(self.driver.create_stream()), self.order.add());
        self.tell(format_args!("stream {row} is {name:?}"));
        self.streams.push(Stream { name, row, capture: None });
    }

    /// Destroys a stream that only its own blocks name, and makes another.
    fn replace_stream(&mut self, stream: usize) {
        let Stream { name, row, capture } = self.streams[stream];
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
        match self.host.plugin.retire_stream(name) {
            Ok(()) => {}
            // For all that the plug-in knows a capture goes on there.
            Err(Error::Engine(engine::Error::Stream { why: StreamRefusal::InUse, .. }))
                if self.host.strays =>
            {
                return
            }
            Err(error) => return self.excuse(&error),
        }
        must(self.driver.destroy_stream(name));
        self.streams.remove(stream);
        if promises {
            self.judge_device();
        }
        self.create_stream();
    }

    /// Whether some stream captures.
    pub(super) fn captures_now(&self) -> bool {
        self.streams.iter().any(|stream| stream.capture.is_some())
    }

    /// Whether a call that failed has left a pool short of memory.
    fn is_short(&self) -> bool {
        let all = self.host.engine().statistics().expect("the engine is sound").all;
        self.faulted && all.suspended_bytes.current > 0
    }

    /// Whether some stream captures and the plug-in was not told of it.
    pub(super) fn captures_untold(&self) -> bool {
        let mut captures = self.streams.iter().filter_map(|it| it.capture);
        captures.any(|it| self.captures[it].pool.is_none())
    }

    /// Enters a block that was handed out, or brought back to life.
    pub(super) fn enter(&mut self, block: Block) {
        let number = self.blocks.len();
        for bytes in self.ranges.between(block.address, block.end()) {
            assert_eq!(bytes.live, None, "two live blocks at {:#x}", block.address);
            bytes.live = Some(number);
        }
        self.figures.add(block.large, block.bytes, block.requested);
        self.blocks.push(block);
        self.judge_mapped(number);
    }

    /// A block is no more.
    pub(super) fn note_gone(&mut self, number: usize) {
        let block = &mut self.blocks[number];
        block.live = false;
        self.figures.remove(block.large, block.bytes, block.requested);
    }

    pub(super) fn judge_mapped(&self, block: usize) {
        let block = &self.blocks[block];
        for address in [block.address, block.end() - 512] {
            let mapped = self.driver.read_tags(address, 512).is_ok();
            assert!(mapped || self.is_short(), "{address:#x} is not mapped");
        }
    }

    /// Whether bytes of a pool may be given to a stream. False only on a flawed engine, which may not.
    pub(super) fn judge_place(
        &mut self,
        pool: usize,
        (start, end): (u64, u64),
        stream: Stream,
    ) -> bool {
        let in_pool = |capture: usize| {
            self.blocks.iter().any(|block| block.home == Some(capture) && block.pool == pool)
        };
        let replays = self.replays.iter().filter(|(_, capture)| in_pool(*capture));
        let replays: Vec<_> = replays.map(|&(operation, _)| operation).collect();
        self.order.refresh(&self.driver);
        let Stream { row, capture, .. } = stream;
        let (order, mut sound) = (&self.order, true);
        for bytes in self.ranges.between(start, end) {
            assert_eq!(bytes.live, None, "handed out over a live block");
            bytes.uses.retain(|&used| !order.is_complete(used));
            bytes.graphs.retain(|&graph| self.captures[graph].fate != Fate::Gone);
            // A graph may be launched on any stream: an order of this one proves nothing.
            let early = bytes.uses.iter().find(|&&used| match capture {
                None => !order.precedes(used, row),
                Some(_) => !replays.contains(&used) && !bytes.by_word.contains(&used),
            });
            let shared = bytes.graphs.iter().find(|&&graph| match capture {
                None => true,
                Some(own) => graph != own && self.captures[graph].fate == Fate::UnderWay,
            });
            let clean = early.is_none() && shared.is_none();
            assert!(
                clean || self.flawed,
                "{start:#x}..{end:#x} for stream {row}, capture {capture:?}: still in use by \
                 operation {early:?}, by the graph of capture {shared:?}"
            );
            sound &= clean;
        }
        sound
    }

    /// Frees a block, perhaps in the order of another stream.
    pub(super) fn free(&mut self, number: usize, from: Option<usize>) {
        let from = from.map(|stream| self.streams[stream]);
        self.tell(format_args!("free of {number} from {:?}", from.map(|stream| stream.row)));
        let (address, plugin) = (self.blocks[number].address, &self.host.plugin);
        let freed = match from {
            Some(stream) => plugin.free_on((), address, Some(stream.name)),
            None => plugin.free(address, 0),
        };
        freed.expect("the block is live");
        if let Some(stream) = from {
            self.name_user(number, stream.row);
        }
        self.note_gone(number);
        let Block { address, bytes, pool, home, born, restored, .. } = self.blocks[number];
        let mut uses: Vec<(usize, usize)> = Vec::new();
        let mut graphs: Vec<usize> = home.into_iter().collect();
        for &row in &self.blocks[number].users {
            let count = self.order.count(row);
            // What a stream did before the block was there did not use it.
            if self.blocks[number].counts.get(row).is_none_or(|&before| count > before) {
                uses.push((row, count));
            }
            graphs.extend(self.of_row(row).and_then(|stream| stream.capture));
        }
        // Without a node in the block's time nothing in the graph can have used it, and blocks of a
        // capture that never was are in no graph at all.
        let dead = home.is_some_and(|home| self.captures[home].fate == Fate::Gone);
        graphs.retain(|&graph| !dead && self.captures[graph].latest > born);
        if restored {
            graphs.extend(self.graphs_of(pool));
        }
        for bytes in self.ranges.between(address, address + bytes) {
            bytes.live = None;
            for &(row, count) in &uses {
                bytes.note_use(row, count);
            }
            bytes.graphs.extend(&graphs);
        }
    }

    /// The graphs of a pool that may run again.
    pub(super) fn graphs_of(&self, pool: usize) -> Vec<usize> {
        let graphs = self.captures.iter().enumerate();
        let graphs = graphs.filter(|(_, it)| {
            it.fate != Fate::Gone && it.pool.is_some_and(|it| super::number(it.0) == pool)
        });
        graphs.map(|it| it.0).collect()
    }

    /// Uses a block on another stream, ordered after its allocation.
    pub(super) fn share(&mut self, block: usize, stream: usize) {
        let owner = self.blocks[block].users[0];
        let Stream { name, row, capture } = self.streams[stream];
        if self.blocks[block].home.is_some() {
            return;
        }
        if row != owner {
            let Some(on) = self.streams.iter().position(|it| it.row == owner) else { return };
            if capture.is_none() && !self.wait(stream, on) {
                return;
            }
        }
        self.tell(format_args!("use of {block} by {row}"));
        match self.host.plugin.record_stream(self.blocks[block].address, name) {
            Ok(()) => self.name_user(block, row),
            Err(error) => self.excuse(&error),
        }
    }

    pub(super) fn name_user(&mut self, block: usize, row: usize) {
        let users = &mut self.blocks[block].users;
        if !users.contains(&row) {
            users.push(row);
        }
    }

    /// Launches a kernel that writes what its stream has yet to write and reads what it may read.
    pub(super) fn launch(&mut self, stream: usize) {
        let Stream { name, row, capture } = self.streams[stream];
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for number in self.live() {
            let block = &mut self.blocks[number];
            if !block.users.contains(&row) {
                continue;
            }
            let range = Tagged { address: block.address, bytes: block.bytes, tag: block.tag };
            let own = block.users[0] == row;
            match (block.writer, capture) {
                (Writer::NotWritten, None) if own && block.home.is_none() => {
                    block.writer = Writer::Eager(self.order.count(row) + 1);
                    outputs.push(range);
                }
                (Writer::NotWritten, Some(capture)) if own && block.home == Some(capture) => {
                    block.writer = Writer::Node(capture);
                    outputs.push(range);
                }
                (Writer::Eager(count), None)
                    if self.order.precedes((block.users[0], count), row) =>
                {
                    inputs.push(range);
                }
                (Writer::Node(home), Some(capture)) if own && home == capture => {
                    inputs.push(range);
                }
                _ => {}
            }
        }
        let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
        let launched = self.driver.launch(name, work, false);
        if let (Err(_), Some(number)) = (&launched, capture) {
            // The plug-in has waited for the device, and could not know of this capture.
            assert!(self.captures[number].pool.is_none(), "a capture is ruined");
            return self.end_graph(stream, true);
        }
        must(launched);
        match capture {
            Some(capture) => self.captures[capture].latest = self.now,
            None => self.push_operation(stream),
        }
    }

    /// Notes that a stream has got one more operation.
    pub(super) fn push_operation(&mut self, stream: usize) {
        let Stream { name, row, .. } = self.streams[stream];
        let event: SimEvent = must(self.driver.record(name));
        self.order.push(row, event);
        self.tell(format_args!("operation {} of {row}", self.order.count(row)));
    }

    /// Makes a stream wait for another where that is work outside captures.
    pub(super) fn wait(&mut self, stream: usize, on: usize) -> bool {
        let (stream, on) = (self.streams[stream], self.streams[on]);
        if stream.capture.is_some() || on.capture.is_some() || stream.row == on.row {
            return false;
        }
        self.tell(format_args!("wait of {} on {}", stream.row, on.row));
        must(self.driver.wait(stream.name, on.name));
        self.order.wait(stream.row, on.row);
        true
    }

    pub(super) fn complete(&mut self, stream: usize) {
        self.tell(format_args!("{} completes", self.streams[stream].row));
        must(self.driver.complete(self.streams[stream].name));
    }

    /// Has the engine learn from what is asked for from now on, or lets it have learned.
    fn learn(&mut self, begins: bool) {
        self.tell(format_args!("learns: {begins}"));
        let engine = self.host.engine();
        let done = if begins { engine.plans().learn() } else { engine.plans().learned().map(drop) };
        done.expect("the engine is sound");
    }

    fn mark(&mut self, stream: usize) {
        self.tell(format_args!("mark of {}", self.streams[stream].row));
        let marked = self.host.engine().mark_stream(self.streams[stream].name);
        marked.expect("a stream of its own");
    }

    /// Gives memory back, until `keep` bytes are held.
    fn trim(&mut self, keep: Option<u64>) {
        self.tell(format_args!("trim to {keep:?}"));
        let waits = self.driver.calls(Call::SynchronizeEvent);
        let engine = self.host.engine();
        let reserved = || {
            let all = engine.statistics().expect("the engine is sound").all;
            all.reserved_bytes.current
        };
        let kept = || {
            let reports = self.host.plugin.pools(0).expect("the device is there");
            // What captures had mapped beforehand and did not need goes.
            let captured = |pool| self.blocks.iter().any(|it| it.home.is_some() && it.pool == pool);
            let captured = |it: &Pool| it.others > 0 || captured(super::number(it.key));
            let keeps = |it: &Pool| it.keeps && it.objects > 0 && !captured(it);
            let keeps = |key| self.host.pools.iter().any(|it| it.key == key && keeps(it));
            let kept = reports.into_iter().filter(|it| keeps(it.key));
            kept.map(|it| (it.key, it.reserved)).collect::<Vec<_>>()
        };
        let (before, held) = (reserved(), kept());
        let emptied = match keep {
            Some(keep) => engine.trim(keep),
            None => engine.empty_cache(),
        };
        let emptied = emptied.expect("the engine is sound");
        let waited = self.driver.calls(Call::SynchronizeEvent) - waits;
        assert_eq!(waited, 0, "giving memory back waits for nothing");
        assert_eq!(emptied.reserved, reserved());
        // What is not cached goes at once when it has become free, and not by this.
        if !self.host.uncached {
            assert_eq!(emptied.released, before - reserved());
        }
        assert!(held == kept() || self.flawed, "a pool lost what it keeps");
        // No pool has this name: the call only ends, which is when sources take back what was theirs.
        self.host.plugin.empty_pool(super::EAGER_POOL).expect("nothing happens to an unknown pool");
        for block in self.live() {
            self.judge_mapped(block);
        }
    }

    pub(super) fn limit(&mut self, bytes: Option<u64>) {
        self.tell(format_args!("limit {bytes:?}"));
        self.host.limit = bytes;
        self.host.engine().set_memory_limit(bytes).expect("the engine is sound");
    }

    fn reset(&mut self, peaks: bool) {
        if peaks {
            self.host.engine().reset_peaks().expect("the engine is sound");
            self.figures.reset_peaks();
        } else {
            self.host.engine().reset_accumulated().expect("the engine is sound");
            self.figures.reset_accumulated();
        }
    }

    /// The blocks that the engine says were never freed are those.
    pub(super) fn judge_leaks(&self) {
        let leaks = self.host.engine().leaks().expect("the engine is sound");
        let found: Vec<_> = leaks.iter().map(|leak| (leak.address, leak.bytes)).collect();
        let live = self.live().into_iter().map(|block| &self.blocks[block]);
        let mut expected: Vec<_> = live.map(|block| (block.address, block.requested)).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    /// What the engine says of free memory adds up with its figures.
    fn explain(&self, stream: usize) {
        let engine = self.host.engine();
        for pool in engine.pools().expect("the engine is sound") {
            let ranges = match engine.explain(pool.id, self.streams[stream].name) {
                Ok(ranges) => ranges,
                Err(error) => return self.excuse(&error.into()),
            };
            let figures = engine.statistics_of(pool.id).expect("the pool exists").all;
            let (waiting, free): (Vec<_>, Vec<_>) =
                ranges.iter().partition(|it| matches!(it.refusal, Some(Refusal::Waiting(_))));
            let sum = |ranges: Vec<&FreeRange>| ranges.iter().map(|it| it.bytes).sum::<u64>();
            let (active, allocated) = (figures.active_bytes, figures.allocated_bytes.current);
            assert_eq!(active.current, allocated + sum(waiting), "active = allocated + waiting");
            assert_eq!(figures.inactive_split_bytes.current, sum(free), "inactive = free");
        }
    }

    /// Calls that must be refused, and change nothing.
    fn misuse(&self, stream: usize) {
        let dead = self.blocks.iter().rfind(|it| !it.live).map(|it| it.address);
        let lives = |address| self.blocks.iter().any(|it| it.live && it.address == address);
        let Some(address) = dead.filter(|&it| !lives(it)) else { return };
        let (plugin, name) = (&self.host.plugin, self.streams[stream].name);
        for refused in [plugin.free(address, 0), plugin.record_stream(address, name)] {
            assert!(matches!(refused, Err(Error::UnknownAddress { .. })), "{refused:?}");
        }
    }

    /// Nothing has gone wrong on the device so far.
    pub(super) fn judge_device(&mut self) {
        // Some stream may be capturing.
        let done = self.driver.complete_all_checked();
        let wrong = must(self.driver.take_wrong_tags());
        let sound = done.is_ok() && wrong == 0;
        assert!(sound || self.flawed, "a block was taken away while in use: {done:?}");
        self.caught |= !sound;
    }
}
