//! Snapshots, the history, and files.

use std::ffi::{c_char, CString};
use std::fs::File;
use std::io::{self, BufWriter};

use regraph::engine::HistoryOptions;

use crate::arguments::text;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{c_text, or_default, Failure, Fallible};

/// Writes a file, which replaces one that is there.
pub(crate) fn write_file(
    path: &str,
    write: impl FnOnce(BufWriter<File>) -> io::Result<()>,
) -> Fallible<()> {
    let written = File::create(path).and_then(|file| write(BufWriter::new(file)));
    written.map_err(|source| Failure::File { path: path.to_owned(), source })
}

/// Writes a snapshot of the engine as JSON: all its memory, block by block, with what each freed block waits for, and
/// the history if one is recorded. `path` is a file name in UTF-8; a file that is there is replaced.
///
/// Threads: any. Other calls on the engine wait while the snapshot is taken.
///
/// Errors: REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT.
#[no_mangle]
pub unsafe extern "C" fn regraph_write_snapshot_json(
    engine: *const regraph_engine,
    path: *const c_char,
) -> regraph_error {
    call!(engine, {
        let (path, snapshot) = (text(path, "path")?, engine.snapshot()?);
        write_file(path, |output| snapshot.write_json(output))?
    })
}

/// Writes a snapshot as a pickle, which pytorch.org/memory_viz opens.
///
/// Threads: any. Other calls on the engine wait while the snapshot is taken.
///
/// Errors: REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT.
#[no_mangle]
pub unsafe extern "C" fn regraph_write_snapshot_pickle(
    engine: *const regraph_engine,
    path: *const c_char,
) -> regraph_error {
    call!(engine, {
        let (path, snapshot) = (text(path, "path")?, engine.snapshot()?);
        write_file(path, |output| snapshot.write_pickle(output))?
    })
}

/// Returns a snapshot as JSON text, to be destroyed with regraph_string_destroy().
///
/// Threads: any. Other calls on the engine wait while the snapshot is taken.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_snapshot_json(
    engine: *const regraph_engine,
    json: *mut *mut c_char,
) -> regraph_error {
    call!(
        engine,
        json = {
            let mut bytes = Vec::new();
            let written = engine.snapshot()?.write_json(&mut bytes);
            written.map_err(|source| Failure::File { path: "the text".to_owned(), source })?;
            c_text(String::from_utf8_lossy(&bytes).into_owned()).into_raw()
        }
    )
}

/// Destroys a text of regraph_snapshot_json() or regraph_metrics(). Does nothing for NULL.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_string_destroy(string: *mut c_char) {
    or_default(|| {
        if !string.is_null() {
            // SAFETY: the contract of all calls: it came from `into_raw`.
            drop(unsafe { CString::from_raw(string) });
        }
    });
}

/// Records the latest `entries` events from now on, for snapshots; 0 turns this off. Events that
/// were recorded before are dropped.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_record_history(
    engine: *const regraph_engine,
    entries: usize,
) -> regraph_error {
    call!(engine, engine.keep_history(&HistoryOptions::latest(entries))?)
}
