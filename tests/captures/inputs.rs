//! Blocks from before a capture that the capture frees: it may have their places itself.

use crate::common::bench;
use regraph::driver::ErrorKind;
use regraph::engine::Config;

fn checked() -> Config {
    Config::default().check(true).find_late_uses(false)
}

/// Each call of the driver fails in turn, before the capture begins or at the free: the input waits then, or
/// is had all the same, and the capture goes on.
#[test]
fn every_call_may_fail_while_an_input_is_taken() {
    for at_the_free in [false, true] {
        for n in 0.. {
            let b = bench(checked());
            let [s] = b.streams();
            let block = b.allocate(s);
            b.launch(s);
            let fail = |now: bool| now.then(|| b.driver.fail_any_nth(n, ErrorKind::InvalidValue));
            let before = b.driver.total_calls();
            fail(!at_the_free);
            b.engine.host().expect_capture(s).unwrap();
            let mut made = b.driver.total_calls() - before;
            b.driver.forget_failures();
            b.driver.complete_all();
            let capture = b.begin(s);
            b.launch(s);
            let before = b.driver.total_calls();
            fail(at_the_free);
            b.engine.free(block.id).unwrap();
            if at_the_free {
                made = b.driver.total_calls() - before;
            }
            b.driver.forget_failures();
            let next = b.allocate(s);
            b.launch(s);
            if made <= n {
                assert_eq!(next.address, block.address);
            }
            b.engine.free(next.id).unwrap();
            let graph = b.finish(s, capture).graph;
            b.driver.complete_all();
            b.engine.release_graph(graph).unwrap();
            for _ in 0..3 {
                b.driver.complete_all();
                b.engine.empty_cache().unwrap();
            }
            b.engine.destroy_pool(b.pool).unwrap();
            assert_eq!(b.driver.used_bytes(), 0);
            if made <= n {
                assert!(n > 1, "the stream and the event are asked");
                break;
            }
        }
    }
}
