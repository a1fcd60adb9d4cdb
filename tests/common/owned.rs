//! An engine with a pool whose graphs own their memory, on either device.
#![allow(dead_code, reason = "each program of tests uses a part")]

use std::sync::Arc;

use crate::device::{launch, Device};
use regraph::driver::StreamHandle;
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Memory, Pool};
use regraph_tagged::Tagged;

pub const MIB: u64 = 1 << 20;

pub struct Bench<P: Device> {
    pub driver: Arc<P>,
    pub engine: Arc<Engine<Arc<P>>>,
    pub pool: Pool<Arc<P>>,
}

impl<P: Device> Bench<P> {
    pub fn new(driver: &Arc<P>) -> Self {
        Self::with(driver, PoolConfig::default())
    }

    pub fn with(driver: &Arc<P>, pool: PoolConfig) -> Self {
        Self::of(driver, Config::default(), pool)
    }

    pub fn of(driver: &Arc<P>, config: Config, pool: PoolConfig) -> Self {
        let engine = Arc::new(Engine::new(driver.clone(), config));
        let pool = Pool::new(&engine, pool);
        Self { driver: driver.clone(), engine, pool }
    }

    pub fn streams<const N: usize>(&self) -> [StreamHandle; N] {
        std::array::from_fn(|_| self.driver.create_stream().unwrap())
    }

    pub fn with_streams<const N: usize>(self) -> (Self, [StreamHandle; N]) {
        let streams = self.streams();
        (self, streams)
    }

    pub fn reserved(&self) -> u64 {
        self.engine.statistics().unwrap().all.reserved_bytes.current
    }

    /// Waits for everything and says how many tags were wrong.
    pub fn wrong(&self) -> u64 {
        self.driver.synchronize().unwrap();
        self.driver.take_wrong_tags().unwrap()
    }

    /// A kernel writes a block.
    pub fn write(&self, stream: StreamHandle, memory: &Memory<Arc<P>>, tag: u64) {
        launch(&*self.driver, stream, (&[], &[range(memory, tag)]), 0);
    }

    /// A kernel reads a block.
    pub fn read(&self, stream: StreamHandle, memory: &Memory<Arc<P>>, tag: u64) {
        launch(&*self.driver, stream, (&[range(memory, tag)], &[]), 0);
    }

    /// Whether all of a block holds a tag.
    pub fn holds(&self, memory: &Memory<Arc<P>>, tag: u64) -> bool {
        self.driver.synchronize().unwrap();
        let tags = self.driver.read_tags(memory.address(), memory.bytes()).unwrap();
        tags.iter().all(|&held| held == tag)
    }

    /// Ends everything: all memory is to be given back.
    pub fn close(self) {
        let Self { driver, engine, pool } = self;
        driver.synchronize().unwrap();
        pool.synchronize().unwrap();
        drop(pool);
        engine.empty_cache().unwrap();
        assert_eq!(engine.statistics().unwrap().all.reserved_bytes.current, 0);
    }

    /// Drops what still uses memory, and ends everything.
    pub fn close_after<T>(self, last: T) {
        drop(last);
        self.close();
    }
}

/// All of a block, with what it holds or is to hold.
pub fn range<P: Device>(memory: &Memory<Arc<P>>, tag: u64) -> Tagged {
    Tagged { address: memory.address(), bytes: memory.bytes(), tag }
}
