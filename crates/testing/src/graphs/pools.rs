//! What becomes of whole pools, and of streams.

use arbitrary::{Result, Unstructured};
use regraph::driver::{HostApi, StreamHandle};
use regraph::engine::{Checkpoint, CheckpointRefusal, Restored};
use regraph::graphs::{Error, PoolRefusal, StreamRefusal};
use regraph_tagged::{Program, Tagged};

use super::blocks::{Borrowed, Kind};
use super::{World, POOLS, STREAMS};

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
    outputs: Vec<(u64, u64, (StreamHandle, bool))>,
    blocks: Vec<Borrowed>,
}

impl<P: Program> World<'_, P> {
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
                let sound = discards || mine.all(|it| matches!(it.kind, Kind::Output { .. }));
                assert!(sound, "blocks have lost what they held");
                assert_eq!(pool.reserved().expect("the pool is there"), 0, "it holds memory");
                let stream = u.choose_index(STREAMS)?;
                if let Some(row) = self.graphs.iter().position(|it| it.homes[home]) {
                    let launched = self.submit(row, stream);
                    assert!(launched.is_err(), "a suspended pool launches");
                }
                let lend = pool.lend(self.streams[stream]);
                assert!(lend.is_err(), "a suspended pool lends");
                pool.resume().expect("there is room for it");
                self.restart();
                for row in 0..self.blocks.len() {
                    let Borrowed { home: of, kind, stream: own, ended, .. } = self.blocks[row];
                    if of == home {
                        self.blocks[row].written = false;
                    }
                    let slot = self.streams.iter().position(|&it| it == own && !ended);
                    let (Some(slot), false) = (slot, matches!(kind, Kind::Output { .. })) else {
                        continue;
                    };
                    if of == home {
                        self.work(slot, &[], &[self.blocks[row].place]);
                        self.blocks[row].written = true;
                    }
                }
            }
            Err(Error::Pool { why: PoolRefusal::HasBlocks { .. }, .. }) => {
                let any = self.blocks.iter().any(|it| mine(&it));
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

    /// A stream is about to be destroyed, and another one takes its part.
    pub(super) fn retire(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let borrows = |it: &&Borrowed| it.is_lent() && !it.ended && !self.is_capturing(it.stream);
        let borrower = self.blocks.iter().find(borrows).map(|it| it.stream);
        let borrower = borrower.filter(|_| u.ratio(2, 3).unwrap_or_default());
        let slot = match self.streams.iter().position(|&it| Some(it) == borrower) {
            Some(slot) => slot,
            None => self.free_stream(u)?,
        };
        self.homes.iter_mut().for_each(|home| home.lending[slot] = None);
        let old = self.streams[slot];
        let uses = |it: &&Borrowed| it.stream == old && !it.ended && it.written;
        let used: Vec<(Tagged, Kind)> =
            self.blocks.iter().filter(uses).map(|it| (it.place, it.kind)).collect();
        used.iter().for_each(|(place, _)| self.work(slot, &[*place], &[]));
        if used.iter().any(|(_, kind)| matches!(kind, Kind::Output { .. })) {
            // As of every output, the host orders its uses before the launches of older graphs.
            self.all_follow(slot);
        }
        match self.engine.retire_stream(old) {
            Ok(()) => {}
            Err(Error::Stream { why: StreamRefusal::InUse, .. }) => return Ok(()),
            Err(error) => panic!("retire: {error}"),
        }
        self.ended = true;
        self.streams[slot] = self.driver.create_stream().expect("there is room for it");
        // What the others come after it comes after too.
        let next = self.streams[(slot + 1) % STREAMS];
        let other = if self.is_capturing(next) { self.streams[(slot + 2) % STREAMS] } else { next };
        self.wait(self.streams[slot], other);
        if self.lent_all {
            self.wait(self.streams[slot], old);
        }
        let outputs = self.graphs.iter_mut().flat_map(|it| &mut it.outputs);
        outputs.filter(|it| it.stream == old).for_each(|it| it.ended = true);
        for saved in &mut self.saved {
            saved.outputs.iter_mut().filter(|it| it.2 .0 == old).for_each(|it| it.2 .1 = true);
        }
        let saved = self.saved.iter_mut().flat_map(|it| &mut it.blocks);
        let blocks = self.blocks.iter_mut().chain(saved);
        blocks.filter(|it| it.stream == old).for_each(|it| it.ended = true);
        if u.ratio(1, 2)? {
            let gone = |it: &mut Borrowed| it.stream == old && !it.captured;
            let gone: Vec<Borrowed> = self.blocks.extract_if(.., gone).collect();
            gone.iter().for_each(|block| self.free_block(block));
        }
        Ok(())
    }

    /// Takes a checkpoint of a pool.
    pub(super) fn save(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let home = u.choose_index(POOLS)?;
        if self.is_captured(home) {
            return Ok(());
        }
        let checkpoint = match self.engine.host().checkpoint(self.homes[home].pool.id()) {
            Err(Error::Checkpoint { why: CheckpointRefusal::NoWayBack, .. })
                if self.plans && home == 0 =>
            {
                return Ok(())
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
            blocks: self.blocks.iter().filter(|it| it.home == home).cloned().collect(),
        };
        if self.saved.len() == MOST_SAVED {
            self.saved.remove(0);
        }
        self.saved.push(saved);
        Ok(())
    }

    /// Goes back to a checkpoint.
    pub(super) fn restore(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.saved.is_empty() || self.open.is_some() {
            return Ok(());
        }
        let row = u.choose_index(self.saved.len())?;
        // All that was submitted precedes all that comes.
        if self.ended || u.ratio(1, 2)? {
            self.judge_device();
            self.ended = false;
        } else {
            self.follow_all(0);
            self.all_follow(0);
        }
        let saved = self.saved.swap_remove(row);
        let restored =
            self.engine.host().restore(self.homes[saved.home].pool.id(), &saved.checkpoint);
        match restored {
            Ok(restored) => self.note_restored(&saved, &restored),
            // Memory that the checkpoint names has gone back to the driver.
            Err(Error::Checkpoint { why: CheckpointRefusal::Gone { .. }, .. }) => return Ok(()),
            // A capture was planned there since.
            Err(Error::Checkpoint { why: CheckpointRefusal::NoWayBack, .. })
                if self.plans && saved.home == 0 =>
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
        let before = self.blocks.len();
        self.blocks.retain(|it| it.home != home);
        let ended = before - self.blocks.len() + outputs;
        assert_eq!(restored.freed.len(), ended, "all blocks were ended");
        let all = || restored.freed.iter().chain(&restored.live);
        if self.has_graphs(home) {
            let places = all().map(|it| (it.address, it.address + it.bytes));
            self.homes[home].used.extend(places);
        }
        for block in &restored.live {
            let of = saved.outputs.iter().find(|it| it.1 == block.address);
            let graphs = self.graphs.iter_mut();
            let mut outputs = graphs.filter(|it| of.is_some_and(|of| of.0 == it.number));
            let output = outputs
                .find_map(|it| it.outputs.iter_mut().find(|it| it.place.address == block.address));
            if let Some(output) = output {
                output.id = Some(block.id);
                continue;
            }
            let known = saved.blocks.iter().find(|it| it.place.address == block.address);
            let known = known.map(|it| (it.stream, it.ended)).or(of.map(|it| it.2));
            let (stream, ended) = known.expect("the checkpoint names no other");
            let place = Tagged { address: block.address, bytes: block.bytes, tag: 0 };
            self.blocks.push(Borrowed {
                id: block.id,
                home,
                place,
                kind: Kind::Output { adopted: false },
                written: false,
                stream,
                ended,
                readers: Vec::new(),
                since: 0,
                captured: false,
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
    }
}
