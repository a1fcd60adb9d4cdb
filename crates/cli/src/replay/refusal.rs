//! What a refused capture was refused for, by the trace's numbers.

use super::runner::Runner;
use super::{Placement, ReplayError};
use regraph::driver::Driver;
use regraph_tagged::Program;
use regraph_trace::{BlockIndex, NodeIndex};

/// Where the blocks of a trace were placed, up to its end or to the first capture that the checker refuses.
#[derive(Debug)]
pub struct Placed {
    /// In order of allocation.
    pub placements: Vec<Placement>,
    /// Why the run did not get to the trace's end.
    pub refusal: Option<Refusal>,
}

/// A capture that the checker refused.
#[derive(Debug)]
pub struct Refusal {
    /// The capture, counted from 0.
    pub capture: usize,
    /// The blocks that the checker speaks of, the earlier one first.
    pub blocks: Vec<BlockIndex>,
    /// The nodes that it speaks of: of two blocks without an order a user of each, the earlier one's first.
    pub nodes: Vec<NodeIndex>,
    /// What the run failed with.
    pub error: ReplayError,
}

impl<P: Program> Runner<'_, P> {
    /// This failure with what the checker speaks of, where it refused the capture under way. Nodes have their
    /// numbers by the order in which the driver names the graph's nodes, which is that of their launches.
    pub(super) fn refusal(&self, error: ReplayError) -> Result<Refusal, ReplayError> {
        let (Some(violation), Some(capture)) = (error.violation(), &self.capture) else {
            return Err(error);
        };
        let mut nodes = Vec::new();
        self.driver.nodes(capture.graph, &mut nodes).map_err(|e| self.driver_failed(e))?;
        let node = |wanted| Some(nodes.iter().position(|node| *node == wanted)? as NodeIndex);
        let block = |wanted| {
            self.placed.iter().find(|(_, block)| block.id.number() == wanted).map(|(&id, _)| id)
        };
        Ok(Refusal {
            capture: self.graphs.len(),
            blocks: violation.places().iter().filter_map(|place| block(place.block)).collect(),
            nodes: violation.nodes().into_iter().filter_map(node).collect(),
            error,
        })
    }
}
