//! What a workload came to under one allocator.

use std::fmt;

use serde::Serialize;

/// An allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// This engine.
    Regraph,
    /// The model of PyTorch's native allocator.
    Pytorch,
    /// The model of PyTorch's native allocator with expandable segments.
    PytorchExpandable,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Regraph => "regraph",
            Self::Pytorch => "pytorch",
            Self::PytorchExpandable => "pytorch-expandable",
        })
    }
}

/// Figures of one allocator. Peaks are taken after every operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The allocator.
    pub policy: Policy,
    /// The highest that live blocks came to, as placed, in bytes.
    pub peak_allocated_bytes: u64,
    /// The most that was held from the driver, in bytes.
    pub peak_reserved_bytes: u64,
    /// What is held at the end, in bytes.
    pub reserved_bytes: u64,
    /// Peak reserved by peak allocated.
    pub ratio: f64,
    /// Calls of the driver that map or allocate device memory.
    pub growth_calls: u64,
}

impl Row {
    pub(super) fn new(policy: Policy, allocated: u64, reserved: [u64; 2], calls: u64) -> Self {
        let [peak, end] = reserved;
        Self {
            policy,
            peak_allocated_bytes: allocated,
            peak_reserved_bytes: peak,
            reserved_bytes: end,
            ratio: peak as f64 / allocated.max(1) as f64,
            growth_calls: calls,
        }
    }
}
