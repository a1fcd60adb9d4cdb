//! What is known of the device by any host: streams, blocks, captures, and who has used which byte.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use regraph::driver::{Driver, DriverError, ExecutableHandle, HostApi, StreamHandle};
use regraph::engine::{Checkpoint, Engine};
use regraph_sim::{Call, SimDriver, SimEvent};
use regraph_tagged::{Program, Tagged, Work};

use super::checkpoints::{Restored, Saved};
use super::features::Step;
use super::order::{Ranges, Streams};
use crate::given::Given;
use crate::weights::Weights;

pub(super) const MIB: u64 = 1 << 20;

/// A host, by what it asks: the engine itself, or the plug-in.
pub(super) trait Host: Sized {
    /// How it names a block.
    type Id: Copy;
    /// What it knows of a capture besides.
    type Detail;
    /// Why it gets nothing.
    type Error: std::fmt::Display;
    type Driver: Driver;

    fn allocate(world: &mut World<Self>, u: &mut Unstructured<'_>, stream: usize) -> Result<()>;
    /// Gives a block back, perhaps in the order of another stream.
    fn give_back(world: &mut World<Self>, block: usize, from: Option<StreamHandle>);
    /// Names a stream as a user of a block, perhaps for the last time.
    fn record(
        world: &World<Self>,
        block: usize,
        stream: StreamHandle,
        last: bool,
    ) -> std::result::Result<(), Self::Error>;
    /// An error that is due to a call that was made to fail, and to nothing else.
    fn excuse(world: &World<Self>, error: &Self::Error);
    fn engine(&self) -> &Engine<Self::Driver>;
    /// Where the blocks of a pool lie that a checkpoint of it has now.
    fn live_in(world: &World<Self>, pool: usize) -> Vec<u64>;
    /// None where there is none to be had.
    fn checkpoint(world: &World<Self>, pool: usize) -> Option<Checkpoint>;
    fn restore(
        world: &World<Self>,
        pool: usize,
        checkpoint: &Checkpoint,
    ) -> Option<Restored<Self::Id>>;
    /// A restoration has ended a block, or brought one back.
    fn note_gone(_: &mut World<Self>, _block: usize) {}
    fn note_back(_: &mut World<Self>, _block: usize) {}
    /// What pools hold that keep it, in bytes.
    fn kept(_: &World<Self>) -> Vec<u64> {
        Vec::new()
    }
    /// Whether what becomes free stays with its pool until it is given back.
    fn keeps_free(&self) -> bool {
        true
    }
    /// A step that not every host takes.
    fn step(
        world: &mut World<Self>,
        step: Step,
        stream: usize,
        u: &mut Unstructured<'_>,
    ) -> Result<()>;
    /// Judges what it can after each step.
    fn judge(world: &mut World<Self>);
    /// Ends what a call of the host's own would, where its engine was asked to give memory back behind it.
    fn end_call(_: &World<Self>) {}
    /// Chooses what else a step of any kind is about.
    fn choose(&mut self, _: &mut Unstructured<'_>) -> Result<()> {
        Ok(())
    }
    /// Whether a capture uses a pool that a checkpoint has brought blocks back in.
    fn is_graph_of(_capture: &Self::Detail, _pool: usize) -> bool {
        false
    }
    /// Whether blocks of a pool have no memory for now.
    fn sleeps(&self, _pool: usize) -> bool {
        false
    }
}

/// A stream that lives.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// The host's name of it.
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

#[derive(Clone)]
pub(super) struct Block<I> {
    pub id: I,
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
    /// Whether it was lent by a pool that was not asked.
    pub borrowed: bool,
    pub tag: u64,
    pub writer: Writer,
}

impl<I> Block<I> {
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

pub(super) struct Capture<T> {
    pub fate: Fate,
    /// When it got its latest node.
    pub latest: u64,
    pub executable: Option<ExecutableHandle>,
    pub detail: T,
}

/// Everything that a program has made so far.
pub(super) struct World<H: Host> {
    pub host: H,
    pub driver: Arc<SimDriver>,
    /// Where pools with a source get their memory.
    pub given: Arc<Given>,
    pub steps: Weights<Step>,
    pub streams: Vec<Stream>,
    pub order: Streams,
    pub ranges: Ranges,
    pub blocks: Vec<Block<H::Id>>,
    pub captures: Vec<Capture<H::Detail>>,
    /// Operations that are launches of graphs, and which: graphs of one pool never run at once.
    pub replays: Vec<((usize, usize), usize)>,
    pub saved: Vec<Saved>,
    /// Whether the engine lacks one of its safety rules, and whether that has shown.
    pub flawed: bool,
    pub caught: bool,
    /// Whether a call of the driver was made to fail.
    pub faulted: bool,
    pub now: u64,
    pub told: bool,
    pub addresses: Vec<u64>,
}

/// What a driver call gave that a legal program makes.
pub(super) fn must<T>(result: std::result::Result<T, DriverError>) -> T {
    result.expect("a legal call on the simulated driver succeeds")
}

impl<H: Host> World<H> {
    pub(super) fn new(
        host: H,
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
            flawed: false,
            caught: false,
            faulted: false,
            now: 0,
            told: std::env::var_os("REGRAPH_FUZZING_TOLD").is_some(),
            addresses: Vec::new(),
        }
    }

    pub(super) fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.now += 1;
        let step = self.steps.draw(u)?;
        let stream = u.choose_index(self.streams.len())?;
        self.host.choose(u)?;
        match step {
            Step::Launch => self.launch(stream),
            Step::Allocate => H::allocate(self, u, stream)?,
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
            step => H::step(self, step, stream, u)?,
        }
        H::judge(self);
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

    /// Enters a stream.
    pub(super) fn add_stream(&mut self, name: StreamHandle, real: StreamHandle) {
        let row = self.order.add();
        self.tell(format_args!("stream {row} is {name:?}"));
        self.streams.push(Stream { name, real, row, capture: None });
    }

    /// Whether some stream captures.
    pub(super) fn captures_now(&self) -> bool {
        self.streams.iter().any(|stream| stream.capture.is_some())
    }

    /// Enters a block that was handed out, or brought back to life.
    pub(super) fn enter(&mut self, block: Block<H::Id>) {
        let number = self.blocks.len();
        for bytes in self.ranges.between(block.address, block.end()) {
            assert_eq!(bytes.live, None, "two live blocks at {:#x}", block.address);
            bytes.live = Some(number);
        }
        self.blocks.push(block);
        self.judge_mapped(number);
    }

    pub(super) fn judge_mapped(&self, block: usize) {
        let block = &self.blocks[block];
        if self.host.sleeps(block.pool) {
            return;
        }
        for address in [block.address, block.end() - 512] {
            assert!(self.driver.read_tags(address, 512).is_ok(), "{address:#x} is not mapped");
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
        H::give_back(self, number, from.map(|stream| stream.name));
        if let Some(stream) = from {
            self.name_user(number, stream.row);
        }
        self.blocks[number].live = false;
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
        let graphs =
            graphs.filter(|(_, it)| it.fate != Fate::Gone && H::is_graph_of(&it.detail, pool));
        graphs.map(|it| it.0).collect()
    }

    /// Uses a block on another stream, ordered after its allocation.
    pub(super) fn share(&mut self, block: usize, stream: usize, last: bool) {
        let owner = self.blocks[block].users[0];
        let Stream { name, row, capture, .. } = self.streams[stream];
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
        match H::record(self, block, name, last) {
            Ok(()) => self.name_user(block, row),
            Err(error) => H::excuse(self, &error),
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
        let Stream { real, row, capture, .. } = self.streams[stream];
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for number in self.live() {
            let block = &mut self.blocks[number];
            if !block.users.contains(&row) || self.host.sleeps(block.pool) {
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
        must(self.driver.launch(real, work, false));
        match capture {
            Some(capture) => self.captures[capture].latest = self.now,
            None => self.push_operation(stream),
        }
    }

    /// Notes that a stream has got one more operation.
    pub(super) fn push_operation(&mut self, stream: usize) {
        let Stream { real, row, .. } = self.streams[stream];
        let event: SimEvent = must(self.driver.record(real));
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
        must(self.driver.wait(stream.real, on.real));
        self.order.wait(stream.row, on.row);
        true
    }

    pub(super) fn complete(&mut self, stream: usize) {
        self.tell(format_args!("{} completes", self.streams[stream].row));
        must(self.driver.complete(self.streams[stream].real));
    }

    /// Has the engine learn from what is asked for from now on, or lets it have learned.
    fn learn(&mut self, begins: bool) {
        self.tell(format_args!("learns: {begins}"));
        let engine = self.host.engine();
        let done = if begins { engine.plans().learn() } else { engine.plans().learned().map(drop) };
        done.expect("the engine is sound");
    }

    pub(super) fn mark(&mut self, stream: usize) {
        self.tell(format_args!("mark of {}", self.streams[stream].row));
        self.host.engine().mark_stream(self.streams[stream].name).expect("a stream of its own");
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
        let (before, kept) = (reserved(), H::kept(self));
        let emptied = match keep {
            Some(keep) => engine.trim(keep),
            None => engine.empty_cache(),
        };
        let emptied = emptied.expect("the engine is sound");
        let waited = self.driver.calls(Call::SynchronizeEvent) - waits;
        assert_eq!(waited, 0, "giving memory back waits for nothing");
        assert_eq!(emptied.reserved, reserved());
        // In a heap that caches nothing, what has become free goes at once, and not by this.
        if self.host.keeps_free() {
            assert_eq!(emptied.released, before - reserved());
        }
        assert_eq!(kept, H::kept(self), "a pool lost what it keeps");
        H::end_call(self);
        for block in self.live() {
            self.judge_mapped(block);
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
