//! `regraph-lab sweep`.

use std::io::{self, Write};
use std::sync::Arc;

use clap::Args;
use regraph_cli::replay::Plan;
use regraph_cli::shell::drivers::{with_driver, Choice, Job};
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use regraph_lab::sweep::{self, Row, Shape, Sizes};
use regraph_tagged::Program;

/// How often a graph is launched for its time.
const LAUNCHES: u32 = 11;

#[derive(Args)]
pub struct Arguments {
    /// The driver; by default CUDA if the machine has a GPU.
    #[arg(long, value_enum)]
    driver: Option<Choice>,
    /// What the captures look like: steps (24 of single steps on any stream), layers (nine that fork into branches
    /// and gather them, again and again) or pipelines (six of chunks that pass through stages).
    #[arg(long, default_value_t, value_name = "SHAPE")]
    shape: Shape,
    /// The blocks' sizes: fixed (4 MiB) or mixed (1 KiB to 24 MiB).
    #[arg(long, default_value_t, value_name = "SIZES")]
    sizes: Sizes,
    /// Run each workload once more with this plan.
    #[arg(long, value_enum, default_value_t, value_name = "PLAN")]
    plan: Plan,
    /// Print a JSON object a row.
    #[arg(long)]
    json: bool,
    /// What the workloads are drawn from.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    with_driver(arguments.driver, &Run { arguments })
}

struct Run<'a> {
    arguments: &'a Arguments,
}

impl Job for Run<'_> {
    fn run<P: Program>(&self, driver: &Arc<P>, choice: Choice) -> Result<(), Failure> {
        let plan = self.arguments.plan;
        let launches = match choice {
            Choice::Sim => 0,
            Choice::Cuda => LAUNCHES,
        };
        let shape = self.arguments.shape;
        let workloads = shape.workloads(self.arguments.sizes, self.arguments.seed);
        let bar = progress::bar(workloads.len());
        let mut output = io::stdout().lock();
        if !self.arguments.json {
            bar.suspend(|| header(&mut output, choice, plan))?;
        }
        for (index, workload) in workloads.iter().enumerate() {
            let what = format!("workload {index}");
            let trace = shape
                .trace(workload)
                .map_err(|error| Failure::Other(format!("{what}: {error}")))?;
            let row = sweep::run(driver, workload, &trace, launches, plan)
                .map_err(|error| Failure::replay(&what, &error))?;
            // A row at a time, so that a reader sees each as soon as it is there.
            bar.suspend(|| -> io::Result<()> {
                if self.arguments.json {
                    serde_json::to_writer(&mut output, &row)?;
                    writeln!(output)?;
                } else {
                    line(&mut output, &row, plan)?;
                }
                output.flush()
            })?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }
}

const HEADINGS: [&str; 17] = [
    "streams",
    "steps",
    "alloc",
    "free",
    "join",
    "nodes",
    "blocks",
    "reserved",
    "minimum",
    "ratio",
    "deferred",
    "own-stream",
    "peak alloc.",
    "capture ms",
    "ns/alloc",
    "ns/free",
    "replay ms",
];

/// Those of the replay with a plan.
const PLANNED_HEADINGS: [&str; 7] =
    ["planned", "minimum", "ratio", "mappings", "plan ms", "map ms", "replay ms"];

fn header(output: &mut impl Write, driver: Choice, plan: Plan) -> io::Result<()> {
    writeln!(output, "driver {driver}; memory in MiB")?;
    columns(output, headings(plan).map(|heading| (heading, heading.to_owned())))
}

fn headings(plan: Plan) -> impl Iterator<Item = &'static str> {
    let planned: &[_] = match plan {
        Plan::None => &[],
        _ => &PLANNED_HEADINGS,
    };
    HEADINGS.iter().chain(planned).copied()
}

fn line(output: &mut impl Write, row: &Row, plan: Plan) -> io::Result<()> {
    let mebibytes = |bytes: u64| format!("{:.1}", regraph_cli::mebibytes(bytes.into()));
    let milliseconds = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
    let if_any = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    let ratio = |ratio: Option<f64>| if_any(ratio.map(|ratio| format!("{ratio:.3}")));
    let mut cells = vec![
        row.streams.to_string(),
        row.operations.to_string(),
        row.alloc.to_string(),
        row.free.to_string(),
        row.join.to_string(),
        row.nodes.to_string(),
        row.blocks.to_string(),
        mebibytes(row.reserved_bytes),
        mebibytes(row.minimum_bytes),
        ratio(row.ratio),
        mebibytes(row.deferred_bytes),
        mebibytes(row.own_stream_bytes),
        mebibytes(row.peak_allocated_bytes),
        milliseconds(row.capture_ns),
        row.alloc_ns.to_string(),
        row.free_ns.to_string(),
        if_any(row.replay_ns.map(milliseconds)),
    ];
    if let Some(planned) = &row.planned {
        cells.extend([
            mebibytes(planned.planned_bytes),
            mebibytes(planned.planned_minimum_bytes),
            ratio(planned.planned_ratio),
            planned.mappings.to_string(),
            milliseconds(planned.planning_ns),
            milliseconds(planned.binding_ns),
            if_any(planned.planned_replay_ns.map(milliseconds)),
        ]);
    }
    // A device that cannot map memory has no plans.
    cells.resize(headings(plan).count(), "-".to_owned());
    columns(output, headings(plan).zip(cells))
}

fn columns(
    output: &mut impl Write,
    cells: impl Iterator<Item = (&'static str, String)>,
) -> io::Result<()> {
    let mut text = String::new();
    for (heading, cell) in cells {
        let width = heading.len().max(6);
        text.push_str(&format!("{cell:>width$}  "));
    }
    writeln!(output, "{}", text.trim_end())
}
