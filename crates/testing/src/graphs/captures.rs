//! Captures: begun, continued step by step, ended or abandoned.

use std::panic::resume_unwind;
use std::thread;

use arbitrary::{Result, Unstructured};
use regraph::driver::{
    self, CaptureMode, CaptureStatus, Dependency, Driver, EventHandle, GraphHandle, StreamHandle,
};
use regraph::engine::Lent;
use regraph::graphs::{Capture, Error, Graph};
use regraph_tagged::{Program, Tagged, Work};

use super::blocks::{Borrowed, Kind};
use super::executables::Launcher;
use super::launches::{Made, Output};
use super::streams::Stream;
use super::{is_short, overlap, Shared, World, DELAY, POOLS};

/// Where a block lies: in which pool, and its addresses.
type Spot = (usize, (u64, u64));

/// A capture under way.
pub(super) struct Open<P: Program> {
    capture: Capture<Shared<P>>,
    pub(super) number: u64,
    /// The one that it began on first, and those that it was forked to.
    pub(super) streams: Vec<Stream>,
    /// The pool that it allocates from, and those that its graph will use.
    home: usize,
    pub(super) homes: [bool; POOLS],
    live: Vec<Output>,
    /// Where its blocks lay, in the order of their allocation.
    places: Vec<Spot>,
    /// Where blocks from before it lay that were freed meanwhile and that it may use.
    pub(super) freed: Vec<Spot>,
    inputs: Vec<(usize, Tagged)>,
    /// Outputs that it reads, and whose.
    pub(super) read: Vec<Tagged>,
    sources: Vec<u64>,
    /// Whether some are another pool's, which does not know of it: they live until it has ended.
    pub(super) crosses: bool,
    /// What its streams come after once it has ended.
    pub(super) behind: Vec<EventHandle>,
    /// Whether its memory comes at its end.
    planned: bool,
    /// Whether graphs may be launched meanwhile.
    relaxed: bool,
    /// Its nodes, and whether the last one writes where another block of the capture lay.
    nodes: u64,
    reuses: bool,
    /// What streams came after at some time, to set streams back to.
    past: Vec<Vec<Dependency>>,
    /// Whether a launch was programmatic, and whether a stream was set back.
    early: bool,
    set_back: bool,
    /// Whether a call that captures forbid has ruined it.
    ruined: bool,
    shape: Shape,
    /// The sizes of its coming blocks, the next one last, where an earlier capture is repeated.
    script: Vec<u64>,
}

impl<P: Program> Open<P> {
    /// What it has allocated and not freed.
    pub(super) fn live(&self) -> &[Output] {
        &self.live
    }
}

/// What the end of a capture came to.
struct Ended<P: Program> {
    /// Whether the engine has closed it, and has accepted it.
    closed: bool,
    accepted: bool,
    /// Whether blocks lie by a layout that it was given.
    follows: bool,
    graph: driver::Result<GraphHandle>,
    /// None of an error where it was the host's own call that failed.
    launcher: std::result::Result<Launcher<P>, Option<Error>>,
}

/// Who makes the executable of a graph; the host may ask for the verdict later.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Pool,
    Host,
    HostLate,
}

/// How a graph is captured.
#[derive(Clone, Default)]
pub(super) struct Shape {
    /// Sizes of its blocks, in bytes.
    sizes: Vec<u64>,
    /// How many of the last become outputs.
    kept: usize,
}

impl<P: Program> World<'_, P> {
    pub(super) fn is_captured(&self, home: usize) -> bool {
        self.open.iter().any(|open| open.homes[home])
    }

    /// Whether no capture forbids the host to launch graphs.
    pub(super) fn may_launch(&self) -> bool {
        self.open.iter().all(|open| open.relaxed)
    }

    /// Whether a capture begins now, beside those under way.
    pub(super) fn may_begin(&self, u: &mut Unstructured<'_>) -> Result<bool> {
        let beside = self.open.len() < self.features.captures && self.free_streams() > 1;
        Ok(self.open.is_empty() || beside && u.ratio(1, 2)?)
    }

    pub(super) fn begin(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.graphs.len() + self.open.len() >= self.features.most {
            return Ok(());
        }
        let borrows = |it: &&Borrowed| it.is_lent() && !it.ended && !self.is_capturing(it.stream);
        let borrower = self.blocks.iter().find(borrows).map(|it| it.stream);
        let stream = match borrower.filter(|_| u.ratio(1, 3).unwrap_or_default()) {
            Some(borrower) => borrower,
            None => self.streams[self.free_stream(u)?],
        };
        let last = usize::from(self.features.second) - 1;
        let home = u.int_in_range(0..=last)? / last;
        let mut sources = Vec::new();
        if let Some(row) = self.any_graph(u)?.filter(|_| u.ratio(2, 3).unwrap_or_default()) {
            let number = self.graphs[row].number;
            sources.extend(self.path.contains(&number).then_some(number));
        }
        let again = match self.features.repeats && u.ratio(1, 2)? {
            true => self.graphs.iter().rfind(|it| it.home == home).map(|it| it.shape.clone()),
            false => None,
        };
        match again {
            Some(shape) => self.repeat(stream, home, (sources, shape), u),
            None => {
                self.begin_on(stream, home, (sources, None), u)?;
                self.go_on(u)
            }
        }
    }

    /// Captures what an earlier capture was of.
    fn repeat(
        &mut self,
        stream: Stream,
        home: usize,
        (sources, shape): (Vec<u64>, Shape),
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        self.begin_on(stream, home, (sources, Some(shape)), u)?;
        let at = self.open.len() - 1;
        while !self.open[at].script.is_empty() {
            self.grow(at, u)?;
        }
        self.close(at, u)
    }

    /// Begins a capture that reads outputs of some graphs.
    pub(super) fn begin_on(
        &mut self,
        stream: Stream,
        home: usize,
        (sources, again): (Vec<u64>, Option<Shape>),
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        let read = self.graphs.iter().filter(|it| sources.contains(&it.number));
        let read = read.flat_map(|it| &it.outputs).filter(|it| it.id.is_some());
        let read: Vec<(usize, Tagged)> = read.map(|it| (it.home, it.place)).collect();
        let crosses = read.iter().any(|it| it.0 != home);
        self.crossed |= crosses;
        let handle = stream.handle;
        self.tell_uses(stream);
        if u.ratio(1, 2)? {
            self.engine.host().expect_capture(handle).expect("the stream does not capture");
            if u.ratio(2, 3)? {
                (self.hooks.progress)(handle);
            }
        } else {
            self.engine.mark_stream(handle).expect("the engine is sound");
        }
        let modes = [CaptureMode::Relaxed, CaptureMode::ThreadLocal, CaptureMode::Global];
        let mode = if self.features.varied { *u.choose(&modes)? } else { modes[0] };
        let relaxed = mode == CaptureMode::Relaxed;
        self.driver.begin_capture(handle, mode).expect("no stream captures");
        let capture = Capture::adopt(&self.homes[home].pool, handle).expect("the pool is awake");
        let planned = match self.features.plans.filter(|_| self.plan.is_some() && home == 0) {
            Some(one) if u.ratio(1, one)? => {
                let done = self.engine.plans().plan_capture(capture.id(), None);
                done.expect("the capture has just begun");
                false
            }
            chosen => chosen.is_some(),
        };
        let (kept, script) = match again {
            Some(Shape { sizes, kept }) => (kept, sizes.into_iter().rev().collect()),
            None => (u.int_in_range(0..=2)?, Vec::new()),
        };
        let mut homes = [false; POOLS];
        homes[home] = true;
        let (others, beside) = (self.open.len(), self.is_captured(home));
        self.count("captures", 1);
        self.count("captures beside others", u64::from(others > 0));
        self.count("captures beside others into their pool", u64::from(beside));
        self.begun += 1;
        self.open.push(Open {
            capture,
            number: self.begun,
            streams: vec![stream],
            home,
            homes,
            live: Vec::new(),
            places: Vec::new(),
            freed: Vec::new(),
            inputs: Vec::new(),
            read: read.into_iter().map(|it| it.1).collect(),
            sources,
            crosses,
            behind: Vec::new(),
            planned,
            relaxed,
            nodes: 0,
            reuses: false,
            past: Vec::new(),
            early: false,
            set_back: false,
            ruined: false,
            shape: Shape { sizes: Vec::new(), kept },
            script,
        });
        // What is freed before the first node is no graph's.
        self.record(others, stream, false, &[], &[]);
        if self.plan.is_some() && u.ratio(1, 5)? {
            self.hold(others, u)?;
        }
        self.grow(others, u)
    }

    /// One of many graphs is released and captured anew, with what it reads if that is there.
    pub(super) fn capture_again(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (Some(row), true) = (self.any_graph(u)?, self.open.is_empty()) else { return Ok(()) };
        let Made { number, shape, sources, home, .. } = &self.graphs[row];
        let (number, shape, mut sources, home) = (*number, shape.clone(), sources.clone(), *home);
        self.release(number);
        sources.retain(|it| self.path.contains(it));
        let stream = self.streams[self.free_stream(u)?];
        self.repeat(stream, home, (sources, shape), u)
    }

    /// Allocates a block that the capture frees while a stream outside may still use it.
    fn hold(&mut self, at: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let (bytes, tag) = (self.size(u)?, self.next_tag());
        let Some(open) = self.open.get_mut(at) else { return Ok(()) };
        let (stream, read) = (open.streams[0], open.read.clone());
        let block = match self.homes[open.home].pool.allocate(bytes, stream.handle) {
            Ok(memory) => memory.into_block(),
            Err(error) => {
                assert!(is_short(&error), "allocate in a capture: {error}");
                return Ok(());
            }
        };
        let place = Tagged { address: block.address, bytes, tag };
        let spot = (open.home, self.span(block.id));
        self.open[at].places.push(spot);
        self.record(at, stream, false, &read, &[place]);
        self.record(at, stream, false, &[place], &[]);
        self.engine.record_stream(block.id, self.idle).expect("the block lives");
        self.engine.free(block.id).expect("the block lives");
        Ok(())
    }

    /// Some more of a capture, and often its end.
    pub(super) fn go_on(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let at = if self.open.len() > 1 { u.choose_index(self.open.len())? } else { 0 };
        for _ in 0..u.int_in_range(0..=4)? {
            match u.int_in_range(0..=3)? {
                0 => self.read_block(at, u)?,
                _ => self.grow(at, u)?,
            }
        }
        match u.int_in_range(0..=11)? {
            // Else few captures would be under way beside each other.
            5..=7 if self.features.captures > 1 => {}
            0..=7 => self.close(at, u)?,
            8 => {
                if self.features.edges && u.ratio(1, 3)? {
                    self.ruin(at, u)?;
                }
                self.abandon(at);
            }
            _ => {}
        }
        Ok(())
    }

    /// A kernel of the capture, which may start before the last one of its stream has ended if it is `early`.
    fn record(
        &mut self,
        at: usize,
        stream: Stream,
        early: bool,
        inputs: &[Tagged],
        outputs: &[Tagged],
    ) {
        let Some(open) = self.open.get_mut(at) else { return };
        open.nodes += 1;
        open.reuses = false;
        open.early |= early;
        let work = Work { inputs, outputs, delay: DELAY, trigger_early: self.features.edges };
        self.driver.launch(stream.handle, work, early).expect("a legal launch");
        self.count("programmatic launches", u64::from(early));
        if self.features.edges {
            let terminals = self.terminals(stream).1;
            self.open[at].past.push(terminals);
        }
    }

    /// The graph that a stream is captured into, and what it comes after there.
    fn terminals(&self, stream: Stream) -> (GraphHandle, Vec<Dependency>) {
        let mut terminals = Vec::new();
        let status = self.driver.capture_status(stream.handle, &mut terminals);
        let Ok(CaptureStatus::Active { graph, .. }) = status else { unreachable!("{status:?}") };
        (graph, terminals)
    }

    /// Has a stream come after other nodes than before, between two looks of the engine.
    fn set_terminals(&mut self, stream: Stream, terminals: &[Dependency]) {
        self.engine.observe(stream.handle).expect("the stream captures");
        self.driver.set_terminals(stream.handle, terminals).expect("nodes of its capture");
        self.engine.observe(stream.handle).expect("the stream captures");
    }

    /// A kernel of the capture, in the body of a conditional node.
    fn record_inside(&mut self, at: usize, stream: Stream, inputs: &[Tagged], outputs: &[Tagged]) {
        let (graph, terminals) = self.terminals(stream);
        let work = Work { inputs, outputs, delay: DELAY, trigger_early: false };
        let added = self.driver.add_conditional(graph, &terminals).and_then(|(node, body)| {
            self.driver.add_node(body, &[], work)?;
            self.driver.set_terminals(stream.handle, &[Dependency::full(node)])
        });
        added.expect("a legal conditional node");
        self.open[at].nodes += 1;
        self.open[at].reuses = false;
        self.count("bodies of conditional nodes", 1);
    }

    /// The stream on which a capture goes on: one of its own, maybe behind another one, or one that it forks to now.
    fn branch(&mut self, at: usize, u: &mut Unstructured<'_>) -> Result<Option<Stream>> {
        let Some(open) = self.open.get(at) else { return Ok(None) };
        if !self.features.forks || u.ratio(1, 2)? {
            return Ok(Some(open.streams[0]));
        }
        let (stream, other) = (*u.choose(&open.streams)?, *u.choose(&open.streams)?);
        let forks = self.free_streams() > 1 && u.ratio(1, 2)?;
        if !forks {
            if u.ratio(1, 3)? {
                self.wait(stream, other);
            }
            return Ok(Some(stream));
        }
        let fork = self.streams[self.free_stream(u)?];
        self.tell_uses(fork);
        // What it gave back before is no graph's.
        self.engine.mark_stream(fork.handle).expect("the engine is sound");
        self.wait(fork, other);
        self.open[at].streams.push(fork);
        self.count("forks", 1);
        Ok(Some(fork))
    }

    /// Allocates another block in the capture, writes it, and frees an earlier one.
    fn grow(&mut self, at: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let scripted = self.open.get_mut(at).and_then(|open| open.script.pop());
        let (bytes, elsewhere) = match scripted {
            Some(bytes) => (bytes, false),
            None => (self.size(u)?, u.ratio(1, 8)?),
        };
        let tag = self.next_tag();
        let stream = match scripted {
            Some(_) => self.open.get(at).map(|open| open.streams[0]),
            None => self.branch(at, u)?,
        };
        let Some(stream) = stream else { return Ok(()) };
        let odd =
            if self.features.edges && scripted.is_none() { u.int_in_range(0..=15)? } else { 15 };
        let (early, set_back) = (odd < 2, odd == 2);
        // What a stream that is set back launches comes after what some stream of the capture came after before.
        let terminals = self.terminals(stream).1;
        if set_back {
            let past = u.choose(&self.open[at].past)?.clone();
            self.set_terminals(stream, &past);
            self.count("streams set back", 1);
        }
        let open = &mut self.open[at];
        open.set_back |= set_back;
        open.shape.sizes.push(bytes);
        let home = if elsewhere { (open.home + 1) % POOLS } else { open.home };
        open.homes[home] = true;
        let block = match self.homes[home].pool.allocate(bytes, stream.handle) {
            Ok(memory) => memory.into_block(),
            Err(error) => {
                assert!(is_short(&error), "allocate in a capture: {error}");
                if set_back {
                    self.set_terminals(stream, &terminals);
                }
                return Ok(());
            }
        };
        let place = Tagged { address: block.address, bytes, tag };
        let span = self.span(block.id);
        let open = &mut self.open[at];
        let reuses = open.places.iter().any(|it| it.0 == home && overlap(it.1, span));
        open.places.push((home, span));
        let mut inputs = open.read.clone();
        let mut joined = None;
        // Else it reads what kernels wrote that it may not come after.
        if let Some(last) = open.live.last_mut().filter(|_| !early && !set_back) {
            inputs.push(last.place);
            if last.stream != stream {
                if let Some(id) = last.id {
                    self.engine.record_stream(id, stream.handle).expect("the block lives");
                }
                last.readers.push(stream);
                joined = Some(last.stream);
            }
        }
        open.live.push(Output::new(block.id, home, place, stream));
        let first = (open.live.len() > open.shape.kept.max(1)).then(|| open.live.remove(0));
        if let Some(writer) = joined {
            self.wait(stream, writer);
            self.count("joins", 1);
        }
        match self.features.forks && !early && u.ratio(1, 10)? {
            true => self.record_inside(at, stream, &inputs, &[place]),
            false => {
                self.record(at, stream, early, &inputs, &[place]);
                self.open[at].reuses = reuses && !early;
            }
        }
        if set_back {
            let (_, own) = self.terminals(stream);
            self.set_terminals(stream, &[terminals, own].concat());
            self.open[at].reuses = false;
        }
        if let Some(id) = first.and_then(|it| it.id) {
            self.engine.free(id).expect("the block lives");
        }
        Ok(())
    }

    /// The capture reads a block from before it, borrowed perhaps, and frees it: it is filled before each launch.
    fn read_block(&mut self, at: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(open) = self.open.get(at) else { return Ok(()) };
        let beside = |it: Stream| !open.streams.contains(&it) && self.is_capturing(it);
        let fits = |it: &Borrowed| {
            let free = it.written && it.captured.is_none();
            free && !matches!(it.kind, Kind::Output { .. }) && !it.all_streams().any(beside)
        };
        let rows: Vec<usize> =
            (0..self.blocks.len()).filter(|&it| fits(&self.blocks[it])).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let Some(stream) = self.branch(at, u)? else { return Ok(()) };
        // One of its own that no other stream has read becomes its own.
        let own = |&&row: &&usize| self.blocks[row].stream == stream;
        let row = match rows.iter().find(own) {
            Some(&row) if u.ratio(2, 3)? => row,
            _ => *u.choose(&rows)?,
        };
        let mut block = self.blocks.remove(row);
        if block.stream != stream {
            self.engine.record_stream(block.id, stream.handle).expect("the block lives");
            block.readers.push(stream);
        }
        // The host fills it after all that has used it: what streams of the capture did before, once that has ended.
        let users: Vec<Stream> = block.all_streams().filter(|&it| !self.is_capturing(it)).collect();
        users.into_iter().for_each(|it| self.all_follow(it));
        self.record(at, stream, false, &[block.place], &[]);
        self.open[at].inputs.push((block.home, block.place));
        if u.ratio(1, 4)? {
            block.captured = Some(self.open[at].number);
            self.blocks.push(block);
            return Ok(());
        }
        self.free_block(&block);
        Ok(())
    }

    /// Joins a capture's streams into the one that it began on.
    fn join(&self, open: &Open<P>) {
        open.streams.iter().for_each(|&it| self.wait(open.streams[0], it));
    }

    /// Ends the capture: its graph is there then, or it came to nothing for want of a call that failed.
    pub(super) fn close(&mut self, at: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(number) = self.open.get(at).map(|open| open.number) else { return Ok(()) };
        let read = |it: &mut Borrowed| it.captured == Some(number);
        let read: Vec<Borrowed> = self.blocks.extract_if(.., read).collect();
        read.iter().for_each(|block| self.free_block(block));
        let open = &mut self.open[at];
        let gone = open.live.len().saturating_sub(open.shape.kept);
        for id in open.live.drain(..gone).filter_map(|it| it.id) {
            self.engine.free(id).expect("the block lives");
        }
        self.join(&self.open[at]);
        let mut open = self.open.remove(at);
        let may_cut = self.features.verdicts && open.reuses && !open.planned;
        let is_unsafe = may_cut && u.ratio(1, 2)? && self.cut(&open);
        let may_refuse = is_unsafe || open.set_back || open.early && self.refuses_early;
        // Then the engine looks at all streams once more before: it would not know whose the last nodes are.
        let ended_first = self.features.varied && u.ratio(1, 3)?;
        for stream in open.streams.iter().filter(|_| ended_first) {
            self.engine.observe(stream.handle).expect("the stream captures");
        }
        let (capture, handle) = (open.capture, open.streams[0].handle);
        let found = self.driver.capture_of(handle);
        let Ok(CaptureStatus::Active { graph, .. }) = found else { unreachable!("{found:?}") };
        let keeps = self.features.executables && u.ratio(2, 3)?;
        let late = self.features.verdicts && !keeps && u.ratio(1, if is_unsafe { 2 } else { 3 })?;
        let by = if late {
            By::HostLate
        } else if keeps {
            By::Pool
        } else {
            By::Host
        };
        let (Ended { closed, accepted, follows, graph, launcher }, failed) =
            self.may_fail(u, |world| world.end(capture, (handle, graph), by, ended_first))?;
        self.count("captures that follow a layout", u64::from(follows));
        self.wake();
        let graph = graph.or_else(|_| self.driver.end_capture(handle)).expect("it is under way");
        let reads = !open.inputs.is_empty();
        self.note_ended(&open.streams, std::mem::take(&mut open.behind), (&open.freed, reads));
        for &(home, place) in open.places.iter().chain(&open.freed) {
            self.homes[home].used.extend(closed.then_some(place));
        }
        if !closed {
            self.roll_back(&open.places);
        }
        if accepted {
            self.adopt(open.homes, self.made);
        }
        match launcher {
            Ok(launcher) => {
                assert!(!is_unsafe || !accepted, "an unsafe capture is accepted");
                let number = self.made;
                self.made += 1;
                self.path.push(number);
                // One whose outputs it reads may be gone by now.
                let whole = open.sources.iter().all(|&it| self.row_of(it).is_some());
                self.graphs.push(Made {
                    launcher,
                    home: open.home,
                    nodes: open.nodes,
                    homes: open.homes,
                    outputs: open.live,
                    inputs: open.inputs,
                    sources: open.sources,
                    path: self.path.clone(),
                    number,
                    last: None,
                    alone: open.planned && open.homes == [true, false],
                    places: open.places.iter().map(|it| it.1).collect(),
                    lost: false,
                    is_unsafe,
                    may_refuse,
                    shape: open.shape,
                });
                if !whole {
                    self.release(number);
                }
                let adopted = |it: &Borrowed| it.kind == Kind::Output { adopted: true };
                if self.blocks.iter().any(adopted) && u.ratio(1, 2)? {
                    self.share(u)?;
                }
            }
            Err(why) => {
                let short = why.as_ref().is_some_and(is_short);
                let refused = may_refuse && why.as_ref().is_some_and(is_refused);
                assert!(failed || short || refused, "nothing is wrong with the capture: {why:?}");
                self.count("unsafe captures refused at once", u64::from(refused && is_unsafe));
                self.count("captures refused for edges", u64::from(refused && !is_unsafe));
                self.driver.destroy_graph(graph).expect("it is there");
                for id in open.live.iter().filter_map(|it| it.id) {
                    self.engine.free(id).expect("the block lives");
                }
                self.settle();
            }
        }
        Ok(())
    }

    /// Takes a capture's only edge to its last node away, which writes where another block lay. False where there are
    /// more.
    fn cut(&self, open: &Open<P>) -> bool {
        let (graph, terminals) = self.terminals(open.streams[0]);
        let [last] = terminals[..] else { return false };
        let mut edges = Vec::new();
        self.driver.dependencies(last.node, &mut edges).expect("the node is there");
        let [edge] = edges[..] else { return false };
        self.driver.remove_dependency(graph, edge, last.node).expect("the edge is there");
        true
    }

    /// The capture of a graph is accepted: it takes over what was lent of all that is free before it was over.
    fn adopt(&mut self, homes: [bool; POOLS], number: u64) {
        let lent = |it: &&mut Borrowed| it.kind == Kind::Lent(Lent::AllFree) && it.since <= number;
        for block in self.blocks.iter_mut().filter(lent).filter(|it| homes[it.home]) {
            block.kind = Kind::Output { adopted: true };
            block.since = number;
        }
    }

    /// A capture that is closed gets its verdict, maybe on another thread.
    pub(super) fn hear(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let rows: Vec<usize> =
            (0..self.graphs.len()).filter(|&it| !self.graphs[it].is_judged()).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let (row, elsewhere) = (*u.choose(&rows)?, u.arbitrary()?);
        self.hear_of(row, elsewhere);
        Ok(())
    }

    fn hear_of(&mut self, row: usize, elsewhere: bool) {
        let made = self.graphs.remove(row);
        let Launcher::Closed(Some(judging), graph, executable) = made.launcher else {
            unreachable!("it has its verdict")
        };
        let verdict = match elsewhere {
            true => thread::scope(|scope| scope.spawn(|| judging.verdict()).join()),
            false => Ok(judging.verdict()),
        };
        let verdict = verdict.unwrap_or_else(|panic| resume_unwind(panic));
        self.count("late verdicts", 1);
        let (lease, _) = match verdict {
            Err(error) if made.may_refuse && is_refused(&error) => {
                self.count("unsafe captures refused late", u64::from(made.is_unsafe));
                let (launcher, number) = (Launcher::Closed(None, graph, executable), made.number);
                self.graphs.insert(row, Made { launcher, ..made });
                // What reads its outputs goes with it.
                return self.release(number);
            }
            verdict => verdict.expect("nothing is wrong with the capture"),
        };
        assert!(!made.is_unsafe, "an unsafe capture is accepted");
        let launcher = Launcher::Host(lease, graph, executable);
        self.adopt(made.homes, made.number);
        self.graphs.insert(row, Made { launcher, ..made });
    }

    /// All captures get their verdicts.
    pub(super) fn hear_all(&mut self) {
        while let Some(row) = self.graphs.iter().position(|it| !it.is_judged()) {
            self.hear_of(row, false);
        }
    }

    /// Ends a capture and makes what its graph is launched by: by an executable that the host makes before it has the
    /// verdict, which may come later, or that the pool keeps.
    fn end(
        &self,
        capture: Capture<Shared<P>>,
        (handle, graph): (StreamHandle, GraphHandle),
        by: By,
        ended_first: bool,
    ) -> Ended<P> {
        let ended = ended_first.then(|| self.driver.end_capture(handle));
        let closed = capture.close(graph);
        let graph = ended.unwrap_or_else(|| self.driver.end_capture(handle));
        let mut ended = Ended {
            closed: closed.is_ok(),
            accepted: false,
            follows: false,
            graph,
            launcher: Err(None),
        };
        let (judging, graph) = match (closed, &ended.graph) {
            (Ok(judging), &Ok(graph)) => (judging, graph),
            (Ok(_), Err(_)) => return ended,
            (Err(error), _) => return Ended { launcher: Err(Some(error)), ..ended },
        };
        let executable = (by != By::Pool).then(|| self.driver.instantiate(graph)).transpose();
        let Ok(executable) = executable else { return ended };
        let executable = match executable {
            Some(executable) if by == By::HostLate => {
                ended.launcher = Ok(Launcher::Closed(Some(judging), graph, executable));
                return ended;
            }
            executable => executable,
        };
        ended.launcher = match (judging.verdict(), executable) {
            (Ok((lease, report)), executable) => {
                ended.accepted = true;
                ended.follows = report.layout.as_ref().is_some_and(|it| it.followed > 0);
                match executable {
                    Some(executable) => Ok(Launcher::Host(lease, graph, executable)),
                    None => Graph::of(lease, graph, report, handle)
                        .map(|it| Launcher::Pool(Box::new(it)))
                        .map_err(Some),
                }
            }
            (Err(error), executable) => {
                // A call that is made to fail fails once.
                let destroy = |it| self.driver.destroy_executable(it);
                let destroyed = executable.map(|it| destroy(it).or_else(|_| destroy(it)));
                destroyed.transpose().expect("it is there");
                Err(Some(error))
            }
        };
        ended
    }

    /// Ruins the capture by a call that captures forbid; the engine may learn it from a request or a free.
    fn ruin(&mut self, at: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(open) = self.open.get_mut(at) else { return Ok(()) };
        open.ruined = true;
        let (stream, home) = (open.streams[0].handle, open.home);
        let waited = self.driver.wait(stream, self.idle);
        assert!(waited.is_err(), "a capture waits for work outside it");
        match u.int_in_range(0..=2)? {
            0 => {
                let asked = self.homes[home].pool.allocate(1, stream);
                assert!(asked.is_err(), "a capture that is ruined has a block");
            }
            1 => {
                if let Some(id) = open.live.pop().and_then(|it| it.id) {
                    self.engine.free(id).expect("the block lives");
                }
            }
            _ => {}
        }
        self.count("captures ruined", 1);
        Ok(())
    }

    /// Gives the capture up.
    pub(super) fn abandon(&mut self, at: usize) {
        if at >= self.open.len() {
            return;
        }
        if !self.open[at].ruined {
            self.join(&self.open[at]);
        }
        let open = self.open.remove(at);
        let Open { capture, number, streams, live, places, freed, inputs, behind, ruined, .. } =
            open;
        drop(capture);
        match self.driver.end_capture(streams[0].handle) {
            Ok(graph) => self.driver.destroy_graph(graph).expect("it is there"),
            Err(error) => assert!(ruined, "the stream captures: {error}"),
        }
        self.note_ended(&streams, behind, (&freed, !inputs.is_empty()));
        self.roll_back(&places);
        for id in live.iter().filter_map(|it| it.id) {
            self.engine.free(id).expect("the block lives");
        }
        for block in self.blocks.iter_mut().filter(|it| it.captured == Some(number)) {
            block.captured = None;
        }
        self.settle();
    }

    /// Streams capture no more.
    fn note_ended(
        &mut self,
        streams: &[Stream],
        behind: Vec<EventHandle>,
        (freed, reads): (&[Spot], bool),
    ) {
        for &stream in streams.iter().filter(|_| reads) {
            // What it did with inputs before: the host fills them after that.
            self.all_follow(stream);
        }
        for event in behind {
            streams.iter().for_each(|&it| self.wait_for(it, event));
        }
        if let Some(&(home, _)) = freed.first() {
            // Else what waits for the stream would be taken for its next capture's.
            let looked = self.engine.host().largest_block(self.homes[home].pool.id());
            looked.expect("the device answers");
        }
    }

    /// What a capture that came to nothing had is what it was before: where a graph used a part of a block, the whole
    /// of it is graphs'.
    fn roll_back(&mut self, places: &[Spot]) {
        for &(home, place) in places {
            let used = &mut self.homes[home].used;
            if used.iter().any(|&it| overlap(it, place)) {
                used.push(place);
            }
        }
    }
}

/// Whether the checker has refused a capture.
fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Refused(_) | Error::CaptureAgain(_))
}
