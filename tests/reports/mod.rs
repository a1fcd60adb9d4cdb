//! Snapshots, figures, names and errors.

use std::sync::Arc;

use crate::common::MIB;
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Config, Engine};
use regraph::graphs::{Capture, Error, Graph, Pool};
use regraph_sim::{Launch, SimConfig, SimDriver};

mod figures;
mod names;
mod picture;
#[cfg(feature = "cuda")]
mod profiler;
mod remedies;
mod snapshot;
mod watched;

type Device = Arc<SimDriver>;

fn engine(mebibytes: u64, config: Config) -> (Arc<Engine<Device>>, StreamHandle) {
    let device = SimConfig { total_bytes: mebibytes * MIB, ..SimConfig::default() };
    let driver = Arc::new(SimDriver::new(device));
    let engine = Arc::new(Engine::new(driver.clone(), config));
    (engine, driver.create_stream().unwrap())
}

/// A graph with a block of 4 MiB that its capture frees.
fn graph(engine: &Arc<Engine<Device>>, pool: &Pool<Device>, stream: StreamHandle) -> Graph<Device> {
    let body = |capture: &Capture<Device>| {
        let block = capture.allocate(4 * MIB, stream)?;
        engine.driver().launch_kernel(stream, Launch::default())?;
        drop(block);
        Ok::<_, Error>(())
    };
    engine.capture(stream, pool, CaptureMode::Relaxed, body).unwrap().0
}
