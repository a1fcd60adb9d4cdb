//! The pools that a host has named for its graphs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;

use super::executables::KeptExecutables;
use super::lending::Launches;
use super::Error;
use regraph::driver::{CaptureId, StreamHandle};
use regraph::engine::{Figure, GraphId, PoolConfig, PoolId, Spare};
use regraph::sync::Mutex;
use regraph_record::index::Map;

/// A pool's name, as its host gives it.
pub type PoolKey = (u64, u64);

/// The name of pools that the host has given none.
pub(super) const UNNAMED: PoolKey = (0, 0);

/// A pool as its host sees it. All in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolReport {
    /// Its name; zeros for pools of eager work.
    pub key: PoolKey,
    /// What [`Plugin::set_pool_name`](super::Plugin::set_pool_name) called it, if anything.
    pub name: Option<Arc<str>>,
    /// The tag of the region that it belongs to, if it does.
    pub region: Option<Arc<str>>,
    /// Its name in the engine.
    pub pool: PoolId,
    /// Held from the driver.
    pub reserved: u64,
    /// In blocks that have not been freed.
    pub allocated: u64,
    /// Graphs that use it, or would if they had not been let go of.
    pub graphs: usize,
}

/// A pool that its host has named.
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
    pub(super) config: PoolConfig,
    /// Who may have what is free in it while it has users.
    pub(super) spare: Spare,
    /// Whether its host has had eager work in it, and may take checkpoints of it then.
    pub(super) eager: bool,
    /// Whether its host has taken a checkpoint of it.
    pub(super) checkpointed: bool,
    /// How many of its graphs the plug-in launches.
    pub(super) taken: usize,
    /// Of its graphs, where it lends what these do not keep.
    pub(super) launches: Launches,
}

/// A capture that no route takes. It has a pool of its own, as the host has not said that its graph may share
/// memory. The host does not say either when the graph goes, so the graph keeps the memory.
#[derive(Debug)]
pub(super) struct Stray {
    pub(super) pool: PoolId,
    /// Whether it was not judged, and its end was not noticed yet.
    pub(super) open: bool,
}

impl Private {
    /// Whether only live blocks and running work can keep it.
    pub(super) fn is_unused(&self) -> bool {
        self.users == 0 && self.graphs.is_empty()
    }

    /// Who may have what is free in it now.
    pub(super) fn spare_now(&self) -> Spare {
        match self.users {
            // The source is waiting for its memory; and of a region nothing may be others' when it is to sleep.
            0 if self.config.source.is_some() || self.config.tag.is_some() => Spare::GivenBack,
            0 => Spare::Offered,
            _ => self.spare,
        }
    }
}

/// A capture that its host has announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    pub(super) key: PoolKey,
    /// Its route.
    pub(super) serial: u64,
    pub(super) capture: CaptureId,
    /// What [`Private::releases`] was then, or when it had failed.
    pub(super) releases: u64,
    /// The thread that is about to end it: its route goes with that thread's next end of the pool.
    pub(super) ending: Option<ThreadId>,
}

/// What is known of a device's pools. One lock holds it all.
#[derive(Default)]
pub(super) struct Pools {
    pub(super) private: Map<PoolKey, Private>,
    /// Whether some may be unused: else none needs to be looked for.
    pub(super) may_be_unused: bool,
    /// The most that pools of these names may hold, in bytes, those that are still to be made included.
    pub(super) limits: BTreeMap<PoolKey, u64>,
    /// The executables of graphs that the plug-in launches: of a pool's by themselves, or under no name of all others.
    pub(super) executables: BTreeMap<Option<PoolKey>, Arc<Mutex<KeptExecutables>>>,
    /// By the stream that began them.
    pub(super) announced: Map<StreamHandle, Announced>,
    /// Captures that no route takes, those that are over included.
    pub(super) strays: BTreeMap<CaptureId, Stray>,
    /// What the latest pools held that are gone: all of it, for small blocks, for large ones.
    pub(super) gone: VecDeque<(PoolKey, [Figure; 3])>,
}

/// Of so many pools that are gone the figures are kept.
const GONE: usize = 256;

impl Pools {
    /// The pool of a name.
    pub(super) fn named(&self, key: PoolKey, call: &'static str) -> Result<PoolId, Error> {
        let private = self.private.get(&key).ok_or(Error::UnknownPool { call, key })?;
        Ok(private.pool)
    }

    /// Keeps what a pool held that is gone.
    pub(super) fn leave(&mut self, key: PoolKey, held: [Figure; 3]) {
        if self.gone.len() == GONE {
            self.gone.pop_front();
        }
        self.gone.push_back((key, held));
    }

    /// The name of the pool with this number in the engine; zeros for all that graphs have no part in.
    pub(super) fn key_of(&self, number: u64) -> PoolKey {
        let mut named = self.private.iter();
        named
            .find(|(_, private)| u64::from(private.pool.number()) == number)
            .map_or(UNNAMED, |(&key, _)| key)
    }
}
