//! Eager work in what a pool's graphs do not keep between launches.
//!
//! The host launches graphs by itself, and says so ([`Plugin::launch_begins`], [`Plugin::launch_ends`]) from the first
//! time on that it lets a thread borrow. What it launched before is over then, after a wait for the device. Where it
//! may launch without a word nothing is lent: in a pool with graphs that came to be unannounced, or whose handles
//! it has given away ([`Plugin::launches_elsewhere`]).

use regraph::driver::{Driver, EventHandle, HostApi, StreamHandle, Transfer};
use regraph::engine::{self, Block, Lent};

use super::device::Device;
use super::pools::{PoolKey, Private};
use super::{Error, Plugin};

/// What is known of the launches of a pool's graphs, where it lends.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// Whether all that are not over are known.
    seen: bool,
    /// Whether there may be some that the host says nothing of.
    unseen: bool,
    /// Those that are being submitted.
    under_way: usize,
    /// The stream of the latest, and an event behind it.
    last: Option<(StreamHandle, EventHandle)>,
    /// Streams that have borrowed since their marks were set.
    borrowers: Vec<StreamHandle>,
}

impl Launches {
    /// The pool lends nothing from now on: graphs of it may be launched without a word.
    pub(super) fn lose_sight(&mut self) {
        self.unseen = true;
    }

    fn are_known(&self) -> bool {
        self.seen && !self.unseen && self.under_way == 0
    }
}

impl<D: Transfer> Plugin<D> {
    /// As [`Plugin::begin_thread_pool`], and what graphs of the pool do not keep between launches is lent to the thread's
    /// requests. With [`Lent::AllFree`] it is all that is free in the pool, by the host's word, and what is not served
    /// from there is the pool's as ever. Else it is eager work's, and the pool has no part in it.
    ///
    /// The first time in a pool waits for the device, and nothing is lent if something captures there. The host says
    /// of all launches of the pool's graphs from before this on, and no other thread launches one meanwhile.
    /// Ended by [`Plugin::end_pool`] and [`Plugin::release_pool`], or by [`Plugin::end_borrowing`].
    ///
    /// # Errors
    /// [`Error::UnknownPool`]; [`Error::Driver`] where the device cannot be had.
    pub fn begin_borrowing(&self, device: u32, key: PoolKey, lent: Lent) -> Result<(), Error> {
        const CALL: &str = "begin_borrowing";
        // A graph does not say on which device it is launched, only of which pool it is.
        let named = self.devices().filter(|it| it.pools().private.contains_key(&key)).count();
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let mut pools = device.pools();
        let private = pools.private.get_mut(&key).ok_or(Error::UnknownPool { call: CALL, key })?;
        private.users += 1;
        private.eager |= lent == Lent::AllFree;
        let launches = &mut private.launches;
        launches.unseen |= named > 1;
        if !launches.seen && !launches.unseen {
            launches.seen = device.wait_for_device();
        }
        device.routes.push_thread(key, private.pool, Some(lent));
        Ok(())
    }

    /// Ends what [`Plugin::begin_borrowing`] has begun on the calling thread, and counts its user out.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn end_borrowing(&self, device: u32, key: PoolKey) -> Result<(), Error> {
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let mut pools = device.pools();
        device.routes.remove(key);
        if let Some(private) = pools.private.get_mut(&key) {
            device.mark_borrowers(private);
        }
        device.leave_pool(&mut pools, key);
        Ok(())
    }

    /// Whether a checkpoint was taken of a pool, as hosts do that record trees of graphs.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn has_checkpoint(&self, device: u32, key: PoolKey) -> Result<bool, Error> {
        let pools = self.device(device)?.pools();
        Ok(pools.private.get(&key).is_some_and(|private| private.checkpointed))
    }

    /// The bytes of live blocks in memory that graphs of a pool have lent.
    ///
    /// # Errors
    /// [`Error::UnknownPool`]; [`Error::Driver`] where the device cannot be had.
    pub fn lent_bytes(&self, device: u32, key: PoolKey) -> Result<u64, Error> {
        let device = self.device(device)?;
        let pool = device.pools().private.get(&key).map(|private| private.pool);
        let pool = pool.ok_or(Error::UnknownPool { call: "lent_bytes", key })?;
        Ok(device.engine.pool_statistics(pool)?.lent)
    }

    /// The device on which graphs of a pool are launched, if that may lend; its host tells of their launches.
    pub fn lending_device(&self, key: PoolKey) -> Option<u32> {
        let lends = |device: &&Device<D>| {
            let pools = device.pools();
            pools.private.get(&key).is_some_and(|private| private.launches.seen)
        };
        self.devices().find(lends).map(|device| device.number)
    }

    /// A graph of a pool is about to be launched on `stream`: the launch comes after all work on memory that the
    /// pool has lent, and nothing is lent until [`Plugin::launch_ends`]. Waits for the device if that work
    /// cannot be marked otherwise, as on another thread's stream.
    ///
    /// # Errors
    /// [`engine::Error::BlocksLent`] while blocks live there, [`engine::Error::LentWork`],
    /// [`engine::Error::LaunchWhileCapturing`]: the graph must not be launched. [`Error::Driver`] where the device cannot be had.
    pub fn launch_begins(
        &self,
        device: u32,
        key: PoolKey,
        stream: StreamHandle,
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let mut pools = device.pools();
        let Some(private) = pools.private.get_mut(&key) else { return Ok(()) };
        if !matches!(device.engine.driver().is_capturing(stream), Ok(false)) {
            // As a part of another graph it would run whenever that does.
            return Err(engine::Error::LaunchWhileCapturing { stream }.into());
        }
        match device.engine.follow_lent(private.pool, stream) {
            Err(engine::Error::LentWork { .. }) if device.wait_for_device() => {
                device.engine.follow_lent(private.pool, stream)?;
            }
            followed => followed?,
        }
        private.launches.under_way += 1;
        Ok(())
    }

    /// The graph has been launched, or could not be: what is lent from now on comes after it.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn launch_ends(
        &self,
        device: u32,
        key: PoolKey,
        stream: StreamHandle,
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let mut pools = device.pools();
        let Some(private) = pools.private.get_mut(&key) else { return Ok(()) };
        let launches = &mut private.launches;
        launches.under_way = launches.under_way.saturating_sub(1);
        match device.mark_launch(launches.last.take(), stream) {
            Ok(marked) => {
                launches.last = Some(marked);
                device.engine.forget_borrowers(private.pool)?;
            }
            // The next to borrow waits for the device.
            Err(_) => launches.seen = false,
        }
        Ok(())
    }

    /// Graphs of a pool may be launched without a word from now on: it lends nothing more. What it has lent
    /// must have been freed, and work on it is waited for.
    ///
    /// # Errors
    /// [`engine::Error::BlocksLent`]; [`engine::Error::DeviceCaptures`], where a wait would ruin a capture: no graph
    /// may be launched so.
    pub fn launches_elsewhere(&self, key: PoolKey) -> Result<(), Error> {
        for device in self.devices() {
            let mut pools = device.pools();
            let Some(private) = pools.private.get_mut(&key) else { continue };
            private.launches.lose_sight();
            if !private.launches.seen {
                continue;
            }
            device.engine.follow_lent(private.pool, device.idle_stream()?)?;
            if !device.wait_for_device() {
                let call = "launches_elsewhere";
                return Err(engine::Error::DeviceCaptures { call }.into());
            }
        }
        Ok(())
    }
}

impl<D: Transfer> Device<D> {
    /// A block of what a pool lends, after all launches of its graphs so far.
    pub(super) fn borrow(
        &self,
        key: PoolKey,
        lent: Lent,
        (bytes, stream): (u64, StreamHandle),
    ) -> Result<Option<Block>, Error> {
        // Held until the block is there: no launch begins meanwhile.
        let mut pools = self.pools();
        let Some(private) = pools.private.get_mut(&key) else { return Ok(None) };
        let driver = self.engine.driver();
        // Others were captured into another pool, which is all that their host names at a launch.
        if self.engine.graph_count(private.pool)? != private.graphs.len() {
            return Ok(None);
        }
        let launches = &mut private.launches;
        if !launches.are_known() || !matches!(driver.is_capturing(stream), Ok(false)) {
            return Ok(None);
        }
        if let Some((_, event)) = launches.last.filter(|(last, _)| *last != stream) {
            driver.wait_for_event(stream, event)?;
        }
        let block = match self.engine.lend(private.pool, bytes, stream, lent) {
            // Eager work that has memory elsewhere needs none of a pool that sleeps.
            Err(engine::Error::PoolSuspended { .. }) => None,
            lent => lent?,
        };
        if block.is_some() && !launches.borrowers.contains(&stream) {
            launches.borrowers.push(stream);
        }
        Ok(block)
    }

    /// Marks how far the streams are that have borrowed in a pool: launches on other threads come after that.
    pub(super) fn mark_borrowers(&self, private: &mut Private) {
        for stream in private.launches.borrowers.drain(..) {
            // What cannot be marked now, the next launch marks or waits for.
            let _ = self.engine.mark_borrower(private.pool, stream);
        }
    }

    /// Records an event behind a launch: the one of the launch before, where that was on the same stream.
    fn mark_launch(
        &self,
        last: Option<(StreamHandle, EventHandle)>,
        stream: StreamHandle,
    ) -> Result<(StreamHandle, EventHandle), Error> {
        let driver = self.engine.driver();
        let event = match last {
            Some((of, event)) if of == stream => event,
            last => {
                // What waits for it has been told to by now.
                let _ = last.map(|(_, event)| driver.destroy_event(event));
                driver.create_event_on(driver.device_of_stream(stream)?)?
            }
        };
        if let Err(error) = driver.record_event(event, stream) {
            let _ = driver.destroy_event(event);
            return Err(error.into());
        }
        Ok((stream, event))
    }

    /// Lets go of what is known of a pool's launches: it is gone.
    pub(super) fn forget_launches(&self, private: &mut Private) {
        if let Some((_, event)) = private.launches.last.take() {
            let _ = self.engine.driver().destroy_event(event);
        }
    }
}
