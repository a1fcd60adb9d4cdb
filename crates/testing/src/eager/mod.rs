//! Random programs of work outside captures, with captures now and then, against a model.
//!
//! * [`order`]: the model: streams as sequences of operations, and who used each byte.
//! * [`figures`]: what the engine's figures must say, to the byte.
//! * [`renamed`]: a driver whose streams get the names of streams that are gone.
//! * [`world`]: the host: its streams, blocks and captures, under settings of all kinds.
//! * [`steps`]: what the host may do next; [`memory`], [`work`], [`captures`], [`suspend`]: how it does
//!   it.
//! * [`kinds`]: pools of all kinds: with memory of the host's own, whole blocks, or none cached; who
//!   lends to whom; and blocks that are mapped a second time.
//! * [`finish`]: everything ends, and all memory must be back.
//!
//! Calls of the driver may be made to fail: each call of the engine must then end in success or in
//! a clean error, with its promises kept.

mod captures;
mod figures;
mod finish;
mod kinds;
mod memory;
pub(crate) mod order;
mod renamed;
mod steps;
mod suspend;
mod work;
mod world;

use arbitrary::Unstructured;

use regraph::engine::Flaw;
pub use renamed::Renamed;
use world::World;

/// Runs the program that the bytes spell and checks everything that it shows.
///
/// # Panics
/// Where the engine is wrong.
pub fn eager(data: &[u8]) {
    let first = run(data, None);
    // Every program twice would cost as much as twice the programs.
    if data.first().is_some_and(|byte| byte.is_multiple_of(4)) {
        let second = run(data, None);
        assert_eq!(first.addresses, second.addresses, "the same program got other addresses");
    }
}

/// Runs the program on an engine without one of its safety rules; whether the model noticed.
///
/// # Panics
/// Where the engine is wrong in other ways.
pub fn flawed_eager(data: &[u8], flaw: Flaw) -> bool {
    run(data, Some(flaw)).caught
}

fn run(data: &[u8], flaw: Option<Flaw>) -> World {
    let mut bytes = Unstructured::new(data);
    let mut world = World::new(&mut bytes, flaw);
    // The bytes never run dry with an error: what is missing reads as zero.
    while !bytes.is_empty() && world.now < world::LONGEST && !world.caught {
        world.step(&mut bytes).expect("missing bytes read as zeroes");
        if flaw.is_none() {
            crate::judge_tables(&world.engine);
        }
    }
    if !world.caught {
        world.finish();
        if flaw.is_none() {
            crate::judge_tables(&world.engine);
        }
    }
    world
}
