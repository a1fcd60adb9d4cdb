//! PyTorch and others on regraph: the native half of the Python package.
//!
//! * `hooks`, `checkpoints`, `shim`: what PyTorch calls, and what only C++ can say.
//! * `allocator`: the process's one allocator.
//! * `messages`: what Python's `logging` is told.
//! * `glibc`: old versions of glibc's functions.
//! * `captures`, `executables`, `figures`, `launches`, `plots`, `regions`, `stacks`, `traces`: what the Python half calls,
//!   and what it stands on.
//! * `doors`: what the doors of CuPy, Numba, cuda.core, RMM and Warp call.

/// A dictionary with these values by name.
macro_rules! row {
    ($py:expr, $($name:ident: $value:expr),* $(,)?) => {{
        let row = pyo3::types::PyDict::new($py);
        $(row.set_item(stringify!($name), $value)?;)*
        row
    }};
}

/// Functions of Python's that make the allocator's calls of their names, without the interpreter's lock.
macro_rules! calls {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        #[pyfunction]
        $(#[$attribute])*
        fn $name(py: Python<'_>, $($argument: $kind),*) -> PyResult<$result> {
            py.detach(|| {
                $crate::allocator::allocator()?.$name($($argument),*).map_err($crate::errors::raised)
            })
        }
    )*};
}

/// Adds functions to a module.
macro_rules! add_functions {
    ($module:ident: $($function:path),* $(,)?) => {
        $($module.add_function(pyo3::wrap_pyfunction!($function, $module)?)?;)*
    };
}

mod allocator;
mod captures;
mod checkpoints;
mod doors;
mod errors;
mod estimates;
mod executables;
mod figures;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod glibc;
mod history;
mod hooks;
mod launches;
mod loans;
mod messages;
mod plots;
mod pools;
mod regions;
mod sharing;
mod shim;
mod stacks;
mod traces;

use std::collections::BTreeMap;
use std::ffi::OsString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use regraph::engine::Config;
use regraph::settings::{Settings, SettingsError, NO_MEMORY_CACHING};
use regraph_plugin::Overlay;

/// Makes the allocator; `None` stands for what the environment says. `pytorch` is a variable's name and its text, which is
/// meant for PyTorch; where the other has a key of it too, that one counts. Returns its keys that have no effect.
#[pyfunction]
fn start(
    settings: Option<&str>,
    check: Option<bool>,
    pytorch: (String, String),
) -> PyResult<Vec<String>> {
    let (variable, pytorch) = pytorch;
    let wrong = |error: SettingsError| PyValueError::new_err(error.to_string());
    let own = |base: Settings| {
        let mut own = match settings {
            Some(text) => base.overlaid(text)?,
            None => base.overlaid_by_environment()?,
        };
        own.caching &= Settings::from_variables(caching)?.caching;
        // Whatever it says, as PyTorch reads it.
        own.caching &= std::env::var_os("PYTORCH_NO_CUDA_MEMORY_CACHING").is_none();
        own.check = check.unwrap_or(own.check);
        Ok(own)
    };
    // By its name: the other text may be right.
    let read = regraph_plugin::of_hosts().overlaid_by_pytorch(&pytorch);
    read.map_err(|error| PyValueError::new_err(format!("{variable}: {error}")))?;
    let (said, settings, unused) = Overlay::new(&pytorch, own).map_err(wrong)?;
    let history = settings.history > 0;
    // Python frees what is live at the end of the process; late uses are for tests.
    let config = Config::default().settings(settings).report_leaks(false).find_late_uses(false);
    if !allocator::start(config, said) {
        return Err(errors::error("regraph was started before in this process"));
    }
    stacks::want(stacks::For::History, history);
    Ok(unused)
}

/// What the environment says of caching alone, whatever other settings say.
fn caching(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|_| name == NO_MEMORY_CACHING)
}

/// Changes the settings by a text that is meant for PyTorch. Returns its keys that have no effect.
#[pyfunction]
fn change_settings(py: Python<'_>, text: &str) -> PyResult<Vec<String>> {
    py.detach(|| allocator::change_settings(text))
}

/// Whether memory that is asked for from now on can sleep: whether segments grow, and freed memory is kept.
#[pyfunction]
fn memory_sleeps() -> PyResult<bool> {
    let settings = allocator::allocator()?.settings();
    Ok(settings.expandable_segments && settings.caching)
}

/// The file of this library.
#[pyfunction]
fn library_path() -> PyResult<String> {
    shim::path().ok_or_else(|| errors::error("the loader does not know this library"))
}

/// The crate's version.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The addresses of the functions that PyTorch calls.
#[pyfunction(name = "hooks")]
fn hooks_by_name() -> BTreeMap<&'static str, usize> {
    hooks::addresses()
}

/// Whether a C++ class of allocators is of the kind that the loaded PyTorch has, by the address of its
/// table of virtual functions.
#[pyfunction]
fn is_allocator_class(table: usize) -> bool {
    shim::is_allocator(table)
}

/// The module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    messages::begin();
    add_functions!(
        module:
        start, allocator::forked, change_settings, memory_sleeps, library_path, version, hooks_by_name,
        shim::throws_out_of_memory, is_allocator_class, messages::set_log_level, messages::flush_messages,
        messages::end_messages,
    );
    errors::register(module)?;
    captures::register(module)?;
    doors::register(module)?;
    estimates::register(module)?;
    executables::register(module)?;
    plots::register(module)?;
    launches::register(module)?;
    pools::register(module)?;
    loans::register(module)?;
    regions::register(module)?;
    figures::register(module)?;
    history::register(module)
}
