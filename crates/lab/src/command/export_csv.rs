//! `regraph-lab export-csv`.

use std::io::{self, BufWriter};
use std::path::PathBuf;

use clap::Args;
use regraph::settings::Programmatic;
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::load::load;
use regraph_lab::problem::Problem;
use regraph_trace::minimum;

#[derive(Args)]
pub struct Arguments {
    /// A trace of one capture, JSON Lines in format v1.
    trace: PathBuf,
    /// What programmatic edges prove: auto, deny, lag or trust.
    #[arg(long, default_value_t, value_name = "PROOF")]
    programmatic: Programmatic,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let name = arguments.trace.display();
    let trace = load(&arguments.trace)?;
    let captures = minimum::lifetimes(&trace, arguments.programmatic);
    let [lifetimes] = captures.as_slice() else {
        let found = captures.len();
        return Err(Failure::Input(format!("{name}: expected one capture, found {found}")));
    };
    if !lifetimes.is_exact() {
        return Err(Failure::Other(format!("{name}: more branches than are told apart")));
    }
    let output = BufWriter::new(io::stdout().lock());
    Ok(Problem::of_capture(lifetimes).write(output, None)?)
}
