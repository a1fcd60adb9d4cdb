//! Pools of planned captures that give back what their graphs need no more.

use regraph::driver::Transfer;
use regraph::engine::{self, PoolId};

use super::pools::{PoolKey, Pools};
use super::{Error, Plugin};

impl<D: Transfer> Plugin<D> {
    /// Has the graphs of a named pool of a device, or of all its pools, share as much memory as they can by
    /// now, and returns how many bytes went back to the driver: see
    /// [`HostCalls::compact_pool`](regraph::engine::HostCalls::compact_pool). Where an earlier call has left a
    /// pool short of a part of its memory, it comes back first.
    ///
    /// Waits for the device first. The host launches no graph of these pools before this has returned, for which
    /// launches that it tells of ([`Plugin::begin_launch`]) wait. What they have left in blocks that are freed is lost.
    ///
    /// # Errors
    /// Those of that call, of the first pool that has one, when all others are done; [`engine::Error::DeviceCaptures`],
    /// also where a capture may begin any time; [`Error::Launching`] where the calling thread is about to launch a
    /// graph; [`Error::UnknownPool`]; [`Error::Driver`] where the device cannot be had. After an error of the driver's
    /// no graph of the pool may be launched before another call has succeeded.
    pub fn compact(&self, device: u32, key: Option<PoolKey>) -> Result<u64, Error> {
        const CALL: &str = "compact";
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let _none_is_launched = self.under_way.hold(true).ok_or(Error::Launching { call: CALL })?;
        let _none_begins = device.begins_captures.lock();
        graph_pools(&device.pools(), key, CALL)?;
        device.end_late(&mut device.pools());
        if device.captures() || !device.engine.wait_for_device()? {
            return Err(engine::Error::DeviceCaptures { call: CALL }.into());
        }
        let pools = device.pools();
        let mut gone = Ok(0);
        for pool in graph_pools(&pools, key, CALL)? {
            let whole = match device.engine.host().is_short(pool) {
                Ok(true) => device.engine.host().resume_pool(pool).map(drop),
                known => known.map(drop),
            };
            match whole.and_then(|()| device.engine.host().compact_pool(pool)) {
                Ok(bytes) => gone = gone.map(|sum: u64| sum + bytes),
                Err(error) => gone = gone.and(Err(error)),
            }
        }
        Ok(gone?)
    }

    /// How many bytes [`Plugin::compact`] would give back.
    ///
    /// # Errors
    /// Those of [`HostCalls::excess_bytes`](regraph::engine::HostCalls::excess_bytes);
    /// [`Error::UnknownPool`]; [`Error::Driver`] where the device cannot be had.
    pub fn excess_bytes(&self, device: u32, key: Option<PoolKey>) -> Result<u64, Error> {
        let device = self.device(device)?;
        let pools = graph_pools(&device.pools(), key, "excess_bytes")?.into_iter();
        pools.map(|pool| Ok(device.engine.host().excess_bytes(pool)?)).sum()
    }
}

/// The pool of a name, or all that graphs may be in.
fn graph_pools(
    pools: &Pools,
    key: Option<PoolKey>,
    call: &'static str,
) -> Result<Vec<PoolId>, Error> {
    let Some(key) = key else {
        let named = pools.private.values().map(|private| private.pool);
        let mut all: Vec<PoolId> =
            named.chain(pools.strays.values().map(|stray| stray.pool)).collect();
        all.sort_unstable();
        return Ok(all);
    };
    Ok(vec![pools.named(key, call)?])
}
