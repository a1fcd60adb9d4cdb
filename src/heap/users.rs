//! Whose memory a place is.

/// Whose memory a free range is, or the place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// No finished graph of the pool uses it: work outside captures may take it.
    Eager,
    /// Finished graphs of the pool use it, and each of their launches writes it before it reads it. Of a block, or of
    /// what a capture gave back: graphs use it, and the heap knows by address what they keep.
    Graphs,
    /// Finished graphs use it, and may find something there that they did not write ([`kept`](super::kept)): an idle
    /// range alone is this.
    Kept,
    /// Graphs use it, and work outside captures borrows it between their launches.
    Lent,
}

/// Which of its graphs' memory a pool lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lent {
    /// What blocks alone have lain on that were allocated and freed in one capture: each launch writes it
    /// anew. What only the run of the capture wrote there, and no node of its graph, is lost.
    Temporary,
    /// All that is free. **The host promises** that no graph will read, of what lies there, anything that is not
    /// written again first: neither outputs that were freed nor inputs that a capture freed; and that it writes
    /// inputs by their addresses only while no such block lives there, after all that has used one. It waits for
    /// launches of other pools' graphs that read outputs there. And a block that lives when a capture into the pool is
    /// accepted is no longer lent: it is as an output of that capture, which graphs that were captured before may
    /// overwrite.
    AllFree,
}

impl Users {
    /// Whether a finished graph of the pool uses the memory.
    #[inline]
    pub(crate) fn are_graphs(self) -> bool {
        self != Self::Eager
    }

    /// Those of memory that these use, and graphs too if `graphs` do.
    #[inline]
    pub(crate) fn or_graphs(self, graphs: bool) -> Self {
        match self {
            Self::Eager if graphs => Self::Graphs,
            users => users,
        }
    }

    /// Those of a block in memory of these.
    #[inline]
    pub(crate) fn of_block(self) -> Self {
        match self {
            Self::Eager => Self::Eager,
            Self::Graphs | Self::Kept | Self::Lent => Self::Graphs,
        }
    }
}
