//! Typed indices: a position in one table cannot be used in another.

use std::hash::BuildHasher;

/// Defines a `u32` index type.
#[macro_export]
macro_rules! define_index {
    ($(#[$doc:meta])* $visibility:vis $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility struct $name(pub(self) u32);

        #[allow(dead_code, reason = "not every index needs every conversion")]
        impl $name {
            /// The index of a table's `position`-th row.
            ///
            /// # Panics
            /// Panics where a table would have 2^32 rows.
            #[inline]
            pub fn new(position: usize) -> Self {
                Self(u32::try_from(position).expect("tables have fewer than 2^32 rows"))
            }

            /// The index that stands behind a number which came from [`Self::index`].
            #[inline]
            pub const fn from_raw(row: u32) -> Self {
                Self(row)
            }

            /// The row's position in its table.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

pub use define_index;

/// A hash map that is seeded the same in every run: no decision may hang on hash order, and a run can be repeated.
pub type Map<K, V> = std::collections::HashMap<K, V, SameSeeds>;

/// The seeds of each [`Map`].
#[derive(Clone, Debug)]
pub struct SameSeeds(ahash::RandomState);

impl Default for SameSeeds {
    fn default() -> Self {
        Self(ahash::RandomState::with_seeds(1, 2, 3, 4))
    }
}

impl BuildHasher for SameSeeds {
    type Hasher = ahash::AHasher;

    #[inline]
    fn build_hasher(&self) -> ahash::AHasher {
        self.0.build_hasher()
    }
}
