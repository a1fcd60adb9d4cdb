//! The forward pass.

use super::batch::{Batch, Extent, FULL};
use super::model::LAYER;
use super::sequence::{Tensor, COMPUTE};
use super::trainer::Trainer;

/// What a forward pass leaves for the backward pass.
pub(super) struct Saved {
    pub(super) embedded: Tensor,
    /// By layer, in the order of [`LAYER`].
    pub(super) layers: Vec<Vec<Tensor>>,
    pub(super) logits: Tensor,
}

impl Trainer {
    /// A pass that keeps what the backward pass needs.
    pub(super) fn forward(&mut self, batch: &Batch) -> Saved {
        let embedded = self.sequence.compute(batch.bytes(&self.model, Extent::Hidden(1)));
        let mut layers = Vec::new();
        let mut weights = None;
        for layer in 0..self.model.layers {
            let current = weights.take().unwrap_or_else(|| self.fetch_weights(layer));
            if layer + 1 < self.model.layers {
                weights = Some(self.fetch_weights(layer + 1));
            }
            self.sequence.share(current, COMPUTE);
            let mut saved = Vec::new();
            for index in 0..LAYER.len() {
                saved.push(self.activation(batch, index));
            }
            self.sequence.free(current);
            self.metric();
            layers.push(saved);
        }
        let logits = self.sequence.compute(batch.logits());
        self.metric();
        Saved { embedded, layers, logits }
    }

    /// A pass that keeps nothing but what the next kernel needs.
    pub(super) fn forward_only(&mut self, batch: &Batch) {
        let mut last = self.sequence.compute(batch.bytes(&self.model, Extent::Hidden(1)));
        for layer in 0..self.model.layers {
            let weights = self.fetch_weights(layer);
            self.sequence.share(weights, COMPUTE);
            for index in 0..LAYER.len() {
                let next = self.activation(batch, index);
                self.sequence.free(std::mem::replace(&mut last, next));
            }
            self.sequence.free(weights);
        }
        let logits = self.sequence.compute(batch.logits());
        self.sequence.free(last);
        self.metric();
        self.sequence.free(logits);
    }

    fn activation(&mut self, batch: &Batch, index: usize) -> Tensor {
        let activation = &LAYER[index];
        let bytes = batch.bytes(&self.model, activation.extent);
        let tensor = self.sequence.allocate(COMPUTE, bytes);
        match activation.extent {
            // The scores before they are normalised.
            Extent::Scores => self.sequence.temporary(bytes),
            Extent::Statistics => self.sequence.temporary(bytes / FULL),
            _ if !activation.parameters.is_empty() => self.workspace(),
            _ => {}
        }
        self.sequence.work(COMPUTE);
        tensor
    }
}
