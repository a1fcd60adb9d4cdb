//! Executable graphs.

use super::executables::Captured;
use super::lease::{Lease, Owned};
use super::order::Launched;
use super::pool::Pool;
use super::{Error, StreamRefusal};
use crate::driver::{AsStream, ExecutableHandle, GraphHandle, HostApi};
use crate::engine::CaptureReport;
use crate::logging::tell_later;
use crate::shown::shown;

/// An executable graph that owns the lease on its memory.
///
/// Its outputs, blocks that were allocated in the capture and not dropped there, may be dropped at any time. No graph
/// that is captured later overwrites an output that is held. A graph that was captured *earlier* may have used the same
/// memory while it was free: when the earlier graph is launched again, it overwrites the output. Outputs that must last
/// longer come from a pool of their own, which the capture [joins](super::Capture::join) and in which no block is
/// freed.
///
/// A graph that is dropped while it runs is destroyed after it has finished: at a later launch or capture of its pool
/// (of several, of one that the library chooses), at that pool's [`Pool::collect`] or [`Pool::synchronize`], where a
/// request for memory of any pool of the engine would fail, or at once after a wait where it keeps values
/// ([`Capture::keep`](super::Capture::keep)).
pub struct Graph<D: HostApi> {
    lease: Lease<D>,
    report: CaptureReport,
}

impl<D: HostApi> Graph<D> {
    pub(super) fn new(mut lease: Lease<D>, captured: Captured, report: CaptureReport) -> Self {
        lease.own(captured);
        Self { lease, report }
    }

    /// Takes over a graph that the host has captured and ended by itself, with the lease and the report that
    /// [`Capture::accept`](super::Capture::accept) gave: the graph is destroyed with this value. Its executable is made
    /// now and uploaded on `stream`, or later where the pool [keeps executables](Pool::keep_executables).
    ///
    /// # Errors
    /// The driver's. Then the graph still belongs to the host, which must not launch it.
    pub fn of(
        lease: Lease<D>,
        graph: GraphHandle,
        report: CaptureReport,
        stream: impl AsStream,
    ) -> Result<Self, Error> {
        let home = lease.home();
        let engine = home.engine();
        let lazily = home.executable_table().are_lazy();
        let mut captured = Captured::new(engine, graph, lazily)?;
        let uploaded = captured.upload(engine, stream.as_stream(), report.nodes);
        uploaded.inspect_err(|_| captured.discard_executable(engine.driver()))?;
        Ok(Self::new(lease, captured, report))
    }

    /// The pool that its capture joined first, with the graph's handle and its name among those with executables there.
    fn owned(&self) -> (&Pool<D>, Owned) {
        (self.lease.home(), self.lease.owned().expect("a graph's lease owns it"))
    }

    /// Launches the graph on a stream that does not capture: after every earlier launch of a graph
    /// of its pool, on all streams.
    ///
    /// The graph's blocks, and the values that [`Capture::keep`](super::Capture::keep) was given, live until the launch
    /// has finished. The program answers for all other memory that nodes use, as it promised when it made the driver.
    ///
    /// Costs one event record, and one wait where the stream is another than the pool's last. Where graphs of the pool
    /// share executables, an executable that holds another graph's parameters is updated first, or one is made
    /// ([`Graph::prepare`]).
    ///
    /// # Errors
    /// Those of [`Lease::launch`]; [`PoolRefusal::NoExecutable`](crate::PoolRefusal::NoExecutable).
    pub fn launch(&self, stream: impl AsStream) -> Result<(), Error> {
        let (_, (_, member)) = self.owned();
        self.lease.launch_owned(member, stream)
    }

    /// Does what the next launch would have to do first: makes the graph's executable and puts it on the device, or
    /// updates the one that it shares. `stream` must not capture. The next launch has nothing of this left to do,
    /// unless another graph that shares the executable is launched before, or the executable is destroyed for the
    /// budget. Launches of the pool on other threads wait meanwhile.
    ///
    /// # Errors
    /// Those of [`Graph::launch`].
    pub fn prepare(&self, stream: impl AsStream) -> Result<(), Error> {
        let (home, (_, member)) = self.owned();
        const CALL: &str = "prepare";
        let (driver, why) = (home.engine().driver(), StreamRefusal::LaunchWhileCapturing);
        let launched = Launched::known(driver, stream, CALL, why)?;
        let _told = tell_later();
        let order = home.order();
        order.must_launch(CALL)?;
        let mut table = home.executable_table();
        order.change_executables(&mut table, CALL, |executables, means| {
            match executables.ready(member, means)? {
                (executable, true) => Ok(means.driver().upload(executable, launched.stream())?),
                (_, false) => Ok(()),
            }
        })
    }

    /// Sets whether the graph's executable stays where the pool's budget for executables is short; at first it does
    /// not. A shared executable stays if one of the graphs that were launched by it is pinned.
    pub fn pin(&self, pinned: bool) {
        let (home, (_, member)) = self.owned();
        home.executable_table().pin(member, pinned);
    }

    /// The device memory that the driver is foreseen to take for an executable of the graph, in bytes; 0 where it
    /// cannot tell. Computed at the first call.
    pub fn foreseen_bytes(&self) -> Result<u64, Error> {
        let (home, (_, member)) = self.owned();
        home.executable_table().bytes_of(member, home.engine().driver())
    }

    /// The report of the graph's capture.
    pub fn report(&self) -> &CaptureReport {
        &self.report
    }

    /// The least memory that its blocks need, in bytes, in any placement that adds no edges to the graph. `None` where
    /// its capture kept no journal; see [`CaptureReport::minimum`]. For pools of several devices, what the blocks on
    /// the first device need.
    ///
    /// Computed at the first call. The graph keeps the capture's journal for that, until [`Graph::forget_journal`]
    /// drops it.
    pub fn minimum_bytes(&self) -> Option<u64> {
        self.report.minimum().map(|minimum| minimum.bytes)
    }

    /// Drops the capture's journal: [`Graph::minimum_bytes`] returns `None` from then on.
    pub fn forget_journal(&mut self) {
        self.report.forget_journal();
    }

    /// The device memory that the driver took to instantiate and upload the graph's own executable, in bytes: by how
    /// much the device's free memory shrank meanwhile, but for what the engine's pools took. Memory that others took on
    /// the device in that time counts too, and the driver takes memory in large pieces, so single figures say less than
    /// their sum. 0 for a graph of which no executable was made.
    pub fn driver_bytes(&self) -> u64 {
        let (home, (_, member)) = self.owned();
        home.executable_table().measured_of(member)
    }

    /// The graph, for reading. It is destroyed with this value.
    pub fn handle(&self) -> GraphHandle {
        let (_, (graph, _)) = self.owned();
        graph
    }

    /// The executable graph, for parameter updates between launches. A launch by any other way than [`Graph::launch`]
    /// is not ordered among the graphs of the pool. `None` where the pool [keeps executables](Pool::keep_executables),
    /// since an executable may then hold another graph's parameters or be destroyed; and, until the next launch, where
    /// the pool has [released](Pool::release_executables) it.
    pub fn executable(&self) -> Option<ExecutableHandle> {
        let (home, (_, member)) = self.owned();
        home.executable_table().own(member)
    }
}

shown!([D: HostApi] Graph<D>: |it| lease = it.lease, report = it.report);
