//! The files that a command reads and writes.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use regraph_cli::shell::failure::Failure;
use regraph_trace::ReadError;

/// What `read` makes of a file, which messages call `what`.
///
/// # Errors
/// [`Failure::Input`] with the file's name and, where there is one, the line.
pub fn read<T>(
    path: &Path,
    what: &str,
    read: impl FnOnce(BufReader<File>) -> Result<T, ReadError>,
) -> Result<T, Failure> {
    let name = path.display();
    let file = File::open(path)
        .map_err(|error| Failure::Input(format!("{name}: expected {what}: {error}")))?;
    read(BufReader::new(file)).map_err(|error| {
        Failure::Input(match error {
            ReadError::Input { line, source } => {
                format!("{name}: line {line}: expected {what}: {source}")
            }
            error => format!("{name}: {error}"),
        })
    })
}

/// Makes a file, over one that is there, but not over the one that was read.
///
/// # Errors
/// [`Failure::Other`] with the file's name.
pub fn create(path: &Path, read: &Path) -> Result<File, Failure> {
    let whole = |path: &Path| fs::canonicalize(path).ok();
    if whole(path).is_some_and(|path| whole(read) == Some(path)) {
        return Err(failed(path, &"expected another file than the one that is read"));
    }
    File::create(path).map_err(|error| failed(path, &error))
}

/// The failure to write a file.
pub fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Other(format!("{}: {error}", path.display()))
}
