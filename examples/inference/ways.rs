//! The step as graphs, with this crate's memory, with cudarc's own, and in a probe.

use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraphInstantiate_flags};
use cudarc::driver::CudaStream;
use regraph::driver::cuda::CudaDriver;
use regraph::driver::sim::SimDriver;
use regraph::driver::CaptureMode;
use regraph::engine::Config;
use regraph::graphs::{Capture, Pool};
use regraph::probe::Probe;

use super::decoder::step;
use super::device::{Device, Launch};
use super::memory::{OnDevice, Probed};
use super::shape::{On, Shape};
use super::Result;

/// The graphs of one kind of memory, by batch size. All in bytes.
pub struct Captured {
    pub name: &'static str,
    pub graphs: BTreeMap<usize, Launch<'static>>,
    /// Held for the largest alone, and for all.
    pub held: (u64, u64),
    /// By how much the device's free memory shrank in all, executables included.
    pub taken: u64,
}

/// Captures every size, the largest first, and launches each once.
pub fn capture_all(
    device: &Device,
    name: &'static str,
    capture: impl Fn(usize) -> Result<Launch<'static>>,
    held: impl Fn() -> Result<u64>,
) -> Result<Captured> {
    let free = device.free_memory()?;
    let mut captured = Captured { name, graphs: BTreeMap::new(), held: (0, 0), taken: 0 };
    for &batch in &device.shape.sizes {
        let launched = capture(batch).and_then(|launch| {
            device.reset(batch, 0)?;
            launch()?;
            device.context.synchronize()?;
            Ok(launch)
        });
        let launch = launched.map_err(|error| format!("{name}, batch {batch}: {error}"))?;
        captured.graphs.insert(batch, launch);
        captured.held.1 = held()?;
        if batch == device.shape.largest() {
            captured.held.0 = captured.held.1;
        }
    }
    captured.taken = free.saturating_sub(device.free_memory()?);
    Ok(captured)
}

/// A step as a graph that owns its memory, from a pool that all of them share.
pub fn with_regraph(
    device: &Device,
    pool: &Pool<CudaDriver>,
    batch: usize,
    reuse: bool,
) -> Result<Launch<'static>> {
    let stream = device.stream(On::Main).clone();
    let body = |capture: &Capture<CudaDriver>| {
        // SAFETY: any bits are an `f32`, and every kernel's output is written before it is read.
        let alloc = |stream: &Arc<CudaStream>, len| unsafe { capture.alloc::<f32>(stream, len) };
        step(&OnDevice { device, alloc }, &device.shape, batch, reuse)
    };
    let mode = CaptureMode::ThreadLocal;
    let (graph, ()) = regraph::cudarc::capture(pool.engine(), &stream, pool, mode, body)?;
    Ok(Box::new(move || Ok(graph.launch(&stream)?)))
}

/// A step with cudarc's own slices.
pub fn with_cudarc(device: &Device, batch: usize, reuse: bool) -> Result<()> {
    // SAFETY: as above.
    let alloc = |stream: &Arc<CudaStream>, len| unsafe { stream.alloc::<f32>(len) };
    step(&OnDevice { device, alloc }, &device.shape, batch, reuse)
}

/// That as a graph, as cudarc captures it. The driver makes nodes of what is allocated and freed.
pub fn with_nodes(device: &Device, batch: usize) -> Result<Launch<'static>> {
    let stream = device.stream(On::Main);
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let captured = with_cudarc(device, batch, true);
    // What the driver refused to free.
    let freed = device.context.check_err();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    captured?;
    freed?;
    let graph = graph?.ok_or("the capture gave no graph")?;
    Ok(Box::new(move || Ok(graph.launch()?)))
}

/// What the graphs would hold: for the largest alone, and for all.
pub fn probe(shape: &Shape, device: Option<&CudaDriver>, reuse: bool) -> Result<(u64, u64)> {
    let config = Config::from_environment()?;
    let probe = match device {
        Some(device) => Probe::like(device, config)?,
        None => Probe::new(config),
    };
    let streams = [probe.stream()?, probe.stream()?];
    let (mut graphs, mut held) = (Vec::new(), Vec::new());
    for &batch in &shape.sizes {
        let body =
            |capture: &Capture<SimDriver>| step(&Probed { capture, streams }, shape, batch, reuse);
        let mode = CaptureMode::ThreadLocal;
        graphs.push(probe.engine().capture(&streams[0], probe.pool(), mode, body)?);
        held.push(probe.reserved()?);
    }
    Ok((held[0], held[held.len() - 1]))
}
