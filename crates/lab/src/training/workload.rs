//! What a workload is drawn from.

use super::model::Model;
use super::operation::Operation;
use super::trainer::Trainer;
use regraph_trace::StreamIndex;

/// What a training-like workload is drawn from; the module's documentation says what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its length.
    pub operations: u32,
    /// What the choices are drawn from.
    pub seed: u64,
    /// Streams; the first computes, the others fetch and communicate. At least one.
    pub streams: StreamIndex,
    /// Layers of the model.
    pub layers: u32,
    /// Its hidden size, a multiple of 64.
    pub hidden: u32,
    /// The most tokens of a step; at least one sequence of up to 1,024 is in a batch nevertheless.
    pub tokens: u32,
}

impl Default for Workload {
    fn default() -> Self {
        Self { operations: 100_000, seed: 1, streams: 2, layers: 12, hidden: 1024, tokens: 4096 }
    }
}

impl Workload {
    /// The operations, as many as asked for, the same for the same workload on every machine.
    pub fn generate(&self) -> Vec<Operation> {
        let model = Model::new(self.layers, self.hidden);
        Trainer::new(self, model).run()
    }
}
