//! What is free of the addresses that a capture's blocks have had, and for whom.
//!
//! Physical memory comes by pages, so what counts is how many pages are in use. A page that holds a
//! block that is live, or not proven to be done with, is in use anyway: further blocks of its stream, and of those
//! that it waits for and that wait for it (`kin`), go into its gaps, or begin in the gap at its end: where
//! something lies already that will never be known of, else beside the most live blocks. All other pages that a
//! block needs are taken anew. Whether they lie at addresses that other blocks have had decides the mappings, and, since
//! who has a page's addresses after another has its memory too, it may cost memory. So addresses are
//! had again only where the memory would go the same way in a plan that lets each page go to the next
//! taker among those of which the fewest streams know; where a block gets new addresses, as many
//! pages of old ones are forgotten: those first that the fewest streams will come to know, as far as is known of who
//! waits for whom.
//!
//! Where pages at other addresses may lie on the same memory (`beside`), the ends of a block at new addresses may
//! lie on such pages too: its pages there are views of them (`views`). A block goes where the least is left over then.
//!
//! A search looks at free pages, at what lies before them, and at [`LOOKS`] gaps; besides, a block costs
//! only what lies in its place.

use std::collections::{BTreeMap, BTreeSet};

use super::ends::{ways, Beside, End};
use super::kin::{bit, streams_of, Kin};
use super::views::Views;
use crate::capture::{Capture, Markers, NodeIndex, Proof, StreamIndex};

/// So many gaps that a block may fit into are looked at, the smallest first.
const LOOKS: usize = 64;
/// So many pages that are in use are looked at for the ends of a block to lie beside, those with the largest gaps
/// first.
const BESIDE: usize = 256;
/// So many live blocks of a page are counted, less one.
const BLOCKS: usize = 1 << 20;
/// The row of gaps in pages that are no stream's.
const UNOWNED: usize = usize::MAX;

/// Who asks for addresses.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) stream: StreamIndex,
    /// Whether it may have what other streams gave back.
    pub(crate) shares: bool,
    /// What it may have.
    pub(crate) proof: Proof<'a>,
    /// What others may have.
    pub(crate) order: &'a Capture,
    /// Whether pages at other addresses may lie beside it on its pages of memory.
    pub(crate) beside: bool,
}

/// Addresses of a capture with nothing live on some of their bytes.
#[derive(Debug)]
pub(super) struct Space {
    /// The device's granularity, in bytes.
    unit: u64,
    /// By address; pages that a live block has alone are in none.
    stretches: BTreeMap<u64, Stretch>,
    /// Those without a live block, by address.
    idle: BTreeMap<u64, Idle>,
    /// Gaps in single pages: the number of the stream whose the page is, or [`UNOWNED`]; the size; the address.
    gaps: BTreeSet<(usize, u64, u64)>,
    /// Pages that lie on the same memory: only one of each is in the maps above.
    views: Views,
    kin: Kin,
}

/// Whole pages: one, or more without a live block.
#[derive(Debug)]
struct Stretch {
    end: u64,
    /// Whose block it had first; `None` where there was none.
    owner: Option<StreamIndex>,
    /// Whether pages at other addresses may lie on its memory.
    joint: bool,
    /// All its bytes, by their begins.
    parts: BTreeMap<u64, Part>,
    /// What lies side by side without a live block: begins and ends.
    gaps: BTreeMap<u64, u64>,
}

/// What every search asks of a stretch without a live block.
#[derive(Debug)]
struct Idle {
    end: u64,
    owner: Option<StreamIndex>,
    /// What must be proven to have all of it.
    given: Markers,
}

#[derive(Clone, Debug)]
struct Part {
    end: u64,
    /// What must be proven to have it; none while a block lies there.
    given: Option<Markers>,
}

/// Where a block may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) address: u64,
    /// How many bytes of it, in whole pages, lie behind all addresses that the stream has had.
    pub(super) new: u64,
    /// Whether pages at other addresses may lie on its pages' memory.
    joint: bool,
    /// On whose pages its ends lie, where it has new addresses.
    beside: Beside,
}

impl Spot {
    /// A place at these addresses.
    pub(super) fn at(address: u64, new: u64) -> Self {
        Self { address, new, joint: false, beside: Beside::default() }
    }

    /// How many bytes of it in whole pages are memory that no block has had.
    pub(super) fn new_memory(&self, unit: u64) -> u64 {
        self.new.saturating_sub(self.beside.count() * unit)
    }
}

/// What a spot costs, the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Pages that are in use for this block only.
    pages: u64,
    /// Those of them at new addresses.
    new: u64,
    /// Where pages are not shared by bytes: how bad a page in use is that it goes into.
    rank: usize,
    /// Bytes that are left over in the page where the block ends, or in the gap.
    waste: u64,
    /// Pages that are left over of those that have been had before.
    left: u64,
}

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

impl Stretch {
    /// Without a live block.
    fn idle(start: u64, end: u64, owner: Option<StreamIndex>, given: Markers) -> Self {
        let parts = BTreeMap::from([(start, Part { end, given: Some(given) })]);
        Self { end, owner, joint: false, parts, gaps: BTreeMap::from([(start, end)]) }
    }

    /// How bad it is for one more block of an asker: where something lies that a stream knows of which the asker
    /// never hears of, the page is lost to it already; else it comes free the later the more live blocks there are.
    fn rank(&self, asker: &Asker<'_>, rows: &[usize]) -> usize {
        let strange = |stream: &StreamIndex| !rows.contains(&stream.index());
        let strangers: Vec<_> = asker.order.streams().filter(strange).collect();
        let knows = |given: &Markers| strangers.iter().any(|it| asker.order.proves(*it, given));
        let lost = |given: &Markers| !asker.proof.covers(given) && knows(given);
        let kept = !self.parts.values().filter_map(|part| part.given.as_ref()).any(lost);
        let live = self.parts.values().filter(|part| part.given.is_none()).count();
        usize::from(kept) * BLOCKS + (BLOCKS - live.min(BLOCKS))
    }

    /// Whether no live block lies there.
    fn is_idle(&self) -> bool {
        let all = self.parts.keys().next().map(|start| (start, &self.end));
        self.gaps.first_key_value() == all
    }

    /// How many bytes at its beginning are free for a stream.
    fn start_gap(&self, proof: Proof<'_>) -> u64 {
        let free = self.parts.iter().take_while(|part| part.1.is_for(proof));
        free.map(|(start, part)| part.end - start).sum()
    }

    /// How many bytes at its end are free for a stream.
    fn end_gap(&self, proof: Proof<'_>) -> u64 {
        let free = self.parts.iter().rev().take_while(|part| part.1.is_for(proof));
        free.map(|(start, part)| part.end - start).sum()
    }

    /// The same at another address.
    fn moved(self, from: u64, to: u64) -> Self {
        let there = |at: u64| at - from + to;
        let part =
            |(start, part): (u64, Part)| (there(start), Part { end: there(part.end), ..part });
        Self {
            end: there(self.end),
            owner: self.owner,
            joint: self.joint,
            parts: self.parts.into_iter().map(part).collect(),
            gaps: self.gaps.into_iter().map(|(start, end)| (there(start), there(end))).collect(),
        }
    }

    /// Parts what is around an address there.
    fn part_at(&mut self, at: u64) {
        let Some((_, around)) = self.parts.range_mut(..at).next_back() else { return };
        if around.end > at {
            let rest = Part { end: around.end, given: around.given.clone() };
            around.end = at;
            self.parts.insert(at, rest);
        }
    }

    /// Cuts off what lies behind an address, where no live block does.
    fn split_off(&mut self, at: u64) -> Self {
        self.part_at(at);
        let parts = self.parts.split_off(&at);
        let end = std::mem::replace(&mut self.end, at);
        if let Some(mut last) = self.gaps.last_entry() {
            *last.get_mut() = at;
        }
        Self { end, owner: self.owner, joint: self.joint, parts, gaps: BTreeMap::from([(at, end)]) }
    }

    /// A block lies in a gap from now on; adds what had to be proven for it. Returns the gap.
    fn occupy(&mut self, (from, to): (u64, u64), beneath: &mut Markers) -> (u64, u64) {
        self.part_at(from);
        self.part_at(to);
        let within: Vec<u64> = self.parts.range(from..to).map(|part| *part.0).collect();
        for start in within {
            let part = self.parts.remove(&start);
            add(beneath, part.iter().flat_map(|part| &part.given).flatten());
        }
        self.parts.insert(from, Part { end: to, given: None });
        let gap = self.gaps.range(..=from).next_back();
        let gap = gap.map_or((from, to), |(start, end)| (*start, *end));
        self.gaps.remove(&gap.0);
        for (start, end) in [(gap.0, from), (to, gap.1)] {
            if start < end {
                self.gaps.insert(start, end);
            }
        }
        gap
    }

    /// A block is gone from there. Returns the gap that there is then.
    fn vacate(&mut self, (from, to): (u64, u64), given: &Markers) -> (u64, u64) {
        let (mut start, mut end) = (from, to);
        let same = |part: &Part| part.given.as_ref() == Some(given);
        let before = self.parts.range(..from).next_back().filter(|part| same(part.1));
        if let Some((&before, _)) = before {
            start = before;
        }
        if let Some(after) = self.parts.get(&to).filter(|part| same(part)) {
            end = after.end;
            self.parts.remove(&to);
        }
        if start < from {
            self.parts.remove(&from);
        }
        self.parts.insert(start, Part { end, given: Some(given.clone()) });
        let (mut gap, after) = ((from, to), self.gaps.remove(&to));
        gap.1 = after.unwrap_or(to);
        if let Some((&before, _)) = self.gaps.range(..from).next_back().filter(|it| *it.1 == from) {
            gap.0 = before;
        }
        self.gaps.insert(gap.0, gap.1);
        gap
    }
}

impl Idle {
    fn new(stretch: &Stretch) -> Self {
        let mut given = Markers::new();
        stretch.parts.values().for_each(|part| add(&mut given, part.given.iter().flatten()));
        Self { end: stretch.end, owner: stretch.owner, given }
    }

    fn is_for(&self, asker: &Asker<'_>) -> bool {
        let mine = asker.shares || self.owner == Some(asker.stream);
        mine && asker.proof.covers(&self.given)
    }
}

impl Part {
    fn is_for(&self, proof: Proof<'_>) -> bool {
        self.given.as_ref().is_some_and(|markers| proof.covers(markers))
    }
}

impl Space {
    pub(super) fn new(unit: u64) -> Self {
        Self {
            unit,
            stretches: BTreeMap::new(),
            idle: BTreeMap::new(),
            gaps: BTreeSet::new(),
            views: Views::default(),
            kin: Kin::default(),
        }
    }

    /// Nothing more is to be had.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.unit);
    }

    /// There are addresses that no block has had.
    pub(super) fn open(&mut self, address: u64, bytes: u64) {
        self.enter(address, Stretch::idle(address, address + bytes, None, Markers::new()));
    }

    /// Whether all bytes of a place are here and without a live block, and the asker may have each. What a
    /// stream may not have of others it has nowhere here.
    pub(super) fn is_for(&self, asker: &Asker<'_>, (address, bytes): (u64, u64)) -> bool {
        let end = address + bytes;
        let first = self.stretches.range(..=address).next_back();
        let rest = self.stretches.range(address + 1..end);
        let mut at = address;
        for (&start, stretch) in first.into_iter().chain(rest) {
            let from = stretch.parts.range(..=at).next_back().map_or(at, |part| *part.0);
            let mut here = stretch.parts.range(from..end);
            if start > at || stretch.end <= at || !here.all(|part| part.1.is_for(asker.proof)) {
                break;
            }
            at = stretch.end;
        }
        asker.shares && at >= end
    }

    /// The best place for a block of `bytes`; new addresses of its stream begin at `fresh`.
    pub(super) fn find(&mut self, asker: &Asker<'_>, bytes: u64, fresh: u64) -> Spot {
        let pages = bytes.div_ceil(self.unit);
        let free = self.free(asker);
        self.hear(&free, asker.stream);
        let streams = if asker.shares { asker.order.seen() } else { 0 };
        let rows: Vec<usize> = self.kin.peers(asker.stream, streams).collect();
        let rows = [&[asker.stream.index()], &rows[..]].concat();
        // What is free for the fewest would go first.
        let all = free.iter().fold(u64::MAX, |all, it| all & it.knowers);
        let free = free.into_iter().filter(|free| free.knowers & !all == 0);
        let new = pages * self.unit;
        let cost = Cost { pages, new: pages, rank: 0, waste: new - bytes, left: 0 };
        let mut best = (cost, Spot::at(fresh, new));
        for &row in &rows {
            let gaps = self.gaps.range((row, bytes, 0)..=(row, u64::MAX, u64::MAX));
            for &(_, size, start) in gaps.take(LOOKS) {
                if best.0 == Cost::default() {
                    break;
                }
                if let Some(stretch) = self.in_use(start / self.unit * self.unit, asker, &rows) {
                    self.look(stretch, (start, start + size), (asker, &rows), bytes, &mut best);
                }
            }
        }
        for open in self.opens(free.collect(), (asker, &rows), fresh) {
            self.offer(open, bytes, fresh, &mut best);
        }
        if asker.beside {
            self.look_beside((asker, &rows), bytes, fresh, &mut best);
        }
        Spot { joint: asker.beside, ..best.1 }
    }

    /// Free pages that lie one behind the other, with the gaps around them, and where new addresses begin.
    fn opens(
        &self,
        mut free: Vec<Free>,
        (asker, rows): (&Asker<'_>, &[usize]),
        fresh: u64,
    ) -> Vec<Open> {
        let views = |free: &Free| -> Vec<Free> {
            let views = self.views.of(free.address).iter();
            views.map(|&at| Free { address: at, end: at + self.unit, ..*free }).collect()
        };
        let views: Vec<Free> = free.iter().flat_map(views).collect();
        free.extend(views);
        free.sort_unstable_by_key(|free| free.address);
        let none = |at: u64| Open { start: at, first: at, end: at, beyond: 0 };
        let mut open = none(fresh);
        let mut opens = Vec::new();
        let mut homes = BTreeSet::new();
        for pages in &free {
            // No block lies on one page twice.
            let home = asker.beside.then(|| self.views.home(pages.address));
            let again = home.is_some_and(|home| !homes.insert(home));
            if open.end == pages.address && !again {
                open.end = pages.end;
            } else {
                opens.push(open);
                open = Open { end: pages.end, ..none(pages.address) };
                homes = home.into_iter().collect();
            }
        }
        opens.push(open);
        if opens.iter().skip(1).any(|open| open.end == fresh) {
            opens.swap_remove(0);
        }
        for open in &mut opens {
            // The gap at the end of the page before.
            let page = open.first.wrapping_sub(self.unit);
            let before = self.in_use(page, asker, rows);
            let own = |it: &&Stretch| asker.beside || it.owner == Some(asker.stream);
            if let Some(stretch) = before.filter(own) {
                open.start = open.first - stretch.end_gap(asker.proof);
            }
            if asker.beside && self.views.home(page) != self.views.home(open.end) {
                let behind = self.in_use(open.end, asker, rows);
                open.beyond = behind.map_or(0, |it| it.start_gap(asker.proof));
            }
        }
        opens
    }

    /// Looks at new addresses whose ends lie on pages that are in use.
    fn look_beside(
        &self,
        (asker, rows): (&Asker<'_>, &[usize]),
        bytes: u64,
        fresh: u64,
        best: &mut (Cost, Spot),
    ) {
        let gaps_of = |&row| self.gaps.range((row, 1, 0)..=(row, u64::MAX, u64::MAX)).rev();
        let gaps = rows.iter().flat_map(gaps_of);
        let mut seen = BTreeSet::new();
        let pages = gaps.map(|gap| gap.2 / self.unit * self.unit).filter(|page| seen.insert(*page));
        let in_use = pages.filter_map(|page| Some((page, self.in_use(page, asker, rows)?)));
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for (page, stretch) in in_use.filter(|it| it.1.joint).take(BESIDE) {
            let start = End { page, bytes: stretch.start_gap(asker.proof) };
            let end = End { page, bytes: stretch.end_gap(asker.proof) };
            starts.extend((start.bytes > 0).then_some(start));
            ends.extend((end.bytes > 0).then_some(end));
        }
        starts.sort_unstable_by_key(|end| (end.bytes, end.page));
        ends.sort_unstable_by_key(|end| (end.bytes, end.page));
        ways((bytes, self.unit), (&starts, &ends), |way| {
            let (pages, new) = (way.pages, way.pages + way.beside.count());
            let cost = Cost { pages, new, rank: 0, waste: way.waste, left: 0 };
            let address = way.beside.head.map_or(fresh, |(_, bytes)| fresh + self.unit - bytes);
            let spot = Spot { beside: way.beside, ..Spot::at(address, new * self.unit) };
            consider(best, cost, spot);
        });
    }

    /// A page that is in use, and that of one of these streams.
    fn in_use(&self, page: u64, asker: &Asker<'_>, rows: &[usize]) -> Option<&Stretch> {
        let own = |stretch: &&Stretch| rows.contains(&row(stretch.owner));
        let home = self.views.home(page);
        let free = self.idle.get(&home).is_some_and(|idle| idle.is_for(asker));
        self.stretches.get(&home).filter(own).filter(|_| !free)
    }

    /// Looks at what the asker may have of a gap in a page in use.
    fn look(
        &self,
        stretch: &Stretch,
        (start, end): (u64, u64),
        (asker, rows): (&Asker<'_>, &[usize]),
        bytes: u64,
        best: &mut (Cost, Spot),
    ) {
        let rank = if asker.beside { 0 } else { stretch.rank(asker, rows) };
        let mut begin = None;
        for (&at, part) in stretch.parts.range(start..end) {
            if !part.is_for(asker.proof) {
                begin = None;
                continue;
            }
            let begin = *begin.get_or_insert(at);
            if part.end - begin >= bytes {
                let left_over = part.end - begin - bytes;
                let waste = if asker.beside { left_over } else { 0 };
                consider(best, Cost { rank, waste, ..Cost::default() }, Spot::at(begin, 0));
            }
        }
    }

    /// Looks at the ways to lie on free addresses, and on new ones where these follow.
    fn offer(&self, open: Open, bytes: u64, fresh: u64, best: &mut (Cost, Spot)) {
        let Open { start, first, end, beyond } = open;
        let gap = first - start;
        let mut at = |address: u64, waste: Option<u64>| {
            let there = (end - first) / self.unit;
            let last = address + bytes;
            if last > end && last <= end + beyond {
                // It ends in the page behind.
                let from = address.max(first) / self.unit * self.unit;
                let pages = (end - from) / self.unit;
                let head = address.saturating_sub(from) + waste.unwrap_or(0);
                let waste = end + beyond - last + head;
                let cost = Cost { pages, new: 0, rank: 0, waste, left: there - pages };
                consider(best, cost, Spot::at(address, 0));
                return;
            }
            let pages = last.saturating_sub(first).div_ceil(self.unit);
            if pages == 0 || (pages > there && end != fresh) {
                return;
            }
            let (new, left) = (pages.saturating_sub(there), there.saturating_sub(pages));
            let waste = waste.unwrap_or(first + pages * self.unit - last);
            let spot = Spot::at(address, new * self.unit);
            consider(best, Cost { pages, new, rank: 0, waste, left }, spot);
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

    /// What nothing uses that the asker may have.
    fn free(&self, asker: &Asker<'_>) -> Vec<Free> {
        let others = asker.order.streams().filter(|stream| *stream != asker.stream);
        let others = others.map(|stream| (bit(stream), asker.order.proof(stream)));
        let others: Vec<_> = others.collect();
        let idle = self.idle.iter().filter(|(_, idle)| idle.is_for(asker));
        let free = idle.map(|(&address, idle)| {
            let knows = others.iter().filter(|(_, proof)| proof.covers(&idle.given));
            let knowers = knows.fold(0, |all, (bit, _)| all | bit);
            Free { address, end: idle.end, knowers, owner: idle.owner }
        });
        free.collect()
    }

    /// Forgets so many bytes of free pages, those first that the fewest streams may come to have, then those that the
    /// fewest may have now.
    pub(super) fn forget(&mut self, asker: &Asker<'_>, mut bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut free = self.free(asker);
        let heirs = |free: &Free| -> u32 {
            let known = streams_of(free.knowers | bit(asker.stream));
            known.fold(0, |all, stream| all | self.kin.heirs_of(stream)).count_ones()
        };
        free.sort_by_cached_key(|it| (heirs(it), it.knowers.count_ones(), it.end - it.address));
        for Free { address, end, .. } in free {
            let part = bytes.min(end - address);
            bytes -= part;
            if let Some(mut stretch) = self.leave(address) {
                self.views.drop(address);
                if part < end - address {
                    stretch.split_off(end - part);
                    self.enter(address, stretch);
                }
            }
            if bytes == 0 {
                return;
            }
        }
    }

    /// Notes who knows of what streams gave back.
    fn hear(&mut self, free: &[Free], asker: StreamIndex) {
        let mut given: BTreeMap<usize, u64> = BTreeMap::new();
        for (owner, free) in free.iter().filter_map(|free| Some((free.owner?, free))) {
            *given.entry(owner.index()).or_default() |= free.knowers;
        }
        self.kin.hear(asker, &given);
    }

    /// A block lies there now. Returns what had to be proven for it.
    pub(super) fn take(&mut self, stream: StreamIndex, bytes: u64, spot: Spot) -> Markers {
        let unit = self.unit;
        let Spot { address, joint, beside, .. } = spot;
        let end = address + bytes;
        let mut beneath = Markers::new();
        let (below, above) = (address / unit * unit, end.next_multiple_of(unit));
        let tail = beside.tail.map(|home| (above - unit, home));
        for (page, home) in beside.head.map(|(home, _)| (below, home)).into_iter().chain(tail) {
            self.views.lie(page, home);
        }
        for view in self.views.within(below, above) {
            self.turn_to(view);
        }
        let (first, last) = (address.next_multiple_of(unit), end / unit * unit);
        if first < last {
            self.cut(first);
            self.cut(last);
            let within: Vec<u64> = self.stretches.range(first..last).map(|it| *it.0).collect();
            for stretch in within.into_iter().filter_map(|at| self.leave(at)) {
                let given = stretch.parts.values().flat_map(|part| &part.given);
                add(&mut beneath, given.flatten());
            }
            // Pages that it has alone lie on no other's memory.
            self.views.drop_within(first, last);
        }
        for page in partly((address, end), unit) {
            self.cut(page);
            self.cut(page + unit);
            let place = (page.max(address), (page + unit).min(end));
            let idle = self.idle.contains_key(&page);
            if idle || !self.stretches.contains_key(&page) {
                // Else no block has had it.
                let it = self.leave(page);
                let it =
                    it.unwrap_or_else(|| Stretch::idle(page, page + unit, None, Markers::new()));
                self.enter(page, Stretch { owner: Some(stream), joint, ..it });
                self.idle.remove(&page);
            }
            let Some(it) = self.stretches.get_mut(&page) else { continue };
            let (row, gap) = (row(it.owner), it.occupy(place, &mut beneath));
            self.gaps.remove(&(row, gap.1 - gap.0, gap.0));
            for (start, end) in [(gap.0, place.0), (place.1, gap.1)] {
                if start < end {
                    self.gaps.insert((row, end - start, start));
                }
            }
        }
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
            self.turn_to(page);
            let Some(it) = self.stretches.get_mut(&page) else { continue };
            let place = (page.max(address), (page + unit).min(end));
            let row = row(it.owner);
            let gap = it.vacate(place, &given);
            for (start, end) in [(gap.0, place.0), (place.1, gap.1)] {
                self.gaps.remove(&(row, end - start, start));
            }
            self.gaps.insert((row, gap.1 - gap.0, gap.0));
            if it.is_idle() {
                self.idle.insert(page, Idle::new(it));
            }
        }
        let (first, last) = (address.next_multiple_of(unit), end / unit * unit);
        if first < last {
            self.enter(first, Stretch::idle(first, last, Some(stream), given));
        }
    }

    /// Keeps what is free of a page under this of its addresses from now on.
    fn turn_to(&mut self, page: u64) {
        let Some(home) = self.views.turn_to(page) else { return };
        let Some(stretch) = self.stretches.remove(&home) else { return };
        let row = row(stretch.owner);
        for (start, end) in &stretch.gaps {
            self.gaps.remove(&(row, end - start, *start));
        }
        let stretch = stretch.moved(home, page);
        for (start, end) in &stretch.gaps {
            self.gaps.insert((row, end - start, *start));
        }
        if self.idle.remove(&home).is_some() {
            self.idle.insert(page, Idle::new(&stretch));
        }
        self.stretches.insert(page, stretch);
    }

    /// Sets of pages that were to lie on one page of memory each.
    pub(super) fn joint(&self) -> Vec<Vec<u64>> {
        self.views.sets()
    }

    /// Parts the stretch around the beginning of a page.
    fn cut(&mut self, at: u64) {
        let around = self.stretches.range(..at).next_back();
        let Some((&start, _)) = around.filter(|(_, stretch)| stretch.end > at) else { return };
        if let Some(mut stretch) = self.leave(start) {
            let rest = stretch.split_off(at);
            self.enter(start, stretch);
            self.enter(at, rest);
        }
    }

    /// Pages without a live block are here from now on.
    fn enter(&mut self, address: u64, stretch: Stretch) {
        self.idle.insert(address, Idle::new(&stretch));
        if stretch.end - address == self.unit {
            self.gaps.insert((row(stretch.owner), self.unit, address));
        }
        self.stretches.insert(address, stretch);
    }

    /// Pages without a live block are here no more.
    fn leave(&mut self, address: u64) -> Option<Stretch> {
        let stretch = self.stretches.remove(&address)?;
        self.idle.remove(&address);
        self.gaps.remove(&(row(stretch.owner), self.unit, address));
        Some(stretch)
    }
}

/// Adds markers that are not there yet.
fn add<'a>(all: &mut Markers, given: impl Iterator<Item = &'a NodeIndex>) {
    for marker in given {
        if !all.contains(marker) {
            all.push(*marker);
        }
    }
}

/// The row of its gaps.
fn row(owner: Option<StreamIndex>) -> usize {
    owner.map_or(UNOWNED, StreamIndex::index)
}

fn consider(best: &mut (Cost, Spot), cost: Cost, spot: Spot) {
    // The lowest address of equals.
    if (cost, spot.address) < (best.0, best.1.address) {
        *best = (cost, spot);
    }
}

/// The pages that a block has a part of.
fn partly((address, end): (u64, u64), unit: u64) -> impl Iterator<Item = u64> {
    let (first, last) = (address / unit * unit, (end - 1) / unit * unit);
    let head = (address > first || end < first + unit).then_some(first);
    let tail = (last > first && end < last + unit).then_some(last);
    head.into_iter().chain(tail)
}
