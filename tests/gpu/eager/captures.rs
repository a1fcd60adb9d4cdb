//! No call of the engine disturbs a capture, of any thread and in any mode.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::Arc;

use regraph::driver::{CaptureMode, StreamHandle};
use regraph::engine::{Config, Engine, Error, PoolConfig, PoolId, StreamRefusal};
use regraph::settings::Settings;

use super::{launch, tagged, Device, KIB, MIB};

const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
const LIMIT: u64 = 192 * MIB;
const ROUNDS: u64 = 6;

fn engine<P: Device>(driver: &Arc<P>, expandable: bool, caching: bool) -> Engine<Arc<P>> {
    let settings = Settings::default().memory_limit_bytes(Some(LIMIT)).caching(caching);
    let settings = settings.expandable_segments(expandable);
    Engine::new(driver.clone(), Config::default().settings(settings))
}

/// Everything that an engine is asked outside captures, on streams that do not capture.
fn everything<P: Device>(
    engine: &Engine<Arc<P>>,
    pool: PoolId,
    [a, b]: [StreamHandle; 2],
    round: u64,
) {
    let driver = &**engine.driver();
    let tag = |number: u64| (round << 32 | 0xe000_0000) + number;

    // It grows, and blocks come back at once and by events.
    let mut blocks = Vec::new();
    for number in 0..12 {
        let bytes = [512, 40 * KIB, MIB + 512, 6 * MIB][number as usize % 4];
        let block = engine.allocate(pool, bytes, a).unwrap();
        launch(driver, a, (&[], &[tagged(block, tag(number))]), 5_000);
        blocks.push((block, tag(number)));
    }
    driver.wait(b, a).unwrap();
    for (number, (block, tag)) in blocks.into_iter().enumerate() {
        let user = if number % 2 == 0 { b } else { a };
        launch(driver, user, (&[tagged(block, tag)], &[]), 20_000);
        match number % 3 {
            0 => engine.record_stream(block.id, user).unwrap(),
            1 => engine.record_use(block.id, user).unwrap(),
            _ => {}
        }
        match number % 3 {
            2 => {
                engine.record_stream(block.id, user).unwrap();
                engine.free(block.id).unwrap()
            }
            _ => engine.free(block.id).unwrap(),
        }
    }
    engine.mark_stream(b).unwrap();

    // Short of memory: it waits for streams and gives memory back, and some requests fail.
    for (stream, bytes) in [(a, 48 * MIB), (b, 56 * MIB), (a, 64 * MIB), (b, 400 * MIB)] {
        match engine.allocate(pool, bytes, stream) {
            Ok(block) => {
                launch(driver, stream, (&[], &[tagged(block, tag(99))]), 200_000);
                engine.free(block.id).unwrap();
            }
            Err(Error::OutOfMemory(report)) => assert!(report.engine_reserved <= LIMIT),
            Err(error) => panic!("{error}"),
        }
    }

    // Questions, and memory given back.
    engine.statistics().unwrap();
    engine.statistics_of(pool).unwrap();
    engine.pool_statistics(pool).unwrap();
    engine.explain(pool, a).unwrap();
    engine.observe(b).unwrap();
    engine.leaks().unwrap();
    engine.trim(32 * MIB).unwrap();
    engine.empty_cache().unwrap();
    engine.reset_peaks().unwrap();
    engine.reset_accumulated().unwrap();

    // A stream and a pool that come and go.
    let brief = driver.create_stream().unwrap();
    let own = engine.create_pool(PoolConfig::default());
    let block = engine.allocate(own, 3 * MIB, brief).unwrap();
    launch(driver, brief, (&[], &[tagged(block, tag(100))]), 10_000);
    engine.free(block.id).unwrap();
    engine.retire_stream(brief).unwrap();
    let behind = driver.create_event().unwrap();
    driver.record_event(behind, brief).unwrap();
    driver.synchronize_event(behind).unwrap();
    driver.destroy_event(behind).unwrap();
    driver.destroy_stream(brief).unwrap();
    engine.destroy_pool(own).unwrap();
}

/// Kernels of a capture, on memory that the capture allocates: how many.
fn captured_step<P: Device>(
    engine: &Engine<Arc<P>>,
    pool: PoolId,
    stream: StreamHandle,
    tag: u64,
) -> usize {
    let driver = &**engine.driver();
    match engine.allocate(pool, 256 * KIB, stream) {
        Ok(block) => {
            launch(driver, stream, (&[], &[tagged(block, tag)]), 1_000);
            launch(driver, stream, (&[tagged(block, tag)], &[]), 1_000);
            engine.free(block.id).unwrap();
            2
        }
        // The others may have taken everything for now.
        Err(Error::OutOfMemory(_)) => {
            launch(driver, stream, (&[], &[]), 0);
            1
        }
        Err(error) => panic!("{error}"),
    }
}

/// Captures steps for as long as `goes_on` says, and runs the graph.
fn capture<P: Device>(
    engine: &Engine<Arc<P>>,
    pool: PoolId,
    stream: StreamHandle,
    mode: CaptureMode,
    mut goes_on: impl FnMut(u64) -> bool,
) {
    let driver = &**engine.driver();
    driver.begin_capture(stream, mode).unwrap();
    let capture = engine.begin_capture(pool, stream).unwrap();
    let (mut steps, mut kernels) = (0, 0);
    // Without caches each is an allocation of the driver's own, which a GPU takes long for.
    let most = if engine.host().settings().unwrap().caching { 2_000 } else { 20 };
    while goes_on(steps) {
        if steps < most {
            kernels += captured_step(engine, pool, stream, steps + 1);
        } else {
            std::thread::yield_now();
        }
        steps += 1;
    }
    kernels += captured_step(engine, pool, stream, steps + 1);
    engine.mark_stream(stream).unwrap();
    engine.explain(pool, stream).unwrap();
    let retired = engine.retire_stream(stream);
    assert!(matches!(retired, Err(Error::Stream { why: StreamRefusal::InUse, .. })), "{retired:?}");
    let graph = driver.end_capture(stream).unwrap_or_else(|error| panic!("{mode:?}: {error}"));
    let report = engine.end_capture(capture, graph).unwrap();
    assert!(report.verified);
    assert_eq!(report.nodes, kernels, "nothing but the host's launches is in the graph");
    let executable = driver.instantiate(graph).unwrap();
    for _ in 0..3 {
        driver.replay(executable, stream).unwrap();
    }
    let behind = driver.create_event().unwrap();
    driver.record_event(behind, stream).unwrap();
    driver.synchronize_event(behind).unwrap();
    driver.destroy_event(behind).unwrap();
    driver.destroy_executable(executable).unwrap();
    driver.destroy_graph(graph).unwrap();
    engine.release_graph(report.graph).unwrap();
}

/// For every kind of segments and without caches, with eager work in the capture's own pool and in another.
fn settings<P: Device>(
    driver: &Arc<P>,
    mut body: impl FnMut(&Engine<Arc<P>>, [PoolId; 2], [StreamHandle; 3]),
) {
    for (expandable, caching, shared) in [
        (true, true, true),
        (true, true, false),
        (true, false, true),
        (false, true, true),
        (false, true, false),
    ] {
        let engine = engine(driver, expandable, caching);
        let captured = engine.create_pool(PoolConfig::default());
        let eager = if shared { captured } else { engine.create_pool(PoolConfig::default()) };
        let streams: [StreamHandle; 3] = std::array::from_fn(|_| driver.create_stream().unwrap());
        body(&engine, [captured, eager], streams);
        driver.synchronize().unwrap();
        assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        assert_eq!(engine.empty_cache().unwrap().reserved, 0);
        drop(engine);
        for stream in streams {
            driver.destroy_stream(stream).unwrap();
        }
    }
}

fn another_thread_captures_undisturbed<P: Device>(driver: &Arc<P>) {
    settings(driver, |engine, [captured, eager], [origin, a, b]| {
        for mode in MODES {
            let done = AtomicBool::new(false);
            let (begun, begins) = mpsc::channel();
            std::thread::scope(|scope| {
                let captures = scope.spawn(|| {
                    let begun = begun;
                    capture(engine, captured, origin, mode, |step| {
                        if step == 1 {
                            begun.send(()).unwrap();
                        }
                        !done.load(Ordering::Relaxed)
                    });
                });
                // A closed channel means that the other thread has failed, and says why below.
                if begins.recv().is_ok() {
                    for round in 0..ROUNDS {
                        everything(engine, eager, [a, b], round);
                    }
                }
                done.store(true, Ordering::Relaxed);
                captures.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
        }
    });
}

fn the_thread_itself_captures_undisturbed<P: Device>(driver: &Arc<P>) {
    settings(driver, |engine, [captured, eager], [origin, a, b]| {
        for mode in MODES {
            capture(engine, captured, origin, mode, |step| {
                if step > 0 {
                    everything(engine, eager, [a, b], step);
                }
                step < ROUNDS
            });
        }
    });
}

twins! {
    another_thread_captures_undisturbed
    the_thread_itself_captures_undisturbed
}
