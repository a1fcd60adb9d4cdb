//! A stream gets the memory of a block that another stream has used, as soon as an edge of the graph makes it wait. On
//! the simulated driver; the README has a program for a GPU.

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

    let (graph, _y) = engine.capture(a, &pool, CaptureMode::ThreadLocal, |capture| {
        driver.wait(b, a)?; // `b` is in the capture from now on
        let x = capture.allocate(4 << 20, a)?;
        kernel(a)?; // writes it
        let address = x.address();
        drop(x); // free for work that comes after its last use

        let early = capture.allocate(4 << 20, b)?; // `b` may run beside that kernel: other memory
        kernel(b)?;
        driver.wait(b, a)?; // the edge
        let y = capture.allocate(4 << 20, b)?; // `b` comes after it now
        kernel(b)?;
        let [before, behind] = [&early, &y].map(|block| block.address() == address);
        println!("b has x's memory before the edge: {before}, behind it: {behind}");
        drop(early);
        driver.wait(a, b)?;
        Ok::<_, Error>(y)
    })?;
    println!("{}", graph.report()); // the checker agrees
    graph.launch(a)?;
    let least = graph.minimum_bytes().unwrap_or(0) >> 20;
    println!("{} MiB for three blocks of 4 MiB, of {least} at least", pool.reserved()? >> 20);
    Ok(())
}
