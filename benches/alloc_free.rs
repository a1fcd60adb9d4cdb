//! The host time of one allocation, and of one free, inside a capture.
//!
//! A go is a script: what is reported is the mean over its calls, of ten goes. `cargo bench --bench alloc_free -- join`
//! runs those whose names have that part.
//!
//! `--count CALL MIX SIZES STREAMS STEPS` runs one script once, with the calls of one kind in a function
//! of their own that a profiler can find, and prints how many there were: `benches/instructions` counts
//! their instructions. What the pool holds in the end goes to standard error.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use common::host::{self, Host};
use common::meter::{clock_cost, Counted, Tally, Timed, Untimed};
use common::sample::sample;
use common::script::{Length, Mix, Script, Sizes, GROW, JOIN, LARGE, MIXES, SIZES, SMALL, STEADY};
use regraph::engine::Config;

const STEPS: usize = 50_000;

type Variant = (bool, &'static str);
/// With the journal that the checker reads: the default.
const CHECKED: Variant = (true, "checked");
/// With neither.
const UNCHECKED: Variant = (false, "unchecked");

type Part = (&'static str, fn(&Timed) -> Tally);
const PARTS: [Part; 2] = [("alloc", |timed| timed.allocations), ("free", |timed| timed.frees)];

fn bench() {
    let clock = clock_cost();
    for mix in [JOIN, GROW, STEADY] {
        case(clock, (16, mix, SMALL), &[CHECKED, UNCHECKED]);
        case(clock, (16, mix, LARGE), &[CHECKED]);
    }
    for streams in [1, 4] {
        case(clock, (streams, JOIN, SMALL), &[CHECKED, UNCHECKED]);
    }
}

fn case(clock: f64, (streams, mix, sizes): (usize, Mix, Sizes), variants: &[Variant]) {
    let script = Script::random(streams, mix, sizes, Length::Steps(STEPS));
    for (part, tally) in PARTS {
        for &(check, name) in variants {
            let id = format!("{part}/{}/{}/{streams}/{name}", mix.name, sizes.name);
            let config = || Config::default().check(check);
            sample(&id, 1, || tally(&host::calls(config(), &script)).mean(clock));
        }
    }
}

/// Runs a script once, with the calls of one kind within [`counted`](common::meter::counted). Says how
/// many there were; for the end of a capture, how many nodes it has.
fn count(call: &str, script: &Script) -> u64 {
    let config = if call == "end-unchecked" { host::unchecked() } else { Config::default() };
    let mut host = Host::begin(config, script.streams);
    if call.starts_with("end") {
        host.run(&script.calls, &mut Untimed);
        host.end();
        return script.nodes as u64;
    }
    let mut meter = Counted { allocations: call == "alloc", calls: 0 };
    host.run(&script.calls, &mut meter);
    eprintln!("{} bytes reserved", host.reserved());
    meter.calls
}

/// The script that the command line names: its mix, sizes, streams and steps.
fn named([mix, sizes, streams, steps]: [&str; 4]) -> Option<Script> {
    let mix = MIXES.into_iter().find(|one| one.name == mix)?;
    let sizes = SIZES.into_iter().find(|one| one.name == sizes)?;
    let length = Length::Steps(steps.parse().ok()?);
    Some(Script::random(streams.parse().ok()?, mix, sizes, length))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--count", call, mix, sizes, streams, steps, ..] => {
            let script = named([mix, sizes, streams, steps]).expect("there is such a script");
            println!("{}", count(call, &script));
        }
        _ => bench(),
    }
}
