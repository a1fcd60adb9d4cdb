//! What came at a capture's end.

use serde::Serialize;

use crate::plan::Plan;

/// Memory that came at a capture's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlanReport {
    /// The pieces that the capture's graph uses, in bytes.
    pub bytes: u64,
    /// Of them those that are new: the rest is shared with other graphs of the pool.
    pub new_bytes: u64,
    /// The least that these blocks need, in whole units of the device's granularity and alone, in
    /// bytes.
    pub minimum_bytes: u64,
    /// How many new bytes there are beyond what the least needs, because pieces that were there did
    /// not fit.
    pub excess_bytes: u64,
    /// Pieces of memory.
    pub pieces: usize,
    /// How often they are mapped.
    pub mappings: usize,
    /// How long planning took, in nanoseconds.
    pub planning_ns: u64,
    /// How long carrying it out took, in nanoseconds.
    pub binding_ns: u64,
}

impl PlanReport {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            bytes: plan.bytes(),
            new_bytes: plan.new_bytes(),
            minimum_bytes: plan.minimum_bytes,
            excess_bytes: plan.excess_bytes,
            pieces: plan.pieces.len(),
            mappings: plan.mappings.len(),
            planning_ns: 0,
            binding_ns: 0,
        }
    }

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            new_bytes: self.new_bytes + other.new_bytes,
            minimum_bytes: self.minimum_bytes + other.minimum_bytes,
            excess_bytes: self.excess_bytes + other.excess_bytes,
            pieces: self.pieces + other.pieces,
            mappings: self.mappings + other.mappings,
            planning_ns: self.planning_ns + other.planning_ns,
            binding_ns: self.binding_ns + other.binding_ns,
        }
    }
}
