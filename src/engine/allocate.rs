//! Handing out memory.

use smallvec::SmallVec;

use super::block::{Home, LiveBlock, Origin};
use super::config::{Config, Flaw};
use super::pool::UNIT;
use super::report::{Block, OutOfMemory, PoolId};
use super::state::{State, GONE};
use super::Error;
use crate::capture::NodeIndex;
use crate::driver::{CaptureStatus, Driver, DriverError, ErrorKind, StreamHandle};
use crate::heap::{CaptureSlot, Claim, Heap, Placed};
use crate::journal::Entry;
use crate::policy::Reuse;

const CALL: &str = "allocate";

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
                let slot = self.enter(config, capture, pool);
                let stream = self.look(driver, config, slot, stream);
                let share = config.reuse == Reuse::CrossStream;
                Ok(Claim::Capture { capture: slot, stream, share })
            }
            Ok(CaptureStatus::None) => Ok(Claim::Outside),
            Ok(CaptureStatus::Invalidated) => {
                self.abandon_invalidated(driver, stream);
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
        if let Some(placed) =
            self.search(config, claim, heap, |heap, prove| heap.place(bytes, claim, prove))
        {
            return Ok(Some(placed));
        }
        if !self.deferred.is_empty() {
            self.poll_deferred(driver);
            if let Some(placed) =
                self.search(config, claim, heap, |heap, prove| heap.place(bytes, claim, prove))
            {
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
        let heap = heaps[heap as usize].as_mut().expect(GONE);
        match claim {
            Claim::Capture { capture, stream, .. } => {
                let recording = recordings[capture.index()].as_ref();
                let capture = &recording.expect("a claim names a capture under way").capture;
                run(heap, &mut |markers| {
                    capture.proves(stream, markers) || config.lacks(Flaw::Proof)
                })
            }
            Claim::Outside => run(heap, &mut |_| false),
        }
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
        self.tell_others(pool, mine.map(|home| home.slot), standing);
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

    /// Writes a fact into the journal of every capture that uses the pool, but for one.
    pub(super) fn tell_others(&mut self, pool: PoolId, but: Option<CaptureSlot>, entry: Entry<'_>) {
        let row = self.pools[pool.0 as usize].as_ref().expect("found before");
        if row.recordings == usize::from(but.is_some()) {
            return;
        }
        for (row, recording) in self.recordings.iter_mut().enumerate() {
            let Some(recording) = recording else { continue };
            if but != Some(CaptureSlot::new(row)) && recording.pools.contains(&pool) {
                if let Some(journal) = &mut recording.journal {
                    journal.push(entry);
                }
            }
        }
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
        for range in self.free_ranges(config, pool, claim) {
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
