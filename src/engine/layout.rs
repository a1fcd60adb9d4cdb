//! Serving a capture from a layout.
//!
//! A layout is a wish. Each place is handed out by the heap like any other, if it is free and its
//! markers are proven; a layout that does not fit the capture costs memory, never safety.

use std::collections::HashSet;
use std::fmt;

use super::allocate::Request;
use super::names::PoolId;
use super::reclaim::Amount;
use super::state::Locked;
use super::{Engine, Error};
use crate::capture::StreamIndex;
use crate::driver::{CaptureId, Driver};
use crate::heap::{Freed, Placed, Requester};
use crate::journal::Entry;
use crate::layout::{Layout, Place};
use crate::lifetimes::Lifetimes;
use crate::minimum::Minimum;

/// How far a capture lies by its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Followed {
    /// Blocks of the layout.
    pub planned: usize,
    /// What the layout takes, in bytes.
    pub planned_bytes: u64,
    /// Blocks that lie where it says: the first so many of the capture.
    pub followed: usize,
    /// From where on it was given up; `None` where it never was.
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
                write!(f, "{followed} of {planned} blocks; given up at block {block}, {why}")
            }
        }
    }
}

/// Where a layout was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FellBack {
    /// The first block that does not lie by it, counted from 0 since it was to be followed.
    pub block: usize,
    /// Why.
    pub why: Why,
}

/// Why a layout was given up.
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

/// A layout that a capture follows.
#[derive(Debug)]
pub(super) struct Following {
    pool: PoolId,
    layout: Layout,
    /// Heap and address.
    arena: Option<(u32, u64)>,
    /// Those that have a place, by their first.
    streams: Vec<StreamIndex>,
    followed: usize,
    fell_back: Option<FellBack>,
}

impl Following {
    pub(super) fn new(pool: PoolId, layout: Layout) -> Self {
        Self { pool, layout, arena: None, streams: Vec::new(), followed: 0, fell_back: None }
    }

    pub(super) fn followed(&self) -> Followed {
        Followed {
            planned: self.layout.places().len(),
            planned_bytes: self.layout.bytes(),
            followed: self.followed,
            fell_back: self.fell_back,
        }
    }

    /// The place of the next block, if this is it.
    fn next(&self, bytes: u64, stream: StreamIndex) -> Result<Place, Why> {
        let place = self.layout.places().get(self.followed).copied().ok_or(Why::More)?;
        let seen = self.streams.iter().position(|seen| *seen == stream);
        let found = seen.unwrap_or(self.streams.len()) as u32;
        if place.bytes != bytes {
            return Err(Why::Size { planned: place.bytes, found: bytes });
        }
        if place.stream != found {
            return Err(Why::Stream { planned: place.stream, found });
        }
        Ok(place)
    }
}

impl<D: Driver> Locked<'_, D> {
    /// A place by the layout that a capture follows; `None` where it follows none, or none any more.
    pub(super) fn follow(
        &mut self,
        request: &Request,
        requester: Requester,
    ) -> Option<(u32, Placed)> {
        let Requester::Capture { capture: slot, stream, .. } = requester else { return None };
        let following = self.state.capture(slot).following.as_ref()?;
        if following.pool != request.pool || following.fell_back.is_some() {
            return None;
        }
        let found = self.place_next(request, requester);
        let following = self.state.capture(slot).following.as_mut()?;
        match found {
            Ok(place) => {
                following.followed += 1;
                if !following.streams.contains(&stream) {
                    following.streams.push(stream);
                }
                Some(place)
            }
            Err(why) => {
                following.fell_back = Some(FellBack { block: following.followed, why });
                None
            }
        }
    }

    fn place_next(
        &mut self,
        request: &Request,
        requester: Requester,
    ) -> Result<(u32, Placed), Why> {
        let Requester::Capture { capture: slot, stream, .. } = requester else {
            return Err(Why::Taken);
        };
        let following = self.state.capture(slot).following.as_ref().ok_or(Why::More)?;
        let Place { offset, bytes, .. } = following.next(request.bytes, stream)?;
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
        self.state.touch(heap);
        let placed = self.with_proof(requester, |pools, proof| {
            pools.heap_mut(heap).place_at(base + offset, bytes, requester, proof)
        });
        placed.map(|placed| (heap, placed)).ok_or(Why::Taken)
    }

    /// One contiguous place in the pool, free for the capture; what the pool has in vain goes back to
    /// the driver first.
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
        let homes = self.state.pools.get(pool).ok_or(Why::NoMemory)?.homes(bytes, requester);
        self.state.touch(homes.grows);
        let request = Request { requested: bytes, bytes, frames: None, ..request.clone() };
        let found = self.find(&request, homes, requester);
        let Ok(Some((heap, placed))) = found else {
            return Err(Why::NoMemory);
        };
        self.state.touch(heap);
        self.state.count_changes(heap);
        let Placed { range, address, graphs, .. } = placed;
        // No block has lain there.
        let number = self.state.blocks.number();
        let freed = Freed { capture: slot, owner: stream, graphs };
        self.state.pools.heap_mut(heap).free_pending(range, freed, None, number);
        Ok((heap, address))
    }
}

impl<D: Driver> Engine<D> {
    /// A layout for what a capture under way has allocated so far in its first pool: for a second
    /// capture of the same work ([`Engine::follow_layout`]), when this one has been abandoned. Needs
    /// no memory of the device, and does not change the capture.
    ///
    /// May take as long as a second where there are many blocks; the engine is not locked meanwhile.
    ///
    /// # Errors
    /// [`Error::NoJournal`], [`Error::UnknownCapture`].
    pub fn layout_of(&self, capture: CaptureId) -> Result<Layout, Error> {
        const CALL: &str = "layout_of";
        let (journal, addresses) = {
            let mut state = self.lock()?;
            let slot = state.slot_of(capture, CALL)?;
            self.with(&mut state).last_looks(slot);
            let capture_state = state.capture(slot);
            let no_journal = Error::NoJournal { call: CALL, capture };
            let journal = capture_state.journal.clone().ok_or(no_journal)?;
            let pool = capture_state.pools.first().copied();
            let heaps = pool.map(|pool| state.pools.heaps_of(Some(pool))).unwrap_or_default();
            let owns =
                |address: u64| heaps.iter().any(|&heap| state.pools.heap(heap).owns(address));
            let addresses = journal.iter().filter_map(|entry| match entry {
                Entry::Allocate { address, .. } if owns(address) => Some(address),
                _ => None,
            });
            let addresses: HashSet<u64> = addresses.collect();
            (journal, addresses)
        };
        let settings = &self.config.settings;
        Ok(Layout::read(&journal, settings.programmatic, settings.reuse, |address| {
            addresses.contains(&address)
        }))
    }

    /// The least memory that the blocks of a capture under way need so far, in bytes, in any placement
    /// that adds no edges to the graph: as [`CaptureReport::minimum`](super::CaptureReport::minimum)
    /// when it has ended. Takes some milliseconds, or about a second for 100,000 blocks; the engine is
    /// not locked meanwhile.
    ///
    /// # Errors
    /// [`Error::NoJournal`], [`Error::UnknownCapture`].
    pub fn minimum_of(&self, capture: CaptureId) -> Result<u64, Error> {
        let no_journal = Error::NoJournal { call: "minimum_of", capture };
        let journal = self.journal(capture)?.ok_or(no_journal)?;
        let lifetimes = Lifetimes::read(&journal, self.config.settings.programmatic);
        Ok(Minimum::of(&lifetimes).bytes)
    }

    /// Has what a capture under way allocates in its first pool from now on lie where a layout says.
    ///
    /// The arena is had at the first such allocation, as one contiguous place of the pool, after the
    /// pool's memory that nothing uses went back to the driver. From then on the n-th allocation gets
    /// the n-th place, as long as each asks for the same bytes on the same stream (by the order of
    /// streams' first blocks) and the place is free and proven for it like any other. From the first one on for which
    /// that is not so, blocks lie where they would have without a layout. The capture's end tells
    /// ([`CaptureReport::layout`](super::CaptureReport::layout)).
    ///
    /// # Errors
    /// [`Error::UnknownCapture`].
    pub fn follow_layout(&self, capture: CaptureId, layout: Layout) -> Result<(), Error> {
        self.change(|locked| {
            let slot = locked.state.slot_of(capture, "follow_layout")?;
            let capture_state = locked.state.capture(slot);
            capture_state.following =
                capture_state.pools.first().map(|&pool| Box::new(Following::new(pool, layout)));
            Ok(())
        })
    }
}
