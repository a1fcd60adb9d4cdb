//! Which number each granule of physical memory holds.
//!
//! Kept by physical memory, not by address: two addresses mapped to the same memory see each
//! other's writes. Memory that was never written reads zero.

use std::collections::BTreeMap;

use super::memory::{Stretch, GRANULE};

/// Where a written stretch begins: physical memory, then offset.
type Place = (u32, u64);

#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Disjoint stretches, each with its end and its number.
    written: BTreeMap<Place, (u64, u64)>,
}

impl Contents {
    pub(super) fn write(&mut self, to: Stretch, number: u64) {
        let end = to.offset + to.bytes;
        self.split(to.physical, to.offset);
        self.split(to.physical, end);
        let covered: Vec<Place> = self
            .written
            .range((to.physical, to.offset)..(to.physical, end))
            .map(|(place, _)| *place)
            .collect();
        for place in covered {
            self.written.remove(&place);
        }
        self.written.insert((to.physical, to.offset), (end, number));
    }

    /// Calls `each` with every run of equal numbers in a stretch, and its number of granules.
    pub(super) fn read(&self, from: Stretch, mut each: impl FnMut(u64, u64)) {
        let end = from.offset + from.bytes;
        let mut at = from.offset;
        let before = self
            .written
            .range(..(from.physical, from.offset))
            .next_back()
            .filter(|((physical, _), _)| *physical == from.physical);
        let within = self.written.range((from.physical, from.offset)..(from.physical, end));
        for ((_, start), (stop, number)) in before.into_iter().chain(within) {
            let start = (*start).max(at);
            let stop = (*stop).min(end);
            if start >= stop {
                continue;
            }
            if start > at {
                each(0, (start - at).div_ceil(GRANULE));
            }
            each(*number, (stop - start).div_ceil(GRANULE));
            at = stop;
        }
        if at < end {
            each(0, (end - at).div_ceil(GRANULE));
        }
    }

    fn split(&mut self, physical: u32, at: u64) {
        let Some((place, (end, number))) = self.written.range_mut(..(physical, at)).next_back()
        else {
            return;
        };
        if place.0 == physical && *end > at {
            let (rest_end, rest_number) = (*end, *number);
            *end = at;
            self.written.insert((physical, at), (rest_end, rest_number));
        }
    }
}
