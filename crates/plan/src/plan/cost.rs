//! What carrying a plan out takes.

use std::time::Duration;

use super::Plan;

/// How long the driver's calls take. Times vary from machine to machine; [`Costs::default`] was measured on one H200,
/// where they did not depend on sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// To create a piece of memory.
    pub create: Duration,
    /// To map a piece.
    pub map: Duration,
    /// To make a mapping accessible. One call for many mappings takes this for each.
    pub set_access: Duration,
    /// To remove a mapping.
    pub unmap: Duration,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            create: Duration::from_micros(9),
            map: Duration::from_micros(1),
            set_access: Duration::from_micros(22),
            unmap: Duration::from_micros(14),
        }
    }
}

impl Plan {
    /// About how long it takes to carry the plan out, where `mapped` mappings at its addresses are removed first.
    pub fn estimate(&self, costs: &Costs, mapped: usize) -> Duration {
        let times = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let new = self.pieces.iter().filter(|piece| piece.held.is_none()).count();
        costs.create * times(new)
            + (costs.map + costs.set_access) * times(self.mappings.len())
            + costs.unmap * times(mapped)
    }
}
