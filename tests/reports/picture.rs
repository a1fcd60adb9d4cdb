//! Snapshots of a live engine: they agree with themselves, with the figures, and with the history.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Memory, Pool};
use regraph::settings::Settings;
use regraph::snapshot::{Action, BlockState, Snapshot};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

type SimEngine = Engine<Arc<SimDriver>>;

fn bench(settings: &str) -> (Arc<SimDriver>, SimEngine) {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let settings = Settings::parse(settings).expect("the text is in order");
    let config = Config::default().settings(settings).report_leaks(false);
    (driver.clone(), Engine::new(driver, config))
}

/// Checks a snapshot in every way there is, and against the figures.
fn judge(engine: &SimEngine) -> Snapshot {
    let snapshot = engine.snapshot().expect("the engine is sound");
    regraph_trace::snapshot::validate(&snapshot).expect("the snapshot agrees with itself");
    regraph_trace::snapshot::validate_history(&snapshot).expect("the history leads to it");
    let all = engine.statistics().expect("the engine is sound").all;
    let sum = |of: fn(&regraph::snapshot::Segment) -> u64| snapshot.segments.iter().map(of).sum();
    let (total, allocated): (u64, u64) = (sum(|it| it.total_size), sum(|it| it.allocated_size));
    assert_eq!(total, all.reserved_bytes.current);
    assert_eq!(allocated, all.allocated_bytes.current);
    snapshot
}

/// Lets a parser that is not ours open both forms of a snapshot.
fn open_elsewhere(name: &str, snapshot: &Snapshot) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (json, pickle) =
        (folder.join(format!("{name}.json")), folder.join(format!("{name}.pickle")));
    let create = |path: &Path| std::fs::File::create(path).expect("the folder can be written");
    snapshot.write_json(create(&json)).expect("the file can be written");
    snapshot.write_pickle(create(&pickle)).expect("the file can be written");
    let check = Path::new(crate::ROOT).join("tests/reports/snapshot/check.py");
    match Command::new("python3").arg(check).arg(json).arg(pickle).output() {
        Ok(output) => {
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("no python3: nothing else opens the snapshot");
        }
        Err(error) => panic!("python3: {error}"),
    }
}

#[test]
fn random_programs_give_snapshots_that_agree_with_their_history() {
    for (seed, settings) in [
        (1, "history:100000"),
        (2, "history:100000,expandable_segments:False"),
        (3, "history:300"),
        (4, "history:100000,memory_limit_mb:96,garbage_collection_threshold:0.5"),
        (5, "history:100000,caching:False"),
    ] {
        let (driver, engine) = bench(settings);
        let mut random = fastrand::Rng::with_seed(seed);
        let pools = [(); 2].map(|()| engine.create_pool(PoolConfig::default()));
        let streams = [(); 4].map(|()| driver.create_stream().expect("streams are to be had"));
        let mut live = Vec::new();
        let mut capture = None;
        for step in 0..1_500 {
            let stream = streams[random.usize(..4)];
            match random.u64(..20) {
                0..=7 => {
                    let pool = pools[random.usize(..2)];
                    let most = if random.u64(..2) == 0 { 40_000 } else { 6 << 20 };
                    let bytes = 1 + random.u64(..most);
                    if let Ok(block) = engine.allocate(pool, bytes, stream) {
                        live.push(block.id);
                    }
                }
                8..=14 if !live.is_empty() => {
                    let block = live.swap_remove(random.usize(..live.len()));
                    if random.u64(..4) == 0 {
                        engine.record_stream(block, stream).expect("the block is live");
                    }
                    engine.free(block).expect("the block is live");
                }
                15 | 16 => driver.launch(stream, Work::default(), false).expect("work is launched"),
                17 => driver.complete(stream).expect("the stream exists"),
                18 if random.u64(..8) == 0 => {
                    let _ = engine.empty_cache().expect("the engine is sound");
                }
                19 if random.u64(..4) == 0 => match capture.take() {
                    None => {
                        let origin = streams[3];
                        driver.begin_capture(origin, CaptureMode::Relaxed).expect("it begins");
                        let id = engine.begin_capture(pools[1], origin).expect("it is announced");
                        capture = Some(id);
                    }
                    Some(id) => {
                        let graph = driver.end_capture(streams[3]).expect("it ends");
                        engine.end_capture(id, graph).expect("it is safe");
                    }
                },
                _ => {}
            }
            if step % 50 == 0 {
                judge(&engine);
            }
        }
        open_elsewhere(&format!("random-{seed}"), &judge(&engine));
    }
}

#[test]
fn a_block_that_waits_says_for_whom() {
    let (driver, engine) = bench("history:100");
    let pool = engine.create_pool(PoolConfig::default());
    let [own, other] = [(); 2].map(|()| driver.create_stream().expect("streams are to be had"));
    let block = engine.allocate(pool, 3 << 20, own).expect("there is memory");
    driver.launch(other, Work::default(), false).expect("work is launched");
    engine.record_stream(block.id, other).expect("the block is live");
    engine.free(block.id).expect("the block is live");
    let snapshot = judge(&engine);
    let blocks = || snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let pending: Vec<_> =
        blocks().filter(|block| block.state == BlockState::ActivePendingFree).collect();
    assert_eq!(pending.len(), 1);
    let waiting = pending[0].waiting.as_ref().expect("it says why it waits");
    assert_eq!(waiting[0].stream, Some(other.bits() as u64));
    let actions: Vec<_> = snapshot.device_traces[0].iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::SegmentMap, Action::Alloc, Action::FreeRequested]);

    driver.complete_all();
    let again = engine.allocate(pool, 3 << 20, other).expect("there is memory");
    assert_eq!(again.address, block.address);
    let snapshot = judge(&engine);
    let actions: Vec<_> = snapshot.device_traces[0].iter().map(|entry| entry.action).collect();
    assert_eq!(actions[3..], [Action::FreeCompleted, Action::Alloc]);
}

#[test]
fn stacks_name_the_function_that_asked() {
    let (driver, engine) = bench("history:100,stacks:True");
    let pool = engine.create_pool(PoolConfig::default());
    let stream = driver.create_stream().expect("streams are to be had");
    let _block = engine.allocate(pool, 3 << 20, stream).expect("there is memory");
    let snapshot = judge(&engine);
    let entry = snapshot.device_traces[0].iter().find(|entry| entry.action == Action::Alloc);
    let frames = &entry.expect("the history has it").frames;
    // None of the library's own come before it.
    assert!(frames[0].name.contains("stacks_name_the_function_that_asked"), "{frames:?}");
    let leaks = engine.leaks().expect("the engine is sound");
    assert_eq!(leaks.len(), 1);
    assert!(leaks[0].origin[0].name.contains("stacks_name"));
}

/// What a trace says of blocks that two functions ask a capture of the owned interface for.
#[test]
fn blocks_of_a_trace_lead_back_to_the_functions_that_asked() {
    type Sim = Arc<SimDriver>;
    #[inline(never)]
    fn weights(capture: &Capture<Sim>, stream: StreamHandle) -> Memory<Sim> {
        capture.allocate(1 << 20, stream).expect("there is memory")
    }
    #[inline(never)]
    fn activations(capture: &Capture<Sim>, stream: StreamHandle) -> Memory<Sim> {
        capture.allocate_fixed(1 << 20, stream).expect("there is memory")
    }
    let (driver, engine) = bench("stacks:True");
    let engine = Arc::new(engine);
    let pool = Pool::new(&engine, PoolConfig::default());
    let stream = driver.create_stream().expect("streams are to be had");
    let traced = engine.capture(stream, &pool, CaptureMode::Relaxed, |capture| {
        let _blocks = [weights(capture, stream), activations(capture, stream)];
        Ok::<_, regraph::Error>(regraph_trace::from_capture(&engine, capture.id(), stream))
    });
    let trace = traced.expect("it is accepted").1.expect("it has a journal");
    let names = [0, 1].map(|block| trace.labels().stack(block)[0].name.clone());
    assert!(names[0].contains("weights"), "{names:?}");
    assert!(names[1].contains("activations"), "{names:?}");
}
