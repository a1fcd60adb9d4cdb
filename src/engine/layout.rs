//! The calls about captures that lie by a layout.

use std::collections::HashSet;

use super::follow::Following;
use super::{Engine, Error};
use crate::driver::{CaptureId, Driver};
use crate::journal::Entry;
use crate::layout::Layout;
use crate::lifetimes::Lifetimes;
use crate::minimum::Minimum;

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
            let unknown = Error::UnknownCapture { call: CALL, capture };
            let slot = state.slot(capture).ok_or(unknown)?;
            state.last_looks(&self.driver, slot);
            let recording = state.recording(slot);
            let no_journal = Error::NoJournal { call: CALL, capture };
            let journal = recording.journal.clone().ok_or(no_journal)?;
            let pool = recording.pools.first().copied();
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
        self.change(|state| {
            let unknown = Error::UnknownCapture { call: "follow_layout", capture };
            let slot = state.slot(capture).ok_or(unknown)?;
            let recording = state.recording(slot);
            recording.following =
                recording.pools.first().map(|&pool| Box::new(Following::new(pool, layout)));
            Ok(())
        })
    }
}
