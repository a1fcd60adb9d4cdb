//! Memory behind addresses: a plan is carried out, the memory goes and comes again as in [`Heap`](crate::heap::Heap)s,
//! and what no block and no graph needs any more is released.
//!
//! **Compaction** (design/plans.md) exchanges pieces. What holds a live block, is fixed, or belongs to a capture that
//! others were beside stays. All else is unmapped, and the heap is short of a part: resuming it maps the new pieces.

use std::collections::BTreeMap;

use super::{Bound, Owner, Physical, PlannedCapture, PlannedHeap};
use crate::driver::{CaptureId, Driver, DriverError, MemoryHandle};
use crate::heap::segment::{create, Access};
use crate::heap::suspend::{runs, Keeper, NothingKept, Pieces, Presence};
use crate::journal::{Compaction, Entry, Extent, FreedOutput, GraphMemory};
use crate::plan::{Compacted, Held, Plan, Used, User};

/// A plan with its pieces.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    plan: Plan,
    /// Of each piece of the plan: its row, unless the piece is new, and its number.
    pieces: Vec<(Option<usize>, u64)>,
}

impl Prepared {
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl PlannedHeap {
    /// Whether a block of the capture whose memory is still to come begins at an address.
    pub(crate) fn is_to_be_bound(&self, capture: CaptureId, address: u64) -> bool {
        let planned = self.capture(capture);
        planned.is_some_and(|planned| {
            let mut bound = planned.bound.iter().map(|it| it.address..it.address + it.bytes);
            planned.owns(address) && !bound.any(|bound| bound.contains(&address))
        })
    }

    /// Pieces that graphs of the pool use and that hold nothing which must last: their rows, and what plans are told.
    /// What lasts may lie on a piece if the host has freed an output there of each graph that overwrites the piece.
    pub(crate) fn sharable(&self) -> (Vec<usize>, Vec<Held>) {
        let mut sharable = (Vec::new(), Vec::new());
        let mut lasts = vec![false; self.pieces.len()];
        // What only planned captures that are over have may go before the plan is carried out.
        let mut stays = vec![false; self.pieces.len()];
        let mut overwritten = vec![false; self.pieces.len()];
        for planned in &self.captures {
            for bound in &planned.bound {
                lasts[bound.piece] |= planned.is_live((bound.address, bound.bytes));
            }
            for (row, freed) in planned.written() {
                stays[row] = true;
                overwritten[row] |= !freed;
            }
        }
        for (row, piece) in self.pieces.iter().enumerate() {
            let wanted = |it: &&Physical| it.fixed.is_none() && !lasts[row] && stays[row];
            let Some(piece) = piece.as_ref().filter(wanted) else {
                continue;
            };
            sharable.0.push(row);
            sharable.1.push(Held { bytes: piece.bytes, lasting: !overwritten[row] });
        }
        sharable
    }

    /// Gives a plan's new pieces numbers; `sharable` are the rows of those that the plan was told of.
    pub(crate) fn prepare(&mut self, plan: Plan, sharable: &[usize]) -> Prepared {
        let mut new = self.next..;
        let piece = |held: Option<u32>| match held.map(|held| sharable[held as usize]) {
            Some(row) => (Some(row), self.piece(row).number),
            None => (None, new.next().unwrap_or(u64::MAX)),
        };
        let pieces = plan.pieces.iter().map(|it| it.held).map(piece).collect();
        self.moment += 1;
        Prepared { plan, pieces }
    }

    /// What a capture's record is to say: where the plan puts what, and what other captures and graphs have in the
    /// pieces. Each heap numbers its own pieces, so in the record the heap's number stands above the lower 40 bits.
    pub(crate) fn entries(
        &self,
        capture: CaptureId,
        prepared: &Prepared,
        heap: u32,
    ) -> Vec<Entry<'static>> {
        let Prepared { plan, pieces } = prepared;
        let memory = |number: u64| u64::from(heap) << 40 | number;
        let bound = |address, bytes, memory| Entry::Bound { address, bytes, memory, offset: 0 };
        let piece = |row: usize| {
            self.pieces[row].as_ref().map_or((u64::MAX, 0), |it| (memory(it.number), it.bytes))
        };
        let planned = plan.mappings.iter().map(|mapping| {
            let row = mapping.piece as usize;
            bound(mapping.address, plan.pieces[row].bytes, memory(pieces[row].1))
        });
        let mut entries: Vec<Entry> = planned.collect();
        let mut written = Vec::new();
        for planned in self.captures.iter().filter(|planned| planned.capture != capture) {
            for &Bound { address, bytes, piece: row, .. } in &planned.bound {
                if planned.is_live((address, bytes)) {
                    entries.push(bound(address, bytes, piece(row).0));
                }
            }
            let rows = planned.written().into_iter();
            written.extend(rows.map(|(row, freed)| (planned.capture, piece(row), freed)));
        }
        let shared = |&(graph, (memory, bytes), _): &_| Entry::Shared { memory, bytes, graph };
        entries.extend(written.iter().map(shared));
        let freed = written.into_iter().filter(|&(.., freed)| freed);
        entries.extend(freed.map(|(graph, (memory, _), _)| Entry::OutputFreed { memory, graph }));
        entries
    }

    /// Maps what the plan of a capture says, whose scratch memory has gone. From then on the capture is its graph's.
    /// Nothing was entered since the plan was [prepared](PlannedHeap::prepare). `beside` tells whether other captures
    /// were under way meanwhile. After an error of the driver's the blocks have no memory.
    pub(crate) fn bind(
        &mut self,
        driver: &impl Driver,
        capture: CaptureId,
        prepared: &Prepared,
        beside: bool,
    ) -> Result<(), DriverError> {
        let Some(row) = self.row(capture) else { return Ok(()) };
        let Prepared { plan, pieces } = prepared;
        let rows = plan.pieces.iter().zip(pieces).map(|(piece, &(row, _))| match row {
            Some(row) => Ok(row),
            None => Ok(self.enter_piece(piece.bytes, driver.create(piece.bytes)?, None)),
        });
        let rows: Result<Vec<usize>, DriverError> = rows.collect();
        let done = rows.and_then(|pieces| {
            let mut places = Vec::with_capacity(plan.mappings.len());
            for mapping in &plan.mappings {
                let (address, piece) = (mapping.address, pieces[mapping.piece as usize]);
                let &mut Physical { bytes, memory, .. } = self.piece(piece);
                driver.map(
                    address,
                    bytes,
                    memory.expect("captures end in pools that are awake"),
                )?;
                let bound = Bound { address, bytes, piece, access: Access::Open };
                self.captures[row].bound.push(bound);
                places.push((address, bytes));
            }
            // Neighbours in one call.
            let mut runs = runs(&places);
            runs.try_for_each(|((address, bytes), _)| driver.set_access(address, bytes))
        });
        if done.is_err() {
            self.unbind(driver, row);
            self.release_pieces(driver);
        } else {
            let planned = &mut self.captures[row];
            planned.owned_by(Owner::Graph);
            planned.moment = self.moment;
            planned.beside = beside;
        }
        done
    }

    /// A capture's graph never was, or is gone. What its live blocks lie on stays until they are freed.
    /// [`PlannedHeap::release_unused`] gives the rest back.
    pub(crate) fn end_graph(&mut self, capture: CaptureId) {
        if let Some(planned) = self.capture_mut(capture) {
            planned.owned_by(Owner::Over);
        }
    }

    /// A capture has a graph from now on, also if its memory never came. Returns whether it has any blocks here.
    pub(crate) fn keep_graph(&mut self, capture: CaptureId) -> bool {
        self.capture_mut(capture).map(|planned| planned.owned_by(Owner::Graph)).is_some()
    }

    /// Gives back what is not used any more: mappings of captures that are over without live blocks, pieces that are
    /// mapped nowhere, and with `addresses` those of captures without either. What the driver does not take stays for the
    /// next time.
    pub(crate) fn release_unused(&mut self, driver: &impl Driver, addresses: bool) {
        let _ = self.holding.release_orphans(driver);
        for row in 0..self.captures.len() {
            if self.captures[row].owner == Owner::Over {
                self.unbind(driver, row);
                let _ = self.clear_scratch(driver, row);
            }
        }
        self.release_pieces(driver);
        let is_done = |planned: &mut PlannedCapture| {
            let mapped = planned.bound.len() + planned.scratch_at.len();
            addresses && planned.owner == Owner::Over && planned.held == 0 && mapped == 0
        };
        for segment in self.captures.extract_if(.., is_done).flat_map(|it| it.segments) {
            // Addresses that cannot be given back cost no memory.
            let _ = segment.unreserve(driver);
        }
    }

    /// Unmaps what a capture has mapped. What holds live blocks of a capture that is over stays, and what is fixed of
    /// one that is not.
    fn unbind(&mut self, driver: &impl Driver, row: usize) {
        let planned = &mut self.captures[row];
        let is_over = planned.owner == Owner::Over;
        let mut bound = std::mem::take(&mut planned.bound);
        bound.retain(|&Bound { address, bytes, piece, access }| {
            let fixed = self.pieces[piece].as_ref().is_some_and(|piece| piece.fixed.is_some());
            // Nodes of a capture that may still stand use what is fixed, freed or not.
            let kept = if is_over { planned.is_live((address, bytes)) } else { fixed };
            kept || (access != Access::Unmapped && driver.unmap(address, bytes).is_err())
        });
        planned.bound = bound;
    }

    /// Releases pieces that lie at no addresses. Costs a look at each address that a piece lies at.
    fn release_pieces(&mut self, driver: &impl Driver) {
        let mut unused = vec![true; self.pieces.len()];
        let bound = self.captures.iter().flat_map(|planned| &planned.bound);
        bound.for_each(|bound| unused[bound.piece] = false);
        for (piece, _) in self.pieces.iter_mut().zip(unused).filter(|(_, unused)| *unused) {
            let Some(Physical { bytes, memory, .. }) = piece.take() else { continue };
            let Some(memory) = memory else {
                self.holding.resume(bytes);
                continue;
            };
            self.holding.went(bytes, 1);
            self.holding.release(driver, memory);
        }
    }

    /// Gives everything back to the driver. Returns the first error of what it keeps.
    pub(crate) fn close(mut self, driver: &impl Driver) -> Result<(), DriverError> {
        for planned in &mut self.captures {
            planned.owner = Owner::Over;
            planned.blocks.clear();
            planned.held = 0;
        }
        self.release_unused(driver, true);
        let segments = self.captures.iter_mut().flat_map(|planned| &mut planned.segments);
        let closed = segments.map(|segment| segment.close(driver)).fold(Ok(()), Result::and);
        closed.and(self.holding.release_orphans(driver))
    }

    /// How many blocks were given back and may still be in use.
    pub(crate) fn unsettled(&self) -> usize {
        self.holding.waiting().0
    }

    /// Whether all bound addresses have memory.
    pub(crate) fn is_whole(&self) -> bool {
        let captures = self.captures.iter();
        captures.flat_map(|planned| &planned.bound).all(|bound| bound.access == Access::Open)
    }

    /// As [`Heap::tell_there`](crate::heap::Heap::tell_there).
    pub(crate) fn tell_there(&self, keeper: &mut dyn Keeper) {
        let bound = self.captures.iter().flat_map(|planned| &planned.bound);
        let open = bound.filter(|bound| bound.access == Access::Open);
        open.for_each(|it| keeper.came(it.address, it.bytes));
    }

    /// Gives the memory of all pieces back, as far as `keeper` and `left` let it. Returns whether all has gone. After
    /// an error of the driver's the heap is suspended if anything that the device could use was unmapped.
    pub(crate) fn suspend(
        &mut self,
        driver: &impl Driver,
        keeper: &mut dyn Keeper,
        left: &mut Pieces,
    ) -> Result<bool, DriverError> {
        let _ = self.holding.release_orphans(driver);
        for row in 0..self.captures.len() {
            if self.captures[row].owner != Owner::Capture {
                self.clear_scratch(driver, row)?;
            }
        }
        for bound in self.captures.iter_mut().flat_map(|planned| &mut planned.bound) {
            if bound.access != Access::Unmapped {
                if !left.take() || !keeper.may_leave(bound.address, bound.bytes) {
                    return Ok(false);
                }
                driver.unmap(bound.address, bound.bytes)?;
                if std::mem::replace(&mut bound.access, Access::Unmapped) == Access::Open {
                    *self.holding.presence_mut() = Presence::Suspended;
                }
            }
        }
        for piece in self.pieces.iter_mut().flatten() {
            let Some(memory) = piece.memory else { continue };
            if !left.take() {
                return Ok(false);
            }
            driver.release(memory)?;
            piece.memory = None;
            self.holding.went(piece.bytes, 1);
            self.holding.suspend(piece.bytes);
        }
        Ok(true)
    }

    /// Gets it again, as far as `left` lets it. Returns whether all has come.
    pub(crate) fn resume(
        &mut self,
        driver: &impl Driver,
        keeper: &mut dyn Keeper,
        left: &mut Pieces,
    ) -> Result<bool, DriverError> {
        for piece in self.pieces.iter_mut().flatten().filter(|piece| piece.memory.is_none()) {
            if !left.take() {
                return Ok(false);
            }
            let exportable = piece.fixed.is_some() && self.exportable;
            piece.memory = Some(create(driver, exportable, piece.bytes)?);
            self.holding.came(piece.bytes, 1);
            self.holding.resume(piece.bytes);
        }
        let pieces = &self.pieces;
        let memory = |row: usize| pieces[row].as_ref().and_then(|piece| piece.memory);
        for bound in self.captures.iter_mut().flat_map(|planned| &mut planned.bound) {
            let &mut Bound { address, bytes, piece, access } = bound;
            let Some(memory) = memory(piece).filter(|_| access != Access::Open) else { continue };
            if !left.take() {
                return Ok(false);
            }
            if access == Access::Unmapped {
                driver.map(address, bytes, memory)?;
                bound.access = Access::Mapped;
            }
            driver.set_access(address, bytes)?;
            bound.access = Access::Open;
            keeper.came(address, bytes);
        }
        Ok(true)
    }

    /// Finds pieces for all graphs, in pages of `unit` bytes, as the device has them.
    pub(crate) fn exchange(&self, unit: u64) -> Exchange {
        let there = |row: usize| self.pieces[row].as_ref().filter(|it| it.memory.is_some());
        let every = 0..self.pieces.len();
        let mut unused: Vec<bool> = every.clone().map(|row| there(row).is_some()).collect();
        let mut goes: Vec<bool> =
            every.clone().map(|row| there(row).is_some_and(|it| it.fixed.is_none())).collect();
        for planned in &self.captures {
            let moves = planned.owner == Owner::Graph && !planned.beside;
            for bound in &planned.bound {
                let live = planned.is_live((bound.address, bound.bytes));
                unused[bound.piece] &= !live && planned.owner == Owner::Over;
                // What only a capture that is over has goes before.
                goes[bound.piece] &= !live && (moves || planned.owner == Owner::Over);
            }
        }
        let size = |row: usize| there(row).map_or(0, |piece| piece.bytes);
        let (mut rows, mut users) = (Vec::new(), Vec::new());
        let captures = self.captures.iter().enumerate();
        for (capture, planned) in captures.filter(|(_, it)| it.owner == Owner::Graph) {
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
        let Compacted { pieces: sizes, parts } = Compacted::new(&users);
        let free = (0..).filter(|row: &usize| goes.get(*row).is_none_or(|goes| *goes));
        let new: Vec<(usize, u64)> = free.zip(sizes).collect();
        let mut parts_of = BTreeMap::new();
        for ((capture, runs), parts) in rows.into_iter().zip(parts) {
            let mut parts = parts.into_iter();
            for (row, runs) in runs {
                let of_piece: Vec<usize> = parts.by_ref().take(runs).flatten().collect();
                parts_of.insert((capture, row), of_piece);
            }
        }
        let mut after = vec![Vec::new(); self.captures.len()];
        for (capture, (planned, after)) in self.captures.iter().zip(&mut after).enumerate() {
            for bound in &planned.bound {
                let Some(parts) = parts_of.get(&(capture, bound.piece)) else {
                    after.extend((!goes[bound.piece]).then_some(*bound));
                    continue;
                };
                // New pieces, one behind the other.
                let mut address = bound.address;
                for &(piece, bytes) in parts.iter().map(|&part| &new[part]) {
                    after.push(Bound { address, bytes, piece, access: Access::Unmapped });
                    address += bytes;
                }
            }
        }
        let new = new.into_iter().zip(self.next..);
        let new = new.map(|((row, bytes), number)| (row, (number, bytes))).collect();
        Exchange { after, goes, unused, before, new }
    }

    /// What an exchange changes, for the checker.
    pub(crate) fn record(&self, exchange: &Exchange, unit: u64) -> Compaction {
        let number = |row: usize| self.pieces[row].as_ref().map_or(u64::MAX, |it| it.number);
        let new = |row: usize| exchange.new.get(&row).map(|&(number, _)| number);
        let mut graphs = Vec::with_capacity(self.captures.len());
        let mut kept: Vec<(u64, u64)> = self.ranges.ids().map(|id| self.extent(id)).collect();
        for (planned, after) in self.captures.iter().zip(&exchange.after) {
            let extent = |&Bound { address, bytes, .. }: &Bound, memory: u64| Extent {
                address,
                bytes,
                memory,
            };
            let fixed = |bound: &&Bound| {
                self.pieces[bound.piece].as_ref().is_some_and(|piece| piece.fixed.is_some())
            };
            let bound = planned.bound.iter();
            kept.extend(bound.clone().filter(fixed).map(|it| (it.address, it.bytes)));
            let memory = |row: usize| new(row).unwrap_or_else(|| number(row));
            let freed = planned.blocks.iter().filter_map(|(&address, block)| {
                Some(FreedOutput { address, bytes: block.bytes, freed: block.freed()? })
            });
            graphs.push(GraphMemory {
                graph: planned.capture,
                planned: planned.moment,
                launches: planned.owner == Owner::Graph,
                beside: planned.beside,
                before: bound.map(|it| extent(it, number(it.piece))).collect(),
                after: after.iter().map(|it| extent(it, memory(it.piece))).collect(),
                freed: freed.collect(),
            });
        }
        Compaction { unit, kept, graphs }
    }

    /// Carries an exchange out that was found just now. Nothing may use any of the memory meanwhile. After an error of
    /// the driver's, resuming maps what is not mapped ([`PlannedHeap::is_whole`]).
    pub(crate) fn compact(
        &mut self,
        driver: &impl Driver,
        exchange: &Exchange,
    ) -> Result<(), DriverError> {
        for bound in self.captures.iter_mut().flat_map(|planned| &mut planned.bound) {
            if exchange.goes[bound.piece] {
                driver.unmap(bound.address, bound.bytes)?;
                bound.access = Access::Unmapped;
            }
        }
        for (bytes, memory) in self.enter(exchange) {
            self.holding.went(bytes, 1);
            self.holding.release(driver, memory);
        }
        self.resume(driver, &mut NothingKept, &mut Pieces::all()).map(|_| ())
    }

    /// Puts the new pieces in the place of the old ones. Memory of the right size stays; returns the rest.
    fn enter(&mut self, exchange: &Exchange) -> Vec<(u64, MemoryHandle)> {
        let goes = &exchange.goes;
        let mut there: BTreeMap<u64, Vec<MemoryHandle>> = BTreeMap::new();
        for (piece, _) in self.pieces.iter_mut().zip(goes).filter(|(_, goes)| **goes) {
            if let Some(Physical { bytes, memory: Some(memory), .. }) = piece.take() {
                there.entry(bytes).or_default().push(memory);
            }
        }
        for (&row, &(number, bytes)) in &exchange.new {
            let memory = there.get_mut(&bytes).and_then(Vec::pop);
            if memory.is_none() {
                self.holding.suspend(bytes);
            }
            self.next = number + 1;
            if self.pieces.len() <= row {
                self.pieces.resize_with(row + 1, || None);
            }
            self.pieces[row] = Some(Physical { number, bytes, memory, fixed: None });
        }
        // What captures that are over could not unmap before has gone with the rest.
        for (planned, after) in self.captures.iter_mut().zip(&exchange.after) {
            planned.bound.clone_from(after);
        }
        let left = there.into_iter();
        left.flat_map(|(bytes, all)| all.into_iter().map(move |it| (bytes, it))).collect()
    }
}

/// What graphs may exchange, and what they get for it.
pub(crate) struct Exchange {
    /// By row of a capture: what lies at its addresses afterwards.
    after: Vec<Vec<Bound>>,
    /// By row of a piece: whether it goes.
    goes: Vec<bool>,
    /// Bytes of the pieces that only captures that are over have, without a live block: they need no new ones.
    unused: u64,
    /// Bytes of the other pieces that go.
    before: u64,
    /// By row of a new piece: its number, and its size in bytes.
    new: BTreeMap<usize, (u64, u64)>,
}

impl Exchange {
    /// How many bytes less the new pieces have than those that go for them; 0 where nothing is to be exchanged.
    pub(crate) fn saves(&self) -> u64 {
        self.before.saturating_sub(self.new.values().map(|(_, bytes)| bytes).sum())
    }

    /// How many bytes less graphs need than they hold: what an exchange saves, and what goes without one.
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
            for (start, block) in self.blocks_in((bound.address, bound.bytes)) {
                let from = start.saturating_sub(bound.address) / unit;
                let to = (start + block.bytes - bound.address).div_ceil(unit);
                let to = to.min(pages.len() as u64);
                let here = &mut pages[from as usize..to as usize];
                here.iter_mut().for_each(|page| *page = block.freed().max(*page));
            }
        }
        let runs = pages.chunk_by(|one, next| one == next);
        runs.map(|run| Used { bytes: run.len() as u64 * unit, freed: run[0] }).collect()
    }
}
