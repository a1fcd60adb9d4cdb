//! Serving a capture from a layout, and learning layouts from runs outside captures and from earlier captures
//! (design/plans.md, "Layouts: capturing twice" and "Learning").
//!
//! A layout is a wish: the heap hands each place out like any other. One that fits badly costs memory, never safety.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;
use thiserror::Error as ThisError;

use super::allocate::{Request, UNIT};
use super::heard;
use super::history::Asked;
use super::names::PoolId;
use super::oom::Work;
use super::pools::PoolRow;
use super::{Engine, Error, Level, Locked, Plans, State};
use crate::check::{self, FinishedGraph, Violation};
use crate::driver::{CaptureId, Driver, StreamHandle};
use crate::heap::{unit, CaptureSlot, Placed, Requester};
use crate::journal::{Entry, Journal};
use crate::layout::{Demand, Heard, Layout, Outline, Pattern, Place, Requests};
use crate::lifetimes::Lifetimes;
use crate::minimum::Minimum;
use crate::policy::{PlanChoice, Programmatic, Reuse};
use crate::settings::Settings;
use crate::size::Size;

/// How far a capture's blocks lie where its layout says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Followed {
    /// Blocks of the layout.
    pub planned: usize,
    /// What the layout takes, in bytes.
    pub planned_bytes: u64,
    /// Blocks that lie where the layout says.
    pub followed: usize,
    /// The first block that does not lie where the layout says; `None` if there is none.
    pub fell_back: Option<FellBack>,
}

impl Followed {
    /// Whether the capture asked for what the layout was made for, no more and no less except workspaces and seeds
    /// of libraries, and got it.
    pub fn is_whole(&self) -> bool {
        self.fell_back.is_none() && self.followed == self.planned
    }
}

impl fmt::Display for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} blocks", self.followed, self.planned)?;
        let Some(FellBack { block, why }) = self.fell_back else { return Ok(()) };
        write!(f, "; the first other one is block {block}, {why}")
    }
}

/// A block that does not lie where a layout says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FellBack {
    /// The block's number, counted from 0 since the layout was to be followed, without workspaces and seeds of libraries.
    pub block: usize,
    /// Why.
    pub why: Why,
}

/// Why a block does not lie where a layout says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Why {
    /// The capture allocates more blocks than there are places.
    #[error("which is one more than there were the first time")]
    More,
    /// The block is of another size.
    #[error("which takes {found} bytes and took {planned} the first time")]
    Size {
        /// The place's, in bytes.
        planned: u64,
        /// The block's, in bytes.
        found: u64,
    },
    /// The block is for another stream. Both streams are numbers in the order of streams' first blocks.
    #[error("which is for stream {found} and was for {planned} the first time")]
    Stream {
        /// The place's.
        planned: u32,
        /// The block's.
        found: u32,
    },
    /// The place is in use, or what used it is not proven to have completed.
    #[error("whose place is not proven to be free")]
    Taken,
    /// There was no memory for the layout's arena, which is one range of addresses.
    #[error("since there was no memory for all of it in one place")]
    NoMemory,
    /// The layout would need as much new memory as blocks that are placed as they are asked for, or more.
    #[error("since the layout saves no memory in this pool")]
    NoLess,
    /// The pool keeps no memory that blocks could share.
    #[error("since memory caching is turned off")]
    NoCaching,
}

/// So many places around the next one are searched for a request, and one more for each since that was for none.
const WINDOW: usize = 4;

/// So many places are searched for a request at most, and kept for their requests: a bound on what a block costs that
/// cannot have its own.
const AHEAD: usize = 4_096;

/// A layout that the host has not asked for is given up unless the first requests, so many, have their places.
const FIRST_FORESEEN: usize = 2;
/// It is given up after more requests than so many without their place, and one more for each [`OF_REQUESTS`].
const GUESSED_WRONG: usize = 2;
/// Of so many requests one more may be without its place before.
const OF_REQUESTS: usize = 16;

/// So many first requests tell a capture's beginning from one that it has in common with other work by chance.
const BEGINNING: usize = 3;

/// An arena gets its memory in so many pieces, as places need it.
const PIECES: u64 = 8;
/// So many first blocks with their places show that it is the same work: before, each gets what it takes.
const SHOWN: usize = 4;

/// Addresses of a pool that a capture's layout was laid on: free then, and perhaps not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arena {
    heap: u32,
    address: u64,
    /// How many.
    bytes: u64,
}

/// How a capture's blocks lie by a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// In one place, with memory at once.
    #[default]
    Arena,
    /// By pages, with memory at the capture's end.
    Pages,
    /// Not at all: it has no place in its pool, or would save nothing there.
    Nowhere,
}

/// A layout that a capture follows in its first pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Following {
    layout: Layout,
    /// Whether the host has asked for it, or for what it was learned from.
    is_asked_for: bool,
    way: Way,
    /// Where that place is, from the first block there on.
    arena: Option<Arena>,
    /// In blocks, but for workspaces, that found no place in the arena nor in free memory beside it, and in blocks from
    /// before that the capture has freed beside it, so far, in bytes.
    beyond: u64,
    /// Sizes of workspaces that libraries may still ask for in the capture, in bytes.
    workspaces: Vec<u64>,
    /// The capture's streams that have a part in it, each with its number there.
    streams: Vec<(StreamHandle, u32)>,
    /// Places that a request was for.
    asked: FixedBitSet,
    /// Behind the last of them.
    next: usize,
    /// Requests since that were for none.
    lost: usize,
    /// Whether the capture asks for less than the layout was made for.
    smaller: bool,
    /// Requests so far.
    blocks: usize,
    /// How many of them have the layout's places.
    followed: usize,
    /// The first of the others.
    fell_back: Option<FellBack>,
}

impl Following {
    pub(super) fn new(layout: Layout, is_asked_for: bool) -> Self {
        let asked = FixedBitSet::with_capacity(layout.places().len());
        Self { layout, is_asked_for, asked, ..Self::default() }
    }

    /// What a capture follows that was learned, after so many requests; `None` where its blocks take no less so.
    fn learned(lesson: &Lesson, requests: usize) -> Option<Box<Self>> {
        let workspaces = match &lesson.from {
            LearnedFrom::Heard(_, workspaces) => workspaces.clone(),
            LearnedFrom::Marked(_) | LearnedFrom::Captured(_) => Vec::new(),
        };
        let mut following =
            Self { workspaces, ..Self::new(lesson.made()?.clone(), lesson.from.is_asked_for()) };
        // What it has asked for before has its places elsewhere.
        following.next = requests;
        following.asked.insert_range(..requests);
        Some(Box::new(following))
    }

    /// Whether the capture seems to be another one than that the layout is for.
    fn is_given_up(&self) -> bool {
        let elsewhere = self.blocks - self.followed;
        // What it takes less than blocks that are placed as they come.
        let saved = self.layout.as_asked().saturating_sub(self.layout.bytes());
        let is_vain = self.way == Way::Nowhere || self.beyond > saved;
        let is_wrong = self.followed < self.blocks.min(FIRST_FORESEEN)
            || elsewhere > GUESSED_WRONG + self.blocks / OF_REQUESTS;
        is_vain || is_wrong && !self.is_asked_for
    }

    /// Which workspace a block of such a size may be, while all other blocks have had their places.
    fn workspace(&self, bytes: u64) -> Option<usize> {
        let is_as_foreseen = self.followed == self.blocks;
        self.workspaces.iter().position(|&it| it == bytes).filter(|_| is_as_foreseen)
    }

    /// Whether a block for which the layout has no place is taken for a library's workspace. It is not the capture's, so it
    /// is not counted.
    fn is_workspace(&mut self, bytes: u64) -> bool {
        let Some(row) = self.workspace(bytes) else { return false };
        self.workspaces.swap_remove(row);
        self.lost -= 1;
        true
    }

    /// Whether a block for which the layout has no place is of the least size: libraries ask for seeds in captures
    /// alone. It takes next to nothing and says nothing of the work, so it is not counted.
    fn is_seed(&mut self, bytes: u64) -> bool {
        let is_seed = bytes <= UNIT && !self.is_asked_for;
        self.lost -= usize::from(is_seed);
        is_seed
    }

    /// Notes that the capture has freed a block from before it, of so many bytes at an address: the layout makes no use of
    /// one beside it.
    pub(super) fn note_input(&mut self, address: u64, bytes: u64) {
        let within = |arena: Arena| address.wrapping_sub(arena.address) < arena.bytes;
        self.beyond += if self.arena.is_some_and(within) { 0 } else { bytes };
    }

    /// Whether the blocks lie by pages, and get their memory at the capture's end.
    pub(super) fn is_paged(&self) -> bool {
        self.way == Way::Pages
    }

    /// How far around the next place one is searched for.
    fn window(&self) -> usize {
        (WINDOW + self.lost).min(AHEAD / 2)
    }

    /// Whether a stream may have the places of a stream with such a number: its own, or one that none has yet.
    fn is_for(&self, stream: StreamHandle, planned: u32) -> bool {
        self.streams.iter().all(|&(of, number)| (of == stream) == (number == planned))
    }

    /// The row of the place nearby that is for just such a request, the next one first.
    fn row_for(&self, bytes: u64, stream: StreamHandle) -> Option<usize> {
        let is_it = |row: &usize| {
            let place = self.layout.places().get(*row).filter(|_| !self.asked.contains(*row));
            place.is_some_and(|it| it.bytes == bytes && self.is_for(stream, it.stream))
        };
        let near =
            (0..self.window()).flat_map(|far| [Some(self.next + far), self.next.checked_sub(far)]);
        near.flatten().find(is_it)
    }

    /// Whether this was to be asked for about now.
    fn foresees(&self, bytes: u64, stream: StreamHandle) -> bool {
        let is_any = self.workspace(bytes).is_some() || self.row_for(bytes, stream).is_some();
        is_any && !self.is_given_up()
    }

    /// What a later capture may go on with, once this one has ended.
    fn left_off(mut self: Box<Self>) -> Option<Box<Self>> {
        let is_open = self.arena.is_some() && self.next < self.layout.places().len();
        let goes_on = is_open && !self.is_asked_for && !self.is_given_up();
        (self.blocks, self.followed, self.lost, self.fell_back) = (0, 0, 0, None);
        goes_on.then_some(self)
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
        let nowhere = (self.way == Way::Nowhere).then_some(FellBack { block: 0, why: Why::NoLess });
        Followed {
            planned: self.layout.places().len(),
            planned_bytes: self.layout.bytes(),
            followed: self.followed,
            fell_back: self.fell_back.or(nowhere),
        }
    }

    /// Begins and ends that blocks of the layout are still to have: of those before the row `until`, or of all.
    fn wanted(&self, until: Option<u32>, base: u64) -> Vec<(u64, u64)> {
        let places = self.layout.places();
        let until = until.map_or(places.len(), |until| until as usize);
        let rows = (self.next.saturating_sub(self.window())..until).take(AHEAD);
        let open = rows.filter(|&row| !self.asked.contains(row));
        let mut wanted: Vec<(u64, u64)> = open
            .map(|row| (base + places[row].offset, base + places[row].offset + places[row].bytes))
            .collect();
        wanted.sort_unstable();
        wanted
    }

    /// The place of a request: the next one, if it is for just this, or one nearby that is; in a smaller
    /// batch else the next one, if it is for more.
    fn place_of(&mut self, bytes: u64, stream: StreamHandle) -> Result<(usize, Place), Why> {
        let places = self.layout.places();
        let next = places.get(self.next);
        let is_next = next.is_some_and(|it| it.bytes == bytes && self.is_for(stream, it.stream));
        let found = self.row_for(bytes, stream).or_else(|| {
            // A smaller batch asks for less: one that began so, or where requests stay without places.
            let smaller = self.smaller || self.next == 0 || self.lost > 1;
            let holds = |it: &&Place| smaller && it.bytes > bytes && self.is_for(stream, it.stream);
            next.filter(holds).map(|_| self.next)
        });
        // What may be a workspace is taken for one before it gets another place than the next.
        let found = found.filter(|_| is_next || self.workspace(bytes).is_none());
        let known = self.streams.iter().find(|known| known.0 == stream).map(|known| known.1);
        let Some(row) = found else {
            self.lost += 1;
            let place = next.ok_or(Why::More)?;
            if !self.is_for(stream, place.stream) {
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
        self.lost = 0;
        self.next = self.next.max(row + 1);
        Ok((row, place))
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Whether anything but the proof may say where a capture's block goes: a layout or a plan, or that it has memory of
    /// its own.
    #[inline]
    pub(super) fn is_foreseen(
        &self,
        &Request { pool, fixed, .. }: &Request,
        capture: CaptureSlot,
    ) -> bool {
        let follows = self.state.captures.get(capture).following.is_some();
        fixed || follows || self.state.lessons.next.is_some() || self.is_planned(capture, pool)
    }

    /// Whether a capture follows a layout whose blocks of a pool have memory at once.
    pub(super) fn is_laid(&self, slot: CaptureSlot, pool: PoolId) -> bool {
        let following = self.state.captures.get(slot).following_in(pool);
        following.is_some_and(|it| it.way == Way::Arena && !it.is_given_up())
    }

    /// A place by the layout that a capture follows, if it follows one; `None` where the block cannot have its place, nor one
    /// beside.
    pub(super) fn follow(
        &mut self,
        request: &Request,
        requester: Requester,
        slot: CaptureSlot,
    ) -> Option<(u32, Placed)> {
        self.adopt_next(slot);
        if !self.is_laid(slot, request.pool) {
            return None;
        }
        let mut following = self.state.capture(slot).following.take()?;
        let placed = match self.place_next(&mut following, request, requester) {
            // The pool has no place for it that is sure to cost nothing.
            _ if following.arena.is_none() && !following.is_asked_for => return None,
            Ok(placed) => following.note(Ok(placed)),
            Err((why, until)) => {
                let has_none = why != Why::Taken;
                let kept = has_none && following.is_workspace(request.bytes);
                if !(kept || has_none && following.is_seed(request.bytes)) {
                    following.note::<()>(Err(why));
                }
                let mut beside = self.place_beside(&following, request, requester, until);
                if beside.is_none() {
                    // What the host's layout does not know of, blocks as they come would need as well.
                    let counts = !kept && (why == Why::Taken || !following.is_asked_for);
                    following.beyond += if counts { request.bytes } else { 0 };
                    // A later block of the layout would miss another place.
                    if kept || following.is_asked_for && !following.is_given_up() {
                        // New memory beside the arena. What the driver refuses, the pool may still have.
                        let heap = following.arena.map(|arena| arena.heap);
                        let row = self.state.pools.get(request.pool);
                        let home = row.map(|row| row.homes(request.bytes, requester)[0]);
                        let home = home.filter(|&home| Some(home) == heap);
                        let grown = home.map(|home| self.grow(request, home, requester, true));
                        beside = grown.and_then(|grown| grown.ok().flatten());
                    }
                }
                beside
            }
        };
        self.state.capture(slot).following = Some(following);
        placed
    }

    /// Where a capture that follows a layout by pages is to have a block: how many bytes behind the layout's first
    /// address, and how many bytes of addresses the whole layout has. `None` without such a layout.
    pub(super) fn foresee_place(
        &mut self,
        slot: CaptureSlot,
        request: &Request,
    ) -> Option<Result<(u64, u64), Why>> {
        let capture_state = self.state.capture(slot);
        capture_state.following_in(request.pool).filter(|it| it.is_paged())?;
        let following = capture_state.following.as_mut()?;
        let found = following.place_of(request.bytes, request.asked.stream);
        let pages = following.layout.pages()?;
        let spot = |(row, _): (usize, Place)| (pages.offsets()[row], pages.span());
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
        let possible = self.can_plan_in(pool) && self.config.settings.reuse == Reuse::CrossStream;
        let Some(pages) = layout.pages().filter(|_| possible) else { return false };
        let Some(options) = self.asked_plan(slot, pool) else { return false };
        // How long the capture will take is not known yet.
        let fits = options.max_share_percent.is_none()
            && options.max_mappings.is_none_or(|most| pages.mappings() <= most);
        let planned = self.state.pools.get(pool).and_then(PoolRow::planned_heap);
        let held = planned.map(|heap| heap.sharable().1).unwrap_or_default();
        let shared: u64 = held.iter().map(|held| held.bytes).sum();
        let other = self.new_bytes(pool, layout).min(self.new_as_asked(pool, layout));
        fits && pages.bytes().saturating_sub(shared) < other
    }

    /// What a layout in one place takes that is new to its pool, in bytes.
    fn new_bytes(&self, pool: PoolId, layout: &Layout) -> u64 {
        let Some(row) = self.state.pools.get(pool) else { return 0 };
        if let Some((arena, missing)) = self.earlier_arena(pool, layout.bytes()) {
            return missing + layout.lost(&self.taken_in(pool, arena));
        }
        let unit = unit(self.driver.memory_support());
        let idle = |heap: u32| self.state.pools.heap(heap).idle_at_end(unit);
        layout.bytes().saturating_sub(row.shared().map_or(0, idle))
    }

    /// Where an earlier capture's layout lies, if there is room for so many bytes, and how many of them have no memory.
    fn earlier_arena(&self, pool: PoolId, bytes: u64) -> Option<(Arena, u64)> {
        let arena = self.state.pools.get(pool)?.arena().filter(|arena| arena.bytes >= bytes)?;
        Some((arena, self.state.pools.heap(arena.heap).missing(arena.address, bytes)?))
    }

    /// Where blocks are live in an arena, ends by begins, in bytes behind its address.
    fn taken_in(&self, pool: PoolId, arena: Arena) -> BTreeMap<u64, u64> {
        let blocks = self.state.blocks.of(pool).filter(|it| it.site.heap == arena.heap);
        let places = blocks.map(|it| self.state.pools.place(it.site));
        let behind = |at: u64| at.saturating_sub(arena.address).min(arena.bytes);
        let parts = places.map(|(at, bytes)| (behind(at), behind(at + bytes)));
        parts.filter(|(begin, end)| begin < end).collect()
    }

    /// What its blocks would take that is new to the pool as they are asked for, in bytes, if all that is free there is
    /// of use to them.
    fn new_as_asked(&self, pool: PoolId, layout: &Layout) -> u64 {
        let heaps = self.state.pools.heaps_of(Some(pool));
        let free = heaps.iter().map(|&heap| self.state.pools.heap(heap).free_pieces().1);
        layout.as_asked().saturating_sub(free.sum())
    }

    /// Whether a layout in one place takes more that is new than its blocks would as they are asked for.
    fn is_vain(&self, pool: PoolId, layout: &Layout) -> bool {
        let unit = unit(self.driver.memory_support());
        self.new_bytes(pool, layout).div_ceil(unit) > self.new_as_asked(pool, layout).div_ceil(unit)
    }

    /// A place that no block of the layout wants while this one is expected to be in use.
    fn place_beside(
        &mut self,
        following: &Following,
        request: &Request,
        requester: Requester,
        until: Option<u32>,
    ) -> Option<(u32, Placed)> {
        let Arena { heap, address: base, .. } = following.arena?;
        let wanted = following.wanted(until, base);
        let all = [(base, base + following.layout.bytes())];
        let placed = self.with_proof(requester, |pools, proof| {
            let heap = pools.heap_mut(heap);
            let mut place = |busy: &[_]| {
                let address = heap.find_place(busy, request.bytes, requester, proof)?;
                heap.place_at(address, request.bytes, requester, proof)
            };
            place(&wanted).or_else(|| place(&all))
        });
        placed.map(|placed| (heap, placed))
    }

    /// The place of the next request. Else why it has none, and where its place is taken, up to which row of the layout
    /// its block is expected to be in use.
    fn place_next(
        &mut self,
        following: &mut Following,
        request: &Request,
        requester: Requester,
    ) -> Result<(u32, Placed), (Why, Option<u32>)> {
        let alone = |why: Why| (why, None);
        let found = following.place_of(request.bytes, request.asked.stream);
        let (_, Place { offset, until, .. }) = found.map_err(alone)?;
        let all = following.layout.bytes();
        let Arena { heap, address: base, .. } = match following.arena {
            Some(arena) => arena,
            None => {
                let found = self.arena(following, request, requester);
                let row = self.state.pools.get(request.pool);
                if found.is_err() && row.is_some_and(|row| row.config().source.is_none()) {
                    // It is not tried again at each request. A source gives its memory between two requests.
                    following.way = Way::Nowhere;
                }
                let found = found.map_err(alone)?;
                following.arena = Some(found);
                found
            }
        };
        let address = base + offset;
        let place = |locked: &mut Self| {
            locked.with_proof(requester, |pools, proof| {
                pools.heap_mut(heap).place_at(address, request.bytes, requester, proof)
            })
        };
        let is_shown = following.is_asked_for || following.followed >= SHOWN;
        let piece = if is_shown { all.div_ceil(PIECES) } else { 0 };
        let placed = match place(self) {
            None if self.fill_arena(request, heap, (base, piece), address) => place(self),
            placed => placed,
        };
        placed.map(|placed| (heap, placed)).ok_or((Why::Taken, until))
    }

    /// Brings memory behind a place of an arena, where it has none yet, in pieces of so many bytes or more. Says whether
    /// any came.
    fn fill_arena(
        &mut self,
        &Request { pool, bytes, .. }: &Request,
        heap: u32,
        (base, piece): (u64, u64),
        address: u64,
    ) -> bool {
        let unit = unit(self.driver.memory_support());
        let step = piece.max(1).next_multiple_of(unit);
        let (limit, driver) = (self.state.room(pool), self.driver);
        let heap_row = self.state.pools.heap_mut(heap);
        let came = heap_row.fill(driver, (base, step), (address, bytes), limit);
        if heap_row.is_changed() {
            self.count_changes(heap);
        }
        // What the driver refuses, the pool may still have elsewhere.
        came.unwrap_or(false)
    }

    /// Where a layout goes in the pool: one place that is all free; else, unless the blocks would take less that is new
    /// without the layout, where an earlier capture's layout lies, if that is as large; else what is idle at the pool's
    /// end and new addresses, which have memory once a block needs it. What the pool has in vain goes back to the driver
    /// before, where the host has asked for the layout.
    fn arena(
        &mut self,
        following: &Following,
        request: &Request,
        requester: Requester,
    ) -> Result<Arena, Why> {
        let Requester::Capture { capture: slot, stream, .. } = requester else {
            return Err(Why::Taken);
        };
        if !self.config.settings.caching {
            return Err(Why::NoCaching);
        }
        let (asked_for, bytes) = (following.is_asked_for, following.layout.bytes());
        let pool = request.pool;
        self.free_completed(Some(pool));
        if asked_for {
            self.give_back(Some(pool), u64::MAX, None);
        }
        let row = self.state.pools.get(pool).ok_or(Why::NoMemory)?;
        let homes = row.homes(bytes, requester);
        let driver = self.driver;
        let free = self.with_proof(requester, |pools, proof| {
            let mut each = homes.into_iter();
            let find = |heap: u32| pools.heap(heap).find_place(&[], bytes, requester, proof);
            let found = each.clone().find_map(|heap| Some((heap, find(heap)?)));
            found.or_else(|| {
                each.find_map(|heap| {
                    let row = pools.heap_mut(heap);
                    Some((heap, row.open_place(driver, bytes, requester, proof)?))
                })
            })
        });
        if let Some((heap, address)) = free {
            return Ok(self.set_arena(pool, Arena { heap, address, bytes }));
        }
        if self.is_vain(pool, &following.layout) {
            return Err(Why::NoLess);
        }
        if let Some((arena, _)) = self.earlier_arena(pool, bytes) {
            return Ok(arena);
        }
        let [heap, _] = homes;
        let opened = self.state.pools.heap_mut(heap).open_arena(driver, bytes);
        if let Some(address) = opened.map_err(|_| Why::NoMemory)? {
            return Ok(self.set_arena(pool, Arena { heap, address, bytes }));
        }
        if !asked_for {
            return Err(Why::NoMemory);
        }
        let mut whole = request.clone();
        (whole.bytes, whole.asked.requested) = (bytes, bytes);
        let found = self.find(&whole, homes, requester);
        let Ok(Some((heap, placed))) = found else { return Err(Why::NoMemory) };
        self.count_changes(heap);
        let Placed { range, address, users, .. } = placed;
        // No block has lain there.
        let number = self.state.blocks.number();
        let row = self.state.pools.heap_mut(heap);
        row.free_pending(range, (slot, stream, users), None, number);
        Ok(self.set_arena(pool, Arena { heap, address, bytes }))
    }

    fn set_arena(&mut self, pool: PoolId, arena: Arena) -> Arena {
        self.state.pools.get_mut(pool).into_iter().for_each(|pool| pool.set_arena(arena));
        arena
    }

    /// Has what a capture's first requests need of what was learned made ready without the engine's lock. Says whether the
    /// request is to be made again for that: nothing of it has been noted yet.
    #[inline]
    pub(super) fn study(&mut self, capture: CaptureId, request: &Request) -> bool {
        let begun = &self.state.lessons.begun;
        !matches!(begun, Some((of, None)) if *of == capture)
            && self.study_beginning(capture, request)
    }

    /// Chooses what a capture is to follow: at its first request, and at its third one again where that is not foreseen.
    fn study_beginning(&mut self, capture: CaptureId, request: &Request) -> bool {
        let &Request { pool, bytes, asked: Asked { stream, .. }, .. } = request;
        let slot = self.state.captures.slot(capture);
        let begun = self.state.lessons.begun.as_ref().filter(|it| it.0 == capture);
        let mut asked = begun.and_then(|it| it.1.clone()).unwrap_or_default();
        let following = slot.and_then(|slot| self.state.captures.get(slot).following.as_deref());
        let follows = match slot {
            _ if !asked.is_empty() => following.is_none_or(|it| !it.is_asked_for),
            Some(slot) => {
                let capture_state = self.state.captures.get(slot);
                let first = capture_state.pools().first().is_none_or(|first| *first == pool);
                let new = following.is_none() && !capture_state.proof.has_handed_out();
                new && first && !self.is_planned(slot, pool)
            }
            // Its first request makes it known, and then it is planned as all into the pool.
            None => self.asked_of_all(pool).is_none(),
        };
        let is_first = asked.is_empty();
        asked.push(bytes);
        let left_off = self.state.lessons.next.take_if(|it| it.0 == pool);
        let left_off = left_off.filter(|_| follows && is_first).map(|it| it.2);
        let expected = following.or(left_off.as_deref());
        let mut chosen = None;
        if expected.is_some_and(|it| it.foresees(bytes, stream)) {
            chosen = left_off;
        } else if follows && asked.len() != BEGINNING - 1 {
            let following = following.map(|it| it.layout.clone());
            let first = (asked, stream);
            match self.following_for(capture, pool, &first) {
                None => return true,
                Some(found) => chosen = found.filter(|it| Some(&it.layout) != following.as_ref()),
            }
            asked = first.0;
        }
        self.state.lessons.next = chosen.map(|it| (pool, Some(capture), it));
        let begins = follows && asked.len() < BEGINNING;
        self.state.lessons.begun = Some((capture, begins.then_some(asked)));
        false
    }

    /// What a capture is to follow that begins so, if there is anything; `None` where its request is to be made again.
    fn following_for(
        &mut self,
        capture: CaptureId,
        pool: PoolId,
        first: &First,
    ) -> Option<Option<Box<Following>>> {
        let (is_first, may_repeat) = (first.0.len() == 1, self.errands.may_repeat());
        let learns = may_repeat && self.config.settings.plan == PlanChoice::Auto;
        let Lessons { heard, searched, .. } = &self.state.lessons;
        let unsearched = heard.requests().blocks() > 0 && !searched.contains(first);
        // Other threads have news all the time.
        let may_have = is_first && self.errands.is_first();
        if learns && (unsearched || may_have && self.caches.numbers().has_news()) {
            self.errands.repeat_after(Some(Work::Search(first.clone())));
            return None;
        }
        let is_there = |bytes| self.earlier_arena(pool, bytes).is_some_and(|it| it.1 == 0);
        let Some(lesson) = self.state.lessons.choose(&first.0, is_there).cloned() else {
            return Some(None);
        };
        let layout = lesson.layout.get();
        if layout.is_none() && may_repeat {
            self.errands.repeat_after(Some(Work::Layout(lesson)));
            return None;
        }
        let following = Following::learned(&lesson, first.0.len() - 1);
        if following.is_none() && (layout.is_none() || lesson.from.is_asked_for()) {
            let (level, why) = match layout {
                Some(_) => (Level::Info, "one takes no less memory than blocks as they come"),
                None => (Level::Warn, "others were learned while one was made for it"),
            };
            let text = "follows no layout of the run that was learned";
            self.state.messages.say(level, || format!("capture {} {text}: {why}", capture.0));
        }
        Some(following)
    }

    /// Has a capture follow what was chosen for it, if anything was.
    fn adopt_next(&mut self, slot: CaptureSlot) {
        let State { captures, lessons, .. } = &mut *self.state;
        let capture_state = captures.get_mut(slot);
        let id = capture_state.id();
        let Some((pool, _, following)) = lessons.next.take_if(|it| it.1 == Some(id)) else {
            return;
        };
        let bytes = Size(following.layout.bytes());
        capture_state.following = Some(following);
        self.state.say_of(pool, Level::Info, |pool| {
            format!("capture {} follows a layout of {bytes} in {pool}, which was learned", id.0)
        });
    }

    /// Learns from a capture that ends, where captures are to be learned from and it keeps a record.
    pub(super) fn learn_from(&mut self, slot: CaptureSlot) {
        let capture_state = self.state.captures.get(slot);
        let knows = capture_state.following.as_ref().is_some_and(|it| it.followed().is_whole());
        let pool = capture_state.pools().first().copied();
        let learns =
            self.config.settings.plan == PlanChoice::Auto && capture_state.proof.has_handed_out();
        if !learns || knows || pool.is_some_and(|pool| self.is_planned(slot, pool)) {
            return;
        }
        let Some(blocks) = self.state.blocks_of_first_pool(slot) else { return };
        let mut pattern = Pattern::default();
        blocks.iter().for_each(|&(_, bytes)| pattern.add(bytes));
        let captured = |lesson: &Lesson| matches!(lesson.from, LearnedFrom::Captured(_));
        if self.state.lessons.known.iter().any(|it| it.pattern == pattern && captured(it)) {
            return;
        }
        if let Some(record) = self.state.outline_of(slot) {
            self.errands.learn(Lesson::new(pattern, LearnedFrom::Captured(record)));
        }
    }
}

impl<D: Driver> Engine<D> {
    /// Refuses a capture if blocks that lay over one another are unordered by its edges, and may lie so again. Where
    /// programmatic edges alone are the reason, a layout keeps the blocks apart, and a second capture is accepted.
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

    /// Keeps a lesson from the latest run outside captures that begins with such requests, if there was one. The
    /// engine's lock is held while new requests are added, and released while the run is searched for.
    pub(super) fn search_heard(&self, (asked, stream): First) {
        let found = self.lock().map(|mut state| {
            // Better than a guess: a capture tells what its streams waited for, or captures have followed the layout.
            let better =
                |it: &Lesson| it.made().is_some() || !matches!(it.from, LearnedFrom::Heard(..));
            let known = state.lessons.known.iter().filter(|it| it.pattern.begins_as(&asked));
            let better: Vec<Pattern> = known.filter(|it| better(it)).map(|it| it.pattern).collect();
            state.lessons.take_in(self.caches.take_unmarked());
            (Arc::clone(&state.lessons.heard), better)
        });
        let Ok((heard, better)) = found else { return };
        let sizes: Vec<u64> = heard.requests().sizes().collect();
        let shown = better.into_iter().rev().find(|pattern| pattern.came_lately(&sizes));
        let run = if shown.is_none() { heard.last_run(&asked, stream) } else { None };
        let workspaces = || heard.requests().workspaces(asked[0]);
        let heard_so = |outline| LearnedFrom::Heard(outline, workspaces());
        let run = run.filter(Requests::shows_waits);
        let outline = run.map(|run| run.outline(self.config.settings.reuse));
        let lesson = outline.map(|it| Lesson::new(it.pattern(), heard_so(it)));
        // Dropped without the lock.
        let _replaced = self.lock().map(|mut state| {
            let searched = (asked.clone(), stream);
            if !state.lessons.searched.contains(&searched) {
                state.lessons.searched.push(searched);
            }
            // What was shown lately is made the latest, which is chosen.
            let known = &mut state.lessons.known;
            let row = known.iter().rposition(|known| Some(known.pattern) == shown);
            row.into_iter().for_each(|row| known[row..].rotate_left(1));
            lesson.and_then(|lesson| state.lessons.keep(lesson))
        });
    }

    /// What was learned, with all that was asked for outside captures so far.
    fn lessons(&self) -> Result<Lessons, Error> {
        let (mut lessons, latest) = {
            let state = self.lock()?;
            (state.lessons.clone(), self.caches.heard())
        };
        lessons.take_in(latest);
        Ok(Lessons { begun: None, next: None, ..lessons })
    }

    /// Ends a run that the host has learned from, and returns what was asked for in it.
    fn end_run(&self) -> Result<Vec<(u64, Demand)>, Error> {
        let _locked = self.lock()?;
        let kept = heard::kept_by(&self.config.settings);
        let heard = self.caches.numbers().keep_all().then(|| self.caches.hear(kept));
        Ok(heard.unwrap_or_default())
    }
}

impl<D: Driver> Plans<'_, D> {
    /// A layout for what a capture under way has allocated so far in its first pool, except fixed blocks: for a second
    /// capture of the same work ([`Plans::follow_layout`]), when this one has been abandoned. Needs
    /// no memory of the device, and does not change the capture.
    ///
    /// May take some seconds where there are many blocks; the engine is not locked meanwhile. With
    /// [`Config::check`](super::Config::check) this fails where the capture would be refused at its end: where its
    /// edges contradict the order of its blocks, as after a stream was set back behind the allocation of a block that
    /// it uses.
    ///
    /// # Errors
    /// [`Error::NoJournal`], [`Error::Unknown`]; [`Error::Refused`] where the capture would be refused. The capture
    /// stays under way.
    pub fn layout_of(&self, capture: CaptureId) -> Result<Layout, Error> {
        const CALL: &str = "layout_of";
        let unread = self.0.in_capture(capture, CALL, |locked, slot| {
            let _ = locked.last_looks(slot);
            locked.state.outline_of(slot).ok_or(Error::NoJournal { call: CALL, capture })
        })?;
        let outline = unread.read(&self.0.config.settings);
        self.0.compare(&outline, &unread.journal)?;
        let unit = self.0.driver.memory_support().granularity();
        Ok(outline.layout(unit, self.0.config.settings.plan_search))
    }

    /// The least memory that the blocks of a capture under way need so far, in bytes, in any placement that adds no
    /// edges to the graph: as [`CaptureReport::minimum`](super::CaptureReport::minimum) when it has ended. Takes some
    /// milliseconds, or about a second for 100,000 blocks; the engine is not locked meanwhile.
    ///
    /// # Errors
    /// [`Error::NoJournal`], [`Error::Unknown`].
    pub fn minimum_of(&self, capture: CaptureId) -> Result<u64, Error> {
        let no_journal = Error::NoJournal { call: "minimum_of", capture };
        let journal = self.0.host().journal(capture)?.ok_or(no_journal)?;
        let lifetimes = Lifetimes::read(&journal, self.0.config.settings.programmatic);
        Ok(Minimum::of(&lifetimes).bytes)
    }

    /// Has what a capture under way allocates in its first pool from now on lie where a layout says.
    ///
    /// At the first such allocation the layout gets its addresses, as one place of the pool that is free, or where an
    /// earlier capture's lies, or in new memory, after the pool's memory that nothing uses went back to the driver.
    /// From then on the n-th allocation gets the n-th place, as long as each asks for the same bytes on the same stream
    /// (by the order of streams' first blocks) and the place is free and proven for it like any other. A request for
    /// other bytes or another stream gets a nearby place of the layout with exactly these bytes and this stream. If
    /// there is none it gets the n-th place, where that has more bytes, and the first request was for fewer bytes than
    /// its place has or three requests in a row found none. A block that cannot have its place gets a place that no
    /// block of the layout needs while this one is expected to be in use; else it is placed as without a layout, or in
    /// new memory. Once blocks beside the layout take what it saves, no further block follows it. The report of the
    /// capture tells ([`CaptureReport::layout`](super::CaptureReport::layout)).
    ///
    /// Where the capture is to get its memory at its end (`plan:exact`, [`Plans::plan_capture`]) and needs less new
    /// memory that way than the layout in one range, its blocks get addresses that keep the layout's offsets in pages
    /// ([`Layout::pages`]), and memory at the end. Else they have memory at once.
    pub fn follow_layout(&self, capture: CaptureId, layout: Layout) -> Result<(), Error> {
        self.0.in_capture(capture, "follow_layout", |locked, slot| {
            let pool = locked.state.capture(slot).pools().first().copied();
            let Some(pool) = pool else { return Ok(()) };
            let planned = locked.asked_plan(slot, pool).is_some();
            if planned {
                // Else it would be held beside what the plan takes.
                locked.free_completed(Some(pool));
                locked.give_back(Some(pool), u64::MAX, None);
            }
            // Without a record of all that was allocated nothing can be planned.
            let paged = locked.prefers_pages(slot, pool, &layout) && locked.begin_journal(slot);
            let vain = planned && !paged && locked.is_vain(pool, &layout);
            let otherwise = if vain { Way::Nowhere } else { Way::Arena };
            let way = if paged { Way::Pages } else { otherwise };
            let following = Following { way, ..Following::new(layout, true) };
            locked.state.capture(slot).following = Some(Box::new(following));
            Ok(())
        })
    }

    /// Notes from now on what is asked for outside captures, in all pools and by all threads: for a run
    /// of the work that is to be captured, from where its capture will begin to where it will end.
    /// [`Plans::learned`] ends that. What was noted since an earlier call is forgotten.
    ///
    /// With `plan:auto` the latest requests are noted in any case, and a capture follows the last run among them that
    /// begins as it does, where its blocks show what its streams wait for. This call marks where the run begins.
    pub fn learn(&self) -> Result<(), Error> {
        let _locked = self.0.lock()?;
        drop(self.0.caches.hear(heard::ALL));
        Ok(())
    }

    /// Ends what [`Plans::learn`] began, and returns how many blocks were noted. From now on each capture whose first
    /// request is for as many bytes as the first one noted follows a layout for these blocks, in its first pool
    /// ([`Plans::follow_layout`]), unless it gets its memory at its end or has a layout of its own. The latest 16 runs
    /// that have blocks are kept.
    ///
    /// The layout is made at the first such capture's first request: in up to some two seconds for up to 6,000 blocks,
    /// in some six or more beyond (`plan_search` multiplies the first). Other calls go on meanwhile; a second capture
    /// that begins so then makes it for itself. Blocks that are live now stay in use to the end in it; those from
    /// before [`Plans::learn`] have no place. What streams know of each other outside captures is guessed from the
    /// blocks that are recorded for more than one of them ([`Engine::record_stream`]); a wrong guess costs memory. A
    /// run is followed if each of its streams but the first uses a block of another one in one of the first two turns
    /// that the host gives it, or has one turn alone, and, with several streams, if its layout takes less memory than
    /// blocks that are placed as they come. Else a message says so, and no capture follows an earlier run that begins
    /// with as many bytes either.
    pub fn learned(&self) -> Result<usize, Error> {
        let mut heard = Heard::default();
        heard::in_order(self.0.end_run()?).for_each(|demand| heard.add(demand));
        let (blocks, shows_waits) = (heard.requests().blocks(), heard.requests().shows_waits());
        let outline = heard.requests().outline(self.0.config.settings.reuse);
        let lesson = Lesson::new(outline.pattern(), LearnedFrom::Marked(outline));
        if !shows_waits {
            self.0.tell(Level::Warn, || {
                let text = "do not show what its streams wait for: no capture follows it";
                format!("the {blocks} blocks of the run that was learned {text}")
            });
            // Nor does one follow an earlier run that begins so.
            let _ = lesson.layout.set(None);
        }
        if blocks > 0 {
            drop(self.0.lock()?.lessons.keep(lesson));
        }
        Ok(blocks)
    }

    /// Ends what [`Plans::learn`] began, and keeps nothing: for a run that was not the work to be captured.
    pub fn forget_run(&self) -> Result<(), Error> {
        self.0.end_run().map(|_| ())
    }

    /// Takes over what another engine has learned and heard so far, in place of what this one has: captures follow what
    /// they would follow there. For engines with the same settings that try captures out, and that nothing is asked of
    /// outside captures.
    ///
    /// # Errors
    /// [`Error::Poisoned`], for either.
    pub fn learn_as(&self, other: &Engine<impl Driver>) -> Result<(), Error> {
        let lessons = other.lessons()?;
        // Dropped without the lock.
        let _forgotten = std::mem::replace(&mut self.0.lock()?.lessons, lessons);
        Ok(())
    }

    /// Forgets all that was learned from runs and captures, and all requests outside captures so far. Captures that
    /// already follow a layout go on.
    pub fn forget_learned(&self) -> Result<(), Error> {
        self.forget_run()?;
        drop(self.0.caches.take_heard());
        // Dropped without the lock.
        let _forgotten = std::mem::take(&mut self.0.lock()?.lessons);
        Ok(())
    }
}

/// So many lessons are kept, the latest.
const LESSONS: usize = 16;

/// So many requests outside captures are kept for later captures, the latest.
const HEARD: usize = 32_768;

/// A capture's first requests, in bytes, and the stream of the latest.
pub(super) type First = (SmallVec<[u64; BEGINNING]>, StreamHandle);

/// What was learned from one run. Shared with whom makes its layout, without the engine's lock.
#[derive(Debug)]
pub(super) struct Lesson {
    pattern: Pattern,
    from: LearnedFrom,
    /// Made when a capture begins as the lesson does; `None` where none takes less than blocks that are placed as they
    /// come, or the run does not show what its streams wait for.
    layout: OnceLock<Option<Layout>>,
}

/// What a lesson was learned from.
#[derive(Debug)]
enum LearnedFrom {
    /// A run outside captures that the host has marked.
    Marked(Outline),
    /// Requests outside captures that are taken for a run, and [`Requests::workspaces`].
    Heard(Outline, Vec<u64>),
    /// A capture.
    Captured(CaptureRecord),
}

impl LearnedFrom {
    /// Whether the host has asked that captures follow it.
    fn is_asked_for(&self) -> bool {
        matches!(self, Self::Marked(_))
    }
}

impl Lesson {
    fn new(pattern: Pattern, from: LearnedFrom) -> Arc<Self> {
        Arc::new(Self { pattern, from, layout: OnceLock::new() })
    }

    /// Makes the layout, for memory that comes in units of so many bytes, with all the time that the settings allow
    /// where the host has asked for it.
    pub(super) fn make_layout(&self, unit: u64, settings: &Settings) {
        let layout = match &self.from {
            LearnedFrom::Marked(outline) => {
                let layout = outline.layout(None, settings.plan_search);
                // What several streams know of each other is a guess: following it is to be worth it.
                Some(layout).filter(|it| it.saves(unit) || it.is_of_one_stream())
            }
            LearnedFrom::Heard(outline, _) => outline.quick_layout(unit),
            LearnedFrom::Captured(record) => record.read(settings).quick_layout(unit),
        };
        // Where two captures that begin so made one each, the first one is kept.
        let _ = self.layout.set(layout);
    }

    /// The layout, where it was made and takes less.
    fn made(&self) -> Option<&Layout> {
        self.layout.get()?.as_ref()
    }
}

/// What is learned, and what was.
#[derive(Clone, Debug, Default)]
pub(super) struct Lessons {
    /// Requests outside captures that stream caches have told of, for captures that may begin as any part of them.
    heard: Arc<Heard>,
    /// The first requests that these were searched for, by their bytes and streams.
    searched: Vec<First>,
    /// The latest last.
    known: Vec<Arc<Lesson>>,
    /// The capture that began last, with what its first requests were for, in bytes, while another lesson may be chosen.
    begun: Option<(CaptureId, Option<SmallVec<[u64; BEGINNING]>>)>,
    /// What the latest capture into a pool did not ask for of its layout, or what a capture is to follow from its request
    /// under way on.
    next: Option<(PoolId, Option<CaptureId>, Box<Following>)>,
}

impl Lessons {
    /// A capture has ended: a later one into its pool may go on with what is left of the layout that it followed, if any.
    pub(super) fn note_end(&mut self, followed: Option<(PoolId, Box<Following>)>) {
        self.next = followed.and_then(|(pool, it)| Some((pool, None, it.left_off()?)));
    }

    /// Adds what was asked for outside captures since requests were added last.
    fn take_in(&mut self, latest: Vec<(u64, Demand)>) {
        if latest.is_empty() {
            return;
        }
        self.searched.clear();
        // A search that is under way goes on with what there was: then this is a copy.
        let heard = Arc::make_mut(&mut self.heard);
        heard.note_capture();
        heard::in_order(latest).for_each(|demand| heard.add(demand));
        heard.keep(HEARD);
    }

    /// Takes a lesson in, unless the same is known; returns one that goes for it.
    pub(super) fn keep(&mut self, lesson: Arc<Lesson>) -> Option<Arc<Lesson>> {
        let from_capture = matches!(lesson.from, LearnedFrom::Captured(_));
        let known = self.known.iter().position(|known| known.pattern == lesson.pattern);
        if let Some(row) = known {
            let known = self.known.remove(row);
            // A capture tells what its streams have waited for, which else is guessed.
            let asked_for = |lesson: &Lesson| lesson.from.is_asked_for();
            // One that has shown nothing tells less than any.
            let shown = lesson.layout.get().is_none();
            let better = shown && (asked_for(&lesson) || from_capture && !asked_for(&known));
            let (kept, other) = if better { (lesson, known) } else { (known, lesson) };
            self.known.push(kept);
            return Some(other);
        }
        let oldest = (self.known.len() == LESSONS).then(|| self.known.remove(0));
        self.known.push(lesson);
        oldest
    }

    /// The lesson for a capture whose first requests are for so many bytes, into a pool whose arena is there for so many: the
    /// latest that begins so; else, for its first one, the least that begins with more and fits, since a smaller batch asks for less.
    fn choose(&self, asked: &[u64], is_there: impl Fn(u64) -> bool) -> Option<&Arc<Lesson>> {
        let same = self.known.iter().rev().find(|lesson| lesson.pattern.begins_as(asked));
        same.or_else(|| {
            let &[bytes] = asked else { return None };
            let larger = self.known.iter().filter(|lesson| {
                let fits = || lesson.made().is_some_and(|layout| is_there(layout.bytes()));
                lesson.pattern.first() > bytes && fits()
            });
            larger.min_by_key(|lesson| lesson.pattern.first())
        })
    }
}

/// The record of a capture, and where the blocks lie in it that a layout is for.
#[derive(Debug)]
pub(super) struct CaptureRecord {
    journal: Journal,
    addresses: HashSet<u64>,
}

impl CaptureRecord {
    pub(super) fn read(&self, settings: &Settings) -> Outline {
        let Self { journal, addresses } = self;
        Outline::read(journal, settings.programmatic, settings.reuse, |address| {
            addresses.contains(&address)
        })
    }
}

impl State {
    /// What a capture under way has allocated so far in its first pool; `None` where it keeps no journal.
    pub(super) fn outline_of(&self, slot: CaptureSlot) -> Option<CaptureRecord> {
        let addresses = self.blocks_of_first_pool(slot)?;
        let addresses = addresses.into_iter().map(|(address, _)| address).collect();
        let journal = self.captures.get(slot).journal.clone()?;
        Some(CaptureRecord { journal, addresses })
    }

    /// Address and size of what a capture has allocated so far in its first pool, in order; `None` without a journal.
    fn blocks_of_first_pool(&self, slot: CaptureSlot) -> Option<Vec<(u64, u64)>> {
        let capture_state = self.captures.get(slot);
        let journal = capture_state.journal.as_ref()?;
        let pool = capture_state.pools().first().copied();
        let heaps = pool.map(|pool| self.pools.heaps_of(Some(pool))).unwrap_or_default();
        let planned = pool.and_then(|pool| self.pools.get(pool)?.planned_heap());
        let owns = |address: u64| {
            heaps.iter().any(|&heap| self.pools.heap(heap).owns(address))
                || planned.is_some_and(|heap| heap.is_to_be_bound(capture_state.id(), address))
        };
        let blocks = journal.iter().filter_map(|entry| match entry {
            Entry::Allocate { address, bytes, .. } if owns(address) => Some((address, bytes)),
            _ => None,
        });
        Some(blocks.collect())
    }
}
