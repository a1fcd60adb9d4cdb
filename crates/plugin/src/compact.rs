//! Pools of planned captures that give back what their graphs need no more.

use regraph::driver::Transfer;
use regraph::engine::PoolId;

use super::device::Device;
use super::pools::PoolKey;
use super::{Error, Plugin};

impl<D: Transfer> Plugin<D> {
    /// Has the graphs of a named pool of a device, or of all its pools, share as much memory as they can by
    /// now, and returns how many bytes went back to the driver: see
    /// [`Engine::compact_pool`](regraph::engine::Engine::compact_pool). Where an earlier call has left a
    /// pool short of a part of its memory, it comes back first.
    ///
    /// The host has waited for all graphs of these pools, and launches none before this has returned. What
    /// they have left in blocks that are freed is lost.
    ///
    /// # Errors
    /// Those of that call, of the first pool that has one, when all others are done;
    /// [`Error::UnknownPool`]; [`Error::Driver`] where the device cannot be had. After an error of the
    /// driver's no graph of the pool may be launched before another call has succeeded.
    pub fn compact(&self, device: u32, key: Option<PoolKey>) -> Result<u64, Error> {
        let device = self.device(device)?;
        let mut gone = Ok(0);
        for pool in device.graph_pools(key, "compact")? {
            let whole = match device.engine.is_short(pool) {
                Ok(true) => device.engine.resume_pool(pool).map(drop),
                known => known.map(drop),
            };
            match whole.and_then(|()| device.engine.compact_pool(pool)) {
                Ok(bytes) => gone = gone.map(|sum: u64| sum + bytes),
                Err(error) => gone = gone.and(Err(error)),
            }
        }
        Ok(gone?)
    }

    /// How many bytes [`Plugin::compact`] would give back.
    ///
    /// # Errors
    /// Those of [`Engine::excess_bytes`](regraph::engine::Engine::excess_bytes);
    /// [`Error::UnknownPool`]; [`Error::Driver`] where the device cannot be had.
    pub fn excess_bytes(&self, device: u32, key: Option<PoolKey>) -> Result<u64, Error> {
        let device = self.device(device)?;
        let pools = device.graph_pools(key, "excess_bytes")?.into_iter();
        pools.map(|pool| Ok(device.engine.excess_bytes(pool)?)).sum()
    }
}

impl<D: Transfer> Device<D> {
    /// The pool of a name, or all that graphs may be in.
    fn graph_pools(&self, key: Option<PoolKey>, call: &'static str) -> Result<Vec<PoolId>, Error> {
        let pools = self.pools();
        let Some(key) = key else {
            let named = pools.private.values().map(|private| private.pool);
            let mut all: Vec<PoolId> = named.chain(pools.strays.values().copied()).collect();
            all.sort_unstable();
            return Ok(all);
        };
        let known = pools.private.get(&key).map(|private| private.pool);
        Ok(vec![known.ok_or(Error::UnknownPool { call, key })?])
    }
}
