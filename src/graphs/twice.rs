//! Capturing twice: once to learn what is asked for, once to lie close together.

use super::capture::Capture;
use super::graph::Graph;
use super::pool::Pool;
use super::Error;
use crate::driver::{AsStream, CaptureMode, HostApi};
use crate::engine::Attempt;

impl<D: HostApi> Pool<D> {
    /// Captures what `body` submits to `stream`, and to the streams that it forks, twice, and returns
    /// the second graph. The first one is never launched and leaves nothing: from it is planned where
    /// the second one's blocks lie, in close to the least memory that can do without more edges. For
    /// devices without virtual memory management there is no other way to that.
    ///
    /// `body` must launch the same work both times, and must have no effects at the time of the
    /// capture but for what it returns: what it returned first is dropped before it is called again,
    /// and with it go the blocks. A block that it put elsewhere stays allocated, its memory apart. A
    /// block from before the capture that it frees is gone the first time. What a library initialises at its first
    /// call alone, in a block of the capture, is gone with the first capture: the second one's graph reads anything there.
    /// Where the second capture asks for anything else, it is served from there on as by
    /// [`Engine::capture`](crate::engine::Engine::capture), and
    /// [`CaptureReport::layout`](crate::engine::CaptureReport::layout) in [`Graph::report`] tells.
    /// After [`Error::CaptureAgain`] the second capture is made again, as by
    /// that call, so `body` may be called up to four times.
    ///
    /// What the pool holds in vain goes back to the driver meanwhile.
    ///
    /// With [`PlanChoice::Exact`](crate::settings::PlanChoice::Exact) the blocks may get their memory at the
    /// second capture's end, where that is less: what that setting asks of the host holds for both captures.
    ///
    /// # Errors
    /// Those of [`Capture::begin`], `body` and [`Capture::finish`];
    /// [`Error::NoJournal`](crate::Error::NoJournal) where captures keep none; [`Error::Refused`] behind the first
    /// capture already, where a layout for the second one could only repeat what is wrong. After any
    /// of them the stream does not capture any more.
    pub fn capture_twice<R, E: From<Error>>(
        &self,
        stream: impl AsStream,
        mode: CaptureMode,
        mut body: impl FnMut(&Capture<D>) -> Result<R, E>,
    ) -> Result<(Graph<D>, R), E> {
        let stream = stream.as_stream();
        let first = Capture::begin_attempt(self, stream, mode, Attempt::First)?;
        let result = body(&first)?;
        let layout = self.engine().layout_of(first.id())?;
        // Before the capture is gone: blocks that are freed in it leave nothing to wait for.
        drop(result);
        drop(first);
        let mut attempt = Attempt::First;
        loop {
            let second = Capture::begin_attempt(self, stream, mode, attempt)?;
            self.engine().follow_layout(second.id(), layout.clone())?;
            let result = body(&second)?;
            match second.finish() {
                Ok(graph) => return Ok((graph, result)),
                Err(error) => attempt = attempt.after(error)?,
            }
        }
    }
}
