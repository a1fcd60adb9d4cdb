//! Memory goes back to the device while a kernel runs, and nothing waits for the kernel.

use std::sync::Arc;

use regraph::driver::{Driver, StreamHandle};
use regraph::engine::{Block, Config, Engine, PoolConfig, PoolId};
use regraph::settings::Settings;

use super::{launch, tagged, Device, MIB};

/// Long enough for any number of driver calls, in nanoseconds.
const LONG: u32 = 200_000_000;
const CACHED: u64 = 24;

struct Bench<P: Device> {
    driver: Arc<P>,
    engine: Engine<Arc<P>>,
    pool: PoolId,
    busy: StreamHandle,
    other: StreamHandle,
}

impl<P: Device> Bench<P> {
    fn new(driver: &Arc<P>, expandable: bool) -> Self {
        let settings = Settings::default().expandable_segments(expandable);
        let engine = Engine::new(driver.clone(), Config::default().settings(settings));
        let pool = engine.create_pool(PoolConfig::default());
        let bench = Self {
            driver: driver.clone(),
            engine,
            pool,
            busy: driver.create_stream().unwrap(),
            other: driver.create_stream().unwrap(),
        };
        // The device sets memory of its own aside for the first kernel.
        launch(&**driver, bench.busy, (&[], &[]), 0);
        driver.synchronize().unwrap();
        bench
    }

    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Block {
        self.engine.allocate(self.pool, bytes, stream).unwrap()
    }

    fn write(&self, block: Block, stream: StreamHandle, tag: u64) {
        launch(&*self.driver, stream, (&[], &[tagged(block, tag)]), 0);
    }

    fn free_on_device(&self) -> u64 {
        self.driver.memory_info().unwrap().free
    }

    /// Freed memory that no work uses any more, in bytes.
    fn fill_cache(&self) -> u64 {
        let blocks: Vec<Block> = (0..CACHED).map(|_| self.allocate(16 * MIB, self.other)).collect();
        for &block in &blocks {
            self.write(block, self.other, 7);
        }
        self.driver.synchronize().unwrap();
        for block in blocks {
            self.engine.free(block.id).unwrap();
        }
        CACHED * 16 * MIB
    }

    fn end(self) {
        self.driver.synchronize().unwrap();
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
        self.engine.empty_cache().unwrap();
        self.engine.destroy_pool(self.pool).unwrap();
        for stream in [self.busy, self.other] {
            self.engine.retire_stream(stream).unwrap();
            self.driver.destroy_stream(stream).unwrap();
        }
    }
}

/// The device has so much more free than before, or little less: it may take some for itself.
pub(super) fn came_back(before: u64, after: u64, bytes: u64) {
    let more = after.saturating_sub(before);
    assert!(more >= bytes - bytes / 16, "{more} of {bytes} bytes came back");
}

fn a_running_kernel_is_not_waited_for<P: Device>(driver: &Arc<P>) {
    for expandable in [true, false] {
        let bench = Bench::new(driver, expandable);
        let used = bench.allocate(16 * MIB, bench.busy);
        bench.write(used, bench.busy, 1);
        let cached = bench.fill_cache();

        let behind = driver.create_event().unwrap();
        launch(&**driver, bench.busy, (&[tagged(used, 1)], &[tagged(used, 2)]), LONG);
        driver.record_event(behind, bench.busy).unwrap();
        let free = bench.free_on_device();
        let emptied = bench.engine.empty_cache().unwrap();
        let after = bench.free_on_device();
        let running = !driver.query_event(behind).unwrap();
        assert!(running, "the kernel ended before empty_cache came back");
        assert!(emptied.released >= cached, "{emptied:?}");
        came_back(free, after, emptied.released);
        assert_eq!(emptied.waiting, 0);
        assert_eq!(emptied.reserved, bench.engine.statistics().unwrap().all.reserved_bytes.current);

        launch(&**driver, bench.busy, (&[tagged(used, 2)], &[]), 0);
        bench.engine.free(used.id).unwrap();
        driver.synchronize().unwrap();
        driver.destroy_event(behind).unwrap();
        bench.end();
    }
}

fn what_a_running_kernel_uses_stays<P: Device>(driver: &Arc<P>) {
    for expandable in [true, false] {
        let bench = Bench::new(driver, expandable);
        let cached = bench.fill_cache();
        let before = bench.engine.empty_cache().unwrap();
        assert!(before.released >= cached);
        assert_eq!(before.reserved, 0);

        // One that its own stream could have back at once, one that another stream used too.
        let own = bench.allocate(32 * MIB, bench.busy);
        let shared = bench.allocate(48 * MIB, bench.other);
        bench.write(own, bench.busy, 3);
        bench.write(shared, bench.other, 4);
        driver.wait(bench.busy, bench.other).unwrap();
        let behind = driver.create_event().unwrap();
        launch(&**driver, bench.busy, (&[tagged(own, 3), tagged(shared, 4)], &[]), LONG);
        driver.record_event(behind, bench.busy).unwrap();
        bench.engine.record_stream(shared.id, bench.busy).unwrap();
        bench.engine.free(own.id).unwrap();
        bench.engine.free(shared.id).unwrap();

        let emptied = bench.engine.empty_cache().unwrap();
        assert!(!driver.query_event(behind).unwrap(), "the kernel ended before empty_cache did");
        assert!(emptied.waiting >= 80 * MIB, "{emptied:?}");
        assert!(emptied.reserved >= 80 * MIB, "{emptied:?}");

        driver.synchronize().unwrap();
        assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        let free = bench.free_on_device();
        let emptied = bench.engine.empty_cache().unwrap();
        assert!(emptied.released >= 80 * MIB, "{emptied:?}");
        assert_eq!((emptied.waiting, emptied.reserved), (0, 0));
        came_back(free, bench.free_on_device(), emptied.released);
        driver.destroy_event(behind).unwrap();
        bench.end();
    }
}

/// The ladder waits for what is there to be waited for, and tags stay right: what a long kernel
/// reads goes to another stream only when the kernel has ended.
fn a_request_waits_where_memory_is_short<P: Device>(driver: &Arc<P>) {
    for expandable in [true, false] {
        let bench = Bench::new(driver, expandable);
        bench.engine.set_memory_limit(Some(64 * MIB)).unwrap();
        let first = bench.allocate(60 * MIB, bench.busy);
        bench.write(first, bench.busy, 5);
        launch(&**driver, bench.busy, (&[tagged(first, 5)], &[]), LONG / 10);
        bench.engine.free(first.id).unwrap();
        let second = bench.allocate(56 * MIB, bench.other);
        bench.write(second, bench.other, 6);
        launch(&**driver, bench.other, (&[tagged(second, 6)], &[]), 0);
        let statistics = bench.engine.statistics().unwrap();
        assert!(statistics.counts.num_sync_all_streams > 0);
        assert!(statistics.all.reserved_bytes.peak <= 64 * MIB);
        bench.engine.free(second.id).unwrap();
        bench.end();
    }
}

twins! {
    a_running_kernel_is_not_waited_for
    what_a_running_kernel_uses_stays
    a_request_waits_where_memory_is_short
}
