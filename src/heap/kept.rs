//! What graphs keep between launches of what is free.
//!
//! A block that was allocated and freed in one capture holds nothing when its graph has run: its memory is
//! *temporary*, and written anew by each launch. An output that was freed after its capture may be read by
//! another graph, and an input that its capture freed is filled before each launch: memory that such a block
//! ever lay on is *kept*, for as long as the pool has a graph. It is known by address, so that a later block
//! which covers a part of it does not make more of it.

use std::collections::BTreeMap;

use super::range::{RangeId, RangeState};
use super::users::Users;
use super::{idle, Heap};

/// Stretches of addresses, none of which touches another: where each begins, and its end.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<u64, u64>);

impl Kept {
    fn insert(&mut self, (start, end): (u64, u64)) {
        let (mut start, mut end) = (start, end);
        while let Some((&low, &high)) = self.0.range(..=end).next_back().filter(|it| *it.1 >= start)
        {
            self.0.remove(&low);
            (start, end) = (start.min(low), end.max(high));
        }
        self.0.insert(start, end);
    }

    /// Whether an address is kept, and where that changes.
    pub(super) fn at(&self, address: u64) -> (bool, u64) {
        match self.0.range(..=address).next_back() {
            Some((_, &end)) if end > address => (true, end),
            _ => (false, self.0.range(address..).next().map_or(u64::MAX, |(&start, _)| start)),
        }
    }

    /// Whether any of these addresses is kept.
    fn touches(&self, (start, end): (u64, u64)) -> bool {
        let (kept, until) = self.at(start);
        kept || until < end
    }
}

impl Heap {
    /// A graph may find something in an allocated or waiting range that it did not write itself since its
    /// launch began.
    pub(crate) fn keep(&mut self, id: RangeId) {
        let range = (self.ranges[id].address, self.ranges[id].end());
        self.kept.insert(range);
    }

    /// Whether graphs keep any of a range.
    #[inline]
    pub(super) fn is_kept(&self, (address, end): (u64, u64)) -> bool {
        !self.kept.0.is_empty() && self.kept.touches((address, end))
    }

    /// What graphs keep: addresses and sizes in bytes, ascending and apart.
    pub(crate) fn kept_places(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.kept.0.iter().map(|(&start, &end)| (start, end - start))
    }

    /// Free memory of graphs in which they keep nothing between launches: addresses and sizes in bytes.
    pub(crate) fn temporary_places(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let temporary = |id: &RangeId| self.ranges[*id].state.idle_users() == Some(Users::Graphs);
        let ids = self.free_ids().filter(temporary);
        ids.map(|id| (self.ranges[id].address, self.ranges[id].bytes))
    }

    /// Nothing is kept: the pool has no graph.
    pub(super) fn forget_kept(&mut self) {
        self.kept.0.clear();
    }

    /// Makes a range idle that is in no list and of no kind, as graphs' memory, and closes it if it is to be `closed`:
    /// cut where graphs begin or cease to keep it.
    pub(super) fn settle_cut(&mut self, id: RangeId, closed: bool) {
        self.ranges.set_state(id, RangeState::Allocated);
        let since = self.clock;
        let mut at = Some(id);
        while let Some(part) = at {
            let (address, end) = (self.ranges[part].address, self.ranges[part].end());
            let (kept, until) = self.kept.at(address);
            // What lies above is in no list yet, and of no kind that a neighbour could take in.
            at = (until < end).then(|| self.split(part, until));
            let users = if kept { Users::Kept } else { Users::Graphs };
            self.ranges.set_state(part, idle(users, closed));
            self.ranges[part].since = since;
            self.list(part);
            self.merge(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn stretches_unite_and_tell_where_they_end() {
        let mut kept = Kept::default();
        kept.insert((10, 20));
        kept.insert((30, 40));
        assert_eq!(kept.at(5), (false, 10));
        assert_eq!(kept.at(10), (true, 20));
        assert_eq!(kept.at(20), (false, 30));
        assert_eq!(kept.at(40), (false, u64::MAX));
        assert!(kept.touches((0, 11)) && !kept.touches((20, 30)) && kept.touches((39, 50)));
        kept.insert((20, 25));
        assert_eq!(kept.at(12), (true, 25));
        kept.insert((5, 60));
        assert_eq!((kept.at(5), kept.0.len()), ((true, 60), 1));
    }
}
