//! One capture and nothing else, for profilers.
//!
//! `profile_capture [STREAMS] [STEPS] [MIX] [small|large] [checked|unchecked]`, where MIX is `join`,
//! `grow`, `steady`, `level` or `pending`.
//!
//! The capture is not ended, so that what is left is allocations, frees and the simulated driver:
//!
//! ```text
//! cargo build --release --example profile_capture
//! valgrind --tool=callgrind target/release/examples/profile_capture 16 50000 join small
//! ```

#[allow(dead_code, reason = "shared with the benches")]
#[path = "../benches/common/mod.rs"]
mod common;

use common::host::Host;
use common::meter::{clock_cost, Timed};
use common::script::{Length, Script, MIXES, SIZES};
use regraph::engine::Config;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &'static str| {
        arguments.get(index).map_or(default, String::as_str).to_owned()
    };
    let number = |index, default| argument(index, default).parse().unwrap_or_else(|_| usage());
    let streams: usize = number(0, "16");
    let steps: usize = number(1, "50000");
    let sizes = argument(3, "small");
    let sizes = SIZES.into_iter().find(|it| it.name == sizes).unwrap_or_else(|| usage());
    let check = match argument(4, "checked").as_str() {
        "checked" => true,
        "unchecked" => false,
        _ => usage(),
    };

    let script = match argument(2, "join").as_str() {
        "pending" => Script::pending(streams.max(3), steps),
        name => {
            let mix = MIXES.into_iter().find(|mix| mix.name == name).unwrap_or_else(|| usage());
            Script::random(streams.max(1), mix, sizes, Length::Steps(steps))
        }
    };
    let mut host = Host::begin(Config::default().check(check), script.streams);
    let mut timed = Timed::default();
    host.run(&script.calls, &mut timed);
    let clock = clock_cost();
    println!(
        "{:.0} ns an allocation, {:.0} ns a free, {} nodes, {} MiB reserved",
        timed.allocations.mean(clock),
        timed.frees.mean(clock),
        script.nodes,
        host.reserved() >> 20
    );
}

fn usage() -> ! {
    eprintln!(
        "usage: profile_capture [STREAMS] [STEPS] [join|grow|steady|level|pending] [small|large] \
         [checked|unchecked]"
    );
    std::process::exit(2);
}
