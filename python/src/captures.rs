//! Captures, as the Python half reports them.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use regraph::driver::cuda::CudaDriver;
use regraph::driver::{CaptureId, Driver, StreamHandle};
use regraph::engine::{PlanReport, Plans};
use regraph::{Journal, Level};
use regraph_plugin::{EndedCapture, Watched};

use crate::allocator::allocator;
use crate::errors::{error, raised};
use crate::{hooks, stacks, traces};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_functions!(
        module:
        capture_beginning, capture_begun, plans_captures, capture_dropped, capture_ending, judge_capture, notice_ends,
        capture_ended, capture_failing, capture_failed, captures, learn, learned, forget_run, forget_learned,
        record_use, record_trace,
    );
    Ok(())
}

/// A raw handle as Python has it.
pub(crate) fn stream(raw: usize) -> StreamHandle {
    StreamHandle::from_raw(raw as *mut _)
}

/// Tells that a capture is about to begin on a stream, in this thread; raises `Error` where the stream captures
/// already. Until it has begun, the stream gets no work that uses memory of the capture's pool.
#[pyfunction]
fn capture_beginning(py: Python<'_>, device: u32, stream: usize) -> PyResult<()> {
    hooks::take_begun();
    let stream = self::stream(stream);
    py.detach(|| {
        let allocator = allocator()?;
        let driver = allocator.engine(device).map_err(raised)?.driver();
        if driver.is_capturing(stream).unwrap_or(false) {
            // PyTorch's own error comes too late: the graph's destructor then aborts.
            return Err(error("The current stream is capturing already; end that capture first."));
        }
        allocator.capture_beginning(device, stream).map_err(raised)
    })
}

/// Tells that the graph object that began a capture is destroyed, and the capture was not ended.
#[pyfunction]
fn capture_dropped(py: Python<'_>, device: u32, stream: usize, capture: u64) -> PyResult<()> {
    let (stream, capture) = (self::stream(stream), CaptureId(capture));
    py.detach(|| allocator()?.capture_dropped(device, stream, capture).map_err(raised))
}

/// Whether captures whose memory nothing registers get it at their end.
#[pyfunction]
fn plans_captures() -> PyResult<bool> {
    Ok(allocator()?.plans_captures())
}

/// Tells that a capture has begun on a stream, and whether nothing registers its memory anywhere.
/// Returns the capture's ID; `None` where this thread has begun no pool for it.
#[pyfunction]
fn capture_begun(py: Python<'_>, device: u32, stream: usize, alone: bool) -> PyResult<Option<u64>> {
    let Some((_, route)) = hooks::take_begun().filter(|&(of, _)| of == device) else {
        return Ok(None);
    };
    let stream = self::stream(stream);
    py.detach(|| {
        let capture = allocator()?.capture_begun(device, stream, route, alone).map_err(raised)?;
        Ok(capture.map(|capture| capture.0))
    })
}

fn plans(device: u32) -> PyResult<Plans<'static, Watched<CudaDriver>>> {
    Ok(allocator()?.engine(device).map_err(raised)?.plans())
}

/// Notes from now on what is asked for outside captures.
#[pyfunction]
fn learn(py: Python<'_>, device: u32) -> PyResult<()> {
    py.detach(|| plans(device)?.learn().map_err(raised))
}

/// Ends what `learn` began; later captures that begin so follow it. Returns how many blocks were noted.
#[pyfunction]
fn learned(py: Python<'_>, device: u32) -> PyResult<usize> {
    py.detach(|| plans(device)?.learned().map_err(raised))
}

/// Ends what `learn` began, and keeps nothing of it.
#[pyfunction]
fn forget_run(py: Python<'_>, device: u32) -> PyResult<()> {
    py.detach(|| plans(device)?.forget_run().map_err(raised))
}

/// Forgets all that was learned on a device.
#[pyfunction]
fn forget_learned(py: Python<'_>, device: u32) -> PyResult<()> {
    py.detach(|| plans(device)?.forget_learned().map_err(raised))
}

/// Closes a capture that is about to end, and has its graph judged; raises `Refused`.
#[pyfunction]
fn capture_ending(py: Python<'_>, device: u32, stream: usize) -> PyResult<()> {
    let stream = self::stream(stream);
    let record = |capture, journal: &Journal| write_trace(journal, device, stream, capture);
    py.detach(|| allocator()?.capture_ending(device, stream, record).map_err(raised))
}

/// Has a capture that the program has begun by itself judged, just before it ends; raises `Refused`.
#[pyfunction]
fn judge_capture(py: Python<'_>, device: u32, stream: usize) -> PyResult<()> {
    let stream = self::stream(stream);
    let record = |capture, journal: &Journal| write_trace(journal, device, stream, capture);
    py.detach(|| allocator()?.judge_capture(device, stream, record).map_err(raised))
}

/// Writes a capture's trace. One that could not be written does not harm the capture.
fn write_trace(journal: &Journal, device: u32, stream: StreamHandle, capture: CaptureId) {
    let written = traces::sources(device, capture)
        .and_then(|sources| traces::write(journal, stream, &sources));
    if let Err(message) = written {
        regraph::tell(Level::Warn, || message);
    }
}

/// Says of captures that are over, and whose end was not told, that they were not judged.
#[pyfunction]
fn notice_ends(py: Python<'_>) {
    // Nothing was captured where regraph does not run.
    py.detach(|| allocator().map(|allocator| allocator.notice_ends()).unwrap_or_default());
}

/// Tells that a capture has ended and its graph is in use from now on; waits for the verdict and raises `Refused`.
#[pyfunction]
fn capture_ended(py: Python<'_>, device: u32, stream: usize) -> PyResult<()> {
    hooks::take_begun();
    let stream = self::stream(stream);
    py.detach(|| allocator()?.capture_ended(device, stream).map_err(raised))
}

/// Tells that the graph object of a capture that failed is about to be reset.
#[pyfunction]
fn capture_failing(py: Python<'_>, device: u32, stream: usize) -> PyResult<()> {
    let stream = self::stream(stream);
    py.detach(|| allocator()?.capture_failing(device, stream).map_err(raised))
}

/// Tells that there is no graph: the capture did not begin, failed to end or was refused.
#[pyfunction]
fn capture_failed(py: Python<'_>, device: u32, stream: usize) -> PyResult<()> {
    let (begun, stream) = (hooks::take_begun(), self::stream(stream));
    py.detach(|| {
        let allocator = allocator()?;
        allocator.capture_failed(device, stream).map_err(raised)?;
        // The pool was begun, but the capture never was.
        begun
            .map_or(Ok(()), |(device, route)| allocator.begin_failed(device, route).map_err(raised))
    })
}

/// Reports of the latest captures, oldest first: pool (two numbers), verified, nodes, blocks, reserved_bytes,
/// minimum_bytes (`None` where it is not known), mappings and plan_share_percent (`None` without a plan),
/// mappings_within_share (`None` where the share is at most 15 too).
#[pyfunction]
fn captures(py: Python<'_>, device: u32) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let captures = py.detach(|| Ok::<_, PyErr>(allocator()?.captures(device)))?;
    let row = |EndedCapture { key, report, minimum, .. }: EndedCapture| {
        let plan = report.plan;
        let within = plan.and_then(|plan| plan.mappings_within(PlanReport::SHARE_PERCENT));
        Ok(row!(
            py,
            pool: key, verified: report.verified, nodes: report.nodes, blocks: report.blocks,
            reserved_bytes: report.reserved, minimum_bytes: minimum, mappings: plan.map(|plan| plan.mappings),
            plan_share_percent: plan.map(|plan| plan.share_percent()), mappings_within_share: within,
        ))
    };
    captures.into_iter().map(row).collect()
}

/// Marks the stream's current position as its last use of the block at an address.
#[pyfunction]
fn record_use(py: Python<'_>, address: usize, stream: usize) -> PyResult<()> {
    let stream = self::stream(stream);
    py.detach(|| allocator()?.record_use(address as u64, stream).map_err(raised))
}

/// Writes each capture that begins and ends from now on to a file, if wanted with the Python stacks of its blocks;
/// `None` stops.
#[pyfunction]
#[pyo3(signature = (path=None, with_stacks=false))]
fn record_trace(py: Python<'_>, path: Option<PathBuf>, with_stacks: bool) -> PyResult<()> {
    py.detach(|| {
        let keeps = path.is_some();
        stacks::want(stacks::For::Traces, keeps && with_stacks);
        if !keeps {
            // Nothing is written from here on, also where a device refuses.
            traces::record(None);
        }
        allocator()?.keep_journals(keeps).map_err(raised)?;
        if keeps {
            traces::record(path);
        }
        Ok(())
    })
}
