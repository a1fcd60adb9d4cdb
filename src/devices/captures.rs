//! What concerns the engines of several devices at once.

use super::{refuse_default, Devices, Error, Unknown};
use crate::driver::{CaptureId, Driver, GraphHandle, StreamHandle};
use crate::engine::{self, CaptureReport};

impl<D: Driver> Devices<D> {
    /// Ends a capture in every engine that takes part in it, as
    /// [`Engine::end_capture`](engine::Engine::end_capture) does, and returns what each device's came to.
    /// The graph may be launched only if this succeeds. When it is destroyed,
    /// [`Engine::release_graph`](engine::Engine::release_graph) is called on each of them.
    ///
    /// # Errors
    /// [`Error::OnDevice`], with the first refusal: the graph must not be launched, and every engine
    /// has given up what the capture did, those that had accepted it too. [`Error::Unknown`].
    pub fn end_capture(
        &self,
        capture: CaptureId,
        graph: GraphHandle,
    ) -> Result<Vec<(u32, CaptureReport)>, Error> {
        let mut reports = Vec::new();
        for (device, engine) in self.iter() {
            match engine.end_capture(capture, graph) {
                Ok(report) => reports.push((device, report)),
                Err(engine::Error::Unknown { what: engine::Unknown::Capture(_), .. }) => {}
                Err(error) => {
                    self.take_back(capture, &reports);
                    return Err(Error::OnDevice { device, error: Box::new(error) });
                }
            }
        }
        if reports.is_empty() {
            return Err(Error::Unknown { call: "end_capture", what: Unknown::Capture(capture) });
        }
        Ok(reports)
    }

    /// Rolls back a capture whose graph will never run, in every engine that takes part in it.
    ///
    /// # Errors
    /// [`Error::OnDevice`], with the first; the others have rolled it back. [`Error::Unknown`].
    pub fn abandon_capture(&self, capture: CaptureId) -> Result<(), Error> {
        let mut known = false;
        let mut result = Ok(());
        for (device, engine) in self.iter() {
            match engine.abandon_capture(capture) {
                Ok(()) => known = true,
                Err(engine::Error::Unknown { what: engine::Unknown::Capture(_), .. }) => {}
                Err(error) => {
                    result = result.and(Err(Error::OnDevice { device, error: Box::new(error) }));
                }
            }
        }
        result?;
        if known {
            Ok(())
        } else {
            Err(Error::Unknown { call: "abandon_capture", what: Unknown::Capture(capture) })
        }
    }

    /// Names a stream to every engine, for the calling thread, as
    /// [`Engine::mark_stream`](engine::Engine::mark_stream) does.
    ///
    /// # Errors
    /// [`StreamRefusal::PerDevice`](crate::StreamRefusal::PerDevice): mark it with the engine of its device.
    /// [`Error::OnDevice`], with the first; the others have been told.
    pub fn mark_stream(&self, stream: StreamHandle) -> Result<(), Error> {
        refuse_default(stream, "mark_stream")?;
        let mut result = Ok(());
        for (device, engine) in self.iter() {
            let marked = engine.mark_stream(stream);
            let marked = marked.map_err(|error| Error::OnDevice { device, error: Box::new(error) });
            result = result.and(marked);
        }
        result
    }

    /// After a refusal: the graph will never run, so who accepted it gets its memory back, and who
    /// was not asked yet rolls back. What an engine refuses here stays with it: nothing is handed
    /// out for that.
    fn take_back(&self, capture: CaptureId, accepted: &[(u32, CaptureReport)]) {
        for (device, engine) in self.iter() {
            match accepted.iter().find(|(of, _)| *of == device) {
                Some((_, report)) => {
                    let _ = engine.release_graph(report.graph);
                }
                None => {
                    let _ = engine.abandon_capture(capture);
                }
            }
        }
    }
}
