//! Regions that sleep and wake: what their blocks held is there again, and graphs replay. Random ones are a step of the
//! world of graphs (`eager/random.rs`).

use std::sync::Arc;

use crate::bench::range;
use crate::device::{launch, Device};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Pool};
use regraph::plan::Options;
use regraph::regions::{Backup, Regions, Tags};
use regraph_tagged::Tagged;

const MIB: u64 = 1 << 20;

/// In a folder for files of a short life.
fn in_files() -> Backup {
    Backup::File(std::env::temp_dir().into())
}

fn thousand_sleeps_grow_nothing<P: Device>(driver: &Arc<P>) {
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let regions = Regions::new(&engine);
    let pools = ["weights", "graphs"].map(|tag| {
        let config = PoolConfig::default().tag(tag);
        Pool::new(&engine, config)
    });
    let streams: [StreamHandle; 2] = std::array::from_fn(|_| driver.create_stream().unwrap());
    let weights = pools[0].allocate(48 * MIB, streams[0]).unwrap();
    launch(&**driver, streams[0], (&[], &[range(&weights, 1)]), 1_000);
    let body = |capture: &Capture<Arc<P>>| {
        let mut last = range(&weights, 1);
        let mut blocks = Vec::new();
        for step in 0..5 {
            let stream = streams[step % 2];
            if step > 0 {
                driver.wait(stream, streams[1 - step % 2])?;
            }
            let block = capture.allocate(3 * MIB, stream)?;
            let next = range(&block, 2 + step as u64);
            launch(&**driver, stream, (&[last], &[next]), 1_000);
            last = next;
            blocks.push(block);
        }
        Ok::<_, Error>((blocks.pop(), last))
    };
    let captured = engine.capture(streams[0], &pools[1], CaptureMode::ThreadLocal, body);
    let (graph, (output, last)) = captured.unwrap();
    let mut held = Vec::new();
    for _ in 0..1_000 {
        graph.launch(streams[0]).unwrap();
        assert!(regions.sleep(Tags::All).unwrap() > 0);
        let free = driver.memory_info().unwrap().free;
        held.push((regions.host_bytes(), free));
        regions.wake(Tags::All).unwrap();
    }
    launch(&**driver, streams[0], (&[range(&weights, 1), last], &[]), 0);
    driver.synchronize().unwrap();
    assert_eq!(driver.take_wrong_tags().unwrap(), 0);
    let ((first, _), (last, _)) = (held[1], held[999]);
    assert_eq!(first, last, "host memory");
    // Other processes may use the device.
    let free: Vec<u64> = held.iter().map(|&(_, free)| free).collect();
    let (early, late) = (free[1..100].iter().max(), free[900..].iter().max());
    assert!(late.unwrap() + 32 * MIB >= *early.unwrap(), "device memory: {early:?}, {late:?}");
    assert!(regions.free_host().unwrap() > 0);
    assert_eq!(regions.host_bytes(), 0);
    drop((graph, output, weights));
    driver.synchronize().unwrap();
    drop(pools);
    engine.empty_cache().unwrap();
    assert_eq!(engine.statistics().unwrap().all.reserved_bytes.current, 0);
}

twins! { thousand_sleeps_grow_nothing }

/// A graph reads an output of another one that the host has freed: that is there after waking too.
fn outputs_that_were_freed_are_kept<P: Device>(driver: &Arc<P>) {
    for plan in [None, Some(Options::default())] {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let regions = Regions::new(&engine);
        let mut config = PoolConfig::default().tag("graphs");
        if let Some(plan) = plan {
            config = config.plan(plan);
        }
        let pool = Pool::new(&engine, config);
        let stream = driver.create_stream().unwrap();
        let mode = CaptureMode::ThreadLocal;
        let writes = |capture: &Capture<Arc<P>>| {
            let output = capture.allocate(5 * MIB, stream)?;
            launch(&**driver, stream, (&[], &[range(&output, 5)]), 0);
            Ok::<_, Error>(output)
        };
        let (writer, first) = engine.capture(stream, &pool, mode, writes).unwrap();
        let place = range(&first, 5);
        let reads = |capture: &Capture<Arc<P>>| {
            let output = capture.allocate(3 * MIB, stream)?;
            launch(&**driver, stream, (&[place], &[range(&output, 6)]), 0);
            Ok::<_, Error>(output)
        };
        let (reader, second) = engine.capture(stream, &pool, mode, reads).unwrap();
        writer.launch(stream).unwrap();
        drop(first);
        reader.launch(stream).unwrap();
        for _ in 0..2 {
            assert!(regions.sleep(Tags::All).unwrap() >= 8 * MIB);
            assert!(regions.report().iter().any(|region| region.host_bytes >= 8 * MIB));
            regions.wake(Tags::All).unwrap();
            reader.launch(stream).unwrap();
            launch(&**driver, stream, (&[range(&second, 6)], &[]), 0);
            driver.synchronize().unwrap();
            assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        }
        drop((writer, reader, second));
        pool.synchronize().unwrap();
    }
}

twins! { outputs_that_were_freed_are_kept }

/// What sleeping and waking take, with and without contents; prints a table.
///
/// ```text
/// cargo test --release --test gpu costs_of_sleep -- --ignored --nocapture
/// ```
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn costs_of_sleep() {
    use std::time::Instant;

    use regraph::driver::HostApi;

    const GIB: u64 = 1 << 30;
    let gpu = crate::device::gpu::open();
    let driver = &gpu.driver;
    println!("backup, blocks of MiB, GiB: ms to sleep at first, again, ms to wake, GB/s");
    let in_memory = Backup::File(std::path::Path::new("/dev/shm").into());
    for (backup, each, all) in [
        (Backup::Host, 2 * MIB, 8 * GIB),
        (Backup::Host, 64 * MIB, 16 * GIB),
        (in_files(), 2 * MIB, 8 * GIB),
        (in_files(), 64 * MIB, 8 * GIB),
        (in_memory, 64 * MIB, 8 * GIB),
        (Backup::None, 2 * MIB, 8 * GIB),
        (Backup::None, 64 * MIB, 8 * GIB),
    ] {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let regions = Regions::new(&engine);
        regions.set_backup("weights", backup.clone());
        let pool = Pool::new(&engine, PoolConfig::default().tag("weights"));
        let stream = driver.create_stream().unwrap();
        let blocks: Vec<_> =
            (0..all / each).map(|_| pool.allocate(each, stream).unwrap()).collect();
        let mut times = Vec::new();
        for _ in 0..3 {
            let begun = Instant::now();
            assert_eq!(regions.sleep(Tags::All).unwrap(), all);
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            let begun = Instant::now();
            assert_eq!(regions.wake(Tags::All).unwrap(), all);
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let (sleep, wake) = (times[2].min(times[4]), times[1].min(times[3]).min(times[5]));
        println!(
            "{backup:?}, {}, {}: {:.0}, {sleep:.1}, {wake:.1}, {:.1}",
            each / MIB,
            all / GIB,
            times[0],
            all as f64 / wake / 1e6,
        );
        drop((blocks, pool));
        engine.empty_cache().unwrap();
    }
}

/// A thread allocates and frees, cached and not, while a large region goes to sleep for the first time, again, and wakes:
/// what the region holds is there again. Prints a table of how long the thread waited at the most; the variable `REGRAPH_GIB`
/// says how much sleeps, half of what is free without it.
///
/// ```text
/// cargo test --release --test gpu a_thread_allocates_while_a_large_region -- --ignored --nocapture
/// ```
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_thread_allocates_while_a_large_region_sleeps_and_wakes() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use regraph::driver::{Driver, HostApi};
    use regraph_tagged::Program;

    const EACH: u64 = 256 * MIB;
    let gpu = crate::device::gpu::open();
    let driver = &gpu.driver;
    let gib = std::env::var("REGRAPH_GIB").ok().and_then(|gib| gib.parse().ok());
    let all = gib.unwrap_or(driver.memory_info().unwrap().free >> 31).max(1) << 30;
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let regions = Regions::new(&engine);
    let pool = Pool::new(&engine, PoolConfig::default().tag("weights"));
    let stream = driver.create_stream().unwrap();
    let blocks: Vec<_> = (1..=all / EACH)
        .map(|tag| {
            let block = pool.allocate(EACH, stream).unwrap();
            launch(&**driver, stream, (&[], &[range(&block, 1_000 * tag)]), 0);
            (block, 1_000 * tag)
        })
        .collect();
    driver.synchronize().unwrap();
    println!(
        "{} GiB: ms, GiB/s, longest ms of a request that is cached, and of one that is not",
        all >> 30
    );
    // While a call runs, another thread's longest requests.
    let beside = |name: &str, call: &dyn Fn()| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let (pool, mine) =
                    (Pool::new(&engine, PoolConfig::default()), driver.create_stream().unwrap());
                let mut longest = [Duration::ZERO; 2];
                let mut size = 0;
                while !stop.load(Ordering::Relaxed) {
                    size = size % 64 + 2;
                    for (which, bytes) in [MIB, size * MIB].into_iter().enumerate() {
                        let begun = Instant::now();
                        drop(pool.allocate(bytes, mine).unwrap());
                        longest[which] = longest[which].max(begun.elapsed());
                    }
                    regions.report();
                }
                drop(pool);
                engine.retire_stream(mine).unwrap();
                longest.map(|time| time.as_secs_f64() * 1e3)
            });
            let begun = Instant::now();
            call();
            let took = begun.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            let [cached, fresh] = other.join().unwrap();
            let speed = (all >> 30) as f64 / took;
            println!("{name}: {:.0}, {speed:.1}, {cached:.2}, {fresh:.2}", took * 1e3);
        });
    };
    for name in ["first sleep", "sleep", "sleep"] {
        beside(name, &|| assert_eq!(regions.sleep(Tags::All).unwrap(), all));
        beside("wake", &|| assert_eq!(regions.wake(Tags::All).unwrap(), all));
        let held: Vec<Tagged> = blocks.iter().map(|(block, tag)| range(block, *tag)).collect();
        launch(&**driver, stream, (&held, &[]), 0);
        driver.synchronize().unwrap();
        assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        let region = &regions.report()[0];
        let slept = region.slept.unwrap();
        assert_eq!((slept.copied_bytes, slept.dropped_bytes), (all, 0));
    }
    let begun = Instant::now();
    assert_eq!(regions.free_host().unwrap(), all);
    println!("free_host: {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
}

/// What waking 35 graphs of one pool takes without contents, and what stays on the device while they
/// sleep; prints a table.
///
/// ```text
/// cargo test --release --test gpu costs_of_waking_graphs -- --ignored --nocapture
/// ```
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn costs_of_waking_graphs() {
    use std::time::Instant;

    use regraph::driver::{Driver, HostApi};
    use regraph_tagged::Program;

    let gpu = crate::device::gpu::open();
    let driver = &gpu.driver;
    println!("plan: MiB awake, pieces; ms to sleep, to wake: least, most; MiB asleep, executables included, at first, at last");
    for plan in [None, Some(Options::default())] {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let regions = Regions::new(&engine);
        regions.set_backup("graphs", Backup::None);
        let mut config = PoolConfig::default().tag("graphs");
        if let Some(plan) = &plan {
            config = config.plan(plan.clone());
        }
        let pool = Pool::new(&engine, config);
        let stream = driver.create_stream().unwrap();
        let free = || driver.memory_info().unwrap().free;
        let base = free();
        let mut graphs = Vec::new();
        for size in 1..=35 {
            let body = |capture: &Capture<_>| {
                let live: Vec<_> = (0..8)
                    .map(|_| capture.allocate(size * 29 * MIB, stream))
                    .collect::<Result<_, _>>()?;
                for block in &live {
                    launch(&**driver, stream, (&[], &[range(block, size)]), 0);
                }
                Ok::<_, Error>(())
            };
            let mode = CaptureMode::ThreadLocal;
            graphs.push(engine.capture(stream, &pool, mode, body).unwrap().0);
        }
        graphs[34].launch(stream).unwrap();
        driver.synchronize().unwrap();
        let (mut sleeps, mut wakes, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let (mut awake, pieces) = (0, engine.statistics().unwrap().all.segment.current);
        for round in 0..200 {
            let begun = Instant::now();
            awake = regions.sleep(Tags::All).unwrap();
            sleeps.push(begun.elapsed().as_secs_f64() * 1e3);
            held.push(base.saturating_sub(free()) / MIB);
            let begun = Instant::now();
            assert_eq!(regions.wake(Tags::All).unwrap(), awake);
            wakes.push(begun.elapsed().as_secs_f64() * 1e3);
            graphs[round % 35].launch(stream).unwrap();
        }
        driver.synchronize().unwrap();
        assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        let ends = |times: &[f64]| {
            let least = times.iter().copied().fold(f64::MAX, f64::min);
            format!("{least:.1}, {:.1}", times.iter().copied().fold(0.0, f64::max))
        };
        println!(
            "{}: {}, {pieces}; {}; {}; {}, {}",
            if plan.is_some() { "exact" } else { "none" },
            awake / MIB,
            ends(&sleeps),
            ends(&wakes),
            held[0],
            held[199],
        );
        drop((graphs, pool));
        engine.empty_cache().unwrap();
    }
}
