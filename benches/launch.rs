//! What launching through a pool costs beside launching by hand, what it costs where the pool lends, and
//! whether reuse slows replays.
//!
//! The variants take turns, and each figure is the median of its turns, so that ratios hold on a noisy machine. On the
//! simulated driver, or with `REGRAPH_BENCH_CUDA=1` on the first GPU; times of replays mean something on a GPU alone.

use std::sync::Arc;
use std::time::Instant;

use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Error, Graph, Memory, Pool};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{CudaProgram, Program, Tagged, Work};

/// Turns of each variant.
const TURNS: usize = 21;

/// Launches in a turn.
const LAUNCHES: u32 = 400;

/// Kernels of the graph whose replays are timed, and the bytes that each reads and writes.
const KERNELS: usize = 200;
const BYTES: u64 = 2 << 20;

type Captured<P> = (Graph<Arc<P>>, Vec<Memory<Arc<P>>>);

/// A chain of kernels with a side stream at every other one; each reads the block before and writes
/// one of its own. With `keep` no block is given back in the capture, so that none is used again.
fn chain<P: Program>(
    pool: &Pool<Arc<P>>,
    [stream, side]: [StreamHandle; 2],
    kernels: usize,
    keep: bool,
) -> Result<Captured<P>, Error> {
    let engine = pool.engine();
    let driver = engine.driver();
    engine.capture(stream, pool, CaptureMode::Relaxed, |capture| {
        let mut kept = Vec::new();
        let mut last: Option<Memory<_>> = None;
        for kernel in 0..kernels {
            let forks = kernel % 2 == 1;
            let on = if forks { side } else { stream };
            if forks {
                driver.wait(side, stream)?;
            }
            let next = capture.allocate(BYTES, on)?;
            let tagged = |memory: &Memory<_>, tag: usize| Tagged {
                address: memory.address(),
                bytes: memory.bytes(),
                tag: tag as u64,
            };
            let inputs: Vec<_> = last.iter().map(|last| tagged(last, kernel - 1)).collect();
            let outputs = [tagged(&next, kernel)];
            let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
            driver.launch(on, work, false)?;
            if let Some(last) = last.replace(next) {
                last.record_stream(on)?;
                kept.extend(Some(last).filter(|_| keep));
            }
            if forks {
                driver.wait(stream, side)?;
            }
        }
        kept.extend(last);
        Ok(kept)
    })
}

fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}

/// Nanoseconds of a launch alone, each after `before`, whose time does not count: the median.
fn launches<P: Program>(
    driver: &P,
    before: impl Fn() -> Result<(), Error>,
    launch: impl Fn() -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut times = Vec::new();
    for _ in 0..LAUNCHES {
        for _ in 0..TURNS {
            before()?;
            let begin = Instant::now();
            launch()?;
            times.push(begin.elapsed().as_nanos() as f64);
        }
        driver.synchronize()?;
    }
    Ok(median(times))
}

/// Runs the variants in turn; nanoseconds a launch of each.
fn compare<P: Program>(
    driver: &P,
    (turns, launches): (usize, u32),
    variants: &[&dyn Fn() -> Result<(), Error>],
    whole: bool,
) -> Result<Vec<f64>, Error> {
    let mut times = vec![Vec::new(); variants.len()];
    for _ in 0..turns {
        for (launch, times) in variants.iter().zip(&mut times) {
            launch()?;
            driver.synchronize()?;
            let begin = Instant::now();
            for _ in 0..launches {
                launch()?;
            }
            let submitted = begin.elapsed();
            driver.synchronize()?;
            let elapsed = if whole { begin.elapsed() } else { submitted };
            times.push(elapsed.as_nanos() as f64 / f64::from(launches));
        }
    }
    Ok(times.into_iter().map(median).collect())
}

fn run<P: Program>(driver: Arc<P>, device: &str) -> Result<(), Error> {
    let config = || Config::default().report_leaks(false);
    let engine = Arc::new(Engine::new(driver.clone(), config()));
    let pool = || Pool::new(&engine, PoolConfig::default());
    let streams = [driver.create_stream()?, driver.create_stream()?];
    println!("{device}");

    let (tiny, _output) = chain(&pool(), streams, 1, false)?;
    let by_hand = || Ok(driver.replay(tiny.executable().expect("it has its own"), streams[0])?);
    let guarded = || tiny.launch(streams[0]);
    let times = compare(&*driver, (TURNS, LAUNCHES), &[&by_hand, &guarded], false)?;
    println!(
        "launch of one kernel: by hand {:.0} ns, through its pool {:.0} ns, guard {:.0} ns",
        times[0],
        times[1],
        times[1] - times[0]
    );

    let lender = pool();
    let (graph, _output) = chain(&lender, streams, 4, false)?;
    let before = |borrow: &dyn Fn() -> Result<(), Error>| {
        launches(&*driver, || borrow().map(drop), || graph.launch(streams[0]))
    };
    let plain = before(&|| Ok(()))?;
    let lending = [lender.lend(streams[0])?, lender.lend(streams[1])?];
    let borrowed = |stream: usize| lending[stream].allocate(BYTES).map(drop);
    let marked = || lender.lend(streams[1])?.allocate(BYTES).map(drop);
    let more = |borrow: &dyn Fn() -> Result<(), Error>| before(borrow).map(|time| time - plain);
    println!(
        "launch of a graph whose pool lends: {plain:.0} ns, more where its own stream has borrowed {:.0} ns, where \
         another has and is marked {:.0} ns, where another goes on to borrow {:.0} ns",
        more(&|| borrowed(0))?,
        more(&marked)?,
        more(&|| borrowed(1))?
    );

    let (shared, apart) = (pool(), pool());
    let (reused, _kept) = chain(&shared, streams, KERNELS, false)?;
    let (single, _all) = chain(&apart, streams, KERNELS, true)?;
    let variants: [&dyn Fn() -> Result<(), Error>; 2] =
        [&|| single.launch(streams[0]), &|| reused.launch(streams[0])];
    let times = compare(&*driver, (TURNS, 20), &variants, true)?;
    println!(
        "replay of {KERNELS} kernels of {} MiB: no reuse {:.1} us in {} MiB, reuse {:.1} us in {} \
         MiB, ratio {:.3}",
        BYTES >> 20,
        times[0] / 1e3,
        apart.reserved()? >> 20,
        times[1] / 1e3,
        shared.reserved()? >> 20,
        times[1] / times[0]
    );
    Ok(())
}

fn on_a_gpu() -> Result<(), Error> {
    let driver = Arc::new(CudaProgram::new(0)?);
    let name = driver.device_name()?;
    run(driver, &name)
}

fn main() -> Result<(), Error> {
    if std::env::var_os("REGRAPH_BENCH_CUDA").is_some() {
        on_a_gpu()
    } else {
        run(Arc::new(SimDriver::new(SimConfig::default())), "simulated")
    }
}
