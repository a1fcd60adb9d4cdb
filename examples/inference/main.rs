//! A small transformer decoder in cudarc and cuBLAS, two streams a layer, captured as a CUDA graph
//! for each of many batch sizes; and what its memory comes to, beside the same program on cudarc's
//! own allocation.
//!
//! `inference [--sizes 8,4,1] [--layers N] [--hidden N] [--vocabulary N] [--steps N]`
//!
//! The decoder is written once, in [`decoder`], over a [`memory`] that its temporaries come from: this
//! crate, cudarc itself (in a capture the driver makes memory nodes of its allocations), or a probe
//! without a device, which says beforehand how much memory the graphs will take.
//!
//! All tokens and logits are compared bit for bit with those of a run without graphs and without
//! reuse. Without a GPU only the probe runs.

mod decoder;
mod device;
mod memory;
mod shape;
mod ways;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use cudarc::driver::sys;
use regraph::cudarc::{engine, untracked};
use regraph::driver::cuda::CudaDriver;
use regraph::engine::{Config, PoolConfig};
use regraph::graphs::Pool;

use device::{Device, Launch};
use shape::Shape;
use ways::{capture_all, probe, with_cudarc, with_nodes, with_regraph, Captured};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HEADS: usize = 8;
/// Tokens that a row remembers.
const CONTEXT: usize = 256;
/// Threads in a block of every kernel.
const THREADS: usize = 256;
/// How often each graph's time is taken, and how long that takes at least, in ms.
const TURNS: usize = 20;
const TURN_MS: f64 = 40.0;

/// Whether what everything else is compared with can be right.
fn examine(generated: &[u64], batch: usize) -> Result<()> {
    if generated.iter().any(|&of| of >> 32 == 0) {
        return Err(format!("batch {batch}: a logit is not a number, or was never made").into());
    }
    if batch > 1 && generated.iter().all(|&of| of as u32 == generated[0] as u32) {
        return Err(format!("batch {batch}: all tokens are {}", generated[0] as u32).into());
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn print_held(name: &str, (largest, all): (u64, u64)) {
    println!("{name:<32} {:>12.1} {:>12.1}", mib(largest), mib(all));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Takes the graphs' times by turns, so that what changes over time changes for all.
fn print_times(device: &Device, captured: &[&Captured]) -> Result<()> {
    println!("\n{:<32} {:>12} {:>12}   of the first's", "one replay", "batch", "ms");
    for batch in [device.shape.largest(), device.shape.sizes[device.shape.sizes.len() - 1]] {
        let graphs = captured.iter().map(|of| &of.graphs[&batch]).collect::<Vec<_>>();
        let launches = (TURN_MS / device.time(batch, graphs[0], 5)?) as usize;
        let mut times = vec![Vec::new(); graphs.len()];
        for turn in 0..TURNS * graphs.len() {
            // Each goes first in some turns.
            let which = (turn + turn / graphs.len()) % graphs.len();
            times[which].push(device.time(batch, graphs[which], launches.clamp(5, 200))?);
        }
        for (of, own) in captured.iter().zip(&times) {
            let ratios = own.iter().zip(&times[0]).map(|(time, first)| time / first);
            let (ratio, time) = (median(ratios.collect()), median(own.clone()));
            println!("{:<32} {batch:>12} {time:>12.4}   {ratio:.3}", of.name);
        }
    }
    Ok(())
}

fn run() -> Result<()> {
    let shape = Shape::from_arguments()?;
    println!("{} layers of {}, batch sizes {:?}", shape.layers, shape.hidden, shape.sizes);
    // First of all: cudarc panics where there is no driver.
    let driver = CudaDriver::new(0);
    let [said, said_without] =
        [true, false].map(|reuse| probe(&shape, driver.as_ref().ok(), reuse));
    println!("{:<32} {:>12} {:>12}", "graph memory in MiB, for", "the largest", "all sizes");
    let (said, said_without) = (said?, said_without?);
    print_held("a probe says: regraph", said);
    print_held("a probe says: without reuse", said_without);
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => {
            println!("There is no GPU to run this on: {error}.");
            return Ok(());
        }
    };
    println!("on {}:", driver.device_name()?);
    let context = driver.context().clone();
    // SAFETY: the program orders its two streams itself; cudarc's own events would ruin captures.
    let _untracked = unsafe { untracked(&context) };
    let device = Device::new(&context, &shape)?;

    // What is right. It also makes cuBLAS and the kernels ready for captures.
    let mut right = BTreeMap::new();
    for &batch in &shape.sizes {
        let launch: Launch<'_> = Box::new(|| with_cudarc(&device, batch, false));
        let generated = device.generate(batch, &launch)?;
        examine(&generated, batch)?;
        right.insert(batch, generated);
    }

    let config = Config::from_environment()?;
    let pool = Pool::new(&engine(&context, config.clone())?, PoolConfig::default());
    let without = Pool::new(&engine(&context, config)?, PoolConfig::default());
    // SAFETY: takes no pointers.
    unsafe { sys::cuDeviceGraphMemTrim(context.cu_device()) }.result()?;
    let capture = |batch| with_nodes(&device, batch);
    let nodes =
        capture_all(&device, "cudarc's own, as memory nodes", capture, || device.node_memory())?;
    let capture = |batch| with_regraph(&device, &without, batch, false);
    let none = capture_all(&device, "regraph without reuse", capture, || Ok(without.reserved()?))?;
    let capture = |batch| with_regraph(&device, &pool, batch, true);
    let reuse = capture_all(&device, "regraph", capture, || Ok(pool.reserved()?))?;
    let captured = [&none, &reuse, &nodes];
    for of in captured {
        print_held(of.name, of.held);
    }
    for of in captured {
        println!("{}: free memory shrank by {:.1} MiB in all", of.name, mib(of.taken));
    }
    println!("(the driver's own for regraph's executables: {:.1} MiB)", mib(pool.driver_bytes()));
    let [largest, all] = [(reuse.held.0, nodes.held.0), (reuse.held.1, nodes.held.1)]
        .map(|(ours, theirs)| ours as f64 / theirs as f64);
    println!("regraph holds {largest:.2} of cudarc's own for the largest, {all:.2} for all sizes");
    if (said, said_without) != (reuse.held, none.held) {
        println!("the probe was wrong");
    }

    let mut wrong = 0;
    for of in captured {
        for (&batch, right) in &right {
            let generated = device.generate(batch, &of.graphs[&batch])?;
            let Some(first) = (0..right.len()).find(|&at| generated[at] != right[at]) else {
                continue;
            };
            let (step, row) = (first / batch, first % batch);
            eprintln!("{}, batch {batch}: wrong from step {step}, row {row}, on", of.name);
            wrong += 1;
        }
    }
    if wrong > 0 {
        return Err(format!("{wrong} graphs differ from a run without graphs and reuse").into());
    }
    let graphs = captured.len() * right.len();
    println!("{graphs} graphs, {} tokens a row: each bit as without graphs and reuse", shape.steps);
    print_times(&device, &captured)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inference: {error}");
            ExitCode::FAILURE
        }
    }
}
