//! Choices made when an engine or a pool is created.

use crate::policy::{Programmatic, Reuse};

/// Choices for an engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What programmatic edges prove.
    pub programmatic: Programmatic,
    /// Which streams may take a free block.
    pub reuse: Reuse,
    /// Whether the checker judges each capture at its end.
    pub check: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            programmatic: Programmatic::default(),
            reuse: Reuse::default(),
            check: true,
        }
    }
}

/// Choices for a pool.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The most the pool may hold mapped, in bytes; `None` means as much as the device has.
    pub max_bytes: Option<u64>,
}
