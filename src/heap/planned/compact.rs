//! Compaction: pieces of several sizes become such as fit all graphs, at the same addresses.
//!
//! What holds a live block, is fixed, or belongs to a capture that others were beside stays as it is:
//! contents are never moved, and graphs that may run at once come to share nothing. All else is unmapped, and
//! then the heap is one that is short of a part: resuming it maps the new pieces.

use std::collections::BTreeMap;

use super::{Bound, Owner, Physical, PlannedCapture, PlannedHeap};
use crate::driver::{Driver, DriverError, MemoryHandle};
use crate::heap::suspend::NothingKept;
use crate::journal::{Compaction, Extent, FreedOutput, GraphMemory};
use crate::plan::{Compacted, Used, User};

/// A capture whose pieces may be exchanged.
struct Movable {
    /// Its row.
    capture: usize,
    /// By row of a piece: what lies behind it afterwards, new pieces one behind the other.
    parts: BTreeMap<usize, Vec<usize>>,
}

/// What graphs may exchange, and what they get for it.
pub(crate) struct Exchange {
    graphs: Vec<Movable>,
    /// By row of a piece: whether it goes.
    goes: Vec<bool>,
    /// Bytes of the pieces that only captures that are over have, without a live block: they need no new ones.
    unused: u64,
    /// Bytes of the other pieces that go.
    before: u64,
    /// The sizes of the new pieces, in bytes.
    after: Vec<u64>,
    /// The number of the first new piece; the others follow.
    first: u64,
}

impl Exchange {
    /// How many bytes less the new pieces have than those that graphs give up for them; 0 where they have more, since
    /// the search is no exact one. Then nothing is to be exchanged.
    pub(crate) fn saves(&self) -> u64 {
        self.before.saturating_sub(self.after.iter().sum())
    }

    /// How many bytes less graphs need than they hold: what an exchange saves, and what goes without one
    /// ([`PlannedHeap::release_unused`]).
    pub(crate) fn excess(&self) -> u64 {
        self.unused + self.saves()
    }
}

impl PlannedCapture {
    /// What a piece is to the graph, which lies on it at these places: runs of pages of so many bytes that
    /// held outputs until the same moment, or none.
    fn used(&self, places: &[&Bound], unit: u64) -> Vec<Used> {
        let bytes = places.first().map_or(0, |bound| bound.bytes);
        let mut pages = vec![None; (bytes / unit) as usize];
        for bound in places {
            for (start, output) in self.outputs_in((bound.address, bound.bytes)) {
                let from = start.saturating_sub(bound.address) / unit;
                let to = (start + output.bytes - bound.address).div_ceil(unit);
                let to = to.min(pages.len() as u64);
                let here = &mut pages[from as usize..to as usize];
                here.iter_mut().for_each(|page| *page = output.freed.max(*page));
            }
        }
        let runs = pages.chunk_by(|one, next| one == next);
        runs.map(|run| Used { bytes: run.len() as u64 * unit, freed: run[0] }).collect()
    }
}

impl PlannedHeap {
    /// Finds pieces for all graphs, in pages of `unit` bytes, as the device has them.
    pub(crate) fn exchange(&self, unit: u64) -> Exchange {
        let bindings = &self.bindings;
        let there = |row: usize| bindings.pieces[row].as_ref().filter(|it| it.memory.is_some());
        let every = 0..bindings.pieces.len();
        let mut unused: Vec<bool> = every.clone().map(|row| there(row).is_some()).collect();
        let mut goes: Vec<bool> =
            every.clone().map(|row| there(row).is_some_and(|it| it.fixed.is_none())).collect();
        for planned in &bindings.captures {
            let moves = planned.owner == Owner::Graph && !planned.beside;
            for bound in &planned.bound {
                let live = planned.is_live((bound.address, bound.bytes));
                unused[bound.piece] &= !live && planned.owner == Owner::Over;
                // What only a capture that is over has goes before.
                goes[bound.piece] &= !live && (moves || planned.owner == Owner::Over);
            }
        }
        let size = |row: usize| there(row).map_or(0, |piece| piece.bytes);
        let mut order: Vec<usize> = (0..bindings.captures.len()).collect();
        order.retain(|&row| bindings.captures[row].owner == Owner::Graph);
        order.sort_by_key(|&row| bindings.captures[row].moment);
        let (mut rows, mut users) = (Vec::new(), Vec::new());
        for capture in order {
            let planned = &bindings.captures[capture];
            let mut places: BTreeMap<usize, Vec<&Bound>> = BTreeMap::new();
            for bound in planned.bound.iter().filter(|bound| goes[bound.piece]) {
                places.entry(bound.piece).or_default().push(bound);
            }
            let mut pieces = Vec::new();
            let mut runs = Vec::new();
            for (row, places) in places {
                let used = planned.used(&places, unit);
                runs.push((row, used.len()));
                pieces.extend(used);
            }
            users.push(User { bound: planned.moment, pieces });
            rows.push((capture, runs));
        }
        let before = every.clone().filter(|&row| goes[row] && !unused[row]).map(size).sum();
        let unused = every.filter(|&row| unused[row]).map(size).sum();
        let Compacted { pieces: after, parts } = Compacted::new(&users);
        let mut graphs = Vec::with_capacity(rows.len());
        for ((capture, runs), parts) in rows.into_iter().zip(parts) {
            let mut parts = parts.into_iter();
            let whole = |(row, runs)| (row, parts.by_ref().take(runs).flatten().collect());
            graphs.push(Movable { capture, parts: runs.into_iter().map(whole).collect() });
        }
        Exchange { graphs, goes, unused, before, after, first: bindings.next }
    }

    /// What an exchange changes, for the checker.
    pub(crate) fn record(&self, exchange: &Exchange, unit: u64) -> Compaction {
        let bindings = &self.bindings;
        let number = |row: usize| bindings.pieces[row].as_ref().map_or(u64::MAX, |it| it.number);
        let mut graphs = Vec::with_capacity(bindings.captures.len());
        let mut kept: Vec<(u64, u64)> = self.ranges.ids().map(|id| self.extent(id)).collect();
        for (capture, planned) in bindings.captures.iter().enumerate() {
            let extent = |bound: &Bound| Extent {
                address: bound.address,
                bytes: bound.bytes,
                memory: number(bound.piece),
            };
            let fixed = |bound: &&Bound| {
                bindings.pieces[bound.piece].as_ref().is_some_and(|piece| piece.fixed.is_some())
            };
            let bound = planned.bound.iter();
            kept.extend(bound.clone().filter(fixed).map(|it| (it.address, it.bytes)));
            let graph = exchange.graphs.iter().find(|graph| graph.capture == capture);
            let mut after = Vec::new();
            for whole in bound.clone() {
                match graph.and_then(|graph| graph.parts.get(&whole.piece)) {
                    Some(parts) => {
                        let mut address = whole.address;
                        after.extend(parts.iter().map(|&part| {
                            let bytes = exchange.after[part];
                            address += bytes;
                            let memory = exchange.first + part as u64;
                            Extent { address: address - bytes, bytes, memory }
                        }));
                    }
                    None if exchange.goes[whole.piece] => {}
                    None => after.push(extent(whole)),
                }
            }
            let freed = planned.outputs.iter().filter_map(|(&address, output)| {
                Some(FreedOutput { address, bytes: output.bytes, freed: output.freed? })
            });
            graphs.push(GraphMemory {
                graph: planned.capture,
                planned: planned.moment,
                launches: planned.owner == Owner::Graph,
                beside: planned.beside,
                before: bound.map(extent).collect(),
                after,
                freed: freed.collect(),
            });
        }
        Compaction { unit, kept, graphs }
    }

    /// Carries an exchange out that was found just now. Nothing may use any of the memory meanwhile.
    ///
    /// # Errors
    /// The driver's. What is not mapped then ([`PlannedHeap::is_whole`]) resuming maps.
    pub(crate) fn compact<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        exchange: &Exchange,
    ) -> Result<(), DriverError> {
        let bindings = &mut self.bindings;
        for bound in bindings.captures.iter_mut().flat_map(|planned| &mut planned.bound) {
            if exchange.goes[bound.piece] && bound.there {
                driver.unmap(bound.address, bound.bytes)?;
                (bound.there, bound.open) = (false, false);
            }
        }
        for (bytes, memory) in self.enter(exchange) {
            self.reserved -= bytes;
            self.handles -= 1;
            if driver.release(memory).is_err() {
                self.orphans.push(memory);
            }
        }
        self.resume(driver, &mut NothingKept)
    }

    /// Puts the new pieces in the place of the old ones. Memory of the right size stays; returns the
    /// rest.
    fn enter(&mut self, exchange: &Exchange) -> Vec<(u64, MemoryHandle)> {
        let goes = &exchange.goes;
        let bindings = &mut self.bindings;
        let mut bounds: Vec<(usize, Vec<Bound>)> = Vec::new();
        let mut there: BTreeMap<u64, Vec<MemoryHandle>> = BTreeMap::new();
        for (piece, _) in bindings.pieces.iter_mut().zip(goes).filter(|(_, goes)| **goes) {
            if let Some(Physical { bytes, memory: Some(memory), .. }) = piece.take() {
                there.entry(bytes).or_default().push(memory);
            }
        }
        let mut rows = Vec::with_capacity(exchange.after.len());
        let mut free = (0..).filter(|row: &usize| goes.get(*row).is_none_or(|goes| *goes));
        for (number, &bytes) in (exchange.first..).zip(&exchange.after) {
            let memory = there.get_mut(&bytes).and_then(Vec::pop);
            if memory.is_none() {
                self.suspended += bytes;
            }
            bindings.next = number + 1;
            let row = free.next().unwrap_or(bindings.pieces.len());
            if bindings.pieces.len() <= row {
                bindings.pieces.resize_with(row + 1, || None);
            }
            bindings.pieces[row] =
                Some(Physical { number, bytes, memory, mappings: 0, fixed: None });
            rows.push(row);
        }
        for Movable { capture, parts } in &exchange.graphs {
            let mut bound = Vec::new();
            for whole in &bindings.captures[*capture].bound {
                let Some(parts) = parts.get(&whole.piece) else {
                    bound.push(*whole);
                    continue;
                };
                let mut address = whole.address;
                for &part in parts {
                    let Some(piece) = bindings.pieces[rows[part]].as_mut() else { continue };
                    piece.mappings += 1;
                    let bytes = piece.bytes;
                    bound.push(Bound { address, bytes, piece: rows[part], ..*whole });
                    address += bytes;
                }
            }
            bounds.push((*capture, bound));
        }
        // What captures that are over could not unmap before has gone with the rest.
        for planned in bindings.captures.iter_mut().filter(|it| it.owner != Owner::Graph) {
            planned.bound.retain(|bound| !goes[bound.piece]);
        }
        for (capture, bound) in bounds {
            bindings.captures[capture].bound = bound;
        }
        let left = there.into_iter();
        left.flat_map(|(bytes, all)| all.into_iter().map(move |it| (bytes, it))).collect()
    }
}
