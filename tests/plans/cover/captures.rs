//! Captures with sets of nodes, not numbers: what the tests compare with.

use regraph_plan::cover::{Item, Items};

/// What a host does.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Launch {
        stream: usize,
    },
    Wait {
        stream: usize,
        on: usize,
    },
    /// Allocates a block and launches a kernel that uses it.
    Allocate {
        stream: usize,
        weight: u64,
    },
    /// Launches a kernel that uses the block, by order of allocation.
    Use {
        block: usize,
        stream: usize,
    },
    Free {
        block: usize,
    },
    /// The stream knows nothing any more.
    SetBack {
        stream: usize,
    },
}

#[derive(Clone, Debug)]
pub struct Block {
    pub stream: usize,
    pub weight: u64,
    /// Sets of nodes.
    pub known: u128,
    pub needed: u128,
    pub used: u128,
    /// The streams that used it.
    pub streams: Vec<usize>,
    pub freed: bool,
}

impl Block {
    pub fn precedes(&self, later: &Self) -> bool {
        self.freed && self.needed != self.known && self.needed & !later.known == 0
    }
}

/// A capture under way.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// By node: what is before it, and itself.
    pub behind: Vec<u128>,
    /// By node: its chain.
    chains: Vec<usize>,
    next_chain: usize,
    /// By stream: what it knows, and the chain of its next node.
    pub streams: Vec<(u128, usize)>,
    pub blocks: Vec<Block>,
}

impl Capture {
    pub fn new(streams: usize) -> Self {
        let own = (0..streams).map(|stream| (0, stream)).collect();
        Self { streams: own, next_chain: streams, ..Self::default() }
    }

    pub fn run(streams: usize, steps: &[Step]) -> Self {
        let mut capture = Self::new(streams);
        steps.iter().for_each(|&step| capture.step(step));
        capture
    }

    /// Does nothing where the step makes no sense.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Launch { stream } => _ = self.launch(stream),
            Step::Wait { stream, on } => self.streams[stream].0 |= self.streams[on].0,
            Step::Allocate { stream, weight } => {
                let known = self.streams[stream].0;
                let used = self.launch(stream);
                let streams = vec![stream];
                let (needed, freed) = (known, false);
                self.blocks.push(Block { stream, weight, known, needed, used, streams, freed });
            }
            Step::Use { block, stream } => {
                if self.blocks.get(block).is_some_and(|block| !block.freed) {
                    let used = self.launch(stream);
                    self.blocks[block].used |= used;
                    self.blocks[block].streams.push(stream);
                }
            }
            Step::Free { block } => {
                if let Some(block) = self.blocks.get_mut(block).filter(|block| !block.freed) {
                    block.freed = true;
                    for &stream in &block.streams {
                        block.needed |= self.streams[stream].0;
                    }
                }
            }
            Step::SetBack { stream } => {
                self.streams[stream] = (0, self.next_chain);
                self.next_chain += 1;
            }
        }
    }

    fn launch(&mut self, stream: usize) -> u128 {
        let (known, chain) = &mut self.streams[stream];
        let node = 1 << self.behind.len();
        *known |= node;
        self.behind.push(*known);
        self.chains.push(*chain);
        node
    }

    /// As the library takes it.
    pub fn items(&self) -> Items {
        let mut items = Items::new(self.next_chain);
        for block in &self.blocks {
            let item = Item::new(block.weight, block.stream as u32, block.freed);
            items.push(item, &self.numbers(block.known), &self.numbers(block.needed));
        }
        items
    }

    fn numbers(&self, nodes: u128) -> Vec<u32> {
        let mut numbers = vec![0; self.next_chain];
        for (node, &chain) in self.chains.iter().enumerate() {
            numbers[chain] += (nodes >> node & 1) as u32;
        }
        numbers
    }

    /// The weight of a heaviest antichain, by trying all.
    pub fn minimum(&self) -> u64 {
        let blocks = &self.blocks;
        let related = |one: &Block| {
            let bit = |other: &Block| one.precedes(other) || other.precedes(one);
            blocks.iter().enumerate().map(|(at, other)| u64::from(bit(other)) << at).sum()
        };
        let related: Vec<u64> = blocks.iter().map(related).collect();
        self.heaviest(&related, (1 << blocks.len()) - 1)
    }

    fn heaviest(&self, related: &[u64], left: u64) -> u64 {
        if left == 0 {
            return 0;
        }
        let block = left.trailing_zeros() as usize;
        let others = left & !(1 << block);
        let with = self.blocks[block].weight + self.heaviest(related, others & !related[block]);
        if others & related[block] == 0 {
            return with;
        }
        with.max(self.heaviest(related, others))
    }

    /// The most that is in use when some nodes have completed and no others have started.
    pub fn most_live(&self) -> u64 {
        let nodes = self.behind.len();
        let closed = |cut: &u128| {
            (0..nodes).all(|node| cut >> node & 1 == 0 || self.behind[node] & !cut == 0)
        };
        let live = |cut: u128| {
            let live =
                |block: &&Block| block.used & cut != 0 && (!block.freed || block.used & !cut != 0);
            // What a node uses while it runs is in use too: the next nodes all run.
            let next = (0..nodes).filter(|&node| {
                cut >> node & 1 == 0 && self.behind[node] & !cut & !(1 << node) == 0
            });
            let running = next.fold(0, |set, node| set | 1_u128 << node);
            let used = |block: &&Block| live(block) || block.used & running != 0;
            self.blocks.iter().filter(used).map(|block| block.weight).sum::<u64>()
        };
        (0..1_u128 << nodes).filter(closed).map(live).max().unwrap_or(0)
    }
}
