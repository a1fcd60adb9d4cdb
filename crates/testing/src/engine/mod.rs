//! The engine on random programs, against a simulated driver that knows the truth.
//!
//! * [`world`]: the host: its streams, captures and blocks, and a log of every launch.
//! * [`steps`]: what the host may do next, by the bytes of the input.
//! * [`launch`], [`memory`], [`captures`], [`planned`], [`edits`]: the things it does, by kind.
//! * [`graph`]: who comes before whom, by paths in the simulated graph.
//! * [`truth`]: the safety theorem over all pairs of blocks.
//! * [`contents`]: what lies where, and what a stream must wait for to take freed memory.
//! * [`finish`]: ends what is under way, runs the graphs and gives everything back.
//!
//! Nothing here asks the engine what it concluded; only what it handed out counts.

mod captures;
mod contents;
mod edits;
mod finish;
mod graph;
mod launch;
mod memory;
mod planned;
mod steps;
mod truth;
mod world;

use arbitrary::Unstructured;

use regraph::engine::Flaw;
use world::{Ends, World};

/// What a program came to on an engine without one of its safety rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// Captures that the checker refused.
    pub refused: usize,
    /// Captures that it accepted.
    pub accepted: usize,
    /// Captures that it refused because of edges that the host made so, or nodes that no look at a stream explains.
    pub excused: usize,
}

/// Runs the program that the bytes spell and checks everything that it shows.
///
/// # Panics
/// Where the engine or the checker is wrong.
pub fn engine(data: &[u8]) {
    let first = run(data, None, false);
    if first.finding.excused > 0 {
        // With edges that order the same program is refused no more, unless the engine relied on
        // others.
        run(data, None, true);
    }
    // Every program twice would cost as much as twice the programs.
    if data.first().is_some_and(|byte| byte.is_multiple_of(4)) {
        let second = run_with(data, None, false, Ends::InTwoSteps);
        let refused = first.verdicts.iter().position(|verdict| !verdict.accepted);
        if refused.is_none() {
            assert_eq!(first.finding, second.finding, "other verdicts by ends of two steps");
        }
        // What a refused capture used is a graph's for longer there: from then on requests may fail that
        // do not fail here, and the host goes another way.
        let end = refused.map_or(usize::MAX, |row| row + 1);
        assert_eq!(first.verdicts_until(end), second.verdicts_until(end), "other verdicts");
        let end = refused.map_or(usize::MAX, |row| first.verdicts[row].blocks);
        assert_eq!(first.addresses_until(end), second.addresses_until(end), "other addresses");
        if refused.is_some() {
            let again = run(data, None, false);
            assert_eq!(first.addresses, again.addresses, "the same program got other addresses");
        }
    }
}

/// Runs the program on an engine without one of its safety rules. What the checker accepts must be safe all the same.
///
/// # Panics
/// Where the checker is wrong.
pub fn flawed_engine(data: &[u8], flaw: Flaw) -> Finding {
    run(data, Some(flaw), false).finding
}

/// Runs the program on the engine as it is.
///
/// # Panics
/// Where the engine or the checker is wrong.
pub fn sound_engine(data: &[u8]) -> Finding {
    run(data, None, false).finding
}

fn run(data: &[u8], flaw: Option<Flaw>, ordered: bool) -> World {
    run_with(data, flaw, ordered, Ends::AtOnce)
}

fn run_with(data: &[u8], flaw: Option<Flaw>, ordered: bool, ends: Ends) -> World {
    let mut bytes = Unstructured::new(data);
    let mut world = World::new(&mut bytes, flaw, ordered, ends);
    // The bytes never run dry with an error: what is missing reads as zero.
    while !bytes.is_empty() && world.now < world::LONGEST {
        world.step(&mut bytes).expect("missing bytes read as zeroes");
        if flaw.is_none() {
            crate::judge_tables(&world.engine);
        }
    }
    world.finish();
    if flaw.is_none() {
        crate::judge_tables(&world.engine);
    }
    world
}
