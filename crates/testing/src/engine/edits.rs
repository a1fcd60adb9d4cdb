//! What a host does to a capture by hand.

use arbitrary::{Result, Unstructured};

use super::world::{must, Standing, World};
use regraph::driver::{Dependency, Driver, NodeHandle};
use regraph::engine::Error;
use regraph_tagged::{Program, Work};

impl World {
    /// Sets a stream's terminals to what some stream of the capture once had. The engine looks
    /// before and after, or sees both by other calls that concern the stream.
    pub(super) fn set_back(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        let Standing::Inside(capture) = self.standing(stream) else {
            return Ok(());
        };
        let past: Vec<_> = self.past.iter().filter(|it| it.0 == capture).cloned().collect();
        let choice = u.arbitrary::<u8>()?;
        let strict = u.arbitrary::<bool>()?;
        let pool = u.choose_index(self.pools.len())?;
        let Some((_, terminals)) = past.get(usize::from(choice) % past.len().max(1)) else {
            return Ok(());
        };
        // A capture that the engine does not know has nothing to be set back.
        if self.captures[capture].seen.iter().all(Option::is_none) {
            return Ok(());
        }
        if self.ordered {
            // Else what other streams launched may be taken for this one's.
            for member in self.members(capture) {
                self.observe(member);
            }
        }
        let strict = strict || self.ordered;
        self.look(stream, strict, pool);
        let mut terminals = terminals.clone();
        self.order_live_blocks(capture, stream, &mut terminals);
        self.tell(format_args!("set back of {stream} to {terminals:?}"));
        self.captures[capture].traits.set_back = true;
        must(self.driver.set_terminals(self.streams[stream], &terminals));
        self.note_edges(stream);
        self.look(stream, strict, pool);
        Ok(())
    }

    /// What a stream launches next may use the blocks that it has in use, so it has to come after their allocation.
    fn order_live_blocks(&self, capture: usize, stream: usize, terminals: &mut Vec<Dependency>) {
        for block in self.live().into_iter().filter(|_| self.ordered) {
            let block = &self.blocks[block];
            if block.home != Some(capture) || block.owner() != stream {
                continue;
            }
            for &node in &block.terminals[stream] {
                if !self.captures[capture].nodes.reaches(terminals, node) {
                    terminals.push(Dependency::full(node));
                }
            }
        }
    }

    fn look(&mut self, stream: usize, strict: bool, pool: usize) {
        if strict {
            self.observe(stream);
        } else {
            let _ = self.explain(pool, stream);
        }
    }

    pub(super) fn observe(&mut self, stream: usize) {
        let standing = self.standing(stream);
        match self.engine.observe(self.streams[stream]) {
            Ok(()) => {}
            Err(Error::CaptureInvalidated { .. }) => self.expect_ruined(standing),
            Err(error) => panic!("observe: {error}"),
        }
    }

    /// Adds a node by hand, as frameworks do for what streams cannot launch, and perhaps puts it in a stream's way.
    pub(super) fn add_node(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        let Standing::Inside(capture) = self.standing(stream) else {
            return Ok(());
        };
        let adopt = u.ratio(3, 4)?;
        let terminals = self.terminals(stream);
        let graph = self.captures[capture].graph;
        let node = must(self.driver.add_node(graph, &terminals, Work::default()));
        if adopt {
            self.enter_node(capture, stream, node);
            must(self.driver.set_terminals(self.streams[stream], &[Dependency::full(node)]));
        } else {
            self.know_node(capture, node);
            self.captures[capture].traits.stray = true;
        }
        Ok(())
    }

    /// Adds or removes an edge between nodes that the engine has seen.
    pub(super) fn edit_edge(&mut self, u: &mut Unstructured<'_>, capture: usize) -> Result<()> {
        let later = u.arbitrary::<u8>()?;
        let earlier = u.arbitrary::<u8>()?;
        let remove = u.arbitrary::<bool>()?;
        if !self.is_sound(capture) || self.captures[capture].seen.iter().all(Option::is_none) {
            return Ok(());
        }
        let nodes: Vec<NodeHandle> = self.captures[capture].nodes.nodes().collect();
        if nodes.len() < 2 {
            return Ok(());
        }
        for stream in self.members(capture) {
            self.observe(stream);
        }
        if remove && self.ordered {
            return Ok(());
        }
        let graph = self.captures[capture].graph;
        let later = 1 + usize::from(later) % (nodes.len() - 1);
        let done = if remove {
            let mut dependencies = Vec::new();
            must(self.driver.dependencies(nodes[later], &mut dependencies));
            let Some(&edge) = dependencies.get(usize::from(earlier) % dependencies.len().max(1))
            else {
                return Ok(());
            };
            self.driver.remove_dependency(graph, edge, nodes[later])
        } else {
            let earlier = Dependency::full(nodes[usize::from(earlier) % later]);
            self.driver.add_dependency(graph, earlier, nodes[later])
        };
        if done.is_ok() {
            self.tell(format_args!("edit of capture {capture}, removed: {remove}"));
            let traits = &mut self.captures[capture].traits;
            traits.edited = true;
            traits.removed |= remove;
        }
        Ok(())
    }
}
