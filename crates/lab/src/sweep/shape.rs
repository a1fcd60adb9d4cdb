//! What the work of a random capture looks like.

use std::fmt;
use std::str::FromStr;

use super::workload::{kernel, Sizes, Workload};
use regraph_plan::random::Random;
use regraph_trace::{BlockIndex, InvalidTrace, Operation, StreamIndex, Trace};

/// Steps of a capture that is not of single steps.
const STEPS: u32 = 1_500;
/// How many captures are drawn for each number of streams.
const SEEDS: u64 = 3;
/// The most kernels of a branch, or of a chunk in a stage.
const DEPTH: u32 = 4;

/// A shape of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Single steps, each on any stream ([`Workload::trace`]).
    #[default]
    Steps,
    /// Layers: each reads one block, has a branch of one to four kernels on every stream, and gathers their
    /// results in one block. Branches have temporaries.
    Layers,
    /// Pipelines: chunks pass through stages, a stream each, which do not wait for those behind them.
    Pipelines,
}

impl Shape {
    /// The workloads of the sweep; of layers nine and of pipelines six, of 1,500 kernels or little more.
    pub fn workloads(self, sizes: Sizes, seed: u64) -> Vec<Workload> {
        let streams: &[StreamIndex] = match self {
            Self::Steps => return Workload::all(sizes, seed),
            Self::Layers => &[2, 4, 8],
            Self::Pipelines => &[4, 8],
        };
        let one = |streams: &StreamIndex, seed: u64| Workload {
            streams: *streams,
            operations: STEPS,
            alloc: 0.0,
            free: 0.0,
            join: 0.0,
            sizes,
            seed,
        };
        let of = |streams| (0..SEEDS).map(move |more| one(streams, seed + more));
        streams.iter().flat_map(of).collect()
    }

    /// The capture of a workload. Layers and pipelines take its streams, steps, sizes and seed.
    ///
    /// # Errors
    /// None: what is generated is valid. The rules of the format are checked nevertheless.
    pub fn trace(self, workload: &Workload) -> Result<Trace, InvalidTrace> {
        let mut drawing = Drawing {
            random: Random::new(workload.seed),
            sizes: workload.sizes,
            operations: vec![Operation::Begin { stream: 0, pool: 0 }],
            blocks: 0,
            kernels: 0,
        };
        let streams = workload.streams.max(1);
        match self {
            Self::Steps => return workload.trace(),
            Self::Layers => drawing.layers(streams, workload.operations),
            Self::Pipelines => drawing.pipeline(streams, workload.operations),
        }
        drawing.operations.extend((1..streams).map(|on| Operation::Wait { stream: 0, on }));
        drawing.operations.push(Operation::End {});
        Trace::new(drawing.operations)
    }
}

/// A capture that is being drawn.
struct Drawing {
    random: Random,
    sizes: Sizes,
    operations: Vec<Operation>,
    blocks: BlockIndex,
    kernels: u32,
}

impl Drawing {
    /// A block on a stream and the kernel that makes it of others.
    fn make(&mut self, stream: StreamIndex, of: &[BlockIndex]) -> BlockIndex {
        let id = self.blocks;
        self.blocks += 1;
        let bytes = self.sizes.draw(&mut self.random);
        self.operations.push(Operation::Alloc { id, bytes, stream });
        let uses = of.iter().copied().chain([id]).collect();
        self.operations.push(kernel(stream, uses));
        self.kernels += 1;
        id
    }

    /// One to four kernels, each of the one before's result, which is freed then; `of` is not.
    fn branch(&mut self, stream: StreamIndex, of: BlockIndex) -> BlockIndex {
        let mut last = self.make(stream, &[of]);
        for _ in 0..self.random.below(DEPTH) {
            let next = self.make(stream, &[last]);
            self.operations.push(Operation::Free { id: last });
            last = next;
        }
        last
    }

    fn wait(&mut self, stream: StreamIndex, on: StreamIndex) {
        self.operations.push(Operation::Wait { stream, on });
    }

    fn layers(&mut self, streams: StreamIndex, steps: u32) {
        let mut given = self.make(0, &[]);
        while self.kernels < steps {
            let mut results = Vec::new();
            for stream in 1..streams {
                self.wait(stream, 0);
                results.push(self.branch(stream, given));
                self.operations.push(Operation::Use { id: given, stream });
            }
            results.push(self.branch(0, given));
            for (stream, &id) in (1..streams).zip(&results) {
                self.wait(0, stream);
                self.operations.push(Operation::Use { id, stream: 0 });
            }
            let gathered = self.make(0, &results);
            let over = results.into_iter().chain([given]);
            self.operations.extend(over.map(|id| Operation::Free { id }));
            given = gathered;
        }
    }

    fn pipeline(&mut self, stages: StreamIndex, steps: u32) {
        // A stream is in the capture once it has waited for one that is.
        self.operations.push(kernel(0, Vec::new()));
        (1..stages).for_each(|stage| self.wait(stage, 0));
        while self.kernels < steps {
            let mut given = self.make(0, &[]);
            for stage in 0..stages {
                let before = stage.checked_sub(1);
                if let Some(before) = before {
                    self.wait(stage, before);
                }
                let result = self.branch(stage, given);
                if before.is_some() {
                    self.operations.push(Operation::Use { id: given, stream: stage });
                }
                self.operations.push(Operation::Free { id: given });
                given = result;
            }
            self.operations.push(Operation::Free { id: given });
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Steps => "steps",
            Self::Layers => "layers",
            Self::Pipelines => "pipelines",
        })
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "steps" => Ok(Self::Steps),
            "layers" => Ok(Self::Layers),
            "pipelines" => Ok(Self::Pipelines),
            _ => Err(format!("expected one of steps, layers, pipelines, found '{text}'")),
        }
    }
}
