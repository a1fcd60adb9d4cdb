//! Reading the trace that a command is given.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::failure::Failure;
use super::progress;
use regraph_trace::{Operation, ReadError, Trace};

/// The trace in a file, or on standard input where the path is `-`.
///
/// # Errors
/// [`Failure::Input`] with the file's name and, where there is one, the line; likewise for a trace without a capture.
pub fn load(path: &Path) -> Result<Trace, Failure> {
    let name = name(path);
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::Input(format!("{name}: expected a trace: {error}"))
    };
    let input = open(path).map_err(|error| wrong(&error))?;
    let spinner = progress::spinner(format!("reading {name}"));
    let trace = regraph_trace::read(BufReader::new(input)).map_err(|error| match error {
        ReadError::Input { source, .. } => wrong(&source),
        error => Failure::Input(format!("{name}: {error}")),
    })?;
    spinner.finish_and_clear();
    let captures = |operation: &Operation| matches!(operation, Operation::Begin { .. });
    if !trace.operations().iter().any(captures) {
        return Err(wrong(&"it has no capture (no operation `begin`)"));
    }
    Ok(trace)
}

/// A file, or standard input where the path is `-`.
///
/// # Errors
/// The system's.
pub fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    match is_stdin(path) {
        true => Ok(Box::new(io::stdin())),
        false => Ok(Box::new(File::open(path)?)),
    }
}

/// Refuses to write over a file that the command reads, or writes for another reason.
///
/// # Errors
/// [`Failure::Other`] where both are one file.
pub fn differs(used: &Path, output: &Path) -> Result<(), Failure> {
    let whole = |path: &Path| fs::canonicalize(path).ok().filter(|path| path.is_file());
    if whole(output).is_some_and(|output| whole(used) == Some(output)) {
        let (output, used) = (output.display(), used.display());
        return Err(Failure::Other(format!("{output}: expected another file than {used}")));
    }
    Ok(())
}

/// Refuses two files that are both standard input.
///
/// # Errors
/// [`Failure::Input`].
pub fn one_stdin(paths: [&Path; 2]) -> Result<(), Failure> {
    match paths.into_iter().all(is_stdin) {
        true => Err(Failure::Input("expected one file on standard input, found two".to_owned())),
        false => Ok(()),
    }
}

/// What messages call a file.
pub fn name(path: &Path) -> String {
    if is_stdin(path) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Whether a path stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
