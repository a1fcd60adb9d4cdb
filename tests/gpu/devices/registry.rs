//! Which engine a stream or a pointer belongs to.

use std::sync::Arc;

use regraph::devices::{Devices, Error, StreamRefusal, Unknown};
use regraph::driver::{CaptureMode, CaptureStatus, Driver, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Config, Engine};
use regraph::settings::Settings;
use regraph_sim::{Call, SimConfig, SimDriver};

use super::{two, MIB};

#[test]
fn engines_are_found_by_device_stream_and_pointer() {
    let two = two(&Config::default());
    for (device, side) in two.sides.iter().enumerate() {
        let found = two.devices.of_device(device as u32).unwrap();
        assert!(Arc::ptr_eq(found, &side.engine));
        let stream = side.stream();
        assert!(Arc::ptr_eq(two.devices.of_stream(stream).unwrap(), &side.engine));
        let block = side.allocate(stream);
        for address in [block.address, block.address + block.bytes - 1] {
            assert!(Arc::ptr_eq(two.devices.of_pointer(address).unwrap(), &side.engine));
        }
        // Freed or not, it is the engine's until the driver has it back.
        side.engine.free(block.id).unwrap();
        assert!(side.engine.host().owns(block.address));
    }
    let ordinals: Vec<u32> = two.devices.iter().map(|(device, _)| device).collect();
    assert_eq!(ordinals, [0, 1]);
}

#[test]
fn addresses_of_destroyed_pools_belong_to_no_device() {
    let two = two(&Config::default());
    let side = &two.sides[1];
    let stream = side.stream();
    let block = side.allocate(stream);
    side.engine.free(block.id).unwrap();
    side.driver.complete_all();
    side.engine.destroy_pool(side.pool).unwrap();
    for address in [block.address, 0, u64::MAX] {
        let unknown = two.devices.of_pointer(address).unwrap_err();
        assert!(
            matches!(unknown, Error::Unknown { what: Unknown::Address(of), .. } if of == address)
        );
    }
}

#[test]
fn a_stream_that_captures_is_found_and_goes_on_capturing() {
    let two = two(&Config::default());
    for side in &two.sides {
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
            let stream = side.stream();
            side.driver.begin_capture(stream, mode).unwrap();
            assert!(Arc::ptr_eq(two.devices.of_stream(stream).unwrap(), &side.engine));
            let status = side.driver.capture_of(stream).unwrap();
            assert!(matches!(status, CaptureStatus::Active { .. }));
            side.driver.end_capture(stream).unwrap();
        }
    }
}

#[test]
fn default_streams_are_everywhere() {
    let two = two(&Config::default());
    for bits in 0..3 {
        let stream = StreamHandle::from_bits(bits);
        let refused = two.devices.of_stream(stream).unwrap_err();
        assert!(
            matches!(refused, Error::Stream { stream: of, why: StreamRefusal::PerDevice, .. } if of == stream)
        );
        assert!(refused.to_string().contains("of_device"), "{refused}");
        let refused = two.devices.mark_stream(stream).unwrap_err();
        assert!(matches!(refused, Error::Stream { why: StreamRefusal::PerDevice, .. }));
    }
}

#[test]
fn a_device_has_one_engine_and_it_is_its_own() {
    let machine = SimDriver::new(SimConfig::default());
    let second = Arc::new(machine.add_device(SimConfig::default()));
    let mut devices = Devices::new();
    let stream = second.create_stream().unwrap();
    assert!(matches!(devices.of_stream(stream), Err(Error::NoEngine)));

    // Nothing but its driver says which it is.
    let engine = || Arc::new(Engine::new(second.clone(), Config::default()));
    assert_eq!(engine().device(), 1);
    devices.add(engine()).unwrap();
    assert!(matches!(devices.add(engine()), Err(Error::DeviceTaken { device: 1 })));
    assert!(matches!(devices.of_device(0), Err(Error::Unknown { what: Unknown::Device(0), .. })));

    // The first device has a driver and no engine here.
    let stream = machine.create_stream().unwrap();
    let refused = devices.of_stream(stream);
    assert!(matches!(refused, Err(Error::Unknown { what: Unknown::Device(0), .. })));
}

#[test]
fn the_drivers_errors_come_through() {
    let two = two(&Config::default());
    let stream = two.sides[0].stream();
    two.sides[0].driver.fail_nth(Call::DeviceOfStream, 0, ErrorKind::NotSupported);
    let failed = two.devices.of_stream(stream).unwrap_err();
    assert!(matches!(failed, Error::Driver(error) if error.kind == ErrorKind::NotSupported));
}

#[test]
fn fixed_segments_and_whole_allocations_are_found_too() {
    let fixed = Settings::parse("expandable_segments:False").unwrap();
    let uncached = Settings::default().caching(false);
    for settings in [fixed, uncached] {
        let two = two(&Config::default().settings(settings));
        let side = &two.sides[1];
        let stream = side.stream();
        let block = side.engine.allocate(side.pool, 30 * MIB, stream).unwrap();
        assert!(Arc::ptr_eq(two.devices.of_pointer(block.address).unwrap(), &side.engine));
        side.engine.free(block.id).unwrap();
    }
}
