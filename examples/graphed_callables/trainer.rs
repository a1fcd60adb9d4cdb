//! The same training step without a graph, as two graphs and as one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use regraph::callables::{Callable, Options, Stage};
use regraph::cudarc::Error;
use regraph::driver::Program;
use regraph::engine::{Engine, PoolConfig};
use regraph::graphs::{self, Pool};

use super::machine::Machine;
use super::network::{Batch, Layer, Network, Saved, ALL, WIDTH};

const BATCHES: usize = 8;

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
pub enum Way {
    NoGraph,
    TwoGraphs,
    OneGraph,
}

pub const WAYS: [(Way, &str); 3] = [
    (Way::NoGraph, "no graph"),
    (Way::TwoGraphs, "forward and backward"),
    (Way::OneGraph, "the whole step"),
];

/// What a step costs.
pub struct Cost {
    /// Kernels that the processor launches by itself.
    pub launches: usize,
    pub processor: Duration,
    pub done: Duration,
    pub reserved: u64,
    pub driver_bytes: u64,
}

/// What a training came to.
pub struct Outcome {
    pub cost: Cost,
    /// The mean squared error before and after.
    pub errors: [f64; 2],
    pub parameters: Vec<u32>,
}

/// A machine with its engine, and how many steps to train.
pub struct Trainer<'m, M: Machine> {
    pub engine: &'m Arc<Engine<M::Driver>>,
    pub machine: &'m M,
    pub steps: usize,
}

impl<M: Machine> Trainer<'_, M> {
    /// Trains a new network in one of the ways.
    pub fn train(&self, way: Way) -> Result<Outcome, Error> {
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
                    let left = callable.call(&stream, &(), |inputs| self.copy(batch, inputs))?;
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
                    callable.call(&stream, &(), |inputs| self.copy(batch, inputs))?;
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
            network.launches.set(0);
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
            launches: network.launches.get(),
            processor: median(processor),
            done: median(done),
            reserved: pool.reserved()?,
            driver_bytes: pool.driver_bytes(),
        })
    }

    /// What is learnt: half of each row, backwards.
    fn batches(&self, pool: &Pool<M::Driver>) -> Result<Vec<Batch<M::Buffer>>, Error> {
        let mut random = Rng::with_seed(2);
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            let input: Vec<f32> = (0..ALL).map(|_| 2.0 * random.f32() - 1.0).collect();
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
