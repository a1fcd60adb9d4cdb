//! The same program captured with memory as its blocks ask for it, and with memory at the capture's
//! end: what the pool holds, the least that any placement without new edges needs, and what it costs.
//!
//! ```text
//! cargo run --example exact_plan
//! ```
//!
//! Kernels on two streams read some blocks that are there and write a new one, of 2 to 24 MiB; blocks go
//! in any order, so that what is free is rarely where the next one fits.
//!
//! On the machine's first GPU, or on a simulated device if there is none.

use std::error::Error as AnyError;
use std::sync::Arc;

use fastrand::Rng;
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Error, Graph, Memory, Pool};
use regraph::plan::Options;
use regraph_sim::{SimConfig, SimDriver};
#[cfg(feature = "cuda")]
use regraph_tagged::CudaProgram;
use regraph_tagged::{Program, Tagged, Work};

const MIB: u64 = 1 << 20;
const STEPS: u64 = 120;
/// How many blocks are held at once.
const HELD: usize = 6;

fn main() -> Result<(), Box<dyn AnyError>> {
    #[cfg(feature = "cuda")]
    match CudaProgram::new(0) {
        Ok(driver) => {
            println!("{}", driver.device_name()?);
            return Ok(story(driver)?);
        }
        Err(error) => println!("There is no GPU to run this on: {error}."),
    }
    println!("Simulated.");
    Ok(story(SimDriver::new(SimConfig::default()))?)
}

fn story<P: Program>(driver: P) -> Result<(), Error> {
    let engine = Arc::new(Engine::new(Arc::new(driver), Config::default()));
    println!("memory              reserved  minimum  mappings");
    for (name, config) in [
        ("as asked for", PoolConfig::default()),
        ("at the end", PoolConfig::default().plan(Options::default())),
        // Fewer mappings, for more memory.
        (
            "at most 200 of them",
            PoolConfig::default().plan(Options::default().max_mappings(Some(200))),
        ),
    ] {
        let pool = Pool::new(&engine, config);
        let graph = capture(&engine, &pool)?;
        let mib = |bytes: u64| bytes / MIB;
        let mappings = graph.report().plan.map_or("-".to_owned(), |plan| plan.mappings.to_string());
        println!(
            "{name:19} {:>8} {:>8} {mappings:>9}",
            mib(pool.reserved()?),
            mib(graph.minimum_bytes().unwrap_or_default())
        );
    }
    println!("MiB. Every kernel found what was written for it.");
    Ok(())
}

/// Captures the program and runs it. Nothing may touch its blocks before the graph is there.
fn capture<P: Program>(
    engine: &Arc<Engine<Arc<P>>>,
    pool: &Pool<Arc<P>>,
) -> Result<Graph<Arc<P>>, Error> {
    let driver = engine.driver();
    let (a, b) = (driver.create_stream()?, driver.create_stream()?);
    let (graph, ()) = engine.capture(a, pool, CaptureMode::ThreadLocal, |capture| {
        driver.launch(a, Work::default(), false)?;
        driver.wait(b, a)?;
        let mut random = Rng::with_seed(1);
        // Blocks, what they hold, and who wrote it.
        let mut held: Vec<(Memory<_>, Tagged, StreamHandle)> = Vec::new();
        for tag in 1..=STEPS {
            let (stream, other) = if random.bool() { (a, b) } else { (b, a) };
            if held.len() == HELD {
                held.swap_remove(random.usize(..HELD));
            }
            let mut inputs = Vec::new();
            for (block, written, writer) in held.iter().filter(|_| random.u8(..3) == 0) {
                if *writer == other {
                    driver.wait(stream, other)?;
                    block.record_stream(stream)?;
                }
                inputs.push(*written);
            }
            let block = capture.allocate(random.u64(1..=12) * 2 * MIB, stream)?;
            let output = Tagged { address: block.address(), bytes: block.bytes(), tag };
            let work = Work { inputs: &inputs, outputs: &[output], ..Work::default() };
            driver.launch(stream, work, false)?;
            held.push((block, output, stream));
        }
        driver.wait(a, b)?;
        Ok::<_, Error>(())
    })?;
    for _ in 0..3 {
        graph.launch(a)?;
    }
    driver.synchronize()?;
    assert_eq!(driver.take_wrong_tags()?, 0, "a kernel found what another had written");
    Ok(graph)
}
