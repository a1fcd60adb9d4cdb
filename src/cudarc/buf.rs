//! Buffers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ::cudarc::driver::{CudaContext, CudaStream, DeviceRepr};

use super::owner::{BlockOwner, User};
use super::view::{BufView, BufViewMut};
use super::Error;
use crate::driver::AsStream;
use crate::engine::BlockId;

/// A typed, owned device buffer, accepted by cudarc wherever a `CudaSlice` is: by its copies and by
/// cuBLAS (`DevicePtr`, `DevicePtrMut`), and as a kernel argument by reference.
///
/// Dropping it frees it, on any thread, in a capture too. Streams that used it are recorded by these
/// uses; the program orders them, by `CudaStream::join` for instance. A stream that was only lent,
/// for a launch or a copy, is known by its handle from then on: it is not destroyed before the buffer
/// is dropped, and then by [`retire_stream`](super::retire_stream), since the engine may yet have to
/// ask it. The buffer's own stream is kept, and those of [`Buf::record_stream`].
///
/// One call of cudarc's names the wrong stream: `memcpy_dtod` from another context names the source's
/// own and not the one that copies. [`Buf::record_stream`] makes up for it.
///
/// A graph uses the memory whenever it is launched. What was allocated in its capture stays with it;
/// a buffer from before is handed to [`Capture::keep`](crate::graphs::Capture::keep), or outlives the
/// graph's last launch otherwise: the graph itself may be dropped while it runs.
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
/// A view that outlives its buffer:
/// ```compile_fail,E0505
/// # fn example<T>(buf: regraph::cudarc::Buf<T>) {
/// let view = buf.slice(..);
/// drop(buf);
/// view.len();
/// # }
/// ```
/// Two views to write, unless made by [`Buf::split_at_mut`]:
/// ```compile_fail,E0499
/// # fn example<T>(mut buf: regraph::cudarc::Buf<T>) {
/// let mut first = buf.slice_mut(..10);
/// let mut second = buf.slice_mut(10..);
/// first.slice_mut(..);
/// # }
/// ```
/// A view to write beside one to read:
/// ```compile_fail,E0502
/// # fn example<T>(mut buf: regraph::cudarc::Buf<T>) {
/// let read = buf.slice(..10);
/// let write = buf.slice_mut(10..);
/// read.len();
/// # }
/// ```
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
    pub(super) owner: BlockOwner,
    /// Kernel arguments point here.
    pub(super) address: u64,
    pub(super) len: usize,
    kind: PhantomData<T>,
}

impl<T> Buf<T> {
    pub(super) fn new(owner: BlockOwner, len: usize) -> Self {
        let address = owner.memory().map_or(0, |memory| memory.address());
        Self { owner, address, len, kind: PhantomData }
    }

    /// Its device address, a multiple of 512; 0 for a buffer without bytes.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
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

    /// The context that it belongs to.
    #[inline]
    pub fn context(&self) -> &Arc<CudaContext> {
        self.stream().context()
    }

    /// A copy of its own, of the same pool and on the same stream: what the stream's work so far makes
    /// of this buffer. In a capture it is the graph that copies.
    ///
    /// # Errors
    /// The engine's, cudarc's.
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
    /// The engine's, [`StreamRefusal::Foreign`](crate::StreamRefusal::Foreign); then the memory
    /// [is lost](Buf::is_lost).
    pub fn record_stream(&self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        if let Some(memory) = self.owner.memory() {
            memory.engine().driver().keep_stream(stream);
        }
        self.owner.record(User::from(&**stream))
    }

    /// Says that what a stream holds so far includes its last use of the buffer, so that in a capture
    /// the memory waits for this point and not for the drop. A later use takes it back.
    ///
    /// # Errors
    /// The engine's.
    pub fn record_use(&mut self, stream: &CudaStream) -> Result<(), Error> {
        self.owner.record_last_use(stream.as_stream())
    }

    /// All of it, to read in kernels that are launched on `stream`, which is recorded.
    ///
    /// A kernel argument records its launcher's stream anyway. It does so by what cudarc shows of a
    /// launcher; should a later version show something else, the memory of an argument [is
    /// lost](Buf::is_lost), but for one that was made by this.
    ///
    /// # Errors
    /// As [`Buf::record_stream`].
    pub fn on(&self, stream: &Arc<CudaStream>) -> Result<BufView<'_, T>, Error> {
        self.record_stream(stream)?;
        Ok(self.as_view().told(true))
    }

    /// All of it, to write in kernels that are launched on `stream`. See [`Buf::on`].
    ///
    /// # Errors
    /// As [`Buf::record_stream`].
    pub fn on_mut(&mut self, stream: &Arc<CudaStream>) -> Result<BufViewMut<'_, T>, Error> {
        self.record_stream(stream)?;
        Ok(self.as_view_mut().told(true))
    }

    /// As an argument, no.
    #[inline]
    pub(super) fn is_told(&self) -> bool {
        false
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

impl<T> fmt::Debug for Buf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len)
            .field("stream", &self.stream().as_stream())
            .finish_non_exhaustive()
    }
}
