//! Giving back what a run created, whether it succeeded or not.

use super::runner::Runner;
use super::ReplayError;
use regraph::driver::HostApi;
use regraph_tagged::Program;

/// The first failure of several.
#[derive(Default)]
struct First(Option<ReplayError>);

impl First {
    fn driver(&mut self, result: regraph::driver::Result<()>) {
        if let Err(error) = result {
            self.0.get_or_insert(ReplayError::Cleanup(error));
        }
    }

    fn engine(&mut self, result: Result<(), regraph::engine::Error>) {
        if let Err(error) = result {
            self.0.get_or_insert(ReplayError::Release(error));
        }
    }
}

impl<P: Program> Runner<'_, P> {
    /// Abandons the capture under way, if there is one. Returns the first failure.
    pub(super) fn throw_away(&mut self) -> Option<ReplayError> {
        let capture = self.capture.take()?;
        let mut first = First::default();
        if let Some(id) = capture.id {
            first.engine(self.engine.abandon_capture(id));
        }
        match self.driver.end_capture(self.streams[&capture.origin]) {
            Ok(graph) => first.driver(self.driver.destroy_graph(graph)),
            Err(error) => first.driver(Err(error)),
        }
        first.0
    }

    /// Gives everything back, and goes on behind a failure.
    pub(super) fn clean(&mut self) -> Result<(), ReplayError> {
        let mut first = First(self.throw_away());
        first.driver(self.driver.synchronize());
        for graph in std::mem::take(&mut self.graphs) {
            if let Some(executable) = graph.executable {
                first.driver(self.driver.destroy_executable(executable));
            }
            first.driver(self.driver.destroy_graph(graph.graph));
            if let Some(id) = graph.id {
                first.engine(self.engine.release_graph(id));
            }
        }
        for (_, block) in std::mem::take(&mut self.blocks) {
            first.engine(self.engine.free(block.id));
        }
        for (_, pool) in std::mem::take(&mut self.pools) {
            first.engine(self.engine.destroy_pool(pool));
        }
        for (_, stream) in std::mem::take(&mut self.streams) {
            first.driver(self.driver.destroy_stream(stream));
        }
        first.0.map_or(Ok(()), Err)
    }
}
