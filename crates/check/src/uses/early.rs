//! Nodes that read a block before anything in the graph has written it, where their parameters show it.
//!
//! A graph that reads a block which no node of it wrote finds what was there before its launch: what the run
//! of its capture wrote by work that was not captured, or an earlier launch. That is kept as long as the block
//! is live, and hardly anywhere else: sleep, lending, plans and later captures take the memory of what a capture
//! both allocated and freed for memory that each launch writes anew.
//!
//! **A detector, not a proof.** Of copies and fills the driver tells what they read and write. Of a
//! kernel it tells values, which may be no addresses, and not what the kernel does there: the first kernel with an
//! address in a block is told of, as a *guess*, though mostly it writes the block that it is the first to
//! have. Not seen are uses through addresses that kernels find in memory, and nodes in
//! bodies of conditional nodes: where such a one writes the block first, what is told is wrong.
//!
//! What is told of each block of the capture, those from before it included that it took for its own:
//! - each copy whose source lies in the block, where no node that comes before the copy, by edges of any kind, has
//!   an address in the block that it may write to;
//! - each kernel, and each child graph, with an address in the block, likewise.
//!
//! Of a kernel that has an address where a block ends that it has another address in, an iterator's end as a rule,
//! nothing is told of the block behind; but it may write there.
//!
//! A block counts as written as a whole once anything in it may have been written. Nothing is told of
//! blocks from elsewhere, such as weights, which graphs read as a rule.

use std::fmt;

use super::late::write_node;
use super::touches::{Touch, Touches};
use super::MOST;
use crate::reading::{Graph, History, Order};
use crate::Place;
use regraph_driver::{Driver, NodeHandle, NodeKind};

/// What may have written a block before the graph is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Filled {
    /// It lay there before the capture, which took it for its own and freed it.
    Before,
    /// Something outside the capture was recorded to use it.
    Outside,
    /// Nothing that was recorded.
    Unknown,
}

/// A node that reads a block, or may, which nothing in the graph wrote before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EarlyRead {
    /// The node.
    pub node: NodeHandle,
    /// Its type, where the driver tells.
    pub kind: Option<NodeKind>,
    /// The name of the kernel that it launches, where the driver tells.
    pub kernel: Option<String>,
    /// The block.
    pub block: Place,
    /// What may have written it otherwise.
    pub filled: Filled,
    /// The address among the node's parameters.
    pub address: u64,
    /// How far into the block it is, in bytes.
    pub offset: u64,
    /// Whether the node is known to read there, as a copy is of its source. Otherwise that is a guess.
    pub reads: bool,
}

impl EarlyRead {
    /// Whether there is more to it than that a kernel is the first to have an address in the block: it
    /// is known to read, or something outside the graph is known to have used the block.
    pub fn is_likely(&self) -> bool {
        self.reads || self.filled != Filled::Unknown
    }
}

impl fmt::Display for EarlyRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_node(f, self.node, self.kind, self.kernel.as_deref())?;
        let does = if self.reads { "reads" } else { "has among its parameters" };
        write!(
            f,
            " {does} address {:#x}, {} bytes into {}",
            self.address, self.offset, self.block
        )?;
        f.write_str(", which nothing in the graph writes before")?;
        match self.filled {
            Filled::Before => {
                f.write_str("; the block is from before the capture, which freed it")?
            }
            Filled::Outside => f.write_str("; something outside the capture uses the block")?,
            Filled::Unknown => {}
        }
        if !self.reads {
            f.write_str(" (a guess: the node may write there only)")?;
        }
        f.write_str(
            "; what only the run of the capture wrote there is not kept unless the block is live",
        )
    }
}

/// Finds them, at most [`MOST`]: first those that are known to read, then those whose block something outside
/// the graph has used, and of equals in the order of nodes.
pub(super) fn find<D: Driver + ?Sized>(
    graph: &Graph<'_>,
    history: &History,
    touches: &Touches,
    driver: &D,
) -> Vec<EarlyRead> {
    let mut found = early(graph, touches);
    let filled = |touch: &Touch| {
        let block = &history.blocks[touch.block as usize];
        match (block.outside, (touch.block as usize) < history.inputs) {
            (_, true) => Filled::Before,
            (true, _) => Filled::Outside,
            (false, false) => Filled::Unknown,
        }
    };
    found.sort_by_key(|touch| (!touch.does.reads, filled(touch), touch.node, touch.block));
    found.truncate(MOST);
    let tell = |touch: Touch| {
        let node = graph.handle(touch.node);
        let block = history.place(touch.block);
        EarlyRead {
            node,
            kind: driver.node_kind(node).ok(),
            kernel: driver.kernel_name(node),
            block,
            filled: filled(&touch),
            address: touch.address,
            offset: touch.address - block.address,
            reads: touch.does.reads,
        }
    };
    found.into_iter().map(tell).collect()
}

/// The touches that no possible writer of their block comes before.
fn early(graph: &Graph<'_>, touches: &Touches) -> Vec<Touch> {
    let order = Order::new(graph.any());
    let mut open: Vec<Touch> = touches.all.iter().copied().filter(|touch| touch.live).collect();
    open.sort_by_key(|touch| (touch.block, touch.node));
    let mut found = Vec::new();
    // In each round one possible writer of each block, before which there is none. So many writers without order
    // among them are looked at; what comes after others alone is told of.
    for _ in 0..MOST {
        if open.is_empty() {
            break;
        }
        let mut rest = Vec::new();
        let mut questions = Vec::new();
        for of_block in open.chunk_by(|one, other| one.block == other.block) {
            let mut left = of_block.iter();
            // Nodes are numbered in an order that the edges allow: none that is left comes before the first.
            let writer = left.find(|touch| {
                if touch.does.reads || touch.does.unknown && !touch.end {
                    found.push(**touch);
                }
                touch.does.writes || touch.does.unknown
            });
            let Some(writer) = writer else { continue };
            questions.extend(left.clone().map(|touch| (writer.node, touch.node)));
            rest.extend(left.copied());
        }
        let mut after = vec![false; rest.len()];
        order.ask(
            &questions,
            |&question| question,
            |row, &(writer, node), clocks| {
                after[row] = clocks.comes_before(writer, node);
            },
        );
        let mut after = after.into_iter();
        rest.retain(|_| !after.next().unwrap_or(false));
        open = rest;
    }
    found
}
