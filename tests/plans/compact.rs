//! Pools of many graphs whose captures were planned, compacted.
//!
//! Graphs are launched in the order of their captures, and some read what earlier ones have left, whose
//! outputs the host has freed by then or not. Each kernel checks what it reads.

use std::sync::Arc;

use crate::common::MIB;
use regraph::driver::{
    CaptureMode, ErrorKind, ExecutableHandle, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{Block, Config, Engine, Error, GraphId, PoolConfig, PoolId};
use regraph::graphs::Pool;
use regraph::plan::{Compacted, Options, Used, User};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

const PAGE: u64 = 2 * MIB;

/// A small generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

/// New pieces are as large as can be.
fn undivided() -> Options {
    Options::default().max_mappings(Some(1))
}

/// A block, and what its last kernel writes.
type Written = (Block, u64);

struct Made {
    graph: GraphId,
    executable: ExecutableHandle,
    /// Which blocks its kernels have written that live on after the capture, until they are freed.
    outputs: Vec<Written>,
    /// The graphs whose outputs it reads.
    sources: Vec<usize>,
}

struct Host {
    driver: Arc<SimDriver>,
    engine: Engine<Arc<SimDriver>>,
    pool: PoolId,
    s: StreamHandle,
    graphs: Vec<Option<Made>>,
    tag: u64,
}

impl Host {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let support = MemorySupport::Mapped { granularity: PAGE };
        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: 4096 * MIB, support }));
        let engine = Engine::new(driver.clone(), Config::default());
        let pool = engine.create_pool(PoolConfig::default().plan(options));
        let s = driver.create_stream().unwrap();
        Self { driver, engine, pool, s, graphs: Vec::new(), tag: 0 }
    }

    fn work(&mut self, inputs: &[Written], block: Block) -> Written {
        self.tag += 1;
        let of = |(block, tag): &Written| Tagged {
            address: block.address,
            bytes: block.bytes,
            tag: *tag,
        };
        let inputs: Vec<_> = inputs.iter().map(of).collect();
        let output = (block, self.tag);
        let work = Work { inputs: &inputs, outputs: &[of(&output)], ..Work::default() };
        self.driver.launch(self.s, work, false).unwrap();
        output
    }

    /// A chain of blocks, each read by what writes the next; the first reads outputs of other graphs once
    /// more at the end. The last `kept` are outputs.
    fn capture(&mut self, sizes: &[u64], kept: usize, sources: &[usize]) -> usize {
        self.driver.begin_capture(self.s, CaptureMode::Relaxed).unwrap();
        let capture = self.engine.begin_capture(self.pool, self.s).unwrap();
        let read = |graph: &usize| self.graphs[*graph].iter().flat_map(|it| it.outputs.clone());
        let read: Vec<Written> = sources.iter().flat_map(read).collect();
        let mut live: Vec<Written> = Vec::new();
        for &bytes in sizes {
            let block = self.engine.allocate(self.pool, bytes, self.s).unwrap();
            // What others have left is read after blocks of this graph were written.
            let inputs: Vec<_> = live.last().copied().into_iter().chain(read.clone()).collect();
            live.push(self.work(&inputs, block));
            if live.len() > kept.max(2) {
                self.engine.free(live.remove(0).0.id).unwrap();
            }
        }
        while live.len() > kept {
            self.engine.free(live.remove(0).0.id).unwrap();
        }
        let graph = self.driver.end_capture(self.s).unwrap();
        let report = self.engine.end_capture(capture, graph).unwrap();
        let executable = self.driver.instantiate(graph).unwrap();
        let sources = sources.to_vec();
        self.graphs.push(Some(Made { graph: report.graph, executable, outputs: live, sources }));
        self.graphs.len() - 1
    }

    fn drop_outputs(&mut self, graph: usize) {
        let outputs = self.graphs[graph].as_mut().map(|it| std::mem::take(&mut it.outputs));
        for (block, _) in outputs.into_iter().flatten() {
            self.engine.free(block.id).unwrap();
        }
    }

    /// Releases a graph with its readers.
    fn release(&mut self, graph: usize) {
        self.drop_outputs(graph);
        let Some(made) = self.graphs[graph].take() else { return };
        self.engine.release_graph(made.graph).unwrap();
        let reads = |it: &Option<Made>| it.as_ref().is_some_and(|it| it.sources.contains(&graph));
        let readers: Vec<_> =
            (0..self.graphs.len()).filter(|&it| reads(&self.graphs[it])).collect();
        readers.into_iter().for_each(|reader| self.release(reader));
    }

    /// Launches all graphs in the order of their captures.
    fn replay(&self) {
        for made in self.graphs.iter().flatten() {
            self.driver.replay(made.executable, self.s).unwrap();
        }
        self.driver.synchronize().expect("no graph met memory that was gone");
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
        self.require();
    }

    /// All outputs that live hold what was written last.
    fn require(&self) {
        for (block, tag) in self.graphs.iter().flatten().flat_map(|made| &made.outputs) {
            let tags = self.driver.read_tags(block.address, block.bytes).unwrap();
            assert!(tags.iter().all(|held| held == tag), "an output was overwritten");
        }
    }

    fn reserved(&self) -> u64 {
        let reserved = self.engine.pool_statistics(self.pool).unwrap().reserved;
        assert_eq!(reserved, self.driver.used_bytes());
        reserved
    }

    /// Compacts the pool between launches.
    fn compact(&self) -> u64 {
        // The first look marks how far streams are that freed blocks wait for.
        self.engine.excess_bytes(self.pool).unwrap();
        self.driver.complete_all();
        let excess = self.engine.excess_bytes(self.pool).unwrap();
        let before = self.reserved();
        let gone = self.engine.compact_pool(self.pool).unwrap();
        assert_eq!((gone, self.reserved()), (excess, before - excess));
        assert_eq!(self.engine.excess_bytes(self.pool).unwrap(), 0, "once is enough");
        self.require();
        gone
    }
}

#[test]
fn random_programs_with_many_graphs() {
    let (mut gone, mut graphs) = (0, 0);
    for seed in 0..60 {
        let mut draw = Draw(seed);
        let mut h = Host::with(if seed % 2 == 0 { Options::default() } else { undivided() });
        for _ in 0..40 {
            let some: Vec<_> = (0..h.graphs.len()).filter(|&it| h.graphs[it].is_some()).collect();
            let any = |draw: &mut Draw| some.get(draw.below(some.len().max(1) as u64) as usize);
            match draw.below(10) {
                0..=3 => {
                    let sizes: Vec<u64> = (0..1 + draw.below(6))
                        .map(|_| (1 + draw.below(24)) * PAGE / 2 + draw.below(2) * 700)
                        .collect();
                    let sources: Vec<_> =
                        any(&mut draw).copied().into_iter().filter(|_| seed % 3 > 0).collect();
                    h.capture(&sizes, draw.below(3) as usize, &sources);
                    graphs += 1;
                }
                4 | 5 => any(&mut draw).into_iter().for_each(|&it| h.drop_outputs(it)),
                6 => any(&mut draw).into_iter().for_each(|&it| h.release(it)),
                7 => h.replay(),
                _ => {
                    h.replay();
                    gone += u64::from(h.compact() > 0);
                    h.replay();
                }
            }
        }
        h.replay();
        h.compact();
        h.replay();
        (0..h.graphs.len()).for_each(|graph| h.release(graph));
        h.driver.complete_all();
        h.engine.empty_cache().unwrap();
        assert_eq!(h.reserved(), 0);
    }
    assert!(gone > 50, "{gone} of {graphs}");
}

/// Graphs of ever other sizes, where none has live outputs.
fn sizes() -> [Vec<u64>; 4] {
    [vec![9, 5, 14], vec![3, 20, 7], vec![8, 8, 8, 8], vec![23, 2]]
        .map(|sizes| sizes.into_iter().map(|pages: u64| pages * PAGE).collect())
}

#[test]
fn what_is_left_of_any_graphs_is_what_the_largest_of_them_needs() {
    let alone = |sizes: &[u64]| {
        let mut h = Host::new();
        h.capture(sizes, 0, &[]);
        h.reserved()
    };
    let alone = sizes().map(|sizes| alone(&sizes));
    for order in 0..24 {
        let mut left = vec![0, 1, 2, 3];
        let order: Vec<usize> = [(24, 4), (6, 3), (2, 2), (1, 1)]
            .map(|(each, n)| left.remove(order % each * n / each))
            .to_vec();
        for gone in 0..4 {
            let mut h = Host::new();
            for &graph in &order {
                h.capture(&sizes()[graph], 0, &[]);
            }
            h.release(gone);
            h.compact();
            h.replay();
            let rest = order.iter().enumerate().filter(|(at, _)| *at != gone);
            let most = rest.map(|(_, graph)| alone[*graph]).max().unwrap();
            assert_eq!(h.reserved(), most, "{order:?} without the one at {gone}");
        }
    }
}

#[test]
fn a_freed_output_that_a_later_graph_reads_is_kept_from_it() {
    let mut h = Host::new();
    let large = h.capture(&[40 * PAGE], 0, &[]);
    let source = h.capture(&[6 * PAGE], 1, &[]);
    h.capture(&[10 * PAGE, 30 * PAGE, 20 * PAGE], 0, &[source]);
    h.drop_outputs(source);
    h.capture(&[6 * PAGE, 30 * PAGE], 0, &[]);
    h.release(large);
    h.replay();
    h.compact();
    h.replay();
    assert_eq!(h.reserved(), (6 + 10 + 30 + 20) * PAGE);
}

#[test]
fn graphs_of_captures_beside_each_other_share_nothing() {
    let mut h = Host::new();
    let other = h.driver.create_stream().unwrap();
    h.driver.begin_capture(other, CaptureMode::Relaxed).unwrap();
    let beside = h.engine.begin_capture(h.pool, other).unwrap();
    h.capture(&[5 * PAGE], 0, &[]);
    let block = h.engine.allocate(h.pool, 7 * PAGE, other).unwrap();
    h.driver.launch(other, Work::default(), false).unwrap();
    h.engine.free(block.id).unwrap();
    assert!(matches!(h.engine.compact_pool(h.pool), Err(Error::PoolBusy { captures: 1, .. })));
    let graph = h.driver.end_capture(other).unwrap();
    h.engine.end_capture(beside, graph).unwrap();
    assert_eq!((h.compact(), h.reserved()), (0, 12 * PAGE));
}

#[test]
fn suspended_pools_and_unknown_ones_are_refused() {
    let mut h = Host::new();
    h.capture(&[5 * PAGE], 0, &[]);
    h.engine.suspend_pool(h.pool).unwrap();
    assert!(matches!(h.engine.compact_pool(h.pool), Err(Error::PoolSuspended { .. })));
    assert!(matches!(h.engine.excess_bytes(h.pool), Err(Error::PoolSuspended { .. })));
    h.engine.resume_pool(h.pool).unwrap();
    let empty = h.engine.create_pool(PoolConfig::default());
    assert_eq!(h.engine.compact_pool(empty).unwrap(), 0);
    h.engine.destroy_pool(empty).unwrap();
    assert!(matches!(h.engine.compact_pool(empty), Err(Error::UnknownPool { .. })));
}

/// Compacts a pool with the n-th such call failing; false once it no longer makes so many.
fn fails(call: Call, n: u64, twice: bool) -> bool {
    let mut h = Host::with(undivided());
    for (sizes, kept) in sizes().iter().zip([0, 1, 0, 1]) {
        h.capture(sizes, kept, &[]);
    }
    h.release(3);
    h.drop_outputs(1);
    h.capture(&[4 * PAGE, 11 * PAGE, PAGE], 1, &[]);
    h.replay();
    let (before, calls) = (h.reserved(), h.driver.calls(call));
    match twice {
        false => h.driver.fail_nth(call, n, ErrorKind::InvalidValue),
        // From there on, until the pool has told.
        true => h.driver.lose_device_at(n, ErrorKind::InvalidValue),
    }
    let done = h.engine.compact_pool(h.pool);
    let reached = h.driver.calls(call) - calls > n;
    h.driver.forget_failures();
    let suspended = h.engine.is_suspended(h.pool).unwrap();
    assert!(done.is_err() || !suspended);
    if suspended {
        h.engine.resume_pool(h.pool).unwrap();
    } else {
        h.require();
    }
    h.replay();
    h.engine.empty_cache().unwrap();
    assert!(h.reserved() <= before);
    h.compact();
    h.replay();
    if twice {
        done.is_err()
    } else {
        reached
    }
}

#[test]
fn every_call_may_fail() {
    let calls = [Call::Unmap, Call::Release, Call::Create, Call::Map, Call::SetAccess];
    let mut made = 0;
    for call in calls {
        let mut n = 0;
        while fails(call, n, false) {
            n += 1;
        }
        made += n;
    }
    let mut n = 0;
    while fails(Call::Unmap, n, true) {
        n += 1;
    }
    assert!(made > 10 && n > 10, "{made}, {n}");
}

#[test]
fn a_pool_waits_for_its_graphs() {
    let h = Host::new();
    let engine = Arc::new(Engine::new(h.driver.clone(), Config::default()));
    let pool = Pool::new(&engine, PoolConfig::default().plan(Options::default()));
    assert_eq!((pool.excess_bytes().unwrap(), pool.compact().unwrap()), (0, 0));
    pool.suspend().unwrap();
    assert!(pool.compact().is_err() && pool.is_suspended());
    pool.resume().unwrap();
}

#[test]
fn each_graph_has_what_it_had_and_no_byte_twice() {
    for seed in 0..2000 {
        let mut draw = Draw(seed);
        let users: Vec<User> = (1..=1 + draw.below(6))
            .map(|bound| {
                let piece = |draw: &mut Draw| Used {
                    bytes: 1 + draw.below(40),
                    freed: (draw.below(3) == 0).then(|| bound + 1 + draw.below(5)),
                };
                User { bound, pieces: (0..draw.below(6)).map(|_| piece(&mut draw)).collect() }
            })
            .collect();
        let found = Compacted::new(&users);
        let sum = |user: &User| user.pieces.iter().map(|it| it.bytes).sum::<u64>();
        let most = users.iter().map(sum).max().unwrap();
        assert!(found.bytes() >= most);
        if users.iter().all(|user| user.pieces.iter().all(|it| it.freed.is_none())) {
            assert_eq!(found.bytes(), most);
        }
        // By piece: who lies there, in order.
        let mut here: Vec<Vec<(u64, Option<u64>)>> = vec![Vec::new(); found.pieces.len()];
        for (user, parts) in users.iter().zip(&found.parts) {
            for (own, parts) in user.pieces.iter().zip(parts) {
                assert_eq!(own.bytes, parts.iter().map(|&it| found.pieces[it]).sum::<u64>());
                parts.iter().for_each(|&it| here[it].push((user.bound, own.freed)));
            }
        }
        for here in here {
            assert!(!here.is_empty(), "memory that no graph uses");
            for (at, &(bound, freed)) in here.iter().enumerate() {
                for &(earlier, was) in &here[..at] {
                    assert!(earlier < bound, "a graph uses a piece twice");
                    assert!(was.is_none_or(|was| was <= bound), "an output lived");
                    assert!(freed.is_none() || was.is_some(), "an earlier graph overwrites it");
                }
            }
        }
    }
}
