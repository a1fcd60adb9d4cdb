//! The independent judge of a CUDA graph capture. It shares no code with the engine, nor with the reachability that the
//! engine reuses memory by: this crate depends on the record of captures and on the driver's trait alone. It takes the
//! journal and the finished graph, and draws its own conclusions by the definition, not by the engine's means.
//!
//! Of [regraph](https://docs.rs/regraph)'s interface is only what that crate exports.
//!
//! The theorem: *for every two placements that share a byte of memory, every possible user of the
//! earlier block has completed before any possible user of the later one may start.*
//!
//! Memory is what the journal binds addresses to, for the whole capture; one piece may lie behind
//! several addresses. Addresses that it does not bind have memory of their own.
//!
//! # What is checked
//!
//! The journal:
//! - every block is introduced once, freed at most once, and used only while it is live;
//! - a block from before that the capture took for its own stood before the first look at any stream;
//! - all that a pool of the capture holds in live blocks is in blocks that the journal would tell of, to the byte,
//!   when the capture comes to use the pool and when it ends;
//! - every life of a block rests on looks: at its own stream before it begins, unless it stood before, at
//!   each user's stream before its uses end;
//! - every node that it names is in the finished graph.
//!
//! Addresses, in host order:
//! - no block is handed out over a live one, with users or without;
//! - no block is handed out over a standing block that is not settled, none stands over a live
//!   block, and none still stands at the end where a block of the capture with users was;
//! - no block with users follows one with users outside the capture.
//!
//! Physical memory, where the journal binds addresses to some:
//! - no address is bound to two places, and nothing is bound behind the end of a memory whose size is known;
//! - no block has a byte of memory at two of its addresses;
//! - no block is handed out over the memory of one that was never freed, and none with users over
//!   that of one with users outside the capture. Blocks that nothing uses and that were freed
//!   count for nothing here: the memory came later than they went. Where both were freed it is their
//!   order that counts, below, and not when the host freed the earlier;
//! - no block with users, and none that was not freed, lies on the memory of a standing block that
//!   is not settled at the end;
//! - no block that was not freed, or that something outside the capture uses, lies on memory that
//!   another graph overwrites, unless the host has freed an output of that graph there: then the
//!   host keeps the graph's launches apart from what it needs of the memory.
//!
//! Order, for each two blocks with users that held an address or a byte of memory one after the other:
//! - from every possible user of the earlier to every possible user of the later leads a path of edges that the
//!   finished graph has *now* and that prove something under the policy, at least one of them full. Full is an all-zero
//!   edge. A programmatic edge proves nothing (deny), the order of starts and of completions (lag), or as much as a
//!   full one (trust); any other edge proves nothing. Where order of starts counts, the path may hold such edges on
//!   either side of the full one: `x` starts before `u`, and so completes before it, `u` completes before `y` starts;
//!   or `x` completes before `u` starts, and `y` starts later still.
//! - possible users (`users.rs`) are, of the nodes that a block's streams gained between its
//!   allocation and the end of each stream's uses, those that come after the allocation point and
//!   that no look saw before; on the block's own stream, if that was set back, also what does not
//!   come after the point; of a block that is live to the end also what comes after the last looks. Of a
//!   block from before they are all that its streams gained until its uses end: it has no point.
//! - a node that no look saw may use every block, unless it comes after all nodes that looks saw, or,
//!   where last looks are missing, may be a stream's last launch. It is refused where blocks share
//!   addresses or memory, or where a block with users may lie in memory of other graphs; and wherever it
//!   comes, where a block was freed without users, or where blocks share something and such nodes are in no order.
//!
//! Of a pool that is to be compacted ([`check_compaction`]):
//! - what blocks lie on that are live or fixed stays, and so does what graphs have whose captures were
//!   beside others; no graph comes to share memory that stays;
//! - every address of a graph has memory afterwards, and what it has at two addresses it had at both before;
//! - an output that was freed lies on no memory of a later graph that was planned when it lived, and on no
//!   page of an earlier one where that had no output that was freed by then.
//!
//! # What is not proved
//!
//! - That the work outside the capture which used a block from before had completed when the capture took
//!   it for its own: the checker takes the journal's word, as for standing blocks that are settled.
//! - Users that the engine was never told of: streams not named, consumers outside the graph
//!   (peers, hosts, external events), order by means other than edges.
//! - Terminals that were set back and then undone or joined between two looks at the stream: what
//!   was launched in between looks like another stream's work.
//! - Where last looks are missing: launches after the last look at a stream that do not come after the
//!   stream's last terminals, and nodes added by hand that do.
//! - A node whose edges were edited before the engine first saw it.
//! - Addresses that kernels find elsewhere than where the host put them (pointer tables in device
//!   memory), and parameters that are changed after the capture.
//! - That bytes of one memory that lie at two addresses at the same time keep what is written through each: only
//!   bytes that blocks have in common are judged. The engine's plans use no page of memory at two addresses at once.
//! - That of the blocks which stand in its pools the journal tells each over which a block is handed out
//!   (`design/safety.md` has why it does); that numbers of blocks rise.
//! - That the journal's bindings are what was mapped, and that they stay, and which blocks were outputs and
//!   when they were freed; that the memory of two numbers is two memories.
//! - That the driver answers truly, and that the graph is not edited after the check.
//! - Launches of the graph that overlap one another, or overlap other graphs on the same memory.
#![forbid(unsafe_code)]

mod bindings;
mod clocks;
mod compaction;
mod finished;
mod graph;
mod history;
mod lists;
mod marks;
mod numbers;
mod order;
mod pairs;
mod places;
mod range_map;
mod reader;
mod sights;
mod steps;
mod users;
mod violation;

pub mod uses;

pub use compaction::check_compaction;
pub use finished::FinishedGraph;
pub use violation::{Common, Flaw, Misplaced, NamedNode, Place, Violation};

/// What a reader of journals and graphs needs that judges nothing.
pub(crate) mod reading {
    pub(crate) use super::graph::Graph;
    pub(crate) use super::history::{BlockHistory, History, NEVER};
    pub(crate) use super::marks::Marks;
    pub(crate) use super::order::Order;
    pub(crate) use super::range_map::RangeMap;
    pub(crate) use super::sights::first_sights;
}

use std::fmt;

use regraph_driver::{Driver, DriverError, GraphHandle};
use regraph_record::journal::Journal;
use regraph_record::policy::Programmatic;

use bindings::Bindings;
use graph::{EdgeLists, Graph};
use history::History;
use users::Users;

/// What was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Nodes of the finished graph.
    pub nodes: usize,
    /// Blocks that the capture allocated.
    pub blocks: usize,
    /// Pairs of blocks with users that held an address or a byte of physical memory one after the other.
    pub pairs: usize,
}

/// Judges a capture by its journal and its graph.
///
/// # Errors
/// The first thing found wrong, in host order as far as it has a place there.
pub fn check<D: Driver + ?Sized>(
    journal: &Journal,
    programmatic: Programmatic,
    driver: &D,
    graph: GraphHandle,
) -> Result<Summary, Violation> {
    let finished = FinishedGraph::read(driver, graph)?;
    let judged = judge(journal, programmatic, &finished, false);
    judged.map_err(|violation| violation.name_kernels(driver))
}

/// Judges a capture by its journal and a copy of its graph, without a driver. What it finds names nodes,
/// but no kernels. A node that was launched on no stream that the engine looked at is taken to use any block;
/// with `foreign`, for hosts whose libraries add nodes of their own, to use none.
///
/// # Errors
/// The first thing found wrong, in host order as far as it has a place there.
pub fn judge(
    journal: &Journal,
    programmatic: Programmatic,
    graph: &FinishedGraph,
    foreign: bool,
) -> Result<Summary, Violation> {
    Checker::default().judge(journal, programmatic, graph, foreign)
}

/// Judges captures one after another, each by itself, in what it has allocated for those before.
#[derive(Default)]
pub struct Checker {
    history: History,
    edges: EdgeLists,
    copy: FinishedGraph,
}

/// Of a capture with more facts or nodes nothing is kept for the next one.
const KEPT: usize = 1 << 12;

impl Checker {
    /// [`FinishedGraph::read`], in what a [kept](Checker::keep) copy has allocated.
    ///
    /// # Errors
    /// The driver's.
    pub fn read<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        graph: GraphHandle,
    ) -> Result<FinishedGraph, DriverError> {
        std::mem::take(&mut self.copy).read_anew(driver, graph)
    }

    /// Keeps what a copy has allocated that is needed no more, unless that is much.
    pub fn keep(&mut self, copy: FinishedGraph) {
        if copy.nodes().len().max(copy.edges()) <= KEPT {
            self.copy = copy;
        }
    }

    /// [`judge`].
    ///
    /// # Errors
    /// Those of [`judge`].
    pub fn judge(
        &mut self,
        journal: &Journal,
        programmatic: Programmatic,
        graph: &FinishedGraph,
        foreign: bool,
    ) -> Result<Summary, Violation> {
        let most = journal.len().max(graph.edges()).max(graph.nodes().len());
        let edges = std::mem::take(&mut self.edges);
        let read = self.history.read(journal, programmatic, graph, edges);
        let judged = read.and_then(|graph| {
            let judged = judge_read(&graph, &self.history, foreign);
            self.edges = graph.into_edges();
            judged
        });
        if most > KEPT {
            *self = Self::default();
        }
        judged
    }
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
    }
}

fn judge_read(graph: &Graph<'_>, history: &History, foreign: bool) -> Result<Summary, Violation> {
    let bound = !history.bindings.is_empty();
    let bindings = bound.then(|| Bindings::read(history)).transpose()?;
    if history.blocks.is_empty() {
        // Only blocks can meet anything, and a stray node is refused beside blocks alone.
        return Ok(Summary { nodes: graph.len(), ..Summary::default() });
    }
    let users = Users::new(graph, history);
    let (pairs, wrong) = places::read(history, &users, bindings.as_ref());
    let at = |pair: usize| history.blocks[pairs.all[pair].later as usize].allocated;
    match (pairs::judge(graph, history, &users, &pairs), wrong.violation) {
        (Some((pair, violation)), Some(_)) if at(pair) <= wrong.entry => return Err(violation),
        (_, Some(violation)) | (Some((_, violation)), None) => return Err(violation),
        (None, None) => {}
    }
    if !foreign {
        pairs::refuse_stray(graph, history, &users, &pairs)?;
    }
    Ok(Summary { nodes: graph.len(), blocks: history.blocks.len(), pairs: pairs.all.len() })
}
