//! The markers of a range: a line in its row, and a longer list elsewhere where there are more.

use smallvec::SmallVec;

#[cfg(debug_assertions)]
use super::verify::{holds, Verdict};
use crate::capture::NodeIndex;

/// Markers of a range that lie in the line itself, at most.
const INLINE: usize = 13;

const NONE: NodeIndex = NodeIndex::from_raw(0);

/// The markers of one range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    count: u32,
    /// The markers; where there are more than fit, the number of their spill comes first, and the rest
    /// means nothing.
    nodes: [NodeIndex; INLINE],
}

/// Lists that are longer than a line.
#[derive(Debug, Default)]
pub(super) struct Spills {
    lists: Vec<Vec<NodeIndex>>,
    vacant: Vec<u32>,
}

impl Default for Line {
    fn default() -> Self {
        Self { count: 0, nodes: [NONE; INLINE] }
    }
}

impl Line {
    #[inline]
    pub(super) fn nodes<'a>(&'a self, spills: &'a Spills) -> &'a [NodeIndex] {
        match self.nodes.get(..self.count as usize) {
            Some(nodes) => nodes,
            None => &spills.lists[self.nodes[0].index()],
        }
    }

    /// Whether its markers lie in a list elsewhere.
    #[inline]
    pub(super) fn has_list(&self) -> bool {
        self.count as usize > INLINE
    }

    #[inline]
    pub(super) fn set(&mut self, nodes: &[NodeIndex], spills: &mut Spills) {
        if self.has_list() {
            spills.vacant.push(self.nodes[0].index() as u32);
        }
        self.count = nodes.len() as u32;
        match self.nodes.get_mut(..nodes.len()) {
            // A copy of memory would cost more than the few that there are.
            Some(line) => line.iter_mut().zip(nodes).for_each(|(to, from)| *to = *from),
            None => self.nodes[0] = spills.add(nodes),
        }
    }

    /// Adds the markers of another line that it lacks.
    #[inline]
    pub(super) fn unite(&mut self, other: &Self, spills: &mut Spills) {
        let (count, more) = (self.count as usize, other.count as usize);
        if count == 0 && more <= INLINE {
            *self = *other;
        } else if count + more <= INLINE {
            for &node in &other.nodes[..more] {
                let count = self.count as usize;
                if !self.nodes[..count].contains(&node) {
                    self.nodes[count] = node;
                    self.count += 1;
                }
            }
        } else {
            self.unite_many(other, spills);
        }
    }

    #[cold]
    fn unite_many(&mut self, other: &Self, spills: &mut Spills) {
        let mut all: SmallVec<[NodeIndex; 2 * INLINE]> = SmallVec::from_slice(self.nodes(spills));
        for &node in other.nodes(spills) {
            if !all.contains(&node) {
                all.push(node);
            }
        }
        self.set(&all, spills);
    }
}

impl Spills {
    /// Keeps a list and returns its number.
    #[cold]
    fn add(&mut self, nodes: &[NodeIndex]) -> NodeIndex {
        let row = self.vacant.pop().unwrap_or_else(|| {
            self.lists.push(Vec::new());
            self.lists.len() as u32 - 1
        });
        let list = &mut self.lists[row as usize];
        list.clear();
        list.extend_from_slice(nodes);
        NodeIndex::from_raw(row)
    }
}

#[cfg(debug_assertions)]
impl Spills {
    /// Each line with more markers than it holds has a list of its own, and the other lists are vacant.
    pub(super) fn verify<'a>(&self, lines: impl Iterator<Item = &'a Line>) -> Verdict {
        let long = lines.filter(|line| line.has_list());
        let lists = long.map(|line| line.nodes[0].index() as u32);
        let mut lists: Vec<u32> = lists.chain(self.vacant.iter().copied()).collect();
        lists.sort_unstable();
        let once = lists.iter().copied().eq(0..self.lists.len() as u32);
        holds!(once, "lists of markers that are in use or vacant: {lists:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Lines of any length, some of which have lists elsewhere that lines share one after the other.
        #[test]
        fn lines_are_sets(steps in prop::collection::vec((0..6usize, 0..6usize, 0..40u32, 0..3 * INLINE), 1..200)) {
            let mut spills = Spills::default();
            let mut lines = [Line::default(); 6];
            let mut sets: [BTreeSet<u32>; 6] = Default::default();
            for (to, from, first, count) in steps {
                if to == from {
                    let nodes: Vec<u32> = (first..).take(count).collect();
                    sets[to] = nodes.iter().copied().collect();
                    let nodes: Vec<NodeIndex> = nodes.into_iter().map(NodeIndex::from_raw).collect();
                    lines[to].set(&nodes, &mut spills);
                } else {
                    let (more, other) = (sets[from].clone(), lines[from]);
                    sets[to].extend(more);
                    lines[to].unite(&other, &mut spills);
                }
                for (line, set) in lines.iter().zip(&sets) {
                    let nodes: Vec<u32> =
                        line.nodes(&spills).iter().map(|node| node.index() as u32).collect();
                    let distinct: BTreeSet<u32> = nodes.iter().copied().collect();
                    prop_assert_eq!(nodes.len(), distinct.len());
                    prop_assert_eq!(&distinct, set);
                }
            }
            let spilled = sets.iter().filter(|set| set.len() > INLINE).count();
            prop_assert!(spills.lists.len() <= 6);
            prop_assert_eq!(spills.lists.len() - spills.vacant.len(), spilled);
        }
    }
}
