//! Random programs of work outside captures, with captures now and then, against a model.
//!
//! * [`order`]: the model: streams as sequences of operations, and who used each byte.
//! * [`world`]: what is known of the device, and what every host does with it.
//! * [`checkpoints`]: how every host goes back to one.
//! * [`features`]: what a host does, and how often.
//! * [`direct`]: a host that asks the engine itself; [`named`]: one that knows memory by its address, names its pools,
//!   and asks the plug-in.
//! * [`renamed`]: a driver whose streams get the names of streams that are gone.
//!
//! Calls of the driver may be made to fail: each call of the engine must then end in success or in
//! a clean error, with its promises kept.

mod checkpoints;
mod direct;
mod features;
mod named;
mod order;
mod renamed;
mod world;

use arbitrary::Unstructured;

use crate::weights::Weights;
use direct::Direct;
use features::{Step, EAGER, EAGER_WITH_CHECKPOINTS, NAMED, NAMED_WITH_UPKEEP};
use named::Named;
use regraph::engine::Flaw;
pub use renamed::Renamed;
use world::{Host, World};

/// Runs the program of a host of the engine's that the bytes spell and checks everything that it shows.
///
/// # Panics
/// Where the engine is wrong.
pub fn eager(data: &[u8]) {
    run_twice(data, EAGER);
}

/// Runs the program of a host that goes back to checkpoints as well.
///
/// # Panics
/// Where the engine is wrong.
pub fn eager_with_checkpoints(data: &[u8]) {
    run_twice(data, EAGER_WITH_CHECKPOINTS);
}

fn run_twice(data: &[u8], steps: Weights<Step>) {
    let first = run_direct(data, steps, None);
    // Every program twice would cost as much as twice the programs.
    if data.first().is_some_and(|byte| byte.is_multiple_of(4)) {
        let second = run_direct(data, steps, None);
        assert_eq!(first.addresses, second.addresses, "the same program got other addresses");
    }
}

/// Runs the program on an engine without one of its safety rules; whether the model noticed.
///
/// # Panics
/// Where the engine is wrong in other ways.
pub fn flawed_eager(data: &[u8], flaw: Flaw) -> bool {
    run_direct(data, EAGER, Some(flaw)).caught
}

/// Runs the program of a host of the plug-in's that the bytes spell and checks everything that it shows.
///
/// # Panics
/// Where the plug-in or the engine is wrong.
pub fn named(data: &[u8]) {
    run_named(data, NAMED);
}

/// Runs the program of such a host that looks after the engine behind the plug-in as well.
///
/// # Panics
/// Where the plug-in or the engine is wrong.
pub fn named_with_upkeep(data: &[u8]) {
    run_named(data, NAMED_WITH_UPKEEP);
}

fn run_named(data: &[u8], steps: Weights<Step>) {
    let mut bytes = Unstructured::new(data);
    let mut world = World::<Named>::named(&mut bytes, steps);
    run(&mut world, &mut bytes, 400, |world| {
        world.host.plugin.engines().for_each(crate::judge_tables);
    });
    world.finish();
}

fn run_direct(data: &[u8], steps: Weights<Step>, flaw: Option<Flaw>) -> World<Direct> {
    let judge = |world: &mut World<Direct>| {
        if flaw.is_none() {
            crate::judge_tables(&world.host.engine);
        }
    };
    let mut bytes = Unstructured::new(data);
    let mut world = World::direct(&mut bytes, steps, flaw);
    run(&mut world, &mut bytes, 500, judge);
    if !world.caught {
        world.finish();
        judge(&mut world);
    }
    world
}

/// Takes steps until the bytes end, at most so many.
fn run<H: Host>(
    world: &mut World<H>,
    bytes: &mut Unstructured<'_>,
    longest: u64,
    judge: impl Fn(&mut World<H>),
) {
    // The bytes never run dry with an error: what is missing reads as zero.
    while !bytes.is_empty() && world.now < longest && !world.caught {
        world.step(bytes).expect("missing bytes read as zeroes");
        judge(world);
    }
}
