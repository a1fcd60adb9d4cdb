//! The host time of a whole capture, from begin to end, with the simulated driver's share.
//!
//! The figures are by step of the script; see `scaling` for how they grow.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use common::host;
use common::sample::sample;
use common::script::{Length, Script, JOIN, SMALL};

fn main() {
    let random = |streams, nodes| Script::random(streams, JOIN, SMALL, Length::Nodes(nodes));
    let by_nodes = [1_000, 10_000, 100_000].map(|nodes| (nodes, random(16, nodes)));
    let by_streams = [1, 2, 4, 8, 16].map(|streams| (streams, random(streams, 10_000)));
    let by_pending = [1_000, 10_000, 100_000].map(|blocks| (blocks, Script::pending(4, blocks)));
    whole("capture/nodes", &by_nodes);
    whole("capture/streams", &by_streams);
    whole("capture/pending", &by_pending);
}

fn whole(name: &str, scripts: &[(usize, Script)]) {
    for (parameter, script) in scripts {
        sample(&format!("{name}/{parameter}"), script.steps as u64, || {
            host::whole(host::unchecked(), script).as_nanos() as f64
        });
    }
}
