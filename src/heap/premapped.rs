//! Premapped memory: what growth in captures maps beyond what its block takes.
//!
//! A mapping of any size costs the same, so a capture that grows again and again maps more at
//! once. What is left over lies behind the end of its segment, in the same piece, and in no range:
//! every decision about places is as if it were not mapped. Growth at that end takes from it first.
//!
//! **Releasing it** gives it back. The driver unmaps no parts, so the piece is *exchanged* for one of the
//! size in use, at the same address, and what the piece held is lost. That is sound while nothing
//! has run that used the piece, and the caller keeps this so:
//!
//! > While a heap has premapped memory, every block that was ever placed in its piece is one of captures
//! > under way, and no use of it outside its capture is known.
//!
//! The piece was mapped for a capture under way. Before one of these would change (a capture ends,
//! work outside captures is to be handed a place, a use outside is recorded) the premapped memory is
//! released, or *kept*: it becomes idle memory like any other, and its piece is never exchanged.

use super::range::{RangeId, RangeState, SegmentId};
use super::segment::{HeapSegment, Piece};
use super::suspend::{Absent, AbsentStage};
use super::users::Users;
use super::{Change, Heap};
use crate::driver::{Driver, DriverError, MemoryHandle};

/// What growth may ask the driver for, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most of all.
    pub(crate) limit: u64,
    /// The most at once for the sake of what may come; zero for nothing but what is missing.
    pub(crate) step: u64,
}

/// What became of a piece that was to be exchanged.
enum Exchanged {
    /// It is as large as what is in use now.
    Done,
    /// It is as it was.
    Kept,
    /// It is mapped no more, or the device has no access: what stands for it, and why.
    Lost(Absent, DriverError),
}

impl HeapSegment {
    /// The piece that ends in premapped memory: where it begins, and how much of it is in use.
    fn premapped_piece(&self) -> Option<(u64, Piece, u64)> {
        let used_until = self.address + self.mapped;
        let end = used_until + self.premapped;
        let (&address, &piece) =
            self.pieces.range(..end).next_back().filter(|_| self.premapped > 0)?;
        debug_assert_eq!(address + piece.bytes, end, "premapped memory is the end of a piece");
        Some((address, piece, used_until - address))
    }

    /// Exchanges the piece that ends in premapped memory for one without. Of a handle that could not be
    /// released the `orphans` take care.
    fn exchange<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        orphans: &mut Vec<MemoryHandle>,
    ) -> Exchanged {
        let Some((address, old, used)) = self.premapped_piece() else { return Exchanged::Kept };
        let replacement = self.replacement.take();
        if driver.unmap(address, old.bytes).is_err() {
            drop_handles(driver, replacement, orphans);
            return Exchanged::Kept;
        }
        self.remove_piece(address);
        let memory = match replacement {
            Some(memory) => memory,
            // There is no room for both at once.
            None if driver.release(old.memory).is_ok() => match self.create(driver, used) {
                Ok(memory) => return self.put(driver, address, Piece { bytes: used, memory }),
                Err(error) => return Exchanged::Lost(Absent::gone(used), error),
            },
            None => return self.put_back(driver, address, old, None),
        };
        let new = Piece { bytes: used, memory };
        let error = match driver.map(address, used, memory) {
            Ok(()) => match driver.set_access(address, used) {
                Ok(()) => {
                    self.pieces.insert(address, new);
                    drop_handles(driver, [old.memory], orphans);
                    return Exchanged::Done;
                }
                Err(error) => {
                    if driver.unmap(address, used).is_err() {
                        drop_handles(driver, [old.memory], orphans);
                        return Exchanged::Lost(Absent::at(new, AbsentStage::Mapped), error);
                    }
                    error
                }
            },
            Err(error) => error,
        };
        drop_handles(driver, [memory], orphans);
        self.put_back(driver, address, old, Some(error))
    }

    /// Maps a piece where nothing is mapped, as the new one.
    fn put<D: Driver + ?Sized>(&mut self, driver: &D, address: u64, new: Piece) -> Exchanged {
        match self.put_back(driver, address, new, None) {
            Exchanged::Kept => Exchanged::Done,
            lost => lost,
        }
    }

    /// Maps a piece again that was unmapped; `cause` is why, for the report.
    fn put_back<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        address: u64,
        old: Piece,
        cause: Option<DriverError>,
    ) -> Exchanged {
        if let Err(error) = driver.map(address, old.bytes, old.memory) {
            return Exchanged::Lost(Absent::at(old, AbsentStage::Unmapped), cause.unwrap_or(error));
        }
        if let Err(error) = driver.set_access(address, old.bytes) {
            return Exchanged::Lost(Absent::at(old, AbsentStage::Mapped), cause.unwrap_or(error));
        }
        self.pieces.insert(address, old);
        Exchanged::Kept
    }
}

/// Releases handles that are mapped nowhere; what the driver does not take is kept.
fn drop_handles<D: Driver + ?Sized>(
    driver: &D,
    handles: impl IntoIterator<Item = MemoryHandle>,
    orphans: &mut Vec<MemoryHandle>,
) {
    orphans.extend(handles.into_iter().filter(|&memory| driver.release(memory).is_err()));
}

impl Heap {
    /// Bytes that are held and lie in no range.
    #[inline]
    pub(crate) fn premapped(&self) -> u64 {
        self.premapped
    }

    /// Where they lie: address, size and segment.
    pub(crate) fn premapped_ranges(&self) -> impl Iterator<Item = ((u64, u64), usize)> + '_ {
        let segments = self.segments.iter().enumerate();
        segments.filter_map(|(number, segment)| {
            let segment = segment.as_ref().filter(|segment| segment.premapped > 0)?;
            Some(((segment.address + segment.mapped, segment.premapped), number))
        })
    }

    /// How much of what is missing behind a segment's end is mapped there already.
    pub(super) fn premapped_of(&self, segment: SegmentId) -> u64 {
        self.segments[segment.index()].as_ref().map_or(0, |segment| segment.premapped)
    }

    /// Brings `missing` bytes behind a segment's end into use: premapped ones first, then new ones, and
    /// with a step more than that. Returns the range.
    ///
    /// # Errors
    /// The driver's. Nothing has changed then.
    pub(super) fn extend<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        segment: SegmentId,
        missing: u64,
        Bounds { limit, step }: Bounds,
        unit: u64,
    ) -> Result<RangeId, DriverError> {
        // Half as much again as the captures have grown so far: few calls, and little too much.
        let ahead = if self.exact { 0 } else { self.grown / 2 };
        let row = self.segment(segment);
        let needed = missing.saturating_sub(row.premapped);
        let mut mapped = None;
        if needed > 0 {
            let address = row.address + row.mapped + row.premapped;
            let room = (row.bytes - row.mapped - row.premapped).min(step);
            let half = limit.saturating_sub(needed) / 2;
            let extra = ahead.min(room.saturating_sub(needed)).min(half) / unit * unit;
            let mut bytes = needed + extra;
            let result = match row.map(driver, address, bytes) {
                Err(error) if extra > 0 && error.is_out_of_memory() => {
                    bytes = needed;
                    row.map(driver, address, bytes)
                }
                done => done,
            };
            result?;
            mapped = Some((address, bytes));
        }
        let before = row.premapped;
        row.premapped = before + mapped.map_or(0, |(_, bytes)| bytes) - missing;
        row.mapped += missing;
        let after = row.premapped;
        self.premapped = self.premapped - before + after;
        if let Some((address, bytes)) = mapped {
            self.grown += if step > 0 { bytes } else { 0 };
            self.note_change(Change { mapped: true, whole: false, address, bytes, pieces: 1 });
        }
        Ok(self.append(segment, missing))
    }

    /// Makes premapped memory idle memory, where it belongs to the piece that a place reaches into, by address and
    /// size, or all of it. Its piece stays as it is from now on.
    pub(crate) fn keep_premapped(&mut self, place: Option<(u64, u64)>) {
        for row in 0..self.segments.len() {
            let Some(segment) = self.segments[row].as_ref() else { continue };
            let Some((start, piece, _)) = segment.premapped_piece() else { continue };
            let reaches = place.is_none_or(|(address, bytes)| {
                address < start + piece.bytes && start < address + bytes
            });
            if reaches {
                self.keep_segment(SegmentId::new(row));
            }
        }
    }

    fn keep_segment(&mut self, segment: SegmentId) {
        let row = self.segment(segment);
        let bytes = std::mem::take(&mut row.premapped);
        if bytes == 0 {
            return;
        }
        row.mapped += bytes;
        let (start, last) = (row.address + row.mapped - bytes, row.last);
        self.premapped -= bytes;
        self.exact = true;
        let state = RangeState::Idle { users: Users::Eager };
        let id = self.ranges.insert((start, bytes), segment, (last, None), state);
        self.segment(segment).last = Some(id);
        self.ranges[id].since = self.clock;
        self.list(id);
        self.merge(id);
    }

    /// Gets the memory of the pieces that [`Heap::release_premapped`] would exchange others for, as far
    /// as the driver gives `limit` bytes: so an exchange that fails can be undone. It counts as reserved.
    pub(crate) fn create_replacements<D: Driver + ?Sized>(&mut self, driver: &D, mut limit: u64) {
        for segment in self.segments.iter_mut().flatten() {
            let Some((_, _, used)) = segment.premapped_piece() else { continue };
            if used == 0 || used > limit || segment.replacement.is_some() {
                continue;
            }
            if let Ok(memory) = segment.create(driver, used) {
                segment.replacement = Some(memory);
                self.replacements += used;
                limit -= used;
            }
        }
    }

    /// Gives premapped memory back to the driver. What it does not take is idle memory from now on.
    /// No work may have used the pieces that end in it.
    ///
    /// # Errors
    /// The driver's, where a piece is lost: the heap is not [whole](Heap::is_whole) any more, and its
    /// pool must be shut. What is lost comes back as after a suspension.
    pub(crate) fn release_premapped<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
    ) -> Result<(), DriverError> {
        let mut result = Ok(());
        for number in 0..self.segments.len() {
            let Some(row) = self.segments[number].as_mut() else { continue };
            let Some((address, old, used)) = row.premapped_piece() else { continue };
            let gone = Change { mapped: false, whole: false, address, bytes: old.bytes, pieces: 1 };
            let come = |bytes| Change { mapped: true, bytes, ..gone };
            match row.exchange(driver, &mut self.orphans) {
                Exchanged::Kept => {}
                Exchanged::Done => {
                    // To the history only the premapped end goes: what is in use stays where it is.
                    let premapped = old.bytes - used;
                    self.note_change(come(0));
                    self.note_change(Change { address: address + used, bytes: premapped, ..gone });
                    self.resize_premapped(number, 0);
                }
                Exchanged::Lost(absent, error) => {
                    let (bytes, held) = (absent.bytes, absent.is_held());
                    row.absent.insert(address, absent);
                    result = result.and(Err(error));
                    self.note_change(gone);
                    if held {
                        self.note_change(come(bytes));
                    } else {
                        self.suspended += bytes;
                    }
                    self.resize_premapped(number, bytes - used);
                }
            }
            self.keep_segment(SegmentId::new(number));
        }
        // Every handle made ahead is in its place, or released.
        self.replacements = 0;
        self.exact = true;
        result
    }

    fn resize_premapped(&mut self, segment: usize, bytes: u64) {
        let Some(row) = self.segments[segment].as_mut() else { return };
        self.premapped = self.premapped - row.premapped + bytes;
        row.premapped = bytes;
    }

    /// A capture ends: growth begins with small steps again.
    pub(crate) fn restart_steps(&mut self) {
        self.grown = 0;
        self.exact = false;
    }
}
