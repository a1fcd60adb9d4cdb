//! Reading the trace that a command is given.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use regraph_trace::{Operation, ReadError, Trace};

/// The trace in a file, or on standard input where the path is `-`.
///
/// # Errors
/// [`Failure::Input`] with the file's name and, where there is one, the line; likewise for a trace
/// without a capture.
pub fn load(path: &Path) -> Result<Trace, Failure> {
    let name = name(path);
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::Input(format!("{name}: expected a trace: {error}"))
    };
    let input: Box<dyn Read> = if is_stdin(path) {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(|error| wrong(&error))?)
    };
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

/// Refuses to write over the trace.
///
/// # Errors
/// [`Failure::Other`] where both are one file.
pub fn differs(trace: &Path, output: &Path) -> Result<(), Failure> {
    let whole = |path: &Path| fs::canonicalize(path).ok();
    if whole(output).is_some_and(|output| whole(trace) == Some(output)) {
        let output = output.display();
        return Err(Failure::Other(format!("{output}: expected another file than the trace")));
    }
    Ok(())
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
