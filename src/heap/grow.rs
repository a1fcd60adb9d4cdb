//! Growth: where memory from the driver makes a place for a block (design/allocator.md, "Growth" and "Mapping ahead").
//!
//! What is *premapped*, beyond what blocks take and in no range, changes nothing but the cost: it counts as missing.
//! Releasing it *exchanges* its piece for one of the size in use, at the same address, which loses what the piece held;
//! where it is *kept* instead it becomes idle memory. Callers keep the invariant that makes exchanges sound
//! (design/safety.md, "Exchanged pieces").

use std::sync::Arc;

use super::place::{Placed, Requester};
use super::range::{RangeId, RangeState, SegmentId, Users};
use super::segment::{create, unit, HeapSegment};
use super::{enter_row, Heap, MemoryMove, Plan, Supply};
use crate::capture::Proof;
use crate::driver::{Driver, DriverError, ErrorKind, MemoryHandle, Source, StreamHandle};

/// Sizes of fixed segments, in bytes: PyTorch's, so that figures compare.
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE_SEGMENT: u64 = 20 << 20;
/// From this size on a block has a fixed segment of its own size.
const OWN_SEGMENT: u64 = 10 << 20;

/// Outside captures memory for a block comes in no more than so many pieces, and in one up to this size: what a small
/// block keeps from the driver is so much, or that part of a larger one, and large ones cost a fixed number of calls.
const PIECES: u64 = 8;
const LARGE_PIECE: u64 = 32 << 20;

/// A block as it is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    bytes: u64,
    requested: u64,
    apart: bool,
    limit: u64,
    step: u64,
    usual: u64,
    source: GivenBy<'a>,
}

/// Where memory comes from, if not from the driver, and the stream that it is for.
type GivenBy<'a> = Option<(&'a Arc<dyn Source>, StreamHandle)>;

impl<'a> Wanted<'a> {
    /// One that occupies so many bytes, a multiple of 512, of `requested` that were asked for. The driver may be asked
    /// for `limit` bytes at the most, and for `step` at once for the sake of what may come: zero for nothing but what
    /// is missing. Such a heap held `usual` bytes when captures like this one had ended: zero where that is not known.
    /// With `apart` all of it is to be new memory: the free ranges beside that are for others.
    pub(crate) fn new(
        (bytes, requested): (u64, u64),
        apart: bool,
        (limit, step, usual): (u64, u64, u64),
        source: GivenBy<'a>,
    ) -> Self {
        Self { bytes, requested, apart, limit, step, usual, source }
    }
}

/// Where memory can be mapped for a block.
#[derive(Clone, Copy, Debug)]
struct Site {
    /// What must be mapped, in bytes, and where.
    missing: u64,
    address: u64,
    /// The first free range that the block covers, but for the new one.
    first: Option<RangeId>,
    /// The hole at an end of which that is; else it is behind all of the segment that grows.
    hole: Option<RangeId>,
}

impl Heap {
    /// Gets memory from the driver, or takes what is premapped, and carves a block out of it and of the free ranges
    /// beside it. After an error of the driver's the heap is as it was.
    pub(crate) fn grow(
        &mut self,
        driver: &impl Driver,
        wanted: Wanted<'_>,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Result<Option<Placed>, DriverError> {
        if self.is_shut() {
            return Ok(None);
        }
        let Wanted { bytes, limit, .. } = wanted;
        if let Requester::Capture { .. } = requester {
            self.open_all();
        }
        let unit = unit(driver.memory_support());
        // A piece goes back as a whole, and work outside captures leaves small blocks that live long where a large one
        // has lain.
        let most = match requester {
            Requester::Capture { .. } => u64::MAX,
            _ => LARGE_PIECE.max(bytes / PIECES).next_multiple_of(unit),
        };
        if let Some(site) = self.site(wanted, requester, proof, unit) {
            let end = self.growing.filter(|_| site.hole.is_none());
            let premapped = end.map_or(0, |segment| self.premapped_of(segment));
            if site.missing.saturating_sub(premapped) > limit {
                return Ok(None);
            }
            let first = match (site.first, site.hole, end) {
                (Some(first), ..) if site.missing == 0 => first,
                (first, Some(hole), _) => {
                    let place = (site.address, site.missing);
                    let fresh = self.fill_hole(driver, hole, place, most)?;
                    first.unwrap_or(fresh)
                }
                (first, None, Some(end)) => {
                    let fresh = self.extend(driver, end, (site.missing, most), wanted, unit)?;
                    first.unwrap_or(fresh)
                }
                (_, None, None) => return Ok(None),
            };
            let placed = self.carve(first, bytes);
            // What is left over of a hole that was filled lies beside what is free above it.
            let rest = self.ranges[placed.range].next();
            if let Some(rest) =
                rest.filter(|&it| matches!(self.ranges[it].state(), RangeState::Idle { .. }))
            {
                self.merge(rest);
            }
            return Ok(Some(placed));
        }
        let least = bytes.next_multiple_of(unit);
        let segment = match self.plan.supply {
            // To the byte, so that a memory checker sees every step beyond the end.
            Supply::Uncached => wanted.requested,
            Supply::Growing { .. } => least,
            _ if self.plan.whole => least,
            _ if self.plan.small => SMALL_SEGMENT.max(least),
            _ if bytes < OWN_SEGMENT && LARGE_SEGMENT.max(least) <= limit => {
                LARGE_SEGMENT.max(least)
            }
            Supply::Fixed | Supply::Allocated => least,
        };
        if segment > limit {
            return Ok(None);
        }
        let mut opened = match wanted.source {
            Some((source, stream)) => self.ask(source, segment, stream)?,
            None => HeapSegment::open(driver, segment, self.plan.supply, self.plan.exportable)?,
        };
        if !opened.is_allocated() {
            let growable = opened.is_growable();
            let (size, most) = if growable { (least, most) } else { (opened.bytes(), u64::MAX) };
            let segment = SegmentId::new(enter_row(&mut self.segments, opened));
            let grown = self.extend(driver, segment, (size, most), wanted, unit);
            // What the driver keeps of a segment that failed is tried again when memory goes back.
            let fresh = grown.inspect_err(|_| _ = self.release_stuck(driver))?;
            self.growing = if growable { Some(segment) } else { self.growing };
            return Ok(Some(self.carve(fresh, if self.plan.whole { size } else { bytes })));
        }
        let mut bytes = bytes;
        if self.is_uncached() {
            // Its last granule counts as whole: blocks are multiples of 512.
            bytes = wanted.requested.next_multiple_of(512);
            opened.set_bytes(bytes);
        }
        let (address, mapped) = (opened.address(), opened.mapped());
        self.note_change(MemoryMove::Segment, (address, mapped), 1);
        let segment = SegmentId::new(enter_row(&mut self.segments, opened));
        let fresh = self.append_idle(segment, mapped);
        let bytes = if self.plan.whole { mapped } else { bytes };
        Ok(Some(self.carve(fresh, bytes)))
    }

    /// A segment from the host's source, if it lies beside those that there are.
    fn ask(
        &self,
        source: &Arc<dyn Source>,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<HeapSegment, DriverError> {
        let given = HeapSegment::ask(source, bytes, stream)?;
        let overlaps =
            |other: &HeapSegment| given.address() < other.end() && other.address() < given.end();
        if self.segments.iter().flatten().any(overlaps) {
            // Not given back: it is the other one's memory too.
            let text = format!("{:#x} was given before and not taken back", given.address());
            return Err(DriverError::new("Source::allocate", 0, ErrorKind::Other(text)));
        }
        Ok(given)
    }

    /// The site where the least is missing; of equals the lowest.
    fn site(
        &self,
        Wanted { bytes, apart, .. }: Wanted<'_>,
        requester: Requester,
        proof: Proof<'_>,
        unit: u64,
    ) -> Option<Site> {
        let before = |range: Option<RangeId>| {
            let from = range.filter(|_| !apart);
            self.usable(from, |range| range.previous(), bytes, requester, proof)
        };
        let mut best: Option<Site> = None;
        let mut offer = |site: Site| {
            let rank = |site: &Site| (site.missing, site.address);
            if best.is_none_or(|best| rank(&site) < rank(&best)) {
                best = Some(site);
            }
        };
        // What lies apart leaves the holes to what is to lie there.
        for &hole in self.holes.iter().filter(|_| !apart) {
            let range = &self.ranges[hole];
            let (address, hole) = (range.address(), Some(hole));
            let (first, below) = before(range.previous());
            let missing = (bytes - below).next_multiple_of(unit);
            if missing <= range.bytes() {
                offer(Site { missing, address, first, hole });
            }
            let (_, above) = self.usable(range.next(), |it| it.next(), bytes, requester, proof);
            let missing = (bytes - above).next_multiple_of(unit);
            if missing <= range.bytes() {
                let first = range.next().filter(|_| missing == 0);
                offer(Site { missing, address: range.end() - missing, first, hole });
            } else if below + range.bytes() + above >= bytes {
                offer(Site { missing: range.bytes(), address, first, hole });
            }
        }
        if let Some(segment) = self.growing {
            let row = self.segments[segment.index()].as_ref()?;
            let (first, usable) = before(row.last());
            let missing = (bytes - usable).next_multiple_of(unit);
            if missing <= row.room() {
                let (address, hole) = (row.front(), None);
                offer(Site { missing, address, first, hole });
            }
        }
        best
    }

    /// Maps a part of a hole in pieces of at most `most` bytes, and returns the idle range that it makes, joined with
    /// none beside it.
    fn fill_hole(
        &mut self,
        driver: &impl Driver,
        hole: RangeId,
        (address, bytes): (u64, u64),
        most: u64,
    ) -> Result<RangeId, DriverError> {
        let range = &self.ranges[hole];
        let (start, rest) = (range.address(), range.end() - address - bytes);
        let pieces = self.segment(range.segment()).map(driver, (address, bytes), most)?;
        self.note_change(MemoryMove::Map, (address, bytes), pieces);
        let idle = RangeState::Idle { users: Users::Eager };
        if rest > 0 {
            let above = self.cut_back(hole, rest, RangeState::Hole);
            self.holes.push(above);
        }
        let id = if start < address {
            self.cut_back(hole, bytes, idle)
        } else {
            self.forget_hole(hole);
            self.ranges.set_state(hole, idle);
            hole
        };
        self.list(id);
        Ok(id)
    }

    /// How many bytes at the end of the segment that grows are idle, closed or not, in whole units of so many bytes: an
    /// arena that is opened begins with them.
    pub(crate) fn idle_at_end(&self, unit: u64) -> u64 {
        let growing = self.growing.and_then(|it| self.segments[it.index()].as_ref());
        let last = growing.filter(|segment| segment.premapped() == 0).and_then(HeapSegment::last);
        let idle = |id: &RangeId| self.ranges[*id].state().idle_users().is_some();
        let ranges = std::iter::successors(last, |&id| self.ranges[id].previous());
        let idle: u64 = ranges.take_while(idle).map(|id| self.ranges[id].bytes()).sum();
        // Pieces of the arena are mapped from its beginning on.
        idle - idle % unit
    }

    /// Reserves addresses for places that come into use one by one ([`Heap::fill`]), from what is idle at the end of
    /// the segment that grows, or in a new one: there is no memory behind new addresses yet. Returns where they begin.
    /// `None` where memory comes in whole segments. After an error of the driver's the heap is as it was.
    pub(crate) fn open_arena(
        &mut self,
        driver: &impl Driver,
        bytes: u64,
    ) -> Result<Option<u64>, DriverError> {
        let Some(granularity) = driver.memory_support().granularity() else { return Ok(None) };
        if !self.plan.grows_in_place() {
            return Ok(None);
        }
        let idle = self.idle_at_end(granularity);
        let behind = bytes.saturating_sub(idle).max(1).next_multiple_of(granularity);
        // A hole at the end would be one with this.
        let is_free = |segment: &HeapSegment| {
            let last = segment.last().map(|last| self.ranges[last].state());
            segment.premapped() == 0 && segment.room() >= behind && last != Some(RangeState::Hole)
        };
        let growing = self.growing.and_then(|it| Some((it, self.segments[it.index()].as_ref()?)));
        let (segment, idle, bytes) = match growing.filter(|(_, segment)| is_free(segment)) {
            Some((segment, _)) => {
                self.open_all();
                (segment, idle, behind)
            }
            None => {
                let bytes = bytes.next_multiple_of(granularity);
                let Plan { supply, exportable, .. } = self.plan;
                let opened = HeapSegment::open(driver, bytes, supply, exportable)?;
                let segment = SegmentId::new(enter_row(&mut self.segments, opened));
                self.growing.get_or_insert(segment);
                (segment, 0, bytes)
            }
        };
        let start = self.segment(segment).front();
        self.segment(segment).advance(bytes);
        let hole = self.append(segment, bytes, RangeState::Hole);
        self.holes.push(hole);
        Ok(Some(start - idle))
    }

    /// Gives up the addresses at the end of the segment that grows which have no memory yet: it grows there again.
    pub(crate) fn close_arena(&mut self) {
        let growing = self.growing.and_then(|it| self.segments[it.index()].as_ref());
        let growing = growing.filter(|it| it.premapped() == 0);
        let last = growing.and_then(HeapSegment::last);
        let hole = last.filter(|&last| self.ranges[last].state() == RangeState::Hole);
        hole.into_iter().for_each(|hole| self.join_holes(hole));
    }

    /// Brings memory behind addresses of an arena from `base` on, where a place needs it and has none: in pieces of
    /// `step` bytes of the arena, and as far as whole units of the device reach beyond them, so that a later place finds
    /// it there, and no more than `limit`. Says whether anything came. Costs a look at each hole. After an error of the
    /// driver's what came before is there.
    pub(crate) fn fill(
        &mut self,
        driver: &impl Driver,
        (base, step): (u64, u64),
        (address, bytes): (u64, u64),
        mut limit: u64,
    ) -> Result<bool, DriverError> {
        let (from, to) = ((address - base) / step * step, address - base + bytes);
        let (from, to) = (base + from, base + to.next_multiple_of(step));
        let here = |hole: &RangeId| {
            let hole = &self.ranges[*hole];
            hole.address() < address + bytes && address < hole.end()
        };
        let holes: Vec<RangeId> = self.holes.iter().copied().filter(here).collect();
        let (unit, mut came) = (unit(driver.memory_support()), false);
        for hole in holes {
            // An arena may begin anywhere, and a hole is whole units.
            let whole = &self.ranges[hole];
            let (start, end) = (whole.address().max(from), whole.end().min(to));
            let start = start - (start - whole.address()) % unit;
            let end = start + (end - start).next_multiple_of(unit);
            if end - start > limit {
                return Ok(came);
            }
            let filled = self.fill_hole(driver, hole, (start, end - start), u64::MAX)?;
            self.merge(filled);
            (limit, came) = (limit - (end - start), true);
        }
        Ok(came)
    }

    /// Enters bytes that came into use behind a segment's last range.
    pub(super) fn append(&mut self, segment: SegmentId, bytes: u64, state: RangeState) -> RangeId {
        let row = self.segment(segment);
        let (start, last) = (row.front() - bytes, row.last());
        let id = self.ranges.append((start, bytes), segment, last, state);
        self.segment(segment).set_last(Some(id));
        id
    }

    /// Enters idle bytes that came into use behind a segment's last range.
    pub(super) fn append_idle(&mut self, segment: SegmentId, bytes: u64) -> RangeId {
        let id = self.append(segment, bytes, RangeState::Idle { users: Users::Eager });
        self.list(id);
        id
    }

    read!(premapped: u64);

    /// Where they lie: address, size and segment.
    pub(crate) fn premapped_ranges(&self) -> impl Iterator<Item = ((u64, u64), usize)> + '_ {
        let segments = self.segments.iter().enumerate();
        segments.filter_map(|(number, segment)| {
            let (address, bytes, used) = segment.as_ref()?.premapped_piece()?;
            Some(((address + used, bytes - used), number))
        })
    }

    /// How much of what is missing behind a segment's end is mapped there already.
    fn premapped_of(&self, segment: SegmentId) -> u64 {
        self.segments[segment.index()].as_ref().map_or(0, HeapSegment::premapped)
    }

    /// Brings `missing` bytes behind a segment's end into use: premapped ones first, then new ones in pieces of at most
    /// `most`, and with a step more than that, as one. Returns the range. After an error of the driver's nothing has changed.
    fn extend(
        &mut self,
        driver: &impl Driver,
        segment: SegmentId,
        (missing, most): (u64, u64),
        Wanted { limit, step, usual, .. }: Wanted<'_>,
        unit: u64,
    ) -> Result<RangeId, DriverError> {
        let before = self.premapped_of(segment);
        let needed = missing.saturating_sub(before);
        // What is usual, or half as much again as the captures have grown so far: few calls, and little too much.
        let missing_of_usual = usual.saturating_sub(self.reserved() + needed);
        let ahead = self.grown.map_or(0, |grown| missing_of_usual.max(grown / 2));
        let row = self.segment(segment);
        let mut mapped = None;
        if needed > 0 {
            let address = row.front() + before;
            let room = (row.room() - before).min(step);
            let half = limit.saturating_sub(needed) / 2;
            let extra = ahead.min(room.saturating_sub(needed)).min(half) / unit * unit;
            let mut bytes = needed + extra;
            let pieces = match row.map(driver, (address, bytes), most) {
                Err(error) if extra > 0 && error.is_out_of_memory() => {
                    bytes = needed;
                    row.map(driver, (address, bytes), most)?
                }
                done => done?,
            };
            mapped = Some(((address, bytes), pieces));
        }
        row.advance(missing);
        let (after, how) = (row.premapped(), MemoryMove::new(true, row.is_growable()));
        self.premapped = self.premapped - before + after;
        if let Some((place, pieces)) = mapped {
            self.grown = self.grown.map(|grown| grown + if step > 0 { place.1 } else { 0 });
            self.note_change(how, place, pieces);
        }
        Ok(self.append_idle(segment, missing))
    }

    /// Makes premapped memory idle memory, where it belongs to the piece that a place reaches into, by address and
    /// size, or all of it. Its piece stays as it is from now on.
    pub(crate) fn keep_premapped(&mut self, place: Option<(u64, u64)>) {
        for row in 0..self.segments.len() {
            let Some(segment) = self.segments[row].as_ref() else { continue };
            let Some((start, size, _)) = segment.premapped_piece() else { continue };
            let reaches = place
                .is_none_or(|(address, bytes)| address < start + size && start < address + bytes);
            if reaches {
                self.keep_segment(SegmentId::new(row));
            }
        }
    }

    fn keep_segment(&mut self, segment: SegmentId) {
        let row = self.segment(segment);
        let bytes = row.premapped();
        if bytes == 0 {
            return;
        }
        row.advance(bytes);
        self.premapped -= bytes;
        self.grown = None;
        let id = self.append_idle(segment, bytes);
        self.ranges.set_stamp(id, self.clock);
        self.merge(id);
    }

    /// Gets the memory of the pieces that [`Heap::release_premapped`] is to exchange others for, as far as the driver
    /// gives `limit` bytes: so an exchange that fails can be undone. It counts as reserved until then.
    pub(crate) fn create_replacements(
        &mut self,
        driver: &impl Driver,
        mut limit: u64,
    ) -> Replacements {
        let replacement = |segment: &Option<HeapSegment>| {
            let piece = segment.as_ref()?.premapped_piece();
            let (_, _, used) = piece.filter(|it| it.2 > 0 && it.2 <= limit)?;
            let memory = create(driver, self.plan.exportable, used).ok()?;
            limit -= used;
            self.holding.came(used, 0);
            Some((used, memory))
        };
        self.segments.iter().map(replacement).collect()
    }

    /// Gives premapped memory back to the driver. What it does not take is idle memory from now on. No work may have
    /// used the pieces that end in it. An error of the driver's is returned where a piece is lost: the heap is not
    /// [whole](Heap::is_whole) any more, and its pool must be shut. What is lost comes back as after a suspension.
    pub(crate) fn release_premapped(
        &mut self,
        driver: &impl Driver,
        replacements: Replacements,
    ) -> Result<(), DriverError> {
        let mut result = Ok(());
        for (number, replacement) in replacements.into_iter().enumerate() {
            // From here on it counts as a piece, or is released.
            let replacement = replacement.map(|(bytes, memory)| {
                self.holding.went(bytes, 0);
                memory
            });
            let row = self.segments[number].as_mut();
            let Some((row, (address, old, used))) =
                row.and_then(|row| row.premapped_piece().map(|piece| (row, piece)))
            else {
                replacement.into_iter().for_each(|memory| self.holding.release(driver, memory));
                continue;
            };
            match row.exchange(driver, &mut self.holding, replacement) {
                Ok(false) => {}
                Ok(true) => {
                    // To the history only the premapped end goes: what is in use stays where it is.
                    self.note_change(MemoryMove::Map, (address, 0), 1);
                    self.note_change(MemoryMove::Unmap, (address + used, old - used), 1);
                }
                Err((bytes, held, error)) => {
                    result = result.and(Err(error));
                    self.note_change(MemoryMove::Unmap, (address, old), 1);
                    match held {
                        true => self.note_change(MemoryMove::Map, (address, bytes), 1),
                        false => self.holding.suspend(bytes),
                    }
                }
            }
            let segment = SegmentId::new(number);
            self.premapped = self.premapped - (old - used) + self.premapped_of(segment);
            self.keep_segment(segment);
        }
        self.grown = None;
        result
    }
}

/// By segment: what is to be exchanged for the piece that ends in premapped memory, and its size in bytes.
type Replacements = Vec<Option<(u64, MemoryHandle)>>;
