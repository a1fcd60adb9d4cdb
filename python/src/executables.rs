//! Graphs that regraph launches, and their executables.

use std::mem::ManuallyDrop;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use regraph::driver::cuda::CudaDriver;
use regraph::driver::{Functions, GraphHandle};
use regraph::graphs::ExecutableOptions;

use crate::allocator::allocator;
use crate::captures::stream;
use crate::errors::raised;
use crate::loans::end_quietly;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Graph>()?;
    module.add_function(wrap_pyfunction!(keep_executables, module)?)?;
    module.add_function(wrap_pyfunction!(release_executables, module)?)?;
    module.add_function(wrap_pyfunction!(executables, module)?)
}

/// A graph that regraph launches, and destroys with this object in the process of this number.
#[pyclass(frozen)]
struct Graph(ManuallyDrop<regraph_plugin::Graph<'static, CudaDriver>>, u32);

#[pymethods]
impl Graph {
    /// Takes all nodes of a graph that was captured into a pool: `graph` has none from then on.
    #[new]
    fn new(py: Python<'_>, device: u32, pool: (u64, u64), graph: usize) -> PyResult<Self> {
        let graph = GraphHandle::from_raw(graph as *mut _);
        let taken = py.detach(|| allocator()?.take_graph(device, pool, graph).map_err(raised));
        Ok(Self(ManuallyDrop::new(taken?), std::process::id()))
    }

    fn launch(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        let stream = self::stream(stream);
        py.detach(|| self.0.launch(stream).map_err(raised))
    }

    fn prepare(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        let stream = self::stream(stream);
        py.detach(|| self.0.prepare(stream).map_err(raised))
    }

    fn pin(&self, py: Python<'_>, pinned: bool) {
        py.detach(|| self.0.pin(pinned));
    }

    fn foreseen_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.0.foreseen_bytes().map_err(raised))
    }

    /// The graph, for reading.
    fn handle(&self) -> usize {
        self.0.handle().as_raw() as usize
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.1 != std::process::id() {
            // Threads that a forked process does not have may have held the engine's locks.
            return;
        }
        // SAFETY: it is taken out here, and not used again.
        let graph = unsafe { ManuallyDrop::take(&mut self.0) };
        // A launch that another thread makes by the same executables may wait for work.
        end_quietly(move || drop(graph));
    }
}

/// Sets how executables of a pool's graphs are kept, or of all others' together. `functions` is "same" or "any" for
/// graphs that share one, and `None` for those that do not.
#[pyfunction]
fn keep_executables(
    py: Python<'_>,
    device: u32,
    pool: Option<(u64, u64)>,
    budget: Option<u64>,
    functions: Option<&str>,
) -> PyResult<()> {
    let mut options = ExecutableOptions::default();
    options.budget = budget;
    options.sharing = match functions {
        None => None,
        Some("same") => Some(Functions::Same),
        Some("any") => Some(Functions::Any),
        Some(other) => {
            let told = format!("functions: {other:?} is neither \"same\" nor \"any\", nor None");
            return Err(PyValueError::new_err(told));
        }
    };
    py.detach(|| allocator()?.keep_executables(device, pool, options).map_err(raised))
}

/// Destroys executables that are not pinned, of a pool's graphs or of all; what was foreseen for them, in bytes.
#[pyfunction]
fn release_executables(py: Python<'_>, device: u32, pool: Option<(u64, u64)>) -> PyResult<u64> {
    py.detach(|| allocator()?.release_executables(device, pool).map_err(raised))
}

/// What executables of a pool's graphs come to, or of all.
#[pyfunction]
fn executables(
    py: Python<'_>,
    device: u32,
    pool: Option<(u64, u64)>,
) -> PyResult<Bound<'_, PyDict>> {
    let figures = py.detach(|| allocator()?.executables(device, pool).map_err(raised))?;
    Ok(row!(
        py,
        graphs: figures.graphs, graph_nodes: figures.graph_nodes, graph_bytes: figures.graph_bytes,
        executables: figures.executables, nodes: figures.nodes, foreseen_bytes: figures.bytes,
        measured_bytes: figures.measured, counted_bytes: figures.counted, made: figures.made,
        updates: figures.updates, evicted: figures.evicted, refused: figures.refused,
    ))
}
