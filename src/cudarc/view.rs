//! Views to read.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use ::cudarc::driver::CudaStream;

use super::owner::Owner;

/// What a view that panics says.
pub(super) const WITHIN: &str = "the view must lie within the buffer";

/// A part of a [`Buf`](super::Buf), to read.
pub struct BufView<'a, T> {
    pub(super) owner: &'a Owner,
    /// Kernel arguments point here.
    pub(super) address: u64,
    pub(super) len: usize,
    /// Whether the stream of its launches was named.
    told: bool,
    kind: PhantomData<&'a [T]>,
}

impl<'a, T> BufView<'a, T> {
    #[inline]
    pub(super) fn new(owner: &'a Owner, address: u64, len: usize) -> Self {
        Self { owner, address, len, told: false, kind: PhantomData }
    }

    /// The same view, of which [`Buf::on`](super::Buf::on) knows the stream of its launches.
    pub(super) fn told(self, told: bool) -> Self {
        Self { told, ..self }
    }

    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.told
    }

    /// Its device address.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many elements it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stream that the buffer was allocated on.
    #[inline]
    pub fn stream(&self) -> &'a Arc<CudaStream> {
        self.owner.stream()
    }

    /// A part of it.
    ///
    /// # Panics
    /// Where the bounds are not within the view.
    pub fn slice(&self, bounds: impl RangeBounds<usize>) -> Self {
        self.try_slice(bounds).expect(WITHIN)
    }

    /// A part of it; none where the bounds are not within the view.
    pub fn try_slice(&self, bounds: impl RangeBounds<usize>) -> Option<Self> {
        let (offset, len) = part::<T>(bounds, self.len)?;
        Some(Self { address: self.address + offset, len, ..*self })
    }

    /// Two parts of it: up to an element, and from there on.
    ///
    /// # Panics
    /// Where the view is shorter.
    pub fn split_at(&self, mid: usize) -> (Self, Self) {
        self.try_split_at(mid).expect(WITHIN)
    }

    /// Two parts of it; none where the view is shorter.
    pub fn try_split_at(&self, mid: usize) -> Option<(Self, Self)> {
        Some((self.try_slice(..mid)?, self.try_slice(mid..)?))
    }

    /// Its bytes as `len` elements of another type; none where there are fewer.
    ///
    /// # Safety
    /// The bytes must be valid for that type.
    pub unsafe fn transmute<S>(&self, len: usize) -> Option<BufView<'a, S>> {
        fits::<T, S>(self.len, len)
            .then(|| BufView::new(self.owner, self.address, len).told(self.told))
    }
}

/// The offset in bytes and the length in elements of a part, if it lies within `len` elements.
pub(super) fn part<T>(bounds: impl RangeBounds<usize>, len: usize) -> Option<(u64, usize)> {
    let start = match bounds.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match bounds.end_bound() {
        Bound::Included(&last) => last.checked_add(1)?,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    // The whole buffer's bytes fit into an address.
    (start <= end && end <= len).then(|| ((start * size_of::<T>()) as u64, end - start))
}

/// Whether `wanted` elements of `S` fit into `len` of `T`.
pub(super) fn fits<T, S>(len: usize, wanted: usize) -> bool {
    wanted.checked_mul(size_of::<S>()).is_some_and(|bytes| bytes <= len * size_of::<T>())
}

impl<T> Clone for BufView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for BufView<'_, T> {}

impl<T> fmt::Debug for BufView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufView")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
