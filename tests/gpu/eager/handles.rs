//! Streams that are destroyed while their work runs, and new ones that may have their handles.

use std::collections::HashSet;
use std::sync::Arc;

use regraph::driver::StreamHandle;
use regraph::engine::{Block, Config, Engine, PoolConfig, PoolId};

use super::{launch, tagged, Device, KIB, MIB};

const GENERATIONS: u64 = 300;

struct Bench<P: Device> {
    driver: Arc<P>,
    engine: Engine<Arc<P>>,
    pool: PoolId,
    /// Lives as long as the bench and reads what others write.
    steady: StreamHandle,
    seen: HashSet<StreamHandle>,
    again: u64,
}

impl<P: Device> Bench<P> {
    fn new(driver: &Arc<P>) -> Self {
        let engine = Engine::new(driver.clone(), Config::default());
        Self {
            driver: driver.clone(),
            pool: engine.create_pool(PoolConfig::default()),
            engine,
            steady: driver.create_stream().unwrap(),
            seen: HashSet::new(),
            again: 0,
        }
    }

    fn create(&mut self) -> StreamHandle {
        let stream = self.driver.create_stream().unwrap();
        self.again += u64::from(!self.seen.insert(stream));
        stream
    }

    fn destroy(&self, stream: StreamHandle) {
        self.engine.retire_stream(stream).unwrap();
        self.driver.destroy_stream(stream).unwrap();
    }

    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Block {
        self.engine.allocate(self.pool, bytes, stream).unwrap()
    }

    fn end(self) {
        self.driver.synchronize().unwrap();
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
        println!("{} of {GENERATIONS} generations had a handle again", self.again);
        let emptied = self.engine.empty_cache().unwrap();
        assert_eq!((emptied.waiting, emptied.reserved), (0, 0), "{emptied:?}");
        self.engine.destroy_pool(self.pool).unwrap();
        self.destroy(self.steady);
    }
}

/// Sizes of one generation, in bytes; the same in each, so that memory could go from one to the
/// next.
const SIZES: [u64; 4] = [4 * KIB, 700 * KIB, 3 * MIB, 8 * MIB];

fn streams_come_and_go<P: Device>(driver: &Arc<P>) {
    let mut bench = Bench::new(driver);
    let mut tag = 0;
    for generation in 0..GENERATIONS {
        let stream = bench.create();
        let mut blocks = Vec::new();
        for bytes in SIZES {
            tag += 1;
            let block = bench.allocate(bytes, stream);
            launch(&**driver, stream, (&[], &[tagged(block, tag)]), 2_000);
            blocks.push(tagged(block, tag));
            if generation % 3 == 0 {
                driver.wait(bench.steady, stream).unwrap();
                launch(&**driver, bench.steady, (&[tagged(block, tag)], &[]), 30_000);
                bench.engine.record_stream(block.id, bench.steady).unwrap();
            }
            launch(&**driver, stream, (&[tagged(block, tag)], &[]), 30_000);
            bench.engine.free(block.id).unwrap();
        }
        bench.destroy(stream);
        if generation % 16 == 0 {
            driver.progress(bench.steady);
        }
    }
    bench.end();
}

/// The block outlives its stream: what was submitted before the stream went may still use it when
/// it is freed.
fn blocks_outlive_their_streams<P: Device>(driver: &Arc<P>) {
    let mut bench = Bench::new(driver);
    let mut left: Vec<Block> = Vec::new();
    for generation in 0..GENERATIONS {
        let stream = bench.create();
        // Freed now that another stream may have the handle of the one that they came from.
        for block in left.drain(..) {
            bench.engine.free(block.id).unwrap();
        }
        for (number, bytes) in SIZES.into_iter().enumerate() {
            let tag = generation * 16 + number as u64 + 1;
            let block = bench.allocate(bytes, stream);
            launch(&**driver, stream, (&[], &[tagged(block, tag)]), 0);
            launch(&**driver, stream, (&[tagged(block, tag)], &[]), 200_000);
            left.push(block);
        }
        bench.destroy(stream);
    }
    for block in left {
        bench.engine.free(block.id).unwrap();
    }
    bench.end();
}

twins! {
    streams_come_and_go
    blocks_outlive_their_streams
}
