//! Pools begin and end.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Weak;

use super::config::PoolConfig;
use super::names::PoolId;
use super::state::Locked;
use super::{Engine, Error, PoolRefusal};
use crate::driver::{Driver, MemorySupport};
use crate::heap::{self, Plan, Splitting, Supply};
use crate::sync::{Mutex, Rank};

pub(crate) type Owner = Weak<dyn Any + Send + Sync>;

/// Owners by their pools.
pub(super) struct Owners(Mutex<BTreeMap<PoolId, Owner>>);

impl Owners {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Rank::Owners, BTreeMap::new()))
    }
}

impl<D: Driver> Engine<D> {
    /// Creates an empty pool. Memory comes with the first allocation.
    pub fn create_pool(&self, config: PoolConfig) -> PoolId {
        /// Address space for small blocks, in bytes; another such segment follows where it is full.
        /// Captures may come to share it for large ones.
        const SMALL_RESERVE: u64 = 16 << 30;
        // What a poisoned engine has may be anywhere.
        let _ = self.change(|locked| {
            locked.destroy_leaving();
            Ok(())
        });
        let mut state = self.state.lock();
        let unit = match self.driver.memory_support() {
            support @ MemorySupport::Mapped { .. } => heap::unit(support),
            MemorySupport::Allocated => 1,
        };
        let settings = state.tuning.settings();
        let limit = config.max_bytes.unwrap_or(u64::MAX);
        let reserve = |bytes: u64| bytes.min(limit).max(1).next_multiple_of(unit);
        let splitting = Splitting {
            most: settings.max_split_bytes,
            slack: settings.max_non_split_rounding_bytes,
        };
        let plan = |small: bool, bytes: u64| {
            let supply = if !settings.caching || config.uncached {
                Supply::Uncached
            } else if settings.expandable_segments && config.is_mapped() {
                Supply::Growing { reserve: reserve(bytes) }
            } else {
                Supply::Fixed
            };
            // Small blocks never lie in segments of their own.
            let splitting = if small { Splitting::default() } else { splitting };
            Plan {
                small,
                supply,
                splitting,
                whole: config.no_split,
                exportable: settings.exportable,
            }
        };
        let small = plan(true, SMALL_RESERVE.min(self.reserve));
        let large = plan(false, self.reserve);
        // What the settings say of plans stays as it is.
        let planned = config.plan.clone().or_else(|| self.config.settings.plan_options());
        state.pools.add(config, small, large, planned)
    }

    /// Gives all memory of a pool back to the driver.
    ///
    /// # Errors
    /// [`PoolRefusal::InUse`] while a block of it is live, a capture into it is under way, a graph of
    /// it exists or work may still use a freed block; [`Error::Unknown`]; the driver's, when
    /// the pool is gone but some of its memory may not have been given back.
    pub fn destroy_pool(&self, pool: PoolId) -> Result<(), Error> {
        self.change(|locked| locked.destroy_pool(pool))
    }

    /// Notes whose a pool is, until [`Engine::let_pool_go`].
    pub(crate) fn own_pool(&self, pool: PoolId, owner: Owner) {
        self.owners.0.lock().insert(pool, owner);
        let mut state = self.state.lock();
        if let Some(row) = state.pools.get_mut(pool) {
            row.set_owned();
        }
    }

    /// Whose a pool is; `None` for one that was only ever named.
    pub(crate) fn owner_of(&self, pool: PoolId) -> Option<Owner> {
        self.owners.0.lock().get(&pool).cloned()
    }

    /// Destroys a pool that its owner has given up: now, or when nothing uses it any more and another
    /// pool is made or the cache is emptied.
    pub(crate) fn let_pool_go(&self, pool: PoolId) {
        self.owners.0.lock().remove(&pool);
        // A poisoned engine keeps what it has.
        let _ = self.change(|locked| {
            locked.state.leaving.push(pool);
            locked.destroy_leaving();
            Ok(())
        });
    }
}

impl<D: Driver> Locked<'_, D> {
    pub(super) fn destroy_pool(&mut self, id: PoolId) -> Result<(), Error> {
        self.state.pool(id, "destroy_pool")?;
        self.free_completed(Some(id));
        let heaps = self.state.pool(id, "destroy_pool")?.heaps();
        let waiting = self.state.waiting.iter().filter(|waiting| waiting.pool == id).count();
        let ordered: usize =
            heaps.iter().map(|&heap| self.state.pools.heap(heap).stream_ordered_ranges()).sum();
        let waiting = waiting + ordered + usize::from(self.state.is_settling(id));
        let blocks = self.state.blocks.count_of(id);
        let pool = self.state.pool(id, "destroy_pool")?;
        if blocks + pool.captures() + pool.graphs() + waiting > 0 {
            let (captures, graphs) = (pool.captures(), pool.graphs());
            let why = PoolRefusal::InUse { blocks, captures, graphs, waiting };
            return Err(self.state.pools.refuse(id, "destroy_pool", why));
        }
        let mut result = Ok(());
        for heap in self.state.pool(id, "destroy_pool")?.heaps() {
            self.state.pools.heap_mut(heap).note_close();
            self.state.count_changes(heap);
        }
        let (heaps, planned) = self.state.pools.remove(id);
        for heap in heaps {
            result = result.and(heap.close(self.driver));
        }
        result = result.and(planned.map_or(Ok(()), |heap| heap.close(self.driver)));
        self.state.blocks.forget_pool(id);
        self.state.forget_figures(id);
        Ok(result?)
    }

    /// Destroys those of the leaving pools that nothing uses any more.
    pub(super) fn destroy_leaving(&mut self) {
        let mut leaving = std::mem::take(&mut self.state.leaving);
        leaving.retain(|&id| {
            let Some(pool) = self.state.pools.get(id) else { return false };
            // Blocks of stream caches that were freed count until they are taken back.
            if pool.captures() + pool.graphs() > 0 {
                return true;
            }
            matches!(self.destroy_pool(id), Err(Error::Pool { why: PoolRefusal::InUse { .. }, .. }))
        });
        self.state.leaving = leaving;
    }

    /// Gives back every pool that nothing uses. What graphs, blocks or running work may still touch
    /// stays with the driver: a leak is better than memory that is pulled away under a kernel.
    pub(super) fn close(&mut self) {
        self.state.timelines.assign_all();
        for pool in self.state.pools.ids() {
            // A pool in use stays, as the comment above says; there is no caller for the driver's errors.
            let _ = self.destroy_pool(pool);
        }
        self.state.timelines.close(self.driver);
    }
}
