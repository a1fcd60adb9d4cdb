//! What the simulated machine refuses, as CUDA does.

use regraph::driver::{Driver, HostApi, MemorySupport};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

use super::{mapped, MIB};

const SMALL: SimConfig =
    SimConfig { total_bytes: 8 * MIB, support: MemorySupport::Mapped { granularity: 2 * MIB } };

/// Two devices that do not reach each other's memory.
fn strangers() -> [SimDriver; 2] {
    let first = SimDriver::new(SMALL);
    let second = first.add_device(SMALL);
    [first, second]
}

#[test]
fn streams_belong_to_devices_and_any_driver_can_tell() {
    let drivers = strangers();
    for (device, driver) in drivers.iter().enumerate() {
        assert_eq!(driver.device(), device as u32);
        let stream = driver.create_stream().unwrap();
        for asked in &drivers {
            assert_eq!(asked.device_of_stream(stream).unwrap(), device as u32);
        }
    }
}

#[test]
fn memory_and_limits_are_each_devices_own() {
    let [first, second] = strangers();
    let one = mapped(&first);
    assert_eq!([first.used_bytes(), second.used_bytes()], [4 * MIB, 0]);
    assert_eq!(second.memory_info().unwrap().free, 8 * MIB);
    let two = mapped(&second);
    assert_ne!(one, two);
    first.create(4 * MIB).unwrap();
    assert!(first.create(2 * MIB).unwrap_err().is_out_of_memory());
    second.create(4 * MIB).unwrap();
}

#[test]
fn an_event_is_recorded_on_streams_of_its_device_alone() {
    let [first, second] = strangers();
    let (a, b) = (first.create_stream().unwrap(), second.create_stream().unwrap());
    second.launch(b, Work::default(), false).unwrap();
    let event = first.create_event().unwrap();
    assert_eq!(first.record_event(event, b).unwrap_err().code, 400);
    first.record_event(event, a).unwrap();

    // Made for the other device, it can be asked about from anywhere.
    let event = first.create_event_on(1).unwrap();
    assert_eq!(first.record_event(event, a).unwrap_err().code, 400);
    first.record_event(event, b).unwrap();
    assert!(!first.query_event(event).unwrap());
    first.synchronize_event(event).unwrap();
    assert!(second.query_event(event).unwrap());
    first.create_event_on(2).unwrap_err();
}

#[test]
fn a_kernel_runs_on_streams_of_its_device_alone() {
    let [first, second] = strangers();
    let b = second.create_stream().unwrap();
    assert_eq!(first.launch(b, Work::default(), false).unwrap_err().code, 400);
    second.launch(b, Work::default(), false).unwrap();
}

#[test]
fn memory_of_another_device_is_touched_with_access_only() {
    for peers in [false, true] {
        let [first, second] = strangers();
        let first = if peers { first.with_peers(&[1]) } else { first };
        let range = [Tagged { address: mapped(&first), bytes: MIB, tag: 7 }];
        let (a, b) = (first.create_stream().unwrap(), second.create_stream().unwrap());
        first.launch(a, Work { outputs: &range, ..Work::default() }, false).unwrap();
        second.wait(b, a).unwrap();
        second.launch(b, Work { inputs: &range, ..Work::default() }, false).unwrap();
        let done = second.synchronize();
        assert_eq!(done.is_ok(), peers, "{done:?}");
        assert_eq!(second.take_wrong_tags().unwrap(), 0);
        assert_eq!(second.read_tags(range[0].address, 512).is_ok(), peers);
    }
}

#[test]
fn whole_allocations_have_peers_too() {
    let config = SimConfig { support: MemorySupport::Allocated, ..SMALL };
    let first = SimDriver::new(config);
    let second = first.add_device(config);
    let first = first.with_peers(&[1]);
    let b = second.create_stream().unwrap();
    for (driver, reached) in [(&first, true), (&second, true)] {
        let range = [Tagged { address: driver.allocate(MIB).unwrap(), bytes: MIB, tag: 3 }];
        second.launch(b, Work { outputs: &range, ..Work::default() }, false).unwrap();
        assert_eq!(second.synchronize().is_ok(), reached);
    }
    let a = first.create_stream().unwrap();
    let range = [Tagged { address: second.allocate(MIB).unwrap(), bytes: MIB, tag: 3 }];
    first.launch(a, Work { outputs: &range, ..Work::default() }, false).unwrap();
    first.synchronize().unwrap_err();
}

#[test]
#[should_panic(expected = "none of ordinal 5")]
fn peers_are_devices_of_the_machine() {
    let [first, _] = strangers();
    let _ = first.with_peers(&[5]);
}
