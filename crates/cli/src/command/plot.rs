//! `regraph plot`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use regraph::settings::{Programmatic, Reuse};
use regraph_cli::plot::{Least, Plot, Series};
use regraph_cli::replay::Plan;
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;

use regraph_cli::shell::load::{self, load};
use regraph_cli::shell::write;

/// What is written, by a file's ending.
const ENDINGS: (&str, &[(&str, Format)]) = (
    "a plot is a file of HTML or SVG",
    &[("html", Format::Html), ("htm", Format::Html), ("svg", Format::Svg)],
);

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A page with figures, which tells of blocks that are pointed at.
    Html,
    /// The drawing alone.
    Svg,
}

#[derive(Args)]
pub struct Arguments {
    /// The trace, JSON Lines in format v1; `-` is standard input.
    trace: PathBuf,
    /// Which streams may take a free block, a panel each: cross-stream, own-stream, deferred.
    #[arg(long, value_delimiter = ',', default_values_t = Reuse::ALL, value_name = "POLICIES")]
    policy: Vec<Reuse>,
    /// How blocks get their places, a panel each: `none` stands for the policies, the others run under the first of
    /// them.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Plan::ALL.iter().copied(), value_name = "PLANS")]
    plan: Vec<Plan>,
    /// What programmatic edges prove: auto, deny, lag or trust.
    #[arg(long, default_value_t, value_name = "PROOF")]
    programmatic: Programmatic,
    /// What is written; by default what the file's name ends in, HTML where there is no file's name.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The file to write, over one that is there; by default the trace's name with `.html` or `.svg`, in the
    /// folder that the command runs in. `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let output = arguments.output.as_deref();
    output.map_or(Ok(()), |output| load::differs(&arguments.trace, output))?;
    let format = match arguments.format {
        Some(format) => format,
        None => write::format_of(output, ENDINGS)?.unwrap_or(Format::Html),
    };
    let trace = load(&arguments.trace)?;
    let name = load::name(&arguments.trace);
    let spinner = progress::spinner(format!("running {name}"));
    let Arguments { policy, plan, programmatic, .. } = arguments;
    let begin = |run: &str| spinner.set_message(format!("running {name}: {run}"));
    let series = Series::run_all(&trace, policy, plan, *programmatic, begin)
        .map_err(|(run, error)| Failure::replay(&format!("{name}: {run}"), &error))?;
    spinner.set_message("finding the least memory");
    let least = Least::of(&trace, *programmatic);
    spinner.finish_and_clear();
    let title = match arguments.trace.file_name() {
        Some(name) if !load::is_stdin(&arguments.trace) => name,
        _ => OsStr::new("trace"),
    };
    let text = title.to_string_lossy();
    let plot = Plot { title: &text, trace: &trace, series: &series, least: Some(&least) };
    let (page, suffix) = match format {
        Format::Html => (plot.html(), "html"),
        Format::Svg => (plot.svg(), "svg"),
    };
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => PathBuf::from(title).with_extension(suffix),
    };
    load::differs(&arguments.trace, &path)?;
    write::put(&path, &page)
}
