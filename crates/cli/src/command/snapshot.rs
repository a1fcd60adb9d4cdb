//! `regraph snapshot`.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use regraph::snapshot::{BlockState, Segment, SegmentBlock, SegmentType, Snapshot};

use super::failure::Failure;

/// How many waiting blocks are printed without `--waiting`.
const LARGEST: usize = 10;

#[derive(Args)]
pub struct Arguments {
    /// The snapshot, a JSON file.
    snapshot: PathBuf,
    /// Write it as a pickle too, for viewers that do not read JSON.
    #[arg(long, value_name = "FILE")]
    pickle: Option<PathBuf>,
    /// Print every block that waits, not only the largest.
    #[arg(long)]
    waiting: bool,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let name = arguments.snapshot.display();
    let input = |error: &dyn std::fmt::Display| {
        Failure::Input(format!("{name}: expected a snapshot: {error}"))
    };
    let file = File::open(&arguments.snapshot).map_err(|error| input(&error))?;
    let snapshot = Snapshot::read_json(file).map_err(|error| input(&error))?;
    regraph_trace::snapshot::validate(&snapshot).map_err(|error| input(&error))?;
    if let Some(path) = &arguments.pickle {
        File::create(path)
            .and_then(|file| snapshot.write_pickle(file))
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
    }
    let mut output = io::stdout().lock();
    print_segments(&snapshot, &mut output)?;
    print_waiting(&snapshot, if arguments.waiting { usize::MAX } else { LARGEST }, &mut output)?;
    output.flush()?;
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A line for the segments of each device and size, in MiB.
fn print_segments(snapshot: &Snapshot, output: &mut impl Write) -> io::Result<()> {
    writeln!(
        output,
        "{:>6} {:>6} {:>9} {:>10} {:>10} {:>10} {:>10}",
        "device", "type", "segments", "reserved", "allocated", "waiting", "free"
    )?;
    for device in 0..snapshot.device_traces.len() {
        for (kind, name) in [(SegmentType::Small, "small"), (SegmentType::Large, "large")] {
            let segments: Vec<&Segment> = snapshot
                .segments
                .iter()
                .filter(|segment| segment.device as usize == device && segment.segment_type == kind)
                .collect();
            if segments.is_empty() {
                continue;
            }
            let total = |bytes: fn(&Segment) -> u64| -> f64 {
                segments.iter().map(|segment| mebibytes(bytes(segment))).sum()
            };
            writeln!(
                output,
                "{device:>6} {name:>6} {:>9} {:>10.2} {:>10.2} {:>10.2} {:>10.2}",
                segments.len(),
                total(|segment| segment.total_size),
                total(|segment| segment.allocated_size),
                total(waiting_bytes),
                total(|segment| {
                    segment.total_size - segment.allocated_size - waiting_bytes(segment)
                }),
            )?;
        }
    }
    Ok(())
}

/// Whether a block that was freed waits for something.
fn waits(block: &SegmentBlock) -> bool {
    block.waiting.is_some() || block.state == BlockState::ActivePendingFree
}

/// The blocks of a segment that wait, in bytes.
fn waiting_bytes(segment: &Segment) -> u64 {
    segment.blocks.iter().filter(|block| waits(block)).map(|block| block.size).sum()
}

/// The largest blocks that wait, and what for.
fn print_waiting(snapshot: &Snapshot, most: usize, output: &mut impl Write) -> io::Result<()> {
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let mut waiting: Vec<&SegmentBlock> = blocks.filter(|block| waits(block)).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    waiting.sort_by_key(|block| (std::cmp::Reverse(block.size), block.address));
    let bytes: f64 = waiting.iter().map(|block| mebibytes(block.size)).sum();
    writeln!(output, "\nwaiting: {} blocks, {bytes:.2} MiB", waiting.len())?;
    for block in waiting.iter().take(most) {
        writeln!(output, "{:#x}  {} bytes", block.address, block.size)?;
        for reason in block.waiting.iter().flatten() {
            write!(output, "    {}", reason.reason)?;
            if let Some(stream) = reason.stream {
                write!(output, ", stream {stream:#x}")?;
            }
            if let Some(marker) = reason.marker {
                write!(output, ", marker {marker:#x}")?;
            }
            writeln!(output)?;
        }
    }
    match waiting.len().saturating_sub(most) {
        0 => Ok(()),
        rest => writeln!(output, "... {rest} more (--waiting prints all)"),
    }
}
