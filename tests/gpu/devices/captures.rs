//! Captures whose streams live on both devices: one graph, judged by each engine for its blocks.

use regraph::devices::{Error, Unknown};
use regraph::driver::{CaptureMode, Dependency, Driver, HostApi};
use regraph::engine::{self, Config};
use regraph_tagged::Program;

#[cfg(debug_assertions)]
use super::two_with;
use super::{tagged, two};

#[test]
fn each_engine_proves_its_blocks_over_the_whole_graph() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let [first, second] = &two.sides;
    let capture = two.begin(a, b);

    // A block of the first device, read on the second.
    let x = first.allocate(a);
    first.write(a, tagged(x, 1));
    second.wait(b, a);
    // And the other way round.
    let y = second.allocate(b);
    second.write(b, tagged(y, 2));
    first.wait(a, b);
    second.read(b, tagged(x, 1));
    first.read(a, tagged(y, 2));
    first.engine.record_stream(x.id, b).unwrap();
    second.engine.record_stream(y.id, a).unwrap();
    first.engine.free(x.id).unwrap();
    second.engine.free(y.id).unwrap();

    // Neither stream comes after the other's last read yet.
    let early = [first.allocate(a), second.allocate(b)];
    assert_ne!(early[0].address, x.address);
    assert_ne!(early[1].address, y.address);

    first.wait(a, b);
    second.wait(b, a);
    let late = [first.allocate(a), second.allocate(b)];
    assert_eq!(late[0].address, x.address);
    assert_eq!(late[1].address, y.address);
    first.write(a, tagged(late[0], 3));
    second.write(b, tagged(late[1], 4));
    first.wait(a, b);

    let graph = first.graph(a);
    let reports = two.devices.end_capture(capture, graph).unwrap();
    assert_eq!(first.driver.end_capture(a).unwrap(), graph);
    assert_eq!(reports.iter().map(|(device, _)| *device).collect::<Vec<_>>(), [0, 1]);
    assert!(reports.iter().all(|(_, report)| report.verified && report.capture == capture));

    let executable = first.driver.instantiate(graph).unwrap();
    for seed in 0..50 {
        first.driver.set_schedule_seed(seed);
        first.driver.replay(executable, a).unwrap();
        first.driver.synchronize().unwrap();
        assert_eq!(first.driver.take_wrong_tags().unwrap(), 0);
    }
    for (side, (block, report)) in
        two.sides.iter().zip([early[0], early[1]].into_iter().zip(&reports))
    {
        side.engine.free(block.id).unwrap();
        side.engine.release_graph(report.1.graph).unwrap();
    }
    for (side, block) in two.sides.iter().zip(late) {
        side.engine.free(block.id).unwrap();
        side.driver.complete_all();
        side.engine.destroy_pool(side.pool).unwrap();
    }
}

#[test]
fn a_capture_on_one_device_alone_may_use_blocks_of_the_other() {
    let two = two(&Config::default());
    let [first, second] = &two.sides;
    let (b, c) = (second.stream(), second.stream());
    second.driver.begin_capture(b, CaptureMode::Global).unwrap();
    let capture = first.engine.begin_capture(first.pool, b).unwrap();
    let x = first.allocate(b);
    second.write(b, tagged(x, 1));
    second.wait(c, b);
    second.read(c, tagged(x, 1));
    first.engine.record_stream(x.id, c).unwrap();
    first.engine.free(x.id).unwrap();
    assert_ne!(first.allocate(b).address, x.address);
    second.wait(b, c);
    assert_eq!(first.allocate(b).address, x.address);
    let graph = second.driver.end_capture(b).unwrap();
    // The engine of the streams' own device was never told and has nothing to say.
    let reports = two.devices.end_capture(capture, graph).unwrap();
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].0, 0);
}

/// Reuses a block of each device behind a join and takes away one of the two edges that the order rests on.
fn refused(broken: usize) {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let [first, second] = &two.sides;
    let capture = two.begin(a, b);
    let own = [a, b];
    let mut edges = Vec::new();
    for (device, side) in two.sides.iter().enumerate() {
        let (mine, other) = (own[device], own[1 - device]);
        let helper = &two.sides[1 - device];
        let block = side.allocate(mine);
        side.launch(mine);
        helper.wait(other, mine);
        helper.launch(other);
        let last = helper.driver.terminals(other).unwrap()[0].node;
        side.engine.record_stream(block.id, other).unwrap();
        side.engine.free(block.id).unwrap();
        side.wait(mine, other);
        let again = side.allocate(mine);
        assert_eq!(again.address, block.address);
        side.launch(mine);
        let next = side.driver.terminals(mine).unwrap()[0].node;
        edges.push((last, next));
    }
    first.wait(a, b);
    let graph = first.graph(a);
    let (from, to) = edges[broken];
    first.driver.remove_dependency(graph, Dependency::full(from), to).unwrap();
    let error = two.devices.end_capture(capture, graph).unwrap_err();
    let Error::OnDevice { device, error } = error else { panic!("{error}") };
    assert_eq!(device as usize, broken);
    assert!(matches!(*error, engine::Error::Refused(_)), "{error}");
    let _ = first.driver.end_capture(a);

    // No memory is kept for a graph that will not run.
    for side in [first, second] {
        for leak in side.engine.leaks().unwrap() {
            side.engine.free(leak.block).unwrap();
        }
        side.driver.complete_all();
        side.engine.destroy_pool(side.pool).unwrap();
    }
}

#[test]
fn the_first_devices_refusal_is_everybodys() {
    refused(0);
}

#[test]
fn the_second_devices_refusal_is_everybodys() {
    refused(1);
}

#[cfg(debug_assertions)]
#[test]
fn a_checker_sees_what_its_engine_got_wrong_with_the_other_devices_streams() {
    use regraph::engine::Flaw;
    for lame in 0..2 {
        let flawed = |device| {
            let flaw = (device == lame).then_some(Flaw::ForeignMarkers);
            Config::default().flaw(flaw)
        };
        let two = two_with([flawed(0), flawed(1)]);
        let own = [two.sides[0].stream(), two.sides[1].stream()];
        let capture = two.begin(own[0], own[1]);
        for device in [0, 1] {
            let (side, helper) = (&two.sides[device], &two.sides[1 - device]);
            let (mine, other) = (own[device], own[1 - device]);
            let block = side.allocate(mine);
            side.launch(mine);
            helper.wait(other, mine);
            helper.launch(other);
            side.engine.record_stream(block.id, other).unwrap();
            side.engine.free(block.id).unwrap();
            let again = side.allocate(mine);
            assert_eq!(again.address == block.address, device == lame);
            side.launch(mine);
        }
        two.sides[0].wait(own[0], own[1]);
        let graph = two.sides[0].graph(own[0]);
        let error = two.devices.end_capture(capture, graph).unwrap_err();
        assert!(matches!(error, Error::OnDevice { device, .. } if device as usize == lame));
    }
}

#[test]
fn a_ruined_capture_is_rolled_back_everywhere() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let [first, second] = &two.sides;
    let capture = two.begin(a, b);
    let graph = first.graph(a);
    let blocks = [first.allocate(a), second.allocate(b)];
    first.driver.invalidate(b).unwrap();
    two.devices.end_capture(capture, graph).unwrap_err();
    first.driver.end_capture(a).unwrap_err();
    let gone = two.devices.abandon_capture(capture).unwrap_err();
    assert!(matches!(gone, Error::Unknown { what: Unknown::Capture(_), .. }), "{gone}");
    for (side, block) in two.sides.iter().zip(blocks) {
        side.engine.free(block.id).unwrap();
        side.engine.destroy_pool(side.pool).unwrap();
    }
}

#[test]
fn abandoning_reaches_every_engine() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let capture = two.begin(a, b);
    two.devices.abandon_capture(capture).unwrap();
    for side in &two.sides {
        let ended = side.engine.abandon_capture(capture).unwrap_err();
        assert!(matches!(ended, engine::Error::Unknown { what: engine::Unknown::Capture(_), .. }));
    }
    let gone = two.devices.end_capture(capture, two.sides[0].graph(a)).unwrap_err();
    assert!(matches!(gone, Error::Unknown { what: Unknown::Capture(_), .. }));
}

#[test]
fn an_older_block_used_in_the_capture_waits_for_the_other_devices_stream() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let [first, second] = &two.sides;
    let old = first.allocate(a);
    first.write(a, tagged(old, 1));
    first.driver.complete_all();
    let capture = two.begin(a, b);
    second.read(b, tagged(old, 1));
    first.wait(a, b);
    first.engine.record_stream(old.id, b).unwrap();
    first.engine.free(old.id).unwrap();
    // Used in a graph on a stream of the other device: not before the capture's end.
    assert_ne!(first.allocate(a).address, old.address);
    let graph = first.graph(a);
    let reports = two.devices.end_capture(capture, graph).unwrap();
    first.driver.end_capture(a).unwrap();
    let c = first.stream();
    // The graph's, as long as it lives.
    assert_ne!(first.allocate(c).address, old.address);
    for (device, report) in reports {
        let engine = two.devices.of_device(device).unwrap();
        engine.release_graph(report.graph).unwrap();
    }
    assert_eq!(second.driver.device_of_stream(b).unwrap(), 1);
    first.engine.empty_cache().unwrap();
    let d = first.stream();
    let fresh = first.allocate(d);
    first.engine.free(fresh.id).unwrap();
}
