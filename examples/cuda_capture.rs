//! Two streams of one capture share memory on the machine's first GPU, and the graph runs.
//!
//! Each kernel writes a tag into its block or checks one: a block that was handed out too early
//! would show as a wrong tag.

use std::error::Error;

use regraph::driver::{CaptureMode, DriverError, HostApi, StreamHandle};
use regraph::engine::{Block, Config, Engine, PoolConfig};
use regraph_tagged::CudaProgram;
use regraph_tagged::{Program, Tagged, Work};

const BYTES: u64 = 4 << 20;
const LAUNCHES: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let driver = match CudaProgram::new(0) {
        Ok(driver) => driver,
        Err(error) => {
            println!("There is no GPU to run this on: {error}.");
            return Ok(());
        }
    };
    println!("{}", driver.device_name()?);
    let engine = Engine::new(driver, Config::default());
    let pool = engine.create_pool(PoolConfig::default());
    let driver = engine.driver();
    let (a, b) = (driver.create_stream()?, driver.create_stream()?);

    driver.begin_capture(a, CaptureMode::ThreadLocal)?;
    let capture = engine.begin_capture(pool, a)?;
    let first = engine.allocate(pool, BYTES, a)?;
    write(driver, a, first, 1)?;
    driver.wait(b, a)?;
    check(driver, b, first, 1)?;
    engine.record_stream(first.id, b)?;
    engine.free(first.id)?;

    let second = engine.allocate(pool, BYTES, a)?;
    write(driver, a, second, 2)?;
    driver.wait(a, b)?;
    let third = engine.allocate(pool, BYTES, a)?;
    write(driver, a, third, 3)?;
    check(driver, a, second, 2)?;
    let graph = driver.end_capture(a)?;
    let report = engine.end_capture(capture, graph)?;
    println!(
        "first {:#x}, second {:#x}, third {:#x}",
        first.address, second.address, third.address
    );
    println!("{} nodes, {} blocks, verified: {}", report.nodes, report.blocks, report.verified);

    let executable = driver.instantiate(graph)?;
    for _ in 0..LAUNCHES {
        driver.replay(executable, a)?;
    }
    driver.synchronize()?;
    println!("{LAUNCHES} launches, {} wrong tags", driver.take_wrong_tags()?);
    driver.destroy_executable(executable)?;
    driver.destroy_graph(graph)?;
    engine.release_graph(report.graph)?;
    engine.free(second.id)?;
    engine.free(third.id)?;
    Ok(())
}

/// Launches a kernel that writes a tag all over a block.
fn write(
    driver: &CudaProgram,
    stream: StreamHandle,
    block: Block,
    tag: u64,
) -> Result<(), DriverError> {
    let outputs = [Tagged { address: block.address, bytes: block.bytes, tag }];
    driver.launch(stream, Work { outputs: &outputs, delay: 10_000, ..Work::default() }, false)
}

/// Launches a kernel that counts wrong tags in a block, before it waits and after.
fn check(
    driver: &CudaProgram,
    stream: StreamHandle,
    block: Block,
    tag: u64,
) -> Result<(), DriverError> {
    let inputs = [Tagged { address: block.address, bytes: block.bytes, tag }];
    driver.launch(stream, Work { inputs: &inputs, delay: 10_000, ..Work::default() }, false)
}
