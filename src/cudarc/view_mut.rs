//! Views to write.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use ::cudarc::driver::CudaStream;

use super::owner::Owner;
use super::view::{fits, part, BufView, WITHIN};

/// A part of a [`Buf`](super::Buf), to write.
pub struct BufViewMut<'a, T> {
    pub(super) owner: &'a Owner,
    /// Kernel arguments point here.
    pub(super) address: u64,
    pub(super) len: usize,
    /// Whether the stream of its launches was named.
    told: bool,
    kind: PhantomData<&'a mut [T]>,
}

impl<'a, T> BufViewMut<'a, T> {
    /// The caller makes sure that no other view of these bytes lives as long.
    #[inline]
    pub(super) fn new(owner: &'a Owner, address: u64, len: usize) -> Self {
        Self { owner, address, len, told: false, kind: PhantomData }
    }

    pub(super) fn into_slice(self, bounds: impl RangeBounds<usize>) -> Option<Self> {
        let (offset, len) = part::<T>(bounds, self.len)?;
        Some(Self { address: self.address + offset, len, ..self })
    }

    pub(super) fn into_split(self, mid: usize) -> Option<(Self, Self)> {
        let (offset, rest) = part::<T>(mid.., self.len)?;
        let first = Self { len: mid, ..self };
        Some((first, Self { address: self.address + offset, len: rest, ..self }))
    }

    /// # Safety
    /// The bytes must be valid for `S`, and what is written for `T`.
    pub(super) unsafe fn into_transmuted<S>(self, len: usize) -> Option<BufViewMut<'a, S>> {
        fits::<T, S>(self.len, len)
            .then(|| BufViewMut::new(self.owner, self.address, len).told(self.told))
    }

    fn reborrow(&mut self) -> BufViewMut<'_, T> {
        BufViewMut { ..*self }
    }

    /// The same view, of which [`Buf::on_mut`](super::Buf::on_mut) knows the stream of its launches.
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

    /// All of it, to read.
    #[inline]
    pub fn as_view(&self) -> BufView<'_, T> {
        BufView::new(self.owner, self.address, self.len).told(self.told)
    }

    /// All of it, only to read from now on.
    #[inline]
    pub fn into_view(self) -> BufView<'a, T> {
        BufView::new(self.owner, self.address, self.len).told(self.told)
    }

    /// A part of it, to read.
    ///
    /// # Panics
    /// Where the bounds are not within the view.
    pub fn slice(&self, bounds: impl RangeBounds<usize>) -> BufView<'_, T> {
        self.as_view().slice(bounds)
    }

    /// A part of it, to read; none where the bounds are not within the view.
    pub fn try_slice(&self, bounds: impl RangeBounds<usize>) -> Option<BufView<'_, T>> {
        self.as_view().try_slice(bounds)
    }

    /// A part of it, to write.
    ///
    /// # Panics
    /// Where the bounds are not within the view.
    pub fn slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> BufViewMut<'_, T> {
        self.try_slice_mut(bounds).expect(WITHIN)
    }

    /// A part of it, to write; none where the bounds are not within the view.
    pub fn try_slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> Option<BufViewMut<'_, T>> {
        self.reborrow().into_slice(bounds)
    }

    /// Two parts of it, to write: up to an element, and from there on.
    ///
    /// # Panics
    /// Where the view is shorter.
    pub fn split_at_mut(&mut self, mid: usize) -> (BufViewMut<'_, T>, BufViewMut<'_, T>) {
        self.try_split_at_mut(mid).expect(WITHIN)
    }

    /// Two parts of it, to write; none where the view is shorter.
    pub fn try_split_at_mut(
        &mut self,
        mid: usize,
    ) -> Option<(BufViewMut<'_, T>, BufViewMut<'_, T>)> {
        self.reborrow().into_split(mid)
    }

    /// Its bytes as `len` elements of another type, to read; none where there are fewer.
    ///
    /// # Safety
    /// The bytes must be valid for that type.
    pub unsafe fn transmute<S>(&self, len: usize) -> Option<BufView<'_, S>> {
        // SAFETY: the caller's promise.
        unsafe { self.as_view().transmute(len) }
    }

    /// Its bytes as `len` elements of another type, to write; none where there are fewer.
    ///
    /// # Safety
    /// The bytes must be valid for that type, and what is written for `T`.
    pub unsafe fn transmute_mut<S>(&mut self, len: usize) -> Option<BufViewMut<'_, S>> {
        // SAFETY: the caller's promise.
        unsafe { self.reborrow().into_transmuted(len) }
    }
}

impl<T> fmt::Debug for BufViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufViewMut")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
