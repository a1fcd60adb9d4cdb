//! Random journals: every kind of edge, set-backs, last uses, uses outside, late looks.

use std::collections::BTreeSet;

use fastrand::Rng;
use regraph::driver::{Dependency, EdgeData, NodeHandle, StreamHandle};
use regraph_record::journal::{BlockNumber, Entry, Journal};

pub fn handle(node: usize) -> NodeHandle {
    NodeHandle::from_bits((node + 1) << 4)
}

pub fn number(node: NodeHandle) -> usize {
    (node.bits() >> 4) - 1
}

struct Live {
    number: u64,
    stream: usize,
    users: BTreeSet<usize>,
    done: BTreeSet<usize>,
}

pub struct Writer {
    pub journal: Journal,
    random: Rng,
    nodes: Vec<Vec<Dependency>>,
    said: BTreeSet<usize>,
    streams: Vec<Vec<Dependency>>,
    looked: Vec<Option<Vec<Dependency>>>,
    live: Vec<Live>,
    blocks: u64,
}

impl Writer {
    /// `strange` is how likely a step is an unusual one.
    pub fn random(seed: u64, steps: usize, strange: f64) -> Journal {
        let mut random = Rng::with_seed(seed);
        let streams = random.usize(1..5);
        let mut writer = Self {
            journal: Journal::new(),
            random,
            nodes: Vec::new(),
            said: BTreeSet::new(),
            streams: vec![Vec::new(); streams],
            looked: vec![None; streams],
            live: Vec::new(),
            blocks: 0,
        };
        (0..steps).for_each(|_| writer.step(strange));
        writer.journal
    }

    fn edge(&mut self, strange: f64) -> EdgeData {
        if self.random.f64() >= strange {
            return EdgeData::FULL;
        }
        [EdgeData::PROGRAMMATIC, EdgeData::PROGRAMMATIC, EdgeData::LAUNCH_ORDER]
            [self.random.usize(0..3)]
    }

    fn step(&mut self, strange: f64) {
        let stream = self.random.usize(0..self.streams.len());
        match self.random.u32(0..20) {
            0..8 => {
                let mut before = self.streams[stream].clone();
                for dependency in &mut before {
                    if dependency.edge == EdgeData::FULL {
                        dependency.edge = self.edge(strange);
                    }
                }
                self.nodes.push(before);
                let edge = self.edge(strange / 4.0);
                let node = handle(self.nodes.len() - 1);
                self.streams[stream] = vec![Dependency { node, edge }];
            }
            8..11 => {
                let more = self.streams[self.random.usize(0..self.streams.len())].clone();
                let terminals = &mut self.streams[stream];
                let new = |one: &Dependency| !terminals.iter().any(|other| other.node == one.node);
                let more: Vec<_> = more.into_iter().filter(new).collect();
                terminals.extend(more);
            }
            11..15 => {
                self.look(stream);
                let (block, handle) = (BlockNumber(self.blocks), stream_handle(stream));
                let bytes = 512 * self.random.u64(1..9);
                let entry = Entry::Allocate { block, stream: handle, address: 0, bytes };
                self.journal.push(entry);
                let users = BTreeSet::from([stream]);
                let live = Live { number: self.blocks, stream, users, done: BTreeSet::new() };
                self.live.push(live);
                self.blocks += 1;
            }
            15 if !self.live.is_empty() => {
                let row = self.random.usize(0..self.live.len());
                let live = &mut self.live[row];
                live.users.insert(stream);
                live.done.remove(&stream);
                let block = BlockNumber(live.number);
                self.journal.push(Entry::Use { block, stream: stream_handle(stream) });
            }
            16 if !self.live.is_empty() => {
                let row = self.random.usize(0..self.live.len());
                self.look(stream);
                let live = &mut self.live[row];
                live.users.insert(stream);
                live.done.insert(stream);
                let block = BlockNumber(live.number);
                self.journal.push(Entry::LastUse { block, stream: stream_handle(stream) });
            }
            17 | 18 if !self.live.is_empty() => {
                let row = self.random.usize(0..self.live.len());
                let live = self.live.swap_remove(row);
                assert!(live.users.contains(&live.stream));
                for &stream in live.users.difference(&live.done) {
                    self.look(stream);
                }
                let block = BlockNumber(live.number);
                if self.random.f64() < strange / 4.0 {
                    self.journal.push(Entry::Outside { block });
                }
                self.journal.push(Entry::Free { block });
            }
            19 if self.random.f64() < strange && !self.nodes.is_empty() => {
                self.look(stream);
                let count = self.random.usize(0..3);
                let node = |random: &mut Rng| handle(random.usize(0..self.nodes.len()));
                let back: BTreeSet<_> = (0..count).map(|_| node(&mut self.random)).collect();
                self.streams[stream] = back.into_iter().map(Dependency::full).collect();
                self.look(stream);
            }
            _ => self.look(stream),
        }
    }

    fn look(&mut self, stream: usize) {
        let terminals = self.streams[stream].clone();
        if self.looked[stream].as_ref() == Some(&terminals) {
            return;
        }
        for terminal in &terminals {
            self.say(number(terminal.node));
        }
        self.journal.push(Entry::Terminals {
            stream: stream_handle(stream),
            terminals: (&terminals).into(),
        });
        self.looked[stream] = Some(terminals);
    }

    /// As the engine asks: a node, then what lies behind it.
    fn say(&mut self, node: usize) {
        if self.said.insert(node) {
            let dependencies = self.nodes[node].clone();
            let entry = Entry::Node { node: handle(node), dependencies: (&dependencies).into() };
            self.journal.push(entry);
            for dependency in dependencies {
                self.say(number(dependency.node));
            }
        }
    }
}

fn stream_handle(stream: usize) -> StreamHandle {
    StreamHandle::from_bits(stream + 16)
}
