//! The checker against hand-made captures, and against its own definition spelt out naively.

use std::collections::{BTreeMap, BTreeSet};

use arbtest::arbitrary::{Result as Drawn, Unstructured};
use regraph::check::{check, Flaw, Summary, Violation};
use regraph::driver::{
    CaptureStatus, Dependency, Driver, DriverError, EdgeData, ErrorKind, EventHandle, GraphHandle,
    MemoryHandle, MemoryInfo, MemorySupport, NodeHandle, NodeKind, Result, StreamHandle,
};
use regraph::journal::{BlockNumber, Entry, Journal};
use regraph::policy::Programmatic;

const GRAPH: GraphHandle = GraphHandle::from_bits(0x9);
const FULL: EdgeData = EdgeData::FULL;
const LATE: EdgeData = EdgeData::PROGRAMMATIC;

fn node(number: usize) -> NodeHandle {
    NodeHandle::from_bits(0x1000 + number)
}

fn stream(number: usize) -> StreamHandle {
    StreamHandle::from_bits(0x50 + number)
}

fn full(nodes: &[usize]) -> Vec<Dependency> {
    nodes.iter().map(|&n| Dependency::full(node(n))).collect()
}

/// A finished graph that answers questions about itself and nothing else.
#[derive(Clone, Default)]
struct Finished {
    /// In the order in which the driver names them.
    nodes: Vec<(usize, Vec<(usize, EdgeData)>)>,
    broken: bool,
}

fn refuse<T>(call: &'static str) -> Result<T> {
    Err(DriverError::new(call, 1, ErrorKind::NotSupported))
}

impl Driver for Finished {
    fn dependencies(&self, wanted: NodeHandle, dependencies: &mut Vec<Dependency>) -> Result<()> {
        dependencies.clear();
        let found = self
            .nodes
            .iter()
            .find(|(number, _)| node(*number) == wanted);
        let Some((_, edges)) = found.filter(|_| !self.broken) else {
            return refuse("cuGraphNodeGetDependencies");
        };
        dependencies.extend(edges.iter().map(|&(from, edge)| Dependency {
            node: node(from),
            edge,
        }));
        Ok(())
    }

    fn nodes(&self, graph: GraphHandle, nodes: &mut Vec<NodeHandle>) -> Result<()> {
        assert_eq!(graph, GRAPH);
        nodes.clear();
        nodes.extend(self.nodes.iter().map(|&(number, _)| node(number)));
        Ok(())
    }

    fn capture_status(&self, _: StreamHandle, _: &mut Vec<Dependency>) -> Result<CaptureStatus> {
        refuse("cuStreamGetCaptureInfo")
    }
    fn node_kind(&self, _: NodeHandle) -> Result<NodeKind> {
        refuse("cuGraphNodeGetType")
    }
    fn memory_support(&self) -> MemorySupport {
        MemorySupport::Allocated
    }
    fn memory_info(&self) -> Result<MemoryInfo> {
        refuse("cuMemGetInfo")
    }
    fn reserve(&self, _: u64) -> Result<u64> {
        refuse("cuMemAddressReserve")
    }
    fn unreserve(&self, _: u64, _: u64) -> Result<()> {
        refuse("cuMemAddressFree")
    }
    fn create(&self, _: u64) -> Result<MemoryHandle> {
        refuse("cuMemCreate")
    }
    fn release(&self, _: MemoryHandle) -> Result<()> {
        refuse("cuMemRelease")
    }
    fn map(&self, _: u64, _: u64, _: MemoryHandle) -> Result<()> {
        refuse("cuMemMap")
    }
    fn set_access(&self, _: u64, _: u64) -> Result<()> {
        refuse("cuMemSetAccess")
    }
    fn unmap(&self, _: u64, _: u64) -> Result<()> {
        refuse("cuMemUnmap")
    }
    fn allocate(&self, _: u64) -> Result<u64> {
        refuse("cuMemAlloc")
    }
    fn free(&self, _: u64) -> Result<()> {
        refuse("cuMemFree")
    }
    fn create_event(&self) -> Result<EventHandle> {
        refuse("cuEventCreate")
    }
    fn record_event(&self, _: EventHandle, _: StreamHandle) -> Result<()> {
        refuse("cuEventRecord")
    }
    fn query_event(&self, _: EventHandle) -> Result<bool> {
        refuse("cuEventQuery")
    }
    fn destroy_event(&self, _: EventHandle) -> Result<()> {
        refuse("cuEventDestroy")
    }
}

/// A capture written down by hand.
#[derive(Clone, Default)]
struct Scene {
    journal: Journal,
    finished: Finished,
}

impl Scene {
    fn new() -> Self {
        Self::default()
    }

    fn edges(&mut self, number: usize, edges: &[(usize, EdgeData)]) -> &mut Self {
        self.finished.nodes.push((number, edges.to_vec()));
        self
    }

    /// A node by full edges.
    fn node(&mut self, number: usize, from: &[usize]) -> &mut Self {
        let edges: Vec<_> = from.iter().map(|&from| (from, FULL)).collect();
        self.edges(number, &edges)
    }

    /// What the engine saw a node depend on.
    fn seen(&mut self, number: usize, from: &[usize]) -> &mut Self {
        self.journal.push(Entry::Node {
            node: node(number),
            dependencies: &full(from),
        });
        self
    }

    fn look(&mut self, number: usize, terminals: &[usize]) -> &mut Self {
        self.journal.push(Entry::Terminals {
            stream: stream(number),
            terminals: &full(terminals),
        });
        self
    }

    fn allocate_at(&mut self, block: u64, on: usize, address: u64, bytes: u64) -> &mut Self {
        self.journal.push(Entry::Allocate {
            block: BlockNumber(block),
            stream: stream(on),
            address,
            bytes,
        });
        self
    }

    fn allocate(&mut self, block: u64, on: usize) -> &mut Self {
        self.allocate_at(block, on, 0x10000, 0x1000)
    }

    fn used(&mut self, block: u64, on: usize) -> &mut Self {
        self.journal.push(Entry::Use {
            block: BlockNumber(block),
            stream: stream(on),
        });
        self
    }

    fn last_use(&mut self, block: u64, on: usize) -> &mut Self {
        self.journal.push(Entry::LastUse {
            block: BlockNumber(block),
            stream: stream(on),
        });
        self
    }

    fn outside(&mut self, block: u64) -> &mut Self {
        self.journal.push(Entry::Outside {
            block: BlockNumber(block),
        });
        self
    }

    fn free(&mut self, block: u64) -> &mut Self {
        self.journal.push(Entry::Free {
            block: BlockNumber(block),
        });
        self
    }

    fn standing_at(&mut self, block: u64, address: u64, bytes: u64) -> &mut Self {
        self.journal.push(Entry::Standing {
            block: BlockNumber(block),
            address,
            bytes,
        });
        self
    }

    fn settled(&mut self, block: u64) -> &mut Self {
        self.journal.push(Entry::Settled {
            block: BlockNumber(block),
        });
        self
    }

    fn check(&self, policy: Programmatic) -> std::result::Result<Summary, Violation> {
        check(&self.journal, policy, &self.finished, GRAPH)
    }

    fn deny(&self) -> std::result::Result<Summary, Violation> {
        self.check(Programmatic::Deny)
    }

    #[track_caller]
    fn legal(&self, pairs: usize) {
        let summary = self.deny().expect("legal");
        assert_eq!(summary.pairs, pairs);
        assert_eq!(summary.nodes, self.finished.nodes.len());
    }

    #[track_caller]
    fn not_ordered(&self, x: usize, y: usize) {
        not_ordered(self.deny(), x, y);
    }
}

#[track_caller]
fn not_ordered(answer: std::result::Result<Summary, Violation>, x: usize, y: usize) {
    match answer {
        Err(Violation::NotOrdered {
            earlier_node,
            later_node,
            ..
        }) => assert_eq!((earlier_node, later_node), (node(x), node(y))),
        other => panic!("expected node {x} not before node {y}, got {other:?}"),
    }
}

/// Block 1 used on stream 0 by node 1, then block 2 on the same stream by node 2.
fn reuse_in_place() -> Scene {
    let mut scene = Scene::new();
    scene.node(0, &[]).node(1, &[0]).node(2, &[1]);
    scene.look(0, &[0]).allocate(1, 0);
    scene.look(0, &[1]).free(1).allocate(2, 0);
    scene.look(0, &[2]).free(2);
    scene
}

/// Node 0 forks to streams 0 and 1; block 1 used by node 1 on stream 0, block 2 by node 2 on
/// stream 1, which waits for the nodes given.
fn reuse_across(from: &[usize]) -> Scene {
    let mut scene = Scene::new();
    scene.node(0, &[]).node(1, &[0]).node(2, from);
    scene.look(0, &[0]).look(1, &[0]).allocate(1, 0);
    scene.look(0, &[1]).free(1);
    scene.look(1, from).allocate(2, 1);
    scene.look(1, &[2]).free(2);
    scene
}

#[test]
fn same_stream_reuse_is_legal() {
    reuse_in_place().legal(1);
}

#[test]
fn cross_stream_reuse_needs_a_path() {
    reuse_across(&[0, 1]).legal(1);
    reuse_across(&[0]).not_ordered(1, 2);
}

#[test]
fn messages_name_what_is_concerned() {
    let violation = reuse_across(&[0]).deny().expect_err("unordered");
    assert_eq!(
        violation.to_string(),
        "block 1 at 0x10000+4096 (stream 0x50) may be used by node 0x1001, and block 2 at \
         0x10000+4096 (stream 0x51), which shares its address, by node 0x1002: no path of the \
         graph makes the second wait for the first to complete; if edges were removed or made \
         programmatic after the blocks were handed out, put them back, or switch cross-stream \
         reuse off for this capture"
    );
}

#[test]
fn live_blocks_do_not_overlap() {
    let mut scene = Scene::new();
    scene.look(0, &[]).allocate(1, 0);
    let mut apart = scene.clone();
    apart.allocate_at(2, 0, 0x11000, 0x1000).legal(0);
    scene.allocate_at(2, 0, 0x10fff, 0x10);
    let answer = scene.deny();
    assert!(
        matches!(answer, Err(Violation::LiveOverlap { .. })),
        "{answer:?}"
    );
}

#[test]
fn outside_use_is_never_followed() {
    let mut scene = Scene::new();
    scene.node(0, &[]).node(1, &[0]).node(2, &[1]);
    scene.look(0, &[0]).allocate(1, 0).outside(1);
    scene.look(0, &[1]).free(1).allocate(2, 0);
    // Nothing uses block 2 yet.
    scene.free(2).allocate(3, 0);
    let mut idle = scene.clone();
    idle.free(3).look(0, &[2]).legal(0);
    scene.look(0, &[2]).free(3);
    let answer = scene.deny();
    assert!(
        matches!(answer, Err(Violation::OutsideUse { .. })),
        "{answer:?}"
    );
    // A block with users outside may itself follow another.
    let mut after = reuse_in_place();
    after.outside(2).legal(1);
}

#[test]
fn standing_blocks_are_kept_clear_of() {
    let standing = |answer: std::result::Result<Summary, Violation>| {
        assert!(
            matches!(answer, Err(Violation::Standing { .. })),
            "{answer:?}"
        );
    };
    let mut before = Scene::new();
    before.look(0, &[]).standing_at(9, 0x10800, 0x100);
    let mut settled = before.clone();
    settled.settled(9).allocate(1, 0).legal(0);
    standing(before.allocate(1, 0).deny());

    let mut over_live = Scene::new();
    over_live.look(0, &[]).allocate(1, 0);
    standing(over_live.standing_at(9, 0x10000, 1).deny());

    let mut over_freed = reuse_in_place();
    over_freed.standing_at(9, 0x10000, 1);
    standing(over_freed.deny());
    over_freed.settled(9).legal(1);

    // Two standing blocks may lie over one another; both must go.
    let mut two = Scene::new();
    two.look(0, &[])
        .standing_at(8, 0x10000, 0x800)
        .standing_at(9, 0x10400, 0x800);
    two.settled(8);
    let mut one_left = two.clone();
    standing(one_left.allocate(1, 0).deny());
    two.settled(9).allocate(1, 0).legal(0);
}

#[test]
fn unknown_nodes_are_refused() {
    let unknown = |scene: &Scene| {
        let answer = scene.deny();
        assert!(matches!(answer, Err(Violation::UnknownNode { node: n }) if n == node(7)));
    };
    unknown(reuse_in_place().look(0, &[7]));
    unknown(reuse_in_place().seen(7, &[]));
    unknown(reuse_in_place().seen(1, &[7]));
    unknown(reuse_in_place().node(3, &[7]));
}

#[test]
fn stray_nodes_are_refused_where_addresses_are_shared() {
    // Node 3 was launched behind node 1, and the stream was set back before anybody looked again.
    let mut scene = reuse_in_place();
    scene.node(3, &[1]);
    let answer = scene.deny();
    assert!(
        matches!(answer, Err(Violation::Unattributed { node: n, .. }) if n == node(3)),
        "{answer:?}"
    );
    let mut alone = Scene::new();
    alone.node(0, &[]).node(1, &[0]).node(2, &[0]);
    alone.look(0, &[0]).allocate(1, 0).look(0, &[1]).legal(0);
    // Behind the last look nothing is stray.
    let mut later = reuse_in_place();
    later.node(3, &[2]).legal(1);
}

#[test]
fn journals_must_not_contradict_themselves() {
    let flaw = |scene: &Scene, wanted: Flaw| {
        let answer = scene.deny();
        assert!(
            matches!(answer, Err(Violation::Malformed { flaw, .. }) if flaw == wanted),
            "{answer:?}"
        );
    };
    flaw(reuse_in_place().free(1), Flaw::Freed);
    flaw(reuse_in_place().free(5), Flaw::Unknown);
    flaw(reuse_in_place().used(1, 0), Flaw::Freed);
    flaw(reuse_in_place().used(5, 0), Flaw::Unknown);
    flaw(reuse_in_place().last_use(5, 0), Flaw::Unknown);
    flaw(reuse_in_place().outside(5), Flaw::Unknown);
    flaw(reuse_in_place().allocate(1, 0), Flaw::NumberTaken);
    flaw(reuse_in_place().settled(1), Flaw::NotStanding);
    flaw(reuse_in_place().settled(5), Flaw::Unknown);
    let standing = |bytes| {
        let mut scene = reuse_in_place();
        scene.standing_at(9, 0x50000, bytes);
        scene
    };
    flaw(standing(1).free(9), Flaw::NotOurs);
    flaw(standing(1).settled(9).settled(9), Flaw::Settled);
    flaw(&standing(u64::MAX), Flaw::Wraps);
    standing(1).used(9, 3).outside(9).legal(1);
}

#[test]
fn lives_rest_on_looks() {
    let never = |scene: &Scene, wanted: usize| {
        let answer = scene.deny();
        assert!(
            matches!(answer, Err(Violation::NeverLooked { stream: s, .. }) if s == stream(wanted)),
            "{answer:?}"
        );
    };
    never(Scene::new().allocate(1, 0), 0);
    never(
        Scene::new().look(0, &[]).allocate(1, 0).used(1, 1).free(1),
        1,
    );
    never(Scene::new().look(0, &[]).allocate(1, 0).last_use(1, 1), 1);
    Scene::new().look(0, &[]).allocate(1, 0).used(1, 1).legal(0);
}

#[test]
fn driver_errors_and_cycles_are_passed_on() {
    let mut scene = reuse_in_place();
    scene.finished.broken = true;
    assert!(matches!(scene.deny(), Err(Violation::Driver(_))));
    let mut scene = Scene::new();
    scene.node(0, &[1]).node(1, &[0]);
    assert!(matches!(scene.deny(), Err(Violation::Cyclic { .. })));
}

/// Block 1 used by node 1, block 2 by the last node of a line with these edges after node 1.
fn line(edges: &[EdgeData]) -> Scene {
    let mut scene = Scene::new();
    scene.node(0, &[]).node(1, &[0]);
    for (index, &edge) in edges.iter().enumerate() {
        scene.edges(2 + index, &[(1 + index, edge)]);
    }
    let last = 1 + edges.len();
    scene.look(0, &[0]).allocate(1, 0).look(0, &[1]).free(1);
    scene.look(0, &[last - 1]).allocate(2, 0);
    scene.look(0, &[last]).free(2);
    scene
}

#[test]
fn programmatic_edges_count_by_policy() {
    use Programmatic::{Deny, Lag, Trust};
    let order = EdgeData::LAUNCH_ORDER;
    let odd = EdgeData {
        from_port: 1,
        to_port: 1,
        kind: 1,
    };
    let cases: &[(&[EdgeData], [bool; 3])] = &[
        (&[FULL], [true, true, true]),
        (&[LATE], [false, false, true]),
        (&[LATE, FULL], [false, true, true]),
        (&[FULL, LATE], [false, true, true]),
        (&[LATE, LATE], [false, false, true]),
        (&[LATE, FULL, LATE], [false, true, true]),
        (&[LATE, LATE, FULL], [false, true, true]),
        (&[order, FULL], [false, false, false]),
        (&[FULL, odd], [false, false, false]),
        (&[FULL, FULL], [true, true, true]),
    ];
    for (edges, legal) in cases {
        for (policy, legal) in [Deny, Lag, Trust].into_iter().zip(legal) {
            let answer = line(edges).check(policy);
            assert_eq!(answer.is_ok(), *legal, "{edges:?} {policy}: {answer:?}");
            if !legal {
                not_ordered(answer, 1, 1 + edges.len());
            }
        }
    }
}

#[test]
fn lag_joins_chains() {
    // 1 -late-> 2 -full-> 4, where 4 lies on another chain, and 1 -late-> 3 alone.
    let scene = |last: &[(usize, EdgeData)]| {
        let mut scene = Scene::new();
        scene
            .node(0, &[])
            .edges(1, &[(0, FULL)])
            .edges(2, &[(1, LATE)])
            .node(5, &[0]);
        scene.edges(4, last);
        scene
            .look(0, &[0])
            .look(1, &[0])
            .allocate(1, 0)
            .look(0, &[1])
            .free(1);
        scene
            .look(0, &[2])
            .look(1, &[5])
            .look(1, &[5, 2])
            .allocate(2, 1)
            .look(1, &[4])
            .free(2);
        scene
    };
    let by_full = scene(&[(5, FULL), (2, FULL)]);
    by_full.check(Programmatic::Lag).expect("completed by 2");
    by_full.not_ordered(1, 4);
    not_ordered(
        scene(&[(5, FULL), (2, LATE)]).check(Programmatic::Lag),
        1,
        4,
    );
}

#[test]
fn the_finished_graph_decides_not_the_remembered_one() {
    let mut removed = reuse_across(&[0, 1]);
    removed.seen(1, &[0]).seen(2, &[0, 1]);
    removed.legal(1);
    removed.finished.nodes[2].1.pop();
    removed.not_ordered(1, 2);

    // An edge that was added makes an order too.
    let mut added = reuse_across(&[0]);
    added.seen(1, &[0]).seen(2, &[0]);
    added.finished.nodes[2].1.push((1, FULL));
    added.legal(1);

    // Taken away and put back the other way round: no order of both graphs exists.
    let mut turned = reuse_across(&[0, 1]);
    turned.seen(1, &[0]).seen(2, &[0, 1]);
    turned.finished.nodes[2].1.pop();
    turned.finished.nodes[1].1.push((2, FULL));
    turned.not_ordered(1, 2);
}

#[test]
fn nodes_may_come_in_any_order() {
    let mut scene = reuse_across(&[0, 1]);
    scene.finished.nodes.reverse();
    scene.legal(1);
    let mut scene = reuse_across(&[0]);
    scene.finished.nodes.reverse();
    scene.not_ordered(1, 2);
}

#[test]
fn stream_order_is_no_proof_after_a_set_back() {
    // Stream 0 launches 1 with block 1, is set back to 0, and launches 2 with block 2.
    let scene = |looked: bool| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]).node(2, &[0]);
        scene.look(0, &[0]).allocate(1, 0).look(0, &[1]).free(1);
        if looked {
            scene.look(0, &[0]);
        }
        scene.allocate(2, 0).look(0, &[2]).free(2);
        scene
    };
    scene(true).not_ordered(1, 2);
    scene(false).not_ordered(1, 2);
}

#[test]
fn a_block_used_across_a_set_back_has_all_the_launches() {
    // Block 1 lives over both branches; only one of them leads to block 2.
    let scene = |from: &[usize]| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]).node(2, &[0]).node(3, from);
        scene
            .look(0, &[0])
            .allocate(1, 0)
            .look(0, &[1])
            .look(0, &[2])
            .free(1);
        scene.look(0, from).allocate(2, 0).look(0, &[3]).free(2);
        scene
    };
    scene(&[1, 2]).legal(1);
    scene(&[2]).not_ordered(1, 3);
}

#[test]
fn blocks_without_users_neither_need_nor_break_order() {
    // Block 2 lies between on another stream that does nothing.
    let scene = |from: &[usize]| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]).node(2, from);
        scene
            .look(0, &[0])
            .look(1, &[0])
            .allocate(1, 0)
            .look(0, &[1])
            .free(1);
        scene.allocate(2, 1).free(2);
        scene.look(1, from).allocate(3, 1).look(1, &[2]).free(3);
        scene
    };
    scene(&[0, 1]).legal(1);
    scene(&[0]).not_ordered(1, 2);
}

#[test]
fn a_last_use_cuts_the_users_short() {
    // Block 1 is used by 1 on stream 0; 3 comes after; block 2 waits for 1 only.
    let scene = |last: bool, again: bool| {
        let mut scene = Scene::new();
        scene
            .node(0, &[])
            .node(1, &[0])
            .node(2, &[0, 1])
            .node(3, &[1]);
        scene
            .look(0, &[0])
            .look(1, &[0])
            .allocate(1, 0)
            .look(0, &[1]);
        if last {
            scene.last_use(1, 0);
        }
        if again {
            scene.used(1, 0);
        }
        scene.look(0, &[3]).free(1);
        scene.look(1, &[0, 1]).allocate(2, 1).look(1, &[2]).free(2);
        scene
    };
    scene(true, false).legal(1);
    scene(false, false).not_ordered(3, 2);
    scene(true, true).not_ordered(3, 2);
}

#[test]
fn foreign_users_count_from_the_allocation_point() {
    // Stream 1 launches 2 beside the allocation, then waits for 1 and launches 3 with block 1.
    // Block 2 follows on stream 0 behind the nodes given.
    let scene = |looks: bool, from: &[usize]| {
        let mut scene = Scene::new();
        scene
            .node(0, &[])
            .node(1, &[0])
            .node(2, &[0])
            .node(3, &[2, 1])
            .node(4, from);
        scene
            .look(0, &[0])
            .look(1, &[0])
            .look(0, &[1])
            .allocate(1, 0)
            .used(1, 1);
        if looks {
            scene.look(1, &[2]).look(1, &[2, 1]);
        }
        scene.look(1, &[3]).free(1);
        scene.look(0, from).allocate(2, 0).look(0, &[4]).free(2);
        scene
    };
    for looks in [false, true] {
        scene(looks, &[1, 3]).legal(1);
        scene(looks, &[1]).not_ordered(3, 4);
    }
    // What the stream launched beside the point is no user, even of the block's successor.
    let mut beside = Scene::new();
    beside
        .node(0, &[])
        .node(1, &[0])
        .node(2, &[0])
        .node(3, &[2, 1])
        .node(4, &[3]);
    beside
        .look(0, &[0])
        .look(1, &[0])
        .allocate(9, 0)
        .look(0, &[1])
        .free(9)
        .allocate(1, 0);
    beside.used(1, 1).look(1, &[3]).free(1);
    beside.legal(1);
}

#[test]
fn foreign_users_before_the_first_look_count() {
    let scene = |from: &[usize]| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]).node(2, &[0]).node(3, from);
        scene
            .look(0, &[0])
            .allocate(1, 0)
            .used(1, 1)
            .look(0, &[1])
            .look(1, &[2])
            .free(1);
        scene.look(0, from).allocate(2, 0).look(0, &[3]).free(2);
        scene
    };
    scene(&[1, 2]).legal(1);
    scene(&[1]).not_ordered(2, 3);
}

#[test]
fn users_behind_the_last_look_count() {
    // Block 2 is never freed, and stream 1 is not looked at after it.
    let mut scene = Scene::new();
    scene.node(0, &[]).node(1, &[0]).node(2, &[0]);
    scene
        .look(0, &[0])
        .look(1, &[0])
        .allocate(1, 0)
        .look(0, &[1])
        .free(1)
        .allocate(2, 1);
    scene.not_ordered(1, 2);
    scene.finished.nodes[2].1.push((1, FULL));
    scene.legal(1);
}

#[test]
fn waits_are_not_launches() {
    // Stream 1 launches 2; stream 0 only waits for it while block 1 lives; then 3 on stream 1
    // follows 1 and takes the block. Were 2 a user, it would not be ordered before 5.
    let mut scene = Scene::new();
    scene.node(0, &[]).node(1, &[0]).node(2, &[0]).node(5, &[1]);
    scene.look(0, &[0]).look(1, &[0]).look(2, &[0]);
    scene.allocate(1, 0).look(0, &[1]).look(0, &[1, 2]).free(1);
    scene
        .look(2, &[0, 1])
        .allocate(2, 2)
        .look(2, &[5])
        .free(2)
        .look(1, &[2]);
    scene.legal(1);
}

#[test]
fn partial_overlaps_are_judged_piece_by_piece() {
    // Blocks 1 and 2 lie side by side; block 3 takes the end of one and the start of the other.
    let scene = |from: &[usize]| {
        let mut scene = Scene::new();
        scene
            .node(0, &[])
            .node(1, &[0])
            .node(2, &[0])
            .node(3, from)
            .node(4, &[3]);
        scene.look(0, &[0]).look(1, &[0]);
        scene
            .allocate_at(1, 0, 0x1000, 0x1000)
            .allocate_at(2, 1, 0x2000, 0x1000);
        scene.look(0, &[1]).free(1).look(1, &[2]).free(2);
        scene
            .look(0, from)
            .allocate_at(3, 0, 0x1800, 0x1000)
            .look(0, &[3])
            .free(3);
        scene
            .allocate_at(4, 0, 0x1000, 0x2000)
            .look(0, &[4])
            .free(4);
        scene
    };
    // Block 4 follows 1, 3 and 2 at three places.
    scene(&[1, 2]).legal(5);
    scene(&[1]).not_ordered(2, 3);
}
