//! How the cost of a step, an allocation and a free grows with the capture: a table.
//!
//! Each row looks at the second half of a capture, when it holds between half of the row's number
//! of nodes (or of blocks that wait) and all of it; so what the first memory costs is left out.
//! The factors compare a row with the first. The least of several runs counts.
//!
//! `cargo bench --bench scaling -- [level|join|grow|steady] [ROWS UP TO]`; without arguments what
//! is live stays level, so that nothing grows but the number of nodes, up to a million.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use std::time::Instant;

use common::host::{unchecked, Host};
use common::meter::{clock_cost, Timed, Untimed};
use common::script::{Length, Script, LEVEL, MIXES, SMALL};

/// A table row's figures, in nanoseconds.
#[derive(Clone, Copy)]
struct Cost {
    step: f64,
    allocation: f64,
    free: f64,
}

impl Cost {
    fn map(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            step: f(self.step, other.step),
            allocation: f(self.allocation, other.allocation),
            free: f(self.free, other.free),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut named = MIXES.into_iter().filter(|mix| arguments.iter().any(|it| it == mix.name));
    let mix = named.next().unwrap_or(LEVEL);
    // Cargo passes this to `cargo bench` only; as a test the first rows will do.
    let whole = arguments.iter().any(|argument| argument == "--bench");
    let limit = arguments.iter().find_map(|argument| argument.parse().ok());
    let limit = limit.unwrap_or(if whole { 1_000_000 } else { 1_000 });
    let rows = || [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|&row| row <= limit);

    let random = |streams, nodes| Script::random(streams, mix, SMALL, Length::Nodes(nodes));
    for streams in [1, 4, 16] {
        let title = format!("nodes: {}, {streams} streams", mix.name);
        table(&title, rows().map(|nodes| (nodes, random(streams, nodes))));
    }
    for streams in [3, 16] {
        let title = format!("pending, {streams} streams");
        table(&title, rows().map(|blocks| (blocks, Script::pending(streams, blocks))));
    }
    let by_streams = [1, 2, 4, 8, 16].map(|streams| (streams, random(streams, limit.min(10_000))));
    table(&format!("streams: {}", mix.name), by_streams.into_iter());
}

fn table(title: &str, rows: impl Iterator<Item = (usize, Script)>) {
    println!("\n{title:<26} {:>18} {:>18} {:>18}", "step", "alloc", "free");
    let mut first = None;
    for (parameter, script) in rows {
        let cost = least(&script);
        let factor = cost.map(*first.get_or_insert(cost), |cost, first| cost / first);
        print!("{parameter:<26}");
        for (cost, factor) in [
            (cost.step, factor.step),
            (cost.allocation, factor.allocation),
            (cost.free, factor.free),
        ] {
            print!(" {cost:>8.0} ns {factor:>5.2}x");
        }
        println!();
    }
}

/// The least of several runs, fewer the longer they are.
fn least(script: &Script) -> Cost {
    let runs = (300_000 / script.nodes).clamp(2, 50);
    let runs = (0..runs).map(|_| run(script));
    runs.reduce(|one, other| one.map(other, f64::min)).expect("at least one run")
}

/// One capture without single calls timed, and one with.
fn run(script: &Script) -> Cost {
    let (first, second) = script.calls.split_at(script.calls.len() / 2);
    let begin = || {
        let mut host = Host::begin(unchecked(), script.streams);
        host.run(first, &mut Untimed);
        host
    };
    let mut host = begin();
    let start = Instant::now();
    host.run(second, &mut Untimed);
    let step = start.elapsed().as_nanos() as f64 / (script.steps as f64 / 2.0);
    drop(host);
    let mut timed = Timed::default();
    begin().run(second, &mut timed);
    let clock = clock_cost();
    Cost { step, allocation: timed.allocations.mean(clock), free: timed.frees.mean(clock) }
}
