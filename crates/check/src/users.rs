//! Who may use a block, from what the streams were seen to wait for.
//!
//! The driver does not say which stream launched a node. But a stream launches nothing that a look
//! at any stream saw before its step began, and while its terminals only move on, all that it launches
//! comes after what it waited for. So the possible users of a block are, of the nodes that one of its
//! streams *gained* (that lie behind the stream's terminals and lay behind none that it had before)
//! between the block's allocation and the end of the stream's uses, those that
//! - no look saw before the block was allocated, nor before the step began that gained them;
//! - on the block's own stream, come after all that it waited for when the block was allocated, or, once
//!   a step was broken ([`steps`](super::steps)), at the end of the last broken step; what a broken
//!   step itself gained need not come after anything;
//! - on another stream, come after all that the block's own stream waited for at the allocation.
//!
//! Of a block that is live to the end they are also the nodes that the stream has not gained at its
//! last look, and that come after all that it waited for then.

use std::cell::OnceCell;
use std::ops::Range;

use super::graph::Graph;
use super::history::{BlockHistory, BlockUse, History, NEVER};
use super::marks::Marks;
use super::order::Order;
use super::sights::first_looks;
use super::steps::Steps;
use regraph_driver::StreamHandle;
use regraph_record::effort::spend;

/// What is known of every stream and block.
pub(super) struct Users<'a> {
    graph: &'a Graph<'a>,
    history: &'a History,
    first_seen: Vec<u32>,
    steps: Vec<Steps>,
    /// Whether no step of any stream is broken.
    steady: bool,
    /// By block: whether anything may use it.
    used: Vec<bool>,
    order: OnceCell<Order<'a>>,
}

/// Nodes that may be users of some blocks, and what is asked about each.
#[derive(Default)]
struct Candidates {
    /// Block, by its place among those that are asked about, and node.
    nodes: Vec<(u32, u32)>,
    /// Candidate, and a node that it has to come after.
    questions: Vec<(u32, u32)>,
    /// Whether one user of a block will do.
    one_each: bool,
}

/// About so many candidates are held at once, or as many as there are nodes.
const AT_ONCE: usize = 1 << 18;

impl<'a> Users<'a> {
    pub fn new(graph: &'a Graph<'a>, history: &'a History) -> Self {
        let (first_seen, steps) = Steps::read(graph, history);
        let steady = steps.iter().all(|steps| steps.broken_until(NEVER) == 0);
        let (used, order) = (Vec::new(), OnceCell::new());
        let mut users = Self { graph, history, first_seen, steps, steady, used, order };
        let launches = |block: &BlockHistory| {
            let used = &block.own;
            let steps = &users.steps[used.stream as usize];
            let start = used.start().unwrap_or(0);
            steps.launches(start, users.last_step(block, used), block.allocated)
        };
        users.used = history.blocks.iter().map(|it| it.outside || launches(it)).collect();
        let may_have = |block: &BlockHistory| {
            history.uses(block).any(|used| !users.steps_of(block, used).is_empty())
        };
        let blocks = (0..).zip(users.used.iter().zip(&history.blocks));
        let unsure = blocks.filter(|&(_, (used, block))| !used && may_have(block));
        let unsure: Vec<u32> = unsure.map(|(number, _)| number).collect();
        for (&block, nodes) in unsure.iter().zip(users.among(&unsure, true)) {
            users.used[block as usize] = !nodes.is_empty();
        }
        users
    }

    /// Whether anything may use a block, a node or something outside the capture.
    #[inline]
    pub fn any(&self, block: u32) -> bool {
        self.used[block as usize]
    }

    /// The step that ends with a use, which is the one behind the last look for lack of an end.
    fn last_step(&self, block: &BlockHistory, used: &BlockUse) -> u32 {
        match block.until(used) {
            NEVER => self.history.streams[used.stream as usize].looks() as u32,
            _ => used.looks_until.saturating_sub(1),
        }
    }

    /// The steps that may gain users of a block on one of its streams.
    fn steps_of(&self, block: &BlockHistory, used: &BlockUse) -> Range<u32> {
        used.looks_before..self.last_step(block, used) + 1
    }

    /// Whether looks show that all users of a block come after what its stream waited for when it was handed out.
    #[inline]
    pub fn begins_whole(&self, block: &BlockHistory) -> bool {
        let last = self.last_step(block, &block.own);
        block.own.start().is_some_and(|point| self.is_whole(block.own.stream, point, last))
    }

    /// Whether looks show that all users of a block are completed. `is_done` says of a stream whether what it waited
    /// for at a look is.
    #[inline]
    pub fn ends_whole(&self, block: &BlockHistory, is_done: impl Fn(u32, u32) -> bool) -> bool {
        self.history.uses(block).all(|used| {
            let end = used.looks_until.wrapping_sub(1);
            block.until(used) != NEVER
                && used.looks_until > 0
                && self.is_whole(used.stream, used.start().unwrap_or(0), end)
                && is_done(used.stream, end)
        })
    }

    /// Whether a block's stream goes on from a look of its to where that block was handed out, without a broken step: then
    /// what the stream waited for at the look is completed before what it launches next there, if edges are full.
    #[inline]
    pub fn goes_on(&self, stream: u32, look: u32, block: &BlockHistory) -> bool {
        let point = block.own.start().filter(|&point| look <= point);
        stream == block.own.stream && point.is_some_and(|point| self.is_whole(stream, look, point))
    }

    /// Whether no step of a stream is broken behind one and up to another.
    #[inline]
    fn is_whole(&self, stream: u32, after: u32, until: u32) -> bool {
        let steps = &self.steps[stream as usize];
        self.steady || steps.broken_until(after) == steps.broken_until(until)
    }

    /// The order by edges of any kind. If all edges prove something it is that of the proofs as well.
    pub fn order(&self) -> &Order<'a> {
        self.order.get_or_init(|| Order::new(self.graph.any()))
    }

    /// The possible users of some blocks among the nodes.
    pub fn of(&self, blocks: &[u32]) -> Vec<Vec<u32>> {
        self.among(blocks, false)
    }

    fn among(&self, blocks: &[u32], one_each: bool) -> Vec<Vec<u32>> {
        if blocks.is_empty() {
            return Vec::new();
        }
        let mut users = vec![Vec::new(); blocks.len()];
        let mut candidates = Candidates { one_each, ..Candidates::default() };
        let mut uses = Vec::new();
        for (index, &block) in blocks.iter().enumerate() {
            let block = &self.history.blocks[block as usize];
            let of = self.history.uses(block).filter(|used| !self.steps_of(block, used).is_empty());
            uses.extend(of.map(|used| (used.stream, index)));
        }
        // What one stream saw at a time.
        uses.sort_unstable();
        let mut marks = Marks::new(self.graph.len());
        for of_stream in uses.chunk_by(|one, other| one.0 == other.0) {
            let stream = of_stream[0].0;
            let of = &self.history.streams[stream as usize];
            let seen_here = first_looks(self.graph, of);
            // Behind its last look a stream launches nothing that any look had seen before.
            let last = of.looks().checked_sub(1).map_or(0, |look| of.entry(look));
            let later = (0..).zip(seen_here.iter().zip(&self.first_seen));
            let later = later.filter(|&(_, (&look, &seen))| look == NEVER && seen > last);
            let later: Vec<u32> = later.map(|(node, _)| node).collect();
            for &(_, index) in of_stream {
                let block = (index as u32, blocks[index]);
                let seen = (&seen_here[..], &later[..]);
                self.gather(block, stream, seen, &mut marks, &mut candidates);
                // Each block may have each node: so many at a time cost little beside the walk that answers them.
                if candidates.nodes.len() > self.graph.len().max(AT_ONCE) {
                    self.answer(&mut candidates, &mut users);
                }
            }
        }
        self.answer(&mut candidates, &mut users);
        // Several of its streams may have it.
        for nodes in &mut users {
            nodes.sort_unstable();
            nodes.dedup();
        }
        users
    }

    /// Adds to the users of blocks the candidates that come after all that they have to come after, and forgets these.
    fn answer(&self, candidates: &mut Candidates, users: &mut [Vec<u32>]) {
        let Candidates { nodes, questions, one_each } = candidates;
        let mut is = vec![true; nodes.len()];
        if !questions.is_empty() {
            let ends = |&(candidate, from): &(u32, u32)| (from, nodes[candidate as usize].1);
            self.order().ask(questions, ends, |_, question, clocks| {
                let (from, node) = ends(question);
                is[question.0 as usize] &= clocks.comes_before(from, node);
            });
        }
        for (&(index, node), _) in nodes.iter().zip(is).filter(|&(_, is)| is) {
            let of_block = &mut users[index as usize];
            if !*one_each || of_block.is_empty() {
                of_block.push(node);
            }
        }
        nodes.clear();
        questions.clear();
    }

    /// Adds what one of a block's streams gained in time. Of each node is known which look at the stream had it first,
    /// and which nodes none had.
    fn gather(
        &self,
        (index, number): (u32, u32),
        stream: u32,
        (seen_here, later): (&[u32], &[u32]),
        marks: &mut Marks,
        candidates: &mut Candidates,
    ) {
        let Self { graph, history, first_seen, .. } = self;
        let block = &history.blocks[number as usize];
        let Some(used) = history.uses(block).find(|used| used.stream == stream) else { return };
        let (stream, steps) = (&history.streams[stream as usize], &self.steps[stream as usize]);
        let looks = stream.looks() as u32;
        let Range { start: first, end } = self.steps_of(block, used);
        let waited = |step: u32| match step.checked_sub(1) {
            Some(look) => stream.terminals(look as usize),
            None => &[],
        };
        // Whether it will do for the block.
        let mut add = |node: u32, step: u32| {
            let began = step.checked_sub(1).map_or(0, |look| stream.entry(look as usize));
            if first_seen[node as usize] <= began.max(block.allocated) {
                return false;
            }
            let broken = steps.last_broken(step).filter(|&broken| broken >= first);
            let point = match broken {
                _ if used.stream != block.own.stream => history.allocation_point(number),
                Some(broken) if broken == step && step < looks => &[],
                Some(broken) => stream.terminals(broken as usize),
                None => waited(first),
            };
            let last = if step == looks { waited(looks) } else { &[] };
            let asked = candidates.questions.len();
            // One without a number of its own is taken for a user unasked.
            if let (true, Ok(candidate)) = (graph.any_ordered, candidates.nodes.len().try_into()) {
                for &from in point.iter().chain(last) {
                    if from >= node {
                        candidates.questions.truncate(asked);
                        return false;
                    }
                    if graph.any().of(node).iter().all(|edge| edge.from() != from) {
                        candidates.questions.push((candidate, from));
                    }
                }
            }
            candidates.nodes.push((index, node));
            candidates.one_each && candidates.questions.len() == asked
        };
        marks.clear();
        let mut stack: Vec<u32> = Vec::new();
        for look in first..looks.min(end) {
            stack.extend_from_slice(stream.terminals(look as usize));
            while let Some(node) = stack.pop() {
                spend(1);
                let step = seen_here[node as usize];
                if step >= first && marks.insert(node) {
                    if add(node, step) {
                        return;
                    }
                    stack.extend(graph.seen().of(node).iter().map(|edge| edge.from()));
                }
            }
        }
        if end == looks + 1 {
            let _ = later.iter().any(|&node| add(node, looks));
        }
    }

    /// A node that may use every block: no look saw it, and it need not come after all that looks saw. What does was
    /// launched after all of that, and uses no block that was freed by then.
    pub fn stray(&self) -> Option<u32> {
        let is_seen = |node: u32| self.first_seen[node as usize] != NEVER;
        let seen = self.first_seen.iter().filter(|&&entry| entry != NEVER).count();
        if seen == self.graph.len() {
            return None;
        }
        if !self.history.looked {
            return self.unexplained();
        }
        let any = self.graph.any();
        let ends = self.graph.any_ordered.then(|| self.seen_ends());
        let mut marks = Marks::new(self.graph.len());
        // All that comes before a first one was seen, so what nothing seen comes after lies directly before it.
        let mut comes_last = |node: u32| match &ends {
            Some((is_end, count)) => {
                marks.clear();
                spend(any.of(node).len());
                let before = any.of(node).iter().map(|edge| edge.from());
                before.filter(|&it| is_end[it as usize] && marks.insert(it)).count() == *count
            }
            // Where edits left no order of the nodes, a walk for each.
            None => {
                let mut before = 0;
                self.walk_back(node, &mut marks, |node| {
                    before += usize::from(is_seen(node));
                    false
                });
                before == seen
            }
        };
        // What follows another such node comes last if that does.
        let is_first = |node: u32| any.of(node).iter().all(|edge| is_seen(edge.from()));
        let mut nodes = 0..self.graph.len() as u32;
        nodes.find(|&node| !is_seen(node) && is_first(node) && !comes_last(node))
    }

    /// A node that no look saw, if there is any; without last looks, one that is no launch behind the last look at a stream.
    pub fn unseen(&self) -> Option<u32> {
        match self.history.looked {
            true => (0..).zip(&self.first_seen).find(|it| *it.1 == NEVER).map(|it| it.0),
            false => self.unexplained(),
        }
    }

    /// A node that last looks did not see, and that is not known to be in order with another such node: of two, one that
    /// was added later has the other one completed before it.
    pub fn unordered(&self) -> Option<u32> {
        match (self.history.looked, self.graph.any_ordered) {
            (false, _) => return None,
            (true, false) => return self.unseen(),
            (true, true) => {}
        }
        // Of each node the last unseen one that is completed before it, or is it, as one more than its number.
        let mut latest = vec![0; self.graph.len()];
        let mut before = 0;
        for node in 0..self.graph.len() as u32 {
            let edges = self.graph.proofs().of(node);
            spend(edges.len());
            let full = edges.iter().filter(|edge| edge.full());
            let last = full.map(|edge| latest[edge.from() as usize]).max().unwrap_or(0);
            let is_seen = self.first_seen[node as usize] != NEVER;
            if !is_seen && last != before {
                return Some(node);
            }
            before = if is_seen { before } else { node + 1 };
            latest[node as usize] = if is_seen { last } else { before };
        }
        None
    }

    /// Which nodes that looks saw come before no other such node, and how many those are. Edges go from smaller to
    /// larger numbers.
    fn seen_ends(&self) -> (Vec<bool>, usize) {
        let mut is_end: Vec<bool> = self.first_seen.iter().map(|&entry| entry != NEVER).collect();
        let mut leads = vec![false; is_end.len()];
        for node in (0..is_end.len()).rev() {
            is_end[node] &= !leads[node];
            if leads[node] || is_end[node] {
                let before = self.graph.any().of(node as u32);
                spend(before.len());
                before.iter().for_each(|edge| leads[edge.from() as usize] = true);
            }
        }
        let count = is_end.iter().filter(|&&is| is).count();
        (is_end, count)
    }

    /// Where last looks are missing: a node that follows from no stream's last terminals, and so is no launch behind the
    /// last look at one.
    fn unexplained(&self) -> Option<u32> {
        let mut follows = vec![false; self.graph.len()];
        for stream in self.history.streams.iter().filter(|stream| stream.looks() > 0) {
            let last = stream.terminals(stream.looks() - 1);
            if last.is_empty() {
                return None;
            }
            last.iter().for_each(|&node| follows[node as usize] = true);
        }
        loop {
            let mut changed = false;
            for node in 0..self.graph.len() as u32 {
                let edges = self.graph.any().of(node);
                let behind = edges.iter().any(|edge| follows[edge.from() as usize]);
                changed |= behind && !std::mem::replace(&mut follows[node as usize], behind);
            }
            // Where edits left no order of the nodes, one sweep need not do.
            if self.graph.any_ordered || !changed {
                break;
            }
        }
        let known = |node: usize| self.first_seen[node] != NEVER || follows[node];
        (0..self.graph.len()).find(|&node| !known(node)).map(|node| node as u32)
    }

    /// The stream whose look was the first to see something that a node depends on, for messages.
    pub fn stream_before(&self, node: u32) -> Option<StreamHandle> {
        let mut found = None;
        self.walk_back(node, &mut Marks::new(self.graph.len()), |node| {
            let seen = self.first_seen[node as usize];
            found = self.history.streams.iter().find(|stream| stream.has_look(seen));
            found.is_some()
        });
        found.map(|stream| stream.handle)
    }

    /// Calls `met` for each node that a node comes after, until that answers true.
    fn walk_back(&self, node: u32, marks: &mut Marks, mut met: impl FnMut(u32) -> bool) {
        marks.clear();
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            for edge in self.graph.any().of(node) {
                spend(1);
                if marks.insert(edge.from()) {
                    if met(edge.from()) {
                        return;
                    }
                    open.push(edge.from());
                }
            }
        }
    }
}
