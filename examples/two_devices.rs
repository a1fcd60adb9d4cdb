//! One graph over two devices, with memory of both, found by device and by pointer. Runs without a GPU.

use std::sync::Arc;

use regraph::devices::Devices;
use regraph::driver::{CaptureMode, HostApi};
use regraph::{Config, Engine, Error, Pool, PoolConfig};
use regraph_sim::{Launch, SimConfig, SimDriver};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Error> {
    // On GPUs: CudaDriver::new(0)?.with_peers(&[1])?, and the second likewise.
    let first = SimDriver::new(SimConfig::default());
    let second = first.add_device(SimConfig::default());
    let mut devices = Devices::new();
    for driver in [first.with_peers(&[1]), second.with_peers(&[0])] {
        devices.add(Arc::new(Engine::new(driver, Config::default())))?;
    }
    let engines = [devices.of_device(0)?, devices.of_device(1)?];
    let pools = engines.map(|engine| Pool::new(engine, PoolConfig::default()));
    let [here, there] =
        [engines[0].driver().create_stream()?, engines[1].driver().create_stream()?];

    let (graph, output) = engines[0].capture(here, &pools[0], CaptureMode::Relaxed, |capture| {
        let input = capture.allocate(4 * MIB, here)?;
        engines[0].driver().launch_kernel(here, Launch::default())?; // writes it
        engines[1].driver().wait(there, here)?; // now the second stream captures too
        capture.join(&pools[1], there)?;
        input.record_stream(there)?;
        let output = pools[1].allocate(4 * MIB, there)?;
        engines[1].driver().launch_kernel(there, Launch::default())?; // reads across devices
        engines[0].driver().wait(here, there)?;
        Ok::<_, Error>(output)
    })?;
    // Both engines have judged the graph; it has a lease on memory of both.
    graph.launch(here)?;
    println!("{} nodes, verified: {}", graph.report().nodes, graph.report().verified);
    for (device, engine) in devices.iter() {
        let reserved = engine.statistics()?.all.reserved_bytes.current;
        println!("device {device}: {} MiB", reserved / MIB);
    }
    println!("the output is device {}'s", devices.of_pointer(output.address())?.device());
    Ok(())
}
