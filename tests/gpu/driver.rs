//! The CUDA driver against a real GPU, and its manners without one.

use std::sync::MutexGuard;

use crate::device::gpu::turn;
use regraph::driver::cuda::CudaDriver;
use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, Dependency, Driver, EdgeData, ErrorKind, GraphHandle,
    HostApi, MemorySupport, NodeHandle, NodeKind, StreamHandle,
};
use regraph_tagged::CudaProgram;
use regraph_tagged::{Program, Tagged, Work};

const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
const MIB: u64 = 1 << 20;

struct Gpu {
    driver: CudaProgram,
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Gpu {
    type Target = CudaProgram;

    fn deref(&self) -> &CudaProgram {
        &self.driver
    }
}

fn gpu() -> Gpu {
    let turn = turn();
    Gpu { driver: CudaProgram::new(0).unwrap(), _turn: turn }
}

impl Gpu {
    fn active(&self, stream: StreamHandle) -> (CaptureId, GraphHandle, Vec<Dependency>) {
        let mut terminals = vec![Dependency::full(NodeHandle::from_bits(1))];
        match self.capture_status(stream, &mut terminals).unwrap() {
            CaptureStatus::Active { capture, graph } => (capture, graph, terminals),
            other => panic!("not capturing: {other:?}"),
        }
    }

    fn terminals(&self, stream: StreamHandle) -> Vec<Dependency> {
        self.active(stream).2
    }

    /// Launches and returns the new node.
    fn node(&self, stream: StreamHandle, work: Work<'_>, programmatic: bool) -> NodeHandle {
        self.launch(stream, work, programmatic).unwrap();
        let terminals = self.terminals(stream);
        assert_eq!(terminals.len(), 1);
        assert_eq!(terminals[0].edge, EdgeData::FULL);
        terminals[0].node
    }

    fn empty(&self, stream: StreamHandle) -> NodeHandle {
        self.node(stream, Work::default(), false)
    }

    fn predecessors(&self, node: NodeHandle) -> Vec<Dependency> {
        let mut dependencies = vec![Dependency::full(NodeHandle::from_bits(1))];
        self.dependencies(node, &mut dependencies).unwrap();
        dependencies
    }
}

fn sorted(mut dependencies: Vec<Dependency>) -> Vec<Dependency> {
    dependencies.sort_by_key(|dependency| dependency.node);
    dependencies
}

fn full(nodes: &[NodeHandle]) -> Vec<Dependency> {
    sorted(nodes.iter().map(|&node| Dependency::full(node)).collect())
}

fn programmatic(node: NodeHandle) -> Dependency {
    Dependency { node, edge: EdgeData::PROGRAMMATIC }
}

#[test]
fn without_libcuda_there_is_an_error_and_no_panic() {
    for name in ["libcuda.so.1", "libcuda.so", "nvcuda.dll"] {
        // SAFETY: opens and closes libcuda.
        if unsafe { libloading::Library::new(name) }.is_ok() {
            return;
        }
    }
    let error = regraph::driver::cuda::devices().unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NoDriver(_)), "{error}");
    let error = CudaProgram::new(0).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::NoDriver(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("libcuda could not be loaded"), "{text}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_device_says_what_it_is() {
    let gpu = gpu();
    let devices = regraph::driver::cuda::devices().unwrap();
    let first = &devices[0];
    assert_eq!((first.ordinal, &first.name), (0, &gpu.device_name().unwrap()));
    assert!(first.total_bytes >= gpu.memory_info().unwrap().total);
    let name = gpu.device_name().unwrap();
    println!("{name}, driver {}", gpu.driver_version().unwrap());
    assert!(!name.is_empty());
    assert!(gpu.driver_version().unwrap() >= 12030);
    let info = gpu.memory_info().unwrap();
    assert!(info.free <= info.total && info.total > 0);
    let MemorySupport::Mapped { granularity } = gpu.memory_support() else {
        panic!("no virtual memory management");
    };
    assert!(granularity.is_power_of_two());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn idle_streams_do_not_capture() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    let mut terminals = vec![Dependency::full(NodeHandle::from_bits(1))];
    for stream in [stream, StreamHandle::from_bits(0)] {
        let status = gpu.capture_status(stream, &mut terminals).unwrap();
        assert_eq!(status, CaptureStatus::None);
        assert!(terminals.is_empty());
    }
    gpu.destroy_stream(stream).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn fork_and_join_show_in_terminals_and_dependencies() {
    let gpu = gpu();
    let a = gpu.create_stream().unwrap();
    let b = gpu.create_stream().unwrap();
    gpu.begin_capture(a, CaptureMode::Global).unwrap();
    assert!(gpu.terminals(a).is_empty());

    let first = gpu.empty(a);
    gpu.wait(b, a).unwrap();
    assert_eq!(gpu.active(a).0, gpu.active(b).0);
    assert_eq!(gpu.active(a).1, gpu.active(b).1);
    assert_eq!(gpu.terminals(b), full(&[first]));

    let left = gpu.empty(a);
    let right = gpu.empty(b);
    gpu.wait(a, b).unwrap();
    assert_eq!(sorted(gpu.terminals(a)), full(&[left, right]));
    assert_eq!(gpu.terminals(b), full(&[right]));
    let last = gpu.empty(a);

    assert!(gpu.predecessors(first).is_empty());
    assert_eq!(gpu.predecessors(left), full(&[first]));
    assert_eq!(gpu.predecessors(right), full(&[first]));
    assert_eq!(sorted(gpu.predecessors(last)), full(&[left, right]));

    let graph = gpu.end_capture(a).unwrap();
    let mut nodes = Vec::new();
    gpu.nodes(graph, &mut nodes).unwrap();
    nodes.sort_unstable();
    let mut expected = vec![first, left, right, last];
    expected.sort_unstable();
    assert_eq!(nodes, expected);
    for node in nodes {
        assert_eq!(gpu.node_kind(node).unwrap(), NodeKind::KERNEL);
    }
    gpu.destroy_graph(graph).unwrap();
    gpu.destroy_stream(a).unwrap();
    gpu.destroy_stream(b).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn unjoined_streams_fail_the_capture() {
    let gpu = gpu();
    let a = gpu.create_stream().unwrap();
    let b = gpu.create_stream().unwrap();
    gpu.begin_capture(a, CaptureMode::Global).unwrap();
    gpu.empty(a);
    gpu.wait(b, a).unwrap();
    gpu.empty(b);
    let error = gpu.end_capture(a).unwrap_err();
    assert_eq!(error.kind, ErrorKind::CaptureUnjoined);
    assert_eq!(error.call, "cuStreamEndCapture");
    gpu.destroy_stream(a).unwrap();
    gpu.destroy_stream(b).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn an_edge_turns_programmatic_with_the_launch() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    gpu.begin_capture(stream, CaptureMode::Global).unwrap();
    let a = gpu.empty(stream);
    assert_eq!(gpu.terminals(stream), full(&[a]));
    let b = gpu.node(stream, Work::default(), true);
    assert_eq!(gpu.predecessors(b), [programmatic(a)]);
    assert_eq!(gpu.terminals(stream), full(&[b]));
    let c = gpu.empty(stream);
    assert_eq!(gpu.predecessors(c), full(&[b]));
    let graph = gpu.end_capture(stream).unwrap();
    gpu.destroy_graph(graph).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn set_moves_a_stream_back() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    gpu.begin_capture(stream, CaptureMode::Global).unwrap();
    let a = gpu.empty(stream);
    let b = gpu.empty(stream);
    gpu.set_terminals(stream, &full(&[a])).unwrap();
    assert_eq!(gpu.terminals(stream), full(&[a]));
    let c = gpu.empty(stream);
    assert_eq!(gpu.predecessors(c), full(&[a]));
    gpu.set_terminals(stream, &[Dependency::full(b), programmatic(c)]).unwrap();
    assert_eq!(sorted(gpu.terminals(stream)), sorted(vec![Dependency::full(b), programmatic(c)]));
    gpu.set_terminals(stream, &[]).unwrap();
    assert!(gpu.terminals(stream).is_empty());
    let d = gpu.empty(stream);
    assert!(gpu.predecessors(d).is_empty());
    gpu.set_terminals(stream, &full(&[b, c, d])).unwrap();
    let graph = gpu.end_capture(stream).unwrap();
    gpu.destroy_graph(graph).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_and_events_do_not_disturb_a_capture() {
    let gpu = gpu();
    let MemorySupport::Mapped { granularity } = gpu.memory_support() else {
        panic!("no virtual memory management");
    };
    let outside = gpu.create_stream().unwrap();
    let event = gpu.create_event().unwrap();
    let use_memory = || {
        let before = gpu.memory_info().unwrap();
        assert!(before.total > 0);
        let address = gpu.reserve(2 * granularity).unwrap();
        let memory = gpu.create(granularity).unwrap();
        gpu.map(address + granularity, granularity, memory).unwrap();
        gpu.set_access(address + granularity, granularity).unwrap();
        gpu.unmap(address + granularity, granularity).unwrap();
        gpu.release(memory).unwrap();
        gpu.unreserve(address, 2 * granularity).unwrap();
        let block = gpu.allocate(MIB).unwrap();
        gpu.free(block).unwrap();
        let fresh = gpu.create_event().unwrap();
        gpu.record_event(fresh, outside).unwrap();
        while !gpu.query_event(fresh).unwrap() {
            std::hint::spin_loop();
        }
        gpu.record_event(fresh, outside).unwrap();
        gpu.synchronize_event(fresh).unwrap();
        assert!(gpu.query_event(fresh).unwrap());
        gpu.destroy_event(fresh).unwrap();
    };
    let streams = [gpu.create_stream().unwrap(), blocking_stream()];
    for (mode, stream) in MODES.into_iter().flat_map(|mode| streams.map(|stream| (mode, stream))) {
        gpu.record_event(event, outside).unwrap();
        gpu.synchronize().unwrap();
        gpu.begin_capture(stream, mode).unwrap();
        gpu.empty(stream);
        use_memory();
        assert!(gpu.query_event(event).unwrap());
        // And from a thread that does not capture.
        std::thread::scope(|scope| {
            scope.spawn(use_memory);
        });
        let (_, _, terminals) = gpu.active(stream);
        assert_eq!(terminals.len(), 1, "{mode:?}");
        gpu.empty(stream);
        let graph = gpu.end_capture(stream).unwrap();
        let executable = gpu.instantiate(graph).unwrap();
        gpu.replay(executable, stream).unwrap();
        gpu.synchronize().unwrap();
        gpu.destroy_executable(executable).unwrap();
        gpu.destroy_graph(graph).unwrap();
    }
    gpu.destroy_event(event).unwrap();
    gpu.destroy_stream(outside).unwrap();
    for stream in streams {
        gpu.destroy_stream(stream).unwrap();
    }
}

/// A driver object without kernels: to load those is no question.
fn new_driver() -> CudaDriver {
    // SAFETY: no handle is given to it.
    unsafe { CudaDriver::new(0) }.unwrap()
}

/// What an engine asks while a stream captures: about a capture without nodes too, and about events
/// that the stream recorded before, whether their work has completed or not.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn questions_do_not_disturb_a_capture() {
    let gpu = gpu();
    let streams = [gpu.create_stream().unwrap(), blocking_stream()];
    for (mode, stream) in MODES.into_iter().flat_map(|mode| streams.map(|stream| (mode, stream))) {
        for pending in [false, true] {
            let earlier = gpu.create_event().unwrap();
            let delay = if pending { 20_000_000 } else { 0 };
            gpu.launch(stream, Work { delay, ..Work::default() }, false).unwrap();
            gpu.record_event(earlier, stream).unwrap();
            if !pending {
                gpu.synchronize().unwrap();
            }
            gpu.begin_capture(stream, mode).unwrap();
            let valid = |call: &str| {
                let status = gpu.capture_of(stream).unwrap();
                let active = matches!(status, CaptureStatus::Active { .. });
                assert!(active, "{call} invalidated the capture: {mode:?}, pending {pending}");
            };
            let elsewhere = |call: &str, ask: &(dyn Fn() + Sync)| {
                std::thread::scope(|scope| scope.spawn(ask).join().unwrap());
                valid(call);
                ask();
                valid(call);
            };
            for _ in 0..2 {
                let (_, graph, _) = gpu.active(stream);
                valid("capture_status");
                let mut nodes = Vec::new();
                gpu.nodes(graph, &mut nodes).unwrap();
                valid("nodes");
                for &node in &nodes {
                    gpu.node_kind(node).unwrap();
                    gpu.predecessors(node);
                    gpu.pointers(node, &mut Vec::new()).unwrap();
                    let _ = gpu.kernel_name(node);
                    valid("what a node is");
                }
                elsewhere("is_capturing", &|| assert!(gpu.is_capturing(stream).unwrap()));
                elsewhere("query_event", &|| assert!(gpu.query_event(earlier).is_ok()));
                elsewhere("synchronize_event", &|| gpu.synchronize_event(earlier).unwrap());
                elsewhere("device_of_stream", &|| drop(gpu.device_of_stream(stream)));
                elsewhere("a driver object", &|| drop(new_driver()));
                // The second time there is a node.
                gpu.empty(stream);
            }
            gpu.destroy_event(earlier).unwrap();
            valid("destroy_event");
            let graph = gpu.end_capture(stream).unwrap();
            gpu.destroy_graph(graph).unwrap();
        }
    }
    gpu.synchronize().unwrap();
    for stream in streams {
        gpu.destroy_stream(stream).unwrap();
    }
}

/// What the simulated driver says of `synchronize`.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_wait_for_the_device_invalidates_a_capture_in_every_mode() {
    let gpu = gpu();
    for mode in MODES {
        for elsewhere in [false, true] {
            let stream = gpu.create_stream().unwrap();
            gpu.begin_capture(stream, mode).unwrap();
            gpu.empty(stream);
            let called = if elsewhere {
                std::thread::scope(|scope| scope.spawn(|| gpu.synchronize()).join().unwrap())
            } else {
                gpu.synchronize()
            };
            assert_eq!(called.unwrap_err().kind, ErrorKind::CaptureUnsupported, "{mode:?}");
            let status = gpu.capture_status(stream, &mut Vec::new()).unwrap();
            assert_eq!(status, CaptureStatus::Invalidated, "{mode:?}, elsewhere {elsewhere}");
            assert!(gpu.end_capture(stream).is_err());
            gpu.destroy_stream(stream).unwrap();
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn too_much_memory_is_told_apart() {
    let gpu = gpu();
    let MemorySupport::Mapped { granularity } = gpu.memory_support() else {
        panic!("no virtual memory management");
    };
    let total = gpu.memory_info().unwrap().total;
    let bytes = (total + granularity).next_multiple_of(granularity);
    assert!(gpu.create(bytes).unwrap_err().is_out_of_memory());
    assert!(gpu.allocate(bytes).unwrap_err().is_out_of_memory());
}

fn work<'a>(inputs: &'a [Tagged], outputs: &'a [Tagged]) -> Work<'a> {
    Work { inputs, outputs, delay: 1000, trigger_early: false }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn kernels_write_and_check_tags() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    let memory = gpu.allocate(8 * MIB).unwrap();
    let range = |offset, bytes, tag| Tagged { address: memory + offset, bytes, tag };
    let small = range(0, 520, 11);
    let large = range(MIB, 7 * MIB, 12);

    // Eager.
    gpu.launch(stream, work(&[], &[small, large]), false).unwrap();
    gpu.launch(stream, work(&[small, large], &[]), false).unwrap();
    gpu.synchronize().unwrap();
    assert_eq!(gpu.take_wrong_tags().unwrap(), 0);
    assert_eq!(gpu.read_tags(memory, 520).unwrap(), [11, 11]);
    let tags = gpu.read_tags(memory + MIB, 7 * MIB).unwrap();
    assert_eq!(tags.len(), 7 * 2048);
    assert!(tags.iter().all(|&tag| tag == 12));

    // Captured, replayed three times.
    let changed = range(2 * MIB, 1024, 13);
    gpu.begin_capture(stream, CaptureMode::Global).unwrap();
    gpu.launch(stream, work(&[], &[small, large]), false).unwrap();
    gpu.launch(stream, work(&[small, large], &[]), false).unwrap();
    gpu.launch(stream, work(&[], &[changed]), false).unwrap();
    gpu.launch(stream, work(&[changed], &[]), false).unwrap();
    let graph = gpu.end_capture(stream).unwrap();
    let executable = gpu.instantiate(graph).unwrap();
    for _ in 0..3 {
        gpu.replay(executable, stream).unwrap();
    }
    gpu.synchronize().unwrap();
    assert_eq!(gpu.take_wrong_tags().unwrap(), 0);
    assert!(gpu.replay_timed(executable, stream, 5).unwrap() > 2000.0);
    assert_eq!(gpu.take_wrong_tags().unwrap(), 0);

    // Two granules hold 13 where 12 is asked for, and each is looked at twice.
    gpu.launch(stream, work(&[large], &[]), false).unwrap();
    gpu.synchronize().unwrap();
    assert_eq!(gpu.take_wrong_tags().unwrap(), 4);
    assert_eq!(gpu.take_wrong_tags().unwrap(), 0);

    gpu.destroy_executable(executable).unwrap();
    gpu.destroy_graph(graph).unwrap();
    gpu.forget_launches().unwrap();
    gpu.launch(stream, work(&[small], &[]), false).unwrap();
    gpu.synchronize().unwrap();
    assert_eq!(gpu.take_wrong_tags().unwrap(), 0);
    gpu.free(memory).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tags_work_in_mapped_memory() {
    let gpu = gpu();
    let MemorySupport::Mapped { granularity } = gpu.memory_support() else {
        panic!("no virtual memory management");
    };
    let stream = gpu.create_stream().unwrap();
    let address = gpu.reserve(2 * granularity).unwrap();
    let memory = [gpu.create(granularity).unwrap(), gpu.create(granularity).unwrap()];
    gpu.map(address, granularity, memory[0]).unwrap();
    gpu.map(address + granularity, granularity, memory[1]).unwrap();
    gpu.set_access(address, 2 * granularity).unwrap();
    let range = Tagged { address, bytes: 2 * granularity, tag: 5 };
    let outputs = [range];
    let work = Work { outputs: &outputs, ..Work::default() };
    gpu.launch(stream, work, false).unwrap();
    gpu.synchronize().unwrap();
    let tags = gpu.read_tags(address, 2 * granularity).unwrap();
    assert!(tags.iter().all(|&tag| tag == 5));
    gpu.unmap(address, 2 * granularity).unwrap();
    for memory in memory {
        gpu.release(memory).unwrap();
    }
    gpu.unreserve(address, 2 * granularity).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_conditional_body_is_a_capture_of_its_own() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    let inner = gpu.create_stream().unwrap();
    let memory = gpu.allocate(MIB).unwrap();
    let range = Tagged { address: memory, bytes: 4096, tag: 21 };
    let ranges = [range];
    let write = Work { outputs: &ranges, ..Work::default() };
    let check = Work { inputs: &ranges, ..Work::default() };
    gpu.begin_capture(stream, CaptureMode::Global).unwrap();
    let before = gpu.empty(stream);
    let (outer, graph, _) = gpu.active(stream);
    let (node, body) = gpu.add_conditional(graph, &full(&[before])).unwrap();
    assert_eq!(gpu.node_kind(node).unwrap(), NodeKind::CONDITIONAL);
    assert_eq!(gpu.predecessors(node), full(&[before]));
    assert_eq!(gpu.terminals(stream), full(&[before]));
    gpu.set_terminals(stream, &full(&[node])).unwrap();

    gpu.begin_capture_to_graph(inner, body, CaptureMode::Global).unwrap();
    gpu.launch(inner, write, false).unwrap();
    let (within, inner_graph, _) = gpu.active(inner);
    assert_ne!(within, outer);
    assert_eq!(inner_graph, body);
    assert_eq!(gpu.end_capture(inner).unwrap(), body);

    let after = gpu.node(stream, check, false);
    assert_eq!(gpu.predecessors(after), full(&[node]));
    let graph = gpu.end_capture(stream).unwrap();
    let executable = gpu.instantiate(graph).unwrap();
    gpu.replay(executable, stream).unwrap();
    gpu.synchronize().unwrap();
    assert_eq!(gpu.take_wrong_tags().unwrap(), 0);
    assert_eq!(gpu.read_tags(memory, 4096).unwrap(), [21; 8]);
    gpu.destroy_executable(executable).unwrap();
    gpu.destroy_graph(graph).unwrap();
    gpu.free(memory).unwrap();
    gpu.destroy_stream(inner).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn raw_edits_show_in_dependencies() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    gpu.begin_capture(stream, CaptureMode::Global).unwrap();
    let a = gpu.empty(stream);
    let b = gpu.empty(stream);
    let (_, graph, _) = gpu.active(stream);
    let node = gpu.add_node(graph, &[Dependency::full(a)], Work::default()).unwrap();
    assert_eq!(gpu.terminals(stream), full(&[b]));
    assert_eq!(gpu.predecessors(node), full(&[a]));
    gpu.add_dependency(graph, Dependency::full(b), node).unwrap();
    assert_eq!(sorted(gpu.predecessors(node)), full(&[a, b]));
    gpu.remove_dependency(graph, Dependency::full(a), node).unwrap();
    assert_eq!(gpu.predecessors(node), full(&[b]));

    let mixed = [Dependency::full(a), programmatic(node)];
    let late = gpu.add_node(graph, &mixed, Work::default()).unwrap();
    assert_eq!(sorted(gpu.predecessors(late)), sorted(mixed.to_vec()));
    gpu.remove_dependency(graph, programmatic(node), late).unwrap();
    assert_eq!(gpu.predecessors(late), full(&[a]));

    let free = gpu.add_node(graph, &[], Work::default()).unwrap();
    assert!(gpu.predecessors(free).is_empty());
    gpu.set_terminals(stream, &full(&[node, late, free])).unwrap();
    let graph = gpu.end_capture(stream).unwrap();
    let executable = gpu.instantiate(graph).unwrap();
    gpu.replay(executable, stream).unwrap();
    gpu.synchronize().unwrap();
    gpu.destroy_executable(executable).unwrap();
    gpu.destroy_graph(graph).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn any_number_of_predecessors_is_seen() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    gpu.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    let (_, graph, _) = gpu.active(stream);
    for count in [1, 15, 16, 17, 127, 128, 129, 300] {
        let nodes: Vec<NodeHandle> =
            (0..count).map(|_| gpu.add_node(graph, &[], Work::default()).unwrap()).collect();
        let join = gpu.add_node(graph, &full(&nodes), Work::default()).unwrap();
        assert_eq!(sorted(gpu.predecessors(join)), full(&nodes), "{count}");
    }
    let graph = gpu.end_capture(stream).unwrap();
    gpu.destroy_graph(graph).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

/// Resets a range, writes it late in a kernel that triggers early, and has the kernel behind the
/// programmatic edge (`eager`) or the one after that check it. Returns the wrong tags per replay.
fn behind_a_programmatic_edge(gpu: &Gpu, eager: bool, replays: usize) -> Vec<u64> {
    let stream = gpu.create_stream().unwrap();
    let memory = gpu.allocate(MIB).unwrap();
    let range = |tag| [Tagged { address: memory, bytes: 4096, tag }];
    let (stale, right) = (range(1), range(7));
    let check = Work { inputs: &right, ..Work::default() };
    let reset = Work { outputs: &stale, ..Work::default() };
    let write = Work { outputs: &right, delay: 5_000_000, trigger_early: true, ..Work::default() };
    gpu.begin_capture(stream, CaptureMode::Global).unwrap();
    gpu.node(stream, reset, false);
    let a = gpu.node(stream, write, false);
    let second = if eager { check } else { Work::default() };
    let b = gpu.node(stream, second, true);
    assert_eq!(gpu.predecessors(b), [programmatic(a)]);
    if !eager {
        let c = gpu.node(stream, check, false);
        assert_eq!(gpu.predecessors(c), full(&[b]));
    }
    let graph = gpu.end_capture(stream).unwrap();
    let executable = gpu.instantiate(graph).unwrap();
    let wrong = (0..replays)
        .map(|_| {
            gpu.replay(executable, stream).unwrap();
            gpu.synchronize().unwrap();
            gpu.take_wrong_tags().unwrap()
        })
        .collect();
    gpu.destroy_executable(executable).unwrap();
    gpu.destroy_graph(graph).unwrap();
    gpu.free(memory).unwrap();
    gpu.destroy_stream(stream).unwrap();
    wrong
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn completion_behind_a_programmatic_edge_includes_its_predecessor() {
    let gpu = gpu();
    let wrong = behind_a_programmatic_edge(&gpu, false, 20);
    assert_eq!(wrong, [0; 20]);
}

/// Shows that the test above tests something. Needs compute capability 9.0.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_start_behind_a_programmatic_edge_does_not_wait() {
    let gpu = gpu();
    let wrong = behind_a_programmatic_edge(&gpu, true, 20);
    assert!(wrong.iter().any(|&wrong| wrong > 0), "{wrong:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn any_thread_may_call() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    gpu.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    let node = gpu.empty(stream);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // No context is current here yet.
            assert_eq!(gpu.terminals(stream), full(&[node]));
            assert!(gpu.predecessors(node).is_empty());
        });
    });
    let graph = gpu.end_capture(stream).unwrap();
    gpu.destroy_graph(graph).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

/// A function of libcuda that neither trait has.
///
/// # Safety
/// `F` must be the C prototype of the function.
unsafe fn raw<F: Copy>(name: &str) -> F {
    for library in ["libcuda.so.1", "libcuda.so", "nvcuda.dll"] {
        // SAFETY: opens libcuda, which the driver object keeps open.
        if let Ok(library) = unsafe { libloading::Library::new(library) } {
            // SAFETY: the caller's part.
            return *unsafe { library.get::<F>(name) }.unwrap();
        }
    }
    panic!("no libcuda");
}

type Create = unsafe extern "C" fn(*mut *mut std::ffi::c_void, u32) -> u32;

/// A stream that synchronises with the legacy stream.
fn blocking_stream() -> StreamHandle {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the prototype is that of cuda.h; writes one handle.
    let code = unsafe { raw::<Create>("cuStreamCreate")(&mut stream, 0) };
    assert_eq!(code, 0);
    StreamHandle::from_raw(stream)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_legacy_stream_tells_of_a_capture_and_leaves_it_alive() {
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    let blocking = blocking_stream();
    let event = gpu.create_event().unwrap();
    let mut terminals = Vec::new();
    for mode in MODES {
        for legacy in [0, 1] {
            gpu.record_event(event, StreamHandle::from_bits(legacy)).unwrap();
        }
        gpu.begin_capture(blocking, mode).unwrap();
        let node = gpu.empty(blocking);
        for legacy in [0, 1] {
            let legacy = StreamHandle::from_bits(legacy);
            terminals.push(Dependency::full(node));
            let error = gpu.capture_status(legacy, &mut terminals).unwrap_err();
            assert_eq!(error.kind, ErrorKind::CaptureImplicit);
            assert!(terminals.is_empty());
            let error = gpu.record_event(event, legacy).unwrap_err();
            assert_eq!(error.kind, ErrorKind::CaptureImplicit);
        }
        // The thread's own default stream and other streams do not mind.
        for other in [StreamHandle::from_bits(2), stream] {
            let status = gpu.capture_status(other, &mut terminals).unwrap();
            assert_eq!(status, CaptureStatus::None);
        }
        assert_eq!(gpu.terminals(blocking), full(&[node]));
        let graph = gpu.end_capture(blocking).unwrap();
        gpu.destroy_graph(graph).unwrap();
    }
    gpu.destroy_event(event).unwrap();
    gpu.destroy_stream(blocking).unwrap();
    gpu.destroy_stream(stream).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn an_invalidated_capture_says_so() {
    type Allocate = unsafe extern "C" fn(*mut u64, usize) -> u32;
    let gpu = gpu();
    let stream = gpu.create_stream().unwrap();
    gpu.begin_capture(stream, CaptureMode::Global).unwrap();
    let node = gpu.empty(stream);
    let mut address = 0;
    // SAFETY: the prototype is that of cuda.h; writes one address.
    let code = unsafe { raw::<Allocate>("cuMemAlloc_v2")(&mut address, 512) };
    assert_ne!(code, 0);
    let mut terminals = vec![Dependency::full(node)];
    let status = gpu.capture_status(stream, &mut terminals).unwrap();
    assert_eq!(status, CaptureStatus::Invalidated);
    assert!(terminals.is_empty());
    let error = gpu.end_capture(stream).unwrap_err();
    assert_eq!(error.kind, ErrorKind::CaptureInvalidated);
    let status = gpu.capture_status(stream, &mut terminals).unwrap();
    assert_eq!(status, CaptureStatus::None);
    gpu.destroy_stream(stream).unwrap();
}
