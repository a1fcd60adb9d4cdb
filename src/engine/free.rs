//! Taking memory back: uses, last uses, frees.
//!
//! A block that was allocated in a capture is freed there, behind its free markers. So is one from before that the
//! capture may take for its own. All others are freed outside captures, behind the work of their streams.

use smallvec::SmallVec;

use super::config::{Config, Flaw};
use super::history::{Asked, EventKind, Frames};
use super::live_blocks::{BlockSite, Home, LiveBlock, Origin, Tenure};
use super::names::{BlockId, NO_CACHE};
use super::pools::{PoolRow, Pools};
use super::report::WaitReason;
use super::stream_cache::Given;
use super::streams::StreamStatus;
use super::waits::{Unannounced, Wait};
use super::{one_stream, Engine, Error, HostCalls, Locked, State};
use crate::capture::{Markers, Moment, NodeIndex};
use crate::driver::{AsStream, Driver, ErrorKind, StreamHandle};
use crate::heap::{CaptureSlot, Ended, Heap, Mark, Users};
use crate::journal::Entry;
use crate::layout::Demand;
use crate::policy::Reuse;

/// The last use of a block on one stream, as the host declared it.
#[derive(Clone, Debug)]
pub(super) struct LastUse {
    /// The stream's terminals then.
    markers: Markers,
    /// Whether the stream had gained anything since the block was allocated.
    worked: bool,
    /// Whether users of the block may have escaped the markers by then.
    broken: bool,
}

/// What the end of a block's use on all its streams came to.
#[derive(Default)]
struct Ending {
    markers: Markers,
    /// Whether any of its streams gained anything while it was live.
    worked: bool,
    /// Why its markers prove nothing, if they do not.
    reason: Option<WaitReason>,
    outside: SmallVec<[StreamHandle; 2]>,
}

impl<D: Driver> Locked<'_, D> {
    /// Whether a stream of the block's capture that used it may be one that another thread is capturing on.
    #[inline(always)]
    fn is_another_threads(&self, home: Home, block: &LiveBlock) -> bool {
        let State { captures, timelines, .. } = &*self.state;
        let Some(capture_state) = captures.find(home.slot) else { return false };
        if self.state.captures_here(capture_state) {
            return false;
        }
        block.uses().any(|(stream, _)| !timelines.is_mine(stream))
    }

    /// Takes a block that is in the tables no more out of the figures.
    #[inline(always)]
    pub(super) fn discount(&mut self, block: &LiveBlock) {
        self.state.tell_gone(block.site, block.origin);
        self.count_out(block.site.heap, block.bytes, block.asked.requested);
        if matches!(block.tenure, Tenure::Lent(_) | Tenure::Adopted) {
            self.state.note_lent_gone(block);
        }
    }

    /// Records that a stream uses a block until it is freed. What the host said of a last use, captures learn from.
    fn record_use_until(
        &mut self,
        id: BlockId,
        stream: StreamHandle,
        last: bool,
    ) -> Result<(), Error> {
        let unknown = || id.unknown("record_stream");
        let block = self.state.blocks.get_mut(id).ok_or_else(unknown)?;
        if let Origin::Capture(home) = block.origin {
            let site = block.site;
            if stream != block.asked.stream || block.gone.is_some() {
                self.keep_piece_in_use(home.slot, (site.heap, site.range), stream);
            }
        }
        let block = self.state.blocks.get_mut(id).ok_or_else(unknown)?;
        block.set_use(stream, None);
        let (origin, own, block) = (block.origin, block.asked.stream, block.site.number);
        match origin {
            Origin::Capture(home) => {
                self.state.capture(home.slot).write_journal(Entry::Use { block, stream });
            }
            _ => self.caches.note(own, Demand::Use { block, stream, last }),
        }
        Ok(())
    }

    pub(super) fn record_use(&mut self, id: BlockId, stream: StreamHandle) -> Result<(), Error> {
        const CALL: &str = "record_use";
        let unknown = || id.unknown(CALL);
        let origin = self.state.blocks.get_mut(id).ok_or_else(unknown)?.origin;
        let Origin::Capture(home) = origin else {
            // Outside captures an event at the free covers every use.
            return self.record_use_until(id, stream, true);
        };
        let last = match self.look_in(home.slot, stream) {
            Ok(Some(index)) => {
                let capture = &self.state.capture(home.slot).proof;
                LastUse {
                    markers: capture.terminals(index).collect(),
                    worked: capture.changed_since(index, home.since),
                    broken: capture.broken_since(index, home.since),
                }
            }
            Ok(None) => return self.record_use_until(id, stream, false),
            Err(stream) => return Err(self.invalidated(stream, CALL)),
        };
        let block = self.state.blocks.get_mut(id).ok_or_else(unknown)?;
        block.set_use(stream, Some(Box::new(last)));
        let block = block.site.number;
        self.state.capture(home.slot).write_journal(Entry::LastUse { block, stream });
        Ok(())
    }

    pub(super) fn free(&mut self, id: BlockId) -> Result<(), Error> {
        let mut removed = self.state.blocks.remove(id);
        let Some(block) = &mut removed else { return Err(id.unknown("free")) };
        // Only the thread that captures may look at the block's streams: it frees the block with its next request.
        if let Origin::Capture(home) = block.origin {
            if self.is_another_threads(home, block) {
                let id = self.state.blocks.insert_left(block.clone());
                self.state.capture(home.slot).left.push(id);
                return Ok(());
            }
        }
        self.discount(block);
        self.free_counted(block);
        Ok(())
    }

    /// Frees a block that is in the tables and live figures no more. What it holds is taken out of it where it waits.
    fn free_counted(&mut self, block: &mut LiveBlock) {
        if let Tenure::Restored(_) = block.tenure {
            // Graphs that were captured since the restoration may use it on streams that it has forgotten.
            let row = self.state.pools.find_pool(block.site.heap);
            let graphs = row.is_some_and(|row| !row.is_without_graphs());
            block.tenure = block.tenure.or_graphs(graphs);
        }
        // A capture may have the place of an input that it frees, which is one of its blocks from here on.
        self.take_input(block);
        let Origin::Capture(home) = block.origin else {
            if !block.is_leased() {
                let free = Demand::Free { block: block.site.number };
                self.caches.note(block.asked.stream, free);
            }
            return self.free_of_no_capture(block);
        };
        // Behind what the block's streams have launched by now, or until the capture ends if that proves nothing.
        let mut ending = Ending::default();
        match self.ending(block, home, &mut ending) {
            Ok(()) => self.free_in_capture(block, home, &mut ending),
            Err(ruined) => self.free_in_ruined(block, ruined),
        }
    }

    /// Makes a block from before a capture one of that capture, if nothing but its own stream's work there uses it:
    /// what that did outside has completed, and no other stream or capture knows of it.
    fn take_input(&mut self, block: &mut LiveBlock) {
        let LiveBlock {
            site: BlockSite { number, heap, range }, asked: Asked { stream, .. }, ..
        } = *block;
        let is_inside = matches!(block.origin, Origin::Capture(_));
        if is_inside
            || block.tenure.asked_of().is_some()
            || block.gone.is_some()
            || block.has_users()
        {
            return;
        }
        let State { captures, timelines, pools, .. } = &*self.state;
        let (timeline, pool) = (timelines.known(stream), pools.pool_of(heap));
        let found = captures.with_slots().find_map(|(slot, it)| {
            // Its record names what stood in its first pool before anything was launched.
            let mark = it.expected().filter(|mark| Some(mark.timeline) == timeline)?;
            (it.pools().first() == Some(&pool) && !it.concurrent()).then_some((slot, mark))
        });
        let Some((slot, mark)) = found else { return };
        if !self.state.timelines.is_reached(mark) {
            self.with_listed(block, |locked| {
                locked.poll_waits(usize::MAX);
            });
            // What waited in the pool may have brought another capture into it.
            let concurrent = self.state.captures.get(slot).concurrent();
            if concurrent || !self.state.timelines.is_reached(mark) {
                return;
            }
        }
        // One whose capture is ruined waits as any other.
        let Ok(Some(index)) = self.look_in(slot, stream) else { return };
        match self.state.pools.find_heap_mut(heap) {
            Some(heap) if !heap.is_uncached() => {
                heap.forget_markers(range);
                // It is filled before each launch, or read behind another's.
                heap.keep(range);
            }
            _ => return,
        }
        let address = self.state.pools.place(block.site).0;
        let capture_state = self.state.capture(slot);
        capture_state.write_journal(Entry::Input { block: number, stream });
        capture_state.following.iter_mut().for_each(|it| it.note_input(address, block.bytes));
        // The graph's from now on, as any block of the capture.
        let of_graph = matches!(block.origin, Origin::Graph);
        if !block.is_leased() {
            block.tenure = Tenure::Own(block.tenure.users().of_block().or_graphs(of_graph));
        }
        block.origin = Origin::Capture(Home { slot, stream: index, since: Moment::default() });
        if self.config.lacks(Flaw::InputMarkers) {
            let last = LastUse { markers: Markers::new(), worked: true, broken: false };
            block.set_use(stream, Some(Box::new(last)));
        }
    }

    /// Frees a block of a capture of which nothing will ever run: it is as one from outside it.
    #[cold]
    fn free_in_ruined(&mut self, block: &mut LiveBlock, ruined: StreamHandle) {
        block.roll_back();
        self.with_listed(block, |locked| locked.abandon_invalidated(ruined));
        let pool = self.state.pools.pool_of(block.site.heap);
        self.free_outside(block);
        self.forget_graphs(pool);
    }

    /// Does what may bring another capture into a block's pool, whose record is to tell of the block that is freed.
    fn with_listed(&mut self, block: &mut LiveBlock, then: impl FnOnce(&mut Self)) {
        let id = self.state.blocks.insert_left(block.clone());
        then(self);
        if let Some(changed) = self.state.blocks.remove(id) {
            *block = changed;
        }
        self.state.tell_gone(block.site, block.origin);
    }

    /// Frees a block that no capture under way allocated.
    fn free_of_no_capture(&mut self, block: &mut LiveBlock) {
        if !self.config.lacks(Flaw::OlderBlocks) {
            return self.free_outside(block);
        }
        let &mut LiveBlock { site: BlockSite { heap, range, number }, tenure, origin, .. } = block;
        let users = tenure.users().of_block().or_graphs(matches!(origin, Origin::Graph));
        match self.state.pools.find_heap_mut(heap) {
            Some(heap) => heap.free_idle(range, users, number),
            None => drop(self.state.pools.planned_mut(heap).free(range, Ended::Never)),
        }
    }

    /// Frees a block that a stream cache had on lease and may not keep.
    pub(super) fn free_leased(&mut self, id: BlockId) -> Result<(), Error> {
        let unknown = || id.unknown("free");
        let State { blocks, accounts, .. } = &mut *self.state;
        let mut cache = self.caches.get(id.cache).ok_or_else(unknown)?;
        let (lease, within) = cache.give_up(id).ok_or_else(unknown)?;
        let block = blocks.take(lease.row);
        let mut block = block.expect("leases are the engine's blocks");
        accounts.keep_within(self.caches, &mut cache, (Pools::row(block.site.heap), within));
        drop(cache);
        block.asked = lease.asked;
        block.set_users(lease.uses);
        self.state.tell_gone(block.site, block.origin);
        self.free_counted(&mut block);
        Ok(())
    }

    /// Looks at the streams that used a block for its free markers; the error is a stream whose capture is ruined.
    fn ending(
        &mut self,
        block: &LiveBlock,
        home: Home,
        ending: &mut Ending,
    ) -> Result<(), StreamHandle> {
        let BlockSite { number, heap, range } = block.site;
        let mut flaw = Flaw::OwnMarker;
        for (stream, last) in block.uses() {
            let flaw = std::mem::replace(&mut flaw, Flaw::ForeignMarkers);
            if let Some(last) = last {
                ending.worked |= last.worked;
                if last.broken {
                    ending.reason = Some(WaitReason::Untrusted(stream));
                }
                ending.add(self.config, flaw, last.markers.iter().copied());
                continue;
            }
            match self.look_in(home.slot, stream)? {
                Some(index) => {
                    let capture = &self.state.capture(home.slot).proof;
                    ending.worked |= capture.changed_since(index, home.since);
                    if capture.broken_since(index, home.since) {
                        ending.reason = Some(WaitReason::Untrusted(stream));
                    }
                    ending.add(self.config, flaw, capture.terminals(index));
                }
                None => {
                    self.state.keep_piece(heap, range);
                    ending.outside.push(stream);
                    let outside = Entry::Outside { block: number };
                    self.state.capture(home.slot).write_journal(outside);
                    if !self.config.lacks(Flaw::OutsideUses) {
                        ending.reason = Some(WaitReason::OutsideStream(stream));
                    }
                }
            }
        }
        if self.config.settings.reuse == Reuse::Deferred && block.has_users() {
            ending.reason.get_or_insert(WaitReason::Policy);
        }
        let State { captures, pools, .. } = &*self.state;
        if let Some(nested) = captures.nested_in(home.slot, pools, heap) {
            self.state.capture(home.slot).write_journal(Entry::Outside { block: number });
            if !self.config.lacks(Flaw::NestedCapture) {
                ending.reason.get_or_insert(WaitReason::NestedCapture(nested));
            }
        }
        Ok(())
    }

    fn free_in_capture(&mut self, block: &mut LiveBlock, home: Home, ending: &mut Ending) {
        let site @ BlockSite { number, heap, range } = block.site;
        let mut users = block.tenure.users();
        self.state.capture(home.slot).write_journal(Entry::Free { block: number });
        if self.state.history.is_some() {
            self.record_free(block, ending.reason.is_none());
        }
        if let Some(reason) = ending.reason.take() {
            self.count_waiting(heap, block.bytes);
            self.state.pools.free_later(site);
            let mut outside = std::mem::take(&mut ending.outside);
            let mut positions = SmallVec::<[Mark; 2]>::new();
            let mut used_in: SmallVec<[CaptureSlot; 2]> = SmallVec::new();
            outside.retain(|&mut stream| {
                match self.state.timelines.ask(self.driver, stream) {
                    // Recorded now where that is possible: the stream need not outlive the block.
                    StreamStatus::Outside => self
                        .state
                        .timelines
                        .mark(self.driver, stream)
                        .map(|mark| positions.push(mark))
                        .is_none(),
                    // Another capture's graph may use the block.
                    StreamStatus::Inside(capture) => {
                        users = Users::Graphs;
                        used_in.extend(self.state.captures.slot(capture));
                        true
                    }
                    // Any capture may be the one.
                    StreamStatus::Unclear => {
                        users = Users::Graphs;
                        used_in.extend(self.state.captures.with_slots().map(|(slot, _)| slot));
                        true
                    }
                    StreamStatus::Barred => true,
                    StreamStatus::Elsewhere => {
                        positions.push(self.state.timelines.mark_elsewhere(self.driver, stream));
                        false
                    }
                }
            });
            let wait = Wait::new(site, users).on(outside).behind(positions);
            self.state.waiting.hold(wait.of(block.asked.take(), None), home.slot, reason);
            // Now that the block is among those held: the captures' records are to name it.
            for slot in used_in {
                self.join_pool(slot, self.state.pools.pool_of(heap));
            }
            return;
        }
        // A block that nothing can have used leaves its place as it found it.
        let markers = ending.worked.then_some(&ending.markers[..]);
        let settled = match self.state.pools.find_counted_heap_mut(heap) {
            Some(row) => {
                let settled =
                    row.free_pending(range, (home.slot, home.stream, users), markers, number);
                self.count_left_over(heap);
                settled
            }
            None => {
                self.count_waiting(heap, block.bytes);
                let used = Ended::Markers(std::mem::take(&mut ending.markers));
                let given = if ending.worked { used } else { Ended::Unused };
                self.state.pools.planned_mut(heap).free(range, given)
            }
        };
        if settled {
            let pool = self.state.pools.pool_of(heap);
            self.state.write_journals(pool, Some(home.slot), Entry::Settled { block: number });
        }
    }

    /// Frees a block that no capture under way allocated. If it was handed out outside captures and its stream does not
    /// capture, the stream may have it back once the other streams that used it have completed that. Any other waits
    /// for the work of all its streams, and for the captures under way in its pool if a graph uses it.
    pub(super) fn free_outside(&mut self, block: &mut LiveBlock) {
        let &mut LiveBlock { site, bytes, tenure, origin, .. } = block;
        let (BlockSite { heap, range, .. }, stream) = (site, block.asked.stream);
        let pool = self.state.pools.pool_of(heap);
        let gone = block.gone.take();
        let users = tenure.users().or_graphs(matches!(origin, Origin::Graph));
        let mut streams: SmallVec<[StreamHandle; 2]> = block.users().collect();
        let eager = matches!(origin, Origin::Outside)
            && users != Users::Graphs
            && self.state.may_order(pool);
        // A stream's own order is enough to have its memory back where it does not capture.
        let ordered = eager
            && gone.is_none()
            && match self.driver.is_capturing(stream) {
                Ok(captures) => !captures,
                // The legacy stream while some blocking stream captures: it does not capture itself.
                Err(error) => error.kind == ErrorKind::CaptureImplicit,
            };
        let own = ordered.then(|| self.state.timelines.open_mark(stream));
        if own.is_none() && gone.is_none() {
            streams.insert(0, stream);
        }
        let now = own.filter(|_| streams.is_empty());
        if self.state.history.is_some() {
            self.record_free(block, now.is_some());
        }
        if let Some(own) = now {
            self.state.pools.counted_heap_mut(heap).free_stream_ordered(range, own, users);
            self.count_left_over(heap);
            return;
        }
        self.count_waiting(heap, bytes);
        self.state.pools.free_later(site);
        // Captures that were under way beside the block's own know nothing of what lay there before
        // it, or may contain its graph.
        let captures = match origin {
            Origin::Outside => SmallVec::new(),
            _ => self.state.captures.ids_of(pool),
        };
        let restored = matches!(tenure, Tenure::Restored(_)) && users.are_graphs();
        let (users, others) = match users {
            // A restoration put it where a capture that was never announced may have used memory.
            _ if restored && self.state.pools.get(pool).is_some_and(PoolRow::is_without_graphs) => {
                (Users::Eager, Unannounced::Yes)
            }
            Users::Eager if self.config.keeps_inputs => (users, Unannounced::Promised),
            _ => (users, Unannounced::Untold),
        };
        let waiting = Wait::new(site, users).beside(&captures, others).on(streams);
        let waiting = waiting.behind(gone.map(|gone| *gone)).of(block.asked.take(), own);
        // Records the events now: the streams need not outlive the block.
        let free = self.defer(waiting);
        if !free && self.state.pools.find_heap(heap).is_some_and(Heap::is_uncached) {
            // So that a memory checker sees at once what touches the block from now on.
            self.errands.wait();
        }
    }

    /// Enters into the history that a block is freed: for good if nothing uses it any more.
    #[inline(never)]
    fn record_free(&mut self, block: &LiveBlock, completed: bool) {
        let LiveBlock { site, asked, .. } = block;
        let place = self.state.pools.place(*site);
        let action = if completed { EventKind::FreeCompleted } else { EventKind::Free };
        let asked = Asked { frames: Frames::given_or(asked.frames.clone()), ..*asked };
        self.state.record_block(action, (site.heap, place), asked);
    }

    /// Frees a place that a stream cache had cached: its stream had given it back before, and did not
    /// capture then, even if it does not now.
    pub(super) fn free_cached(&mut self, site: BlockSite, stream: StreamHandle) {
        let BlockSite { heap, range, .. } = site;
        let mark = self.state.timelines.open_mark(stream);
        if self.state.may_order(self.state.pools.pool_of(heap)) {
            self.state.pools.counted_heap_mut(heap).free_stream_ordered(range, mark, Users::Eager);
            self.count_left_over(heap);
            return;
        }
        self.state.pools.free_later(site);
        self.state.timelines.fence(self.driver, mark.timeline);
        self.defer(Wait::new(site, Users::Eager).behind([mark]));
    }
}

impl Ending {
    fn add(&mut self, config: &Config, flaw: Flaw, nodes: impl Iterator<Item = NodeIndex>) {
        if config.lacks(flaw) {
            return;
        }
        for node in nodes {
            if !self.markers.contains(&node) {
                self.markers.push(node);
            }
        }
    }
}

impl<D: Driver> Engine<D> {
    /// Says that `stream` uses the block at some time before its free (PyTorch's `record_stream`).
    /// The use must be ordered after the allocation, by an event for instance.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`StreamRefusal::PerThread`](crate::StreamRefusal::PerThread); [`Error::Driver`] for a default
    /// stream where another context is current, whose default stream it names there.
    pub fn record_stream(&self, block: BlockId, stream: impl AsStream) -> Result<(), Error> {
        self.record(block, stream.as_stream(), false)
    }

    /// Says that the work given to `stream` so far includes its last use of the block: the block's marker on the stream
    /// is this point and not the free. A later [`Engine::record_stream`] takes this back. For a block from outside
    /// captures both calls do the same: an event at the free covers every use.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::CaptureInvalidated`],
    /// [`StreamRefusal::PerThread`](crate::StreamRefusal::PerThread).
    pub fn record_use(&self, block: BlockId, stream: impl AsStream) -> Result<(), Error> {
        self.record(block, stream.as_stream(), true)
    }

    /// Frees a block. In a capture its free markers are the terminals, now, of its own stream and of every recorded
    /// stream, or those of the last use where one was recorded. Outside captures its own stream may have it back at
    /// once, unless other streams used it. With `caching:False` the call waits for the block's work.
    ///
    /// # Errors
    /// [`Error::Unknown`], where the block was freed before.
    pub fn free(&self, block: BlockId) -> Result<(), Error> {
        if block.engine != self.number || block.cache == NO_CACHE {
            return self.change(|locked| locked.free(block));
        }
        if let Some(mut cache) = self.caches.get(block.cache) {
            match cache.give(&self.driver, block, None, false) {
                Given::Done { over: None } => return Ok(()),
                Given::Done { over: Some(row) } => return self.raise_allowance(cache, row),
                Given::Undecided => {
                    drop(cache);
                    return self.change(|locked| locked.free_leased(block));
                }
                Given::Unknown => {}
            }
        }
        Err(block.unknown("free"))
    }

    /// Records a stream for a block, perhaps for the last time.
    fn record(&self, block: BlockId, stream: StreamHandle, last: bool) -> Result<(), Error> {
        let call = if last { "record_use" } else { "record_stream" };
        let stream = one_stream(stream, call)?;
        if stream == StreamHandle::from_bits(0) {
            match self.driver.is_capturing(stream) {
                Err(error) if error.kind == ErrorKind::OtherContext => return Err(error.into()),
                Ok(_) | Err(_) => {}
            }
        }
        if block.engine != self.number || block.cache == NO_CACHE {
            return self.change(|locked| match last {
                true => locked.record_use(block, stream),
                false => locked.record_use_until(block, stream, false),
            });
        }
        if self.config.lacks(Flaw::Events) {
            return Ok(());
        }
        let cache = self.caches.get(block.cache);
        let recorded = cache.and_then(|mut cache| cache.record_stream(block, stream, last));
        recorded.ok_or_else(|| block.unknown(call))
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// Like [`Engine::free`], after [`Engine::record_stream`] where a stream is named, where that waits for no work and
    /// for no other thread: the block's stream may have it back at once. False, and nothing done, for everything else;
    /// that is what those are for. For hosts that come with a lock held.
    #[inline]
    pub fn free_at_once(&self, block: BlockId, from: Option<StreamHandle>) -> bool {
        let cache = match block.engine == self.0.number {
            true => self.0.caches.get_at_once(block.cache),
            false => None,
        };
        cache.is_some_and(|mut cache| {
            matches!(cache.give(&self.0.driver, block, from, true), Given::Done { .. })
        })
    }
}
