//! Why a memory limit can make a training run smaller without making it fail.
//!
//! `memory_cap [--simulated]`; without it on the machine's first GPU, if it has one.
//!
//! In its first epoch a program tries out, for every convolution, algorithms with larger and larger
//! workspaces, and keeps the memory of all of them cached though it then settles for small ones. It
//! can do without: a workspace that cannot be had is an algorithm that is not tried. With a limit
//! little above what later epochs need, the first epoch runs through in that much.

use std::error::Error as AnyError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use regraph::driver::{HostApi, StreamHandle};
use regraph::engine::{Block, Config, Engine, Error, PoolConfig, PoolId};
use regraph::settings::Settings;
use regraph_sim::{SimConfig, SimDriver};
#[cfg(feature = "cuda")]
use regraph_tagged::CudaProgram;
use regraph_tagged::{Program, Tagged, Work};

const MB: u64 = 1 << 20;
const LAYERS: u64 = 24;
const BATCHES: usize = 3;
const LATER_EPOCHS: usize = 2;
/// What each algorithm's workspace is to the smallest one's.
const ALGORITHMS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// A convolution. All in bytes.
struct Layer {
    weights: u64,
    activation: u64,
    workspace: u64,
}

/// Sizes without a common measure: what one layer leaves fits no other.
fn layers() -> Vec<Layer> {
    let layer = |number: u64| Layer {
        weights: (1 + number * 7 % 11) * 701 * 1024,
        activation: (LAYERS - number) * 1_783 * 1024 + number * 37 * 512,
        workspace: (12 + number * 5 % 47) * 1_021 * 1024,
    };
    (0..LAYERS).map(layer).collect()
}

struct Training<P: Program> {
    engine: Engine<Arc<P>>,
    pool: PoolId,
    compute: StreamHandle,
    side: StreamHandle,
    layers: Vec<Layer>,
}

impl<P: Program> Training<P> {
    fn new(driver: &Arc<P>, limit: Option<u64>) -> Result<Self, Error> {
        let config = Config::default().settings(Settings::default().memory_limit_bytes(limit));
        let engine = Engine::new(driver.clone(), config);
        let pool = engine.create_pool(PoolConfig::default());
        let (compute, side) = (driver.create_stream()?, driver.create_stream()?);
        Ok(Self { engine, pool, compute, side, layers: layers() })
    }

    /// Runs a kernel that writes all of some blocks.
    fn launch(&self, stream: StreamHandle, blocks: &[Block]) -> Result<(), Error> {
        let range = |block: &Block| Tagged { address: block.address, bytes: block.bytes, tag: 1 };
        let outputs: Vec<Tagged> = blocks.iter().map(range).collect();
        let work = Work { outputs: &outputs, ..Work::default() };
        Ok(self.engine.driver().launch(stream, work, false)?)
    }

    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<Block, Error> {
        self.engine.allocate(self.pool, bytes, stream)
    }

    /// Tries all algorithms, the large ones too: one whose workspace cannot be had is left out.
    /// That the smallest was the best in the end is not known before.
    fn tune(&self, layer: &Layer, stream: StreamHandle) -> Result<(), Error> {
        for factor in ALGORITHMS {
            match self.allocate(layer.workspace * factor, stream) {
                Ok(workspace) => {
                    self.launch(stream, &[workspace])?;
                    self.engine.free(workspace.id)?;
                }
                Err(Error::OutOfMemory(_)) if factor > 1 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One step of a layer on a stream, with the workspace it has settled for.
    fn convolve(&self, layer: &Layer, stream: StreamHandle, block: Block) -> Result<(), Error> {
        let workspace = self.allocate(layer.workspace, stream)?;
        self.launch(stream, &[block, workspace])?;
        self.engine.free(workspace.id)
    }

    fn batch(&self, first_epoch: bool) -> Result<(), Error> {
        let Self { engine, compute, side, layers, .. } = self;
        let (compute, side, driver) = (*compute, *side, engine.driver());
        // The input is loaded on one stream and used on the other.
        let input = self.allocate(37 * MB, side)?;
        self.launch(side, &[input])?;
        driver.wait(compute, side)?;
        engine.record_stream(input.id, compute)?;

        let mut activations = Vec::new();
        for layer in layers {
            let activation = self.allocate(layer.activation, compute)?;
            if first_epoch {
                self.tune(layer, compute)?;
            }
            self.convolve(layer, compute, activation)?;
            activations.push(activation);
        }
        engine.free(input.id)?;
        // Backwards the gradients of the weights have a stream of their own.
        for (layer, activation) in layers.iter().zip(activations).rev() {
            driver.wait(side, compute)?;
            let gradient = self.allocate(layer.weights, side)?;
            if first_epoch && layer.workspace < 30 * MB {
                self.tune(layer, side)?;
            }
            self.convolve(layer, side, gradient)?;
            engine.record_stream(activation.id, side)?;
            engine.free(activation.id)?;
            engine.free(gradient.id)?;
        }
        driver.wait(compute, side)?;
        Ok(driver.synchronize()?)
    }

    /// Trains, and returns what was held at most in the first epoch and in later ones, and how much
    /// of the latter was in blocks.
    fn run(&self) -> Result<[u64; 3], Error> {
        let mut weights = Vec::new();
        for layer in &self.layers {
            // With momentum.
            weights.push(self.allocate(2 * layer.weights, self.compute)?);
        }
        for _ in 0..BATCHES {
            self.batch(true)?;
        }
        let first = self.engine.statistics()?.all.reserved_bytes.peak;
        self.engine.empty_cache()?;
        self.engine.reset_peaks()?;
        for _ in 0..BATCHES * LATER_EPOCHS {
            self.batch(false)?;
        }
        let later = self.engine.statistics()?.all;
        for block in weights {
            self.engine.free(block.id)?;
        }
        Ok([first, later.reserved_bytes.peak, later.allocated_bytes.peak])
    }
}

/// One row of the table. Returns the peaks, if the run went through.
fn row<P: Program>(driver: &Arc<P>, limit: Option<u64>) -> Result<Option<[u64; 3]>, Error> {
    let training = Training::new(driver, limit)?;
    let failures = Arc::new(AtomicU64::new(0));
    let seen = failures.clone();
    training.engine.observe_out_of_memory(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
    });
    let outcome = training.run();
    let retries = training.engine.statistics()?.counts.num_alloc_retries;
    let failures = failures.load(Ordering::Relaxed);
    let limit = limit.map_or("none".to_owned(), |limit| (limit / MB).to_string());
    let peaks = match outcome {
        Ok(peaks) => {
            let [first, later, _] = peaks.map(|bytes| bytes / MB);
            println!("{limit:>6} {first:>12} {later:>13} {retries:>8} {failures:>15}  ran through");
            Some(peaks)
        }
        Err(Error::OutOfMemory(report)) => {
            let (none, survived) = ("-", failures - 1);
            println!("{limit:>6} {none:>12} {none:>13} {retries:>8} {survived:>15}  {report}");
            for leak in training.engine.leaks()? {
                training.engine.free(leak.block)?;
            }
            None
        }
        Err(error) => return Err(error),
    };
    driver.synchronize()?;
    for stream in [training.compute, training.side] {
        training.engine.retire_stream(stream)?;
        driver.destroy_stream(stream)?;
    }
    Ok(peaks)
}

fn table<P: Program>(driver: &Arc<P>) -> Result<(), Box<dyn AnyError>> {
    println!("All in MB (1,048,576 bytes); peaks of what is held.");
    println!(" limit  first epoch  later epochs  retries  errors survived");
    let peaks = row(driver, None)?.ok_or("without a limit there must be room")?;
    let [_, later, in_blocks] = peaks;
    let above = (later + later / 50).next_multiple_of(MB);
    let below = in_blocks - MB;
    for limit in [4096 * MB, 2048 * MB, 1280 * MB, 1024 * MB, above, below] {
        row(driver, Some(limit))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn AnyError>> {
    #[cfg(feature = "cuda")]
    if std::env::args().all(|argument| argument != "--simulated") {
        match CudaProgram::new(0) {
            Ok(driver) => {
                println!("{}", driver.device_name()?);
                return table(&Arc::new(driver));
            }
            Err(error) => println!("There is no GPU to run this on: {error}."),
        }
    }
    println!("Simulated.");
    table(&Arc::new(SimDriver::new(SimConfig::default())))
}
