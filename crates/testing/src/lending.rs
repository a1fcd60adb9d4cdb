//! Random programs with a pool whose graphs lend what they do not keep between launches.
//!
//! Graphs are launched in the order of their captures, round after round, on any stream, with work outside captures
//! in between that borrows, uses what it has on other streams, and gives it back in any order. Graphs read outputs of
//! others that were freed, and inputs that their capture freed and that are filled before each launch. Kernels check
//! what they read. The model knows which addresses graphs have ever used, and nothing else of the engine: from that
//! it tells which blocks are lent, and so which launches must be refused.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use regraph::driver::{CaptureMode, MemorySupport, StreamHandle};
use regraph::engine::{Config, Engine, Flaw, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Lending, Memory, Pool};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

/// Steps after which a program ends, even if bytes are left.
const LONGEST: usize = 160;
const STREAMS: usize = 3;
/// Graphs and borrowed blocks at once, at most.
const MOST: usize = 6;
/// A unit of the blocks' sizes, in bytes.
const UNIT: u64 = 256 << 10;
/// How long kernels take that are to be overtaken, in nanoseconds.
const DELAY: u32 = 5_000;

type Shared<P> = Arc<P>;
type Held<P> = (Memory<Shared<P>>, u64);

struct Made<P: Program> {
    graph: Graph<Shared<P>>,
    outputs: Vec<Held<P>>,
    /// What is to be written before each launch.
    input: Option<Tagged>,
    /// Graphs whose outputs it reads, by number.
    sources: Vec<u64>,
    number: u64,
}

/// A block of work outside captures.
struct Borrowed<P: Program> {
    memory: Memory<Shared<P>>,
    tag: u64,
    /// Whether it lies where graphs work.
    lent: bool,
    stream: usize,
}

struct World<'a, P: Program> {
    driver: Arc<P>,
    engine: Arc<Engine<Shared<P>>>,
    pool: Pool<Shared<P>>,
    streams: [StreamHandle; STREAMS],
    lending: [Option<Lending<Shared<P>>>; STREAMS],
    graphs: Vec<Made<P>>,
    /// Graphs that were launched in this round: the first so many.
    launched: usize,
    blocks: Vec<Borrowed<P>>,
    /// Addresses that graphs of the pool have used, since there are any.
    used: Vec<(u64, u64)>,
    tag: u64,
    made: u64,
    flawed: bool,
    caught: bool,
    progress: &'a dyn Fn(StreamHandle),
}

/// Runs the program that the bytes spell on the simulated driver and checks everything that it shows.
///
/// # Panics
/// Where the engine is wrong.
pub fn lending(data: &[u8]) {
    assert!(!run_simulated(data, None), "what must not be was taken for the flaw of an engine");
}

/// Runs the program on an engine without one of its safety rules; whether anything showed it.
pub fn flawed_lending(data: &[u8], flaw: Flaw) -> bool {
    run_simulated(data, Some(flaw))
}

fn run_simulated(data: &[u8], flaw: Option<Flaw>) -> bool {
    let mut u = Unstructured::new(data);
    let support = match u.arbitrary::<u8>().unwrap_or_default() % 4 {
        0 => MemorySupport::Allocated,
        _ => MemorySupport::Mapped { granularity: 2 << 20 },
    };
    let driver = Arc::new(SimDriver::new(SimConfig { support, ..SimConfig::default() }));
    driver.set_schedule_seed(u64::from(u.arbitrary::<u8>().unwrap_or_default()));
    let progress = |stream| driver.complete(stream).expect("the device answers");
    run_lending(&driver, u.take_rest(), flaw, &progress)
}

/// The same on any device. `progress` lets a stream's work complete, where that does not happen by itself.
///
/// # Panics
/// Where the engine is wrong, and has all its rules.
pub fn run_lending<P: Program>(
    driver: &Arc<P>,
    data: &[u8],
    flaw: Option<Flaw>,
    progress: &dyn Fn(StreamHandle),
) -> bool {
    let mut u = Unstructured::new(data);
    let config = Config::default().flaw(flaw).report_leaks(false);
    let engine = Arc::new(Engine::new(driver.clone(), config));
    let pool = Pool::new(&engine, PoolConfig::default());
    let mut world = World {
        driver: driver.clone(),
        engine,
        pool,
        streams: [(); STREAMS].map(|()| driver.create_stream().expect("there is room for it")),
        lending: [(); STREAMS].map(|()| None),
        graphs: Vec::new(),
        launched: 0,
        blocks: Vec::new(),
        used: Vec::new(),
        tag: 0,
        made: 0,
        flawed: flaw.is_some(),
        caught: false,
        progress,
    };
    for _ in 0..LONGEST {
        if u.is_empty() || world.caught {
            break;
        }
        // The bytes never run dry with an error: what is missing reads as zero.
        world.step(&mut u).expect("missing bytes read as zeroes");
    }
    world.finish()
}

fn range<P: Program>((memory, tag): &Held<P>) -> Tagged {
    Tagged { address: memory.address(), bytes: memory.bytes(), tag: *tag }
}

impl<P: Program> World<'_, P> {
    /// Something that only an engine without one of its rules may do.
    fn judge(&mut self, sound: bool, what: &str) {
        assert!(sound || self.flawed, "{what}");
        self.caught |= !sound;
    }

    fn judge_device(&mut self) {
        let done = self.driver.synchronize();
        let wrong = self.driver.take_wrong_tags().expect("the device answers");
        self.judge(done.is_ok() && wrong == 0, "kernels found wrong tags");
    }

    fn work(&mut self, stream: usize, inputs: &[Tagged], outputs: &[Tagged]) {
        let work = Work { inputs, outputs, delay: DELAY, trigger_early: false };
        self.driver.launch(self.streams[stream], work, false).expect("a legal launch");
    }

    /// Everything that streams are given from now on comes after what one was given.
    fn all_follow(&self, stream: usize) {
        for other in (0..STREAMS).filter(|&other| other != stream) {
            let (other, stream) = (self.streams[other], self.streams[stream]);
            self.driver.wait(other, stream).expect("streams outside captures may wait");
        }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let stream = u.choose_index(STREAMS)?;
        match u.int_in_range(0..=23)? {
            0..=2 => self.capture(stream, u)?,
            3..=8 => self.launch(stream, u)?,
            9..=13 => self.borrow(stream, u)?,
            14 | 15 => self.share(stream, u)?,
            16..=18 => self.give_back(u)?,
            19 => {
                if let Some(made) = self.any_graph(u)? {
                    let graph = &mut self.graphs[made];
                    let gone = if u.arbitrary()? { 1 } else { graph.outputs.len() };
                    graph.outputs.drain(..gone.min(graph.outputs.len()));
                }
            }
            20 => {
                if let (Some(made), true) = (self.any_graph(u)?, u.ratio(1, 2)?) {
                    self.release(self.graphs[made].number);
                }
            }
            21 => self.lending[stream] = None,
            22 => self.suspend(),
            _ => (self.progress)(self.streams[stream]),
        }
        let lent: u64 = self.blocks.iter().filter(|it| it.lent).map(|it| it.memory.bytes()).sum();
        let told = self.pool.statistics().expect("the pool is there").lent;
        assert!(told == lent || self.flawed, "{told} bytes are lent, {lent} lie where graphs work");
        Ok(())
    }

    fn any_graph(&self, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
        Ok(if self.graphs.is_empty() { None } else { Some(u.choose_index(self.graphs.len())?) })
    }

    fn size(u: &mut Unstructured<'_>) -> Result<u64> {
        Ok(UNIT * u64::from(1 + u.arbitrary::<u8>()? % 24))
    }

    /// Captures a chain of blocks, the last of which are outputs.
    fn capture(&mut self, stream: usize, u: &mut Unstructured<'_>) -> Result<()> {
        if self.graphs.len() == MOST {
            return Ok(());
        }
        let s = self.streams[stream];
        let mut sizes = Vec::new();
        for _ in 0..u.int_in_range(1..=5)? {
            sizes.push(Self::size(u)?);
        }
        let kept = u.int_in_range(0..=2)?;
        let mut sources = Vec::new();
        if let Some(source) = self.any_graph(u)?.filter(|_| u.ratio(2, 3).unwrap_or_default()) {
            sources.push(self.graphs[source].number);
        }
        let mut input = None;
        if u.ratio(1, 3)? {
            // A block from before the capture, borrowed perhaps, which the capture frees.
            if let Some(number) =
                (0..self.blocks.len()).find(|&it| self.blocks[it].stream == stream)
            {
                input = Some(self.blocks.remove(number));
            }
        }
        let expects = input.is_some();
        if expects {
            let engine = &self.engine;
            engine.expect_capture(s).expect("the stream does not capture");
            (self.progress)(s);
        }
        let read: Vec<Tagged> = {
            let of = |it: &&Made<P>| sources.contains(&it.number);
            self.graphs.iter().filter(of).flat_map(|it| it.outputs.iter().map(range)).collect()
        };
        let filled = input.as_ref().map(|it| Tagged {
            address: it.memory.address(),
            bytes: it.memory.bytes(),
            tag: it.tag,
        });
        let (driver, first) = (self.driver.clone(), self.tag + 1);
        self.tag += sizes.len() as u64;
        let mut places = Vec::new();
        let body = |capture: &Capture<Shared<P>>| {
            let mut live: Vec<Held<P>> = Vec::new();
            for (step, &bytes) in sizes.iter().enumerate() {
                let memory = capture.allocate(bytes, s)?;
                let next = (memory, first + step as u64);
                let mut inputs: Vec<Tagged> = live.last().map(range).into_iter().collect();
                inputs.extend(&read);
                // What is freed first is read first, by what writes another block.
                inputs.extend(filled.filter(|_| step == 0));
                let outputs = [range(&next)];
                places.push((outputs[0].address, outputs[0].address + outputs[0].bytes));
                let work =
                    Work { inputs: &inputs, outputs: &outputs, delay: DELAY, trigger_early: false };
                driver.launch(s, work, false)?;
                if step == 0 {
                    drop(input.take());
                }
                live.push(next);
                if live.len() > kept.max(1) {
                    live.remove(0);
                }
            }
            live.drain(..live.len().saturating_sub(kept));
            Ok::<_, Error>(live)
        };
        let captured = self.engine.capture(s, &self.pool, CaptureMode::Relaxed, body);
        let (graph, outputs) = captured.expect("nothing is wrong with the capture");
        self.used.extend(places);
        self.used.extend(filled.map(|it| (it.address, it.address + it.bytes)));
        let number = self.made;
        self.made += 1;
        self.graphs.push(Made { graph, outputs, input: filled, sources, number });
        Ok(())
    }

    /// Launches the next graph of the round.
    fn launch(&mut self, stream: usize, u: &mut Unstructured<'_>) -> Result<()> {
        if self.graphs.is_empty() {
            return Ok(());
        }
        if self.launched >= self.graphs.len() {
            self.launched = 0;
        }
        let s = self.streams[stream];
        if let Some(input) = self.graphs[self.launched].input {
            // A host that fills inputs by their address has no live block there.
            let end = input.address + input.bytes;
            let lies = |it: &Borrowed<P>| {
                it.memory.address() < end && input.address < it.memory.address() + it.memory.bytes()
            };
            let clear = !self.blocks.iter().any(lies);
            self.judge(clear, "an input is filled where a block lives");
            self.pool.follow(s).expect("the pool is awake");
            self.work(stream, &[], &[input]);
            self.all_follow(stream);
            if u.ratio(1, 3)? {
                let other = u.choose_index(STREAMS)?;
                self.borrow(other, u)?;
                if u.ratio(2, 3)? && !self.blocks.is_empty() {
                    self.blocks.pop();
                }
            }
        }
        let lives = self.blocks.iter().any(|it| it.lent);
        let done = self.graphs[self.launched].graph.launch(s);
        match done {
            Ok(()) => {
                self.judge(!lives, "a launch overwrites blocks that live");
                let outputs: Vec<Tagged> =
                    self.graphs[self.launched].outputs.iter().map(range).collect();
                if !outputs.is_empty() {
                    self.work(stream, &outputs, &[]);
                    self.all_follow(stream);
                }
                self.launched += 1;
            }
            Err(Error::BlocksLent { blocks, .. }) => {
                let live = self.blocks.iter().filter(|it| it.lent).count();
                self.judge(blocks.len() == live && lives, "other blocks are named");
            }
            Err(error) => panic!("launch: {error}"),
        }
        Ok(())
    }

    /// Gets a block outside captures and writes it.
    fn borrow(&mut self, stream: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let bytes = Self::size(u)?;
        if self.blocks.len() == MOST {
            return Ok(());
        }
        let plain = u.ratio(1, 6)?;
        let memory = if plain {
            self.pool.allocate(bytes, self.streams[stream])
        } else {
            let lend = || self.pool.lend(self.streams[stream]).expect("the pool is awake");
            self.lending[stream].get_or_insert_with(lend).allocate(bytes)
        };
        let memory = memory.expect("there is room for a block");
        let end = memory.address() + memory.bytes();
        let lent = self.used.iter().any(|&(low, high)| low < end && memory.address() < high);
        self.judge(!(plain && lent), "graphs' memory was handed out and not lent");
        self.tag += 1;
        let block = Borrowed { memory, tag: self.tag, lent, stream };
        let whole = Tagged { address: block.memory.address(), bytes, tag: block.tag };
        self.work(stream, &[], &[whole]);
        self.blocks.push(block);
        Ok(())
    }

    /// Reads a block on its own stream, or on another one that is recorded for it.
    fn share(&mut self, stream: usize, u: &mut Unstructured<'_>) -> Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let block = &self.blocks[u.choose_index(self.blocks.len())?];
        let own = block.stream;
        if own != stream {
            let (to, from) = (self.streams[stream], self.streams[own]);
            self.driver.wait(to, from).expect("streams outside captures may wait");
            block.memory.record_stream(to).expect("the block lives");
        }
        let Borrowed { memory, tag, .. } = block;
        let whole = Tagged { address: memory.address(), bytes: memory.bytes(), tag: *tag };
        self.work(stream, &[whole], &[]);
        Ok(())
    }

    fn give_back(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if !self.blocks.is_empty() {
            let number = u.choose_index(self.blocks.len())?;
            let Borrowed { memory, tag, stream, .. } = self.blocks.remove(number);
            let held = (memory, tag);
            self.work(stream, &[range(&held)], &[]);
        }
        Ok(())
    }

    /// Drops a graph with its readers.
    fn release(&mut self, number: u64) {
        let Some(row) = self.graphs.iter().position(|it| it.number == number) else { return };
        let made = self.graphs.remove(row);
        self.launched -= usize::from(row < self.launched);
        drop(made);
        let reads = |it: &&Made<P>| it.sources.contains(&number);
        let readers: Vec<u64> = self.graphs.iter().filter(reads).map(|it| it.number).collect();
        readers.into_iter().for_each(|it| self.release(it));
        if self.graphs.is_empty() {
            // One that runs is gone with the next look.
            self.judge_device();
            self.pool.synchronize().expect("the device answers");
            self.used.clear();
            self.blocks.iter_mut().for_each(|it| it.lent = false);
        }
    }

    /// Suspends the pool and resumes it, where it has no blocks but graphs' own.
    fn suspend(&mut self) {
        self.judge_device();
        match self.pool.suspend() {
            Ok(_) => {
                self.judge(self.blocks.is_empty(), "blocks have lost what they held");
                let launch = self.graphs.first().map(|it| it.graph.launch(self.streams[0]));
                let refused = matches!(launch, None | Some(Err(Error::PoolSuspended { .. })));
                self.judge(refused, "a suspended pool launches");
                let lend = self.pool.lend(self.streams[0]);
                self.judge(lend.is_err(), "a suspended pool lends");
                self.pool.resume().expect("there is room for it");
                self.launched = 0;
            }
            Err(Error::PoolHasBlocks { .. }) => assert!(!self.blocks.is_empty()),
            Err(Error::PoolBusy { .. } | Error::CannotSuspend { .. }) => {}
            Err(error) => panic!("suspend: {error}"),
        }
    }

    /// Ends everything, gives everything back and looks for what is missing. Says whether anything showed that the
    /// engine lacks a rule.
    fn finish(mut self) -> bool {
        self.judge_device();
        self.blocks.clear();
        self.judge_device();
        for graph in 0..self.graphs.len() {
            if let Some(input) = self.graphs[graph].input {
                self.pool.follow(self.streams[0]).expect("the pool is awake");
                self.work(0, &[], &[input]);
            }
            let launched = self.graphs[graph].graph.launch(self.streams[0]);
            self.judge(launched.is_ok(), "no block is left, and a launch is refused");
        }
        self.judge_device();
        self.graphs.clear();
        let Self { lending, engine, pool, driver, caught, flawed, .. } = self;
        drop(lending);
        driver.synchronize().expect("the device answers");
        pool.synchronize().expect("the device answers");
        drop(pool);
        engine.empty_cache().expect("the engine is sound");
        let held = engine.statistics().expect("the engine is sound").all.reserved_bytes.current;
        assert!(held == 0 || flawed, "memory was lost");
        caught
    }
}
