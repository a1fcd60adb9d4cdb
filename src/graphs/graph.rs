//! Executable graphs.

use std::fmt;

use super::lease::Lease;
use super::Error;
use crate::driver::{AsStream, ExecutableHandle, GraphHandle, HostApi};
use crate::engine::CaptureReport;
use crate::sync::Ordering;

/// An executable graph that owns the lease on its memory.
///
/// Its outputs, blocks that were allocated in the capture and not dropped there, may be dropped at
/// any time. One that is held is overwritten by no graph that is captured later. A graph that was
/// captured *earlier* may have used the same memory while it was free: once that one is launched
/// again, the output is gone. Outputs that must last longer come from a pool of their own, which the
/// capture [joins](super::Capture::join) and which nothing is given back in.
///
/// Dropped while it runs, the graph is destroyed after it has finished: at a later launch or capture of
/// its pool, at [`Pool::synchronize`](super::Pool::synchronize), or at once after a wait where it keeps values ([`Capture::keep`](super::Capture::keep)).
pub struct Graph<D: HostApi> {
    lease: Lease<D>,
    graph: GraphHandle,
    executable: ExecutableHandle,
    report: CaptureReport,
    driver_bytes: u64,
}

impl<D: HostApi> Graph<D> {
    pub(super) fn new(
        mut lease: Lease<D>,
        graph: GraphHandle,
        executable: ExecutableHandle,
        report: CaptureReport,
        driver_bytes: u64,
    ) -> Self {
        lease.own(graph, executable);
        if let Some(pool) = lease.pools().next() {
            pool.spent().fetch_add(driver_bytes, Ordering::Relaxed);
        }
        Self { lease, graph, executable, report, driver_bytes }
    }

    /// Launches the graph on a stream that does not capture: after every earlier launch of a graph
    /// of its pool, on all streams.
    ///
    /// What its nodes use lives until it has finished: its blocks do, and what was
    /// [kept](super::Capture::keep); for all else the program answers, as it promised with the driver.
    ///
    /// Costs one event record, and one wait where the stream is another than the pool's last.
    ///
    /// # Errors
    /// As [`Lease::launch`].
    pub fn launch(&self, stream: impl AsStream) -> Result<(), Error> {
        self.lease.launch(stream, |stream| {
            let Some(pool) = self.lease.pools().next() else { return Ok(()) };
            Ok(pool.engine().driver().replay(self.executable, stream)?)
        })
    }

    /// What its capture came to.
    pub fn report(&self) -> &CaptureReport {
        &self.report
    }

    /// The least memory that its blocks need, in bytes, in any placement that adds no edges to the
    /// graph. `None` where its capture kept no journal; see [`CaptureReport::minimum`]. Of pools of
    /// several devices, what those of the first need.
    ///
    /// Found when it is first asked for. Until the graph is gone it keeps the capture's journal for that;
    /// [`Graph::forget_journal`] gives it up.
    pub fn minimum_bytes(&self) -> Option<u64> {
        self.report.minimum().map(|minimum| minimum.bytes)
    }

    /// Gives up the capture's journal: [`Graph::minimum_bytes`] knows nothing any more.
    pub fn forget_journal(&mut self) {
        self.report.forget_journal();
    }

    /// The device memory that the driver took to instantiate and upload the graph, in bytes: by how
    /// much its free memory shrank meanwhile. What others did on the device in that time counts too,
    /// and the driver takes memory in large pieces, so single figures say less than their sum.
    pub fn driver_bytes(&self) -> u64 {
        self.driver_bytes
    }

    /// The graph, for reading. It is destroyed with this value.
    pub fn handle(&self) -> GraphHandle {
        self.graph
    }

    /// The executable graph, for parameter updates between launches. A launch by any other way than
    /// [`Graph::launch`] is not ordered among the graphs of the pool.
    pub fn executable(&self) -> ExecutableHandle {
        self.executable
    }
}

impl<D: HostApi> Drop for Graph<D> {
    fn drop(&mut self) {
        if let Some(pool) = self.lease.pools().next() {
            pool.spent().fetch_sub(self.driver_bytes, Ordering::Relaxed);
        }
    }
}

impl<D: HostApi> fmt::Debug for Graph<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("lease", &self.lease)
            .field("report", &self.report)
            .field("driver_bytes", &self.driver_bytes)
            .finish_non_exhaustive()
    }
}
