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
use super::users::Attribution;
use super::violation::Violation;

/// Address ranges that do not overlap, each with a value.
pub(crate) struct RangeMap<V> {
    /// By start: the end and the value.
    ranges: BTreeMap<u64, (u64, V)>,
}

impl<V: Clone> RangeMap<V> {
    pub fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// The ranges that overlap `start..end`, the last one first.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &V> + '_ {
        let below = self.ranges.range(..end).rev();
        below
            .take_while(move |(_, (range_end, _))| start < end && *range_end > start)
            .map(|(_, (_, value))| value)
    }

    /// Makes no range reach across `address`.
    fn split(&mut self, address: u64) {
        if let Some((_, range)) = self.ranges.range_mut(..address).next_back() {
            if range.0 > address {
                let upper = (range.0, range.1.clone());
                range.0 = address;
                self.ranges.insert(address, upper);
            }
        }
    }

    pub fn remove(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        let inside: SmallVec<[u64; 4]> = self.ranges.range(start..end).map(|(&at, _)| at).collect();
        for at in inside {
            self.ranges.remove(&at);
        }
    }

    pub fn replace(&mut self, start: u64, end: u64, value: V) {
        if start < end {
            self.remove(start, end);
            self.ranges.insert(start, (end, value));
        }
    }

    /// Changes the value of every part of `start..end`, those without one included.
    pub fn change(&mut self, start: u64, end: u64, empty: &V, change: impl Fn(&mut V)) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let inside = self.ranges.range(start..end);
        let inside: SmallVec<[(u64, u64); 4]> = inside.map(|(&at, range)| (at, range.0)).collect();
        let mut gap = start;
        for (at, range_end) in inside.into_iter().chain([(end, end)]) {
            if gap < at {
                self.ranges.insert(gap, (at, empty.clone()));
            }
            gap = range_end;
        }
        for (_, (_, value)) in self.ranges.range_mut(start..end) {
            change(value);
        }
    }
}

/// Two blocks of the capture with users, one handed out where the other had been.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub earlier: u32,
    pub later: u32,
}

/// Walks the journal's events and hands each pair to `judge`, which may stop the walk. What it
/// finds by itself, it answers.
pub(super) fn walk(
    history: &History,
    attribution: &Attribution,
    mut judge: impl FnMut(Pair) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let blocks = &history.blocks;
    let used = |block: u32| {
        blocks[block as usize].outside || !attribution.users[block as usize].is_empty()
    };
    let mut live: RangeMap<u32> = RangeMap::new();
    // The last block with users at each address.
    let mut exposed: RangeMap<u32> = RangeMap::new();
    let mut standing: RangeMap<SmallVec<[u32; 2]>> = RangeMap::new();
    let no_standing = SmallVec::new();
    let mut settled = vec![false; history.standing.len()];
    for &event in &history.events {
        match event {
            Event::Allocate(number) => {
                let block = &blocks[number as usize];
                let (start, end) = (block.place.address, block.end);
                if let Some(&other) = live.overlapping(start, end).next() {
                    return Err(Violation::LiveOverlap {
                        earlier: blocks[other as usize].place,
                        later: block.place,
                    });
                }
                if let Some(&other) = standing.overlapping(start, end).flatten().next() {
                    return Err(Violation::Standing {
                        standing: history.standing[other as usize].place,
                        block: block.place,
                    });
                }
                live.replace(start, end, number);
                if !used(number) {
                    continue;
                }
                let earlier = exposed.overlapping(start, end).copied();
                let mut earlier: SmallVec<[u32; 4]> = earlier.collect();
                earlier.sort_unstable();
                earlier.dedup();
                for earlier in earlier {
                    if blocks[earlier as usize].outside {
                        return Err(Violation::OutsideUse {
                            earlier: blocks[earlier as usize].place,
                            later: block.place,
                        });
                    }
                    judge(Pair { earlier, later: number })?;
                }
                exposed.replace(start, end, number);
            }
            Event::Free(number) => {
                let block = &blocks[number as usize];
                if block.place.address < block.end {
                    live.remove(block.place.address, block.end);
                }
            }
            Event::Standing(number) => {
                let block = &history.standing[number as usize];
                let (start, end) = (block.place.address, block.end);
                if let Some(&other) = live.overlapping(start, end).next() {
                    return Err(Violation::Standing {
                        standing: block.place,
                        block: blocks[other as usize].place,
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
        if let Some(&other) = here.next() {
            return Err(Violation::Standing {
                standing: block.place,
                block: blocks[other as usize].place,
            });
        }
    }
    Ok(())
}
