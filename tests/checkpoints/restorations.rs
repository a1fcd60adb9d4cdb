//! What going back to a checkpoint costs, and what it is refused beside.

use std::thread;

use crate::common::bench;
use regraph::engine::Config;

#[test]
fn a_restoration_asks_the_driver_nothing_while_no_stream_captures() {
    let (b, [s]) = bench(Config::default().find_late_uses(false)).with_streams();
    let graph_with_output = || {
        let capture = b.begin(s);
        let output = b.allocate(s);
        b.launch(s);
        b.finish(s, capture);
        output
    };
    let output = graph_with_output();
    let calls = b.driver.total_calls();
    let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
    assert_eq!(b.driver.total_calls(), calls, "there is nothing that could fail");
    b.engine.free(output.id).unwrap();
    graph_with_output();
    let calls = b.driver.total_calls();
    b.engine.host().restore(b.pool, &checkpoint).unwrap();
    assert_eq!(b.driver.total_calls(), calls, "there is nothing that could fail");
}

/// Only its own thread has a stream forgotten that goes on: it may capture there.
#[test]
fn a_block_of_a_stream_that_was_forgotten_and_goes_on_is_its_own_when_it_is_back() {
    let (b, [s, t]) = bench(Config::default()).with_streams();
    let block = b.allocate(s);
    let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
    b.engine.host().retire_unused(s).unwrap_err();
    b.engine.free(block.id).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| b.engine.host().retire_unused(s).unwrap_err());
    });
    b.engine.host().retire_unused(s).unwrap();
    let restored = b.engine.host().restore(b.pool, &checkpoint).unwrap();
    b.launch(s);
    b.engine.free(restored.live[0].id).unwrap();
    assert_ne!(b.allocate(t).address, block.address, "its stream still uses it");
    b.driver.complete_all();
    assert_eq!(b.allocate(t).address, block.address);
}
