//! Captures, and the graphs that come of them.

use regraph::driver::{CaptureMode, CaptureStatus};
use regraph::engine::BlockId;

use super::super::{launch, tagged, Device};
use super::{Capture, Graph, Host};

const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
const MOST_GRAPHS: usize = 3;

impl<P: Device> Host<P> {
    pub(super) fn begin_or_fork(&mut self, stream: usize) {
        if let Some(capture) = &mut self.capture {
            if !capture.members.contains(&stream) {
                let origin = self.streams[capture.origin];
                self.driver.wait(self.streams[stream], origin).unwrap();
                capture.members.push(stream);
            }
            return;
        }
        if self.graphs.len() == MOST_GRAPHS {
            self.release(0);
        }
        let mut weights = Vec::new();
        while weights.len() < 2 && self.random.u8(..100) < 40 {
            let Some(number) = self.any_block().filter(|&it| self.blocks[it].tag.is_some()) else {
                break;
            };
            weights.push(self.blocks.swap_remove(number));
        }
        let mode = MODES[self.random.usize(..MODES.len())];
        self.driver.begin_capture(self.streams[stream], mode).unwrap();
        let id = self.engine.begin_capture(self.pool, self.streams[stream]).unwrap();
        launch(&*self.driver, self.streams[stream], (&[], &[]), 0);
        self.capture = Some(Capture { id, mode, origin: stream, members: vec![stream], weights });
    }

    pub(super) fn end_capture(&mut self) {
        let Some(origin) = self.capture.as_ref().map(|capture| capture.origin) else { return };
        // What is not freed is the graph's output.
        let mut outputs = Vec::new();
        let mut number = 0;
        while number < self.blocks.len() {
            if !self.blocks[number].captured {
                number += 1;
                continue;
            }
            let held = self.blocks.swap_remove(number);
            if self.random.u8(..100) < 25 {
                outputs.push(held);
            } else {
                self.free(held);
            }
        }
        for member in self.capture.as_ref().map(|it| it.members.clone()).unwrap() {
            self.wait(origin, member);
        }
        let Capture { id, members, weights, .. } = self.capture.take().unwrap();
        let stream = self.streams[origin];
        let early = self.random.u8(..100) < 50;
        let (report, graph) = if early {
            let status = self.driver.capture_status(stream, &mut Vec::new()).unwrap();
            let CaptureStatus::Active { graph, .. } = status else { panic!("{status:?}") };
            let report = self.engine.end_capture(id, graph).unwrap();
            (report, self.driver.end_capture(stream).unwrap())
        } else {
            // So that the engine knows whose the last nodes are.
            for &member in &members {
                self.engine.observe(self.streams[member]).unwrap();
            }
            let graph = self.driver.end_capture(stream).unwrap();
            (self.engine.end_capture(id, graph).unwrap(), graph)
        };
        assert!(report.verified);
        let executable = self.driver.instantiate(graph).unwrap();
        let done = self.driver.create_event().unwrap();
        self.graphs.push(Graph { id: report.graph, graph, executable, weights, outputs, done });
    }

    /// Launches a graph and checks its outputs behind it.
    pub(super) fn replay(&mut self, stream: usize) {
        let relaxed = self.capture.as_ref().is_none_or(|it| it.mode == CaptureMode::Relaxed);
        if self.graphs.is_empty() || self.is_capturing(stream) || !relaxed {
            return;
        }
        let graph = self.random.usize(..self.graphs.len());
        let graph = &self.graphs[graph];
        let mut before: Vec<usize> = graph.weights.iter().map(|weight| weight.writer).collect();
        before.extend(self.replayed_on);
        if before.iter().any(|&other| self.is_capturing(other)) {
            return;
        }
        for other in before {
            self.wait(stream, other);
        }
        let handle = self.streams[stream];
        let used = graph.weights.iter().chain(&graph.outputs);
        let used: Vec<BlockId> = used.map(|held| held.block.id).collect();
        for block in used {
            self.engine.record_stream(block, handle).unwrap();
        }
        let outputs = graph.outputs.iter();
        let outputs: Vec<_> =
            outputs.filter_map(|it| it.tag.map(|tag| tagged(it.block, tag))).collect();
        for _ in 0..2 {
            self.driver.replay(graph.executable, handle).unwrap();
            launch(&*self.driver, handle, (&outputs, &[]), 10_000);
            self.replays += 1;
        }
        self.driver.record_event(graph.done, handle).unwrap();
        self.replayed_on = Some(stream);
    }

    pub(super) fn release(&mut self, graph: usize) {
        let Graph { id, graph, executable, weights, outputs, done } = self.graphs.remove(graph);
        self.driver.synchronize_event(done).unwrap();
        self.driver.destroy_event(done).unwrap();
        self.driver.destroy_executable(executable).unwrap();
        self.driver.destroy_graph(graph).unwrap();
        let (mut before, mut after) = (outputs, Vec::new());
        if self.random.u8(..100) < 50 {
            std::mem::swap(&mut before, &mut after);
        }
        for held in before {
            self.free(held);
        }
        self.engine.release_graph(id).unwrap();
        for held in after {
            self.free(held);
        }
        self.blocks.extend(weights);
    }
}
