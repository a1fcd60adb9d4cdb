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

use std::error::Error as AnyError;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use regraph::callables::{Callable, Options, Stage};
use regraph::cudarc::{Buf, Error};
use regraph::driver::cuda::CudaDriver;
use regraph::driver::{AsStream, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::Submit;
use regraph::graphs::{self, Memory, Pool};
use regraph_sim::probe::Probe;
use regraph_sim::SimDriver;

const LAYERS: usize = 48;
const WIDTH: usize = 64;
const BATCH: usize = 64;
const BATCHES: usize = 8;
const STEPS: usize = 200;
const RATE: f32 = 3e-5;

/// Threads of a block of a kernel.
const THREADS: u32 = 256;

/// One of the kernels at the end of this file, with its numbers.
enum Kernel {
    /// `out[i] = a[i] + scale * b[i % period]`.
    AddScaled { period: u32, scale: f32 },
    /// `out[i] = a[i]` where `b[i]` is above zero, else zero.
    Gate,
    /// The product of two matrices.
    Product { terms: u32, a: Strides, b: Strides },
}

/// How far apart a matrix has the numbers of neighbouring rows, for `a`, or columns, for `b`, and
/// those of neighbouring terms of a sum.
struct Strides {
    place: u32,
    term: u32,
}

/// What runs a step: a GPU, or a probe that only allocates.
trait Machine: Sync {
    type Driver: Submit;
    type Buffer: Sync;

    fn stream(&self) -> StreamHandle;

    /// A buffer of `len` numbers, unset.
    fn buffer(&self, pool: &Pool<Self::Driver>, len: usize) -> Result<Self::Buffer, Error>;

    fn write(&self, values: &[f32], to: &mut Self::Buffer) -> Result<(), Error>;

    fn read(&self, from: &Self::Buffer) -> Result<Vec<f32>, Error>;

    fn copy(&self, from: &Self::Buffer, to: &mut Self::Buffer) -> Result<(), Error>;

    /// Launches a kernel that writes all of `out`.
    fn launch(&self, kernel: &Kernel, buffers: [&Self::Buffer; 3]) -> Result<(), Error>;
}

struct Gpu {
    stream: Arc<CudaStream>,
    add_scaled: CudaFunction,
    gate: CudaFunction,
    product: CudaFunction,
}

impl Gpu {
    fn new(driver: &CudaDriver) -> Result<Self, Error> {
        let stream = driver.context().new_stream()?;
        let module = driver.context().load_module(Ptx::from_src(KERNELS))?;
        Ok(Self {
            stream,
            add_scaled: module.load_function("add_scaled")?,
            gate: module.load_function("gate")?,
            product: module.load_function("product")?,
        })
    }
}

impl Machine for Gpu {
    type Driver = CudaDriver;
    type Buffer = Buf<f32>;

    fn stream(&self) -> StreamHandle {
        self.stream.as_stream()
    }

    fn buffer(&self, pool: &Pool<CudaDriver>, len: usize) -> Result<Buf<f32>, Error> {
        // SAFETY: every buffer is written, by a copy or as a kernel's first, before it is read.
        unsafe { pool.alloc(&self.stream, len) }
    }

    fn write(&self, values: &[f32], to: &mut Buf<f32>) -> Result<(), Error> {
        Ok(self.stream.memcpy_htod(values, to)?)
    }

    fn read(&self, from: &Buf<f32>) -> Result<Vec<f32>, Error> {
        Ok(self.stream.clone_dtoh(from)?)
    }

    fn copy(&self, from: &Buf<f32>, to: &mut Buf<f32>) -> Result<(), Error> {
        Ok(self.stream.memcpy_dtod(from, to)?)
    }

    fn launch(&self, kernel: &Kernel, [out, a, b]: [&Buf<f32>; 3]) -> Result<(), Error> {
        let function = match kernel {
            Kernel::AddScaled { .. } => &self.add_scaled,
            Kernel::Gate => &self.gate,
            Kernel::Product { .. } => &self.product,
        };
        let count = out.len() as u32;
        let mut launcher = self.stream.launch_builder(function);
        launcher.arg(out).arg(a).arg(b).arg(&count);
        match kernel {
            Kernel::AddScaled { period, scale } => {
                launcher.arg(period).arg(scale);
            }
            Kernel::Gate => {}
            Kernel::Product { terms, a, b } => {
                launcher.arg(&COLUMNS).arg(terms);
                launcher.arg(&a.place).arg(&a.term).arg(&b.place).arg(&b.term);
            }
        }
        let shape = LaunchConfig {
            grid_dim: (count.div_ceil(THREADS), 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the arguments are those that the kernel declares, and the buffers are as long as
        // the numbers say, which all come from the shapes of one network.
        unsafe { launcher.launch(shape) }?;
        Ok(())
    }
}

/// What stands for a GPU in a probe: nothing is computed.
struct Simulated<'p> {
    probe: &'p Probe,
    stream: StreamHandle,
}

impl Machine for Simulated<'_> {
    type Driver = SimDriver;
    type Buffer = Memory<SimDriver>;

    fn stream(&self) -> StreamHandle {
        self.stream
    }

    fn buffer(&self, pool: &Pool<SimDriver>, len: usize) -> Result<Memory<SimDriver>, Error> {
        pool.allocate((len * size_of::<f32>()) as u64, self.stream)
    }

    fn write(&self, _: &[f32], _: &mut Memory<SimDriver>) -> Result<(), Error> {
        Ok(())
    }

    fn read(&self, _: &Memory<SimDriver>) -> Result<Vec<f32>, Error> {
        Ok(Vec::new())
    }

    fn copy(&self, _: &Memory<SimDriver>, _: &mut Memory<SimDriver>) -> Result<(), Error> {
        Ok(())
    }

    fn launch(&self, _: &Kernel, _: [&Memory<SimDriver>; 3]) -> Result<(), Error> {
        self.probe.engine().driver().submit(self.stream, &[], || Ok(()))
    }
}

/// The parameters of a layer, or their gradients.
struct Layer<B> {
    weights: B,
    bias: B,
}

/// What a layer's forward pass leaves for its backward pass.
struct Saved<B> {
    /// What went into the gate.
    gated: B,
    output: B,
}

/// Inputs of a step.
struct Batch<B> {
    input: B,
    target: B,
}

/// A network whose layers each add `max(0, input * weights + bias)` to their input.
struct Network<'m, M: Machine> {
    machine: &'m M,
    layers: Vec<Layer<M::Buffer>>,
    /// A one: the sum of columns is their product with ones.
    one: M::Buffer,
    launches: AtomicUsize,
}

impl<'m, M: Machine> Network<'m, M> {
    fn new(machine: &'m M, pool: &Pool<M::Driver>) -> Result<Self, Error> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut filled = |len: usize, bound: f32| {
            let values: Vec<f32> = (0..len).map(|_| bound * around_zero(&mut random)).collect();
            let mut buffer = machine.buffer(pool, len)?;
            machine.write(&values, &mut buffer)?;
            Ok::<_, Error>(buffer)
        };
        let mut layers = Vec::new();
        for _ in 0..LAYERS {
            layers.push(Layer { weights: filled(WIDTH * WIDTH, 0.02)?, bias: filled(WIDTH, 0.0)? });
        }
        let mut one = machine.buffer(pool, 1)?;
        machine.write(&[1.0], &mut one)?;
        Ok(Self { machine, layers, one, launches: AtomicUsize::new(0) })
    }

    /// Runs a kernel on two buffers, with a new one for its result.
    fn run(
        &self,
        pool: &Pool<M::Driver>,
        len: usize,
        kernel: &Kernel,
        [a, b]: [&M::Buffer; 2],
    ) -> Result<M::Buffer, Error> {
        let out = self.machine.buffer(pool, len)?;
        self.launch(kernel, [&out, a, b])?;
        Ok(out)
    }

    fn launch(&self, kernel: &Kernel, buffers: [&M::Buffer; 3]) -> Result<(), Error> {
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.machine.launch(kernel, buffers)
    }

    fn forward(
        &self,
        pool: &Pool<M::Driver>,
        input: &M::Buffer,
    ) -> Result<Vec<Saved<M::Buffer>>, Error> {
        let mut saved: Vec<Saved<M::Buffer>> = Vec::new();
        for layer in &self.layers {
            let input = saved.last().map_or(input, |last| &last.output);
            let mixed = self.run(pool, ALL, &TIMES_WEIGHTS, [input, &layer.weights])?;
            let gated = self.run(pool, ALL, &ADD_BIAS, [&mixed, &layer.bias])?;
            drop(mixed);
            let added = self.run(pool, ALL, &Kernel::Gate, [&gated, &gated])?;
            let output = self.run(pool, ALL, &ADD, [input, &added])?;
            saved.push(Saved { gated, output });
        }
        Ok(saved)
    }

    /// The gradient of half the squared error.
    fn loss(
        &self,
        pool: &Pool<M::Driver>,
        saved: &[Saved<M::Buffer>],
        target: &M::Buffer,
    ) -> Result<M::Buffer, Error> {
        let last = saved.last().expect("there are layers");
        self.run(pool, ALL, &SUBTRACT, [&last.output, target])
    }

    /// The gradients of all layers, the last layer first. What was saved goes as it is used.
    fn backward(
        &self,
        pool: &Pool<M::Driver>,
        input: &M::Buffer,
        mut saved: Vec<Saved<M::Buffer>>,
        mut gradient: M::Buffer,
    ) -> Result<Vec<Layer<M::Buffer>>, Error> {
        let mut gradients = Vec::new();
        while let Some(Saved { gated, output }) = saved.pop() {
            drop(output);
            let inner = self.run(pool, ALL, &Kernel::Gate, [&gradient, &gated])?;
            let input = saved.last().map_or(input, |before| &before.output);
            let weights = self.run(pool, WIDTH * WIDTH, &INPUT_TIMES, [input, &inner])?;
            let bias = self.run(pool, WIDTH, &COLUMN_SUMS, [&self.one, &inner])?;
            gradients.push(Layer { weights, bias });
            if !saved.is_empty() {
                let layer = &self.layers[saved.len()];
                let back = self.run(pool, ALL, &TIMES_TRANSPOSED, [&inner, &layer.weights])?;
                gradient = self.run(pool, ALL, &ADD, [&gradient, &back])?;
            }
        }
        Ok(gradients)
    }

    fn update(&self, gradients: &[Layer<M::Buffer>]) -> Result<(), Error> {
        for (layer, gradient) in self.layers.iter().rev().zip(gradients) {
            self.launch(&DESCEND, [&layer.weights, &layer.weights, &gradient.weights])?;
            self.launch(&DESCEND, [&layer.bias, &layer.bias, &gradient.bias])?;
        }
        Ok(())
    }

    /// All parameters, as bits, for comparison.
    fn parameters(&self) -> Result<Vec<u32>, Error> {
        let mut bits = Vec::new();
        for layer in &self.layers {
            for buffer in [&layer.weights, &layer.bias] {
                bits.extend(self.machine.read(buffer)?.into_iter().map(f32::to_bits));
            }
        }
        Ok(bits)
    }

    /// The mean squared error of a batch.
    fn error(&self, pool: &Pool<M::Driver>, batch: &Batch<M::Buffer>) -> Result<f64, Error> {
        let saved = self.forward(pool, &batch.input)?;
        let differences = self.machine.read(&self.loss(pool, &saved, &batch.target)?)?;
        Ok(differences.iter().map(|value| f64::from(value * value)).sum::<f64>() / ALL as f64)
    }
}

/// Numbers in a batch, and in what a layer makes of it.
const ALL: usize = BATCH * WIDTH;
/// All products have as many columns.
const COLUMNS: u32 = WIDTH as u32;
const ADD: Kernel = Kernel::AddScaled { period: ALL as u32, scale: 1.0 };
const SUBTRACT: Kernel = Kernel::AddScaled { period: ALL as u32, scale: -1.0 };
const ADD_BIAS: Kernel = Kernel::AddScaled { period: COLUMNS, scale: 1.0 };
const DESCEND: Kernel = Kernel::AddScaled { period: COLUMNS * COLUMNS, scale: -RATE };
const TIMES_WEIGHTS: Kernel = Kernel::Product {
    terms: COLUMNS,
    a: Strides { place: COLUMNS, term: 1 },
    b: Strides { place: 1, term: COLUMNS },
};
const TIMES_TRANSPOSED: Kernel = Kernel::Product {
    terms: COLUMNS,
    a: Strides { place: COLUMNS, term: 1 },
    b: Strides { place: COLUMNS, term: 1 },
};
const INPUT_TIMES: Kernel = Kernel::Product {
    terms: BATCH as u32,
    a: Strides { place: 1, term: COLUMNS },
    b: Strides { place: 1, term: COLUMNS },
};
const COLUMN_SUMS: Kernel = Kernel::Product {
    terms: BATCH as u32,
    a: Strides { place: 0, term: 0 },
    b: Strides { place: 1, term: COLUMNS },
};

/// What the parts of a step leave for each other.
struct Left<B> {
    saved: Vec<Saved<B>>,
    gradient: Option<B>,
    gradients: Vec<Layer<B>>,
}

impl<B> Default for Left<B> {
    fn default() -> Self {
        Self { saved: Vec::new(), gradient: None, gradients: Vec::new() }
    }
}

/// How a step is run.
#[derive(Clone, Copy)]
enum Way {
    NoGraph,
    TwoGraphs,
    OneGraph,
}

const WAYS: [(Way, &str); 3] = [
    (Way::NoGraph, "no graph"),
    (Way::TwoGraphs, "forward and backward"),
    (Way::OneGraph, "the whole step"),
];

/// What a step costs.
struct Cost {
    /// Kernels that the processor launches by itself.
    launches: usize,
    processor: Duration,
    done: Duration,
    reserved: u64,
    driver_bytes: u64,
}

/// What a training came to.
struct Outcome {
    cost: Cost,
    /// The mean squared error before and after.
    errors: [f64; 2],
    parameters: Vec<u32>,
}

/// A machine with its engine, and how many steps to train.
struct Trainer<'m, M: Machine> {
    engine: &'m Arc<Engine<M::Driver>>,
    machine: &'m M,
    steps: usize,
}

impl<M: Machine> Trainer<'_, M> {
    /// Trains a new network in one of the ways.
    fn train(&self, way: Way) -> Result<Outcome, Error> {
        let Self { engine, machine, .. } = *self;
        let (outside, pool) =
            (Pool::new(engine, PoolConfig::default()), Pool::new(engine, PoolConfig::default()));
        let network = Network::new(machine, &outside)?;
        let batches = self.batches(&outside)?;
        let before = network.error(&outside, &batches[0])?;

        let stream = machine.stream();
        let make = |stage: &Stage<'_, M::Driver>, (): &()| self.inputs(stage.pool());
        // Nothing here has to set itself up at its first call, and to warm up would be to train.
        let options = Options::default().warm_ups(0);
        let cost = match way {
            Way::NoGraph => {
                let mut inputs = self.inputs(&pool)?;
                self.time(&network, &pool, &batches, |batch| {
                    self.copy(batch, &mut inputs)?;
                    let saved = network.forward(&pool, &inputs.input)?;
                    let gradient = network.loss(&pool, &saved, &inputs.target)?;
                    let gradients = network.backward(&pool, &inputs.input, saved, gradient)?;
                    network.update(&gradients)
                })?
            }
            Way::TwoGraphs => {
                let mut callable = Callable::new(&pool, options, make)
                    .part(|stage, (), inputs, left: &mut Left<M::Buffer>| {
                        left.saved = network.forward(stage.pool(), &inputs.input)?;
                        let gradient = network.loss(stage.pool(), &left.saved, &inputs.target)?;
                        left.gradient = Some(gradient);
                        Ok(())
                    })
                    .part(|stage, (), inputs, left| {
                        let saved = std::mem::take(&mut left.saved);
                        let gradient = left.gradient.take().expect("the part before left it");
                        let pool = stage.pool();
                        left.gradients = network.backward(pool, &inputs.input, saved, gradient)?;
                        Ok(())
                    });
                self.time(&network, &pool, &batches, |batch| {
                    let left = callable.call(stream, &(), |inputs| self.copy(batch, inputs))?;
                    network.update(&left.gradients)
                })?
            }
            Way::OneGraph => {
                let mut callable =
                    Callable::new(&pool, options, make).part(|stage, (), inputs, (): &mut ()| {
                        let pool = stage.pool();
                        let saved = network.forward(pool, &inputs.input)?;
                        let gradient = network.loss(pool, &saved, &inputs.target)?;
                        let gradients = network.backward(pool, &inputs.input, saved, gradient)?;
                        network.update(&gradients)
                    });
                self.time(&network, &pool, &batches, |batch| {
                    callable.call(stream, &(), |inputs| self.copy(batch, inputs))?;
                    Ok(())
                })?
            }
        };
        let after = network.error(&outside, &batches[0])?;
        engine.driver().synchronize().map_err(graphs::Error::from)?;
        Ok(Outcome { cost, errors: [before, after], parameters: network.parameters()? })
    }

    /// Runs the steps, one after the other has been done.
    fn time(
        &self,
        network: &Network<'_, M>,
        pool: &Pool<M::Driver>,
        batches: &[Batch<M::Buffer>],
        mut step: impl FnMut(&Batch<M::Buffer>) -> Result<(), Error>,
    ) -> Result<Cost, Error> {
        let (mut processor, mut done) = (Vec::new(), Vec::new());
        for batch in batches.iter().cycle().take(self.steps) {
            network.launches.store(0, Ordering::Relaxed);
            let begin = Instant::now();
            step(batch)?;
            processor.push(begin.elapsed());
            self.engine.driver().synchronize().map_err(graphs::Error::from)?;
            done.push(begin.elapsed());
        }
        let median = |mut times: Vec<Duration>| {
            times.sort();
            times[times.len() / 2]
        };
        Ok(Cost {
            launches: network.launches.load(Ordering::Relaxed),
            processor: median(processor),
            done: median(done),
            reserved: pool.reserved()?,
            driver_bytes: pool.driver_bytes(),
        })
    }

    /// What is learnt: half of each row, backwards.
    fn batches(&self, pool: &Pool<M::Driver>) -> Result<Vec<Batch<M::Buffer>>, Error> {
        let mut random = fastrand::Rng::with_seed(2);
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            let input: Vec<f32> = (0..ALL).map(|_| around_zero(&mut random)).collect();
            let rows = input.chunks(WIDTH);
            let target: Vec<f32> =
                rows.flat_map(|row| row.iter().rev().map(|value| value / 2.0)).collect();
            let mut batch = self.inputs(pool)?;
            self.machine.write(&input, &mut batch.input)?;
            self.machine.write(&target, &mut batch.target)?;
            batches.push(batch);
        }
        Ok(batches)
    }

    fn inputs(&self, pool: &Pool<M::Driver>) -> Result<Batch<M::Buffer>, Error> {
        let buffer = || self.machine.buffer(pool, ALL);
        Ok(Batch { input: buffer()?, target: buffer()? })
    }

    fn copy(&self, from: &Batch<M::Buffer>, to: &mut Batch<M::Buffer>) -> Result<(), Error> {
        self.machine.copy(&from.input, &mut to.input)?;
        self.machine.copy(&from.target, &mut to.target)
    }
}

/// From -1 to 1.
fn around_zero(random: &mut fastrand::Rng) -> f32 {
    2.0 * random.f32() - 1.0
}

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
        // SAFETY: handles are given to calls while what they name lives, and graphs run while what
        // they use does.
        match unsafe { CudaDriver::new(0) } {
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

/// Each thread makes one number.
const KERNELS: &str = include_str!("kernels/callables.ptx");
