//! Lifetimes by their definition, with sets of nodes.

use std::collections::{BTreeMap, BTreeSet};

use regraph::driver::{Dependency, EdgeData, NodeHandle, StreamHandle};
use regraph::settings::Programmatic;
use regraph_record::journal::{BlockNumber, Entry, Journal};

pub type Nodes = BTreeSet<NodeHandle>;

#[derive(Default)]
struct Node {
    /// Completed when it is; before it starts; behind it by any edge.
    done: Nodes,
    before: Nodes,
    behind: Nodes,
}

#[derive(Debug)]
pub struct Block {
    pub bytes: u64,
    pub worked: bool,
    pub freed: bool,
    pub covered: bool,
    pub known: Nodes,
    pub needed: Nodes,
}

struct Look {
    at: usize,
    terminals: Vec<Dependency>,
}

#[derive(Clone, Default)]
struct Uses {
    at: usize,
    stream: Option<StreamHandle>,
    /// When, where it is recorded.
    ends: BTreeMap<StreamHandle, Option<usize>>,
    outside: bool,
}

pub struct Definition {
    policy: Programmatic,
    /// The nodes that programmatic edges lead on from, or would.
    early: Nodes,
    nodes: BTreeMap<NodeHandle, Node>,
    looks: BTreeMap<StreamHandle, Vec<Look>>,
    pub blocks: Vec<Block>,
}

impl Definition {
    pub fn new(journal: &Journal, policy: Programmatic) -> Self {
        let mut said: BTreeMap<NodeHandle, Vec<Dependency>> = BTreeMap::new();
        let mut early = Nodes::new();
        for entry in journal.iter() {
            let (Entry::Node { dependencies: edges, .. }
            | Entry::Terminals { terminals: edges, .. }) = entry
            else {
                continue;
            };
            if let Entry::Node { node, .. } = entry {
                said.insert(node, edges.iter().collect());
            }
            let programmatic = edges.iter().filter(|it| it.edge == EdgeData::PROGRAMMATIC);
            early.extend(programmatic.map(|dependency| dependency.node));
        }
        let (nodes, looks, blocks) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut this = Self { policy, early, nodes, looks, blocks };
        said.keys().for_each(|&node| this.enter(node, &said));
        let mut live: BTreeMap<BlockNumber, (usize, Uses)> = BTreeMap::new();
        for (at, entry) in journal.iter().enumerate() {
            match entry {
                Entry::Terminals { stream, terminals } => {
                    let look = Look { at, terminals: terminals.iter().collect() };
                    this.looks.entry(stream).or_default().push(look);
                }
                Entry::Allocate { block, stream, bytes, .. } => {
                    let ends = BTreeMap::from([(stream, None)]);
                    let uses = Uses { at, stream: Some(stream), ends, outside: false };
                    live.insert(block, (this.blocks.len(), uses));
                    let known = this.known(stream, at);
                    let needed = Nodes::new();
                    let (worked, freed, covered) = (true, false, true);
                    this.blocks.push(Block { bytes, worked, freed, covered, known, needed });
                }
                Entry::Use { block, stream } => {
                    let uses = live.get_mut(&block).unwrap();
                    uses.1.ends.insert(stream, None);
                }
                Entry::LastUse { block, stream } => {
                    let uses = live.get_mut(&block).unwrap();
                    uses.1.ends.insert(stream, Some(at));
                }
                Entry::Outside { block } => live.get_mut(&block).unwrap().1.outside = true,
                Entry::Free { block } => {
                    let (row, uses) = live.remove(&block).unwrap();
                    if !uses.outside {
                        this.free(row, &uses, at);
                    }
                }
                _ => {}
            }
        }
        this
    }

    pub fn precedes(&self, earlier: usize, later: usize) -> bool {
        let (earlier, later) = (&self.blocks[earlier], &self.blocks[later]);
        earlier.freed && earlier.needed.is_subset(&later.known)
    }

    fn proof(&self, edge: EdgeData) -> Option<bool> {
        match (edge, self.policy) {
            (EdgeData::FULL, _) | (EdgeData::PROGRAMMATIC, Programmatic::Trust) => Some(true),
            (EdgeData::PROGRAMMATIC, Programmatic::Auto | Programmatic::Lag) => Some(false),
            _ => None,
        }
    }

    fn enter(&mut self, node: NodeHandle, said: &BTreeMap<NodeHandle, Vec<Dependency>>) {
        if self.nodes.contains_key(&node) {
            return;
        }
        let mut new = Node::default();
        for dependency in said.get(&node).into_iter().flatten() {
            self.enter(dependency.node, said);
            let earlier = &self.nodes[&dependency.node];
            new.behind.extend(&earlier.behind);
            match self.proof(dependency.edge) {
                Some(true) => new.before.extend(&earlier.done),
                Some(false) => new.before.extend(&earlier.before),
                None => continue,
            }
            new.done.extend(&earlier.done);
        }
        new.done.insert(node);
        new.behind.insert(node);
        self.nodes.insert(node, new);
    }

    fn looks(&self, stream: StreamHandle) -> &[Look] {
        self.looks.get(&stream).map_or(&[], Vec::as_slice)
    }

    fn terminals(&self, stream: StreamHandle, at: usize) -> &[Dependency] {
        let look = self.looks(stream).iter().rfind(|look| look.at <= at);
        look.map_or(&[], |look| &look.terminals)
    }

    fn known(&self, stream: StreamHandle, at: usize) -> Nodes {
        let mut known = Nodes::new();
        for terminal in self.terminals(stream, at) {
            let node = &self.nodes[&terminal.node];
            let early = match self.policy {
                Programmatic::Auto => self.early.contains(&terminal.node),
                Programmatic::Lag => true,
                Programmatic::Deny | Programmatic::Trust => false,
            };
            match self.proof(terminal.edge) {
                None => {}
                Some(_) if early => known.extend(&node.before),
                Some(_) => known.extend(&node.done),
            }
        }
        known
    }

    fn all<'a>(
        &'a self,
        terminals: &'a [Dependency],
        of: impl Fn(&'a Node) -> &'a Nodes + 'a,
    ) -> Nodes {
        terminals.iter().flat_map(|terminal| of(&self.nodes[&terminal.node])).copied().collect()
    }

    fn free(&mut self, row: usize, uses: &Uses, at: usize) {
        let own = uses.stream.unwrap();
        let proving = |one: &&Dependency| self.proof(one.edge).is_some();
        let terminals = self.terminals(own, uses.at).iter().filter(proving);
        let mut needed: Nodes = terminals.map(|terminal| terminal.node).collect();
        let (mut worked, mut covered) = (false, true);
        for (&stream, end) in &uses.ends {
            let end = end.unwrap_or(at);
            needed.extend(self.terminals(stream, end).iter().map(|marker| marker.node));
            let mut seen = Nodes::new();
            let mut last: &[Dependency] = &[];
            for look in self.looks(stream) {
                let behind = self.all(&look.terminals, |node| &node.behind);
                let done = self.all(&look.terminals, |node| &node.done);
                let gained: Nodes = behind.difference(&seen).copied().collect();
                let meets = last.iter().all(|old| done.contains(&old.node));
                let forward = meets && gained.is_subset(&done);
                if look.at > uses.at && look.at <= end {
                    let known = &self.blocks[row].known;
                    worked |= gained.iter().any(|node| stream == own || !known.contains(node));
                    needed.extend(&gained);
                    covered &= forward;
                }
                seen.extend(behind);
                last = &look.terminals;
            }
        }
        let block = &mut self.blocks[row];
        *block = Block {
            freed: true,
            worked: worked || !covered,
            covered,
            needed: if worked || covered { needed } else { block.known.clone() },
            known: block.known.clone(),
            bytes: block.bytes,
        };
    }
}
