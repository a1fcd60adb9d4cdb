//! A pool gives its memory back while its graph stays instantiated, and the graph runs again when
//! memory is mapped at its addresses.

use std::sync::Arc;

use regraph::driver::{CaptureMode, ExecutableHandle, StreamHandle};
use regraph::engine::{Block, Config, Engine, Error, GraphId, PoolConfig, PoolId, PoolRefusal};
use regraph::settings::Settings;

use super::giving_back::came_back;
use super::{launch, tagged, Device, KIB, MIB};

const INPUT: u64 = 11;
const OUTPUT: u64 = 19;

struct Captured {
    executable: ExecutableHandle,
    graph: GraphId,
    input: Block,
    output: Block,
}

/// A graph on two streams that reads `input`, passes through blocks of many sizes, some of which lie
/// where others did, and writes `output`.
fn capture<P: Device>(
    engine: &Engine<Arc<P>>,
    pool: PoolId,
    [a, b]: [StreamHandle; 2],
) -> Captured {
    let driver = &**engine.driver();
    let input = engine.allocate(pool, 24 * MIB, a).unwrap();
    driver.begin_capture(a, CaptureMode::ThreadLocal).unwrap();
    let capture = engine.begin_capture(pool, a).unwrap();
    let mut before = (input, INPUT);
    for (number, bytes) in
        [32 * MIB, 700, 48 * MIB, 300 * KIB, 32 * MIB, 5 * MIB, 64 * MIB].into_iter().enumerate()
    {
        let tag = 100 + number as u64;
        let block = engine.allocate(pool, bytes, a).unwrap();
        launch(driver, a, (&[tagged(before.0, before.1)], &[tagged(block, tag)]), 5_000);
        driver.wait(b, a).unwrap();
        engine.record_stream(block.id, b).unwrap();
        launch(driver, b, (&[tagged(block, tag)], &[]), 10_000);
        driver.wait(a, b).unwrap();
        if before.0.id != input.id {
            engine.free(before.0.id).unwrap();
        }
        before = (block, tag);
    }
    let output = engine.allocate(pool, 16 * MIB, a).unwrap();
    launch(driver, a, (&[tagged(before.0, before.1)], &[tagged(output, OUTPUT)]), 0);
    engine.free(before.0.id).unwrap();
    let graph = driver.end_capture(a).unwrap();
    let graph_of = engine.end_capture(capture, graph).unwrap().graph;
    let executable = driver.instantiate(graph).unwrap();
    Captured { executable, graph: graph_of, input, output }
}

fn run<P: Device>(driver: &P, captured: &Captured, stream: StreamHandle) {
    launch(driver, stream, (&[], &[tagged(captured.input, INPUT)]), 0);
    for _ in 0..3 {
        driver.replay(captured.executable, stream).unwrap();
    }
    driver.synchronize().unwrap();
    assert_eq!(driver.take_wrong_tags().unwrap(), 0);
    let found = driver.read_tags(captured.output.address, captured.output.bytes).unwrap();
    assert!(found.iter().all(|&tag| tag == OUTPUT), "{found:?}");
}

fn a_suspended_pool_runs_again<P: Device>(driver: &Arc<P>) {
    for expandable in [true, false] {
        let settings = Settings::default().expandable_segments(expandable);
        let engine = Engine::new(driver.clone(), Config::default().settings(settings));
        let [pool, other] = [(); 2].map(|()| engine.create_pool(PoolConfig::default()));
        let streams = [(); 2].map(|()| driver.create_stream().unwrap());
        let captured = capture(&engine, pool, streams);
        run(&**driver, &captured, streams[0]);
        // What the streams have used outside captures too is given back once they are done.
        let freed = engine.allocate(pool, 40 * MIB, streams[1]).unwrap();
        launch(&**driver, streams[1], (&[], &[tagged(freed, 1)]), 0);
        engine.free(freed.id).unwrap();
        driver.synchronize().unwrap();

        let held = engine.pool_statistics(pool).unwrap().reserved;
        for round in 0..3 {
            let free = driver.memory_info().unwrap().free;
            assert_eq!(engine.host().suspend_discarding_all(pool).unwrap(), held);
            came_back(free, driver.memory_info().unwrap().free, held);
            let refused = engine.allocate(pool, MIB, streams[0]);
            assert!(
                matches!(refused, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })),
                "{refused:?}"
            );

            // Others use the memory meanwhile.
            let block = engine.allocate(other, 128 * MIB, streams[1]).unwrap();
            launch(&**driver, streams[1], (&[], &[tagged(block, 1_000 + round)]), 0);
            launch(&**driver, streams[1], (&[tagged(block, 1_000 + round)], &[]), 0);
            engine.free(block.id).unwrap();

            assert_eq!(engine.host().resume_pool(pool).unwrap(), held);
            assert_eq!(engine.pool_statistics(pool).unwrap().reserved, held);
            run(&**driver, &captured, streams[round as usize % 2]);
        }
        engine.host().suspend_discarding_all(pool).unwrap();
        driver.destroy_executable(captured.executable).unwrap();
        engine.release_graph(captured.graph).unwrap();
        for block in [captured.input, captured.output] {
            engine.free(block.id).unwrap();
        }
        driver.synchronize().unwrap();
        drop(engine);
        for stream in streams {
            driver.destroy_stream(stream).unwrap();
        }
    }
}

twins! {
    a_suspended_pool_runs_again
}
