//! The loans of an engine: which are out, and which are back.
//!
//! The lender has a lent block as any borrower of its own process has, and so no graph of the pool is launched until the
//! loan is back. The borrower maps the memory that the block lies on, once it has the loan (`connection`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{LoanTaker, TakenEnd};
use crate::shown::shown;
use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering, Rank};

/// The name of a block as numbers.
type BlockBits = [u64; 3];

/// Where a loan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanState {
    /// No process has taken the loan.
    Offered,
    /// A process has the loan.
    Taken,
    /// The loan is back, or was called back before a process took it: no process has it or gets it.
    Back,
}

/// As [`LoanState`], with the process that has the loan.
enum LoanPlace {
    Offered,
    /// None for a process that a test plays, which hears nothing.
    Taken(Option<Arc<LoanTaker>>),
    Back,
}

/// A lent block, and who has it.
struct LoanRow {
    block: BlockBits,
    place: LoanPlace,
}

impl LoanRow {
    fn is_back(&self) -> bool {
        matches!(self.place, LoanPlace::Back)
    }
}

#[derive(Default)]
struct LoanRows {
    /// By their numbers; none of those whose blocks are freed.
    rows: BTreeMap<u64, LoanRow>,
    /// Loans of other processes.
    borrowed: BTreeMap<u64, Arc<Borrowed>>,
    /// The number of the next one.
    next: u64,
}

/// The loans of an engine to other processes, and those of other processes.
pub(crate) struct LoanTable {
    /// The process that lends: one that was forked from it does not.
    process: u32,
    table: Mutex<LoanRows>,
    changed: Condvar,
    /// How many are back whose blocks are not freed.
    back: AtomicUsize,
}

shown!([] LoanTable: |it| back = it.back);

impl LoanTable {
    pub(super) fn new() -> Self {
        let table = Mutex::new(Rank::Loans, LoanRows::default());
        let process = std::process::id();
        Self { process, table, changed: Condvar::new(), back: AtomicUsize::new(0) }
    }

    /// Whether this is the process that they were made in.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// A new loan, which a process may take from now on.
    pub(crate) fn make(&self, block: BlockBits) -> u64 {
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.rows.insert(number, LoanRow { block, place: LoanPlace::Offered });
        number
    }

    /// Gives a loan to a process if none has had it, and tells the process. Under one lock: what the lender says to it
    /// next comes behind that. Says whether the process has it.
    pub(crate) fn give(&self, number: u64, borrower: Option<LoanTaker>) -> bool {
        let mut table = self.table.lock();
        let row = table.rows.get_mut(&number);
        let row = row.filter(|row| matches!(row.place, LoanPlace::Offered));
        let has = row.is_some();
        if let Some(borrower) = &borrower {
            borrower.answer(has);
        }
        if let Some(row) = row {
            row.place = LoanPlace::Taken(borrower.map(Arc::new));
        }
        has
    }

    /// Those who have loans, with the loans' numbers.
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(super) fn borrowers(&self) -> Vec<(u64, Arc<LoanTaker>)> {
        let taken = |(number, row): (&u64, &LoanRow)| match &row.place {
            LoanPlace::Taken(Some(borrower)) => Some((*number, Arc::clone(borrower))),
            LoanPlace::Offered | LoanPlace::Taken(None) | LoanPlace::Back => None,
        };
        self.table.lock().rows.iter().filter_map(taken).collect()
    }

    /// Takes in what has come from a borrower: a word, its end, or both.
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(super) fn hear(&self, number: u64, borrower: &LoanTaker, word: bool, end: bool) {
        if end || word && borrower.is_done() {
            self.end(number);
        }
    }

    /// The borrower of a loan has said that its work is done, or has ended.
    pub(crate) fn end(&self, number: u64) {
        let mut table = self.table.lock();
        let row = table.rows.get_mut(&number);
        row.into_iter().for_each(|row| self.note_back(row));
    }

    /// A loan is back: its block can be freed.
    fn note_back(&self, row: &mut LoanRow) {
        if !row.is_back() {
            row.place = LoanPlace::Back;
            self.back.fetch_add(1, Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// Asks for a loan, and waits until it is back or the time is up. Says whether it is back; `None` where there
    /// was never such a loan.
    pub(crate) fn recall(&self, number: u64, patience: Duration) -> Option<bool> {
        let deadline = Instant::now().checked_add(patience);
        let mut table = self.table.lock();
        if number >= table.next || table.borrowed.contains_key(&number) {
            return None;
        }
        let mut asked = false;
        loop {
            let Some(row) = table.rows.get_mut(&number) else { return Some(true) };
            match &row.place {
                LoanPlace::Back => return Some(true),
                LoanPlace::Offered => self.note_back(row),
                LoanPlace::Taken(borrower) => {
                    if !std::mem::replace(&mut asked, true) {
                        borrower.iter().for_each(|borrower| borrower.recall());
                    }
                    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                    if left == Some(Duration::ZERO) {
                        return Some(false);
                    }
                    table = self.changed.wait(table, left);
                }
            }
        }
    }

    /// The blocks of all that are not over.
    pub(crate) fn blocks(&self) -> Vec<BlockBits> {
        self.table.lock().rows.values().map(|row| row.block).collect()
    }

    pub(crate) fn state(&self, number: u64) -> Option<LoanState> {
        let table = self.table.lock();
        let known = number < table.next && !table.borrowed.contains_key(&number);
        known.then(|| match table.rows.get(&number).map(|row| &row.place) {
            Some(LoanPlace::Offered) => LoanState::Offered,
            Some(LoanPlace::Taken(_)) => LoanState::Taken,
            Some(LoanPlace::Back) | None => LoanState::Back,
        })
    }

    /// Takes out the blocks of the loans that are back. Costs a look at a counter where there are none.
    pub(crate) fn take_back(&self) -> Vec<BlockBits> {
        if self.back.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let rows = &mut self.table.lock().rows;
        let is_back = |(number, row): (&u64, &LoanRow)| row.is_back().then_some(*number);
        let numbers: Vec<u64> = rows.iter().filter_map(is_back).collect();
        let back: Vec<_> = numbers.iter().filter_map(|it| Some(rows.remove(it)?.block)).collect();
        self.back.fetch_sub(back.len(), Ordering::Release);
        back
    }

    /// Notes a loan of another process, with the number of what is mapped for it.
    pub(crate) fn add_borrowed(&self, end: TakenEnd, import: u64) -> u64 {
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.borrowed.insert(number, Arc::new(Borrowed { end, import }));
        number
    }

    /// A loan of another process that this one has taken and not given back.
    pub(crate) fn borrowed(&self, number: u64) -> Option<Arc<Borrowed>> {
        self.table.lock().borrowed.get(&number).cloned()
    }

    /// It is given back.
    pub(crate) fn remove_borrowed(&self, number: u64) -> Option<Arc<Borrowed>> {
        self.table.lock().borrowed.remove(&number)
    }
}

/// A loan of another process.
pub(crate) struct Borrowed {
    end: TakenEnd,
    /// The number of what is mapped for it.
    import: u64,
}

impl Borrowed {
    read!(import: u64);

    /// The borrower's end of its connection.
    pub(crate) fn end(&self) -> &TakenEnd {
        &self.end
    }
}
