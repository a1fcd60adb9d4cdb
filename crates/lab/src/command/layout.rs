//! `regraph-lab layout`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use regraph_cli::shell::write;
use regraph_lab::problem::Problem;
use serde::Serialize;

use super::files::csv;

#[derive(Args)]
pub struct Arguments {
    /// The file: a header with id, lower, upper and size, then a block a line. Times are whole numbers, or vector
    /// clocks: a number for each thread, with colons between.
    file: PathBuf,
    /// A file to write, the one that was read with each block's offset, over one that is there.
    #[arg(short, long, value_name = "CSV")]
    output: Option<PathBuf>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Summary {
    blocks: usize,
    threads: usize,
    minimum: u64,
    height: u64,
    minimum_ns: u64,
    layout_ns: u64,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let problem = csv(&arguments.file, Problem::read)?;
    let spinner = progress::spinner(format!("placing {} blocks", problem.blocks()));
    let solution = problem.solve();
    spinner.finish_and_clear();
    if let Some(path) = &arguments.output {
        let output = BufWriter::new(write::create("--output", path, &[&arguments.file])?);
        let written = problem.write(output, Some(&solution.offsets));
        written.map_err(|error| write::refused(path, &error))?;
    }
    let nanoseconds = |time: std::time::Duration| time.as_nanos() as u64;
    let summary = Summary {
        blocks: problem.blocks(),
        threads: problem.threads(),
        minimum: solution.minimum,
        height: solution.height,
        minimum_ns: nanoseconds(solution.minimum_time),
        layout_ns: nanoseconds(solution.layout_time),
    };
    let mut output = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut output, &summary).map_err(io::Error::from)?;
        writeln!(output)?;
    } else {
        let Summary { blocks, threads, minimum, height, .. } = summary;
        let milliseconds = |ns: u64| ns as f64 / 1e6;
        writeln!(output, "blocks     {blocks}, numbers in a time: {threads}")?;
        writeln!(output, "minimum    {minimum}, in {:.3} ms", milliseconds(summary.minimum_ns))?;
        writeln!(output, "layout     {height}, in {:.3} ms", milliseconds(summary.layout_ns))?;
    }
    Ok(output.flush()?)
}
