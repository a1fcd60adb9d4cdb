//! What a host does in a capture, drawn ahead of time so that drawing is never timed.

use regraph_plan::random::Random;

/// How often a step allocates or frees; otherwise it joins two streams.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// What it is called.
    pub name: &'static str,
    /// The probability of an allocation.
    pub alloc: f64,
    /// The probability of a free.
    pub free: f64,
    /// The most blocks that are live; where they are, an allocation becomes a free.
    pub most: usize,
}

/// Four joins for three allocations. Live blocks walk at random, up to the root of the steps.
pub const JOIN: Mix = Mix { name: "join", alloc: 0.3, free: 0.3, most: usize::MAX };
/// One block in four stays.
pub const GROW: Mix = Mix { name: "grow", alloc: 0.4, free: 0.3, most: usize::MAX };
/// Mostly allocations and frees.
pub const STEADY: Mix = Mix { name: "steady", alloc: 0.45, free: 0.45, most: usize::MAX };
/// As [`JOIN`], but what is live stays the same however long the capture is.
pub const LEVEL: Mix = Mix { name: "level", alloc: 0.3, free: 0.3, most: 64 };
/// All mixes.
pub const MIXES: [Mix; 4] = [JOIN, GROW, STEADY, LEVEL];

/// How large blocks are, uniformly between two sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// What they are called.
    pub name: &'static str,
    low: u64,
    high: u64,
}

/// 4 KiB to 1 MiB.
pub const SMALL: Sizes = Sizes { name: "small", low: 4 << 10, high: 1 << 20 };
/// 1 to 24 MiB.
pub const LARGE: Sizes = Sizes { name: "large", low: 1 << 20, high: 24 << 20 };
/// All sizes.
pub const SIZES: [Sizes; 2] = [SMALL, LARGE];

/// A call of the host's. Streams and blocks go by number, blocks in the order of allocation.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Allocates the next block.
    Alloc { stream: usize, bytes: u64 },
    /// Frees a block.
    Free { block: usize },
    /// Launches a kernel.
    Launch { stream: usize },
    /// Lets `stream` wait for `on`.
    Wait { stream: usize, on: usize },
    /// Says that a stream uses a block.
    Record { block: usize, stream: usize },
}

/// The calls between a capture's fork and its last join.
#[derive(Clone, Debug)]
pub struct Script {
    /// How many streams there are.
    pub streams: usize,
    /// The calls.
    pub calls: Vec<Call>,
    /// How many steps they were drawn in.
    pub steps: usize,
    /// How many kernels they launch.
    pub nodes: usize,
}

/// When a script is long enough.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// After so many steps.
    Steps(usize),
    /// After so many kernels.
    Nodes(usize),
}

impl Script {
    /// A random script.
    ///
    /// A step allocates a block and launches a kernel on its stream, or frees a random live block,
    /// or joins: a random stream waits for another. Every second join is for the sake of a block:
    /// it waits for the block's stream, the block is recorded for it, and a kernel uses it there.
    /// With nothing to free a step allocates; with one stream a join is no more than the kernel.
    pub fn random(streams: usize, mix: Mix, sizes: Sizes, length: Length) -> Self {
        let mut random = Random::new(0x5eed);
        let mut script = Self { streams, calls: Vec::new(), steps: 0, nodes: 0 };
        let mut live: Vec<(usize, usize)> = Vec::new();
        let mut blocks = 0;
        while !script.is_long(length) {
            script.steps += 1;
            let choice = random.fraction();
            let allocates = choice < mix.alloc && live.len() < mix.most || live.is_empty();
            if choice < mix.alloc + mix.free && allocates {
                let stream = below(&mut random, streams);
                let bytes = sizes.low + u64::from(random.below((sizes.high - sizes.low) as u32));
                live.push((blocks, stream));
                blocks += 1;
                script.calls.push(Call::Alloc { stream, bytes });
                script.launch(stream);
            } else if choice < mix.alloc + mix.free {
                let (block, _) = live.swap_remove(below(&mut random, live.len()));
                script.calls.push(Call::Free { block });
            } else {
                let used = (random.fraction() < 0.5 && !live.is_empty())
                    .then(|| live[below(&mut random, live.len().max(1))]);
                let on = used.map_or_else(|| below(&mut random, streams), |(_, own)| own);
                if streams == 1 {
                    script.launch(0);
                    continue;
                }
                let stream = (on + 1 + below(&mut random, streams - 1)) % streams;
                script.calls.push(Call::Wait { stream, on });
                if let Some((block, _)) = used {
                    script.calls.push(Call::Record { block, stream });
                    script.launch(stream);
                }
            }
        }
        script
    }

    /// Blocks that wait for ever once freed: the last two streams use each beside its own stream,
    /// and no stream ever waits for either, so none proves all markers of any block.
    pub fn pending(streams: usize, blocks: usize) -> Self {
        assert!(streams >= 3, "one stream that allocates and two that use");
        let mut script = Self { streams, calls: Vec::new(), steps: 0, nodes: 0 };
        for block in 0..blocks {
            let stream = block % (streams - 2);
            script.calls.push(Call::Alloc { stream, bytes: 4 << 10 });
            script.launch(stream);
            for other in [streams - 2, streams - 1] {
                script.calls.push(Call::Record { block, stream: other });
                script.launch(other);
            }
            script.calls.push(Call::Free { block });
            script.steps += 1;
        }
        script
    }

    fn launch(&mut self, stream: usize) {
        self.calls.push(Call::Launch { stream });
        self.nodes += 1;
    }

    fn is_long(&self, length: Length) -> bool {
        match length {
            Length::Steps(steps) => self.steps >= steps,
            Length::Nodes(nodes) => self.nodes >= nodes,
        }
    }
}

/// From 0 to below `limit`, which is not 0.
fn below(random: &mut Random, limit: usize) -> usize {
    random.below(limit as u32) as usize
}
