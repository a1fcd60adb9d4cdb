//! Everything behind the engine's lock, and what its calls have in common.

use super::captures::{CaptureState, CapturingThread};
use super::config::Flaw;
use super::end::Attempt;
use super::live_blocks::Origin;
use super::names::PoolId;
use super::pools::PoolRow;
use super::streams::{this_thread, StreamStatus};
use super::{Error, Locked, State, Unknown};
use crate::capture::{Capture, StreamIndex};
use crate::driver::{CaptureId, CaptureStatus, Driver, ErrorKind, StreamHandle};
use crate::heap::{CaptureSlot, RangeId, TimelineId};
use crate::journal::{BlockNumber, Entry, Journal};
use crate::policy::{PlanChoice, Programmatic};

impl State {
    #[inline]
    pub(super) fn pool(&mut self, pool: PoolId, call: &'static str) -> Result<&mut PoolRow, Error> {
        // `ok_or` would make an error each time, and to drop one costs more than the look-up.
        match self.pools.get_mut(pool) {
            Some(row) => Ok(row),
            None => Err(Error::Unknown { call, what: Unknown::Pool(pool) }),
        }
    }

    /// The slot of a capture under way.
    pub(super) fn slot_of(
        &self,
        capture: CaptureId,
        call: &'static str,
    ) -> Result<CaptureSlot, Error> {
        match self.captures.slot(capture) {
            Some(slot) => Ok(slot),
            None => Err(Error::Unknown { call, what: Unknown::Capture(capture) }),
        }
    }

    #[inline]
    pub(super) fn capture(&mut self, slot: CaptureSlot) -> &mut CaptureState {
        self.captures.get_mut(slot)
    }

    /// Takes a capture out of those under way, for good.
    pub(super) fn take_capture(&mut self, slot: CaptureSlot) -> Option<Box<CaptureState>> {
        let capture_state = self.captures.take(slot)?;
        for stream in capture_state.streams() {
            self.timelines.set_ended(stream, capture_state.age, capture_state.id);
            self.caches.forget_capturing(stream);
        }
        Some(capture_state)
    }

    /// Has a capture's record tell of a pool from now on: of what waits there at once, of live blocks where the
    /// capture meets them ([`State::tell_met`], [`State::tell_gone`]).
    fn journal_pool(&mut self, slot: CaptureSlot, pool: PoolId) {
        if self.capture(slot).journal.is_none() {
            return;
        }
        let Self { pools, blocks, .. } = self;
        blocks.sort(pool, |block| pools.extent(block.heap, block.range));
        let next = blocks.next_number();
        self.capture(slot).tell_from(pool, next);
        self.journal_count(slot, pool);
        for (block, address, bytes) in self.waiting_blocks(pool) {
            self.capture(slot).write_journal(Entry::Standing { block, address, bytes });
        }
    }

    /// Writes into a capture's record what a pool holds in live blocks, by its heaps and by their list.
    pub(super) fn journal_count(&mut self, slot: CaptureSlot, pool: PoolId) {
        let Self { pools, blocks, captures, .. } = self;
        let (held, listed) = (pools.bytes_in_blocks(pool), blocks.bytes_of(pool));
        let entry = Entry::Pool { next: blocks.next_number(), held, listed };
        captures.get_mut(slot).write_journal(entry);
    }

    /// What was given back in a pool and is not free for every stream: number, address and size.
    fn waiting_blocks(&mut self, pool: PoolId) -> Vec<(BlockNumber, u64, u64)> {
        let Self { pools, blocks, waiting, .. } = self;
        let Some(row) = pools.get(pool) else { return Vec::new() };
        let mut waiting_blocks = Vec::new();
        for wait in waiting.iter().filter(|wait| wait.pool == pool) {
            let (address, bytes) = pools.extent(wait.heap, wait.range);
            waiting_blocks.push((wait.number, address, bytes));
        }
        // What captures gave back is theirs until they end.
        let heaps = row.heaps().into_iter().filter(|_| row.captures() > 0);
        for (address, bytes) in heaps.flat_map(|heap| pools.heap(heap).given_back()) {
            waiting_blocks.push((blocks.number(), address, bytes));
        }
        waiting_blocks
    }

    /// Has a capture's record tell of the live blocks in whose place one of the capture's is handed out: none, if
    /// the engine makes no mistake.
    #[inline]
    pub(super) fn tell_met(
        &mut self,
        slot: CaptureSlot,
        pool: PoolId,
        (address, bytes): (u64, u64),
    ) {
        let Self { blocks, captures, .. } = self;
        for (block, start, end) in blocks.over(pool, (address, address + bytes)) {
            // The checker knows the capture's own.
            if !matches!(block.origin, Origin::Capture(home) if home.slot == slot) {
                captures.get_mut(slot).tell(pool, (block.number, start, end - start));
            }
        }
    }

    /// Has the records of captures that use its pool tell of a block that is live no more, and that may be in use:
    /// all but that of its own capture.
    #[inline]
    pub(super) fn tell_gone(
        &mut self,
        number: BlockNumber,
        (pool, heap, range): (PoolId, u32, RangeId),
        origin: Origin,
    ) {
        let own = match origin {
            Origin::Capture(home) => Some(home.slot),
            Origin::Outside | Origin::Past | Origin::Graph => None,
        };
        let captures = self.pools.get(pool).map_or(0, PoolRow::captures);
        if captures > usize::from(own.is_some()) {
            let (address, bytes) = self.pools.extent(heap, range);
            self.captures.tell_all(pool, own, (number, address, bytes));
        }
    }

    /// The timeline of a stream that the calling thread has named, which is this thread's from now on.
    pub(super) fn assign_stream(&mut self, stream: StreamHandle) -> TimelineId {
        let (timeline, changed) = self.timelines.assign(stream);
        if changed {
            self.caches.of(stream).assign(stream);
        }
        timeline
    }

    /// The slot of a capture where a request needs nothing but a look at the stream: the capture is known
    /// to use the pool and to be on the stream, the calling thread captures into it already, and no block
    /// was left to it to be freed.
    #[inline]
    fn familiar(
        &mut self,
        capture: CaptureId,
        pool: PoolId,
        stream: StreamHandle,
    ) -> Option<CaptureSlot> {
        let slot = self.captures.slot(capture)?;
        let row = self.captures.get(slot);
        let known = self.captures_here(row)
            && row.left.is_empty()
            && row.pools.contains(&pool)
            && row.proof.has_seen(stream);
        known.then_some(slot)
    }

    /// The capturing thread's mark, as it is if that is the calling thread.
    #[inline]
    fn capturing_thread(&self, row: &CaptureState) -> CapturingThread {
        let (thread, changes) = (this_thread(), self.timelines.changes());
        CapturingThread { thread, changes, streams: row.proof.seen() }
    }

    /// Whether the calling thread may look at every stream that a capture was seen on.
    #[inline]
    pub(super) fn captures_here(&self, row: &CaptureState) -> bool {
        self.capturing_thread(row) == row.capturing_thread
    }

    /// Whether the calling thread may look at a stream, if that is in the capture.
    #[inline]
    fn may_look(&self, slot: CaptureSlot, stream: StreamHandle) -> bool {
        let row = self.captures.get(slot);
        (self.captures_here(row) && row.proof.has_seen(stream)) || self.timelines.is_mine(stream)
    }

    /// After a set-back: a live block of the stream whose place is not proven any more has been
    /// handed out in vain, and the capture cannot stand.
    fn check_set_back(&mut self, slot: CaptureSlot, index: StreamIndex, stream: StreamHandle) {
        let Self { captures, blocks, pools, .. } = self;
        let capture_state = captures.get_mut(slot);
        capture_state.set_backs_seen = capture_state.proof.tick();
        let undone = blocks.iter().find(|block| {
            matches!(block.origin, Origin::Capture(home) if home.slot == slot && home.stream == index)
                && pools.find_heap(block.heap).is_some_and(|heap| {
                    let markers = heap.markers(block.range);
                    !capture_state.proof.proves(index, markers)
                })
        });
        if let Some(block) = undone {
            capture_state.undone.get_or_insert((block.number, stream));
        }
    }

    /// Writes a fact into the journal of every capture that uses the pool, but for one.
    #[inline]
    pub(super) fn write_journals(
        &mut self,
        pool: PoolId,
        but: Option<CaptureSlot>,
        entry: Entry<'_>,
    ) {
        let captures = self.pools.get(pool).map_or(0, PoolRow::captures);
        if captures > usize::from(but.is_some()) {
            self.captures.write_journals(pool, but, entry);
        }
    }
}

impl<D: Driver> Locked<'_, D> {
    /// The capture that a stream is in. `None` where it does not capture, as the legacy stream does not
    /// while a blocking stream captures.
    ///
    /// # Errors
    /// [`Error::CaptureInvalidated`], after what was done in the capture was rolled back; the driver's.
    #[inline]
    pub(super) fn capture_of(
        &mut self,
        stream: StreamHandle,
        call: &'static str,
    ) -> Result<Option<CaptureId>, Error> {
        match self.driver.capture_status(stream, &mut self.state.terminals) {
            Ok(CaptureStatus::Active { capture, .. }) => Ok(Some(capture)),
            Ok(CaptureStatus::None) => Ok(None),
            Ok(CaptureStatus::Invalidated) => Err(self.invalidated(stream, call)),
            Err(error) if error.kind == ErrorKind::CaptureImplicit => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at a stream of a capture, which is known to use the pool from now on, on the thread that
    /// captures into it from now on. `asked` is how many bytes the stream asks for, if it does.
    #[inline]
    pub(super) fn look_into(
        &mut self,
        stream: StreamHandle,
        capture: CaptureId,
        pool: PoolId,
        asked: Option<u64>,
        call: &'static str,
    ) -> Result<(CaptureSlot, StreamIndex), Error> {
        if let Some(slot) = self.state.familiar(capture, pool, stream) {
            return Ok((slot, self.look_and_ask(slot, stream, asked)));
        }
        self.state.assign_stream(stream);
        self.state.caches.set_capturing(stream);
        let slot = self.enter(call, capture, pool, stream)?;
        let index = self.look_and_ask(slot, stream, asked);
        self.take_over(slot);
        // What other threads had left to be freed may have shown that it is ruined.
        let ruined = Error::CaptureInvalidated { call, stream };
        self.state.captures.slot(capture).map(|_| (slot, index)).ok_or(ruined)
    }

    /// The row of a capture, new at its first sight, which is on `stream`, and known to use the pool from now on.
    fn enter(
        &mut self,
        call: &'static str,
        capture: CaptureId,
        pool: PoolId,
        stream: StreamHandle,
    ) -> Result<CaptureSlot, Error> {
        if let Some(slot) = self.state.captures.slot(capture) {
            self.join_pool(slot, pool);
            return Ok(slot);
        }
        if self.state.timelines.has_ended(capture) {
            return Err(Error::CaptureEnded { call, capture });
        }
        let terminals = std::mem::take(&mut self.state.terminals);
        let slot = self.add_capture(capture, stream);
        self.join_pool(slot, pool);
        self.state.record_capture(capture, pool, true);
        // What waits and is used in it can be told so from now on.
        self.poll_waits(usize::MAX);
        self.state.terminals = terminals;
        if let Some(row) = self.state.pools.get(pool) {
            let alone = row.captures() == 1 && row.graphs() > 0;
            if let Some(shared) = row.shared().filter(|_| alone) {
                self.state.pools.heap_mut(shared).close_idle();
            }
        }
        Ok(slot)
    }

    fn add_capture(&mut self, id: CaptureId, stream: StreamHandle) -> CaptureSlot {
        let settings = &self.config.settings;
        let trusted = if self.config.lacks(Flaw::EdgeKinds) {
            Programmatic::Trust
        } else {
            settings.programmatic
        };
        let outlook = self.outlook(Attempt::Again);
        // What is planned is planned from the record, and what is learned is learned from it.
        let planned = settings.plan != PlanChoice::None;
        let keeps = settings.check || self.config.journal || self.state.journals || planned;
        // A capture that was not announced may be another than the one that was expected.
        self.state.timelines.take_expected(stream);
        let heeds = !self.config.lacks(Flaw::SetBack);
        let slot = self.state.captures.add(id, || Capture::new(trusted, heeds));
        let added = self.state.captures.get_mut(slot);
        added.proof.set_outlook(outlook);
        added.journal = keeps.then(Journal::new);
        added.step = settings.growth_step_bytes.unwrap_or(0);
        slot
    }

    /// Has a capture keep a record from now on, if it keeps none. Says whether it keeps one: none begins once it
    /// has allocated a block, or freed one of its pools' that it may have again.
    pub(super) fn begin_journal(&mut self, slot: CaptureSlot) -> bool {
        let CaptureState { journal, proof, pools, .. } = self.state.captures.get(slot);
        if journal.is_some() {
            return true;
        }
        let pools = pools.clone();
        let mut heaps = pools.iter().flat_map(|&pool| self.state.pools.heaps_of(Some(pool)));
        if proof.handed_out() > 0
            || heaps.any(|heap| self.state.pools.heap(heap).given_back().next().is_some())
        {
            return false;
        }
        self.state.capture(slot).journal = Some(Journal::new());
        for pool in pools {
            self.state.journal_pool(slot, pool);
        }
        let CaptureState { proof, journal, .. } = self.state.capture(slot);
        if let Some(journal) = journal {
            proof.tell_all(self.driver, journal);
        }
        true
    }

    /// Notes that a capture uses a pool, and what lies there that is not the capture's own.
    pub(super) fn join_pool(&mut self, slot: CaptureSlot, pool: PoolId) {
        if self.state.capture(slot).pools.contains(&pool) {
            return;
        }
        self.hold_ordered(pool);
        let row = self.state.pools.get(pool);
        let planned = row.is_some_and(|row| row.config().plan.is_some());
        if planned {
            // What is planned is planned from the record; without one it has its memory at once.
            self.begin_journal(slot);
        }
        self.state.journal_pool(slot, pool);
        self.state.capture(slot).pools.push(pool);
        let Some(row) = self.state.pools.get_mut(pool) else { return };
        row.add_capture();
        let concurrent = row.captures() > 1;
        if concurrent {
            self.state.captures.of(pool).for_each(|it| it.concurrent = true);
        }
    }

    /// Takes over a capture from the thread that captured into it so far: the thread that asks for memory in
    /// it is the only one to capture into it now. What others left to be freed is freed.
    pub(super) fn take_over(&mut self, slot: CaptureSlot) {
        if !self.state.captures_here(self.state.captures.get(slot)) {
            let streams: smallvec::SmallVec<[StreamHandle; 8]> =
                self.state.captures.get(slot).streams().collect();
            for stream in streams {
                self.state.assign_stream(stream);
            }
            let mark = self.state.capturing_thread(self.state.captures.get(slot));
            self.state.capture(slot).capturing_thread = mark;
        }
        if self.state.capture(slot).left.is_empty() {
            return;
        }
        let left = std::mem::take(&mut self.state.capture(slot).left);
        for block in left {
            // Live until now, and no one else knows its name.
            let _ = self.free(block);
        }
    }

    /// Takes in the terminals that the driver has just given for a stream of a capture.
    #[inline]
    pub(super) fn look(&mut self, slot: CaptureSlot, stream: StreamHandle) -> StreamIndex {
        let State { captures, terminals, .. } = &mut *self.state;
        let capture_state = captures.get_mut(slot);
        let journal = capture_state.journal.as_mut();
        let index = capture_state.proof.look(self.driver, stream, terminals, journal);
        if capture_state.proof.broken_since(index, capture_state.set_backs_seen) {
            self.state.check_set_back(slot, index, stream);
        }
        index
    }

    /// Takes in the terminals of a stream that asks for a block of `asked` bytes, if it asks for one; a second time
    /// where the stream goes another way than was foreseen.
    #[inline]
    fn look_and_ask(
        &mut self,
        slot: CaptureSlot,
        stream: StreamHandle,
        asked: Option<u64>,
    ) -> StreamIndex {
        let index = self.look(slot, stream);
        match asked.is_some_and(|bytes| self.state.capture(slot).proof.ask(index, bytes)) {
            true => self.look(slot, stream),
            false => index,
        }
    }

    /// [`Locked::look`], entered into the record even where nothing has changed.
    pub(super) fn look_and_confirm(&mut self, slot: CaptureSlot, stream: StreamHandle) {
        let index = self.look(slot, stream);
        let CaptureState { proof, journal, .. } = self.state.capture(slot);
        if let Some(journal) = journal {
            proof.confirm(index, journal);
        }
    }

    /// Looks at a stream in a capture under way: `None` where the stream is not in it, or that is
    /// unknown.
    ///
    /// # Errors
    /// The stream, where it is in a capture that is ruined.
    pub(super) fn look_in(
        &mut self,
        slot: CaptureSlot,
        stream: StreamHandle,
    ) -> Result<Option<StreamIndex>, StreamHandle> {
        // Another thread's stream is not asked where it is: it may be capturing.
        if !self.state.may_look(slot, stream) {
            return Ok(None);
        }
        match self.driver.capture_status(stream, &mut self.state.terminals) {
            Ok(CaptureStatus::Active { capture, .. })
                if capture == self.state.captures.get(slot).id =>
            {
                Ok(Some(self.look(slot, stream)))
            }
            // If it was never seen in this capture, or that may be over, it is another that is ruined.
            Ok(CaptureStatus::Invalidated)
                if !self.config.late_ends
                    && self.state.capture(slot).proof.stream(stream).is_some() =>
            {
                Err(stream)
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Rolls back what was done in a capture that is ruined, and returns the error that says so.
    #[cold]
    pub(super) fn invalidated(&mut self, stream: StreamHandle, call: &'static str) -> Error {
        self.abandon_invalidated(stream);
        Error::CaptureInvalidated { call, stream }
    }

    /// Rolls back the capture that a stream was last seen in: it is ruined.
    pub(super) fn abandon_invalidated(&mut self, stream: StreamHandle) {
        // Where ends are told late that one may be over, and have a graph.
        let last = self.state.captures.last_of(stream).filter(|_| !self.config.late_ends);
        if let Some(slot) = last {
            // A capture that is ruined reports no other loss.
            let _ = self.end(slot, false);
        }
    }

    /// Whether no stream that a capture under way was seen on captures for it any more.
    pub(super) fn is_over(&self, id: CaptureId) -> bool {
        let Some(slot) = self.state.captures.slot(id) else { return true };
        let State { captures, timelines, .. } = &*self.state;
        captures.get(slot).streams().all(|stream| match timelines.ask(self.driver, stream) {
            StreamStatus::Outside => true,
            StreamStatus::Inside(other) => other != id,
            StreamStatus::Barred | StreamStatus::Unclear => false,
        })
    }
}
