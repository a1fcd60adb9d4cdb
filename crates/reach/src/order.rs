//! What an edge proves, by its data and the policy for programmatic edges.

use regraph_driver::EdgeData;
use regraph_record::policy::Programmatic;

/// What a direct edge promises about its two nodes; the stronger the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// The later node starts after the earlier one has completed.
    Full,
    /// The later node starts after the earlier one has started, and completes after it has completed.
    Start,
    /// Nothing that a proof may use.
    Nothing,
}

impl Order {
    /// Only what is known to promise something does; any new kind of edge proves nothing.
    pub(crate) fn of(edge: EdgeData, programmatic: Programmatic) -> Self {
        match (edge, programmatic) {
            (EdgeData::FULL, _) => Self::Full,
            (EdgeData::PROGRAMMATIC, Programmatic::Trust) => Self::Full,
            (EdgeData::PROGRAMMATIC, Programmatic::Auto | Programmatic::Lag) => Self::Start,
            _ => Self::Nothing,
        }
    }
}
