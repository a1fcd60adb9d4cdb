//! Where a block goes (design/allocator.md, "The rule" and "The index"), and what streams gave back outside captures.
//!
//! A block is *carved* out of the ranges that were found: it has a row of its own, which knows the markers of all that
//! it covers. The rule by which a requester may take a free range is [`Heap::takes`].

use super::range::{CaptureSlot, Lent, Mark, Range, RangeId, RangeState, TimelineId, Users};
use super::runs::Position;
use super::Heap;
use crate::capture::{Proof, StreamIndex};

/// After so many ranges that the requester may not take, a search gives up.
const TRIES: usize = 1024;

/// After so many such ranges a search gives up where the requester's searches have failed again and again.
const FEW: usize = 64;

/// So many runs with a place are compared outside captures.
const COMPARED: usize = 8;

/// Who asks for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A stream of a capture under way. With `share` it may take what others gave back.
    Capture { capture: CaptureSlot, stream: StreamIndex, share: bool },
    /// Work outside captures: only what no graph uses, and what its own timeline gave back.
    Outside { timeline: Option<TimelineId> },
    /// Work outside captures that borrows: only what graphs use, and what its own timeline gave back of it. With
    /// [`Lent::AllFree`] also what they keep between launches.
    Lent { timeline: TimelineId, lent: Lent },
}

/// A place that was carved out. What it asked for before stays known ([`Heap::markers`]): it can be given back unused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) range: RangeId,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Eager, or graphs where a finished graph uses any of it.
    pub(crate) users: Users,
}

/// What a requester's searches that gave up came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vain {
    /// The range where the last one ended, and its address then.
    last: Option<(RangeId, u64)>,
    /// How many more failed than found a place.
    failures: u32,
}

/// How a search ended.
enum Search {
    /// The first range of a place, and its run.
    Found(RangeId, Position),
    /// Too many ranges were in vain, up to this one.
    GaveUp(RangeId),
}

impl Heap {
    /// Carves a block of `bytes`, a multiple of 512, out of free memory, if there is a place; never asks the driver.
    /// Where `all` is looked at, the search costs a look at each free range.
    pub(crate) fn place(
        &mut self,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
        all: bool,
    ) -> Option<Placed> {
        if self.is_uncached() || self.is_shut() {
            return None;
        }
        self.clock += 1;
        if self.plan.whole {
            if let Requester::Lent { .. } = requester {
                return None;
            }
            let whole = self.tightest(bytes, requester, proof)?;
            return Some(self.carve(whole, self.ranges[whole].bytes()));
        }
        if let (Requester::Outside { timeline }, false) = (requester, self.may_split(bytes)) {
            let whole = self.whole_range(bytes, timeline)?;
            return Some(self.carve(whole, self.ranges[whole].bytes()));
        }
        let tries = if all { usize::MAX } else { self.tries(requester) };
        let found = match requester {
            Requester::Capture { capture, share: true, .. } => {
                self.search(0, bytes, tries, |range| self.takes_inside(range, capture, None, proof))
            }
            Requester::Capture { capture, stream, share: false } => {
                let own = Some(stream);
                self.search(0, bytes, tries, |range| self.takes_inside(range, capture, own, proof))
            }
            Requester::Outside { timeline } => {
                self.search_tight(bytes, tries, |range| self.takes_outside(range, timeline, false))
            }
            Requester::Lent { timeline, lent } => {
                self.search_tight(bytes, tries, |range| self.takes_lent(range, timeline, lent))
            }
        };
        let (first, run) = match found? {
            Search::Found(first, run) => (first, run),
            Search::GaveUp(last) => self.search_on(last, bytes, requester, proof)?,
        };
        Some(self.carve_in(run, first, bytes))
    }

    /// The first of the lowest neighbours that hold `bytes` and may be taken, in the runs that begin at an
    /// address or above. `takes` says of a range whether it may; after `tries` that may not, the search gives up. None where
    /// there is no place.
    #[inline(always)]
    fn search(
        &self,
        from: u64,
        bytes: u64,
        mut tries: usize,
        takes: impl Fn(&Range) -> bool + Copy,
    ) -> Option<Search> {
        self.runs.find(bytes, from, |at, run| self.search_run(at, run, bytes, &mut tries, takes))
    }

    /// For work outside captures: the first neighbours that hold `bytes` and may be taken in the smallest of the
    /// lowest [`COMPARED`] runs. `takes` and `tries` are as in [`Heap::search`]. None where there is no place.
    #[inline]
    fn search_tight(
        &self,
        bytes: u64,
        mut tries: usize,
        takes: impl Fn(&Range) -> bool + Copy,
    ) -> Option<Search> {
        let (mut runs, mut tightest) = (COMPARED, u64::MAX);
        let mut found = None;
        self.runs.find(bytes, 0, |at, run @ (_, held)| {
            if held < tightest {
                match self.search_run(at, run, bytes, &mut tries, takes)? {
                    Search::GaveUp(last) => {
                        found.get_or_insert(Search::GaveUp(last));
                        return Some(());
                    }
                    place => (found, tightest) = (Some(place), held),
                }
            }
            runs -= 1;
            (runs == 0 || tightest == bytes).then_some(())
        });
        found
    }

    /// The first neighbours within a run, from its range `from` on, that hold `bytes` and may be taken. `left` is what the
    /// run holds from there on; each range that may not be taken counts `tries` down, and at 0 the search gives up. None
    /// where there is no place. No range is asked about twice, nor any that would have to be taken with one above that
    /// may not be.
    #[inline(always)]
    fn search_run(
        &self,
        run: Position,
        (from, left): (RangeId, u64),
        bytes: u64,
        tries: &mut usize,
        takes: impl Fn(&Range) -> bool + Copy,
    ) -> Option<Search> {
        let (mut first, mut last_id, mut last) = (from, from, &self.ranges[from]);
        // A place would begin at `start`; what lies from there to `known` may be taken.
        let (mut start, mut known, end) = (last.address(), last.address(), last.address() + left);
        loop {
            let until = start + bytes;
            if until > end {
                return None;
            }
            if known >= until {
                return Some(Search::Found(first, run));
            }
            while last.end() < until {
                last_id = last.next()?;
                last = &self.ranges[last_id];
            }
            // From the last range down: what lies below one that may not be taken is of no use.
            let (mut at, mut range) = (last_id, last);
            while takes(range) {
                if range.address() <= known {
                    return Some(Search::Found(first, run));
                }
                at = range.previous()?;
                range = &self.ranges[at];
            }
            *tries -= 1;
            if *tries == 0 {
                return Some(Search::GaveUp(at));
            }
            first = range.next()?;
            (start, known) = (range.end(), last.end());
        }
    }

    /// Goes on where the requester's last search gave up, if that is above this range.
    #[cold]
    fn search_on(
        &mut self,
        low: RangeId,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<(RangeId, Position)> {
        let number = number(requester)?;
        if self.vain.len() <= number {
            self.vain.resize(number + 1, Vain::default());
        }
        let Vain { last, failures } = self.vain[number];
        let is_above = |&(id, address): &(RangeId, u64)| {
            let range = &self.ranges[id];
            range.address() == address
                && range.state().is_free()
                && address > self.ranges[low].address()
        };
        let from = last.filter(is_above).map_or(low, |(id, _)| id);
        let address = self.ranges[from].address();
        let (run, mut tries) = (self.runs.of(address), self.tries(requester));
        let takes = |range: &Range| self.takes(range, requester, proof);
        let left = self.runs.end(run) - address;
        let found = self.search_run(run, (from, left), bytes, &mut tries, takes);
        let found = found.or_else(|| self.search(address + 1, bytes, tries, takes));
        let (last, place) = match found {
            Some(Search::Found(first, run)) => (last, Some((first, run))),
            Some(Search::GaveUp(last)) => (Some((last, self.ranges[last].address())), None),
            None => (None, None),
        };
        let failures = match place {
            Some(_) => failures.saturating_sub(1),
            None => failures.saturating_add(1),
        };
        self.vain[number] = Vain { last, failures };
        place
    }

    /// After how many ranges in vain a search is to give up: the fewer, the more of the latest searches failed.
    #[inline]
    fn tries(&self, requester: Requester) -> usize {
        let vain = number(requester).and_then(|number| self.vain.get(number));
        vain.map_or(TRIES, |vain| (TRIES >> vain.failures.min(16)).max(FEW))
    }

    /// The smallest range that holds a block and may be taken, where none is split.
    fn tightest(&self, bytes: u64, requester: Requester, proof: Proof<'_>) -> Option<RangeId> {
        let holds = |id: &RangeId| self.ranges[*id].bytes() >= bytes;
        let free = self.free_ids().filter(|id| holds(id) && self.may_take(*id, requester, proof));
        free.min_by_key(|&id| (self.ranges[id].bytes(), self.ranges[id].address()))
    }

    /// The lowest range for a block that is too large to share one: it is given whole.
    fn whole_range(&self, bytes: u64, timeline: Option<TimelineId>) -> Option<RangeId> {
        let slack = self.plan.splitting.map_or(0, |(_, slack)| slack);
        self.free_ids().find(|&id| {
            let range = &self.ranges[id];
            let takes = self.takes_outside(range, timeline, true);
            takes && range.bytes().checked_sub(bytes).is_some_and(|over| over < slack)
        })
    }

    /// Cuts a block out of the low end of a range and of as many behind it as it needs, all of them
    /// free and the requester's to take. The block's range knows the markers of all that it covers.
    pub(super) fn carve(&mut self, first: RangeId, bytes: u64) -> Placed {
        let run = self.runs.of(self.ranges[first].address());
        self.carve_in(run, first, bytes)
    }

    /// [`Heap::carve`], where the run is known in which they lie.
    #[inline]
    pub(super) fn carve_in(&mut self, run: Position, first: RangeId, bytes: u64) -> Placed {
        let ((address, held), state) = (self.ranges[first].place(), self.ranges[first].state());
        let mut users = users_of(state);
        self.in_blocks += bytes;
        let (range, after) = if held > bytes {
            // The block gets a row of its own, and the rest keeps its row, markers and names.
            (self.ranges.cut_front(first, bytes), Some(first))
        } else {
            self.note_taken(state);
            let mut missing = bytes - held;
            while missing > 0 {
                let next = self.ranges[first].next();
                let next = next.unwrap_or_else(|| unreachable!("the neighbours were large enough"));
                let (held, state) = (self.ranges[next].bytes(), self.ranges[next].state());
                users = users.or_graphs(users_of(state).are_graphs());
                self.ranges.unite_markers(first, next);
                if held > missing {
                    self.ranges.take_from_next(first, missing);
                    break;
                }
                self.note_taken(state);
                self.absorb_next(first, next);
                missing -= held;
            }
            (first, self.ranges.set_state(first, RangeState::Allocated).next())
        };
        self.runs.cut(run, (address, bytes), after);
        Placed { range, address, bytes, users }
    }

    #[inline]
    pub(super) fn may_take(&self, id: RangeId, requester: Requester, proof: Proof<'_>) -> bool {
        self.takes(&self.ranges[id], requester, proof)
    }

    /// Whether a requester may take a range that has been looked up: never one that is not free.
    pub(super) fn takes(&self, range: &Range, requester: Requester, proof: Proof<'_>) -> bool {
        match requester {
            Requester::Capture { capture, stream, share } => {
                self.takes_inside(range, capture, (!share).then_some(stream), proof)
            }
            Requester::Outside { timeline } => self.takes_outside(range, timeline, false),
            Requester::Lent { timeline, lent } => self.takes_lent(range, timeline, lent),
        }
    }

    /// [`Heap::takes`] for a stream of a capture: with `own` only what that stream gave back. Each range of
    /// a capture is proven here, in the call that takes it.
    #[inline(always)]
    pub(super) fn takes_inside(
        &self,
        range: &Range,
        capture: CaptureSlot,
        own: Option<StreamIndex>,
        proof: Proof<'_>,
    ) -> bool {
        match range.state() {
            RangeState::Pending { capture: of, owner, .. } => {
                let asked = of == capture && own.is_none_or(|own| own == owner);
                asked && proof.covers(range.markers())
            }
            state => matches!(state, RangeState::Idle { .. }),
        }
    }

    /// [`Heap::takes`] for work outside captures. With `whole` all of the range is taken, so it may be one that is
    /// not split.
    #[inline]
    pub(super) fn takes_outside(
        &self,
        range: &Range,
        timeline: Option<TimelineId>,
        whole: bool,
    ) -> bool {
        let fits = || whole || self.may_split(range.bytes());
        match range.state() {
            RangeState::Idle { users } | RangeState::Closed { users } => {
                users == Users::Eager && fits()
            }
            RangeState::StreamOrdered { timeline: of, users: Users::Eager } => {
                timeline == Some(of) && fits()
            }
            _ => false,
        }
    }

    /// [`Heap::takes`] for work outside captures that comes after all launches of the pool's graphs so far, and
    /// before all that come: what these do not keep, or with [`Lent::AllFree`] all that they use.
    #[inline]
    pub(super) fn takes_lent(&self, range: &Range, timeline: TimelineId, lent: Lent) -> bool {
        let all = lent == Lent::AllFree;
        match range.state() {
            RangeState::Idle { users } | RangeState::Closed { users } => {
                users == Users::Graphs || (users == Users::Kept && all)
            }
            RangeState::StreamOrdered { timeline: of, users: Users::Lent } => {
                of == timeline && (all || !self.is_kept((range.address(), range.end())))
            }
            _ => false,
        }
    }

    /// Whether a free range of so many bytes may be split, or joined with others, outside captures.
    #[inline]
    pub(crate) fn may_split(&self, bytes: u64) -> bool {
        self.plan.splitting.is_none_or(|(most, _)| bytes < most)
    }

    /// The free ranges that the requester may take from one on, each the `step` of the one before: the last of them,
    /// and how much they hold, at most `bytes`.
    pub(super) fn usable(
        &self,
        from: Option<RangeId>,
        step: fn(&Range) -> Option<RangeId>,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> (Option<RangeId>, u64) {
        let (mut last, mut usable, mut at) = (None, 0, from);
        while let Some(id) = at.filter(|_| usable < bytes) {
            if !self.may_take(id, requester, proof) {
                break;
            }
            last = Some(id);
            usable += self.ranges[id].bytes();
            at = step(&self.ranges[id]);
        }
        // The walk ends as soon as it has enough; a place that large would have been found before.
        (last, usable.min(bytes))
    }

    /// Frees an allocated range, or one that [`Heap::free_later`] held back, for what a timeline submits
    /// from now on, and for all streams once the timeline has completed the position; what was [`Users::Lent`] for
    /// work that borrows, and for graphs.
    pub(crate) fn free_stream_ordered(
        &mut self,
        id: RangeId,
        Mark { timeline, position }: Mark,
        users: Users,
    ) {
        self.leave(id);
        self.ranges.set_markers(id, &[]);
        let range = &self.ranges[id];
        let (freed, (previous, next)) = (range.bytes(), range.sides());
        let above =
            next.and_then(|next| Some((next, self.mergeable(next, (timeline, users), freed)?)));
        let below =
            previous.and_then(|it| Some((it, self.mergeable(it, (timeline, users), freed)?)));
        let others = above.into_iter().chain(below);
        let position = others.map(|(_, other)| other).fold(position, u64::max);
        let ordered = RangeState::StreamOrdered { timeline, users };
        self.ranges.set_state(id, ordered);
        self.ranges.set_stamp(id, position);
        self.list(id);
        if let Some((next, _)) = above {
            self.note_taken(self.ranges[next].state());
            self.absorb_next(id, next);
        }
        if let Some((previous, _)) = below {
            // The lower one goes on; the upper one's row may be in the middle of a free.
            self.note_taken(self.ranges[previous].state());
            self.ranges.set_state(previous, ordered);
            self.ranges.set_stamp(previous, position);
            self.absorb_next(previous, id);
        }
    }

    /// The position that a free range asks for, if a timeline's stream-ordered ranges may take it in.
    fn mergeable(
        &self,
        id: RangeId,
        (timeline, users): (TimelineId, Users),
        freed: u64,
    ) -> Option<u64> {
        match self.ranges[id].state() {
            RangeState::StreamOrdered { timeline: other, users: of }
                if (other, of) == (timeline, users) =>
            {
                Some(self.ranges[id].stamp())
            }
            // It is free for all streams, and will be again; until then a whole range is worth more
            // to its timeline than a small one to others.
            state => {
                let eager = (state.idle_users(), users) == (Some(Users::Eager), Users::Eager);
                (eager && self.ranges[id].bytes() <= freed).then_some(0)
            }
        }
    }

    /// Makes everything free for all streams whose timeline has completed its position. Returns whether
    /// there was anything. Costs a look at each free range, where timelines have ordered any.
    pub(crate) fn free_completed(&mut self, is_reached: impl Fn(Mark) -> bool) -> bool {
        let done: Vec<_> = self.stream_ordered().filter(|&(_, mark, _)| is_reached(mark)).collect();
        for &(id, _, users) in &done {
            self.unlist(id);
            self.settle_outside(id, users.of_block());
        }
        !done.is_empty()
    }

    /// What timelines have ordered: each range with the mark that is to be reached, and whose it is (eager, or lent).
    /// Costs a look at each free range, where there is any.
    fn stream_ordered(&self) -> impl Iterator<Item = (RangeId, Mark, Users)> + '_ {
        let ids = (self.stream_ordered_ranges() > 0).then(|| self.free_ids());
        ids.into_iter().flatten().filter_map(|id| match self.ranges[id].state() {
            RangeState::StreamOrdered { timeline, users } => {
                Some((id, Mark { timeline, position: self.ranges[id].stamp() }, users))
            }
            _ => None,
        })
    }

    /// Makes all that was lent and freed the graphs' again: a launch has come after what streams did with it.
    pub(crate) fn free_lent(&mut self) {
        let ordered: Vec<_> = self.stream_ordered().collect();
        for (id, ..) in ordered.into_iter().filter(|it| it.2 == Users::Lent) {
            self.unlist(id);
            self.settle_outside(id, Users::Graphs);
        }
    }

    /// The marks that are to be reached of what timelines have ordered. Costs a look at each free range, where there is
    /// any.
    pub(crate) fn ordered_marks(&self) -> impl Iterator<Item = Mark> + '_ {
        self.stream_ordered().map(|(_, mark, _)| mark)
    }

    pub(crate) fn stream_ordered_bytes(&self) -> u64 {
        self.stream_ordered().map(|(id, ..)| self.ranges[id].bytes()).sum()
    }

    pub(crate) fn stream_ordered_ranges(&self) -> usize {
        self.ordered
    }

    /// Nothing is lent any more, for the pool has no graph: what was is its streams' own.
    pub(super) fn end_lending(&mut self) {
        let ordered: Vec<_> = self.stream_ordered().collect();
        for (id, Mark { timeline, .. }, _) in ordered {
            self.ranges.set_state(id, RangeState::StreamOrdered { timeline, users: Users::Eager });
        }
    }

    /// Takes [all of it](Heap::stream_ordered) out of use, as [`Heap::free_later`] does, and returns it.
    pub(crate) fn hold_stream_ordered(&mut self) -> Vec<(RangeId, Mark, Users)> {
        let ordered: Vec<_> = self.stream_ordered().collect();
        for &(id, ..) in &ordered {
            self.unlist(id);
            self.hold(id);
        }
        ordered
    }
}

/// The requester's row among searches that were in vain.
#[inline]
fn number(requester: Requester) -> Option<usize> {
    match requester {
        Requester::Capture { stream, .. } => Some(stream.index()),
        Requester::Outside { timeline } => Some(timeline?.index()),
        Requester::Lent { timeline, .. } => Some(timeline.index()),
    }
}

/// Whose memory a block is in what a free range holds.
fn users_of(state: RangeState) -> Users {
    state.users().map_or(Users::Eager, Users::of_block)
}
