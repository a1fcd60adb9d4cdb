//! The best of several orders, and of what small changes make of them.

use std::cmp::Reverse;

use super::order::{Conflicts, Order};
use super::pack::{Fit, Packer};
use crate::random::Random;

/// The most placed blocks that are looked at for the sake of something better.
const STEPS: u64 = 100_000_000;
/// The same, for each pair of blocks: what is small is done soon.
const STEPS_PER_PAIR: u64 = 1_000;
/// After so many changes in vain another order is taken up.
const PATIENCE: u32 = 300;

/// An order that has been tried.
#[derive(Clone, Debug)]
struct Tried {
    taken: u64,
    fit: Fit,
    order: Vec<u32>,
}

/// Offsets of the blocks.
pub(super) fn best(order: &Order<'_>, conflicts: &Conflicts) -> Vec<u64> {
    let count = order.len() as u64;
    if count == 0 {
        return Vec::new();
    }
    let least = order.least();
    let mut packer = Packer::new(order, conflicts);
    let mut tried: Vec<Tried> = Vec::new();
    let (mut taken, mut offsets) = (u64::MAX, Vec::new());
    for order in orders(&packer, conflicts) {
        for fit in [Fit::First, Fit::Best] {
            let Some(now) = packer.pack(&order, fit, u64::MAX) else { continue };
            if now < taken {
                (taken, offsets) = (now, packer.offsets.clone());
            }
            tried.push(Tried { taken: now, fit, order: order.clone() });
        }
    }
    tried.sort_by_key(|tried| tried.taken);
    let mut random = Random::new(0);
    let until = packer.steps + STEPS.min(count * count * STEPS_PER_PAIR);
    // The better ones more often: the best, the two best, the three best, and so on.
    let starts = (1..=tried.len()).flat_map(|most| 0..most).cycle();
    for start in starts {
        if taken <= least || packer.steps >= until {
            break;
        }
        let mut current = tried[start].clone();
        let Some(now) = packer.pack(&current.order, current.fit, u64::MAX) else { break };
        current.taken = now;
        let mut at = packer.offsets.clone();
        let mut vain = 0;
        while vain < PATIENCE && packer.steps < until && taken > least {
            let changed = change(&current.order, &packer, &at, &mut random);
            vain += 1;
            let Some(now) = packer.pack(&changed, current.fit, current.taken) else { continue };
            if now < current.taken {
                vain = 0;
            }
            (current.taken, current.order) = (now, changed);
            at.copy_from_slice(&packer.offsets);
            if now < taken {
                taken = now;
                offsets.copy_from_slice(&at);
            }
        }
        tried[start] = current;
    }
    offsets
}

/// The orders to begin with; of equals in each the block that was allocated first.
fn orders(packer: &Packer<'_>, conflicts: &Conflicts) -> Vec<Vec<u32>> {
    let count = packer.offsets.len() as u32;
    let (mut degree, mut beside) = (Vec::new(), Vec::new());
    for block in 0..count {
        let row = conflicts.of(block as usize).iter();
        degree.push(row.clone().count() as u128);
        beside.push(row.map(|other| packer.bytes(other as u32)).sum::<u64>());
    }
    let bytes = |block: &u32| u128::from(packer.bytes(*block));
    let allocated: Vec<u32> = (0..count).collect();
    let sorted = |key: &dyn Fn(&u32) -> (u128, u128)| {
        let mut order = allocated.clone();
        order.sort_by_cached_key(|block| Reverse(key(block)));
        order
    };
    vec![
        sorted(&|block| (bytes(block), degree[*block as usize])),
        sorted(&|block| (bytes(block) * degree[*block as usize], bytes(block))),
        sorted(&|block| (degree[*block as usize], bytes(block))),
        sorted(&|block| (u128::from(beside[*block as usize]) + bytes(block), bytes(block))),
        sorted(&|block| {
            let beside = u128::from(beside[*block as usize]) + bytes(block);
            (beside * bytes(block), bytes(block))
        }),
        allocated.iter().rev().copied().collect(),
        allocated,
    ]
}

/// An order in which some block that lies high comes earlier.
fn change(order: &[u32], packer: &Packer<'_>, at: &[u64], random: &mut Random) -> Vec<u32> {
    let mut changed = order.to_vec();
    let end = |block: u32| at[block as usize] + packer.bytes(block);
    let top = order.iter().map(|&block| end(block)).max().unwrap_or(0);
    let count = order.len() as u32;
    for _ in 0..1 + random.below(2) {
        // Mostly one of those that reach the top: they are what must come down.
        let highest = random.chance(0.7);
        let mut from = random.below(count) as usize;
        if highest {
            let skip = random.below(count) as usize;
            let rows = (skip..changed.len()).chain(0..skip);
            from = rows.into_iter().find(|&row| end(changed[row]) == top).unwrap_or(from);
        }
        let to = random.below(from as u32 + 1) as usize;
        let block = changed.remove(from);
        changed.insert(to, block);
    }
    changed
}
