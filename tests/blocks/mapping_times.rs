//! What a device tells of mappings before the first capture, and that asking leaves nothing behind.

use regraph::driver::{ErrorKind, MemorySupport};
use regraph_sim::probe::Mapping;
use regraph_sim::{Call, SimConfig, SimDriver};

#[test]
fn a_device_that_maps_memory_tells_its_unit() {
    for granularity in [1 << 16, 2 << 20] {
        let support = MemorySupport::Mapped { granularity };
        let driver = SimDriver::new(SimConfig { support, ..SimConfig::default() });
        let mapping = Mapping::measure(&driver).unwrap().unwrap();
        assert_eq!(mapping.granularity, granularity);
        assert!(driver.calls(Call::Map) > 0);
        assert_eq!(driver.calls(Call::Map), driver.calls(Call::Unmap));
        assert_eq!(driver.calls(Call::Reserve), driver.calls(Call::Unreserve));
        assert_eq!(driver.used_bytes(), 0);
    }
}

#[test]
fn a_device_that_cannot_map_memory_is_left_alone() {
    let support = MemorySupport::Allocated;
    let driver = SimDriver::new(SimConfig { support, ..SimConfig::default() });
    assert_eq!(Mapping::measure(&driver).unwrap(), None);
    assert_eq!(driver.total_calls(), 0);
}

/// Whatever fails, all that was made before goes back.
#[test]
fn a_call_that_fails_leaves_nothing_behind() {
    let whole = SimDriver::new(SimConfig::default());
    Mapping::measure(&whole).unwrap();
    for call in [Call::Reserve, Call::Create, Call::Map, Call::SetAccess] {
        for n in 0..whole.calls(call) {
            let driver = SimDriver::new(SimConfig::default());
            driver.fail_nth(call, n, ErrorKind::OutOfMemory);
            let error = Mapping::measure(&driver).unwrap_err();
            assert_eq!(error.kind, ErrorKind::OutOfMemory, "{call:?} {n}");
            let failed = |asked| u64::from(call == asked);
            let made = |asked| driver.calls(asked) - failed(asked);
            assert_eq!(driver.used_bytes(), 0, "{call:?} {n}");
            assert_eq!(made(Call::Reserve), driver.calls(Call::Unreserve), "{call:?} {n}");
            assert_eq!(made(Call::Create), driver.calls(Call::Release), "{call:?} {n}");
            assert_eq!(made(Call::Map), driver.calls(Call::Unmap), "{call:?} {n}");
        }
    }
    for call in [Call::Unmap, Call::Release, Call::Unreserve] {
        let driver = SimDriver::new(SimConfig::default());
        driver.fail_nth(call, 0, ErrorKind::InvalidValue);
        let error = Mapping::measure(&driver).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidValue, "{call:?}");
    }
}
