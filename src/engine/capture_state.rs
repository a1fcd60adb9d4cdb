//! A capture under way, as the engine keeps it.

use std::time::Instant;

use smallvec::SmallVec;

use super::explain::WaitReason;
use super::layout::Following;
use super::names::{BlockId, PoolId};
use super::streams::Mark;
use crate::capture::{Capture, Moment};
use crate::driver::{CaptureId, DriverError, StreamHandle};
use crate::heap::RangeId;
use crate::journal::{BlockNumber, Journal};
use crate::plan::Options;

/// A block freed in the capture that cannot be proven free within it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) heap: u32,
    pub(super) range: RangeId,
    pub(super) block: BlockNumber,
    /// What was asked for, in bytes.
    pub(super) requested: u64,
    /// Whether a finished graph used the memory before the capture did.
    pub(super) graphs: bool,
    /// Streams outside the capture whose work may use it, and that had no mark yet.
    pub(super) outside: SmallVec<[StreamHandle; 2]>,
    /// Behind the work of such streams when the block was freed.
    pub(super) marks: SmallVec<[Mark; 2]>,
    pub(super) reason: WaitReason,
}

/// The thread that all streams of a capture belong to, as long as no stream has gone to another thread
/// since and none has joined the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keeper {
    pub(super) thread: usize,
    pub(super) changes: u64,
    pub(super) streams: usize,
}

/// When the memory of a capture's large blocks comes.
#[derive(Clone, Debug, Default)]
pub(super) enum Planning {
    /// As pool and settings have it.
    #[default]
    Default,
    /// With the block.
    Off,
    /// At the end.
    On(Options),
}

/// A capture under way.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) id: CaptureId,
    /// Captures in order of their first sight: a body is younger than its parent.
    pub(super) age: u64,
    pub(super) capture: Capture,
    pub(super) journal: Option<Journal>,
    pub(super) pools: SmallVec<[PoolId; 1]>,
    /// Blocks allocated in it.
    pub(super) blocks: usize,
    pub(super) held: Vec<Held>,
    /// Blocks freed by a thread that may not look at their streams: the one that captures on them
    /// frees them with its next request.
    pub(super) left: Vec<BlockId>,
    /// Who took the capture over last, and when.
    pub(super) keeper: Keeper,
    /// How much it may map at once ahead of what it asks for, in bytes. Zero too where its graph may
    /// run before it is ended here.
    pub(super) step: u64,
    /// How far set-backs have been followed up.
    pub(super) heeded: Moment,
    /// A block whose place rests on an order that a set-back has undone.
    pub(super) undone: Option<(BlockNumber, StreamHandle)>,
    /// The layout that its blocks are to lie by.
    pub(super) following: Option<Box<Following>>,
    pub(super) planning: Planning,
    /// When it was first seen.
    pub(super) since: Instant,
    /// Whether another capture of one of its pools has been under way beside it: one may contain the
    /// other.
    pub(super) beside: bool,
    /// Why memory that it may use is not there.
    pub(super) lost: Option<DriverError>,
}
