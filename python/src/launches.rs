//! Launches of graphs, as the Python half tells of them.

use pyo3::prelude::*;
use regraph::driver::cuda::CudaDriver;
use regraph::sync::{Mutex, Rank};

use crate::allocator::allocator;
use crate::captures::stream;
use crate::errors::raised;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Launch>()
}

type Begun = Option<regraph_plugin::Launch<'static, CudaDriver>>;

/// A replay, from before the question whether it may be made until it was.
#[pyclass(frozen)]
struct Launch(Mutex<Begun>);

#[pymethods]
impl Launch {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Rank::Python, None))
    }

    /// A graph of a pool is about to be launched, on the stream that `stream_of` gives of a device.
    fn begin(
        &self,
        py: Python<'_>,
        pool: (u64, u64),
        stream_of: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let begun = py.detach(|| allocator()?.begin_launch(pool, "replay").map_err(raised));
        let mut launch = begun?;
        if let Some(device) = launch.device() {
            let stream = stream(stream_of.call1((device,))?.extract()?);
            launch = py.detach(move || launch.follow(stream).map(|()| launch)).map_err(raised)?;
        }
        // One that was begun before and not ended ends now.
        let before = self.0.lock().replace(launch);
        py.detach(|| drop(before));
        Ok(())
    }

    /// It has been, or cannot be. Does nothing where none has begun.
    fn end(&self, py: Python<'_>) {
        let begun = self.0.lock().take();
        py.detach(|| drop(begun));
    }
}
