//! Short programs, each about one rule of the engine, in tables of text.
//!
//! Statements have `;` between them. Streams and blocks are made as their names come; a pool's name is a capital
//! letter, and `A` where none is given. `s,t: launch` does it on both streams. Statements are, on a stream `s`:
//!
//! | statement | what it does |
//! |---|---|
//! | `with caching:False` | begins the program: the engine's settings, and what else its configuration has |
//! | `with lacks:Proof` | names a rule that an engine can leave out, which then gets the program wrong |
//! | `s: begin`, `s: begin B` | begins a capture and announces it, into a pool |
//! | `s: capture` | begins a capture that is not announced |
//! | `s: body t`, `s: body t joined` | begins a capture of a conditional node's body, at the end of `t`'s capture, which `joined` goes on behind it |
//! | `s: end`, `s: end late n/a` | ends the capture; finds these late uses, of block `a` by node `n`, and no others |
//! | `s: stop`, `s: abandon` | ends the driver's capture alone, and then also gives the engine's up |
//! | `ruin` | waits for the device, which ruins all captures |
//! | `s: judge`, `s: give up` | ends the engine's capture alone, well or not |
//! | `s: close`, `s: verdict` | ends the capture in two steps |
//! | `s: attempt Last` | says which attempt the capture is |
//! | `s: unseen` | ends the driver's capture, and the engine's without the graph |
//! | `s: node` | adds a node by hand, behind what the stream's next one would follow |
//! | `s: cut` | removes the edge to the stream's last node |
//! | `s: graph 8M` | captures a graph that writes so many bytes, reads them and frees them |
//! | `s: replay t` | launches the graph of `t`'s last capture, behind all work on what was lent |
//! | `s: follow`, `passed` | the two calls of a host that launches by itself: before its launch, and after it |
//! | `s: a = 4M`, `s: a = 4M in B` | allocates bytes, `K` or `M` of them, or `4M+512` |
//! | `s: a b c = 4M` | allocates so many bytes for each |
//! | `s: a = 4M lent`, `... lent all` | borrows what no graph keeps, or all that is free; fails if nothing is lent |
//! | `s: a = 4M from b+1M` | allocates memory that is free there; fails if there is none |
//! | `... at b+4M`, `... on b c`, `... not b c` | claims where the block begins, and whether it lies over others |
//! | `s: explain a Ordered t` | claims why the stream is refused `a`'s place: a reason with stream `t` in it |
//! | `free a`, `s: free a` | frees, from a stream |
//! | `... elsewhere` | does any of these on another thread |
//! | `s: record a`, `s: last a` | tells a use, or the last use |
//! | `s: launch`, `s: launch 20`, `s: early` | launches kernels, or one that may start before the last one ends |
//! | `s: use a b`, `s: n = use a b` | launches one that writes a tag, or expects it where one was written; names it |
//! | `s: touch a a+512`, `s: n = touch a` | launches one with these addresses among its parameters, and names its node |
//! | `t <- s` | lets `t` wait for `s` |
//! | `s: keep x`, `s: set x y` | keeps what the stream's next node would follow, and makes the next node follow what was kept |
//! | `s: observe`, `s: expect`, `s: mark`, `s: retire` | the engine's calls of these names |
//! | `s: complete`, `complete` | waits for a stream's work, or for all that is no capture's |
//! | `trim`, `empty`, `empty B` | takes back what streams have cached; gives the driver all that is free, or a pool's |
//! | `empty B waiting` | first waits for what streams hold, where a pool's free memory may be in use |
//! | `trim 6M` | gives free memory back to the driver until so much is held |
//! | `checkpoint x`, `checkpoint x in B` | remembers what lives in a pool |
//! | `restore x` | goes back to that: its blocks are known by their names again, and no block that lived until now is |
//! | `suspend`, `suspend discarding`, `resume` | the pool's memory goes, also what live blocks hold, and comes back |
//! | `plans A`, `plans A 4M` | makes a pool whose captures get their memory at their end, in pieces of so many bytes |
//! | `plans A in 2`, `plans A most 8M` | makes one whose captures have so many mappings at most, or that may hold so much |
//! | `s: plan`, `s: plan none` | plans one capture, or does not |
//! | `compact` | moves the pool's memory together |
//! | `learn`, `learned 5`, `forget` | begins a run of requests, claims how many it had, forgets what was learned |
//! | `s: layout x`, `s: follows x` | keeps a layout of what the capture did so far, and lets one lie by it |
//! | `followed 3` | claims how many blocks of the latest capture lie by its layout |
//! | `s: a = 4M fixed` | allocates memory that no plan moves |
//! | `offer`, `takes B` | other pools may have what is spare; makes one that takes it |
//! | `s: destroy`, `destroy B` | a stream of the driver's goes, or a pool |
//! | `s: release` | the graph of the stream's last capture goes |
//! | `limit 8M` | sets how much the engine may hold |
//! | `reserved 8M` | claims how much the pool holds; so do `allocated`, `requested`, `active`, `suspended`, `lent` |
//! | `activated 8M`, `excess 8M` | claims how much became active so far, and what compaction would give back |
//! | `pieces 3` | claims of how many mappings that is |
//! | `live a b` | claims that these blocks live in the pool, and no others |
//!
//! A statement that ends with `!Refused "block 0"` must fail with that error, whose text contains what is in quotes.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, Dependency, Driver, DriverError, ErrorKind, EventHandle,
    ExecutableHandle, GraphHandle, HostApi, NodeHandle, StreamHandle,
};
use regraph::engine::{
    Attempt, Block, Checkpoint, Config, Engine, Error, Flaw, GraphId, Lent, PoolConfig, PoolId,
    Spare, Unknown,
};
use regraph::plan::Options;
use regraph::settings::Settings;
use regraph::Layout;
use regraph_sim::{Call, SimDriver};
use regraph_tagged::{Program, Tagged, Work};
use regraph_trace::snapshot::{validate, validate_history};

/// A program with its name.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The rule.
    pub name: &'static str,
    /// What the engine may do: the table's choices, and the row's.
    choices: [&'static str; 2],
    /// The statements.
    pub program: &'static str,
}

/// Reads a table: for each row `# name`, the program, and an empty line. Before the first row stand comments, and
/// choices for all rows; comments between rows begin with `//`. A program that begins `with` choices several times is
/// a row with each of them.
///
/// # Panics
/// Where a name has no program.
pub fn rows(table: &'static str) -> Vec<Row> {
    let (head, table) = table.split_once("\n# ").expect("a row");
    let for_all = head.lines().find_map(|line| line.strip_prefix("with ")?.strip_suffix(';'));
    let mut rows = Vec::new();
    for row in table.split("\n# ") {
        let (name, row) = row.split_once('\n').expect("a program");
        let mut program = row.split("\n\n").next().unwrap_or(row).trim();
        let mut own = Vec::new();
        while let Some(text) = program.strip_prefix("with ") {
            let (choices, rest) = text.split_once(';').expect("a program");
            own.push(choices);
            program = rest.trim();
        }
        if own.is_empty() {
            own.push("");
        }
        let with = |own| Row { name, choices: [for_all.unwrap_or_default(), own], program };
        rows.extend(own.into_iter().map(with));
    }
    rows
}

impl Row {
    /// What the engine may do, and the rule that it lacks where one is to be left out.
    fn config(&self) -> (Config, Option<Flaw>) {
        let (mut config, mut settings, mut lacks) = (Config::default(), Settings::default(), None);
        for choice in self.choices.iter().flat_map(|it| it.split(", ")) {
            config = match choice.split_once(':') {
                Some(("find_late_uses", found)) => config.find_late_uses(found == "True"),
                Some(("foreign_nodes", allowed)) => config.foreign_nodes(allowed == "True"),
                Some(("journal", kept)) => config.journal(kept == "True"),
                Some(("judge_aside", most)) => config.judge_aside(most.parse().expect("nodes")),
                Some(("lacks", rule)) => {
                    lacks = FLAWS.into_iter().find(|it| format!("{it:?}") == rule);
                    assert!(lacks.is_some(), "{rule} is no rule");
                    config
                }
                _ => {
                    settings = settings.overlaid(choice).expect("settings");
                    config
                }
            };
        }
        (config.settings(settings), lacks)
    }

    /// Runs the program.
    ///
    /// # Errors
    /// The statement that goes wrong, and how.
    pub fn run<P: Program + Driver>(&self, driver: &Arc<P>) -> Result<(), String> {
        let mut world = World::new(driver, self.config().0, Judged::Claims);
        let wrong = world.run(self.program).and_then(|()| match world.wrong_tags()? {
            0 => Ok(()),
            wrong => Err(format!("{wrong} wrong tags").into()),
        });
        if wrong.is_err() {
            // On a device with other programs to come.
            let _ = world.end_captures();
        }
        wrong.map_err(|failure| self.told(world.statement, &failure))
    }

    /// Whether an engine that lacks the row's rule is found out: the checker refuses the program's last capture, or
    /// kernels find memory overwritten. What the program claims of places need not hold then.
    ///
    /// # Errors
    /// Another statement that goes wrong, and how.
    pub fn is_missed<P: Program + Driver>(&self, driver: &Arc<P>) -> Result<bool, String> {
        let (config, lacks) = self.config();
        let mut world = World::new(driver, config.flaw(lacks), Judged::Tags);
        let refused = |it: &Error| matches!(it, Error::Refused(_) | Error::CaptureAgain(_));
        let missed = match world.run(self.program) {
            Err(it) if it.downcast_ref().is_some_and(refused) && world.is_last => Ok(true),
            ran => ran.and_then(|()| Ok(world.wrong_tags()? > 0)),
        };
        missed.map_err(|failure| self.told(world.statement, &failure))
    }

    /// Where the program went wrong, and how.
    fn told(&self, statement: &str, failure: &dyn Display) -> String {
        format!("{}, with {:?}: {statement}: {failure}", self.name, self.choices[1])
    }

    /// Runs the program once for each call that it makes to the driver, which fails then. What the program claims need
    /// not hold; but the engine's tables agree and its figures are the device's after each statement, kernels find what
    /// they expect where the host was told of no failure, and all memory comes back. Says how many calls failed.
    ///
    /// # Errors
    /// A call, the statement at which something else came of its failure, and what.
    pub fn each_call_fails(&self, device: impl Fn() -> Arc<SimDriver>) -> Result<u64, String> {
        // As many as there are where none fails.
        let sound = device();
        let mut world = World::new(&sound, self.config().0, Judged::Memory { lossy: false });
        let done = world.run(self.program);
        done.map_err(|failure| self.told(world.statement, &failure))?;
        let mut failed = 0;
        let getting = [Call::Reserve, Call::Create, Call::Map, Call::SetAccess, Call::Allocate];
        let short = getting.into_iter().map(|call| (call, ErrorKind::OutOfMemory));
        // An invalid event is one of a capture, which no stream has that is retired.
        let broken = match self.program.contains("retire") {
            true => ErrorKind::NotPermitted,
            false => ErrorKind::InvalidValue,
        };
        let broken = Call::ALL.iter().map(|&call| (call, broken.clone()));
        for (call, kind) in short.chain(broken) {
            for n in 0..sound.calls(call) {
                let (driver, lossy) = (device(), GIVING_BACK.contains(&call));
                driver.fail_nth(call, n, kind.clone());
                // Until it fails all is as ever.
                let used = || (driver.calls(call) > n).then(|| driver.used_bytes());
                let done = self.run_and_give_back(&driver, &used, lossy, usize::MAX, false);
                done.map_err(|failure| format!("{call:?} {n} {kind:?}: {failure}"))?;
                failed += 1;
            }
        }
        Ok(failed)
    }

    /// Runs the program up to each of its statements in turn, and gives up what is under way, ruined or not: all memory
    /// comes back, and the rest is as for [`Row::each_call_fails`].
    ///
    /// # Errors
    /// The statement after which something else came of the end, and what.
    pub fn ends_anywhere(&self, device: impl Fn() -> Arc<SimDriver>) -> Result<(), String> {
        (0..self.program.split(';').count()).try_for_each(|most| {
            [false, true].into_iter().try_for_each(|ruined| {
                let driver = device();
                let used = || Some(driver.used_bytes());
                self.run_and_give_back(&driver, &used, false, most, ruined)
            })
        })
    }

    /// Runs up to so many statements of the program without its claims, and gives everything back.
    fn run_and_give_back(
        &self,
        driver: &Arc<SimDriver>,
        used: &(dyn Fn() -> Option<u64> + Sync),
        lossy: bool,
        most: usize,
        ruined: bool,
    ) -> Result<(), String> {
        let program = self.program;
        let end = program.match_indices(';').nth(most).map_or(program.len(), |it| it.0);
        let mut world = World::new(driver, self.config().0, Judged::Memory { lossy });
        world.used = Box::new(used);
        let done = world.run(&program[..end]).and_then(|()| {
            if ruined {
                let _ = driver.synchronize();
            }
            world.give_back(driver, lossy)
        });
        done.map_err(|failure| self.told(world.statement, &failure))
    }
}

/// Rules that an engine can leave out.
#[rustfmt::skip]
const FLAWS: [Flaw; 17] = {
    use Flaw::*;
    [Proof, OwnMarker, ForeignMarkers, SetBack, EdgeKinds, EarlyLaunches, OutsideUses, NestedCapture, Unlisted, Alias,
     Hold, OlderBlocks, InputMarkers, StreamOrder, Events, SharedPieces, SwappedPieces]
};

/// Calls that give something back: what they fail to give is lost.
const GIVING_BACK: [Call; 5] =
    [Call::Release, Call::Unmap, Call::Unreserve, Call::Free, Call::DestroyEvent];

/// What is judged of a program beside the tags that its kernels find.
#[derive(Clone, Copy, PartialEq)]
enum Judged {
    /// Nothing: the engine lacks a rule.
    Tags,
    /// All that it claims, and the engine's tables.
    Claims,
    /// The engine's tables and figures: a call of the driver's fails, perhaps one that loses memory.
    Memory { lossy: bool },
}

/// What goes wrong: an error of the engine or of the driver, or a claim that does not hold.
type Done<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Blocks that lived at a checkpoint, with their addresses.
type Lived<'a> = Vec<(&'a str, u64)>;

/// A program under way.
struct World<'a, P: Program + Driver> {
    driver: Arc<P>,
    engine: Engine<Arc<P>>,
    judged: Judged,
    /// How much of the device's memory is in use, in bytes, where that is to be judged.
    used: Box<dyn Fn() -> Option<u64> + Send + 'a>,
    /// Whether a statement failed because a call of the driver's did.
    was_told: bool,
    statement: &'a str,
    /// Whether that is the program's last statement.
    is_last: bool,
    pools: HashMap<&'a str, PoolId>,
    streams: HashMap<&'a str, StreamHandle>,
    blocks: HashMap<&'a str, Block>,
    /// By block, once something has written it.
    tags: HashMap<&'a str, u64>,
    nodes: HashMap<&'a str, NodeHandle>,
    terminals: HashMap<&'a str, Vec<Dependency>>,
    captures: HashMap<StreamHandle, CaptureId>,
    /// By stream, what the driver's latest capture came to that was ended by itself.
    stopped: HashMap<StreamHandle, GraphHandle>,
    /// By stream, the latest that was closed.
    closed: HashMap<StreamHandle, (CaptureId, GraphHandle)>,
    /// Behind work that a stream had before it captured.
    before: Vec<EventHandle>,
    /// Streams that capture bodies.
    bodies: Vec<StreamHandle>,
    /// With the driver's, for those that are no bodies.
    graphs: Vec<(StreamHandle, GraphId, Option<GraphHandle>)>,
    executables: Vec<ExecutableHandle>,
    checkpoints: HashMap<&'a str, (Checkpoint, Lived<'a>)>,
    layouts: HashMap<&'a str, Layout>,
    /// How many blocks of the latest capture lie by its layout.
    followed: u64,
}

impl<'a, P: Program + Driver> World<'a, P> {
    fn new(driver: &Arc<P>, config: Config, judged: Judged) -> Self {
        Self {
            driver: driver.clone(),
            engine: Engine::new(driver.clone(), config.report_leaks(false)),
            judged,
            used: Box::new(|| None),
            was_told: false,
            statement: "",
            is_last: false,
            pools: HashMap::new(),
            streams: HashMap::new(),
            blocks: HashMap::new(),
            tags: HashMap::new(),
            nodes: HashMap::new(),
            terminals: HashMap::new(),
            captures: HashMap::new(),
            stopped: HashMap::new(),
            closed: HashMap::new(),
            before: Vec::new(),
            bodies: Vec::new(),
            graphs: Vec::new(),
            executables: Vec::new(),
            checkpoints: HashMap::new(),
            layouts: HashMap::new(),
            followed: 0,
        }
    }

    fn run(&mut self, program: &'a str) -> Done {
        let mut statements = program.trim_end().trim_end_matches(';').split(';').peekable();
        while let Some(statement) = statements.next() {
            let statement = statement.trim();
            (self.statement, self.is_last) = (statement, statements.peek().is_none());
            let (action, refusal) = match statement.split_once('!') {
                Some((action, refusal)) => (action, Some(refusal)),
                None => (statement, None),
            };
            let (streams, action) = action.split_once(": ").unwrap_or(("", action));
            let words: Vec<&str> = action.split_whitespace().collect();
            for stream in streams.split(',') {
                let done = self.step(stream.trim(), &words);
                match (done, refusal, self.judged) {
                    // A host that is told of a failure tries once more.
                    (done, _, Judged::Memory { .. }) => {
                        // A claim that does not hold is no such reason, nor a block that is not there.
                        if done.is_err_and(|it| it.is::<Error>() || it.is::<DriverError>()) {
                            self.was_told |= self.step(stream.trim(), &words).is_err();
                        }
                    }
                    (Err(error), Some(refusal), _) if is_refusal(&*error, refusal) => {}
                    (Ok(()), Some(_), _) => return Err("it was not refused".into()),
                    (done, ..) => done?,
                }
                self.judge()?;
            }
        }
        Ok(())
    }

    fn judge(&self) -> Done {
        let used = (self.used)();
        if self.judged == Judged::Claims || used.is_some() {
            let wrong = |what| format!("the engine's tables are wrong: {what}");
            self.engine.host().verify().map_err(wrong)?;
        }
        if self.judged == Judged::Claims {
            let snapshot = self.engine.snapshot()?;
            validate(&snapshot)?;
            validate_history(&snapshot)?;
        }
        if let (Judged::Memory { lossy }, Some(used)) = (self.judged, used) {
            let reserved = self.engine.statistics()?.all.reserved_bytes.current;
            if reserved != used && (!lossy || reserved > used) {
                return Err(format!("{reserved} bytes are held, and {used} are in use").into());
            }
        }
        Ok(())
    }

    fn step(&mut self, name: &'a str, words: &[&'a str]) -> Done {
        if let [to, "<-", on] = *words {
            let (to, on) = (self.stream(to)?, self.stream(on)?);
            return Ok(self.driver.wait(to, on)?);
        }
        if let [ref words @ .., "elsewhere"] = *words {
            let step = || self.step(name, words);
            return std::thread::scope(|scope| scope.spawn(step).join())
                .map_err(|_| "it panics")?;
        }
        let stream = self.stream(name)?;
        match *words {
            ["begin"] => self.begin(stream, "A")?,
            ["begin", pool] => self.begin(stream, pool)?,
            ["capture"] => self.capture(stream)?,
            ["body", of, ref joined @ ..] => self.body(stream, of, !joined.is_empty())?,
            ["end", ref late @ ..] => self.end(stream, late.get(1..).unwrap_or(&[]))?,
            ["stop"] => {
                let graph = self.driver.end_capture(stream)?;
                self.stopped.insert(stream, graph);
            }
            ["abandon"] => {
                self.driver.end_capture(stream)?;
                self.give_up(stream)?;
            }
            ["ruin"] => drop(self.driver.synchronize()),
            ["give", "up"] => self.give_up(stream)?,
            ["close"] => {
                let graph = self.look(stream)?.1.ok_or("it does not capture")?;
                let capture = self.capture_of(stream)?;
                self.engine.close_capture(capture, graph)?;
                self.driver.end_capture(stream)?;
                self.captures.remove(&stream);
                self.closed.insert(stream, (capture, graph));
            }
            ["verdict"] => {
                let report = self.engine.verdict(self.capture_of(stream)?)?;
                let graph = self.closed.get(&stream).ok_or("it was not closed")?.1;
                self.graphs.push((stream, report.graph, Some(graph)));
            }
            ["attempt", name] => {
                let all = [Attempt::First, Attempt::Again, Attempt::Last];
                let attempt = all.into_iter().find(|it| format!("{it:?}") == name);
                let attempt = attempt.expect("an attempt's name");
                self.engine.set_attempt(self.capture_of(stream)?, attempt)?;
            }
            ["cut"] => {
                let (terminals, graph) = self.look(stream)?;
                let graph = graph.ok_or("it does not capture")?;
                let last = terminals.first().ok_or("it has launched nothing")?.node;
                let mut edges = Vec::new();
                self.driver.dependencies(last, &mut edges)?;
                let edge = edges.first().ok_or("it has one node")?;
                self.driver.remove_dependency(graph, *edge, last)?;
            }
            ["judge"] => {
                let stopped = self.stopped.remove(&stream);
                let graph = self.look(stream)?.1.or(stopped).ok_or("it does not capture")?;
                let capture = self.captures.remove(&stream).ok_or("it is not announced")?;
                let report = self.engine.end_capture(capture, graph)?;
                self.graphs.push((stream, report.graph, stopped));
            }
            ["unseen"] => {
                self.driver.end_capture(stream)?;
                let capture = self.captures.remove(&stream).ok_or("it is not announced")?;
                let report = self.engine.host().end_unjudged(capture)?;
                self.graphs.push((stream, report.graph, None));
            }
            ["node"] => {
                let (terminals, graph) = self.look(stream)?;
                let graph = graph.ok_or("it does not capture")?;
                self.driver.add_node(graph, &terminals, Work::default())?;
            }
            ["graph", bytes] => {
                self.begin(stream, "A")?;
                self.allocate(stream, "", bytes, &[])?;
                self.use_blocks(stream, &[""])?;
                self.use_blocks(stream, &[""])?;
                self.engine.free(self.blocks[""].id)?;
                self.end(stream, &[])?;
            }
            ["replay", of] => self.replay(stream, of)?,
            ["follow"] => {
                let pool = self.pool("A");
                self.engine.host().follow_lent(pool, stream)?;
            }
            ["passed"] => {
                let pool = self.pool("A");
                self.engine.host().forget_borrowers(pool)?;
            }
            [block, "=", "touch", ref at @ ..] => {
                self.touch(stream, at)?;
                self.name_node(stream, block)?;
            }
            [node, "=", "use", ref blocks @ ..] => {
                self.use_blocks(stream, blocks)?;
                self.name_node(stream, node)?;
            }
            [block, "=", bytes, ref claims @ ..] => self.allocate(stream, block, bytes, claims)?,
            [ref blocks @ .., "=", bytes] if blocks.len() > 1 => {
                blocks.iter().try_for_each(|block| self.allocate(stream, block, bytes, &[]))?;
            }
            ["free", block] if name.is_empty() => self.engine.free(self.block(block)?.id)?,
            ["free", block] => {
                let id = self.block(block)?.id;
                self.engine.record_stream(id, stream)?;
                self.engine.free(id)?
            }
            ["record", block] => self.engine.record_stream(self.block(block)?.id, stream)?,
            ["last", block] => self.engine.record_use(self.block(block)?.id, stream)?,
            ["launch", times] => {
                for _ in 0..size(times) {
                    self.launch(stream, false)?;
                    self.engine.observe(stream)?;
                }
            }
            ["launch"] => self.launch(stream, false)?,
            ["early"] => self.launch(stream, true)?,
            ["use", ref blocks @ ..] => self.use_blocks(stream, blocks)?,
            ["touch", ref at @ ..] => self.touch(stream, at)?,
            ["keep", name] => {
                let terminals = self.look(stream)?.0;
                self.terminals.insert(name, terminals);
            }
            ["set", ref names @ ..] => {
                let all = names.iter().filter_map(|name| self.terminals.get(name));
                self.driver.set_terminals(stream, &all.flatten().copied().collect::<Vec<_>>())?;
            }
            ["observe"] => self.engine.observe(stream)?,
            ["expect"] => self.engine.host().expect_capture(stream)?,
            ["mark"] => self.engine.mark_stream(stream)?,
            ["retire"] => self.engine.retire_stream(stream)?,
            ["complete"] if name.is_empty() => self.complete_all()?,
            ["complete"] => self.complete(stream)?,
            ["explain", block, reason, ref of @ ..] => self.explain(stream, block, reason, of)?,
            ["destroy", pool] => self.engine.destroy_pool(self.pools[pool])?,
            ["destroy"] => {
                // What waits for it without an event, since that could not be had, would wait for ever.
                if !matches!(self.judged, Judged::Memory { .. }) {
                    self.driver.destroy_stream(stream)?;
                    self.streams.remove(name);
                }
            }
            ["trim"] => drop(self.engine.trim(u64::MAX - 1)?),
            ["trim", bytes] => drop(self.engine.trim(size(bytes))?),
            ["empty"] => drop(self.engine.empty_cache()?),
            ["empty", pool, ref wait @ ..] => {
                self.engine.host().empty_pool(self.pools[pool], !wait.is_empty())?;
            }
            ["checkpoint", name] => self.checkpoint(name, "A")?,
            ["checkpoint", name, "in", pool] => self.checkpoint(name, pool)?,
            ["restore", name] => self.restore(name)?,
            ["suspend", ref discarding @ ..] => {
                let pool = self.pool("A");
                match discarding.is_empty() {
                    true => self.engine.host().suspend_discarding_outputs(pool)?,
                    false => self.engine.host().suspend_discarding_all(pool)?,
                };
            }
            ["resume"] => drop(self.engine.host().resume_pool(self.pools["A"])?),
            ["offer"] => {
                let pool = self.pool("A");
                self.engine.host().set_spare(pool, Spare::Offered)?;
            }
            ["plans", pool, ref how @ ..] => {
                let (config, options) = (PoolConfig::default(), Options::default());
                let config = match *how {
                    ["in", most] => config.plan(options.max_mappings(Some(size(most) as usize))),
                    ["most", bytes] => config.plan(options).max_bytes(size(bytes)),
                    ref piece => {
                        config.plan(options.max_piece_bytes(piece.first().map(|it| size(it))))
                    }
                };
                self.pools.insert(pool, self.engine.create_pool(config));
            }
            ["plan", ref none @ ..] => {
                let (capture, options) = (self.capture_of(stream)?, Options::default());
                self.engine.plans().plan_capture(capture, none.is_empty().then_some(options))?;
            }
            ["learn"] => self.engine.plans().learn()?,
            ["forget"] => self.engine.plans().forget_learned()?,
            ["layout", name] => {
                let layout = self.engine.plans().layout_of(self.capture_of(stream)?)?;
                self.layouts.insert(name, layout);
            }
            ["follows", name] => {
                let layout = self.layouts.get(name).ok_or("no layout")?.clone();
                self.engine.plans().follow_layout(self.capture_of(stream)?, layout)?;
            }
            ["takes", pool] => {
                let config = PoolConfig::default().takes_offers(true);
                self.pools.insert(pool, self.engine.create_pool(config));
            }
            ["compact"] => drop(self.engine.host().compact_pool(self.pools["A"])?),
            ["release"] => {
                let row = self.graphs.iter().rposition(|it| it.0 == stream).ok_or("no graph")?;
                self.engine.release_graph(self.graphs.remove(row).1)?;
            }
            ["limit", bytes] => self.engine.set_memory_limit(Some(size(bytes)))?,
            ["live", ref blocks @ ..] => self.live(blocks)?,
            [figure, bytes] => self.figure(figure, bytes)?,
            _ => panic!("{} is no statement", self.statement),
        }
        Ok(())
    }

    fn stream(&mut self, name: &'a str) -> Done<StreamHandle> {
        if let Some(&stream) = self.streams.get(name) {
            return Ok(stream);
        }
        if name.is_empty() {
            return Ok(StreamHandle::from_bits(0));
        }
        let stream = self.driver.create_stream()?;
        Ok(*self.streams.entry(name).or_insert(stream))
    }

    fn pool(&mut self, name: &'a str) -> PoolId {
        *self.pools.entry(name).or_insert_with(|| self.engine.create_pool(PoolConfig::default()))
    }

    /// What a stream's next node follows, and the graph, if the stream captures.
    fn look(&self, stream: StreamHandle) -> Done<(Vec<Dependency>, Option<GraphHandle>)> {
        let mut terminals = Vec::new();
        match self.driver.capture_status(stream, &mut terminals)? {
            CaptureStatus::Active { graph, .. } => Ok((terminals, Some(graph))),
            _ => Ok((terminals, None)),
        }
    }

    fn capture(&mut self, stream: StreamHandle) -> Done {
        let event = self.driver.create_event()?;
        self.driver.record_event(event, stream)?;
        self.before.push(event);
        Ok(self.driver.begin_capture(stream, CaptureMode::Relaxed)?)
    }

    fn begin(&mut self, stream: StreamHandle, pool: &'a str) -> Done {
        let pool = self.pool(pool);
        if self.look(stream)?.1.is_none() {
            self.capture(stream)?;
        }
        self.captures.insert(stream, self.engine.begin_capture(pool, stream)?);
        Ok(())
    }

    fn body(&mut self, stream: StreamHandle, of: &'a str, joined: bool) -> Done {
        let (pool, of) = (self.pool("A"), self.stream(of)?);
        let (before, graph) = self.look(of)?;
        let graph = graph.ok_or("it does not capture")?;
        let (node, body) = self.driver.add_conditional(graph, &before)?;
        if joined {
            self.driver.set_terminals(of, &[Dependency::full(node)])?;
        }
        self.driver.begin_capture_to_graph(stream, body, CaptureMode::Relaxed)?;
        self.captures.insert(stream, self.engine.begin_capture(pool, stream)?);
        self.bodies.push(stream);
        Ok(())
    }

    fn end(&mut self, stream: StreamHandle, late: &[&'a str]) -> Done {
        let capture = match self.captures.remove(&stream) {
            Some(capture) => capture,
            None => match self.driver.capture_of(stream)? {
                CaptureStatus::Active { capture, .. } => capture,
                _ => Err("it does not capture")?,
            },
        };
        let graph = self.look(stream)?.1.ok_or("it does not capture")?;
        let ended = self.engine.end_capture(capture, graph);
        self.driver.end_capture(stream)?;
        let report = ended?;
        self.followed = report.layout.map_or(0, |it| it.followed as u64);
        let graph = (!self.bodies.contains(&stream)).then_some(graph);
        self.graphs.push((stream, report.graph, graph));
        let found = report.late_uses.iter().map(|it| (it.node, it.block.block));
        let claimed = late.iter().map(|pair| {
            let (node, block) = pair.split_once('/').expect("node/block");
            (self.nodes[node], self.blocks[block].id.number())
        });
        match self.judged != Judged::Claims || found.eq(claimed) {
            true => Ok(()),
            false => Err(format!("{:?}", report.late_uses).into()),
        }
    }

    fn give_up(&mut self, stream: StreamHandle) -> Done {
        let capture = self.capture_of(stream).unwrap_or(CaptureId(0));
        self.captures.remove(&stream);
        Ok(self.engine.abandon_capture(capture)?)
    }

    /// A stream's capture under way, or the latest that was closed.
    fn capture_of(&self, stream: StreamHandle) -> Done<CaptureId> {
        let closed = self.closed.get(&stream).map(|it| it.0);
        Ok(self.captures.get(&stream).copied().or(closed).ok_or("it is not announced")?)
    }

    fn allocate(
        &mut self,
        stream: StreamHandle,
        name: &'a str,
        bytes: &str,
        claims: &[&'a str],
    ) -> Done {
        let (pool, claims) = match *claims {
            ["in", pool, ref claims @ ..] => (pool, claims),
            _ => ("A", claims),
        };
        let (lent, claims) = match *claims {
            ["lent", "all", ref claims @ ..] => (Some(Lent::AllFree), claims),
            ["lent", ref claims @ ..] => (Some(Lent::Temporary), claims),
            _ => (None, claims),
        };
        let (is_fixed, claims) = match *claims {
            ["fixed", ref claims @ ..] => (true, claims),
            _ => (false, claims),
        };
        let (from, claims) = match *claims {
            ["from", place, ref claims @ ..] => (Some(self.address(place)?), claims),
            _ => (None, claims),
        };
        let pool = self.pool(pool);
        let block = match lent {
            None if from.is_some() => {
                let address = from.unwrap_or_default();
                let host = self.engine.host();
                let block = host.allocate_at(pool, size(bytes), stream, address)?;
                block.filter(|it| it.address == address).ok_or("nothing is free there")?
            }
            Some(lent) => self
                .engine
                .host()
                .lend(pool, size(bytes), stream, lent)?
                .ok_or("nothing is lent")?,
            None if is_fixed => self.engine.allocate_fixed(pool, size(bytes), stream)?,
            None => self.engine.allocate(pool, size(bytes), stream)?,
        };
        let wrong = match *claims {
            _ if self.judged != Judged::Claims => false,
            ["at", place] => block.address != self.address(place)?,
            ["on", ref others @ ..] => !others.iter().any(|it| self.meets(&block, it)),
            ["not", ref others @ ..] => others.iter().any(|it| self.meets(&block, it)),
            [] => false,
            _ => panic!("{} is no statement", self.statement),
        };
        self.blocks.insert(name, block);
        self.tags.remove(name);
        match wrong && self.judged == Judged::Claims {
            true => Err(format!("it lies at {:#x}", block.address).into()),
            false => Ok(()),
        }
    }

    fn meets(&self, block: &Block, other: &str) -> bool {
        let other = &self.blocks[other];
        block.address < other.address + other.bytes && other.address < block.address + block.bytes
    }

    /// Expects that a stream is refused a block's place for a reason, with a stream or its capture in it.
    fn explain(&mut self, stream: StreamHandle, block: &str, reason: &str, of: &[&str]) -> Done {
        let pool = self.pool("A");
        let reasons = self.engine.explain(pool, stream)?;
        let address = self.address(block)?;
        let told = reasons.iter().find(|it| it.address == address);
        let told = format!("{:?}", told.map(|it| &it.refusal));
        let named = of.iter().all(|name| {
            let (stream, capture) = (self.streams[name], self.captures.get(&self.streams[name]));
            told.contains(&format!("{stream:?}"))
                || capture.is_some_and(|it| told.contains(&format!("{it:?}")))
        });
        match told.contains(reason) && named {
            true => Ok(()),
            false => Err(told.into()),
        }
    }

    /// The address that `a` or `a+512` names.
    fn address(&self, place: &str) -> Done<u64> {
        let (block, offset) = place.split_once('+').unwrap_or((place, "0"));
        Ok(self.block(block)?.address + size(offset))
    }

    /// A block, which is there unless a call of the driver's failed.
    fn block(&self, name: &str) -> Done<Block> {
        Ok(*self.blocks.get(name).ok_or_else(|| format!("there is no block {name}"))?)
    }

    /// Names the node that a stream launched last in its capture.
    fn name_node(&mut self, stream: StreamHandle, name: &'a str) -> Done {
        let node = self.look(stream)?.0.first().ok_or("it does not capture")?.node;
        self.nodes.insert(name, node);
        Ok(())
    }

    /// Work outside captures runs for longer than the engine's calls take.
    fn launch(&self, stream: StreamHandle, early: bool) -> Done {
        let delay = if self.driver.is_capturing(stream)? { 0 } else { 20_000_000 };
        Ok(self.driver.launch(stream, Work { delay, ..Work::default() }, early)?)
    }

    fn use_blocks(&mut self, stream: StreamHandle, blocks: &[&'a str]) -> Done {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for &name in blocks {
            let Block { id, address, bytes, .. } = self.block(name)?;
            let written = self.tags.contains_key(name);
            let tag = *self.tags.entry(name).or_insert(id.number().0 + 1);
            let range = Tagged { address, bytes, tag };
            if written { &mut inputs } else { &mut outputs }.push(range);
        }
        let work = Work { inputs: &inputs, outputs: &outputs, delay: 50_000, trigger_early: false };
        Ok(self.driver.launch(stream, work, false)?)
    }

    fn touch(&self, stream: StreamHandle, at: &[&str]) -> Done {
        let range = |place| Ok(Tagged { address: self.address(place)?, bytes: 512, tag: 1 });
        let outputs = at.iter().map(|place| range(place)).collect::<Done<Vec<_>>>()?;
        let work = Work { outputs: &outputs, ..Work::default() };
        Ok(self.driver.launch(stream, work, false)?)
    }

    fn complete(&self, stream: StreamHandle) -> Done {
        let event = self.driver.create_event()?;
        self.driver.record_event(event, stream)?;
        self.driver.synchronize_event(event)?;
        Ok(self.driver.destroy_event(event)?)
    }

    fn complete_all(&self) -> Done {
        for &event in &self.before {
            self.driver.synchronize_event(event)?;
        }
        for &stream in self.streams.values() {
            if !self.driver.is_capturing(stream)? {
                self.complete(stream)?;
            }
        }
        Ok(())
    }

    fn figure(&mut self, figure: &str, bytes: &str) -> Done {
        let pool = self.pool("A");
        let all = self.engine.pool_statistics(pool)?;
        let found = match figure {
            "reserved" => all.reserved,
            "allocated" => all.allocated,
            "requested" => all.requested,
            "active" => all.active,
            "activated" => self.engine.statistics_of(pool)?.all.active_bytes.allocated,
            "excess" => self.engine.host().excess_bytes(pool)?,
            "followed" => self.followed,
            "learned" => self.engine.plans().learned()? as u64,
            "suspended" => all.suspended,
            "lent" => all.lent,
            "pieces" => self.engine.statistics_of(pool)?.all.segment.current,
            _ => panic!("{} is no statement", self.statement),
        };
        match found == size(bytes) {
            true => Ok(()),
            false => Err(format!("{found} bytes").into()),
        }
    }

    fn live(&mut self, names: &[&str]) -> Done {
        let pool = self.pool("A");
        let found = self.engine.host().live_blocks(pool)?;
        let lives = |name: &&str| {
            self.blocks.get(*name).is_some_and(|block| found.iter().any(|it| it.id == block.id))
        };
        match found.len() == names.len() && names.iter().all(lives) {
            true => Ok(()),
            false => Err(format!("{found:?}").into()),
        }
    }

    fn checkpoint(&mut self, name: &'a str, pool: &'a str) -> Done {
        let pool = self.pool(pool);
        let checkpoint = self.engine.host().checkpoint(pool)?;
        let live = self.engine.host().live_blocks(pool)?;
        let known = self.blocks.iter().filter(|it| live.iter().any(|live| live.id == it.1.id));
        let known = known.map(|(&name, block)| (name, block.address)).collect();
        self.checkpoints.insert(name, (checkpoint, known));
        Ok(())
    }

    /// Blocks lie where they lay, under new names of the engine's. Refused, it changes nothing.
    fn restore(&mut self, name: &str) -> Done {
        let pool = self.pool("A");
        let (checkpoint, known) = self.checkpoints.get(name).ok_or("no checkpoint")?;
        let places = |blocks: &[Block]| -> Vec<_> {
            blocks.iter().map(|block| (block.address, block.bytes)).collect()
        };
        let before = self.engine.host().live_blocks(pool)?;
        let restored = match self.engine.host().restore(pool, checkpoint) {
            Ok(restored) => restored,
            Err(error) if self.engine.host().live_blocks(pool)? == before => {
                return Err(error.into())
            }
            Err(error) => panic!("{error} has changed what lives"),
        };
        assert_eq!(places(&restored.freed), places(&before), "all that lived is freed");
        assert!(checkpoint.blocks().eq(places(&restored.live)), "all that lived then lives");
        for block in &restored.freed {
            let freed = self.engine.free(block.id);
            let is_unknown = matches!(freed, Err(Error::Unknown { what: Unknown::Block(_), .. }));
            assert!(is_unknown, "{freed:?}");
        }
        for (name, address) in known {
            let block = restored.live.iter().find(|block| block.address == *address);
            self.blocks.insert(name, *block.ok_or("a block is missing")?);
        }
        Ok(())
    }

    fn replay(&mut self, stream: StreamHandle, of: &'a str) -> Done {
        let (pool, of) = (self.pool("A"), self.stream(of)?);
        let graph = self.graphs.iter().rfind(|it| it.0 == of).and_then(|it| it.2);
        let executable = self.driver.instantiate(graph.ok_or("it has no graph")?)?;
        self.executables.push(executable);
        self.engine.host().follow_lent(pool, stream)?;
        self.driver.replay(executable, stream)?;
        Ok(self.engine.host().forget_borrowers(pool)?)
    }

    /// Ends what the driver captures, and waits for the device.
    fn end_captures(&self) -> Done {
        for &stream in self.streams.values() {
            if self.driver.is_capturing(stream)? {
                self.driver.end_capture(stream)?;
            }
        }
        Ok(self.driver.synchronize()?)
    }

    /// Ends what is under way, launches the graphs in turn, and counts the tags that were wrong.
    fn wrong_tags(&mut self) -> Done<u64> {
        self.end_captures()?;
        for executable in std::mem::take(&mut self.executables) {
            self.driver.destroy_executable(executable)?;
        }
        let stream = self.driver.create_stream()?;
        for graph in self.graphs.iter().filter_map(|it| it.2) {
            let executable = self.driver.instantiate(graph)?;
            self.driver.replay(executable, stream)?;
            self.driver.synchronize()?;
            self.driver.destroy_executable(executable)?;
        }
        Ok(self.driver.take_wrong_tags()?)
    }
}

/// What a call of the driver's that fails may lead to.
impl World<'_, SimDriver> {
    /// Gives up what is under way, looks at the tags, and gives everything back.
    fn give_back(&mut self, driver: &SimDriver, lossy: bool) -> Done {
        driver.forget_failures();
        for &stream in self.streams.values() {
            if !matches!(driver.capture_of(stream)?, CaptureStatus::None) {
                let _ = driver.end_capture(stream);
            }
        }
        for pool in self.pools.values() {
            for capture in self.engine.host().captures_over(*pool).unwrap_or_default() {
                self.engine.abandon_capture(capture)?;
            }
        }
        for (capture, _) in self.closed.values() {
            let _ = self.engine.abandon_capture(*capture);
        }
        self.pools.retain(|_, pool| self.engine.pool_statistics(*pool).is_ok());
        for pool in self.pools.values() {
            if self.engine.host().is_suspended(*pool)? {
                self.engine.host().resume_pool(*pool)?;
            }
        }
        // A host that was told of a failure and goes on regardless may use what it has not got.
        match self.wrong_tags() {
            Ok(0) => {}
            _ if self.was_told => {}
            wrong => return Err(format!("wrong tags: {wrong:?}").into()),
        }
        self.judge()?;
        for leak in self.engine.leaks()? {
            self.engine.free(leak.block)?;
        }
        for (_, graph, _) in &self.graphs {
            self.engine.release_graph(*graph)?;
        }
        driver.complete_all();
        // Again where another pool had the memory, or an event could not be had.
        for _ in 0..3 {
            self.pools.retain(|_, pool| self.engine.destroy_pool(*pool).is_err());
        }
        for pool in self.pools.values() {
            match self.engine.destroy_pool(*pool) {
                Ok(()) | Err(Error::Unknown { what: Unknown::Pool(_), .. }) => {}
                refused => refused?,
            }
        }
        self.judge()?;
        match driver.used_bytes() {
            used if used > 0 && !lossy => Err(format!("{used} bytes are lost").into()),
            _ => Ok(()),
        }
    }
}

/// Whether an error is the one that is named first, with what is in quotes in its text.
fn is_refusal(error: &(dyn std::error::Error + 'static), refusal: &str) -> bool {
    let (code, text) = (format!("{error:?}"), error.to_string());
    let mut parts = refusal.split('"');
    code.starts_with(parts.next().unwrap_or_default().trim())
        && parts.step_by(2).all(|part| code.contains(part) || text.contains(part))
}

/// Bytes, as `512`, `4K`, `4M` or a sum of such.
fn size(text: &str) -> u64 {
    if let Some((one, other)) = text.split_once('+') {
        return size(one) + size(other);
    }
    let (number, unit) = match text.strip_suffix('M') {
        Some(number) => (number, 1 << 20),
        None => text.strip_suffix('K').map_or((text, 1), |number| (number, 1 << 10)),
    };
    number.parse::<u64>().unwrap_or_else(|_| panic!("{text} is no number of bytes")) * unit
}
