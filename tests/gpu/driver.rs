//! What a driver promises, asked of the simulated one and of CUDA's on a GPU: on this the library relies.

use std::sync::Arc;
use std::thread;

use crate::device::Device;
use crate::driven::{
    active, capturing, dependencies, full, launch, node, refused, sorted, status, terminals,
};
use regraph::driver::{
    CaptureMode, CaptureStatus, Dependency, EdgeData, ErrorKind, GraphHandle, MemorySupport,
    NodeHandle, NodeKind, StreamHandle,
};
use regraph_sim::SimDriver;
use regraph_tagged::{Tagged, Work};

const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
const MIB: u64 = 1 << 20;
const LEGACY: StreamHandle = StreamHandle::from_bits(0);

twins! {
    forks_and_joins_follow_the_terminals
    set_moves_a_stream_anywhere_in_its_graph
    what_set_dropped_need_not_rejoin
    an_edge_turns_programmatic_with_the_launch
    streams_left_behind_are_unjoined
    captures_never_merge
    captures_are_isolated_from_work_outside
    a_capture_ends_where_it_began
    modes_decide_what_an_unsafe_call_ruins
    a_wait_for_the_device_invalidates_captures_in_every_mode
    memory_and_events_do_not_disturb_a_capture
    questions_do_not_disturb_a_capture
    the_legacy_stream_tells_of_a_capture_and_leaves_it_alive
    a_body_is_a_capture_and_a_graph_of_its_own
    edits_show_in_the_dependencies
    any_number_of_predecessors_is_seen
    any_thread_may_call
    too_much_memory_is_told_apart
    kernels_write_and_check_tags
    memory_mapped_twice_is_one_memory
    execution_catches_two_streams_on_one_memory
    completion_behind_a_programmatic_edge_includes_its_predecessor
    the_start_behind_a_programmatic_edge_does_not_wait
}

/// What neither trait of a driver has.
trait Driven: Device {
    /// A stream that synchronises with the legacy stream.
    fn blocking_stream(&self) -> StreamHandle;

    /// The error of a call that a capture's mode may forbid.
    fn unsafe_call(&self) -> Option<u32>;

    /// Handles of the legacy stream, and of streams that a thread has by itself.
    fn default_streams(&self) -> (&'static [usize], &'static [usize]);

    /// Makes a driver object for the same device, without kernels.
    fn open_again(&self) {}
}

impl Driven for SimDriver {
    fn blocking_stream(&self) -> StreamHandle {
        self.create_blocking_stream()
    }

    fn unsafe_call(&self) -> Option<u32> {
        self.unsafe_call().err().map(|error| error.code)
    }

    fn default_streams(&self) -> (&'static [usize], &'static [usize]) {
        (&[0], &[])
    }
}

fn early(node: NodeHandle) -> Dependency {
    Dependency { node, edge: EdgeData::PROGRAMMATIC }
}

fn elsewhere<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(call).join().unwrap())
}

fn granularity(driver: &Arc<impl Driven>) -> u64 {
    match driver.memory_support() {
        MemorySupport::Mapped { granularity } => granularity,
        other => panic!("no virtual memory management: {other:?}"),
    }
}

/// The wrong tags of each replay of a graph, under many orders of its work, where the device leaves them to choose.
fn wrong_tags(driver: &Arc<impl Driven>, stream: StreamHandle, graph: GraphHandle) -> Vec<u64> {
    let executable = driver.instantiate(graph).unwrap();
    let replay = |seed| {
        driver.schedule(seed);
        driver.replay(executable, stream).unwrap();
        driver.synchronize().unwrap();
        driver.take_wrong_tags().unwrap()
    };
    let wrong = (0..20).map(replay).collect();
    driver.destroy_executable(executable).unwrap();
    wrong
}

fn forks_and_joins_follow_the_terminals(driver: &Arc<impl Driven>) {
    let s = capturing::<2>(driver);
    assert_eq!(terminals(driver, s[0]), []);
    let first = launch(driver, s[0]);
    for idle in [s[1], LEGACY] {
        assert_eq!(status(driver, idle), CaptureStatus::None);
    }
    driver.wait(s[1], s[0]).unwrap();
    assert_eq!(active(driver, s[0]), active(driver, s[1]));
    assert_eq!(terminals(driver, s[1]), full(&[first]));

    let (right, left) = (launch(driver, s[1]), launch(driver, s[0]));
    assert_eq!(dependencies(driver, first), []);
    assert_eq!(dependencies(driver, right), full(&[first]));
    assert_eq!(dependencies(driver, left), full(&[first]));
    driver.wait(s[0], s[1]).unwrap();
    driver.wait(s[0], s[1]).unwrap();
    assert_eq!(terminals(driver, s[0]), full(&[left, right]));
    assert_eq!(terminals(driver, s[1]), full(&[right]));
    let last = launch(driver, s[0]);
    assert_eq!(dependencies(driver, last), full(&[left, right]));

    let graph = driver.end_capture(s[0]).unwrap();
    let (mut nodes, mut expected) = (Vec::new(), [first, right, left, last]);
    driver.nodes(graph, &mut nodes).unwrap();
    nodes.sort_unstable();
    expected.sort_unstable();
    assert_eq!(nodes, expected);
    for node in nodes {
        assert_eq!(driver.node_kind(node).unwrap(), NodeKind::KERNEL);
    }
    for stream in s {
        assert_eq!(status(driver, stream), CaptureStatus::None);
        driver.destroy_stream(stream).unwrap();
    }
    driver.destroy_graph(graph).unwrap();
}

fn set_moves_a_stream_anywhere_in_its_graph(driver: &Arc<impl Driven>) {
    let s = capturing::<2>(driver);
    let (a, b) = (launch(driver, s[0]), launch(driver, s[0]));
    driver.wait(s[1], s[0]).unwrap();
    let c = launch(driver, s[1]);
    let mixed = sorted(vec![early(a), Dependency::full(c)]);
    driver.set_terminals(s[0], &mixed).unwrap();
    assert_eq!(terminals(driver, s[0]), mixed);
    let d = launch(driver, s[0]);
    assert_eq!(dependencies(driver, d), mixed);
    driver.set_terminals(s[0], &full(&[b, a])).unwrap();
    assert_eq!(terminals(driver, s[0]), full(&[b, a]));
    driver.set_terminals(s[0], &[]).unwrap();
    assert_eq!(terminals(driver, s[0]), []);
    let root = launch(driver, s[0]);
    assert_eq!(dependencies(driver, root), []);
    driver.set_terminals(s[0], &full(&[b, c, d, root])).unwrap();
    driver.end_capture(s[0]).unwrap();
}

fn what_set_dropped_need_not_rejoin(driver: &Arc<impl Driven>) {
    let s = capturing::<2>(driver);
    launch(driver, s[0]);
    driver.wait(s[1], s[0]).unwrap();
    launch(driver, s[1]);
    driver.set_terminals(s[1], &[]).unwrap();
    driver.end_capture(s[0]).unwrap();

    // Nor need what came before it.
    let s = capturing::<2>(driver);
    let a = launch(driver, s[0]);
    driver.wait(s[1], s[0]).unwrap();
    launch(driver, s[1]);
    driver.wait(s[0], s[1]).unwrap();
    launch(driver, s[0]);
    driver.set_terminals(s[0], &full(&[a])).unwrap();
    driver.end_capture(s[0]).unwrap();
}

fn an_edge_turns_programmatic_with_the_launch(driver: &Arc<impl Driven>) {
    let [s] = capturing(driver);
    let a = launch(driver, s);
    assert_eq!(terminals(driver, s), full(&[a]));
    let b = node(driver, s, Work::default(), true);
    assert_eq!(dependencies(driver, b), [early(a)]);
    let c = launch(driver, s);
    assert_eq!(dependencies(driver, c), full(&[b]));
    driver.end_capture(s).unwrap();
}

fn streams_left_behind_are_unjoined(driver: &Arc<impl Driven>) {
    let s = capturing::<2>(driver);
    launch(driver, s[0]);
    driver.wait(s[1], s[0]).unwrap();
    launch(driver, s[1]);
    let error = driver.end_capture(s[0]).unwrap_err();
    assert_eq!((error.kind, error.call), (ErrorKind::CaptureUnjoined, "cuStreamEndCapture"));
    assert_eq!(s.map(|stream| status(driver, stream)), [CaptureStatus::None; 2]);

    // A fork without work has nothing to bring back.
    let s = capturing::<2>(driver);
    launch(driver, s[0]);
    driver.wait(s[1], s[0]).unwrap();
    launch(driver, s[0]);
    driver.end_capture(s[0]).unwrap();
}

fn captures_never_merge(driver: &Arc<impl Driven>) {
    use CaptureStatus::{Invalidated, None};
    let s = capturing::<3>(driver);
    driver.wait(s[2], s[0]).unwrap();
    driver.begin_capture(s[1], CaptureMode::Relaxed).unwrap();
    refused(driver.wait(s[1], s[0]), ErrorKind::CaptureMerge);
    let all = || s.map(|stream| status(driver, stream));
    assert_eq!(all(), [Invalidated; 3]);
    for stream in s {
        refused(driver.launch(stream, Work::default(), false), ErrorKind::CaptureInvalidated);
    }
    refused(driver.end_capture(s[1]), ErrorKind::CaptureInvalidated);
    assert_eq!(all(), [Invalidated, None, Invalidated], "no stream changes sides");
    refused(driver.end_capture(s[0]), ErrorKind::CaptureInvalidated);
    assert_eq!(all(), [None; 3]);
}

fn captures_are_isolated_from_work_outside(driver: &Arc<impl Driven>) {
    let s = capturing::<2>(driver);
    refused(driver.wait(s[0], s[1]), ErrorKind::CaptureIsolation);
    assert_eq!(status(driver, s[0]), CaptureStatus::Invalidated);
    assert_eq!(status(driver, s[1]), CaptureStatus::None);
    // The error does not go away before the end.
    refused(driver.wait(s[1], s[0]), ErrorKind::CaptureInvalidated);
    refused(driver.set_terminals(s[0], &[]), ErrorKind::CaptureInvalidated);
    refused(driver.end_capture(s[0]), ErrorKind::CaptureInvalidated);
}

fn a_capture_ends_where_it_began(driver: &Arc<impl Driven>) {
    let [a, b] = [(); 2].map(|()| driver.create_stream().unwrap());
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        // An end on another stream ruins it.
        driver.begin_capture(a, mode).unwrap();
        driver.wait(b, a).unwrap();
        assert_eq!(driver.end_capture(b).unwrap_err().code, 903);
        assert_eq!([a, b].map(|it| status(driver, it)), [CaptureStatus::Invalidated; 2]);
        refused(driver.end_capture(a), ErrorKind::CaptureInvalidated);
        assert_eq!(status(driver, b), CaptureStatus::None);
        // An end by another thread ends it, and gives no graph.
        driver.begin_capture(a, mode).unwrap();
        refused(elsewhere(|| driver.end_capture(a)), ErrorKind::CaptureWrongThread);
        assert_eq!(status(driver, a), CaptureStatus::None);
    }
    driver.begin_capture(a, CaptureMode::Relaxed).unwrap();
    elsewhere(|| driver.end_capture(a)).unwrap();
}

fn modes_decide_what_an_unsafe_call_ruins(driver: &Arc<impl Driven>) {
    // What a call of the own thread ruins, and one of another thread.
    let ruins = [[true, true], [true, false], [false, false]];
    for (mode, ruins) in MODES.into_iter().zip(ruins) {
        for (own, ruined) in [true, false].into_iter().zip(ruins) {
            let stream = driver.create_stream().unwrap();
            driver.begin_capture(stream, mode).unwrap();
            launch(driver, stream);
            let call = || driver.unsafe_call();
            let error = if own { call() } else { elsewhere(call) };
            let invalidated = status(driver, stream) == CaptureStatus::Invalidated;
            assert_eq!(
                [error.is_some(), invalidated],
                [ruined; 2],
                "{mode:?}, own thread {own}: {error:?}"
            );
            match driver.end_capture(stream) {
                Ok(_) => assert!(!ruined),
                Err(error) => assert_eq!(error.kind, ErrorKind::CaptureInvalidated),
            }
            assert_eq!(status(driver, stream), CaptureStatus::None);
            assert_eq!(driver.unsafe_call(), None);
        }
    }
}

fn a_wait_for_the_device_invalidates_captures_in_every_mode(driver: &Arc<impl Driven>) {
    for (mode, own) in MODES.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let stream = driver.create_stream().unwrap();
        driver.begin_capture(stream, mode).unwrap();
        launch(driver, stream);
        let call = || driver.synchronize();
        refused(if own { call() } else { elsewhere(call) }, ErrorKind::CaptureUnsupported);
        assert_eq!(status(driver, stream), CaptureStatus::Invalidated, "{mode:?}, own {own}");
        refused(driver.end_capture(stream), ErrorKind::CaptureInvalidated);
        driver.synchronize().unwrap();
    }
}

/// What an engine does with memory and events beside a capture.
fn memory_and_events_do_not_disturb_a_capture(driver: &Arc<impl Driven>) {
    let granularity = granularity(driver);
    let outside = driver.create_stream().unwrap();
    let event = driver.create_event().unwrap();
    let use_memory = || {
        let before = driver.memory_info().unwrap();
        assert!(before.total > 0);
        let address = driver.reserve(2 * granularity).unwrap();
        let memory = driver.create(granularity).unwrap();
        driver.map(address + granularity, granularity, memory).unwrap();
        driver.set_access(address + granularity, granularity).unwrap();
        driver.unmap(address + granularity, granularity).unwrap();
        driver.release(memory).unwrap();
        driver.unreserve(address, 2 * granularity).unwrap();
        let block = driver.allocate(MIB).unwrap();
        driver.free(block).unwrap();
        let fresh = driver.create_event().unwrap();
        driver.record_event(fresh, outside).unwrap();
        while !driver.query_event(fresh).unwrap() {
            std::hint::spin_loop();
        }
        driver.record_event(fresh, outside).unwrap();
        driver.synchronize_event(fresh).unwrap();
        assert!(driver.query_event(fresh).unwrap());
        driver.destroy_event(fresh).unwrap();
    };
    let streams = [driver.create_stream().unwrap(), driver.blocking_stream()];
    for (mode, stream) in MODES.into_iter().flat_map(|mode| streams.map(|stream| (mode, stream))) {
        driver.record_event(event, outside).unwrap();
        driver.synchronize().unwrap();
        driver.begin_capture(stream, mode).unwrap();
        let node = launch(driver, stream);
        use_memory();
        assert!(driver.query_event(event).unwrap());
        // And from a thread that does not capture.
        elsewhere(use_memory);
        assert_eq!(terminals(driver, stream), full(&[node]), "{mode:?}");
        launch(driver, stream);
        let graph = driver.end_capture(stream).unwrap();
        let executable = driver.instantiate(graph).unwrap();
        driver.replay(executable, stream).unwrap();
        driver.synchronize().unwrap();
        driver.destroy_executable(executable).unwrap();
        driver.destroy_graph(graph).unwrap();
    }
}

/// What an engine asks while a stream captures: about a capture without nodes too, and about events that the stream
/// recorded before, whether their work has completed or not.
fn questions_do_not_disturb_a_capture(driver: &Arc<impl Driven>) {
    let streams = [driver.create_stream().unwrap(), driver.blocking_stream()];
    for (mode, stream) in MODES.into_iter().flat_map(|mode| streams.map(|stream| (mode, stream))) {
        for pending in [false, true] {
            let earlier = driver.create_event().unwrap();
            let delay = if pending { 20_000_000 } else { 0 };
            driver.launch(stream, Work { delay, ..Work::default() }, false).unwrap();
            driver.record_event(earlier, stream).unwrap();
            if !pending {
                driver.synchronize().unwrap();
            }
            driver.begin_capture(stream, mode).unwrap();
            let valid = |call: &str| {
                let status = driver.capture_of(stream).unwrap();
                let active = matches!(status, CaptureStatus::Active { .. });
                assert!(active, "{call} invalidated the capture: {mode:?}, pending {pending}");
            };
            let twice = |call: &str, ask: &(dyn Fn() + Sync)| {
                elsewhere(ask);
                valid(call);
                ask();
                valid(call);
            };
            for _ in 0..2 {
                let (_, graph) = active(driver, stream);
                valid("capture_status");
                let mut nodes = Vec::new();
                driver.nodes(graph, &mut nodes).unwrap();
                valid("nodes");
                for &node in &nodes {
                    driver.node_kind(node).unwrap();
                    dependencies(driver, node);
                    driver.pointers(node, &mut Vec::new()).unwrap();
                    let _ = driver.kernel_name(node);
                    valid("what a node is");
                }
                twice("is_capturing", &|| assert!(driver.is_capturing(stream).unwrap()));
                twice("query_event", &|| assert!(driver.query_event(earlier).is_ok()));
                twice("synchronize_event", &|| driver.synchronize_event(earlier).unwrap());
                twice("device_of_stream", &|| drop(driver.device_of_stream(stream)));
                twice("a driver object", &|| driver.open_again());
                // The second time there is a node.
                launch(driver, stream);
            }
            driver.destroy_event(earlier).unwrap();
            valid("destroy_event");
            driver.end_capture(stream).unwrap();
        }
    }
    driver.synchronize().unwrap();
}

fn the_legacy_stream_tells_of_a_capture_and_leaves_it_alive(driver: &Arc<impl Driven>) {
    let (stream, blocking) = (driver.create_stream().unwrap(), driver.blocking_stream());
    let event = driver.create_event().unwrap();
    let (legacy, own) = driver.default_streams();
    let handles = |all: &'static [usize]| all.iter().map(|&bits| StreamHandle::from_bits(bits));
    refused(driver.begin_capture(LEGACY, CaptureMode::Relaxed), ErrorKind::CaptureUnsupported);
    for mode in MODES {
        for legacy in handles(legacy) {
            driver.record_event(event, legacy).unwrap();
        }
        driver.begin_capture(blocking, mode).unwrap();
        let node = launch(driver, blocking);
        for legacy in handles(legacy) {
            let mut terminals = full(&[node]);
            let error = driver.capture_status(legacy, &mut terminals).unwrap_err();
            assert_eq!((error.kind, error.code), (ErrorKind::CaptureImplicit, 906));
            assert!(terminals.is_empty());
            refused(driver.record_event(event, legacy), ErrorKind::CaptureImplicit);
        }
        // The thread's own default stream and other streams do not mind.
        for other in handles(own).chain([stream]) {
            assert_eq!(status(driver, other), CaptureStatus::None);
        }
        assert_eq!(terminals(driver, blocking), full(&[node]));
        driver.end_capture(blocking).unwrap();
        assert_eq!(status(driver, LEGACY), CaptureStatus::None);
    }
    // A launch on it is more than a question.
    driver.begin_capture(blocking, CaptureMode::Relaxed).unwrap();
    refused(driver.launch(LEGACY, Work::default(), false), ErrorKind::CaptureImplicit);
    refused(driver.end_capture(blocking), ErrorKind::CaptureInvalidated);
    driver.launch(LEGACY, Work::default(), false).unwrap();
    // Nor does it mind a capture on a stream that is not a blocking one.
    driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    assert_eq!(status(driver, LEGACY), CaptureStatus::None);
    // Until a blocking stream comes into that.
    driver.wait(blocking, stream).unwrap();
    refused(driver.capture_status(LEGACY, &mut Vec::new()), ErrorKind::CaptureImplicit);
    refused(driver.launch(LEGACY, Work::default(), false), ErrorKind::CaptureImplicit);
    let streams = [stream, blocking];
    assert_eq!(streams.map(|it| status(driver, it)), [CaptureStatus::Invalidated; 2]);
    refused(driver.end_capture(stream), ErrorKind::CaptureInvalidated);
    assert_eq!(status(driver, LEGACY), CaptureStatus::None);
}

fn a_body_is_a_capture_and_a_graph_of_its_own(driver: &Arc<impl Driven>) {
    let s = capturing::<2>(driver);
    let memory = driver.allocate(MIB).unwrap();
    let ranges = [1, 2, 3].map(|tag| [Tagged { address: memory, bytes: 4096, tag }]);
    let work = |inputs, outputs| Work { inputs, outputs, ..Work::default() };
    let before = node(driver, s[0], work(&[], &ranges[0]), false);
    let (parent, graph) = active(driver, s[0]);
    let (conditional, body) = driver.add_conditional(graph, &full(&[before])).unwrap();
    assert_eq!(driver.node_kind(conditional).unwrap(), NodeKind::CONDITIONAL);
    assert_eq!(dependencies(driver, conditional), full(&[before]));
    assert_eq!(terminals(driver, s[0]), full(&[before]));

    driver.begin_capture_to_graph(s[1], body, CaptureMode::Relaxed).unwrap();
    let inner = active(driver, s[1]);
    assert_eq!(inner.1, body);
    assert_ne!(inner.0, parent);
    let inside = node(driver, s[1], work(&ranges[0], &ranges[1]), false);
    assert_eq!(dependencies(driver, inside), []);
    assert_eq!(driver.end_capture(s[1]).unwrap(), body);

    driver.set_terminals(s[0], &full(&[conditional])).unwrap();
    let after = node(driver, s[0], work(&ranges[1], &ranges[2]), false);
    assert_eq!(dependencies(driver, after), full(&[conditional]));
    let graph = driver.end_capture(s[0]).unwrap();
    assert_eq!(wrong_tags(driver, s[0], graph), [0; 20]);
    assert_eq!(driver.read_tags(memory, 4096).unwrap(), [3; 8]);
    driver.destroy_graph(graph).unwrap();
}

fn edits_show_in_the_dependencies(driver: &Arc<impl Driven>) {
    let [s] = capturing(driver);
    let (a, b) = (launch(driver, s), launch(driver, s));
    let (_, graph) = active(driver, s);
    let c = driver.add_node(graph, &full(&[a]), Work::default()).unwrap();
    assert_eq!(terminals(driver, s), full(&[b]));
    assert_eq!(dependencies(driver, c), full(&[a]));
    driver.add_dependency(graph, Dependency::full(b), c).unwrap();
    assert_eq!(dependencies(driver, c), full(&[a, b]));
    driver.remove_dependency(graph, Dependency::full(a), c).unwrap();
    assert_eq!(dependencies(driver, c), full(&[b]));

    let d = driver.add_node(graph, &[Dependency::full(a), early(c)], Work::default()).unwrap();
    assert_eq!(dependencies(driver, d), sorted(vec![Dependency::full(a), early(c)]));
    driver.remove_dependency(graph, early(c), d).unwrap();
    assert_eq!(dependencies(driver, d), full(&[a]));
    let root = driver.add_node(graph, &[], Work::default()).unwrap();
    assert_eq!(dependencies(driver, root), []);
    driver.set_terminals(s, &full(&[c, d, root])).unwrap();
    let graph = driver.end_capture(s).unwrap();
    assert_eq!(wrong_tags(driver, s, graph), [0; 20]);
}

fn any_number_of_predecessors_is_seen(driver: &Arc<impl Driven>) {
    let [s] = capturing(driver);
    let (_, graph) = active(driver, s);
    let add = |dependencies: &[Dependency]| {
        driver.add_node(graph, dependencies, Work::default()).unwrap()
    };
    for count in [1, 15, 16, 17, 127, 128, 129, 300] {
        let nodes: Vec<_> = (0..count).map(|_| add(&[])).collect();
        assert_eq!(dependencies(driver, add(&full(&nodes))), full(&nodes), "{count}");
    }
    driver.end_capture(s).unwrap();
}

fn any_thread_may_call(driver: &Arc<impl Driven>) {
    let [s] = capturing(driver);
    let node = launch(driver, s);
    elsewhere(|| {
        // No context is current here yet.
        assert_eq!(terminals(driver, s), full(&[node]));
        assert_eq!(dependencies(driver, node), []);
    });
    driver.end_capture(s).unwrap();
}

fn too_much_memory_is_told_apart(driver: &Arc<impl Driven>) {
    let granularity = granularity(driver);
    let info = driver.memory_info().unwrap();
    assert!(info.free <= info.total && info.total > 0 && granularity.is_power_of_two());
    let bytes = (info.total + granularity).next_multiple_of(granularity);
    assert!(driver.create(bytes).unwrap_err().is_out_of_memory());
    assert!(driver.allocate(bytes).unwrap_err().is_out_of_memory());
}

fn kernels_write_and_check_tags(driver: &Arc<impl Driven>) {
    let stream = driver.create_stream().unwrap();
    let memory = driver.allocate(8 * MIB).unwrap();
    let range = |offset, bytes, tag| Tagged { address: memory + offset, bytes, tag };
    let (small, large) = (range(0, 520, 11), range(MIB, 7 * MIB, 12));
    let launch = |inputs: &[Tagged], outputs: &[Tagged]| {
        let work = Work { inputs, outputs, delay: 1000, ..Work::default() };
        driver.launch(stream, work, false).unwrap();
    };
    let wrong = || {
        driver.synchronize().unwrap();
        driver.take_wrong_tags().unwrap()
    };
    // Eager.
    launch(&[], &[small, large]);
    launch(&[small, large], &[]);
    assert_eq!(wrong(), 0);
    assert_eq!(driver.read_tags(memory, 520).unwrap(), [11, 11]);
    let tags = driver.read_tags(memory + MIB, 7 * MIB).unwrap();
    assert_eq!(tags, vec![12; 7 * 2048]);

    let changed = range(2 * MIB, 1024, 13);
    driver.begin_capture(stream, CaptureMode::Global).unwrap();
    launch(&[], &[small, large]);
    launch(&[small, large], &[]);
    launch(&[], &[changed]);
    launch(&[changed], &[]);
    let graph = driver.end_capture(stream).unwrap();
    assert_eq!(wrong_tags(driver, stream, graph), [0; 20]);

    // Two granules hold 13 where 12 is asked for, and each is looked at twice.
    launch(&[large], &[]);
    assert_eq!([wrong(), wrong()], [4, 0]);
}

fn memory_mapped_twice_is_one_memory(driver: &Arc<impl Driven>) {
    let granule = granularity(driver);
    let stream = driver.create_stream().unwrap();
    let address = driver.reserve(3 * granule).unwrap();
    let memory = [(); 2].map(|()| driver.create(granule).unwrap());
    for (place, memory) in (0..).zip([memory[0], memory[1], memory[0]]) {
        driver.map(address + place * granule, granule, memory).unwrap();
    }
    driver.set_access(address, 3 * granule).unwrap();
    let run = |inputs: &[Tagged], outputs: &[Tagged]| {
        driver.launch(stream, Work { inputs, outputs, ..Work::default() }, false).unwrap();
        driver.synchronize().unwrap();
        driver.take_wrong_tags().unwrap()
    };
    let tagged = |address, bytes, tag| [Tagged { address, bytes, tag }];
    assert_eq!(run(&[], &tagged(address, 2 * granule, 5)), 0);
    let alias = address + 2 * granule;
    assert_eq!(run(&tagged(alias, granule, 5), &[]), 0);
    assert_eq!(run(&[], &tagged(alias, 1024, 6)), 0);
    assert_eq!(driver.read_tags(address, 1536).unwrap(), [6, 6, 5]);
    // Two granules, each looked at twice.
    assert_eq!(run(&tagged(address, 1024, 5), &[]), 4);
    driver.unmap(address, 3 * granule).unwrap();
    for memory in memory {
        driver.release(memory).unwrap();
    }
    driver.unreserve(address, 3 * granule).unwrap();
}

/// Two streams, each with an address of its own: on one memory they are in each other's way, unless one waits for the
/// other.
fn execution_catches_two_streams_on_one_memory(driver: &Arc<impl Driven>) {
    let granule = granularity(driver);
    for (aliased, ordered) in [(false, false), (false, true), (true, true), (true, false)] {
        let s = capturing::<2>(driver);
        let first = driver.reserve(2 * granule).unwrap();
        driver.wait(s[1], s[0]).unwrap();
        for (stream, address, tag) in [(s[0], first, 1), (s[1], first + granule, 2)] {
            let tagged = [Tagged { address, bytes: 700, tag }];
            node(driver, stream, Work { outputs: &tagged, ..Work::default() }, false);
            let read = Work { inputs: &tagged, delay: 1_000_000, ..Work::default() };
            node(driver, stream, read, false);
            if ordered && stream == s[0] {
                driver.wait(s[1], s[0]).unwrap();
            }
        }
        driver.wait(s[0], s[1]).unwrap();
        let graph = driver.end_capture(s[0]).unwrap();
        // The memory comes when the capture has ended.
        let one = driver.create(granule).unwrap();
        let other = if aliased { one } else { driver.create(granule).unwrap() };
        driver.map(first, granule, one).unwrap();
        driver.map(first + granule, granule, other).unwrap();
        driver.set_access(first, 2 * granule).unwrap();
        let caught = wrong_tags(driver, s[0], graph).iter().filter(|&&wrong| wrong > 0).count();
        assert_eq!(caught > 10, aliased && !ordered, "{aliased}, {ordered}: {caught} of 20");
        assert!(caught == 0 || aliased && !ordered, "{aliased}, {ordered}: {caught} of 20");
    }
}

/// Resets a range, writes it late in a kernel that triggers early, and has the kernel behind the programmatic edge
/// (`at_once`) or the one after that check it. Returns the wrong tags of each replay.
fn behind_a_programmatic_edge(driver: &Arc<impl Driven>, at_once: bool) -> Vec<u64> {
    let [s] = capturing(driver);
    let memory = driver.allocate(MIB).unwrap();
    let range = |tag| [Tagged { address: memory, bytes: 4096, tag }];
    let (stale, right) = (range(1), range(7));
    let check = Work { inputs: &right, ..Work::default() };
    let write = Work { outputs: &right, delay: 5_000_000, trigger_early: true, ..Work::default() };
    node(driver, s, Work { outputs: &stale, ..Work::default() }, false);
    let a = node(driver, s, write, false);
    let b = node(driver, s, if at_once { check } else { Work::default() }, true);
    assert_eq!(dependencies(driver, b), [early(a)]);
    if !at_once {
        let c = node(driver, s, check, false);
        assert_eq!(dependencies(driver, c), full(&[b]));
    }
    let graph = driver.end_capture(s).unwrap();
    wrong_tags(driver, s, graph)
}

fn completion_behind_a_programmatic_edge_includes_its_predecessor(driver: &Arc<impl Driven>) {
    assert_eq!(behind_a_programmatic_edge(driver, false), [0; 20]);
}

/// Shows that the test above tests something. Needs compute capability 9.0 on a GPU.
fn the_start_behind_a_programmatic_edge_does_not_wait(driver: &Arc<impl Driven>) {
    let wrong = behind_a_programmatic_edge(driver, true);
    assert!(wrong.iter().any(|&wrong| wrong > 0), "{wrong:?}");
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::MIB;
    use crate::device::{gpu, graph_of};
    use regraph::driver::cuda::{devices, CudaDriver};
    use regraph::driver::{
        AsStream, CaptureMode, CaptureStatus, Driver, ErrorKind, HostApi, StreamHandle,
    };
    use regraph::engine::{Config, Engine, PoolConfig};
    use regraph_tagged::{CudaProgram, Program, Work};

    impl super::Driven for CudaProgram {
        fn blocking_stream(&self) -> StreamHandle {
            self.context().bind_to_thread().unwrap();
            let mut stream = null_mut();
            // SAFETY: the prototype is that of cuda.h; writes one handle.
            let code = unsafe { raw::<Create>("cuStreamCreate")(&mut stream, 0) };
            assert_eq!(code, 0);
            StreamHandle::from_raw(stream)
        }

        fn unsafe_call(&self) -> Option<u32> {
            self.context().bind_to_thread().unwrap();
            let mut address = 0;
            // SAFETY: the prototype is that of cuda.h; writes one address.
            let code = unsafe { raw::<Allocate>("cuMemAlloc_v2")(&mut address, 512) };
            (code != 0).then_some(code)
        }

        fn default_streams(&self) -> (&'static [usize], &'static [usize]) {
            (&[0, 1], &[2])
        }

        fn open_again(&self) {
            // SAFETY: no handle is given to it.
            drop(unsafe { CudaDriver::new(0) }.unwrap());
        }
    }

    type Pointer = *mut std::ffi::c_void;
    type Create = unsafe extern "C" fn(*mut Pointer, u32) -> u32;
    type Allocate = unsafe extern "C" fn(*mut u64, usize) -> u32;

    /// A function of libcuda that neither trait has.
    ///
    /// # Safety
    /// As for [`find`].
    unsafe fn raw<F: Copy>(name: &str) -> F {
        // SAFETY: the caller's part.
        unsafe { find(name) }.unwrap_or_else(|| panic!("libcuda has no {name}"))
    }

    /// A function of libcuda, where there is one of the name.
    ///
    /// # Safety
    /// `F` must be the C prototype of the function.
    unsafe fn find<F: Copy>(name: &str) -> Option<F> {
        for library in ["libcuda.so.1", "libcuda.so", "nvcuda.dll"] {
            // SAFETY: opens libcuda, which the driver object keeps open.
            if let Ok(library) = unsafe { libloading::Library::new(library) } {
                // SAFETY: the caller's part.
                return unsafe { library.get::<F>(name) }.ok().map(|found| *found);
            }
        }
        panic!("no libcuda");
    }

    #[test]
    fn without_libcuda_there_is_an_error_and_no_panic() {
        for name in ["libcuda.so.1", "libcuda.so", "nvcuda.dll"] {
            // SAFETY: opens and closes libcuda.
            if unsafe { libloading::Library::new(name) }.is_ok() {
                return;
            }
        }
        let error = devices().unwrap_err();
        assert!(matches!(error.kind, ErrorKind::NoDriver(_)), "{error}");
        let error = CudaProgram::new(0).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::NoDriver(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("libcuda could not be loaded: libcuda.so.1: "), "{text}");
        assert!(!text.contains("driver code"), "none has answered: {text}");
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn the_device_says_what_it_is() {
        let gpu = gpu::open().driver;
        let devices = devices().unwrap();
        let first = &devices[0];
        assert_eq!((first.ordinal, &first.name), (0, &gpu.device_name().unwrap()));
        assert!(first.total_bytes >= gpu.memory_info().unwrap().total);
        let (name, version) = (gpu.device_name().unwrap(), gpu.driver_version().unwrap());
        println!("{name}, driver {version}");
        assert!(!name.is_empty() && version >= 12030);
    }

    type Made = unsafe extern "C" fn(*mut Pointer, u32, i32) -> u32;
    type Give = unsafe extern "C" fn(Pointer) -> u32;
    type Ask = unsafe extern "C" fn(*mut Pointer) -> u32;
    type Resource = unsafe extern "C" fn(i32, *mut [u64; 128], u32) -> u32;
    type Describe = unsafe extern "C" fn(*mut Pointer, *mut [u64; 128], u32) -> u32;
    type Green = unsafe extern "C" fn(*mut Pointer, Pointer, i32, u32) -> u32;
    type Within = unsafe extern "C" fn(*mut Pointer, Pointer) -> u32;

    /// The context that is current to the calling thread.
    fn current() -> Pointer {
        let mut context = null_mut();
        // SAFETY: the prototype is that of cuda.h; writes one pointer.
        assert_eq!(unsafe { raw::<Ask>("cuCtxGetCurrent")(&mut context) }, 0);
        context
    }

    /// Makes a context that lives current to the calling thread, or none.
    fn make_current(context: Pointer) {
        // SAFETY: the prototype is that of cuda.h.
        assert_eq!(unsafe { raw::<Give>("cuCtxSetCurrent")(context) }, 0);
    }

    /// Other contexts of the first device, each with what it is destroyed by: one by itself, and a green one that has all of
    /// the device, where the driver has such.
    fn other_contexts() -> Vec<(Pointer, &'static str, Pointer)> {
        let (mut own, mut green, mut of_green) = (null_mut(), null_mut(), null_mut());
        let (mut all, mut described) = ([0; 128], null_mut());
        // SAFETY: the prototypes are those of cuda.h; the array has room for a resource of any version.
        unsafe {
            assert_eq!(raw::<Made>("cuCtxCreate_v2")(&mut own, 0, 0), 0);
            let mut contexts = vec![(own, "cuCtxDestroy_v2", own)];
            let Some(resource) = find::<Resource>("cuDeviceGetDevResource") else {
                return contexts;
            };
            assert_eq!(resource(0, &mut all, 1), 0);
            let describe = raw::<Describe>("cuDevResourceGenerateDesc");
            assert_eq!(describe(&mut described, &mut all, 1), 0);
            assert_eq!(raw::<Green>("cuGreenCtxCreate")(&mut green, described, 0, 1), 0);
            assert_eq!(raw::<Within>("cuCtxFromGreenCtx")(&mut of_green, green), 0);
            contexts.push((of_green, "cuGreenCtxDestroy", green));
            contexts
        }
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn default_streams_of_other_contexts_are_refused() {
        let gpu = gpu::open().driver;
        let (event, created) = (gpu.create_event().unwrap(), gpu.create_stream().unwrap());
        for (context, destroy, handle) in other_contexts() {
            make_current(context);
            for stream in [0, 1, 2].map(StreamHandle::from_bits) {
                super::refused(gpu.is_capturing(stream), ErrorKind::OtherContext);
                super::refused(gpu.capture_of(stream), ErrorKind::OtherContext);
                super::refused(gpu.capture_status(stream, &mut vec![]), ErrorKind::OtherContext);
                super::refused(gpu.record_event(event, stream), ErrorKind::OtherContext);
            }
            assert_eq!(gpu.is_capturing(created), Ok(false));
            gpu.record_event(event, created).unwrap();
            assert_eq!(current(), context, "it is current again");
            make_current(null_mut());
            assert_eq!(gpu.is_capturing(super::LEGACY), Ok(false));
            // SAFETY: the prototype is that of cuda.h; each is destroyed once, and nothing uses it.
            assert_eq!(unsafe { raw::<Give>(destroy)(handle) }, 0);
        }
        gpu.destroy_event(event).unwrap();
    }

    type Callback = unsafe extern "C" fn(Pointer);
    type Later = unsafe extern "C" fn(Pointer, Callback, Pointer) -> u32;

    /// Waits, and then sets the flag that it is given.
    unsafe extern "C" fn set_later(flag: Pointer) {
        thread::sleep(Duration::from_millis(200));
        // SAFETY: the flag outlives the work.
        unsafe { &*flag.cast::<AtomicBool>() }.store(true, Ordering::Relaxed);
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_wait_for_the_device_covers_all_contexts() {
        let gpu = gpu::open().driver;
        let engine = Engine::new(gpu.clone(), Config::default());
        let pool = engine.create_pool(PoolConfig::default());
        let home = gpu.create_stream().unwrap();
        for (context, destroy, handle) in other_contexts() {
            make_current(context);
            let created = create_stream();
            for of_context in [created, super::LEGACY] {
                let done = AtomicBool::new(false);
                let own = if of_context.is_default() { of_context } else { home };
                make_current(null_mut());
                let block = engine.allocate(pool, MIB, own).unwrap();
                make_current(context);
                take_a_while(of_context, &done);
                if own == home {
                    engine.record_stream(block.id, of_context).unwrap();
                }
                // Of a default stream the handle means that of the context from here on.
                engine.free(block.id).unwrap();
                make_current(null_mut());
                assert_eq!(engine.host().is_device_idle().unwrap(), Some(false));
                assert!(!done.load(Ordering::Relaxed), "the work takes longer than these calls");
                assert!(engine.wait_for_device().unwrap());
                assert!(done.load(Ordering::Relaxed));
                assert_eq!(engine.host().is_device_idle().unwrap(), Some(true));
                assert!(engine.empty_cache().unwrap().released > 0, "the block is free");
            }
            engine.retire_stream(created).unwrap();
            // SAFETY: the prototype is that of cuda.h; each is destroyed once, and nothing uses it.
            assert_eq!(unsafe { raw::<Give>(destroy)(handle) }, 0);
            make_current(null_mut());
            assert!(engine.wait_for_device().unwrap(), "a context that is gone is not asked");
        }
    }

    /// A stream of the current context.
    fn create_stream() -> StreamHandle {
        let mut created = null_mut();
        // SAFETY: the prototype is that of cuda.h; writes one handle.
        assert_eq!(unsafe { raw::<Create>("cuStreamCreate")(&mut created, 1) }, 0);
        StreamHandle::from_raw(created)
    }

    /// Gives a stream something to do that takes a while, after which the flag is set.
    fn take_a_while(stream: StreamHandle, done: &AtomicBool) {
        let flag = std::ptr::from_ref(done).cast_mut().cast();
        // SAFETY: the prototype is that of cuda.h; each caller waits for the work before the flag goes.
        let given = unsafe { raw::<Later>("cuLaunchHostFunc")(stream.as_raw(), set_later, flag) };
        assert_eq!(given, 0);
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_wait_for_the_device_covers_graphs_of_other_contexts() {
        let _gpu = gpu::open();
        for (context, destroy, handle) in other_contexts() {
            // One that has not heard of the context.
            // SAFETY: no handle outlives this block.
            let driver = std::sync::Arc::new(unsafe { CudaDriver::new(0) }.unwrap());
            let engine = Engine::new(driver.clone(), Config::default());
            let pool = engine.create_pool(PoolConfig::default());
            make_current(context);
            let (stream, done) = (create_stream(), AtomicBool::new(false));
            driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
            let capture = engine.begin_capture(pool, stream).unwrap();
            let block = engine.allocate(pool, MIB, stream).unwrap();
            take_a_while(stream, &done);
            engine.free(block.id).unwrap();
            let report = engine.end_capture(capture, graph_of(&driver, stream)).unwrap();
            let graph = driver.end_capture(stream).unwrap();
            let executable = driver.instantiate(graph).unwrap();
            driver.replay(executable, stream).unwrap();
            make_current(null_mut());
            assert!(engine.wait_for_device().unwrap());
            assert!(done.load(Ordering::Relaxed), "{destroy}");
            engine.release_graph(report.graph).unwrap();
            assert!(engine.empty_cache().unwrap().released > 0, "the block is free");
            driver.destroy_executable(executable).unwrap();
            driver.destroy_graph(graph).unwrap();
            engine.retire_stream(stream).unwrap();
            // SAFETY: the prototype is that of cuda.h; each is destroyed once, and nothing uses it.
            assert_eq!(unsafe { raw::<Give>(destroy)(handle) }, 0);
        }
        make_current(null_mut());
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn what_a_stream_used_whose_context_is_gone_waits_for_the_device() {
        let gpu = gpu::open().driver;
        let engine = Engine::new(gpu.clone(), Config::default());
        let pool = engine.create_pool(PoolConfig::default());
        // Streams of others dangle when their context goes, so that nothing may be asked of them.
        let green = other_contexts().into_iter().filter(|it| it.1 == "cuGreenCtxDestroy");
        for (context, destroy, handle) in green {
            make_current(context);
            let (stream, done) = (create_stream(), AtomicBool::new(false));
            let [before, after] = [(); 2].map(|()| engine.allocate(pool, 4 * MIB, stream).unwrap());
            take_a_while(stream, &done);
            engine.free(before.id).unwrap();
            make_current(null_mut());
            // SAFETY: the prototype is that of cuda.h; it is destroyed once.
            assert_eq!(unsafe { raw::<Give>(destroy)(handle) }, 0);
            super::refused(gpu.is_capturing(stream), ErrorKind::ContextDestroyed);
            engine.free(after.id).unwrap();
            println!(
                "its work is done when the context has gone: {}",
                done.load(Ordering::Relaxed)
            );
            assert!(engine.wait_for_device().unwrap());
            assert!(done.load(Ordering::Relaxed), "the wait covers it");
            let emptied = engine.empty_cache().unwrap();
            assert_eq!((emptied.reserved, emptied.waiting), (0, 0));
            engine.retire_stream(stream).unwrap();
        }
        engine.destroy_pool(pool).unwrap();
    }

    /// The error that calls give then is also that of streams whose context is gone.
    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_thread_whose_current_context_is_gone_is_told_of_streams() {
        let gpu = gpu::open().driver;
        let stream = gpu.create_stream().unwrap();
        gpu.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        for (context, destroy, handle) in other_contexts() {
            let handle = handle as usize;
            make_current(context);
            thread::scope(|scope| {
                // SAFETY: the prototype is that of cuda.h; it is destroyed once.
                let gone = || unsafe { raw::<Give>(destroy)(handle as Pointer) };
                assert_eq!(scope.spawn(gone).join().unwrap(), 0);
            });
            println!("{destroy}: {:?}", gpu.is_capturing(stream));
            assert_eq!(gpu.is_capturing(stream), Ok(true));
            assert!(matches!(gpu.capture_of(stream).unwrap(), CaptureStatus::Active { .. }));
            make_current(null_mut());
        }
        let graph = gpu.end_capture(stream).unwrap();
        gpu.destroy_graph(graph).unwrap();
        gpu.destroy_stream(stream).unwrap();
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_thread_without_a_context_has_none_afterwards() {
        let gpu = gpu::open().driver;
        super::elsewhere(|| {
            gpu.memory_info().unwrap();
            let stream = gpu.create_stream().unwrap();
            let event = gpu.create_event().unwrap();
            gpu.record_event(event, stream).unwrap();
            assert_eq!(gpu.is_capturing(super::LEGACY), Ok(false));
            gpu.synchronize_event(event).unwrap();
            gpu.destroy_event(event).unwrap();
            gpu.destroy_stream(stream).unwrap();
            assert_eq!(current(), null_mut());
        });
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_driver_that_goes_leaves_the_current_context_as_it_was() {
        let _turn = gpu::turn();
        super::elsewhere(|| {
            // SAFETY: no handle is given to it.
            let driver = unsafe { CudaDriver::new(0) }.unwrap();
            let streams = [(); 2].map(|()| driver.context().new_stream().unwrap());
            streams.iter().for_each(|stream| driver.keep_stream(stream));
            let [released, _] = streams.map(|stream| stream.as_stream());
            make_current(null_mut());
            driver.release_stream(released);
            assert_eq!(current(), null_mut());
            // The other one goes with it, and so does the context.
            drop(driver);
            assert_eq!(current(), null_mut());
        });
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_graph_is_timed_and_launches_are_forgotten() {
        let gpu = gpu::open().driver;
        let stream = gpu.create_stream().unwrap();
        let work = Work { delay: 1000, ..Work::default() };
        gpu.begin_capture(stream, CaptureMode::Global).unwrap();
        for _ in 0..4 {
            gpu.launch(stream, work, false).unwrap();
        }
        let graph = gpu.end_capture(stream).unwrap();
        let executable = gpu.instantiate(graph).unwrap();
        assert!(gpu.replay_timed(executable, stream, 5).unwrap() > 2000.0);
        gpu.destroy_executable(executable).unwrap();
        gpu.destroy_graph(graph).unwrap();
        gpu.forget_launches().unwrap();
        gpu.launch(stream, work, false).unwrap();
        gpu.synchronize().unwrap();
        assert_eq!(gpu.take_wrong_tags().unwrap(), 0);
    }
}
