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

use super::graph::Graph;
use super::history::{BlockHistory, BlockUse, History, NEVER};
use super::lists::Lists;
use super::marks::Marks;
use super::order::Order;
use super::sights::{first_sights, Sights, UNSEEN};
use super::steps::{Source, Steps};
use regraph_driver::StreamHandle;

/// What is known of every stream and block.
pub(super) struct Users<'a> {
    graph: &'a Graph,
    history: &'a History,
    first_seen: Vec<u32>,
    successors: Lists<u32>,
    /// The binary logarithm of how many streams a batch has.
    shift: u32,
    /// What the streams of one batch saw, and which.
    sights: Option<(usize, Sights)>,
    steps: Vec<Steps>,
    /// Whether no step of any stream is broken.
    steady: bool,
    marks: Marks,
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
}

impl<'a> Users<'a> {
    pub fn new(graph: &'a Graph, history: &'a History) -> Self {
        let mut users = Self {
            graph,
            history,
            first_seen: first_sights(graph, history),
            successors: graph.successors(),
            shift: Sights::width(history.streams.len()).ilog2(),
            sights: None,
            steps: Vec::with_capacity(history.streams.len()),
            steady: true,
            marks: Marks::new(graph.len()),
            used: Vec::new(),
            order: OnceCell::new(),
        };
        for batch in 0..users.batches() {
            users.read_steps(batch);
        }
        users.steady = users.steps.iter().all(|steps| steps.broken_until(UNSEEN) == 0);
        let launches = |block: &BlockHistory| {
            let used = &block.uses[0];
            let steps = &users.steps[used.stream as usize];
            let start = used.start().unwrap_or(0);
            steps.launches(start, users.last_step(block, used), block.allocated)
        };
        users.used = history.blocks.iter().map(|it| it.outside || launches(it)).collect();
        let unsure: Vec<u32> =
            (0..history.blocks.len() as u32).filter(|&it| !users.used[it as usize]).collect();
        for (&block, nodes) in unsure.iter().zip(users.of(&unsure)) {
            users.used[block as usize] = !nodes.is_empty();
        }
        users
    }

    /// Whether anything may use a block, a node or something outside the capture.
    #[inline]
    pub fn any(&self, block: u32) -> bool {
        self.used[block as usize]
    }

    /// How many batches the streams make.
    pub fn batches(&self) -> usize {
        self.history.streams.len().div_ceil(self.width())
    }

    fn width(&self) -> usize {
        1 << self.shift
    }

    /// The batch of a stream, and its column there.
    #[inline]
    pub fn place(&self, stream: u32) -> (usize, usize) {
        let stream = stream as usize;
        (stream >> self.shift, stream & ((1 << self.shift) - 1))
    }

    /// Reads what the streams of a batch saw, unless that is what was read last.
    pub fn load(&mut self, batch: usize) {
        if self.sights.as_ref().is_none_or(|&(loaded, _)| loaded != batch) {
            let width = self.width();
            let streams = self.history.streams.chunks(width).nth(batch).unwrap_or_default();
            self.sights = Some((batch, Sights::read(self.graph, streams, width)));
        }
    }

    fn loaded(&self) -> &Sights {
        let (_, sights) = self.sights.as_ref().expect("a batch is loaded before it is asked");
        sights
    }

    fn read_steps(&mut self, batch: usize) {
        self.load(batch);
        let mut marks = std::mem::replace(&mut self.marks, Marks::new(0));
        let Self { graph, successors, first_seen, .. } = &*self;
        let source = Source { graph, successors, first_seen, sights: self.loaded() };
        let streams = self.history.streams.chunks(self.width()).nth(batch).unwrap_or_default();
        let steps = streams.iter().enumerate();
        let steps: Vec<Steps> =
            steps.map(|(column, it)| Steps::read(&source, it, column, &mut marks)).collect();
        self.steps.extend(steps);
        self.marks = marks;
    }

    /// The step that ends with a use, which is the one behind the last look for lack of an end.
    fn last_step(&self, block: &BlockHistory, used: &BlockUse) -> u32 {
        match block.until(used) {
            NEVER => self.history.streams[used.stream as usize].looks() as u32,
            _ => used.looks_until.saturating_sub(1),
        }
    }

    /// Whether looks show that all users of one block are completed before any of another starts.
    /// That is so if what each stream of the earlier one waited for when its uses ended is completed
    /// before what the later one's stream would launch next when it was handed out, and no step of
    /// either is broken: then the users of the earlier come before the former, and those of the later
    /// after the latter. Edges must be as they were seen and all prove something. The batch of the
    /// later one's stream is loaded.
    #[inline]
    pub fn looks_order(&self, earlier: u32, later: u32) -> bool {
        let [earlier, later] = [earlier, later].map(|it| &self.history.blocks[it as usize]);
        let own = &later.uses[0];
        let Some(point) = own.start().filter(|_| self.graph.is_whole()) else { return false };
        let whole = |stream: u32, after: u32, until: u32| {
            let steps = &self.steps[stream as usize];
            self.steady || steps.broken_until(after) == steps.broken_until(until)
        };
        if !whole(own.stream, point, self.last_step(later, own)) {
            return false;
        }
        let (_, column) = self.place(own.stream);
        let sights = self.loaded();
        earlier.uses.iter().all(|used| {
            let end = used.looks_until.wrapping_sub(1);
            let stream = &self.history.streams[used.stream as usize];
            earlier.until(used) != NEVER
                && used.looks_until > 0
                && whole(used.stream, used.start().unwrap_or(0), end)
                && stream.terminals(end as usize).iter().all(|&terminal| {
                    let first = sights.done(terminal, column);
                    // It lies behind the stream's terminals still.
                    first <= point && whole(own.stream, first, point)
                })
        })
    }

    /// The order by edges of any kind. If all edges prove something it is that of the proofs as well.
    pub fn order(&self) -> &Order<'a> {
        self.order.get_or_init(|| Order::new(self.graph.any()))
    }

    /// The possible users of some blocks among the nodes.
    pub fn of(&mut self, blocks: &[u32]) -> Vec<Vec<u32>> {
        let mut users = vec![Vec::new(); blocks.len()];
        let mut candidates = Candidates::default();
        let mut marks = std::mem::replace(&mut self.marks, Marks::new(0));
        for batch in 0..if blocks.is_empty() { 0 } else { self.batches() } {
            self.load(batch);
            for (index, &block) in blocks.iter().enumerate() {
                let uses = self.history.blocks[block as usize].uses.iter().enumerate();
                for (place, used) in uses.filter(|(_, used)| self.place(used.stream).0 == batch) {
                    self.gather(index as u32, block, (place, used), &mut marks, &mut candidates);
                }
            }
        }
        self.marks = marks;
        let Candidates { nodes, questions } = candidates;
        let mut is = vec![true; nodes.len()];
        if !questions.is_empty() {
            let ends = |&(candidate, from): &(u32, u32)| (from, nodes[candidate as usize].1);
            self.order().ask(&questions, ends, |_, question, clocks| {
                let (from, node) = ends(question);
                is[question.0 as usize] &= clocks.comes_before(from, node);
            });
        }
        for (&(index, node), _) in nodes.iter().zip(is).filter(|&(_, is)| is) {
            users[index as usize].push(node);
        }
        // Several of its streams may have it.
        for nodes in &mut users {
            nodes.sort_unstable();
            nodes.dedup();
        }
        users
    }

    /// Adds what one of a block's streams gained in time.
    fn gather(
        &self,
        index: u32,
        number: u32,
        (place, used): (usize, &BlockUse),
        marks: &mut Marks,
        candidates: &mut Candidates,
    ) {
        let Self { graph, history, first_seen, .. } = self;
        let block = &history.blocks[number as usize];
        let stream = &history.streams[used.stream as usize];
        let steps = &self.steps[used.stream as usize];
        let (_, column) = self.place(used.stream);
        let sights = self.loaded();
        let looks = stream.looks() as u32;
        let (first, end) = (used.looks_before, self.last_step(block, used));
        let waited = |step: u32| match step.checked_sub(1) {
            Some(look) => stream.terminals(look as usize),
            None => &[],
        };
        let mut add = |node: u32, step: u32| {
            let began = step.checked_sub(1).map_or(0, |look| stream.entry(look as usize));
            if first_seen[node as usize] <= began.max(block.allocated) {
                return;
            }
            let broken = steps.last_broken(step).filter(|&broken| broken >= first);
            let point = match broken {
                _ if place > 0 => history.allocation_point(number),
                Some(broken) if broken == step && step < looks => &[],
                Some(broken) => stream.terminals(broken as usize),
                None => waited(first),
            };
            let last = if step == looks { waited(looks) } else { &[] };
            if graph.any_ordered {
                let asked = candidates.questions.len();
                for &from in point.iter().chain(last) {
                    if from >= node {
                        candidates.questions.truncate(asked);
                        return;
                    }
                    if graph.any().of(node).iter().all(|edge| edge.from != from) {
                        candidates.questions.push((candidates.nodes.len() as u32, from));
                    }
                }
            }
            candidates.nodes.push((index, node));
        };
        marks.clear();
        let mut stack: Vec<u32> = Vec::new();
        for look in first..looks.min(end + 1) {
            stack.extend_from_slice(stream.terminals(look as usize));
            while let Some(node) = stack.pop() {
                let step = sights.of(node, column);
                if step >= first && marks.insert(node) {
                    add(node, step);
                    stack.extend(graph.seen().of(node).iter().map(|edge| edge.from));
                }
            }
        }
        if end == looks {
            let gained = |node: u32| sights.of(node, column) != UNSEEN;
            let rest = (0..graph.len() as u32).filter(|&node| !gained(node));
            rest.for_each(|node| add(node, looks));
        }
    }

    /// A node that lies behind no look, and follows from no stream's last terminals.
    pub fn stray(&self) -> Option<u32> {
        if self.first_seen.iter().all(|&entry| entry != NEVER) {
            return None;
        }
        let mut marks = Marks::new(self.graph.len());
        marks.clear();
        let mut stack = Vec::new();
        for stream in self.history.streams.iter().filter(|stream| stream.looks() > 0) {
            let last = stream.terminals(stream.looks() - 1);
            if last.is_empty() {
                return None;
            }
            stack.extend_from_slice(last);
        }
        while let Some(node) = stack.pop() {
            if marks.insert(node) {
                stack.extend_from_slice(self.successors.of(node));
            }
        }
        let known = |node: u32| self.first_seen[node as usize] != NEVER || marks.contains(node);
        (0..self.graph.len() as u32).find(|&node| !known(node))
    }

    /// The stream whose look was the first to see something that a node depends on, for messages.
    pub fn stream_before(&self, node: u32) -> Option<StreamHandle> {
        let mut open = vec![node];
        let mut marks = Marks::new(self.graph.len());
        marks.clear();
        while let Some(node) = open.pop() {
            for edge in self.graph.any().of(node) {
                let seen = self.first_seen[edge.from as usize];
                let History { looks, streams, .. } = self.history;
                let is = |&&(stream, look): &&(u32, u32)| {
                    streams[stream as usize].entry(look as usize) == seen
                };
                if let Some(&(stream, _)) = looks.iter().find(is) {
                    return Some(streams[stream as usize].handle);
                }
                if marks.insert(edge.from) {
                    open.push(edge.from);
                }
            }
        }
        None
    }
}
