//! The operations so far, and short ways to add some.

use super::operation::Operation;
use regraph_trace::{BlockIndex, StreamIndex};

/// The stream that computes.
pub(super) const COMPUTE: StreamIndex = 0;

/// The least that is asked for, in bytes.
const LEAST: u64 = 512;

/// A live block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    id: BlockIndex,
    stream: StreamIndex,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Sequence {
    operations: Vec<Operation>,
    length: usize,
    blocks: BlockIndex,
}

impl Sequence {
    pub(super) fn new(length: u32) -> Self {
        Self { operations: Vec::new(), length: length as usize, blocks: 0 }
    }

    /// Whether it is as long as asked for.
    pub(super) fn is_full(&self) -> bool {
        self.operations.len() >= self.length
    }

    pub(super) fn finish(mut self) -> Vec<Operation> {
        self.operations.truncate(self.length);
        self.operations
    }

    pub(super) fn allocate(&mut self, stream: StreamIndex, bytes: u64) -> Tensor {
        let tensor = Tensor { id: self.blocks, stream, bytes: bytes.max(LEAST) };
        self.blocks += 1;
        self.operations.push(Operation::Allocate { id: tensor.id, bytes: tensor.bytes, stream });
        tensor
    }

    /// Allocates a block and computes it.
    pub(super) fn compute(&mut self, bytes: u64) -> Tensor {
        let tensor = self.allocate(COMPUTE, bytes);
        self.work(COMPUTE);
        tensor
    }

    /// A block that one kernel uses.
    pub(super) fn temporary(&mut self, bytes: u64) {
        let tensor = self.compute(bytes);
        self.free(tensor);
    }

    /// Lets a stream use a block behind what the block's own stream holds.
    pub(super) fn share(&mut self, tensor: Tensor, stream: StreamIndex) {
        if stream != tensor.stream {
            self.wait(stream, tensor.stream);
            self.operations.push(Operation::Use { id: tensor.id, stream });
        }
    }

    pub(super) fn free(&mut self, tensor: Tensor) {
        self.operations.push(Operation::Free { id: tensor.id });
    }

    pub(super) fn free_all(&mut self, tensors: impl IntoIterator<Item = Tensor>) {
        tensors.into_iter().for_each(|tensor| self.free(tensor));
    }

    pub(super) fn work(&mut self, stream: StreamIndex) {
        self.operations.push(Operation::Work { stream });
    }

    pub(super) fn wait(&mut self, stream: StreamIndex, on: StreamIndex) {
        if stream != on {
            self.operations.push(Operation::Wait { stream, on });
        }
    }

    pub(super) fn complete(&mut self) {
        self.operations.push(Operation::Complete);
    }
}
