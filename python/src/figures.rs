//! What the Python half asks of memory.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use regraph::driver::StreamHandle;
use regraph::engine::{FreeRange, HistoryOptions};
use regraph::snapshot::{Action, Snapshot};

use crate::allocator::{self, allocator};
use crate::captures::stream;
use crate::errors::{self, raised};
use crate::shim::with_interpreter;
use crate::stacks;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_functions!(
        module:
        statistics, metrics, reset_peaks, reset_accumulated, allocator::fraction, pools, snapshot, dump_snapshot,
        record_history, explain, out_of_memory_observer,
    );
    Ok(())
}

calls! {
    /// Sets each peak to the current figure.
    fn reset_peaks(device: u32) -> ();

    /// Sets the sums of what was allocated and freed to zero.
    fn reset_accumulated(device: u32) -> ();
}

/// The figures, nested as PyTorch nests them.
#[pyfunction]
fn statistics(py: Python<'_>, device: u32) -> PyResult<Bound<'_, PyAny>> {
    let figures = py.detach(|| {
        let figures = allocator()?.statistics(device).map_err(raised)?;
        Ok::<_, PyErr>(figures.to_string())
    })?;
    py.import("json")?.call_method1("loads", (figures,))
}

/// The figures of all devices as Prometheus reads them; nothing before the engine was started.
#[pyfunction]
fn metrics(py: Python<'_>) -> PyResult<String> {
    py.detach(|| {
        let Ok(allocator) = allocator() else { return Ok(String::new()) };
        Ok(allocator.metrics().map_err(raised)?.to_string())
    })
}

/// The pools: id (two numbers; zeros for pools of eager work), name, region, reserved, allocated, graphs.
#[pyfunction]
fn pools(py: Python<'_>, device: u32) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let pools = py.detach(|| allocator()?.pools(device).map_err(raised))?;
    let row = |pool: regraph_plugin::PoolReport| {
        Ok(row!(
            py,
            id: pool.key, name: pool.name.as_deref(), region: pool.region.as_deref(),
            reserved: pool.reserved, allocated: pool.allocated, graphs: pool.graphs,
        ))
    };
    pools.into_iter().map(row).collect()
}

/// Memory and history as JSON, laid out as PyTorch's snapshots.
#[pyfunction]
fn snapshot(py: Python<'_>) -> PyResult<String> {
    py.detach(|| {
        let snapshot = allocator::snapshot()?;
        let mut text = Vec::new();
        snapshot.write_json(&mut text).map_err(|error| PyOSError::new_err(error.to_string()))?;
        String::from_utf8(text).map_err(errors::error)
    })
}

/// Writes memory and history as the pickle that pytorch.org/memory_viz opens.
#[pyfunction]
fn dump_snapshot(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    py.detach(|| {
        let snapshot = allocator::snapshot()?;
        let told = |error: std::io::Error| {
            PyOSError::new_err(format!("the snapshot {} was not written: {error}", path.display()))
        };
        let file = File::create(&path).map_err(told)?;
        snapshot.write_pickle(BufWriter::new(file)).map_err(told)
    })
}

/// Keeps the latest events, at most so many, with the Python stacks of allocations; 0 forgets them and keeps none.
#[pyfunction]
fn record_history(py: Python<'_>, entries: usize) -> PyResult<()> {
    py.detach(|| {
        allocator()?.keep_history(HistoryOptions::latest(entries)).map_err(raised)?;
        stacks::want(stacks::For::History, entries > 0);
        Ok(())
    })
}

/// What each free block waits for before a stream may take it: pool, address, bytes, block, reason
/// (`None` where it may be taken), stack (where its last block was asked for, if a history is kept).
#[pyfunction]
fn explain(py: Python<'_>, device: u32, stream: usize) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let stream = self::stream(stream);
    let (pools, origins) = py.detach(|| explained(device, stream))?;
    let mut rows = Vec::new();
    for (key, ranges) in pools {
        for range in ranges {
            rows.push(row!(
                py,
                pool: key, address: range.address, bytes: range.bytes, block: range.block.map(|block| block.0),
                reason: range.refusal.as_ref().map(ToString::to_string), stack: origins.of(range.address),
            ));
        }
    }
    Ok(rows)
}

type Explained = (Vec<((u64, u64), Vec<FreeRange>)>, Origins);

fn explained(device: u32, stream: StreamHandle) -> PyResult<Explained> {
    let allocator = allocator()?;
    let pools = allocator.explain(device, stream).map_err(raised)?;
    let snapshot = allocator.snapshot().map_err(raised)?;
    Ok((pools, Origins(snapshot, device)))
}

/// The history that says where memory was asked for.
struct Origins(Snapshot, u32);

impl Origins {
    /// The stack of the last allocation at an address, innermost first.
    fn of(&self, address: u64) -> Vec<String> {
        let trace = self.0.device_traces.get(self.1 as usize);
        let mut events = trace.into_iter().flatten().rev();
        let found =
            events.find(|event| event.action == Action::Alloc && event.addr == Some(address));
        let frames = found.map(|event| event.frames.as_slice()).unwrap_or_default();
        let told = |frame: &regraph::snapshot::Frame| {
            format!("{}:{}: {}", frame.filename, frame.line, frame.name)
        };
        frames.iter().map(told).collect()
    }
}

/// Calls back with device, requested size, what may be held and what the device has free when a request has failed.
#[pyfunction]
fn out_of_memory_observer(observer: Py<PyAny>) -> PyResult<()> {
    allocator()?.observe_out_of_memory(Arc::new(move |device, report| {
        let known = |bytes: Option<u64>| bytes.unwrap_or(0);
        let allowed = report.engine_limit.or(report.device_total);
        // While the interpreter ends no observer can be called.
        let _ = with_interpreter(|py| {
            let told = (device, report.requested, known(allowed), known(report.device_free));
            if let Err(error) = observer.call1(py, told) {
                error.write_unraisable(py, None);
            }
        });
    }));
    Ok(())
}
