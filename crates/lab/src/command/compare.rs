//! `regraph-lab compare`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use regraph_cli::shell::drivers::{with_driver, Choice, Job};
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::load::load;
use regraph_cli::shell::progress;
use regraph_lab::sweep::{any_capture, compare, ways};
use regraph_tagged::Program;

#[derive(Args)]
pub struct Arguments {
    /// The driver; by default CUDA if the machine has a GPU.
    #[arg(long, value_enum)]
    driver: Option<Choice>,
    /// How many captures.
    #[arg(long, default_value_t = 100, value_name = "N")]
    count: u64,
    /// What the first capture is drawn from; the next ones from the numbers behind.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Traces to compare instead of captures that are drawn.
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Print each capture, as a line of its number and shape, or its file, and MiB: the least, then in each way.
    #[arg(long)]
    each: bool,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    with_driver(arguments.driver, &Run { arguments })
}

struct Run<'a> {
    arguments: &'a Arguments,
}

/// What plans come to over something else: mean and worst.
fn ratios(all: &[f64]) -> String {
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    format!("{mean:.3} {:.3}", all.iter().copied().fold(0.0, f64::max))
}

impl Job for Run<'_> {
    fn run<P: Program>(&self, driver: &Arc<P>, _: Choice) -> Result<(), Failure> {
        let &Arguments { count, seed, each, ref traces, .. } = self.arguments;
        let drawn = (seed..seed + count).map(|seed| match any_capture(seed) {
            Ok((shape, trace)) => Ok((format!("{seed} {shape}"), trace)),
            Err(error) => Err(Failure::Other(format!("capture {seed}: {error}"))),
        });
        let read = traces.iter().map(|path| {
            let trace = load(path)?;
            Ok((path.display().to_string(), trace))
        });
        let all: Box<dyn Iterator<Item = _>> =
            if traces.is_empty() { Box::new(drawn) } else { Box::new(read) };
        let bar = progress::bar(if traces.is_empty() { count as usize } else { traces.len() });
        let mut output = io::stdout().lock();
        let ways = ways();
        let mut over: Vec<[Vec<f64>; 2]> = ways.iter().map(|_| Default::default()).collect();
        for capture in all {
            let (name, trace) = capture?;
            let (minimum, reserved) =
                compare(driver, &trace).map_err(|error| Failure::replay(&name, &error))?;
            for (ratios, &bytes) in over.iter_mut().zip(&reserved) {
                for (ratios, over) in ratios.iter_mut().zip([minimum, reserved[0]]) {
                    ratios.extend((over > 0).then(|| bytes as f64 / over as f64));
                }
            }
            if each {
                let mebibytes =
                    |bytes: &u64| format!("{:.0}", regraph_cli::mebibytes((*bytes).into()));
                let all: Vec<_> = [minimum].iter().chain(&reserved).map(mebibytes).collect();
                bar.suspend(|| writeln!(output, "{name} {}", all.join(" ")))?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        writeln!(
            output,
            "plan     over the minimum: mean, worst  over no plan: mean, worst, in how many more"
        )?;
        for ((way, _), [minimum, none]) in ways.iter().zip(&over) {
            let more = none.iter().filter(|ratio| **ratio > 1.0).count();
            let (minimum, count, none) = (ratios(minimum), none.len(), ratios(none));
            writeln!(output, "{way:8} {minimum}  {none} {more} of {count}")?;
        }
        Ok(())
    }
}
