//! A random capture as a trace.

use std::fmt;
use std::str::FromStr;

use crate::random::log_uniform;
use regraph_plan::random::Random;
use regraph_trace::{BlockIndex, InvalidTrace, Operation, StreamIndex, Trace};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// How large a workload's blocks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// 4 MiB each.
    #[default]
    Fixed,
    /// 1 KiB to 24 MiB, log-uniform.
    Mixed,
}

impl Sizes {
    pub(super) fn draw(self, random: &mut Random) -> u64 {
        match self {
            Self::Fixed => 4 * MIB,
            Self::Mixed => log_uniform(random, KIB, 24 * MIB),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fixed => "fixed",
            Self::Mixed => "mixed",
        })
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fixed" => Ok(Self::Fixed),
            "mixed" => Ok(Self::Mixed),
            _ => Err(format!("expected one of fixed, mixed, found '{text}'")),
        }
    }
}

/// What a random capture is drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Streams, the origin included; at least one.
    pub streams: StreamIndex,
    /// Steps. Each launches a kernel and may also wait, allocate and free.
    pub operations: u32,
    /// The probability that a step allocates a block.
    pub alloc: f64,
    /// The probability that a step frees one.
    pub free: f64,
    /// The probability that a step lets a stream wait for another.
    pub join: f64,
    /// How large the blocks are.
    pub sizes: Sizes,
    /// What the choices are drawn from.
    pub seed: u64,
}

impl Workload {
    /// The 24 workloads of the sweep.
    pub fn all(sizes: Sizes, seed: u64) -> Vec<Self> {
        let mut workloads = Vec::new();
        for streams in [2, 4, 8] {
            for operations in [1_000, 10_000] {
                for (alloc, free) in [(0.1, 0.1), (0.3, 0.1)] {
                    for join in [0.1, 0.3] {
                        workloads.push(Self {
                            streams,
                            operations,
                            alloc,
                            free,
                            join,
                            sizes,
                            seed,
                        });
                    }
                }
            }
        }
        workloads
    }

    /// The capture: stream 0 begins and the others fork from it; random steps; all join.
    ///
    /// A block is used by the kernel behind its allocation, on any stream: one that is not its own
    /// waits for its own first, and its use is recorded.
    ///
    /// # Errors
    /// None: what is generated is valid. The rules of the format are checked nevertheless.
    pub fn trace(&self) -> Result<Trace, InvalidTrace> {
        let mut random = Random::new(self.seed);
        let streams = self.streams.max(1);
        let mut operations = vec![Operation::Begin { stream: 0, pool: 0 }, kernel(0, Vec::new())];
        operations.extend((1..streams).map(|stream| Operation::Wait { stream, on: 0 }));
        let mut live: Vec<BlockIndex> = Vec::new();
        let mut blocks = 0;
        for _ in 0..self.operations {
            operations.push(kernel(any(&mut random, streams), Vec::new()));
            if random.chance(self.join) && streams > 1 {
                let stream = any(&mut random, streams);
                let on = (stream + 1 + any(&mut random, streams - 1)) % streams;
                operations.push(Operation::Wait { stream, on });
            }
            if random.chance(self.alloc) {
                let (id, own) = (blocks, any(&mut random, streams));
                blocks += 1;
                live.push(id);
                operations.push(Operation::Alloc {
                    id,
                    bytes: self.sizes.draw(&mut random),
                    stream: own,
                });
                let stream = any(&mut random, streams);
                if stream != own {
                    operations.push(Operation::Wait { stream, on: own });
                }
                operations.push(kernel(stream, vec![id]));
                if stream != own {
                    operations.push(Operation::Use { id, stream });
                }
            }
            if random.chance(self.free) && !live.is_empty() {
                let index = random.below(live.len() as u32) as usize;
                let id = live.swap_remove(index);
                operations.push(Operation::Free { id });
            }
        }
        operations.extend((1..streams).map(|on| Operation::Wait { stream: 0, on }));
        operations.push(Operation::End {});
        Trace::new(operations)
    }
}

pub(super) fn kernel(stream: StreamIndex, uses: Vec<BlockIndex>) -> Operation {
    Operation::Kernel { stream, uses, programmatic: false }
}

fn any(random: &mut Random, streams: StreamIndex) -> StreamIndex {
    random.below(u32::from(streams)) as StreamIndex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_24_and_every_trace_is_valid() {
        let workloads = Workload::all(Sizes::Mixed, 1);
        assert_eq!(workloads.len(), 24);
        for workload in workloads {
            let trace = workload.trace().unwrap();
            let kernels = workload.operations as usize + 1 + trace.blocks();
            assert_eq!(trace.nodes(), kernels, "{workload:?}");
            let expected = f64::from(workload.operations) * workload.alloc;
            let share = trace.blocks() as f64 / expected;
            assert!((0.7..1.3).contains(&share), "{workload:?}: {share}");
        }
    }

    #[test]
    fn a_seed_gives_one_trace() {
        let workload = Workload::all(Sizes::Mixed, 5)[0];
        let text = |workload: Workload| {
            let mut text = Vec::new();
            regraph_trace::write(&workload.trace().unwrap(), &mut text).unwrap();
            text
        };
        assert_eq!(text(workload), text(workload));
        assert_ne!(text(workload), text(Workload { seed: 6, ..workload }));
    }

    #[test]
    fn blocks_are_used_on_other_streams_too() {
        let trace = Workload::all(Sizes::Fixed, 1)[0].trace().unwrap();
        let uses = trace
            .operations()
            .iter()
            .filter(|operation| matches!(operation, Operation::Use { .. }))
            .count();
        assert!(uses * 4 > trace.blocks(), "{uses} of {}", trace.blocks());
    }
}
