//! `regraph-lab import-csv`.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::Args;
use regraph_cli::shell::failure::Failure;
use regraph_lab::import;
use regraph_trace::ReadError;

#[derive(Args)]
pub struct Arguments {
    /// The file: a header with id, lower, upper and size, then a block a line.
    file: PathBuf,
    /// The trace to write, over one that is there; by default standard output.
    #[arg(short, long, value_name = "TRACE")]
    output: Option<PathBuf>,
    /// Bytes of memory that a unit of the file's sizes stands for.
    #[arg(long, default_value_t = NonZeroU64::MIN, value_name = "BYTES")]
    unit: NonZeroU64,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let name = arguments.file.display();
    let file = File::open(&arguments.file)
        .map_err(|error| Failure::Input(format!("{name}: expected a CSV file: {error}")))?;
    let trace = import::csv(BufReader::new(file), arguments.unit).map_err(|error| {
        Failure::Input(match error {
            ReadError::Input { line, source } => {
                format!("{name}: line {line}: expected a CSV file: {source}")
            }
            error => format!("{name}: {error}"),
        })
    })?;
    let Some(path) = &arguments.output else {
        regraph_trace::write(&trace, BufWriter::new(io::stdout().lock()))?;
        return Ok(());
    };
    let failed =
        |error: &dyn std::fmt::Display| Failure::Other(format!("{}: {error}", path.display()));
    if fs::canonicalize(path)
        .is_ok_and(|path| fs::canonicalize(&arguments.file).is_ok_and(|file| path == file))
    {
        return Err(failed(&"expected another file than the one that is read"));
    }
    let output = File::create(path).map_err(|error| failed(&error))?;
    regraph_trace::write(&trace, BufWriter::new(output)).map_err(|error| failed(&error))?;
    let mut output = io::stdout().lock();
    writeln!(
        output,
        "written to {}: {} blocks, {} kernels, at most {} bytes at a time",
        path.display(),
        trace.blocks(),
        trace.nodes(),
        trace.peak_bytes()
    )?;
    output.flush()?;
    Ok(())
}
