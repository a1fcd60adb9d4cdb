//! Values by address range.

use std::collections::BTreeMap;

use smallvec::SmallVec;

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
