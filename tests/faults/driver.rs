//! A call to the driver that fails and another one behind it. `rules` has each call of many programs fail.

use std::sync::Arc;

use crate::common::{bench, Bench, MIB};
use regraph::driver::{CaptureId, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, Error, PoolConfig, Shared, Spare};
use regraph::graphs::Pool;
use regraph::plan::Options;
use regraph::settings::Settings;
use regraph_sim::{Call, SimConfig, SimDriver};

/// Found by random programs: the piece stayed mapped and was forgotten, and no growth could ever use its place again.
#[test]
fn a_mapping_that_cannot_be_undone_is_undone_later() {
    let (Bench { driver, engine, pool }, [s]) = bench(Config::default()).with_streams();
    engine.allocate(pool, 4 * MIB, s).unwrap();
    driver.fail_nth(Call::SetAccess, 0, ErrorKind::InvalidValue);
    driver.fail_nth(Call::Unmap, 0, ErrorKind::InvalidValue);
    assert!(matches!(engine.allocate(pool, 4 * MIB, s), Err(Error::Driver(_))));
    // While it cannot be, that is what stands in the way.
    driver.fail_nth(Call::Unmap, 0, ErrorKind::NotPermitted);
    let Err(Error::Driver(error)) = engine.allocate(pool, 4 * MIB, s) else { panic!() };
    assert_eq!((error.call, error.kind), (Call::Unmap.driver_name(), ErrorKind::NotPermitted));
    engine.allocate(pool, 4 * MIB, s).unwrap();
    assert_eq!(driver.used_bytes(), 8 * MIB);
    // Nor is memory forgotten that is neither mapped nor released.
    driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
    driver.fail_nth(Call::Release, 0, ErrorKind::InvalidValue);
    engine.allocate(pool, 4 * MIB, s).unwrap_err();
    engine.allocate(pool, 4 * MIB, s).unwrap();
    assert_eq!(driver.used_bytes(), 12 * MIB);
}

/// The segment was closed and forgotten, with memory that the driver had not taken back.
#[test]
fn memory_of_a_segment_that_failed_at_its_first_growth_is_given_back_later() {
    let failures = [(Call::SetAccess, Call::Unmap), (Call::Map, Call::Release)];
    let ways = failures.map(|calls| [(true, calls), (false, calls)]);
    for (grows, (call, undoing)) in ways.into_iter().flatten() {
        let config = Config::default().settings(Settings::default().expandable_segments(grows));
        let (Bench { driver, engine, pool }, [s]) = bench(config).with_streams();
        for _ in 0..2 {
            driver.fail_nth(call, 0, ErrorKind::NotSupported);
            (0..9).for_each(|n| driver.fail_nth(undoing, n, ErrorKind::NotSupported));
            let Err(Error::Driver(error)) = engine.allocate(pool, 20 * MIB, s) else { panic!() };
            assert_eq!(error.call, call.driver_name());
            engine.empty_cache().unwrap();
            assert_eq!(driver.used_bytes(), 20 * MIB, "it cannot be given back yet");
            driver.forget_failures();
            // What is free stays in the pool, which that is not.
            engine.host().set_spare(pool, Spare::Kept).unwrap();
            engine.empty_cache().unwrap();
            assert_eq!(driver.used_bytes(), 0);
            assert_eq!(driver.calls(Call::Reserve), driver.calls(Call::Unreserve));
        }
        engine.allocate(pool, 20 * MIB, s).unwrap();
        engine.empty_cache().unwrap();
        assert_eq!(driver.used_bytes(), 20 * MIB);
    }
}

/// The engine forgot the pool's memory, and where the pool's owner had gone no host was told.
#[test]
fn memory_of_a_pool_that_cannot_go_is_given_back_later() {
    let ways = [(Call::Unmap, false), (Call::Release, false), (Call::Release, true)];
    // The last time the driver had refused to take it before.
    let ways = ways.map(|(call, owned)| (call, owned, false)).into_iter();
    for (call, owned, stuck) in ways.chain([(Call::Unmap, false, true)]) {
        let driver = Arc::new(SimDriver::new(SimConfig::default()));
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let pool = Pool::new(&engine, PoolConfig::default());
        let s = driver.create_stream().unwrap();
        if !stuck {
            drop([20 * MIB, 512].map(|bytes| pool.allocate(bytes, s).unwrap()));
            driver.complete_all();
        }
        (0..9).for_each(|n| driver.fail_nth(call, n, ErrorKind::NotSupported));
        if stuck {
            driver.fail_nth(Call::SetAccess, 0, ErrorKind::NotSupported);
            assert!(pool.allocate(20 * MIB, s).is_err());
        }
        if !owned {
            assert!(matches!(engine.destroy_pool(pool.id()), Err(Error::Driver(_))));
            assert!(pool.allocate(512, s).is_err());
        }
        drop(pool);
        engine.empty_cache().unwrap();
        let (used, held) = if stuck { (20, 0) } else { (22, 22) };
        assert_eq!(driver.used_bytes(), used * MIB);
        assert_eq!(engine.statistics().unwrap().all.reserved_bytes.current, held * MIB);
        driver.forget_failures();
        engine.create_pool(PoolConfig::default());
        assert_eq!((driver.used_bytes(), engine.pools().unwrap().len()), (0, 1));
    }
}

/// Its blocks came back to its cache no more, though it went on.
#[test]
fn a_stream_that_cannot_be_retired_is_as_it_was() {
    let (Bench { driver, engine, pool }, [s]) = bench(Config::default()).with_streams();
    engine.free(engine.allocate(pool, MIB, s).unwrap().id).unwrap();
    let block = engine.allocate(pool, MIB, s).unwrap();
    driver.fail_nth(Call::CreateEvent, 0, ErrorKind::OutOfMemory);
    engine.retire_stream(s).unwrap_err();
    assert!(engine.host().free_at_once(block.id, Some(s)));
    engine.host().verify().unwrap();
}

/// The engine kept the import mapped for good, and so the other process's memory stayed in use.
#[test]
fn an_import_that_cannot_go_goes_later() {
    let failures = [None, Some(Call::SetAccess), Some(Call::Map)];
    for (call, emptied) in failures.into_iter().flat_map(|call| [(call, false), (call, true)]) {
        let driver = Arc::new(SimDriver::new(SimConfig::default()));
        let config = Config::default().settings(Settings::default().exportable(true));
        let [engine, other] = [(); 2].map(|()| Engine::new(driver.clone(), config.clone()));
        let pool = engine.create_pool(PoolConfig::default());
        let block = engine.allocate(pool, 20 * MIB, driver.create_stream().unwrap()).unwrap();
        let shared = engine.sharing().share(block.id).unwrap();
        let Shared::Pieces { pieces, .. } = shared else { panic!("{shared:?}") };
        let pieces: Vec<_> = pieces.iter().map(|it| (it.bytes, it.export.descriptor())).collect();
        call.into_iter().for_each(|call| driver.fail_nth(call, 0, ErrorKind::NotSupported));
        for undoing in [Call::Unmap, Call::Release] {
            (0..9).for_each(|n| driver.fail_nth(undoing, n, ErrorKind::NotSupported));
        }
        let imported = other.sharing().import(&pieces);
        imported.and_then(|(import, _)| other.sharing().close_import(import)).unwrap_err();
        driver.forget_failures();
        if emptied {
            other.empty_cache().unwrap();
        } else {
            let (import, _) = other.sharing().import(&pieces).unwrap();
            other.sharing().close_import(import).unwrap();
        }
        engine.free(block.id).unwrap();
        engine.destroy_pool(pool).unwrap();
        assert_eq!(driver.used_bytes(), 0, "{call:?}");
    }
}

/// A capture into a pool of plans, with its stream.
fn planned_capture() -> (Bench, [StreamHandle; 1], CaptureId) {
    let mut b = bench(Config::default());
    b.pool = b.engine.create_pool(PoolConfig::default().plan(Options::default()));
    b.capturing()
}

/// Suspending the pool left the capture's scratch memory mapped, and said nothing.
#[test]
fn scratch_memory_that_a_capture_has_left_goes_with_its_pool() {
    let (Bench { driver, engine, pool }, [s], capture) = planned_capture();
    let block = engine.allocate(pool, 4 * MIB, s).unwrap();
    engine.free(block.id).unwrap();
    (0..9).for_each(|n| driver.fail_nth(Call::Unmap, n, ErrorKind::NotSupported));
    engine.abandon_capture(capture).unwrap();
    driver.destroy_graph(driver.end_capture(s).unwrap()).unwrap();
    driver.complete_all();
    assert!(engine.host().suspend_discarding_all(pool).is_err());
    driver.forget_failures();
    assert!(engine.host().suspend_discarding_all(pool).unwrap() > 0);
    assert_eq!(driver.used_bytes(), 0);
    engine.host().resume_pool(pool).unwrap();
}

/// The mapping was forgotten: each later block of the capture was refused, and the memory was lost.
#[test]
fn a_mapping_of_a_planned_block_that_cannot_be_undone_is_undone_later() {
    for fixed in [false, true] {
        let (Bench { driver, engine, pool }, [s], capture) = planned_capture();
        let allocate = || match fixed {
            true => engine.allocate_fixed(pool, 4 * MIB, s),
            false => engine.allocate(pool, 4 * MIB, s),
        };
        driver.fail_nth(Call::SetAccess, 0, ErrorKind::InvalidValue);
        driver.fail_nth(Call::Unmap, 0, ErrorKind::InvalidValue);
        let Err(Error::Driver(error)) = allocate() else { panic!() };
        assert_eq!(error.call, Call::SetAccess.driver_name());
        engine.host().verify().unwrap();
        let block = allocate().unwrap();
        engine.free(block.id).unwrap();
        engine.host().verify().unwrap();
        engine.abandon_capture(capture).unwrap();
        driver.destroy_graph(driver.end_capture(s).unwrap()).unwrap();
        engine.destroy_pool(pool).unwrap();
        assert_eq!(driver.used_bytes(), 0, "fixed: {fixed}");
    }
}
