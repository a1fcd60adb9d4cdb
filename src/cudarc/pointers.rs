//! cudarc's traits of types that give a device pointer: the caller says for which stream.

use std::sync::Arc;

use ::cudarc::driver::sys::CUdeviceptr;
use ::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop};

use super::buf::Buf;
use super::owner::{BlockOwner, User};
use super::view::{BufView, BufViewMut};

/// Nothing is to be done after the use: the engine asks the stream when the buffer is dropped.
const NOTHING: SyncOnDrop<'static> = SyncOnDrop::Record(None);

#[inline]
fn record(owner: &BlockOwner, stream: &CudaStream) {
    // The trait has no way to fail. Where the engine refuses, the memory is lost and thus safe.
    let _ = owner.record(User::from(stream));
}

macro_rules! to_read {
    ($($kind:ty),*) => {$(
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

to_read!(Buf<T>, BufView<'_, T>, BufViewMut<'_, T>);
to_write!(Buf<T>, BufViewMut<'_, T>);
