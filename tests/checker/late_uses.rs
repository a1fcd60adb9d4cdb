//! Uses later than was recorded are found where nodes' parameters show them, and nothing else is told.

use std::sync::Arc;

use crate::common::{bench, Bench, MIB};
use crate::device::trace;
use proptest::prelude::*;
use regraph::driver::{HostApi, NodeHandle, NodeKind, StreamHandle};
use regraph::engine::{Block, Config, Error};
use regraph::settings::Programmatic;
use regraph::BlockNumber;
use regraph_check::uses::LateUse;
use regraph_cli::replay::{replay, Options};
use regraph_lab::sweep::{Sizes, Workload};
use regraph_paths::Paths;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

fn finding() -> Bench {
    bench(Config::default().find_late_uses(true))
}

fn tagged(address: u64) -> Tagged {
    Tagged { address, bytes: 512, tag: 1 }
}

impl Bench {
    /// Launches a kernel with these addresses among its parameters.
    fn touch(&self, stream: StreamHandle, addresses: &[u64]) -> NodeHandle {
        let outputs: Vec<Tagged> = addresses.iter().copied().map(tagged).collect();
        let work = Work { outputs: &outputs, ..Work::default() };
        self.driver.launch(stream, work, false).unwrap();
        self.driver.terminals(stream).unwrap()[0].node
    }
}

fn found(uses: &[LateUse]) -> Vec<(NodeHandle, BlockNumber)> {
    uses.iter().map(|late| (late.node, late.block.block)).collect()
}

fn name(node: NodeHandle, block: Block) -> (NodeHandle, BlockNumber) {
    (node, block.id.number())
}

#[test]
fn a_use_behind_the_last_use_is_found() {
    let (b, [s, t], capture) = finding().capturing();
    let block = b.allocate(s);
    b.touch(s, &[block.address]);
    b.driver.wait(t, s).unwrap();
    b.touch(t, &[block.address]);
    b.engine.record_use(block.id, t).unwrap();
    let late = b.touch(t, &[block.address + 1536]);
    b.engine.free(block.id).unwrap();
    b.driver.wait(s, t).unwrap();
    let report = b.finish(s, capture);
    assert_eq!(found(&report.late_uses), [name(late, block)]);
    let late = &report.late_uses[0];
    assert_eq!((late.kind, late.kernel.as_deref()), (Some(NodeKind::KERNEL), None));
    assert_eq!((late.address, late.offset), (block.address + 1536, 1536));
    let streams: Vec<_> = late.markers.iter().map(|it| (it.stream, it.last_use)).collect();
    assert_eq!(streams, [(s, false), (t, true)]);
    let text = late.to_string();
    for part in [
        &format!("node {:#x} (a kernel)", late.node.bits()),
        &format!("1536 bytes into block {} at", block.id.number().0),
        &format!("stream {:#x} at record_use", t.bits()),
        "record_stream is missing",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_right_one_of_many_blocks_at_an_address_is_named() {
    let (b, [s, t], capture) = finding().capturing();
    b.launch(s);
    let mut late = Vec::new();
    for step in 0..60 {
        let block = b.allocate(s);
        b.touch(s, &[block.address]);
        if step % 20 == 7 {
            b.driver.wait(t, s).unwrap();
            late.push(name(b.touch(t, &[block.address + 512]), block));
            b.launch(s);
        }
        b.engine.free(block.id).unwrap();
    }
    b.driver.wait(s, t).unwrap();
    assert_eq!(found(&b.finish(s, capture).late_uses), late);
    assert_eq!(b.reserved(), 4 * MIB);
}

#[test]
fn a_user_of_a_younger_block_is_believed_to_be_one() {
    let (b, [s, t], capture) = finding().capturing();
    let block = b.allocate(s);
    b.touch(s, &[block.address]);
    b.driver.wait(t, s).unwrap();
    let late = b.touch(t, &[block.address]);
    b.engine.free(block.id).unwrap();
    // Its allocation comes before the node, which no look has seen yet.
    let next = b.allocate(s);
    assert_eq!(next.address, block.address);
    b.engine.free(next.id).unwrap();
    b.driver.wait(s, t).unwrap();
    let report = b.finish(s, capture);
    assert_eq!(found(&report.late_uses), [name(late, next)]);
    assert_eq!(report.late_uses[0].before, Some(block.id.number()));
    let text = report.late_uses[0].to_string();
    assert!(text.contains(&format!("(or into block {}", block.id.number().0)), "{text}");
}

#[test]
fn addresses_from_elsewhere_have_no_block() {
    let (b, [s, other]) = finding().with_streams();
    let outside = b.allocate(other);
    let capture = b.begin(s);
    let block = b.allocate(s);
    b.touch(s, &[outside.address, block.address, 0, 7 << 40]);
    b.engine.free(block.id).unwrap();
    b.touch(s, &[outside.address, 1 << 50, !511]);
    assert!(b.finish(s, capture).late_uses.is_empty());
}

#[test]
fn a_late_use_is_refused_where_that_is_wanted() {
    let program = |config: Config| {
        let (b, [s], capture) = bench(config).capturing();
        let block = b.allocate(s);
        b.engine.free(block.id).unwrap();
        b.touch(s, &[block.address]);
        b.touch(s, &[block.address]);
        let result = b.try_finish(s, capture);
        (b, result)
    };
    let config = Config::default().find_late_uses(true);
    let (b, refused) = program(config.clone().refuse_late_uses(true));
    let Err(error @ Error::LateUse(_)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("(and 1 more)"), "{error}");
    // Rolled back: no graph holds the pool.
    b.engine.destroy_pool(b.pool).unwrap();

    assert_eq!(program(config.clone()).1.unwrap().late_uses.len(), 2);
    let unchecked = config.check(false);
    assert!(program(unchecked.clone()).1.unwrap().late_uses.is_empty());
    assert_eq!(program(unchecked.journal(true)).1.unwrap().late_uses.len(), 2);
    let off = Config::default().find_late_uses(false).refuse_late_uses(true);
    assert!(program(off).1.unwrap().late_uses.is_empty());
}

#[test]
fn there_is_a_most_that_is_told() {
    let (b, [s], capture) = finding().capturing();
    let block = b.allocate(s);
    b.engine.free(block.id).unwrap();
    for _ in 0..300 {
        b.touch(s, &[block.address]);
    }
    assert_eq!(b.finish(s, capture).late_uses.len(), regraph_check::uses::MOST);
}

#[test]
fn correct_captures_have_no_late_uses() {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let config = Config::default().find_late_uses(true).refuse_late_uses(true);
    let options = Options { config, tags: true, ..Options::default() };
    for name in ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5"] {
        replay(&driver, &trace(name), &options).unwrap();
    }
    for seed in 0..3 {
        for workload in Workload::all(Sizes::Mixed, seed) {
            let workload = Workload { operations: workload.operations / 10, ..workload };
            replay(&driver, &workload.trace().unwrap(), &options).unwrap();
        }
    }
}

/// What a host of random programs remembers of a block.
struct Known {
    block: Block,
    bytes: u64,
    own: StreamHandle,
    allocation: Vec<NodeHandle>,
    /// Streams that were recorded, with their last use.
    uses: Vec<(StreamHandle, Option<Vec<NodeHandle>>)>,
    markers: Option<Vec<NodeHandle>>,
    /// Every node with an address in it.
    users: Vec<NodeHandle>,
    step: usize,
}

/// Runs a random program whose host breaks the rules with these odds, in percent, and answers what
/// was found, what must be, and what may be.
#[allow(clippy::type_complexity)]
fn random(
    steps: &[(u8, u8, u8, u8)],
    flawed: u8,
) -> (Vec<(NodeHandle, BlockNumber)>, Vec<(NodeHandle, BlockNumber)>, Vec<(NodeHandle, BlockNumber)>)
{
    let (b, streams) = finding().with_streams::<4>();
    let capture = b.begin(streams[0]);
    b.launch(streams[0]);
    for &stream in &streams[1..] {
        b.driver.wait(stream, streams[0]).unwrap();
    }
    let nodes = |stream| {
        let terminals = b.driver.terminals(stream).unwrap();
        terminals.iter().map(|terminal| terminal.node).collect::<Vec<_>>()
    };
    let mut blocks: Vec<Known> = Vec::new();
    for (step, &(kind, stream, which, chance)) in steps.iter().enumerate() {
        let stream = streams[usize::from(stream) % 4];
        let wrong = chance % 100 < flawed;
        let live: Vec<usize> =
            (0..blocks.len()).filter(|&row| blocks[row].markers.is_none()).collect();
        let row = live.get(usize::from(which) % live.len().max(1)).copied();
        match (kind % 8, row) {
            (0 | 1, _) => {
                let bytes = [1, 2, 4][usize::from(which) % 3] * MIB;
                let block = b.engine.allocate(b.pool, bytes, stream).unwrap();
                blocks.push(Known {
                    block,
                    bytes,
                    own: stream,
                    allocation: nodes(stream),
                    uses: Vec::new(),
                    markers: None,
                    users: Vec::new(),
                    step,
                });
            }
            (2..=4, Some(row)) => {
                let known = &mut blocks[row];
                let unrecorded = !known.uses.iter().any(|used| used.0 == stream);
                if stream != known.own && unrecorded {
                    // A use on another stream comes after the allocation.
                    b.driver.wait(stream, known.own).unwrap();
                }
                let address = known.block.address + u64::from(chance) * 512;
                known.users.push(b.touch(stream, &[address]));
                if stream != known.own && !wrong {
                    b.engine.record_stream(known.block.id, stream).unwrap();
                    known.uses.retain(|used| used.0 != stream);
                    known.uses.push((stream, None));
                }
            }
            (5, Some(row)) => {
                let known = &mut blocks[row];
                if let Some(used) = known.uses.iter_mut().find(|used| used.1.is_none()) {
                    b.engine.record_use(known.block.id, used.0).unwrap();
                    used.1 = Some(nodes(used.0));
                    if wrong {
                        let late = b.touch(used.0, &[known.block.address]);
                        known.users.push(late);
                    }
                }
            }
            (6, Some(row)) => {
                let known = &mut blocks[row];
                let own = [(known.own, None)];
                let all = own.iter().chain(&known.uses);
                let ends =
                    all.flat_map(|used| used.1.clone().unwrap_or_else(|| nodes(used.0))).collect();
                known.markers = Some(ends);
                b.engine.free(known.block.id).unwrap();
                if wrong {
                    known.users.push(b.touch(known.own, &[known.block.address]));
                }
            }
            (7, _) => {
                let on = streams[usize::from(which) % 4];
                b.driver.wait(stream, on).unwrap();
            }
            _ => b.launch(stream),
        }
    }
    for &stream in &streams[1..] {
        b.driver.wait(streams[0], stream).unwrap();
    }
    b.launch(streams[0]);
    let graph = b.graph(streams[0]);
    let report = b.finish(streams[0], capture);

    let paths = Paths::of_graph(&*b.driver, graph, Programmatic::Deny);
    let (mut must, mut may) = (Vec::new(), Vec::new());
    for known in &blocks {
        let Some(markers) = &known.markers else { continue };
        for &node in &known.users {
            if markers.iter().any(|&marker| marker == node || paths.leads(node, marker)) {
                continue;
            }
            let late = name(node, known.block);
            may.push(late);
            // A node behind a younger block's allocation may be a user of that one.
            let shared = |it: &&Known| {
                let (low, high) = (it.block.address, known.block.address);
                low < high + known.bytes && high < low + it.bytes
            };
            let hidden = blocks.iter().filter(shared).any(|it| {
                known.step < it.step && it.allocation.iter().all(|&point| paths.leads(point, node))
            });
            if !hidden {
                must.push(late);
            }
        }
    }
    let mut told = found(&report.late_uses);
    for list in [&mut told, &mut must, &mut may] {
        list.sort_unstable();
        list.dedup();
    }
    (told, must, may)
}

fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8, u8)>> {
    proptest::collection::vec(any::<(u8, u8, u8, u8)>(), 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn hosts_that_keep_the_rules_are_not_accused(steps in steps()) {
        let (told, must, may) = random(&steps, 0);
        prop_assert!(told.is_empty() && must.is_empty() && may.is_empty(), "{told:?} {may:?}");
    }

    #[test]
    fn hosts_that_break_the_rules_are_found_out(steps in steps()) {
        let (told, must, may) = random(&steps, 12);
        prop_assume!(may.len() < regraph_check::uses::MOST);
        for late in &must {
            prop_assert!(told.contains(late), "missed {late:?}, told {told:?}");
        }
        for late in &told {
            prop_assert!(may.iter().any(|it| it.0 == late.0), "a false alarm: {late:?}, may {may:?}");
        }
    }
}
