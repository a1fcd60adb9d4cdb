//! Memory from outside captures whose streams capture: who may have it when.

use crate::common::{bench, MIB};
use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::{Config, PoolConfig};
use regraph::plan::Options;
use regraph_sim::Call;

/// A stream that was recorded for a block is in a capture of its own, which is ruined. The block's
/// capture is sound all the same, and its graph keeps the memory.
#[test]
fn another_capture_s_ruin_is_not_the_block_s() {
    let (b, [s, t, u], capture) = bench(Config::default()).capturing();
    let block = b.allocate(s);
    b.launch(s);
    b.engine.record_stream(block.id, t).unwrap();
    b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
    b.driver.invalidate(t).unwrap();
    let graph = b.driver.end_capture(s).unwrap();
    b.engine.free(block.id).unwrap();
    let accepted = b.engine.end_capture(capture, graph).is_ok();
    b.driver.end_capture(t).unwrap_err();
    b.driver.complete_all();
    assert!(!accepted || b.allocate(u).address != block.address);
}

/// Each growth of a capture, and each input that it freed, asked about each block that waited for the capture.
#[test]
fn what_waits_for_a_capture_is_not_asked_about_until_that_ends() {
    const BLOCKS: u64 = 64;
    for expected in [false, true] {
        let (b, [s, t]) = bench(Config::default()).with_streams();
        let before: Vec<_> = (0..BLOCKS).map(|_| b.allocate(s)).collect();
        b.launch(s);
        expected.then(|| b.engine.host().expect_capture(s).unwrap());
        let capture = b.begin(s);
        let asked = b.driver.calls(Call::CaptureStatus);
        before.iter().for_each(|block| b.engine.free(block.id).unwrap());
        let _after: Vec<_> = (0..BLOCKS).map(|_| b.allocate(s)).collect();
        let asked = b.driver.calls(Call::CaptureStatus) - asked;
        assert!(asked <= 7 * BLOCKS, "{asked} calls for {BLOCKS} blocks");
        b.finish(s, capture);
        b.driver.complete_all();
        b.begin(t);
        let at = b.allocate(t).address;
        assert!(before.iter().any(|block| block.address == at));
    }
}

/// The record of the older capture names what the younger one freed, and no entry can tell that it is gone: the driver gave
/// the addresses again, and the older capture was refused for a block that was nowhere any more.
#[test]
fn addresses_of_a_capture_that_is_gone_are_not_those_of_one_beside_it() {
    let b = bench(Config::default());
    b.driver.give_addresses_again();
    let pool = b.engine.create_pool(PoolConfig::default().plan(Options::default()));
    let [s, t] = b.streams();
    let [older, younger] = [t, s].map(|stream| {
        b.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        b.engine.begin_capture(pool, stream).unwrap()
    });
    let block = b.engine.allocate(pool, 4 * MIB, s).unwrap();
    b.launch_and_free(s, block);
    b.engine.abandon_capture(younger).unwrap();
    b.driver.end_capture(s).unwrap();
    let block = b.engine.allocate(pool, 4 * MIB, t).unwrap();
    b.launch(t);
    b.finish(t, older);
    b.engine.free(block.id).unwrap();
}
