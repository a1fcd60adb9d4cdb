//! A hash that keeps handles that lie near each other near in the table.
//!
//! A driver gives out nodes one behind the other. A plain hash spreads them over the whole table,
//! and with a million nodes each new one costs a cache miss or two. Here the handle's page is hashed
//! (by ahash, with fixed seeds), and the place within the page is kept.

use std::hash::{BuildHasher, Hasher};

/// Handles that share all but these low bits are kept together.
const PAGE: u32 = 13;

/// Handles are at least this far apart, as a power of two.
const APART: u32 = 4;

/// Makes [`Nearby`] hashers.
#[derive(Clone, Debug)]
pub(super) struct NearbyState(ahash::RandomState);

impl NearbyState {
    pub(super) fn new() -> Self {
        Self(ahash::RandomState::with_seeds(1, 2, 3, 4))
    }
}

impl BuildHasher for NearbyState {
    type Hasher = Nearby;

    fn build_hasher(&self) -> Nearby {
        Nearby { state: self.0.clone(), hash: 0 }
    }
}

/// Hashes one handle.
pub(super) struct Nearby {
    state: ahash::RandomState,
    hash: u64,
}

impl Hasher for Nearby {
    fn write(&mut self, bytes: &[u8]) {
        self.hash = self.state.hash_one((self.hash, bytes));
    }

    fn write_usize(&mut self, handle: usize) {
        let handle = handle as u64;
        let place = (handle & ((1 << PAGE) - 1)) >> APART;
        let page = self.state.hash_one(handle >> PAGE);
        // The low bits choose the bucket, the highest seven tell its entries apart.
        self.hash = page.wrapping_add(place) ^ (place << 57);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
