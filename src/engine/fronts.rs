//! The fronts of an engine: a table of locks.
//!
//! Streams are spread over fronts by their handles. Locks are taken in this order: the engine's, the
//! fronts' by number, the ledger's.

use super::front::Front;
use super::ledger::Ledger;
use crate::driver::StreamHandle;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, PoisonError};

/// How many fronts an engine has: streams that share one wait for each other, no more.
const FRONTS: usize = 64;

/// The fronts of an engine.
#[derive(Debug)]
pub(super) struct Fronts {
    rows: Box<[Padded]>,
    /// Bits of the fronts that were ever used.
    used: AtomicU64,
    ledger: Mutex<Ledger>,
}

/// On cache lines of its own, so that threads on different streams do not slow each other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Front>);

impl Fronts {
    pub(super) fn new(engine: u32, counts: bool) -> Self {
        let front = |number| Padded(Mutex::new(Front::new(engine, number, counts)));
        Self {
            rows: (0..FRONTS as u32).map(front).collect(),
            used: AtomicU64::new(0),
            ledger: Mutex::default(),
        }
    }

    /// Grants and peaks; the last lock in order.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The front of a stream, locked.
    #[inline]
    pub(super) fn of(&self, stream: StreamHandle) -> MutexGuard<'_, Front> {
        self.lock(number(stream))
    }

    /// A front by its number, where there is one, locked.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<MutexGuard<'_, Front>> {
        ((number as usize) < FRONTS).then(|| self.lock(number))
    }

    /// Every front, in order, each locked when it is reached.
    pub(super) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Front>> {
        (0..FRONTS as u32).map(|number| self.lock(number))
    }

    /// Every front that was ever used, in order, each locked when it is reached.
    pub(super) fn used(&self) -> impl Iterator<Item = MutexGuard<'_, Front>> {
        let mut left = self.used.load(Ordering::Relaxed);
        let numbers = std::iter::from_fn(move || {
            let number = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(number)
        });
        numbers.map(|number| self.lock(number))
    }

    /// Notes that a front is in use. The caller holds the engine's lock, as does whoever asks.
    pub(super) fn note_used(&self, number: u32) {
        self.used.fetch_or(1 << number, Ordering::Relaxed);
    }

    #[inline]
    fn lock(&self, number: u32) -> MutexGuard<'_, Front> {
        // Every step below leaves a front whole, so one that a thread panicked in can be used.
        self.rows[number as usize].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of a stream's front.
#[inline]
fn number(stream: StreamHandle) -> u32 {
    // Handles are addresses: the multiplication brings their middle bits up.
    let mixed = (stream.bits() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - FRONTS.trailing_zeros())) as u32
}
