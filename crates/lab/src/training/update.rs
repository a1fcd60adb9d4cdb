//! The optimizer's update.

use super::batch::{FULL, HALF};
use super::sequence::{Tensor, COMPUTE};
use super::trainer::Trainer;

/// What the optimizer keeps of a parameter: itself in full precision and two moments.
const STATE: usize = 3;

impl Trainer {
    /// Updates the parameters and frees their gradients.
    pub(super) fn update(&mut self, gradients: Vec<Tensor>) {
        for side in 1..self.streams {
            self.sequence.wait(COMPUTE, side);
        }
        let norms: Vec<_> = gradients.iter().map(|_| self.sequence.compute(FULL)).collect();
        self.metric();
        self.sequence.free_all(norms);
        for gradient in &gradients {
            let bytes = gradient.bytes / HALF * FULL;
            if self.step == 0 {
                // Kept for ever.
                for _ in 0..STATE {
                    self.sequence.compute(bytes);
                }
            }
            self.sequence.temporary(bytes);
        }
        self.sequence.free_all(gradients);
    }
}
