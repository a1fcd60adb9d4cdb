//! Finds nodes that use a block later than was recorded, or read it before anything in the graph has written
//! it, where their parameters show it.
//!
//! # Late uses
//!
//! A block's possible users end at its free markers: the terminals of its streams at the free, or at the last use that
//! `regraph::Engine::record_use` declared. A kernel that was launched after that, or on a stream that `record_stream`
//! was never told of, may run beside the block that has the memory next. No proof from streams can see it, but the
//! node's parameters may: a value that lies in a block's address range, in a node that no free marker of the block
//! waits for.
//!
//! **A detector, not a proof.** A finding is a warning: a number that happens to look like an address counts as one,
//! though only where it falls into a block of the same capture and its node comes after that block's allocation and
//! before none of its markers. No finding proves nothing: addresses that kernels find in memory are not seen, nor uses
//! through parameters that the driver cannot describe, nor those in bodies of conditional nodes.
//!
//! What is told of a node, for each address among its parameters:
//! - nothing where the address is in no block of the capture, or in one from outside it;
//! - nothing where the block that lay there, when the node was first seen, was allocated before the
//!   node and is not freed, or has a free marker that is the node or comes after it, by edges of
//!   any kind, those that were edited away included;
//! - nothing of blocks whose free nothing relies on: of which something outside the capture was a user, or
//!   whose streams were set back while they were live. They are not handed out again in the capture;
//! - nothing of the end of a block that the node is also given an address in: it belongs to an
//!   iterator's end, not to the block behind;
//! - else the youngest block at the address whose allocation comes before the node. It may mean an older one: a stream
//!   that the host did not name is looked at late, if ever, so no look saw its node launched before the younger block's
//!   allocation. If the younger block's uses cover the node too, nothing is told.
//!
//! # Early reads
//!
//! A graph that reads a block which no node of it wrote finds what was there before its launch: what the run
//! of its capture wrote by work that was not captured, or an earlier launch. A copy is known to read its source; a
//! kernel that is the first to have an address in a block is told of as a guess ([`EarlyRead`]).

mod early;
mod judge;
mod late;
mod touches;

pub use early::{EarlyRead, Filled};
pub use late::{LateUse, Marker};

use crate::reading::{first_sights, History};
use crate::{FinishedGraph, Violation};
use judge::Judge;
use regraph_driver::{Driver, GraphHandle};
use regraph_record::journal::Journal;
use regraph_record::policy::Programmatic;
use touches::Touches;

/// The most findings that one call tells.
pub const MOST: usize = 100;

/// What is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Uses of blocks later than was recorded.
    pub late_uses: bool,
    /// Reads of blocks that nothing in the graph wrote before.
    pub early_reads: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Later uses of the capture's blocks than its journal has, at most [`MOST`].
    pub late_uses: Vec<LateUse>,
    /// Reads of the capture's blocks that nothing in the graph wrote before, at most [`MOST`].
    pub early_reads: Vec<EarlyRead>,
}

/// Searches the parameters of a graph's nodes.
///
/// # Errors
/// [`Violation`] where the journal contradicts itself or the graph cannot be read. A node whose
/// parameters cannot be had is passed over.
pub fn find<D: Driver + ?Sized>(
    journal: &Journal,
    driver: &D,
    graph: GraphHandle,
    search: Search,
) -> Result<Found, Violation> {
    // Edges of every kind count here, also those that prove nothing.
    let finished = FinishedGraph::read(driver, graph)?;
    let mut history = History::default();
    let edges = Default::default();
    let graph = history.read(journal, Programmatic::Deny, &finished, edges)?;
    let mut found = Found::default();
    // Edges that were put in again the other way round leave no order to go by.
    if history.blocks.is_empty() || !graph.any_ordered {
        return Ok(found);
    }
    let seen = first_sights(&graph, &history);
    let touches = Touches::read(journal, &history, &graph, &seen, driver);
    if search.late_uses {
        let judge = Judge::new(&graph, &history);
        let late = judge.late(&touches);
        found.late_uses = late.into_iter().map(|late| judge.tell(driver, late)).collect();
    }
    if search.early_reads {
        found.early_reads = early::find(&graph, &history, &touches, driver);
    }
    Ok(found)
}
