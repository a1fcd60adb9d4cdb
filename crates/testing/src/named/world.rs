//! What is known of the device: streams, blocks, captures, and what graphs use.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use regraph::driver::{DriverError, ExecutableHandle, HostApi, StreamHandle};
use regraph::engine::{self, StreamRefusal};
use regraph_plugin::{Error, PoolKey};
use regraph_sim::{Call, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

use super::checkpoints::Saved;
use super::figures::Model;
use super::pools::Pool;
use super::steps::{Step, STEPS};
use super::Host;
use crate::given::Given;

pub(super) const MIB: u64 = 1 << 20;

/// A stream that lives.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub name: StreamHandle,
    /// The model's number of it: another may have its name once it is gone.
    pub row: usize,
    /// The capture that it captures.
    pub capture: Option<usize>,
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
    pub live: bool,
    /// Whether it lies among large blocks.
    pub large: bool,
    pub tag: u64,
    /// Whether it holds its tag, or does whenever its graph runs.
    pub written: bool,
}

impl Block {
    pub(super) fn range(&self) -> (u64, u64) {
        (self.address, self.address + self.bytes)
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
    pub streams: Vec<Stream>,
    /// How many streams there ever were.
    pub rows: usize,
    /// Whether work of a stream that is gone may go on.
    pub ended: bool,
    pub blocks: Vec<Block>,
    pub captures: Vec<Capture>,
    /// Freed bytes that the graphs of captures may use.
    pub in_graphs: Vec<((u64, u64), usize)>,
    /// The stream of the last launch of a graph, by its number: graphs of one pool never run at once.
    pub replayed: Option<usize>,
    pub saved: Vec<Saved>,
    pub figures: Model,
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
    pub(super) fn new(host: Host, driver: Arc<SimDriver>, given: Arc<Given>) -> Self {
        Self {
            host,
            given,
            driver,
            streams: Vec::new(),
            rows: 0,
            ended: false,
            blocks: Vec::new(),
            captures: Vec::new(),
            in_graphs: Vec::new(),
            replayed: None,
            saved: Vec::new(),
            figures: Model::default(),
            faulted: false,
            now: 0,
            told: std::env::var_os("REGRAPH_FUZZING_TOLD").is_some(),
        }
    }

    pub(super) fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.now += 1;
        let step = STEPS.draw(u)?;
        let stream = u.choose_index(self.streams.len())?;
        let pool = u.choose_index(self.host.pools.len())?;
        match step {
            Step::Launch => self.launch(self.streams[stream]),
            Step::Allocate => self.allocate(u, stream)?,
            Step::Free => {
                let from = u.ratio(1, 6)?.then_some(stream);
                if let Some(block) = self.any_block(u)? {
                    self.read(block, self.blocks[block].users[0]);
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
            Step::Inject => self.inject(u)?,
            Step::Nap | Step::Replay | Step::Release | Step::Restore | Step::Close => self.nap(),
        }
        self.judge_figures();
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
        let (name, row) = (must(self.driver.create_stream()), self.rows);
        self.rows += 1;
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
        self.ended = true;
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

    /// Enters a block that was handed out, or brought back to life, and writes it.
    pub(super) fn enter(&mut self, block: Block) {
        let (number, range) = (self.blocks.len(), block.range());
        for other in self.live() {
            let apart = !overlap(self.blocks[other].range(), range);
            assert!(apart, "two live blocks at {:#x}", block.address);
        }
        self.figures.add(block.large, block.bytes, block.requested);
        self.blocks.push(block);
        self.judge_mapped(number);
        // What is of no node of a capture is of no graph.
        let Block { ref users, home, tag, .. } = self.blocks[number];
        match self.of_row(users[0]) {
            Some(own) if home.is_none() || !tag.is_multiple_of(4) => self.launch(own),
            _ => {}
        }
    }

    /// A block is no more.
    pub(super) fn note_gone(&mut self, number: usize) {
        let block = &mut self.blocks[number];
        block.live = false;
        self.figures.remove(block.large, block.bytes, block.requested);
    }

    /// Bytes that the graphs of some captures may use are given to no work outside captures.
    pub(super) fn note_graphs(&mut self, range: (u64, u64), graphs: &[usize]) {
        self.in_graphs.extend(graphs.iter().map(|&graph| (range, graph)));
    }

    pub(super) fn judge_place(&self, range: (u64, u64), stream: Stream) {
        let used = |it: &&((u64, u64), usize)| {
            overlap(it.0, range) && self.captures[it.1].fate != Fate::Gone
        };
        let used = self.in_graphs.iter().find(used).filter(|_| stream.capture.is_none());
        assert!(used.is_none(), "{range:#x?} is given away, and a graph may use it: {used:x?}");
    }

    pub(super) fn judge_mapped(&self, block: usize) {
        let block = &self.blocks[block];
        for address in [block.address, block.range().1 - 512] {
            let mapped = self.driver.read_tags(address, 512).is_ok();
            assert!(mapped || self.is_short(), "{address:#x} is not mapped");
        }
    }

    /// Frees a block, perhaps in the order of another stream.
    pub(super) fn free(&mut self, number: usize, from: Option<usize>) {
        let from = from.map(|stream| self.streams[stream]);
        self.tell(format_args!("free of {number} from {:?}", from.map(|stream| stream.row)));
        if let Some(stream) = from {
            self.name_user(number, stream.row);
        }
        let (address, plugin) = (self.blocks[number].address, &self.host.plugin);
        let freed = match from {
            Some(stream) => plugin.free_on((), address, Some(stream.name)),
            None => plugin.free(address, 0),
        };
        freed.expect("the block is live");
        for refused in
            [plugin.free(address, 0), plugin.record_stream(address, self.streams[0].name)]
        {
            assert!(matches!(refused, Err(Error::UnknownAddress { .. })), "{refused:?}");
        }
        self.note_gone(number);
        let Block { pool, home, born, restored, .. } = self.blocks[number];
        let users = self.blocks[number].users.iter();
        let captures = users.filter_map(|&row| self.of_row(row)).filter_map(|it| it.capture);
        // The host keeps eager blocks as long as graphs read them.
        let captures = captures.filter(|_| home.is_some());
        let mut graphs: Vec<usize> = home.into_iter().chain(captures).collect();
        // Without a node in the block's time nothing in the graph can have used it, and blocks of a
        // capture that never was are in no graph at all.
        let dead = home.is_some_and(|home| self.captures[home].fate == Fate::Gone);
        graphs.retain(|&graph| !dead && self.captures[graph].latest > born);
        if restored {
            graphs.extend(self.graphs_of(pool));
        }
        self.note_graphs(self.blocks[number].range(), &graphs);
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
            Err(error) => return self.excuse(&error),
        }
        self.read(block, row);
    }

    /// A stream outside captures reads a block, if it lives and may.
    fn read(&self, block: usize, row: usize) {
        let Block { address, bytes, tag, written, home, .. } = self.blocks[block];
        match self.of_row(row) {
            Some(Stream { name, capture: None, .. }) if written && home.is_none() => {
                let work = Work { inputs: &[Tagged { address, bytes, tag }], ..Work::default() };
                must(self.driver.launch(name, work, false));
            }
            _ => {}
        }
    }

    pub(super) fn name_user(&mut self, block: usize, row: usize) {
        let users = &mut self.blocks[block].users;
        if !users.contains(&row) {
            users.push(row);
        }
    }

    /// Launches a kernel that reads its stream's blocks, and writes those that it has yet to write.
    pub(super) fn launch(&mut self, Stream { name, row, capture }: Stream) {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for number in self.live() {
            let block = &mut self.blocks[number];
            if block.users[0] != row || block.home != capture {
                continue;
            }
            let range = Tagged { address: block.address, bytes: block.bytes, tag: block.tag };
            match block.written {
                true => inputs.push(range),
                false if block.users.len() == 1 => {
                    block.written = true;
                    outputs.push(range);
                }
                false => {}
            }
        }
        let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
        let launched = self.driver.launch(name, work, false);
        if let (Err(_), Some(number)) = (&launched, capture) {
            // The plug-in has waited for the device, and could not know of this capture.
            assert!(self.captures[number].pool.is_none(), "a capture is ruined");
            let slot = self.streams.iter().position(|it| it.row == row);
            return self.end_graph(slot.expect("it lives"), true);
        }
        must(launched);
        if let Some(capture) = capture {
            self.captures[capture].latest = self.now;
        }
    }

    /// Makes a stream wait for another where that is work outside captures.
    pub(super) fn wait(&mut self, stream: usize, on: usize) -> bool {
        let (stream, on) = (self.streams[stream], self.streams[on]);
        if stream.capture.is_some() || on.capture.is_some() || stream.row == on.row {
            return false;
        }
        self.tell(format_args!("wait of {} on {}", stream.row, on.row));
        must(self.driver.wait(stream.name, on.name));
        true
    }

    pub(super) fn complete(&mut self, stream: usize) {
        self.tell(format_args!("{} completes", self.streams[stream].row));
        must(self.driver.complete(self.streams[stream].name));
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
        assert!(held == kept(), "a pool lost what it keeps");
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

    /// Nothing has gone wrong on the device so far.
    pub(super) fn judge_device(&mut self) {
        // Some stream may be capturing.
        let done = self.driver.complete_all_checked();
        let wrong = must(self.driver.take_wrong_tags());
        assert!(done.is_ok() && wrong == 0, "a block was taken away while in use: {done:?}");
        self.ended = false;
    }
}

fn overlap((low, high): (u64, u64), (other_low, other_high): (u64, u64)) -> bool {
    low < other_high && other_low < high
}
