//! Captures written as traces.

use crate::allocator::allocator;
use regraph::driver::{CaptureId, StreamHandle};
use regraph::sync::{Mutex, MutexGuard, Rank};
use regraph::Journal;
use regraph_trace::Sources;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Where captures are written to, while they are.
static TARGET: Mutex<Option<Target>> = Mutex::new(Rank::Python, None);

struct Target {
    path: PathBuf,
    written: usize,
}

/// Writes captures that end from now on to `path`, numbered from the second on; `None` ends that.
pub(crate) fn record(path: Option<PathBuf>) {
    *target() = path.map(|path| Target { path, written: 0 });
}

/// Writes one capture, if captures are to be written.
///
/// # Errors
/// A journal that no trace can be made of, or failures of the file, in words.
pub(crate) fn write(
    journal: &Journal,
    origin: StreamHandle,
    sources: &Sources<'_>,
) -> Result<(), String> {
    let path = match target().as_mut() {
        None => return Ok(()),
        Some(target) => {
            target.written += 1;
            numbered(&target.path, target.written)
        }
    };
    let failed = |error: &dyn std::fmt::Display| {
        format!("the trace {} was not written: {error}", path.display())
    };
    let trace =
        regraph_trace::from_journal(journal, origin, 0, sources).map_err(|error| failed(&error))?;
    let file = File::create(&path).map_err(|error: io::Error| failed(&error))?;
    regraph_trace::write(&trace, BufWriter::new(file)).map_err(|error| failed(&error))
}

/// What the engine knows of a capture under way beside its journal.
///
/// # Errors
/// What the engine answers, in words.
pub(crate) fn sources(device: u32, capture: CaptureId) -> Result<Sources<'static>, String> {
    let engine = allocator().map_err(|failure| failure.message)?.engine(device);
    let engine = engine.map_err(|error| error.to_string())?;
    Sources::of(engine, capture).map_err(|error| error.to_string())
}

/// The path of the `count`-th capture: `a.jsonl`, `a.2.jsonl`, `a.3.jsonl`, ...
fn numbered(path: &Path, count: usize) -> PathBuf {
    if count == 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(suffix) => format!("{stem}.{count}.{}", suffix.to_string_lossy()),
        None => format!("{stem}.{count}"),
    };
    path.with_file_name(name)
}

fn target() -> MutexGuard<'static, Option<Target>> {
    TARGET.lock()
}
