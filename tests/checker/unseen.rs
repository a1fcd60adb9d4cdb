//! Nodes that no look saw: whose they may be, and where they are refused.

use regraph::driver::CaptureMode;
use regraph::engine::{CaptureReport, Config, Error, PoolConfig};
use regraph_check::Violation;

use crate::common::{bench, Bench};

fn is_refused(ended: Result<CaptureReport, Error>, is: impl Fn(&Violation) -> bool) -> bool {
    match ended {
        Ok(_) => false,
        Err(Error::Refused(violation)) if is(&violation) => true,
        Err(error) => panic!("{error}"),
    }
}

/// A capture whose block has users, and a second one into its graph, behind all nodes of it or beside them.
fn continued(b: &Bench, behind: bool, same_pool: bool) -> Result<CaptureReport, Error> {
    let [s, t] = b.streams();
    let capture = b.begin(s);
    let first = b.temporary(s);
    let (graph, last) = (b.graph(s), b.driver.terminals(s).unwrap());
    b.finish(s, capture);
    b.driver.begin_capture_to_graph(t, graph, CaptureMode::Relaxed).unwrap();
    if behind {
        b.driver.set_terminals(t, &last).unwrap();
    }
    let pool = if same_pool { b.pool } else { b.engine.create_pool(PoolConfig::default()) };
    let capture = b.engine.begin_capture(pool, t).unwrap();
    let second = b.engine.allocate(pool, first.bytes, t).unwrap();
    assert_eq!(second.address == first.address, same_pool);
    b.launch_and_free(t, second);
    b.try_finish(t, capture)
}

#[test]
fn parts_of_a_graph_that_share_memory_follow_each_other() {
    let run = |behind, same_pool| continued(&bench(Config::default()), behind, same_pool);
    assert!(is_refused(run(false, true), |it| matches!(it, Violation::Unseen { .. })));
    assert_eq!(run(true, true).unwrap().blocks, 1);
    assert_eq!(run(false, false).unwrap().blocks, 1);
    let foreign = bench(Config::default().foreign_nodes(true));
    assert!(continued(&foreign, false, true).is_ok(), "the host vouches for such nodes");
}
