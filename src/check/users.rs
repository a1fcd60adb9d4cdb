//! Who may use a block, from what the streams were seen to wait for.
//!
//! The driver does not say which stream launched a node, so each stream gets a log of the nodes
//! that it may have launched. A look at a stream gains the nodes that lie behind its terminals and
//! lay behind none that it had before. Where the terminals only moved on (every former terminal
//! lies behind the new ones), a launch of the stream follows from its *first* launch since, and
//! that one depends on all the former terminals directly; what follows from no such node came by a
//! wait. Where they moved back, everything gained may be a launch.
//!
//! The steps of a log are numbered by the look that ends them. Step 0 ends at the first look: who
//! launched that is not known, so it is asked node by node, and holds nothing where no block needs
//! it. The step after the last look, the tail, stands for launches that no look at the stream saw:
//! of the nodes that no look at all saw until then, those that depend on all of its last terminals
//! directly, and what follows from them unless another stream's log has it.
//!
//! What some look saw before a block was allocated is older than the block. Step 0 and the tail,
//! which no look bounds, are sifted by that.

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use super::graph::Graph;
use super::history::{History, StreamHistory, NEVER};
use super::order::Order;

const NONE: u32 = u32::MAX;

/// A part of a stream's log.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    pub stream: u32,
    pub start: u32,
    pub end: u32,
}

/// The possible users of one block.
#[derive(Default)]
pub(super) struct Users {
    pub slices: SmallVec<[Slice; 2]>,
    /// Users that were told apart one by one.
    pub others: Vec<u32>,
}

impl Users {
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.others.is_empty()
    }
}

/// The possible launches of one stream, in steps; topological within a step, each node once.
#[derive(Default)]
struct Log {
    nodes: Vec<u32>,
    /// Where each look's step ends.
    ends: Vec<u32>,
    /// How many steps up to each look were unclean.
    unclean: Vec<u32>,
    /// Where the nodes of the tail end that other streams' looks saw; the rest nobody saw.
    seen_tail: u32,
    /// Everything behind any terminals that the stream had.
    ever: FixedBitSet,
    /// By position, one more than the last earlier position whose node an edge orders before it;
    /// zero where there is none.
    previous: LeastTree,
    /// By position, the first later position whose node an edge orders after it, counted down from
    /// the greatest number so that "none" is least.
    next: LeastTree,
}

/// Every stream's log and every block's users.
pub(super) struct Attribution {
    logs: Vec<Log>,
    /// By block.
    pub users: Vec<Users>,
    /// A node that follows from no state that any stream was seen in.
    pub stray: Option<u32>,
}

/// A use by a stream that is not the block's own, whose nodes are to be told apart.
struct Foreign {
    block: u32,
    stream: u32,
    /// The last look before the block was allocated.
    start: Option<u32>,
    /// The step that its use ends with; may be the tail.
    end: u32,
    /// The first step that ends behind all of the allocation point.
    turn: u32,
}

impl Attribution {
    pub fn new(graph: &Graph, history: &History) -> Self {
        let first_seen = first_sights(graph, history);
        let mut needs = vec![Need::default(); history.streams.len()];
        for block in &history.blocks {
            for used in &block.uses {
                let need = &mut needs[used.stream as usize];
                let stream = &history.streams[used.stream as usize];
                if stream.look_before(block.allocated).is_none() {
                    need.step_0_after = need.step_0_after.min(block.allocated);
                }
                need.tail |= used.last.unwrap_or(block.freed) == NEVER;
            }
        }

        let mut marks = Marks::new(graph.len());
        let mut logs: Vec<Log> = Vec::with_capacity(history.streams.len());
        for (stream, need) in history.streams.iter().zip(&needs) {
            logs.push(Log::read(graph, stream, need.step_0_after, &first_seen, &mut marks));
        }
        let stray = stray(graph, history, &logs);
        if needs.iter().any(|need| need.tail) {
            add_tails(graph, history, &needs, &first_seen, &mut logs);
        }
        let mut places = vec![NONE; graph.len()];
        for log in &mut logs {
            log.link(graph, &mut places);
        }
        let users = users(graph, history, &logs, &first_seen);
        Self { logs, users, stray }
    }

    /// The users that no other user in the same slice follows: whatever comes after these comes
    /// after all of them.
    pub fn last_users(&self, block: u32) -> Vec<u32> {
        let users = &self.users[block as usize];
        let mut found = users.others.clone();
        for slice in &users.slices {
            let log = &self.logs[slice.stream as usize];
            log.next.at_most(slice.start, slice.end, u32::MAX - slice.end, |position| {
                found.push(log.nodes[position as usize]);
            });
        }
        found
    }

    /// The users that follow no other user in the same slice: whatever comes before these comes
    /// before all of them.
    pub fn first_users(&self, block: u32) -> Vec<u32> {
        let users = &self.users[block as usize];
        let mut found = users.others.clone();
        for slice in &users.slices {
            let log = &self.logs[slice.stream as usize];
            log.previous.at_most(slice.start, slice.end, slice.start, |position| {
                found.push(log.nodes[position as usize]);
            });
        }
        found
    }
}

/// What the blocks need of a stream's log.
#[derive(Clone, Copy)]
struct Need {
    /// Step 0 without what was seen before this entry.
    step_0_after: u32,
    tail: bool,
}

impl Default for Need {
    fn default() -> Self {
        Self { step_0_after: NEVER, tail: false }
    }
}

/// The entry of the first look at any stream that had each node behind it.
pub(crate) fn first_sights(graph: &Graph, history: &History) -> Vec<u32> {
    let mut first = vec![NEVER; graph.len()];
    let mut stack = Vec::new();
    for &(stream, look) in &history.looks {
        let stream = &history.streams[stream as usize];
        let entry = stream.entry(look as usize);
        stack.extend_from_slice(stream.terminals(look as usize));
        while let Some(node) = stack.pop() {
            if first[node as usize] == NEVER {
                first[node as usize] = entry;
                stack.extend_from_slice(graph.seen.of(node));
            }
        }
    }
    first
}

/// A set of nodes that is emptied at once.
struct Marks {
    marks: Vec<u32>,
    mark: u32,
}

impl Marks {
    fn new(count: usize) -> Self {
        Self { marks: vec![0; count], mark: 0 }
    }

    fn clear(&mut self) {
        if self.mark == u32::MAX {
            self.marks.fill(0);
            self.mark = 0;
        }
        self.mark += 1;
    }

    /// Whether it was not in the set.
    fn insert(&mut self, node: u32) -> bool {
        std::mem::replace(&mut self.marks[node as usize], self.mark) != self.mark
    }

    /// Whether it was in the set.
    fn remove(&mut self, node: u32) -> bool {
        let found = self.contains(node);
        if found {
            self.marks[node as usize] = 0;
        }
        found
    }

    fn contains(&self, node: u32) -> bool {
        self.marks[node as usize] == self.mark
    }

    /// Makes it the set of these nodes, and counts them.
    fn fill(&mut self, nodes: &[u32]) -> usize {
        self.clear();
        nodes.iter().filter(|&&node| self.insert(node)).count()
    }
}

impl Log {
    fn read(
        graph: &Graph,
        stream: &StreamHistory,
        step_0_after: u32,
        first_seen: &[u32],
        marks: &mut Marks,
    ) -> Self {
        let mut log = Self { ever: FixedBitSet::with_capacity(graph.len()), ..Self::default() };
        let mut gained = Vec::new();
        let mut stack: Vec<u32> = Vec::new();
        let mut unclean = 0;
        for look in 0..stream.looks() {
            let terminals = stream.terminals(look);
            let before: &[u32] = match look {
                0 => &[],
                _ => stream.terminals(look - 1),
            };
            let mut missing = marks.fill(before);
            gained.clear();
            stack.extend_from_slice(terminals);
            while let Some(node) = stack.pop() {
                if marks.remove(node) {
                    missing -= 1;
                }
                if !log.ever.put(node as usize) {
                    gained.push(node);
                    stack.extend_from_slice(graph.seen.of(node));
                }
            }
            if look == 0 {
                if step_0_after != NEVER {
                    gained.retain(|&node| first_seen[node as usize] > step_0_after);
                    gained.sort_unstable();
                    log.nodes.extend_from_slice(&gained);
                }
            } else if !gained.is_empty() || missing > 0 {
                gained.sort_unstable();
                let moved_on = graph.any_ordered
                    && (missing == 0 || lies_behind(graph, before, terminals, marks));
                let clean = moved_on
                    && (gained.is_empty()
                        || log.launches(graph, before, terminals, &gained, marks));
                if !clean {
                    log.nodes.extend_from_slice(&gained);
                    unclean += 1;
                }
            }
            log.ends.push(log.nodes.len() as u32);
            log.unclean.push(unclean);
        }
        log
    }

    /// Adds what the stream itself may have launched of what it gained. False where it must have
    /// launched something, and nothing looks like its first launch.
    fn launches(
        &mut self,
        graph: &Graph,
        before: &[u32],
        terminals: &[u32],
        gained: &[u32],
        marks: &mut Marks,
    ) -> bool {
        if before.is_empty() {
            self.nodes.extend_from_slice(gained);
            return true;
        }
        let distinct = marks.fill(before);
        let firsts: SmallVec<[u32; 4]> = gained
            .iter()
            .copied()
            .filter(|&node| depends_on_all(graph, node, distinct, marks))
            .collect();
        if firsts.is_empty() {
            marks.fill(terminals);
            return before.iter().all(|&node| marks.contains(node));
        }
        // In topological order one pass finds all that follows within the step.
        marks.fill(&firsts);
        for &node in gained {
            if marks.contains(node) || graph.any.of(node).iter().any(|e| marks.contains(e.from)) {
                marks.insert(node);
                self.nodes.push(node);
            }
        }
        true
    }

    /// The step after the last look.
    fn tail(&self) -> u32 {
        self.ends.len() as u32
    }

    fn step_end(&self, step: u32) -> u32 {
        let end = self.ends.get(step as usize).copied();
        end.unwrap_or(self.nodes.len() as u32)
    }

    fn step_start(&self, step: u32) -> u32 {
        step.checked_sub(1).map_or(0, |before| self.step_end(before))
    }

    fn step(&self, step: u32) -> &[u32] {
        &self.nodes[self.step_start(step) as usize..self.step_end(step) as usize]
    }

    fn link(&mut self, graph: &Graph, places: &mut [u32]) {
        let count = self.nodes.len();
        let mut previous = vec![0_u32; count];
        let mut next = vec![0_u32; count];
        for (place, &node) in self.nodes.iter().enumerate() {
            places[node as usize] = place as u32;
        }
        for (place, &node) in self.nodes.iter().enumerate() {
            for edge in graph.proofs.of(node) {
                let from = places[edge.from as usize];
                // Edits may order a node before one that was launched earlier; positions decide.
                if from < place as u32 {
                    previous[place] = previous[place].max(from + 1);
                    let next = &mut next[from as usize];
                    *next = (*next).max(u32::MAX - place as u32);
                }
            }
        }
        for &node in &self.nodes {
            places[node as usize] = NONE;
        }
        self.previous = LeastTree::new(previous);
        self.next = LeastTree::new(next);
    }
}

/// Whether a node has all of the marked nodes as direct predecessors.
fn depends_on_all(graph: &Graph, node: u32, distinct: usize, marks: &Marks) -> bool {
    let edges = graph.any.of(node);
    // Edges may be listed twice, so this rules out but does not prove.
    if edges.iter().filter(|edge| marks.contains(edge.from)).count() < distinct {
        return false;
    }
    let mut found: SmallVec<[u32; 8]> =
        edges.iter().map(|edge| edge.from).filter(|&from| marks.contains(from)).collect();
    found.sort_unstable();
    found.dedup();
    found.len() == distinct
}

/// Whether all of `before` lies behind `terminals`, by a whole walk.
fn lies_behind(graph: &Graph, before: &[u32], terminals: &[u32], marks: &mut Marks) -> bool {
    marks.clear();
    let mut stack = terminals.to_vec();
    while let Some(node) = stack.pop() {
        if marks.insert(node) {
            stack.extend_from_slice(graph.seen.of(node));
        }
    }
    before.iter().all(|&node| marks.contains(node))
}

/// A node that lies behind no look, and follows from no stream's last terminals.
fn stray(graph: &Graph, history: &History, logs: &[Log]) -> Option<u32> {
    let mut known = FixedBitSet::with_capacity(graph.len());
    for log in logs {
        known.union_with(&log.ever);
    }
    if known.count_ones(..) == graph.len() {
        return None;
    }
    let mut stack = Vec::new();
    for stream in &history.streams {
        let Some(last) = stream.looks().checked_sub(1) else {
            continue;
        };
        if stream.terminals(last).is_empty() {
            return None;
        }
        stack.extend_from_slice(stream.terminals(last));
    }
    let successors = graph.successors();
    let mut later = FixedBitSet::with_capacity(graph.len());
    while let Some(node) = stack.pop() {
        if !later.put(node as usize) {
            stack.extend_from_slice(successors.of(node));
        }
    }
    known.union_with(&later);
    known.zeroes().next().map(|node| node as u32)
}

/// Adds to the logs what the streams may have launched after the last look at them.
fn add_tails(
    graph: &Graph,
    history: &History,
    needs: &[Need],
    first_seen: &[u32],
    logs: &mut [Log],
) {
    let mut launched = FixedBitSet::with_capacity(graph.len());
    for log in logs.iter() {
        for &node in &log.nodes[log.step_end(0) as usize..] {
            launched.insert(node as usize);
        }
    }
    let successors = graph.successors();
    let mut marks = Marks::new(graph.len());
    let mut found = Vec::new();
    for ((stream, need), log) in history.streams.iter().zip(needs).zip(logs) {
        if !need.tail {
            continue;
        }
        let last = stream.looks().checked_sub(1);
        let looked = last.map_or(0, |look| stream.entry(look));
        let last = last.map_or(&[][..], |look| stream.terminals(look));
        let later =
            |node: u32| !log.ever.contains(node as usize) && first_seen[node as usize] > looked;
        found.clear();
        if let Some(&one) = last.first() {
            let distinct = marks.fill(last);
            let firsts = successors
                .of(one)
                .iter()
                .copied()
                .filter(|&node| later(node) && depends_on_all(graph, node, distinct, &marks));
            let firsts: Vec<u32> = firsts.collect();
            marks.clear();
            let mut stack = Vec::new();
            for node in firsts {
                if marks.insert(node) {
                    found.push(node);
                    stack.push(node);
                }
            }
            while let Some(node) = stack.pop() {
                for &to in successors.of(node) {
                    if marks.insert(to) {
                        stack.push(to);
                        if !launched.contains(to as usize) && later(to) {
                            found.push(to);
                        }
                    }
                }
            }
        } else {
            let all = 0..graph.len() as u32;
            found.extend(all.filter(|&node| !launched.contains(node as usize) && later(node)));
        }
        found.sort_unstable_by_key(|&node| (first_seen[node as usize] == NEVER, node));
        let seen = found.partition_point(|&node| first_seen[node as usize] != NEVER);
        log.seen_tail = (log.nodes.len() + seen) as u32;
        log.nodes.extend_from_slice(&found);
    }
}

fn users(graph: &Graph, history: &History, logs: &[Log], first_seen: &[u32]) -> Vec<Users> {
    let mut all = Vec::with_capacity(history.blocks.len());
    let mut foreign = Vec::new();
    for (index, block) in history.blocks.iter().enumerate() {
        let mut users = Users::default();
        for (place, used) in block.uses.iter().enumerate() {
            let stream = &history.streams[used.stream as usize];
            let log = &logs[used.stream as usize];
            let start = stream.look_before(block.allocated).map(|look| look as u32);
            let until = used.last.unwrap_or(block.freed);
            let end = match until {
                NEVER => log.tail(),
                until => stream.look_before(until).map_or(0, |look| look as u32),
            };
            let count = |step: u32| match step {
                0 => 0,
                step => log.unclean[step.min(log.tail() - 1) as usize],
            };
            let clean = count(end) == start.map_or(0, count);
            let point = allocation_point(history, index as u32);
            if place > 0 && clean && graph.any_ordered && !point.is_empty() {
                foreign.push(Foreign {
                    block: index as u32,
                    stream: used.stream,
                    start,
                    end,
                    turn: start.unwrap_or(0),
                });
                continue;
            }
            let new = |node: &u32| first_seen[*node as usize] > block.allocated;
            if start.is_none() {
                users.others.extend(log.step(0).iter().copied().filter(new));
            }
            users.add_steps(log, used.stream, start.unwrap_or(0), end, new);
        }
        all.push(users);
    }
    if !foreign.is_empty() {
        tell_apart(graph, history, logs, first_seen, foreign, &mut all);
    }
    all
}

impl Users {
    /// Adds the steps after `after` until `end`.
    fn add_steps(
        &mut self,
        log: &Log,
        stream: u32,
        after: u32,
        end: u32,
        new: impl Fn(&u32) -> bool,
    ) {
        let mut start = log.step_end(after);
        let tail = log.tail();
        if after < tail && end == tail {
            let seen = log.step_start(tail)..log.seen_tail.max(log.step_start(tail));
            if !seen.is_empty() {
                let nodes = &log.nodes[seen.start as usize..seen.end as usize];
                self.others.extend(nodes.iter().copied().filter(new));
                self.add_slice(Slice { stream, start, end: seen.start });
                start = seen.end;
            }
        }
        self.add_slice(Slice { stream, start, end: log.step_end(end) });
    }

    fn add_slice(&mut self, slice: Slice) {
        if slice.start < slice.end {
            self.slices.push(slice);
        }
    }
}

/// What a block's own stream waited for when it was allocated.
fn allocation_point(history: &History, block: u32) -> &[u32] {
    let block = &history.blocks[block as usize];
    let own = &history.streams[block.uses[0].stream as usize];
    let look = own.look_before(block.allocated);
    look.map_or(&[], |look| own.terminals(look))
}

/// Keeps of each foreign use what follows from the block's allocation point. Terminals that only
/// move on are behind that point from some look on, and so is every launch after that look; before
/// the step that ends there, nothing is.
fn tell_apart(
    graph: &Graph,
    history: &History,
    logs: &[Log],
    first_seen: &[u32],
    mut foreign: Vec<Foreign>,
    all: &mut [Users],
) {
    let order = Order::new(&graph.any);
    // Most uses turn within a few looks; only the others are asked about far-off nodes.
    let mut open: Vec<u32> = (0..foreign.len() as u32).collect();
    for reach in [8, u32::MAX] {
        let horizon = |used: &Foreign| used.end.min(used.start.unwrap_or(0).saturating_add(reach));
        let mut questions = Vec::new();
        for &index in &open {
            let used = &mut foreign[index as usize];
            used.turn = used.start.unwrap_or(0);
            let stream = &history.streams[used.stream as usize];
            // Terminals that move on have all former ones behind them.
            let last = (horizon(used) as usize + 1).min(stream.looks());
            let last = last.checked_sub(1).map_or(&[][..], |look| stream.terminals(look));
            let greatest = last.iter().copied().max().unwrap_or(0);
            for &point in allocation_point(history, used.block) {
                questions.push((index, point, greatest));
            }
        }
        order.ask(
            &questions,
            |&(_, point, greatest)| (point, greatest),
            |_, &(index, point, _), clocks| {
                let used = &mut foreign[index as usize];
                let stream = &history.streams[used.stream as usize];
                let behind = |step: u32| {
                    step as usize >= stream.looks()
                        || stream
                            .terminals(step as usize)
                            .iter()
                            .any(|&node| node == point || clocks.completed_before(point, node))
                };
                let (mut low, mut high) = (used.turn, horizon(used) + 1);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if behind(middle) {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                used.turn = low;
            },
        );
        open.retain(|&index| {
            let used = &foreign[index as usize];
            used.turn > horizon(used) && horizon(used) < used.end
        });
    }

    let mut doubtful: Vec<(u32, u32)> = Vec::new();
    let mut questions = Vec::new();
    for used in &foreign {
        if used.turn > used.end {
            continue;
        }
        let log = &logs[used.stream as usize];
        let users = &mut all[used.block as usize];
        let block = &history.blocks[used.block as usize];
        let new = |node: &u32| first_seen[*node as usize] > block.allocated;
        users.add_steps(log, used.stream, used.turn, used.end, new);
        if used.start == Some(used.turn) {
            continue;
        }
        let point = allocation_point(history, used.block);
        let unbounded = used.turn == 0 || used.turn == log.tail();
        for &node in log.step(used.turn) {
            if unbounded && !new(&node) {
                continue;
            }
            if point.iter().any(|&from| from >= node) {
                continue;
            }
            for &from in point {
                questions.push((doubtful.len() as u32, from, node));
            }
            doubtful.push((used.block, node));
        }
    }
    let mut uses = vec![true; doubtful.len()];
    order.ask(
        &questions,
        |&(_, from, node)| (from, node),
        |_, &(index, from, node), clocks| {
            uses[index as usize] &= clocks.completed_before(from, node);
        },
    );
    for (&(block, node), uses) in doubtful.iter().zip(uses) {
        if uses {
            all[block as usize].others.push(node);
        }
    }
}

/// Numbers by position; finds those in a range that are small, without a look at the others.
#[derive(Default)]
struct LeastTree {
    /// A binary heap of minima; the numbers themselves from `base` on.
    nodes: Vec<u32>,
    base: usize,
}

impl LeastTree {
    fn new(numbers: Vec<u32>) -> Self {
        let base = numbers.len();
        let mut nodes = vec![0; base];
        nodes.extend(numbers);
        for node in (1..base).rev() {
            nodes[node] = nodes[2 * node].min(nodes[2 * node + 1]);
        }
        Self { nodes, base }
    }

    /// Calls `found` for each position of `start..end` whose number is at most `bound`.
    fn at_most(&self, start: u32, end: u32, bound: u32, mut found: impl FnMut(u32)) {
        let (mut low, mut high) = (start as usize + self.base, end as usize + self.base);
        while low < high {
            if low & 1 == 1 {
                self.descend(low, bound, &mut found);
                low += 1;
            }
            if high & 1 == 1 {
                high -= 1;
                self.descend(high, bound, &mut found);
            }
            low >>= 1;
            high >>= 1;
        }
    }

    fn descend(&self, node: usize, bound: u32, found: &mut impl FnMut(u32)) {
        if self.nodes[node] > bound {
            return;
        }
        if node >= self.base {
            found((node - self.base) as u32);
            return;
        }
        self.descend(2 * node, bound, found);
        self.descend(2 * node + 1, bound, found);
    }
}
