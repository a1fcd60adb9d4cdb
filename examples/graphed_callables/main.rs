//! A training step without graphs, as two graphs, and as one: what each costs the processor.
//!
//! ```text
//! cargo run --release --example graphed_callables [-- --simulated]
//! ```
//!
//! The network is many small layers, so that its kernels take the GPU less time than it takes the
//! processor to launch them one by one. The same code runs three times, on equal weights and data:
//!
//! * without a graph: every step allocates its blocks and launches its kernels;
//! * forward and backward as the two parts of a callable, with the update of the weights outside;
//! * the whole step as one part.
//!
//! The table has the processor's time of a step, from the call to its return, and the time until the
//! GPU has done it; both as the median of all steps. The weights must be the same in the end, bit for
//! bit, and must have learnt something; otherwise the program fails.
//!
//! Without a GPU the same code runs in a probe, which tells the memory of each way and no times.

mod machine;
mod network;
mod trainer;

use std::error::Error as AnyError;
use std::process::ExitCode;
use std::sync::Arc;

use regraph::driver::cuda::CudaDriver;
use regraph::engine::{Config, Engine};
use regraph::probe::Probe;

use machine::{Gpu, Simulated};
use trainer::{Cost, Outcome, Trainer, WAYS};

const STEPS: usize = 200;

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Trains in all ways on a GPU, and compares the results.
fn on_a_gpu(driver: CudaDriver) -> Result<(), Box<dyn AnyError>> {
    let gpu = Gpu::new(&driver)?;
    let engine = Arc::new(Engine::new(driver, Config::default()));
    let trainer = Trainer { engine: &engine, machine: &gpu, steps: STEPS };
    println!("A step                launches  processor ms  done ms  reserved MiB  driver MiB");
    let mut first: Option<Outcome> = None;
    for (way, name) in WAYS {
        let outcome = trainer.train(way)?;
        let Cost { launches, processor, done, reserved, driver_bytes } = outcome.cost;
        let [processor, done] = [processor, done].map(|time| time.as_secs_f64() * 1e3);
        println!(
            "{name:21} {launches:>8} {processor:>13.3} {done:>8.3} {:>13.1} {:>11.1}",
            mib(reserved),
            mib(driver_bytes)
        );
        let [before, after] = outcome.errors;
        if after.is_nan() || after > before / 2.0 {
            return Err(
                format!("nothing was learnt: the error went from {before} to {after}").into()
            );
        }
        if first.as_ref().is_some_and(|first| first.parameters != outcome.parameters) {
            return Err(format!("{name}: the weights are not those of \"{}\"", WAYS[0].1).into());
        }
        first.get_or_insert(outcome);
    }
    let [before, after] = first.map_or([0.0; 2], |first| first.errors);
    println!("Medians of {STEPS} steps. Launches: kernels that no graph holds.");
    println!(
        "The weights are the same, bit for bit. Their error went from {before:.4} to {after:.4}."
    );
    Ok(())
}

/// Runs a few steps in all ways in a probe.
fn in_a_probe() -> Result<(), Box<dyn AnyError>> {
    let probe = Probe::new(Config::default());
    let machine = Simulated { probe: &probe, stream: probe.stream()? };
    let trainer = Trainer { engine: probe.engine(), machine: &machine, steps: 3 };
    println!("A step                launches  reserved MiB");
    for (way, name) in WAYS {
        let Cost { launches, reserved, .. } = trainer.train(way)?.cost;
        println!("{name:21} {launches:>8} {:>13.1}", mib(reserved));
    }
    println!("Launches: kernels that no graph holds. Times and weights take a GPU.");
    Ok(())
}

/// Chooses the device.
fn run() -> Result<(), Box<dyn AnyError>> {
    if std::env::args().all(|argument| argument != "--simulated") {
        match CudaDriver::new(0) {
            Ok(driver) => {
                println!("{}", driver.device_name()?);
                return on_a_gpu(driver);
            }
            Err(error) => println!("There is no GPU to run this on: {error}."),
        }
    }
    println!("Simulated.");
    in_a_probe()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
