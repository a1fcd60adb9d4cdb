//! Eager work in what a pool's graphs do not keep between launches.
//!
//! The host launches graphs by itself, and says so ([`Plugin::begin_launch`]) from the first
//! time on that it lets a thread borrow. What it launched before is over then, after a wait for the device. Where it
//! may launch without a word nothing is lent: in a pool with graphs that came to be unannounced, or whose handles
//! it has given away ([`Plugin::launches_elsewhere`]).

use regraph::driver::{Driver, EventHandle, HostApi, StreamHandle, Transfer};
use regraph::engine::{self, Block, Lent, PoolId};
use regraph::{tell, tell_later, Level};

use super::device::Device;
use super::pools::{PoolKey, Private};
use super::routes::next;
use super::{Error, Plugin};

/// What is known of the launches of a pool's graphs, where it lends.
#[derive(Debug, Default)]
pub(super) struct Launches {
    known: Known,
    /// The latest: on which stream, by the driver's number of it, and an event behind it.
    last: Option<(u64, EventHandle)>,
    /// Streams that have borrowed since their marks were set.
    borrowers: Vec<StreamHandle>,
    /// Whether it was said that the pool lends nothing.
    said: bool,
    /// Whether the pool has lent memory: blocks may be in it still where it lends no more.
    lent: bool,
}

/// Of which launches there is an event, or a wait for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// Of none.
    #[default]
    None,
    /// Of those since the call with this number, which waits for the others.
    Since(u64),
    /// Of all.
    All,
    /// There may be some that the host says nothing of, by this: the pool never lends.
    Never(Unseen),
}

/// Why launches of a pool's graphs may go unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// A capture into the pool was not announced, or not by a host that says of launches.
    Unannounced,
    /// The host has given a handle of a graph away.
    GivenAway,
    /// The pool is one of several devices.
    Devices,
}

impl Unseen {
    fn why(self) -> &'static str {
        match self {
            Self::Unannounced => {
                "a graph of it was captured by a host that does not say of launches"
            }
            Self::GivenAway => {
                "a handle of one of its graphs was asked for, by which it may be launched unseen"
            }
            Self::Devices => "it is a pool of several devices",
        }
    }
}

impl Launches {
    /// The pool lends nothing from now on: graphs of it may be launched without a word. That is logged where a
    /// thread borrows, or has borrowed.
    pub(super) fn lose_sight(&mut self, key: PoolKey, by: Unseen) {
        let lent = self.are_told();
        self.known = Known::Never(by);
        if lent {
            self.say(key);
        }
    }

    /// Says once that the pool lends nothing, where it never will.
    fn say(&mut self, key: PoolKey) {
        let Known::Never(by) = self.known else { return };
        if !std::mem::replace(&mut self.said, true) {
            let (first, second) = key;
            tell(Level::Warn, || format!("pool ({first}, {second}) lends nothing: {}", by.why()));
        }
    }

    /// Whether those that begin now are marked.
    fn are_told(&self) -> bool {
        matches!(self.known, Known::Since(_) | Known::All)
    }

    /// Whether the next may have to come after work on memory that the pool lends or has lent.
    pub(super) fn may_be_behind(&self) -> bool {
        self.are_told() || self.lent
    }

    /// Has those that begin from now on marked. Gives a number for [`Launches::see_all`] where those before are to be
    /// waited for.
    fn begin_telling(&mut self) -> Option<u64> {
        match self.known {
            Known::None => self.known = Known::Since(next()),
            Known::Since(_) | Known::All | Known::Never(_) => {}
        }
        match self.known {
            Known::Since(number) => Some(number),
            Known::None | Known::All | Known::Never(_) => None,
        }
    }

    /// All launches before [`Launches::begin_telling`] are over.
    fn see_all(&mut self, number: u64) {
        if self.known == Known::Since(number) {
            self.known = Known::All;
        }
    }

    /// A launch was not marked: the next to borrow waits for the device.
    fn miss(&mut self) {
        if self.are_told() {
            self.known = Known::None;
        }
    }
}

impl<D: Transfer> Plugin<D> {
    /// As [`Plugin::begin_thread_pool`], and what graphs of the pool do not keep between launches is lent to the thread's
    /// requests. With [`Lent::AllFree`] it is all that is free in the pool, by the host's word, and what is not served
    /// from there is the pool's as ever. Else it is eager work's, and the pool has no part in it.
    ///
    /// The first time in a pool waits for the device, with nothing locked but what captures begin under, and nothing is
    /// lent if something captures there. The host says of all launches of the pool's graphs from before this on.
    /// Ended by [`Plugin::end_pool`] and [`Plugin::release_pool`], or by [`Plugin::end_borrowing`] with the number that
    /// is returned.
    ///
    /// # Errors
    /// [`Error::UnknownPool`]; [`Error::Driver`] where the device cannot be had.
    pub fn begin_borrowing(&self, device: u32, key: PoolKey, lent: Lent) -> Result<u64, Error> {
        const CALL: &str = "begin_borrowing";
        // A graph does not say on which device it is launched, only of which pool it is.
        let named = self.devices().filter(|it| it.pools().private.contains_key(&key)).count();
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let mut pools = device.pools();
        let private = pools.private.get_mut(&key).ok_or(Error::UnknownPool { call: CALL, key })?;
        private.users += 1;
        private.eager |= lent == Lent::AllFree;
        if named > 1 {
            private.launches.lose_sight(key, Unseen::Devices);
        }
        private.launches.say(key);
        let route = device.routes.push_thread(key, private.pool, Some(lent));
        let (first, second) = key;
        device.engine.host().tell(Level::Debug, || {
            format!("pool ({first}, {second}) lends memory of its graphs to a thread, between their launches")
        });
        let Some(number) = private.launches.begin_telling() else { return Ok(route) };
        drop(pools);
        if device.wait_while_none_captures() {
            if let Some(private) = device.pools().private.get_mut(&key) {
                private.launches.see_all(number);
            }
        }
        Ok(route)
    }

    /// Ends what [`Plugin::begin_borrowing`] has begun under a number, on any thread and once, and counts its user out.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn end_borrowing(&self, device: u32, key: PoolKey, route: u64) -> Result<(), Error> {
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let mut pools = device.pools();
        device.end_route(route);
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
        let pool = device.pools().named(key, "lent_bytes")?;
        Ok(device.engine.pool_statistics(pool)?.lent)
    }

    /// Graphs of a pool may be launched without a word from now on: it lends nothing more. What it has lent
    /// must have been freed, and work on it is waited for.
    ///
    /// # Errors
    /// [`engine::PoolRefusal::BlocksLent`]; [`engine::Error::DeviceCaptures`], where a wait would ruin a capture:
    /// no graph may be launched so.
    pub fn launches_elsewhere(&self, key: PoolKey) -> Result<(), Error> {
        let _told = tell_later();
        for device in self.devices() {
            let mut pools = device.pools();
            let Some(private) = pools.private.get_mut(&key) else { continue };
            let has_lent = private.launches.may_be_behind();
            if has_lent {
                // Before it is too late to refuse: with the lock held no more is lent.
                device.engine.host().follow_lent(private.pool, device.idle_stream()?)?;
            }
            private.launches.lose_sight(key, Unseen::GivenAway);
            drop(pools);
            if has_lent {
                device.wait_for_all("launches_elsewhere")?;
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
        // What hosts without streams do with their memory follows no launch.
        if self.idle.get() == Some(&stream) {
            return Ok(None);
        }
        let _told = tell_later();
        // Held until the block is there: a launch that begins meanwhile is refused, or comes after it.
        let mut pools = self.pools();
        let Some(private) = pools.private.get_mut(&key) else { return Ok(None) };
        let driver = self.engine.driver();
        // Others were captured into another pool, which is all that their host names at a launch.
        if self.engine.host().graph_count(private.pool)? != private.graphs.len() {
            return Ok(None);
        }
        let launches = &mut private.launches;
        if launches.known != Known::All
            || self.under_way.is_launching(key)
            || !matches!(driver.is_capturing(stream), Ok(false))
        {
            return Ok(None);
        }
        if let Some((last, event)) = launches.last {
            if last != driver.stream_id(stream)? {
                driver.wait_for_event(stream, event)?;
            }
        }
        let block = match self.engine.host().lend(private.pool, bytes, stream, lent) {
            // Eager work that has memory elsewhere needs none of a pool that sleeps.
            Err(engine::Error::Pool { why: engine::PoolRefusal::Suspended { .. }, .. }) => None,
            lent => lent?,
        };
        launches.lent |= block.is_some();
        if block.is_some() && !launches.borrowers.contains(&stream) {
            launches.borrowers.push(stream);
        }
        Ok(block)
    }

    /// Marks how far the streams are that have borrowed in a pool: launches on other threads come after that.
    pub(super) fn mark_borrowers(&self, private: &mut Private) {
        for stream in private.launches.borrowers.drain(..) {
            // What cannot be marked now, the next launch marks or waits for.
            let _ = self.engine.host().mark_borrower(private.pool, stream);
        }
    }

    /// Waits for the device, unless something captures there: none begins meanwhile. Says whether it did.
    pub(super) fn wait_while_none_captures(&self) -> bool {
        self.wait_for_all("launch").is_ok()
    }

    /// Waits for the device for a call, which is refused where something captures: none begins meanwhile.
    ///
    /// # Errors
    /// [`engine::Error::DeviceCaptures`]; the driver's.
    pub(super) fn wait_for_all(&self, call: &'static str) -> Result<(), Error> {
        let _told = tell_later();
        let _none_begins = self.begins_captures.lock();
        match !self.captures() && self.engine.wait_for_device()? {
            true => Ok(()),
            false => Err(engine::Error::DeviceCaptures { call }.into()),
        }
    }

    /// Notes a launch that was made behind all that [`HostCalls::follow_lent`](regraph::engine::HostCalls::follow_lent) was asked for.
    pub(super) fn mark_launch(&self, key: PoolKey, pool: PoolId, stream: StreamHandle) {
        let mut pools = self.pools();
        let Some(private) = pools.private.get_mut(&key) else { return };
        match self.event_behind(private.launches.last.take(), stream) {
            Ok(last) => {
                private.launches.last = Some(last);
                // Where the engine cannot be asked, the next launch comes after the same once more.
                let _ = self.engine.host().forget_borrowers(pool);
            }
            Err(_) => private.launches.miss(),
        }
    }

    /// Notes a launch that is no more known of than that it was made.
    pub(super) fn miss_launch(&self, key: PoolKey) {
        if let Some(private) = self.pools().private.get_mut(&key) {
            private.launches.miss();
        }
    }

    /// Records an event behind a launch: the one of the launch before, where that was on the same stream.
    pub(super) fn event_behind(
        &self,
        last: Option<(u64, EventHandle)>,
        stream: StreamHandle,
    ) -> Result<(u64, EventHandle), Error> {
        let driver = self.engine.driver();
        let number = driver.stream_id(stream)?;
        let event = match last {
            Some((of, event)) if of == number => event,
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
        Ok((number, event))
    }

    /// Lets go of what is known of a pool's launches: it is gone.
    pub(super) fn forget_launches(&self, private: &mut Private) {
        if let Some((_, event)) = private.launches.last.take() {
            let _ = self.engine.driver().destroy_event(event);
        }
    }
}
