//! Looking at what waits.

use super::deferred::Deferred;
use super::history::Action;
use super::lanes::Lanes;
use super::names::PoolId;
use super::state::{known, State};
use crate::driver::Driver;
use crate::journal::Entry;

impl State {
    /// Lets a range wait, without a look at it.
    pub(super) fn wait(&mut self, waiting: Deferred) {
        let number = self.deferred.insert(waiting);
        self.deferred.polled.push_back(number);
    }

    /// Lets a range wait, after a first look at it. Returns whether it is free already.
    pub(super) fn defer<D: Driver + ?Sized>(&mut self, driver: &D, waiting: Deferred) -> bool {
        let number = self.deferred.insert(waiting);
        let terminals = std::mem::take(&mut self.terminals);
        let free = self.look_at(driver, number);
        self.terminals = terminals;
        free
    }

    /// Looks at up to `most` lanes and `most` of the ranges that wait for something else, frees
    /// those that wait no longer, and tells the captures under way. Returns whether any was freed.
    pub(super) fn poll_deferred<D: Driver + ?Sized>(&mut self, driver: &D, most: usize) -> bool {
        let terminals = std::mem::take(&mut self.terminals);
        let mut freed = false;
        for _ in 0..most.min(self.deferred.polled.len()) {
            let Some(number) = self.deferred.polled.pop_front() else { break };
            freed |= self.look_at(driver, number);
        }
        // After that, since a look may have recorded an event that has completed by now.
        let mut ready = Vec::new();
        loop {
            self.lanes.poll(driver, most, &mut ready);
            if ready.is_empty() {
                break;
            }
            for number in ready.drain(..) {
                freed |= self.look_at(driver, number);
            }
        }
        self.terminals = terminals;
        freed
    }

    /// Looks at a range that waits; true if it is free now, else it goes on waiting.
    fn look_at<D: Driver + ?Sized>(&mut self, driver: &D, number: u32) -> bool {
        let Some(mut waiting) = self.deferred.take(number) else { return false };
        let beside = self.under_way(waiting.pool);
        let mut users = Vec::new();
        let all: Vec<_> = self.recordings.iter().flatten().map(|recording| recording.id).collect();
        let Self { lanes, recordings, .. } = self;
        let known = |lanes: &Lanes, capture| known(recordings, lanes, capture);
        let mut free = waiting.poll(driver, lanes, known, &beside, &all, &mut users);
        if !users.is_empty() {
            // In its row meanwhile: the captures' records are to name it.
            let pool = waiting.pool;
            self.deferred.put_back(number, waiting);
            for slot in
                users.into_iter().filter_map(|capture| self.slot(capture)).collect::<Vec<_>>()
            {
                self.join_pool(driver, slot, pool);
            }
            let Some(again) = self.deferred.take(number) else { return false };
            waiting = again;
        }
        if free {
            let graphs = waiting.graphs || waiting.captured || waiting.unclear;
            let may_order = !graphs && self.may_order(waiting.pool);
            if let Some(own) = waiting.own.take_if(|_| !may_order) {
                // A graph uses it, or a capture has begun in the pool since: what other streams take
                // from now on must come after the block's own stream too.
                self.lanes.fence(driver, own.lane);
                free = self.lanes.is_reached(own);
                waiting.marks.extend((!free).then_some(own));
            }
        }
        if free {
            self.deferred.forget(number);
            self.release_waiting(driver, waiting);
            return true;
        }
        match waiting.awaits() {
            Some(mark) => self.lanes.park(mark, number),
            None => self.deferred.polled.push_back(number),
        }
        self.deferred.put_back(number, waiting);
        false
    }

    /// Frees a range that waits for nothing any more.
    fn release_waiting<D: Driver + ?Sized>(&mut self, driver: &D, waiting: Deferred) {
        let Deferred { pool, heap, range, number, requested, .. } = waiting;
        let graphs = waiting.graphs || waiting.captured || waiting.unclear;
        if let Some(requested) = requested {
            let (address, _) = self.pools.heap_mut(heap).extent(range);
            self.remember(Action::Completed, (address, requested), None, pool);
        }
        match waiting.own {
            Some(own) => self.pools.heap_mut(heap).free_ordered(range, own.lane, own.epoch),
            None => {
                self.pools.heap_mut(heap).free_waiting(range, graphs);
                self.tell(pool, None, Entry::Settled { block: number });
            }
        }
        self.touch(heap);
        self.drop_uncached(driver, heap);
    }

    /// Whether what a stream gives back in this pool may be kept for the stream's own order. While
    /// a capture uses the pool its record must name everything that stands there, so nothing may
    /// be merged.
    pub(super) fn may_order(&self, pool: PoolId) -> bool {
        let Some(row) = self.pools.get(pool) else { return false };
        row.captures() == 0 && !self.pools.heap(row.small()).is_uncached()
    }

    /// Lets everything wait that streams have ordered in a pool: a capture is about to use it.
    pub(super) fn hold_ordered<D: Driver + ?Sized>(&mut self, driver: &D, pool: PoolId) {
        let Some(row) = self.pools.get(pool) else { return };
        for heap in row.heaps() {
            for (range, lane, epoch) in self.pools.heap_mut(heap).hold_ordered() {
                self.lanes.fence(driver, lane);
                let number = self.blocks.number();
                self.wait(Deferred {
                    pool,
                    heap,
                    range,
                    number,
                    streams: Default::default(),
                    marks: [super::lanes::Mark { lane, epoch }].into_iter().collect(),
                    captures: Default::default(),
                    graphs: false,
                    captured: false,
                    unclear: false,
                    looked: false,
                    users: Default::default(),
                    own: None,
                    requested: None,
                });
            }
            self.touch(heap);
        }
    }
}
