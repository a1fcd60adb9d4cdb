//! Where the blocks lie: which of them hold an address, or a byte of physical memory, one after the
//! other, and whether the earlier was gone by then.
//!
//! The addresses are walked from below, with the set of blocks that ever lay at the current one, in the
//! order of their allocation. Only neighbours in that set are compared: a block that was gone before its
//! neighbour came was gone before all that came later. And only neighbours among the blocks with users
//! make pairs: completed-before is transitive, so where `a`, `b`, `c` with users held an address in turn,
//! and all users of `a` have completed before any of `b` starts, and likewise `b` and `c`, any one user
//! of `b` carries the order from `a` to `c`. A block with users outside may have no node to carry it,
//! but nothing with users may follow such a block.
//!
//! Physical memory is walked likewise where it was bound at the capture's end. Three things differ,
//! because the memory came when the capture had ended. A block that nothing uses and that was freed had
//! no memory at all: it is left out. When the host freed another says nothing but what its users are, and
//! they are judged: it may have been after the next block's allocation, with no work in between. And of
//! blocks from elsewhere only those count that still stand at the end: what was freed by then never met
//! the capture's work.

use super::bindings::{Bindings, Part};
use super::history::{History, StandingHistory, NEVER};
use super::lists::Lists;
use super::members::Members;
use super::users::Users;
use super::violation::{Common, Violation};

/// Two blocks of the capture with users, one handed out where the other had been.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub earlier: u32,
    pub later: u32,
    pub common: Common,
}

/// Where a block begins to lie, and where it ends.
type Stretch = (u64, u64, u32);

/// The first thing found wrong.
#[derive(Default)]
pub(super) struct Wrong {
    /// When it came about: an entry of the journal.
    pub entry: u32,
    pub violation: Option<Violation>,
}

impl Wrong {
    fn found(&mut self, entry: u32, violation: impl FnOnce() -> Violation) {
        if self.violation.is_none() || entry < self.entry {
            *self = Self { entry, violation: Some(violation()) };
        }
    }
}

/// All pairs, by their later blocks, and the first thing that is wrong with where blocks lie.
pub(super) fn read(
    history: &History,
    users: &Users<'_>,
    bindings: Option<&Bindings>,
) -> (Vec<Pair>, Wrong) {
    let mut places = Places { history, users, pairs: Vec::new(), wrong: Wrong::default() };
    let blocks = history.blocks.iter().zip(0..);
    let stretches: Vec<Stretch> =
        blocks.map(|(block, number)| (block.place.address, block.end, number)).collect();
    places.walk(&stretches, |_| Common::Address);
    let standing = history.standing.iter().zip(0..);
    let standing: Vec<Stretch> =
        standing.map(|(block, number)| (block.place.address, block.end, number)).collect();
    places.keep_clear(&stretches, &standing, |_| Common::Address);
    if let Some(bindings) = bindings {
        places.read_memory(bindings);
    }
    let Places { pairs, wrong, .. } = places;
    (sorted(history.blocks.len(), &pairs), wrong)
}

/// The pairs by their later blocks, each once: at addresses where it is there.
fn sorted(blocks: usize, pairs: &[Pair]) -> Vec<Pair> {
    // For each later block the first of its pairs, and for each pair the next of them.
    let mut first = vec![NEVER; blocks];
    let mut next = vec![NEVER; pairs.len()];
    for (index, pair) in pairs.iter().enumerate().rev() {
        next[index] = std::mem::replace(&mut first[pair.later as usize], index as u32);
    }
    let mut known = vec![NEVER; blocks];
    let mut sorted = Vec::with_capacity(pairs.len());
    for (later, mut index) in first.into_iter().enumerate() {
        while let Some(&pair) = pairs.get(index as usize) {
            let known = &mut known[pair.earlier as usize];
            if std::mem::replace(known, later as u32) != later as u32 {
                sorted.push(pair);
            }
            index = next[index as usize];
        }
    }
    sorted
}

struct Places<'a, 'u> {
    history: &'a History,
    users: &'a Users<'u>,
    pairs: Vec<Pair>,
    wrong: Wrong,
}

impl Places<'_, '_> {
    /// Judges the blocks that these stretches belong to, by addresses or in one memory.
    fn walk(&mut self, stretches: &[Stretch], common: impl Fn(u64) -> Common) {
        let blocks = &self.history.blocks;
        let Self { users, pairs, wrong, .. } = self;
        // The memory comes when the capture has ended.
        let is_gone = |earlier: u32, later: u32, common: Common| match common {
            Common::Address => blocks[earlier as usize].freed <= blocks[later as usize].allocated,
            Common::Memory { .. } => blocks[earlier as usize].freed != NEVER,
        };
        let mut met = |earlier: u32, later: u32, at: u64, with_users: bool| {
            let common = common(at);
            let [first, second] = [earlier, later].map(|it| &blocks[it as usize]);
            if earlier == later {
                let block = second.place;
                wrong.found(second.allocated, || Violation::Folded { block, common });
            } else if !is_gone(earlier, later, common) {
                let (earlier, later) = (first.place, second.place);
                wrong.found(second.allocated, || Violation::LiveOverlap { earlier, later, common });
            } else if with_users && first.outside {
                let (earlier, later) = (first.place, second.place);
                wrong.found(second.allocated, || Violation::OutsideUse { earlier, later, common });
            } else if with_users {
                pairs.push(Pair { earlier, later, common });
            }
        };
        let used = stretches.iter().filter(|it| users.any(it.2));
        neighbours(blocks.len(), used.clone(), |one, other, at| met(one, other, at, true));
        if used.count() < stretches.len() {
            neighbours(blocks.len(), stretches.iter(), |one, other, at| met(one, other, at, false));
        }
    }

    /// Keeps blocks and standing blocks clear of one another.
    fn keep_clear(
        &mut self,
        stretches: &[Stretch],
        standing: &[Stretch],
        common: impl Fn(u64) -> Common,
    ) {
        if standing.is_empty() {
            return;
        }
        let mut sorted = standing.to_vec();
        sorted.sort_unstable();
        // The furthest end of each and all before it.
        let mut furthest = 0;
        let ends = sorted.iter().map(|&(_, end, _)| {
            furthest = end.max(furthest);
            furthest
        });
        let ends: Vec<u64> = ends.collect();
        for &(start, end, number) in stretches.iter().filter(|it| it.0 < it.1) {
            let block = &self.history.blocks[number as usize];
            let below = sorted.partition_point(|it| it.0 < end);
            for at in (0..below).rev().take_while(|&at| ends[at] > start) {
                let (from, to, stands) = sorted[at];
                let StandingHistory { place: standing, entered, settled, .. } =
                    self.history.standing[stands as usize];
                let common = common(start.max(from));
                let ever = !matches!(common, Common::Address);
                let meet = entered < block.freed && block.allocated < settled && !ever;
                let stays = settled == NEVER && (ever || self.users.any(number));
                if from < to && to > start && (meet || stays) {
                    let entry = if meet { block.allocated.max(entered) } else { NEVER };
                    let block = block.place;
                    self.wrong.found(entry, || Violation::Standing { standing, block, common });
                }
            }
        }
    }

    fn read_memory(&mut self, bindings: &Bindings) {
        let History { blocks, standing, .. } = self.history;
        let mut ours: Vec<(u32, Stretch)> = Vec::new();
        for (block, number) in blocks.iter().zip(0..) {
            let lasts = block.freed == NEVER;
            if !lasts && !self.users.any(number) {
                continue;
            }
            for Part { memory, start, end } in bindings.parts(block.place.address, block.end) {
                let is = &bindings.memories[memory as usize];
                // No node can tell when a use outside the capture is over.
                if is.shared && (lasts || block.outside) {
                    let (block, memory) = (block.place, is.number);
                    let entry = blocks[number as usize].allocated;
                    self.wrong.found(entry, || Violation::Overwritten { block, memory });
                }
                ours.push((memory, (start, end, number)));
            }
        }
        let theirs = standing.iter().zip(0..).filter(|(it, _)| it.settled == NEVER);
        let theirs: Vec<(u32, Stretch)> = theirs
            .flat_map(|(it, number)| {
                let parts = bindings.parts(it.place.address, it.end);
                parts.map(move |part| (part.memory, (part.start, part.end, number)))
            })
            .collect();
        let count = bindings.memories.len();
        let [ours, theirs] = [ours, theirs].map(|it| Lists::new(count, it.iter().copied()));
        for (memory, is) in bindings.memories.iter().enumerate() {
            let common = |offset| Common::Memory { memory: is.number, offset };
            let (ours, theirs) = (ours.of(memory as u32), theirs.of(memory as u32));
            self.walk(ours, common);
            self.keep_clear(ours, theirs, common);
        }
    }
}

/// Calls `met` for each two blocks that hold an address directly one after the other, the earlier
/// one first, and where; for some more than once. A block that holds an address twice meets itself.
fn neighbours<'a>(
    count: usize,
    stretches: impl Iterator<Item = &'a Stretch>,
    mut met: impl FnMut(u32, u32, u64),
) {
    // By address; at one address blocks end before others begin.
    let end_at = |at: u64, begins: bool, block: u32| {
        u128::from(at) << 64 | u128::from(begins) << 32 | u128::from(block)
    };
    let mut ends: Vec<u128> = Vec::with_capacity(2 * stretches.size_hint().1.unwrap_or(0));
    for &(start, end, block) in stretches.filter(|it| it.0 < it.1) {
        ends.extend([end_at(start, true, block), end_at(end, false, block)]);
    }
    ends.sort_unstable();
    let mut here = Members::new(count);
    for ends in ends.chunk_by(|one, other| one >> 64 == other >> 64) {
        let at = (ends[0] >> 64) as u64;
        let ends = ends.iter().map(|&end| (end as u32, end as u64 >> 32 != 0));
        for (block, begins) in ends.clone() {
            if !begins {
                here.remove(block);
            } else if !here.insert(block) {
                met(block, block, at);
            }
        }
        for (block, begins) in ends {
            match (here.before(block), here.after(block)) {
                (Some(before), Some(after)) if !begins => met(before, after, at),
                _ if !begins => {}
                (before, after) => {
                    before.into_iter().for_each(|before| met(before, block, at));
                    after.into_iter().for_each(|after| met(block, after, at));
                }
            }
        }
    }
}
