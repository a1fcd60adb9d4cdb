//! The best of several orders, and of what small changes make of them.

use std::cmp::Reverse;

use super::order::{Conflicts, Order};
use super::pack::{Fit, Packed, Packer};
use crate::random::Random;

/// The most placed blocks that are looked at for the sake of something better.
const STEPS: u64 = 100_000_000;
/// The most placed blocks that are looked at times the number of blocks: a look costs more where there are many.
const STEPS_BY_BLOCKS: u64 = 100_000_000_000;
/// The most placed blocks that are looked at for each pair of blocks, so that a small capture is done soon.
const STEPS_PER_PAIR: u64 = 1_000;
/// The most placed blocks that one search looks at, however long the host has it searched: about five seconds' worth,
/// and a layout takes two searches at most.
const MOST_STEPS: u64 = 2_000_000_000;
/// The most placed blocks that are looked at where the host has not asked for a layout and a capture's first request
/// waits for it.
const QUICK_STEPS: u64 = 300_000;
/// The most placed blocks that are looked at for a settled layout.
const SETTLED_STEPS: u64 = 100_000;
/// After so many changes in vain another order is taken up.
const PATIENCE: u32 = 300;

/// An order that has been tried.
#[derive(Clone, Debug)]
struct Tried {
    packed: Packed,
    fit: Fit,
    order: Vec<u32>,
}

/// How far is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// No more is searched for once the blocks take no more than this, in bytes.
    pub(super) enough: u64,
    /// So many placed blocks are looked at, at most, for the sake of something better.
    pub(super) steps: u64,
    /// Whether an order is given up as soon as it takes no less than the best so far.
    gives_up: bool,
}

impl Search {
    /// `times` as many looks as are good for a capture's first request, at most [`MOST_STEPS`], unless no layout takes
    /// less.
    pub(super) fn thorough(order: &Order<'_>, conflicts: &Conflicts, times: u64) -> Self {
        let count = order.len() as u64;
        let bounds = [count * count * STEPS_PER_PAIR, STEPS_BY_BLOCKS / count.max(1)];
        let steps = bounds.into_iter().fold(STEPS, u64::min).saturating_mul(times).min(MOST_STEPS);
        let least = orders(order, conflicts).map(|tried| conflicts.least(order, &tried));
        Self { enough: least.fold(0, u64::max), steps, gives_up: false }
    }

    /// As much as no capture's first request is slowed by, for memory that comes in units of so many bytes.
    pub(super) fn quick(order: &Order<'_>, least: u64, unit: u64) -> Self {
        let enough = least.max(order.most_at_once()).next_multiple_of(unit);
        Self { enough, steps: QUICK_STEPS, gives_up: true }
    }
}

/// Offsets of the blocks.
pub(super) fn best(order: &Order<'_>, conflicts: &Conflicts, search: Search) -> Vec<u64> {
    let mut packer = Packer::new(order, conflicts);
    let mut tried: Vec<Tried> = Vec::new();
    let (mut taken, mut offsets) = (u64::MAX, Vec::new());
    let Search { enough: least, steps: until, gives_up } = search;
    for order in orders(order, conflicts) {
        if taken <= least || (taken < u64::MAX && packer.steps >= until) {
            break;
        }
        for fit in [Fit::First, Fit::Best] {
            if taken <= least || (taken < u64::MAX && packer.steps >= until) {
                continue;
            }
            let below = if gives_up { taken } else { u64::MAX };
            let packed = packer.pack(&order, fit, least, (u64::MAX, below));
            let Some(packed) = packed else { continue };
            if packed.taken < taken {
                (taken, offsets) = (packed.taken, packer.offsets.clone());
            }
            tried.push(Tried { packed, fit, order: order.clone() });
        }
    }
    tried.sort_by_key(|tried| (tried.packed.taken, tried.packed.above));
    let mut random = Random::new(0);
    // The better ones more often: the best, the two best, the three best, and so on.
    let starts = (1..=tried.len()).flat_map(|most| 0..most).cycle();
    for start in starts {
        if taken <= least || packer.steps >= until {
            break;
        }
        let mut current = tried[start].clone();
        // Somewhat less than the best so far: what cannot be reached tells good from better badly.
        let aim = least + (taken - least) / 4 * 3;
        let packed = packer.pack(&current.order, current.fit, aim, (u64::MAX, u64::MAX));
        current.packed = packed.unwrap_or(current.packed);
        let mut at = packer.offsets.clone();
        let mut vain = 0;
        while vain < PATIENCE && packer.steps < until && taken > aim {
            let changed = change(&current.order, &packer, &at, aim, &mut random);
            vain += 1;
            let packed = packer.pack(&changed, current.fit, aim, (current.packed.above, u64::MAX));
            let Some(packed) = packed else { continue };
            if packed.above < current.packed.above {
                vain = 0;
            }
            (current.packed, current.order) = (packed, changed);
            at.copy_from_slice(&packer.offsets);
            if packed.taken < taken {
                taken = packed.taken;
                offsets.copy_from_slice(&at);
            }
        }
        tried[start] = current;
        tried.sort_by_key(|tried| tried.packed.taken);
    }
    offsets
}

/// Offsets at which the blocks take no more than `most`, in bytes, if such are found soon. The blocks are placed as they
/// are allocated, but for those that would lie too high, which are placed first: up to any block a capture has taken
/// little more than without a layout. (David Joslin and David Clements, "Squeaky Wheel Optimization", 1999.)
pub(super) fn settled(order: &Order<'_>, conflicts: &Conflicts, most: u64) -> Option<Vec<u64>> {
    let mut packer = Packer::new(order, conflicts);
    let mut blocks: Vec<u32> = (0..order.len() as u32).collect();
    while packer.steps < SETTLED_STEPS {
        if packer.pack(&blocks, Fit::First, most, (0, u64::MAX)).is_some() {
            return Some(packer.offsets);
        }
        let high = packer.placed();
        if high == 0 {
            // It takes more by itself.
            return None;
        }
        blocks[..=high].rotate_right(1);
    }
    None
}

/// The orders to begin with, each sorted when it is asked for; of equals in each the block that was allocated first.
/// The ones that are the best most often come first: a short search may not come to the others.
fn orders<'a>(
    blocks: &'a Order<'_>,
    conflicts: &Conflicts,
) -> impl Iterator<Item = Vec<u32>> + use<'a> {
    let bytes = blocks.all_bytes();
    let beside = (0..bytes.len()).map(|block| {
        conflicts.of(block).iter().fold((0u128, 0), |(others, sum): (_, u128), other| {
            (others + 1, sum + u128::from(bytes[other]))
        })
    });
    // How many blocks each may not lie over, and what they take.
    let beside: Vec<(u128, u128)> = beside.collect();
    (0..9).map(move |number| {
        let mut order: Vec<u32> = (0..bytes.len() as u32).collect();
        let key = |&block: &u32| {
            let (own, (others, beside)) =
                (u128::from(bytes[block as usize]), beside[block as usize]);
            Reverse(match number {
                1 => ((beside + own) * own, own),
                3 => (own, others),
                4 => (beside + own, own),
                5 => (own * others, own),
                _ => (others, own),
            })
        };
        match number {
            // The stages of a pipeline lie in blocks of one size, and each stream's take turns.
            0 => order.sort_by_key(|&block| {
                (Reverse(bytes[block as usize]), blocks.blocks()[block as usize].stream)
            }),
            2 => order.sort_by_key(|&block| blocks.freed(block as usize)),
            1 | 3..=6 => order.sort_by_cached_key(key),
            7 => order.reverse(),
            _ => {}
        }
        order
    })
}

/// An order in which some block that lies too high comes earlier.
fn change(
    order: &[u32],
    packer: &Packer<'_>,
    at: &[u64],
    aim: u64,
    random: &mut Random,
) -> Vec<u32> {
    let mut changed = order.to_vec();
    let count = order.len() as u32;
    for _ in 0..1 + random.below(2) {
        let mut from = random.below(count) as usize;
        if random.chance(0.7) {
            let high = |block: u32| at[block as usize] + packer.bytes(block) > aim;
            let rows = (from..changed.len()).chain(0..from);
            from = rows.into_iter().find(|&row| high(changed[row])).unwrap_or(from);
        }
        let to = random.below(from as u32 + 1) as usize;
        let block = changed.remove(from);
        changed.insert(to, block);
    }
    changed
}
