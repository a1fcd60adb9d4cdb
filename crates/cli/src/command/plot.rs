//! `regraph plot`.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use regraph::settings::{Programmatic, Reuse};
use regraph_cli::plot::{Least, Plot, Series};
use regraph_cli::replay::Plan;
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;

use super::load::{self, load};

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
    /// folder that the command runs in.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let format = match arguments.format {
        Some(format) => format,
        None => format_of(arguments.output.as_deref())?,
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
    fs::write(&path, page).map_err(|error| {
        Failure::Other(format!("{}: cannot be written: {error}", path.display()))
    })?;
    let mut output = io::stdout().lock();
    writeln!(output, "written to {}", path.display())?;
    output.flush()?;
    Ok(())
}

/// What a file is by its name: an HTML page where it has no ending.
fn format_of(output: Option<&Path>) -> Result<Format, Failure> {
    let Some(ending) = output.and_then(Path::extension) else { return Ok(Format::Html) };
    match ending.to_str() {
        Some("html" | "htm") => Ok(Format::Html),
        Some("svg") => Ok(Format::Svg),
        _ => Err(Failure::Input(format!(
            "--output: a plot is a file of HTML or SVG, not of .{}; --format says which where the name does not",
            ending.to_string_lossy()
        ))),
    }
}
