//! What becomes of whole pools.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use regraph::engine::{Checkpoint, CheckpointRefusal, Engine, PoolConfig, Restored, Spare};
use regraph::graphs::{Error, Pool, PoolRefusal};
use regraph::plan::Options;
use regraph_tagged::{Program, Tagged};

use super::blocks::{Borrowed, Kind};
use super::executables::{Keeps, Launcher};
use super::features::Features;
use super::launches::Made;
use super::processes::ProcessLoan;
use super::regions::TAGS;
use super::streams::Stream;
use super::{Home, Shared, World, POOLS};

/// So many checkpoints are kept.
const MOST_SAVED: usize = 3;

/// A checkpoint of a pool.
pub(super) struct Saved {
    checkpoint: Checkpoint,
    home: usize,
    /// How many graphs there were, and which of them the path was.
    made: u64,
    path: Vec<u64>,
    /// Outputs that were live: whose, where, and on which stream; and blocks of work outside captures.
    outputs: Vec<(u64, u64, (Stream, bool))>,
    blocks: Vec<Borrowed>,
}

impl Saved {
    /// A stream has ended.
    pub(super) fn note_end(&mut self, stream: Stream) {
        let outputs = self.outputs.iter_mut().map(|it| &mut it.2);
        outputs.filter(|it| it.0 == stream).for_each(|it| it.1 = true);
        self.blocks.iter_mut().filter(|it| it.stream == stream).for_each(|it| it.ended = true);
    }
}

impl<P: Program> Home<P> {
    /// A pool whose captures get their memory at their end where there is a plan for that.
    pub(super) fn new(
        engine: &Arc<Engine<Shared<P>>>,
        (number, plan): (usize, Option<Options>),
        features: &Features,
    ) -> Self {
        let config = PoolConfig::default().takes_offers(features.varied).tag(TAGS[number]);
        let config = plan.map_or(config.clone(), |it| config.plan(it));
        let lending = (0..features.streams).map(|_| None).collect();
        let pool = Pool::new(engine, config);
        Self { pool, lending, keeps: Keeps::default(), used: Vec::new() }
    }
}

impl<P: Program> World<'_, P> {
    /// A pool goes with all that uses it, which may run still, and another one takes its part.
    pub(super) fn replace(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let home = u.choose_index(POOLS)?;
        // Neither a capture under way nor what it reads, or would have the place of, is of the pool.
        let freed_in = |it: &Borrowed| {
            it.home == home
                && (it.captured.is_some() || it.all_streams().any(|it| self.is_capturing(it)))
        };
        let used = self.open.iter().any(|open| open.homes[home] || open.crosses);
        if used || self.blocks.iter().any(freed_in) || self.has_loan(home) {
            return Ok(());
        }
        if !self.open.is_empty() && self.graphs.iter().any(|it| it.homes[home]) {
            // While a stream captures the host cannot wait for what fills inputs and reads outputs.
            return Ok(());
        }
        while let Some(made) = self.graphs.iter().find(|it| it.homes[home]) {
            self.release(made.number);
        }
        let mine: Vec<Borrowed> = self.blocks.extract_if(.., |it| it.home == home).collect();
        mine.iter().for_each(|block| self.free_block(block));
        self.saved.retain(|it| it.home != home);
        self.note_executables(home);
        self.spare(home, Spare::GivenBack);
        let plan = self.plan.clone().filter(|_| home == 0);
        self.homes[home] = Home::new(&self.engine, (home, plan), &self.features);
        self.restart();
        self.count("pools destroyed", 1);
        Ok(())
    }

    /// What becomes of what is free in a pool.
    pub(super) fn spare(&self, home: usize, spare: Spare) {
        let set = self.engine.host().set_spare(self.homes[home].pool.id(), spare);
        set.expect("the pool is there");
    }

    /// Suspends a pool and resumes it, where it has no blocks but graphs' own, or they may be lost.
    pub(super) fn suspend(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (home, discards) = (u.choose_index(POOLS)?, u.ratio(1, 3)?);
        if !self.judge_device() {
            return Ok(());
        }
        let pool = self.homes[home].pool.clone();
        let gone = if discards {
            pool.suspend_discarding_all()
        } else {
            pool.suspend_discarding_outputs()
        };
        let mine = |it: &&Borrowed| it.home == home;
        match gone {
            Ok(_) => {
                let mut mine = self.blocks.iter().filter(mine);
                let sound = mine.all(|it| matches!(it.kind, Kind::Output { .. }));
                let sound = discards || sound && !self.has_loan(home);
                assert!(sound, "blocks have lost what they held");
                assert_eq!(pool.reserved().expect("the pool is there"), 0, "it holds memory");
                let stream = self.streams[u.choose_index(self.streams.len())?];
                let judged = |it: &Made<P>| it.homes[home] && it.is_judged();
                if let Some(row) = self.graphs.iter().position(judged) {
                    let launched = self.submit(row, stream);
                    assert!(launched.is_err(), "a suspended pool launches");
                    if let (Launcher::Pool(graph), true) =
                        (&self.graphs[row].launcher, self.graphs[row].home == home)
                    {
                        let prepared = graph.prepare(stream.handle);
                        assert!(prepared.is_err(), "a suspended pool prepares launches");
                    }
                }
                let lend = pool.lend(stream.handle);
                assert!(lend.is_err(), "a suspended pool lends");
                if matches!(pool.resume(), Err(Error::OutOfMemory(_))) {
                    // What another process has borrowed of it is on the device besides.
                    assert!(self.has_loan(home), "there is room for it");
                    let mine = |row: &usize| self.loans[*row].home == home;
                    let mine: Vec<usize> = (0..self.loans.len()).rev().filter(mine).collect();
                    mine.into_iter().for_each(|row| self.end_loan(row));
                    pool.resume().expect("there is room for it");
                }
                self.count("pools that slept", 1);
                let mine = |it: &&mut ProcessLoan| it.home == home;
                self.loans.iter_mut().filter(mine).for_each(|it| it.has_slept = true);
                self.note_lost(home);
            }
            Err(Error::Pool { why: PoolRefusal::HasBlocks { .. }, .. }) => {
                let any = self.blocks.iter().any(|it| mine(&it)) || self.has_loan(home);
                assert!(any, "no block hinders it");
            }
            Err(
                Error::Pool { why: PoolRefusal::Busy { .. }, .. }
                | Error::Pool { why: PoolRefusal::CannotSuspend, .. },
            ) => {}
            Err(error) => panic!("suspend: {error}"),
        }
        Ok(())
    }

    /// What a pool's blocks held is lost: work outside captures writes its own again.
    pub(super) fn note_lost(&mut self, home: usize) {
        self.restart();
        for row in 0..self.blocks.len() {
            let Borrowed { home: of, kind, stream, ended, place, .. } = self.blocks[row];
            if of != home {
                continue;
            }
            let writes = !ended && !matches!(kind, Kind::Output { .. });
            self.blocks[row].written = writes;
            if writes {
                self.work(stream, &[], &[place]);
            }
        }
    }

    /// Takes a checkpoint of a pool.
    pub(super) fn save(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let home = u.choose_index(POOLS)?;
        if self.is_captured(home) {
            return Ok(());
        }
        let checkpoint = match self.engine.host().checkpoint(self.homes[home].pool.id()) {
            Err(Error::Checkpoint { why: CheckpointRefusal::NoWayBack, .. })
                if self.plan.is_some() && home == 0 =>
            {
                return Ok(())
            }
            Err(Error::Checkpoint { why: CheckpointRefusal::OnLoan, .. }) => {
                assert!(self.has_loan(home), "no loan hinders it");
                return Ok(());
            }
            checkpoint => checkpoint.expect("the pool is plain"),
        };
        let outputs = self.graphs.iter().flat_map(|made| {
            let live = made.outputs.iter().filter(|it| it.home == home && it.id.is_some());
            live.map(|it| (made.number, it.place.address, (it.stream, it.ended)))
        });
        let saved = Saved {
            checkpoint,
            home,
            made: self.made,
            path: self.path.clone(),
            outputs: outputs.collect(),
            blocks: self.blocks.iter().filter(|it| it.is_own(home)).cloned().collect(),
        };
        if self.saved.len() == MOST_SAVED {
            self.saved.remove(0);
        }
        self.saved.push(saved);
        Ok(())
    }

    /// Goes back to a checkpoint.
    pub(super) fn restore(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.saved.is_empty() || !self.open.is_empty() {
            return Ok(());
        }
        let row = u.choose_index(self.saved.len())?;
        // All that was submitted precedes all that comes.
        if self.ended || u.ratio(1, 2)? {
            self.judge_device();
            self.ended = false;
        } else {
            self.follow_all(self.streams[0]);
            self.all_follow(self.streams[0]);
        }
        let saved = self.saved.swap_remove(row);
        let restored =
            self.engine.host().restore(self.homes[saved.home].pool.id(), &saved.checkpoint);
        match restored {
            Ok(restored) => {
                assert!(!self.has_loan(saved.home), "a loan's block is ended");
                self.count("checkpoints gone back to", 1);
                self.note_restored(&saved, &restored);
            }
            // Memory that the checkpoint names has gone back to the driver.
            Err(Error::Checkpoint { why: CheckpointRefusal::Gone { .. }, .. }) => return Ok(()),
            // The block of a loan would end.
            Err(Error::Checkpoint { why: CheckpointRefusal::OnLoan, .. }) => {
                assert!(self.has_loan(saved.home), "no loan hinders it");
                self.saved.push(saved);
                return Ok(());
            }
            // A capture was planned there since.
            Err(Error::Checkpoint { why: CheckpointRefusal::NoWayBack, .. })
                if self.plan.is_some() && saved.home == 0 =>
            {
                return Ok(())
            }
            Err(error) => panic!("restore: {error}"),
        }
        self.saved.push(saved);
        Ok(())
    }

    fn note_restored(&mut self, saved: &Saved, restored: &Restored) {
        let home = saved.home;
        let outputs = self.graphs.iter_mut().flat_map(|it| &mut it.outputs);
        let outputs = outputs.filter(|it| it.home == home).filter_map(|it| it.id.take()).count();
        let own: Vec<Borrowed> = self.blocks.extract_if(.., |it| it.is_own(home)).collect();
        assert_eq!(restored.freed.len(), own.len() + outputs, "all blocks were ended");
        let then = saved.outputs.len() + saved.blocks.len();
        assert_eq!(restored.live.len(), then, "all that lived then lives");
        if self.has_graphs(home) {
            let live = restored.live.iter().map(|it| self.span(it.id));
            let all: Vec<_> = own.iter().map(|it| it.span).chain(live).collect();
            self.homes[home].used.extend(all);
        }
        for block in &restored.live {
            let of = saved.outputs.iter().find(|it| it.1 == block.address);
            let graphs = self.graphs.iter_mut();
            let mut outputs = graphs.filter(|it| of.is_some_and(|of| of.0 == it.number));
            let output = outputs
                .find_map(|it| it.outputs.iter_mut().find(|it| it.place.address == block.address));
            if let Some(output) = output {
                output.id = Some(block.id);
                // What these did is behind the restoration.
                output.readers.clear();
                continue;
            }
            let known = saved.blocks.iter().find(|it| it.place.address == block.address);
            let known = known.map(|it| (it.stream, it.ended)).or(of.map(|it| it.2));
            let (stream, ended) = known.expect("the checkpoint names no other");
            let place = Tagged { address: block.address, bytes: block.bytes, tag: 0 };
            self.blocks.push(Borrowed {
                id: block.id,
                home,
                offered: false,
                place,
                span: self.span(block.id),
                kind: Kind::Output { adopted: false },
                written: false,
                stream,
                ended,
                readers: Vec::new(),
                untold: Vec::new(),
                since: 0,
                captured: None,
            });
        }
        // Of this pool the path is what it was; what reads outputs of others that are not on it is not either.
        let mut path: Vec<u64> = Vec::new();
        for made in &self.graphs {
            let (number, homes, was) = (made.number, made.homes, self.path.contains(&made.number));
            let alone = (0..POOLS).all(|it| homes[it] == (it == home));
            let stays = was && (!homes[home] || number < saved.made);
            let again = alone && saved.path.contains(&number);
            if (stays || again) && made.sources.iter().all(|it| path.contains(it)) {
                path.push(number);
            }
        }
        self.path = path;
        self.restart();
        self.judge_history();
    }
}
