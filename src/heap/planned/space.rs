//! What is free of the addresses that a capture's blocks have had, and for whom (design/plans.md, "Addresses"). A
//! *stretch* is whole pages of addresses, with what lies on each of their bytes, and the gaps in them.
//!
//! What is known here of who knows (`knowers`, a set of streams as a bit each) decides which addresses are had again,
//! never who may have them: that is asked of proofs, again only once they have changed.
//!
//! A search looks at all pages without a live block, at what lies before them, and at [`LOOKS`] gaps in pages in use of
//! each stream; besides, a block costs only what lies in its place.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::capture::{Capture, Markers, Moment, Proof, StreamIndex};
use crate::index::Map;

/// So many gaps in pages in use of each stream that a block may fit into are looked at, the smallest first.
const LOOKS: usize = 64;
/// Where no page is to spare, a block that would leave over one of so many parts of its last page, or more, begins in a
/// gap instead.
const SPARE: u64 = 16;
/// So many live blocks of a page are counted, less one.
const BLOCKS: usize = 1 << 20;
/// So many free stretches need no memory for a list of them.
const FEW: usize = 32;

/// Who asks for addresses.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(super) stream: StreamIndex,
    /// Whether it may have what other streams gave back.
    shares: bool,
    /// What it may have.
    proof: Proof<'a>,
    /// What others may have.
    order: &'a Capture,
}

impl<'a> Asker<'a> {
    pub(crate) fn new(
        stream: StreamIndex,
        shares: bool,
        proof: Proof<'a>,
        order: &'a Capture,
    ) -> Self {
        Self { stream, shares, proof, order }
    }
}

/// Addresses of a capture with nothing live on some of their bytes.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// The device's granularity, in bytes.
    unit: u64,
    /// Single pages with a live block, by address; those that one has alone are nowhere.
    used: Map<u64, Stretch>,
    /// Pages without a live block, by address. In a list, since a search looks at all.
    idle: Vec<Idle>,
    /// Gaps in those of `used` that are streams': each stream's by size and address.
    gaps: BTreeSet<(usize, u64, u64)>,
    /// Where two pages meet that blocks may have a part of, and none lies at the end of the one or at the beginning of
    /// the other. Some may be gone meanwhile: nothing is free at them then.
    seams: BTreeSet<u64>,
    /// How many pages a live block has alone. Not counted once the capture is over.
    alone: u64,
    /// The most pages that ever had live blocks.
    most_used: u64,
    learners: Learners,
    /// Changes of proofs are known up to this moment.
    seen: Moment,
}

/// Pages without a live block.
#[derive(Debug)]
struct Idle {
    pages: Stretch,
    knowers: Knowers,
}

/// What a place costs, the worst first. Of places that cost the same the lowest is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Pages that are in use for this block only.
    pages: u64,
    /// Those of them at new addresses, behind all that the stream has had.
    new: u64,
    /// How bad a page in use is that it goes into.
    rank: usize,
    /// Bytes that are left over in the page where the block ends, or in the gap; 0 where that does not matter.
    waste: u64,
    /// Pages that are left over of those that have been had before.
    left: u64,
}

/// A list that is short as a rule.
type List<T> = SmallVec<[T; FEW]>;

/// Pages that nothing uses.
#[derive(Clone, Copy)]
struct Free {
    address: u64,
    end: u64,
    /// Which other streams may have them too.
    knowers: u64,
    owner: Option<StreamIndex>,
}

/// Free addresses one behind the other: a gap at the end of a page in use, and free pages.
#[derive(Clone, Copy)]
struct Open {
    start: u64,
    /// Where the pages begin.
    first: u64,
    end: u64,
    /// Free bytes at the beginning of the page behind, which is in use.
    beyond: u64,
}

impl Idle {
    fn new(pages: Stretch) -> Self {
        Self { pages, knowers: Knowers::default() }
    }

    fn start(&self) -> u64 {
        self.pages.extent().0
    }

    fn is_for(&self, asker: &Asker<'_>) -> bool {
        let mine = asker.shares || self.pages.owner == Some(asker.stream);
        mine && self.pages.is_for(asker.proof)
    }
}

impl Space {
    pub(super) fn new(unit: u64) -> Self {
        Self { unit, ..Self::default() }
    }

    /// Nothing more is to be had.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.unit);
    }

    /// There are addresses that no block has had.
    pub(super) fn open(&mut self, address: u64, bytes: u64) {
        let end = address + bytes;
        self.enter(Idle::new(Stretch::idle((address, end), None, Markers::new())));
    }

    /// Whether all bytes of a place are here and without a live block, and the asker may have each.
    pub(super) fn is_for(&self, asker: &Asker<'_>, (address, bytes): (u64, u64)) -> bool {
        let end = address + bytes;
        let mut at = address;
        while at < end {
            let idle = self.idle[..self.idle_from(at + 1)].last().map(|idle| &idle.pages);
            let idle = idle.filter(|pages| pages.extent().1 > at);
            let page = self.used_around(at).or(idle);
            let Some(stretch) = page else { break };
            if !stretch.is_free((address, end), asker.proof) {
                break;
            }
            at = stretch.extent().1;
        }
        asker.shares && at >= end
    }

    /// The best place for a block of `bytes`, and how many bytes of it, in whole pages, lie at new addresses of its
    /// stream, which begin at `fresh`.
    pub(super) fn find(&mut self, asker: &Asker<'_>, bytes: u64, fresh: u64) -> (u64, u64) {
        let pages = bytes.div_ceil(self.unit);
        let (mut free, mixed) = self.free(asker);
        let given = free.iter().filter_map(|free| Some((free.owner?, free.knowers)));
        self.learners.note(asker.stream, given);
        let streams = if asker.shares { asker.order.seen() } else { 0 };
        let peers = self.learners.peers(asker.stream, streams);
        // What is free for the fewest would go first.
        let all = free.iter().fold(u64::MAX, |all, it| all & it.knowers);
        free.retain(|free| free.knowers & !all == 0);
        let new = pages * self.unit;
        let cost = Cost { pages, new: pages, rank: 0, waste: new - bytes, left: 0 };
        let mut best = (cost, fresh);
        for stream in peers.streams().filter(|_| bytes < self.unit) {
            let gaps = self.gaps.range((stream, bytes, 0)..(stream + 1, 0, 0)).take(LOOKS);
            let used =
                gaps.filter_map(|&(_, size, at)| Some((self.used_around(at)?, (at, at + size))));
            let mixed = mixed.iter().map(|&row| &self.idle[row].pages);
            let mixed = mixed.filter(|it| it.owner.is_some_and(|own| own.index() == stream));
            for (page, gap) in used.chain(mixed.map(|page| (page, page.extent()))) {
                // What the asker may have of a gap in a page in use.
                let Some(address) = page.fit(gap, bytes, asker.proof) else { continue };
                let cost = Cost { rank: rank(page, asker, peers), ..Cost::default() };
                best = (cost, address).min(best);
            }
        }
        for open in self.opens(&free, (asker, peers), fresh) {
            self.offer(open, bytes, fresh, &mut best);
        }
        (best.1, best.0.new * self.unit)
    }

    /// Free pages that lie one behind the other, with the gaps around them; such gaps without pages between them; and
    /// where new addresses begin.
    fn opens(&self, free: &[Free], (asker, peers): (&Asker<'_>, Peers), fresh: u64) -> List<Open> {
        let none = |at: u64| Open { start: at, first: at, end: at, beyond: 0 };
        let mut open = none(fresh);
        let mut opens = List::new();
        for pages in free {
            if open.end == pages.address {
                open.end = pages.end;
            } else {
                opens.push(open);
                open = Open { end: pages.end, ..none(pages.address) };
            }
        }
        opens.push(open);
        if opens.iter().skip(1).any(|open| open.end == fresh) {
            opens.swap_remove(0);
        }
        opens.extend(self.seams.iter().map(|&seam| none(seam)));
        for open in &mut opens {
            // The gap at the end of the page before.
            let page = open.first.wrapping_sub(self.unit);
            if let Some(stretch) = self.in_use(page, asker, peers) {
                open.start = open.first - gap_of(stretch.parts.iter().rev(), asker.proof);
            }
            let behind = self.in_use(open.end, asker, peers);
            open.beyond = behind.map_or(0, |it| gap_of(it.parts.iter(), asker.proof));
        }
        opens
    }

    /// How many pages have live blocks.
    fn pages_used(&self) -> u64 {
        self.used.len() as u64 + self.alone
    }

    /// The page in use that an address is of.
    fn used_around(&self, address: u64) -> Option<&Stretch> {
        self.used.get(&(address / self.unit * self.unit))
    }

    /// A page that is in use, and that of one of these streams.
    fn in_use(&self, page: u64, asker: &Asker<'_>, peers: Peers) -> Option<&Stretch> {
        let used = self.used.get(&page).or_else(|| {
            // Without a live block, but not proven to be done with.
            let idle = self.idle_at(page).map(|at| &self.idle[at]);
            idle.filter(|idle| !idle.is_for(asker)).map(|idle| &idle.pages)
        });
        used.filter(|used| used.owner.is_some_and(|owner| peers.has(owner)))
    }

    /// Looks at the ways to lie on free addresses, and on new ones where these follow.
    fn offer(&self, open: Open, bytes: u64, fresh: u64, best: &mut (Cost, u64)) {
        let Open { start, first, end, beyond } = open;
        let gap = first - start;
        let over = bytes.next_multiple_of(self.unit) - bytes;
        // No page is to spare.
        let grows = over >= self.unit / SPARE && self.pages_used() >= self.most_used;
        let mut at = |address: u64, waste: Option<u64>| {
            let there = (end - first) / self.unit;
            let last = address + bytes;
            if last <= first || address >= end {
                // It lies in one page in use, whose gaps were looked at.
                return;
            }
            if last > end && last <= end + beyond {
                // It ends in the page behind.
                let from = address.max(first) / self.unit * self.unit;
                let pages = (end - from) / self.unit;
                let head = address.saturating_sub(from) + waste.unwrap_or(0);
                let waste = end + beyond - last + head;
                let cost = Cost { pages, new: 0, rank: 0, waste, left: there - pages };
                *best = (cost, address).min(*best);
                return;
            }
            let pages = (last - first).div_ceil(self.unit);
            if pages > there && end != fresh {
                return;
            }
            let (new, left) = (pages.saturating_sub(there), there.saturating_sub(pages));
            let waste = waste.unwrap_or(first + pages * self.unit - last);
            let waste = if grows { 0 } else { waste };
            *best = (Cost { pages, new, rank: 0, waste, left }, address).min(*best);
        };
        at(first, None);
        if gap > 0 {
            at(start, None);
            // The block ends where a page does.
            let rest = bytes % self.unit;
            if (1..gap).contains(&rest) {
                at(first - rest, Some(gap - rest));
            }
        }
        if beyond > 0 {
            let whole = bytes / self.unit * self.unit;
            if whole <= end - first {
                at(end - whole, None);
            }
            // It ends where the gap does.
            if let Some(address) = (end + beyond).checked_sub(bytes).filter(|at| *at >= start) {
                at(address, Some(0));
            }
        }
    }

    /// What nothing uses that the asker may have, and the rows of `idle` of which it may have a part. Both by address.
    fn free(&mut self, asker: &Asker<'_>) -> (List<Free>, List<usize>) {
        let others = OtherStreams::new(asker, &mut self.seen);
        let (mut free, mut mixed) = (List::new(), List::new());
        for (row, idle) in self.idle.iter_mut().enumerate() {
            // Whose proof has changed is to be asked again.
            idle.knowers.unasked |= others.changed;
            if idle.is_for(asker) {
                let (pages, knowers) = (&idle.pages, &mut idle.knowers);
                let knows = |stream| pages.is_for(asker.order.proof(stream));
                let knowers = knowers.among(&others, knows);
                let (address, end) = pages.extent();
                free.push(Free { address, end, knowers, owner: pages.owner });
            } else if idle.pages.parts.len() > 1 {
                mixed.push(row);
            }
        }
        (free, mixed)
    }

    /// Forgets so many bytes of free pages: those first that the fewest streams may come to have, then may have now.
    pub(super) fn forget(&mut self, asker: &Asker<'_>, mut bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (mut free, _) = self.free(asker);
        let learners = |free: &Free| -> u32 {
            let known = streams_of(free.knowers | bit(asker.stream));
            known.fold(0, |all, stream| all | self.learners.of(stream)).count_ones()
        };
        free.sort_by_cached_key(|it| (learners(it), it.knowers.count_ones(), it.end - it.address));
        for Free { address, end, .. } in free {
            let part = bytes.min(end - address);
            bytes -= part;
            self.cut(end - part);
            self.leave(end - part);
            if bytes == 0 {
                return;
            }
        }
    }

    /// A block lies there now. Returns what had to be proven for it.
    pub(super) fn take(&mut self, stream: StreamIndex, (address, bytes): (u64, u64)) -> Markers {
        let unit = self.unit;
        let end = address + bytes;
        let mut beneath = Markers::new();
        let (first, last) = (address.next_multiple_of(unit), end / unit * unit);
        if first < last {
            self.alone += (last - first) / unit;
            self.cut(first);
            self.cut(last);
            let within = self.idle_from(first)..self.idle_from(last);
            let within = self.idle.drain(within);
            within.for_each(|idle| add(&mut beneath, idle.pages.given()));
        }
        for page in partly((address, end), unit) {
            let place = (page.max(address), (page + unit).min(end));
            if !self.used.contains_key(&page) {
                self.cut(page);
                self.cut(page + unit);
                // Else no block has had it.
                let pages = self.leave(page).map(|idle| idle.pages);
                let none = || Stretch::idle((page, page + unit), None, Markers::new());
                let pages = Stretch { owner: Some(stream), ..pages.unwrap_or_else(none) };
                self.used.insert(page, pages);
            }
            let Some(it) = self.used.get_mut(&page) else { continue };
            let (owner, free) = (it.owner, it.occupy(place, &mut beneath));
            if let Some(gap) = gap(owner, free) {
                self.gaps.remove(&gap);
            }
            self.gaps.extend(gap(owner, (free.0, place.0)));
            self.gaps.extend(gap(owner, (place.1, free.1)));
            self.note_seams(page);
        }
        self.most_used = self.most_used.max(self.pages_used());
        beneath
    }

    /// A block is gone; who has its addresses next must have these proven.
    pub(super) fn give(
        &mut self,
        stream: StreamIndex,
        (address, bytes): (u64, u64),
        given: Markers,
    ) {
        let unit = self.unit;
        let end = address + bytes;
        for page in partly((address, end), unit) {
            let Some(it) = self.used.get_mut(&page) else { continue };
            let place = (page.max(address), (page + unit).min(end));
            let (owner, Some(free)) = (it.owner, it.vacate(place, &given)) else { continue };
            let around = [(free.0, place.0), (place.1, free.1)];
            for gap in around.into_iter().filter_map(|it| gap(owner, it)) {
                self.gaps.remove(&gap);
            }
            if free != it.extent() {
                self.gaps.extend(gap(owner, free));
            } else if let Some(page) = self.used.remove(&page) {
                self.enter(Idle::new(page));
            }
            self.note_seams(page);
        }
        let (first, last) = (address.next_multiple_of(unit), end / unit * unit);
        if first < last {
            self.alone = self.alone.saturating_sub((last - first) / unit);
            self.enter(Idle::new(Stretch::idle((first, last), Some(stream), given)));
        }
    }

    /// Notes of both ends of a page whether gaps meet there, as it is now.
    fn note_seams(&mut self, page: u64) {
        // Idle pages that a stream may have all or nothing of have no gaps.
        let in_part = |page: u64| {
            let idle =
                || Some(&self.idle[self.idle_at(page)?].pages).filter(|it| it.parts.len() > 1);
            self.used.get(&page).or_else(idle)
        };
        let meet = |seam: u64| {
            in_part(seam.wrapping_sub(self.unit))
                .is_some_and(|it| it.parts[it.parts.len() - 1].is_free())
                && in_part(seam).is_some_and(|it| it.parts[0].is_free())
        };
        for (seam, meet) in [page, page + self.unit].map(|seam| (seam, meet(seam))) {
            match meet {
                true => self.seams.insert(seam),
                false => self.seams.remove(&seam),
            };
        }
    }

    /// Parts the pages without a live block around the beginning of a page.
    fn cut(&mut self, at: u64) {
        let behind = self.idle_from(at);
        let around = behind.checked_sub(1).map(|around| &mut self.idle[around]);
        let Some(around) = around.filter(|around| around.pages.extent().1 > at) else { return };
        let rest = Idle { pages: around.pages.split_off(at), knowers: around.knowers };
        self.idle.insert(behind, rest);
    }

    /// Pages without a live block are here from now on.
    fn enter(&mut self, idle: Idle) {
        self.idle.insert(self.idle_from(idle.start()), idle);
    }

    /// Pages without a live block are here no more.
    fn leave(&mut self, address: u64) -> Option<Idle> {
        Some(self.idle.remove(self.idle_at(address)?))
    }

    /// The row of the pages without a live block that begin at an address.
    fn idle_at(&self, address: u64) -> Option<usize> {
        self.idle.binary_search_by_key(&address, Idle::start).ok()
    }

    /// The row of the first that begin there or behind.
    fn idle_from(&self, address: u64) -> usize {
        self.idle.partition_point(|idle| idle.start() < address)
    }
}

/// How bad a page in use is for one more block of an asker: where something lies that a stream knows of which the
/// asker never hears of, the page is lost to it already; else it comes free the later the more live blocks there are.
fn rank(page: &Stretch, asker: &Asker<'_>, peers: Peers) -> usize {
    let knows = |given: &Markers| {
        let mut strangers = asker.order.streams().filter(|stream| !peers.has(*stream));
        strangers.any(|stranger| asker.order.proves(stranger, given))
    };
    let kept = !page.given().any(|given| !asker.proof.covers(given) && knows(given));
    let live = page.parts.iter().filter(|part| !part.is_free()).count();
    usize::from(kept) * BLOCKS + (BLOCKS - live.min(BLOCKS))
}

/// The pages that a block has a part of.
fn partly((address, end): (u64, u64), unit: u64) -> impl Iterator<Item = u64> {
    let (first, last) = (address / unit * unit, (end - 1) / unit * unit);
    let head = (address > first || end < first + unit).then_some(first);
    let tail = (last > first && end < last + unit).then_some(last);
    head.into_iter().chain(tail)
}

/// Whole pages: one, or more without a live block.
#[derive(Debug)]
struct Stretch {
    /// Whose block it had first; `None` where there was none.
    owner: Option<StreamIndex>,
    /// All its bytes, by address: one part at least. What is live lies between what is free.
    parts: SmallVec<[Part; 1]>,
}

#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    /// What must be proven to have it; none while a block lies there.
    given: Option<Markers>,
}

impl Part {
    fn is_free(&self) -> bool {
        self.given.is_some()
    }

    fn is_for(&self, proof: Proof<'_>) -> bool {
        self.given.as_ref().is_some_and(|markers| proof.covers(markers))
    }
}

impl Stretch {
    /// Addresses without a live block: a stream that gets them must have proven `given`.
    fn idle((start, end): (u64, u64), owner: Option<StreamIndex>, given: Markers) -> Self {
        let parts = SmallVec::from_buf([Part { start, end, given: Some(given) }]);
        Self { owner, parts }
    }

    /// Where it begins and ends.
    #[inline]
    fn extent(&self) -> (u64, u64) {
        (self.parts[0].start, self.parts[self.parts.len() - 1].end)
    }

    /// What has been given back, each with what must be proven to have it.
    fn given(&self) -> impl Iterator<Item = &Markers> {
        self.parts.iter().filter_map(|part| part.given.as_ref())
    }

    /// Whether a stream may have all of it.
    fn is_for(&self, proof: Proof<'_>) -> bool {
        self.parts.iter().all(|part| part.is_for(proof))
    }

    /// Whether a stream may have all that lies there of some addresses.
    fn is_free(&self, (from, to): (u64, u64), proof: Proof<'_>) -> bool {
        let mut here = self.parts.iter().filter(|part| part.start < to && part.end > from);
        here.all(|part| part.is_for(proof))
    }

    /// The first address of a gap at which a stream may have `bytes`.
    fn fit(&self, (start, end): (u64, u64), bytes: u64, proof: Proof<'_>) -> Option<u64> {
        let mut begin = None;
        let gap = &self.parts[self.first_from(start)..self.first_from(end)];
        gap.iter().find_map(|part| {
            if !part.is_for(proof) {
                begin = None;
                return None;
            }
            let begin = *begin.get_or_insert(part.start);
            (part.end - begin >= bytes).then_some(begin)
        })
    }

    /// Cuts off what lies behind an address, where no live block does.
    fn split_off(&mut self, at: u64) -> Self {
        self.part_at(at);
        let parts = self.parts.drain(self.first_from(at)..).collect();
        Self { owner: self.owner, parts }
    }

    /// A block lies in a gap from now on; adds what had to be proven for it. Returns the gap.
    fn occupy(&mut self, (from, to): (u64, u64), beneath: &mut Markers) -> (u64, u64) {
        // It parts one into three at most.
        self.parts.reserve(2);
        self.part_at(from);
        self.part_at(to);
        let (first, behind) = (self.first_from(from), self.first_from(to));
        let here = self.parts.drain(first..behind);
        here.for_each(|part| add(beneath, part.given.as_slice()));
        self.parts.insert(first, Part { start: from, end: to, given: None });
        self.gap_around(first)
    }

    /// A block is gone from there. Returns the gap that there is then, if it was there.
    fn vacate(&mut self, (from, to): (u64, u64), given: &Markers) -> Option<(u64, u64)> {
        let mut at = self.parts.binary_search_by_key(&from, |part| part.start).ok()?;
        self.parts.get(at).filter(|part| part.end == to && !part.is_free())?;
        let same = |part: &Part| part.given.as_ref() == Some(given);
        let mut gone = Part { start: from, end: to, given: Some(given.clone()) };
        if let Some(after) = self.parts.get(at + 1).filter(|part| same(part)) {
            gone.end = after.end;
            self.parts.remove(at + 1);
        }
        if let Some(before) = at.checked_sub(1).filter(|&before| same(&self.parts[before])) {
            gone.start = self.parts[before].start;
            self.parts.remove(at);
            at = before;
        }
        self.parts[at] = gone;
        Some(self.gap_around(at))
    }

    /// What lies side by side around a part without a live block.
    fn gap_around(&self, at: usize) -> (u64, u64) {
        let Part { start, end, .. } = self.parts[at];
        let before = self.parts[..at].iter().rev().take_while(|part| part.is_free()).last();
        let after = self.parts[at + 1..].iter().take_while(|part| part.is_free()).last();
        (before.map_or(start, |part| part.start), after.map_or(end, |part| part.end))
    }

    /// Parts what is around an address there.
    fn part_at(&mut self, at: u64) {
        let next = self.first_from(at);
        let around = next.checked_sub(1).map(|around| &mut self.parts[around]);
        let Some(around) = around.filter(|around| around.end > at) else { return };
        let rest = Part { start: at, end: around.end, given: around.given.clone() };
        around.end = at;
        self.parts.insert(next, rest);
    }

    /// Which part is the first that begins at an address or behind it.
    fn first_from(&self, at: u64) -> usize {
        self.parts.partition_point(|part| part.start < at)
    }
}

/// How many bytes of parts are free for a stream, up to the first that is not.
fn gap_of<'a>(parts: impl Iterator<Item = &'a Part>, proof: Proof<'_>) -> u64 {
    parts.take_while(|part| part.is_for(proof)).map(|part| part.end - part.start).sum()
}

/// A gap in a page of a stream, as gaps are sorted: by stream, size and address. None where the page is no stream's.
fn gap(owner: Option<StreamIndex>, (start, end): (u64, u64)) -> Option<(usize, u64, u64)> {
    owner.filter(|_| start < end).map(|owner| (owner.index(), end - start, start))
}

fn add<'a>(all: &mut Markers, given: impl IntoIterator<Item = &'a Markers>) {
    for marker in given.into_iter().flatten() {
        if !all.contains(marker) {
            all.push(*marker);
        }
    }
}

/// The bit of the streams behind.
const LAST_BIT: usize = 63;
/// So often a stream has been seen to know of another, and not the other way round, until it is taken to stay so.
/// A fork comes before its join.
const FORKS: u8 = 4;

/// Which streams may have some pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Knowers {
    known: u64,
    /// Which streams are to be asked before `known` tells of them.
    unasked: u64,
}

/// A request of one stream, and the others.
#[derive(Debug)]
pub(super) struct OtherStreams<'a> {
    order: &'a Capture,
    but: StreamIndex,
    streams: u64,
    /// Which streams' proofs may not be those of the last request.
    changed: u64,
}

impl<'a> OtherStreams<'a> {
    /// All streams but the one that makes a request. `seen`, up to which changes of proofs were known, becomes now.
    /// Takes a step for each stream.
    fn new(&Asker { order, stream: but, .. }: &Asker<'a>, seen: &mut Moment) -> Self {
        let since = std::mem::replace(seen, order.moment());
        let streams = order.streams().filter(|stream| *stream != but);
        let streams = streams.fold(0, |all, stream| all | bit(stream));
        let changed = order.streams().filter(|stream| order.changed_since(*stream, since));
        // Those that share a bit are asked each time: the one that is left out may be any of them.
        let changed = changed.fold(1 << LAST_BIT, |all, stream| all | bit(stream));
        Self { order, but, streams, changed }
    }
}

impl Default for Knowers {
    fn default() -> Self {
        Self { known: 0, unasked: u64::MAX }
    }
}

impl Knowers {
    /// Which of the others may have the pages; `knows` is asked of those of which it is not known.
    pub(super) fn among(
        &mut self,
        others: &OtherStreams<'_>,
        knows: impl Fn(StreamIndex) -> bool,
    ) -> u64 {
        let ask = self.unasked & others.streams;
        self.unasked &= !ask;
        self.known &= !ask;
        let any = |bit: usize| {
            let behind = if bit == LAST_BIT { others.order.seen() } else { bit + 1 };
            let mut streams = (bit..behind).map(StreamIndex::new).filter(|it| *it != others.but);
            u64::from(streams.any(&knows)) << bit
        };
        self.known |= streams_of(ask).fold(0, |all, bit| all | any(bit));
        debug_assert!(streams_of(others.streams).all(|bit| self.known & 1 << bit == any(bit)));
        self.known & others.streams
    }
}

/// Which streams come to know of what others gave back, as far as was seen.
#[derive(Debug, Default)]
pub(super) struct Learners {
    /// By stream: which streams have come to know of anything that it gave back, or of what these gave back.
    of: Vec<u64>,
    /// By stream, and by one that knows of it: at how many requests that was seen, [`FORKS`] at most.
    seen: Vec<[u8; LAST_BIT]>,
}

/// A stream, and those with whose blocks its own may share a page in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peers {
    own: StreamIndex,
    others: u64,
}

impl Learners {
    /// Notes that a stream may have, at a request, what some streams gave back, and which others may have each. Takes a
    /// few steps for each, and where anything is new one for each stream.
    pub(super) fn note(
        &mut self,
        asker: StreamIndex,
        given: impl Iterator<Item = (StreamIndex, u64)>,
    ) {
        let mut owners = 0;
        for (owner, knowers) in given {
            owners |= bit(owner);
            self.add(owner.index().min(LAST_BIT), knowers | bit(asker));
        }
        for owner in streams_of(owners & !(1 << LAST_BIT)) {
            if self.seen.len() <= owner {
                self.seen.resize(owner + 1, [0; LAST_BIT]);
            }
            if let Some(seen) = self.seen[owner].get_mut(asker.index()) {
                *seen = (*seen + 1).min(FORKS);
            }
        }
    }

    /// Learners of learners are learners.
    fn add(&mut self, owner: usize, learners: u64) {
        if learners & !self.of(owner) == 0 {
            return;
        }
        let all = streams_of(learners).fold(0, |all, learner| all | self.of(learner));
        let most = owner.max(LAST_BIT.saturating_sub(learners.leading_zeros() as usize));
        if self.of.len() <= most {
            let from = self.of.len();
            self.of.extend((from..=most).map(|stream| 1 << stream));
        }
        for known in self.of.iter_mut().filter(|known| **known >> owner & 1 == 1) {
            *known |= all;
        }
    }

    /// Which streams come to know of what a stream gives back, itself among them.
    pub(super) fn of(&self, stream: usize) -> u64 {
        self.of.get(stream).copied().unwrap_or(1 << stream)
    }

    /// With the blocks of which of the first `streams` streams those of a stream may share a page in use.
    pub(super) fn peers(&self, own: StreamIndex, streams: usize) -> Peers {
        let row = own.index();
        let reaches = |from: usize, to: usize| self.of(from) >> to & 1 == 1;
        let often = |from: usize, to: usize| self.seen.get(from).is_some_and(|it| it[to] == FORKS);
        let one_way =
            |from: usize, to: usize| reaches(from, to) && !reaches(to, from) && often(from, to);
        // Those whose bit is not theirs alone have none.
        let others = 0..if row < LAST_BIT { streams.min(LAST_BIT) } else { 0 };
        let others = others.filter(|&it| it != row && !one_way(row, it) && !one_way(it, row));
        Peers { own, others: others.fold(0, |all, other| all | 1 << other) }
    }
}

impl Peers {
    /// Whether it is one of them.
    pub(super) fn has(self, stream: StreamIndex) -> bool {
        let other = stream.index() < LAST_BIT && self.others >> stream.index() & 1 == 1;
        other || stream == self.own
    }

    /// The stream, then the others.
    pub(super) fn streams(self) -> impl Iterator<Item = usize> {
        std::iter::once(self.own.index()).chain(streams_of(self.others))
    }
}

/// The bit of a stream; all from the last on have one.
pub(super) fn bit(stream: StreamIndex) -> u64 {
    1 << stream.index().min(LAST_BIT)
}

pub(super) fn streams_of(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let stream = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(stream)
    })
}
