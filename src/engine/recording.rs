//! A capture under way, as the engine keeps it.

use smallvec::SmallVec;

use super::report::{PoolId, WaitReason};
use crate::capture::Capture;
use crate::driver::{CaptureId, StreamHandle};
use crate::heap::RangeId;
use crate::journal::{BlockNumber, Journal};

/// A block freed in the capture that cannot be proven free within it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) heap: u32,
    pub(super) range: RangeId,
    pub(super) block: BlockNumber,
    /// Whether a finished graph used the memory before the capture did.
    pub(super) graphs: bool,
    /// Streams outside the capture whose work may use it.
    pub(super) outside: SmallVec<[StreamHandle; 2]>,
    pub(super) reason: WaitReason,
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
    /// Memory that it gave back and that journals of other captures may call standing, by the names
    /// they know it by. Rolled back, it stands there no more.
    pub(super) left: Vec<(PoolId, BlockNumber)>,
}
