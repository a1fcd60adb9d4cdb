//! Handing out memory.

use smallvec::SmallVec;

use super::block::{Home, LiveBlock, Origin};
use super::config::{Config, Flaw};
use super::explain::View;
use super::pool::UNIT;
use super::report::{Block, OutOfMemory, PoolId};
use super::state::{State, GONE};
use super::Error;
use crate::capture::NodeIndex;
use crate::driver::{CaptureStatus, Driver, DriverError, ErrorKind, StreamHandle};
use crate::heap::{Claim, Heap, Placed};
use crate::journal::Entry;
use crate::policy::Reuse;

const CALL: &str = "allocate";

/// How many waiting ranges are looked at before the heap grows: a bound on what one call costs.
const POLLED: usize = 32;

/// No request is larger, in bytes: sums of a few cannot overflow.
const LARGEST: u64 = 1 << 60;

impl State {
    pub(super) fn allocate<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        pool: PoolId,
        requested: u64,
        stream: StreamHandle,
    ) -> Result<Block, Error> {
        if requested == 0 {
            return Err(Error::ZeroBytes { call: CALL });
        }
        self.pool(pool, CALL)?;
        let claim = self.claim(driver, config, pool, stream)?;
        if requested > LARGEST {
            return Err(self.out_of_memory(driver, config, pool, requested, stream, claim));
        }
        let bytes = requested.next_multiple_of(UNIT);
        let heap = self.pool(pool, CALL)?.heap(bytes);
        let placed = match self.find(driver, config, pool, heap, bytes, claim) {
            Ok(Some(placed)) => placed,
            Ok(None) => {
                return Err(self.out_of_memory(driver, config, pool, requested, stream, claim))
            }
            Err(error) if error.is_out_of_memory() => {
                return Err(self.out_of_memory(driver, config, pool, requested, stream, claim))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(self.hand_out(pool, heap, requested, bytes, stream, claim, placed))
    }

    /// Says who asks: work outside captures, or a stream of a capture, looked at just now.
    fn claim<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        pool: PoolId,
        stream: StreamHandle,
    ) -> Result<Claim, Error> {
        match driver.capture_status(stream, &mut self.terminals) {
            Ok(CaptureStatus::Active { capture, .. }) => {
                let slot = self.enter(driver, config, CALL, capture, pool)?;
                let stream = self.look(driver, slot, stream);
                let share = config.reuse == Reuse::CrossStream;
                Ok(Claim::Capture { capture: slot, stream, share })
            }
            Ok(CaptureStatus::None) => Ok(Claim::Outside),
            Ok(CaptureStatus::Invalidated) => {
                self.abandon_invalidated(driver, config, stream);
                Err(Error::CaptureInvalidated { call: CALL, stream })
            }
            // The legacy stream while some blocking stream captures: it does not capture itself.
            Err(DriverError { kind: ErrorKind::CaptureImplicit, .. }) => Ok(Claim::Outside),
            Err(error) => Err(error.into()),
        }
    }

    /// A place among what is free, or new memory.
    fn find<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        pool: PoolId,
        heap: u32,
        bytes: u64,
        claim: Claim,
    ) -> Result<Option<Placed>, DriverError> {
        let place = |heap: &mut Heap, prove: &mut dyn FnMut(&[NodeIndex]) -> bool| {
            heap.place(bytes, claim, prove)
        };
        if let Some(placed) = self.search(config, claim, heap, place) {
            return Ok(Some(placed));
        }
        if self.poll_deferred(driver, POLLED) {
            if let Some(placed) = self.search(config, claim, heap, place) {
                return Ok(Some(placed));
            }
        }
        let limit = self.room(pool);
        self.search(config, claim, heap, |heap, prove| {
            heap.grow(driver, bytes, claim, prove, limit)
        })
    }

    /// Runs a search on a heap with the one proof: no range that a capture gave back is taken
    /// unless the capture proves its markers for the stream that asks.
    fn search<R>(
        &mut self,
        config: &Config,
        claim: Claim,
        heap: u32,
        run: impl FnOnce(&mut Heap, &mut dyn FnMut(&[NodeIndex]) -> bool) -> R,
    ) -> R {
        let Self { heaps, recordings, .. } = self;
        let searched = heaps[heap as usize].as_mut().expect(GONE);
        let Claim::Capture { capture: slot, stream, .. } = claim else {
            return run(searched, &mut |_| false);
        };
        let recording = recordings[slot.index()].as_ref();
        let capture = &recording.expect("a claim names a capture under way").capture;
        let result = run(searched, &mut |markers| {
            capture.proves(stream, markers) || config.lacks(Flaw::Proof)
        });
        for (token, stream) in searched.take_unproven() {
            self.wait_or_learn(config, slot, token, stream);
        }
        result
    }

    /// How much more the pool may hold, in bytes.
    fn room(&mut self, pool: PoolId) -> u64 {
        let reserved = self.reserved(pool);
        let limit = self.pools[pool.0 as usize].as_ref().and_then(|pool| pool.config.max_bytes);
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(reserved))
    }

    /// What the pool holds, in bytes.
    pub(super) fn reserved(&self, pool: PoolId) -> u64 {
        let Some(Some(pool)) = self.pools.get(pool.0 as usize) else {
            return 0;
        };
        let heap = |heap: u32| self.heaps[heap as usize].as_ref().map_or(0, Heap::reserved);
        heap(pool.small) + heap(pool.large)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one block")]
    fn hand_out(
        &mut self,
        pool: PoolId,
        heap: u32,
        requested: u64,
        bytes: u64,
        stream: StreamHandle,
        claim: Claim,
        placed: Placed,
    ) -> Block {
        let number = self.blocks.number();
        let Placed { range, address, before } = placed;
        let mine = match claim {
            Claim::Capture { capture, stream: index, .. } => {
                let recording = self.recording(capture);
                recording.blocks += 1;
                let since = recording.capture.tick();
                let home = Home { capture: recording.id, slot: capture, stream: index, since };
                self.note(capture, Entry::Allocate { block: number, stream, address, bytes });
                Some(home)
            }
            Claim::Outside => None,
        };
        let standing = Entry::Standing { block: number, address, bytes };
        self.tell(pool, mine.map(|home| home.slot), standing);
        let row = self.pools[pool.0 as usize].as_mut().expect("found before");
        row.count_in(bytes, requested);
        let origin = mine.map_or(Origin::Outside, Origin::Capture);
        let id = self.blocks.insert(LiveBlock {
            number,
            pool,
            heap,
            range,
            requested,
            bytes,
            stream,
            origin,
            before,
            last: None,
            uses: SmallVec::new(),
        });
        Block { id, address, bytes: requested }
    }

    fn out_of_memory<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        pool: PoolId,
        requested: u64,
        stream: StreamHandle,
        claim: Claim,
    ) -> Error {
        let mut takeable = 0;
        let mut waiting = 0;
        for range in self.free_ranges(config, pool, View::Claim(claim)) {
            match range.refusal {
                None => takeable += range.bytes,
                Some(_) => waiting += range.bytes,
            }
        }
        let info = driver.memory_info().ok();
        let reserved = self.reserved(pool);
        let pools = 0..self.pools.len() as u32;
        let engine_reserved = pools.map(|pool| self.reserved(PoolId(pool))).sum();
        let row = self.pools[pool.0 as usize].as_ref().expect("found before");
        Error::OutOfMemory(Box::new(OutOfMemory {
            requested,
            stream,
            pool,
            limit: row.config.max_bytes,
            reserved,
            allocated: row.allocated,
            takeable,
            waiting,
            engine_reserved,
            device_free: info.map(|info| info.free),
            device_total: info.map(|info| info.total),
        }))
    }
}
