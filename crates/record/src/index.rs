//! Typed indices: a position in one table cannot be used in another. Tables whose rows are used again.

use std::hash::BuildHasher;
use std::ops::{Deref, DerefMut};

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

/// Rows by their numbers. A row that is vacant stays as it is until its number is given again; the latest goes first.
#[derive(Clone, Debug)]
pub struct Table<T> {
    rows: Vec<T>,
    vacant: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Enters a row, in the place of a vacant one if there is any, and returns its number. Takes constant time; panics
    /// where the table would have 2^32 rows, as [`Table::take_vacant`] does.
    #[inline(always)]
    pub fn enter(&mut self, row: T) -> u32 {
        match self.vacant.pop() {
            Some(number) => {
                self.rows[number as usize] = row;
                number
            }
            None => self.add(row),
        }
    }

    /// The number of a vacant row, as that was left, or else of `row`, which is new. Takes constant time.
    #[inline]
    pub fn take_vacant(&mut self, row: impl FnOnce() -> T) -> u32 {
        self.vacant.pop().unwrap_or_else(|| self.add(row()))
    }

    #[inline]
    fn add(&mut self, row: T) -> u32 {
        self.rows.push(row);
        u32::try_from(self.rows.len() - 1).expect("tables have fewer than 2^32 rows")
    }

    /// Lets a row's number be given again.
    #[inline]
    pub fn vacate(&mut self, number: u32) {
        self.vacant.push(number);
    }

    /// How many rows are not vacant.
    pub fn used(&self) -> usize {
        self.rows.len() - self.vacant.len()
    }

    /// Checks that each row that is not in use is listed as vacant once, and no other; says which are where not.
    pub fn verify(&self, is_used: impl Fn(u32, &T) -> bool) -> Result<(), String> {
        let mut vacant = self.vacant.clone();
        vacant.sort_unstable();
        let unused = (0..).zip(&self.rows).filter(|(number, row)| !is_used(*number, row));
        let right = unused.map(|(number, _)| number).eq(vacant.iter().copied());
        right.then_some(()).ok_or_else(|| format!("rows are listed as vacant: {vacant:?}"))
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.rows
    }
}

impl<T> DerefMut for Table<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.rows
    }
}
