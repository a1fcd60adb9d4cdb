//! Freed memory that waits for something outside the proof: a capture's end, or work that was
//! submitted outside captures.
//!
//! Such a range is free once the captures it waits for have ended, none of its streams captures
//! any more, and an event recorded on each of them since has completed. A stream that captures
//! when the block is freed gets its event after that: what is submitted to it then comes after
//! what was submitted before the capture, so the event covers both.

use smallvec::SmallVec;

use super::report::{PoolId, WaitReason};
use crate::driver::{CaptureId, CaptureStatus, Dependency, Driver, EventHandle, StreamHandle};
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
    /// Streams without an event yet.
    pub(super) streams: SmallVec<[StreamHandle; 2]>,
    /// Recorded and not completed yet.
    pub(super) events: SmallVec<[EventHandle; 2]>,
    /// Captures that must have ended.
    pub(super) captures: SmallVec<[CaptureId; 2]>,
    /// Whether a graph uses the memory.
    pub(super) graphs: bool,
}

impl Deferred {
    /// Takes another look; true once the range is free.
    ///
    /// `beside` are the captures under way in the block's pool. Errors of the driver leave it
    /// waiting: what cannot be shown is not free.
    pub(super) fn poll<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        scratch: &mut Vec<Dependency>,
        under_way: impl Fn(CaptureId) -> bool,
        beside: &[CaptureId],
    ) -> bool {
        self.captures.retain(|&mut capture| under_way(capture));
        let Self { streams, events, captures, graphs, .. } = self;
        streams.retain(|&mut stream| match driver.capture_status(stream, scratch) {
            Ok(CaptureStatus::None) => match record(driver, stream) {
                Some(event) => {
                    events.push(event);
                    false
                }
                None => true,
            },
            Ok(CaptureStatus::Active { capture, .. }) => {
                // Its graph may use the block, and may be a part of another one under way.
                *graphs = true;
                let known = under_way(capture).then_some(capture);
                for &capture in beside.iter().chain(&known) {
                    if !captures.contains(&capture) {
                        captures.push(capture);
                    }
                }
                true
            }
            Ok(CaptureStatus::Invalidated) | Err(_) => true,
        });
        events.retain(|&mut event| match driver.query_event(event) {
            Ok(true) => {
                // An event that cannot be destroyed is the driver's loss; its work is done.
                let _ = driver.destroy_event(event);
                false
            }
            Ok(false) | Err(_) => true,
        });
        self.streams.is_empty() && self.events.is_empty() && self.captures.is_empty()
    }

    /// What it waits for.
    pub(super) fn reason(&self) -> WaitReason {
        match self.captures.first() {
            Some(&capture) => WaitReason::Capture(capture),
            None => WaitReason::OutsideWork,
        }
    }
}

fn record<D: Driver + ?Sized>(driver: &D, stream: StreamHandle) -> Option<EventHandle> {
    let event = driver.create_event().ok()?;
    if driver.record_event(event, stream).is_err() {
        let _ = driver.destroy_event(event);
        return None;
    }
    Some(event)
}
