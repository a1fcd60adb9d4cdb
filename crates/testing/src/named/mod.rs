//! Random programs of a host that knows memory by its address and names its pools, through the plug-in.
//!
//! * [`world`]: the host: its streams, blocks, pools and graphs, and what a block may lie on.
//! * [`steps`]: what the host may do next; [`pools`], [`graphs`], [`shared`], [`sleep`]: how it does it.
//!
//! The model is that of work outside captures ([`super::eager`]): who used each byte, and in which order.

mod graphs;
mod pools;
mod shared;
mod sleep;
mod steps;
mod world;

use arbitrary::Unstructured;

use world::World;

/// Runs the program that the bytes spell and checks everything that it shows.
///
/// # Panics
/// Where the plug-in or the engine is wrong.
pub fn named(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let mut world = World::new(&mut bytes);
    // The bytes never run dry with an error: what is missing reads as zero.
    while !bytes.is_empty() && world.now < world::LONGEST {
        world.step(&mut bytes).expect("missing bytes read as zeroes");
        world.plugin.engines().for_each(crate::judge_tables);
    }
    world.finish();
}
