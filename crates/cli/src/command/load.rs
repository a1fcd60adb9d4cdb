//! Reading the file that a command is given.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use regraph_trace::{ReadError, Trace};

use super::failure::Failure;

/// The trace in a file.
///
/// # Errors
/// [`Failure::Input`] with the file's name and, where there is one, the line.
pub fn load(path: &Path) -> Result<Trace, Failure> {
    let file = File::open(path).map_err(|error| {
        Failure::Input(format!("{}: expected a trace: {error}", path.display()))
    })?;
    regraph_trace::read(BufReader::new(file)).map_err(|error| {
        Failure::Input(match error {
            ReadError::Input { source, .. } => {
                format!("{}: expected a trace: {source}", path.display())
            }
            error => format!("{}: {error}", path.display()),
        })
    })
}
