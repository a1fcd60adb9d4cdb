//! A workload on the model of PyTorch's allocator.

use ahash::AHashMap;

use super::background::is_due;
use super::on_engine::{streams, TrainingError};
use super::operation::Operation;
use super::row::{Policy, Row};
use crate::peer::{BlockId, Options, Peer};
use regraph_trace::{BlockIndex, StreamIndex};

/// Runs a workload on the model; work completes at the same operations as with
/// [`on_engine`](super::on_engine()).
///
/// # Errors
/// The first operation that fails.
pub fn on_peer(operations: &[Operation], options: Options) -> Result<Row, TrainingError> {
    let mut peer = Peer::new(options);
    let mut blocks = AHashMap::new();
    let streams = streams(operations);
    let mut mark = peer.mark();
    for (index, operation) in operations.iter().enumerate() {
        step(&mut peer, &mut blocks, index, operation)?;
        if is_due(index) {
            for stream in 0..streams {
                peer.complete_before(stream as StreamIndex, mark);
            }
            mark = peer.mark();
        }
    }
    let figures = peer.figures();
    let policy = if options.expandable { Policy::PytorchExpandable } else { Policy::Pytorch };
    let reserved = [figures.peak_reserved, figures.reserved];
    Ok(Row::new(policy, figures.peak_allocated, reserved, figures.growth_calls))
}

fn step(
    peer: &mut Peer,
    blocks: &mut AHashMap<BlockIndex, BlockId>,
    index: usize,
    operation: &Operation,
) -> Result<(), TrainingError> {
    let unknown = |block| TrainingError::UnknownBlock { operation: index, block };
    match *operation {
        Operation::Allocate { id, bytes, stream } => {
            let block = peer.allocate(bytes, stream);
            let refused = TrainingError::Refused { operation: index, bytes };
            blocks.insert(id, block.ok_or(refused)?);
        }
        Operation::Use { id, stream } => {
            let block = blocks.get(&id).ok_or_else(|| unknown(id))?;
            peer.record_stream(*block, stream).map_err(|_| unknown(id))?;
        }
        Operation::Free { id } => {
            let block = blocks.remove(&id).ok_or_else(|| unknown(id))?;
            peer.free(block).map_err(|_| unknown(id))?;
        }
        Operation::Complete => peer.complete_all(),
        Operation::Work { .. } | Operation::Wait { .. } => {}
    }
    Ok(())
}
