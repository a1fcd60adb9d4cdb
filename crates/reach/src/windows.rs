//! What lies close behind each node, as words of bits: a stream that gains a node takes its nearest
//! predecessors over word by word instead of edge by edge.
//!
//! A node's *window* is the node and everything behind it, as far as that lies in its own word of a
//! bit set over the nodes or in one of the fifteen before. Edges lead from higher to lower indices, so
//! a window is the union of those of the direct predecessors, cut off below. Windows take every edge
//! for [`Order::Full`](super::order::Order::Full): where one is not they are not asked.

use fixedbitset::Block;

use super::dag::NodeIndex;

/// Bits in a word of a set.
pub(super) const WORD: usize = Block::BITS as usize;

/// Words of a window; two cache lines.
pub(super) const WORDS: usize = 16;

/// Nodes whose windows are kept, the latest: as many as a window reaches back.
const KEPT: usize = WORDS * WORD;

/// The words of a window, the node's own last.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Words([Block; WORDS]);

/// The windows of the latest nodes.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// By node modulo [`KEPT`].
    rows: Vec<Words>,
    /// How many nodes there are.
    nodes: usize,
}

/// A node's window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window<'a> {
    words: &'a [Block; WORDS],
    /// The node's own word.
    last: usize,
}

impl Windows {
    /// Forgets all nodes; what is allocated stays.
    pub(super) fn clear(&mut self) {
        let Self { rows, nodes } = self;
        rows.clear();
        *nodes = 0;
    }

    /// Adds the next node; its direct predecessors have been added before.
    #[inline]
    pub(super) fn push(&mut self, predecessors: &[u32]) {
        let word = self.nodes / WORD;
        let mut union = [0; WORDS];
        for &predecessor in predecessors {
            let predecessor = predecessor as usize;
            let back = word - predecessor / WORD;
            let words = &self.rows[predecessor % KEPT].0;
            let unite = |(union, word): (&mut Block, &Block)| *union |= word;
            // Of fixed lengths, as mostly.
            match back {
                0 => union.iter_mut().zip(words).for_each(unite),
                1 => union.iter_mut().zip(&words[1..]).for_each(unite),
                _ => union.iter_mut().zip(words.get(back..).unwrap_or_default()).for_each(unite),
            }
        }
        self.enter(|_| Words(union));
    }

    /// [`Windows::push`], where there is one.
    #[inline]
    pub(super) fn push_behind(&mut self, predecessor: u32) {
        let at = predecessor as usize;
        match at / WORD == self.nodes / WORD {
            true => self.enter(|rows| rows[at % KEPT]),
            false => self.push(&[predecessor]),
        }
    }

    /// Keeps the next node's window: what is made of the latest ones, and the node itself.
    #[inline]
    fn enter(&mut self, window: impl FnOnce(&[Words]) -> Words) {
        let row = self.nodes % KEPT;
        if self.rows.len() < KEPT {
            self.rows.reserve_exact(KEPT - self.rows.len());
            self.rows.push(window(&self.rows));
        } else {
            self.rows[row] = window(&self.rows);
        }
        self.rows[row].0[WORDS - 1] |= 1 << (self.nodes % WORD);
        self.nodes += 1;
    }

    /// A node's window, if it is among the latest.
    #[inline]
    pub(super) fn of(&self, node: NodeIndex) -> Option<Window<'_>> {
        let node = node.index();
        if node + KEPT < self.nodes {
            return None;
        }
        Some(Window { words: &self.rows.get(node % KEPT)?.0, last: node / WORD })
    }
}

impl<'a> Window<'a> {
    /// The first word of a set that it reaches into.
    #[inline]
    pub(super) fn first(self) -> usize {
        self.last.saturating_sub(WORDS - 1)
    }

    /// Its words from one on that is not before the first, up to the node's own.
    #[inline]
    pub(super) fn since(self, word: usize) -> &'a [Block] {
        &self.words[WORDS - 1 + word - self.last..]
    }

    /// Whether a node lies in it.
    #[inline]
    pub(super) fn contains(self, node: NodeIndex) -> bool {
        let word = WORDS - 1 + node.index() / WORD;
        let word = word.checked_sub(self.last).and_then(|word| self.words.get(word));
        word.is_some_and(|word| word >> (node.index() % WORD) & 1 != 0)
    }
}
