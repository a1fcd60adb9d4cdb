//! The network, written once for all machines.

use std::cell::Cell;

use fastrand::Rng;
use regraph::cudarc::Error;
use regraph::graphs::Pool;

use super::machine::{Kernel, Machine, Strides, COLUMNS};

const LAYERS: usize = 48;
pub const WIDTH: usize = COLUMNS as usize;
const BATCH: usize = 64;
const RATE: f32 = 3e-5;

/// The parameters of a layer, or their gradients.
pub struct Layer<B> {
    pub weights: B,
    pub bias: B,
}

/// What a layer's forward pass leaves for its backward pass.
pub struct Saved<B> {
    /// What went into the gate.
    pub gated: B,
    pub output: B,
}

/// Inputs of a step.
pub struct Batch<B> {
    pub input: B,
    pub target: B,
}

/// A network whose layers each add `max(0, input * weights + bias)` to their input.
pub struct Network<'m, M: Machine> {
    machine: &'m M,
    layers: Vec<Layer<M::Buffer>>,
    /// A one: the sum of columns is their product with ones.
    one: M::Buffer,
    pub launches: Cell<usize>,
}

impl<'m, M: Machine> Network<'m, M> {
    pub fn new(machine: &'m M, pool: &Pool<M::Driver>) -> Result<Self, Error> {
        let mut random = Rng::with_seed(1);
        let mut filled = |len: usize, bound: f32| {
            let values: Vec<f32> = (0..len).map(|_| bound * (2.0 * random.f32() - 1.0)).collect();
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
        Ok(Self { machine, layers, one, launches: Cell::new(0) })
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
        self.launches.set(self.launches.get() + 1);
        self.machine.launch(kernel, buffers)
    }

    pub fn forward(
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
    pub fn loss(
        &self,
        pool: &Pool<M::Driver>,
        saved: &[Saved<M::Buffer>],
        target: &M::Buffer,
    ) -> Result<M::Buffer, Error> {
        let last = saved.last().expect("there are layers");
        self.run(pool, ALL, &SUBTRACT, [&last.output, target])
    }

    /// The gradients of all layers, the last layer first. What was saved goes as it is used.
    pub fn backward(
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

    pub fn update(&self, gradients: &[Layer<M::Buffer>]) -> Result<(), Error> {
        for (layer, gradient) in self.layers.iter().rev().zip(gradients) {
            self.launch(&DESCEND, [&layer.weights, &layer.weights, &gradient.weights])?;
            self.launch(&DESCEND, [&layer.bias, &layer.bias, &gradient.bias])?;
        }
        Ok(())
    }

    /// All parameters, as bits, for comparison.
    pub fn parameters(&self) -> Result<Vec<u32>, Error> {
        let mut bits = Vec::new();
        for layer in &self.layers {
            for buffer in [&layer.weights, &layer.bias] {
                bits.extend(self.machine.read(buffer)?.into_iter().map(f32::to_bits));
            }
        }
        Ok(bits)
    }

    /// The mean squared error of a batch.
    pub fn error(&self, pool: &Pool<M::Driver>, batch: &Batch<M::Buffer>) -> Result<f64, Error> {
        let saved = self.forward(pool, &batch.input)?;
        let differences = self.machine.read(&self.loss(pool, &saved, &batch.target)?)?;
        Ok(differences.iter().map(|value| f64::from(value * value)).sum::<f64>() / ALL as f64)
    }
}

/// Numbers in a batch, and in what a layer makes of it.
pub const ALL: usize = BATCH * WIDTH;
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
