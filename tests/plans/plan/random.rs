//! Random captures, as lifetimes at addresses.

use fastrand::Rng;
use regraph::BlockNumber;
use regraph_plan::lifetimes::{Lifetime, Lifetimes};

/// The page of random captures, in bytes.
pub const PAGE: u64 = 64;

/// What a random capture is like.
#[derive(Clone, Debug)]
pub struct Shape {
    pub seed: u64,
    pub streams: usize,
    pub steps: usize,
    /// The most pages of a block.
    pub pages: u64,
    /// Whether blocks begin and end on pages.
    pub aligned: bool,
    /// How many blocks of a hundred are kept.
    pub kept: u32,
}

struct Open {
    stream: usize,
    place: (u64, u64),
    known: Vec<u32>,
    uses: Vec<usize>,
    needed: Option<Vec<u32>>,
    /// How many nodes each stream had at its allocation.
    nodes: Vec<u32>,
    /// Whether any stream that used it launched anything since.
    worked: bool,
}

fn raise(point: &mut [u32], other: &[u32]) {
    for (own, other) in point.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

/// A capture: streams launch, wait for each other, and allocate, use and free blocks.
pub fn lifetimes(shape: &Shape) -> Lifetimes {
    let mut random = Rng::with_seed(shape.seed);
    let streams = shape.streams;
    let mut clocks = vec![vec![0; streams]; streams];
    let mut ends: Vec<u64> = (0..streams as u64).map(|stream| stream << 32).collect();
    let mut blocks: Vec<Open> = Vec::new();
    let mut live: Vec<usize> = Vec::new();
    for _ in 0..shape.steps {
        let stream = random.usize(..streams);
        match random.u32(..100) {
            0..35 => clocks[stream][stream] += 1,
            35..45 => {
                let other = clocks[random.usize(..streams)].clone();
                raise(&mut clocks[stream], &other);
            }
            45..70 => {
                let most = shape.pages * PAGE;
                let bytes = random.u64(1..=most);
                let gap = if random.u32(..8) == 0 { random.u64(..3 * PAGE) } else { 0 };
                let mut address = ends[stream] + gap;
                let mut end = address + bytes;
                if shape.aligned {
                    address = address.next_multiple_of(PAGE);
                    end = address + bytes.next_multiple_of(PAGE);
                }
                ends[stream] = end;
                live.push(blocks.len());
                blocks.push(Open {
                    stream,
                    place: (address, end - address),
                    known: clocks[stream].clone(),
                    nodes: nodes(&clocks),
                    uses: vec![stream],
                    worked: true,
                    needed: None,
                });
            }
            70..75 if !live.is_empty() => {
                // Another stream uses a block, behind its allocation.
                let block = &mut blocks[live[random.usize(..live.len())]];
                raise(&mut clocks[stream], &block.known);
                clocks[stream][stream] += 1;
                block.uses.push(stream);
            }
            _ if !live.is_empty() => {
                let block = live.swap_remove(random.usize(..live.len()));
                if random.u32(..100) >= shape.kept {
                    let mut needed = blocks[block].known.clone();
                    for stream in &blocks[block].uses {
                        raise(&mut needed, &clocks[*stream]);
                    }
                    blocks[block].needed = Some(needed);
                    let (before, now) = (&blocks[block].nodes, nodes(&clocks));
                    let gained = |stream: &usize| now[*stream] > before[*stream];
                    blocks[block].worked = blocks[block].uses.iter().any(gained);
                }
            }
            _ => {}
        }
    }
    let mut lifetimes = Lifetimes::new(streams);
    for (number, block) in blocks.iter().enumerate() {
        let mut lifetime = Lifetime::new(
            BlockNumber(number as u64),
            block.place,
            block.stream as u32,
            block.needed.is_some(),
        );
        lifetime.worked = block.worked;
        lifetimes.push(lifetime, &block.known, block.needed.as_ref().unwrap_or(&block.known));
    }
    lifetimes
}

/// How many nodes each stream has launched.
fn nodes(clocks: &[Vec<u32>]) -> Vec<u32> {
    clocks.iter().enumerate().map(|(stream, clock)| clock[stream]).collect()
}
