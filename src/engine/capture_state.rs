//! Captures under way, as the engine keeps them.

use std::collections::BTreeSet;
use std::time::Instant;

use smallvec::SmallVec;

use super::layout::Following;
use super::names::{BlockId, PoolId};
use super::streams::{Position, Timelines};
use crate::capture::{Capture, Moment};
use crate::driver::{CaptureId, DriverError, StreamHandle};
use crate::heap::CaptureSlot;
use crate::journal::{BlockNumber, Entry, Journal};
use crate::plan::Options;

/// The thread that all streams of a capture belong to, as long as no stream has gone to another thread
/// since and none has joined the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CapturingThread {
    pub(super) thread: usize,
    pub(super) changes: u64,
    pub(super) streams: usize,
}

/// When the memory of a capture's large blocks comes.
#[derive(Clone, Debug, Default)]
pub(super) enum Planning {
    /// As pool and settings have it.
    #[default]
    Default,
    /// With the block.
    Off,
    /// At the end.
    On(Options),
}

/// A capture under way.
#[derive(Debug)]
pub(super) struct CaptureState {
    pub(super) id: CaptureId,
    /// Captures in order of their first sight: a body is younger than its parent.
    pub(super) age: u64,
    pub(super) proof: Capture,
    pub(super) journal: Option<Journal>,
    told: Told,
    /// In the order in which it came to use them.
    pub(super) pools: SmallVec<[PoolId; 1]>,
    /// Behind all that the stream was given outside captures on which the host announced this one, where it
    /// had said so before.
    pub(super) expected: Option<Position>,
    /// Blocks allocated in it.
    pub(super) blocks: usize,
    /// The rows that they have had among the live ones ([`Blocks::note`](super::live_blocks::Blocks::note)).
    rows: Vec<u32>,
    /// Blocks freed in it that cannot be proven free within it, by their numbers among what waits.
    pub(super) held: Vec<u32>,
    /// Blocks freed by a thread that may not look at their streams: the one that captures on them
    /// frees them with its next request.
    pub(super) left: Vec<BlockId>,
    /// Who took the capture over last, and when.
    pub(super) capturing_thread: CapturingThread,
    /// How much it may map at once ahead of what it asks for, in bytes. Zero too where its graph may
    /// run before it is ended here.
    pub(super) step: u64,
    /// How far set-backs have been followed up.
    pub(super) set_backs_seen: Moment,
    /// A block whose place rests on an order that a set-back has undone.
    pub(super) undone: Option<(BlockNumber, StreamHandle)>,
    /// The layout that its blocks are to lie by.
    pub(super) following: Option<Box<Following>>,
    pub(super) planning: Planning,
    /// When it was first seen.
    pub(super) since: Instant,
    /// Whether another capture of one of its pools has been under way beside it: one may contain the
    /// other.
    pub(super) concurrent: bool,
    /// Why memory that it may use is not there.
    pub(super) lost: Option<DriverError>,
}

/// What the engine knows of a capture by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapturePhase {
    /// Under way, as far as the engine knows.
    UnderWay,
    /// Ended or abandoned here; the driver may not have been told yet.
    Ended,
    /// Never heard of.
    Unknown,
}

/// What a capture's record tells of the blocks that stand in its pools.
#[derive(Debug, Default)]
struct Told {
    /// For each pool the number that no block had when the record began to tell of the pool: those with this one or a
    /// higher one were told of when they came.
    pools: SmallVec<[(PoolId, BlockNumber); 1]>,
    /// Those that were there before, and that it has told of since.
    since: BTreeSet<BlockNumber>,
}

/// The captures under way.
#[derive(Debug, Default)]
pub(super) struct Captures {
    rows: Vec<Option<Box<CaptureState>>>,
    /// Of captures that are over; cleared, and kept for what they have allocated.
    spare: [Option<Box<CaptureState>>; KEPT],
    /// How many there were so far.
    made: u64,
}

const UNDER_WAY: &str = "the slot of a capture under way";

/// Of so many captures at most what is allocated is kept for later ones.
const KEPT: usize = 4;

/// Of so many blocks at most what a capture has allocated for them is kept for the next one.
const KEPT_BLOCKS: usize = 1 << 12;

impl Captures {
    /// Adds a capture in which nothing has happened; `proof` makes an empty one.
    pub(super) fn add(&mut self, id: CaptureId, proof: impl FnOnce() -> Capture) -> CaptureSlot {
        self.made += 1;
        let kept = self.spare.iter_mut().find_map(Option::take);
        let mut made = kept.unwrap_or_else(|| Box::new(CaptureState::new(proof())));
        (made.id, made.age, made.since) = (id, self.made, Instant::now());
        let vacant = self.rows.iter().position(Option::is_none);
        let row = vacant.unwrap_or(self.rows.len());
        if row == self.rows.len() {
            self.rows.push(None);
        }
        self.rows[row] = Some(made);
        CaptureSlot::new(row)
    }

    /// Takes a capture out of those under way, for good.
    pub(super) fn take(&mut self, slot: CaptureSlot) -> Option<Box<CaptureState>> {
        self.rows[slot.index()].take()
    }

    /// Keeps what a capture has allocated that was taken out, for later ones.
    pub(super) fn keep(&mut self, mut over: Box<CaptureState>) {
        let room = self.spare.iter_mut().find(|it| it.is_none());
        if let Some(room) = room.filter(|_| over.clear()) {
            *room = Some(over);
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: CaptureSlot) -> &CaptureState {
        self.rows[slot.index()].as_ref().expect(UNDER_WAY)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: CaptureSlot) -> &mut CaptureState {
        self.rows[slot.index()].as_mut().expect(UNDER_WAY)
    }

    pub(super) fn find(&self, slot: CaptureSlot) -> Option<&CaptureState> {
        self.rows.get(slot.index())?.as_deref()
    }

    #[inline]
    pub(super) fn slot(&self, id: CaptureId) -> Option<CaptureSlot> {
        let row = self.rows.iter().position(|row| row.as_ref().is_some_and(|it| it.id == id));
        row.map(CaptureSlot::new)
    }

    pub(super) fn slots(&self) -> Vec<CaptureSlot> {
        self.with_slots().map(|(slot, _)| slot).collect()
    }

    pub(super) fn with_slots(&self) -> impl Iterator<Item = (CaptureSlot, &CaptureState)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(row, it)| Some((CaptureSlot::new(row), it.as_deref()?)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CaptureState> + Clone {
        self.rows.iter().flatten().map(Box::as_ref)
    }

    /// Those that use a pool.
    pub(super) fn of(&mut self, pool: PoolId) -> impl Iterator<Item = &mut CaptureState> {
        let all = self.rows.iter_mut().flatten().map(Box::as_mut);
        all.filter(move |it| it.pools.contains(&pool))
    }

    /// The numbers of those that use a pool.
    pub(super) fn ids_of(&self, pool: PoolId) -> SmallVec<[CaptureId; 2]> {
        self.iter().filter(|it| it.pools.contains(&pool)).map(|it| it.id).collect()
    }

    pub(super) fn ids(&self) -> Vec<CaptureId> {
        self.iter().map(|it| it.id).collect()
    }

    /// What is known of a capture.
    pub(super) fn phase(&self, id: CaptureId, timelines: &Timelines) -> CapturePhase {
        if self.slot(id).is_some() {
            CapturePhase::UnderWay
        } else if timelines.has_ended(id) {
            CapturePhase::Ended
        } else {
            CapturePhase::Unknown
        }
    }

    /// The youngest that a stream was seen in.
    pub(super) fn last_of(&self, stream: StreamHandle) -> Option<CaptureSlot> {
        let seen = self.with_slots().filter(|(_, it)| it.proof.stream(stream).is_some());
        seen.max_by_key(|(_, it)| it.age).map(|(slot, _)| slot)
    }

    /// Tells of a block in the journal of every capture that uses a pool, but for one.
    pub(super) fn tell_all(
        &mut self,
        pool: PoolId,
        but: Option<CaptureSlot>,
        block: (BlockNumber, u64, u64),
    ) {
        for (row, it) in self.rows.iter_mut().enumerate() {
            let Some(it) = it.as_mut().filter(|it| it.pools.contains(&pool)) else { continue };
            if but != Some(CaptureSlot::new(row)) {
                it.tell(pool, block);
            }
        }
    }

    /// Writes a fact into the journal of every capture that uses a pool, but for one.
    pub(super) fn write_journals(
        &mut self,
        pool: PoolId,
        but: Option<CaptureSlot>,
        entry: Entry<'_>,
    ) {
        for (row, it) in self.rows.iter_mut().enumerate() {
            let Some(it) = it.as_mut().filter(|it| it.pools.contains(&pool)) else { continue };
            if but != Some(CaptureSlot::new(row)) {
                it.write_journal(entry);
            }
        }
    }
}

impl CaptureState {
    /// One in which nothing has happened.
    fn new(proof: Capture) -> Self {
        Self {
            id: CaptureId(0),
            age: 0,
            proof,
            journal: None,
            told: Told::default(),
            pools: SmallVec::new(),
            expected: None,
            blocks: 0,
            rows: Vec::new(),
            held: Vec::new(),
            left: Vec::new(),
            capturing_thread: CapturingThread::default(),
            step: 0,
            set_backs_seen: Moment::default(),
            undone: None,
            following: None,
            planning: Planning::default(),
            since: Instant::now(),
            concurrent: false,
            lost: None,
        }
    }

    /// Makes it one in which nothing has happened. False where what it has allocated is too much to be kept.
    fn clear(&mut self) -> bool {
        let Self {
            // Set when it is added again.
            id: _,
            age: _,
            since: _,
            proof,
            journal,
            told,
            pools,
            expected,
            blocks,
            rows,
            held,
            left,
            capturing_thread,
            step,
            set_backs_seen,
            undone,
            following,
            planning,
            concurrent,
            lost,
        } = self;
        let most = rows.capacity().max(held.capacity()).max(left.capacity());
        if most > KEPT_BLOCKS || !proof.clear() {
            return false;
        }
        told.pools.clear();
        told.since.clear();
        rows.clear();
        held.clear();
        left.clear();
        pools.clear();
        (*journal, *expected, *undone, *following, *lost) = (None, None, None, None, None);
        (*capturing_thread, *planning) = (CapturingThread::default(), Planning::default());
        (*blocks, *step, *set_backs_seen, *concurrent) = (0, 0, Moment::default(), false);
        true
    }

    /// Notes a row that a block of the capture has among the live ones, and that is not noted yet.
    #[inline]
    pub(super) fn note_row(&mut self, row: u32) {
        self.rows.push(row);
    }

    /// The rows that its live blocks have, and others.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Notes that the record, where there is one, tells of a pool's blocks from now on, and no block has this
    /// number yet.
    pub(super) fn tell_from(&mut self, pool: PoolId, next: BlockNumber) {
        self.told.pools.retain(|it| it.0 != pool);
        self.told.pools.push((pool, next));
    }

    /// Tells of a block of a pool that is not the capture's own, unless that was done.
    pub(super) fn tell(&mut self, pool: PoolId, (block, address, bytes): (BlockNumber, u64, u64)) {
        let Some(journal) = &mut self.journal else { return };
        let Told { pools, since } = &mut self.told;
        let came = pools.iter().any(|&(of, next)| of == pool && block >= next);
        if !came && since.insert(block) {
            journal.push(Entry::Standing { block, address, bytes });
        }
    }

    /// Writes a fact into the capture's journal, where it keeps one.
    pub(super) fn write_journal(&mut self, entry: Entry<'_>) {
        if let Some(journal) = &mut self.journal {
            journal.push(entry);
        }
    }

    /// The streams that it was seen on.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamHandle> + '_ {
        self.proof.streams().map(|stream| self.proof.stream_handle(stream))
    }
}
