//! The checker's judgement of one capture and nothing else, for profilers.
//!
//! `profile_check [STREAMS] [NODES] [TIMES] [MIX]`, where MIX is `join`, `grow`, `steady` or
//! `level`. Judged `TIMES` times; with 0 the driver is only asked for its graph, once.
//!
//! ```text
//! cargo build --release --example profile_check
//! valgrind --tool=callgrind target/release/examples/profile_check 16 10000 1
//! ```

#[allow(dead_code, reason = "shared with the benches")]
#[path = "../benches/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::host::Host;
use common::meter::Untimed;
use common::script::{Length, Script, MIXES, SMALL};
use regraph::driver::{Driver, GraphHandle};
use regraph::engine::Config;
use regraph::settings::Programmatic;
use regraph_check::check;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &'static str| {
        arguments.get(index).map_or(default, String::as_str).to_owned()
    };
    let number = |index, default| argument(index, default).parse().unwrap_or_else(|_| usage());
    let streams: usize = number(0, "16");
    let nodes: usize = number(1, "10000");
    let times: usize = number(2, "20");
    let mix = argument(3, "join");
    let mix = MIXES.into_iter().find(|it| it.name == mix).unwrap_or_else(|| usage());

    let script = Script::random(streams.max(1), mix, SMALL, Length::Nodes(nodes));
    let mut host = Host::begin(Config::default().check(true), script.streams);
    host.run(&script.calls, &mut Untimed);
    let (journal, driver, graph) = host.record();
    let asked = least(times, || ask(&driver, graph));
    let mut judged = None;
    let checked = least(times, || {
        judged = check(&journal, Programmatic::Deny, &driver, graph).ok();
    });
    let each = |time: Duration| time.as_nanos() as f64 / nodes as f64;
    println!(
        "{:.0} ns a node, {:.0} of them in the driver; {} entries, {judged:?}",
        each(checked),
        each(asked),
        journal.len()
    );
}

/// All questions that the checker asks.
fn ask(driver: &impl Driver, graph: GraphHandle) {
    let (mut nodes, mut dependencies) = (Vec::new(), Vec::new());
    driver.nodes(graph, &mut nodes).expect("a graph under capture");
    for node in nodes {
        driver.dependencies(node, &mut dependencies).expect("a node of the graph");
    }
}

/// The least time of some calls.
fn least(times: usize, mut call: impl FnMut()) -> Duration {
    let times = (0..times).map(|_| {
        let start = Instant::now();
        call();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}

fn usage() -> ! {
    eprintln!("usage: profile_check [STREAMS] [NODES] [TIMES] [join|grow|steady|level]");
    std::process::exit(2);
}
