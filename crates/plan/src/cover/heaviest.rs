//! The heaviest antichain alone, of items that are parted bit by bit.
//!
//! A part of an item needs no more than the whole, and knows no less: it precedes what the whole does, and what
//! precedes the whole precedes it. So what flowed still may, between parts of the same items, and only what can
//! flow besides has to be found. The antichain does not tell how the flow was found: what spare memory can reach
//! is the same in every largest flow (Picard and Queyranne 1980, the least of all least cuts).

use super::network::Network;
use super::{cut, flow, greedy, Items};

/// A heaviest antichain, and a flow that proves it.
#[derive(Clone, Debug, Default)]
pub struct Heaviest {
    /// What it weighs: the least memory for the items.
    pub minimum: u64,
    /// Its items, ascending: the same as [`Cover::antichain`](super::Cover::antichain).
    pub antichain: Vec<u32>,
    /// Who passes memory on to whom, and how much. What is not passed on is new memory: the minimum in all.
    pub flows: Vec<(u32, u32, u64)>,
}

impl Heaviest {
    /// Of these items.
    ///
    /// Takes as long as [`Cover::new`](super::Cover::new), and panics as it does.
    pub fn of(items: &Items) -> Self {
        let mut network = Network::new(items);
        greedy::fill(&mut network);
        Self::read(network)
    }

    /// Finds the heaviest antichain of `items` that are parts of the items this one was found for, starting from its
    /// flows. `parts` maps each of the old items to the rows of its parts. A part may need no more than its whole
    /// needed, may know no less, and the parts of a whole weigh as much together.
    ///
    /// Walks each item and row once; then it takes as many phases as the flow that is still missing needs.
    pub fn of_parts<'a>(&self, items: &Items, parts: impl Fn(u32) -> &'a [u32]) -> Self {
        let mut network = Network::new(items);
        for &(from, to, mut amount) in &self.flows {
            for &to in parts(to) {
                for &from in parts(from) {
                    amount -=
                        network.pass(from as usize, network.rows.position(to as usize), amount);
                }
            }
        }
        Self::read(network)
    }

    fn read(mut network: Network<'_>) -> Self {
        let levels = flow::maximise(&mut network);
        debug_assert!(
            cut::read(&network, &levels).is_proven(network.items),
            "the flow and the cut agree"
        );
        let rows = &network.rows;
        let flows = (0..).zip(&network.taken).flat_map(|(position, taken)| {
            let to = rows.item(position) as u32;
            taken.iter().map(move |flow| (flow.from, to, flow.amount))
        });
        Self {
            minimum: cut::minimum(&network),
            antichain: cut::antichain(&network, &levels),
            flows: flows.collect(),
        }
    }
}
