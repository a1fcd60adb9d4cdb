//! The host time of a capture's end, with the checker's judgement and without, by node.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use common::host::Host;
use common::meter::Untimed;
use common::sample::sample;
use common::script::{Length, Script, JOIN, SMALL};
use regraph::engine::Config;

const STREAMS: usize = 16;

fn main() {
    for (check, name) in [(true, "end/checked"), (false, "end/unchecked")] {
        for nodes in [1_000, 10_000, 50_000] {
            let script = Script::random(STREAMS, JOIN, SMALL, Length::Nodes(nodes));
            sample(&format!("{name}/{nodes}"), nodes as u64, || {
                let mut host = Host::begin(Config::default().check(check), STREAMS);
                host.run(&script.calls, &mut Untimed);
                host.end().as_nanos() as f64
            });
        }
    }
}
