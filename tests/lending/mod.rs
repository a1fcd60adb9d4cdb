//! Memory that graphs do not keep between launches, lent.

mod launches;
mod trees;
