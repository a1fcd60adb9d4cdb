//! `regraph graph`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use regraph::engine::Config;
use regraph::settings::{Programmatic, Reuse};
use regraph::Violation;
use regraph_cli::replay::{place, Options, Placed, Plan, Refusal};
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use regraph_sim::{SimConfig, SimDriver};
use regraph_trace::graph::{self, Dag, Window, Wrong};

use regraph_cli::shell::load::{self, load};
use regraph_cli::shell::write;

/// What is written, by a file's ending.
const ENDINGS: (&str, &[(&str, Format)]) = (
    "a graph is a file of DOT or SVG",
    &[("dot", Format::Dot), ("gv", Format::Dot), ("svg", Format::Svg)],
);

/// How many nodes before what is wrong are drawn.
const BEFORE: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Graphviz's language.
    Dot,
    /// A picture that browsers show.
    Svg,
}

#[derive(Args)]
pub struct Arguments {
    /// The trace, JSON Lines in format v1; `-` is standard input.
    trace: PathBuf,
    /// Which capture of the trace, counted from 0.
    #[arg(long, default_value_t = 0, value_name = "N")]
    capture: usize,
    /// What is written; by default what the file's name ends in, else DOT.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The first node, in launch order from 0; by default 0, or of a refused capture a few before what is wrong.
    #[arg(long, value_name = "NODE")]
    from: Option<u32>,
    /// The greatest number of nodes to draw.
    #[arg(long, default_value_t = 300, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Which streams may take a free block: cross-stream, own-stream or deferred.
    #[arg(long, default_value_t, value_name = "POLICY")]
    policy: Reuse,
    /// What programmatic edges prove: auto, deny, lag or trust.
    #[arg(long, default_value_t, value_name = "PROOF")]
    programmatic: Programmatic,
    /// How blocks get their places.
    #[arg(long, value_enum, default_value_t)]
    plan: Plan,
    /// The file to write, over one that is there; by default, and as `-`, standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let output = arguments.output.as_deref();
    output.map_or(Ok(()), |output| load::differs(&arguments.trace, output))?;
    let format = match arguments.format {
        Some(format) => format,
        None => write::format_of(output, ENDINGS)?.unwrap_or(Format::Dot),
    };
    let trace = load(&arguments.trace)?;
    let name = load::name(&arguments.trace);
    let Some(dag) = Dag::new(&trace, arguments.capture) else {
        let (wanted, count) = (arguments.capture, trace.captures());
        return Err(Failure::Input(format!(
            "{name}: expected a capture {wanted}, found {count} of them (counted from 0)"
        )));
    };
    let count = dag.graph().node_count();
    if let Some(from) = arguments.from.filter(|&from| count > 0 && from as usize >= count) {
        return Err(Failure::Input(format!(
            "{name}: expected a node {from} to begin with, found {count} of them (counted from 0)"
        )));
    }
    let spinner = progress::spinner(format!("running {name}"));
    let config = Config::default().reuse(arguments.policy).programmatic(arguments.programmatic);
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let options = Options { config, plan: arguments.plan, ..Options::default() };
    let placed = place(&driver, &trace, &options);
    let Placed { placements, refusal } = placed.map_err(|error| Failure::replay(&name, &error))?;
    let addresses: HashMap<_, _> =
        placements.iter().map(|block| (block.id, block.address)).collect();
    let reuses = dag.reuses(|block| addresses.get(&block).copied(), arguments.programmatic);
    spinner.finish_and_clear();
    let own = refusal.as_ref().filter(|refusal| refusal.capture == arguments.capture);
    let wrong = own.and_then(wrong);
    let first = wrong.as_ref().and_then(|wrong| wrong.nodes.iter().min());
    let from = arguments.from.or(first.map(|node| node.saturating_sub(BEFORE))).unwrap_or(0);
    let window = Window(from..from.saturating_add(arguments.nodes));
    let text = match format {
        Format::Dot => graph::dot(&dag, &reuses, &window, wrong.as_ref()),
        Format::Svg => graph::svg(&dag, &reuses, &window, wrong.as_ref()),
    };
    write::put(output.unwrap_or(Path::new("-")), &text)?;
    refusal.map_or(Ok(()), |refusal| {
        let what = format!("{name}: capture {}", refusal.capture);
        Err(Failure::replay(&what, &refusal.error))
    })
}

/// What a capture was refused for, by the trace's numbers.
fn wrong(refusal: &Refusal) -> Option<Wrong> {
    let violation = refusal.error.violation()?;
    let (blocks, nodes) = (refusal.blocks.clone(), refusal.nodes.clone());
    let text = match (violation, blocks.as_slice(), nodes.as_slice()) {
        (Violation::NotOrdered { common, .. }, [earlier, later], [one, other]) => format!(
            "refused: blocks {earlier} and {later} share {common}, and nothing makes node {other}, which may use the \
             second, wait for node {one}, which may use the first"
        ),
        (Violation::Unattributed { common, .. }, [earlier, later], [node]) => format!(
            "refused: node {node} came from no stream that was looked at, so it may use block {earlier} or {later}, which \
             share {common}"
        ),
        _ => format!("refused: {violation}"),
    };
    Some(Wrong { text, blocks, nodes })
}
