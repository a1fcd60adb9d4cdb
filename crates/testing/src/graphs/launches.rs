//! Graphs: launched along the order in which they were captured, and released.

use arbitrary::{Result, Unstructured};
use regraph::engine::{BlockId, Lent};
use regraph::graphs::{Error, PoolRefusal};
use regraph_tagged::{Program, Tagged};

use super::blocks::{Borrowed, Kind};
use super::captures::Shape;
use super::executables::Launcher;
use super::processes::ProcessLoan;
use super::streams::Stream;
use super::{ends, overlap, World, POOLS};

/// A graph.
pub(super) struct Made<P: Program> {
    pub(super) launcher: Launcher<P>,
    pub(super) nodes: u64,
    /// The pool that its capture joined first, and all that it uses.
    pub(super) home: usize,
    pub(super) homes: [bool; POOLS],
    pub(super) outputs: Vec<Output>,
    /// What is to be written before each launch, and in which pool it lies.
    pub(super) inputs: Vec<(usize, Tagged)>,
    /// Graphs whose outputs it reads, by number.
    pub(super) sources: Vec<u64>,
    /// Those that were on the path when it was captured, and it: what they leave it finds when they are launched in
    /// this order.
    pub(super) path: Vec<u64>,
    pub(super) number: u64,
    /// Where it was launched last.
    pub(super) last: Option<Stream>,
    /// Whether its memory came at its end, and is of the first pool alone.
    pub(super) alone: bool,
    /// Where its blocks lay.
    pub(super) places: Vec<(u64, u64)>,
    /// Whether an output was freed.
    pub(super) lost: bool,
    /// Whether its capture must be refused.
    pub(super) is_unsafe: bool,
    /// Whether its capture may be refused.
    pub(super) may_refuse: bool,
    pub(super) shape: Shape,
}

impl<P: Program> Made<P> {
    /// Whether it may be launched: its capture has its verdict.
    pub(super) fn is_judged(&self) -> bool {
        !matches!(self.launcher, Launcher::Closed(..))
    }
}

/// A block that a graph leaves.
pub(super) struct Output {
    /// None once it was freed.
    pub(super) id: Option<BlockId>,
    pub(super) home: usize,
    pub(super) place: Tagged,
    pub(super) stream: Stream,
    pub(super) ended: bool,
    /// Other streams of its capture that read it.
    pub(super) readers: Vec<Stream>,
}

impl Output {
    pub(super) fn new(id: BlockId, home: usize, place: Tagged, stream: Stream) -> Self {
        Self { id: Some(id), home, place, stream, ended: false, readers: Vec::new() }
    }

    fn streams(&self) -> Vec<Stream> {
        self.readers.iter().copied().chain([self.stream]).collect()
    }
}

/// What happens in a launch besides it.
enum Midway {
    Nothing,
    /// The host fails before it has submitted anything, or after that.
    Fails {
        submitted: bool,
    },
    /// A block is freed.
    Frees(Borrowed),
}

/// How a launch fails.
pub(super) enum Failure {
    Told(Error),
    /// In the host itself.
    Own,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl<P: Program> World<'_, P> {
    pub(super) fn row_of(&self, number: u64) -> Option<usize> {
        self.graphs.iter().position(|it| it.number == number)
    }

    pub(super) fn has_graphs(&self, home: usize) -> bool {
        self.graphs.iter().any(|it| it.homes[home])
    }

    /// The graphs to be launched for one, in order.
    pub(super) fn path_of(&self, number: u64) -> Vec<u64> {
        let row = self.row_of(number).expect("the graph is there");
        let path = self.graphs[row].path.iter().copied();
        path.filter(|&it| self.may_run(it)).collect()
    }

    /// Whether a graph is there and has its verdict, and so have those whose outputs it reads.
    fn may_run(&self, number: u64) -> bool {
        let row = self.row_of(number).map(|row| &self.graphs[row]);
        row.is_some_and(|it| it.is_judged() && it.sources.iter().all(|&it| self.may_run(it)))
    }

    /// The next launch is one that reads nothing that others have left.
    pub(super) fn restart(&mut self) {
        self.run.clear();
        self.at = 0;
    }

    /// Launches the next graph of the run.
    pub(super) fn launch(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if !self.may_launch() {
            return Ok(());
        }
        if self.at >= self.run.len() {
            let Some(row) = self.any_graph(u)? else { return Ok(()) };
            (self.run, self.at) = (self.path_of(self.graphs[row].number), 0);
            if self.run.is_empty() {
                return Ok(());
            }
        }
        let Some(row) = self.row_of(self.run[self.at]) else {
            self.at += 1;
            return Ok(());
        };
        let stream = self.streams[self.free_stream(u)?];
        if self.crossed && !self.follow_launches(stream) {
            return Ok(());
        }
        let inputs = self.graphs[row].inputs.clone();
        let all = |it: &&Borrowed| it.kind == Kind::Lent(Lent::AllFree);
        let covered =
            |block: &Borrowed| inputs.iter().any(|(_, input)| overlap(ends(input), block.span));
        let waits = self.lent_all && !self.open.is_empty() && !inputs.is_empty();
        if waits || self.blocks.iter().filter(all).any(covered) {
            // The host has lent what it would have to fill, or cannot come after who has used it.
            return Ok(());
        }
        self.fill(row, stream);
        if !inputs.is_empty() && u.ratio(1, 2)? {
            let (home, other) = (u.choose_index(POOLS)?, self.free_stream(u)?);
            self.borrow_as(home, other, Some(Lent::Temporary), u)?;
            if u.ratio(2, 3)? {
                if let Some(block) = self.blocks.pop_if(|it| it.captured.is_none()) {
                    self.free_block(&block);
                }
            }
        }
        let homes = self.graphs[row].homes;
        let on_loan = self.have_lent_to_process(homes);
        let lives = on_loan || self.blocks.iter().any(|it| it.is_lent() && homes[it.home]);
        let host = matches!(self.graphs[row].launcher, Launcher::Host(..));
        let adopted = |it: &Borrowed| {
            it.kind == Kind::Output { adopted: true } && it.captured.is_none() && host
        };
        let midway = match u.int_in_range(0..=15)? {
            0 => Midway::Fails { submitted: false },
            1 => Midway::Fails { submitted: true },
            2..=5 => match self.blocks.iter().position(adopted) {
                Some(row) => Midway::Frees(self.blocks.remove(row)),
                None => Midway::Nothing,
            },
            _ => Midway::Nothing,
        };
        let (done, failed) = self.may_fail(u, |world| world.submit_with(row, stream, midway))?;
        self.note_launch(row, stream, (done, failed), lives, u)?;
        if self.plan.is_some() && u.ratio(1, 2)? {
            self.launch_out_of_turn(u)?;
        }
        Ok(())
    }

    /// Whether a graph overwrites nothing of others when it is launched out of turn: no output of it was freed, none
    /// that it reads, it was planned, and no output lies at its addresses, which had memory before that graph ended.
    fn is_free(&self, made: &Made<P>) -> bool {
        let whole = |&it: &u64| self.row_of(it).is_some_and(|row| !self.graphs[row].lost);
        let others = self.graphs.iter().filter(|it| it.number != made.number);
        let mut outputs = others.flat_map(|it| &it.outputs).map(|it| ends(&it.place));
        if outputs.any(|output| made.places.iter().any(|&place| overlap(output, place))) {
            return false;
        }
        made.alone && !made.lost && made.inputs.is_empty() && made.sources.iter().all(whole)
    }

    /// Launches one of the run's graphs once more that overwrites nothing of others.
    fn launch_out_of_turn(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let launched = self.run[..self.at].iter().filter_map(|&it| self.row_of(it));
        let free: Vec<usize> = launched.filter(|&row| self.is_free(&self.graphs[row])).collect();
        if free.is_empty() {
            return Ok(());
        }
        let (row, slot) = (free[u.choose_index(free.len())?], self.free_stream(u)?);
        let stream = self.streams[slot];
        if self.crossed && !self.follow_launches(stream) {
            return Ok(());
        }
        let lives = self.blocks.iter().any(|it| it.is_lent() && it.home == 0);
        let lives = lives || self.have_lent_to_process([true, false]);
        let done = self.submit(row, stream);
        let at = self.at;
        self.note_launch(row, stream, (done, false), lives, u)?;
        self.at = at.min(self.run.len());
        Ok(())
    }

    /// Launches a graph, and frees a block meanwhile that only older ones overwrite.
    pub(super) fn launch_freeing(&mut self, row: usize, stream: Stream, block: Borrowed) {
        match self.submit_with(row, stream, Midway::Frees(block)) {
            Ok(()) => {
                self.note_launched(row, stream);
                self.restart();
            }
            Err(Failure::Told(Error::Pool { why: PoolRefusal::LentWork { .. }, .. }))
                if !self.open.is_empty() => {}
            Err(_) => panic!("a launch that nothing hinders is refused"),
        }
    }

    fn note_launch(
        &mut self,
        row: usize,
        stream: Stream,
        (done, failed): (std::result::Result<(), Failure>, bool),
        lives: bool,
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        let homes = self.graphs[row].homes;
        match done {
            Ok(()) => {
                assert!(!lives, "a launch overwrites blocks that live");
                self.note_launched(row, stream);
                self.at += 1;
                let outputs = self.graphs[row].outputs.iter().filter(|it| it.id.is_some());
                let outputs: Vec<Tagged> = outputs.map(|it| it.place).collect();
                if !outputs.is_empty() && u.ratio(1, 2)? {
                    self.work(stream, &outputs, &[]);
                    self.all_follow(stream);
                }
            }
            Err(Failure::Told(Error::Pool { why: PoolRefusal::BlocksLent { blocks }, .. })) => {
                let named: Vec<u64> = blocks.iter().map(|it| it.address).collect();
                let lent_in = |home: usize| {
                    let lent = self.blocks.iter().filter(|it| it.is_lent() && it.home == home);
                    let loans = self.loans.iter().filter(|it| it.is_lent && it.home == home);
                    let loans = loans.map(|it| it.block.address);
                    let mut lent: Vec<u64> = lent.map(|it| it.place.address).chain(loans).collect();
                    lent.sort_unstable();
                    lent
                };
                let whole = (0..POOLS).any(|home| homes[home] && lent_in(home) == named);
                assert!(whole && lives, "other blocks are named");
                self.all_follow(stream);
            }
            Err(Failure::Told(Error::Pool { why: PoolRefusal::LentWork { .. }, .. })) => {
                assert!(failed || !self.open.is_empty(), "all streams could be marked");
                self.all_follow(stream);
            }
            Err(Failure::Own | Failure::Told(Error::Driver(_))) => {
                // It may have been submitted, or not.
                self.note_launched(row, stream);
                self.all_follow(stream);
                self.restart();
            }
            Err(Failure::Told(Error::Pool { why, .. })) => {
                self.judge_no_executable(row, &why);
                self.all_follow(stream);
                self.restart();
            }
            Err(Failure::Told(error)) => panic!("launch: {error}"),
        }
        Ok(())
    }

    fn note_launched(&mut self, row: usize, stream: Stream) {
        self.graphs[row].last = Some(stream);
        self.count("launches", 1);
        let output = |it: &&mut Borrowed| matches!(it.kind, Kind::Output { .. });
        self.blocks.iter_mut().filter(output).for_each(|it| it.written = false);
    }

    pub(super) fn submit(
        &mut self,
        row: usize,
        stream: Stream,
    ) -> std::result::Result<(), Failure> {
        self.submit_with(row, stream, Midway::Nothing)
    }

    fn submit_with(
        &mut self,
        row: usize,
        stream: Stream,
        midway: Midway,
    ) -> std::result::Result<(), Failure> {
        let mut begun = false;
        let done = match &self.graphs[row].launcher {
            Launcher::Pool(graph) => graph.launch(stream.handle).map_err(Failure::from),
            Launcher::Closed(..) => unreachable!("a graph without a verdict is not launched"),
            Launcher::Host(lease, _, executable) => lease.launch(stream.handle, |stream| {
                begun = true;
                match &midway {
                    Midway::Fails { submitted: false } => return Err(Failure::Own),
                    Midway::Frees(block) => self.engine.free(block.id).expect("the block lives"),
                    _ => {}
                }
                self.driver.replay(*executable, stream).map_err(Error::from)?;
                match midway {
                    Midway::Fails { .. } => Err(Failure::Own),
                    _ => Ok(()),
                }
            }),
        };
        match midway {
            Midway::Frees(block) if begun => self.note_free_of(&block),
            Midway::Frees(block) => self.blocks.push(block),
            _ => {}
        }
        done
    }

    /// Writes a graph's inputs, after all launches so far.
    pub(super) fn fill(&mut self, row: usize, stream: Stream) {
        let inputs = self.graphs[row].inputs.clone();
        if inputs.is_empty() {
            return;
        }
        for &(home, input) in &inputs {
            // A host that fills inputs by their address has no live block there.
            let place = ends(&input);
            let mut clear = true;
            for block in self.blocks.iter_mut().filter(|it| overlap(ends(&it.place), place)) {
                // One that is as an output of graphs is overwritten by those from before it.
                clear &= matches!(block.kind, Kind::Output { .. });
                block.written = false;
            }
            clear &= !self.is_on_loan(&input);
            assert!(clear, "an input is filled where a block lives");
            let followed = self.homes[home].pool.follow(stream.handle);
            assert!(followed.is_ok(), "the pool is awake");
        }
        if self.lent_all {
            // Of all that is free the inputs were a part.
            self.follow_all(stream);
            self.all_follow(stream);
            let all = [Kind::Lent(Lent::AllFree), Kind::Output { adopted: true }];
            self.lent_all = self.blocks.iter().any(|it| all.contains(&it.kind));
        }
        let places: Vec<Tagged> = inputs.into_iter().map(|(_, input)| input).collect();
        self.work(stream, &[], &places);
    }

    /// Makes a stream come after all launches, whichever pool they are of, also of graphs that are gone: what these read
    /// of other pools is the host's to wait for. False where that cannot be.
    pub(super) fn follow_launches(&self, stream: Stream) -> bool {
        let last = self.graphs.iter().filter_map(|it| it.last);
        let last: Vec<Stream> = last.chain(self.gone.iter().copied()).collect();
        if last.iter().any(|&it| self.is_capturing(it)) {
            return false;
        }
        last.into_iter().for_each(|it| self.wait(stream, it));
        true
    }

    /// Frees outputs of a graph, which others may read when they are launched.
    pub(super) fn drop_outputs(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.open.iter().any(|open| open.crosses) {
            return Ok(());
        }
        let Some(row) = self.any_graph(u)? else { return Ok(()) };
        let one = u.arbitrary()?;
        for at in 0..self.graphs[row].outputs.len() {
            let output = &mut self.graphs[row].outputs[at];
            let Some(id) = output.id.take() else { continue };
            let (home, place, streams) = (output.home, output.place, output.streams());
            self.graphs[row].lost = true;
            self.note_free(home, ends(&place), streams.into_iter());
            for open in &mut self.open {
                open.read.retain(|it| it.address != place.address);
            }
            self.engine.free(id).expect("the block lives");
            if one {
                break;
            }
        }
        Ok(())
    }

    /// Drops a graph with its readers.
    pub(super) fn release(&mut self, number: u64) {
        if self.crossed {
            // Its memory may go at once, and its pool knows of no launch of another pool's graph that reads it.
            self.judge_device();
        }
        let mut outputs = Vec::new();
        self.drop_graph(number, &mut outputs);
        self.settle();
        for output in outputs {
            let Some(id) = output.id else { continue };
            self.note_free(output.home, ends(&output.place), output.streams().into_iter());
            self.engine.free(id).expect("the block lives");
        }
    }

    fn drop_graph(&mut self, number: u64, gone: &mut Vec<Output>) {
        let Some(row) = self.row_of(number) else { return };
        let Made { launcher, outputs, last, .. } = self.graphs.remove(row);
        match launcher {
            Launcher::Host(lease, graph, executable) => {
                drop(lease);
                self.handles.push((graph, executable));
            }
            Launcher::Closed(judging, graph, executable) => {
                self.count("captures given up before their verdict", u64::from(judging.is_some()));
                self.handles.push((graph, executable));
            }
            Launcher::Pool(_) => {}
        }
        self.gone.extend(last);
        self.path.retain(|&it| it != number);
        gone.extend(outputs);
        let reads = |it: &&Made<P>| it.sources.contains(&number);
        let readers: Vec<u64> = self.graphs.iter().filter(reads).map(|it| it.number).collect();
        readers.into_iter().for_each(|it| self.drop_graph(it, gone));
    }

    /// Where a pool has no graph any more, its memory is that of work outside captures.
    pub(super) fn settle(&mut self) {
        for home in 0..POOLS {
            if self.has_graphs(home) || self.is_captured(home) {
                continue;
            }
            // One that runs is gone with the next look at all its pools.
            self.judge_device();
            for home in (0..POOLS).chain(0..POOLS) {
                let waited = self.homes[home].pool.synchronize();
                assert!(waited.is_ok(), "the device answers");
            }
            self.homes[home].used.clear();
            let mine = |it: &&mut ProcessLoan| it.home == home;
            self.loans.iter_mut().filter(mine).for_each(|it| it.is_lent = false);
            let restored = Kind::Output { adopted: false };
            let mine = |it: &&mut Borrowed| it.home == home && it.kind != restored;
            for block in self.blocks.iter_mut().filter(mine) {
                block.written &= block.kind != Kind::Output { adopted: true };
                block.kind = Kind::Plain;
            }
        }
    }
}
