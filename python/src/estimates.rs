//! What captures will need, before there is memory for them: they are made on addresses without memory of
//! their own, and made again on a simulated device.

use pyo3::prelude::*;
use regraph::driver::{ExecutableHandle, HostApi};
use regraph::graphs::Executables;
use regraph::settings::PlanChoice;
use regraph::sync::{Mutex, MutexGuard, Rank};
use regraph_sim::probe::{Needs, Probe};
use regraph_trace::Trace;

use crate::allocator::allocator;
use crate::captures::stream;
use crate::errors::{self, raised};
use crate::{stacks, traces};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_functions!(
        module:
        begin_estimate, estimate, capture_shown, upload, estimated, bound,
    );
    module.add("DRIVER_PIECE", Executables::DRIVER_PIECE)
}

/// What the captures of the estimate under way are tried on.
static BEGUN: Mutex<Option<Probe>> = Mutex::new(Rank::Python, None);

/// The captures that were shown, in their order.
static SHOWN: Mutex<Vec<Trace>> = Mutex::new(Rank::Python, Vec::new());

fn shown() -> MutexGuard<'static, Vec<Trace>> {
    SHOWN.lock()
}

/// Sets whether captures that this thread begins from now on have no memory of their own, and whether their blocks remember
/// the Python stacks that asked for them; those that were shown before are forgotten.
#[pyfunction]
#[pyo3(signature = (on, with_stacks=false))]
fn estimate(on: bool, with_stacks: bool) -> PyResult<()> {
    shown().clear();
    if !on {
        let _ended = BEGUN.lock().take();
    }
    stacks::want(stacks::For::Shown, on && with_stacks);
    allocator()?.estimate(on);
    Ok(())
}

/// Notes what a capture has asked for, just before it ends.
#[pyfunction]
fn capture_shown(py: Python<'_>, device: u32, stream: usize) -> PyResult<()> {
    let origin = self::stream(stream);
    py.detach(|| {
        let mut noted = Ok(());
        let show = |capture, journal: &_| {
            noted = traces::sources(device, capture).and_then(|sources| {
                let trace = regraph_trace::from_journal(journal, origin, 0, &sources);
                trace.map(|trace| shown().push(trace)).map_err(|error| error.to_string())
            });
        };
        allocator()?.capture_shown(device, origin, show).map_err(raised)?;
        noted.map_err(errors::error)
    })
}

/// The capture that was shown last, which is forgotten here.
pub(crate) fn take_shown() -> Option<Trace> {
    shown().pop()
}

/// Has the driver take what an executable graph needs on the device, as its first launch would.
#[pyfunction]
fn upload(py: Python<'_>, device: u32, executable: usize, stream: usize) -> PyResult<()> {
    let stream = self::stream(stream);
    py.detach(|| {
        let engine = allocator()?.engine(device).map_err(raised)?;
        engine.driver().upload(ExecutableHandle(executable), stream).map_err(raised)
    })
}

/// Begins an estimate: captures of it follow what is learned by now, and not what the estimate itself asks for outside
/// captures.
#[pyfunction]
fn begin_estimate(py: Python<'_>, device: u32) -> PyResult<()> {
    py.detach(|| {
        let allocator = allocator()?;
        let mut settings = allocator.settings();
        // The engines have none: plans are the plug-in's.
        if allocator.plans_captures() {
            settings.plan = PlanChoice::Exact;
        }
        let engine = allocator.engine(device).map_err(raised)?;
        let probe = Probe::of(engine, settings).map_err(failed)?;
        let _replaced = BEGUN.lock().replace(probe);
        Ok(())
    })
}

/// What a pool will hold that the captures which were shown have in turn, in bytes, by the settings and what was learned
/// when the estimate began.
#[pyfunction]
fn estimated(py: Python<'_>) -> PyResult<u64> {
    py.detach(|| {
        let probe = BEGUN.lock().take();
        let probe = probe.ok_or_else(|| errors::error("no estimate has begun"))?;
        let traces = std::mem::take(&mut *shown());
        probe.held_by(&traces).map_err(failed)
    })
}

fn failed(failure: regraph::Error) -> PyErr {
    errors::error(failure)
}

/// What a pool and executables may come to at most that are estimated to take so many bytes.
#[pyfunction]
fn bound(pool_bytes: u64, executable_bytes: u64) -> (u64, u64) {
    let most = Needs::new(pool_bytes, executable_bytes).bound();
    (most.pool_bytes, most.executable_bytes)
}
