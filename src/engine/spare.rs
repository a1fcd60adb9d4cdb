//! Who may have what is free in a pool: the driver, other pools, or the pool alone.

use super::allocate::Request;
use super::flaws::Flaw;
use super::names::PoolId;
use super::reclaim::Amount;
use super::state::Locked;
use super::{Engine, Error};
use crate::driver::{Driver, DriverError};
use crate::heap::{is_small, Placed, Requester};

/// What becomes of memory that is free in a pool when others could do with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spare {
    /// It goes back to the driver when the cache is emptied or memory is short.
    #[default]
    GivenBack,
    /// It stays, until [`Engine::empty_pool`], or until the pool itself is short.
    Kept,
    /// It stays likewise, but where memory is short, requests outside captures to pools that borrow
    /// ([`PoolConfig::borrows`](super::PoolConfig::borrows)) get some of it.
    LentWhenShort,
    /// Requests outside captures to pools that borrow get it before these grow; for the rest as
    /// [`Spare::GivenBack`].
    Lent,
}

impl Spare {
    /// Whether it goes back to the driver for others.
    pub(super) fn is_given_back(self) -> bool {
        matches!(self, Self::GivenBack | Self::Lent)
    }
}

impl<D: Driver> Engine<D> {
    /// Sets what becomes of memory that is free in a pool. What others have borrowed stays theirs; it is
    /// the pool's again when they free it.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_spare(&self, pool: PoolId, spare: Spare) -> Result<(), Error> {
        self.change(|locked| {
            locked.state.pool(pool, "set_spare")?;
            locked.state.pools.set_spare(pool, spare);
            Ok(())
        })
    }

    /// Gives what is free in a pool back to the driver, even what it keeps, and returns how many
    /// bytes went. With `wait` it first waits for the streams that have given something back to the pool
    /// and are not done; not for others. Other calls go on during the wait.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn empty_pool(&self, pool: PoolId, wait: bool) -> Result<u64, Error> {
        const CALL: &str = "empty_pool";
        if wait {
            self.change(|locked| {
                let heaps = locked.state.pool(pool, CALL)?.heaps();
                locked.free_completed(Some(pool));
                let unsettled = |heap: &u32| locked.state.pools.heap(*heap).unsettled() > 0;
                if locked.state.is_settling(pool) || heaps.iter().any(unsettled) {
                    locked.errands.wait();
                }
                Ok(())
            })?;
        }
        self.change(|locked| {
            locked.state.pool(pool, CALL)?;
            locked.free_completed(Some(pool));
            let before = locked.state.pools.reserved(pool);
            locked.release_planned(Some(pool));
            locked.give_back(Amount { pool: Some(pool), ..Amount::ALL });
            Ok(before.saturating_sub(locked.state.pools.reserved(pool)))
        })
    }

    /// The largest block that a request outside captures to a pool could get, in bytes, without that
    /// anything else is given back for it: free in the pool, perhaps after streams have completed, or on
    /// the device within the limits.
    ///
    /// # Errors
    /// [`Error::Unknown`]; the driver's.
    pub fn largest_block(&self, pool: PoolId) -> Result<u64, Error> {
        self.change(|locked| {
            let heaps = locked.state.pool(pool, "largest_block")?.heaps();
            locked.free_completed(Some(pool));
            let device = locked.driver.memory_info()?.free.min(locked.state.room(pool));
            let places = heaps.iter().map(|&heap| locked.state.pools.heap(heap).largest_place());
            Ok(places.fold(device, u64::max))
        })
    }
}

impl<D: Driver> Locked<'_, D> {
    /// A place for work outside captures in a pool that lends what is free in it now, if the pool that
    /// was asked borrows.
    ///
    /// # Errors
    /// The driver's, where memory of a lender is lost: it is suspended now.
    pub(super) fn borrow(
        &mut self,
        request: &Request,
        requester: Requester,
        spare: Spare,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        if self.state.pools.lenders().is_empty() {
            return Ok(None);
        }
        let &Request { pool, stream, bytes, .. } = request;
        let borrows = self.state.pools.get(pool).is_some_and(|row| row.config().borrows);
        if !borrows || !matches!(requester, Requester::Outside { .. }) {
            return Ok(None);
        }
        for lender in self.state.pools.lenders().to_vec() {
            let Some(row) = self.state.pools.get(lender) else { continue };
            if row.spare() != spare || lender == pool || self.state.is_settling(lender) {
                continue;
            }
            let homes = row.homes(bytes, requester);
            self.drop_premapped_for_eager(lender)?;
            self.take_back_own((lender, stream), is_small(bytes));
            if self.config.lacks(Flaw::Lending) {
                self.state.pools.heap_mut(homes.first).free_completed(|_| u64::MAX);
            }
            if let Some(placed) = self.place(requester, homes, bytes) {
                return Ok(Some(placed));
            }
        }
        Ok(None)
    }
}
