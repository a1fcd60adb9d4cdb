//! What is raised in Python: `regraph.Error`, and what derives from it.

use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use pyo3::PyErr;
use regraph::engine;
use regraph_plugin::Error as Failed;

use crate::hooks::Failure;

create_exception!(
    regraph,
    Error,
    PyRuntimeError,
    "Something that regraph cannot do; the message says what, and what to do about it."
);
create_exception!(regraph, Refused, Error, "A capture's graph must never run.");

/// A request for memory that failed: an [`Error`], and a `MemoryError`.
static OUT_OF_MEMORY: PyOnceLock<Py<PyType>> = PyOnceLock::new();

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("Refused", py.get_type::<Refused>())?;
    module.add("OutOfMemory", out_of_memory_type(py)?)
}

fn out_of_memory_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let made = OUT_OF_MEMORY.get_or_try_init(py, || {
        let bases = (py.get_type::<Error>(), py.get_type::<PyMemoryError>());
        let names = PyDict::new(py);
        names.set_item("__module__", "regraph")?;
        names.set_item("__doc__", "A request for memory that failed.")?;
        // A class statement, as the interpreter runs it.
        let made = py.get_type::<PyType>().call1(("OutOfMemory", bases, names))?;
        Ok::<_, PyErr>(made.cast_into::<PyType>()?.unbind())
    });
    Ok(made?.bind(py))
}

fn out_of_memory(told: String) -> PyErr {
    Python::attach(|py| match out_of_memory_type(py) {
        Ok(kind) => PyErr::from_type(kind.clone(), told),
        Err(error) => error,
    })
}

/// What Python calls what messages of the library name by Rust's calls. What contains another comes before it.
const NAMES: &[(&str, &str)] = &[
    ("Backup::File", "backup=\"file\""),
    ("Backup::Shared", "backup=\"shared\""),
    ("Backup::None", "backup=\"none\""),
    ("Engine::abandon_capture", "torch.cuda.CUDAGraph.reset"),
    ("Engine::empty_cache", "torch.cuda.empty_cache"),
    ("Engine::explain", "regraph.torch.explain"),
    ("Plans::plan_capture", "plan:none"),
    ("HostCalls::resume_pool", "regraph.torch.wake"),
    (
        "turn the checker on, or Config::journal, or call HostCalls::keep_journals before the capture begins",
        "turn the checker on (regraph.torch.enable(check=True)), or record a trace (regraph.torch.record_trace)",
    ),
    (
        "launch when that has marked it, or wait for the device first (Engine::wait_for_device)",
        "replay when nothing captures on the device, or when that thread has left regraph.torch.borrow",
    ),
    ("Pool::lend", "regraph.torch.borrow"),
    ("PoolConfig::max_bytes", "torch.cuda.set_per_process_memory_fraction, regraph.torch.capture_budget"),
    ("PoolConfig::tag", "regraph.torch.region"),
    ("Regions::free_host", "regraph.torch.free_host"),
    ("Regions::wake", "regraph.torch.wake"),
    ("Sharing::recall_loan", "Loan.recall"),
];

/// A message in the words of Python's callers.
pub(crate) fn told(message: &impl ToString) -> String {
    NAMES.iter().fold(message.to_string(), |message, (rust, python)| message.replace(rust, python))
}

/// What regraph cannot do, as an exception.
pub(crate) fn error(told: impl ToString) -> PyErr {
    Error::new_err(told.to_string())
}

/// An error of the plug-in, or of an engine, as an exception.
pub(crate) fn raised(failed: impl Into<Failed>) -> PyErr {
    match failed.into() {
        Failed::Engine(
            refusal @ (engine::Error::Refused(_)
            | engine::Error::CaptureAgain(_)
            | engine::Error::SetBack { .. }
            | engine::Error::LateUse(_)),
        ) => Refused::new_err(told(&refusal)),
        other if other.out_of_memory().is_some() => out_of_memory(told(&other)),
        other => error(told(&other)),
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        error(failure.message)
    }
}
