//! The command line.

mod certify;
mod graph;
mod plan;
mod plot;
mod replay;
mod snapshot;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A CUDA memory allocator that proves reuse inside multi-stream graph captures.
#[derive(Parser)]
#[command(name = "regraph", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a trace (format v1) and print what it came to.
    ///
    /// Exit status: 0 on success, 2 for a bad file or bad usage, 3 where the checker refuses a
    /// capture, 1 for anything else.
    Replay(replay::Arguments),
    /// Compare traces with every plan that a device allows, and tell which is worth what it costs.
    ///
    /// Without a trace: what the device allows, and what a mapping takes there. Traces run on a
    /// simulated device like it. Exit status: as of `replay`.
    Plan(plan::Arguments),
    /// Check certificates of `replay --certificate`: that a trace's captures cannot do with less memory.
    ///
    /// Blocks that the trace names are told with their names and lines of code. The check shares no code with what
    /// found them. Exit status: 0 if all hold, 1 if one does not, 2 for a bad file or bad usage.
    Certify(certify::Arguments),
    /// Print what a snapshot holds and what its blocks wait for, or what has changed from one to a later one.
    ///
    /// Snapshots are JSON or pickles, as regraph and PyTorch write them.
    Snapshot(snapshot::Arguments),
    /// Draw where a trace's blocks lie and what memory comes to, a panel a policy and plan, as an HTML page or SVG.
    ///
    /// The least memory that is possible is a line, and a table says which names and lines of code hold the memory. The
    /// trace runs on the simulated driver. Exit status: as of `replay`.
    Plot(plot::Arguments),
    /// Draw a capture as a graph: nodes by streams, blocks, and the path that lets each be used again.
    ///
    /// The trace runs on the simulated driver. A capture that the checker refuses is drawn too, with the blocks and
    /// nodes that it is refused for in red. Exit status: as of `replay`, so 3 with such a picture.
    Graph(graph::Arguments),
}

/// Runs the command and turns its failure into an exit status.
pub fn main() -> ExitCode {
    regraph::log_to_stderr();
    let result = match Arguments::parse().command {
        Command::Replay(arguments) => replay::main(&arguments),
        Command::Plan(arguments) => plan::main(&arguments),
        Command::Certify(arguments) => certify::main(&arguments),
        Command::Snapshot(arguments) => snapshot::main(&arguments),
        Command::Plot(arguments) => plot::main(&arguments),
        Command::Graph(arguments) => graph::main(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("regraph"),
    }
}
