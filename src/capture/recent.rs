//! The latest answers of a map from handles to rows, without its hashing: most look-ups are for
//! what was looked up or entered a moment ago.

/// Rows; a power of two.
const ROWS: usize = 256;

/// Some of a map's entries, which never change there.
#[derive(Debug)]
pub(super) struct Recent<V>(Box<[Option<(usize, V)>; ROWS]>);

impl<V: Copy> Recent<V> {
    pub(super) fn new() -> Self {
        Self(Box::new([None; ROWS]))
    }

    #[inline]
    pub(super) fn get(&self, handle: usize) -> Option<V> {
        match self.0[Self::row(handle)] {
            Some((found, value)) if found == handle => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn put(&mut self, handle: usize, value: V) {
        self.0[Self::row(handle)] = Some((handle, value));
    }

    /// Handles are pointers or small numbers: the multiplication (Fibonacci hashing) spreads both.
    #[inline]
    fn row(handle: usize) -> usize {
        ((handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
    }
}
