//! The simulated driver, through its public doors.

use crate::driven::{self, active, dependencies, full, launch, refused, status, terminals};
use regraph::driver::{
    CaptureMode, CaptureStatus, Dependency, Driver, DriverError, EdgeData, ErrorKind, EventHandle,
    GraphHandle, HostApi, MemoryHandle, MemorySupport, NodeHandle, StreamHandle, Transfer,
};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

const MIB: u64 = 1 << 20;

fn sim() -> SimDriver {
    SimDriver::new(SimConfig::default())
}

/// A capture on the first of some streams.
fn capturing<const N: usize>() -> (SimDriver, [StreamHandle; N]) {
    let sim = sim();
    let streams = driven::capturing(&sim);
    (sim, streams)
}

fn with(node: NodeHandle, edge: EdgeData) -> Dependency {
    Dependency { node, edge }
}

#[test]
fn captures_are_numbered_anew_and_graphs_die() {
    let (sim, s) = capturing::<1>();
    let (first, graph) = active(&sim, s[0]);
    let node = launch(&sim, s[0]);
    refused(sim.destroy_graph(graph), ErrorKind::InvalidValue);
    assert_eq!(sim.end_capture(s[0]).unwrap(), graph);
    sim.destroy_graph(graph).unwrap();
    refused(sim.dependencies(node, &mut Vec::new()), ErrorKind::InvalidValue);
    refused(sim.node_kind(node), ErrorKind::InvalidValue);
    refused(sim.nodes(graph, &mut Vec::new()), ErrorKind::InvalidValue);
    refused(sim.instantiate(graph), ErrorKind::InvalidValue);
    refused(sim.destroy_graph(graph), ErrorKind::InvalidValue);

    sim.begin_capture(s[0], CaptureMode::Global).unwrap();
    refused(sim.begin_capture(s[0], CaptureMode::Global), ErrorKind::NotPermitted);
    refused(sim.destroy_stream(s[0]), ErrorKind::CaptureUnsupported);
    assert_ne!(active(&sim, s[0]).0, first);
    sim.end_capture(s[0]).unwrap();
    refused(sim.end_capture(s[0]), ErrorKind::NotPermitted);
    sim.destroy_stream(s[0]).unwrap();
    refused(sim.capture_status(s[0], &mut Vec::new()), ErrorKind::InvalidValue);
}

#[test]
fn an_event_keeps_what_it_was_recorded_behind() {
    let (sim, s) = capturing::<2>();
    let a = launch(&sim, s[0]);
    let event = sim.record(s[0]).unwrap();
    let b = launch(&sim, s[0]);
    sim.wait_event(s[1], event).unwrap();
    assert_eq!(terminals(&sim, s[1]), full(&[a]));
    sim.wait_event(s[0], event).unwrap();
    assert_eq!(terminals(&sim, s[0]), full(&[b, a]));

    sim.end_capture(s[0]).unwrap();
    refused(sim.query_event(event.handle()), ErrorKind::InvalidValue);
    refused(sim.wait_event(s[1], event), ErrorKind::InvalidValue);
    sim.destroy_event(event.handle()).unwrap();
    refused(sim.wait_event(s[1], event), ErrorKind::InvalidValue);
}

#[test]
fn only_a_kernel_lets_its_successor_start_early() {
    let (sim, s) = capturing::<1>();
    let (_, graph) = active(&sim, s[0]);
    let (conditional, _) = sim.add_conditional(graph, &[]).unwrap();
    sim.set_terminals(s[0], &full(&[conditional])).unwrap();
    sim.launch(s[0], Work::default(), true).unwrap();
    let node = terminals(&sim, s[0])[0].node;
    assert_eq!(dependencies(&sim, node), full(&[conditional]));
}

#[test]
fn a_programmatic_event_shows_its_edge_at_once() {
    for edge in [EdgeData::PROGRAMMATIC, EdgeData::LAUNCH_ORDER] {
        let (sim, s) = capturing::<2>();
        let a = launch(&sim, s[0]);
        let early = sim.record_programmatic(s[0], edge).unwrap();
        sim.wait_event(s[1], early).unwrap();
        assert_eq!(terminals(&sim, s[1]), [with(a, edge)]);
        // A stream that also waits in the ordinary way has the better promise, in either order.
        sim.wait(s[1], s[0]).unwrap();
        assert_eq!(terminals(&sim, s[1]), full(&[a]));
        sim.wait_event(s[1], early).unwrap();
        assert_eq!(terminals(&sim, s[1]), full(&[a]));
    }
}

#[test]
fn an_early_edge_is_no_join() {
    let (sim, s) = capturing::<2>();
    let a = launch(&sim, s[0]);
    sim.wait(s[1], s[0]).unwrap();
    launch(&sim, s[1]);
    let early = sim.record_programmatic(s[1], EdgeData::PROGRAMMATIC).unwrap();
    sim.wait_event(s[0], early).unwrap();
    launch(&sim, s[0]);
    refused(sim.end_capture(s[0]), ErrorKind::CaptureUnjoined);
    refused(sim.node_kind(a), ErrorKind::InvalidValue);
}

#[test]
fn a_ruined_capture_ruins_all_its_streams_and_its_graph() {
    let (sim, s) = capturing::<3>();
    let a = launch(&sim, s[0]);
    sim.wait(s[1], s[0]).unwrap();
    sim.invalidate(s[1]).unwrap();
    assert_eq!(status(&sim, s[0]), CaptureStatus::Invalidated);
    assert_eq!(status(&sim, s[1]), CaptureStatus::Invalidated);
    refused(sim.invalidate(s[2]), ErrorKind::NotPermitted);
    refused(sim.end_capture(s[0]), ErrorKind::CaptureInvalidated);
    refused(sim.node_kind(a), ErrorKind::InvalidValue);
    sim.begin_capture(s[1], CaptureMode::Relaxed).unwrap();
    launch(&sim, s[1]);
    sim.end_capture(s[1]).unwrap();
}

#[test]
fn a_wait_for_a_device_ruins_no_capture_of_another() {
    let sim = sim();
    let other = sim.add_device(SimConfig::default());
    let (here, there) = (sim.create_stream().unwrap(), other.create_stream().unwrap());
    sim.begin_capture(here, CaptureMode::Global).unwrap();
    other.begin_capture(there, CaptureMode::Global).unwrap();
    refused(sim.synchronize(), ErrorKind::CaptureUnsupported);
    assert_eq!(status(&sim, here), CaptureStatus::Invalidated);
    active(&other, there);
}

#[test]
fn a_body_lives_as_long_as_its_graph_and_is_captured_once() {
    let (sim, s) = capturing::<3>();
    let (_, graph) = active(&sim, s[0]);
    let (conditional, body) = sim.add_conditional(graph, &[]).unwrap();
    sim.begin_capture_to_graph(s[1], body, CaptureMode::Relaxed).unwrap();
    refused(sim.begin_capture_to_graph(s[2], body, CaptureMode::Relaxed), ErrorKind::InvalidValue);
    let inside = launch(&sim, s[1]);
    sim.end_capture(s[1]).unwrap();
    refused(sim.destroy_graph(body), ErrorKind::InvalidValue);
    sim.set_terminals(s[0], &full(&[conditional])).unwrap();
    sim.end_capture(s[0]).unwrap();
    sim.destroy_graph(graph).unwrap();
    refused(sim.node_kind(inside), ErrorKind::InvalidValue);
}

#[test]
fn edits_and_settings_that_no_graph_can_have_are_refused() {
    let (sim, s) = capturing::<1>();
    let (_, graph) = active(&sim, s[0]);
    let [a, b, c] = [0; 3].map(|_| launch(&sim, s[0]));
    let d = launch(&sim, s[0]);
    sim.add_dependency(graph, Dependency::full(a), c).unwrap();

    let [other, idle] = [0; 2].map(|_| sim.create_stream().unwrap());
    sim.begin_capture(other, CaptureMode::Relaxed).unwrap();
    let foreign = launch(&sim, other);
    refused(sim.set_terminals(s[0], &full(&[foreign])), ErrorKind::InvalidValue);
    refused(sim.set_terminals(idle, &[]), ErrorKind::NotPermitted);
    sim.set_terminals(s[0], &full(&[d, d])).unwrap();
    assert_eq!(terminals(&sim, s[0]), full(&[d]));

    sim.end_capture(s[0]).unwrap();
    let bad = [
        (Dependency::full(d), a, "a cycle"),
        (Dependency::full(a), a, "a cycle of one"),
        (Dependency::full(a), c, "an edge that is there"),
        (with(b, EdgeData::LAUNCH_ORDER), c, "an edge twice"),
        (Dependency::full(NodeHandle::from_bits(64)), c, "no node"),
        (Dependency::full(a), NodeHandle::from_bits(64), "no node"),
    ];
    for (from, to, why) in bad {
        let added = sim.add_dependency(graph, from, to);
        assert_eq!(added.expect_err(why).kind, ErrorKind::InvalidValue, "{why}");
    }
    // An edge to an earlier node is fine where it closes no cycle, and rules out later ones.
    let e = sim.add_node(graph, &[], Work::default()).unwrap();
    sim.add_dependency(graph, Dependency::full(e), a).unwrap();
    let f = sim.add_node(graph, &[], Work::default()).unwrap();
    sim.add_dependency(graph, Dependency::full(f), e).unwrap();
    refused(sim.add_dependency(graph, Dependency::full(a), f), ErrorKind::InvalidValue);
    refused(sim.remove_dependency(graph, Dependency::full(b), d), ErrorKind::InvalidValue);
    refused(sim.add_node(graph, &full(&[a, a]), Work::default()), ErrorKind::InvalidValue);
    refused(
        sim.add_conditional(graph, &[with(a, EdgeData::PROGRAMMATIC)]),
        ErrorKind::InvalidValue,
    );
}

/// A call that must be refused.
type Misuse = (&'static str, fn(&SimDriver, u64, MemoryHandle) -> bool);

fn invalid<T>(result: Result<T, DriverError>) -> bool {
    matches!(result, Err(error) if error.kind == ErrorKind::InvalidValue)
}

#[test]
fn memory_misuse_is_refused() {
    let page = 2 * MIB;
    // Eight pages reserved; `memory`, two pages, mapped at the third.
    let table: &[Misuse] = &[
        ("reserve nothing", |sim, _, _| invalid(sim.reserve(0))),
        ("reserve half a page", |sim, _, _| invalid(sim.reserve(MIB))),
        ("create nothing", |sim, _, _| invalid(sim.create(0))),
        ("create half a page", |sim, _, _| invalid(sim.create(MIB))),
        ("map twice", |sim, at, memory| invalid(sim.map(at + 4 * MIB, 4 * MIB, memory))),
        ("map over the end of a mapping", |sim, at, memory| {
            invalid(sim.map(at + 6 * MIB, 4 * MIB, memory))
        }),
        ("map over the start of a mapping", |sim, at, memory| {
            invalid(sim.map(at + 2 * MIB, 4 * MIB, memory))
        }),
        ("map a part", |sim, at, memory| invalid(sim.map(at, 2 * MIB, memory))),
        ("map off the grid", |sim, at, memory| invalid(sim.map(at + 9 * MIB, 4 * MIB, memory))),
        ("map outside", |sim, at, memory| invalid(sim.map(at + 16 * MIB, 4 * MIB, memory))),
        ("map over the edge", |sim, at, memory| invalid(sim.map(at + 14 * MIB, 4 * MIB, memory))),
        ("map nothing known", |sim, at, _| invalid(sim.map(at, 4 * MIB, MemoryHandle(99)))),
        ("access the unmapped", |sim, at, _| invalid(sim.set_access(at, 4 * MIB))),
        ("access a hole too", |sim, at, _| invalid(sim.set_access(at + 2 * MIB, 6 * MIB))),
        ("access a part", |sim, at, _| invalid(sim.set_access(at + 4 * MIB, 2 * MIB))),
        ("unmap the unmapped", |sim, at, _| invalid(sim.unmap(at, 4 * MIB))),
        ("unmap the first part", |sim, at, _| invalid(sim.unmap(at + 4 * MIB, 2 * MIB))),
        ("unmap the last part", |sim, at, _| invalid(sim.unmap(at + 6 * MIB, 2 * MIB))),
        ("unmap more", |sim, at, _| invalid(sim.unmap(at + 4 * MIB, 6 * MIB))),
        ("unmap past every address", |sim, at, _| {
            invalid(sim.unmap(at + 4 * MIB, u64::MAX - 2 * MIB + 1))
        }),
        ("unreserve under a mapping", |sim, at, _| invalid(sim.unreserve(at, 16 * MIB))),
        ("unreserve a part", |sim, at, _| invalid(sim.unreserve(at, 2 * MIB))),
        ("release nothing known", |sim, _, _| invalid(sim.release(MemoryHandle(0)))),
        ("free a mapping", |sim, at, _| invalid(sim.free(at + 4 * MIB))),
        ("allocate nothing", |sim, _, _| invalid(sim.allocate(0))),
    ];
    let sim = sim();
    let address = sim.reserve(8 * page).unwrap();
    let memory = sim.create(2 * page).unwrap();
    sim.map(address + 2 * page, 2 * page, memory).unwrap();
    for (what, refused) in table {
        assert!(refused(&sim, address, memory), "{what} must be refused");
    }
    // All is as it was.
    sim.set_access(address + 2 * page, 2 * page).unwrap();
    sim.unmap(address + 2 * page, 2 * page).unwrap();
    sim.unreserve(address, 8 * page).unwrap();
    sim.release(memory).unwrap();
    refused(sim.release(memory), ErrorKind::InvalidValue);
    refused(sim.unreserve(address, 8 * page), ErrorKind::InvalidValue);
}

#[test]
fn memory_lives_until_its_last_mapping_and_handle_go() {
    let sim = SimDriver::new(SimConfig { total_bytes: 8 * MIB, ..SimConfig::default() });
    let free = || sim.memory_info().unwrap().free;
    let address = sim.reserve(16 * MIB).unwrap();
    let memory = sim.create(4 * MIB).unwrap();
    sim.map(address, 4 * MIB, memory).unwrap();
    sim.map(address + 4 * MIB, 4 * MIB, memory).unwrap();
    assert_eq!(free(), 4 * MIB);
    sim.release(memory).unwrap();
    refused(sim.map(address + 8 * MIB, 4 * MIB, memory), ErrorKind::InvalidValue);
    assert_eq!(free(), 4 * MIB);
    refused(sim.create(6 * MIB), ErrorKind::OutOfMemory);
    refused(sim.allocate(6 * MIB), ErrorKind::OutOfMemory);
    // One call may span whole mappings.
    sim.unmap(address, 8 * MIB).unwrap();
    assert_eq!(free(), 8 * MIB);
    let all = sim.allocate(8 * MIB).unwrap();
    assert_eq!(free(), 0);
    refused(sim.create(2 * MIB), ErrorKind::OutOfMemory);
    sim.free(all).unwrap();
    refused(sim.free(all), ErrorKind::InvalidValue);
    refused(sim.reserve(u64::MAX - 2 * MIB + 1), ErrorKind::OutOfMemory);
    assert_eq!(sim.memory_info().unwrap().total, 8 * MIB);
}

#[test]
fn addresses_are_the_same_every_time() {
    let addresses = || {
        let sim = sim();
        (
            sim.reserve(4 * MIB).unwrap(),
            sim.reserve(2 * MIB).unwrap(),
            sim.allocate(700).unwrap(),
            sim.allocate(700).unwrap(),
        )
    };
    let (a, b, c, d) = addresses();
    assert_eq!((a, b, c, d), addresses());
    assert_eq!(a % (2 * MIB), 0);
    assert!(b > a + 4 * MIB && d > c + 1024);
}

#[test]
fn without_mapping_there_are_only_whole_allocations() {
    let sim =
        SimDriver::new(SimConfig { support: MemorySupport::Allocated, ..SimConfig::default() });
    assert_eq!(sim.memory_support(), MemorySupport::Allocated);
    refused(sim.reserve(2 * MIB), ErrorKind::NotSupported);
    refused(sim.create(2 * MIB), ErrorKind::NotSupported);
    let address = sim.allocate(100).unwrap();
    assert_eq!(sim.read_tags(address, 100).unwrap(), [0]);
    sim.free(address).unwrap();
}

#[test]
fn what_no_device_reaches_is_neither_copied_nor_filled() {
    let (sim, s) = capturing::<1>();
    let (place, other) = (sim.allocate_host(2 * MIB).unwrap(), sim.create_stream().unwrap());
    let (address, memory) = (sim.reserve(2 * MIB).unwrap(), sim.create(2 * MIB).unwrap());
    sim.map(address, 2 * MIB, memory).unwrap();
    for stream in [s[0], other] {
        refused(sim.copy_to_host(place, address, MIB, stream), ErrorKind::InvalidValue);
        refused(sim.copy_to_device(address, place, MIB, stream), ErrorKind::InvalidValue);
        refused(sim.fill(address, MIB, 0, stream), ErrorKind::InvalidValue);
    }
    sim.set_access(address, 2 * MIB).unwrap();
    sim.copy_to_host(place, address, MIB, other).unwrap();
}

#[test]
fn calls_fail_on_demand_once_and_without_effect() {
    let (sim, s) = capturing::<1>();
    let node = launch(&sim, s[0]);
    let asked = sim.calls(Call::CaptureStatus);
    sim.fail_nth(Call::CaptureStatus, 1, ErrorKind::LossyQuery);
    assert_eq!(terminals(&sim, s[0]), full(&[node]));
    let mut found = full(&[node]);
    let failed = sim.capture_status(s[0], &mut found).unwrap_err();
    assert_eq!((failed.code, failed.kind), (402, ErrorKind::LossyQuery));
    assert_eq!(failed.call, Call::CaptureStatus.driver_name());
    assert!(found.is_empty());
    assert_eq!(terminals(&sim, s[0]), full(&[node]));
    assert_eq!(sim.calls(Call::CaptureStatus) - asked, 3);

    let free = sim.memory_info().unwrap().free;
    sim.fail_nth(Call::Create, 0, ErrorKind::OutOfMemory);
    assert!(sim.create(2 * MIB).unwrap_err().is_out_of_memory());
    assert_eq!(sim.memory_info().unwrap().free, free);
    sim.create(2 * MIB).unwrap();

    let total = sim.total_calls();
    sim.fail_any_nth(2, ErrorKind::NotSupported);
    sim.memory_info().unwrap();
    sim.node_kind(node).unwrap();
    refused(sim.create_event(), ErrorKind::NotSupported);
    sim.create_event().unwrap();
    assert_eq!(sim.total_calls() - total, 4);
    let sum: u64 = Call::ALL.iter().map(|call| sim.calls(*call)).sum();
    assert_eq!(sum, sim.total_calls());
}

#[test]
fn asking_about_an_event_of_a_capture_ruins_it() {
    let (sim, s) = capturing::<1>();
    // An engine's event cannot be one of a capture.
    let outside = sim.create_event().unwrap();
    refused(sim.record_event(outside, s[0]), ErrorKind::CaptureUnsupported);
    let event = sim.record(s[0]).unwrap();
    refused(sim.query_event(event.handle()), ErrorKind::CapturedEvent);
    refused(sim.record(s[0]), ErrorKind::CaptureInvalidated);
    refused(sim.end_capture(s[0]), ErrorKind::CaptureInvalidated);
}

#[test]
fn waiting_for_an_event_completes_what_it_stands_behind_and_no_more() {
    let sim = sim();
    let (a, b) = (sim.create_stream().unwrap(), sim.create_stream().unwrap());
    let done = |event: EventHandle| sim.query_event(event).unwrap();
    let events: Vec<_> = (0..4).map(|_| sim.create_event().unwrap()).collect();
    sim.synchronize_event(events[0]).unwrap();
    sim.record_event(events[0], a).unwrap();
    sim.synchronize_event(events[0]).unwrap();

    sim.launch(a, Work::default(), false).unwrap();
    sim.record_event(events[1], a).unwrap();
    sim.launch(a, Work::default(), false).unwrap();
    sim.record_event(events[2], a).unwrap();
    sim.launch(b, Work::default(), false).unwrap();
    sim.record_event(events[3], b).unwrap();
    sim.synchronize_event(events[1]).unwrap();
    assert!(done(events[1]) && !done(events[2]) && !done(events[3]));

    // A capture neither minds the wait nor is asked about.
    sim.begin_capture(a, CaptureMode::Global).unwrap();
    let inside = sim.record(a).unwrap();
    let calls = sim.calls(Call::SynchronizeEvent);
    sim.synchronize_event(events[2]).unwrap();
    assert!(done(events[2]) && !done(events[3]));
    // To ask about an event of a capture ruins it.
    refused(sim.synchronize_event(inside.handle()), ErrorKind::CapturedEvent);
    refused(sim.end_capture(a), ErrorKind::CaptureInvalidated);
    assert_eq!(sim.calls(Call::SynchronizeEvent) - calls, 2);

    sim.fail_nth(Call::SynchronizeEvent, 0, ErrorKind::NotPermitted);
    refused(sim.synchronize_event(events[3]), ErrorKind::NotPermitted);
    assert!(!done(events[3]));
    sim.destroy_event(events[3]).unwrap();
    refused(sim.synchronize_event(events[3]), ErrorKind::InvalidValue);
}

#[test]
fn events_complete_with_the_work_before_them() {
    let sim = sim();
    let (a, b) = (sim.create_stream().unwrap(), sim.create_stream().unwrap());
    let done = |event: EventHandle| sim.query_event(event).unwrap();
    let events: Vec<_> = (0..4).map(|_| sim.create_event().unwrap()).collect();
    sim.record_event(events[0], a).unwrap();
    assert!(done(events[0]), "nothing was before it");

    sim.launch(a, Work::default(), false).unwrap();
    sim.record_event(events[1], a).unwrap();
    sim.wait(b, a).unwrap();
    sim.launch(a, Work::default(), false).unwrap();
    sim.record_event(events[2], a).unwrap();
    sim.record_event(events[3], b).unwrap();
    assert!(!done(events[1]) && !done(events[3]));
    sim.complete(b).unwrap();
    assert!(done(events[1]) && done(events[3]), "b waited for a");
    assert!(!done(events[2]));

    // A capture in between changes nothing for the work outside.
    sim.begin_capture(a, CaptureMode::Relaxed).unwrap();
    launch(&sim, a);
    sim.end_capture(a).unwrap();
    sim.record_event(events[1], a).unwrap();
    assert!(!done(events[1]));
    sim.complete_all();
    assert!(done(events[1]) && done(events[2]));

    sim.launch(a, Work::default(), false).unwrap();
    sim.record_event(events[0], a).unwrap();
    assert!(!done(events[0]));
    sim.synchronize().unwrap();
    assert!(done(events[0]));
    sim.destroy_event(events[0]).unwrap();
    refused(sim.query_event(events[0]), ErrorKind::InvalidValue);
    refused(sim.record_event(events[0], a), ErrorKind::InvalidValue);
    refused(sim.destroy_event(events[0]), ErrorKind::InvalidValue);
}

fn tagged(address: u64, tag: u64) -> Tagged {
    Tagged { address, bytes: 700, tag }
}

fn run(sim: &SimDriver, stream: StreamHandle, inputs: &[Tagged], outputs: &[Tagged], early: bool) {
    let work = Work { inputs, outputs, ..Work::default() };
    sim.launch(stream, work, early).unwrap();
}

/// Replays a graph under many seeds; how many of them found a wrong tag.
fn caught(sim: &SimDriver, stream: StreamHandle, graph: GraphHandle) -> u32 {
    let executable = sim.instantiate(graph).unwrap();
    let caught = (0..100)
        .filter(|seed| {
            sim.set_schedule_seed(*seed);
            sim.replay(executable, stream).unwrap();
            sim.synchronize().unwrap();
            sim.take_wrong_tags().unwrap() > 0
        })
        .count();
    sim.destroy_executable(executable).unwrap();
    refused(sim.replay(executable, stream), ErrorKind::InvalidValue);
    caught as u32
}

#[test]
fn an_edge_of_launch_order_orders_starts_alone() {
    // The block of the second kernel's input is the third's output: safe only by a full edge.
    let reuse = |early| {
        let (sim, s) = capturing::<1>();
        let address = sim.allocate(1024).unwrap();
        run(&sim, s[0], &[], &[tagged(address, 1)], false);
        run(&sim, s[0], &[tagged(address, 1)], &[], false);
        sim.launch(s[0], Work::default(), early).unwrap();
        let before_last = terminals(&sim, s[0])[0].node;
        sim.set_terminals(
            s[0],
            &[if early {
                with(before_last, EdgeData::LAUNCH_ORDER)
            } else {
                Dependency::full(before_last)
            }],
        )
        .unwrap();
        run(&sim, s[0], &[], &[tagged(address, 2)], false);
        let graph = sim.end_capture(s[0]).unwrap();
        caught(&sim, s[0], graph)
    };
    assert_eq!(reuse(false), 0);
    assert!(reuse(true) > 20);
}

#[test]
fn mapped_memory_needs_access() {
    let sim = sim();
    let stream = sim.create_stream().unwrap();
    let address = sim.reserve(2 * MIB).unwrap();
    let memory = sim.create(2 * MIB).unwrap();
    sim.map(address, 2 * MIB, memory).unwrap();
    run(&sim, stream, &[], &[tagged(address, 5)], false);
    assert_eq!(sim.synchronize().unwrap_err().code, 700);
    sim.set_access(address, 2 * MIB).unwrap();
    run(&sim, stream, &[], &[tagged(address, 5)], false);
    sim.synchronize().unwrap();
    assert_eq!(sim.read_tags(address, 1536).unwrap(), [5, 5, 0]);
    refused(sim.read_tags(address, 8 * MIB), ErrorKind::InvalidValue);
}

#[test]
fn one_memory_may_lie_behind_many_addresses() {
    let sim = SimDriver::new(SimConfig { total_bytes: 2 * MIB, ..SimConfig::default() });
    let stream = sim.create_stream().unwrap();
    let count = 32;
    let first = sim.reserve(count * 2 * MIB).unwrap();
    let memory = sim.create(2 * MIB).unwrap();
    let at = |number: u64| first + number * 2 * MIB;
    for number in 0..count {
        sim.map(at(number), 2 * MIB, memory).unwrap();
    }
    sim.set_access(first, count * 2 * MIB).unwrap();
    assert_eq!(sim.used_bytes(), 2 * MIB);
    let write = |number: u64, offset: u64, tag: u64| {
        run(&sim, stream, &[], &[tagged(at(number) + offset, tag)], false);
        sim.synchronize().unwrap();
    };
    for number in 0..count {
        write(number, number * 1024, 100 + number);
    }
    let written: Vec<u64> = (0..count).flat_map(|number| [100 + number; 2]).collect();
    for number in 0..count {
        assert_eq!(sim.read_tags(at(number), count * 1024).unwrap(), written);
    }

    // One mapping less, and the others are as they were.
    sim.unmap(at(3), 2 * MIB).unwrap();
    refused(sim.read_tags(at(3), 512), ErrorKind::InvalidValue);
    write(7, 0, 5);
    assert_eq!(sim.read_tags(at(0), 1024).unwrap(), [5, 5]);
    // A handle that was given back can be mapped no more; the memory stays while it is mapped.
    sim.release(memory).unwrap();
    refused(sim.map(at(3), 2 * MIB, memory), ErrorKind::InvalidValue);
    assert_eq!(sim.read_tags(at(31), 1024).unwrap(), [5, 5]);
    sim.unmap(first, 3 * 2 * MIB).unwrap();
    sim.unmap(at(4), 27 * 2 * MIB).unwrap();
    assert_eq!((sim.used_bytes(), sim.read_tags(at(31), 512).unwrap()), (2 * MIB, vec![5]));
    sim.unmap(at(31), 2 * MIB).unwrap();
    assert_eq!(sim.used_bytes(), 0);

    // What comes next at the addresses is other memory, and empty.
    let memory = sim.create(2 * MIB).unwrap();
    sim.map(at(0), 2 * MIB, memory).unwrap();
    sim.set_access(at(0), 2 * MIB).unwrap();
    assert_eq!(sim.read_tags(at(0), 512).unwrap(), [0]);
}

/// A wait for the device covers work of streams that are gone, also where another one has the handle.
#[test]
fn the_device_is_not_idle_while_streams_that_are_gone_have_work() {
    let sim = sim();
    sim.give_streams_again();
    let gone = sim.create_stream().unwrap();
    sim.launch(gone, Work::default(), false).unwrap();
    let event = sim.create_event().unwrap();
    Driver::record_event(&sim, event, gone).unwrap();
    sim.destroy_stream(gone).unwrap();
    assert_eq!(sim.create_stream().unwrap(), gone);
    assert!(!sim.is_idle().unwrap());
    sim.synchronize().unwrap();
    assert!(sim.is_idle().unwrap() && sim.query_event(event).unwrap());
}
