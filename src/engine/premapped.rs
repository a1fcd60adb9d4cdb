//! When premapped memory of heaps is released.
//!
//! A heap may exchange a piece only while every block ever placed in it is one of captures under way
//! and nothing outside them uses it; see `heap/premapped.rs`. So premapped memory goes, or is kept, before
//!
//! * a capture of its pool ends: only from then on may a graph with such blocks run;
//! * work outside captures is handed a place in its pool;
//! * a use of such a block outside its capture is recorded.
//!
//! It goes as well where memory is short.
//!
//! While a piece is exchanged its addresses are mapped nowhere for a moment, and a copy that another
//! thread captures just then would fail. So it is done only where every stream of every capture of
//! the pool is the calling thread's; but for those of a capture that ends, for its work is done.

use super::capture_state::CaptureState;
use super::names::PoolId;
use super::state::{Locked, State};
use crate::driver::{Driver, DriverError, StreamHandle};
use crate::heap::{CaptureSlot, Heap, RangeId, Requester};

impl State {
    /// Bytes that all heaps hold premapped.
    pub(super) fn premapped_bytes(&self) -> u64 {
        self.pools.heaps().map(Heap::premapped).sum()
    }

    fn has_premapped(&self, pool: PoolId) -> bool {
        let Some(row) = self.pools.get(pool) else { return false };
        row.heaps().into_iter().any(|heap| self.pools.heap(heap).premapped() > 0)
    }

    /// Whether no thread but this one can be at work in captures of a pool, but for one.
    fn is_mine_alone(&self, pool: PoolId, but: Option<CaptureSlot>) -> bool {
        let mut others = self
            .captures
            .with_slots()
            .filter(|(slot, other)| but != Some(*slot) && other.pools.contains(&pool));
        others.all(|(_, other)| other.streams().all(|it| self.timelines.is_mine(it)))
    }

    /// Whether every capture under way in a pool may map ahead: else a graph with blocks in it may run
    /// already.
    fn may_exchange(&self, pool: PoolId) -> bool {
        let mut captures = self.captures.iter();
        captures.all(|capture_state| !capture_state.pools.contains(&pool) || capture_state.step > 0)
    }

    fn keep_premapped(&mut self, pool: PoolId) {
        let Some(row) = self.pools.get(pool) else { return };
        for heap in row.heaps() {
            if self.pools.heap(heap).premapped() > 0 {
                self.pools.heap_mut(heap).keep_premapped(None);
            }
        }
    }

    /// Makes the premapped memory of the piece that a range lies in idle.
    pub(super) fn keep_piece(&mut self, heap: u32, range: RangeId) {
        if self.pools.find_heap(heap).is_some_and(|heap| heap.premapped() > 0) {
            let heap = self.pools.heap_mut(heap);
            heap.keep_premapped(Some(heap.extent(range)));
        }
    }
}

impl<D: Driver> Locked<'_, D> {
    /// How much growth for a requester may map at once ahead of what is asked for, in bytes.
    pub(super) fn step(&self, pool: PoolId, requester: Requester) -> u64 {
        match requester {
            // Else it could not be released.
            Requester::Capture { capture, .. }
                if self.state.is_mine_alone(pool, Some(capture))
                    && self.state.may_exchange(pool)
                    && !self.is_over_threshold() =>
            {
                self.state.captures.get(capture).step
            }
            _ => 0,
        }
    }

    /// Whether what is premapped would be given back before the next growth.
    fn is_over_threshold(&self) -> bool {
        let allowed = self.garbage_threshold();
        allowed.is_some_and(|allowed| self.state.pools.reserved_by_all() > allowed)
    }

    /// Gives the premapped memory of a pool back before a capture ends; what cannot go is kept as idle
    /// memory.
    pub(super) fn drop_premapped_at_end(&mut self, pool: PoolId, capture: CaptureSlot) {
        let may = self.state.may_exchange(pool) && self.state.is_mine_alone(pool, Some(capture));
        if self.state.has_premapped(pool) && may {
            // Whom a loss concerns is told at its capture's end.
            let _ = self.drop_premapped(pool);
        }
        self.state.keep_premapped(pool);
    }

    /// Gives the premapped memory of a pool back before work outside captures is handed a place in it; what
    /// cannot go is kept as idle memory.
    ///
    /// # Errors
    /// The driver's, where memory of the pool is lost: it is suspended now.
    pub(super) fn drop_premapped_for_eager(&mut self, pool: PoolId) -> Result<(), DriverError> {
        if self.state.has_premapped(pool)
            && self.state.may_exchange(pool)
            && self.state.is_mine_alone(pool, None)
        {
            self.drop_premapped(pool)?;
        }
        self.state.keep_premapped(pool);
        Ok(())
    }

    /// Gives back what premapped memory may be exchanged now, of all pools. Returns whether there was
    /// any.
    ///
    /// # Errors
    /// The driver's, where memory of the pool that is named is lost: it is suspended now.
    pub(super) fn drop_premapped_of_all(
        &mut self,
        of: Option<PoolId>,
    ) -> Result<bool, DriverError> {
        let mut released = false;
        let mut result = Ok(());
        for pool in self.state.pools.ids() {
            if self.state.has_premapped(pool)
                && self.state.may_exchange(pool)
                && self.state.is_mine_alone(pool, None)
            {
                released = true;
                let done = self.drop_premapped(pool);
                result =
                    result.and(done.or_else(
                        |error| {
                            if of == Some(pool) {
                                Err(error)
                            } else {
                                Ok(())
                            }
                        },
                    ));
            }
        }
        result.map(|()| released)
    }

    fn drop_premapped(&mut self, pool: PoolId) -> Result<(), DriverError> {
        let Some(row) = self.state.pools.get(pool) else { return Ok(()) };
        let heaps = row.heaps();
        let mut result = Ok(());
        for heap in heaps {
            if self.state.pools.heap(heap).premapped() == 0 {
                continue;
            }
            let limit = self.state.room(pool);
            self.state.pools.heap_mut(heap).create_replacements(self.driver, limit);
            // Both pieces are held for a moment: peaks are to show it.
            self.state.account_heap(heap, self.config.statistics);
            self.state.note_peaks();
            result = result.and(self.state.pools.heap_mut(heap).release_premapped(self.driver));
        }
        if let Err(error) = &result {
            self.lose(pool, error);
        }
        result
    }

    /// A pool has lost memory: nothing more of it is handed out, and no capture under way that
    /// uses it can stand.
    fn lose(&mut self, pool: PoolId, error: &DriverError) {
        self.state.keep_premapped(pool);
        self.shut(pool);
        for CaptureState { lost, .. } in self.state.captures.of(pool) {
            lost.get_or_insert_with(|| error.clone());
        }
    }

    /// Notes that a stream is about to be recorded for a block of a capture: if the stream is not
    /// known to be in the capture, the piece that the block lies in stays as it is.
    pub(super) fn keep_piece_in_use(
        &mut self,
        capture: CaptureSlot,
        (heap, range): (u32, RangeId),
        stream: StreamHandle,
    ) {
        if self.state.pools.find_heap(heap).is_none_or(|heap| heap.premapped() == 0) {
            return;
        }
        if !matches!(self.look_in(capture, stream), Ok(Some(_))) {
            self.state.keep_piece(heap, range);
        }
    }
}
