//! Runs: neighbours that are all free, in address order, found by address and by size.
//!
//! A sorted list in leaves of fixed size. Over the leaves lies a directory that knows the largest run of
//! each, and over that the largest of each group of leaves: a search for the lowest run of some size
//! passes over what is too small in steps of a leaf or of a group.

use super::range::RangeId;
#[cfg(debug_assertions)]
use super::verify::{holds, times, Verdict};
use crate::index::Table;

/// Runs of a leaf, at most.
const LEAF: usize = 32;

/// Leaves of a group.
const GROUP: usize = 64;

/// Neighbours that are all free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    address: u64,
    bytes: u64,
    /// The range that it begins with.
    first: RangeId,
}

#[derive(Clone, Debug)]
struct Leaf {
    len: usize,
    runs: [Run; LEAF],
}

impl Leaf {
    fn new() -> Self {
        Self { len: 0, runs: [Run { address: 0, bytes: 0, first: RangeId::new(0) }; LEAF] }
    }

    #[inline]
    fn runs(&self) -> &[Run] {
        &self.runs[..self.len]
    }

    fn insert(&mut self, position: usize, run: Run) {
        self.runs.copy_within(position..self.len, position + 1);
        self.runs[position] = run;
        self.len += 1;
    }

    fn remove(&mut self, position: usize) -> Run {
        let run = self.runs[position];
        self.runs.copy_within(position + 1..self.len, position);
        self.len -= 1;
        run
    }

    fn largest(&self) -> u64 {
        self.runs().iter().map(|run| run.bytes).max().unwrap_or(0)
    }
}

/// A leaf, as the directory knows it.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// Where its first run begins.
    address: u64,
    /// The bytes of its largest run.
    largest: u64,
    leaf: u32,
}

/// Where a run stands: the position of its leaf's head, and its own in the leaf.
pub(super) type Position = (usize, usize);

/// The runs of a heap.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Those that a head names, and vacant ones.
    leaves: Table<Leaf>,
    /// In address order. Leaves have at least one run, but for the last that is left.
    heads: Vec<Head>,
    /// The largest run of every [`GROUP`] heads.
    groups: Vec<u64>,
}

impl Runs {
    /// What `pick` makes of the lowest run of at least `bytes` that begins at `from` or above and that it makes
    /// anything of, given where the run stands, the range that it begins with, and its bytes. The first costs the
    /// logarithm of their number; each a step for each group, leaf or run that is passed over.
    #[inline]
    pub(super) fn find<T>(
        &self,
        bytes: u64,
        from: u64,
        mut pick: impl FnMut(Position, (RangeId, u64)) -> Option<T>,
    ) -> Option<T> {
        let (mut head, mut position) = self.locate_first(from);
        while let Some(&Head { largest, leaf, .. }) = self.heads.get(head) {
            if position == 0 && head % GROUP == 0 && self.groups[head / GROUP] < bytes {
                head += GROUP;
                continue;
            }
            if largest >= bytes {
                let runs = self.leaves[leaf as usize].runs();
                while let Some(run) = runs.get(position) {
                    if run.bytes >= bytes {
                        let picked = pick((head, position), (run.first, run.bytes));
                        if picked.is_some() {
                            return picked;
                        }
                    }
                    position += 1;
                }
            }
            (head, position) = (head + 1, 0);
        }
        None
    }

    /// The run in which an address lies.
    #[inline]
    pub(super) fn of(&self, address: u64) -> Position {
        let (head, behind) = self.locate(address);
        (head, behind - 1)
    }

    /// Behind the last address of a run.
    pub(super) fn end(&self, (head, position): Position) -> u64 {
        let Run { address, bytes, .. } = self.leaf(head).runs[position];
        address + bytes
    }

    /// All runs, in address order: where each begins, its bytes, and the range that it begins with.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64, RangeId)> + '_ {
        let runs = self.heads.iter().flat_map(|head| self.leaves[head.leaf as usize].runs());
        runs.map(|run| (run.address, run.bytes, run.first))
    }

    /// Enters free addresses that begin with the range `first`: as a part of the run that ends there with
    /// `below`, and of the one that begins behind them with `above`.
    #[inline]
    pub(super) fn add(
        &mut self,
        (address, bytes): (u64, u64),
        first: RangeId,
        (below, above): (bool, bool),
    ) {
        let (head, position) = self.locate(address);
        if below {
            let behind = if above { self.remove(self.at(head, position)).bytes } else { 0 };
            let run = &mut self.leaf_mut(head).runs[position - 1];
            run.bytes += bytes + behind;
            let bytes = run.bytes;
            self.raise(head, bytes);
        } else if above {
            let (head, position) = self.at(head, position);
            let run = &mut self.leaf_mut(head).runs[position];
            *run = Run { address, bytes: run.bytes + bytes, first };
            let bytes = run.bytes;
            self.note_first(head, position);
            self.raise(head, bytes);
        } else {
            self.insert((head, position), Run { address, bytes, first });
        }
    }

    /// Takes addresses out of the run in which they lie. What is left of it behind them begins with the range `after`.
    #[inline]
    pub(super) fn cut(
        &mut self,
        (head, position): Position,
        (address, bytes): (u64, u64),
        after: Option<RangeId>,
    ) {
        let run = &mut self.leaf_mut(head).runs[position];
        let old = *run;
        let end = address + bytes;
        let (low, high) = (address - old.address, old.address + old.bytes - end);
        let rest = after.map(|first| Run { address: end, bytes: high, first });
        match rest.filter(|_| high > 0) {
            None if low == 0 => {
                self.remove((head, position));
                return;
            }
            None => run.bytes = low,
            Some(rest) if low == 0 => {
                *run = rest;
                self.note_first(head, position);
            }
            Some(rest) => {
                run.bytes = low;
                self.lower(head, old.bytes);
                self.insert((head, position + 1), rest);
                return;
            }
        }
        self.lower(head, old.bytes);
    }

    #[inline]
    fn leaf(&self, head: usize) -> &Leaf {
        &self.leaves[self.heads[head].leaf as usize]
    }

    #[inline]
    fn leaf_mut(&mut self, head: usize) -> &mut Leaf {
        &mut self.leaves[self.heads[head].leaf as usize]
    }

    /// The head of the leaf in which an address would lie.
    #[inline]
    fn head_of(&self, address: u64) -> usize {
        match self.heads.get(1) {
            None => 0,
            Some(_) => self.heads[1..].partition_point(|head| head.address <= address),
        }
    }

    /// Behind the last run that begins at an address or below.
    #[inline]
    fn locate(&self, address: u64) -> Position {
        let head = self.head_of(address);
        if head == self.heads.len() {
            return (0, 0);
        }
        (head, self.leaf(head).runs().partition_point(|run| run.address <= address))
    }

    /// The first run that begins at an address or above, or behind the last of its leaf.
    #[inline]
    fn locate_first(&self, address: u64) -> Position {
        if address == 0 {
            return (0, 0);
        }
        let head = self.head_of(address);
        match self.heads.get(head) {
            Some(_) => (head, self.leaf(head).runs().partition_point(|run| run.address < address)),
            None => (head, 0),
        }
    }

    /// The run that stands at a position, or in the next leaf where this one ends there.
    #[inline]
    fn at(&self, head: usize, position: usize) -> Position {
        if position < self.leaf(head).len {
            (head, position)
        } else {
            (head + 1, 0)
        }
    }

    fn insert(&mut self, (mut head, mut position): Position, run: Run) {
        if self.heads.is_empty() {
            self.enter_leaf(0, Leaf::new());
        }
        if self.leaf(head).len == LEAF {
            let leaf = self.leaf_mut(head);
            let mut upper = Leaf::new();
            upper.len = LEAF / 2;
            upper.runs[..LEAF / 2].copy_from_slice(&leaf.runs[LEAF / 2..]);
            leaf.len = LEAF / 2;
            self.heads[head].largest = self.leaf(head).largest();
            self.enter_leaf(head + 1, upper);
            if position > LEAF / 2 {
                (head, position) = (head + 1, position - LEAF / 2);
            }
        }
        self.leaf_mut(head).insert(position, run);
        self.note_first(head, position);
        self.raise(head, run.bytes);
    }

    fn remove(&mut self, (head, position): Position) -> Run {
        let run = self.leaf_mut(head).remove(position);
        if self.leaf(head).len > 0 {
            self.note_first(head, position);
            self.lower(head, run.bytes);
        } else if self.heads.len() > 1 {
            self.leaves.vacate(self.heads.remove(head).leaf);
            self.regroup(head);
        } else {
            self.lower(head, run.bytes);
        }
        run
    }

    fn enter_leaf(&mut self, head: usize, leaf: Leaf) {
        let (address, largest) = (leaf.runs[0].address, leaf.largest());
        let row = self.leaves.enter(leaf);
        self.heads.insert(head, Head { address, largest, leaf: row });
        // With the leaf before, which it may be the upper half of.
        self.regroup(head.saturating_sub(1));
    }

    /// Heads from this one on have come or gone.
    fn regroup(&mut self, head: usize) {
        let first = head / GROUP;
        self.groups.truncate(first);
        let rest = self.heads[first * GROUP..].chunks(GROUP);
        let largest = rest.map(|heads| heads.iter().map(|head| head.largest).max().unwrap_or(0));
        self.groups.extend(largest);
    }

    /// The run at this position of a leaf is another one, or begins elsewhere.
    #[inline]
    fn note_first(&mut self, head: usize, position: usize) {
        if position == 0 {
            self.heads[head].address = self.leaf(head).runs[0].address;
        }
    }

    /// A run of the leaf has so many bytes now.
    #[inline]
    fn raise(&mut self, head: usize, bytes: u64) {
        let largest = &mut self.heads[head].largest;
        *largest = bytes.max(*largest);
        let group = &mut self.groups[head / GROUP];
        *group = bytes.max(*group);
    }

    /// A run of the leaf that had so many bytes has fewer, or is gone.
    #[inline]
    fn lower(&mut self, head: usize, bytes: u64) {
        if self.heads[head].largest == bytes {
            self.lower_largest(head, bytes);
        }
    }

    #[inline(never)]
    fn lower_largest(&mut self, head: usize, bytes: u64) {
        self.heads[head].largest = self.leaf(head).largest();
        if self.groups[head / GROUP] == bytes {
            let first = head / GROUP * GROUP;
            let heads = self.heads[first..].iter().take(GROUP);
            self.groups[head / GROUP] = heads.map(|head| head.largest).max().unwrap_or(0);
        }
    }
}

#[cfg(debug_assertions)]
impl Runs {
    pub(super) fn verify(&self) -> Verdict {
        let named = times(self.heads.iter().map(|head| head.leaf as usize), self.leaves.len())?;
        self.leaves.verify(|leaf, _| named[leaf as usize] == 1)?;
        for (number, head) in self.heads.iter().enumerate() {
            let leaf = self.leaf(number);
            let first = leaf.runs().first().map(|run| run.address);
            let found = first.map_or(self.heads.len() == 1, |first| first == head.address);
            holds!(
                found && head.largest == leaf.largest(),
                "{head:?} of the runs {:?}",
                leaf.runs()
            );
        }
        let groups = self.heads.chunks(GROUP);
        let groups = groups.map(|heads| heads.iter().map(|head| head.largest).max().unwrap_or(0));
        holds!(groups.eq(self.groups.iter().copied()), "the largest runs are {:?}", self.groups);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What the list stands for: which units are free, from below.
    #[derive(Default)]
    struct Model(BTreeMap<u64, u64>);

    impl Model {
        fn next(&self, from: u64, bytes: u64) -> Option<(u64, u64)> {
            let mut runs = self.0.range(from..);
            runs.find(|(_, &held)| held >= bytes).map(|(&address, &held)| (address, held))
        }
    }

    #[test]
    fn a_group_is_as_large_as_the_leaves_that_it_keeps() {
        let mut runs = Runs::default();
        // Ever larger ones, so that the upper half of each leaf that is split has the largest of its group.
        for run in 0..(2 * GROUP * LEAF) as u64 {
            runs.add((run * 10_000, 1 + run), RangeId::new(run as usize), (false, false));
            let largest = |heads: &[Head]| heads.iter().map(|head| head.largest).max();
            let groups = runs.heads.chunks(GROUP).filter_map(largest);
            assert!(runs.groups.iter().copied().eq(groups), "{run} runs");
        }
    }

    proptest! {
        #[test]
        fn runs_are_those_of_a_map(steps in prop::collection::vec((0..4000u64, 1..6u64), 1..4000)) {
            let (mut runs, mut model) = (Runs::default(), Model::default());
            let id = |address: u64| RangeId::new(address as usize);
            for (at, bytes) in steps {
                let holder = model.0.range(..=at).next_back().map(|(&address, &held)| (address, held));
                match holder.filter(|(address, held)| at < address + held) {
                    Some((address, held)) => {
                        let bytes = bytes.min(address + held - at);
                        runs.cut(runs.of(at), (at, bytes), Some(id(at + bytes)));
                        model.0.remove(&address);
                        if address < at {
                            model.0.insert(address, at - address);
                        }
                        if at + bytes < address + held {
                            model.0.insert(at + bytes, address + held - at - bytes);
                        }
                    }
                    None => {
                        let above = model.0.range(at..).next().map(|(&address, &held)| (address, held));
                        let room = above.map_or(u64::MAX, |(address, _)| address - at);
                        let bytes = bytes.min(room);
                        let joins_above = bytes == room;
                        let below = holder.filter(|(address, held)| address + held == at);
                        runs.add((at, bytes), id(at), (below.is_some(), joins_above));
                        let mut all = bytes;
                        if let Some((address, held)) = above.filter(|_| joins_above) {
                            model.0.remove(&address);
                            all += held;
                        }
                        match below {
                            Some((address, held)) => model.0.insert(address, held + all),
                            None => model.0.insert(at, all),
                        };
                    }
                }
                for bytes in [1, 3, 7, 20] {
                    let found = runs.find(bytes, at, |_, run| Some((run.0.index() as u64, run.1)));
                    prop_assert_eq!(found, model.next(at, bytes));
                }
            }
            let listed: Vec<_> = runs.iter().map(|run| (run.0, run.1)).collect();
            let expected: Vec<_> = model.0.into_iter().collect();
            prop_assert_eq!(listed, expected);
            prop_assert!(runs.iter().all(|run| run.2 == id(run.0)));
        }
    }
}
