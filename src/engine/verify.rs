//! What holds of an engine's state between calls: the page to read before any of its tables is changed.
//!
//! Each function below finds what does not hold of one of them (design/architecture.md says what does); a table with
//! private fields is checked in its own file. [`HostCalls::verify`](crate::engine::HostCalls::verify) runs all of it at
//! the cost of a look at each row. An engine without one of its safety rules ([`Flaw`](super::config::Flaw)) need not
//! hold to it.
//!
//! A *call* is what happens while the engine's lock is held; calls that the stream caches answer hold the lock of one
//! of them instead. All are taken here.

use super::captures::CaptureState;
use super::figures::{
    class, Amounts, ALLOCATED, ALLOCATIONS, REQUESTED, RESERVED, SEGMENTS, SPLIT, SPLIT_BYTES,
    SUSPENDED, WAITING, WAITING_BYTES,
};
use super::live_blocks::{LiveBlock, Origin, Tenure};
use super::pools::{with_heap, PoolRow, Pools};
use super::stream_cache::{StreamCache, StreamCaches};
use super::waits::Wait;
use super::{Engine, State};
use crate::driver::Driver;
use crate::heap::verify::{holds, Verdict};
use crate::heap::{Holding, Presence, RangeId, RangeState, Users};
use crate::sync::{MutexGuard, Ordering};

/// The state with every lock held.
struct Page<'a> {
    state: &'a State,
    /// Those that were ever used.
    caches: &'a [MutexGuard<'a, StreamCache>],
}

/// What a range is to others than its heap: in a block, or waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claimant {
    Block,
    Waits,
}

pub(super) fn verify<D: Driver>(engine: &Engine<D>) -> Verdict {
    // After a panic with its lock held an engine hands nothing out: its books may be wrong.
    let Ok(state) = engine.lock() else { return Ok(()) };
    let caches: Vec<_> = engine.caches.used().collect();
    let page = Page { state: &state, caches: &caches };
    page.pools_and_heaps()?;
    page.addresses_are_apart()?;
    page.live_blocks()?;
    page.stream_caches()?;
    page.timelines()?;
    page.what_waits()?;
    page.ranges_have_holders()?;
    page.captures()?;
    page.graphs()?;
    page.lent_memory()?;
    page.planned_captures()?;
    page.sleep()?;
    page.figures(&engine.caches)
}

impl Page<'_> {
    /// The table of pools and each heap keep to their own pages.
    fn pools_and_heaps(&self) -> Verdict {
        let pools = &self.state.pools;
        pools.verify()?;
        for (_, heap) in pools.each_heap() {
            with_heap!(pools, heap, |row| row.verify()).map_err(|what| self.of(heap, &what))?;
        }
        Ok(())
    }

    /// No address is reserved twice, whichever heap has it.
    fn addresses_are_apart(&self) -> Verdict {
        let pools = &self.state.pools;
        let heaps = pools.heaps().flat_map(|heap| heap.reservations());
        let planned = pools.iter_planned().flat_map(|heap| heap.reservations());
        let mut all: Vec<(u64, u64)> = heaps.chain(planned).collect();
        all.sort_unstable();
        let twice = all.windows(2).find(|pair| pair[0].1 > pair[1].0);
        holds!(twice.is_none(), "addresses are reserved twice: {twice:x?}");
        Ok(())
    }

    /// A block of a capture under way is known there by its row, or by its name where it waits for that capture's
    /// thread to free it.
    fn live_blocks(&self) -> Verdict {
        let State { blocks, pools, captures, .. } = self.state;
        for (_, block, ..) in blocks.each() {
            let homed = pools.find_pool(block.site.heap).is_some();
            holds!(homed, "a block of no pool: {block:?}");
        }
        blocks.verify(|block| pools.place(block.site))?;
        let mut left = 0;
        for (_, block, name, is_recent) in blocks.each() {
            let pool = pools.pool_of(block.site.heap);
            let known = match block.origin {
                Origin::Capture(home) => captures.find(home.slot).is_some_and(|capture| {
                    let listed = name.map_or(is_recent || capture.concurrent(), |name| {
                        capture.left.contains(&name)
                    });
                    let seen = home.stream.index() < capture.proof.seen();
                    listed && seen && capture.pools().contains(&pool)
                }),
                Origin::Outside | Origin::Past | Origin::Graph => name.is_none(),
            };
            holds!(known, "{pool} has a block that no capture knows: {block:?}");
            left += usize::from(name.is_some());
        }
        let named: usize = captures.iter().map(|it| it.left.len()).sum();
        holds!(left == named, "{left} blocks are left to be freed, captures name {named}");
        Ok(())
    }

    /// A leased row is one live block, which was handed out outside captures; a pool that is shut has none cached.
    fn stream_caches(&self) -> Verdict {
        let blocks = &self.state.blocks;
        let mut leases = Vec::new();
        for cache in self.caches {
            cache.verify().map_err(|what| format!("stream cache {}: {what}", cache.number()))?;
            for (id, cached, lease) in cache.leases() {
                let (pool, bytes, stream) = cache.entered(id);
                let block = blocks.leased(lease.row).filter(|block| {
                    let streams = stream.is_none_or(|stream| stream == block.asked.stream)
                        && lease.asked.stream == block.asked.stream;
                    let same = block.site.is_in(pool) && block.bytes == bytes && streams;
                    same && block.is_leased() && matches!(block.origin, Origin::Outside)
                });
                let shut = cached && self.state.pools.is_shut(pool);
                holds!(block.is_some() && !shut, "a lease of no block: {lease:?}");
                leases.push(lease.row);
            }
        }
        leases.sort_unstable();
        let leased = blocks.each().filter(|(_, block, ..)| block.is_leased());
        let leased = leased.map(|(slot, ..)| slot).eq(leases.iter().copied());
        holds!(leased, "leases {leases:?} are not the blocks that are leased");
        Ok(())
    }

    /// A mark, wherever one is kept, is reached or will be: a fence behind it is there, or owed, or asked for. A range
    /// may be ordered by a position of a timeline whose stream is gone: that is completed.
    fn timelines(&self) -> Verdict {
        let State { timelines, pools, waiting, blocks, captures, .. } = self.state;
        timelines.verify()?;
        let waiting = waiting.iter().flat_map(|it| it.awaited().0);
        let gone = blocks.iter().filter_map(|block| block.gone.as_deref().copied());
        let expected = captures.iter().filter_map(|capture| capture.expected());
        waiting.chain(gone).chain(expected).try_for_each(|it| timelines.verify_mark(it))?;
        for pool in pools.iter() {
            for marks in [pool.settling(), pool.borrowers()] {
                marks.iter().try_for_each(|&mark| timelines.verify_mark(mark))?;
                let mut rows: Vec<_> = marks.iter().map(|mark| mark.timeline).collect();
                rows.sort_unstable();
                let once = rows.windows(2).all(|pair| pair[0] < pair[1]);
                holds!(once, "{} waits for a timeline twice: {marks:?}", pool.label());
            }
            for heap in pool.heaps() {
                let mut ordered = pools.heap(heap).ordered_marks();
                ordered.try_for_each(|mark| timelines.verify_mark(mark))?;
            }
        }
        Ok(())
    }

    /// What waits is a range of its pool's, with a number that was given.
    fn what_waits(&self) -> Verdict {
        let State { timelines, pools, waiting, captures, .. } = self.state;
        waiting.verify(timelines.parked(), captures)?;
        for wait in waiting.iter() {
            let homed = pools.find_pool(wait.site().heap).is_some();
            let named = wait.site().number < self.state.blocks.next_number();
            holds!(homed && named, "what waits is no pool's: {wait:?}");
        }
        Ok(())
    }

    /// A range that is in a block is one live block's; a range that waits is one of what waits.
    fn ranges_have_holders(&self) -> Verdict {
        let State { pools, blocks, waiting, .. } = self.state;
        let live = blocks.iter().map(|block| (block.site.heap, block.site.range, Claimant::Block));
        let waiting = waiting.iter().map(Wait::site);
        let waiting = waiting.map(|site| (site.heap, site.range, Claimant::Waits));
        let mut holders: Vec<_> = live.chain(waiting).collect();
        holders.sort_unstable();
        let mut ranges: Vec<(u32, RangeId, Claimant)> = Vec::with_capacity(holders.len());
        for (_, heap) in pools.each_heap() {
            with_heap!(pools, heap, |row| ranges.extend(row.each_state().filter_map(
                |(id, state)| {
                    match state {
                        RangeState::Allocated => Some((heap, id, Claimant::Block)),
                        RangeState::Waiting => Some((heap, id, Claimant::Waits)),
                        _ => None,
                    }
                }
            )));
        }
        ranges.sort_unstable();
        if holders == ranges {
            return Ok(());
        }
        let at = holders.iter().zip(&ranges).take_while(|(holder, range)| holder == range).count();
        let (holder, range) = (holders.get(at), ranges.get(at));
        Err(format!("of holders and ranges, in order, {holder:?} has none, or {range:?} has none"))
    }

    /// What a capture gave back is known by its nodes and by one of its streams.
    fn captures(&self) -> Verdict {
        let State { pools, captures, .. } = self.state;
        captures.verify()?;
        let all: Vec<&CaptureState> = captures.iter().collect();
        for capture in &all {
            let there = capture.pools().iter().all(|&pool| pools.get(pool).is_some());
            holds!(there, "capture {} is of no pool", capture.id().0);
        }
        for pool in pools.iter() {
            let label = pool.label();
            let uses = |it: &&&CaptureState| it.pools().contains(&label.id);
            let users: Vec<_> = all.iter().filter(uses).collect();
            let counted: usize =
                all.iter().flat_map(|it| it.pools()).filter(|&&it| it == label.id).count();
            let right = users.len() == counted && counted == pool.captures();
            holds!(right, "{label} counts {} captures, {counted} use it", pool.captures());
            let beside = users.len() < 2 || users.iter().all(|capture| capture.concurrent());
            holds!(beside, "{label} has captures beside each other that do not know it");
            for heap in pool.heaps() {
                let row = pools.heap(heap);
                let ordered = counted > 0 && row.stream_ordered_ranges() > 0;
                let premapped = counted == 0 && row.premapped() > 0;
                holds!(!ordered && !premapped, "{}", self.of(heap, "as without its captures"));
                for (id, range) in row.each_range() {
                    let RangeState::Pending { capture, owner, .. } = range.state() else {
                        continue;
                    };
                    let home = captures.find(capture).filter(|it| it.pools().contains(&label.id));
                    let known = home.is_some_and(|home| {
                        let nodes = home.proof.nodes();
                        let markers = row.markers(id);
                        owner.index() < home.proof.seen()
                            && markers.iter().all(|marker| marker.index() < nodes)
                    });
                    holds!(known, "{}: {range:?}", self.of(heap, "a range of no capture"));
                }
            }
        }
        Ok(())
    }

    /// Without graphs, and a capture that may become one, nothing of a pool is graphs' but what a capture that was not
    /// announced may have used, and live blocks that a restoration put there.
    fn graphs(&self) -> Verdict {
        let State { pools, blocks, waiting, .. } = self.state;
        for pool in pools.iter() {
            let label = pool.label();
            let users = pools.each_graph().flat_map(|(uses, _)| uses);
            let counted = users.filter(|&&it| it == label.id).count();
            let graphs = pool.graphs();
            holds!(counted == graphs, "{label} counts {graphs} graphs of {counted}");
            if !pool.is_without_graphs() {
                continue;
            }
            let of_graphs = |block: &&LiveBlock| {
                let restored = matches!(block.tenure, Tenure::Restored(_));
                let memory = block.tenure.users().are_graphs() && !restored;
                memory || matches!(block.origin, Origin::Graph)
            };
            let block = blocks.of(label.id).find(of_graphs);
            holds!(block.is_none(), "{label} has no graphs, and a block of theirs: {block:?}");
            let waiting = waiting.graphs_in(label.id);
            holds!(waiting.is_none(), "{label} has no graphs, and of theirs waits {waiting:?}");
            let heaps = pool.heaps().into_iter().flat_map(|heap| pools.heap(heap).each_range());
            let mut lent = heaps.map(|(_, range)| range.state());
            let lent =
                lent.any(|it| matches!(it, RangeState::StreamOrdered { users: Users::Lent, .. }));
            let ends = pool.lent() == (0, 0) && pool.borrowers().is_empty();
            holds!(!lent && ends, "{label} has no graphs, and lends their memory");
        }
        let uses = pools.each_graph().flat_map(|(uses, _)| uses);
        let gone = uses.copied().find(|&pool| pools.get(pool).is_none());
        holds!(gone.is_none(), "a graph uses a pool that is gone: {gone:?}");
        Ok(())
    }

    /// While a pool has live blocks in lent memory, or work to come after, or is shut, its next launch asks.
    fn lent_memory(&self) -> Verdict {
        let State { pools, blocks, .. } = self.state;
        for pool in pools.iter() {
            let label = pool.label();
            let lent = blocks.of(label.id).filter(|block| matches!(block.tenure, Tenure::Lent(_)));
            let lent = lent.fold((0, 0), |all, block| (all.0 + 1, all.1 + block.bytes));
            holds!(lent == pool.lent(), "{label} has lent {lent:?} and counts {:?}", pool.lent());
            let lends = lent.0 > 0 || !pool.borrowers().is_empty();
            let asks = pool.asks().load(Ordering::Relaxed) || !(lends || pools.is_shut(label.id));
            holds!(asks, "{label} lends or is shut, and its next launch does not ask");
        }
        Ok(())
    }

    /// Planned memory belongs to a capture under way that uses the pool, or to a graph that knows of it.
    fn planned_captures(&self) -> Verdict {
        let State { pools, captures, .. } = self.state;
        for pool in pools.iter() {
            let (label, planned) = (pool.label(), pool.planned_heap());
            for (id, under_way) in planned.into_iter().flat_map(|heap| heap.owners()) {
                let known = match captures.slot(id) {
                    Some(slot) if under_way => captures.get(slot).pools().contains(&label.id),
                    _ if under_way => false,
                    _ => pools
                        .each_graph()
                        .any(|(uses, planned)| *planned == Some(id) && uses.contains(&label.id)),
                };
                holds!(known, "{label} has planned memory of capture {}, which is over", id.0);
            }
        }
        Ok(())
    }

    /// Heaps of a pool may be shut in different ways. One keeper keeps what all pools of a region hold.
    fn sleep(&self) -> Verdict {
        let pools = &self.state.pools;
        for pool in pools.iter() {
            let label = pool.label();
            let presence: Vec<Presence> = pools.holdings(label.id).map(Holding::presence).collect();
            let shut = presence[0].is_shut();
            let together = presence.iter().all(|it| it.is_shut() == shut);
            holds!(together, "heaps of {label} are there and away: {presence:?}");
            let kept = pools.keeper_of(label.id).is_some();
            holds!(kept || !pools.is_moving(label.id), "{label} moves, and nothing keeps it");
            let Some(keeper) = pools.keeper_of(label.id) else { continue };
            let region = label.tag.as_deref().map(|tag| pools.keeper_of_region(tag));
            let agrees = region.is_some_and(|known| known.is_none_or(|it| it == keeper));
            holds!(
                shut && agrees,
                "{label} is kept by {keeper}, its region by {region:?}: {presence:?}"
            );
        }
        Ok(())
    }

    /// Of heaps whose change is not noted the counters say what is so. What all counters may count without asking is no
    /// more than the peak.
    fn figures(&self, caches: &StreamCaches) -> Verdict {
        let State { pools, blocks, accounts, .. } = self.state;
        let mut sums: Vec<[Amounts; 3]> = Vec::new();
        accounts.counters().verify(&mut sums)?;
        for cache in self.caches {
            let counters = cache.verify_counters(&mut sums);
            counters.map_err(|what| format!("stream cache {}: {what}", cache.number()))?;
        }
        caches.peaks().verify(&sums)?;
        for pool in pools.iter() {
            let label = pool.label();
            for small in [true, false] {
                let live = blocks.of(label.id).filter(|block| !block.is_leased());
                let live = live.filter(|block| Pools::is_small(block.site.heap) == small);
                let live = live.fold([0; 3], |all, block| {
                    [all[0] + 1, all[1] + block.bytes, all[2] + block.asked.requested]
                });
                let live = live.map(|it| it as i64);
                let name = if small { "small" } else { "large" };
                let counted = accounts.counters().amounts(label.id.row(), class(small));
                let counted = [ALLOCATIONS, ALLOCATED, REQUESTED].map(|kind| counted[kind]);
                holds!(live == counted, "{label} has {live:?} {name} blocks, {counted:?} counted");
                self.counters_of(pool, small, live)
                    .map_err(|what| format!("{label}, {name} blocks: {what}"))?;
            }
        }
        Ok(())
    }

    /// What the engine's counter of a pool's small or large blocks says, given the live ones.
    fn counters_of(&self, pool: &PoolRow, small: bool, live: [i64; 3]) -> Verdict {
        let State { pools, blocks, accounts, .. } = self.state;
        let first = pool.heaps()[usize::from(!small)];
        let planned = pool.planned().filter(|_| !small);
        if pools.is_changed(first) || planned.is_some_and(|heap| pools.is_changed(heap)) {
            return Ok(());
        }
        let heap = pools.heap(first);
        holds!(!heap.is_changed(), "memory came or went, and it is not noted");
        let mut expected = Amounts::default();
        let (split, free) = heap.free_pieces();
        (expected[SPLIT], expected[SPLIT_BYTES]) = (split as i64, free as i64);
        expected[SPLIT_BYTES] += blocks.leased_bytes(pool.label().id.row(), class(small));
        [expected[ALLOCATIONS], expected[ALLOCATED], expected[REQUESTED]] = live;
        for heap in [Some(first), planned].into_iter().flatten() {
            with_heap!(pools, heap, |heap| {
                expected[SEGMENTS] += heap.holding().pieces() as i64;
                expected[RESERVED] += heap.reserved() as i64;
                expected[SUSPENDED] += heap.holding().suspended() as i64;
                expected[WAITING] += heap.holding().waiting().0 as i64;
                expected[WAITING_BYTES] += heap.holding().waiting().1 as i64;
            });
        }
        let counted = accounts.counters().amounts(pool.label().id.row(), class(small));
        holds!(counted == expected, "{counted:?} is counted, {expected:?} is so");
        Ok(())
    }

    /// A sentence about a heap, with its name.
    fn of(&self, heap: u32, what: &str) -> String {
        let pool = self.state.pools.find_pool(heap).map(PoolRow::label);
        let pool = pool.map_or("no pool".to_owned(), |pool| pool.to_string());
        let kind = match (Pools::is_small(heap), Pools::is_planned(heap)) {
            (true, _) => "small",
            (_, true) => "planned",
            _ => "large",
        };
        format!("{pool}, heap of {kind} blocks: {what}")
    }
}
