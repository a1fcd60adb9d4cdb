//! The backward pass, and the exchange of gradients.

use super::batch::{Batch, HALF};
use super::forward::Saved;
use super::model::LAYER;
use super::sequence::{Tensor, COMPUTE};
use super::trainer::Trainer;

impl Trainer {
    /// Frees what the forward pass left, last first; returns the parameters' gradients.
    pub(super) fn backward(&mut self, batch: &Batch, saved: Saved) -> Vec<Tensor> {
        // In full precision.
        let probabilities = self.sequence.compute(2 * batch.logits());
        let logits = self.sequence.compute(batch.logits());
        self.sequence.free(probabilities);
        self.sequence.free(saved.logits);
        let mut gradients = vec![self.sequence.compute(self.model.embedding() * HALF)];
        self.workspace();
        let mut flow = self.sequence.compute(saved.embedded.bytes);
        self.sequence.free(logits);
        let mut weights = None;
        for (layer, tensors) in saved.layers.into_iter().enumerate().rev() {
            let current = weights.take().unwrap_or_else(|| self.fetch_weights(layer));
            if layer > 0 {
                weights = Some(self.fetch_weights(layer - 1));
            }
            self.sequence.share(current, COMPUTE);
            let first = gradients.len();
            flow = self.backward_layer(tensors, flow, &mut gradients);
            self.sequence.free(current);
            self.exchange(layer, &gradients[first..]);
        }
        self.sequence.free(flow);
        self.sequence.free(saved.embedded);
        gradients
    }

    /// One layer: from the gradient of its result to that of what went in.
    fn backward_layer(
        &mut self,
        tensors: Vec<Tensor>,
        mut flow: Tensor,
        gradients: &mut Vec<Tensor>,
    ) -> Tensor {
        let parameters = self.model.parameters();
        for (activation, tensor) in LAYER.iter().zip(tensors).rev() {
            if activation.gradient {
                let next = self.sequence.allocate(COMPUTE, tensor.bytes);
                if !activation.parameters.is_empty() {
                    self.workspace();
                }
                self.sequence.work(COMPUTE);
                for elements in &parameters[activation.parameters.clone()] {
                    gradients.push(self.sequence.compute(elements * HALF));
                }
                self.sequence.free(std::mem::replace(&mut flow, next));
            }
            self.sequence.free(tensor);
        }
        flow
    }

    /// Sums a layer's gradients over devices on a side stream, through a bucket.
    fn exchange(&mut self, layer: usize, gradients: &[Tensor]) {
        let side = self.side(layer);
        let bucket = self.sequence.compute(self.model.layer() * HALF);
        self.sequence.share(bucket, side);
        self.sequence.work(side);
        // Matrices are written back there; vectors are copied later.
        for gradient in gradients.iter().filter(|gradient| gradient.bytes >= 1 << 20) {
            self.sequence.share(*gradient, side);
        }
        self.sequence.work(side);
        self.sequence.free(bucket);
    }
}
