//! Growth: where memory from the driver makes a place for a block.
//!
//! Memory is mapped where the least of it is missing: behind the free end of the segment that
//! grows, or in a hole beside free ranges. Where segments are fixed a new one is opened. What is
//! premapped counts as missing when the site is chosen, so that it changes nothing but the cost.

use std::sync::Arc;

use super::place::{Placed, Requester};
use super::premapped::Bounds;
use super::range::{RangeId, RangeState, SegmentId};
use super::segment::{enter_segment, unit, HeapSegment, SegmentShape};
use super::users::Users;
use super::{Change, Heap, Supply};
use crate::capture::Proof;
use crate::driver::{Driver, DriverError, ErrorKind, Source, StreamHandle};

/// Sizes of fixed segments, in bytes: PyTorch's, so that figures compare.
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE_SEGMENT: u64 = 20 << 20;
/// From this size on a block has a fixed segment of its own size.
const OWN_SEGMENT: u64 = 10 << 20;

/// A block as it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// What it occupies, a multiple of 512.
    pub(crate) bytes: u64,
    /// What was asked for.
    pub(crate) requested: u64,
    /// The stream that it is for.
    pub(crate) stream: StreamHandle,
    /// Whether all of it is to be new memory: the free ranges beside that are for others.
    pub(crate) apart: bool,
}

/// Where memory can be mapped for a block.
#[derive(Clone, Copy, Debug)]
struct Site {
    /// What must be mapped, in bytes.
    missing: u64,
    /// The first free range that the block covers, but for the new one.
    first: Option<RangeId>,
    spot: GrowthSpot,
}

#[derive(Clone, Copy, Debug)]
enum GrowthSpot {
    /// Behind everything.
    End(SegmentId),
    /// At the low end of a hole.
    Low(RangeId),
    /// At the high end of a hole.
    High(RangeId),
}

impl Heap {
    /// Gets memory from the driver, or takes what is premapped, and carves a block out of it and of the
    /// free ranges beside it.
    ///
    /// # Errors
    /// The driver's. The heap is then as it was.
    pub(crate) fn grow<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        wanted: Wanted,
        requester: Requester,
        proof: Proof<'_>,
        bounds: Bounds,
    ) -> Result<Option<Placed>, DriverError> {
        if self.presence().is_shut() {
            return Ok(None);
        }
        let (bytes, limit) = (wanted.bytes, bounds.limit);
        if let Requester::Capture { .. } = requester {
            self.open_all();
        }
        let unit = unit(driver.memory_support());
        if let Some(site) = self.site(wanted, requester, proof, unit) {
            let premapped = match site.spot {
                GrowthSpot::End(segment) => self.premapped_of(segment),
                GrowthSpot::Low(_) | GrowthSpot::High(_) => 0,
            };
            if site.missing.saturating_sub(premapped) > limit {
                return Ok(None);
            }
            let first = match (site.missing, site.first) {
                (0, Some(first)) => first,
                _ => {
                    let fresh = self.map_at(driver, site, bounds, unit)?;
                    site.first.unwrap_or(fresh)
                }
            };
            let placed = self.carve(first, bytes);
            // What is left over of a hole that was filled lies beside what is free above it.
            let rest = self.ranges[placed.range].next;
            if let Some(rest) =
                rest.filter(|&it| matches!(self.ranges[it].state, RangeState::Idle { .. }))
            {
                self.merge(rest);
            }
            return Ok(Some(placed));
        }
        let least = bytes.next_multiple_of(unit);
        let (segment, shape) = match self.plan.supply {
            Supply::Growing { reserve } => (least, SegmentShape::Growable { reserve }),
            Supply::Fixed if self.plan.whole => (least, SegmentShape::Fixed),
            Supply::Fixed if self.plan.small => (SMALL_SEGMENT.max(least), SegmentShape::Fixed),
            Supply::Fixed if bytes < OWN_SEGMENT && LARGE_SEGMENT.max(least) <= limit => {
                (LARGE_SEGMENT.max(least), SegmentShape::Fixed)
            }
            Supply::Fixed => (least, SegmentShape::Fixed),
            // To the byte, so that a memory checker sees every step beyond the end.
            Supply::Uncached => (wanted.requested, SegmentShape::Allocated),
        };
        if segment > limit {
            return Ok(None);
        }
        let mut opened = match &self.source {
            Some(source) => self.ask(source, segment, wanted.stream)?,
            None => HeapSegment::open(driver, segment, shape, self.plan.exportable)?,
        };
        if opened.growable {
            if let Err(error) = opened.extend(driver, least) {
                // Its addresses are of no use now; failing to give them back loses nothing else.
                let _ = opened.close(driver);
                return Err(error);
            }
        }
        let mut bytes = bytes;
        if shape == SegmentShape::Allocated {
            // Its last granule counts as whole: blocks are multiples of 512.
            bytes = wanted.requested.next_multiple_of(512);
            (opened.bytes, opened.mapped) = (bytes, bytes);
        }
        let (address, mapped, growable) = (opened.address, opened.mapped, opened.growable);
        self.note_change(Change {
            mapped: true,
            whole: !growable,
            address,
            bytes: mapped,
            pieces: 1,
        });
        let segment = enter_segment(&mut self.segments, opened);
        if growable {
            self.growing = Some(segment);
            self.grown += if bounds.step > 0 { mapped } else { 0 };
        }
        let fresh = self.append(segment, mapped);
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
        let end = |segment: &HeapSegment| segment.address + segment.bytes;
        let overlaps =
            |other: &HeapSegment| given.address < end(other) && other.address < end(&given);
        if self.segments.iter().flatten().any(overlaps) {
            // Not given back: it is the other one's memory too.
            let text = format!("{:#x} was given before and not taken back", given.address);
            return Err(DriverError::new("Source::allocate", 0, ErrorKind::Other(text)));
        }
        Ok(given)
    }

    /// The site where the least is missing; of equals a hole, and of holes the lowest.
    fn site(
        &self,
        Wanted { bytes, apart, .. }: Wanted,
        requester: Requester,
        proof: Proof<'_>,
        unit: u64,
    ) -> Option<Site> {
        let before = |range: Option<RangeId>| {
            self.usable_before(range.filter(|_| !apart), bytes, requester, proof)
        };
        let mut best: Option<(u64, u64, Site)> = None;
        let mut offer = |address: u64, site: Site| {
            let rank = (site.missing, address);
            if best.is_none_or(|(missing, at, _)| rank < (missing, at)) {
                best = Some((site.missing, address, site));
            }
        };
        for &hole in &self.holes {
            let range = &self.ranges[hole];
            let (first, below) = before(range.previous);
            let missing = (bytes - below).next_multiple_of(unit);
            if missing <= range.bytes {
                offer(range.address, Site { missing, first, spot: GrowthSpot::Low(hole) });
            }
            let above = self.usable_after(range.next.filter(|_| !apart), bytes, requester, proof);
            let missing = (bytes - above).next_multiple_of(unit);
            if missing <= range.bytes {
                let first = range.next.filter(|_| missing == 0);
                offer(range.address, Site { missing, first, spot: GrowthSpot::High(hole) });
            } else if below + range.bytes + above >= bytes {
                offer(
                    range.address,
                    Site { missing: range.bytes, first, spot: GrowthSpot::Low(hole) },
                );
            }
        }
        if let Some(segment) = self.growing {
            let row = self.segments[segment.index()].as_ref()?;
            let (first, usable) = before(row.last);
            let missing = (bytes - usable).next_multiple_of(unit);
            if missing <= row.room() {
                offer(
                    row.address + row.mapped,
                    Site { missing, first, spot: GrowthSpot::End(segment) },
                );
            }
        }
        best.map(|(_, _, site)| site)
    }

    /// Maps what is missing at a site, but for what is premapped there, and returns the range that it
    /// makes.
    fn map_at<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        Site { missing, spot, .. }: Site,
        bounds: Bounds,
        unit: u64,
    ) -> Result<RangeId, DriverError> {
        let (hole, low) = match spot {
            GrowthSpot::End(segment) => return self.extend(driver, segment, missing, bounds, unit),
            GrowthSpot::Low(hole) => (hole, true),
            GrowthSpot::High(hole) => (hole, false),
        };
        let range = &self.ranges[hole];
        let (segment, previous, next) = (range.segment, range.previous, range.next);
        let address = if low { range.address } else { range.end() - missing };
        let whole = missing == range.bytes;
        self.segment(segment).map(driver, address, missing)?;
        self.note_change(mapping(address, missing));
        let idle = RangeState::Idle { users: Users::Eager };
        let id = if whole {
            self.forget_hole(hole);
            self.ranges.set_state(hole, idle);
            hole
        } else {
            let rest = &mut self.ranges[hole];
            rest.bytes -= missing;
            if low {
                rest.address += missing;
            }
            let sides = if low { (previous, Some(hole)) } else { (Some(hole), next) };
            self.ranges.insert((address, missing), segment, sides, idle)
        };
        self.list(id);
        Ok(id)
    }

    /// Enters bytes that came into use behind a segment's last range.
    pub(super) fn append(&mut self, segment: SegmentId, bytes: u64) -> RangeId {
        let &HeapSegment { address, mapped, last, .. } = &*self.segment(segment);
        let state = RangeState::Idle { users: Users::Eager };
        let start = address + mapped - bytes;
        let id = self.ranges.insert((start, bytes), segment, (last, None), state);
        self.segment(segment).last = Some(id);
        self.list(id);
        id
    }
}

/// A piece that was mapped into a segment.
fn mapping(address: u64, bytes: u64) -> Change {
    Change { mapped: true, whole: false, address, bytes, pieces: 1 }
}
