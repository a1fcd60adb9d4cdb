//! Pools that the host makes by name, for eager work and for graphs, as PyTorch's `MemPool`; and what it
//! asks of memory as a whole.
//!
//! While such a pool has users its free memory stays with it. With the last one that changes: requests of
//! eager work take what is free in it before they grow, and what is free goes back to the driver when the
//! cache is emptied, when memory is short, or when another pool is made. So blocks that outlive their pool
//! leave nothing behind that no request can have.

use std::sync::Arc;

use regraph::driver::{Source, Transfer};
use regraph::engine::{self, PoolConfig, Spare};
use regraph::sync::Ordering;

use super::device::Device;
use super::pools::{PoolKey, Private};
use super::sources::StandIn;
use super::{Error, Plugin};

impl<D: Transfer> Plugin<D> {
    /// Counts a user of a pool, and makes the pool with the first. With `source` all memory of it comes
    /// from there: it is asked with nothing locked, so it may wait for threads that call the plug-in. What it
    /// does not take back is offered again later.
    ///
    /// # Errors
    /// [`Error::PoolExists`] where there is such a pool and a source was given; [`Error::Driver`] where
    /// the device cannot be had.
    pub fn create_or_incref_pool(
        &self,
        device: u32,
        key: PoolKey,
        source: Option<Arc<dyn Source>>,
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        // Before the lock: where it is not wanted it goes behind it.
        let source = source.map(|source| device.stand_in(key, source));
        let mut pools = device.pools();
        let mut config = PoolConfig::default();
        if let Some(source) = &source {
            device.drop_unused(&mut pools);
            if pools.private.contains_key(&key) {
                return Err(Error::PoolExists { call: "create_or_incref_pool", key });
            }
            config = config.source(source.clone());
        }
        device.use_pool(&mut pools, key, config, Spare::Kept)?;
        Ok(())
    }

    /// Sets the most that a pool will ever hold on a device, in bytes, before the pool is first used; the limit stays
    /// with the name. A request that does not fit fails, in a capture too, and the pool and its earlier graphs go on.
    ///
    /// # Errors
    /// [`Error::PoolExists`] where there is such a pool; [`Error::Driver`] where the device cannot be had.
    pub fn limit_pool(&self, device: u32, key: PoolKey, bytes: u64) -> Result<(), Error> {
        let device = self.device(device)?;
        let mut pools = device.pools();
        if pools.private.contains_key(&key) {
            return Err(Error::PoolExists { call: "limit_pool", key });
        }
        pools.limits.insert(key, bytes);
        Ok(())
    }

    /// How often the host began to use a pool, and has not let go; 0 of one that is unknown.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn pool_use_count(&self, device: u32, key: PoolKey) -> Result<usize, Error> {
        let device = self.device(device)?;
        let users = device.pools().private.get(&key).map_or(0, |private| private.users);
        Ok(users)
    }

    /// Whether the memory of a pool comes from a source of the host's, on any device.
    pub fn has_source(&self, key: PoolKey) -> bool {
        let given = |it: &Private| it.config.source.is_some();
        self.devices().any(|device| device.pools().private.get(&key).is_some_and(given))
    }

    /// Sets whether requests of eager work may take what is free in a pool before they fail for want of
    /// memory. Nothing happens to a pool that is unknown.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn set_use_on_oom(&self, device: u32, key: PoolKey, on: bool) -> Result<(), Error> {
        let device = self.device(device)?;
        let mut pools = device.pools();
        let Some(private) = pools.private.get_mut(&key) else { return Ok(()) };
        private.spare = if on { Spare::OfferedWhenShort } else { Spare::Kept };
        Ok(device.engine.host().set_spare(private.pool, private.spare_now())?)
    }

    /// Makes a pool hand out free memory whole and never in parts, each block in a segment of its own.
    /// Nothing happens to a pool that is unknown.
    ///
    /// # Errors
    /// [`Error::PoolBegun`] while requests are sent to the pool;
    /// [`engine::PoolRefusal::InUse`] where it has blocks or graphs.
    pub fn set_no_split(&self, device: u32, key: PoolKey) -> Result<(), Error> {
        self.replace_pool(device, key, "set_no_split", |config| match config.no_split {
            true => None,
            false => Some(config.no_split(true)),
        })
    }

    /// Gives a pool that has no memory yet a source for all of it. Nothing happens to a pool that has one,
    /// or that is unknown.
    ///
    /// # Errors
    /// As [`Plugin::set_no_split`].
    pub fn set_source(
        &self,
        device: u32,
        key: PoolKey,
        source: impl FnOnce() -> Arc<dyn Source>,
    ) -> Result<(), Error> {
        let of = self.device(device)?;
        let _returned = of.returned.at_end();
        let source = of.stand_in(key, source());
        self.replace_pool(device, key, "set_source", |config| match config.source {
            Some(_) => None,
            None => Some(config.source(source.clone())),
        })
    }

    /// Makes a pool anew, with the configuration that `change` makes of its own, if it makes any.
    fn replace_pool(
        &self,
        device: u32,
        key: PoolKey,
        call: &'static str,
        change: impl FnOnce(PoolConfig) -> Option<PoolConfig>,
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let mut pools = device.pools();
        let Some(private) = pools.private.get_mut(&key) else { return Ok(()) };
        let Some(config) = change(private.config.clone()) else { return Ok(()) };
        // A route names the pool that is replaced here.
        if device.routes.lead_to(key) {
            return Err(Error::PoolBegun { call, key });
        }
        // After the driver's errors the pool is the engine's, which gives the rest of its memory back later.
        if let Err(error @ engine::Error::Pool { why: engine::PoolRefusal::InUse { .. }, .. }) =
            device.engine.destroy_pool(private.pool)
        {
            return Err(error.into());
        }
        private.pool = device.engine.create_pool(config.clone());
        private.config = config;
        Ok(device.engine.host().set_spare(private.pool, private.spare_now())?)
    }

    /// From now on all that the calling thread asks for on a device belongs to a pool, until
    /// [`Plugin::end_pool`]. Counts a user of the pool, as [`Plugin::begin_pool`] does.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn begin_thread_pool(&self, device: u32, key: PoolKey) -> Result<(), Error> {
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let mut pools = device.pools();
        let config = PoolConfig::default();
        let private = device.use_pool(&mut pools, key, config, Spare::GivenBack)?;
        // Captures into the pool may not move what eager work has there.
        private.eager = true;
        let serial = device.routes.push_thread(key, private.pool, None);
        device.adopt_route(&mut pools, key, serial);
        Ok(())
    }

    /// Gives what is free in a pool of any device back. One that the host has let go of is waited for, and
    /// goes if nothing uses it. Nothing happens to a pool that is unknown.
    ///
    /// # Errors
    /// Those of [`HostCalls::empty_pool`](regraph::engine::HostCalls::empty_pool).
    pub fn empty_pool(&self, key: PoolKey) -> Result<(), Error> {
        for device in self.devices() {
            let _returned = device.returned.at_end();
            let named = |private: &Private| (private.pool, private.users == 0);
            let Some((pool, left)) = device.pools().private.get(&key).map(named) else { continue };
            match device.engine.host().empty_pool(pool, left) {
                // Another thread has given it back.
                Err(engine::Error::Unknown { what: engine::Unknown::Pool(_), .. }) => {}
                emptied => drop(emptied?),
            }
            if left {
                device.let_go_of_pools();
            }
        }
        Ok(())
    }

    /// The largest block that eager work could get on a device without that anything is given back for
    /// it, in bytes. See [`HostCalls::largest_block`](regraph::engine::HostCalls::largest_block).
    ///
    /// # Errors
    /// Those of that call; [`Error::Driver`] where the device cannot be had.
    pub fn largest_block(&self, device: u32) -> Result<u64, Error> {
        let device = self.device(device)?;
        Ok(device.engine.host().largest_block(device.eager_pool())?)
    }

    /// The memory that the block at an address lies in: where it begins, and its size. See
    /// [`HostCalls::surroundings_of`](regraph::engine::HostCalls::surroundings_of).
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] where no live block of any device begins there.
    pub fn surroundings_of(&self, address: u64) -> Result<(u64, u64), Error> {
        let (device, block) = self.find(address, "surroundings_of")?;
        Ok(device.engine.host().surroundings_of(block)?)
    }

    /// Sets whether blocks of eager work are cached from now on. What is not is an allocation of the driver's own, and
    /// goes back as soon as it is free. Requests that belong to a named pool or to a capture are as ever.
    pub fn set_caching(&self, caches: bool) {
        self.caches.store(caches, Ordering::Relaxed);
    }

    /// Whether blocks of eager work are cached.
    pub fn is_caching(&self) -> bool {
        self.caches.load(Ordering::Relaxed)
    }
}

impl<D: Transfer> Device<D> {
    /// What stands in for a pool's source where the engine asks.
    fn stand_in(&self, key: PoolKey, source: Arc<dyn Source>) -> Arc<dyn Source> {
        let (watch, returned) = (Arc::clone(&self.watch), Arc::clone(&self.returned));
        Arc::new(StandIn::new(source, (self.number, key), watch, returned))
    }
}
