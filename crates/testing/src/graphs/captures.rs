//! Captures: begun, continued step by step, ended or abandoned.

use arbitrary::{Result, Unstructured};
use regraph::driver::{CaptureMode, CaptureStatus, Driver, StreamHandle};
use regraph::engine::{BlockId, Lent};
use regraph::graphs::{Capture, Error};
use regraph_tagged::{Program, Tagged, Work};

use super::blocks::{Borrowed, Kind};
use super::launches::{Made, Output};
use super::{ends, is_short, overlap, Shared, World, DELAY, POOLS};

/// Where a block lies: in which pool, and its addresses.
type Spot = (usize, (u64, u64));

/// A capture under way.
pub(super) struct Open<P: Program> {
    capture: Capture<Shared<P>>,
    pub(super) handle: StreamHandle,
    /// The pool that it allocates from, and those that its graph will use.
    home: usize,
    pub(super) homes: [bool; POOLS],
    live: Vec<(BlockId, usize, Tagged)>,
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
    /// What its stream comes after once it has ended.
    pub(super) behind: Vec<StreamHandle>,
    /// Whether its memory comes at its end.
    planned: bool,
    shape: Shape,
    /// The sizes of its coming blocks, the next one last, where an earlier capture is repeated.
    script: Vec<u64>,
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
        self.open.as_ref().is_some_and(|open| open.homes[home])
    }

    pub(super) fn begin(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.graphs.len() == self.features.most {
            return Ok(());
        }
        let borrows = |it: &&Borrowed| it.is_lent() && !it.ended;
        let borrower = self.blocks.iter().find(borrows).map(|it| it.stream);
        let handle = match borrower.filter(|_| u.ratio(1, 3).unwrap_or_default()) {
            Some(borrower) => borrower,
            None => *u.choose(&self.streams)?,
        };
        let last = usize::from(self.features.second) - 1;
        let home = u.int_in_range(0..=last)? / last;
        let mut sources = Vec::new();
        if let Some(row) = self.any_graph(u)?.filter(|_| u.ratio(2, 3).unwrap_or_default()) {
            let number = self.graphs[row].number;
            sources.extend(self.path.contains(&number).then_some(number));
        }
        self.begin_on(handle, home, sources, u)?;
        self.go_on(u)
    }

    /// Begins a capture that reads outputs of some graphs.
    pub(super) fn begin_on(
        &mut self,
        handle: StreamHandle,
        home: usize,
        sources: Vec<u64>,
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        let read = self.graphs.iter().filter(|it| sources.contains(&it.number));
        let read = read.flat_map(|it| &it.outputs).filter(|it| it.id.is_some());
        let read: Vec<(usize, Tagged)> = read.map(|it| (it.home, it.place)).collect();
        let crosses = read.iter().any(|it| it.0 != home);
        self.crossed |= crosses;
        if u.ratio(1, 2)? {
            self.engine.host().expect_capture(handle).expect("the stream does not capture");
            if u.ratio(2, 3)? {
                (self.hooks.progress)(handle);
            }
        } else {
            self.engine.mark_stream(handle).expect("the engine is sound");
        }
        self.driver.begin_capture(handle, CaptureMode::Relaxed).expect("no stream captures");
        let capture = Capture::adopt(&self.homes[home].pool, handle).expect("the pool is awake");
        let planned = match self.features.plans.filter(|_| self.plans && home == 0) {
            Some(one) if u.ratio(1, one)? => {
                let done = self.engine.plans().plan_capture(capture.id(), None);
                done.expect("the capture has just begun");
                false
            }
            chosen => chosen.is_some(),
        };
        let mut homes = [false; POOLS];
        homes[home] = true;
        self.open = Some(Open {
            capture,
            handle,
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
            shape: Shape { sizes: Vec::new(), kept: u.int_in_range(0..=2)? },
            script: Vec::new(),
        });
        // What is freed before the first node is no graph's.
        self.record(&[], &[]);
        if self.plans && u.ratio(1, 5)? {
            self.hold(u)?;
        }
        self.grow(u)
    }

    /// One of many graphs is released and captured anew, with what it reads if that is there.
    pub(super) fn capture_again(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (Some(row), None) = (self.any_graph(u)?, &self.open) else { return Ok(()) };
        let Made { number, shape, sources, homes, .. } = &self.graphs[row];
        let (number, shape, mut sources, home) =
            (*number, shape.clone(), sources.clone(), usize::from(!homes[0]));
        self.release(number);
        sources.retain(|it| self.path.contains(it));
        self.begin_on(*u.choose(&self.streams)?, home, sources, u)?;
        for &bytes in &shape.sizes {
            self.open.iter_mut().for_each(|open| open.script.push(bytes));
            self.grow(u)?;
        }
        self.open.iter_mut().for_each(|open| open.shape.kept = shape.kept);
        self.close(u)
    }

    /// Allocates a block that the capture frees while a stream outside may still use it.
    fn hold(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (bytes, tag) = (self.size(u)?, self.next_tag());
        let Some(open) = &mut self.open else { return Ok(()) };
        let block = match self.homes[open.home].pool.allocate(bytes, open.handle) {
            Ok(memory) => memory.into_block(),
            Err(error) => {
                assert!(is_short(&error), "allocate in a capture: {error}");
                return Ok(());
            }
        };
        let place = Tagged { address: block.address, bytes, tag };
        open.places.push((open.home, ends(&place)));
        let read = open.read.clone();
        self.record(&read, &[place]);
        self.record(&[place], &[]);
        self.engine.record_stream(block.id, self.idle).expect("the block lives");
        self.engine.free(block.id).expect("the block lives");
        Ok(())
    }

    /// Some more of a capture, and often its end.
    pub(super) fn go_on(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        for _ in 0..u.int_in_range(0..=4)? {
            match u.int_in_range(0..=3)? {
                0 => self.read_block(u)?,
                _ => self.grow(u)?,
            }
        }
        match u.int_in_range(0..=11)? {
            0..=7 => self.close(u)?,
            8 => self.abandon(),
            _ => {}
        }
        Ok(())
    }

    /// A kernel of the capture.
    fn record(&self, inputs: &[Tagged], outputs: &[Tagged]) {
        let Some(open) = &self.open else { return };
        let work = Work { inputs, outputs, delay: DELAY, trigger_early: false };
        self.driver.launch(open.handle, work, false).expect("a legal launch");
    }

    /// Allocates another block in the capture, writes it, and frees an earlier one.
    fn grow(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let scripted = self.open.as_mut().and_then(|open| open.script.pop());
        let (bytes, elsewhere) = match scripted {
            Some(bytes) => (bytes, false),
            None => (self.size(u)?, u.ratio(1, 8)?),
        };
        let tag = self.next_tag();
        let Some(open) = &mut self.open else { return Ok(()) };
        open.shape.sizes.push(bytes);
        let home = if elsewhere { (open.home + 1) % POOLS } else { open.home };
        open.homes[home] = true;
        let block = match self.homes[home].pool.allocate(bytes, open.handle) {
            Ok(memory) => memory.into_block(),
            Err(error) => {
                assert!(is_short(&error), "allocate in a capture: {error}");
                return Ok(());
            }
        };
        let place = Tagged { address: block.address, bytes, tag };
        open.places.push((home, ends(&place)));
        let mut inputs = open.read.clone();
        inputs.extend(open.live.last().map(|it| it.2));
        open.live.push((block.id, home, place));
        let first = (open.live.len() > open.shape.kept.max(1)).then(|| open.live.remove(0));
        self.record(&inputs, &[place]);
        if let Some((id, ..)) = first {
            self.engine.free(id).expect("the block lives");
        }
        Ok(())
    }

    /// The capture reads a block from before it, borrowed perhaps, and frees it: it is filled before each launch.
    fn read_block(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(handle) = self.open.as_ref().map(|open| open.handle) else { return Ok(()) };
        let fits =
            |it: &Borrowed| it.written && !it.captured && !matches!(it.kind, Kind::Output { .. });
        let rows: Vec<usize> =
            (0..self.blocks.len()).filter(|&it| fits(&self.blocks[it])).collect();
        if rows.is_empty() {
            return Ok(());
        }
        // One of its own that no other stream has read becomes its own.
        let own = |&&row: &&usize| self.blocks[row].stream == handle && !self.blocks[row].ended;
        let row = match rows.iter().find(own) {
            Some(&row) if u.ratio(2, 3)? => row,
            _ => *u.choose(&rows)?,
        };
        let mut block = self.blocks.remove(row);
        if block.stream != handle || block.ended {
            self.engine.record_stream(block.id, handle).expect("the block lives");
            block.readers.push(handle);
        }
        // The host fills it after all that has used it.
        for stream in block.readers.iter().copied().chain([block.stream]) {
            match self.streams.iter().position(|&it| it == stream && it != handle) {
                Some(slot) => self.all_follow(slot),
                None if stream != handle => {
                    let others = self.streams.iter().filter(|&&it| it != handle);
                    others.for_each(|&it| self.wait(it, stream));
                    self.open.iter_mut().for_each(|open| open.behind.push(stream));
                }
                None => {}
            }
        }
        self.record(&[block.place], &[]);
        if let Some(open) = &mut self.open {
            open.inputs.push((block.home, block.place));
            if u.ratio(1, 4)? {
                block.captured = true;
                self.blocks.push(block);
                return Ok(());
            }
        }
        self.free_block(&block);
        Ok(())
    }

    /// Ends the capture: its graph is there then, or it came to nothing for want of a call that failed.
    pub(super) fn close(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.open.is_none() {
            return Ok(());
        }
        let read: Vec<Borrowed> = self.blocks.extract_if(.., |it| it.captured).collect();
        read.iter().for_each(|block| self.free_block(block));
        let Some(open) = &mut self.open else { return Ok(()) };
        let gone = open.live.len().saturating_sub(open.shape.kept);
        for (id, ..) in open.live.drain(..gone) {
            self.engine.free(id).expect("the block lives");
        }
        let (Some(mut open), driver) = (self.open.take(), self.driver.clone()) else {
            return Ok(());
        };
        let capture = open.capture;
        let found = driver.capture_of(open.handle);
        let Ok(CaptureStatus::Active { graph, .. }) = found else { unreachable!("{found:?}") };
        let ((closed, ended, executable, accepted), failed) = self.may_fail(u, |_| {
            let closed = capture.close(graph);
            let ended = driver.end_capture(open.handle);
            let executable = ended.as_ref().ok().map(|&graph| driver.instantiate(graph));
            match (closed, &executable) {
                (Ok(judging), Some(Ok(_))) => (true, ended, executable, Some(judging.verdict())),
                (Ok(_), _) => (true, ended, executable, None),
                (Err(error), _) => (false, ended, executable, Some(Err(error))),
            }
        })?;
        self.wake();
        let graph = ended.or_else(|_| driver.end_capture(open.handle)).expect("it is under way");
        let reads = !open.inputs.is_empty();
        self.note_ended(open.handle, std::mem::take(&mut open.behind), (&open.freed, reads));
        for &(home, place) in open.places.iter().chain(&open.freed) {
            self.homes[home].used.extend(closed.then_some(place));
        }
        if !closed {
            self.roll_back(&open.places);
        }
        match (accepted, executable) {
            (Some(Ok((lease, _))), Some(Ok(executable))) => {
                let number = self.made;
                self.made += 1;
                self.path.push(number);
                let adopts = |it: &&mut Borrowed| it.kind == Kind::Lent(Lent::AllFree);
                for block in self.blocks.iter_mut().filter(adopts) {
                    if open.homes[block.home] {
                        block.kind = Kind::Output { adopted: true };
                        block.since = number;
                    }
                }
                // One whose outputs it reads may be gone by now.
                let whole = open.sources.iter().all(|&it| self.row_of(it).is_some());
                let outputs = open.live.into_iter();
                let outputs = outputs.map(|(id, home, place)| Output {
                    id: Some(id),
                    home,
                    place,
                    stream: open.handle,
                    ended: false,
                });
                self.graphs.push(Made {
                    lease,
                    graph,
                    executable,
                    homes: open.homes,
                    outputs: outputs.collect(),
                    inputs: open.inputs,
                    sources: open.sources,
                    path: self.path.clone(),
                    number,
                    last: None,
                    alone: open.planned && open.homes == [true, false],
                    places: open.places.iter().map(|it| it.1).collect(),
                    lost: false,
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
            (accepted, executable) => {
                let why = accepted.and_then(std::result::Result::err);
                let why: Option<&Error> = why.as_ref();
                let short = why.is_some_and(is_short);
                assert!(failed || short, "nothing is wrong with the capture: {why:?}");
                if let Some(Ok(executable)) = executable {
                    driver.destroy_executable(executable).expect("it is there");
                }
                driver.destroy_graph(graph).expect("it is there");
                for (id, ..) in open.live {
                    self.engine.free(id).expect("the block lives");
                }
                self.settle();
            }
        }
        Ok(())
    }

    /// Gives the capture up.
    pub(super) fn abandon(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Open { capture, handle, live, places, freed, inputs, behind, .. } = open;
        drop(capture);
        let graph = self.driver.end_capture(handle).expect("the stream captures");
        self.driver.destroy_graph(graph).expect("it is there");
        self.note_ended(handle, behind, (&freed, !inputs.is_empty()));
        self.roll_back(&places);
        for (id, ..) in live {
            self.engine.free(id).expect("the block lives");
        }
        self.blocks.iter_mut().for_each(|block| block.captured = false);
        self.settle();
    }

    /// A stream captures no more.
    fn note_ended(
        &mut self,
        handle: StreamHandle,
        behind: Vec<StreamHandle>,
        (freed, reads): (&[Spot], bool),
    ) {
        if let Some(slot) = self.streams.iter().position(|&it| reads && it == handle) {
            // What it did with inputs before: the host fills them after that.
            self.all_follow(slot);
        }
        behind.into_iter().for_each(|stream| self.wait(handle, stream));
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
