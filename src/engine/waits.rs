//! Freed memory that waits for something outside the proof: a capture's end, or work that was
//! submitted outside captures (`design/safety.md`, "What waits, and until when").
//!
//! Only captures that run at the free can use the block. One that was not announced is detected by the look at
//! the block's streams at the free, never later; later looks find out when the streams have left their captures.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::captures::Captures;
use super::history::{Asked, EventKind};
use super::live_blocks::BlockSite;
use super::names::PoolId;
use super::report::WaitReason;
use super::streams::{StreamStatus, Timelines};
use super::{Locked, State};
use crate::driver::{CaptureId, Driver, StreamHandle};
#[cfg(debug_assertions)]
use crate::heap::verify::{holds, times, Verdict};
use crate::heap::{CaptureSlot, Cut, Ended, Mark, RangeId, Users};
use crate::index::Table;
use crate::journal::Entry;

/// A range that waits.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    site: BlockSite,
    /// Streams without a mark yet.
    streams: SmallVec<[StreamHandle; 2]>,
    positions: SmallVec<[Mark; 2]>,
    /// Captures that must end, each with whether one of the streams was found in it: its graph uses the memory.
    captures: SmallVec<[(CaptureId, bool); 2]>,
    /// A capture before whose end no look tells anything new; and why it proves nothing, where the row was freed in it.
    held: Option<(CaptureSlot, Option<WaitReason>)>,
    /// Eager, graphs' memory, or memory of graphs that was lent.
    users: Users,
    unannounced: Unannounced,
    /// Where its own stream had done with the block, if that was no reason to wait.
    own: Option<Mark>,
    /// What was asked for, where it is one block whose end the history has yet to tell.
    asked: Option<Asked>,
}

/// Whether one of a range's streams was in a capture that was not announced, so that its graph may use the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unannounced {
    /// No look has told yet where each stream was.
    Untold,
    No,
    /// It was last seen capturing, in an unknown capture, when no capture was under way as far as the engine knew.
    Perhaps,
    Yes,
    /// It does not matter, nor do captures that were: the host promises that no graph uses the memory.
    Promised,
}

impl Wait {
    /// A range that waits for nothing yet.
    pub(super) fn new(site: BlockSite, users: Users) -> Self {
        Self {
            site,
            streams: SmallVec::new(),
            positions: SmallVec::new(),
            captures: SmallVec::new(),
            held: None,
            users,
            unannounced: Unannounced::Untold,
            own: None,
            asked: None,
        }
    }

    /// One that waits for these captures too, and of which so much is known of others that may use it.
    pub(super) fn beside(mut self, captures: &[CaptureId], others: Unannounced) -> Self {
        self.captures = captures.iter().map(|&capture| (capture, false)).collect();
        self.unannounced = others;
        self
    }

    /// One that waits for all that these streams have been given, too, from when they do not capture.
    pub(super) fn on(mut self, streams: SmallVec<[StreamHandle; 2]>) -> Self {
        self.streams = streams;
        self
    }

    /// One that waits for these positions too.
    pub(super) fn behind(mut self, marks: impl IntoIterator<Item = Mark>) -> Self {
        self.positions.extend(marks);
        self
    }

    /// A block that was asked for so, with the position where its own stream had done with it, if it need not wait for
    /// that.
    pub(super) fn of(mut self, asked: Asked, own: Option<Mark>) -> Self {
        (self.asked, self.own) = (Some(asked), own);
        self
    }

    read!(site: BlockSite);

    /// What was asked for, where it is one block whose end the history has yet to tell.
    pub(super) fn asked(&self) -> Option<&Asked> {
        self.asked.as_ref()
    }

    /// The positions that it waits for, that of its own stream included, and the streams whose positions are not known.
    pub(super) fn awaited(&self) -> (impl Iterator<Item = Mark> + '_, &[StreamHandle]) {
        (self.positions.iter().copied().chain(self.own), &self.streams)
    }

    /// Has it wait for these captures too; `used` says that one of its streams was found in them.
    fn wait_for(&mut self, found: &[CaptureId], used: bool) {
        for &capture in found {
            match self.captures.iter_mut().find(|it| it.0 == capture) {
                Some(known) => known.1 |= used,
                None => self.captures.push((capture, used)),
            }
        }
    }

    /// Takes another look at a range of this pool; true once it is free. The captures that one of its streams is
    /// found in are put into `users`, and noted: their graphs may use the memory, and each may be a part of
    /// one of those under way in the pool.
    ///
    /// Errors of the driver leave it waiting: what cannot be shown is not free.
    pub(super) fn poll<D: Driver>(
        &mut self,
        driver: &D,
        pool: PoolId,
        timelines: &mut Timelines,
        under_way: &Captures,
        users: &mut Vec<CaptureId>,
    ) -> bool {
        let first = matches!(self.unannounced, Unannounced::Untold | Unannounced::Perhaps);
        if self.unannounced == Unannounced::Untold {
            self.unannounced = Unannounced::No;
        }
        let mut streams = std::mem::take(&mut self.streams);
        let promised = self.unannounced == Unannounced::Promised;
        streams.retain(|&mut stream| match timelines.ask(driver, stream) {
            StreamStatus::Unclear if promised => true,
            // Where all streams were in announced captures when the block was freed, a stream that is in another one
            // now came into that only since: its graph cannot use the block.
            StreamStatus::Inside(capture)
                if !promised && (first || self.unannounced != Unannounced::No) =>
            {
                if under_way.slot(capture).is_some() {
                    users.push(capture);
                    self.wait_for(&[capture], true);
                } else if !timelines.has_ended(capture) {
                    // Never heard of: the host has not said whose graph it will be.
                    if first {
                        self.unannounced = Unannounced::Yes;
                    }
                    self.wait_for(&under_way.ids_of(pool), false);
                }
                true
            }
            // A mark on a stream that captures is reached by an event that is recorded afterwards.
            StreamStatus::Outside | StreamStatus::Inside(_) => {
                let mark = timelines.open_mark(stream);
                timelines.fence(driver, mark.timeline);
                self.positions.push(mark);
                false
            }
            StreamStatus::Barred => true,
            StreamStatus::Elsewhere => {
                self.positions.push(timelines.mark_elsewhere(driver, stream));
                false
            }
            StreamStatus::Unclear => {
                // By the next look that may be over. Any capture under way may be the one.
                let all: Vec<CaptureId> = under_way.iter().map(|it| it.id()).collect();
                self.unannounced = match self.unannounced {
                    Unannounced::Yes => Unannounced::Yes,
                    _ if first && all.is_empty() => Unannounced::Perhaps,
                    _ if first => Unannounced::Untold,
                    _ => Unannounced::No,
                };
                users.extend(&all);
                self.wait_for(&all, true);
                true
            }
        });
        self.streams = streams;
        self.positions.retain(|&mut mark| !timelines.is_reached(mark));
        // No look tells anything new before the captures that must end have ended.
        let one = self.captures.iter().find_map(|it| under_way.slot(it.0));
        self.held = one.filter(|_| self.streams.is_empty()).map(|one| (one, None));
        self.streams.is_empty() && self.positions.is_empty() && self.captures.is_empty()
    }

    /// Whose the memory is once it is free: that of a graph that uses it, or may; else whose it was.
    fn users(&self) -> Users {
        let unannounced = matches!(self.unannounced, Unannounced::Perhaps | Unannounced::Yes);
        match self.users {
            Users::Lent if unannounced || self.captures.iter().any(|it| it.1) => Users::Graphs,
            users => users.or_graphs(unannounced),
        }
    }

    /// The pool has no graph any more, and no capture that may become one.
    pub(super) fn forget_graphs(&mut self) {
        self.users = Users::Eager;
        // One with a stream that captures may be in use in a capture that was not announced.
        if self.streams.is_empty() {
            self.unannounced = Unannounced::No;
        }
    }

    /// The mark that it waits for, where it waits for marks alone.
    pub(super) fn awaits(&self) -> Option<Mark> {
        let alone = self.streams.is_empty() && self.captures.is_empty();
        self.positions.first().copied().filter(|_| alone)
    }

    pub(super) fn reason(&self, timelines: &Timelines) -> WaitReason {
        if let Some((_, Some(reason))) = &self.held {
            return reason.clone();
        }
        if let Some(&(capture, _)) = self.captures.first() {
            return WaitReason::Capture(capture);
        }
        let marked = self.positions.first().map(|mark| timelines.stream(mark.timeline));
        let stream = self.streams.first().copied().or(marked);
        WaitReason::OutsideWork(stream.expect("what waits for nothing is free"))
    }
}

/// Everything that waits.
#[derive(Debug, Default)]
pub(super) struct WaitTable {
    rows: Table<Option<Wait>>,
    /// Those to be looked at, in this order; the rest is parked at a timeline, or held by a capture.
    polled: VecDeque<u32>,
}

impl WaitTable {
    /// Takes one in, to be looked at later.
    pub(super) fn add(&mut self, wait: Wait) {
        self.polled.push_back(self.rows.enter(Some(wait)));
    }

    /// Adds a row that a capture holds until [`WaitTable::end_capture`].
    pub(super) fn hold(&mut self, wait: Wait, by: CaptureSlot, why: WaitReason) {
        self.rows.enter(Some(Wait { held: Some((by, Some(why))), ..wait }));
    }

    /// A capture has ended; it has a graph if it was accepted. What is used in it is that graph's, also if it was lent, as
    /// is what was freed in it and held; both wait for these captures beside it, by their heap. What the capture has held
    /// is looked at from now on.
    pub(super) fn end_capture(
        &mut self,
        (slot, capture): (CaptureSlot, CaptureId),
        accepted: bool,
        captures: impl Fn(u32) -> SmallVec<[CaptureId; 2]>,
    ) {
        for (wait, number) in self.rows.iter_mut().zip(0..) {
            let Some(wait) = wait else { continue };
            let known = wait.captures.iter().position(|it| it.0 == capture);
            let used = known.is_some_and(|row| wait.captures.remove(row).1);
            if used && accepted {
                wait.users = Users::Graphs;
            }
            let held = wait.held.take_if(|(of, _)| *of == slot);
            let freed = matches!(held, Some((_, Some(_))));
            wait.users = wait.users.or_graphs(freed && accepted);
            if used || freed {
                wait.wait_for(&captures(wait.site.heap), false);
            }
            self.polled.extend(held.map(|_| number));
        }
    }

    /// Takes one out, for good or to be put back.
    fn take(&mut self, number: u32) -> Option<Wait> {
        self.rows.get_mut(number as usize)?.take()
    }

    fn number_of(&self, heap: u32, range: RangeId) -> Option<u32> {
        let is_it = |wait: &Wait| wait.site.heap == heap && wait.site.range == range;
        let row = self.rows.iter().position(|row| row.as_ref().is_some_and(is_it))?;
        Some(row as u32)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.rows.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Wait> {
        self.rows.iter_mut().flatten()
    }
}

#[cfg(debug_assertions)]
impl WaitTable {
    /// One of a pool's that is known for graphs' memory.
    pub(super) fn graphs_in(&self, pool: PoolId) -> Option<&Wait> {
        self.iter().find(|it| it.site.is_in(pool) && it.users.are_graphs())
    }

    /// What [`verify`](super::verify) says of the table, given what timelines have parked and which captures are under
    /// way.
    pub(super) fn verify(
        &self,
        parked: impl Iterator<Item = (Mark, u32)>,
        captures: &Captures,
    ) -> Verdict {
        self.rows.verify(|_, row| row.is_some())?;
        let mut listed = times(self.polled.iter().map(|&it| it as usize), self.rows.len())?;
        for (mark, number) in parked {
            let wait = self.rows.get(number as usize).and_then(Option::as_ref);
            let awaits = wait.is_some_and(|wait| wait.awaits() == Some(mark));
            holds!(awaits, "number {number} waits at {mark:?}, and is {wait:?}");
            listed[number as usize] += 1;
        }
        let mut awaited = self.iter().flat_map(|wait| &wait.captures);
        let awaited = awaited.all(|&(capture, _)| captures.slot(capture).is_some());
        holds!(awaited, "something waits for a capture that is over");
        for (row, times) in self.rows.iter().zip(listed) {
            let right = match row {
                None => times == 0,
                Some(Wait { held: Some((by, _)), .. }) => {
                    times == 0 && captures.find(*by).is_some()
                }
                Some(Wait { streams, positions, captures, .. }) => {
                    times == 1 && streams.len() + positions.len() + captures.len() > 0
                }
            };
            holds!(right, "looked at or parked {times} times: {row:?}");
        }
        Ok(())
    }
}

impl State {
    /// Whether what a stream gives back in this pool may be kept for the stream's own order. While a capture uses the
    /// pool its record must name everything that stands there, so nothing may be merged.
    pub(super) fn may_order(&self, pool: PoolId) -> bool {
        let Some(row) = self.pools.get(pool) else { return false };
        row.captures() == 0 && !self.pools.heap(row.small()).is_uncached()
    }

    /// A block has taken a part of a range that waits, or all of it, in a pool that no capture under way uses:
    /// what is left goes on waiting for the same. Returns whose the memory is.
    pub(super) fn cut_waiting(&mut self, heap: u32, ((from, address), left): Cut) -> Users {
        let Some(number) = self.waiting.number_of(heap, from) else { return Users::Eager };
        let Some(mut waiting) = self.waiting.take(number) else { return Users::Eager };
        if let Some(asked) = waiting.asked.take() {
            self.record_block(EventKind::Completed, (heap, (address, asked.requested)), asked);
        }
        let users = waiting.users();
        let mut left = left.into_iter().flatten();
        let Some(range) = left.next() else {
            if let Some(mark) = waiting.awaits() {
                self.timelines.unpark(mark, number);
            }
            self.waiting.polled.retain(|&it| it != number);
            self.waiting.rows.vacate(number);
            return users;
        };
        if let Some(range) = left.next() {
            // Records of captures to come know each by its own number.
            let site = BlockSite { number: self.blocks.number(), range, ..waiting.site };
            self.waiting.add(Wait { site, ..waiting.clone() });
        }
        let site = BlockSite { range, ..waiting.site };
        self.waiting.rows[number as usize] = Some(Wait { site, ..waiting });
        users
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Lets a range wait, after a first look at it. Returns whether it is free already.
    pub(super) fn defer(&mut self, waiting: Wait) -> bool {
        let number = self.state.waiting.rows.enter(Some(waiting));
        self.look_at(number)
    }

    /// Looks at up to `most` timelines and `most` of the ranges that wait for something else, frees
    /// those that wait no longer, and tells the captures under way. Returns whether any was freed.
    pub(super) fn poll_waits(&mut self, most: usize) -> bool {
        if self.state.waiting.polled.is_empty() && !self.state.timelines.are_busy() {
            return false;
        }
        let mut freed = false;
        for _ in 0..most.min(self.state.waiting.polled.len()) {
            let Some(number) = self.state.waiting.polled.pop_front() else { break };
            freed |= self.look_at(number);
        }
        // After that, since a look may have recorded an event that has completed by now.
        let mut ready = Vec::new();
        loop {
            self.state.timelines.poll(self.driver, most, &mut ready);
            if ready.is_empty() {
                break;
            }
            for number in ready.drain(..) {
                freed |= self.look_at(number);
            }
        }
        freed
    }

    /// Looks at a range that waits; true if it is free now, else it goes on waiting.
    fn look_at(&mut self, number: u32) -> bool {
        let mut users = Vec::new();
        let State { timelines, captures, pools, waiting, .. } = &mut *self.state;
        let Some(wait) = waiting.rows.get_mut(number as usize).and_then(Option::as_mut) else {
            return false;
        };
        let pool = pools.pool_of(wait.site.heap);
        let mut free = wait.poll(self.driver, pool, timelines, captures, &mut users);
        // In its row meanwhile: the captures' records are to name it.
        for capture in users {
            if let Some(slot) = self.state.captures.slot(capture) {
                self.join_pool(slot, pool);
            }
        }
        let Some(mut waiting) = self.state.waiting.take(number) else { return false };
        if free {
            let orders = waiting.users() != Users::Graphs;
            let may_order = orders && self.state.may_order(pool);
            if let Some(own) = waiting.own.take_if(|_| !may_order) {
                // A graph uses it, or a capture has begun in the pool since: what other streams take
                // from now on must come after the block's own stream too.
                self.state.timelines.fence(self.driver, own.timeline);
                free = self.state.timelines.is_reached(own);
                waiting.positions.extend((!free).then_some(own));
            }
        }
        if free {
            self.state.waiting.rows.vacate(number);
            self.release_waiting(pool, waiting);
            return true;
        }
        match waiting.awaits() {
            Some(mark) => self.state.timelines.park(mark, number),
            None if waiting.held.is_some() => {}
            None => self.state.waiting.polled.push_back(number),
        }
        self.state.waiting.rows[number as usize] = Some(waiting);
        false
    }

    /// Frees a range that waits for nothing any more.
    fn release_waiting(&mut self, pool: PoolId, waiting: Wait) {
        let users = waiting.users();
        let Wait { site: site @ BlockSite { heap, range, number }, asked, own, .. } = waiting;
        if let Some(asked) = asked {
            let place = self.state.pools.place(site);
            self.state.record_block(EventKind::Completed, (heap, place), asked);
        }
        match own {
            Some(own) => self.state.pools.heap_mut(heap).free_stream_ordered(range, own, users),
            None => {
                match self.state.pools.find_heap_mut(heap) {
                    Some(heap) => heap.free_held(range, users),
                    None => drop(self.state.pools.planned_mut(heap).free(range, Ended::Never)),
                }
                self.state.write_journals(pool, None, Entry::Settled { block: number });
            }
        }
        self.drop_uncached(heap);
    }

    /// Lets everything wait that streams have ordered in a pool: a capture is about to use it.
    pub(super) fn hold_ordered(&mut self, pool: PoolId) {
        let Some(row) = self.state.pools.get(pool) else { return };
        for heap in row.heaps() {
            if self.state.pools.heap(heap).stream_ordered_ranges() == 0 {
                continue;
            }
            let held = self.state.pools.heap_mut(heap).hold_stream_ordered();
            for (range, mark, users) in held {
                self.state.timelines.fence(self.driver, mark.timeline);
                let number = self.state.blocks.number();
                let site = BlockSite { number, heap, range };
                self.state.waiting.add(Wait::new(site, users).behind([mark]));
            }
        }
    }
}
