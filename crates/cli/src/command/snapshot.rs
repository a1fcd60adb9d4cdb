//! `regraph snapshot`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use regraph::snapshot::{BlockState, SegmentBlock, SegmentType, Snapshot, INPUT_LIMIT};

use regraph_cli::mebibytes;
use regraph_cli::pickle;
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use serde::Deserialize;

use regraph_cli::shell::{load, write};

/// How many waiting blocks are printed without `--waiting`.
const LARGEST: usize = 10;

/// How many lines say what blocks of one kind grew or shrank by.
const CHANGES: usize = 20;

#[derive(Args)]
pub struct Arguments {
    /// The snapshot: JSON, or a pickle of PyTorch's (`torch.cuda.memory._dump_snapshot`) or of regraph's; `-` is
    /// standard input.
    snapshot: PathBuf,
    /// A later one: print what has changed since.
    later: Option<PathBuf>,
    /// Write it as a pickle too, for viewers that do not read JSON.
    #[arg(long, value_name = "FILE", conflicts_with = "later")]
    pickle: Option<PathBuf>,
    /// Print every block that waits, not only the largest; with a later snapshot every change.
    #[arg(long, visible_alias = "all")]
    waiting: bool,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(later) = &arguments.later {
        load::one_stdin([&arguments.snapshot, later])?;
    }
    let Loaded { snapshot, failed } = read(&arguments.snapshot)?;
    let mut output = io::stdout().lock();
    if let Some(later) = &arguments.later {
        let later = read(later)?.snapshot;
        print_difference(&snapshot, &later, &mut output)?;
        let most = if arguments.waiting { usize::MAX } else { CHANGES };
        print_changes(&snapshot, &later, most, &mut output)?;
        output.flush()?;
        return Ok(());
    }
    if let Some(path) = &arguments.pickle {
        let file = write::create("--pickle", path, &[&arguments.snapshot])?;
        snapshot.write_pickle(file).map_err(|error| write::refused(path, &error))?;
    }
    if let Some(failed) = failed {
        writeln!(output, "{failed}\n")?;
    }
    print_segments(&snapshot, &mut output)?;
    print_waiting(&snapshot, if arguments.waiting { usize::MAX } else { LARGEST }, &mut output)?;
    output.flush()?;
    Ok(())
}

/// What a file has.
struct Loaded {
    snapshot: Snapshot,
    /// What failed, where a request that did has written the file (the setting `oom_dump`).
    failed: Option<String>,
}

/// What a request that failed has written beside the snapshot.
#[derive(Deserialize)]
struct Dump {
    out_of_memory: Report,
}

#[derive(Deserialize)]
struct Report {
    text: String,
}

/// The snapshot in a file.
fn read(path: &Path) -> Result<Loaded, Failure> {
    let name = load::name(path);
    let input = |error: &dyn std::fmt::Display| {
        Failure::Input(format!("{name}: expected a snapshot: {error}"))
    };
    let spinner = progress::spinner(format!("reading {name}"));
    let mut file = BufReader::new(load::open(path).map_err(|error| input(&error))?);
    let mut failed = None;
    let start = file.fill_buf().map_err(|error| input(&error))?;
    // What a pickle of protocol 2 or later begins with.
    let snapshot = if start.first() == Some(&0x80) {
        pickle::read_snapshot(file)
    } else if let Some(kind) = regraph_trace::kind(start) {
        return Err(input(&format!("found {kind}")));
    } else {
        let mut text = Vec::new();
        file.take(INPUT_LIMIT + 1).read_to_end(&mut text).map_err(|error| input(&error))?;
        failed = serde_json::from_slice(&text).ok().map(|dump: Dump| dump.out_of_memory.text);
        Snapshot::read_json(&*text)
    };
    let snapshot = snapshot.map_err(|error| input(&error))?;
    spinner.finish_and_clear();
    regraph_trace::snapshot::validate(&snapshot).map_err(|error| input(&error))?;
    Ok(Loaded { snapshot, failed })
}

/// What a device's segments of one size come to, in bytes but for their number.
#[derive(Clone, Copy, Default)]
struct Sums {
    segments: i64,
    bytes: [i128; 4],
}

/// By device and whether they are large.
fn sums(snapshot: &Snapshot) -> BTreeMap<(u32, bool), Sums> {
    let mut all: BTreeMap<_, Sums> = BTreeMap::new();
    for segment in &snapshot.segments {
        let sums =
            all.entry((segment.device, segment.segment_type == SegmentType::Large)).or_default();
        let waiting = segment.blocks.iter().filter(|block| waits(block));
        let waiting = waiting.map(|block| block.size).sum::<u64>();
        let (held, used) = (segment.total_size, segment.allocated_size);
        sums.segments += 1;
        for (sum, bytes) in sums.bytes.iter_mut().zip([held, used, waiting, held - used - waiting])
        {
            *sum += i128::from(bytes);
        }
    }
    all
}

/// What the segments of each device and size have become more or less by, in MiB.
fn print_difference(
    before: &Snapshot,
    after: &Snapshot,
    output: &mut impl Write,
) -> io::Result<()> {
    let (before, after) = (sums(before), sums(after));
    print_head(output)?;
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    for (device, large) in keys {
        let of = |all: &BTreeMap<_, Sums>| all.get(&(device, large)).copied().unwrap_or_default();
        let (before, after) = (of(&before), of(&after));
        let size = if large { "large" } else { "small" };
        write!(output, "{device:>6} {size:>6} {:>+9}", after.segments - before.segments)?;
        for (before, after) in before.bytes.iter().zip(after.bytes) {
            write!(output, " {:>+10.2}", mebibytes(after - before))?;
        }
        writeln!(output)?;
    }
    Ok(())
}

/// Live blocks by the line of code that allocated them, or by their size: how many, and their bytes.
fn holders(snapshot: &Snapshot) -> BTreeMap<String, (i64, i128)> {
    let mut holders: BTreeMap<_, (i64, i128)> = BTreeMap::new();
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    for block in blocks.filter(|block| block.state == BlockState::ActiveAllocated) {
        let who = match regraph_trace::own_frame(&block.frames) {
            Some(frame) => regraph_trace::line(frame),
            None => format!("blocks of {} bytes, from where is not recorded", block.requested_size),
        };
        let (count, bytes) = holders.entry(who).or_default();
        (*count, *bytes) = (*count + 1, *bytes + i128::from(block.size));
    }
    holders
}

/// Which lines of code hold more or less than before, the largest change first.
fn print_changes(
    before: &Snapshot,
    after: &Snapshot,
    most: usize,
    output: &mut impl Write,
) -> io::Result<()> {
    let mut changes = holders(after);
    for (who, (count, bytes)) in holders(before) {
        let change = changes.entry(who).or_default();
        *change = (change.0 - count, change.1 - bytes);
    }
    let mut changes: Vec<_> = changes.into_iter().filter(|it| it.1 != (0, 0)).collect();
    if changes.is_empty() {
        return writeln!(output, "\nno line of code holds more or less");
    }
    changes.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(bytes.abs()));
    writeln!(output, "\n{:>10} {:>7}  allocated by", "MiB", "blocks")?;
    for (who, (count, bytes)) in changes.iter().take(most) {
        writeln!(output, "{:>+10.2} {count:>+7}  {who}", mebibytes(*bytes))?;
    }
    match changes.len().saturating_sub(most) {
        0 => Ok(()),
        rest => writeln!(output, "... {rest} more (--all prints all)"),
    }
}

fn print_head(output: &mut impl Write) -> io::Result<()> {
    writeln!(
        output,
        "{:>6} {:>6} {:>9} {:>10} {:>10} {:>10} {:>10}  (MiB)",
        "device", "type", "segments", "reserved", "allocated", "waiting", "free"
    )
}

/// A line for the segments of each device and size, in MiB.
fn print_segments(snapshot: &Snapshot, output: &mut impl Write) -> io::Result<()> {
    print_head(output)?;
    for ((device, large), Sums { segments, bytes }) in sums(snapshot) {
        let size = if large { "large" } else { "small" };
        write!(output, "{device:>6} {size:>6} {segments:>9}")?;
        for bytes in bytes {
            write!(output, " {:>10.2}", mebibytes(bytes))?;
        }
        writeln!(output)?;
    }
    Ok(())
}

/// Whether a block that was freed waits for something.
fn waits(block: &SegmentBlock) -> bool {
    block.waiting.is_some() || block.state == BlockState::ActivePendingFree
}

/// The largest blocks that wait, and what for.
fn print_waiting(snapshot: &Snapshot, most: usize, output: &mut impl Write) -> io::Result<()> {
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let mut waiting: Vec<&SegmentBlock> = blocks.filter(|block| waits(block)).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    waiting.sort_by_key(|block| (std::cmp::Reverse(block.size), block.address));
    let bytes: f64 = waiting.iter().map(|block| mebibytes(block.size.into())).sum();
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
