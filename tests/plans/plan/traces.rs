//! The recorded captures, as lifetimes at planned addresses.

use std::collections::HashMap;

use regraph::BlockNumber;
use regraph_plan::lifetimes::{Lifetime, Lifetimes};
use regraph_trace::Operation;

pub const PAGE: u64 = 2 << 20;

/// What is known to be completed: of each chain, how many first nodes.
type Point = Vec<u32>;

fn raise(point: &mut Point, other: &[u32]) {
    for (own, other) in point.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

/// The points behind all nodes of a trace: each goes on with a chain that ends in a node it comes after, or begins one.
fn points(operations: &[Operation]) -> Vec<Point> {
    let mut after = Vec::new();
    let mut terminals: HashMap<u16, Vec<u32>> = HashMap::new();
    for operation in operations {
        match operation {
            Operation::Node { after: nodes, programmatic, .. } => {
                assert!(programmatic.is_empty());
                after.push(nodes.clone());
            }
            Operation::Terminals { stream, nodes } => {
                terminals.insert(*stream, nodes.clone());
            }
            Operation::Kernel { stream, programmatic, .. } => {
                assert!(!programmatic);
                let node = after.len() as u32;
                after.push(terminals.insert(*stream, vec![node]).unwrap_or_default());
            }
            Operation::Wait { stream, on } => {
                let others = terminals.get(on).cloned().unwrap_or_default();
                terminals.entry(*stream).or_default().extend(others);
            }
            _ => {}
        }
    }
    let mut tails: Vec<usize> = Vec::new();
    let mut chains = Vec::new();
    for (node, nodes) in after.iter().enumerate() {
        let chain = tails.iter().position(|tail| nodes.contains(&(*tail as u32)));
        let chain = chain.unwrap_or_else(|| {
            tails.push(node);
            tails.len() - 1
        });
        tails[chain] = node;
        chains.push(chain);
    }
    let mut points: Vec<Point> = Vec::new();
    for (node, nodes) in after.iter().enumerate() {
        let mut point = vec![0; tails.len()];
        for before in nodes {
            raise(&mut point, &points[*before as usize]);
        }
        point[chains[node]] += 1;
        points.push(point);
    }
    points
}

struct Open {
    bytes: u64,
    stream: u16,
    known: Point,
    uses: Vec<u16>,
    late: HashMap<u16, Point>,
    needed: Option<Point>,
}

/// The blocks of at least 1 MiB of a recorded capture. Each stream has addresses of its own, one
/// block behind the other; a block begins on the page where the last ended only if that saves a page
/// and it might not have the last one's memory.
pub fn lifetimes(name: &str) -> Lifetimes {
    let trace = crate::device::trace(name);
    let points = points(trace.operations());
    let chains = points.first().map_or(0, Vec::len);
    let mut terminals: HashMap<u16, Point> = HashMap::new();
    let at = |terminals: &HashMap<u16, Point>, stream: u16| {
        terminals.get(&stream).cloned().unwrap_or_else(|| vec![0; chains])
    };
    let mut blocks: Vec<Open> = Vec::new();
    let mut kernels = 0;
    for operation in trace.operations() {
        match operation {
            Operation::Node { .. } => kernels += 1,
            Operation::Kernel { stream, .. } => {
                terminals.insert(*stream, points[kernels].clone());
                kernels += 1;
            }
            Operation::Wait { stream, on } => {
                let mut point = at(&terminals, *stream);
                raise(&mut point, &at(&terminals, *on));
                terminals.insert(*stream, point);
            }
            Operation::Terminals { stream, nodes } => {
                let mut point = vec![0; chains];
                nodes.iter().for_each(|node| raise(&mut point, &points[*node as usize]));
                terminals.insert(*stream, point);
            }
            Operation::Alloc { id, bytes, stream } => {
                assert_eq!(*id as usize, blocks.len());
                blocks.push(Open {
                    bytes: bytes.next_multiple_of(512),
                    stream: *stream,
                    known: at(&terminals, *stream),
                    uses: vec![*stream],
                    late: HashMap::new(),
                    needed: None,
                });
            }
            Operation::Use { id, stream } => blocks[*id as usize].uses.push(*stream),
            Operation::LastUse { id, stream } => {
                blocks[*id as usize].late.insert(*stream, at(&terminals, *stream));
            }
            Operation::Free { id } => {
                let block = &mut blocks[*id as usize];
                let mut needed = block.known.clone();
                for stream in &block.uses {
                    let now = at(&terminals, *stream);
                    raise(&mut needed, block.late.get(stream).unwrap_or(&now));
                }
                block.needed = Some(needed);
            }
            Operation::Begin { .. } | Operation::End {} => {}
        }
    }
    place(&blocks, chains)
}

fn place(blocks: &[Open], chains: usize) -> Lifetimes {
    let mut lifetimes = Lifetimes::new(chains);
    let mut ends: HashMap<u16, (u64, Point)> = HashMap::new();
    for (number, block) in blocks.iter().enumerate().filter(|(_, block)| block.bytes >= 1 << 20) {
        let never = vec![u32::MAX; chains];
        let needed = block.needed.as_ref().unwrap_or(&never);
        let base = (u64::from(block.stream) + 1) << 40;
        let (pointer, last) = ends.get(&block.stream).cloned().unwrap_or((base, vec![0; chains]));
        let aligned = pointer.next_multiple_of(PAGE);
        let end = (pointer + block.bytes).next_multiple_of(PAGE);
        let saves = end < aligned + block.bytes.next_multiple_of(PAGE);
        let proven = last.iter().zip(&block.known).all(|(needed, known)| needed <= known);
        let address = if saves && !proven { pointer } else { aligned };
        ends.insert(block.stream, (address + block.bytes, needed.clone()));
        let mut lifetime = Lifetime::new(
            BlockNumber(number as u64),
            (address, block.bytes),
            u32::from(block.stream),
            block.needed.is_some(),
        );
        lifetime.worked = block.needed.as_ref() != Some(&block.known);
        lifetimes.push(lifetime, &block.known, needed);
    }
    lifetimes
}
