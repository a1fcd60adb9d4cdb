//! Who may use a block, from what the streams were seen to wait for.
//!
//! The driver does not say which stream launched a node, so each stream gets a log of the nodes
//! that it may have launched. A look at a stream gains the nodes that lie behind its terminals and
//! lay behind none that it had before. Where the terminals only moved on (every former terminal
//! lies behind the new ones), a launch of the stream follows from its *first* launch since, and
//! that one depends on all the former terminals directly; what follows from no such node came by a
//! wait. Where they moved back, everything gained may be a launch, but for what some look saw before
//! the step began.
//!
//! The steps of a log are numbered by the look that ends them. Step 0 ends at the first look: who
//! launched that is not known, so it is asked node by node, and holds nothing where no block needs
//! it. The step after the last look, the tail, stands for launches that no look at the stream saw:
//! of the nodes that no look at all saw until then, those that depend on all of its last terminals
//! directly, and what follows from them unless another stream's log has it.
//!
//! What some look saw before a block was allocated is older than the block. Step 0 and the tail,
//! which no look bounds, are sifted by that.
//!
//! * [`sights`], [`sighted`]: when each node was first seen.
//! * [`launches`], [`tails`]: the [`log`]s.
//! * [`hints`]: which stream most likely launched each node.
//! * [`block`]: the users of one block.
//! * [`near`]: order without clocks.
//! * [`foreign`]: users on streams that are not the block's own.
//! * [`least`], [`marks`]: means.

mod block;
mod foreign;
mod hints;
mod launches;
mod least;
mod log;
mod marks;
mod near;
mod sighted;
mod sights;
mod tails;

pub(super) use block::User;
pub(crate) use sights::first_sights;

use fixedbitset::FixedBitSet;

use super::graph::Graph;
use super::history::{History, NEVER};
use super::order::Order;
use crate::driver::StreamHandle;
use block::Users;
use foreign::Foreign;
use launches::Source;
use log::{Log, NONE};
use marks::Marks;
use near::Near;
use sighted::Sighted;
use sights::Sights;

/// Every stream's log and every block's users.
pub(super) struct Attribution<'a> {
    graph: &'a Graph,
    /// Of the edges that prove something.
    pub order: Order<'a>,
    logs: Vec<Log>,
    /// By block.
    pub users: Vec<Users>,
    sighted: Sighted,
    /// A node that was launched on no stream that the engine looked at in time.
    pub stray: Option<u32>,
}

/// What the blocks need of a stream's log.
#[derive(Clone, Copy)]
struct Need {
    /// Step 0 without what was seen before this entry.
    step_0_after: u32,
    tail: bool,
}

impl Need {
    fn of(history: &History) -> Vec<Self> {
        let mut needs = vec![Self { step_0_after: NEVER, tail: false }; history.streams.len()];
        for block in &history.blocks {
            for used in &block.uses {
                let need = &mut needs[used.stream as usize];
                if used.start().is_none() {
                    need.step_0_after = need.step_0_after.min(block.allocated);
                }
                need.tail |= block.until(used) == NEVER;
            }
        }
        needs
    }
}

impl<'a> Attribution<'a> {
    pub fn new(graph: &'a Graph, history: &History) -> Self {
        let first_seen = first_sights(graph, history);
        let successors = graph.successors();
        let source = Source { graph, successors: &successors, first_seen: &first_seen };
        let needs = Need::of(history);
        let mut marks = Marks::new(graph.len());
        let mut logs: Vec<Log> = Vec::with_capacity(history.streams.len());
        let mut sighted = Sighted::new(graph, history.streams.len());
        match history.streams.len() {
            0 => {}
            1 => read::<1>(&source, history, &needs, &mut marks, &mut logs, &mut sighted),
            2..=4 => read::<4>(&source, history, &needs, &mut marks, &mut logs, &mut sighted),
            _ => read::<16>(&source, history, &needs, &mut marks, &mut logs, &mut sighted),
        }
        let hints = hints::hints(graph, history, &logs);
        let order = Order::new(graph.proofs(), &hints);
        let stray = tails::stray(&source, history);
        if needs.iter().any(|need| need.tail) {
            tails::add(&source, history, &needs, &mut marks, &mut logs);
        }
        let mut places = vec![NONE; graph.len()];
        for log in &mut logs {
            log.link(graph, &mut places);
        }
        let (mut users, foreign) = users(graph, history, &logs, &first_seen);
        if foreign.is_empty() {
        } else if graph.is_plain() {
            foreign::tell_apart(&source, history, &logs, &sighted, &order, foreign, &mut users);
        } else {
            let order = Order::new(graph.any(), &hints);
            foreign::tell_apart(&source, history, &logs, &sighted, &order, foreign, &mut users);
        }
        Self { graph, order, logs, users, sighted, stray }
    }

    /// Calls `found` for the users that no other user in the same slice follows: whatever comes
    /// after these comes after all of them.
    pub fn last_users(&self, block: u32, mut found: impl FnMut(u32)) {
        let users = &self.users[block as usize];
        users.others.iter().for_each(|user| found(user.node));
        for slice in &users.slices {
            self.logs[slice.stream as usize].lasts(slice.start, slice.end, &mut found);
        }
    }

    /// Calls `found` for the users that follow no other user in the same slice: whatever comes
    /// before these comes before all of them.
    pub fn first_users(&self, block: u32, mut found: impl FnMut(User)) {
        let users = &self.users[block as usize];
        users.others.iter().copied().for_each(&mut found);
        for slice in &users.slices {
            let stream = slice.stream;
            let log = &self.logs[stream as usize];
            // The first launch of a clean step depends on all that the stream waited for, and what
            // the step has follows from one.
            log.firsts(slice.start, slice.end, |node| {
                let look = self.sighted.look_before_launch(node, stream, log);
                found(User { node, stream, look: look.unwrap_or(NONE) });
            });
        }
    }

    /// A stream that may have launched what a node depends on, for messages.
    pub fn stream_before(&self, node: u32, history: &History) -> Option<StreamHandle> {
        let mut open = vec![node];
        let mut known = FixedBitSet::with_capacity(self.graph.len());
        while let Some(node) = open.pop() {
            for edge in
                self.graph.any().of(node).iter().filter(|edge| !known.put(edge.from as usize))
            {
                let launched = |log: &Log| log.nodes.contains(&edge.from);
                if let Some(stream) = self.logs.iter().position(launched) {
                    return Some(history.streams[stream].handle);
                }
                open.push(edge.from);
            }
        }
        None
    }

    /// Whether a user comes after a node, where looks show that: the node was behind a stream's
    /// terminals at or before a look that the user comes after, and they only moved on in between.
    /// False where edges were edited or prove less, too.
    #[inline]
    fn is_behind(&self, node: u32, user: User) -> bool {
        if user.look == NONE {
            return false;
        }
        let Some(seen) = self.sighted.first(node, user.stream) else {
            return false;
        };
        let log = &self.logs[user.stream as usize];
        seen <= user.look as i32 && log.unclean_until(seen as u32) == log.unclean_until(user.look)
    }

    /// Whether a node has completed before a user may start, where that needs no clocks.
    pub fn completed_before(&self, node: u32, user: User) -> Option<bool> {
        let known = self.order.at_once(node, user.node);
        if known.is_some() || !self.graph.is_plain() {
            return known;
        }
        if self.is_behind(node, user) {
            return Some(true);
        }
        let Self { graph, order, logs, sighted, .. } = self;
        Near { graph, order, sighted, logs }.comes_before(node, user.node)
    }
}

/// Reads the logs, so many streams at a time.
fn read<const WIDTH: usize>(
    source: &Source<'_>,
    history: &History,
    needs: &[Need],
    marks: &mut Marks,
    logs: &mut Vec<Log>,
    sighted: &mut Sighted,
) {
    for (streams, needs) in history.streams.chunks(WIDTH).zip(needs.chunks(WIDTH)) {
        let sights = Sights::<WIDTH>::read(source.graph, streams);
        let launched = launches::read(source, &sights, streams, needs, marks, logs);
        sighted.keep(sights, launched);
    }
}

/// The users of every block but for foreign ones that are to be told apart.
fn users(
    graph: &Graph,
    history: &History,
    logs: &[Log],
    first_seen: &[u32],
) -> (Vec<Users>, Vec<Foreign>) {
    let mut all = Vec::with_capacity(history.blocks.len());
    let mut foreign = Vec::new();
    for (index, block) in history.blocks.iter().enumerate() {
        let mut users = Users::default();
        for (place, used) in block.uses.iter().enumerate() {
            let log = &logs[used.stream as usize];
            let start = used.start();
            let end = match block.until(used) {
                NEVER => log.tail(),
                _ => used.looks_until.saturating_sub(1),
            };
            let point = history.allocation_point(index as u32);
            if place > 0 && graph.any_ordered && !point.is_empty() {
                let (block, stream) = (index as u32, used.stream);
                foreign.extend(log.runs(start, end).map(|run| Foreign { block, stream, run }));
                continue;
            }
            let new = |node: &u32| first_seen[*node as usize] > block.allocated;
            if start.is_none() {
                users.add_others(used.stream, log.step(0).iter().filter(|&node| new(node)));
            }
            users.add_steps(log, used.stream, start.unwrap_or(0), end, new);
        }
        all.push(users);
    }
    (all, foreign)
}
