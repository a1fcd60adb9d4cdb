//! Buffers.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use ::cudarc::driver::CudaStream;

use super::owner::{Owner, User};
use super::view::BufView;
use super::view_mut::BufViewMut;
use super::Error;
use crate::driver::AsStream;
use crate::engine::BlockId;

/// A typed, owned device buffer, accepted by cudarc wherever a `CudaSlice` is.
pub struct Buf<T> {
    pub(super) owner: Owner,
    /// Kernel arguments point here.
    pub(super) address: u64,
    pub(super) len: usize,
    kind: PhantomData<T>,
}

impl<T> Buf<T> {
    pub(super) fn new(owner: Owner, len: usize) -> Self {
        let address = owner.memory().map_or(0, |memory| memory.address());
        Self { owner, address, len, kind: PhantomData }
    }

    /// Its device address, a multiple of 512; 0 for a buffer without bytes.
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

    /// Its length in bytes.
    #[inline]
    pub fn num_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The stream that it was allocated on.
    #[inline]
    pub fn stream(&self) -> &Arc<CudaStream> {
        self.owner.stream()
    }

    /// The engine's name of its block, as reports have it; none for a buffer without bytes.
    ///
    /// To free the block or to record uses by that name is to go around this type.
    pub fn block(&self) -> Option<BlockId> {
        self.owner.memory().map(|memory| memory.id())
    }

    /// Whether its memory is lost: a use could not be recorded, so it will never be freed. It goes
    /// back to the driver with the engine.
    pub fn is_lost(&self) -> bool {
        self.owner.is_lost()
    }

    /// Says that another stream uses it, at any time until it is dropped. cudarc's calls say so
    /// themselves; work that is submitted in other ways does not.
    ///
    /// # Errors
    /// The engine's; then the memory [is lost](Buf::is_lost).
    pub fn record_stream(&self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        if let Some(memory) = self.owner.memory() {
            memory.engine().driver().keep_stream(stream);
        }
        Ok(self.owner.record(User::from(&**stream))?)
    }

    /// Says that what a stream holds so far includes its last use of the buffer, so that in a capture
    /// the memory waits for this point and not for the drop. A later use takes it back.
    ///
    /// # Errors
    /// The engine's.
    pub fn record_use(&mut self, stream: &CudaStream) -> Result<(), Error> {
        Ok(self.owner.record_last_use(stream.as_stream())?)
    }

    /// Gives the memory up without ever freeing it, and returns its address. It goes back to the
    /// driver with the engine.
    pub fn leak(self) -> u64 {
        let Self { owner, address, .. } = self;
        owner.forget();
        address
    }

    /// All of it, to read.
    #[inline]
    pub fn as_view(&self) -> BufView<'_, T> {
        BufView::new(&self.owner, self.address, self.len)
    }

    /// All of it, to write.
    #[inline]
    pub fn as_view_mut(&mut self) -> BufViewMut<'_, T> {
        BufViewMut::new(&self.owner, self.address, self.len)
    }

    /// A part of it, to read.
    ///
    /// # Panics
    /// Where the bounds are not within the buffer.
    pub fn slice(&self, bounds: impl RangeBounds<usize>) -> BufView<'_, T> {
        self.as_view().slice(bounds)
    }

    /// A part of it, to read; none where the bounds are not within the buffer.
    pub fn try_slice(&self, bounds: impl RangeBounds<usize>) -> Option<BufView<'_, T>> {
        self.as_view().try_slice(bounds)
    }

    /// A part of it, to write.
    ///
    /// # Panics
    /// Where the bounds are not within the buffer.
    pub fn slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> BufViewMut<'_, T> {
        self.as_view_mut().into_slice(bounds).expect(super::view::WITHIN)
    }

    /// A part of it, to write; none where the bounds are not within the buffer.
    pub fn try_slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> Option<BufViewMut<'_, T>> {
        self.as_view_mut().into_slice(bounds)
    }

    /// Two parts of it, to read: up to an element, and from there on.
    ///
    /// # Panics
    /// Where the buffer is shorter.
    pub fn split_at(&self, mid: usize) -> (BufView<'_, T>, BufView<'_, T>) {
        self.as_view().split_at(mid)
    }

    /// Two parts of it, to read; none where the buffer is shorter.
    pub fn try_split_at(&self, mid: usize) -> Option<(BufView<'_, T>, BufView<'_, T>)> {
        self.as_view().try_split_at(mid)
    }

    /// Two parts of it, to write: up to an element, and from there on.
    ///
    /// # Panics
    /// Where the buffer is shorter.
    pub fn split_at_mut(&mut self, mid: usize) -> (BufViewMut<'_, T>, BufViewMut<'_, T>) {
        self.as_view_mut().into_split(mid).expect(super::view::WITHIN)
    }

    /// Two parts of it, to write; none where the buffer is shorter.
    pub fn try_split_at_mut(
        &mut self,
        mid: usize,
    ) -> Option<(BufViewMut<'_, T>, BufViewMut<'_, T>)> {
        self.as_view_mut().into_split(mid)
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
        unsafe { self.as_view_mut().into_transmuted(len) }
    }
}

impl<T> fmt::Debug for Buf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len)
            .field("stream", &self.stream().as_stream())
            .finish_non_exhaustive()
    }
}
