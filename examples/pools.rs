//! What pools that come and go cost: the time of a cycle, of an allocation of a new size in another
//! pool and of the statistics, as the number of pools so far grows. Each stays flat.
//!
//! `cargo run --release --example pools [pools] [streams]`

use std::error::Error;
use std::time::Instant;

use regraph::driver::HostApi;
use regraph::engine::{Config, Engine, PoolConfig};
use regraph_sim::{SimConfig, SimDriver};

/// Lines of the table.
const STEPS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (pools, streams) = (number(10_000)?, number(1)?);
    let engine = Engine::new(SimDriver::new(SimConfig::default()), Config::default());
    let other = engine.create_pool(PoolConfig::default());
    let streams = (0..streams.max(1)).map(|_| engine.driver().create_stream());
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    println!("{:>10} {:>12} {:>14} {:>16}", "pools", "cycle us", "new size ns", "statistics us");
    let step = (pools / STEPS).max(1);
    let mut begun = Instant::now();
    for turn in 1..=pools {
        let pool = engine.create_pool(PoolConfig::default());
        let block = engine.allocate(pool, 1024, streams[turn % streams.len()])?;
        engine.free(block.id)?;
        engine.driver().synchronize()?;
        engine.empty_cache()?;
        engine.destroy_pool(pool)?;
        if turn % step == 0 {
            let cycle = begun.elapsed() / step as u32;
            let (sizes, looks) = (300, 20);
            begun = Instant::now();
            for size in 0..sizes {
                let stream = streams[size as usize % streams.len()];
                let block = engine.allocate(other, 4096 + 512 * u64::from(size), stream)?;
                engine.free(block.id)?;
            }
            let new_size = begun.elapsed() / sizes;
            begun = Instant::now();
            for _ in 0..looks {
                engine.statistics()?;
            }
            let statistics = begun.elapsed() / looks;
            let (cycle, new_size) = (cycle.as_nanos() as f64 / 1e3, new_size.as_nanos());
            let statistics = statistics.as_nanos() as f64 / 1e3;
            println!("{turn:>10} {cycle:>12.2} {new_size:>14} {statistics:>16.2}");
            begun = Instant::now();
        }
    }
    Ok(())
}
