//! What engine calls return.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::layout::Followed;
use super::names::{BlockId, GraphId, PoolId};
use crate::driver::{CaptureId, StreamHandle};
use crate::journal::Journal;
use crate::lifetimes::Lifetimes;
use crate::minimum::Minimum;
use crate::policy::Programmatic;
use crate::uses::{EarlyRead, LateUse};

use super::planned::PlanReport;

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name, for later calls.
    pub id: BlockId,
    /// Where it lies: a device address, a multiple of 512.
    pub address: u64,
    /// What was asked for, in bytes.
    pub bytes: u64,
}

/// A block that has not been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockReport {
    /// The pool.
    pub pool: PoolId,
    /// Where it lies, a device address.
    pub address: u64,
    /// What was asked for, in bytes.
    pub requested: u64,
    /// What it occupies, in bytes.
    pub bytes: u64,
    /// The stream that it was handed out to.
    pub stream: StreamHandle,
}

/// What a capture came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureReport {
    /// The capture.
    pub capture: CaptureId,
    /// The graph's claim on its pools: release it when the graph is destroyed.
    pub graph: GraphId,
    /// Nodes that the engine saw.
    pub nodes: usize,
    /// Blocks allocated in the capture.
    pub blocks: usize,
    /// What its pools held when it ended, in bytes: memory of earlier graphs included.
    pub reserved: u64,
    /// Whether the checker judged the capture.
    pub verified: bool,
    /// How often the driver was asked for a node's dependencies while the capture was recorded.
    pub dependency_queries: u64,
    /// Nodes that use a block later than was recorded, as far as their parameters show it; at most
    /// [`reports::MOST`](crate::reports::MOST). Empty unless
    /// [`Config::find_late_uses`](super::Config::find_late_uses) is set and a journal was kept.
    pub late_uses: Vec<LateUse>,
    /// Nodes that read a block which nothing in the graph wrote before, or may, as far as their parameters show it; at
    /// most [`reports::MOST`](crate::reports::MOST). Empty unless
    /// [`Settings::early_reads`](crate::settings::Settings::early_reads) is set and a journal was kept.
    pub early_reads: Vec<EarlyRead>,
    /// How far its blocks lie by the layout that it was given
    /// ([`Engine::follow_layout`](super::Engine::follow_layout)); `None` without one.
    pub layout: Option<Followed>,
    /// What the memory that came at the capture's end amounts to; `None` where none did.
    pub plan: Option<PlanReport>,
    pub(super) record: Option<Arc<Record>>,
}

/// What a report's figures are found from when they are asked for.
pub(super) struct Record {
    pub(super) journal: Journal,
    pub(super) programmatic: Programmatic,
    pub(super) minimum: OnceLock<Minimum>,
}

impl CaptureReport {
    /// The least memory that the capture's blocks need, in any placement that adds no edges to the
    /// graph, and why less does not do. `None` where the capture kept no journal
    /// ([`Settings::check`](crate::settings::Settings::check), [`Config::journal`](super::Config::journal)),
    /// or it was [forgotten](Self::forget_journal).
    ///
    /// Found when it is first asked for, in some milliseconds, or in about a second for 100,000 blocks;
    /// clones of a report share it.
    pub fn minimum(&self) -> Option<&Minimum> {
        let record = self.record.as_deref()?;
        Some(record.minimum.get_or_init(|| Minimum::of(&record.lifetimes())))
    }

    /// When the capture's blocks were in use; `None` as for [`CaptureReport::minimum`]. Read from the
    /// journal at each call.
    pub fn lifetimes(&self) -> Option<Lifetimes> {
        self.record.as_deref().map(Record::lifetimes)
    }

    /// Gives up the capture's journal, which takes some 50 to 100 bytes of host memory for each node
    /// and block for as long as the report, or a clone of it, is there.
    pub fn forget_journal(&mut self) {
        self.record = None;
    }
}

impl fmt::Debug for Record {
    /// A journal has an entry for each node and block: too much to be read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").finish_non_exhaustive()
    }
}

impl Record {
    pub(super) fn new(journal: Journal, programmatic: Programmatic) -> Self {
        Self { journal, programmatic, minimum: OnceLock::new() }
    }

    fn lifetimes(&self) -> Lifetimes {
        Lifetimes::read(&self.journal, self.programmatic)
    }
}

/// Figures of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Held from the driver.
    pub reserved: u64,
    /// Given back by a suspension, until the pool is resumed.
    pub suspended: u64,
    /// In blocks that have not been freed, as placed (rounded up to 512).
    pub allocated: u64,
    /// The highest `allocated` has been.
    pub peak_allocated: u64,
    /// Asked for in blocks that have not been freed.
    pub requested: u64,
    /// In blocks not freed, and freed ones that no stream may take yet.
    pub active: u64,
    /// Blocks that have not been freed.
    pub blocks: usize,
    /// In blocks that have not been freed, in memory of graphs that is lent between their launches
    /// ([`Engine::lend`](super::Engine::lend)); a part of `allocated`.
    pub lent: u64,
}

/// What came of giving memory back. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Emptied {
    /// Given back to the driver.
    pub released: u64,
    /// Free, but for work that may still use it: it can be given back when that has completed.
    pub waiting: u64,
    /// Still held.
    pub reserved: u64,
}
