//! Work outside captures borrows what a graph does not keep between its launches, and the graph is launched again when
//! the blocks are gone. Runs without a GPU.

use std::sync::Arc;

use regraph::driver::{CaptureMode, HostApi};
use regraph::{Config, Engine, Error, Pool, PoolConfig, PoolRefusal};
use regraph_sim::{Launch, SimConfig, SimDriver};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Error> {
    let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    let driver = engine.driver();
    let pool = Pool::new(&engine, PoolConfig::default());
    let stream = driver.create_stream()?;
    let (graph, _output) = engine.capture(stream, &pool, CaptureMode::ThreadLocal, |capture| {
        let temporary = capture.allocate(512 * MIB, stream)?;
        driver.launch_kernel(stream, Launch::default())?; // writes it
        let output = capture.allocate(MIB, stream)?;
        driver.launch_kernel(stream, Launch::default())?; // reads it
        drop(temporary);
        Ok::<_, Error>(output)
    })?;
    graph.launch(stream)?;

    // What the stream is given from now on comes after the launch.
    let lending = pool.lend(stream)?;
    let sample = lending.allocate(512 * MIB)?;
    driver.launch_kernel(stream, Launch::default())?; // uses it
    println!("{} MiB are lent, {} reserved", pool.statistics()?.lent / MIB, pool.reserved()? / MIB);

    match graph.launch(stream) {
        // Nothing was launched: the graph would overwrite the sample.
        Err(error @ Error::Pool { why: PoolRefusal::BlocksLent { .. }, .. }) => println!("{error}"),
        other => println!("unexpected: {other:?}"),
    }
    drop(sample);
    graph.launch(stream)?; // after all work that has used the sample
    println!("launched again, {} MiB are lent", pool.statistics()?.lent);
    Ok(())
}
