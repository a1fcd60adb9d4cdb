//! Graphs that were dropped while they may have been running.

use std::sync::Arc;

use smallvec::SmallVec;

use super::order::Event;
use super::pool::PoolCore;
use crate::driver::{ExecutableHandle, GraphHandle, HostApi};
use crate::engine::{Engine, GraphId};

/// A graph's claim on the pools of one engine.
pub(super) struct Claim<D: HostApi> {
    pub(super) engine: Arc<Engine<D>>,
    pub(super) graph: GraphId,
}

/// What is left of a graph: destroyed and released once it has finished.
pub(super) struct Retired<D: HostApi> {
    pub(super) claims: SmallVec<[Claim<D>; 1]>,
    /// Where the graph is ours to destroy.
    pub(super) handles: Option<(GraphHandle, ExecutableHandle)>,
    /// What the graph was to keep alive.
    pub(super) kept: Vec<Box<dyn std::any::Any + Send + Sync>>,
    /// Its pools but for the one that it is put aside in. That is the first by address, so that no
    /// two keep each other.
    pub(super) others: SmallVec<[Arc<PoolCore<D>>; 1]>,
    /// Behind its last launch, in each of its pools that had one under way.
    pub(super) events: SmallVec<[Arc<Event<D>>; 1]>,
}

impl<D: HostApi> Retired<D> {
    pub(super) fn is_finished(&self) -> bool {
        self.events.iter().all(|event| event.is_completed())
    }

    /// Destroys the graph and gives its memory back. It must have finished.
    pub(super) fn release(mut self) {
        if let (Some((graph, executable)), Some(claim)) = (self.handles.take(), self.claims.first())
        {
            let driver = claim.engine.driver();
            // A handle that the driver refuses to destroy is lost; the memory is not in use by it.
            let _ = driver.destroy_executable(executable);
            let _ = driver.destroy_graph(graph);
        }
        for Claim { engine, graph } in self.claims.drain(..) {
            // Each claim is released once, here; a poisoned engine hands out nothing any more.
            let _ = engine.release_graph(graph);
        }
        self.kept.clear();
    }

    /// Waits until the graph has finished; false where that cannot be told.
    pub(super) fn wait(&self) -> bool {
        self.events.iter().all(|event| event.synchronize().is_ok())
    }
}
