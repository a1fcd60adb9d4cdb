//! The search for a place, and carving a block out of it.
//!
//! A stream of a capture may take its own ranges, ranges of other streams that are proven for it,
//! and quiet ones, each by itself or neighbours of all kinds together. While there are few of
//! them, all places are weighed ([`Heap::choose`]); where there are many, or where the blocks are
//! so small that the time would not pay, the first fit of an index is taken: the stream's own
//! runs, then ranges of other streams, then quiet ranges, each by best fit. What lies in no single range is looked for among neighbours. Last,
//! the heap grows behind whatever free end it has.

use smallvec::SmallVec;

use super::bins::class;
use super::range::{CaptureSlot, Given, Range, RangeId, SegmentId, State};
use super::segment::{unit, Segment};
use super::shelf::{Foreign, Shelf, Shelves};
use super::Heap;
use crate::capture::{Markers, NodeIndex, StreamIndex};
use crate::driver::{Driver, DriverError};

/// Who asks for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A stream of a capture under way. With `share` it may take what others gave back.
    Capture { capture: CaptureSlot, stream: StreamIndex, share: bool },
    /// Work outside captures: only what no graph uses.
    Outside,
}

/// What a place asked for before a block took it: with it the place can be given back as if the
/// block had never been.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    /// United over the ranges that the block covers; all proven for the block's stream.
    pub(crate) markers: Markers,
    /// Whether a finished graph uses any of it.
    pub(crate) graphs: bool,
}

/// A place that was carved out.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) range: RangeId,
    pub(crate) address: u64,
    pub(crate) before: Before,
}

/// A range, or neighbours, that may be taken.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: RangeId,
    address: u64,
    bytes: u64,
}

/// Where a block begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// At the low end of this range, reaching up.
    Low(RangeId),
    /// At the high end of this range, reaching down.
    High(RangeId),
}

/// What a place costs the stream that takes it and those that come after: the least is taken, each
/// field counting only where all before it are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Whether a run is not used up, to its last byte.
    leaves: bool,
    /// Whether any of it belongs to another stream or to nobody: those have other takers.
    shared: bool,
    /// Whether it lies inside a run.
    inside: bool,
    /// How much of it is not the stream's own, in bytes.
    not_own: u64,
    /// Over how many ranges it spreads.
    ranges: usize,
    /// Its address: low ones first, so that the free end of the heap stays large.
    address: u64,
}

/// The most ranges among which all places are weighed.
const FEW: usize = 96;

/// So many entries of other streams' ranges are kept without asking which are out of date.
const UNSORTED: usize = 32;

/// How many ranges of each kind are tried as the middle of a place that spans several.
const SEEDS: usize = 8;

impl Heap {
    /// Carves a block out of free memory, if there is a place; never asks the driver.
    ///
    /// `bytes` is a multiple of 512; `prove` says whether markers precede the claim's new work.
    pub(crate) fn place(
        &mut self,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<Placed> {
        let edge = match claim {
            Claim::Capture { capture, stream, share } => {
                if self.weigh && self.choices(capture, stream) <= FEW {
                    self.choose(bytes, claim, prove)
                } else {
                    self.own_run(bytes, capture, stream, prove)
                        .or_else(|| {
                            share.then(|| self.foreign_range(bytes, capture, stream, prove))?
                        })
                        .or_else(|| self.quiet_range(bytes, true))
                        .or_else(|| self.joined(bytes, claim, prove))
                        .map(Edge::Low)
                }
            }
            Claim::Outside => self.quiet_range(bytes, false).map(Edge::Low),
        }?;
        Some(self.carve(edge, bytes))
    }

    /// Gets memory from the driver behind the free end of a segment and carves a block out of it.
    /// `limit` bounds what the driver may be asked for, in bytes.
    ///
    /// # Errors
    /// The driver's. The heap is then as it was.
    pub(crate) fn grow<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
        limit: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        if let Some(segment) = self.segments.len().checked_sub(1).map(SegmentId::new) {
            let (first, usable) = self.free_end(segment, bytes, claim, prove);
            let missing = (bytes - usable).next_multiple_of(unit);
            if missing > limit {
                return Ok(None);
            }
            if let (0, Some(first)) = (missing, first) {
                return Ok(Some(self.carve(Edge::Low(first), bytes)));
            }
            if self.segments[segment.index()].room() >= missing {
                self.segments[segment.index()].extend(driver, missing)?;
                let fresh = self.append(segment, missing);
                return Ok(Some(self.carve(Edge::Low(first.unwrap_or(fresh)), bytes)));
            }
        }
        let wanted = bytes.next_multiple_of(unit);
        if wanted > limit {
            return Ok(None);
        }
        let mut opened = Segment::open(driver, wanted, self.reserve)?;
        if opened.mapped == 0 {
            if let Err(error) = opened.extend(driver, wanted) {
                // Its addresses are of no use now; failing to give them back loses nothing else.
                let _ = opened.close(driver);
                return Err(error);
            }
        }
        let mapped = opened.mapped;
        self.segments.push(opened);
        let fresh = self.append(SegmentId::new(self.segments.len() - 1), mapped);
        Ok(Some(self.carve(Edge::Low(fresh), bytes)))
    }

    /// The best fit among a stream's own runs.
    fn own_run(
        &mut self,
        bytes: u64,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        loop {
            let shelf = self.shelf(capture, stream);
            let first = shelf.own.best(bytes, |run| Some(run.bytes))?.id;
            let Some(id) = self.unproven_in(first, bytes, prove) else { return Some(first) };
            // The stream was set back since this was proven.
            self.unshelve(id);
            let token = self.token(id);
            self.unproven.push((token, stream));
        }
    }

    /// The first range from `first` on, up to `bytes`, whose markers are not proven.
    fn unproven_in(
        &self,
        first: RangeId,
        bytes: u64,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        let end = self.ranges[first].address + bytes;
        let mut at = Some(first);
        while let Some(id) = at.filter(|&id| self.ranges[id].address < end) {
            match &self.ranges[id].state {
                State::Marked(marked) if !prove(&marked.markers) => return Some(id),
                _ => at = self.ranges[id].next,
            }
        }
        None
    }

    /// The best fit among ranges of other streams.
    fn foreign_range(
        &mut self,
        bytes: u64,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        self.sort_in_news(capture, stream);
        let least = class(bytes);
        let mut from = least;
        loop {
            let shelves = self.shelves(capture);
            let shelf = &shelves.streams[stream.index()];
            let listed = shelf.foreign.next_class(from);
            // Every range of at least `bytes` was given back in this class or one above: it may
            // have shrunk since, but not grown.
            let unread = shelves.log.unread(from, &shelf.read);
            match (listed, unread) {
                (_, Some(unread)) if listed.is_none_or(|listed| unread <= listed) => {
                    let lowest = self.read_class(unread, capture, stream, prove);
                    from = unread.min(lowest).max(least);
                }
                (Some(listed), _) => {
                    let lowest = match self.best_foreign(listed, bytes, capture, stream, prove) {
                        Ok(found) => return Some(found),
                        Err(lowest) => lowest,
                    };
                    from = (listed + 1).min(lowest).max(least);
                }
                (None, _) => return None,
            }
        }
    }

    /// The same within one class; else the lowest class that an entry has moved to, having shrunk.
    fn best_foreign(
        &mut self,
        class: usize,
        bytes: u64,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Result<RangeId, usize> {
        let mut foreign = std::mem::take(&mut self.shelf(capture, stream).foreign);
        let mut shrunk: SmallVec<[Foreign; 4]> = SmallVec::new();
        let found = foreign.best_in(class, bytes, |entry| {
            let (marked, now) = self.ranges.given(entry.given)?;
            if now != entry.bytes {
                shrunk.push(Foreign { bytes: now, ..*entry });
                return None;
            }
            if !prove(&marked.markers) {
                // The stream was set back since this was proven.
                let token = self.token(entry.given.id);
                self.unproven.push((token, stream));
                return None;
            }
            Some(now)
        });
        let mut lowest = usize::MAX;
        for entry in shrunk {
            lowest = lowest.min(foreign.insert(entry).class());
        }
        self.shelf(capture, stream).foreign = foreign;
        found.map(|entry| entry.given.id).ok_or(lowest)
    }

    /// Sorts in everything that others gave back, or that became proven, since the stream last
    /// looked.
    fn read_on(
        &mut self,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) {
        self.sort_in_news(capture, stream);
        let mut from = 0;
        loop {
            let shelves = self.shelves(capture);
            let read = &shelves.streams[stream.index()].read;
            let Some(class) = shelves.log.unread(from, read) else { return };
            self.read_class(class, capture, stream, prove);
            from = class + 1;
        }
    }

    /// Sorts in what is unread in one class of the log: on the shelf what is proven; the rest must
    /// wait. Returns the lowest class that something came to lie in.
    fn read_class(
        &mut self,
        class: usize,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> usize {
        let number = self.number;
        let Shelves { streams, log } = &mut self.shelves[capture.index()];
        let Shelf { foreign, read, .. } = &mut streams[stream.index()];
        let mut lowest = usize::MAX;
        for &given in log.read(class, read) {
            let Some((marked, bytes)) = self.ranges.given(given) else { continue };
            if marked.owner == stream {
                continue;
            }
            if prove(&marked.markers) {
                lowest = lowest.min(foreign.insert(Foreign { given, bytes }).class());
            } else {
                self.unproven.push((given.token(number), stream));
            }
        }
        lowest
    }

    /// Puts what became proven since the stream last looked on its shelf. Makes sure that it has
    /// one.
    fn sort_in_news(&mut self, capture: CaptureSlot, stream: StreamIndex) {
        self.shelf(capture, stream);
        let Shelf { foreign, news, foreign_kept, .. } =
            &mut self.shelves[capture.index()].streams[stream.index()];
        for given in news.drain(..) {
            let Some((_, bytes)) = self.ranges.given(given) else { continue };
            foreign.insert(Foreign { given, bytes });
        }
        if foreign.len() >= (2 * *foreign_kept).max(UNSORTED) {
            foreign.retain(|entry| self.ranges.is_current(entry.given));
            *foreign_kept = foreign.len();
        }
    }

    /// The best fit among quiet ranges.
    fn quiet_range(&mut self, bytes: u64, graphs: bool) -> Option<RangeId> {
        let mut found = self.quiet[0].best(bytes, |range| Some(range.bytes));
        if graphs {
            // Of equals what graphs use already, so that the rest stays free for work outside.
            let used = self.quiet[1].best(bytes, |range| Some(range.bytes));
            found = match (found, used) {
                (Some(new), Some(used)) if used.bytes <= new.bytes => Some(used),
                (None, used) => used,
                (new, _) => new,
            };
        }
        found.map(|range| range.id)
    }

    /// How many ranges the stream may have to choose from, but for what it has not read yet.
    fn choices(&mut self, capture: CaptureSlot, stream: StreamIndex) -> usize {
        let quiet = self.quiet[0].len() + self.quiet[1].len();
        let shelf = self.shelf(capture, stream);
        shelf.own_ranges + shelf.foreign.len() + quiet
    }

    /// The place of least [`Cost`]: at either end of a run of everything that the claim may take,
    /// or, inside a run, where a block fits whole ranges exactly.
    ///
    /// Costs a sort of what the claim may take, and for each range a walk over those that a block
    /// beginning there would cover.
    fn choose(
        &mut self,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<Edge> {
        let Claim::Capture { stream, .. } = claim else { return None };
        let extents = self.takeable(claim, prove);
        let mut best: Option<(Cost, Edge)> = None;
        let mut offer = |cost: Cost, edge: Edge| {
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, edge));
            }
        };
        let mut rest = &extents[..];
        while !rest.is_empty() {
            let length =
                1 + rest.windows(2).take_while(|pair| self.adjoin(pair[0], pair[1])).count();
            let (run, after) = rest.split_at(length);
            rest = after;
            let leaves = run.iter().map(|extent| extent.bytes).sum::<u64>() != bytes;
            for start in 0..length {
                let Some((count, held)) = covering(run[start..].iter(), bytes) else { break };
                let inside = start > 0;
                if inside && held != bytes {
                    continue;
                }
                let covered = &run[start..start + count];
                let (shared, not_own) = self.owners(covered, bytes, stream);
                let address = covered[0].address;
                let cost = Cost { leaves, shared, inside, not_own, ranges: count, address };
                offer(cost, Edge::Low(covered[0].first));
            }
            // A block that fits whole ranges needs no second look from their high end.
            if let Some((count, held)) =
                covering(run.iter().rev(), bytes).filter(|&(_, held)| held != bytes)
            {
                let covered = &run[length - count..];
                let (shared, not_own) = self.owners(covered, bytes, stream);
                let address = covered[0].address + held - bytes;
                let cost = Cost { leaves, shared, inside: false, not_own, ranges: count, address };
                offer(cost, Edge::High(covered[count - 1].first));
            }
        }
        best.map(|(_, edge)| edge)
    }

    /// Whether any of the covered ranges is not the stream's own, and how much of a block of
    /// `bytes` there the own ones cannot hold.
    fn owners(&self, covered: &[Extent], bytes: u64, stream: StreamIndex) -> (bool, u64) {
        let mut own = 0;
        let mut shared = false;
        for extent in covered {
            match &self.ranges[extent.first].state {
                State::Marked(marked) if marked.owner == stream => own += extent.bytes,
                _ => shared = true,
            }
        }
        (shared, bytes.saturating_sub(own))
    }

    /// Neighbours of any kind that the claim may take together, around the largest of each kind.
    ///
    /// Looks at a bounded number of places, so that it stays cheap where there are many; a place
    /// that it overlooks costs memory, not safety.
    fn joined(
        &mut self,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        let Claim::Capture { capture, stream, share } = claim else { return None };
        let mut seeds: SmallVec<[RangeId; 3 * SEEDS]> = SmallVec::new();
        let shelf = self.shelf(capture, stream);
        seeds.extend(shelf.own.largest().take(SEEDS).map(|run| run.id));
        if share {
            let entries: SmallVec<[Given; SEEDS]> =
                shelf.foreign.largest().take(SEEDS).map(|entry| entry.given).collect();
            let alive = entries.iter().filter(|&&given| self.ranges.given(given).is_some());
            seeds.extend(alive.map(|given| given.id));
        }
        for quiet in &self.quiet {
            seeds.extend(quiet.largest().take(SEEDS / 2).map(|range| range.id));
        }
        seeds.into_iter().find_map(|seed| self.around(seed, bytes, claim, prove))
    }

    /// The first of the neighbours around a range that hold `bytes` together, if the claim may
    /// take so many.
    fn around(
        &self,
        seed: RangeId,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        let mut held = 0;
        let mut at = Some(seed);
        while let Some(id) = at.filter(|&id| held < bytes && self.may_take(id, claim, prove)) {
            held += self.ranges[id].bytes;
            at = self.ranges[id].next;
        }
        let mut first = seed;
        let mut at = self.ranges[seed].previous.filter(|_| held > 0);
        while let Some(id) = at.filter(|&id| held < bytes && self.may_take(id, claim, prove)) {
            held += self.ranges[id].bytes;
            first = id;
            at = self.ranges[id].previous;
        }
        (held >= bytes).then_some(first)
    }

    /// Whether a claim may take a range.
    fn may_take(
        &self,
        id: RangeId,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> bool {
        match (&self.ranges[id].state, claim) {
            (State::Quiet { graphs }, Claim::Outside) => !graphs,
            (State::Quiet { .. }, Claim::Capture { .. }) => true,
            (State::Marked(marked), Claim::Capture { capture, stream, share }) => {
                marked.capture == capture
                    && (share || marked.owner == stream)
                    && prove(&marked.markers)
            }
            _ => false,
        }
    }

    fn adjoin(&self, run: Extent, next: Extent) -> bool {
        run.address + run.bytes == next.address
            && self.ranges[run.first].segment == self.ranges[next.first].segment
    }

    /// Everything that a claim may take, in address order.
    fn takeable(
        &mut self,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Vec<Extent> {
        let mut ids: Vec<RangeId> = Vec::new();
        let Claim::Capture { capture, stream, share } = claim else {
            return Vec::new();
        };
        let runs: Vec<RangeId> = self.shelf(capture, stream).own.iter().map(|run| run.id).collect();
        for first in runs {
            let mut at = Some(first);
            while let Some(id) = at {
                ids.push(id);
                at = self.run_mate(id, self.ranges[id].next);
            }
        }
        if share {
            self.read_on(capture, stream, prove);
            let foreign = &self.shelves[capture.index()].streams[stream.index()].foreign;
            let alive = foreign.iter().filter(|entry| self.ranges.given(entry.given).is_some());
            ids.extend(alive.map(|entry| entry.given.id));
        }
        ids.retain(
            |&id| matches!(&self.ranges[id].state, State::Marked(marked) if prove(&marked.markers)),
        );
        ids.extend(self.quiet.iter().flat_map(|quiet| quiet.iter()).map(|range| range.id));
        let mut extents: Vec<Extent> = ids
            .into_iter()
            .map(|first| {
                let Range { address, bytes, .. } = self.ranges[first];
                Extent { first, address, bytes }
            })
            .collect();
        extents.sort_unstable_by_key(|extent| extent.address);
        extents.dedup_by_key(|extent| extent.address);
        extents
    }

    /// The free end of a segment that the claim may take: its first range and its size, at most
    /// `bytes`.
    fn free_end(
        &self,
        segment: SegmentId,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> (Option<RangeId>, u64) {
        let mut first = None;
        let mut usable = 0;
        let mut at = self.segments[segment.index()].last;
        while let Some(id) = at.filter(|_| usable < bytes) {
            if !self.may_take(id, claim, prove) {
                break;
            }
            first = Some(id);
            usable += self.ranges[id].bytes;
            at = self.ranges[id].previous;
        }
        // The walk ends as soon as it has enough; a place that large would have been found before.
        (first, usable.min(bytes))
    }

    /// Enters newly mapped bytes behind a segment's last range.
    fn append(&mut self, segment: SegmentId, bytes: u64) -> RangeId {
        let Segment { address, mapped, last, .. } = self.segments[segment.index()];
        let state = State::Quiet { graphs: false };
        let start = address + mapped - bytes;
        let id = self.ranges.insert((start, bytes), segment, (last, None), state);
        self.segments[segment.index()].last = Some(id);
        self.list_quiet(id, false);
        self.reserved += bytes;
        id
    }

    /// Cuts a block out of the range at its edge and as many behind it as it needs, all of them
    /// free and theirs to take who asked.
    fn carve(&mut self, edge: Edge, bytes: u64) -> Placed {
        let (mut at, low) = match edge {
            Edge::Low(first) => (first, true),
            Edge::High(last) => (last, false),
        };
        let address = match edge {
            Edge::Low(first) => self.ranges[first].address,
            Edge::High(last) => self.ranges[last].end() - bytes,
        };
        let mut before = Before { markers: Markers::new(), graphs: false };
        let mut missing = bytes;
        loop {
            let Range { segment, previous, next, bytes: size, .. } = self.ranges[at];
            let taken = size.min(missing);
            missing -= taken;
            self.unite(at, &mut before);
            if taken < size {
                let listed = self.unlist(at, low);
                let rest = &mut self.ranges[at];
                rest.bytes -= taken;
                // Entered before the rest is listed again: else the rest would take the range on
                // the block's other side for its neighbour.
                let sides = if low {
                    rest.address += taken;
                    (previous, Some(at))
                } else {
                    (Some(at), next)
                };
                let range = self.ranges.insert((address, bytes), segment, sides, State::Allocated);
                if sides.1.is_none() {
                    self.segments[segment.index()].last = Some(range);
                }
                self.relist(at, listed);
                return Placed { range, address, before };
            }
            self.unlist_whole(at);
            if missing == 0 {
                let range = &mut self.ranges[at];
                range.state = State::Allocated;
                range.address = address;
                range.bytes = bytes;
                self.ranges.renew(at);
                return Placed { range: at, address, before };
            }
            self.ranges.remove(at);
            if next.is_none() {
                self.segments[segment.index()].last = previous;
            }
            let beside = if low { next } else { previous };
            at = beside.unwrap_or_else(|| unreachable!("the extent was large enough"));
        }
    }

    /// Unites what a free range asks for with `before`.
    fn unite(&self, id: RangeId, before: &mut Before) {
        match &self.ranges[id].state {
            State::Quiet { graphs } => before.graphs |= graphs,
            State::Marked(marked) => {
                before.graphs |= marked.graphs;
                for &marker in &marked.markers {
                    if !before.markers.contains(&marker) {
                        before.markers.push(marker);
                    }
                }
            }
            state => unreachable!("only free ranges are carved, not {state:?}"),
        }
    }

    /// Takes a free range off every list.
    fn unlist_whole(&mut self, id: RangeId) {
        match &self.ranges[id].state {
            &State::Quiet { graphs } => self.unlist_quiet(id, graphs),
            // News and entries of other streams name the range and are compared with it on use.
            State::Marked(marked) if marked.shelved => self.unshelve(id),
            _ => {}
        }
    }

    /// The same for a range that will be listed again when it has lost its low or its high end.
    fn unlist(&mut self, id: RangeId, low: bool) -> Unlisted {
        let Range { previous, next, .. } = self.ranges[id];
        let State::Marked(marked) = &self.ranges[id].state else {
            self.unlist_whole(id);
            return Unlisted::Single;
        };
        if !marked.shelved {
            return Unlisted::None;
        }
        let end = marked.run_end;
        if self.run_mate(id, if low { previous } else { next }).is_some() {
            self.unshelve(id);
            return Unlisted::Single;
        }
        // At the end of its run: the rest of the run need not be touched.
        let (first, last) = if low { (id, end) } else { (end, id) };
        self.unlist_run(first);
        Unlisted::Run { first, last }
    }

    /// Puts a range back on the lists of its kind after it shrank.
    fn relist(&mut self, id: RangeId, unlisted: Unlisted) {
        match (unlisted, &self.ranges[id].state) {
            (Unlisted::None, _) => {}
            (Unlisted::Run { first, last }, _) => self.list_run(first, last),
            (Unlisted::Single, &State::Quiet { graphs }) => self.list_quiet(id, graphs),
            (Unlisted::Single, _) => self.shelve(id),
        }
    }
}

/// What was taken off the lists for the sake of a range.
#[derive(Clone, Copy, Debug)]
enum Unlisted {
    /// Nothing: it was on none.
    None,
    /// The range alone.
    Single,
    /// The run that it begins or ends.
    Run { first: RangeId, last: RangeId },
}

/// How many extents, from the first on, hold `bytes`, and what they hold.
fn covering<'a>(extents: impl Iterator<Item = &'a Extent>, bytes: u64) -> Option<(usize, u64)> {
    let mut held = 0;
    for (count, extent) in extents.enumerate() {
        held += extent.bytes;
        if held >= bytes {
            return Some((count + 1, held));
        }
    }
    None
}
