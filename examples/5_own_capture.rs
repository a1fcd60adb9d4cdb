//! A host that begins, ends, instantiates and launches by itself: regraph takes part in the capture, judges it while
//! the host instantiates the graph, and orders the launches. A capture that is refused for a programmatic launch is
//! made again. Runs without a GPU.

use std::sync::Arc;

use regraph::driver::{CaptureMode, ExecutableHandle, HostApi, StreamHandle};
use regraph::engine::Attempt;
use regraph::graphs::{Capture, Lease};
use regraph::{Config, Engine, Error, Pool, PoolConfig};
use regraph_sim::{Launch, SimConfig, SimDriver};

type Captured = (ExecutableHandle, Lease<SimDriver>);

/// One attempt at the work. After an error nothing of the capture is left in regraph, and its graph is never launched.
fn capture(
    pool: &Pool<SimDriver>,
    stream: StreamHandle,
    attempt: Attempt,
) -> Result<Captured, Error> {
    let (engine, driver) = (pool.engine(), pool.engine().driver());
    driver.begin_capture(stream, CaptureMode::ThreadLocal)?; // your own cuStreamBeginCapture
    let capture = Capture::adopt(pool, stream)?;
    engine.set_attempt(capture.id(), attempt)?;
    let early = || Launch { programmatic: true, ..Launch::default() };
    for _ in 0..2 {
        let block = capture.allocate(4 << 20, stream)?;
        driver.launch_kernel(stream, early())?; // may start before the kernel before it has ended
        drop(block);
    }
    let graph = driver.end_capture(stream)?;
    let judging = capture.close(graph)?; // the checker judges from here on
    let executable = driver.instantiate(graph)?;
    let verdict = judging.verdict();
    driver.destroy_graph(graph)?;
    match verdict {
        Ok((lease, report)) => {
            println!("{} nodes, {} MiB reserved", report.nodes, report.reserved >> 20);
            Ok((executable, lease))
        }
        Err(error) => {
            driver.destroy_executable(executable)?;
            Err(error)
        }
    }
}

fn main() -> Result<(), Error> {
    let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    let pool = Pool::new(&engine, PoolConfig::default());
    let driver = engine.driver();
    let stream = driver.create_stream()?;
    let mut attempt = Attempt::First;
    let (executable, lease) = loop {
        match capture(&pool, stream, attempt) {
            Ok(captured) => break captured,
            // The next attempt after Error::CaptureAgain; any other error is final.
            Err(error) => {
                println!("{error}");
                attempt = attempt.after(error)?;
            }
        }
    };
    for _ in 0..3 {
        // The launch comes after every earlier launch of the pool's graphs, on any stream.
        lease.launch::<Error>(stream, |stream| Ok(driver.replay(executable, stream)?))?;
    }
    pool.synchronize()?;
    drop(lease); // the graph's memory belongs to the pool again
    Ok(driver.destroy_executable(executable)?)
}
