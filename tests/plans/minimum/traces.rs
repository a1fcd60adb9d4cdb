//! Random traces.

use fastrand::Rng;
use regraph_trace::{Operation, Trace};

pub const REAL: [(&str, f64); 4] = [
    ("decoder_s1", 45.0),
    ("moe_s6", 127.03125),
    ("googlenet_s4", 214.411_132_812_5),
    ("pipeline_s5", 216.0),
];

/// What may occur.
#[derive(Clone, Copy, Default)]
pub struct Kinds {
    pub programmatic: bool,
    pub set_backs: bool,
    pub outside: bool,
}

/// A capture, or two one after the other.
pub fn random(seed: u64, steps: usize, kinds: Kinds) -> Trace {
    let mut random = Rng::with_seed(seed);
    let mut operations = Vec::new();
    let mut live = Vec::new();
    let mut blocks = 0;
    for capture in 0..random.u32(1..3) {
        let streams = random.u16(1..5);
        operations.push(Operation::Begin { stream: 0, pool: capture / 2 });
        operations.push(kernel(0, false));
        operations.extend((1..streams).map(|stream| Operation::Wait { stream, on: 0 }));
        let mut nodes = 1;
        for _ in 0..steps {
            let stream = random.u16(0..streams);
            let row = (!live.is_empty()).then(|| random.usize(0..live.len()));
            match (random.u32(0..20), row) {
                (0..8, _) => {
                    operations.push(kernel(stream, kinds.programmatic && random.u8(0..4) == 0));
                    nodes += 1;
                }
                (8..11, _) => {
                    operations.push(Operation::Wait { stream, on: random.u16(0..streams) });
                }
                (11..15, _) => {
                    let bytes = random.u64(1..9) * 1024 - random.u64(0..512);
                    operations.push(Operation::Alloc { id: blocks, bytes, stream });
                    live.push(blocks);
                    blocks += 1;
                }
                (15, Some(row)) => {
                    let outside = kinds.outside && random.u8(0..4) == 0;
                    let stream = if outside { 99 } else { stream };
                    operations.push(Operation::Use { id: live[row], stream });
                }
                (16, Some(row)) => {
                    operations.push(Operation::LastUse { id: live[row], stream });
                }
                (17 | 18, Some(row)) => {
                    operations.push(Operation::Free { id: live.swap_remove(row) });
                }
                (19, _) if kinds.set_backs => {
                    let nodes = vec![random.u32(0..nodes)];
                    operations.push(Operation::Terminals { stream, nodes });
                }
                _ => {}
            }
        }
        operations.extend((1..streams).map(|on| Operation::Wait { stream: 0, on }));
        operations.push(Operation::End {});
    }
    Trace::new(operations).unwrap()
}

pub fn kernel(stream: u16, programmatic: bool) -> Operation {
    Operation::Kernel { stream, uses: Vec::new(), programmatic }
}
