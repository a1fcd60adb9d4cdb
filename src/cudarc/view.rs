//! Views: parts of a buffer, to read or to write.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use ::cudarc::driver::CudaStream;

use super::buf::Buf;
use super::owner::BlockOwner;

/// What a view that panics says.
const WITHIN: &str = "the view must lie within the buffer";

macro_rules! view {
    ($(#[$about:meta])* $name:ident of $borrowed:ty) => {
        $(#[$about])*
        pub struct $name<'a, T> {
            pub(super) owner: &'a BlockOwner,
            /// Kernel arguments point here.
            pub(super) address: u64,
            pub(super) len: usize,
            /// Whether the stream of its launches was named.
            told: bool,
            kind: PhantomData<$borrowed>,
        }

        impl<'a, T> $name<'a, T> {
            /// The caller makes sure that no view to write overlaps another view that lives as long.
            #[inline]
            pub(super) fn new(owner: &'a BlockOwner, address: u64, len: usize) -> Self {
                Self { owner, address, len, told: false, kind: PhantomData }
            }

            /// This view, with or without the note that the stream of its launches is recorded.
            pub(super) fn told(self, told: bool) -> Self {
                Self { told, ..self }
            }

            #[inline]
            pub(super) fn is_told(&self) -> bool {
                self.told
            }

            fn into_slice(self, bounds: impl RangeBounds<usize>) -> Option<Self> {
                let (offset, len) = part::<T>(bounds, self.len)?;
                Some(Self { address: self.address + offset, len, ..self })
            }

            fn into_split(self, mid: usize) -> Option<(Self, Self)> {
                let (offset, rest) = part::<T>(mid.., self.len)?;
                let first = Self { len: mid, ..self };
                Some((first, Self { address: self.address + offset, len: rest, ..self }))
            }

            /// # Safety
            /// The bytes must be valid for `S`, and what is written for `T`.
            unsafe fn into_transmuted<S>(self, len: usize) -> Option<$name<'a, S>> {
                fits::<T, S>(self.len, len)
                    .then(|| $name::new(self.owner, self.address, len).told(self.told))
            }

            /// Its device address.
            #[inline]
            pub fn address(&self) -> u64 {
                self.address
            }

            /// The stream that the buffer was allocated on.
            #[inline]
            pub fn stream(&self) -> &'a Arc<CudaStream> {
                self.owner.stream()
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("address", &format_args!("{:#x}", self.address))
                    .field("len", &self.len)
                    .finish_non_exhaustive()
            }
        }
    };
}

view! {
    /// A part of a [`Buf`], to read.
    BufView of &'a [T]
}
view! {
    /// A part of a [`Buf`], to write.
    BufViewMut of &'a mut [T]
}

macro_rules! extent {
    ($($kind:ty),*) => {$(
        impl<T> $kind {
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
        }
    )*};
}

extent!(Buf<T>, BufView<'_, T>, BufViewMut<'_, T>);

/// Parts of what can be written, by its `as_view` and `as_view_mut`.
macro_rules! parts {
    ($kind:ty, $word:literal) => {
        impl<T> $kind {
            /// A part of it, to read.
            ///
            /// # Panics
            #[doc = concat!("Where the bounds are not within the ", $word, ".")]
            pub fn slice(&self, bounds: impl RangeBounds<usize>) -> BufView<'_, T> {
                self.as_view().slice(bounds)
            }

            #[doc = concat!("A part of it, to read; none where the bounds are not within the ", $word, ".")]
            pub fn try_slice(&self, bounds: impl RangeBounds<usize>) -> Option<BufView<'_, T>> {
                self.as_view().try_slice(bounds)
            }

            /// A part of it, to write.
            ///
            /// # Panics
            #[doc = concat!("Where the bounds are not within the ", $word, ".")]
            pub fn slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> BufViewMut<'_, T> {
                self.try_slice_mut(bounds).expect(WITHIN)
            }

            #[doc = concat!("A part of it, to write; none where the bounds are not within the ", $word, ".")]
            pub fn try_slice_mut(
                &mut self,
                bounds: impl RangeBounds<usize>,
            ) -> Option<BufViewMut<'_, T>> {
                self.as_view_mut().into_slice(bounds)
            }

            /// Two parts of it, to write: up to an element, and from there on.
            ///
            /// # Panics
            #[doc = concat!("Where the ", $word, " is shorter.")]
            pub fn split_at_mut(&mut self, mid: usize) -> (BufViewMut<'_, T>, BufViewMut<'_, T>) {
                self.try_split_at_mut(mid).expect(WITHIN)
            }

            #[doc = concat!("Two parts of it, to write; none where the ", $word, " is shorter.")]
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
    };
}

parts!(Buf<T>, "buffer");
parts!(BufViewMut<'_, T>, "view");

impl<'a, T> BufView<'a, T> {
    /// A part of it.
    ///
    /// # Panics
    /// Where the bounds are not within the view.
    pub fn slice(&self, bounds: impl RangeBounds<usize>) -> Self {
        self.try_slice(bounds).expect(WITHIN)
    }

    /// A part of it; none where the bounds are not within the view.
    pub fn try_slice(&self, bounds: impl RangeBounds<usize>) -> Option<Self> {
        self.into_slice(bounds)
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
        self.into_split(mid)
    }

    /// Its bytes as `len` elements of another type; none where there are fewer.
    ///
    /// # Safety
    /// The bytes must be valid for that type.
    pub unsafe fn transmute<S>(&self, len: usize) -> Option<BufView<'a, S>> {
        // SAFETY: the caller's promise; nothing is written by this view.
        unsafe { self.into_transmuted(len) }
    }
}

impl<T> Clone for BufView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for BufView<'_, T> {}

impl<'a, T> BufViewMut<'a, T> {
    pub(super) fn as_view_mut(&mut self) -> BufViewMut<'_, T> {
        BufViewMut { ..*self }
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
}

/// The offset in bytes and the length in elements of a part, if it lies within `len` elements.
fn part<T>(bounds: impl RangeBounds<usize>, len: usize) -> Option<(u64, usize)> {
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
fn fits<T, S>(len: usize, wanted: usize) -> bool {
    wanted.checked_mul(size_of::<S>()).is_some_and(|bytes| bytes <= len * size_of::<T>())
}
