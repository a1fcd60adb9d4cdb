//! Regions: memory by tag that sleeps and wakes, as the Python half has it.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use regraph::driver::HostPlace;
use regraph::regions::{Backup, Moved};
use regraph::sync::{Mutex, Rank};

use crate::allocator::allocator;
use crate::errors::raised;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Stay>()?;
    add_functions!(
        module:
        put_graphs_into, set_region_backup, set_region_file_backup, set_region_shared_backup, forget_region, sleep,
        try_sleep, wake, is_asleep, region_tags, regions, read_kept, retain_backups, region_host_bytes,
        free_region_host,
    );
    Ok(())
}

calls! {
    /// Forgets a region in which nothing is; raises where something is, and says what.
    fn forget_region(tag: &str) -> ();

    /// Whether a region sleeps, or a part of it.
    fn is_asleep(tag: &str) -> bool;

    /// Gives page-locked memory that keeps nothing back; returns its bytes.
    fn free_region_host() -> u64;
}

// A region that goes or comes takes as long as contents are copied, up to seconds: all calls here let other threads of
// Python's run meanwhile.

/// That a thread is in a region, or in none.
#[pyclass(frozen)]
struct Stay(Mutex<Option<u64>>);

#[pymethods]
impl Stay {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Rank::Python, None))
    }

    /// This thread is in a region from now on; in none with `None`.
    fn enter(&self, py: Python<'_>, tag: Option<&str>) -> PyResult<()> {
        let number = py.detach(|| Ok::<_, PyErr>(allocator()?.enter_region(tag)))?;
        *self.0.lock() = Some(number);
        Ok(())
    }

    /// Ends that, on any thread. Does nothing where it was not entered.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let Some(number) = self.0.lock().take() else { return Ok(()) };
        py.detach(|| allocator()?.leave_region(number).map_err(raised))
    }
}

/// Puts graphs that are captured in no region into one, or into none again.
#[pyfunction]
fn put_graphs_into(py: Python<'_>, tag: Option<&str>) -> PyResult<()> {
    py.detach(|| Ok(allocator().map(|it| it.put_graphs_into(tag))?))
}

/// Sets what becomes of a region's contents while it sleeps: "host", "none" or "device".
#[pyfunction]
fn set_region_backup(py: Python<'_>, tag: &str, backup: &str) -> PyResult<()> {
    let backup = match backup {
        "host" => Backup::Host,
        "none" => Backup::None,
        "device" => Backup::Device,
        other => {
            let told = format!("backup is 'host', 'none' or 'device', not {other:?}");
            return Err(PyValueError::new_err(told));
        }
    };
    py.detach(|| Ok(allocator().map(|it| it.set_region_backup(tag, backup))?))
}

/// Has a region's contents kept in a file in a folder while it sleeps.
#[pyfunction]
fn set_region_file_backup(py: Python<'_>, tag: &str, folder: PathBuf) -> PyResult<()> {
    py.detach(|| Ok(allocator().map(|it| it.set_region_backup(tag, Backup::File(folder.into())))?))
}

/// Has a region's contents kept in a file that processes share while it sleeps.
#[pyfunction]
fn set_region_shared_backup(py: Python<'_>, tag: &str, file: PathBuf) -> PyResult<()> {
    py.detach(|| Ok(allocator().map(|it| it.set_region_backup(tag, Backup::Shared(file.into())))?))
}

/// Tags as calls take them.
fn named(tags: Option<&Vec<String>>) -> Option<Vec<&str>> {
    tags.map(|tags| tags.iter().map(String::as_str).collect())
}

/// Gives the memory of regions back, of all with `None`; returns the bytes that went.
#[pyfunction]
fn sleep(py: Python<'_>, tags: Option<Vec<String>>) -> PyResult<u64> {
    py.detach(|| allocator()?.sleep(named(tags.as_ref()).as_deref()).map_err(raised))
}

/// Gives the memory of regions back as `sleep`, without a wait.
#[pyfunction]
fn try_sleep(py: Python<'_>, tags: Option<Vec<String>>) -> PyResult<u64> {
    py.detach(|| allocator()?.try_sleep(named(tags.as_ref()).as_deref()).map_err(raised))
}

/// Brings the memory of regions back; returns the bytes that came.
#[pyfunction]
fn wake(py: Python<'_>, tags: Option<Vec<String>>) -> PyResult<u64> {
    py.detach(|| allocator()?.wake(named(tags.as_ref()).as_deref()).map_err(raised))
}

/// The regions that were named and not forgotten.
#[pyfunction]
fn region_tags(py: Python<'_>) -> PyResult<Vec<String>> {
    py.detach(|| Ok(allocator()?.region_tags().iter().map(ToString::to_string).collect()))
}

/// The regions of a device: tag, backup, folder, file, awake_bytes, asleep_bytes, host_bytes, file_bytes, and of the latest
/// sleep and wake, `slept` and `woke`, the bytes that went or came, were copied, were dropped, and the seconds.
#[pyfunction]
fn regions(py: Python<'_>, device: u32) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let regions = py.detach(|| Ok::<_, PyErr>(allocator()?.regions(device)))?;
    let row = |region: regraph::regions::Region| {
        let (backup, folder, file) = match &region.backup {
            Backup::Host => ("host", None, None),
            Backup::File(folder) => ("file", folder.to_str(), None),
            Backup::Shared(file) => ("shared", None, file.to_str()),
            Backup::None => ("none", None, None),
            Backup::Device => ("device", None, None),
        };
        let told = |moved: Option<Moved>| {
            moved.map(|it| (it.bytes, it.copied_bytes, it.dropped_bytes, it.time.as_secs_f64()))
        };
        Ok(row!(
            py,
            tag: &*region.tag, backup: backup, folder: folder, file: file, awake_bytes: region.awake_bytes,
            asleep_bytes: region.asleep_bytes, host_bytes: region.host_bytes, file_bytes: region.file_bytes,
            slept: told(region.slept), woke: told(region.woke),
        ))
    };
    regions.into_iter().map(row).collect()
}

/// Copies what is kept of a part of a sleeping block to `to`, where there is room for `bytes` bytes. False
/// where not all of it is kept.
#[pyfunction]
fn read_kept(py: Python<'_>, address: u64, offset: u64, bytes: u64, to: usize) -> PyResult<bool> {
    py.detach(|| {
        let mut to = to as *mut u8;
        let copy = |place: HostPlace, bytes: u64| {
            let bytes = bytes as usize;
            // SAFETY: the place is memory of the host of that size, which stays until this returns, and the
            // Python half has room for all parts together.
            unsafe {
                std::ptr::copy_nonoverlapping(place.0 as *const u8, to, bytes);
                to = to.add(bytes);
            }
        };
        allocator()?.show_kept(address, (offset, bytes), copy).map_err(raised)
    })
}

/// Sets whether what is kept of regions stays on the host when they wake.
#[pyfunction]
fn retain_backups(py: Python<'_>, retains: bool) -> PyResult<()> {
    py.detach(|| Ok(allocator().map(|it| it.retain_backups(retains))?))
}

/// Page-locked memory of the host that regions hold, in bytes.
#[pyfunction]
fn region_host_bytes(py: Python<'_>) -> PyResult<u64> {
    py.detach(|| Ok(allocator()?.region_host_bytes()))
}
