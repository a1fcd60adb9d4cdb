//! Captures whose memory comes at their end, on the simulated driver and on a real GPU.
//!
//! ```text
//! cargo test --release --test gpu plans:: -- --ignored
//! ```
//!
//! Every kernel checks tags that others wrote, so memory that is shared wrongly shows.
//!
//! * [`many`]: graphs of one pool, in every order;
//! * [`one`]: what one capture comes to, and what must not be shared or moved;
//! * [`ends`]: captures that end badly, memory that is short, graphs and blocks that go.

mod ends;
mod many;
mod one;

use std::sync::Arc;

use crate::device::{launch, Device};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Memory, Pool};
use regraph::plan::Options;
use regraph_tagged::Tagged;

const MIB: u64 = 1 << 20;
/// The granularity of both devices, in bytes.
const PAGE: u64 = 2 * MIB;

type Shared<P> = Arc<P>;
type Block<P> = Memory<Shared<P>>;

/// An engine with a pool whose captures get their memory at their end.
struct Bench<P: Device> {
    driver: Arc<P>,
    engine: Arc<Engine<Shared<P>>>,
    pool: Pool<Shared<P>>,
}

impl<P: Device> Bench<P> {
    fn new(driver: &Arc<P>, options: Options) -> Self {
        Self::with(driver, PoolConfig::default().plan(options))
    }

    fn with(driver: &Arc<P>, config: PoolConfig) -> Self {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let pool = Pool::new(&engine, config);
        Self { driver: driver.clone(), engine, pool }
    }

    fn streams<const N: usize>(&self) -> [StreamHandle; N] {
        std::array::from_fn(|_| self.driver.create_stream().unwrap())
    }

    fn reserved(&self) -> u64 {
        self.engine.statistics().unwrap().all.reserved_bytes.current
    }

    fn wrong(&self) -> u64 {
        self.driver.synchronize().unwrap();
        self.driver.take_wrong_tags().unwrap()
    }

    /// Whether all of a block holds a tag.
    fn holds(&self, memory: &Block<P>, tag: u64) -> bool {
        self.driver.synchronize().unwrap();
        let tags = self.driver.read_tags(memory.address(), memory.bytes()).unwrap();
        tags.iter().all(|&held| held == tag)
    }

    fn capture<R>(
        &self,
        stream: StreamHandle,
        body: impl FnMut(&Capture<Shared<P>>) -> Result<R, Error>,
    ) -> Result<(Graph<Shared<P>>, R), Error> {
        self.engine.capture(stream, &self.pool, CaptureMode::ThreadLocal, body)
    }

    /// Blocks of so many bytes one after the other, each read by the kernel that writes the next one.
    /// The last is returned.
    fn chain(
        &self,
        capture: &Capture<Shared<P>>,
        stream: StreamHandle,
        (tag, sizes): (u64, &[u64]),
    ) -> Result<Block<P>, Error> {
        let mut last: Option<(Block<P>, u64)> = None;
        for (step, &bytes) in sizes.iter().enumerate() {
            let memory = capture.allocate(bytes, stream)?;
            let own = tag + step as u64;
            let inputs: Vec<_> = last.iter().map(|(memory, tag)| range(memory, *tag)).collect();
            launch(&*self.driver, stream, (&inputs, &[range(&memory, own)]), 2_000);
            last = Some((memory, own));
        }
        Ok(last.unwrap().0)
    }

    /// Ends everything: all memory is to be given back.
    fn close(self) {
        let Self { driver, engine, pool } = self;
        driver.synchronize().unwrap();
        pool.synchronize().unwrap();
        drop(pool);
        engine.empty_cache().unwrap();
        assert_eq!(engine.statistics().unwrap().all.reserved_bytes.current, 0);
    }
}

/// All of a block, with what it holds or is to hold.
fn range<P: Device>(memory: &Block<P>, tag: u64) -> Tagged {
    Tagged { address: memory.address(), bytes: memory.bytes(), tag }
}

/// Pieces that fit any later plan.
fn granules() -> Options {
    Options::default().max_piece_bytes(Some(PAGE))
}
