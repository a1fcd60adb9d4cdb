//! What is raised in Python.

use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::PyErr;
use regraph::engine;
use regraph_plugin::Error;

use crate::hooks::Failure;

create_exception!(_native, Refused, PyRuntimeError, "A capture's graph must never run.");
create_exception!(_native, OutOfMemory, PyMemoryError, "A request for memory that failed.");

/// An error of the plug-in as an exception.
pub(crate) fn raised(error: Error) -> PyErr {
    match error {
        Error::Engine(
            refusal @ (engine::Error::Refused(_)
            | engine::Error::CaptureAgain(_)
            | engine::Error::SetBack { .. }
            | engine::Error::LateUse(_)),
        ) => Refused::new_err(refusal.to_string()),
        Error::Engine(engine::Error::ResumeOutOfMemory(report)) => {
            OutOfMemory::new_err(report.to_string())
        }
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// What a request for memory failed with, as an exception.
pub(crate) fn not_allocated(error: Error) -> PyErr {
    match error.out_of_memory() {
        Some(report) => OutOfMemory::new_err(report.to_string()),
        None => raised(error),
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        PyRuntimeError::new_err(failure.message)
    }
}
