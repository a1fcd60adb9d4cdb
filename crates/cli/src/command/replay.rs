//! `regraph replay`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use regraph::engine::Config;
use regraph::settings::{Programmatic, Reuse};
use regraph_cli::mebibytes;
use regraph_cli::replay::{replay, Finding, Options, Placement, Plan, Replayed};
use regraph_cli::shell::drivers::{with_driver, Choice, Job};
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use regraph_tagged::Program;
use regraph_trace::certify::Certificate;
use regraph_trace::minimum;
use regraph_trace::Trace;
use serde::Serialize;

use regraph_cli::shell::load::{self, load};
use regraph_cli::shell::write;

/// How long each node waits with tags on, in nanoseconds: long enough that nodes without an order between them overlap.
const TAG_DELAY: u32 = 2_000;
/// How often the graphs are launched with tags on.
const TAG_LAUNCHES: u32 = 3;

#[derive(Args)]
pub struct Arguments {
    /// The trace, JSON Lines in format v1; `-` is standard input.
    trace: PathBuf,
    /// The driver; by default CUDA if the machine has a GPU.
    #[arg(long, value_enum)]
    driver: Option<Choice>,
    /// Which streams may take a free block: cross-stream, own-stream or deferred.
    #[arg(long, default_value_t, value_name = "POLICY")]
    policy: Reuse,
    /// What programmatic edges prove: auto, deny, lag or trust.
    #[arg(long, default_value_t, value_name = "PROOF")]
    programmatic: Programmatic,
    /// How blocks get their places.
    #[arg(long, value_enum, default_value_t)]
    plan: Plan,
    /// With --plan learned or twice, search so many times as long for a layout, at least once, where the least memory is
    /// not found at once. Once is under a second with `learned` and some two with `twice`; about thirteen seconds on one core
    /// for each capture is the most, whatever the number. Results do not depend on the machine.
    #[arg(long, default_value = "1", value_name = "TIMES")]
    plan_search: NonZeroUsize,
    /// Run each capture's operations so many times outside captures before: the capture learns from them by itself.
    #[arg(long, default_value_t, value_name = "N", conflicts_with = "plan")]
    warm_ups: u32,
    /// Blocks of so many percent of the trace's sizes: captures of other models of the same kind.
    #[arg(long, default_value_t = 100, value_name = "PERCENT")]
    scale: u32,
    /// Launch the graphs so many times and tell the time; with --tags more often for the tags.
    #[arg(long, default_value_t, value_name = "N")]
    launches: u32,
    /// Write where each block was placed to this file, a JSON object a line.
    #[arg(long, value_name = "FILE")]
    placements: Option<PathBuf>,
    /// Write why no placement can do with less memory to this file: a certificate (JSON) a line, one for
    /// each capture. `regraph certify` checks it.
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Let the nodes write and check tags in the blocks, and launch the graphs.
    #[arg(long)]
    tags: bool,
    /// Search the graphs for later uses of blocks than the trace records, and for reads of what nothing in a graph
    /// wrote before, by the blocks that the trace says its kernels touch. A kernel that is the first to touch a block
    /// counts as a guess.
    #[arg(long, conflicts_with = "tags")]
    lint: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let mut trace = load(&arguments.trace)?;
    if arguments.scale != 100 {
        let wrong = |error| Failure::Input(format!("--scale {}: {error}", arguments.scale));
        trace = trace.scaled(arguments.scale).map_err(wrong)?;
    }
    // Before the run, which may take long.
    let create = |option, path: &Option<PathBuf>, others: &[&Path]| {
        path.as_ref().map(|path| write::create(option, path, others)).transpose()
    };
    let own = arguments.trace.as_path();
    let placements = create("--placements", &arguments.placements, &[own])?;
    let written = arguments.placements.as_deref().unwrap_or(own);
    let certificate = create("--certificate", &arguments.certificate, &[own, written])?;
    with_driver(arguments.driver, &Run { arguments, trace, placements, certificate })
}

struct Run<'a> {
    arguments: &'a Arguments,
    trace: Trace,
    placements: Option<File>,
    certificate: Option<File>,
}

/// The object that `--json` prints.
#[derive(Serialize)]
struct Summary<'a> {
    trace: String,
    driver: String,
    policy: String,
    programmatic: String,
    /// The least that any placement by free markers needs without new edges.
    minimum_bytes: u64,
    ratio: Option<f64>,
    #[serde(flatten)]
    replayed: &'a Replayed,
    /// What was found in the graphs; none without `--lint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<&'a [Finding]>,
}

impl Job for Run<'_> {
    fn run<P: Program>(&self, driver: &Arc<P>, choice: Choice) -> Result<(), Failure> {
        let arguments = self.arguments;
        let name = load::name(&arguments.trace);
        let mut config =
            Config::default().reuse(arguments.policy).programmatic(arguments.programmatic);
        config.settings.plan_search = arguments.plan_search.get();
        let options = Options {
            config,
            tags: arguments.tags,
            delay: if arguments.tags { TAG_DELAY } else { 0 },
            launches: if arguments.tags { TAG_LAUNCHES } else { arguments.launches },
            plan: arguments.plan,
            warm_ups: arguments.warm_ups,
            lint: arguments.lint,
            ..Options::default()
        };
        let operations = self.trace.operations().len();
        let spinner = progress::spinner(format!("replaying {operations} operations on {choice}"));
        let replayed = replay(driver, &self.trace, &options)
            .map_err(|error| Failure::replay(&name, &error))?;
        if let Some((path, file)) = arguments.placements.as_ref().zip(self.placements.as_ref()) {
            write_placements(BufWriter::new(file), &replayed.placements)
                .map_err(|error| write::refused(path, &error))?;
        }
        spinner.set_message("finding the least memory");
        let certificates = minimum::of_trace(&self.trace, arguments.programmatic);
        if let Some((path, file)) = arguments.certificate.as_ref().zip(self.certificate.as_ref()) {
            write_certificates(BufWriter::new(file), &certificates)
                .map_err(|error| write::refused(path, &error))?;
        }
        let least = minimum::of_pools(&self.trace, &certificates, 1);
        spinner.finish_and_clear();
        let summary = Summary {
            trace: name,
            driver: choice.to_string(),
            policy: arguments.policy.to_string(),
            programmatic: arguments.programmatic.to_string(),
            minimum_bytes: least,
            ratio: regraph_plan::minimum::ratio(replayed.reserved_bytes, least),
            replayed: &replayed,
            findings: arguments.lint.then_some(&replayed.findings),
        };
        let mut output = io::stdout().lock();
        if arguments.json {
            serde_json::to_writer(&mut output, &summary).map_err(io::Error::from)?;
            writeln!(output)?;
        } else {
            summary.print(&mut output)?;
        }
        output.flush()?;
        Ok(())
    }
}

impl Summary<'_> {
    fn print(&self, output: &mut impl Write) -> io::Result<()> {
        let replayed = self.replayed;
        let proof = if replayed.verified { "verified" } else { "not verified" };
        writeln!(output, "trace      {}", self.trace)?;
        writeln!(
            output,
            "with       {}, {}, programmatic {}",
            self.driver, self.policy, self.programmatic
        )?;
        let again = match replayed.again {
            0 => String::new(),
            times => format!(", captured again for programmatic launches: {times}"),
        };
        writeln!(
            output,
            "captures   {} ({} nodes, {} blocks), {proof}{again}",
            replayed.captures, replayed.nodes, replayed.blocks
        )?;
        writeln!(
            output,
            "memory     {:.1} MiB reserved, {:.1} MiB peak allocated, {:.1} MiB in all blocks",
            mebibytes(replayed.reserved_bytes.into()),
            mebibytes(replayed.peak_allocated_bytes.into()),
            mebibytes(replayed.total_bytes as i128)
        )?;
        let ratio = self.ratio.map(|ratio| format!(", reserved {ratio:.2} of it"));
        writeln!(
            output,
            "minimum    {:.1} MiB{}",
            mebibytes(self.minimum_bytes.into()),
            ratio.unwrap_or_default()
        )?;
        for plan in &replayed.plans {
            writeln!(
                output,
                "plan       {:.1} MiB in {} pieces, mapped {} times; at least {:.1} MiB; planned in {:.3} \
                 ms, carried out in {:.3} ms",
                mebibytes(plan.bytes.into()),
                plan.pieces,
                plan.mappings,
                mebibytes(plan.minimum_bytes.into()),
                plan.planning_ns as f64 / 1e6,
                plan.binding_ns as f64 / 1e6
            )?;
        }
        for layout in &replayed.layouts {
            let planned = mebibytes(layout.planned_bytes.into());
            match layout.fell_back {
                None => writeln!(
                    output,
                    "layout     {planned:.1} MiB, followed: {} of {} blocks",
                    layout.followed, layout.planned
                )?,
                Some(_) => {
                    writeln!(output, "layout     {planned:.1} MiB, not followed: {layout}")?;
                }
            }
        }
        if let Some(findings) = self.findings {
            print_findings(findings, output)?;
        }
        writeln!(
            output,
            "host time  {:.3} ms capture, {} ns per alloc, {} ns per free",
            replayed.capture_ns as f64 / 1e6,
            replayed.alloc_ns,
            replayed.free_ns
        )
    }
}

/// All but bare guesses, which are counted.
fn print_findings(findings: &[Finding], output: &mut impl Write) -> io::Result<()> {
    let guesses = findings.iter().filter(|finding| finding.guess).count();
    writeln!(
        output,
        "lint       {} findings; {guesses} bare guesses (kernels that are the first to touch a block)",
        findings.len() - guesses
    )?;
    for Finding { capture, block, text, .. } in findings.iter().filter(|it| !it.guess) {
        let block = block.map_or(String::new(), |block| format!(", block {block} of the trace"));
        writeln!(output, "  capture {capture}{block}: {text}")?;
    }
    Ok(())
}

fn write_certificates(mut output: impl Write, certificates: &[Certificate]) -> io::Result<()> {
    for certificate in certificates {
        certificate.write(&mut output)?;
    }
    output.flush()
}

fn write_placements(mut output: impl Write, placements: &[Placement]) -> io::Result<()> {
    for placement in placements {
        serde_json::to_writer(&mut output, placement)?;
        output.write_all(b"\n")?;
    }
    output.flush()
}
