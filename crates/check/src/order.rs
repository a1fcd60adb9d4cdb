//! Completed-before, by chains and clocks.
//!
//! The nodes are cut into chains, each a path of edges. A node's clock holds, for each chain, how far into it the nodes
//! lie that come before the node; since a chain is a path, all before that position come before it too. Two clocks:
//! `reach` by paths of any edges, the node included, and `done` by paths with at least one full edge. The clocks of a
//! batch of chains are swept over the graph at a time, so memory stays bounded however many chains there are.

use super::graph::Edge;
use super::lists::Lists;

/// The most chains of one batch.
const WIDEST: usize = 32;

const UNSET: u32 = u32::MAX;

/// The order that a list of edges gives. Every edge goes from a smaller to a larger number.
pub(crate) struct Order<'a> {
    edges: &'a Lists<Edge>,
    nodes: Vec<Place>,
    chains: usize,
    /// Without start edges the two clocks differ in the node itself only.
    starts: bool,
}

/// Where a node lies.
#[derive(Clone, Copy)]
struct Place {
    chain: u32,
    /// Place in the chain, from one.
    position: u32,
    /// Whether no node follows in the chain so far.
    end: bool,
}

/// The clocks of one batch of chains.
pub(crate) struct Clocks<'a> {
    order: &'a Order<'a>,
    /// The column of each chain of the batch.
    column: &'a [u32],
    width: usize,
    low: u32,
    reach: Vec<i32>,
    done: Vec<i32>,
}

impl<'a> Order<'a> {
    /// Cuts the nodes into chains.
    pub fn new(edges: &'a Lists<Edge>) -> Self {
        let count = edges.len();
        let mut uses = vec![0_u32; count];
        let mut starts = false;
        for node in 0..count as u32 {
            for edge in edges.of(node) {
                uses[edge.from() as usize] += 1;
                starts |= !edge.full();
            }
        }
        let mut nodes: Vec<Place> = Vec::with_capacity(count);
        let mut chains = 0;
        for node in 0..count as u32 {
            // Of the chains that may go on here, the one that can go on in the fewest other places.
            let free = edges.of(node).iter().filter(|edge| nodes[edge.from() as usize].end);
            let best = free.min_by_key(|edge| (uses[edge.from() as usize], !edge.from()));
            let place = match best {
                Some(edge) => {
                    let before = &mut nodes[edge.from() as usize];
                    before.end = false;
                    Place { chain: before.chain, position: before.position + 1, end: true }
                }
                None => {
                    chains += 1;
                    Place { chain: chains as u32 - 1, position: 1, end: true }
                }
            };
            nodes.push(place);
        }
        Self { edges, nodes, chains, starts }
    }

    /// Whether `x` comes before `y`, where that needs no clocks.
    #[inline]
    pub fn at_once(&self, x: u32, y: u32) -> Option<bool> {
        if x >= y {
            return Some(false);
        }
        // A chain goes on along edges.
        (self.nodes[x as usize].chain == self.nodes[y as usize].chain).then_some(true)
    }

    /// Calls `answer` once for every question with clocks that can answer it. A question has the
    /// node on the earlier side of what it asks, and the greatest node on the later side.
    ///
    /// Questions are taken by their earlier nodes, as many at a time as reach over one another and ask
    /// about few enough chains; most reach not far, so most sweeps are short.
    pub fn ask<Q>(
        &self,
        questions: &[Q],
        ends: impl Fn(&Q) -> (u32, u32),
        mut answer: impl FnMut(usize, &Q, &Clocks<'_>),
    ) {
        let mut sorted: Vec<(u32, u32)> =
            questions.iter().zip(0..).map(|(question, index)| (ends(question).0, index)).collect();
        sorted.sort_unstable();
        let mut column = vec![UNSET; if sorted.is_empty() { 0 } else { self.chains }];
        let mut chains: Vec<u32> = Vec::with_capacity(WIDEST);
        let mut rest = &sorted[..];
        while let Some(&(low, _)) = rest.first() {
            for chain in chains.drain(..) {
                column[chain as usize] = UNSET;
            }
            let mut high = low;
            let mut taken = 0;
            for &(x, index) in rest {
                if x > high || !self.enter(x, &mut column, &mut chains) {
                    break;
                }
                high = high.max(ends(&questions[index as usize]).1);
                taken += 1;
            }
            let (mine, others) = rest.split_at(taken);
            rest = others;
            let clocks = self.clocks(&column, chains.len(), low, high);
            for &(_, index) in mine {
                answer(index as usize, &questions[index as usize], &clocks);
            }
        }
    }

    /// Gives a node's chain a column, unless the batch is full.
    fn enter(&self, node: u32, column: &mut [u32], chains: &mut Vec<u32>) -> bool {
        let chain = self.nodes[node as usize].chain;
        if column[chain as usize] == UNSET {
            if chains.len() == WIDEST {
                return false;
            }
            column[chain as usize] = chains.len() as u32;
            chains.push(chain);
        }
        true
    }

    fn clocks<'b>(&'b self, column: &'b [u32], width: usize, low: u32, high: u32) -> Clocks<'b> {
        match width {
            0..=4 => self.sweep::<4>(column, low, high),
            5..=16 => self.sweep::<16>(column, low, high),
            _ => self.sweep::<WIDEST>(column, low, high),
        }
    }

    /// The clocks of nodes `low..=high`. Nothing before `low` is asked about, so what lies there
    /// may be missing from them.
    fn sweep<'b, const WIDTH: usize>(
        &'b self,
        column: &'b [u32],
        low: u32,
        high: u32,
    ) -> Clocks<'b> {
        let count = (high - low) as usize + 1;
        let mut reach: Vec<[i32; WIDTH]> = Vec::with_capacity(count);
        let mut done: Vec<[i32; WIDTH]> = Vec::with_capacity(if self.starts { count } else { 0 });
        for node in low..=high {
            let mut own = [0; WIDTH];
            let mut own_done = [0; WIDTH];
            for edge in self.edges.of(node).iter().filter(|edge| edge.from() >= low) {
                let from = (edge.from() - low) as usize;
                raise(&mut own, &reach[from]);
                if self.starts {
                    raise(&mut own_done, if edge.full() { &reach[from] } else { &done[from] });
                }
            }
            let place = &self.nodes[node as usize];
            let mine = column[place.chain as usize];
            if mine != UNSET {
                own[mine as usize] = place.position as i32;
            }
            reach.push(own);
            if self.starts {
                done.push(own_done);
            }
        }
        let (reach, done) = (reach.into_flattened(), done.into_flattened());
        Clocks { order: self, column, width: WIDTH, low, reach, done }
    }
}

#[inline]
fn raise<const WIDTH: usize>(clock: &mut [i32; WIDTH], by: &[i32; WIDTH]) {
    for (mine, &other) in clock.iter_mut().zip(by) {
        *mine = (*mine).max(other);
    }
}

impl Clocks<'_> {
    /// Whether a path of any edges leads from `x` to `y`.
    #[inline]
    pub fn comes_before(&self, x: u32, y: u32) -> bool {
        x < y && self.holds(&self.reach, x, y)
    }

    /// Whether `x` has completed before `y` may start.
    #[inline]
    pub fn completed_before(&self, x: u32, y: u32) -> bool {
        let clocks = if self.order.starts { &self.done } else { &self.reach };
        x < y && self.holds(clocks, x, y)
    }

    #[inline]
    fn holds(&self, clocks: &[i32], x: u32, y: u32) -> bool {
        let place = &self.order.nodes[x as usize];
        let column = self.column[place.chain as usize];
        let row = (y - self.low) as usize * self.width;
        clocks[row + column as usize] >= place.position as i32
    }
}
