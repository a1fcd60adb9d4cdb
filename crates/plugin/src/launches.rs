//! Launches of graphs, which the host makes by itself: each is counted from before the question whether it may be
//! made until it has been.
//!
//! Between that question and the launch another thread could begin to borrow the graph's memory, or put it to
//! sleep. So a pool lends nothing while a launch of it is counted, and a sleep waits until none is, with no lock that a
//! launch needs; those that begin meanwhile wait for it.

use std::thread::{self, ThreadId};

use regraph::driver::{Driver, StreamHandle, Transfer};
use regraph::engine::{self, PoolId};
use regraph::sync::{Condvar, Mutex, Rank};

use super::device::Device;
use super::pools::PoolKey;
use super::{Error, Plugin};

/// The launches under way, of all pools and devices.
#[derive(Debug)]
pub(super) struct UnderWay {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    launches: Vec<Counted>,
    /// How many hold launches back.
    holds: usize,
    /// Whether a call moves regions, or shows what is kept of them.
    moves: bool,
}

/// A launch: whose pool's graph, and by which thread.
type Counted = (PoolKey, ThreadId);

impl UnderWay {
    pub(super) fn new() -> Self {
        Self { now: Mutex::new(Rank::Launches, Now::default()), changed: Condvar::new() }
    }

    /// Counts a launch of the calling thread's, once no launch is held back.
    fn begin(&self, key: PoolKey) -> Counted {
        let counted = (key, thread::current().id());
        let mut now = self.now.lock();
        while now.holds > 0 {
            now = self.changed.wait(now, None);
        }
        now.launches.push(counted);
        counted
    }

    fn end(&self, counted: Counted) {
        let mut now = self.now.lock();
        if let Some(row) = now.launches.iter().position(|it| *it == counted) {
            now.launches.swap_remove(row);
        }
        if now.holds > 0 {
            self.changed.notify_all();
        }
    }

    /// Whether a graph of a pool is being launched.
    pub(super) fn is_launching(&self, key: PoolKey) -> bool {
        self.now.lock().launches.iter().any(|(of, _)| *of == key)
    }

    /// Lets no launch begin as long as what is returned lives, once those under way have ended. `None` where one
    /// has not, and is the calling thread's or is not to be waited for.
    pub(super) fn hold(&self, wait: bool) -> Option<Held<'_>> {
        let this = thread::current().id();
        let mut now = self.now.lock();
        now.holds += 1;
        let held = Held { launches: self };
        while !now.launches.is_empty() {
            if !wait || now.launches.iter().any(|(_, thread)| *thread == this) {
                drop(now);
                return None;
            }
            now = self.changed.wait(now, None);
        }
        Some(held)
    }

    /// Has the calls that move regions, or show what is kept of them, take turns: waits until none is at it, with no
    /// launch held back and no lock. The turn ends where what is returned is dropped. `None` where the call at it may wait
    /// for a launch, and that is the calling thread's or is not to be waited for.
    pub(super) fn turn(&self, wait: bool) -> Option<Turn<'_>> {
        let this = thread::current().id();
        let mut now = self.now.lock();
        while now.moves {
            let own = now.launches.iter().any(|(_, thread)| *thread == this);
            if own || !wait && !now.launches.is_empty() {
                return None;
            }
            now = self.changed.wait(now, None);
        }
        now.moves = true;
        Some(Turn { launches: self })
    }
}

/// No other call moves regions while this lives.
#[derive(Debug)]
#[must_use = "the turn ends at once"]
pub(super) struct Turn<'a> {
    launches: &'a UnderWay,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.launches.now.lock().moves = false;
        self.launches.changed.notify_all();
    }
}

/// No launch begins while this lives.
#[derive(Debug)]
pub(super) struct Held<'a> {
    launches: &'a UnderWay,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.launches.now.lock().holds -= 1;
        self.launches.changed.notify_all();
    }
}

/// A launch of a graph that its host is about to make, or makes: [`Plugin::begin_launch`]. Its end, when the launch
/// has been submitted, is its drop, on any thread.
pub struct Launch<'a, D: Transfer> {
    plugin: &'a Plugin<D>,
    counted: Counted,
    /// Where the pool lends, and what it is there.
    lends: Option<(&'a Device<D>, PoolId)>,
    /// The stream that the graph is launched on.
    stream: Option<StreamHandle>,
}

impl<D: Transfer> Plugin<D> {
    /// The calling thread is about to launch a graph of a pool, and does so before it drops what is returned:
    /// meanwhile no region goes to sleep, and the pool lends nothing. Waits for a region that another thread puts to
    /// sleep just now. `call` is the host's name of a launch.
    ///
    /// Where [`Launch::device`] names one the host calls [`Launch::follow`] before it launches the graph.
    ///
    /// # Errors
    /// [`engine::PoolRefusal::Suspended`] where the pool sleeps on any device: the graph must not be launched.
    pub fn begin_launch(&self, key: PoolKey, call: &'static str) -> Result<Launch<'_, D>, Error> {
        // First: what is found to be awake, and to lend nothing, stays so until it is counted out.
        let counted = self.under_way.begin(key);
        let mut launch = Launch { plugin: self, counted, lends: None, stream: None };
        for device in self.devices() {
            // One that borrows just now holds this lock until it has its block.
            let pools = device.pools();
            let Some(private) = pools.private.get(&key) else { continue };
            device.engine.host().require_awake(private.pool, call)?;
            if private.launches.may_be_behind() {
                launch.lends = Some((device, private.pool));
            }
        }
        Ok(launch)
    }
}

impl<D: Transfer> Launch<'_, D> {
    /// The device on which the graph is launched, if its pool lends.
    pub fn device(&self) -> Option<u32> {
        self.lends.map(|(device, _)| device.number)
    }

    /// The graph is launched on `stream`: the launch comes after all work on memory that the pool has lent. Waits for
    /// the device, with nothing locked, if that work cannot be marked otherwise, as on another thread's stream.
    ///
    /// # Errors
    /// [`engine::PoolRefusal::BlocksLent`] while blocks live there, [`engine::PoolRefusal::LentWork`],
    /// [`engine::StreamRefusal::LaunchWhileCapturing`]: the graph must not be launched.
    pub fn follow(&mut self, stream: StreamHandle) -> Result<(), Error> {
        let Some((device, pool)) = self.lends else { return Ok(()) };
        if !matches!(device.engine.driver().is_capturing(stream), Ok(false)) {
            // As a part of another graph it would run whenever that does.
            let why = engine::StreamRefusal::LaunchWhileCapturing;
            return Err(engine::Error::Stream { call: "launch", stream, why }.into());
        }
        match device.engine.host().follow_lent(pool, stream) {
            Err(engine::Error::Pool { why: engine::PoolRefusal::LentWork { .. }, .. })
                if device.wait_while_none_captures() =>
            {
                device.engine.host().follow_lent(pool, stream)?;
            }
            followed => followed?,
        }
        self.stream = Some(stream);
        Ok(())
    }
}

impl<D: Transfer> Drop for Launch<'_, D> {
    fn drop(&mut self) {
        let (key, _) = self.counted;
        match (self.lends, self.stream) {
            (Some((device, pool)), Some(stream)) => device.mark_launch(key, pool, stream),
            // It was refused, or launched nothing.
            (Some(_), None) => {}
            // It may have begun to lend since: of this launch nothing is known but that it was made.
            (None, _) => self.plugin.devices().for_each(|device| device.miss_launch(key)),
        }
        // Last: what is lent from then on comes after the mark.
        self.plugin.under_way.end(self.counted);
    }
}
