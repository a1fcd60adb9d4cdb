//! Limits, as the device sees them.

use std::sync::Arc;

use regraph::driver::{Driver, StreamHandle};
use regraph::engine::{Block, Config, Engine, Error, OutOfMemory, PoolConfig, PoolId};
use regraph::settings::Settings;

use super::{launch, tagged, Device, KIB, MIB};

const LIMIT: u64 = 512 * MIB;
/// What the device may take for itself meanwhile: page tables, for instance.
const SLACK: u64 = 64 * MIB;

/// Allocates blocks, and touches them, until that fails.
fn fill<P: Device>(
    engine: &Engine<Arc<P>>,
    pool: PoolId,
    stream: StreamHandle,
    bytes: u64,
) -> (Vec<Block>, OutOfMemory) {
    let mut blocks = Vec::new();
    loop {
        match engine.allocate(pool, bytes, stream) {
            Ok(block) => {
                let tag = blocks.len() as u64 + 1;
                launch(&**engine.driver(), stream, (&[], &[tagged(block, tag)]), 0);
                blocks.push(block);
            }
            Err(Error::OutOfMemory(report)) => return (blocks, *report),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks what [`fill`] wrote, and frees it.
fn drain<P: Device>(engine: &Engine<Arc<P>>, stream: StreamHandle, blocks: Vec<Block>) {
    for (number, block) in blocks.into_iter().enumerate() {
        launch(&**engine.driver(), stream, (&[tagged(block, number as u64 + 1)], &[]), 0);
        engine.free(block.id).unwrap();
    }
}

fn a_limit_holds_on_the_device<P: Device>(driver: &Arc<P>) {
    for expandable in [true, false] {
        let streams = [driver.create_stream().unwrap(), driver.create_stream().unwrap()];
        launch(&**driver, streams[0], (&[], &[]), 0);
        driver.synchronize().unwrap();
        let free = driver.memory_info().unwrap().free;
        let settings =
            Settings::default().memory_limit_bytes(Some(LIMIT)).expandable_segments(expandable);
        let engine = Engine::new(driver.clone(), Config::default().settings(settings));
        let pools: [PoolId; 2] = std::array::from_fn(|_| engine.create_pool(PoolConfig::default()));
        assert_eq!(engine.memory_limit().unwrap(), Some(LIMIT));

        // Requests of any thread and size get no more, and find what is free.
        for (round, bytes) in
            [32 * MIB, 700 * KIB, 5 * MIB + 512, 200 * MIB].into_iter().enumerate()
        {
            let (pool, stream) = (pools[round % 2], streams[round / 2 % 2]);
            let (blocks, report) = fill(&engine, pool, stream, bytes);
            let gone = free.saturating_sub(driver.memory_info().unwrap().free);
            let all = engine.statistics().unwrap().all;
            assert_eq!(report.engine_limit, Some(LIMIT));
            assert!(all.reserved_bytes.peak <= LIMIT, "{all:?}");
            assert!(gone <= LIMIT + SLACK, "{gone} bytes are gone from the device");
            let got = blocks.len() as u64 * bytes;
            // Segments that cannot grow leave ends that no block fits into.
            let least = if expandable { LIMIT - bytes - LIMIT / 16 } else { LIMIT / 2 };
            assert!(got >= least, "{got} bytes in blocks of {bytes}");
            drain(&engine, stream, blocks);
        }

        // More when it is raised; the share of the device is the same thing.
        engine.set_memory_limit(Some(2 * LIMIT)).unwrap();
        let (blocks, _) = fill(&engine, pools[0], streams[0], 64 * MIB);
        assert!(blocks.len() as u64 * 64 * MIB > LIMIT);
        drain(&engine, streams[0], blocks);
        let total = driver.memory_info().unwrap().total;
        engine.set_memory_fraction(LIMIT as f64 / total as f64).unwrap();
        let limit = engine.memory_limit().unwrap().unwrap();
        assert!(limit.abs_diff(LIMIT) <= 1, "{limit}");
        driver.synchronize().unwrap();
        let emptied = engine.trim(LIMIT).unwrap();
        assert!(emptied.reserved <= LIMIT, "{emptied:?}");
        let (blocks, _) = fill(&engine, pools[1], streams[1], 16 * MIB);
        let gone = free.saturating_sub(driver.memory_info().unwrap().free);
        assert!(gone <= LIMIT + SLACK, "{gone} bytes are gone from the device");
        drain(&engine, streams[1], blocks);

        driver.synchronize().unwrap();
        assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        drop(engine);
        let gone = free.saturating_sub(driver.memory_info().unwrap().free);
        assert!(gone <= SLACK, "{gone} bytes did not come back");
        for stream in streams {
            driver.destroy_stream(stream).unwrap();
        }
    }
}

fn a_pool_has_a_limit_of_its_own<P: Device>(driver: &Arc<P>) {
    let stream = driver.create_stream().unwrap();
    let engine = Engine::new(driver.clone(), Config::default());
    let small = engine.create_pool(PoolConfig::default().max_bytes(64 * MIB));
    let large = engine.create_pool(PoolConfig::default());
    let (blocks, report) = fill(&engine, small, stream, 4 * MIB);
    assert_eq!(report.limit, Some(64 * MIB));
    assert_eq!(blocks.len(), 16);
    // That is nothing to the other pool.
    let other = engine.allocate(large, 256 * MIB, stream).unwrap();
    engine.free(other.id).unwrap();
    drain(&engine, stream, blocks);
    driver.synchronize().unwrap();
    assert_eq!(driver.take_wrong_tags().unwrap(), 0);
    drop(engine);
    driver.destroy_stream(stream).unwrap();
}

twins! {
    a_limit_holds_on_the_device
    a_pool_has_a_limit_of_its_own
}
