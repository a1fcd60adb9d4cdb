//! The command line.

mod compare;
mod export_csv;
mod files;
mod import_csv;
mod layout;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What regraph's figures are made with.
#[derive(Parser)]
#[command(name = "regraph-lab", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run random captures, 24 unless another shape is asked for, under the three reuse policies and print a table.
    Sweep(sweep::Arguments),
    /// Run random captures of all shapes under each plan, and print what memory they take.
    ///
    /// Exit status: as of `regraph replay`.
    Compare(compare::Arguments),
    /// Make a trace of a file of blocks and their intervals, as MiniMalloc's benchmark has them.
    ///
    /// Exit status: as of `regraph replay`.
    ImportCsv(import_csv::Arguments),
    /// Write when the blocks of a trace's capture are in use, for other planners: a block a line, with vector clocks.
    ///
    /// Exit status: as of `regraph replay`.
    ExportCsv(export_csv::Arguments),
    /// Find the least memory and a layout for a file of blocks and their intervals or vector clocks.
    ///
    /// Exit status: as of `regraph replay`.
    Layout(layout::Arguments),
}

/// Runs the command and turns its failure into an exit status.
pub fn main() -> ExitCode {
    regraph::log_to_stderr();
    let result = match Arguments::parse().command {
        Command::Sweep(arguments) => sweep::main(&arguments),
        Command::Compare(arguments) => compare::main(&arguments),
        Command::ImportCsv(arguments) => import_csv::main(&arguments),
        Command::ExportCsv(arguments) => export_csv::main(&arguments),
        Command::Layout(arguments) => layout::main(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("regraph-lab"),
    }
}
