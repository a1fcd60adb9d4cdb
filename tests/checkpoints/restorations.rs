//! Checkpoints of a pool, and going back to them.

use crate::common::{bench, Bench, MIB};
use regraph::driver::{CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Block, CheckpointRefusal, Config, Error, GraphId, PoolConfig};

fn checked() -> Config {
    Config::default().check(true).find_late_uses(false)
}

fn live(b: &Bench) -> Vec<(u64, u64)> {
    let live = b.engine.host().live_blocks(b.pool).unwrap();
    live.iter().map(|block| (block.address, block.bytes)).collect()
}

fn places(blocks: &[Block]) -> Vec<(u64, u64)> {
    blocks.iter().map(|block| (block.address, block.bytes)).collect()
}

/// Captures a graph: a temporary block and outputs that stay live.
fn capture(b: &Bench, stream: StreamHandle, outputs: usize) -> (GraphId, Vec<Block>) {
    let capture = b.begin(stream);
    let temporary = b.allocate(stream);
    b.launch(stream);
    let outputs = (0..outputs).map(|_| b.allocate(stream)).collect();
    b.launch(stream);
    b.engine.free(temporary.id).unwrap();
    (b.finish(stream, capture).graph, outputs)
}

#[test]
fn a_restoration_asks_the_driver_nothing_while_no_stream_captures() {
    let b = bench(checked());
    let [s] = b.streams();
    let (_, outputs) = capture(&b, s, 2);
    let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
    b.engine.free(outputs[0].id).unwrap();
    capture(&b, s, 2);
    let calls = b.driver.total_calls();
    b.engine.host().restore(b.pool, &checkpoint).unwrap();
    assert_eq!(b.driver.total_calls(), calls, "there is nothing that could fail");
}

/// Where a stream is not known to be in no capture, nothing is restored; what the driver refuses then costs
/// no block.
#[test]
fn every_call_may_fail_while_a_pool_is_restored() {
    for kind in [ErrorKind::OutOfMemory, ErrorKind::InvalidValue] {
        for n in 0.. {
            let b = bench(checked());
            let [s, t] = b.streams();
            let (_, outputs) = capture(&b, s, 2);
            let eager = b.engine.allocate(b.pool, 700, s).unwrap();
            let before = b.driver.total_calls();
            let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
            assert_eq!(b.driver.total_calls(), before, "there is nothing that could fail");
            let all = places(&[eager, outputs[0], outputs[1]]);
            b.engine.free(outputs[0].id).unwrap();
            b.engine.free(eager.id).unwrap();
            let late = b.engine.allocate(b.pool, 3 * MIB, t).unwrap();
            b.engine.record_stream(late.id, s).unwrap();
            let other = b.engine.create_pool(PoolConfig::default());
            b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
            b.engine.begin_capture(other, t).unwrap();
            let picture = || {
                let blocks = b.engine.host().live_blocks(b.pool).unwrap();
                let figures = b.engine.pool_statistics(b.pool).unwrap();
                (b.engine.snapshot().unwrap().segments, blocks, figures)
            };
            let unchanged = picture();
            let before = b.driver.total_calls();
            b.driver.fail_any_nth(n, kind.clone());
            let refused = b.engine.host().restore(b.pool, &checkpoint);
            assert!(
                matches!(
                    refused,
                    Err(Error::Checkpoint { why: CheckpointRefusal::BlocksInCapture { .. }, .. })
                ),
                "{refused:?}"
            );
            assert_eq!(picture(), unchanged);
            assert_eq!(unchanged.1.len(), 2);
            b.driver.end_capture(t).unwrap();
            let under_way = b.engine.host().captures_of(t).unwrap();
            b.engine.abandon_capture(under_way[0]).unwrap();
            let restored = b.engine.host().restore(b.pool, &checkpoint).unwrap();
            let made = b.driver.total_calls() - before;
            b.driver.forget_failures();
            assert_eq!(restored.freed.len(), 2);
            let mut all = all;
            all.sort_unstable();
            assert_eq!(live(&b), all);
            if made <= n {
                assert!(n > 1, "two streams are asked where they are");
                break;
            }
        }
    }
}
