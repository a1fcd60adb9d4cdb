//! Lifetimes out of a capture's journal, by plain reachability over full edges.

use std::collections::HashMap;

use super::{Lifetime, Lifetimes};
use crate::driver::{Dependency, EdgeData, NodeHandle, StreamHandle};
use crate::journal::{BlockNumber, Entry, Journal};
use crate::policy::Programmatic;

/// How many first nodes of each chain.
type Point = Vec<u32>;

#[derive(Default)]
struct Stream {
    number: u32,
    terminals: Vec<Dependency>,
    changes: u32,
}

/// The terminals at a last use that was declared, and whether there was work before it.
type LastUse = Option<(Vec<Dependency>, bool)>;

struct Block {
    place: usize,
    stream: StreamHandle,
    at: HashMap<StreamHandle, u32>,
    users: Vec<(StreamHandle, LastUse)>,
    outside: bool,
}

struct Reader<'a> {
    policy: Programmatic,
    dependencies: HashMap<NodeHandle, &'a [Dependency]>,
    /// Of each node its chain, and what is completed when it is.
    nodes: HashMap<NodeHandle, (usize, Point)>,
    /// The length of each chain.
    chains: Vec<u32>,
}

impl Reader<'_> {
    fn proves(&self, edge: EdgeData) -> bool {
        edge == EdgeData::FULL
            || edge == EdgeData::PROGRAMMATIC && self.policy == Programmatic::Trust
    }

    fn add(&mut self, node: NodeHandle) {
        let mut stack = vec![node];
        while let Some(&top) = stack.last() {
            if self.nodes.contains_key(&top) {
                stack.pop();
                continue;
            }
            let all = self.dependencies.get(&top).copied().unwrap_or_default();
            let full: Vec<NodeHandle> =
                all.iter().filter(|it| self.proves(it.edge)).map(|it| it.node).collect();
            let missing: Vec<_> =
                full.iter().copied().filter(|node| !self.nodes.contains_key(node)).collect();
            if !missing.is_empty() {
                stack.extend(missing);
                continue;
            }
            stack.pop();
            let mut point = Point::new();
            let mut chain = None;
            for node in &full {
                let (of, earlier) = &self.nodes[node];
                raise(&mut point, earlier);
                if earlier[*of] == self.chains[*of] {
                    chain = Some(*of);
                }
            }
            let chain = chain.unwrap_or_else(|| {
                self.chains.push(0);
                self.chains.len() - 1
            });
            self.chains[chain] += 1;
            point.resize(point.len().max(chain + 1), 0);
            point[chain] = self.chains[chain];
            self.nodes.insert(top, (chain, point));
        }
    }

    /// What is completed before work behind these terminals starts.
    fn known(&self, terminals: &[Dependency]) -> Point {
        let mut point = Point::new();
        for terminal in terminals.iter().filter(|terminal| self.proves(terminal.edge)) {
            if self.policy == Programmatic::Lag {
                let before = self.dependencies.get(&terminal.node).copied().unwrap_or_default();
                for earlier in before.iter().filter(|it| self.proves(it.edge)) {
                    raise(&mut point, &self.nodes[&earlier.node].1);
                }
            } else {
                raise(&mut point, &self.nodes[&terminal.node].1);
            }
        }
        point
    }

    fn needed(&self, terminals: &[Dependency], point: &mut Point) {
        for terminal in terminals {
            raise(point, &self.nodes[&terminal.node].1);
        }
    }
}

fn raise(point: &mut Point, other: &[u32]) {
    point.resize(point.len().max(other.len()), 0);
    for (mine, &other) in point.iter_mut().zip(other) {
        *mine = (*mine).max(other);
    }
}

impl Lifetimes {
    /// The blocks that a capture allocated, by its record so far. `policy` says what programmatic
    /// edges prove.
    pub fn read(journal: &Journal, policy: Programmatic) -> Self {
        let mut dependencies = HashMap::new();
        for entry in journal.iter() {
            if let Entry::Node { node, dependencies: of } = entry {
                dependencies.entry(node).or_insert(of);
            }
        }
        let mut reader = Reader { policy, dependencies, nodes: HashMap::new(), chains: Vec::new() };
        let mut streams: HashMap<StreamHandle, Stream> = HashMap::new();
        let mut live: HashMap<BlockNumber, Block> = HashMap::new();
        let mut found: Vec<(Lifetime, Point, Point)> = Vec::new();
        for entry in journal.iter() {
            match entry {
                Entry::Node { node, .. } => reader.add(node),
                Entry::Terminals { stream, terminals } => {
                    terminals.iter().for_each(|terminal| reader.add(terminal.node));
                    let number = streams.len() as u32;
                    let row = streams
                        .entry(stream)
                        .or_insert_with(|| Stream { number, ..Stream::default() });
                    row.terminals = terminals.to_vec();
                    row.changes += 1;
                }
                Entry::Allocate { block, stream, address, bytes } => {
                    let Stream { number, terminals, .. } = &streams[&stream];
                    let known = reader.known(terminals);
                    let mut needed = known.clone();
                    reader.needed(terminals, &mut needed);
                    let lifetime = Lifetime::new(block, (address, bytes), *number, false);
                    let at = streams.iter().map(|(&stream, row)| (stream, row.changes)).collect();
                    let users = vec![(stream, None)];
                    let place = found.len();
                    live.insert(block, Block { place, stream, at, users, outside: false });
                    found.push((lifetime, known, needed));
                }
                Entry::Use { block, stream } => {
                    let Some(block) = live.get_mut(&block) else { continue };
                    block.users.retain(|(other, _)| *other != stream);
                    block.users.push((stream, None));
                }
                Entry::LastUse { block, stream } => {
                    let Some(block) = live.get_mut(&block) else { continue };
                    let Some(row) = streams.get(&stream) else { continue };
                    let worked = row.changes > block.at.get(&stream).copied().unwrap_or(0);
                    block.users.retain(|(other, _)| *other != stream);
                    block.users.push((stream, Some((row.terminals.clone(), worked))));
                }
                Entry::Outside { block } => {
                    if let Some(block) = live.get_mut(&block) {
                        block.outside = true;
                    }
                }
                Entry::Free { block } => {
                    let Some(block) = live.remove(&block) else { continue };
                    let (lifetime, _, needed) = &mut found[block.place];
                    lifetime.worked = false;
                    lifetime.freed = !block.outside;
                    debug_assert!(block.users.iter().any(|(stream, _)| *stream == block.stream));
                    for (stream, last) in &block.users {
                        let (terminals, worked) = match (last, streams.get(stream)) {
                            (Some((terminals, worked)), _) => (&terminals[..], *worked),
                            (None, Some(row)) => {
                                let before = block.at.get(stream).copied().unwrap_or(0);
                                (&row.terminals[..], row.changes > before)
                            }
                            (None, None) => {
                                lifetime.freed = false;
                                continue;
                            }
                        };
                        lifetime.worked |= worked;
                        reader.needed(terminals, needed);
                    }
                }
                Entry::Standing { .. } | Entry::Settled { .. } => {}
            }
        }
        let chains = reader.chains.len();
        let mut lifetimes = Self::new(chains);
        for (lifetime, mut known, mut needed) in found {
            known.resize(chains, 0);
            needed.resize(chains, 0);
            lifetimes.push(lifetime, &known, &needed);
        }
        lifetimes
    }
}
