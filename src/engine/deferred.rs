//! Freed memory that waits for something outside the proof: a capture's end, or work that was
//! submitted outside captures.
//!
//! Such a range is free once the captures it waits for have ended, none of its streams captures
//! any more, and an event recorded on each of them since has completed. A stream that captures
//! when the block is freed gets its event after that: what is submitted to it then comes after
//! what was submitted before the capture, so the event covers both.
//!
//! Nothing uses a block after its free, so no capture that begins later does: only a look at the
//! free says whether a graph that nobody announced may use the memory. Later ones find out when the
//! streams have left their captures.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::lanes::{Lanes, Mark, Whereabouts};
use super::names::PoolId;
use super::report::WaitReason;
use crate::driver::{CaptureId, Driver, StreamHandle};
use crate::heap::RangeId;
use crate::journal::BlockNumber;

/// A range that waits.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) pool: PoolId,
    pub(super) heap: u32,
    pub(super) range: RangeId,
    /// Its name in journals.
    pub(super) number: BlockNumber,
    /// Streams without a mark yet.
    pub(super) streams: SmallVec<[StreamHandle; 2]>,
    pub(super) marks: SmallVec<[Mark; 2]>,
    /// Captures that must have ended.
    pub(super) captures: SmallVec<[CaptureId; 2]>,
    /// Whether a graph of the pool uses the memory.
    pub(super) graphs: bool,
    /// Whether one of its streams may have been in a capture that nobody announced, so that its
    /// graph may use the memory.
    pub(super) captured: bool,
    /// Whether one of its streams was last seen capturing, nobody can tell where, when no capture was
    /// under way as far as the engine knew.
    pub(super) unclear: bool,
    /// Whether a look was taken at it that told where each of its streams was.
    pub(super) looked: bool,
    /// Captures under way that one of its streams was found in: their graphs use the memory.
    pub(super) users: SmallVec<[CaptureId; 1]>,
    /// Its own stream, where that was no reason to wait: what it submits comes after all that it
    /// did with the block, which it had done by this mark.
    pub(super) own: Option<Mark>,
    /// What was asked for, in bytes, where it is one block whose end the history has yet to tell.
    pub(super) requested: Option<u64>,
}

/// How a capture stands to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Under way, as far as the engine knows.
    UnderWay,
    /// Ended or abandoned here; the driver may not have been told yet.
    Ended,
    /// Never heard of.
    Unknown,
}

impl Deferred {
    /// Takes another look; true once the range is free. The captures that one of its streams is
    /// found in are put into `users`: their graphs may use the memory, and each may be a part of
    /// one of `beside`, the captures under way in the pool. `all` are those in any pool.
    ///
    /// Errors of the driver leave it waiting: what cannot be shown is not free.
    pub(super) fn poll<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        lanes: &mut Lanes,
        known: impl Fn(&Lanes, CaptureId) -> Known,
        beside: &[CaptureId],
        all: &[CaptureId],
        users: &mut Vec<CaptureId>,
    ) -> bool {
        self.captures.retain(|&mut capture| known(lanes, capture) == Known::UnderWay);
        let Self { streams, marks, captures, captured, unclear, looked, users: by, .. } = self;
        let first = !*looked;
        *looked = true;
        let mut wait_for = |found: &[CaptureId]| {
            for &capture in found {
                if !captures.contains(&capture) {
                    captures.push(capture);
                }
            }
        };
        streams.retain(|&mut stream| match lanes.ask(driver, stream) {
            Whereabouts::Outside => match lanes.mark(driver, stream) {
                Some(mark) => {
                    marks.push(mark);
                    false
                }
                None => true,
            },
            Whereabouts::Inside(capture) => {
                match known(lanes, capture) {
                    Known::UnderWay => {
                        users.push(capture);
                        if !by.contains(&capture) {
                            by.push(capture);
                        }
                        wait_for(&[capture]);
                        wait_for(beside);
                    }
                    Known::Unknown => {
                        // Nobody has said whose graph it will be.
                        *captured |= first;
                        wait_for(beside);
                    }
                    Known::Ended => {}
                }
                true
            }
            Whereabouts::Barred => true,
            Whereabouts::Unclear => {
                // By the next look that may be over. Any capture under way may be the one.
                *unclear = all.is_empty() && (first || *unclear);
                *looked &= !first;
                for &capture in all {
                    users.push(capture);
                    if !by.contains(&capture) {
                        by.push(capture);
                    }
                }
                wait_for(all);
                true
            }
        });
        marks.retain(|&mut mark| !lanes.is_reached(mark));
        self.streams.is_empty() && self.marks.is_empty() && self.captures.is_empty()
    }

    /// The mark that it waits for, where it waits for marks alone.
    pub(super) fn awaits(&self) -> Option<Mark> {
        let alone = self.streams.is_empty() && self.captures.is_empty();
        self.marks.first().copied().filter(|_| alone)
    }

    /// What it waits for.
    pub(super) fn reason(&self, lanes: &Lanes) -> WaitReason {
        if let Some(&capture) = self.captures.first() {
            return WaitReason::Capture(capture);
        }
        let marked = self.marks.first().map(|mark| lanes.stream(mark.lane));
        match self.streams.first().copied().or(marked) {
            Some(stream) => WaitReason::OutsideWork(stream),
            None => unreachable!("what waits for nothing is free"),
        }
    }
}

/// Everything that waits.
#[derive(Debug, Default)]
pub(super) struct Deferrals {
    rows: Vec<Option<Deferred>>,
    vacant: Vec<u32>,
    /// Those that must be looked at, in the order in which that happens next; the rest is parked
    /// at a lane.
    pub(super) polled: VecDeque<u32>,
}

impl Deferrals {
    /// Takes one in and gives it a number.
    pub(super) fn insert(&mut self, deferred: Deferred) -> u32 {
        match self.vacant.pop() {
            Some(number) => {
                self.rows[number as usize] = Some(deferred);
                number
            }
            None => {
                self.rows.push(Some(deferred));
                u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 blocks wait")
            }
        }
    }

    /// Takes one out, for good or to be put back.
    pub(super) fn take(&mut self, number: u32) -> Option<Deferred> {
        self.rows.get_mut(number as usize)?.take()
    }

    /// Puts back what [`Deferrals::take`] took out.
    pub(super) fn put_back(&mut self, number: u32, deferred: Deferred) {
        self.rows[number as usize] = Some(deferred);
    }

    /// Lets a number that was taken out be used again.
    pub(super) fn forget(&mut self, number: u32) {
        self.vacant.push(number);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Deferred> {
        self.rows.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Deferred> {
        self.rows.iter_mut().flatten()
    }
}
