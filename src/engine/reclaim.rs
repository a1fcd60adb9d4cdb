//! Getting memory back: from stream caches, from streams whose work has completed, and to the driver.

use std::sync::Arc;

use super::history::EventKind;
use super::live_blocks::{CachedBlock, Origin};
use super::names::PoolId;
use super::report::Emptied;
use super::state::{Locked, State};
use super::stream_cache::Leases;
use crate::driver::{Driver, StreamHandle};
use crate::heap::{Change, Heap, Surplus, TimelineId};

/// How much memory is to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    /// From this pool alone, or from all.
    pub(super) pool: Option<PoolId>,
    /// At least so many bytes, if there are as many.
    pub(super) most: u64,
    /// The pool that it is for, which has no use for what it keeps then.
    pub(super) needs: Option<PoolId>,
}

impl Amount {
    pub(super) const ALL: Self = Self { pool: None, most: u64::MAX, needs: None };
}

impl State {
    /// Notes in counts and history what a heap got from the driver and gave back.
    pub(super) fn count_changes(&mut self, heap: u32) {
        if !self.pools.find_heap(heap).is_some_and(Heap::is_changed) {
            return;
        }
        let changes = self.pools.counted_heap_mut(heap).take_changes();
        let pool = self.pools.pool_of(heap);
        for Change { mapped, whole, address, bytes, pieces } in changes {
            let action = if mapped {
                self.accounts.counts().num_device_alloc += pieces as u64;
                if whole {
                    EventKind::Segment
                } else {
                    EventKind::Map
                }
            } else {
                self.accounts.counts().num_device_free += pieces as u64;
                if whole {
                    EventKind::SegmentBack
                } else {
                    EventKind::Unmap
                }
            };
            if bytes > 0 {
                self.note_segment(mapped, (address, bytes));
                self.record_event(action, (address, bytes), None, pool);
            }
        }
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Takes back what stream caches have cached, of one pool or of all, and of such a stream. Returns whether
    /// there was any.
    pub(super) fn take_back(
        &mut self,
        pool: Option<PoolId>,
        wanted: impl Fn(StreamHandle) -> bool,
    ) -> bool {
        let mut leases = Leases::new();
        let caches = Arc::clone(&self.state.caches);
        for mut cache in caches.used() {
            cache.drain(pool, |stream, _| wanted(stream), &mut leases);
        }
        self.end_leases(leases)
    }

    /// Takes back what a stream's own cache has cached for it of one pool, of small or of large blocks. Returns
    /// whether there was any.
    pub(super) fn take_back_own(
        &mut self,
        (pool, stream): (PoolId, StreamHandle),
        small: bool,
    ) -> bool {
        let mut leases = Leases::new();
        let wanted = |of, is_small| of == stream && is_small == small;
        self.state.caches.of(stream).drain(Some(pool), wanted, &mut leases);
        self.end_leases(leases)
    }

    /// Takes back what a stream cache has given up of what it had cached.
    pub(super) fn end_leases(&mut self, leases: Leases) -> bool {
        let any = !leases.is_empty();
        for lease in leases {
            let Some(block) = self.state.blocks.end_cached(lease.row) else { continue };
            let CachedBlock { number, pool, heap, range, .. } = block;
            self.state.tell_gone(number, (pool, heap, range), Origin::Outside);
            self.free_cached(block);
        }
        any
    }

    /// Asks every stream that has ordered something where it stands, without waiting, and frees
    /// for everyone what is completed: in the heaps of one pool, or of all. Returns whether that
    /// was anything.
    pub(super) fn free_completed(&mut self, pool: Option<PoolId>) -> bool {
        let mut freed = self.take_back(pool, |_| true);
        let timelines: Vec<TimelineId> = self.state.timelines.all().collect();
        for &timeline in &timelines {
            self.state.timelines.fence(self.driver, timeline);
        }
        freed |= self.poll_waits(usize::MAX);
        for heap in self.state.pools.heaps_of(pool) {
            freed |= self.free_completed_in(heap);
        }
        for timeline in timelines {
            let mut heaps = self.state.pools.heaps();
            if self.state.timelines.is_over(timeline)
                && !heaps.any(|heap| heap.has_stream_ordered(timeline))
            {
                self.state.timelines.recycle(timeline);
            }
        }
        freed
    }

    /// Frees for everyone what streams have completed in a heap.
    pub(super) fn free_completed_in(&mut self, heap: u32) -> bool {
        let State { timelines, pools, .. } = &mut *self.state;
        let row = pools.counted_heap_mut(heap);
        let settled = row.free_completed(|timeline| timelines.completed(timeline));
        if settled {
            pools.change(heap);
            self.drop_uncached(heap);
        }
        settled
    }

    /// Gives memory that is wholly free back to the driver, what was unused longest first, and
    /// returns how much. Nothing is waited for. What the driver refuses to take stays.
    pub(super) fn give_back(&mut self, amount: Amount) -> u64 {
        let mut gone = self.release_planned(amount.pool);
        let mut surplus: Vec<(u64, u32, Surplus)> = Vec::new();
        for heap in self.state.pools.heaps_of(amount.pool) {
            if !self.may_give_back(heap, amount) {
                continue;
            }
            // Of a suspended pool there is nothing to give back.
            let row = self.state.pools.heap_mut(heap);
            row.release_orphans(self.driver);
            let found = row.surplus();
            surplus.extend(found.into_iter().map(|it| (row.age(it.since), heap, it)));
        }
        // Of equals what lies highest: what is low is taken first again.
        surplus.sort_by_key(|&(age, heap, it)| {
            (std::cmp::Reverse(age), heap, std::cmp::Reverse(it.address))
        });
        for (_, heap, Surplus { id, .. }) in surplus {
            if gone >= amount.most {
                break;
            }
            let (bytes, _) =
                self.state.pools.heap_mut(heap).give_back(self.driver, id, amount.most - gone);
            gone += bytes;
        }
        gone
    }

    /// Whether what is free in a heap is for others, or for the pool that asks, and no work uses it.
    fn may_give_back(&self, heap: u32, amount: Amount) -> bool {
        let pool = self.state.pools.pool_of(heap);
        let is_for_all = || {
            amount.pool.is_some()
                || amount.needs == Some(pool)
                || self.state.pools.get(pool).is_none_or(|row| row.spare().is_given_back())
        };
        !self.state.is_settling(pool) && is_for_all()
    }

    /// In a heap that caches nothing: gives back what has become free.
    pub(super) fn drop_uncached(&mut self, heap: u32) {
        if !self.state.pools.find_heap(heap).is_some_and(Heap::is_uncached) {
            return;
        }
        let row = self.state.pools.heap_mut(heap);
        for Surplus { id, .. } in row.surplus() {
            // What the driver does not take stays for the next attempt.
            let _ = row.give_back(self.driver, id, u64::MAX);
        }
    }

    /// Gives back everything that is free now.
    pub(super) fn empty(&mut self, keep: u64) -> Emptied {
        self.free_completed(None);
        let before = self.state.pools.reserved_by_all();
        self.release_planned(None);
        if before > keep {
            // A pool that loses memory says so: it is suspended.
            let _ = self.drop_premapped_of_all(None);
        }
        self.destroy_leaving();
        let most = self.state.pools.reserved_by_all().saturating_sub(keep);
        let gone = before.saturating_sub(self.state.pools.reserved_by_all());
        let released = gone + self.give_back(Amount { pool: None, most, needs: None });
        let awake = self.state.pools.heaps().filter(|heap| !heap.presence().is_shut());
        let waiting = awake.map(|heap| heap.waiting().1 + heap.stream_ordered_bytes());
        let planned = self.state.pools.iter_planned().filter(|heap| !heap.presence().is_shut());
        let waiting = waiting.sum::<u64>() + planned.map(|heap| heap.waiting().1).sum::<u64>();
        Emptied { released, waiting, reserved: self.state.pools.reserved_by_all() }
    }
}
