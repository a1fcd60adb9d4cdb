//! Which pairs are in order by what their streams waited for, in one pass over the graph and the looks.
//!
//! All users of the earlier block are completed before any of the later one starts if
//! - what each stream of the earlier one waited for when its uses ended is completed before any node starts that comes
//!   after all that the later one's stream waited for when it was handed out. Such a node starts when that is completed,
//!   unless an edge leads on from there that proves an order of starts only: then only what is completed before that counts;
//! - no step of those streams is broken in the time of the uses: the users of the earlier block come before the
//!   former, and those of the later one after the latter;
//! - the edges in between are as they were seen, and all prove something. What is in between is known by numbers: a
//!   user of a block has a larger one than what its stream waited for when the block was handed out, and none
//!   larger than all that looks saw until its uses ended.
//!
//! The nodes are cut into chains, in each of which every node comes after the one before it. A node's clock holds, for
//! each chain, up to which position of it the chain comes before the node. So one number answers whether a node
//! comes before another. A clock is kept only until all that follows the node has its own, and every look that
//! has the node for a terminal is past: few are kept at a time.

use super::graph::{Edge, Graph};
use super::history::{History, NEVER};
use super::places::Pair;
use super::users::Users;

/// Positions in as many chains.
type Lanes = [i32; 8];

/// What is known of a node.
#[derive(Clone, Copy)]
struct Node {
    /// The chain of a node that has a clock or had one, and its position there, from one; [`NEVER`] where it fits in none.
    chain: u32,
    position: i32,
    /// Where its clock is kept.
    row: u32,
    /// How often its clock will be needed yet: by edges, and by looks.
    needs: u32,
}

/// The clocks of the nodes up to one.
struct Clocks<'a> {
    graph: &'a Graph<'a>,
    /// Rows of lanes that hold a position for each chain.
    width: usize,
    /// Rows of lanes of a clock: once or twice `width`.
    size: usize,
    nodes: Vec<Node>,
    /// How many of them have a clock or had one.
    reached: u32,
    /// The position of the last node of each chain.
    ends: Vec<Lanes>,
    /// The clocks that are kept, and where others may be: positions by paths of any edges, the node itself
    /// included; where some edges prove an order of starts only, then those by paths with a full one.
    kept: Vec<Lanes>,
    free: Vec<u32>,
}

impl<'a> Clocks<'a> {
    fn new(graph: &'a Graph<'a>, history: &History) -> Self {
        let mut nodes = vec![Node { chain: NEVER, position: 0, row: 0, needs: 0 }; graph.len()];
        let mut need = |node: u32| nodes[node as usize].needs += 1;
        for node in 0..graph.len() as u32 {
            graph.proofs().of(node).iter().for_each(|edge| need(edge.from()));
        }
        for (stream, look) in history.looks() {
            let terminals = history.streams[stream as usize].terminals(look);
            terminals.iter().for_each(|&node| need(node));
        }
        // A stream's work is one chain.
        let width = history.streams.len().div_ceil(8);
        Self {
            graph,
            width,
            size: if graph.has_starts() { 2 * width } else { width },
            nodes,
            reached: 0,
            ends: vec![[0; 8]; width],
            kept: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Gives all nodes up to one their clocks.
    #[inline]
    fn reach(&mut self, last: u32) {
        while self.reached <= last {
            self.add(self.reached);
            self.reached += 1;
        }
    }

    fn add(&mut self, node: u32) {
        let edges = self.graph.proofs().of(node);
        // Mostly nothing else needs the clock of a node before it: that is taken over.
        let taken = edges.iter().position(|edge| self.nodes[edge.from() as usize].needs == 1);
        let row = match (edges, taken) {
            ([edge], Some(0)) if self.size == self.width => self.take_over(edge.from()),
            _ => self.join(edges, taken),
        };
        let clock = self.kept[row..row + self.width].as_flattened_mut();
        let ends = self.ends.as_flattened_mut();
        // It goes on with a chain of which one before it is the last, or with one whose last comes before it
        // otherwise, as that of an empty one does.
        let mut before = edges.iter().map(|edge| &self.nodes[edge.from() as usize]);
        let chain = before.find(|it| ends.get(it.chain as usize) == Some(&it.position));
        let chain = chain.map(|it| it.chain as usize);
        let chain = chain.or_else(|| clock.iter().zip(&*ends).position(|(it, end)| it >= end));
        let known = &mut self.nodes[node as usize];
        known.row = row as u32;
        if let Some(chain) = chain {
            ends[chain] += 1;
            clock[chain] = ends[chain];
            (known.chain, known.position) = (chain as u32, ends[chain]);
        }
        if known.needs == 0 {
            self.free.push(row as u32);
        }
    }

    /// Where a node's clock is kept, which nothing else needs.
    #[inline]
    fn take_over(&mut self, node: u32) -> usize {
        let node = &mut self.nodes[node as usize];
        node.needs = 0;
        node.row as usize
    }

    /// Makes a clock of what comes before a node by these edges, and answers where it is kept. If there is an edge `taken`,
    /// by its place among them, the clock takes over that of the edge's earlier node, which nothing else needs.
    fn join(&mut self, edges: &[Edge], taken: Option<usize>) -> usize {
        let (width, size) = (self.width, self.size);
        let first = taken.unwrap_or(0);
        let row = match taken {
            Some(taken) => self.take_over(edges[taken].from()),
            None => self.free.pop().map_or(self.kept.len(), |row| row as usize),
        };
        if row == self.kept.len() {
            self.kept.resize(row + size, [0; 8]);
        }
        match edges.get(first) {
            Some(edge) if taken.is_none() => {
                let from = self.row(edge.from());
                self.kept.copy_within(from..from + size, row);
            }
            Some(_) => {}
            None => self.kept[row..row + size].fill([0; 8]),
        }
        if size > width {
            // Behind a full edge all that comes before the earlier node is completed, and so is that node. First, since
            // a clock that is taken over still is the earlier node's here.
            for edge in edges {
                let from = self.row(edge.from());
                self.raise(row + width, if edge.full() { from } else { from + width });
            }
        }
        for (_, edge) in edges.iter().enumerate().filter(|&(index, _)| index != first) {
            self.raise(row, self.row(edge.from()));
        }
        for (_, edge) in edges.iter().enumerate().filter(|&(index, _)| taken != Some(index)) {
            self.release(edge.from());
        }
        row
    }

    #[inline]
    fn row(&self, node: u32) -> usize {
        self.nodes[node as usize].row as usize
    }

    /// Makes the positions kept at `row` at least those kept at `by`, if that is another place.
    fn raise(&mut self, row: usize, by: usize) {
        let places = [row, by].map(|it| it..it + self.width);
        if let Ok([clock, by]) = self.kept.get_disjoint_mut(places) {
            raise(clock, by);
        }
    }

    /// Needs a node's clock once less.
    #[inline]
    fn release(&mut self, node: u32) {
        let Node { needs, row, .. } = &mut self.nodes[node as usize];
        *needs -= 1;
        if *needs == 0 {
            self.free.push(*row);
        }
    }

    /// Up to which positions the chains are completed before whatever comes after all of `terminals`: of one that leads on
    /// by full edges alone, what it comes after and itself. Uses `room` where there are several.
    fn behind<'c>(&'c self, terminals: &[u32], room: &'c mut Vec<Lanes>) -> &'c [Lanes] {
        let of = |node: u32| {
            let from = self.row(node) + if self.graph.leads_early(node) { self.width } else { 0 };
            &self.kept[from..from + self.width]
        };
        if let [node] = *terminals {
            return of(node);
        }
        room.clear();
        room.resize(self.width, [0; 8]);
        terminals.iter().for_each(|&node| raise(room, of(node)));
        room
    }

    /// Whether a node is among what such a clock says.
    #[inline]
    fn is_done(&self, node: u32, clock: &[Lanes]) -> bool {
        let Node { chain, position, .. } = self.nodes[node as usize];
        clock.as_flattened().get(chain as usize).is_some_and(|&until| until >= position)
    }
}

/// Each at least what the other is.
#[inline]
fn raise(clock: &mut [Lanes], by: &[Lanes]) {
    for (mine, by) in clock.iter_mut().zip(by) {
        // By value, so that lanes are taken together.
        let (one, other) = (*mine, *by);
        *mine = std::array::from_fn(|lane| one[lane].max(other[lane]));
    }
}

/// The highest node that looks had seen by each, which is told by its entry.
fn highest_seen(history: &History) -> Vec<(u32, u32)> {
    let mut highest = 0;
    let looks = history.looks().map(|(stream, look)| {
        let of = &history.streams[stream as usize];
        highest = of.terminals(look).iter().copied().fold(highest, u32::max);
        (of.entry(look), highest)
    });
    looks.collect()
}

/// Of more streams the users of each pair are asked by name: clocks would take the square of them in memory.
const MOST_STREAMS: usize = 4096;

/// The pairs that looks alone do not settle, in order. `pairs` go by their later blocks. Takes time for each pair, and
/// where streams have to be compared, for each node, edge, and terminal of a look, times the number of streams.
pub(super) fn doubtful(
    graph: &Graph<'_>,
    history: &History,
    users: &Users<'_>,
    pairs: &[Pair],
) -> Vec<usize> {
    if !graph.any_ordered {
        return (0..pairs.len()).collect();
    }
    let whole = graph.is_whole();
    let highest = if whole { Vec::new() } else { highest_seen(history) };
    // Where the users of both blocks lie, and all that is between them.
    let between = |pair: &Pair| {
        let later = &history.blocks[pair.later as usize];
        let waited = history.allocation_point(pair.earlier).iter().max();
        let ends = history.uses(later).map(|used| later.until(used)).max().unwrap_or(NEVER);
        let seen = highest[..highest.partition_point(|look| look.0 < ends)].last();
        let last = seen.filter(|_| ends != NEVER).map_or(NEVER, |&(_, node)| node);
        waited.map_or(0, |&node| node + 1)..=last
    };
    let is_whole = |pair: &Pair| whole || graph.is_whole_in(&between(pair));
    // Whatever a stream waited for completes before what it launches behind a later look, if no step in between is
    // broken and full edges alone lead on from what it waited for there: that takes no clocks.
    let leads_early =
        |block: u32| history.allocation_point(block).iter().any(|&node| graph.leads_early(node));
    let goes_on = |pair: &Pair| {
        let [earlier, later] = pair.blocks(history);
        earlier.own.stream == later.own.stream
            && !(graph.has_starts() && leads_early(pair.later))
            && is_whole(pair)
            && users.begins_whole(later)
            && users.ends_whole(earlier, |stream, look| users.goes_on(stream, look, later))
    };
    let open = pairs.iter().enumerate().filter(|(_, pair)| !goes_on(pair));
    let open: Vec<usize> = open.map(|(index, _)| index).collect();
    // The last terminals of each stream keep a clock of all streams.
    if open.is_empty() || history.streams.len() > MOST_STREAMS {
        return open;
    }
    let mut clocks = Clocks::new(graph, history);
    let mut now: Vec<&[u32]> = vec![&[]; history.streams.len()];
    let (mut doubtful, mut room) = (Vec::new(), Vec::new());
    let mut rest = &open[..];
    // The pairs whose later blocks were handed out before an entry.
    let mut settle = |clocks: &Clocks<'_>, now: &[&[u32]], entry: u32| {
        while let Some(&first) = rest.first() {
            let number = pairs[first].later;
            let later = &history.blocks[number as usize];
            if later.allocated >= entry {
                break;
            }
            let point = clocks.behind(now[later.own.stream as usize], &mut room);
            let is_done = |stream: u32, look: u32| {
                let terminals = history.streams[stream as usize].terminals(look as usize);
                terminals.iter().all(|&node| clocks.is_done(node, point))
            };
            let begins = users.begins_whole(later);
            while let Some(&pair) = rest.first().filter(|&&pair| pairs[pair].later == number) {
                let earlier = &history.blocks[pairs[pair].earlier as usize];
                let is_sure = begins && is_whole(&pairs[pair]);
                if !is_sure || !users.ends_whole(earlier, is_done) {
                    doubtful.push(pair);
                }
                rest = &rest[1..];
            }
        }
    };
    for (stream, look) in history.looks() {
        let of = &history.streams[stream as usize];
        settle(&clocks, &now, of.entry(look));
        let terminals = of.terminals(look);
        let before = std::mem::replace(&mut now[stream as usize], terminals);
        before.iter().for_each(|&terminal| clocks.release(terminal));
        terminals.iter().for_each(|&terminal| clocks.reach(terminal));
    }
    settle(&clocks, &now, NEVER);
    doubtful
}
