//! Captures as lifetimes at addresses: recorded ones, and random ones.

use std::collections::HashMap;

use crate::plans::minimum::traces::{random, Kinds};
use fastrand::Rng;
use regraph::settings::Programmatic;
use regraph_plan::lifetimes::{Lifetime, Lifetimes};
use regraph_trace::{minimum, Trace};

/// The page of recorded captures, in bytes.
pub const RECORDED_PAGE: u64 = 2 << 20;

/// The page of random captures, in bytes.
pub const PAGE: u64 = 64;

/// What a random capture is like.
#[derive(Clone, Debug)]
pub struct Shape {
    pub seed: u64,
    pub steps: usize,
    /// The most pages of a block.
    pub pages: u64,
    /// Whether blocks begin and end on pages.
    pub aligned: bool,
    /// How many blocks of a hundred are kept.
    pub kept: u32,
}

/// A trace's first capture, with each block moved to its place.
fn placed(
    trace: &Trace,
    least: u64,
    mut place: impl FnMut(&Lifetimes, usize, &mut Lifetime),
) -> Lifetimes {
    let all = minimum::lifetimes(trace, Programmatic::Deny).remove(0).only(|it| it.bytes >= least);
    let mut placed = Lifetimes::new(all.chains());
    for (row, &(mut block)) in all.blocks().iter().enumerate() {
        place(&all, row, &mut block);
        placed.push(block, all.known(row), all.needed(row));
    }
    placed
}

/// The blocks of at least 1 MiB of a recorded capture. Each stream has addresses of its own, one
/// block behind the other; a block begins on the page where the last ended only if that saves a page
/// and it might not have the last one's memory.
pub fn recorded(name: &str) -> Lifetimes {
    let mut ends: HashMap<u32, (u64, usize)> = HashMap::new();
    placed(&crate::device::trace(name), 1 << 20, |all, row, block| {
        let base = (u64::from(block.stream) + 1) << 40;
        let (pointer, last) = ends.get(&block.stream).copied().unwrap_or((base, row));
        let aligned = pointer.next_multiple_of(RECORDED_PAGE);
        let end = (pointer + block.bytes).next_multiple_of(RECORDED_PAGE);
        let saves = end < aligned + block.bytes.next_multiple_of(RECORDED_PAGE);
        block.address = if saves && !all.precedes(last, row) { pointer } else { aligned };
        ends.insert(block.stream, (block.address + block.bytes, row));
    })
}

/// A random capture, whose blocks lie one behind the other, some behind a gap.
pub fn lifetimes(shape: &Shape) -> Lifetimes {
    let mut draw = Rng::with_seed(shape.seed);
    let mut ends: HashMap<u32, u64> = HashMap::new();
    placed(&random(shape.seed, shape.steps, Kinds::default()), 0, |all, row, block| {
        // One that precedes an earlier one saw waits alone: no node can have used it.
        block.worked &= !(0..row).any(|earlier| all.precedes(row, earlier));
        let end = ends.entry(block.stream).or_insert(u64::from(block.stream) << 32);
        let gap = if draw.u32(..8) == 0 { draw.u64(..3 * PAGE) } else { 0 };
        (block.address, block.bytes) = (*end + gap, draw.u64(1..=shape.pages * PAGE));
        if shape.aligned {
            block.address = block.address.next_multiple_of(PAGE);
            block.bytes = block.bytes.next_multiple_of(PAGE);
        }
        *end = block.address + block.bytes;
        block.freed &= draw.u32(..100) >= shape.kept;
    })
}
