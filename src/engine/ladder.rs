//! What a request for memory tries, in order.

use super::allocate::{Request, POLLED};
use super::config::{Config, Flaw};
use super::names::PoolId;
use super::pools::{is_small, Homes};
use super::reclaim::Amount;
use super::state::State;
use crate::capture::NodeIndex;
use crate::driver::{Driver, DriverError};
use crate::heap::{Bounds, Claim, Heap, Placed, Wanted};

impl State {
    /// A place among what is free, or new memory. In this order: what is free; what has become
    /// free; growth, after old memory was given back if there is a threshold for that; growth after
    /// memory was given back for it; outside captures the same after waiting for all streams.
    pub(super) fn find<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        request: &Request,
        homes: Homes,
        claim: Claim,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        let &Request { pool, stream, bytes, .. } = request;
        let small = is_small(bytes);
        if let Claim::Outside { .. } = claim {
            self.trim_for_outside(driver, config, pool)?;
            // First of all, so that free neighbours are one range when a place is chosen.
            self.take_back_own(driver, (pool, stream), small);
            self.poll_deferred(driver, POLLED);
        }
        if let Some(placed) = self.place(driver, config, claim, homes, bytes) {
            return Ok(Some(placed));
        }
        if self.poll_deferred(driver, POLLED) {
            if let Some(placed) = self.place(driver, config, claim, homes, bytes) {
                return Ok(Some(placed));
            }
        }
        if self.settle_everything(driver, Some(pool)) || config.lacks(Flaw::StreamOrder) {
            if config.lacks(Flaw::StreamOrder) {
                let lanes: Vec<_> = self.lanes.all().collect();
                for lane in lanes {
                    self.pools.heap_mut(homes.first).settle_lane(lane, u64::MAX);
                }
            }
            if let Some(placed) = self.place(driver, config, claim, homes, bytes) {
                return Ok(Some(placed));
            }
        }
        if bytes > self.capacity(driver, pool) {
            return Ok(None);
        }
        self.collect_garbage(driver, config, bytes, Some(pool))?;
        let mut first = match self.grow(driver, config, request, homes.grows, claim) {
            Ok(None) => None,
            Err(error) if error.is_out_of_memory() => Some(error),
            done => return done,
        };
        if self.trim_all(driver, config, Some(pool))? {
            first = match self.grow(driver, config, request, homes.grows, claim) {
                Ok(None) => None,
                Err(error) if error.is_out_of_memory() => Some(error),
                done => return done,
            };
        }
        self.counts.num_alloc_retries += 1;
        for most in [bytes, u64::MAX] {
            let pool = self.is_pool_full(pool, bytes).then_some(pool);
            if self.give_back(driver, Amount { pool, most }) > 0 {
                match self.grow(driver, config, request, homes.grows, claim) {
                    Ok(None) => {}
                    Err(error) if error.is_out_of_memory() => {}
                    done => return done,
                }
            }
        }
        if let Claim::Capture { .. } = claim {
            return first.map_or(Ok(None), Err);
        }
        self.settle_everything(driver, None);
        self.lanes.synchronize(driver);
        self.settle_everything(driver, None);
        if let Some(placed) = self.place(driver, config, claim, homes, bytes) {
            return Ok(Some(placed));
        }
        self.give_back(driver, Amount::ALL);
        self.grow(driver, config, request, homes.grows, claim)
    }

    /// A place in memory that the pool holds.
    fn place<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        claim: Claim,
        homes: Homes,
        bytes: u64,
    ) -> Option<(u32, Placed)> {
        let weigh = homes.second.is_some() || !is_small(bytes);
        std::iter::once(homes.first).chain(homes.second).find_map(|heap| {
            let found = |heap: &mut Heap, prove: &mut dyn FnMut(&[NodeIndex]) -> bool| {
                let placed = heap.place(bytes, weigh, claim, prove);
                placed.or_else(|| heap.open(driver, bytes, claim, prove))
            };
            self.search(config, claim, heap, found).map(|placed| (heap, placed))
        })
    }

    fn grow<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        request: &Request,
        heap: u32,
        claim: Claim,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        let &Request { pool, bytes, requested, .. } = request;
        let limit = self.pools.room(pool).min(self.room_of_all());
        let bounds = Bounds { limit, step: self.step(config, pool, claim) };
        let wanted = Wanted { bytes, requested };
        let grown = self.search(config, claim, heap, |heap, prove| {
            heap.grow(driver, wanted, claim, prove, bounds)
        })?;
        Ok(grown.map(|placed| (heap, placed)))
    }

    /// Above the threshold, gives old memory back before more is got for a block of `bytes`.
    pub(super) fn collect_garbage<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        bytes: u64,
        of: Option<PoolId>,
    ) -> Result<(), DriverError> {
        let threshold = config.settings.garbage_collection_threshold;
        let Some((threshold, limit)) = threshold.zip(self.limit) else { return Ok(()) };
        let allowed = (threshold * limit as f64) as u64;
        // What is spare goes at the end anyway.
        let held = self.pools.reserved_by_all() - self.spare_of_all();
        let excess = (held + bytes).saturating_sub(allowed);
        if excess > 0 {
            self.trim_all(driver, config, of)?;
            self.give_back(driver, Amount { pool: None, most: excess });
        }
        Ok(())
    }

    /// The most that a pool can ever hold, in bytes.
    pub(super) fn capacity<D: Driver + ?Sized>(&mut self, driver: &D, pool: PoolId) -> u64 {
        let of_pool = self.pools.get(pool).and_then(|pool| pool.config().max_bytes);
        of_pool.unwrap_or(u64::MAX).min(self.capacity_of_all(driver))
    }

    /// The most that all pools together can ever hold, in bytes: the engine's limit or the device's
    /// memory.
    pub(super) fn capacity_of_all<D: Driver + ?Sized>(&mut self, driver: &D) -> u64 {
        if self.device_bytes.is_none() {
            self.device_bytes = driver.memory_info().ok().map(|info| info.total);
        }
        self.limit.into_iter().chain(self.device_bytes).min().unwrap_or(u64::MAX)
    }

    /// How much more all pools may hold, in bytes.
    pub(super) fn room_of_all(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.pools.reserved_by_all()))
    }

    /// Whether it is the pool's own limit that stands in the way of `bytes` more.
    fn is_pool_full(&self, pool: PoolId, bytes: u64) -> bool {
        self.pools.room(pool) < bytes && self.room_of_all() >= bytes
    }
}
