//! Blocks of one device used on streams of the other, outside captures.

use regraph::driver::{CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Block, Config};
use regraph_sim::Call;
use regraph_tagged::Program;

use super::{tagged, two, Two};

/// A block of the first device that its own stream wrote and the other device's stream reads.
fn used(two: &Two, a: StreamHandle, b: StreamHandle) -> Block {
    let [first, second] = &two.sides;
    let block = first.allocate(a);
    first.write(a, tagged(block, 1));
    second.wait(b, a);
    second.read(b, tagged(block, 1));
    first.engine.record_stream(block.id, b).unwrap();
    block
}

/// One that is freed while neither has run.
fn freed(two: &Two, a: StreamHandle, b: StreamHandle) -> u64 {
    let block = used(two, a, b);
    two.sides[0].engine.free(block.id).unwrap();
    block.address
}

#[test]
fn a_free_waits_for_the_other_devices_stream() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let first = &two.sides[0];
    let address = freed(&two, a, b);
    assert_eq!(first.driver.calls(Call::RecordEvent), 1, "on the foreign stream, at the free");
    // The own stream's work is done, the foreign one's is not.
    first.driver.complete(a).unwrap();
    let other = first.allocate(a);
    assert_ne!(other.address, address);
    first.driver.complete(b).unwrap();
    let again = first.allocate(a);
    assert_eq!(again.address, address);
    first.write(a, tagged(again, 2));
    first.driver.synchronize().unwrap();
    assert_eq!(first.driver.take_wrong_tags().unwrap(), 0);
}

#[test]
fn spare_events_stay_with_their_device() {
    let two = two(&Config::default());
    let [first, second] = &two.sides;
    let (a, b, c) = (first.stream(), second.stream(), first.stream());
    for turn in 0..10 {
        let foreign = freed(&two, a, b);
        // And one that a stream of the engine's own device used, so that both have spares.
        let block = first.allocate(a);
        first.wait(c, a);
        first.engine.record_stream(block.id, c).unwrap();
        first.engine.free(block.id).unwrap();
        first.driver.complete_all();
        let back: Vec<_> = (0..2).map(|_| first.allocate(a)).collect();
        assert!(back.iter().any(|block| block.address == foreign), "{turn}");
        for block in back {
            first.engine.free(block.id).unwrap();
        }
    }
    let created = first.driver.calls(Call::CreateEvent);
    assert!(created <= 6 + 20, "{created} events, though most were spare");
    assert!(first.driver.calls(Call::DeviceOfStream) <= 3, "once a stream");
}

#[test]
fn where_the_device_cannot_be_told_the_block_waits() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let first = &two.sides[0];
    // The first is about the block's own stream.
    first.driver.fail_nth(Call::DeviceOfStream, 1, ErrorKind::NotSupported);
    let address = freed(&two, a, b);
    assert_eq!(first.driver.calls(Call::RecordEvent), 0);
    first.driver.complete_all();
    // Now it can be told, and the event is recorded late, behind everything.
    let other = first.allocate(a);
    let again = first.allocate(a);
    assert!([other.address, again.address].contains(&address));
}

#[test]
fn where_no_event_can_be_had_for_it_the_block_waits() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let first = &two.sides[0];
    first.driver.fail_nth(Call::CreateEvent, 1, ErrorKind::OutOfMemory);
    // The first is the host's, of the wait.
    let address = freed(&two, a, b);
    first.driver.complete(a).unwrap();
    assert_ne!(first.allocate(a).address, address, "b has not run");
}

#[test]
fn a_block_may_live_on_the_other_devices_stream() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let [first, second] = &two.sides;
    let block = first.allocate(b);
    second.write(b, tagged(block, 5));
    first.engine.free(block.id).unwrap();
    // Its own stream's order is enough for that stream alone.
    let taken = first.allocate(a);
    assert_ne!(taken.address, block.address);
    let again = first.allocate(b);
    assert_eq!(again.address, block.address);
    first.engine.free(again.id).unwrap();
    first.engine.mark_stream(b).unwrap();
    second.driver.complete(b).unwrap();
    assert_eq!(first.allocate(a).address, block.address);
}

#[test]
fn a_foreign_stream_that_captures_owes_its_event() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let [first, second] = &two.sides;
    let block = used(&two, a, b);
    second.driver.begin_capture(b, CaptureMode::Global).unwrap();
    first.engine.free(block.id).unwrap();
    assert_eq!(first.driver.calls(Call::RecordEvent), 0);
    assert_ne!(first.allocate(a).address, block.address);
    second.driver.end_capture(b).unwrap();
    // Recorded now, behind the read.
    assert_ne!(first.allocate(a).address, block.address);
    assert!(first.driver.calls(Call::RecordEvent) > 0);
}

#[test]
fn a_foreign_stream_is_retired_where_it_was_seen() {
    let (two, [a, b]) = two(&Config::default()).with_streams();
    let [first, second] = &two.sides;
    let address = freed(&two, a, b);
    first.engine.retire_stream(b).unwrap();
    second.engine.retire_stream(b).unwrap();
    second.driver.destroy_stream(b).unwrap();
    assert_ne!(first.allocate(a).address, address);
    first.driver.complete_all();
    assert_eq!(first.allocate(a).address, address);
}
