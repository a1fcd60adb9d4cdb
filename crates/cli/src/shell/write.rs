//! Writing the files that a command is asked for.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::failure::Failure;
use super::load::{differs, is_stdin};

/// Opens a file to write beside what is printed: before the work that is to go there, and not over what the command
/// reads or writes elsewhere.
///
/// # Errors
/// [`Failure::Input`] for `-`, [`Failure::Other`] for one of `others` and for a file that cannot be opened.
pub fn create(option: &str, path: &Path, others: &[&Path]) -> Result<File, Failure> {
    if is_stdin(path) {
        let text = format!("{option}: expected a file, found `-`: standard output has the results");
        return Err(Failure::Input(text));
    }
    others.iter().try_for_each(|other| differs(other, path))?;
    File::create(path).map_err(|error| refused(path, &error))
}

/// Writes a file and says so, or to standard output where the path is `-`.
///
/// # Errors
/// [`Failure::Other`] where the file cannot be written.
pub fn put(path: &Path, text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    if is_stdin(path) {
        output.write_all(text.as_bytes())?;
    } else {
        fs::write(path, text).map_err(|error| refused(path, &error))?;
        writeln!(output, "written to {}", path.display())?;
    }
    Ok(output.flush()?)
}

/// The failure of a file that cannot be written.
pub fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("{}: cannot be written: {error}", path.display()))
}

/// What a file is by the ending of its name, in any case; `None` where it has no ending.
///
/// # Errors
/// [`Failure::Input`] for another ending than those of `formats`.
pub fn format_of<F: Copy>(
    path: Option<&Path>,
    (what, formats): (&str, &[(&str, F)]),
) -> Result<Option<F>, Failure> {
    let Some(ending) = path.and_then(Path::extension) else { return Ok(None) };
    let known = formats.iter().find(|(known, _)| ending.eq_ignore_ascii_case(known));
    known.map(|(_, format)| Some(*format)).ok_or_else(|| {
        Failure::Input(format!(
            "--output: {what}, not of .{}; --format says which where the name does not",
            ending.to_string_lossy()
        ))
    })
}
