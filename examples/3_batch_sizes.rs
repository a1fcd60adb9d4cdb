//! One graph for each batch size, all in the memory of the largest, with one executable for all of them. Graphs of one
//! pool never run at once: the pool orders their launches. Runs without a GPU.

use std::sync::Arc;

use regraph::driver::{CaptureMode, Functions, HostApi};
use regraph::graphs::ExecutableOptions;
use regraph::{Config, Engine, Error, Pool, PoolConfig};
use regraph_sim::{Launch, SimConfig, SimDriver};

const SIZES: [u64; 8] = [128, 64, 32, 16, 8, 4, 2, 1];
const LAYERS: usize = 4;
/// The size of one row of an activation, in bytes.
const ROW: u64 = 256 << 10;

fn main() -> Result<(), Error> {
    let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    let pool = Pool::new(&engine, PoolConfig::default());
    pool.keep_executables(ExecutableOptions::default().sharing(Functions::Same))?;
    let driver = engine.driver();
    let (main, side) = (driver.create_stream()?, driver.create_stream()?);
    let kernel = |stream| driver.launch_kernel(stream, Launch::default());

    let mut graphs = Vec::new();
    for rows in SIZES {
        let (graph, ()) = engine.capture(main, &pool, CaptureMode::ThreadLocal, |capture| {
            let mut x = capture.allocate(rows * ROW, main)?;
            kernel(main)?;
            for _ in 0..LAYERS {
                driver.wait(side, main)?;
                x.record_stream(side)?;
                let gate = capture.allocate(4 * rows * ROW, side)?;
                kernel(side)?; // reads `x`, writes the gate
                let up = capture.allocate(4 * rows * ROW, main)?;
                kernel(main)?;
                driver.wait(main, side)?;
                gate.record_stream(main)?;
                let next = capture.allocate(rows * ROW, main)?;
                kernel(main)?; // reads all three
                drop((gate, up));
                x = next;
            }
            kernel(main)?; // copies `x` to the host's own buffer
            Ok::<_, Error>(())
        })?;
        println!("{rows:4} rows: the pool holds {} MiB", pool.reserved()? >> 20);
        graphs.push(graph);
    }
    for graph in graphs.iter().rev() {
        graph.launch(main)?;
    }
    let figures = pool.executables();
    println!("{} graphs, {} executable", graphs.len(), figures.executables);
    Ok(())
}
