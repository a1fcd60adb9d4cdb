//! Pools begin and end.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, Weak};

use super::names::PoolId;
use super::Engine;
use crate::driver::Driver;

pub(crate) type Owner = Weak<dyn Any + Send + Sync>;

/// Owners by their pools.
#[derive(Default)]
pub(super) struct Owners(Mutex<BTreeMap<PoolId, Owner>>);

impl<D: Driver> Engine<D> {
    /// Notes whose a pool is, until [`Engine::let_pool_go`].
    pub(crate) fn own_pool(&self, pool: PoolId, owner: Owner) {
        // No step leaves the table half changed.
        self.owners.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pool, owner);
    }

    /// Whose a pool is; `None` for one that was only ever named.
    pub(crate) fn owner_of(&self, pool: PoolId) -> Option<Owner> {
        self.owners.0.lock().unwrap_or_else(PoisonError::into_inner).get(&pool).cloned()
    }

    /// Destroys a pool that its owner has given up: now, or when nothing uses it any more and another
    /// pool is made or the cache is emptied.
    pub(crate) fn let_pool_go(&self, pool: PoolId) {
        self.owners.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&pool);
        // A poisoned engine keeps what it has.
        let _ = self.change(|locked| {
            locked.state.leaving.push(pool);
            locked.destroy_leaving();
            Ok(())
        });
    }
}
