//! The latest answers of a map from handles to rows, without its hashing: most look-ups are for
//! what was looked up or entered a moment ago.

use regraph_driver::StreamHandle;

/// What a stream's row is found by. Streams mostly lie a small multiple of so many bytes apart, which
/// would leave many in few rows.
#[inline]
pub fn stream_key(stream: StreamHandle) -> usize {
    const APART_BITS: u32 = 4;
    stream.bits().rotate_right(APART_BITS)
}

/// Some of a map's entries, in `ROWS` rows, a power of two.
#[derive(Debug)]
pub struct Recent<V, const ROWS: usize>(Box<[(usize, Option<V>); ROWS]>);

impl<V: Copy, const ROWS: usize> Default for Recent<V, ROWS> {
    fn default() -> Self {
        Self(Box::new([(0, None); ROWS]))
    }
}

impl<V: Copy, const ROWS: usize> Recent<V, ROWS> {
    /// What was put for a handle, if it is known yet.
    #[inline]
    pub fn get(&self, handle: usize) -> Option<V> {
        let (found, value) = self.0[Self::row(handle)];
        value.filter(|_| found == handle)
    }

    /// Makes a handle's value known; another's may be forgotten.
    #[inline]
    pub fn put(&mut self, handle: usize, value: V) {
        self.0[Self::row(handle)] = (handle, Some(value));
    }

    /// Drops what is known of a handle: the map's entry goes.
    pub fn forget(&mut self, handle: usize) {
        self.0[Self::row(handle)] = (handle, None);
    }

    /// Handles are pointers or small numbers: the multiplication (Fibonacci hashing) spreads both.
    #[inline]
    fn row(handle: usize) -> usize {
        ((handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ROWS.trailing_zeros()))
            as usize
    }
}
