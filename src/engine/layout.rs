//! Serving a capture from a layout.
//!
//! A layout is a wish. Each place is handed out by the heap like any other, if it is free and its
//! markers are proven; a layout that does not fit the capture costs memory, never safety. Block by block: one
//! that is not as foreseen has a place beside the others, and those that follow theirs.
//!
//! Places are in one arena of memory, or among addresses whose memory comes by pages at the capture's end
//! (`planned`), where less memory does for these.

use std::fmt;

use fixedbitset::FixedBitSet;

use super::allocate::Request;
use super::names::PoolId;
use super::planned::can_plan;
use super::pools::Arena;
use super::reclaim::Amount;
use super::state::Locked;
use super::{Engine, Error};
use crate::capture::StreamIndex;
use crate::check::{self, FinishedGraph, Violation};
use crate::driver::{CaptureId, Driver, MemorySupport};
use crate::heap::{CaptureSlot, Freed, LaidSpot, Placed, Requester};
use crate::journal::Journal;
use crate::layout::{Layout, Outline, Place};
use crate::lifetimes::Lifetimes;
use crate::minimum::Minimum;
use crate::policy::{Programmatic, Reuse};

/// How far a capture lies by its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Followed {
    /// Blocks of the layout.
    pub planned: usize,
    /// What the layout takes, in bytes.
    pub planned_bytes: u64,
    /// Blocks that lie where it says.
    pub followed: usize,
    /// The first block that does not; `None` where all do.
    pub fell_back: Option<FellBack>,
}

impl Followed {
    /// Whether the capture asked for what the layout was made for, no more and no less, and got it.
    pub fn is_whole(&self) -> bool {
        self.fell_back.is_none() && self.followed == self.planned
    }
}

impl fmt::Display for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { planned, followed, .. } = self;
        match self.fell_back {
            None => write!(f, "{followed} of {planned} blocks"),
            Some(FellBack { block, why }) => {
                write!(
                    f,
                    "{followed} of {planned} blocks; the first other one is block {block}, {why}"
                )
            }
        }
    }
}

/// A block that does not lie where a layout says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FellBack {
    /// Which one, counted from 0 since the layout was to be followed.
    pub block: usize,
    /// Why.
    pub why: Why,
}

/// Why a block does not lie where a layout says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The capture allocates more blocks than there are places.
    More,
    /// The block is of another size.
    Size {
        /// The place's, in bytes.
        planned: u64,
        /// The block's, in bytes.
        found: u64,
    },
    /// The block is for another stream. Both by the order of streams' first blocks.
    Stream {
        /// The place's.
        planned: u32,
        /// The block's.
        found: u32,
    },
    /// The place is in use, or what used it is not proven to have completed.
    Taken,
    /// There was no memory for the arena, in one place.
    NoMemory,
    /// The pool keeps no memory that blocks could share.
    NoCaching,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::More => write!(f, "which is one more than there were the first time"),
            Self::Size { planned, found } => {
                write!(f, "which takes {found} bytes and took {planned} the first time")
            }
            Self::Stream { planned, found } => {
                write!(f, "which is for stream {found} and was for {planned} the first time")
            }
            Self::Taken => write!(f, "whose place is not proven to be free"),
            Self::NoMemory => write!(f, "since there was no memory for all of it in one place"),
            Self::NoCaching => write!(f, "since memory caching is turned off"),
        }
    }
}

/// So many places before and behind the next one are searched for a request that is not for that one, and
/// one more for each request since that was for none.
const WINDOW: usize = 4;

/// So many places ahead are kept for those who are still to ask for them: a bound on what a block costs
/// that cannot have its own.
const AHEAD: usize = 4_096;

/// A layout that a capture follows.
#[derive(Debug)]
pub(super) struct Following {
    pool: PoolId,
    layout: Layout,
    /// Whether memory comes by pages at the capture's end.
    paged: bool,
    /// Heap and address.
    arena: Option<(u32, u64)>,
    /// The capture's streams that have a part in it, each with its number there.
    streams: Vec<(StreamIndex, u32)>,
    /// Places that a request was for.
    asked: FixedBitSet,
    /// Behind the last of them.
    next: usize,
    /// The latest of them.
    latest: Option<usize>,
    /// Requests since that were for none.
    lost: usize,
    /// Whether the capture asks for less than the layout was made for.
    smaller: bool,
    /// Requests so far.
    blocks: usize,
    followed: usize,
    fell_back: Option<FellBack>,
}

impl Following {
    pub(super) fn new(pool: PoolId, layout: Layout) -> Self {
        Self {
            pool,
            asked: FixedBitSet::with_capacity(layout.places().len()),
            layout,
            paged: false,
            arena: None,
            streams: Vec::new(),
            next: 0,
            latest: None,
            lost: 0,
            smaller: false,
            blocks: 0,
            followed: 0,
            fell_back: None,
        }
    }

    /// Whether the blocks of a pool lie by pages, and get their memory at the capture's end.
    pub(super) fn is_paged(&self, pool: PoolId) -> bool {
        self.paged && self.pool == pool
    }

    /// Notes what became of a request. One without its place is told.
    fn note<T>(&mut self, found: Result<T, Why>) -> Option<T> {
        self.blocks += 1;
        match found {
            Ok(found) => {
                self.followed += 1;
                Some(found)
            }
            Err(why) => {
                let block = self.blocks - 1;
                self.fell_back.get_or_insert(FellBack { block, why });
                None
            }
        }
    }

    pub(super) fn followed(&self) -> Followed {
        Followed {
            planned: self.layout.places().len(),
            planned_bytes: self.layout.bytes(),
            followed: self.followed,
            fell_back: self.fell_back,
        }
    }

    /// The addresses that blocks are still to have while the block of the latest request is expected to be
    /// in use, by their begins.
    fn wanted(&self, why: Why, base: u64) -> Vec<(u64, u64)> {
        let places = self.layout.places();
        let until = match why {
            Why::Taken => self.latest.and_then(|row| places[row].until),
            _ => None,
        };
        let until = until.map_or(places.len(), |until| until as usize);
        let rows = (self.next.saturating_sub(WINDOW + self.lost)..until).take(AHEAD);
        let open = rows.filter(|&row| !self.asked.contains(row));
        let mut wanted: Vec<(u64, u64)> = open
            .map(|row| (base + places[row].offset, base + places[row].offset + places[row].bytes))
            .collect();
        wanted.sort_unstable();
        wanted
    }

    /// The place of a request: the next one, if it is for just this, or one nearby that is; in a smaller
    /// batch else the next one, if it is for more.
    fn place_of(&mut self, bytes: u64, stream: StreamIndex) -> Result<(usize, Place), Why> {
        let places = self.layout.places();
        let next = places.get(self.next);
        let known = self.streams.iter().find(|known| known.0 == stream).map(|known| known.1);
        let is_for = |planned: u32| match known {
            Some(known) => planned == known,
            None => self.streams.iter().all(|known| known.1 != planned),
        };
        let is_it = |row: &usize| {
            let place = places.get(*row).filter(|_| !self.asked.contains(*row));
            place.is_some_and(|place| place.bytes == bytes && is_for(place.stream))
        };
        let near = (0..WINDOW + self.lost)
            .flat_map(|far| [Some(self.next + far), self.next.checked_sub(far)]);
        let found = near.flatten().find(is_it).or_else(|| {
            // A smaller batch asks for less: one that began so, or where requests stay without places.
            let smaller = self.smaller || self.next == 0 || self.lost > 1;
            let holds = |place: &&Place| smaller && place.bytes > bytes && is_for(place.stream);
            next.filter(holds).map(|_| self.next)
        });
        let Some(row) = found else {
            self.lost += 1;
            let place = next.ok_or(Why::More)?;
            if !is_for(place.stream) {
                let found = known.unwrap_or(self.streams.len() as u32);
                return Err(Why::Stream { planned: place.stream, found });
            }
            return Err(Why::Size { planned: place.bytes, found: bytes });
        };
        let place = places[row];
        self.smaller |= place.bytes > bytes;
        if known.is_none() {
            self.streams.push((stream, place.stream));
        }
        self.asked.insert(row);
        self.latest = Some(row);
        self.lost = 0;
        self.next = self.next.max(row + 1);
        Ok((row, place))
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Whether a capture follows a layout whose blocks of a pool have memory at once.
    pub(super) fn is_laid(&self, slot: CaptureSlot, pool: PoolId) -> bool {
        let following = self.state.captures.get(slot).following.as_ref();
        following.is_some_and(|it| it.pool == pool && !it.paged)
    }

    /// A place by the layout that a capture follows; `None` where the block cannot have its place, nor one beside.
    pub(super) fn follow(
        &mut self,
        request: &Request,
        requester: Requester,
    ) -> Option<(u32, Placed)> {
        let Requester::Capture { capture: slot, .. } = requester else { return None };
        let found = self.place_next(request, requester);
        let why = found.as_ref().err().copied();
        let placed = self.state.capture(slot).following.as_mut()?.note(found);
        match why {
            Some(why) => self.place_beside(request, requester, why),
            None => placed,
        }
    }

    /// Where the layout that a capture follows has a block whose memory comes at the end; `None` where it
    /// follows none with such blocks.
    pub(super) fn foresee_place(
        &mut self,
        slot: CaptureSlot,
        request: &Request,
        stream: StreamIndex,
    ) -> Option<Result<LaidSpot, Why>> {
        let following = self.state.capture(slot).following.as_mut();
        let following = following.filter(|it| it.is_paged(request.pool))?;
        let found = following.place_of(request.bytes, stream);
        let pages = following.layout.pages()?;
        let spot = |(row, _): (usize, Place)| LaidSpot {
            offset: pages.offsets()[row],
            span: pages.span(),
        };
        Some(found.map(spot))
    }

    /// Notes whether such a block has its place.
    pub(super) fn note_place(&mut self, slot: CaptureSlot, found: Result<(), Why>) {
        if let Some(following) = &mut self.state.capture(slot).following {
            following.note(found);
        }
    }

    /// Whether a layout's blocks are to have their memory by pages, at the capture's end: where the host asks
    /// for memory then, less of it is new than the arena takes, and the mappings are within its bounds.
    fn prefers_pages(&self, slot: CaptureSlot, pool: PoolId, layout: &Layout) -> bool {
        let Some(row) = self.state.pools.get(pool) else { return false };
        let possible = can_plan(self.driver, self.config)
            && row.config().is_mapped()
            && self.config.settings.reuse == Reuse::CrossStream;
        let Some(pages) = layout.pages().filter(|_| possible) else { return false };
        let Some(options) = self.asked_plan(slot, pool) else { return false };
        // How long the capture will take is not known yet.
        let fits = options.max_share_percent.is_none()
            && options.max_mappings.is_none_or(|most| pages.mappings() <= most);
        let held = row.planned_heap().map(|heap| heap.sharable().held).unwrap_or_default();
        let shared: u64 = held.iter().map(|held| held.bytes).sum();
        let there = row.arena().is_some_and(|arena| arena.bytes >= layout.bytes());
        let arena = if there { 0 } else { layout.bytes() };
        fits && pages.bytes().saturating_sub(shared) < arena
    }

    /// A place that no block of the layout wants while this one is expected to be in use.
    fn place_beside(
        &mut self,
        request: &Request,
        requester: Requester,
        why: Why,
    ) -> Option<(u32, Placed)> {
        let Requester::Capture { capture: slot, .. } = requester else { return None };
        let following = self.state.capture(slot).following.as_ref()?;
        let (heap, base) = following.arena?;
        let wanted = following.wanted(why, base);
        let all = [(base, base + following.layout.bytes())];
        let placed = self.with_proof(requester, |pools, proof| {
            let heap = pools.heap_mut(heap);
            let mut place = |busy: &[_]| heap.place_beside(busy, request.bytes, requester, proof);
            place(&wanted).or_else(|| place(&all))
        });
        let homes = self.state.pools.get(request.pool)?.homes(request.bytes, requester);
        if placed.is_none() && homes.first == heap {
            // What the driver refuses, the pool may still have.
            return self.grow(request, homes.grows, requester, true).ok().flatten();
        }
        placed.map(|placed| (heap, placed))
    }

    fn place_next(
        &mut self,
        request: &Request,
        requester: Requester,
    ) -> Result<(u32, Placed), Why> {
        let Requester::Capture { capture: slot, stream, .. } = requester else {
            return Err(Why::Taken);
        };
        let following = self.state.capture(slot).following.as_mut().ok_or(Why::More)?;
        let (_, Place { offset, .. }) = following.place_of(request.bytes, stream)?;
        let (arena, all) = (following.arena, following.layout.bytes());
        let (heap, base) = match arena {
            Some(arena) => arena,
            None => {
                let arena = self.arena(request, requester, all)?;
                if let Some(following) = &mut self.state.capture(slot).following {
                    following.arena = Some(arena);
                }
                arena
            }
        };
        let placed = self.with_proof(requester, |pools, proof| {
            pools.heap_mut(heap).place_at(base + offset, request.bytes, requester, proof)
        });
        placed.map(|placed| (heap, placed)).ok_or(Why::Taken)
    }

    /// Where a layout goes in the pool: one place that is all free; else where an earlier capture's layout
    /// lies, if that is as large; else new memory. What the pool has in vain goes back to the driver before.
    fn arena(
        &mut self,
        request: &Request,
        requester: Requester,
        bytes: u64,
    ) -> Result<(u32, u64), Why> {
        let Requester::Capture { capture: slot, stream, .. } = requester else {
            return Err(Why::Taken);
        };
        if !self.config.settings.caching {
            return Err(Why::NoCaching);
        }
        let pool = request.pool;
        self.free_completed(Some(pool));
        self.give_back(Amount { pool: Some(pool), most: u64::MAX, needs: None });
        let row = self.state.pools.get(pool).ok_or(Why::NoMemory)?;
        let (homes, earlier) = (row.homes(bytes, requester), row.arena());
        let found = match self.place(requester, homes, bytes) {
            None => {
                let holds = |arena: &Arena| {
                    let heap = self.state.pools.heap(arena.heap);
                    arena.bytes >= bytes && heap.holds(arena.address, bytes)
                };
                if let Some(Arena { heap, address, .. }) = earlier.filter(holds) {
                    return Ok((heap, address));
                }
                let request = Request { requested: bytes, bytes, frames: None, ..request.clone() };
                self.find(&request, homes, requester)
            }
            placed => Ok(placed),
        };
        let Ok(Some((heap, placed))) = found else {
            return Err(Why::NoMemory);
        };
        self.state.count_changes(heap);
        let Placed { range, address, users, .. } = placed;
        // No block has lain there.
        let number = self.state.blocks.number();
        let freed = Freed { capture: slot, owner: stream, users };
        self.state.pools.heap_mut(heap).free_pending(range, freed, None, number);
        if let Some(pool) = self.state.pools.get_mut(pool) {
            pool.set_arena(Arena { heap, address, bytes });
        }
        Ok((heap, address))
    }
}

impl<D: Driver> Engine<D> {
    /// A layout for what a capture under way has allocated so far in its first pool, but for fixed blocks: for a second
    /// capture of the same work ([`Engine::follow_layout`]), when this one has been abandoned. Needs
    /// no memory of the device, and does not change the capture.
    ///
    /// May take some seconds where there are many blocks; the engine is not locked meanwhile. With
    /// [`Config::check`](super::Config::check) nothing is searched for where the capture's edges contradict the order of
    /// its blocks that a layout would be made from, as where a stream was set back behind the allocation of a block that it
    /// uses: the capture would be refused at its end.
    ///
    /// # Errors
    /// [`Error::NoJournal`], [`Error::Unknown`]; [`Error::Refused`] in that case. The capture stays under way.
    pub fn layout_of(&self, capture: CaptureId) -> Result<Layout, Error> {
        const CALL: &str = "layout_of";
        let unread = {
            let mut state = self.lock()?;
            let slot = state.slot_of(capture, CALL)?;
            self.with(&mut state).last_looks(slot);
            state.outline_of(slot).ok_or(Error::NoJournal { call: CALL, capture })?
        };
        let outline = unread.read(&self.config.settings);
        self.compare(&outline, unread.journal())?;
        let unit = match self.driver.memory_support() {
            MemorySupport::Mapped { granularity } => Some(granularity),
            MemorySupport::Allocated => None,
        };
        Ok(outline.layout(unit, self.config.settings.plan_search))
    }

    /// Refuses a capture if blocks of it that lay over one another are unordered by its edges, and a layout may put them
    /// over one another again. Where programmatic edges alone are the reason, a layout keeps the blocks apart, and a
    /// second capture is accepted.
    fn compare(&self, outline: &Outline, journal: &Journal) -> Result<(), Error> {
        if !self.config.settings.check {
            return Ok(());
        }
        // Nothing is asked about its nodes, without the lock: the host may be ending the capture.
        let graph = FinishedGraph::remembered(journal);
        let judged = check::judge(journal, Programmatic::Trust, &graph, self.config.foreign_nodes);
        match judged {
            Err(violation @ Violation::NotOrdered { earlier, later, .. })
                if outline.passes_on(earlier.block, later.block) =>
            {
                Err(Error::Refused(Box::new(violation)))
            }
            _ => Ok(()),
        }
    }

    /// The least memory that the blocks of a capture under way need so far, in bytes, in any placement
    /// that adds no edges to the graph: as [`CaptureReport::minimum`](super::CaptureReport::minimum)
    /// when it has ended. Takes some milliseconds, or about a second for 100,000 blocks; the engine is
    /// not locked meanwhile.
    ///
    /// # Errors
    /// [`Error::NoJournal`], [`Error::Unknown`].
    pub fn minimum_of(&self, capture: CaptureId) -> Result<u64, Error> {
        let no_journal = Error::NoJournal { call: "minimum_of", capture };
        let journal = self.journal(capture)?.ok_or(no_journal)?;
        let lifetimes = Lifetimes::read(&journal, self.config.settings.programmatic);
        Ok(Minimum::of(&lifetimes).bytes)
    }

    /// Has what a capture under way allocates in its first pool from now on lie where a layout says.
    ///
    /// At the first such allocation the layout gets its addresses, as one place of the pool that is free, or
    /// where an earlier capture's lies, or in new memory, after the pool's memory that nothing uses went
    /// back to the driver. From then on the n-th allocation gets the n-th place, as long as each asks for
    /// the same bytes on the same stream (by the order of streams' first blocks) and the place is free and proven for it like any
    /// other. A request for other bytes or another stream gets a place nearby in the order that is for just
    /// this; where the first request was for fewer bytes than its place has, or three requests in a row found
    /// none, else the n-th if that has more bytes. A block that cannot have its place gets one that no
    /// block of the layout is to have while it is expected to be in use; else new memory, or where it
    /// would have been without a layout. The capture's end tells
    /// ([`CaptureReport::layout`](super::CaptureReport::layout)).
    ///
    /// Where the capture is to get its memory at its end (`plan:exact`, [`Engine::plan_capture`]) and needs less
    /// of it that is new than the layout takes in one place, its blocks get addresses that keep the layout's
    /// offsets in pages ([`Layout::pages`]), and memory at the end. Where it needs no less they have memory at once.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn follow_layout(&self, capture: CaptureId, layout: Layout) -> Result<(), Error> {
        self.change(|locked| {
            let slot = locked.state.slot_of(capture, "follow_layout")?;
            let pool = locked.state.capture(slot).pools.first().copied();
            let Some(pool) = pool else { return Ok(()) };
            // Without a record of all that was allocated nothing can be planned.
            let paged = locked.prefers_pages(slot, pool, &layout) && locked.begin_journal(slot);
            if paged {
                // Else it would be held beside what the plan takes.
                locked.free_completed(Some(pool));
                locked.give_back(Amount { pool: Some(pool), most: u64::MAX, needs: None });
            }
            let following = Following { paged, ..Following::new(pool, layout) };
            locked.state.capture(slot).following = Some(Box::new(following));
            Ok(())
        })
    }
}
