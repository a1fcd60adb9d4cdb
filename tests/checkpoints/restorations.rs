//! What going back to a checkpoint costs.

use crate::common::bench;
use regraph::engine::Config;

#[test]
fn a_restoration_asks_the_driver_nothing_while_no_stream_captures() {
    let b = bench(Config::default().find_late_uses(false));
    let [s] = b.streams();
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
