//! What captures came to, for hosts that ask when they are long over.

use std::collections::VecDeque;

use regraph::driver::{CaptureId, Transfer};
use regraph::engine::{CaptureReport, PlanReport};
use regraph::sync::{AtomicU64, Mutex, Ordering, Rank};

use super::pools::PoolKey;
use super::{Error, Plugin};

/// How many of a device's captures are known, the latest: what their least memory is computed from
/// stays until it is asked for.
const KEPT: usize = 32;

/// What a capture came to. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureSummary {
    /// The capture.
    pub capture: CaptureId,
    /// Its pool's name; zeros where no route claimed the capture.
    pub key: PoolKey,
    /// Whether the checker has judged its graph. It has not where the end of the capture was not told in time.
    pub verified: bool,
    /// Nodes that the engine saw.
    pub nodes: usize,
    /// Blocks allocated in it.
    pub blocks: usize,
    /// Held by its pool when it ended, for earlier graphs too.
    pub reserved: u64,
    /// The least that its own blocks need by what its graph proves of their order
    /// ([`CaptureReport::minimum`]); `None` where too little was recorded.
    pub minimum: Option<u64>,
    /// How often memory was mapped for it at its end; `None` where it had its memory before.
    pub mappings: Option<usize>,
    /// How much longer it took for that, in percent of its time until then
    /// ([`PlanReport::share_percent`](regraph::engine::PlanReport::share_percent)).
    pub plan_share_percent: Option<u64>,
    /// With how many mappings that would be 15 percent, where it is more
    /// ([`PlanReport::mappings_within`](regraph::engine::PlanReport::mappings_within)).
    pub mappings_within_share: Option<usize>,
}

/// The captures of a device that ended last, oldest first.
#[derive(Debug)]
pub(super) struct Reports {
    latest: Mutex<VecDeque<Ended>>,
    /// The number of captures that the checker did not judge.
    unjudged: AtomicU64,
}

/// A capture that has ended.
#[derive(Clone, Debug)]
struct Ended {
    key: PoolKey,
    /// With what the least memory is computed from, until it is.
    report: CaptureReport,
    /// The least memory, in bytes, once it is computed.
    minimum: Option<u64>,
}

impl Ended {
    fn summary(&self) -> CaptureSummary {
        let &Self { key, ref report, minimum } = self;
        let plan = report.plan;
        CaptureSummary {
            capture: report.capture,
            key,
            verified: report.verified,
            nodes: report.nodes,
            blocks: report.blocks,
            reserved: report.reserved,
            minimum,
            mappings: plan.map(|plan| plan.mappings),
            plan_share_percent: plan.map(|plan| plan.share_percent()),
            mappings_within_share: plan
                .and_then(|plan| plan.mappings_within(PlanReport::SHARE_PERCENT)),
        }
    }
}

impl Reports {
    pub(super) fn new() -> Self {
        Self { latest: Mutex::new(Rank::Reports, VecDeque::new()), unjudged: AtomicU64::new(0) }
    }

    pub(super) fn push(&self, key: PoolKey, report: CaptureReport) {
        if !report.verified {
            self.unjudged.fetch_add(1, Ordering::Relaxed);
        }
        let mut all = self.latest.lock();
        // Dropped without the lock: a journal may be large.
        let oldest = if all.len() == KEPT { all.pop_front() } else { None };
        all.push_back(Ended { key, report, minimum: None });
        drop(all);
        drop(oldest);
    }

    /// The number of captures that have ended and whose graph the checker has not judged.
    pub(super) fn unjudged(&self) -> u64 {
        self.unjudged.load(Ordering::Relaxed)
    }

    fn summaries(&self) -> Vec<CaptureSummary> {
        // Captures end meanwhile without a wait; copies of a report share what they compute.
        let mut all: Vec<Ended> = self.latest.lock().iter().cloned().collect();
        for Ended { report, minimum, .. } in &mut all {
            *minimum = minimum.or_else(|| Some(report.minimum()?.bytes));
        }
        for Ended { report, minimum, .. } in self.latest.lock().iter_mut() {
            if let Some(known) = all.iter().find(|it| it.report.graph == report.graph) {
                *minimum = known.minimum;
                report.forget_journal();
            }
        }
        all.iter().map(Ended::summary).collect()
    }
}

impl<D: Transfer> Plugin<D> {
    /// What the latest captures on a device came to, up to 32 of them, oldest first. The least memory
    /// of each is computed when it is asked for the first time.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn captures(&self, device: u32) -> Result<Vec<CaptureSummary>, Error> {
        let device = self.device(device)?;
        device.end_late(&mut device.pools());
        Ok(device.reports.summaries())
    }
}
