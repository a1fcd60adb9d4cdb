//! `regraph plot`.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use regraph::engine::Config;
use regraph::settings::{Programmatic, Reuse};
use regraph_cli::plot::{self, Series};
use regraph_cli::replay::Options;
use regraph_sim::{SimConfig, SimDriver};

use super::failure::Failure;
use super::load::{self, load};
use super::progress;

#[derive(Args)]
pub struct Arguments {
    /// The trace, JSON Lines in format v1; `-` is standard input.
    trace: PathBuf,
    /// Which streams may take a free block, a panel each: cross-stream, own-stream, deferred.
    #[arg(long, value_delimiter = ',', default_values_t = Reuse::ALL, value_name = "POLICIES")]
    policy: Vec<Reuse>,
    /// What programmatic edges prove: auto, deny, lag or trust.
    #[arg(long, default_value_t, value_name = "PROOF")]
    programmatic: Programmatic,
    /// The page to write, over one that is there; by default the trace's name with `.html`, in the
    /// folder that the command runs in.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let trace = load(&arguments.trace)?;
    let name = load::name(&arguments.trace);
    let mut series: Vec<Series> = Vec::new();
    let spinner = progress::spinner(format!("running {name}"));
    for (index, policy) in arguments.policy.iter().enumerate() {
        if arguments.policy[..index].contains(policy) {
            continue;
        }
        let mut config = Config::default();
        config.settings.reuse = *policy;
        config.settings.programmatic = arguments.programmatic;
        let options = Options { config, ..Options::default() };
        let driver = Arc::new(SimDriver::new(SimConfig::default()));
        let run = Series::run(&driver, &trace, &options);
        series.push(run.map_err(|error| Failure::replay(&format!("{name}: {policy}"), &error))?);
    }
    spinner.finish_and_clear();
    let title = match arguments.trace.file_name() {
        Some(name) if !load::is_stdin(&arguments.trace) => name,
        _ => OsStr::new("trace"),
    };
    let page = plot::render(&title.to_string_lossy(), &trace, &series);
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => PathBuf::from(title).with_extension("html"),
    };
    load::differs(&arguments.trace, &path)?;
    fs::write(&path, page)
        .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
    let mut output = io::stdout().lock();
    writeln!(output, "written to {}", path.display())?;
    output.flush()?;
    Ok(())
}
