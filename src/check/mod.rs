//! The independent judge of a capture. It shares no code with the engine: it takes the journal and
//! the finished graph, and draws its own conclusions by the definition, not by the engine's means.
//!
//! The theorem: *for every two placements that share an address, every possible user of the earlier
//! block has completed before any possible user of the later one may start.*
//!
//! # What is checked
//!
//! The journal:
//! - every block is introduced once, freed at most once, and used only while it is live;
//! - every life of a block rests on looks: at its own stream before it begins, at each user's
//!   stream before its uses end;
//! - every node that it names is in the finished graph.
//!
//! Addresses, in host order:
//! - no block is handed out over a live one, with users or without;
//! - no block is handed out over a standing block that is not settled, none stands over a live
//!   block, and none still stands at the end where a block of the capture with users was;
//! - no block with users follows one with users outside the capture.
//!
//! Order, for each two blocks with users that held an address one after the other:
//! - from every possible user of the earlier to every possible user of the later leads a path of
//!   edges that the finished graph has *now* and that prove something under the policy, at least
//!   one of them full. Full is an all-zero edge. A programmatic edge proves nothing (deny), the
//!   order of starts and of completions (lag), or as much as a full one (trust); any other edge
//!   proves nothing. Where order of starts counts, the path may hold such edges on either side of
//!   the full one: `x` starts before `u`, and so completes before it, `u` completes before `y`
//!   starts; or `x` completes before `u` starts, and `y` starts later still.
//! - possible users are taken from what the streams were seen to wait for (`users`): of the
//!   block's own stream what it launched between the allocation and the free, of other streams
//!   that were named what they launched in that time and behind the allocation point, each cut
//!   short by a last use; of a block that is live to the end also what no look saw.
//! - a node that follows from no seen state of any stream may use every block, so it is refused
//!   where blocks share addresses.
//!
//! # What is not proved
//!
//! - Users that the engine was never told of: streams not named, consumers outside the graph
//!   (peers, hosts, external events), order by means other than edges.
//! - Terminals that were set back and then undone or joined between two looks at the stream: what
//!   was launched in between looks like another stream's work.
//! - Launches after the last look at a stream, where another stream's log has them too and they do
//!   not depend on the stream's last terminals directly. A look at every stream before the capture
//!   ends leaves no such node.
//! - A node whose edges were edited before the engine first saw it.
//! - Addresses that kernels find elsewhere than where the host put them (pointer tables in device
//!   memory), and parameters that are changed after the capture.
//! - That the driver answers truly, and that the graph is not edited after the check.
//! - Launches of the graph that overlap one another, or overlap other graphs on the same memory.

mod graph;
mod history;
mod lists;
mod numbers;
mod order;
mod range_map;
mod reader;
mod shadow;
mod users;
mod violation;

pub use violation::{Flaw, Place, Violation};

/// What a reader of journals and graphs needs that judges nothing.
pub(crate) mod reading {
    pub(crate) use super::graph::Graph;
    pub(crate) use super::history::{BlockHistory, History, NEVER};
    pub(crate) use super::order::Order;
    pub(crate) use super::range_map::RangeMap;
    pub(crate) use super::users::first_sights;
}

use crate::driver::{Driver, GraphHandle};
use crate::journal::Journal;
use crate::policy::Programmatic;

use graph::Graph;
use history::History;
use shadow::Pair;
use users::Attribution;

/// What was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Nodes of the finished graph.
    pub nodes: usize,
    /// Blocks that the capture allocated.
    pub blocks: usize,
    /// Pairs of blocks with users that held an address one after the other.
    pub pairs: usize,
}

/// A possible user of an earlier block against one of a later block.
struct Question {
    pair: u32,
    earlier: u32,
    later: u32,
}

/// The last users of every block, behind one another.
struct LastUsers {
    ends: Vec<u32>,
    nodes: Vec<u32>,
}

impl LastUsers {
    fn new(attribution: &Attribution<'_>) -> Self {
        let count = attribution.users.len();
        let mut last = Self { ends: Vec::with_capacity(count), nodes: Vec::with_capacity(count) };
        for block in 0..count as u32 {
            attribution.last_users(block, |node| last.nodes.push(node));
            last.ends.push(last.nodes.len() as u32);
        }
        last
    }

    fn of(&self, block: u32) -> &[u32] {
        let start = block.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.nodes[start as usize..self.ends[block as usize] as usize]
    }
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
    judge(journal, programmatic, driver, graph, false)
}

/// The same for hosts whose libraries add nodes of their own: with `foreign`, one that follows from no
/// state that any stream was seen in uses no block, instead of any.
pub(crate) fn judge<D: Driver + ?Sized>(
    journal: &Journal,
    programmatic: Programmatic,
    driver: &D,
    graph: GraphHandle,
    foreign: bool,
) -> Result<Summary, Violation> {
    let graph = Graph::read(journal, programmatic, driver, graph)?;
    let history = History::read(journal, &graph)?;
    let attribution = Attribution::new(&graph, &history);
    let order = &attribution.order;

    let not_ordered = |pair: Pair, earlier: u32, later: u32| Violation::NotOrdered {
        earlier: history.blocks[pair.earlier as usize].place,
        later: history.blocks[pair.later as usize].place,
        earlier_node: graph.handle(earlier),
        later_node: graph.handle(later),
    };
    let last_users = LastUsers::new(&attribution);
    let mut first_users = Vec::new();
    let mut pairs: Vec<Pair> = Vec::new();
    let mut questions: Vec<Question> = Vec::new();
    let walked = shadow::walk(&history, &attribution, |pair| {
        let number = pairs.len() as u32;
        if pairs.last().is_none_or(|last| last.later != pair.later) {
            first_users.clear();
            attribution.first_users(pair.later, |user| first_users.push(user));
        }
        pairs.push(pair);
        for &earlier in last_users.of(pair.earlier) {
            for &user in &first_users {
                let later = user.node;
                match attribution.completed_before(earlier, user) {
                    Some(true) => {}
                    Some(false) => return Err(not_ordered(pair, earlier, later)),
                    None => questions.push(Question { pair: number, earlier, later }),
                }
            }
        }
        Ok(())
    });

    let mut wrong: Option<usize> = None;
    order.ask(
        &questions,
        |question| (question.earlier, question.later),
        |index, question, clocks| {
            if !clocks.completed_before(question.earlier, question.later) {
                wrong = Some(wrong.map_or(index, |other| other.min(index)));
            }
        },
    );
    // Whatever stopped the walk comes later than every pair that it had handed over.
    if let Some(index) = wrong {
        let question = &questions[index];
        let pair = pairs[question.pair as usize];
        return Err(not_ordered(pair, question.earlier, question.later));
    }
    walked?;
    let stray = attribution.stray.filter(|_| !foreign);
    if let (Some(node), Some(pair)) = (stray, pairs.first()) {
        return Err(Violation::Unattributed {
            node: graph.handle(node),
            earlier: history.blocks[pair.earlier as usize].place,
            later: history.blocks[pair.later as usize].place,
        });
    }
    Ok(Summary { nodes: graph.len(), blocks: history.blocks.len(), pairs: pairs.len() })
}
