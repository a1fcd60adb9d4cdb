//! Freed memory that waits for something outside the proof: a capture's end, or work that was
//! submitted outside captures.
//!
//! Such a range is free once the captures it waits for have ended, none of its streams captures
//! any more, and an event recorded on each of them since has completed. A stream that captures
//! when the block is freed gets its event after that: what is submitted to it then comes after
//! what was submitted before the capture, so the event covers both.

use smallvec::SmallVec;

use super::report::{PoolId, WaitReason};
use crate::driver::{
    CaptureId, CaptureStatus, Dependency, Driver, ErrorKind, EventHandle, StreamHandle,
};
use crate::heap::RangeId;
use crate::journal::BlockNumber;

/// An event that was recorded on a stream and has not completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    event: EventHandle,
    stream: StreamHandle,
}

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
    pub(super) events: SmallVec<[Pending; 2]>,
    /// Captures that must have ended.
    pub(super) captures: SmallVec<[CaptureId; 2]>,
    /// Whether a graph of the pool uses the memory.
    pub(super) graphs: bool,
    /// Whether one of its streams was found capturing, so that another graph may use it.
    pub(super) captured: bool,
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
    /// one of `beside`, the captures under way in the pool.
    ///
    /// Errors of the driver leave it waiting: what cannot be shown is not free.
    pub(super) fn poll<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        scratch: &mut Vec<Dependency>,
        known: impl Fn(CaptureId) -> Known,
        beside: &[CaptureId],
        users: &mut Vec<CaptureId>,
    ) -> bool {
        self.captures.retain(|&mut capture| known(capture) == Known::UnderWay);
        let Self { streams, events, captures, captured, .. } = self;
        streams.retain(|&mut stream| match driver.capture_status(stream, scratch) {
            Ok(CaptureStatus::None) => match record(driver, stream) {
                Some(event) => {
                    events.push(event);
                    false
                }
                None => true,
            },
            Ok(CaptureStatus::Active { capture, .. }) => {
                let known = known(capture);
                if known == Known::UnderWay {
                    users.push(capture);
                }
                if known != Known::Ended {
                    // Of an unknown capture nobody has said whose graph it will be.
                    *captured = true;
                    for &capture in beside.iter().chain(users.last()) {
                        if !captures.contains(&capture) {
                            captures.push(capture);
                        }
                    }
                }
                true
            }
            Ok(CaptureStatus::Invalidated) | Err(_) => true,
        });
        events.retain(|pending| match driver.query_event(pending.event) {
            Ok(false) => true,
            Ok(true) => {
                // An event that cannot be destroyed is the driver's loss; its work is done.
                let _ = driver.destroy_event(pending.event);
                false
            }
            Err(error) if error.kind == ErrorKind::CapturedEvent => {
                // The stream began to capture between the question and the record.
                let _ = driver.destroy_event(pending.event);
                streams.push(pending.stream);
                false
            }
            Err(_) => true,
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

/// Records an event behind the work of a stream that does not capture.
pub(super) fn record<D: Driver + ?Sized>(driver: &D, stream: StreamHandle) -> Option<Pending> {
    let event = driver.create_event().ok()?;
    if driver.record_event(event, stream).is_err() {
        let _ = driver.destroy_event(event);
        return None;
    }
    Some(Pending { event, stream })
}
