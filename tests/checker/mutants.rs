//! The table of `cargo xtask mutants`, and a program for one of its rules.

use std::path::Path;

use crate::common::bench;
use regraph::driver::HostApi;
use regraph::engine::Config;

/// A text that is not in its file any more would take no rule out.
#[test]
fn each_mutant_changes_one_place_and_names_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(xtask::mutants::complaints(root).unwrap(), [""; 0]);
}

/// A stream uses a block once more after what was recorded as its last use.
#[test]
fn use_after_last_use() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let capture = b.begin(s);
    let block = b.allocate(s);
    b.launch(s);
    b.driver.wait(t, s).unwrap();
    b.launch(t);
    b.engine.record_use(block.id, t).unwrap();
    b.driver.wait(s, t).unwrap();
    b.engine.record_stream(block.id, t).unwrap();
    b.launch(t);
    b.engine.free(block.id).unwrap();
    b.allocate(s);
    b.launch(s);
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
}
