//! Lists of nodes in the journal.

use std::fmt;
use std::slice;

use regraph_driver::{Dependency, EdgeData, NodeHandle};

/// Nodes, each with the data of the edge that leads from it.
#[derive(Clone, Copy)]
pub struct Nodes<'a>(pub(super) Form<'a>);

#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    Plain(&'a [Dependency]),
    /// Distances from a handle; all edges are full.
    Near {
        words: &'a [u32],
        base: usize,
    },
    /// Three words each: the halves of the handle, the edge.
    Wide(&'a [u32]),
}

impl<'a> Nodes<'a> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Plain(list) => list.len(),
            Form::Near { words, .. } => words.len(),
            Form::Wide(words) => words.len() / 3,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at a place.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Dependency> {
        match self.0 {
            Form::Plain(list) => list.get(index).copied(),
            Form::Near { words, base } => {
                words.get(index).map(|&word| Dependency::full(Self::near(word, base)))
            }
            Form::Wide(words) => words.chunks_exact(3).nth(index).map(wide),
        }
    }

    /// In their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Dependency> + Clone + 'a {
        match self.0 {
            Form::Plain(list) => Iter::Plain(list.iter()),
            Form::Near { words, base } => Iter::Near(words.iter(), base),
            Form::Wide(words) => Iter::Wide(words.chunks_exact(3)),
        }
    }

    #[inline]
    pub(super) fn near(distance: u32, base: usize) -> NodeHandle {
        NodeHandle::from_bits(base.wrapping_add_signed(distance as i32 as isize))
    }
}

#[derive(Clone)]
enum Iter<'a> {
    Plain(slice::Iter<'a, Dependency>),
    Near(slice::Iter<'a, u32>, usize),
    Wide(slice::ChunksExact<'a, u32>),
}

impl Iterator for Iter<'_> {
    type Item = Dependency;

    #[inline]
    fn next(&mut self) -> Option<Dependency> {
        match self {
            Self::Near(words, base) => {
                words.next().map(|&word| Dependency::full(Nodes::near(word, *base)))
            }
            Self::Plain(list) => list.next().copied(),
            Self::Wide(words) => words.next().map(wide),
        }
    }
}

fn wide(words: &[u32]) -> Dependency {
    let bits = u64::from(words[0]) | u64::from(words[1]) << 32;
    let [from_port, to_port, kind, _] = words[2].to_le_bytes();
    let edge = EdgeData { from_port, to_port, kind };
    Dependency { node: NodeHandle::from_bits(bits as usize), edge }
}

impl Default for Nodes<'_> {
    fn default() -> Self {
        Self(Form::Plain(&[]))
    }
}

impl<'a, T: AsRef<[Dependency]> + ?Sized> From<&'a T> for Nodes<'a> {
    #[inline]
    fn from(list: &'a T) -> Self {
        Self(Form::Plain(list.as_ref()))
    }
}

impl PartialEq for Nodes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Nodes<'_> {}

impl fmt::Debug for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
