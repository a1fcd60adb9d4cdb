//! Compaction: pieces of several sizes become such as fit all graphs, at the same addresses.
//!
//! What holds a live block, is fixed, or belongs to a capture that others were beside stays as it is:
//! contents are never moved, and graphs that may run at once come to share nothing. All else is unmapped, and
//! then the heap is one that is suspended in part: resuming it maps the new pieces.

use std::collections::BTreeMap;

use super::{Bound, Owner, Physical, PlannedHeap};
use crate::driver::{Driver, DriverError, MemoryHandle};
use crate::plan::{Compacted, Used, User};

/// A capture's row, and the rows of its pieces that may be exchanged.
type Movable = (usize, Vec<usize>);

/// What graphs may exchange, and what they get for it.
struct Exchange {
    graphs: Vec<Movable>,
    /// By row of a piece: whether it goes.
    goes: Vec<bool>,
    before: u64,
    after: Compacted,
}

impl Exchange {
    fn saves(&self) -> u64 {
        self.before.saturating_sub(self.after.bytes())
    }
}

impl PlannedHeap {
    /// How many bytes [`PlannedHeap::compact`] would give back.
    pub(crate) fn excess(&self) -> u64 {
        self.exchange().saves()
    }

    fn exchange(&self) -> Exchange {
        let bindings = &self.bindings;
        let may_go = |piece: &Option<Physical>| {
            piece.as_ref().is_some_and(|piece| !piece.fixed && piece.memory.is_some())
        };
        let mut goes: Vec<bool> = bindings.pieces.iter().map(may_go).collect();
        for planned in &bindings.captures {
            let moves = planned.owner == Owner::Graph && !planned.beside;
            for bound in &planned.bound {
                let live = planned.is_live((bound.address, bound.bytes));
                // What only a capture that is over has goes before.
                goes[bound.piece] &= !live && (moves || planned.owner == Owner::Over);
            }
        }
        let size = |row: usize| bindings.pieces[row].as_ref().map_or(0, |piece| piece.bytes);
        let mut order: Vec<usize> = (0..bindings.captures.len()).collect();
        order.sort_by_key(|&row| bindings.captures[row].moment);
        let (mut graphs, mut users) = (Vec::new(), Vec::new());
        for capture in order {
            let planned = &bindings.captures[capture];
            if planned.owner != Owner::Graph {
                continue;
            }
            let mut rows: Vec<usize> = Vec::new();
            let mut freed: BTreeMap<usize, Option<u64>> = BTreeMap::new();
            for bound in planned.bound.iter().filter(|bound| goes[bound.piece]) {
                let latest = freed.entry(bound.piece).or_insert_with(|| {
                    rows.push(bound.piece);
                    None
                });
                *latest = (*latest).max(bound.freed);
            }
            let used = |row: &usize| Used { bytes: size(*row), freed: freed[row] };
            users.push(User { bound: planned.moment, pieces: rows.iter().map(used).collect() });
            graphs.push((capture, rows));
        }
        let before = (0..goes.len()).filter(|&row| goes[row]).map(size).sum();
        Exchange { graphs, goes, before, after: Compacted::new(&users) }
    }

    /// Has graphs share more, where that needs less memory. Returns how many bytes went. Nothing may
    /// use any of it meanwhile.
    ///
    /// # Errors
    /// The driver's. What is not mapped then ([`PlannedHeap::is_whole`]) resuming maps.
    pub(crate) fn compact<D: Driver + ?Sized>(&mut self, driver: &D) -> Result<u64, DriverError> {
        let before = self.reserved;
        self.release_unused(driver);
        let exchange = self.exchange();
        if exchange.saves() == 0 {
            return Ok(before - self.reserved);
        }
        let bindings = &mut self.bindings;
        for bound in bindings.captures.iter_mut().flat_map(|planned| &mut planned.bound) {
            if exchange.goes[bound.piece] && bound.there {
                driver.unmap(bound.address, bound.bytes)?;
                (bound.there, bound.open) = (false, false);
            }
        }
        let left = self.enter(exchange);
        for (bytes, memory) in left {
            self.reserved -= bytes;
            self.handles -= 1;
            if driver.release(memory).is_err() {
                self.orphans.push(memory);
            }
        }
        self.resume(driver)?;
        Ok(before - self.reserved)
    }

    /// Puts the new pieces in the place of the old ones. Memory of the right size stays; returns the
    /// rest.
    fn enter(&mut self, exchange: Exchange) -> Vec<(u64, MemoryHandle)> {
        let Exchange { graphs, goes, after, .. } = exchange;
        let bindings = &mut self.bindings;
        let mut there: BTreeMap<u64, Vec<MemoryHandle>> = BTreeMap::new();
        for (piece, _) in bindings.pieces.iter_mut().zip(&goes).filter(|(_, goes)| **goes) {
            if let Some(Physical { bytes, memory: Some(memory), .. }) = piece.take() {
                there.entry(bytes).or_default().push(memory);
            }
        }
        let mut rows = Vec::with_capacity(after.pieces.len());
        let mut free = (0..).filter(|row: &usize| goes.get(*row).is_none_or(|goes| *goes));
        for &bytes in &after.pieces {
            let memory = there.get_mut(&bytes).and_then(Vec::pop);
            if memory.is_none() {
                self.suspended += bytes;
            }
            let number = bindings.next;
            bindings.next += 1;
            let row = free.next().unwrap_or(bindings.pieces.len());
            if bindings.pieces.len() <= row {
                bindings.pieces.resize_with(row + 1, || None);
            }
            bindings.pieces[row] =
                Some(Physical { number, bytes, memory, mappings: 0, fixed: false });
            rows.push(row);
        }
        for planned in bindings.captures.iter_mut().filter(|planned| planned.owner != Owner::Graph)
        {
            planned.bound.retain(|bound| !goes[bound.piece]);
        }
        for ((capture, own), parts) in graphs.into_iter().zip(after.parts) {
            let parts: BTreeMap<usize, Vec<usize>> = own.into_iter().zip(parts).collect();
            let planned = &mut bindings.captures[capture];
            let mut bound = Vec::new();
            for whole in std::mem::take(&mut planned.bound) {
                let Some(parts) = parts.get(&whole.piece) else {
                    bound.push(whole);
                    continue;
                };
                let mut address = whole.address;
                for &part in parts {
                    let Some(piece) = bindings.pieces[rows[part]].as_mut() else { continue };
                    piece.mappings += 1;
                    let bytes = piece.bytes;
                    bound.push(Bound { address, bytes, piece: rows[part], ..whole });
                    address += bytes;
                }
            }
            planned.bound = bound;
        }
        there
            .into_iter()
            .flat_map(|(bytes, all)| all.into_iter().map(move |it| (bytes, it)))
            .collect()
    }
}
