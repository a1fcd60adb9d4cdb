//! Completed-before, by chains and clocks.
//!
//! The nodes are cut into chains, each a path of edges. A node's clock holds, for each chain, how
//! far into it the nodes lie that come before the node; since a chain is a path, all before that
//! position come before it too. Two clocks: `reach` by paths of any edges, the node included, and
//! `done` by paths with at least one full edge. The clocks of a batch of chains are swept over the
//! graph at a time, so memory stays bounded however many chains there are.

use super::graph::{Edge, Lists};

/// Words that a batch's clocks of one kind may take.
const BATCH_WORDS: usize = 1 << 25;

const UNSET: u32 = u32::MAX;

/// The order that a list of edges gives. Every edge goes from a smaller to a larger number.
pub(crate) struct Order<'a> {
    edges: &'a Lists<Edge>,
    chain: Vec<u32>,
    /// Place in the chain, from one.
    position: Vec<u32>,
    /// Full edges in the chain up to the node.
    fulls: Vec<u32>,
    chains: usize,
    /// Without start edges the two clocks differ in the node itself only.
    starts: bool,
}

/// The clocks of one batch of chains.
pub(crate) struct Clocks<'a> {
    order: &'a Order<'a>,
    /// The column of each chain of the batch.
    column: &'a [u32],
    width: usize,
    low: u32,
    reach: Vec<u32>,
    done: Vec<u32>,
}

impl<'a> Order<'a> {
    pub fn new(edges: &'a Lists<Edge>) -> Self {
        let count = edges.len();
        let mut uses = vec![0_u32; count];
        let mut starts = false;
        for node in 0..count as u32 {
            for edge in edges.of(node) {
                uses[edge.from as usize] += 1;
                starts |= !edge.full;
            }
        }
        let mut order = Self {
            edges,
            chain: vec![0; count],
            position: vec![1; count],
            fulls: vec![0; count],
            chains: 0,
            starts,
        };
        let mut ends = vec![true; count];
        for node in 0..count {
            // Of the chains that may go on here, the one that can go on in the fewest other places.
            let free = edges.of(node as u32).iter();
            let free = free.filter(|edge| ends[edge.from as usize]);
            let best = free.min_by_key(|edge| (uses[edge.from as usize], u32::MAX - edge.from));
            match best {
                Some(edge) => {
                    let from = edge.from as usize;
                    ends[from] = false;
                    order.chain[node] = order.chain[from];
                    order.position[node] = order.position[from] + 1;
                    order.fulls[node] = order.fulls[from] + u32::from(edge.full);
                }
                None => {
                    order.chain[node] = order.chains as u32;
                    order.chains += 1;
                }
            }
        }
        order
    }

    /// Whether `x` has completed before `y` may start, where that needs no clocks.
    pub fn at_once(&self, x: u32, y: u32) -> Option<bool> {
        if x >= y {
            return Some(false);
        }
        let (x, y) = (x as usize, y as usize);
        if self.chain[x] == self.chain[y] && self.fulls[y] > self.fulls[x] {
            return Some(true);
        }
        None
    }

    /// Calls `answer` once for every question with clocks that can answer it. A question has the
    /// node on the earlier side of what it asks, and the greatest node on the later side.
    ///
    /// Questions are taken by their earlier nodes, as many at a time as ask about few enough
    /// chains; most reach not far, so most sweeps are short.
    pub fn ask<Q>(
        &self,
        questions: &[Q],
        ends: impl Fn(&Q) -> (u32, u32),
        mut answer: impl FnMut(usize, &Q, &Clocks<'_>),
    ) {
        let mut sorted: Vec<(u32, u32)> = questions
            .iter()
            .enumerate()
            .map(|(index, question)| (ends(question).0, index as u32))
            .collect();
        sorted.sort_unstable();
        let width = (BATCH_WORDS / self.edges.len().max(1)).clamp(16, 32);
        let mut column = vec![UNSET; self.chains];
        let mut chains = Vec::with_capacity(width);
        let mut rest = &sorted[..];
        while let Some(&(low, _)) = rest.first() {
            let mut high = low;
            let mut taken = 0;
            for &(x, index) in rest {
                let chain = self.chain[x as usize];
                if column[chain as usize] == UNSET {
                    if chains.len() == width {
                        break;
                    }
                    column[chain as usize] = chains.len() as u32;
                    chains.push(chain);
                }
                high = high.max(ends(&questions[index as usize]).1);
                taken += 1;
            }
            let (mine, others) = rest.split_at(taken);
            rest = others;
            let clocks = self.sweep(&column, chains.len(), low, high);
            for &(_, index) in mine {
                answer(index as usize, &questions[index as usize], &clocks);
            }
            for chain in chains.drain(..) {
                column[chain as usize] = UNSET;
            }
        }
    }

    /// The clocks of nodes `low..=high`. Nothing before `low` is asked about, so what lies there
    /// may be missing from them.
    fn sweep<'b>(&'b self, column: &'b [u32], width: usize, low: u32, high: u32) -> Clocks<'b> {
        let rows = (high - low) as usize + 1;
        let mut reach = vec![0_u32; rows * width];
        let mut done = vec![0_u32; if self.starts { rows * width } else { 0 }];
        for node in low..=high {
            let row = (node - low) as usize * width;
            let (before, own) = reach.split_at_mut(row);
            let own = &mut own[..width];
            for edge in self.edges.of(node).iter().filter(|edge| edge.from >= low) {
                let from = (edge.from - low) as usize * width;
                raise(own, &before[from..from + width]);
                if self.starts {
                    let (before_done, own_done) = done.split_at_mut(row);
                    let source = if edge.full { &*before } else { &*before_done };
                    raise(&mut own_done[..width], &source[from..from + width]);
                }
            }
            let mine = column[self.chain[node as usize] as usize];
            if mine != UNSET {
                own[mine as usize] = self.position[node as usize];
            }
        }
        Clocks { order: self, column, width, low, reach, done }
    }
}

fn raise(clock: &mut [u32], by: &[u32]) {
    for (mine, &other) in clock.iter_mut().zip(by) {
        *mine = (*mine).max(other);
    }
}

impl Clocks<'_> {
    /// Whether `x` has completed before `y` may start.
    pub fn completed_before(&self, x: u32, y: u32) -> bool {
        if x >= y {
            return false;
        }
        let clocks = if self.order.starts { &self.done } else { &self.reach };
        let column = self.column[self.order.chain[x as usize] as usize];
        let row = (y - self.low) as usize * self.width;
        clocks[row + column as usize] >= self.order.position[x as usize]
    }
}
