//! cudarc's streams that live as long as the driver.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use ::cudarc::driver::CudaStream;

use super::guard::Saved;
use super::CudaDriver;
use crate::{AsStream, StreamHandle};

impl AsStream for CudaStream {
    #[inline]
    fn as_stream(&self) -> StreamHandle {
        StreamHandle::from_raw(self.cu_stream().cast())
    }
}

/// Streams by their handles.
#[derive(Default)]
pub(super) struct Kept(RwLock<BTreeMap<usize, Arc<CudaStream>>>);

impl CudaDriver {
    /// Keeps one of cudarc's streams until the driver goes or [`CudaDriver::release_stream`] is
    /// called. The engine knows streams by their handles, which must stay theirs.
    pub fn keep_stream(&self, stream: &Arc<CudaStream>) {
        let handle = stream.cu_stream() as usize;
        // No step under the lock leaves the map half changed.
        let kept = self.kept.0.read().unwrap_or_else(PoisonError::into_inner);
        if kept.contains_key(&handle) {
            return;
        }
        drop(kept);
        let mut kept = self.kept.0.write().unwrap_or_else(PoisonError::into_inner);
        kept.entry(handle).or_insert_with(|| stream.clone());
    }

    /// Keeps a stream no longer, if it was kept. The engine must have retired it.
    pub fn release_stream(&self, stream: StreamHandle) {
        let mut kept = self.kept.0.write().unwrap_or_else(PoisonError::into_inner);
        let released = kept.remove(&stream.bits());
        drop(kept);
        if released.is_some() {
            // It may be destroyed here, which calls the driver and makes its context current.
            let _before = Saved::now(&self.symbols);
            drop(released);
        }
    }
}
