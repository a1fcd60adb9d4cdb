//! Several devices in one process: an engine for each, found by device, stream or pointer.
//!
//! An engine hands out memory of one device. Its blocks may be used on streams of any device: record such uses with
//! [`Engine::record_stream`], as for any other stream. Kernels reach the memory of another device only where its driver
//! was told to give access (`CudaDriver::with_peers`).
//!
//! ```rust
//! use std::sync::Arc;
//!
//! use regraph::devices::Devices;
//! use regraph_sim::{SimConfig, SimDriver}; // or driver::cuda::CudaDriver::new(1)?
//! use regraph::driver::{Driver, HostApi};
//! use regraph::engine::{Config, Engine, PoolConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let first = SimDriver::new(SimConfig::default());
//! let second = first.add_device(SimConfig::default());
//! let mut devices = Devices::new();
//! for driver in [first.with_peers(&[1]), second.with_peers(&[0])] {
//!     devices.add(Arc::new(Engine::new(driver, Config::default())))?;
//! }
//! let stream = devices.of_device(1)?.driver().create_stream()?;
//! let engine = devices.of_stream(stream)?;
//! let block = engine.allocate(engine.create_pool(PoolConfig::default()), 1 << 20, stream)?;
//! assert_eq!(devices.of_pointer(block.address)?.device(), 1);
//! # engine.free(block.id)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Captures over several devices
//! A capture whose streams belong to several devices is one graph, and each engine judges its own blocks in the whole
//! graph. The host tells each engine of the capture:
//!
//! * [`Engine::begin_capture`] on each engine whose blocks the capture uses, with any stream of the
//!   capture: also where the capture has no stream of that engine's device;
//! * [`Devices::end_capture`] ends it in all of them. The graph runs only if every engine accepts.
//!
//! [`graphs`](crate::graphs) does both by itself: [`Capture::join`](crate::graphs::Capture::join) lets
//! a capture use a pool of another device too, and the graph has its lease on the memory of all.
//!
//! # Streams of other devices
//! Engines know nothing of each other. A thread that is to capture on a stream which another thread has used names the
//! stream to all engines ([`Devices::mark_stream`]). Before a stream is destroyed [`Devices::retire_stream`] is called.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use crate::{Error, PoolRefusal, StreamRefusal, Unknown};

use crate::driver::{CaptureId, Driver, GraphHandle, StreamHandle};
use crate::engine::{CaptureReport, Engine};

/// The engines of a process, one for each device. A call fails with [`Error::Unknown`] for what no engine knows.
#[derive(Debug)]
pub struct Devices<D: Driver> {
    engines: BTreeMap<u32, Arc<Engine<D>>>,
}

impl<D: Driver> Default for Devices<D> {
    fn default() -> Self {
        Self { engines: BTreeMap::new() }
    }
}

impl<D: Driver> Devices<D> {
    /// A table without engines.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the engine of one more device.
    ///
    /// # Errors
    /// [`Error::DeviceTaken`].
    pub fn add(&mut self, engine: Arc<Engine<D>>) -> Result<(), Error> {
        let device = engine.device();
        if self.engines.contains_key(&device) {
            return Err(Error::DeviceTaken { device });
        }
        self.engines.insert(device, engine);
        Ok(())
    }

    /// Every device's ordinal and engine, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Engine<D>>)> {
        self.engines.iter().map(|(&device, engine)| (device, engine))
    }

    /// The engine of a device, by the device's ordinal.
    pub fn of_device(&self, device: u32) -> Result<&Arc<Engine<D>>, Error> {
        let unknown = || Error::Unknown { call: "of_device", what: Unknown::Device(device) };
        self.engines.get(&device).ok_or_else(unknown)
    }

    /// The engine of the device that a stream belongs to. The call disturbs no capture, also where the stream captures.
    ///
    /// # Errors
    /// [`StreamRefusal::PerDevice`]; [`Error::Unknown`]; [`Error::NoEngine`]; the driver's.
    pub fn of_stream(&self, stream: StreamHandle) -> Result<&Arc<Engine<D>>, Error> {
        refuse_default(stream, "of_stream")?;
        // All drivers of a process give the same answer.
        let any = self.engines.values().next().ok_or(Error::NoEngine)?;
        self.of_device(any.driver().device_of_stream(stream)?)
    }

    /// The engine that holds the memory at an address, in a block or not.
    pub fn of_pointer(&self, address: u64) -> Result<&Arc<Engine<D>>, Error> {
        let mut engines = self.engines.values();
        let unknown = || Error::Unknown { call: "of_pointer", what: Unknown::Address(address) };
        engines.find(|engine| engine.host().owns(address)).ok_or_else(unknown)
    }

    /// Ends a capture in every engine that takes part in it, as [`Engine::end_capture`] does, and returns each device's
    /// report. The graph may be launched only if this succeeds. When it is destroyed, [`Engine::release_graph`] is
    /// called on each of them.
    ///
    /// # Errors
    /// [`Error::OnDevice`], with the first refusal: the graph must not be launched, and every engine has rolled the
    /// capture back, engines that had accepted it too. [`Error::Unknown`].
    pub fn end_capture(
        &self,
        capture: CaptureId,
        graph: GraphHandle,
    ) -> Result<Vec<(u32, CaptureReport)>, Error> {
        let mut reports = Vec::new();
        for (device, engine) in self.iter() {
            match engine.end_capture(capture, graph) {
                Ok(report) => reports.push((device, report)),
                Err(Error::Unknown { what: Unknown::Capture(_), .. }) => {}
                Err(error) => {
                    self.take_back(capture, &reports);
                    return Err(Error::OnDevice { device, error: Box::new(error) });
                }
            }
        }
        if reports.is_empty() {
            return Err(Error::Unknown { call: "end_capture", what: Unknown::Capture(capture) });
        }
        Ok(reports)
    }

    /// Rolls back a capture whose graph will never run, in every engine that takes part in it.
    ///
    /// # Errors
    /// [`Error::OnDevice`], with the first engine's error; the other engines have rolled the capture back.
    /// [`Error::Unknown`].
    pub fn abandon_capture(&self, capture: CaptureId) -> Result<(), Error> {
        let mut known = false;
        self.each(|engine| match engine.abandon_capture(capture) {
            Err(Error::Unknown { what: Unknown::Capture(_), .. }) => Ok(()),
            done => done.inspect(|()| known = true),
        })?;
        let unknown = Error::Unknown { call: "abandon_capture", what: Unknown::Capture(capture) };
        known.then_some(()).ok_or(unknown)
    }

    /// Names a stream to every engine, for the calling thread, as [`Engine::mark_stream`] does.
    ///
    /// # Errors
    /// [`StreamRefusal::PerDevice`] for a default stream: mark it with the engine of its device. [`Error::OnDevice`],
    /// with the first engine's error; the other engines have been told.
    pub fn mark_stream(&self, stream: StreamHandle) -> Result<(), Error> {
        refuse_default(stream, "mark_stream")?;
        self.each(|engine| engine.mark_stream(stream))
    }

    /// Tells every engine that a stream is about to be destroyed, as [`Engine::retire_stream`] does, once all would agree.
    ///
    /// # Errors
    /// [`StreamRefusal::PerDevice`] for a default stream: retire it with the engine of its device. [`Error::OnDevice`],
    /// with the first engine's refusal: the stream lives on, and no engine has forgotten it. Where the driver records no
    /// event for an engine, others have forgotten the stream: it must get no more work, and the call be made again.
    pub fn retire_stream(&self, stream: StreamHandle) -> Result<(), Error> {
        refuse_default(stream, "retire_stream")?;
        self.each(|engine| engine.host().may_retire(stream))?;
        self.each(|engine| engine.retire_stream(stream))
    }

    /// Makes a call of every engine, and returns the first that fails.
    fn each(&self, mut call: impl FnMut(&Engine<D>) -> Result<(), Error>) -> Result<(), Error> {
        let mut result = Ok(());
        for (device, engine) in self.iter() {
            let on_device = |error| Error::OnDevice { device, error: Box::new(error) };
            result = result.and(call(engine).map_err(on_device));
        }
        result
    }

    /// After a refusal, the graph will never run: who accepted it gets its memory back, and who was not asked yet rolls
    /// back. What an engine refuses here stays with it: nothing is handed out for that.
    fn take_back(&self, capture: CaptureId, accepted: &[(u32, CaptureReport)]) {
        for (device, engine) in self.iter() {
            let report = accepted.iter().find(|(of, _)| *of == device);
            let _ = match report {
                Some((_, report)) => engine.release_graph(report.graph),
                None => engine.abandon_capture(capture),
            };
        }
    }
}

/// Refuses a stream whose handle says nothing of its device.
fn refuse_default(stream: StreamHandle, call: &'static str) -> Result<(), Error> {
    if stream.is_default() {
        return Err(Error::Stream { call, stream, why: StreamRefusal::PerDevice });
    }
    Ok(())
}
