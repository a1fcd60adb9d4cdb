//! The checker against hand-made captures, and against its own definition spelt out naively.

mod compaction;
mod effort;
mod random_memory;
mod scenes;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::cases::cases;
use arbtest::arbitrary::{Result as Drawn, Unstructured};
use petgraph::algo::has_path_connecting;
use petgraph::graph::DiGraph;
use regraph::driver::{
    CaptureId, CaptureStatus, Dependency, Driver, DriverError, EdgeData, ErrorKind, EventHandle,
    GraphHandle, MemoryHandle, MemoryInfo, MemorySupport, NodeHandle, NodeKind, Result,
    StreamHandle,
};
use regraph::settings::Programmatic;
use regraph_check::{check, Checker, Flaw, Summary, Violation};
use regraph_record::journal::{BlockNumber, Entry, Journal};

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

macro_rules! refusing {
    ($($name:ident($($kind:ty),*) -> $result:ty, $call:literal;)*) => {$(
        fn $name(&self, $(_: $kind),*) -> Result<$result> {
            refuse($call)
        }
    )*};
}

impl Driver for Finished {
    fn dependencies(&self, wanted: NodeHandle, dependencies: &mut Vec<Dependency>) -> Result<()> {
        dependencies.clear();
        let is = |found: &&(usize, _)| node(found.0) == wanted;
        let likely = self.nodes.get(wanted.bits().wrapping_sub(0x1000));
        let found = likely.filter(is).or_else(|| self.nodes.iter().find(is));
        let Some((_, edges)) = found.filter(|_| !self.broken) else {
            return refuse("cuGraphNodeGetDependencies");
        };
        dependencies
            .extend(edges.iter().map(|&(from, edge)| Dependency { node: node(from), edge }));
        Ok(())
    }

    fn nodes(&self, graph: GraphHandle, nodes: &mut Vec<NodeHandle>) -> Result<()> {
        assert_eq!(graph, GRAPH);
        nodes.clear();
        nodes.extend(self.nodes.iter().map(|&(number, _)| node(number)));
        Ok(())
    }

    fn memory_support(&self) -> MemorySupport {
        MemorySupport::Allocated
    }

    refusing! {
        capture_of(StreamHandle) -> CaptureStatus, "cuStreamGetCaptureInfo";
        capture_status(StreamHandle, &mut Vec<Dependency>) -> CaptureStatus, "cuStreamGetCaptureInfo";
        is_capturing(StreamHandle) -> bool, "cuStreamGetCaptureInfo";
        node_kind(NodeHandle) -> NodeKind, "cuGraphNodeGetType";
        memory_info() -> MemoryInfo, "cuMemGetInfo";
        reserve(u64) -> u64, "cuMemAddressReserve";
        unreserve(u64, u64) -> (), "cuMemAddressFree";
        create(u64) -> MemoryHandle, "cuMemCreate";
        release(MemoryHandle) -> (), "cuMemRelease";
        map(u64, u64, MemoryHandle) -> (), "cuMemMap";
        set_access(u64, u64) -> (), "cuMemSetAccess";
        unmap(u64, u64) -> (), "cuMemUnmap";
        allocate(u64) -> u64, "cuMemAlloc";
        free(u64) -> (), "cuMemFree";
        create_event() -> EventHandle, "cuEventCreate";
        record_event(EventHandle, StreamHandle) -> (), "cuEventRecord";
        query_event(EventHandle) -> bool, "cuEventQuery";
        synchronize_event(EventHandle) -> (), "cuEventSynchronize";
        destroy_event(EventHandle) -> (), "cuEventDestroy";
    }
}

thread_local! {
    /// Judges every scene of a test, one after another.
    static CHECKER: RefCell<Checker> = RefCell::default();
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

    fn push(&mut self, entry: Entry) -> &mut Self {
        self.journal.push(entry);
        self
    }

    /// What the engine saw a node depend on.
    fn seen(&mut self, number: usize, from: &[usize]) -> &mut Self {
        self.push(Entry::Node { node: node(number), dependencies: (&full(from)).into() })
    }

    fn look(&mut self, number: usize, terminals: &[usize]) -> &mut Self {
        self.push(Entry::Terminals { stream: stream(number), terminals: (&full(terminals)).into() })
    }

    fn allocate_at(&mut self, block: u64, on: usize, address: u64, bytes: u64) -> &mut Self {
        self.push(Entry::Allocate { block: BlockNumber(block), stream: stream(on), address, bytes })
    }

    fn allocate(&mut self, block: u64, on: usize) -> &mut Self {
        self.allocate_at(block, on, 0x10000, 0x1000)
    }

    fn used(&mut self, block: u64, on: usize) -> &mut Self {
        self.push(Entry::Use { block: BlockNumber(block), stream: stream(on) })
    }

    fn last_use(&mut self, block: u64, on: usize) -> &mut Self {
        self.push(Entry::LastUse { block: BlockNumber(block), stream: stream(on) })
    }

    fn outside(&mut self, block: u64) -> &mut Self {
        self.push(Entry::Outside { block: BlockNumber(block) })
    }

    fn free(&mut self, block: u64) -> &mut Self {
        self.push(Entry::Free { block: BlockNumber(block) })
    }

    fn standing_at(&mut self, block: u64, address: u64, bytes: u64) -> &mut Self {
        self.push(Entry::Standing { block: BlockNumber(block), address, bytes })
    }

    fn pool(&mut self, next: u64) -> &mut Self {
        let (held, listed) = (1 << 20, 1 << 20);
        self.push(Entry::Pool { next: BlockNumber(next), held, listed })
    }

    fn settled(&mut self, block: u64) -> &mut Self {
        self.push(Entry::Settled { block: BlockNumber(block) })
    }

    fn input(&mut self, block: u64, on: usize) -> &mut Self {
        self.push(Entry::Input { block: BlockNumber(block), stream: stream(on) })
    }

    fn bound(&mut self, address: u64, bytes: u64, memory: u64, offset: u64) -> &mut Self {
        self.push(Entry::Bound { address, bytes, memory, offset })
    }

    fn shared_with(&mut self, memory: u64, bytes: u64, graph: u64) -> &mut Self {
        self.push(Entry::Shared { memory, bytes, graph: CaptureId(graph) })
    }

    fn output_freed(&mut self, memory: u64, graph: u64) -> &mut Self {
        self.push(Entry::OutputFreed { memory, graph: CaptureId(graph) })
    }

    fn marked(&mut self, looked: bool, graphs: bool) {
        let marks = [looked.then_some(Entry::Looked), graphs.then_some(Entry::Graphs)];
        marks.into_iter().flatten().for_each(|mark| self.journal.push(mark));
    }

    fn check(&self, policy: Programmatic) -> std::result::Result<Summary, Violation> {
        let answer = check(&self.journal, policy, &self.finished, GRAPH);
        CHECKER.with_borrow_mut(|checker| {
            if let Ok(copy) = checker.read(&self.finished, GRAPH) {
                let again = checker.judge(&self.journal, policy, &copy, false);
                let again = again.map_err(|violation| violation.name_kernels(&self.finished));
                assert_eq!(again, answer, "as a checker says that has judged others before");
                checker.keep(copy);
            }
        });
        answer
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
        Err(Violation::NotOrdered { users, .. }) => {
            assert_eq!((users[0].node, users[1].node), (node(x), node(y)))
        }
        other => panic!("expected node {x} not before node {y}, got {other:?}"),
    }
}

#[test]
fn blocks_are_known_by_their_numbers_however_far_apart() {
    // Close together, below the first, and far off; the last is far off when it comes, and would not be later.
    let numbers = [1000, 1001, 1003, 999, 0, u64::MAX, 2000].into_iter().chain(1004..1404);
    let scene = |again: Option<u64>| {
        let mut scene = Scene::new();
        scene.node(0, &[]).look(0, &[0]);
        for (place, number) in (1..).zip(numbers.clone()) {
            scene.allocate_at(number, 0, place << 12, 1 << 12);
        }
        if let Some(number) = again {
            scene.allocate(number, 0);
        }
        for number in numbers.clone() {
            scene.free(number);
        }
        scene
    };
    scene(None).legal(0);
    for number in numbers.clone() {
        let answer = scene(Some(number)).deny();
        let taken = matches!(answer, Err(Violation::Malformed { flaw: Flaw::NumberTaken, .. }));
        assert!(taken, "{number}: {answer:?}");
    }
}

#[test]
fn a_block_meets_all_that_it_covers() {
    // Whichever of many small ones lives still.
    for live in [0, 100, 200, 299] {
        let mut scene = Scene::new();
        scene.node(0, &[]).look(0, &[0]);
        (0..300).for_each(|it| _ = scene.allocate_at(it, 0, it << 12, 1 << 12));
        (0..300).filter(|&it| it != live).for_each(|it| _ = scene.free(it));
        let answer = scene.allocate_at(300, 0, 0, 300 << 12).deny();
        assert!(matches!(answer, Err(Violation::LiveOverlap { .. })), "{live}: {answer:?}");
    }
}

#[test]
fn nodes_are_known_wherever_the_driver_names_them() {
    // A hundred nodes of one stream, told of from the last to the first in groups of some, in the driver's order or
    // in its reverse.
    for (group, reversed) in [(1, false), (7, false), (40, false), (40, true), (100, true)] {
        let mut scene = Scene::new();
        for it in 0..100_usize {
            scene.node(it, it.checked_sub(1).as_slice());
        }
        if reversed {
            scene.finished.nodes.reverse();
        }
        scene.look(0, &[]).allocate(1, 0);
        for until in (group..=100).step_by(group) {
            for it in (until - group..until).rev() {
                scene.seen(it, it.checked_sub(1).as_slice());
            }
            scene.look(0, &[until - 1]);
        }
        scene.free(1).allocate(2, 0).free(2).legal(0);
        let unknown = scene.look(0, &[100]).deny();
        let is_unknown =
            matches!(unknown, Err(Violation::UnknownNode { node: it }) if it == node(100));
        assert!(is_unknown, "{unknown:?}");
    }
}

/// Captures, and what is said of them.
const MESSAGES: &[(&str, &str)] = &[
    (
        "across 0",
        "block 1 at 0x10000+4096 (stream 0x50) may be used by node 0x1001, and block 2 at \
         0x10000+4096 (stream 0x51), which shares its address, by node 0x1002: no path of the \
         graph makes the second wait for the first to complete; if edges were removed or made \
         programmatic after the blocks were handed out, put them back, or capture with the \
         setting reuse:own_stream",
    ),
    (
        "in place; 3<1",
        "node 0x1003 was launched after work of stream 0x50, on a stream that the engine did not look \
         at, so it may use block 1 at 0x10000+4096 (stream 0x50) or block 2 at 0x10000+4096 (stream \
         0x50), which share an address: record the stream with record_stream for the blocks that it \
         uses, or join it to a stream of the capture before the capture ends; if the stream's \
         dependencies were set by hand, call observe just before and just after",
    ),
    (
        "apart 0; bound 0+4K 7+64; bound 4K+4K 7+64",
        "block 1 at 0x0+4096 (stream 0x50) may be used by node 0x1001, and block 2 at 0x1000+4096 \
         (stream 0x51), which shares physical memory 7 (from byte 0x40 on) with it, by node 0x1002: \
         no path of the graph makes the second wait for the first to complete; if edges were \
         removed or made programmatic after the blocks were handed out, put them back, or capture \
         without binding memory at the end",
    ),
    (
        "apart 0 1; bound 0+2K 7+0; bound 2K+2K 7+0",
        "block 1 at 0x0+4096 (stream 0x50) has physical memory 7 (from byte 0x0 on) at two of its \
         addresses, so that a write to one changes the other; map each piece of memory once within \
         a block",
    ),
    (
        "s at; s: a 0+4K; s: b 4K+4K; bound 0+4K 7+0; bound 4K+4K 7+0",
        "block 2 at 0x1000+4096 (stream 0x50) was handed out over block 1 at 0x0+4096 (stream 0x50) \
         on physical memory 7 (from byte 0x0 on), which had not been freed",
    ),
];

#[test]
fn messages_name_what_is_concerned() {
    for (capture, message) in MESSAGES {
        let violation = scenes::read(capture).0.deny().expect_err(capture);
        assert_eq!(violation.to_string(), *message, "{capture}");
    }
}

#[test]
fn driver_errors_are_passed_on() {
    let (mut scene, _) = scenes::read("in place");
    scene.finished.broken = true;
    assert!(matches!(scene.deny(), Err(Violation::Driver(_))));
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
    let odd = EdgeData { from_port: 1, to_port: 1, kind: 1 };
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
fn a_foreign_use_may_begin_many_looks_later() {
    // Stream 1 goes its own way for 20 nodes before it waits for 1, which used the address before.
    let scene = |last: &[usize]| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]).node(2, &[0]);
        scene.look(0, &[0]).look(1, &[0]).allocate(8, 0).look(0, &[1]).free(8);
        scene.allocate(9, 0).used(9, 1).look(1, &[2]);
        for number in 3..22 {
            scene.node(number, &[number - 1]).look(1, &[number]);
        }
        scene.node(22, &[21, 1]).node(23, &[22]).look(1, &[23]).free(9);
        scene.look(0, last).allocate(10, 0).node(24, last).look(0, &[24]).free(10);
        scene
    };
    scene(&[1, 23]).legal(2);
    scene(&[1]).not_ordered(23, 24);
}

#[test]
fn many_chains_take_several_batches() {
    // A wide fork: every branch frees a block that the branch after next takes behind a join.
    let width = 700;
    let scene = |missing: usize| {
        let mut scene = Scene::new();
        scene.node(0, &[]);
        for branch in 0..width {
            scene.node(1 + branch, &[0]).look(branch, &[0]);
        }
        for branch in 0..width {
            scene.allocate_at(branch as u64, branch, 0x1000 * branch as u64, 0x1000);
            scene.look(branch, &[1 + branch]).free(branch as u64);
        }
        for branch in 0..width {
            let mut from = vec![1 + branch];
            if branch != missing {
                from.push(1 + (branch + 2) % width);
            }
            let number = (width + branch) as u64;
            scene.node(1 + width + branch, &from).look(branch, &from);
            scene.allocate_at(number, branch, 0x1000 * ((branch as u64 + 2) % width as u64), 64);
            scene.look(branch, &[1 + width + branch]).free(number);
        }
        scene
    };
    scene(width).legal(width);
    for missing in [3, 300, width - 1] {
        scene(missing).not_ordered(1 + (missing + 2) % width, 1 + width + missing);
    }
}

/// A capture of `count` nodes on 16 streams; every third node has a block, every fourth of those a
/// foreign user; blocks wait in line until a stream behind all their users takes the address.
fn large(count: usize) -> Scene {
    let streams = 16;
    let mut scene = Scene::new();
    scene.node(0, &[]);
    let mut ends = vec![vec![0]; streams];
    let mut live: Vec<Vec<(u64, Option<usize>)>> = vec![Vec::new(); streams];
    let mut free: Vec<Vec<u64>> = vec![Vec::new(); streams];
    let (mut numbers, mut addresses) = (0, 0);
    let mut places = BTreeMap::new();
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for stream in 0..streams {
        scene.look(stream, &[0]);
    }
    for number in 1..count {
        let on = random(streams);
        if number % 3 == 0 {
            scene.look(on, &ends[on]);
            let address = free[on].pop().unwrap_or_else(|| {
                addresses += 0x1000;
                addresses
            });
            numbers += 1;
            places.insert(numbers, address);
            scene.allocate_at(numbers, on, address, 0x1000);
            live[on].push((numbers, None));
        }
        scene.node(number, &ends[on]).seen(number, &ends[on]);
        ends[on] = vec![number];
        let other = random(streams);
        if number % 4 == 0 && other != on {
            let from = ends[on].clone();
            ends[other].extend(from);
            if let Some(block) = live[on].last_mut().filter(|block| block.1.is_none()) {
                block.1 = Some(other);
                scene.used(block.0, other);
            }
        }
        if live[on].len() > 20 {
            let at = random(20);
            let (block, user) = live[on].remove(at);
            scene.look(on, &ends[on]);
            if let Some(user) = user {
                scene.look(user, &ends[user]);
                // The own stream joins the user's.
                let from = ends[user].clone();
                ends[on].extend(from);
                ends[on].sort_unstable();
                ends[on].dedup();
            }
            scene.free(block);
            free[on].push(places[&block]);
        }
    }
    for (stream, ends) in ends.iter().enumerate() {
        scene.look(stream, ends);
    }
    scene
}

#[test]
fn a_journal_takes_few_bytes_a_node() {
    let scene = large(20_000);
    let bytes = scene.journal.bytes();
    assert!(bytes <= 48 * 20_000, "{bytes}");
    println!("{} bytes a node", bytes as f64 / 20_000.0);
}

#[test]
fn large_captures_are_judged_whole() {
    let scene = large(20_000);
    for policy in [Programmatic::Deny, Programmatic::Lag] {
        let summary = scene.check(policy).expect("legal");
        assert!(summary.pairs > 1_000, "{summary:?}");
    }
}

/// The definition spelt out: whole matrices, all pairs, every user by name.
mod naive {
    use petgraph::visit::Dfs;

    use super::*;

    type Matrix = Vec<Vec<bool>>;
    type Set = BTreeSet<usize>;

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Wrong {
        Live(u64, u64),
        Standing(u64, u64),
        Outside(u64, u64),
        Order(u64, u64, usize, usize),
        Stray(usize),
        Folded(u64),
        /// A block and a memory.
        Overwritten(u64, u64),
        /// An address.
        Twice(u64),
        /// A memory.
        Beyond(u64),
    }

    /// What lies where: a byte of memory and its offset for each address.
    #[derive(Default)]
    struct Memory {
        bytes: BTreeMap<u64, (u64, u64)>,
        /// By memory: its least size.
        sizes: BTreeMap<u64, u64>,
        /// Memory and graph.
        shared: BTreeSet<(u64, CaptureId)>,
        outputs_freed: BTreeSet<(u64, CaptureId)>,
    }

    impl Memory {
        fn read(scene: &Scene, wrong: &mut BTreeSet<Wrong>) -> Self {
            let mut all = Self::default();
            for entry in scene.journal.iter() {
                match entry {
                    Entry::Bound { address, bytes, memory, offset } => {
                        for byte in 0..bytes {
                            let here = (memory, offset + byte);
                            if *all.bytes.entry(address + byte).or_insert(here) != here {
                                wrong.insert(Wrong::Twice(address + byte));
                            }
                        }
                    }
                    Entry::Shared { memory, bytes, graph } => {
                        let size = all.sizes.entry(memory).or_insert(bytes);
                        *size = bytes.min(*size);
                        all.shared.insert((memory, graph));
                    }
                    Entry::OutputFreed { memory, graph } => {
                        all.outputs_freed.insert((memory, graph));
                    }
                    _ => {}
                }
            }
            for (memory, offset) in all.bytes.values() {
                if all.sizes.get(memory).is_some_and(|size| offset >= size) {
                    wrong.insert(Wrong::Beyond(*memory));
                }
            }
            all
        }

        /// The bytes of memory behind a range, those that are behind it twice so often.
        fn of(&self, (address, bytes): (u64, u64)) -> Vec<(u64, u64)> {
            (address..address + bytes).filter_map(|at| self.bytes.get(&at)).copied().collect()
        }

        fn meet(&self, a: (u64, u64), b: (u64, u64)) -> bool {
            let b = self.of(b);
            self.of(a).iter().any(|byte| b.contains(byte))
        }
    }

    struct Look {
        entry: usize,
        terminals: Set,
    }

    struct Block {
        number: u64,
        address: u64,
        bytes: u64,
        allocated: usize,
        freed: Option<usize>,
        outside: bool,
        own: usize,
        uses: BTreeMap<usize, Option<usize>>,
    }

    /// Number, range, from, until.
    type Stander = (u64, (u64, u64), usize, Option<usize>);

    /// What one stream gained.
    struct Log {
        /// By step, without what a look saw before it began; step 0 is what lies behind the first look.
        steps: Vec<Set>,
        /// By step: whether the stream's launches need not come after what it waited for before.
        broken: Vec<bool>,
        ever: Set,
        tail: Set,
    }

    fn find(blocks: &mut [Block], number: BlockNumber) -> &mut Block {
        let found = blocks.iter_mut().find(|block| block.number == number.0);
        found.expect("well-formed")
    }

    /// Whether there is a path, of one edge at least.
    fn close(matrix: &mut Matrix) {
        let all = || 0..matrix.len();
        let edges = all().flat_map(|from| all().map(move |to| (from, to)));
        let edges = edges.filter(|&(from, to)| matrix[from][to]);
        let graph = DiGraph::<(), (), usize>::from_edges(edges);
        let mut search = Dfs::empty(&graph);
        for from in graph.node_indices() {
            search.reset(&graph);
            for to in graph.neighbors(from) {
                search.move_to(to);
                while let Some(node) = search.next(&graph) {
                    matrix[from.index()][node.index()] = true;
                }
            }
        }
    }

    fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
        a.0 < b.0 + b.1 && b.0 < a.0 + a.1
    }

    /// Everything wrong with a well-formed journal. Nodes are numbered from zero.
    pub fn judge(scene: &Scene, policy: Programmatic) -> BTreeSet<Wrong> {
        let count = scene.finished.nodes.len();
        let empty = || vec![vec![false; count]; count];
        let (mut any, mut reach, mut fulls) = (empty(), empty(), Vec::new());
        let mut seen: Vec<Set> = vec![Set::new(); count];
        for (to, edges) in &scene.finished.nodes {
            for &(from, edge) in edges {
                any[from][*to] = true;
                seen[*to].insert(from);
                let programmatic = edge == LATE;
                if edge == FULL || (programmatic && policy == Programmatic::Trust) {
                    fulls.push((from, *to));
                    reach[from][*to] = true;
                } else if programmatic && policy != Programmatic::Deny {
                    reach[from][*to] = true;
                }
            }
        }
        let mut streams: BTreeMap<usize, Vec<Look>> = BTreeMap::new();
        let mut blocks: Vec<Block> = Vec::new();
        let mut standing: Vec<Stander> = Vec::new();
        let (mut looked, mut beside_graphs) = (false, false);
        let mut wrong = BTreeSet::new();
        let memory = Memory::read(scene, &mut wrong);
        let plain = |handle: NodeHandle| handle.bits() - 0x1000;
        for (at, entry) in scene.journal.iter().enumerate() {
            match entry {
                Entry::Terminals { stream, terminals } => {
                    streams.entry(stream.bits()).or_default().push(Look {
                        entry: at,
                        terminals: terminals.iter().map(|d| plain(d.node)).collect(),
                    });
                }
                Entry::Node { node, dependencies } => {
                    let to = plain(node);
                    seen[to] = dependencies.iter().map(|d| plain(d.node)).collect();
                    for &from in &seen[to] {
                        any[from][to] = true;
                    }
                }
                Entry::Allocate { block, stream, address, bytes } => blocks.push(Block {
                    number: block.0,
                    address,
                    bytes,
                    allocated: at,
                    freed: None,
                    outside: false,
                    own: stream.bits(),
                    uses: BTreeMap::from([(stream.bits(), None)]),
                }),
                Entry::Use { block, stream } => {
                    find(&mut blocks, block).uses.insert(stream.bits(), None);
                }
                Entry::LastUse { block, stream } => {
                    find(&mut blocks, block).uses.insert(stream.bits(), Some(at));
                }
                Entry::Outside { block } => find(&mut blocks, block).outside = true,
                Entry::Free { block } => find(&mut blocks, block).freed = Some(at),
                Entry::Standing { block, address, bytes } => {
                    standing.push((block.0, (address, bytes), at, None))
                }
                Entry::Input { block, stream } => {
                    let found = standing.iter().position(|(number, ..)| *number == block.0);
                    let (number, (address, bytes), allocated, _) =
                        standing.remove(found.expect("well-formed"));
                    // Before all that came later.
                    let at = blocks.partition_point(|other| other.allocated < allocated);
                    let input = Block {
                        number,
                        address,
                        bytes,
                        allocated,
                        freed: None,
                        outside: false,
                        own: stream.bits(),
                        uses: BTreeMap::from([(stream.bits(), None)]),
                    };
                    blocks.insert(at, input);
                }
                Entry::Settled { block } => {
                    let found = standing.iter_mut().find(|(number, ..)| *number == block.0);
                    found.expect("well-formed").3 = Some(at);
                }
                Entry::Pool { .. }
                | Entry::Bound { .. }
                | Entry::Shared { .. }
                | Entry::OutputFreed { .. } => {}
                Entry::Graphs => beside_graphs = true,
                Entry::Looked => looked = true,
            }
        }

        let direct: Vec<Set> =
            (0..count).map(|to| (0..count).filter(|&from| any[from][to]).collect()).collect();
        close(&mut any);
        let acyclic = (0..count).all(|n| !any[n][n]);
        close(&mut reach);
        let completed = |x: usize, y: usize| {
            fulls.iter().any(|&(u, v)| (x == u || reach[x][u]) && (v == y || reach[v][y]))
        };
        let mut behind = empty();
        for (to, from) in seen.iter().enumerate() {
            for &from in from {
                behind[from][to] = true;
            }
        }
        close(&mut behind);
        let past = |terminals: &Set| -> Set {
            (0..count).filter(|&n| terminals.iter().any(|&t| t == n || behind[n][t])).collect()
        };
        let mut first_seen = vec![usize::MAX; count];
        for look in streams.values().flatten() {
            for node in past(&look.terminals) {
                first_seen[node] = first_seen[node].min(look.entry);
            }
        }

        // Blocks may be used on streams that were never looked at.
        for block in &blocks {
            for &stream in block.uses.keys() {
                streams.entry(stream).or_default();
            }
        }
        let after = |points: &Set, n: usize| !acyclic || points.iter().all(|&p| any[p][n]);
        let mut logs: BTreeMap<usize, Log> = BTreeMap::new();
        for (&stream, looks) in &streams {
            let (mut ever, mut steps, mut broken) = (Set::new(), Vec::new(), Vec::new());
            for (index, look) in looks.iter().enumerate() {
                let now = past(&look.terminals);
                let mut gained: Set = now.difference(&ever).copied().collect();
                ever.extend(now.iter().copied());
                let none = Set::new();
                let before = index.checked_sub(1).map_or(&none, |at| &looks[at].terminals);
                // A launch depends on all that its stream waited for.
                let launches = gained.iter().any(|&n| before.is_subset(&direct[n]));
                let clean = before.is_subset(&now)
                    && (gained.is_empty() || launches || before.is_subset(&look.terminals));
                broken.push(!clean);
                // What a look saw before the step began was not launched in it.
                let began = index.checked_sub(1).map(|at| looks[at].entry);
                gained.retain(|&n| began.is_none_or(|began| first_seen[n] > began));
                steps.push(gained);
            }
            let mut tail = Set::new();
            if let Some(last) = looks.last() {
                let later = |n: &usize| {
                    !ever.contains(n) && first_seen[*n] > last.entry && after(&last.terminals, *n)
                };
                tail.extend((0..count).filter(later));
            } else {
                tail.extend(0..count);
            }
            logs.insert(stream, Log { steps, broken, ever, tail });
        }

        let users = |block: &Block| -> Set {
            let mut users = Set::new();
            let look_before = |stream: usize, entry: usize| {
                streams[&stream].iter().rposition(|look| look.entry < entry)
            };
            // None for a block from before.
            let own = look_before(block.own, block.allocated);
            let none = Set::new();
            let point = own.map_or(&none, |own| &streams[&block.own][own].terminals);
            for (&stream, last) in &block.uses {
                let log = &logs[&stream];
                let until = last.or(block.freed);
                // A stream that was never looked at is outside, and so are its users.
                let looked = look_before(stream, until.unwrap_or(usize::MAX)).is_some();
                if block.outside && stream != block.own && !looked {
                    continue;
                }
                let end = match until {
                    Some(entry) => look_before(stream, entry).expect("looked at") + 1,
                    None => log.steps.len() + 1,
                };
                let first = look_before(stream, block.allocated).map_or(0, |look| look + 1);
                // Launches of the block's own stream come after what it waited for at the allocation;
                // from a broken step on, after what it waited for then.
                let mut point = Some(point);
                for step in first..end {
                    let own_broken = stream == block.own && log.broken.get(step) == Some(&true);
                    if own_broken {
                        point = None;
                    }
                    let gained = log.steps.get(step).unwrap_or(&log.tail).iter().copied();
                    let new = gained.filter(|&n| first_seen[n] > block.allocated);
                    users.extend(new.filter(|&n| point.is_none_or(|point| after(point, n))));
                    if own_broken {
                        point = streams[&stream].get(step).map(|look| &look.terminals);
                    }
                }
            }
            users
        };
        let users: Vec<Set> = blocks.iter().map(users).collect();

        let has_seen = |node: usize| logs.values().any(|log| log.ever.contains(&node));
        let (mut shared, mut met) = (false, false);
        let any_user = |at: usize| blocks[at].outside || !users[at].is_empty();
        // What was never used and is gone never had memory.
        let has_memory = |at: usize| any_user(at) || blocks[at].freed.is_none();
        let range = |at: usize| (blocks[at].address, blocks[at].bytes);
        for (b, later) in blocks.iter().enumerate() {
            for (a, earlier) in blocks[..b].iter().enumerate() {
                let at_address = overlap(range(a), range(b));
                let meet = has_memory(a) && has_memory(b) && memory.meet(range(a), range(b));
                if !at_address && !meet {
                    continue;
                }
                // On memory that came at the end it is the users' order that counts.
                let live = |freed| at_address && freed > later.allocated;
                if earlier.freed.is_none_or(live) {
                    wrong.insert(Wrong::Live(earlier.number, later.number));
                }
                // A node that no look saw may use what has no other users.
                met |= !later.outside;
                if !any_user(a) || !any_user(b) {
                    shared |= !any_user(b);
                    continue;
                }
                shared = true;
                if earlier.outside {
                    wrong.insert(Wrong::Outside(earlier.number, later.number));
                }
                for &x in &users[a] {
                    for &y in users[b].iter().filter(|&&y| !completed(x, y)) {
                        wrong.insert(Wrong::Order(earlier.number, later.number, x, y));
                    }
                }
            }
        }
        for (index, block) in blocks.iter().enumerate() {
            let bytes = memory.of(range(index));
            let different: BTreeSet<_> = bytes.iter().collect();
            if has_memory(index) && different.len() < bytes.len() {
                wrong.insert(Wrong::Folded(block.number));
            }
            if block.freed.is_none() || block.outside {
                let of = different.iter().map(|byte| byte.0);
                let kept = |of: &u64| {
                    let mut kept = memory.shared.difference(&memory.outputs_freed);
                    kept.any(|(shared, _)| shared == of)
                };
                let of = of.filter(kept);
                wrong.extend(of.map(|memory| Wrong::Overwritten(block.number, memory)));
            }
        }
        for &(number, stands, from, until) in &standing {
            for (index, block) in blocks.iter().enumerate() {
                if until.is_none() && has_memory(index) && memory.meet(stands, range(index)) {
                    wrong.insert(Wrong::Standing(number, block.number));
                }
                if !overlap(stands, range(index)) {
                    continue;
                }
                let meets = until.is_none_or(|until| block.allocated < until)
                    && block.freed.is_none_or(|freed| from < freed);
                let used = block.outside || !users[index].is_empty();
                if meets || (until.is_none() && used) {
                    wrong.insert(Wrong::Standing(number, block.number));
                }
            }
        }
        let shared = shared || beside_graphs && (0..blocks.len()).any(any_user);
        let freed = |at: usize| blocks[at].freed.is_some() && !any_user(at);
        let freed = (0..blocks.len()).any(freed);
        if looked {
            let seen: Vec<usize> = (0..count).filter(|&node| has_seen(node)).collect();
            let unseen: Vec<usize> = (0..count).filter(|&node| !has_seen(node)).collect();
            let beside = |&node: &usize| {
                let other = |&it: &usize| it == node || completed(it, node) || completed(node, it);
                let is_stray = shared && !seen.iter().all(|&it| any[it][node]);
                is_stray || freed || met && !unseen.iter().all(other)
            };
            wrong.extend(unseen.iter().copied().filter(beside).map(Wrong::Stray));
        } else if shared || freed {
            let ends = streams.values().filter_map(|looks| looks.last());
            let ends: Vec<&Set> = ends.map(|look| &look.terminals).collect();
            for node in (0..count).collect::<Set>() {
                let later = |&t: &usize| t == node || any[t][node];
                if !has_seen(node)
                    && ends.iter().all(|end| !end.is_empty() && !end.iter().any(later))
                {
                    wrong.insert(Wrong::Stray(node));
                }
            }
        }
        wrong
    }
}

/// A live block.
#[derive(Clone)]
struct Live {
    number: u64,
    users: BTreeSet<usize>,
    range: (u64, u64),
}

/// Plays a capture at random, edits and sloppy hosts included.
struct Player {
    scene: Scene,
    /// Terminals of each stream that is in the capture.
    streams: Vec<Option<BTreeSet<usize>>>,
    written: BTreeSet<usize>,
    live: Vec<Live>,
    /// Blocks from before: number and range.
    inputs: Vec<(u64, (u64, u64))>,
    standing: Vec<u64>,
    numbers: u64,
    /// Where blocks may begin: from zero to here.
    reach: u64,
    /// One in how many launches is programmatic, of those that may be.
    seldom: u8,
}

impl Player {
    fn pick<T: Clone>(u: &mut Unstructured<'_>, from: &[T]) -> Drawn<Option<T>> {
        match from.is_empty() {
            true => Ok(None),
            false => u.choose(from).map(|picked| Some(picked.clone())),
        }
    }

    fn active(&self) -> Vec<usize> {
        (0..self.streams.len()).filter(|&s| self.streams[s].is_some()).collect()
    }

    fn graph(&self) -> DiGraph<(), (), usize> {
        let nodes = &self.scene.finished.nodes;
        let edges = nodes.iter().flat_map(|(to, edges)| edges.iter().map(|edge| (edge.0, *to)));
        // Each node has an edge to itself, so that the graph has all of them.
        DiGraph::from_edges(edges.chain((0..nodes.len()).map(|n| (n, n))))
    }

    fn look(&mut self, number: usize) {
        let Some(terminals) = self.streams[number].clone() else {
            return;
        };
        let graph = self.graph();
        for n in 0..graph.node_count() {
            let leads = |&t: &usize| has_path_connecting(&graph, n.into(), t.into(), None);
            let behind = terminals.iter().any(leads);
            if behind && self.written.insert(n) {
                let from: Vec<_> = self.scene.finished.nodes[n].1.iter().map(|e| e.0).collect();
                self.scene.seen(n, &from);
            }
        }
        let terminals: Vec<usize> = terminals.into_iter().collect();
        self.scene.look(number, &terminals);
    }

    fn step(&mut self, u: &mut Unstructured<'_>, tidy: bool) -> Drawn<()> {
        let active = self.active();
        let s = *u.choose(&active)?;
        let terminals = self.streams[s].clone().unwrap_or_default();
        let count = self.scene.finished.nodes.len();
        match u.int_in_range(0..=if tidy { 21 } else { 28 })? {
            0..=5 => {
                let late = terminals.len() == 1 && u.ratio(1, self.seldom)?;
                let edge = if late { LATE } else { FULL };
                let edges: Vec<_> = terminals.iter().map(|&from| (from, edge)).collect();
                self.scene.edges(count, &edges);
                self.streams[s] = Some(BTreeSet::from([count]));
            }
            6..=8 => {
                let t = u.choose_index(self.streams.len())?;
                self.streams[t].get_or_insert_default().extend(terminals);
            }
            9..=10 => self.look(s),
            11..=14 => {
                let range = (u.int_in_range(0..=self.reach)?, u.int_in_range(1..=2)?);
                let live = self.live.iter().map(|block| block.range);
                let mut there = live.chain(self.inputs.iter().map(|input| input.1));
                let taken = there.any(|(at, bytes)| at < range.0 + range.1 && range.0 < at + bytes);
                if taken && (tidy || !u.ratio(1, 30)?) {
                    return Ok(());
                }
                self.look(s);
                self.numbers += 1;
                self.scene.allocate_at(self.numbers, s, range.0, range.1);
                self.live.push(Live { number: self.numbers, users: BTreeSet::from([s]), range });
            }
            15..=17 => {
                if self.live.is_empty() {
                    return Ok(());
                }
                let index = u.choose_index(self.live.len())?;
                let block = self.live.remove(index);
                for stream in block.users {
                    self.look(stream);
                }
                self.scene.free(block.number);
            }
            18 => {
                if self.live.is_empty() {
                    return Ok(());
                }
                let index = u.choose_index(self.live.len())?;
                self.live[index].users.insert(s);
                self.scene.used(self.live[index].number, s);
            }
            19 => {
                if let Some((number, range)) = self.inputs.pop() {
                    self.scene.input(number, s);
                    self.live.push(Live { number, users: BTreeSet::from([s]), range });
                }
            }
            20..=21 => {
                if let Some(block) = Self::pick(u, &self.live)? {
                    let user = Self::pick(u, &block.users.into_iter().collect::<Vec<_>>())?;
                    if let Some(user) = user {
                        self.look(user);
                        self.scene.last_use(block.number, user);
                    }
                }
            }
            22..=23 if count > 0 => {
                self.streams[s] = Some(BTreeSet::from([u.choose_index(count)?]));
            }
            24 if count > 0 => {
                let to = u.choose_index(count)?;
                let edges = &mut self.scene.finished.nodes[to].1;
                if !edges.is_empty() {
                    let at = u.choose_index(edges.len())?;
                    edges.remove(at);
                }
            }
            25 if count > 0 => {
                let (from, to) = (u.choose_index(count)?, u.choose_index(count)?);
                let edges = &self.scene.finished.nodes[to].1;
                if !edges.iter().any(|edge| edge.0 == from)
                    && !has_path_connecting(&self.graph(), to.into(), from.into(), None)
                {
                    self.scene.finished.nodes[to].1.push((from, FULL));
                }
            }
            26 => {
                if let (Some(block), true) = (Self::pick(u, &self.live)?, u.ratio(1, 3)?) {
                    self.scene.outside(block.number);
                }
            }
            27 => {
                self.numbers += 1;
                let range = (u.int_in_range(0..=20)?, u.int_in_range(1..=2)?);
                self.scene.standing_at(self.numbers, range.0, range.1);
                self.standing.push(self.numbers);
            }
            _ => {
                if let Some(number) = self.standing.pop() {
                    self.scene.settled(number);
                }
            }
        }
        Ok(())
    }
}

fn play(u: &mut Unstructured<'_>, reach: u64) -> Drawn<Scene> {
    // Streams are taken in batches of different sizes.
    let mut streams = vec![None; *u.choose(&[4, 4, 4, 1, 9, 24])?];
    streams[0] = Some(BTreeSet::new());
    let mut player = Player {
        scene: Scene::new(),
        streams,
        written: BTreeSet::new(),
        live: Vec::new(),
        inputs: Vec::new(),
        standing: Vec::new(),
        numbers: 0,
        reach,
        seldom: *u.choose(&[4, 40])?,
    };
    let tidy = u.arbitrary()?;
    for address in (0..=reach).step_by(2) {
        if u.ratio(1, 4)? {
            player.numbers += 1;
            player.scene.standing_at(player.numbers, address, 2);
            player.inputs.push((player.numbers, (address, 2)));
        }
    }
    let steps = u.int_in_range(5..=60)?;
    for _ in 0..steps {
        player.step(u, tidy)?;
    }
    if u.ratio(2, 3)? {
        for stream in 0..player.streams.len() {
            player.look(stream);
        }
    }
    if u.ratio(2, 3)? {
        player.scene.marked(u.arbitrary()?, u.arbitrary()?);
    }
    // The driver promises no order.
    let nodes = &mut player.scene.finished.nodes;
    if u.arbitrary()? {
        nodes.reverse();
    }
    Ok(player.scene)
}

fn name(violation: &Violation) -> naive::Wrong {
    use naive::Wrong;
    let plain = |handle: NodeHandle| handle.bits() - 0x1000;
    match *violation {
        Violation::LiveOverlap { earlier, later, .. } => {
            Wrong::Live(earlier.block.0, later.block.0)
        }
        Violation::OutsideUse { earlier, later, .. } => {
            Wrong::Outside(earlier.block.0, later.block.0)
        }
        Violation::Standing { standing, block, .. } => {
            Wrong::Standing(standing.block.0, block.block.0)
        }
        Violation::NotOrdered { earlier, later, ref users, .. } => {
            let [first, second] = [0, 1].map(|user: usize| plain(users[user].node));
            Wrong::Order(earlier.block.0, later.block.0, first, second)
        }
        Violation::Unattributed { ref node, .. }
        | Violation::Unseen { ref node, .. }
        | Violation::OnlyUser { ref node, .. } => Wrong::Stray(plain(node.node)),
        Violation::Folded { block, .. } => Wrong::Folded(block.block.0),
        Violation::Overwritten { block, memory } => Wrong::Overwritten(block.block.0, memory),
        Violation::BoundTwice { address, .. } => Wrong::Twice(address),
        Violation::BoundBeyond { memory, .. } => Wrong::Beyond(memory),
        ref other => panic!("unexpected: {other}"),
    }
}

/// The checker's answer, which the naive definition has to confirm.
fn agree(scene: &Scene, policy: Programmatic) -> std::result::Result<Summary, Violation> {
    let wrong = naive::judge(scene, policy);
    let answer = scene.check(policy);
    match &answer {
        Ok(_) => assert!(wrong.is_empty(), "{policy}: missed {wrong:?}\n{}", show(scene)),
        Err(violation) => {
            let named = name(violation);
            assert!(
                wrong.contains(&named),
                "{policy}: {named:?} is not among {wrong:?}\n{}",
                show(scene)
            );
        }
    }
    answer
}

#[test]
fn agrees_with_the_naive_definition() {
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    cases(1_500, 512..=4_096, |u| {
        let scene = play(u, 3)?;
        for &policy in Programmatic::ALL {
            let kind = match agree(&scene, policy) {
                Ok(Summary { pairs: 0, .. }) => "legal, no pairs",
                Ok(_) => "legal",
                Err(Violation::NotOrdered { .. }) => "not ordered",
                Err(
                    Violation::Unattributed { .. }
                    | Violation::Unseen { .. }
                    | Violation::OnlyUser { .. },
                ) => "stray",
                Err(_) => "other",
            };
            *tally.entry(kind).or_default() += 1;
        }
        Ok(())
    });
    println!("{tally:?}");
    assert!(tally.contains_key("legal") && tally.contains_key("not ordered"));
}

fn show(scene: &Scene) -> String {
    let mut text = String::new();
    for (number, edges) in &scene.finished.nodes {
        text +=
            &format!("node {number} after {:?}\n", edges.iter().map(|e| e.0).collect::<Vec<_>>());
    }
    for (index, entry) in scene.journal.iter().enumerate() {
        text += &format!("{index}: {entry:?}\n");
    }
    text
}
