//! The pools that a host has named for its graphs.

use std::collections::BTreeMap;

use crate::map::{new_map, Map};
use regraph::driver::{CaptureId, StreamHandle};
use regraph::engine::{GraphId, PoolId};

/// A pool's name, as its host gives it.
pub type PoolKey = (u64, u64);

/// The name of pools that the host has given none.
pub(super) const UNNAMED: PoolKey = (0, 0);

/// A pool as its host sees it. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolReport {
    /// Its name; zeros for the pool of eager work.
    pub key: PoolKey,
    /// Its name in the engine.
    pub pool: PoolId,
    /// Held from the driver.
    pub reserved: u64,
    /// In blocks that have not been freed.
    pub allocated: u64,
    /// Graphs that use it, or would if they had not been let go of.
    pub graphs: usize,
}

/// A pool of graphs.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) pool: PoolId,
    /// How often the host began to use it, and has not let go.
    pub(super) users: usize,
    /// How often it let go, ever.
    pub(super) releases: u64,
    /// Claims of its graphs. Which of them its host lets go of it does not say, and all are alike: they
    /// are given back together with the last user.
    pub(super) graphs: Vec<GraphId>,
    /// Whether its host has had eager work in it, and may take checkpoints of it then.
    pub(super) eager: bool,
    /// Whether its host has taken a checkpoint of it.
    pub(super) checkpointed: bool,
}

/// A capture that its host has announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    pub(super) key: PoolKey,
    /// Its route.
    pub(super) serial: u64,
    pub(super) capture: CaptureId,
    /// What [`Private::releases`] was then.
    pub(super) releases: u64,
    /// Whether its host is about to end it; its route goes with the next end of the pool.
    pub(super) ending: bool,
}

/// What is known of a device's pools. One lock holds it all.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) private: Map<PoolKey, Private>,
    /// By the stream that began them.
    pub(super) announced: Map<StreamHandle, Announced>,
    /// Of captures that no route takes, a pool each: the host has not said that their graphs may share
    /// memory. It does not say either when the graphs go, so they keep it.
    pub(super) strays: BTreeMap<CaptureId, PoolId>,
    pub(super) stray_graphs: Vec<GraphId>,
}

impl Pools {
    pub(super) fn new() -> Self {
        Self {
            private: new_map(),
            announced: new_map(),
            strays: BTreeMap::new(),
            stray_graphs: Vec::new(),
        }
    }

    /// The name of the pool with this number in the engine; zeros for all that graphs have no part in.
    pub(super) fn key_of(&self, number: u64) -> PoolKey {
        let mut named = self.private.iter();
        named
            .find(|(_, private)| u64::from(private.pool.number()) == number)
            .map_or(UNNAMED, |(&key, _)| key)
    }
}
