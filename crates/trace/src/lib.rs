//! Traces: the calls of a capturing host, as JSON Lines (format v1).
//!
//! [The specification](mod@format) says what stands in the files.
//!
//! A [`Trace`] is valid by construction: whether read from a file, built from operations or taken
//! from a journal, every operation has passed the rules of the format. With the feature `graph` its captures are
//! graphs of `petgraph`'s, and pictures (`graph`).
#![forbid(unsafe_code)]

pub mod certify;
#[doc = include_str!("../FORMAT.md")]
pub mod format {}
#[cfg(feature = "graph")]
pub mod graph;
mod journal;
mod kind;
mod labels;
mod lines;
mod members;
pub mod minimum;
mod operation;
mod read;
mod rules;
pub mod snapshot;
mod write;

pub use journal::{from_capture, from_journal, JournalError, Sources};
pub use kind::kind;
pub use labels::{line, own_frame, Labels};
pub use lines::{Lines, INPUT_LIMIT, LINE_LIMIT};
pub use members::Members;
pub use operation::{dependencies, Operation};
pub use read::{read, ReadError};
pub use rules::Violation;
pub use write::write;

use std::collections::HashMap;

use rules::Rules;
use thiserror::Error;

/// A block's number in a trace.
pub type BlockIndex = u32;
/// A node's number in its capture.
pub type NodeIndex = u32;
/// A stream's number.
pub type StreamIndex = u16;
/// A pool's number.
pub type PoolIndex = u32;

/// A block is smaller than this, in bytes.
pub const BYTES_LIMIT: u64 = 1 << 60;

/// All blocks of a trace together are smaller than this, in bytes.
pub const ALL_BYTES_LIMIT: u64 = 1 << 63;

/// A valid sequence of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    operations: Vec<Operation>,
    labels: Labels,
}

/// Operations that make no trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("operation {operation}: {violation}")]
pub struct InvalidTrace {
    /// Which operation, counted from 0.
    pub operation: usize,
    /// What is wrong with it.
    pub violation: Violation,
}

impl Trace {
    /// A trace of these operations.
    ///
    /// # Errors
    /// The first operation that breaks a rule of the format.
    pub fn new(operations: Vec<Operation>) -> Result<Self, InvalidTrace> {
        let mut rules = Rules::default();
        for (index, operation) in operations.iter().enumerate() {
            rules
                .accept(operation)
                .map_err(|violation| InvalidTrace { operation: index, violation })?;
        }
        rules
            .finish()
            .map_err(|violation| InvalidTrace { operation: operations.len(), violation })?;
        Ok(Self { operations, labels: Labels::default() })
    }

    /// This trace with other labels. Those of blocks and nodes that it does not have say nothing, and are not written.
    pub fn with_labels(self, labels: Labels) -> Self {
        Self { labels, ..self }
    }

    /// What it says of its blocks and nodes to people.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// This trace with blocks of `percent` percent of their sizes, one byte at least. A placement that suits some sizes
    /// may not suit others: recorded blocks are often whole numbers of pages.
    ///
    /// # Errors
    /// As for [`Trace::new`], where a block becomes too large.
    pub fn scaled(&self, percent: u32) -> Result<Self, InvalidTrace> {
        let scaled = |operation: &Operation| match *operation {
            Operation::Alloc { id, bytes, stream } => {
                let bytes = u128::from(bytes) * u128::from(percent) / 100;
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(1);
                Operation::Alloc { id, bytes, stream }
            }
            ref other => other.clone(),
        };
        let scaled = Self::new(self.operations.iter().map(scaled).collect())?;
        Ok(scaled.with_labels(self.labels.clone()))
    }

    /// The operations in host order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// How many captures begin.
    pub fn captures(&self) -> usize {
        self.count(|operation| matches!(operation, Operation::Begin { .. }))
    }

    /// How many nodes the captures have together.
    pub fn nodes(&self) -> usize {
        self.count(|operation| {
            matches!(operation, Operation::Kernel { .. } | Operation::Node { .. })
        })
    }

    /// How many blocks are allocated.
    pub fn blocks(&self) -> usize {
        self.count(|operation| matches!(operation, Operation::Alloc { .. }))
    }

    /// Bytes of all blocks together, as asked for.
    pub fn total_bytes(&self) -> u128 {
        self.operations
            .iter()
            .map(|operation| match operation {
                Operation::Alloc { bytes, .. } => u128::from(*bytes),
                _ => 0,
            })
            .sum()
    }

    /// The most bytes of blocks that live at a time in host order, as asked for.
    pub fn peak_bytes(&self) -> u128 {
        let mut live = HashMap::new();
        let (mut now, mut peak) = (0, 0);
        for operation in &self.operations {
            match *operation {
                Operation::Alloc { id, bytes, .. } => {
                    live.insert(id, u128::from(bytes));
                    now += u128::from(bytes);
                    peak = peak.max(now);
                }
                Operation::Free { id } => now -= live.remove(&id).unwrap_or_default(),
                _ => {}
            }
        }
        peak
    }

    fn count(&self, wanted: impl Fn(&Operation) -> bool) -> usize {
        self.operations.iter().filter(|operation| wanted(operation)).count()
    }
}
