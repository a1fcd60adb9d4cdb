//! Another process, which borrows what graphs do not keep between launches: its part is played by a second engine on the
//! device, which maps what it has borrowed, and by streams that wait for nothing.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use regraph::driver::Descriptor;
use regraph::engine::{Block, ImportId, LoanId, LoanState, Shared as Sent};
use regraph::graphs::{Error, PoolRefusal};
use regraph_tagged::{Program, Tagged};

use super::streams::Stream;
use super::{ends, is_short, overlap, World, POOLS};

/// A loan that is not over.
pub(super) struct ProcessLoan {
    id: LoanId,
    pub(super) home: usize,
    pub(super) block: Block,
    /// The lent block's stream here.
    stream: Stream,
    /// Whether its memory is that of graphs still.
    pub(super) is_lent: bool,
    /// Whether its pool has slept since, so that what was not mapped by then is gone.
    pub(super) has_slept: bool,
    /// What the other process may map.
    pieces: Vec<(u64, Descriptor)>,
    /// From the beginning of the first piece to the block, in bytes.
    offset: u64,
    taken: Option<Taken>,
}

impl ProcessLoan {
    pub(super) fn place(&self) -> (u64, u64) {
        (self.block.address, self.block.address + self.block.bytes)
    }
}

/// A loan as the other process has it.
struct Taken {
    import: ImportId,
    /// No stream of the lender's waits for it, and it waits for none.
    stream: Stream,
    address: u64,
}

impl<P: Program> World<'_, P> {
    /// A pool lends to another process.
    pub(super) fn lend_to_process(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (home, slot, bytes) = (u.choose_index(POOLS)?, self.free_stream(u)?, self.size(u)?);
        let stream = self.streams[slot];
        if self.loans.len() >= self.features.most {
            return Ok(());
        }
        let pool = self.homes[home].pool.clone();
        let (lent, failed) = self.may_fail(u, |_| pool.play_loan(bytes, stream.handle))?;
        let (id, block) = match lent {
            Ok(lent) => lent,
            Err(Error::Pool { why: PoolRefusal::NothingLent { .. }, .. }) => return Ok(()),
            Err(error) => {
                let captures =
                    matches!(error, Error::DeviceCaptures { .. }) && !self.open.is_empty();
                assert!(failed || captures || is_short(&error), "lend_to_process: {error}");
                return Ok(());
            }
        };
        assert!(self.open.is_empty(), "a capture is ruined");
        let live = self.engine.host().live_blocks(pool.id()).expect("the pool is there");
        let block = live.into_iter().find(|it| it.id == block).expect("it is lent");
        let place = (block.address, block.address + bytes);
        let lies = self.homes[home].used.iter().any(|&used| overlap(used, place));
        assert!(lies && !self.is_captured(home), "what is lent lies where no graph works now");
        let sent = self.engine.sharing().share(block.id).ok();
        let Some(Sent::Pieces { offset, pieces }) = sent else {
            // It is given back at once.
            self.engine.sharing().play_ending(id);
            self.note_free(home, ends(&tagged(&block, 0)), [stream].into_iter());
            return Ok(());
        };
        let copy = |it: &Descriptor| it.try_clone().expect("there is room for a file");
        let pieces = pieces.iter().map(|it| (it.bytes, copy(it.export.descriptor()))).collect();
        let (is_lent, has_slept, taken) = (true, false, None);
        let loan =
            ProcessLoan { id, home, block, stream, is_lent, has_slept, pieces, offset, taken };
        self.loans.push(loan);
        self.count("loans to processes", 1);
        Ok(())
    }

    /// The other process, or the lender, does something about a loan.
    pub(super) fn go_on_with_loan(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.loans.is_empty() {
            return Ok(());
        }
        let row = u.choose_index(self.loans.len())?;
        let (id, is_taken) = (self.loans[row].id, self.loans[row].taken.is_some());
        let expected = if is_taken { LoanState::Taken } else { LoanState::Offered };
        let sharing = self.engine.sharing();
        assert_eq!(sharing.loan_state(id).expect("it is not over"), expected);
        match u.int_in_range(0..=5)? {
            0 => {
                let back = sharing.recall_loan(id, Duration::ZERO).expect("it is known");
                assert_eq!(back, !is_taken, "it is back at once where no process has it");
                if back {
                    self.end_loan(row);
                }
            }
            // It gives it back, or ends.
            1 | 2 if is_taken => self.end_loan(row),
            _ if is_taken => {
                assert!(!sharing.play_taking(id), "a loan is taken twice");
                self.use_loan(row);
            }
            _ => {
                assert!(sharing.play_taking(id), "a loan that is offered is not given");
                let ProcessLoan { pieces, offset, .. } = &self.loans[row];
                let pieces: Vec<_> = pieces.iter().map(|(bytes, it)| (*bytes, it)).collect();
                match self.borrower.sharing().import(&pieces) {
                    Ok((import, address)) => {
                        let (stream, address) = (Stream::create(&self.driver), address + offset);
                        self.loans[row].taken = Some(Taken { import, stream, address });
                        self.use_loan(row);
                    }
                    Err(error) => {
                        assert!(self.loans[row].has_slept, "take: {error}");
                        self.end_loan(row);
                    }
                }
            }
        }
        Ok(())
    }

    /// The other process writes all that it has borrowed, and reads it.
    fn use_loan(&mut self, row: usize) {
        let tag = self.next_tag();
        let ProcessLoan { block, taken: Some(taken), .. } = &self.loans[row] else { return };
        let place = Tagged { address: taken.address, ..tagged(block, tag) };
        let stream = taken.stream;
        self.work(stream, &[], &[place]);
        self.work(stream, &[place], &[]);
    }

    /// A loan is back: the other process, where it has it, has waited for its work, or has ended.
    pub(super) fn end_loan(&mut self, row: usize) {
        let loan = self.loans.swap_remove(row);
        if let Some(Taken { import, stream, .. }) = loan.taken {
            (self.hooks.progress)(stream.handle);
            let closed = self.borrower.sharing().close_import(import);
            closed.expect("nothing uses it any more");
            self.driver.destroy_stream(stream.handle).expect("it has ended");
        }
        self.engine.sharing().play_ending(loan.id);
        self.note_free(loan.home, loan.place(), [loan.stream].into_iter());
        assert_eq!(self.engine.sharing().loan_state(loan.id).expect("known"), LoanState::Back);
        assert!(!self.engine.sharing().play_taking(loan.id), "a loan that is back is given");
    }

    /// Whether one of some pools has lent to another process what is its graphs' still.
    pub(super) fn have_lent_to_process(&self, homes: [bool; POOLS]) -> bool {
        self.loans.iter().any(|it| it.is_lent && homes[it.home])
    }

    /// Whether a loan of a pool is not over.
    pub(super) fn has_loan(&self, home: usize) -> bool {
        self.loans.iter().any(|it| it.home == home)
    }

    /// Whether a loan lies where something does.
    pub(super) fn is_on_loan(&self, place: &Tagged) -> bool {
        self.loans.iter().any(|it| it.is_lent && overlap(it.place(), ends(place)))
    }
}

fn tagged(block: &Block, tag: u64) -> Tagged {
    Tagged { address: block.address, bytes: block.bytes, tag }
}
