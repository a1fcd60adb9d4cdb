//! `regraph-lab import-csv`.

use std::io::{self, BufWriter, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::Args;
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::write;
use regraph_lab::import;

use super::files::csv;

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
    let trace = csv(&arguments.file, |file| import::csv(file, arguments.unit))?;
    let Some(path) = &arguments.output else {
        regraph_trace::write(&trace, BufWriter::new(io::stdout().lock()))?;
        return Ok(());
    };
    let output = write::create("--output", path, &[&arguments.file])?;
    regraph_trace::write(&trace, BufWriter::new(output))
        .map_err(|error| write::refused(path, &error))?;
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
