//! What a front counts, in as few steps as can be.
//!
//! Handing a leased place out and taking it back change which places are live and nothing else, so
//! only live ones are counted; what is cached is the rest. A grant for what is cached is then a
//! floor under what is live.

use super::ledger::{
    Tally, ACTIVE, ACTIVE_BYTES, ALLOCATED, ALLOCATIONS, REQUESTED, SPLIT, SPLIT_BYTES,
};

/// How many blocks, their bytes, and their bytes as asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    count: u64,
    bytes: u64,
    requested: u64,
}

impl Blocks {
    #[inline]
    fn add(&mut self, bytes: u64, requested: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.requested += requested;
    }

    #[inline]
    fn subtract(&mut self, bytes: u64, requested: u64) {
        self.count -= 1;
        self.bytes -= bytes;
        self.requested -= requested;
    }
}

/// What a front counts of one pool's small or large blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    live: Blocks,
    /// All that were ever handed out.
    risen: Blocks,
    /// By how much live ones may rise, and fall, without a new peak.
    ceiling: Blocks,
    floor: Blocks,
    /// Leased places, live or cached.
    leased: Blocks,
    /// Live ones that were given up: they were never cached.
    given_up: Blocks,
    tally: Tally,
}

impl Count {
    /// A cached block is handed out. False where there may be a new peak.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64, requested: u64) -> bool {
        self.live.add(bytes, requested);
        self.risen.add(bytes, requested);
        let Self { live, ceiling, .. } = self;
        live.count <= ceiling.count
            && live.bytes <= ceiling.bytes
            && live.requested <= ceiling.requested
    }

    /// A block is cached. False where there may be a new peak of what is.
    #[inline]
    pub(super) fn give(&mut self, bytes: u64, requested: u64) -> bool {
        self.live.subtract(bytes, requested);
        self.live.count >= self.floor.count && self.live.bytes >= self.floor.bytes
    }

    /// A place is leased and handed out.
    pub(super) fn enter(&mut self, bytes: u64, requested: u64) {
        self.leased.add(bytes, 0);
        self.live.add(bytes, requested);
        self.risen.add(bytes, requested);
    }

    /// A live block is given up.
    pub(super) fn leave(&mut self, bytes: u64, requested: u64) {
        self.leased.subtract(bytes, 0);
        self.live.subtract(bytes, requested);
        self.given_up.add(bytes, 0);
    }

    /// Cached blocks are given up.
    pub(super) fn drop_cached(&mut self, count: u64, bytes: u64) {
        self.leased.count -= count;
        self.leased.bytes -= count * bytes;
    }

    /// Lets the ledger see, and change, what is counted and granted.
    pub(super) fn with_tally<R>(&mut self, change: impl FnOnce(&mut Tally) -> R) -> R {
        let Self { live, risen, leased, given_up, tally, .. } = self;
        let split = |leased: u64, live: u64| leased - live;
        let cached = |risen: u64, live: u64, given_up: u64| risen - live - given_up;
        for (kind, current, all) in [
            (ALLOCATIONS, live.count, risen.count),
            (ALLOCATED, live.bytes, risen.bytes),
            (REQUESTED, live.requested, risen.requested),
            (ACTIVE, live.count, risen.count),
            (ACTIVE_BYTES, live.bytes, risen.bytes),
            (
                SPLIT,
                split(leased.count, live.count),
                cached(risen.count, live.count, given_up.count),
            ),
            (
                SPLIT_BYTES,
                split(leased.bytes, live.bytes),
                cached(risen.bytes, live.bytes, given_up.bytes),
            ),
        ] {
            tally.current[kind] = current;
            tally.risen[kind] = all;
        }
        let result = change(tally);
        let granted = &self.tally.granted;
        self.ceiling = Blocks {
            count: granted[ALLOCATIONS].min(granted[ACTIVE]),
            bytes: granted[ALLOCATED].min(granted[ACTIVE_BYTES]),
            requested: granted[REQUESTED],
        };
        self.floor = Blocks {
            count: self.leased.count.saturating_sub(granted[SPLIT]),
            bytes: self.leased.bytes.saturating_sub(granted[SPLIT_BYTES]),
            requested: 0,
        };
        result
    }
}
