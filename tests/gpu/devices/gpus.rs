//! What two GPUs do.

use std::sync::MutexGuard;

use regraph::driver::cuda::CudaDriver;
use regraph::driver::{CaptureMode, CaptureStatus, Driver, HostApi};
use regraph::engine::Config;
use regraph_tagged::CudaProgram;
use regraph_tagged::{Program, Tagged, Work};

use super::random::{assert_telling, capture, eager};
use super::{mapped, on, Two, MIB};
use crate::device::gpu::turn;
use crate::device::tagged;

struct Gpus {
    two: Two<CudaProgram>,
    _turn: MutexGuard<'static, ()>,
}

/// Two GPUs that reach each other's memory; `None` where the machine has no such two.
fn drivers() -> Option<[CudaProgram; 2]> {
    // SAFETY: handles are given to calls while what they name lives.
    let first = unsafe { CudaDriver::new(0) }.expect("a GPU");
    // SAFETY: as above.
    let both = unsafe { CudaDriver::new(1) }.and_then(|second| {
        Ok([CudaProgram::on(first.with_peers(&[1])?)?, CudaProgram::on(second.with_peers(&[0])?)?])
    });
    both.map_err(|error| eprintln!("skipped, for want of a second GPU: {error}")).ok()
}

fn gpus() -> Option<Gpus> {
    let turn = turn();
    let configs = [Config::default(), Config::default()];
    Some(Gpus { two: on(drivers()?, configs), _turn: turn })
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn streams_belong_to_devices_also_while_they_capture() {
    let Some(gpus) = gpus() else { return };
    for (device, side) in gpus.two.sides.iter().enumerate() {
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
            let stream = side.stream();
            side.driver.begin_capture(stream, mode).unwrap();
            side.launch(stream);
            for asked in &gpus.two.sides {
                assert_eq!(asked.driver.device_of_stream(stream).unwrap(), device as u32);
                std::thread::scope(|scope| {
                    let asking = scope.spawn(|| asked.driver.device_of_stream(stream).unwrap());
                    assert_eq!(asking.join().unwrap(), device as u32);
                });
                // And what the engine asks of streams of the other device.
                let status = asked.driver.capture_of(stream).unwrap();
                assert!(matches!(status, CaptureStatus::Active { .. }), "{mode:?}: {status:?}");
                let mut terminals = Vec::new();
                asked.driver.capture_status(stream, &mut terminals).unwrap();
                assert_eq!(terminals.len(), 1);
                asked.driver.node_kind(terminals[0].node).unwrap();
            }
            let found = gpus.two.devices.of_stream(stream).unwrap();
            assert_eq!(found.device(), device as u32);
            side.driver.end_capture(stream).unwrap();
        }
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn events_go_with_the_device_of_their_stream() {
    let Some(gpus) = gpus() else { return };
    let [first, second] = &gpus.two.sides;
    let (a, b) = (first.stream(), second.stream());
    let event = first.driver.create_event().unwrap();
    first.driver.record_event(event, b).unwrap_err();
    first.driver.record_event(event, a).unwrap();
    first.driver.destroy_event(event).unwrap();

    let event = first.driver.create_event_on(1).unwrap();
    first.driver.record_event(event, a).unwrap_err();
    second.driver.launch(b, Work { delay: 1_000_000, ..Work::default() }, false).unwrap();
    first.driver.record_event(event, b).unwrap();
    first.driver.query_event(event).unwrap();
    first.driver.synchronize_event(event).unwrap();
    assert!(first.driver.query_event(event).unwrap());
    first.driver.destroy_event(event).unwrap();
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn kernels_reach_the_memory_of_the_other_device() {
    let Some(gpus) = gpus() else { return };
    let [first, second] = &gpus.two.sides;
    let (a, b) = (first.stream(), second.stream());
    for address in [mapped(&first.driver), first.driver.allocate(4 * MIB).unwrap()] {
        let range = Tagged { address, bytes: 4 * MIB, tag: address };
        second.write(b, range);
        first.wait(a, b);
        first.read(a, range);
        assert_eq!(gpus.two.wrong_tags(), 0);
        let tags = first.driver.read_tags(address, 4 * MIB).unwrap();
        assert!(tags.iter().all(|&tag| tag == address));
        // What is wrong is seen by the device that reads.
        second.read(b, Tagged { tag: 1, ..range });
        assert!(gpus.two.wrong_tags() > 0);
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn a_free_waits_for_the_other_devices_stream() {
    let Some(gpus) = gpus() else { return };
    let [first, second] = &gpus.two.sides;
    let (a, b) = (first.stream(), second.stream());
    let block = first.allocate(a);
    let range = tagged(block, 1);
    first.write(a, range);
    second.wait(b, a);
    let slow = Work { inputs: &[range], delay: 300_000_000, ..Work::default() };
    second.driver.launch(b, slow, false).unwrap();
    first.engine.record_stream(block.id, b).unwrap();
    first.engine.free(block.id).unwrap();
    let behind = second.driver.create_event().unwrap();
    second.driver.record_event(behind, b).unwrap();
    let early = first.allocate(a);
    if !second.driver.query_event(behind).unwrap() {
        assert_ne!(early.address, block.address, "the other device still reads it");
    }
    first.write(a, tagged(early, 2));
    assert_eq!(gpus.two.wrong_tags(), 0);
    first.engine.free(early.id).unwrap();
    let late = [first.allocate(a), first.allocate(a)];
    assert!(late.iter().any(|late| late.address == block.address));
    for block in late {
        first.engine.free(block.id).unwrap();
    }
    second.driver.destroy_event(behind).unwrap();
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn captures_over_two_devices() {
    let Some(gpus) = gpus() else { return };
    assert_telling((0..12).map(|seed| capture(&gpus.two, seed, 100)), 100);
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn eager_work_on_two_devices() {
    let Some(gpus) = gpus() else { return };
    assert_telling((0..20).map(|seed| eager(&gpus.two, seed)), 200);
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn captures_and_eager_work_by_turns() {
    let Some(gpus) = gpus() else { return };
    let turns = (0..12).map(|seed| match seed % 2 {
        0 => capture(&gpus.two, seed + 200, 20),
        _ => eager(&gpus.two, seed + 200),
    });
    assert_telling(turns, 100);
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn graphs_over_two_devices() {
    let Some(gpus) = gpus() else { return };
    super::graphs::graphs_keep_their_tags_on_both(&gpus.two);
    super::graphs::a_suspended_pool_of_either_launches_nothing(&gpus.two);
    super::graphs::a_callable_works_on_the_second_device(&gpus.two);
}
