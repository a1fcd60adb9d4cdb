//! What is raised in Python.

use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::PyErr;
use regraph::engine;
use regraph_plugin::Error;

use crate::hooks::Failure;

create_exception!(_native, Refused, PyRuntimeError, "A capture's graph must never run.");

/// An error of the plug-in as an exception.
pub(crate) fn raised(error: Error) -> PyErr {
    match error {
        Error::Engine(
            refusal @ (engine::Error::Refused(_)
            | engine::Error::CaptureAgain(_)
            | engine::Error::SetBack { .. }
            | engine::Error::LateUse(_)),
        ) => Refused::new_err(refusal.to_string()),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        PyRuntimeError::new_err(failure.message)
    }
}
