//! Which driver a command runs on.

use std::fmt;
use std::sync::Arc;

use clap::ValueEnum;
use regraph_sim::{SimConfig, SimDriver};
#[cfg(feature = "cuda")]
use regraph_tagged::CudaProgram;
use regraph_tagged::Program;

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
pub fn with_driver(choice: Option<Choice>, job: &impl Job) -> Result<(), Failure> {
    match choice {
        Some(Choice::Sim) => simulated(job),
        Some(Choice::Cuda) => match real() {
            Ok(driver) => job.run(&driver, Choice::Cuda),
            Err(message) => Err(Failure::Other(message)),
        },
        None => match real() {
            Ok(driver) => job.run(&driver, Choice::Cuda),
            Err(_) => simulated(job),
        },
    }
}

fn simulated(job: &impl Job) -> Result<(), Failure> {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    job.run(&driver, Choice::Sim)
}

#[cfg(feature = "cuda")]
fn real() -> Result<Arc<CudaProgram>, String> {
    CudaProgram::new(0).map(Arc::new).map_err(|error| format!("driver `cuda`: {error}"))
}

#[cfg(not(feature = "cuda"))]
fn real() -> Result<Arc<SimDriver>, String> {
    Err("driver `cuda`: this build has none (feature `cuda`)".to_owned())
}
