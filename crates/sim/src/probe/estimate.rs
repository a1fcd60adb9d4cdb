//! What graphs will need, from captures on the device itself that take no memory for their blocks.

use std::sync::Arc;

use super::Probe;
use regraph::driver::{AsStream, CaptureMode, ExecutableHandle, HostApi};
use regraph::engine::{Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Executables, Pool, PoolRefusal};
use regraph::plan::Options;
use regraph_trace::{JournalError, Trace};

/// Captures that are shown and come to nothing, for what their graphs would need in one pool.
///
/// For programs that are captured as they are, kernels and libraries with them; a program that is generic over its driver
/// needs no device ([`Probe`]). Each capture has addresses for its blocks and behind them no more memory than its blocks
/// hold at once, 170 MiB at most. Its graph is made executable, to see what the driver takes for that, and never
/// launched. The same requests are then made of a simulated device with the engine's settings, which comes to what the
/// captures will hold.
///
/// ```
/// use std::sync::Arc;
///
/// use regraph::driver::{CaptureMode, Driver, HostApi};
/// use regraph::engine::{Config, Engine};
/// use regraph::graphs::Error;
/// use regraph_sim::probe::Estimate;
/// # use regraph_sim::{SimConfig, SimDriver};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
/// # let stream = engine.driver().create_stream()?;
/// let mut estimate = Estimate::new(&engine);
/// for rows in [512, 256, 128] {
///     estimate.capture(stream, CaptureMode::ThreadLocal, |capture| {
///         let hidden = capture.allocate(rows * 16384, stream)?;
///         // launches kernels that use it
///         # let _ = &hidden;
///         Ok::<_, Box<dyn std::error::Error>>(capture.allocate(rows * 4096, stream)?)
///     })?;
/// }
/// let needs = estimate.needs()?;
/// assert_eq!(needs.pool_bytes, 10 << 20); // the first one's; the others lie in what that freed
/// if needs.bound().total_bytes() < engine.driver().memory_info()?.free {
///     // capture them in this order
/// }
/// # Ok(())
/// # }
/// ```
///
/// Dropping it destroys the executables. The driver keeps their memory for later ones.
#[derive(Debug)]
pub struct Estimate<D: HostApi> {
    pool: Pool<D>,
    traces: Vec<Trace>,
    /// All of them live until the end: the driver would give the memory of one to the next.
    made: Vec<ExecutableHandle>,
    executable_bytes: u64,
}

/// What graphs that share one pool will need, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needs {
    /// What the pool will hold.
    pub pool_bytes: u64,
    /// What the driver took beside it for executables, one for each graph. Captures in this process use it, and do not take
    /// it again.
    pub executable_bytes: u64,
}

impl Needs {
    /// Of graphs for which so much was found.
    pub fn new(pool_bytes: u64, executable_bytes: u64) -> Self {
        Self { pool_bytes, executable_bytes }
    }

    /// All of it together.
    pub fn total_bytes(&self) -> u64 {
        self.pool_bytes + self.executable_bytes
    }

    /// What each part may come to at most, where captures ask for the same memory: the pool has a piece of 2 MiB more, for
    /// small blocks that a library asks for once; executables have what the driver takes at once
    /// ([`Executables::DRIVER_PIECE`]), or a twentieth where that is more.
    #[must_use]
    pub fn bound(&self) -> Self {
        const PIECE: u64 = 2 << 20;
        let more = match self.executable_bytes {
            0 => 0,
            bytes => Executables::DRIVER_PIECE.max(bytes / 20),
        };
        Self::new(self.pool_bytes + PIECE, self.executable_bytes + more)
    }
}

impl<D: HostApi> Estimate<D> {
    /// Of graphs that will be captured into one pool of an engine.
    pub fn new(engine: &Arc<Engine<D>>) -> Self {
        let pool = Pool::new(engine, PoolConfig::default());
        Self { pool, traces: Vec::new(), made: Vec::new(), executable_bytes: 0 }
    }

    /// The pool that the captures are to allocate from. A capture that is finished in place of being shown takes memory
    /// of its own, and [`Estimate::needs`] refuses then.
    pub fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    /// Captures what `body` submits to `stream`, and to the streams that it forks, and shows it. What `body` returns counts
    /// as kept as long as its graph lives: the outputs, for instance. They are dropped here, and the host keeps no other
    /// block of the capture either.
    ///
    /// The captures to come are to ask for memory in the same order. What a library allocates outside the pool, as cuBLAS
    /// its workspace for a stream, is not counted; the first run outside captures makes that.
    ///
    /// # Errors
    /// Those of `body`, [`Estimate::begin`] and [`Estimate::show`].
    pub fn capture<R, E: From<Error> + From<JournalError>>(
        &mut self,
        stream: impl AsStream,
        mode: CaptureMode,
        body: impl FnOnce(&Capture<D>) -> Result<R, E>,
    ) -> Result<(), E> {
        let capture = self.begin(stream, mode)?;
        let kept = body(&capture)?;
        self.show(capture)?;
        drop(kept);
        Ok(())
    }

    /// Begins a capture on a stream that is to be shown.
    ///
    /// # Errors
    /// Those of [`Capture::begin`]; [`Error::CannotPlan`] where the device has no virtual memory management.
    pub fn begin(&self, stream: impl AsStream, mode: CaptureMode) -> Result<Capture<D>, Error> {
        let capture = Capture::begin(&self.pool, stream, mode)?;
        self.pool.engine().plans().plan_capture(capture.id(), Some(Options::default()))?;
        Ok(capture)
    }

    /// Ends a capture that [`Estimate::begin`] began: notes what was asked for in it, and what the driver takes for its
    /// executable.
    ///
    /// # Errors
    /// The driver's, for the graph or its executable. [`JournalError`] also for a capture of more than a trace can name.
    pub fn show(&mut self, capture: Capture<D>) -> Result<(), JournalError> {
        let (engine, stream) = (capture.engine(), capture.stream());
        let driver = engine.driver();
        let trace = regraph_trace::from_capture(&engine, capture.id(), stream)?;
        capture.discard(|graph| {
            let free = || driver.memory_info().map_or(0, |info| info.free);
            let before = free();
            self.made.push(driver.instantiate(graph)?);
            driver.upload(self.made[self.made.len() - 1], stream)?;
            self.executable_bytes += before.saturating_sub(free());
            Ok(())
        })?;
        self.traces.push(trace);
        Ok(())
    }

    /// What the graphs of the captures that were shown will need, made in the same order, with what captures have
    /// learned by now. Takes as long as a simulated device needs for all of them.
    ///
    /// # Errors
    /// [`PoolRefusal::NotShown`] where a capture into the pool is under way, or was made a graph; the engine's: that of a
    /// capture which could not be served on a device like this one, for instance.
    pub fn needs(&self) -> Result<Needs, Error> {
        let engine = self.pool.engine();
        let (host, id) = (engine.host(), self.pool.id());
        if host.is_recording_into(id) || self.pool.executables().made > 0 {
            let pool = Box::new(id.into());
            return Err(Error::Pool { call: "needs", pool, why: PoolRefusal::NotShown });
        }
        let probe = Probe::of(engine, engine.host().settings()?)?;
        let pool_bytes = probe.held_by(&self.traces)?;
        Ok(Needs::new(pool_bytes, self.executable_bytes))
    }
}

impl<D: HostApi> Drop for Estimate<D> {
    fn drop(&mut self) {
        for executable in self.made.drain(..) {
            let _ = self.pool.engine().driver().destroy_executable(executable);
        }
    }
}
