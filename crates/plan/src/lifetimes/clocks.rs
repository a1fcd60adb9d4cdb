//! What is completed when a node is: a number for each chain.

use super::nodes::NodeRow;

/// The most chains that are told apart.
const MOST_CHAINS: usize = 4096;

/// As many chains are told apart however many nodes there are.
const SURE_CHAINS: usize = 64;

/// The most numbers that all clocks have together, beyond the sure chains: 1 GiB.
const MOST_NUMBERS: usize = 1 << 28;

/// No chain.
const NONE: u32 = u32::MAX;

/// What an edge proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The later node starts after the earlier one has completed.
    Completion,
    /// The later node starts after the earlier one has started, and completes after it has completed.
    Start,
    Nothing,
}

/// A node's place: it is the chain's `position`th, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) chain: u32,
    pub(super) position: u32,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    place: Place,
    /// Where its numbers begin, and for how many chains. It knows nothing of later ones.
    start: usize,
    width: u32,
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    length: u32,
    /// The stream that it is to go on with, or [`NONE`].
    stream: u32,
}

/// The clocks of all nodes.
///
/// `done` of a node tells what is completed when it is; `before` (under `lag`; else it is not kept) what is completed
/// before it starts; `behind` which nodes any edges lead to it from, where those are more than `done`.
#[derive(Debug)]
pub(super) struct Clocks {
    lag: bool,
    limit: usize,
    cut: bool,
    chains: Vec<Chain>,
    /// By stream: the chain that it goes on with, or [`NONE`].
    own: Vec<u32>,
    rows: Vec<Row>,
    done: Vec<u32>,
    before: Vec<u32>,
    behind: Option<Vec<u32>>,
}

impl Clocks {
    /// For a capture with so many nodes and blocks.
    pub(super) fn new(lag: bool, nodes: usize, blocks: usize) -> Self {
        let rows = (nodes + 2 * blocks).max(1);
        Self {
            lag,
            limit: (MOST_NUMBERS / rows).clamp(SURE_CHAINS, MOST_CHAINS),
            cut: false,
            chains: Vec::new(),
            own: Vec::new(),
            rows: Vec::with_capacity(nodes),
            done: Vec::new(),
            before: Vec::new(),
            behind: None,
        }
    }

    /// How many chains there are.
    pub(super) fn chains(&self) -> usize {
        self.chains.len()
    }

    /// Whether a node was left out, since there are too many chains.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// A node's place; one that was left out has none.
    pub(super) fn place(&self, node: NodeRow) -> Option<Place> {
        Some(self.rows[node.index()].place).filter(|place| place.chain != NONE)
    }

    /// Whether every edge so far proves something: what is behind a node then is done with it.
    pub(super) fn are_proven(&self) -> bool {
        self.behind.is_none()
    }

    /// What is completed when a node is.
    pub(super) fn done(&self, node: NodeRow) -> &[u32] {
        self.numbers(&self.done, node)
    }

    /// What is completed before a node starts. Only under `lag`.
    pub(super) fn before(&self, node: NodeRow) -> &[u32] {
        self.numbers(&self.before, node)
    }

    /// The nodes from which any edges lead to this one, and itself.
    pub(super) fn behind(&self, node: NodeRow) -> &[u32] {
        self.numbers(self.behind.as_ref().unwrap_or(&self.done), node)
    }

    fn numbers<'a>(&self, all: &'a [u32], node: NodeRow) -> &'a [u32] {
        let row = &self.rows[node.index()];
        &all[row.start..][..row.width as usize]
    }

    /// Adds a node, first seen on a stream, behind these.
    pub(super) fn add(&mut self, dependencies: &[(NodeRow, Proof)], stream: usize) {
        if self.behind.is_none() && dependencies.iter().any(|edge| edge.1 == Proof::Nothing) {
            self.behind = Some(self.done.clone());
        }
        let (start, width) = (self.done.len(), self.chains.len());
        // One more, for a chain that may begin here.
        self.done.resize(start + width + 1, 0);
        if self.lag {
            self.before.resize(start + width + 1, 0);
        }
        if let Some(behind) = &mut self.behind {
            behind.resize(start + width + 1, 0);
        }
        for &(earlier, proof) in dependencies {
            let Row { start: from, width, .. } = self.rows[earlier.index()];
            let width = width as usize;
            if proof != Proof::Nothing {
                unite_within(&mut self.done, from, start, width);
            }
            match proof {
                Proof::Completion if self.lag => {
                    unite(&mut self.before[start..], &self.done[from..][..width]);
                }
                Proof::Start => unite_within(&mut self.before, from, start, width),
                _ => {}
            }
            if let Some(behind) = &mut self.behind {
                unite_within(behind, from, start, width);
            }
        }
        let place = self.take_place(start, stream);
        let width = self.chains.len();
        self.done.truncate(start + width);
        self.before.truncate(if self.lag { start + width } else { 0 });
        if let Some(behind) = &mut self.behind {
            behind.truncate(start + width);
        }
        if place.chain != NONE {
            self.done[start + place.chain as usize] = place.position;
            if let Some(behind) = &mut self.behind {
                behind[start + place.chain as usize] = place.position;
            }
        }
        self.rows.push(Row { place, start, width: width as u32 });
    }

    /// Lets the node whose numbers begin at `start` continue a chain, or begin one: a node that knows a
    /// chain's node to be completed must know it of those before.
    fn take_place(&mut self, start: usize, stream: usize) -> Place {
        if self.own.len() <= stream {
            self.own.resize(stream + 1, NONE);
        }
        let known = |chain: usize| self.done[start + chain] == self.chains[chain].length;
        let own = self.own[stream];
        let mut chosen = (own != NONE && known(own as usize)).then_some(own as usize);
        if chosen.is_none() {
            let others = (0..self.chains.len()).filter(|&chain| known(chain));
            // Rather none that another stream is to go on with, as long as there are few.
            let few = self.chains.len() < self.own.len().min(self.limit);
            let (mut free, mut taken) = (None, None);
            for chain in others {
                let vacant = self.chains[chain].stream == NONE;
                let slot = if vacant { &mut free } else { &mut taken };
                slot.get_or_insert(chain);
            }
            chosen = free.or(taken.filter(|_| !few));
            if chosen.is_none() && self.chains.len() < self.limit {
                chosen = Some(self.chains.len());
                self.chains.push(Chain { length: 0, stream: NONE });
            }
        }
        let Some(chain) = chosen else {
            self.cut = true;
            return Place { chain: NONE, position: 0 };
        };
        if own != chain as u32 {
            if own != NONE {
                self.chains[own as usize].stream = NONE;
            }
            let robbed = std::mem::replace(&mut self.chains[chain].stream, stream as u32);
            if robbed != NONE {
                self.own[robbed as usize] = NONE;
            }
            self.own[stream] = chain as u32;
        }
        self.chains[chain].length += 1;
        Place { chain: chain as u32, position: self.chains[chain].length }
    }
}

/// Takes over what another knows: the greater of each two numbers.
pub(super) fn unite(numbers: &mut [u32], more: &[u32]) {
    for (number, &more) in numbers.iter_mut().zip(more) {
        *number = (*number).max(more);
    }
}

/// Raises the `width` numbers from `to` on to those from `from` on, where these are greater. Both lie in `all`, those
/// of `from` first.
fn unite_within(all: &mut [u32], from: usize, to: usize, width: usize) {
    let (earlier, later) = all.split_at_mut(to);
    unite(later, &earlier[from..][..width]);
}
