//! What hosts other than PyTorch need: frees in a stream's order, memory for hosts that name no stream,
//! and captures that are announced by the stream alone.

use std::sync::OnceLock;

use regraph::driver::{CaptureId, StreamHandle, Transfer};
use regraph::engine::{self, Block, BlockId, Spare};
use regraph::sync::{AtomicU64, Ordering};

use super::device::Device;
use super::lending::Unseen;
use super::{Error, Plugin, PoolKey};

/// `CU_STREAM_LEGACY`: every blocking stream waits for its work, and it for theirs.
const LEGACY: StreamHandle = StreamHandle::from_bits(0);
/// `CU_STREAM_PER_THREAD`: a different stream in every thread, and a blocking one.
const PER_THREAD: StreamHandle = StreamHandle::from_bits(2);

/// A stream that is the same in every thread, and waits for what a stream holds: the legacy one waits for the calling
/// thread's default stream.
#[inline]
pub(super) fn in_every_thread(stream: StreamHandle) -> StreamHandle {
    if stream == PER_THREAD {
        LEGACY
    } else {
        stream
    }
}

/// The first half of the names of pools that [`Plugin::name_pool`] gives. PyTorch's names count up from zero
/// in either half.
const NAMED_HERE: u64 = 1 << 63;

/// A lock of the host's that a call comes with, such as that of Python's interpreter. What the engine has at
/// hand it gives and takes with the lock held. Whatever may wait, for work or for another thread, it does
/// without: work may run functions of the host's that need the lock.
pub trait HostLock {
    /// Runs a call without the lock.
    fn unlocked<R: Send>(self, call: impl FnOnce() -> R + Send) -> R;
}

/// No lock.
impl HostLock for () {
    fn unlocked<R: Send>(self, call: impl FnOnce() -> R + Send) -> R {
        call()
    }
}

impl<D: Transfer> Plugin<D> {
    /// As [`Plugin::allocate`], with a lock of the host's held.
    ///
    /// # Errors
    /// Those of [`Plugin::allocate`].
    #[inline]
    pub fn allocate_on(
        &self,
        held: impl HostLock,
        bytes: u64,
        device: u32,
        stream: StreamHandle,
    ) -> Result<u64, Error> {
        let there = self.devices.get(device as usize).and_then(OnceLock::get);
        if let Some(address) = there.and_then(|there| there.allocate_at_once(bytes, stream)) {
            return Ok(address);
        }
        held.unlocked(|| self.allocate(bytes, device, stream))
    }

    /// What a request gets that was refused on its stream: memory that no work uses, where that is the calling thread's
    /// default stream and does not capture.
    #[cold]
    pub(super) fn allocate_without_order(
        &self,
        bytes: u64,
        device: u32,
        refused: Error,
    ) -> Result<u64, Error> {
        match &refused {
            Error::Engine(engine::Error::Stream {
                why: engine::StreamRefusal::PerThread, ..
            }) if self.device(device)?.engine.driver().is_capturing(PER_THREAD) == Ok(false) => {
                self.allocate_unordered(bytes, device)
            }
            _ => Err(refused),
        }
    }

    /// Hands out memory that no work uses any more, whichever stream uses it next, for hosts that name no
    /// stream where they ask for memory and none where they free it. After its free it is handed out again
    /// when all has completed that blocking streams were given before; what other streams do with it is
    /// told by [`Plugin::record_stream`]. 0 for no bytes.
    ///
    /// It is asked for on a stream of its own, on which nothing ever runs, so that no order of streams
    /// makes memory fit; and the legacy stream counts as one of its users.
    ///
    /// # Errors
    /// Those of [`Plugin::allocate`].
    pub fn allocate_unordered(&self, bytes: u64, device: u32) -> Result<u64, Error> {
        if bytes == 0 {
            return Ok(0);
        }
        let device = self.device(device)?;
        let address = device.allocate(bytes, device.idle_stream()?)?;
        match self.record_stream(address, LEGACY) {
            Ok(()) => Ok(address),
            Err(error) => {
                // It was never used.
                let _ = device.free(address);
                Err(error)
            }
        }
    }

    /// Takes memory of any device back, with a lock of the host's held. With a stream that is in its order:
    /// after what that stream holds, beside what the block's own holds.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] where no live block begins there; [`engine::Error::DeviceCaptures`] where the stream cannot
    /// be asked about, as a default stream while another context of the device is current, and the device cannot be
    /// waited for: the block is live still.
    #[inline]
    pub fn free_on(
        &self,
        held: impl HostLock,
        address: u64,
        stream: Option<StreamHandle>,
    ) -> Result<(), Error> {
        if address == 0 {
            return Ok(());
        }
        let stream = stream.map(in_every_thread);
        let (device, block) = self.take_out(address)?;
        match !self.watch.is_on() && device.engine.host().free_at_once(block, stream) {
            true => Ok(()),
            false => held.unlocked(|| device.free_block((address, block), stream)),
        }
    }

    /// Takes a block out of the table before the engine frees it: another thread may get the address the
    /// moment it is free.
    #[inline]
    fn take_out(&self, address: u64) -> Result<(&Device<D>, BlockId), Error> {
        let found = self.devices().find_map(|it| Some((it, it.blocks.remove(address)?)));
        found.ok_or(Error::UnknownAddress { call: "free", address })
    }

    /// Tells that a stream is about to be destroyed. A capture of it whose end was never told is forgotten. See
    /// [`Engine::retire_stream`](engine::Engine::retire_stream).
    ///
    /// # Errors
    /// [`engine::StreamRefusal::InUse`]: the stream must live on, and the call be made again later. Where the driver
    /// records no event for a device, other devices have forgotten the stream: it must get no more work.
    pub fn retire_stream(&self, stream: StreamHandle) -> Result<(), Error> {
        // An engine that forgets the stream takes its blocks for done with: none does while another one refuses.
        self.engines().try_for_each(|engine| engine.host().may_retire(stream))?;
        for device in self.devices() {
            device.engine.retire_stream(stream)?;
            if let Some(announced) = device.pools().announced.remove(&stream) {
                device.end_route(announced.serial);
            }
        }
        Ok(())
    }

    /// As [`Plugin::retire_stream`], for a stream that may go on.
    ///
    /// # Errors
    /// Those of [`engine::HostCalls::retire_unused`].
    pub fn retire_unused(&self, stream: StreamHandle) -> Result<(), Error> {
        self.engines().try_for_each(|engine| Ok(engine.host().retire_unused(stream)?))
    }

    /// A name for a pool of graphs that no host has given.
    pub fn name_pool(&self) -> PoolKey {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        (NAMED_HERE, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Announces the capture that `stream` has just begun: what is asked for in it belongs to the pool
    /// `key` from now on, which is made if there is none. Counts a user of the pool: the capture's graph,
    /// until [`Plugin::release_pool`]. `alone` is as for [`Plugin::capture_begun`].
    ///
    /// # Errors
    /// [`engine::StreamRefusal::NotCapturing`] where the stream is in no capture; those of
    /// [`Plugin::capture_begun`]. The capture is not announced then.
    pub fn capture_started(
        &self,
        device: u32,
        stream: StreamHandle,
        key: PoolKey,
        alone: bool,
    ) -> Result<CaptureId, Error> {
        let found = self.device(device)?;
        let capture = found.must_capture(stream, "capture_started")?;
        let route = {
            let _none_waits = found.begins_captures.lock();
            let mut pools = found.pools();
            let config = found.graph_config();
            let private = found.use_pool(&mut pools, key, config, Spare::GivenBack)?;
            // Such hosts say nothing of their launches. What this graph will use is lent to no one any more:
            // the capture takes it when that work is over.
            private.launches.lose_sight(key, Unseen::Unannounced);
            found.routes.push_capture(key, private.pool, capture)
        };
        match self.capture_begun(device, stream, route, alone) {
            // The route was begun here, and no other thread knows it.
            Ok(_) => Ok(capture),
            Err(error) => {
                self.begin_failed(device, route)?;
                Err(error)
            }
        }
    }

    /// The host has ended a capture that it announced by [`Plugin::capture_started`], after
    /// [`Plugin::capture_ending`], and has its graph. Waits for the checker's verdict.
    ///
    /// # Errors
    /// [`engine::Error::Refused`]: the graph must never run, and nothing of the capture is left here; the
    /// pool has lost the user.
    pub fn capture_finished(
        &self,
        device: u32,
        stream: StreamHandle,
        key: PoolKey,
    ) -> Result<(), Error> {
        let ended = self.end_pool(device, key).and_then(|()| self.capture_ended(device, stream));
        if ended.is_err() {
            self.release_pool(device, key)?;
        }
        ended
    }

    /// The host has ended a capture that it announced, and will add to its graph by another capture. It is not judged,
    /// since its end says nothing of the graph; its memory stays that graph's, and the pool keeps the user.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn capture_paused(
        &self,
        device: u32,
        stream: StreamHandle,
        key: PoolKey,
        capture: CaptureId,
    ) -> Result<(), Error> {
        self.capture_dropped(device, stream, capture)?;
        let device = self.device(device)?;
        let mut pools = device.pools();
        let Some(private) = pools.private.get_mut(&key) else { return Ok(()) };
        device.end_over(key, private.pool, &mut private.graphs, None)
    }
}

impl<D: Transfer> Device<D> {
    /// Frees a block that was taken out of the table; one that cannot be freed now is put back there.
    fn free_block(
        &self,
        (address, block): (u64, BlockId),
        stream: Option<StreamHandle>,
    ) -> Result<(), Error> {
        let recorded = stream.map_or(Ok(()), |stream| self.engine.record_stream(block, stream));
        let recorded = match recorded {
            // What cannot be named is waited for.
            Err(engine::Error::Driver(_)) => self.wait_for_all("free"),
            recorded => recorded.map_err(Error::from),
        };
        recorded.inspect_err(|_| {
            // To the counts it is another one.
            let bytes = self.described(block).map_or(0, |it| it.requested);
            self.blocks.insert(&Block { id: block, address, bytes });
        })?;
        self.free_taken_out(address, block)
    }

    /// A stream on which nothing ever runs.
    pub(super) fn idle_stream(&self) -> Result<StreamHandle, Error> {
        if let Some(&stream) = self.idle.get() {
            return Ok(stream);
        }
        let made = self.engine.driver().create_stream()?;
        // Another thread may have been faster.
        let stream = *self.idle.get_or_init(|| made);
        if stream != made {
            self.engine.driver().destroy_stream(made)?;
        }
        Ok(stream)
    }
}
