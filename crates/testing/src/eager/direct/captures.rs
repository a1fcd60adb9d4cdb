//! Captures on one stream each, and their graphs.

use arbitrary::{Result, Unstructured};

use super::super::world::{must, Capture, Fate, World};
use super::{Direct, Told};
use regraph::driver::{CaptureId, CaptureMode, CaptureStatus, Driver, GraphHandle, HostApi};
use regraph::engine::{Error, PoolRefusal, Unknown};

/// Captures of one program, at most.
const MOST: usize = 6;

impl World<Direct> {
    pub(super) fn begin(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        let mode =
            *u.choose(&[CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed])?;
        let told = u.ratio(3, 4)?;
        if self.captures.len() == MOST || self.streams[stream].capture.is_some() {
            return Ok(());
        }
        let real = self.streams[stream].real;
        must(self.driver.begin_capture(real, mode));
        self.host.figures.share();
        let number = self.captures.len();
        self.streams[stream].capture = Some(number);
        // Graphs may use blocks of any pool.
        let mut id = None;
        let mut all = told;
        for pool in (0..self.host.pools.len()).filter(|_| told) {
            match self.host.engine.begin_capture(self.host.pools[pool], self.streams[stream].name) {
                Ok(begun) => {
                    assert!(!self.host.suspended[pool], "a capture began in a suspended pool");
                    id = Some(begun);
                }
                Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })
                    if self.host.suspended[pool] =>
                {
                    all = false
                }
                Err(error) => {
                    all = false;
                    self.excuse(&error);
                }
            }
        }
        self.host.untold |= !all;
        let id = id.unwrap_or_else(|| self.status_of(stream).0);
        self.tell(format_args!(
            "capture {number} begins on {}, {mode:?}, told {told}",
            self.streams[stream].row
        ));
        let detail = Told { id, graph: None, all };
        self.captures.push(Capture { fate: Fate::UnderWay, latest: 0, executable: None, detail });
        Ok(())
    }

    /// Asks the driver again and again, for a call may have been made to fail.
    fn status_of(&self, stream: usize) -> (CaptureId, GraphHandle) {
        loop {
            let real = self.streams[stream].real;
            if let Ok(CaptureStatus::Active { capture, graph }) =
                self.driver.capture_status(real, &mut Vec::new())
            {
                return (capture, graph);
            }
        }
    }

    /// Ends the capture of a stream, one way or another.
    pub(super) fn end(&mut self, stream: usize, abandon: bool, engine_first: bool) {
        let Some(number) = self.streams[stream].capture else { return };
        let real = self.streams[stream].real;
        let id = self.captures[number].detail.id;
        let ended = if abandon {
            must(self.driver.end_capture(real));
            match self.host.engine.abandon_capture(id) {
                Ok(()) | Err(Error::Unknown { what: Unknown::Capture(_), .. }) => None,
                Err(error) => panic!("abandon_capture: {error}"),
            }
        } else if engine_first {
            let graph = self.status_of(stream).1;
            let report = self.host.engine.end_capture(id, graph);
            let graph = must(self.driver.end_capture(real));
            Some((graph, report))
        } else {
            let graph = must(self.driver.end_capture(real));
            Some((graph, self.host.engine.end_capture(id, graph)))
        };
        self.streams[stream].capture = None;
        let capture = &mut self.captures[number];
        capture.fate = Fate::Gone;
        match ended {
            Some((graph, Ok(report))) => {
                capture.fate = Fate::Accepted;
                capture.detail.graph = Some(report.graph);
                capture.executable = Some(must(self.driver.instantiate(graph)));
            }
            Some((_, Err(Error::Unknown { what: Unknown::Capture(_), .. }))) | None => {}
            Some((_, Err(error))) => self.excuse(&error),
        }
        self.tell(format_args!("capture {number} ends, {:?}", self.captures[number].fate));
    }

    /// Runs a graph on a stream, and waits for it: graphs of one pool never run at once.
    pub(super) fn replay(&mut self, number: usize, stream: usize) {
        let Some(executable) = self.captures[number].executable else { return };
        if self.streams[stream].capture.is_some() || self.host.suspended.contains(&true) {
            return;
        }
        self.tell(format_args!("replay of {number} on {}", self.streams[stream].row));
        self.lose_restored();
        must(self.driver.replay(executable, self.streams[stream].real));
        self.complete(stream);
        self.lose_restored();
    }

    /// Destroys a graph.
    pub(super) fn release(&mut self, number: usize) {
        let Some(graph) = self.captures[number].detail.graph.take() else { return };
        self.tell(format_args!("release of {number}"));
        self.host.engine.release_graph(graph).expect("the graph was not released before");
        self.captures[number].fate = Fate::Gone;
        if let Some(executable) = self.captures[number].executable.take() {
            must(self.driver.destroy_executable(executable));
        }
    }
}
