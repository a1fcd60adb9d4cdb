//! Checkpoints of a pool, and going back to them.

use std::collections::BTreeMap;

use crate::common::{bench, bench_on, Bench, MIB};
use proptest::collection::vec;
use proptest::prelude::*;
use regraph::driver::{
    CaptureMode, ErrorKind, ExecutableHandle, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{
    Block, BlockId, Checkpoint, CheckpointRefusal, Config, Error, GraphId, PoolConfig, PoolRefusal,
    Spare,
};

use regraph::plan::Options;
use regraph::settings::Settings;
use regraph_sim::SimConfig;
use regraph_tagged::{Program, Tagged, Work};

fn checked() -> Config {
    Config::default().check(true).find_late_uses(false)
}

fn live(b: &Bench) -> Vec<(u64, u64)> {
    let live = b.engine.host().live_blocks(b.pool).unwrap();
    live.iter().map(|block| (block.address, block.bytes)).collect()
}

fn places(blocks: &[Block]) -> Vec<(u64, u64)> {
    blocks.iter().map(|block| (block.address, block.bytes)).collect()
}

/// Captures a graph: a temporary block and outputs that stay live.
fn capture(b: &Bench, stream: StreamHandle, outputs: usize) -> (GraphId, Vec<Block>) {
    let capture = b.begin(stream);
    let temporary = b.allocate(stream);
    b.launch(stream);
    let outputs = (0..outputs).map(|_| b.allocate(stream)).collect();
    b.launch(stream);
    b.engine.free(temporary.id).unwrap();
    (b.finish(stream, capture).graph, outputs)
}

#[test]
fn a_restoration_asks_the_driver_nothing_while_no_stream_captures() {
    let b = bench(checked());
    let [s] = b.streams();
    let (_, outputs) = capture(&b, s, 2);
    let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
    b.engine.free(outputs[0].id).unwrap();
    capture(&b, s, 2);
    let calls = b.driver.total_calls();
    b.engine.host().restore(b.pool, &checkpoint).unwrap();
    assert_eq!(b.driver.total_calls(), calls, "there is nothing that could fail");
}

/// What another pool has borrowed is live for as long as its owner has it.
#[test]
fn a_borrowed_block_is_not_freed_by_a_restoration() {
    let b = bench(checked());
    let [s] = b.streams();
    let eager = b.engine.create_pool(PoolConfig::default().takes_offers(true).name("eager"));
    let before = b.engine.host().checkpoint(b.pool).unwrap();
    let block = b.allocate(s);
    let with_block = b.engine.host().checkpoint(b.pool).unwrap();
    b.engine.free(block.id).unwrap();
    b.engine.host().set_spare(b.pool, Spare::Offered).unwrap();
    let borrowed = b.engine.allocate(eager, 4 * MIB, s).unwrap();
    assert_eq!(borrowed.address, block.address);
    assert_eq!(live(&b), []);
    assert_eq!(b.engine.host().checkpoint(b.pool).unwrap().blocks().count(), 0);
    let restored = b.engine.host().restore(b.pool, &before).unwrap();
    assert_eq!(places(&restored.freed), []);
    let refused = b.engine.host().restore(b.pool, &with_block);
    assert!(
        matches!(refused, Err(Error::Checkpoint { why: CheckpointRefusal::Gone { .. }, .. })),
        "{refused:?}"
    );
    // A capture of the lender's gets another place.
    let (_, outputs) = capture(&b, s, 1);
    assert!(outputs.iter().all(|it| it.address != borrowed.address));
    let refused = b.engine.host().suspend_discarding_all(b.pool);
    assert!(
        matches!(refused, Err(Error::Pool { why: PoolRefusal::HasBlocks { .. }, .. })),
        "{refused:?}"
    );
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("offered to pool \"eager\"; free them first"), "{text}");
    b.engine.free(borrowed.id).unwrap();
    b.driver.complete_all();
    b.engine.host().restore(b.pool, &with_block).unwrap();
    assert_eq!(live(&b), [(block.address, 4 * MIB)]);
}

#[test]
fn memory_that_went_back_to_the_driver_is_not_restored() {
    for expandable in [true, false] {
        let settings = Settings::default().expandable_segments(expandable);
        let b = bench(checked().settings(settings));
        let [s] = b.streams();
        let kept = b.engine.allocate(b.pool, 24 * MIB, s).unwrap();
        let gone = b.engine.allocate(b.pool, 24 * MIB, s).unwrap();
        let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
        b.engine.free(gone.id).unwrap();
        b.driver.complete_all();
        b.engine.mark_stream(s).unwrap();
        b.driver.complete_all();
        assert!(b.engine.empty_cache().unwrap().released > 0);
        match b.engine.host().restore(b.pool, &checkpoint) {
            Err(Error::Checkpoint { why: CheckpointRefusal::Gone { address, bytes }, .. }) => {
                assert_eq!((address, bytes), (gone.address, 24 * MIB));
            }
            found => panic!("{found:?}"),
        }
        assert_eq!(live(&b), places(&[kept]));
        b.engine.free(kept.id).unwrap();
    }
}

#[test]
fn pools_with_plans_or_without_caching_have_no_checkpoints() {
    let b = bench(checked());
    let [s] = b.streams();
    let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
    let planned = b.begin(s);
    b.engine.plans().plan_capture(planned, Some(Options::default())).unwrap();
    let block = b.allocate(s);
    b.launch(s);
    b.finish(s, planned);
    assert!(matches!(
        b.engine.host().checkpoint(b.pool),
        Err(Error::Checkpoint { why: CheckpointRefusal::NoWayBack, .. })
    ));
    let refused = b.engine.host().restore(b.pool, &checkpoint);
    assert!(
        matches!(refused, Err(Error::Checkpoint { why: CheckpointRefusal::NoWayBack, .. })),
        "{refused:?}"
    );
    assert_eq!(live(&b), places(&[block]));

    let b = bench(checked().settings(Settings::default().caching(false)));
    assert!(matches!(
        b.engine.host().checkpoint(b.pool),
        Err(Error::Checkpoint { why: CheckpointRefusal::NoWayBack, .. })
    ));
}

/// Where a stream is not known to be in no capture, nothing is restored; what the driver refuses then costs
/// no block.
#[test]
fn every_call_may_fail_while_a_pool_is_restored() {
    for kind in [ErrorKind::OutOfMemory, ErrorKind::InvalidValue] {
        for n in 0.. {
            let b = bench(checked());
            let [s, t] = b.streams();
            let (_, outputs) = capture(&b, s, 2);
            let eager = b.engine.allocate(b.pool, 700, s).unwrap();
            let before = b.driver.total_calls();
            let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
            assert_eq!(b.driver.total_calls(), before, "there is nothing that could fail");
            let all = places(&[eager, outputs[0], outputs[1]]);
            b.engine.free(outputs[0].id).unwrap();
            b.engine.free(eager.id).unwrap();
            let late = b.engine.allocate(b.pool, 3 * MIB, t).unwrap();
            b.engine.record_stream(late.id, s).unwrap();
            let other = b.engine.create_pool(PoolConfig::default());
            b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
            b.engine.begin_capture(other, t).unwrap();
            let picture = || {
                let blocks = b.engine.host().live_blocks(b.pool).unwrap();
                let figures = b.engine.pool_statistics(b.pool).unwrap();
                (b.engine.snapshot().unwrap().segments, blocks, figures)
            };
            let unchanged = picture();
            let before = b.driver.total_calls();
            b.driver.fail_any_nth(n, kind.clone());
            let refused = b.engine.host().restore(b.pool, &checkpoint);
            assert!(
                matches!(
                    refused,
                    Err(Error::Checkpoint { why: CheckpointRefusal::BlocksInCapture { .. }, .. })
                ),
                "{refused:?}"
            );
            assert_eq!(picture(), unchanged);
            assert_eq!(unchanged.1.len(), 2);
            b.driver.end_capture(t).unwrap();
            let under_way = b.engine.host().captures_of(t).unwrap();
            b.engine.abandon_capture(under_way[0]).unwrap();
            let restored = b.engine.host().restore(b.pool, &checkpoint).unwrap();
            let made = b.driver.total_calls() - before;
            b.driver.forget_failures();
            assert_eq!(restored.freed.len(), 2);
            let mut all = all;
            all.sort_unstable();
            assert_eq!(live(&b), all);
            if made <= n {
                assert!(n > 1, "two streams are asked where they are");
                break;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Eager {
        stream: usize,
        bytes: u64,
    },
    Free {
        block: usize,
    },
    Record {
        block: usize,
        stream: usize,
    },
    Launch {
        stream: usize,
    },
    /// Blocks, each with whether it is freed again, and an older block that is freed inside, first; whether
    /// the host tells of it before, and waits for all work then.
    Capture {
        stream: usize,
        blocks: Vec<(u64, bool)>,
        older: Option<usize>,
        expected: u8,
        accepted: bool,
    },
    Complete,
    EmptyCache,
    Take,
    Restore {
        checkpoint: usize,
    },
    Release {
        graph: usize,
    },
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![1..2000u64, 1..3 * MIB, Just(4 * MIB), Just(9 * MIB)]
}

fn steps() -> impl Strategy<Value = Step> {
    let blocks = vec((sizes(), any::<bool>()), 0..5);
    let capture = (0..3usize, blocks, any::<Option<u8>>(), 0..3u8, 0..5u8);
    prop_oneof![
        3 => (0..3usize, sizes()).prop_map(|(stream, bytes)| Step::Eager { stream, bytes }),
        4 => any::<prop::sample::Index>().prop_map(|it| Step::Free { block: it.index(64) }),
        1 => (0..64usize, 0..3usize).prop_map(|(block, stream)| Step::Record { block, stream }),
        1 => (0..3usize).prop_map(|stream| Step::Launch { stream }),
        4 => capture.prop_map(|(stream, blocks, older, expected, accepted)| Step::Capture {
            stream,
            blocks,
            older: older.map(usize::from),
            expected,
            accepted: accepted > 0,
        }),
        1 => Just(Step::Complete),
        1 => Just(Step::EmptyCache),
        3 => Just(Step::Take),
        4 => (0..64usize).prop_map(|checkpoint| Step::Restore { checkpoint }),
        1 => (0..64usize).prop_map(|graph| Step::Release { graph }),
    ]
}

/// The pool's live blocks, as a host knows them.
#[derive(Default)]
struct Model {
    live: BTreeMap<u64, (u64, BlockId)>,
}

impl Model {
    fn enter(&mut self, block: Block) {
        let end = block.address + block.bytes;
        let below = self.live.range(..end).next_back();
        if let Some((&address, &(bytes, _))) = below {
            assert!(address + bytes <= block.address, "{block:?} lies on a live block");
        }
        assert!(self.live.insert(block.address, (block.bytes, block.id)).is_none());
    }

    fn pick(&self, number: usize) -> Option<(u64, BlockId)> {
        let row = number % self.live.len().max(1);
        self.live.iter().nth(row).map(|(&address, &(_, id))| (address, id))
    }

    fn places(&self) -> Vec<(u64, u64)> {
        self.live.iter().map(|(&address, &(bytes, _))| (address, bytes)).collect()
    }
}

/// Blocks, figures and history agree with each other.
fn judge_history(b: &Bench) {
    let all = b.engine.statistics().unwrap().all;
    assert_eq!(
        all.reserved_bytes.current,
        all.active_bytes.current + all.inactive_split_bytes.current
    );
    let snapshot = b.engine.snapshot().unwrap();
    regraph_trace::snapshot::validate(&snapshot).unwrap();
    regraph_trace::snapshot::validate_history(&snapshot).unwrap();
}

fn run(support: MemorySupport, steps: Vec<Step>) {
    let device = SimConfig { total_bytes: 1 << 30, support };
    let b = bench_on(device, checked().settings(Settings::default().history(10_000)));
    let streams: [StreamHandle; 3] = b.streams();
    let mut model = Model::default();
    let mut checkpoints: Vec<(Checkpoint, Vec<(u64, u64)>)> = Vec::new();
    let mut graphs: Vec<GraphId> = Vec::new();
    for step in steps {
        match step {
            Step::Eager { stream, bytes } => {
                model.enter(b.engine.allocate(b.pool, bytes, streams[stream]).unwrap());
                b.launch(streams[stream]);
            }
            Step::Free { block } => {
                if let Some((address, id)) = model.pick(block) {
                    b.engine.free(id).unwrap();
                    model.live.remove(&address);
                }
            }
            Step::Record { block, stream } => {
                if let Some((_, id)) = model.pick(block) {
                    b.engine.record_stream(id, streams[stream]).unwrap();
                }
            }
            Step::Launch { stream } => b.launch(streams[stream]),
            Step::Capture { stream, blocks, older, expected, accepted } => {
                let stream = streams[stream];
                if expected > 0 {
                    b.engine.host().expect_capture(stream).unwrap();
                }
                if expected > 1 {
                    b.driver.complete_all();
                }
                let capture = b.begin(stream);
                b.launch(stream);
                if let Some((address, id)) = older.and_then(|older| model.pick(older)) {
                    b.engine.free(id).unwrap();
                    model.live.remove(&address);
                }
                for (bytes, stays) in blocks {
                    let block = b.engine.allocate(b.pool, bytes, stream).unwrap();
                    model.enter(block);
                    b.launch(stream);
                    if !stays {
                        b.engine.free(block.id).unwrap();
                        model.live.remove(&block.address);
                    }
                }
                let last = b.engine.allocate(b.pool, 2 * MIB, stream).unwrap();
                model.enter(last);
                if accepted {
                    graphs.push(b.finish(stream, capture).graph);
                } else {
                    b.driver.end_capture(stream).unwrap();
                    b.engine.abandon_capture(capture).unwrap();
                }
            }
            Step::Complete => b.driver.complete_all(),
            Step::EmptyCache => {
                b.engine.empty_cache().unwrap();
            }
            Step::Take => {
                checkpoints.push((b.engine.host().checkpoint(b.pool).unwrap(), model.places()));
            }
            Step::Restore { checkpoint } => {
                let row = checkpoint % checkpoints.len().max(1);
                let Some((checkpoint, then)) = checkpoints.get(row) else { continue };
                match b.engine.host().restore(b.pool, checkpoint) {
                    Ok(restored) => {
                        assert_eq!(places(&restored.freed), model.places());
                        let names = model.live.values().map(|&(_, id)| id);
                        assert!(names.eq(restored.freed.iter().map(|block| block.id)));
                        model.live.clear();
                        for block in restored.live {
                            model.enter(block);
                        }
                        assert_eq!(&model.places(), then);
                    }
                    Err(Error::Checkpoint { why: CheckpointRefusal::Gone { .. }, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Release { graph } => {
                if !graphs.is_empty() {
                    b.driver.complete_all();
                    let row = graph % graphs.len();
                    b.engine.release_graph(graphs.swap_remove(row)).unwrap();
                }
            }
        }
        assert_eq!(live(&b), model.places());
        let figures = b.engine.pool_statistics(b.pool).unwrap();
        assert_eq!(figures.blocks, model.live.len());
        assert_eq!(figures.requested, model.live.values().map(|it| it.0).sum::<u64>());
        assert!(figures.allocated <= figures.active && figures.active <= figures.reserved);
        judge_history(&b);
    }
    // All of it can go.
    for (_, (_, id)) in std::mem::take(&mut model.live) {
        b.engine.free(id).unwrap();
    }
    b.driver.complete_all();
    for graph in graphs {
        b.engine.release_graph(graph).unwrap();
    }
    for _ in 0..3 {
        b.driver.complete_all();
        b.engine.empty_cache().unwrap();
    }
    b.engine.destroy_pool(b.pool).unwrap();
    assert_eq!(b.driver.used_bytes(), 0);
}

/// A block that a tree's graphs write and read.
#[derive(Clone, Copy, Debug)]
struct Output {
    block: Block,
    tag: u64,
}

impl Output {
    fn tagged(&self) -> Tagged {
        Tagged { address: self.block.address, bytes: self.block.bytes, tag: self.tag }
    }
}

/// A graph of a tree.
struct Node {
    parent: Option<usize>,
    executable: ExecutableHandle,
    /// Copied into the pool before each launch.
    input: Output,
    /// What is live behind it.
    live: Vec<Output>,
    checkpoint: Checkpoint,
}

/// What a graph of a tree does.
#[derive(Clone, Debug)]
struct Plan {
    /// Behind which graph it is recorded: one of those before it, or none.
    parent: usize,
    input: u64,
    /// Blocks: how large, on which of two streams, and whether they outlive the graph.
    blocks: Vec<(u64, bool, bool)>,
    /// Which of the parent's outputs it frees.
    frees: usize,
    /// Whether the copy of its input has completed when its capture begins.
    completes: bool,
}

fn plans() -> impl Strategy<Value = Plan> {
    let sizes = || prop_oneof![1..2000u64, 1..4 * MIB].prop_map(|bytes| bytes.next_multiple_of(8));
    let blocks = vec((sizes(), any::<bool>(), prop::bool::weighted(0.3)), 1..8);
    let plan = (0..64usize, sizes(), blocks, 0..8usize, prop::bool::weighted(0.8));
    plan.prop_map(|(parent, input, blocks, frees, completes)| Plan {
        parent,
        input,
        blocks,
        frees,
        completes,
    })
}

struct Tree {
    b: Bench,
    streams: [StreamHandle; 2],
    root: Checkpoint,
    nodes: Vec<Node>,
    tags: u64,
}

impl Tree {
    fn output(&mut self, bytes: u64, stream: StreamHandle) -> Output {
        let block = self.b.engine.allocate(self.b.pool, bytes, stream).unwrap();
        self.tags += 1;
        Output { block, tag: self.tags }
    }

    fn launch(&self, stream: StreamHandle, inputs: &[Output], outputs: &[Output]) {
        let [inputs, outputs] =
            [inputs, outputs].map(|all| all.iter().map(Output::tagged).collect::<Vec<_>>());
        let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
        self.b.driver.launch(stream, work, false).unwrap();
    }

    /// Goes back to the end of a graph, or to the root: what lived there has new names.
    fn go_back(&mut self, parent: Option<usize>) -> Vec<Output> {
        let checkpoint = parent.map_or(&self.root, |parent| &self.nodes[parent].checkpoint);
        let restored = self.b.engine.host().restore(self.b.pool, checkpoint).unwrap();
        let then = parent.map_or(&[][..], |parent| &self.nodes[parent].live);
        assert_eq!(restored.live.len(), then.len());
        let renamed = restored.live.iter().map(|&block| {
            let known = then.iter().find(|it| it.block.address == block.address).unwrap();
            Output { block, ..*known }
        });
        renamed.collect()
    }

    fn record(&mut self, plan: &Plan) {
        let parent = plan.parent.checked_rem(self.nodes.len() + 1).unwrap_or(0).checked_sub(1);
        let mut live = self.go_back(parent);
        let [s, t] = self.streams;
        let input = self.output(plan.input, s);
        self.launch(s, &[], &[input]);
        self.b.engine.host().expect_capture(s).unwrap();
        if plan.completes {
            self.b.driver.complete_all();
        }
        let capture = self.b.begin(s);
        let mut temporary: Vec<Output> = Vec::new();
        self.launch(s, &[&[input], &live[..]].concat(), &[]);
        self.b.engine.free(input.block.id).unwrap();
        if plan.frees < live.len() {
            // Of the parent's; a block of this graph may have its place.
            let old = live.swap_remove(plan.frees);
            self.b.engine.free(old.block.id).unwrap();
        }
        self.b.driver.wait(t, s).unwrap();
        for &(bytes, second, lasts) in &plan.blocks {
            let stream = self.streams[usize::from(second)];
            let output = self.output(bytes, stream);
            self.launch(stream, &[], &[output]);
            // Each reads it, the other one behind an event.
            let other = self.streams[usize::from(!second)];
            self.b.driver.wait(other, stream).unwrap();
            self.b.engine.record_stream(output.block.id, other).unwrap();
            self.launch(other, &[output], &[]);
            self.launch(stream, &[output], &[]);
            if lasts {
                live.push(output);
            } else {
                temporary.push(output);
            }
            if temporary.len() > 2 {
                let old = temporary.remove(0);
                self.b.engine.free(old.block.id).unwrap();
            }
        }
        self.b.driver.wait(s, t).unwrap();
        self.launch(s, &[&temporary[..], &live[..]].concat(), &[]);
        for old in temporary {
            self.b.engine.free(old.block.id).unwrap();
        }
        let graph = self.b.graph(s);
        self.b.engine.end_capture(capture, graph).unwrap();
        let graph = self.b.driver.end_capture(s).unwrap();
        let executable = self.b.driver.instantiate(graph).unwrap();
        let checkpoint = self.b.engine.host().checkpoint(self.b.pool).unwrap();
        assert_eq!(checkpoint.blocks().len(), live.len());
        self.nodes.push(Node { parent, executable, input, live, checkpoint });
    }

    /// Launches the graphs from the root to one of them, as the host does whose program takes that path.
    fn replay(&self, last: usize) {
        let parents = std::iter::successors(Some(last), |&node| self.nodes[node].parent);
        let mut path: Vec<usize> = parents.collect();
        path.reverse();
        let [s, _] = self.streams;
        for node in path {
            let Node { executable, input, ref live, .. } = self.nodes[node];
            self.launch(s, &[], &[input]);
            self.b.driver.replay(executable, s).unwrap();
            self.b.driver.synchronize().unwrap();
            assert_eq!(self.b.driver.take_wrong_tags().unwrap(), 0, "graph {node}");
            for output in live {
                let Block { address, bytes, .. } = output.block;
                let found = self.b.driver.read_tags(address, bytes).unwrap();
                assert!(found.iter().all(|&tag| tag == output.tag), "graph {node}: {output:?}");
            }
        }
    }
}

/// Records a tree and launches its paths. Returns how many blocks of eager work in its pool were overwritten.
fn grow(plans: &[Plan]) -> usize {
    let b = bench(checked());
    let streams = b.streams();
    let root = b.engine.host().checkpoint(b.pool).unwrap();
    let mut tree = Tree { b, streams, root, nodes: Vec::new(), tags: 0 };
    for plan in plans {
        tree.record(plan);
        tree.replay(tree.nodes.len() - 1);
    }
    // What was live is the latest one's.
    assert!(tree.go_back(None).is_empty());
    let t = tree.streams[1];
    let eager: Vec<Output> = (0..8).map(|n| tree.output(512 << (n + 4), t)).collect();
    eager.iter().for_each(|&block| tree.launch(t, &[], &[block]));
    tree.b.driver.synchronize().unwrap();
    for last in (0..plans.len()).rev() {
        tree.replay(last);
    }
    let overwritten = eager.iter().filter(|it| {
        let found = tree.b.driver.read_tags(it.block.address, it.block.bytes).unwrap();
        found.iter().any(|&tag| tag != it.tag)
    });
    let overwritten = overwritten.count();
    assert!(tree.go_back(None).is_empty());
    overwritten
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Each path of a tree of graphs computes what it computed when it was recorded, however other paths
    /// were recorded and launched since.
    #[test]
    fn every_path_of_a_tree_holds_its_own(plans in vec(plans(), 1..12)) {
        assert_eq!(grow(&plans), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn programs_that_go_back(steps in vec(steps(), 1..60), mapped in any::<bool>()) {
        let support = match mapped {
            true => MemorySupport::Mapped { granularity: 2 * MIB },
            false => MemorySupport::Allocated,
        };
        run(support, steps);
    }
}
