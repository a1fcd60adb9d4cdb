//! `regraph-lab training`.

use std::io::{self, Write};
use std::sync::Arc;

use clap::Args;
use regraph::engine::Config;
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use regraph_lab::peer::Options;
use regraph_lab::training::{on_engine, on_peer, Operation, Row, Workload};
use regraph_sim::{SimConfig, SimDriver};
use serde::Serialize;

#[derive(Args)]
pub struct Arguments {
    /// The workload's length.
    #[arg(
        long,
        default_value_t = Workload::default().operations,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    operations: u32,
    /// What the workload is drawn from.
    #[arg(long, default_value_t = Workload::default().seed, value_name = "N")]
    seed: u64,
    /// Streams: one that computes, the others for what goes on beside.
    #[arg(
        long,
        default_value_t = Workload::default().streams,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    streams: u16,
    /// Print a JSON object a row.
    #[arg(long)]
    json: bool,
}

/// What JSON says of a row beside the row itself.
#[derive(Serialize)]
struct Line<'a> {
    operations: u32,
    allocations: usize,
    streams: u16,
    seed: u64,
    #[serde(flatten)]
    row: &'a Row,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let workload = Workload {
        operations: arguments.operations,
        seed: arguments.seed,
        streams: arguments.streams,
        ..Workload::default()
    };
    let spinner = progress::spinner(format!("running {} operations", arguments.operations));
    let operations = workload.generate();
    let allocates = |operation: &&Operation| matches!(operation, Operation::Allocate { .. });
    let allocations = operations.iter().filter(allocates).count();
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let expandable = Options { expandable: true, ..Options::default() };
    let rows = [
        on_engine(&driver, &operations, Config::default()),
        on_peer(&operations, Options::default()),
        on_peer(&operations, expandable),
    ];
    spinner.finish_and_clear();
    let mut output = io::stdout().lock();
    if !arguments.json {
        writeln!(
            output,
            "{} operations, {allocations} allocations, {} streams; simulated driver; memory in MiB",
            arguments.operations, arguments.streams
        )?;
        columns(&mut output, "policy", &HEADINGS.map(str::to_owned))?;
    }
    for row in rows {
        let row = row.map_err(|error| Failure::Other(error.to_string()))?;
        if arguments.json {
            let Workload { operations, streams, seed, .. } = workload;
            let line = Line { operations, allocations, streams, seed, row: &row };
            serde_json::to_writer(&mut output, &line).map_err(io::Error::from)?;
            writeln!(output)?;
        } else {
            print(&mut output, &row)?;
        }
    }
    output.flush()?;
    Ok(())
}

const HEADINGS: [&str; 5] = ["peak alloc.", "peak reserved", "reserved", "ratio", "growth calls"];

fn print(output: &mut impl Write, row: &Row) -> io::Result<()> {
    let mebibytes = |bytes: u64| format!("{:.1}", regraph_cli::mebibytes(bytes.into()));
    let cells = [
        mebibytes(row.peak_allocated_bytes),
        mebibytes(row.peak_reserved_bytes),
        mebibytes(row.reserved_bytes),
        format!("{:.3}", row.ratio),
        row.growth_calls.to_string(),
    ];
    columns(output, &row.policy.to_string(), &cells)
}

fn columns(output: &mut impl Write, policy: &str, cells: &[String; 5]) -> io::Result<()> {
    let mut text = format!("{policy:<18}");
    for (cell, heading) in cells.iter().zip(HEADINGS) {
        let width = heading.len().max(8);
        text.push_str(&format!("  {cell:>width$}"));
    }
    writeln!(output, "{text}")
}
