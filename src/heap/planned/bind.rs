//! A plan carried out.

use super::{Bound, Live, Output, Owner, Physical, PlannedHeap};
use crate::driver::{CaptureId, Driver, DriverError};
use crate::plan::{Held, Plan};

/// Addresses that lie on physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// The number of the memory; the addresses begin where it begins.
    pub(crate) memory: u64,
}

/// Pieces that plans may be told of: their rows, and what plans are told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sharable {
    rows: Vec<usize>,
    pub(crate) held: Vec<Held>,
}

/// What lies on memory that other graphs use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    /// Their live blocks.
    pub(crate) live: Vec<Placement>,
    /// Which graph overwrites which memory: the number of the memory, and its size.
    pub(crate) written: Vec<(CaptureId, u64, u64)>,
    /// On which memory the host has freed an output of which graph.
    pub(crate) freed: Vec<(CaptureId, u64)>,
}

/// A plan with the numbers of its pieces.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    plan: Plan,
    rows: Vec<Option<usize>>,
    /// By piece.
    numbers: Vec<u64>,
    /// How many plans there were with it.
    moment: u64,
}

impl Prepared {
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where everything will lie.
    pub(crate) fn placements(&self) -> impl Iterator<Item = Placement> + '_ {
        self.plan.mappings.iter().map(|mapping| {
            let piece = mapping.piece as usize;
            let bytes = self.plan.pieces[piece].bytes;
            Placement { address: mapping.address, bytes, memory: self.numbers[piece] }
        })
    }
}

impl PlannedHeap {
    /// Whether a block of the capture whose memory is still to come begins at an address.
    pub(crate) fn is_to_be_bound(&self, capture: CaptureId, address: u64) -> bool {
        let planned = self.bindings.capture(capture);
        planned.is_some_and(|planned| {
            let fixed =
                |bound: &&Bound| (bound.address..bound.address + bound.bytes).contains(&address);
            planned.owns(address) && planned.bound.iter().find(fixed).is_none()
        })
    }

    /// Pieces that graphs of the pool use and that hold nothing which must last. What lasts may lie on
    /// those that no graph overwrites but graphs whose output there the host has freed.
    pub(crate) fn sharable(&self) -> Sharable {
        let mut sharable = Sharable::default();
        let bindings = &self.bindings;
        let mut lasts = vec![false; bindings.pieces.len()];
        // What only planned captures that are over have may go before the plan is carried out.
        let mut stays = vec![false; bindings.pieces.len()];
        let mut overwritten = vec![false; bindings.pieces.len()];
        for planned in &bindings.captures {
            for bound in &planned.bound {
                lasts[bound.piece] |= planned.is_live((bound.address, bound.bytes));
            }
            for (row, freed) in planned.written() {
                stays[row] = true;
                overwritten[row] |= !freed;
            }
        }
        for (row, piece) in bindings.pieces.iter().enumerate() {
            let wanted = |it: &&Physical| it.fixed.is_none() && !lasts[row] && stays[row];
            let Some(piece) = piece.as_ref().filter(wanted) else {
                continue;
            };
            sharable.rows.push(row);
            sharable.held.push(Held { bytes: piece.bytes, lasting: !overwritten[row] });
        }
        sharable
    }

    /// What other captures and graphs have in the pieces.
    pub(crate) fn others(&self, but: CaptureId) -> Others {
        let mut others = Others::default();
        let bindings = &self.bindings;
        let piece = |row: usize| {
            bindings.pieces[row].as_ref().map_or((u64::MAX, 0), |it| (it.number, it.bytes))
        };
        for planned in bindings.captures.iter().filter(|planned| planned.capture != but) {
            for &Bound { address, bytes, piece: row, .. } in &planned.bound {
                if planned.is_live((address, bytes)) {
                    others.live.push(Placement { address, bytes, memory: piece(row).0 });
                }
            }
            for (row, freed) in planned.written() {
                let (memory, bytes) = piece(row);
                others.written.push((planned.capture, memory, bytes));
                if freed {
                    others.freed.push((planned.capture, memory));
                }
            }
        }
        others
    }

    /// Gives a plan's new pieces numbers.
    pub(crate) fn prepare(&mut self, plan: Plan, sharable: &Sharable) -> Prepared {
        let rows: Vec<_> = plan
            .pieces
            .iter()
            .map(|piece| piece.held.map(|held| sharable.rows[held as usize]))
            .collect();
        let bindings = &mut self.bindings;
        let mut next = bindings.next;
        let numbers = rows.iter().map(|row| match row {
            Some(row) => bindings.piece(*row).number,
            None => {
                next += 1;
                next - 1
            }
        });
        let numbers = numbers.collect();
        bindings.moment += 1;
        Prepared { plan, rows, numbers, moment: bindings.moment }
    }

    /// Takes the scratch memory of a capture away and maps what the plan says. From then on the capture
    /// is its graph's. `numbers` were given by [`PlannedHeap::prepare`], and nothing was entered since.
    /// `beside` tells whether other captures were under way meanwhile.
    ///
    /// # Errors
    /// The driver's. The blocks have no memory then.
    pub(crate) fn bind<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        prepared: &Prepared,
        beside: bool,
    ) -> Result<(), DriverError> {
        self.clear_scratch(driver, capture)?;
        let Prepared { plan, rows, moment, .. } = prepared;
        let mut pieces = Vec::with_capacity(rows.len());
        let mut new = Vec::new();
        for (piece, row) in plan.pieces.iter().zip(rows) {
            let row = match row {
                Some(row) => *row,
                None => match driver.create(piece.bytes) {
                    Ok(memory) => {
                        let row = self.enter_piece(piece.bytes, memory, None);
                        new.push(row);
                        row
                    }
                    Err(error) => {
                        self.drop_unmapped(driver, &new);
                        return Err(error);
                    }
                },
            };
            pieces.push(row);
        }
        let done = self.map_all(driver, capture, plan, &pieces);
        if done.is_err() {
            self.unbind(driver, capture);
            self.drop_unmapped(driver, &new);
        }
        done?;
        if let Some(planned) = self.bindings.capture_mut(capture) {
            planned.owned_by(Owner::Graph);
            let outputs = planned.live.iter().filter(|(_, live)| !live.freed);
            let output = |(&address, live): (&u64, &Live)| {
                (address, Output { bytes: live.bytes, freed: None })
            };
            planned.outputs = outputs.map(output).collect();
            planned.moment = *moment;
            planned.beside = beside;
        }
        Ok(())
    }

    fn map_all<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        plan: &Plan,
        pieces: &[usize],
    ) -> Result<(), DriverError> {
        let bindings = &mut self.bindings;
        let mut stretch: Option<(u64, u64)> = None;
        for mapping in &plan.mappings {
            let row = pieces[mapping.piece as usize];
            let piece = bindings.piece(row);
            let &mut Physical { bytes, memory, .. } = piece;
            let memory = memory.expect("captures end in pools that are awake");
            driver.map(mapping.address, bytes, memory)?;
            piece.mappings += 1;
            if let Some(planned) = bindings.capture_mut(capture) {
                let address = mapping.address;
                planned.bound.push(Bound { address, bytes, piece: row, there: true, open: true });
            }
            // Neighbours in one call.
            stretch = match stretch {
                Some((start, end)) if end == mapping.address => Some((start, end + bytes)),
                before => {
                    if let Some((start, end)) = before {
                        driver.set_access(start, end - start)?;
                    }
                    Some((mapping.address, mapping.address + bytes))
                }
            };
        }
        match stretch {
            Some((start, end)) => driver.set_access(start, end - start),
            None => Ok(()),
        }
    }
}
