//! Lifetimes by their definition, with sets of nodes.

use std::collections::BTreeMap;

use regraph::driver::{Dependency, EdgeData, NodeHandle, StreamHandle};
use regraph::settings::Programmatic;
use regraph_paths::{Nodes, Paths};
use regraph_record::journal::{BlockNumber, Entry, Journal};

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
    /// What lies behind the terminals, and what is completed before a node behind full edges from them starts.
    behind: Nodes,
    done: Nodes,
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
    paths: Paths,
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
        let mut paths = Paths::new(policy);
        let dependencies = said.values().flatten().map(|dependency| &dependency.node);
        said.keys().chain(dependencies).for_each(|&node| paths.enter(node, &[]));
        said.iter().for_each(|(&node, dependencies)| paths.enter(node, dependencies));
        let (looks, blocks) = (BTreeMap::new(), Vec::new());
        let mut this = Self { policy, early, paths, looks, blocks };
        let mut live: BTreeMap<BlockNumber, (usize, Uses)> = BTreeMap::new();
        for (at, entry) in journal.iter().enumerate() {
            match entry {
                Entry::Terminals { stream, terminals } => {
                    let terminals: Vec<Dependency> = terminals.iter().collect();
                    let full: Vec<_> =
                        terminals.iter().map(|it| Dependency::full(it.node)).collect();
                    let behind = this.paths.behind(&terminals);
                    let done = this.paths.completed(&full);
                    let look = Look { at, terminals, behind, done };
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
                        this.blocks[row] = this.used(row, &uses, at);
                    }
                }
                _ => {}
            }
        }
        for (row, uses) in live.into_values() {
            this.blocks[row].covered = this.used(row, &uses, usize::MAX).covered;
        }
        this
    }

    pub fn precedes(&self, earlier: usize, later: usize) -> bool {
        let (earlier, later) = (&self.blocks[earlier], &self.blocks[later]);
        earlier.freed && earlier.needed.is_subset(&later.known)
    }

    fn looks(&self, stream: StreamHandle) -> &[Look] {
        self.looks.get(&stream).map_or(&[], Vec::as_slice)
    }

    fn terminals(&self, stream: StreamHandle, at: usize) -> &[Dependency] {
        let look = self.looks(stream).iter().rfind(|look| look.at <= at);
        look.map_or(&[], |look| &look.terminals)
    }

    fn known(&self, stream: StreamHandle, at: usize) -> Nodes {
        let next = self.terminals(stream, at).iter().map(|terminal| {
            let early = match self.policy {
                Programmatic::Auto => self.early.contains(&terminal.node),
                Programmatic::Lag => true,
                Programmatic::Deny | Programmatic::Trust => false,
            };
            match terminal.edge {
                EdgeData::FULL if early => Dependency { edge: EdgeData::PROGRAMMATIC, ..*terminal },
                _ => *terminal,
            }
        });
        self.paths.completed(&next.collect::<Vec<_>>())
    }

    /// A block whose last use is at a moment, at the latest.
    fn used(&self, row: usize, uses: &Uses, at: usize) -> Block {
        let own = uses.stream.unwrap();
        let proving = |one: &&Dependency| match one.edge {
            EdgeData::PROGRAMMATIC => self.policy != Programmatic::Deny,
            edge => edge == EdgeData::FULL,
        };
        let terminals = self.terminals(own, uses.at).iter().filter(proving);
        let mut needed: Nodes = terminals.map(|terminal| terminal.node).collect();
        let (mut worked, mut covered) = (false, true);
        for (&stream, end) in &uses.ends {
            let end = end.unwrap_or(at);
            needed.extend(self.terminals(stream, end).iter().map(|marker| marker.node));
            let mut seen = Nodes::new();
            let mut last: &[Dependency] = &[];
            for look in self.looks(stream) {
                let Look { behind, done, .. } = look;
                let gained: Nodes = behind.difference(&seen).copied().collect();
                let meets = last.iter().all(|old| done.contains(&old.node));
                let forward = meets && gained.is_subset(done);
                if look.at > uses.at && look.at <= end {
                    let known = &self.blocks[row].known;
                    worked |= gained.iter().any(|node| stream == own || !known.contains(node));
                    needed.extend(&gained);
                    covered &= forward;
                }
                seen.extend(behind.iter());
                last = &look.terminals;
            }
        }
        let block = &self.blocks[row];
        Block {
            freed: true,
            worked: worked || !covered,
            covered,
            needed: if worked || covered { needed } else { block.known.clone() },
            known: block.known.clone(),
            bytes: block.bytes,
        }
    }
}
