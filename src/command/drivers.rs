//! Which driver a command runs on.
//!
//! PLACEHOLDER: the drivers are still to come; `with_driver` is to be completed with them.
#![allow(dead_code)]

use std::fmt;
use std::sync::Arc;

use clap::ValueEnum;
use regraph::driver::Program;

use super::failure::Failure;

/// A driver's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The simulated device.
    Sim,
    /// The machine's first GPU.
    Cuda,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sim => "sim",
            Self::Cuda => "cuda",
        })
    }
}

/// What is to be done with whichever driver there is.
pub trait Job {
    /// Does it.
    ///
    /// # Errors
    /// The command's.
    fn run<P: Program>(&self, driver: &Arc<P>, choice: Choice) -> Result<(), Failure>;
}

/// Runs a job on the driver that was asked for; without a choice on the GPU if there is one, and
/// on the simulated device if not.
///
/// # Errors
/// The job's, and a driver that cannot be opened.
pub fn with_driver(choice: Option<Choice>, _job: &impl Job) -> Result<(), Failure> {
    let choice = choice.unwrap_or(Choice::Sim);
    Err(Failure::Other(format!(
        "this build has no driver `{choice}`"
    )))
}
