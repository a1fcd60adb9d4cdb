//! The host's loop: set-up, then steps until the sequence is as long as asked for.

use super::batch::{Batch, HALF};
use super::model::Model;
use super::operation::Operation;
use super::sequence::{Sequence, Tensor, COMPUTE};
use super::workload::Workload;
use crate::random::log_uniform;
use regraph_plan::random::Random;
use regraph_trace::StreamIndex;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Steps whose matrix products try workspaces.
const AUTOTUNED: u32 = 2;
/// How often an evaluation comes, in steps.
const EVALUATE: u32 = 8;
/// How often a checkpoint is taken, in steps.
const CHECKPOINT: u32 = 12;

pub(super) struct Trainer {
    pub(super) sequence: Sequence,
    pub(super) random: Random,
    pub(super) model: Model,
    pub(super) streams: StreamIndex,
    pub(super) step: u32,
    tokens: u32,
    /// Freed at the end of the step.
    metrics: Vec<Tensor>,
    /// Buffers of a checkpoint, freed at the end of the step after it.
    checkpoint: Vec<Tensor>,
}

impl Trainer {
    pub(super) fn new(workload: &Workload, model: Model) -> Self {
        Self {
            sequence: Sequence::new(workload.operations),
            random: Random::new(workload.seed),
            model,
            streams: workload.streams.max(1),
            step: 0,
            tokens: workload.tokens,
            metrics: Vec::new(),
            checkpoint: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Vec<Operation> {
        self.sequence.compute(self.model.embedding() * HALF);
        for _ in 0..self.model.layers {
            for elements in self.model.parameters() {
                self.sequence.compute(elements * HALF);
            }
        }
        let mut next = self.fetch_batch(self.tokens);
        while !self.sequence.is_full() {
            let (batch, input) = next;
            self.sequence.share(input, COMPUTE);
            let saved = self.forward(&batch);
            next = self.fetch_batch(self.tokens);
            let gradients = self.backward(&batch, saved);
            self.update(gradients);
            self.sequence.free(input);
            self.end_step();
        }
        self.sequence.finish()
    }

    fn end_step(&mut self) {
        self.step += 1;
        // The host reads the loss.
        self.sequence.complete();
        self.sequence.free_all(self.metrics.drain(..));
        self.sequence.free_all(self.checkpoint.drain(..));
        if self.step.is_multiple_of(EVALUATE) {
            self.evaluate();
        }
        if self.step.is_multiple_of(CHECKPOINT) {
            self.take_checkpoint();
        }
    }

    fn evaluate(&mut self) {
        for _ in 0..2 {
            let (batch, input) = self.fetch_batch(self.tokens.saturating_mul(2));
            self.sequence.share(input, COMPUTE);
            self.forward_only(&batch);
            self.sequence.free(input);
        }
        self.sequence.complete();
        self.sequence.free_all(self.metrics.drain(..));
    }

    /// Copies each layer's parameters, for the host to write while training goes on.
    fn take_checkpoint(&mut self) {
        for layer in 0..self.model.layers {
            let side = self.side(layer);
            let copy = self.sequence.allocate(side, self.model.layer() * 2 * HALF);
            self.sequence.wait(side, COMPUTE);
            self.sequence.work(side);
            self.checkpoint.push(copy);
        }
    }

    fn fetch_batch(&mut self, tokens: u32) -> (Batch, Tensor) {
        let batch = Batch::draw(&mut self.random, tokens);
        let side = self.side(0);
        let input = self.sequence.allocate(side, batch.input());
        self.sequence.work(side);
        (batch, input)
    }

    /// Gathers a layer's weights on a side stream.
    pub(super) fn fetch_weights(&mut self, layer: usize) -> Tensor {
        let side = self.side(layer);
        let weights = self.sequence.allocate(side, self.model.layer() * HALF);
        self.sequence.work(side);
        weights
    }

    /// The side stream that serves a layer; the only stream where there is one.
    pub(super) fn side(&self, layer: usize) -> StreamIndex {
        match usize::from(self.streams) - 1 {
            0 => COMPUTE,
            sides => 1 + (layer % sides) as StreamIndex,
        }
    }

    /// What a matrix product may need beside its operands.
    pub(super) fn workspace(&mut self) {
        if self.step < AUTOTUNED {
            for _ in 0..3 {
                let bytes = log_uniform(&mut self.random, MIB, 256 * MIB);
                self.sequence.temporary(bytes);
            }
        } else if self.random.chance(0.4) {
            let bytes = log_uniform(&mut self.random, 64 * KIB, 24 * MIB);
            self.sequence.temporary(bytes);
        }
    }

    /// A small result that the host reads at the end of the step.
    pub(super) fn metric(&mut self) {
        let bytes = log_uniform(&mut self.random, 512, 8 * KIB);
        let metric = self.sequence.compute(bytes);
        self.metrics.push(metric);
    }
}
