//! Which pairs are in order by what their streams waited for, in one pass over the graph and the looks.
//!
//! All users of the earlier block are completed before any of the later one starts if
//! - what each stream of the earlier one waited for when its uses ended is completed before what the later
//!   one's stream would launch next when it was handed out;
//! - no step of those streams is broken in the time of the uses: the users of the earlier block come before the
//!   former, and those of the later one after the latter;
//! - edges are as they were seen, and all prove something.
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

/// The clocks of the nodes up to one.
struct Clocks<'a> {
    graph: &'a Graph<'a>,
    /// Rows of lanes that hold a position for each chain.
    width: usize,
    /// Rows of lanes of a clock: once or twice `width`.
    size: usize,
    /// The chain of each node that has a clock or had one, and its position there, from one. A node that fits in no
    /// chain has none.
    places: Vec<(u32, i32)>,
    /// The position of the last node of each chain.
    ends: Vec<Lanes>,
    /// How often each node's clock will be needed yet: by edges, and by looks.
    needs: Vec<u32>,
    /// Where each node's clock is kept.
    rows: Vec<u32>,
    /// The clocks that are kept, and where others may be: positions by paths of any edges, the node itself
    /// included; where some edges prove an order of starts only, then those by paths with a full one.
    kept: Vec<Lanes>,
    free: Vec<u32>,
}

impl<'a> Clocks<'a> {
    fn new(graph: &'a Graph<'a>, history: &History) -> Self {
        let mut needs = vec![0; graph.len()];
        for node in 0..graph.len() as u32 {
            graph.proofs().of(node).iter().for_each(|edge| needs[edge.from() as usize] += 1);
        }
        for (stream, look) in history.looks() {
            let terminals = history.streams[stream as usize].terminals(look);
            terminals.iter().for_each(|&node| needs[node as usize] += 1);
        }
        // A stream's work is one chain.
        let width = history.streams.len().div_ceil(8);
        Self {
            graph,
            width,
            size: if graph.has_starts() { 2 * width } else { width },
            places: Vec::with_capacity(graph.len()),
            ends: vec![[0; 8]; width],
            needs,
            rows: vec![0; graph.len()],
            kept: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Gives all nodes up to one their clocks.
    fn reach(&mut self, last: u32) {
        while self.places.len() <= last as usize {
            self.add(self.places.len() as u32);
        }
    }

    fn add(&mut self, node: u32) {
        let edges = self.graph.proofs().of(node);
        // Mostly nothing else needs the clock of a node before it: that is taken over.
        let taken = edges.iter().position(|edge| self.needs[edge.from() as usize] == 1);
        let row = self.join(edges, taken);
        let clock = self.kept[row..row + self.width].as_flattened_mut();
        let ends = self.ends.as_flattened_mut();
        // It goes on with a chain of which one before it is the last, or with one whose last comes before it
        // otherwise, as that of an empty one does.
        let mut before = edges.iter().map(|edge| self.places[edge.from() as usize]);
        let chain = before.find(|&(chain, position)| ends.get(chain as usize) == Some(&position));
        let chain = chain.map(|it| it.0 as usize);
        let chain = chain.or_else(|| clock.iter().zip(&*ends).position(|(it, end)| it >= end));
        let place = chain.map_or((NEVER, 0), |chain| {
            ends[chain] += 1;
            clock[chain] = ends[chain];
            (chain as u32, ends[chain])
        });
        self.places.push(place);
        self.rows[node as usize] = row as u32;
        if self.needs[node as usize] == 0 {
            self.free.push(row as u32);
        }
    }

    /// Makes a clock of what comes before a node by these edges, and answers where it is kept. If there is an edge `taken`,
    /// by its place among them, the clock takes over that of the edge's earlier node, which nothing else needs.
    fn join(&mut self, edges: &[Edge], taken: Option<usize>) -> usize {
        let (width, size) = (self.width, self.size);
        let first = taken.unwrap_or(0);
        let row = match taken {
            Some(taken) => self.rows[edges[taken].from() as usize] as usize,
            None => self.free.pop().map_or(self.kept.len(), |row| row as usize),
        };
        if row == self.kept.len() {
            self.kept.resize(row + size, [0; 8]);
        }
        match edges.get(first) {
            Some(edge) if taken.is_none() => {
                let from = self.rows[edge.from() as usize] as usize;
                self.kept.copy_within(from..from + size, row);
            }
            Some(_) => {}
            None => self.kept[row..row + size].fill([0; 8]),
        }
        if size > width {
            // Behind a full edge all that comes before the earlier node is completed, and so is that node. First, since
            // a clock that is taken over still is the earlier node's here.
            for edge in edges {
                let from = self.rows[edge.from() as usize] as usize;
                self.raise(row + width, if edge.full() { from } else { from + width });
            }
        }
        for (_, edge) in edges.iter().enumerate().filter(|&(index, _)| index != first) {
            self.raise(row, self.rows[edge.from() as usize] as usize);
        }
        for (index, edge) in edges.iter().enumerate() {
            match taken == Some(index) {
                true => self.needs[edge.from() as usize] = 0,
                false => self.release(edge.from()),
            }
        }
        row
    }

    /// Makes the positions kept at `row` at least those kept at `by`, if that is another place.
    fn raise(&mut self, row: usize, by: usize) {
        let places = [row, by].map(|it| it..it + self.width);
        if let Ok([clock, by]) = self.kept.get_disjoint_mut(places) {
            raise(clock, by);
        }
    }

    /// Needs a node's clock once less.
    fn release(&mut self, node: u32) {
        let needs = &mut self.needs[node as usize];
        *needs -= 1;
        if *needs == 0 {
            self.free.push(self.rows[node as usize]);
        }
    }

    /// Up to which positions the chains are completed before whatever comes next after `terminals`, even behind an
    /// edge that proves an order of starts only, if there are such edges.
    fn behind(&self, terminals: &[u32], clock: &mut Vec<Lanes>) {
        clock.clear();
        clock.resize(self.width, [0; 8]);
        for &node in terminals {
            let from = self.rows[node as usize] as usize + self.size - self.width;
            raise(clock, &self.kept[from..from + self.width]);
        }
    }

    /// Whether a node is among what such a clock says.
    fn is_done(&self, node: u32, clock: &[Lanes]) -> bool {
        let Some(&(chain, position)) = self.places.get(node as usize) else { return false };
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

/// The pairs that looks alone do not settle, in order. `pairs` go by their later blocks. Takes time for each node, edge,
/// and terminal of a look, times the number of streams, and for each pair.
pub(super) fn doubtful(
    graph: &Graph<'_>,
    history: &History,
    users: &Users<'_>,
    pairs: &[Pair],
) -> Vec<usize> {
    if !graph.is_whole() || pairs.is_empty() {
        return (0..pairs.len()).collect();
    }
    let mut clocks = Clocks::new(graph, history);
    let mut now: Vec<&[u32]> = vec![&[]; history.streams.len()];
    let mut doubtful = Vec::new();
    let mut next = 0;
    // What the last pair's later block came after, and that block.
    let (mut point, mut of) = (Vec::new(), NEVER);
    // The pairs whose later blocks were handed out before an entry.
    let mut settle = |clocks: &Clocks<'_>, now: &[&[u32]], entry: u32| {
        let mine = pairs[next..].iter();
        for pair in mine.take_while(|it| history.blocks[it.later as usize].allocated < entry) {
            let later = &history.blocks[pair.later as usize];
            if std::mem::replace(&mut of, pair.later) != pair.later {
                clocks.behind(now[later.own.stream as usize], &mut point);
            }
            let is_done = |node: u32| clocks.is_done(node, &point);
            if !users.looks_order(&history.blocks[pair.earlier as usize], later, is_done) {
                doubtful.push(next);
            }
            next += 1;
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
