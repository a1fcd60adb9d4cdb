//! The files of blocks that a command reads.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use regraph_cli::shell::failure::Failure;
use regraph_trace::ReadError;

/// What `read` makes of a file.
///
/// # Errors
/// [`Failure::Input`] with the file's name and, where there is one, the line.
pub fn csv<T>(
    path: &Path,
    read: impl FnOnce(BufReader<File>) -> Result<T, ReadError>,
) -> Result<T, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::Input(format!("{}: expected a CSV file: {error}", path.display()))
    };
    let file = File::open(path).map_err(|error| wrong(&error))?;
    read(BufReader::new(file)).map_err(|error| match error {
        ReadError::Input { line, source } => Failure::Input(format!(
            "{}: line {line}: expected a CSV file: {source}",
            path.display()
        )),
        error => Failure::Input(format!("{}: {error}", path.display())),
    })
}
