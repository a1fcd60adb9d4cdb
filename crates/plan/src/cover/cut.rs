//! What a largest flow says: who passes memory on, and a heaviest antichain.
//!
//! The antichain is the least cut, read by item: those that can be reached from spare memory as
//! givers and not as takers. If one of them preceded another, the other could be reached. And what
//! they weigh is at least what is new, as everything that crosses the cut is full.

use super::levels::{Levels, NEVER};
use super::network::Network;
use super::{Cover, Entry, Row};

/// The cover that a largest flow is.
pub(super) fn read(network: &Network<'_>, levels: &Levels) -> Cover {
    let rows = (0..network.rows.count()).map(|row| pass_on(network, row)).collect();
    Cover { minimum: minimum(network), antichain: antichain(network, levels), rows }
}

/// What is new.
pub(super) fn minimum(network: &Network<'_>) -> u64 {
    u64::try_from(network.new_memory()).expect("the least memory fits in 64 bits")
}

/// The antichain, in the order of its items.
pub(super) fn antichain(network: &Network<'_>, levels: &Levels) -> Vec<u32> {
    let items = network.items.items();
    let chosen = |&item: &usize| {
        // Who never gives has all that it takes to spare.
        let gives = !items[item].freed || levels.of[item] != NEVER;
        let takes = network.rows.position(item) >= levels.reached[network.rows.row(item)];
        items[item].weight > 0 && gives && !takes
    };
    (0..items.len()).filter(chosen).map(|item| item as u32).collect()
}

/// A row, with all that flows into it at the first item that may have it.
fn pass_on(network: &Network<'_>, row: usize) -> Row {
    let positions = network.rows.positions(row);
    let items = network.rows.items(row).to_vec();
    let flows = positions.clone().flat_map(|position| &network.taken[position as usize]);
    let mut flows: Vec<(u32, u64)> = flows.map(|flow| (flow.from, flow.amount)).collect();
    flows.sort_unstable();
    let mut entries = vec![Vec::new(); items.len()];
    for flows in flows.chunk_by(|one, other| one.0 == other.0) {
        let amount = flows.iter().map(|flow| flow.1).sum();
        if amount > 0 {
            let from = flows[0].0;
            let entry = network.entry(from as usize, positions.clone()) - positions.start;
            entries[entry as usize].push(Entry { from, amount });
        }
    }
    let taken = positions.map(|at| {
        let weight = network.items.items()[network.rows.item(at)].weight;
        weight - network.wanted[at as usize]
    });
    Row { entries, taken: taken.collect(), items }
}
