//! Buffers and their parts, and what cudarc asks of them: device pointers and kernel arguments.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Once};

use ::cudarc::driver::sys::CUdeviceptr;
use ::cudarc::driver::{
    CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, LaunchArgs,
    PushKernelArg, SyncOnDrop,
};

use super::launched_on::launched_on;
use super::owner::{BlockOwner, User};
use super::Error;
use crate::driver::AsStream;
use crate::engine::BlockId;
use crate::logging::{tell, Level};
use crate::shown::shown;

/// A typed, owned device buffer, accepted by cudarc wherever a `CudaSlice` is: by its copies and by
/// cuBLAS (`DevicePtr`, `DevicePtrMut`), and as a kernel argument by reference.
///
/// Dropping a buffer frees it, on any thread, in a capture too. It has no events: cudarc asks for its pointer with each
/// call's stream, which is recorded, and the program orders the streams, by `CudaStream::join` for instance. The engine
/// keeps the buffer's own stream and those of [`Buf::record_stream`]. The program destroys any
/// other stream that uses it after the buffer is dropped, by [`retire_stream`](super::retire_stream).
///
/// One call of cudarc names the wrong stream: `memcpy_dtod` from another context names the source's stream and not the
/// stream that copies. Call [`Buf::record_stream`] with the latter.
///
/// A graph uses the memory whenever it is launched. Memory that was allocated in its capture stays with it; hand a
/// buffer from before the capture to [`Capture::keep`](crate::graphs::Capture::keep), or make sure that it outlives the
/// graph's last launch (the graph itself may be dropped while it runs).
///
/// Where a use cannot be recorded, by the per-thread default stream for instance, the memory
/// [is lost](Buf::is_lost): never freed, and so never handed out again.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
/// # use regraph::{cudarc::Error, driver::cuda::CudaDriver, graphs::Pool};
/// # fn example(
/// #     pool: &Pool<CudaDriver>, a: &Arc<CudaStream>, b: &Arc<CudaStream>, kernel: &CudaFunction,
/// # ) -> Result<(), Error> {
/// let input = pool.clone_htod(a, &[1.0_f32; 100])?;
/// let mut output = pool.alloc_zeros::<f32>(a, 100)?;
/// b.join(a)?;
/// let config = LaunchConfig::for_num_elems(100);
/// // SAFETY: the kernel takes two pointers, and 100 elements of each.
/// unsafe { b.launch_builder(kernel).arg(&input).arg(&mut output).launch(config) }?;
/// drop(input); // `b` reads it: it is free when `b` has done so
/// let first = b.clone_dtoh(&output.slice(..10))?;
/// # Ok(())
/// # }
/// ```
///
/// # What does not compile
/// A buffer dropped between being an argument and the launch:
/// ```compile_fail,E0505
/// # use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
/// # fn example(buf: regraph::cudarc::Buf<f32>, stream: &CudaStream, kernel: &CudaFunction) {
/// let mut launcher = stream.launch_builder(kernel);
/// launcher.arg(&buf);
/// drop(buf);
/// unsafe { launcher.launch(LaunchConfig::for_num_elems(1)) };
/// # }
/// ```
/// A last use recorded before the use:
/// ```compile_fail,E0502
/// # use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
/// # fn example(mut buf: regraph::cudarc::Buf<f32>, stream: &CudaStream, kernel: &CudaFunction) {
/// let mut launcher = stream.launch_builder(kernel);
/// launcher.arg(&buf);
/// buf.record_use(stream);
/// unsafe { launcher.launch(LaunchConfig::for_num_elems(1)) };
/// # }
/// ```
/// A capture that another thread goes on with:
/// ```compile_fail,E0277
/// # use regraph::{driver::cuda::CudaDriver, graphs::Capture};
/// # fn example(capture: Capture<CudaDriver>) {
/// std::thread::spawn(move || capture.finish());
/// # }
/// ```
pub struct Buf<T> {
    owner: BlockOwner,
    /// Kernel arguments point here.
    address: u64,
    len: usize,
    kind: PhantomData<T>,
}

impl<T> Buf<T> {
    pub(super) fn new(owner: BlockOwner, len: usize) -> Self {
        let address = owner.memory().map_or(0, |memory| memory.address());
        Self { owner, address, len, kind: PhantomData }
    }

    /// Its device address, a multiple of 512; 0 for a buffer without bytes.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    pub fn num_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The stream on which the buffer was allocated.
    pub fn stream(&self) -> &Arc<CudaStream> {
        self.owner.stream()
    }

    /// The context to which the buffer belongs.
    pub fn context(&self) -> &Arc<CudaContext> {
        self.stream().context()
    }

    /// A copy of the buffer, from the same pool and on the same stream, made behind the stream's work so far. In a
    /// capture the graph copies.
    pub fn try_clone(&self) -> Result<Self, Error>
    where
        T: DeviceRepr,
    {
        let stream = self.stream();
        let memory = match self.owner.memory() {
            Some(memory) => Some(memory.pool().allocate(memory.bytes(), stream)?),
            None => None,
        };
        let mut copy = Self::new(BlockOwner::new(memory, stream.clone()), self.len);
        if copy.num_bytes() > 0 {
            stream.memcpy_dtod(self, &mut copy)?;
        }
        Ok(copy)
    }

    /// The engine's name of the buffer's block, as in reports; `None` for a buffer without bytes.
    ///
    /// Do not free the block or record uses by that name: this type does both.
    pub fn block(&self) -> Option<BlockId> {
        self.owner.memory().map(|memory| memory.id())
    }

    /// Whether the buffer's memory is lost: a use could not be recorded, so the memory is never freed. It goes back to
    /// the driver with the engine.
    pub fn is_lost(&self) -> bool {
        self.owner.is_lost()
    }

    /// Records that another stream uses the buffer, at any time until it is dropped. cudarc's calls record their
    /// streams; work that is submitted in other ways needs this call.
    ///
    /// # Errors
    /// Those of [`Engine::record_stream`](crate::Engine::record_stream),
    /// [`StreamRefusal::Foreign`](crate::StreamRefusal::Foreign); then the memory [is lost](Buf::is_lost).
    pub fn record_stream(&self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        if let Some(memory) = self.owner.memory() {
            memory.engine().driver().keep_stream(stream);
        }
        self.owner.record(User::from(&**stream))
    }

    /// Records that the work submitted to a stream so far includes the stream's last use of the buffer. In a capture
    /// the memory then waits for this point and not for the drop. A later use replaces the record.
    ///
    /// # Errors
    /// Those of [`Engine::record_use`](crate::Engine::record_use),
    /// [`StreamRefusal::Foreign`](crate::StreamRefusal::Foreign); then the memory [is lost](Buf::is_lost).
    pub fn record_use(&mut self, stream: &CudaStream) -> Result<(), Error> {
        self.owner.record_last_use(User::from(stream))
    }

    /// A view of the whole buffer, to read in kernels that are launched on `stream`, which is recorded.
    ///
    /// A kernel argument records its launcher's stream anyway, which is read from the launcher's `Debug` text. With a
    /// version of cudarc whose text is another, the memory of arguments [is lost](Buf::is_lost), but not of arguments
    /// that this call made.
    ///
    /// # Errors
    /// Those of [`Buf::record_stream`].
    pub fn on(&self, stream: &Arc<CudaStream>) -> Result<BufView<'_, T>, Error> {
        self.record_stream(stream)?;
        Ok(BufView::new(&self.owner, self.address, self.len, true))
    }

    /// A view of the whole buffer, to write in kernels that are launched on `stream`, which is recorded. See
    /// [`Buf::on`].
    ///
    /// # Errors
    /// Those of [`Buf::record_stream`].
    pub fn on_mut(&mut self, stream: &Arc<CudaStream>) -> Result<BufViewMut<'_, T>, Error> {
        self.record_stream(stream)?;
        Ok(BufViewMut::new(&self.owner, self.address, self.len, true))
    }

    /// Never frees the buffer's memory, and returns its address. The memory goes back to the driver with the engine.
    pub fn leak(self) -> u64 {
        self.owner.lose();
        self.address
    }

    /// All of it, to read.
    pub fn as_view(&self) -> BufView<'_, T> {
        BufView::new(&self.owner, self.address, self.len, false)
    }

    /// All of it, to write.
    pub fn as_view_mut(&mut self) -> BufViewMut<'_, T> {
        BufViewMut::new(&self.owner, self.address, self.len, false)
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
}

shown!([T] Buf<T>: |it|
    address = format_args!("{:#x}", it.address), len = it.len, stream = it.stream().as_stream());

/// What a view that panics says.
const WITHIN: &str = "the view must lie within the buffer";

macro_rules! view {
    ($(#[$about:meta])* $name:ident of $borrowed:ty) => {
        $(#[$about])*
        pub struct $name<'a, T> {
            owner: &'a BlockOwner,
            /// Kernel arguments point here.
            address: u64,
            len: usize,
            /// Whether the stream of its launches was named.
            told: bool,
            kind: PhantomData<$borrowed>,
        }

        impl<'a, T> $name<'a, T> {
            /// The caller makes sure that no view to write overlaps another view that lives as long.
            fn new(owner: &'a BlockOwner, address: u64, len: usize, told: bool) -> Self {
                Self { owner, address, len, told, kind: PhantomData }
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
                    .then(|| $name::new(self.owner, self.address, len, self.told))
            }

            /// Its device address.
            pub fn address(&self) -> u64 {
                self.address
            }

            /// The stream that the buffer was allocated on.
            pub fn stream(&self) -> &'a Arc<CudaStream> {
                self.owner.stream()
            }
        }

        shown!([T] $name<'_, T>: |it| address = format_args!("{:#x}", it.address), len = it.len);
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

macro_rules! to_read {
    ($($kind:ty),*) => {$(
        impl<T> $kind {
            /// How many elements it has.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether it has no elements.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }
        }

        impl<T> DeviceSlice<T> for $kind {
            fn len(&self) -> usize {
                self.len
            }

            fn stream(&self) -> &Arc<CudaStream> {
                self.owner.stream()
            }
        }

        impl<T> DevicePtr<T> for $kind {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                record(&self.owner, stream);
                (self.address, NOTHING)
            }
        }
    )*};
}

to_read!(Buf<T>, BufView<'_, T>, BufViewMut<'_, T>);

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
    fn as_view_mut(&mut self) -> BufViewMut<'_, T> {
        BufViewMut { ..*self }
    }

    /// All of it, to read.
    pub fn as_view(&self) -> BufView<'_, T> {
        BufView::new(self.owner, self.address, self.len, self.told)
    }

    /// All of it, only to read from now on.
    pub fn into_view(self) -> BufView<'a, T> {
        BufView::new(self.owner, self.address, self.len, self.told)
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

/// Nothing is to be done after the use: the engine asks the stream when the buffer is dropped.
const NOTHING: SyncOnDrop<'static> = SyncOnDrop::Record(None);

#[inline]
fn record(owner: &BlockOwner, stream: &CudaStream) {
    // The trait has no way to fail. Where the engine refuses, the memory is lost and thus safe.
    let _ = owner.record(User::from(stream));
}

macro_rules! to_write {
    ($($kind:ty),*) => {$(
        impl<T> DevicePtrMut<T> for $kind {
            fn device_ptr_mut<'a>(
                &'a mut self,
                stream: &'a CudaStream,
            ) -> (CUdeviceptr, SyncOnDrop<'a>) {
                record(&self.owner, stream);
                (self.address, NOTHING)
            }
        }
    )*};
}

to_write!(Buf<T>, BufViewMut<'_, T>);

/// Records the stream of a launcher. The launch comes later, but the launcher borrows the buffer until then.
#[inline]
fn record_launch(owner: &BlockOwner, told: bool, launcher: &LaunchArgs<'_>) {
    match launched_on(launcher) {
        // A launcher has no way to fail here. Where the engine refuses, the memory is lost.
        Some(user) => drop(owner.record(user)),
        None if told => {}
        None => {
            warn();
            owner.lose();
        }
    }
}

/// Warns, once, that launchers do not tell their streams.
#[cold]
fn warn() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tell(Level::Warn, || {
            "this version of cudarc shows its launchers in a way that is not known here: memory of buffers that \
             are kernel arguments is never freed (Statistics::lost_bytes); pass Buf::on or Buf::on_mut, or use the \
             version of cudarc that regraph asks for"
                .to_owned()
        });
    });
}

macro_rules! argument {
    ($([$($outer:tt)*] $argument:ty: |$it:ident| $told:expr;)*) => {$(
        // SAFETY: the argument is an address, `u64` as kernels take pointers, and it is borrowed for
        // as long as the launcher may read it.
        unsafe impl<'a, 'b: 'a, $($outer)* T> PushKernelArg<$argument> for LaunchArgs<'a> {
            #[inline(always)]
            fn arg(&mut self, $it: $argument) -> &mut Self {
                record_launch(&$it.owner, $told, self);
                <Self as PushKernelArg<&'b u64>>::arg(self, &$it.address)
            }
        }
    )*};
}

argument! {
    [] &'b Buf<T>: |it| false;
    [] &'b mut Buf<T>: |it| false;
    ['c: 'b,] &'b BufView<'c, T>: |it| it.told;
    ['c: 'b,] &'b BufViewMut<'c, T>: |it| it.told;
    ['c: 'b,] &'b mut BufViewMut<'c, T>: |it| it.told;
}
