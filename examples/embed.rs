//! Two streams of one capture share memory. Runs without a GPU.

use std::error::Error;

use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::new(SimDriver::new(SimConfig::default()), Config::default());
    let pool = engine.create_pool(PoolConfig::default());
    let driver = engine.driver();
    let (a, b) = (driver.create_stream()?, driver.create_stream()?);

    driver.begin_capture(a, CaptureMode::ThreadLocal)?;
    let capture = engine.begin_capture(pool, a)?;
    let first = engine.allocate(pool, 4 << 20, a)?;
    driver.launch(a, Work::default(), false)?; // writes it
    driver.wait(b, a)?;
    driver.launch(b, Work::default(), false)?; // reads it
    engine.record_stream(first.id, b)?;
    engine.free(first.id)?;

    let second = engine.allocate(pool, 4 << 20, a)?; // `b` may still be reading: other memory
    driver.launch(a, Work::default(), false)?;
    driver.wait(a, b)?;
    let third = engine.allocate(pool, 4 << 20, a)?; // `b` has read it: the same memory
    driver.launch(a, Work::default(), false)?;
    let graph = driver.end_capture(a)?;
    let report = engine.end_capture(capture, graph)?; // the checker agrees

    println!(
        "first {:#x}, second {:#x}, third {:#x}",
        first.address, second.address, third.address
    );
    println!("{} nodes, {} blocks, verified: {}", report.nodes, report.blocks, report.verified);
    Ok(())
}
