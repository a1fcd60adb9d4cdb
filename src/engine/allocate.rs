//! Handing out memory.

use std::sync::Arc;

use smallvec::SmallVec;

use super::block::{Home, LiveBlock, Origin};
use super::config::{Config, Flaw};
use super::explain::View;
use super::history::{Action, Frames};
use super::names::PoolId;
use super::oom::{Attempt, Need, Purpose};
use super::planned::Found;
use super::pools::{is_small, Homes};
use super::report::Block;
use super::state::State;
use super::Error;
use crate::capture::NodeIndex;
use crate::driver::{CaptureStatus, Driver, DriverError, ErrorKind, StreamHandle};
use crate::heap::{Bounds, Claim, Heap, Placed, Wanted};
use crate::journal::Entry;
use crate::policy::Reuse;

const CALL: &str = "allocate";

/// How many lanes and waiting ranges are looked at before the heap grows: a bound on what one call
/// costs.
pub(super) const POLLED: usize = 32;

/// No request is larger, in bytes: sums of a few cannot overflow.
pub(super) const LARGEST: u64 = 1 << 60;

/// A request for memory.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) pool: PoolId,
    pub(super) stream: StreamHandle,
    /// What was asked for, in bytes.
    pub(super) requested: u64,
    /// What the block is to occupy, in bytes.
    pub(super) bytes: u64,
    /// Whether it is to have memory of its own for good.
    pub(super) fixed: bool,
    pub(super) frames: Option<Arc<Frames>>,
}

impl State {
    pub(super) fn allocate<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        request: &Request,
    ) -> Result<Block, Error> {
        let &Request { pool, requested, bytes, .. } = request;
        let stream = request.stream;
        self.must_be_awake(pool, CALL)?;
        let claim = self.claim(driver, config, pool, stream)?;
        if requested > LARGEST {
            return Err(self.out_of_memory(driver, config, request, claim));
        }
        let homes = self.pool(pool, CALL)?.homes(bytes, claim);
        self.touch(homes.first);
        homes.second.into_iter().for_each(|heap| self.touch(heap));
        let found = match self.find_planned(driver, config, request, claim) {
            Err(error) => Err(error),
            Ok(Found::At(heap, placed)) => Ok(Some((heap, placed))),
            Ok(Found::Never) => Ok(None),
            Ok(Found::Unplanned) => match self.follow(driver, config, request, claim) {
                Some(place) => Ok(Some(place)),
                None => self.find(driver, config, &request, homes, claim),
            },
        };
        match found {
            Ok(Some((heap, placed))) => Ok(self.hand_out(config, request, heap, claim, placed)),
            Err(error) if !error.is_out_of_memory() => Err(error.into()),
            Ok(None) | Err(_) => Err(self.out_of_memory(driver, config, request, claim)),
        }
    }

    fn out_of_memory<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        &Request { pool, stream, requested, .. }: &Request,
        claim: Claim,
    ) -> Error {
        let waits = matches!(claim, Claim::Outside { .. });
        let need = Need { bytes: requested, pool, waits };
        let asks = Some((stream, View::Claim(claim)));
        Error::OutOfMemory(self.report_oom(driver, config, Purpose::Block, need, asks))
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
                self.claim_stream(stream);
                let slot = self.enter(driver, config, CALL, capture, pool)?;
                let index = self.look(driver, slot, stream);
                self.take_over(driver, config, slot);
                if self.slot(capture).is_none() {
                    return Err(Error::CaptureInvalidated { call: CALL, stream });
                }
                let share = config.settings.reuse == Reuse::CrossStream;
                Ok(Claim::Capture { capture: slot, stream: index, share })
            }
            Ok(CaptureStatus::None) => Ok(self.outside(stream)),
            Ok(CaptureStatus::Invalidated) => {
                self.abandon_invalidated(driver, config, stream);
                Err(Error::CaptureInvalidated { call: CALL, stream })
            }
            // The legacy stream while some blocking stream captures: it does not capture itself.
            Err(DriverError { kind: ErrorKind::CaptureImplicit, .. }) => Ok(self.outside(stream)),
            Err(error) => Err(error.into()),
        }
    }

    /// The claim of a stream that does not capture.
    fn outside(&mut self, stream: StreamHandle) -> Claim {
        Claim::Outside { lane: Some(self.claim_stream(stream)) }
    }

    /// A place among what is free, or among what has become free, or in new memory.
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
        let waits = matches!(claim, Claim::Outside { .. });
        let need = Need { bytes, pool, waits };
        self.oom_ladder(driver, config, need, |state, attempt| match attempt {
            Attempt::Grow => state.grow(driver, config, request, homes.grows, claim),
            Attempt::Place => Ok(state.place(driver, config, claim, homes, bytes)),
        })
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
        let limit = self.room(pool);
        let bounds = Bounds { limit, step: self.step(config, pool, claim) };
        let wanted = Wanted { bytes, requested };
        let grown = self.search(config, claim, heap, |heap, prove| {
            heap.grow(driver, wanted, claim, prove, bounds)
        })?;
        Ok(grown.map(|placed| (heap, placed)))
    }

    /// Runs a search on a heap with the one proof: no range that a capture gave back is taken
    /// unless the capture proves its markers for the stream that asks.
    pub(super) fn search<R>(
        &mut self,
        config: &Config,
        claim: Claim,
        heap: u32,
        run: impl FnOnce(&mut Heap, &mut dyn FnMut(&[NodeIndex]) -> bool) -> R,
    ) -> R {
        let Self { pools, recordings, .. } = self;
        let searched = pools.heap_mut(heap);
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

    fn hand_out(
        &mut self,
        config: &Config,
        request: &Request,
        heap: u32,
        claim: Claim,
        placed: Placed,
    ) -> Block {
        let &Request { pool, stream, requested, ref frames, .. } = request;
        // Before the block: the history shows memory before what lies in it.
        self.note_changes(heap);
        let number = self.blocks.number();
        let Placed { range, address, bytes, before } = placed;
        let mine = match claim {
            Claim::Capture { capture, stream: index, .. } => {
                let recording = self.recording(capture);
                recording.blocks += 1;
                let since = recording.capture.tick();
                let home = Home { capture: recording.id, slot: capture, stream: index, since };
                self.note(capture, Entry::Allocate { block: number, stream, address, bytes });
                Some(home)
            }
            Claim::Outside { .. } => None,
        };
        let standing = Entry::Standing { block: number, address, bytes };
        self.tell(pool, mine.map(|home| home.slot), standing);
        let leased = mine.is_none() && config.settings.caching;
        let row = self.pools.get_mut(pool).expect("found before");
        row.add_block();
        if !leased {
            row.count_in(heap, bytes, requested);
        }
        let origin = mine.map_or(Origin::Outside, Origin::Capture);
        let mut id = self.blocks.insert(LiveBlock {
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
            gone: None,
            leased,
            frames: frames.clone().filter(|_| !leased),
        });
        if leased {
            let fronts = Arc::clone(&self.fronts);
            let mut front = fronts.of(stream);
            fronts.note_used(front.number());
            let place = (address, bytes, requested);
            id = front.enroll(id.slot, (pool, stream), place, frames.clone());
            self.unsettled |= !front.adjust_grants(&mut fronts.ledger());
        }
        let place = (address, requested);
        self.remember_from(Action::Allocate, place, Some(stream), pool, frames.clone());
        Block { id, address, bytes: requested }
    }
}
