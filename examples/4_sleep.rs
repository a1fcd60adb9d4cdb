//! A model's weights leave the device and come back with their contents; what to do where the host or the device has
//! too little memory for that. Runs without a GPU.

use std::sync::Arc;

use regraph::driver::HostApi;
use regraph::regions::{Backup, Regions, Tags};
use regraph::{Config, Engine, Error, Pool, PoolConfig};
use regraph_sim::{SimConfig, SimDriver};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Error> {
    let device = SimConfig { total_bytes: 1024 * MIB, ..SimConfig::default() };
    let engine = Arc::new(Engine::new(SimDriver::new(device), Config::default()));
    let (driver, regions) = (engine.driver(), Regions::new(&engine));
    let stream = driver.create_stream()?;
    let pool = |tag: &str| Pool::new(&engine, PoolConfig::default().tag(tag));
    let (weights, cache) = (pool("weights"), pool("cache"));
    let (_layers, _keys) =
        (weights.allocate(256 * MIB, stream)?, cache.allocate(512 * MIB, stream)?);

    // The host has room for the weights, and not for the cache as well.
    driver.set_host_bytes(300 * MIB);
    // Done at a quiet time, since locking pages takes longer than copying into them.
    println!("{} MiB are locked", regions.reserve_host(256 * MIB)? / MIB);
    match regions.sleep(Tags::All) {
        // Nothing sleeps, and pages that the call had locked were given back.
        Err(error @ Error::Backup { .. }) => println!("{error}"),
        other => println!("unexpected: {other:?}"),
    }
    // Keys and values can be computed again.
    regions.set_backup("cache", Backup::None);
    println!("{} MiB went", regions.sleep(Tags::All)? / MIB);

    // Another model has the device meanwhile.
    let other = Pool::new(&engine, PoolConfig::default());
    let block = other.allocate(900 * MIB, stream)?;
    match regions.wake(&["weights"]) {
        // The weights stay asleep, and the host keeps their contents.
        Err(error @ Error::OutOfMemory(_)) => println!("{error}"),
        other => println!("unexpected: {other:?}"),
    }
    drop(block);
    println!("{} MiB of weights are back", regions.wake(&["weights"])? / MIB);
    println!("{} MiB of cache, with undefined contents", regions.wake(Tags::All)? / MIB);
    println!("{} MiB of the host are free again", regions.free_host()? / MIB);
    Ok(())
}
