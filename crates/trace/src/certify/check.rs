//! Holding a certificate against a trace.

use std::collections::BTreeSet;

use thiserror::Error;

use super::known::{is_known, known};
use super::sighted::{Block, Sighted};
use super::{Certificate, Threshold, BLOCK_MULTIPLE};
use crate::{BlockIndex, NodeIndex, Operation, StreamIndex, Trace};

/// Why a certificate proves nothing about a trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The trace has no such capture.
    #[error("the trace has no capture {0}")]
    Capture(usize),
    /// It speaks of another capture.
    #[error("the capture has {found} {what}, not {expected}")]
    Other {
        /// Of what.
        what: &'static str,
        /// How many the certificate says.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// The capture does not allocate the block.
    #[error("the capture allocates no block {0}")]
    NoBlock(BlockIndex),
    /// A block is named twice.
    #[error("block {0} is named twice")]
    Twice(BlockIndex),
    /// A block occupies something else.
    #[error("block {block} occupies {found} bytes, not {expected}")]
    Bytes {
        /// The block.
        block: BlockIndex,
        /// What the certificate says.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// The blocks do not come to what it says.
    #[error("the blocks occupy {found} bytes together, not {expected}")]
    Sum {
        /// What the certificate says.
        expected: u64,
        /// What it is.
        found: u128,
    },
    /// It names no block, and the capture has some that need memory.
    #[error(
        "it names no block, and block {0} needs memory: a certificate of nothing proves nothing"
    )]
    Empty(BlockIndex),
    /// It has more thresholds than blocks, of which each needs but one.
    #[error("it has {thresholds} thresholds for {blocks} blocks, of which each needs at most one")]
    Thresholds {
        /// Thresholds.
        thresholds: usize,
        /// Blocks.
        blocks: usize,
    },
    /// No node can have used the block.
    #[error("no node can have used block {0}, so it needs no memory")]
    Unused(BlockIndex),
    /// A threshold names a node that the capture does not have.
    #[error("a threshold of stream {stream} names node {node}, which the capture does not have")]
    NoNode {
        /// The threshold's stream.
        stream: StreamIndex,
        /// The node.
        node: NodeIndex,
    },
    /// No threshold of its stream holds all that a block knows.
    #[error("no threshold of stream {stream} holds all that block {block} knows")]
    Beyond {
        /// The block.
        block: BlockIndex,
        /// Its stream.
        stream: StreamIndex,
    },
    /// A threshold holds all that a block needs: its memory may be another's.
    #[error("all users of block {block} are completed at the threshold of stream {stream}")]
    Over {
        /// The block.
        block: BlockIndex,
        /// The threshold's stream.
        stream: StreamIndex,
    },
}

/// Checks a certificate. If there is no error, no placement of its capture that adds no edges to the graph uses less
/// than its `minimum_bytes`, with blocks rounded up to [`BLOCK_MULTIPLE`](super::BLOCK_MULTIPLE) bytes. Memory stays in
/// proportion to the trace and the certificate.
///
/// # Errors
/// What it does not prove, or does not say rightly.
pub fn check(trace: &Trace, certificate: &Certificate) -> Result<(), Refusal> {
    let operations = trace.operations();
    let mut begins = operations.iter().enumerate().filter_map(|(at, operation)| match operation {
        Operation::Begin { stream, .. } => Some((*stream, at)),
        _ => None,
    });
    let missing = Refusal::Capture(certificate.capture);
    let (origin, begin) = begins.nth(certificate.capture).ok_or(missing)?;
    let named: BTreeSet<_> = certificate.antichain.iter().map(|block| block.id).collect();
    let wanted = |id| named.is_empty() || named.contains(&id);
    let capture = Sighted::new(origin, &operations[begin + 1..], &wanted);
    let facts = [
        ("nodes", certificate.nodes, capture.edges.len()),
        ("blocks", certificate.blocks, capture.allocated),
    ];
    for (what, expected, found) in facts {
        if expected != found {
            return Err(Refusal::Other { what, expected, found });
        }
    }
    add_up(&capture, certificate)?;
    for (&id, block) in &capture.blocks {
        match is_used(&capture, certificate, block) {
            true if named.is_empty() => return Err(Refusal::Empty(id)),
            false if !named.is_empty() => return Err(Refusal::Unused(id)),
            _ => {}
        }
    }
    let (thresholds, blocks) = (certificate.thresholds.len(), named.len());
    if thresholds > blocks {
        return Err(Refusal::Thresholds { thresholds, blocks });
    }
    if blocks == 0 {
        return Ok(());
    }
    hold(&capture, certificate)
}

/// Each block is named once, and they occupy what is said.
fn add_up(capture: &Sighted, certificate: &Certificate) -> Result<(), Refusal> {
    let mut named = BTreeSet::new();
    let mut found = 0;
    for &super::CertifiedBlock { id, bytes } in &certificate.antichain {
        let block = capture.blocks.get(&id).ok_or(Refusal::NoBlock(id))?;
        if !named.insert(id) {
            return Err(Refusal::Twice(id));
        }
        let occupied = block.bytes.next_multiple_of(BLOCK_MULTIPLE);
        if bytes != occupied {
            return Err(Refusal::Bytes { block: id, expected: bytes, found: occupied });
        }
        found += u128::from(bytes);
    }
    if found != u128::from(certificate.minimum_bytes) {
        return Err(Refusal::Sum { expected: certificate.minimum_bytes, found });
    }
    Ok(())
}

/// Whether any node can have used a block: one that its stream gained, or that another of its streams
/// gained and that was not completed before.
fn is_used(capture: &Sighted, certificate: &Certificate, block: &Block) -> bool {
    let Some(freed) = &block.freed else { return true };
    if !freed.own.is_empty() || freed.others.is_empty() {
        return !freed.own.is_empty();
    }
    let completed = known(capture, certificate.programmatic, &block.terminals);
    freed.others.iter().any(|&node| !completed.contains(node as usize))
}

/// No two of the blocks can have memory in common.
fn hold(capture: &Sighted, certificate: &Certificate) -> Result<(), Refusal> {
    let policy = certificate.programmatic;
    let mut beyond: BTreeSet<BlockIndex> = capture.blocks.keys().copied().collect();
    for Threshold { stream, nodes } in &certificate.thresholds {
        let stream = *stream;
        let missing = |&&node: &&NodeIndex| node as usize >= capture.edges.len();
        if let Some(&node) = nodes.iter().find(missing) {
            return Err(Refusal::NoNode { stream, node });
        }
        let all = known(capture, policy, nodes);
        for (&id, block) in &capture.blocks {
            let holds = stream == block.stream
                && (*nodes == block.terminals || is_known(capture, policy, &block.terminals, &all));
            if holds {
                beyond.remove(&id);
            }
            let Some(freed) = &block.freed else { continue };
            let lists = [&freed.markers, &freed.own, &block.terminals, &freed.others];
            if lists.iter().all(|list| list.iter().all(|&node| all.contains(node as usize))) {
                return Err(Refusal::Over { block: id, stream });
            }
        }
    }
    match beyond.first() {
        Some(id) => Err(Refusal::Beyond { block: *id, stream: capture.blocks[id].stream }),
        None => Ok(()),
    }
}
