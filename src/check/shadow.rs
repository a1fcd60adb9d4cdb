//! The address map, walked in host order, and the pairs of blocks that share an address.
//!
//! Only neighbours are judged. Completed-before is transitive, and blocks without users are left
//! out of the map: where `a`, `b`, `c` with users held an address in turn, and all users of `a`
//! have completed before any of `b` starts, and likewise `b` and `c`, then any one user of `b`
//! carries the order from `a` to `c`. A block with users outside may have no node to carry it, but
//! nothing with users may follow such a block.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::history::{Event, History};
use super::range_map::RangeMap;
use super::users::Attribution;
use super::violation::{Common, Violation};

/// Two blocks of the capture with users, one handed out where the other had been.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub earlier: u32,
    pub later: u32,
}

/// A part of the address range.
pub(super) struct Range {
    end: u64,
    /// The last block with users here.
    pub block: u32,
    /// Whether it is not freed yet.
    live: bool,
}

/// Parts that one block lay in before another came: start, end, block.
pub(super) type Former = Vec<(u64, u64, u32)>;

/// The last block with users at each address.
#[derive(Default)]
pub(super) struct Blocks {
    /// By start.
    ranges: BTreeMap<u64, Range>,
}

impl Blocks {
    /// What overlaps `start..end`, the last part first.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Range)> + '_ {
        let below = self.ranges.range(..end).rev().map(|(&at, range)| (at, range));
        below.take_while(move |(_, range)| start < end && range.end > start)
    }

    /// Fills `former` with the parts that overlap `start..end`, and answers the last block there
    /// that is live.
    pub fn read(&self, start: u64, end: u64, former: &mut Former) -> Option<u32> {
        former.clear();
        let mut live = None;
        for (at, range) in self.overlapping(start, end) {
            former.push((at, range.end, range.block));
            live = live.or(range.live.then_some(range.block));
        }
        live
    }

    /// Puts a live block where these parts overlap it, which count as freed from now on.
    pub fn put(&mut self, start: u64, end: u64, block: u32, former: &[(u64, u64, u32)]) {
        for &(at, former_end, former_block) in former {
            if former_end > end {
                let upper = Range { end: former_end, block: former_block, live: false };
                self.ranges.insert(end, upper);
            }
            if at > start {
                self.ranges.remove(&at);
            } else if at < start {
                if let Some(lower) = self.ranges.get_mut(&at) {
                    lower.end = start;
                }
            }
        }
        self.ranges.insert(start, Range { end, block, live: true });
    }

    pub fn free(&mut self, start: u64) {
        if let Some(range) = self.ranges.get_mut(&start) {
            range.live = false;
        }
    }
}

/// Whether anything may use a block.
pub(super) fn has_users(history: &History, attribution: &Attribution<'_>, block: u32) -> bool {
    history.blocks[block as usize].outside || !attribution.users[block as usize].is_empty()
}

/// Walks the journal's events and hands each pair to `judge`, which may stop the walk. What it
/// finds by itself, it answers.
pub(super) fn walk(
    history: &History,
    attribution: &Attribution<'_>,
    mut judge: impl FnMut(Pair) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let blocks = &history.blocks;
    let used = |block: u32| has_users(history, attribution, block);
    let mut exposed = Blocks::default();
    // Live blocks without users.
    let mut idle: RangeMap<u32> = RangeMap::new();
    let last_live = |exposed: Option<u32>, idle: &RangeMap<u32>, start: u64, end: u64| {
        let idle = idle.overlapping(start, end).next().copied();
        let found = [exposed, idle].into_iter().flatten();
        found.max_by_key(|&block| blocks[block as usize].place.address)
    };
    let mut former = Former::new();
    let mut standing: RangeMap<SmallVec<[u32; 2]>> = RangeMap::new();
    let no_standing = SmallVec::new();
    let mut settled = vec![false; history.standing.len()];
    for &event in &history.events {
        match event {
            Event::Allocate(number) => {
                let block = &blocks[number as usize];
                let (start, end) = (block.place.address, block.end);
                let live = exposed.read(start, end, &mut former);
                if let Some(other) = last_live(live, &idle, start, end) {
                    return Err(Violation::LiveOverlap {
                        earlier: blocks[other as usize].place,
                        later: block.place,
                        common: Common::Address,
                    });
                }
                if let Some(&other) = standing.overlapping(start, end).flatten().next() {
                    return Err(Violation::Standing {
                        standing: history.standing[other as usize].place,
                        block: block.place,
                        common: Common::Address,
                    });
                }
                if start == end {
                    continue;
                }
                if !used(number) {
                    idle.replace(start, end, number);
                    continue;
                }
                let mut earlier: SmallVec<[u32; 4]> = former.iter().map(|it| it.2).collect();
                if earlier.len() > 1 {
                    earlier.sort_unstable();
                    earlier.dedup();
                }
                for earlier in earlier {
                    if blocks[earlier as usize].outside {
                        return Err(Violation::OutsideUse {
                            earlier: blocks[earlier as usize].place,
                            later: block.place,
                            common: Common::Address,
                        });
                    }
                    judge(Pair { earlier, later: number })?;
                }
                exposed.put(start, end, number, &former);
            }
            Event::Free(number) => {
                let block = &blocks[number as usize];
                let (start, end) = (block.place.address, block.end);
                if start == end {
                    continue;
                }
                if used(number) {
                    exposed.free(start);
                } else {
                    idle.remove(start, end);
                }
            }
            Event::Standing(number) => {
                let block = &history.standing[number as usize];
                let (start, end) = (block.place.address, block.end);
                let live = exposed.read(start, end, &mut former);
                if let Some(other) = last_live(live, &idle, start, end) {
                    return Err(Violation::Standing {
                        standing: block.place,
                        block: blocks[other as usize].place,
                        common: Common::Address,
                    });
                }
                standing.change(start, end, &no_standing, |here| here.push(number));
            }
            Event::Settled(number) => {
                settled[number as usize] = true;
                let block = &history.standing[number as usize];
                standing.change(block.place.address, block.end, &no_standing, |here| {
                    here.retain(|other| *other != number);
                });
            }
        }
    }
    // A launch of the graph would touch what still stands where this capture once had blocks.
    for (block, _) in history.standing.iter().zip(settled).filter(|(_, gone)| !gone) {
        let mut here = exposed.overlapping(block.place.address, block.end);
        if let Some((_, other)) = here.next() {
            return Err(Violation::Standing {
                standing: block.place,
                block: blocks[other.block as usize].place,
                common: Common::Address,
            });
        }
    }
    Ok(())
}
