//! How much memory a capture will take, from the same code without a device.
//!
//! A program that is generic over its driver is run on a simulated one: every block, stream, wait and
//! capture is real to the engine, and only kernels are not run. What launches them goes through
//! [`Submit`], which on a device does what it is given and in a probe adds an empty node instead.
//!
//! ```
//! use regraph::driver::{AsStream, CaptureMode, StreamHandle};
//! use regraph::engine::Config;
//! use regraph::graphs::{Error, Pool, Submit};
//! use regraph_sim::probe::Probe;
//!
//! /// Captures a step of `rows` rows; the same on a device and in a probe.
//! fn step<D: Submit>(pool: &Pool<D>, stream: StreamHandle, rows: u64) -> Result<(), Error> {
//!     let body = |capture: &regraph::graphs::Capture<D>| {
//!         let hidden = capture.allocate(rows * 16384, &stream)?;
//!         capture.submit(stream, [&hidden], || {
//!             // launches a kernel that writes `hidden`
//!             Ok::<_, Error>(())
//!         })?;
//!         capture.allocate(rows * 4096, &stream)?;
//!         capture.submit(stream, [], || Ok::<_, Error>(()))?;
//!         Ok::<_, Error>(drop(hidden))
//!     };
//!     pool.engine().capture(&stream, pool, CaptureMode::ThreadLocal, body)?;
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Error> {
//! let probe = Probe::new(Config::default());
//! step(probe.pool(), probe.stream()?, 512)?;
//! assert_eq!(probe.reserved()?, 10 << 20); // for a device with pieces of 2 MiB
//! # Ok(())
//! # }
//! ```
//!
//! What the driver itself takes for a graph's executable is not in the figure: only a device tells
//! ([`Graph::driver_bytes`](regraph::graphs::Graph::driver_bytes)). With one at hand, a program is asked as it is
//! ([`Estimate`]). What a plan's mappings take, a device tells before its first capture ([`Mapping::measure`]).

mod estimate;
mod mapping;
mod replay;

pub use estimate::{Estimate, Needs};
pub use mapping::Mapping;
pub use replay::Replayed;

use std::sync::Arc;

use crate::{Kernel, KernelMemory, Launch, SimConfig, SimDriver};
use regraph::driver::{AsStream, Driver, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig, PoolStatistics};
use regraph::graphs::{Error, Pool, Submit};
use regraph::settings::Settings;

impl Submit for SimDriver {
    fn submit<E: From<Error>>(
        &self,
        stream: impl AsStream,
        ranges: &[(u64, u64)],
        _: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let stream = stream.as_stream();
        // Outside captures nothing is left to be done: it would never complete by itself.
        if self.is_capturing(stream).map_err(Error::from)? {
            let kernel: Option<Arc<dyn Kernel>> =
                (!ranges.is_empty()).then(|| Arc::new(Uses(ranges.into())) as _);
            self.launch_kernel(stream, Launch { kernel, programmatic: false })
                .map_err(Error::from)?;
        }
        Ok(())
    }
}

/// A kernel that uses memory in any way.
#[derive(Debug)]
struct Uses(Box<[(u64, u64)]>);

impl Kernel for Uses {
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.0.to_vec()
    }

    fn start(&self, memory: &mut KernelMemory<'_>) {
        for &(address, bytes) in &self.0 {
            memory.read(address, bytes, |_, _| {});
        }
    }

    fn end(&self, memory: &mut KernelMemory<'_>) {
        self.start(memory);
    }
}

/// An engine without a device, with a pool.
#[derive(Debug)]
pub struct Probe {
    pool: Pool<SimDriver>,
}

impl Probe {
    /// A probe of a device with virtual memory in pieces of 2 MiB, as most have.
    pub fn new(config: Config) -> Self {
        Self::on(SimConfig::default(), config)
    }

    /// A probe of a device like this one.
    ///
    /// # Errors
    /// The driver's.
    pub fn like<D: Driver>(device: &D, config: Config) -> Result<Self, Error> {
        let (total_bytes, support) = (device.memory_info()?.total, device.memory_support());
        Ok(Self::on(SimConfig { total_bytes, support }, config))
    }

    /// A probe of what captures will take that an engine makes with these settings: of a device like its own, with what
    /// it has learned by now ([`Plans::learned`](regraph::engine::Plans::learned)).
    ///
    /// # Errors
    /// The driver's; the engine's.
    pub fn of<D: Driver>(engine: &Engine<D>, settings: Settings) -> Result<Self, Error> {
        let probe = Self::like(engine.driver(), Config::default().settings(settings))?;
        probe.engine().plans().learn_as(engine)?;
        Ok(probe)
    }

    fn on(device: SimConfig, config: Config) -> Self {
        let engine = Arc::new(Engine::new(SimDriver::new(device), config));
        Self { pool: Pool::new(&engine, PoolConfig::default()) }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine<SimDriver>> {
        self.pool.engine()
    }

    /// The pool whose memory is asked about.
    pub fn pool(&self) -> &Pool<SimDriver> {
        &self.pool
    }

    /// A new stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn stream(&self) -> Result<StreamHandle, Error> {
        Ok(self.engine().driver().create_stream()?)
    }

    /// The device memory that the program would hold by now in the pool, in bytes.
    ///
    /// # Errors
    /// The engine's.
    pub fn reserved(&self) -> Result<u64, Error> {
        self.pool.reserved()
    }

    /// The pool's figures.
    ///
    /// # Errors
    /// The engine's.
    pub fn statistics(&self) -> Result<PoolStatistics, Error> {
        self.pool.statistics()
    }
}
