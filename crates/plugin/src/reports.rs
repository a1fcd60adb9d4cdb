//! What captures came to, for hosts that ask when they are long over.

use std::collections::VecDeque;

use regraph::driver::Transfer;
use regraph::engine::CaptureReport;
use regraph::sync::{AtomicU64, Mutex, Ordering, Rank};

use super::pools::PoolKey;
use super::Plugin;

/// How many of a device's captures are known, the latest: what their least memory is computed from
/// stays until it is asked for.
const KEPT: usize = 32;

/// What a capture came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndedCapture {
    /// Its pool's name; zeros where no route claimed the capture.
    pub key: PoolKey,
    /// Its report. It is not verified where the end of the capture was not told in time.
    pub report: CaptureReport,
    /// The least memory that its own blocks need, in bytes, by what its graph proves of their order
    /// ([`CaptureReport::minimum`]); `None` where too little was recorded.
    pub minimum: Option<u64>,
}

/// The captures of a device that ended last, oldest first.
#[derive(Debug)]
pub(super) struct Reports {
    latest: Mutex<VecDeque<EndedCapture>>,
    /// The number of captures that the checker did not judge.
    unjudged: AtomicU64,
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
        all.push_back(EndedCapture { key, report, minimum: None });
        drop(all);
        drop(oldest);
    }

    /// The number of captures that have ended and whose graph the checker has not judged.
    pub(super) fn unjudged(&self) -> u64 {
        self.unjudged.load(Ordering::Relaxed)
    }

    fn ended(&self) -> Vec<EndedCapture> {
        // Captures end meanwhile without a wait; copies of a report share what they compute.
        let mut all: Vec<EndedCapture> = self.latest.lock().iter().cloned().collect();
        for EndedCapture { report, minimum, .. } in &mut all {
            *minimum = minimum.or_else(|| Some(report.minimum()?.bytes));
            report.forget_journal();
        }
        for EndedCapture { report, minimum, .. } in self.latest.lock().iter_mut() {
            if let Some(known) = all.iter().find(|it| it.report.graph == report.graph) {
                *minimum = known.minimum;
                report.forget_journal();
            }
        }
        all
    }
}

impl<D: Transfer> Plugin<D> {
    /// What the latest captures on a device came to, up to 32 of them, oldest first. The least memory
    /// of each is computed when it is asked for the first time.
    pub fn captures(&self, device: u32) -> Vec<EndedCapture> {
        let Some(device) = self.made(device) else { return Vec::new() };
        device.end_late(&mut device.pools());
        device.reports.ended()
    }
}
