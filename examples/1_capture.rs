//! Two streams of one capture share memory, and the graph runs. On the simulated driver; the README has a program for a
//! GPU.

use std::sync::Arc;

use regraph::driver::{CaptureMode, HostApi};
use regraph::{Config, Engine, Error, Pool, PoolConfig};
use regraph_sim::{Launch, SimConfig, SimDriver};

fn main() -> Result<(), Error> {
    let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    let pool = Pool::new(&engine, PoolConfig::default());
    let driver = engine.driver();
    let (a, b) = (driver.create_stream()?, driver.create_stream()?);
    let kernel = |stream| driver.launch_kernel(stream, Launch::default());

    let (graph, _third) = engine.capture(a, &pool, CaptureMode::ThreadLocal, |capture| {
        let first = capture.allocate(4 << 20, a)?;
        kernel(a)?; // writes it
        driver.wait(b, a)?;
        kernel(b)?; // reads it
        first.record_stream(b)?;
        let address = first.address();
        drop(first);

        let second = capture.allocate(4 << 20, a)?; // `b` may still be reading: other memory
        kernel(a)?;
        driver.wait(a, b)?;
        let third = capture.allocate(4 << 20, a)?; // `b` has read it: the same memory
        kernel(a)?;
        println!("first {address:#x}, {:#x}, third {:#x}", second.address(), third.address());
        Ok::<_, Error>(third)
    })?;
    println!("{}", graph.report()); // the checker agrees
    graph.launch(a)?;
    let least = graph.minimum_bytes().unwrap_or(0) >> 20;
    println!("{} MiB for three blocks of 4 MiB, of {least} at least", pool.reserved()? >> 20);
    Ok(())
}
