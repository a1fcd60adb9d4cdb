//! One set of pieces for graphs that are there already.
//!
//! Plans of captures can only take held pieces whole. When nothing runs, pieces can be cut and
//! exchanged: contents that nothing needs are not moved, only other memory is mapped. The graphs are
//! walked in the order in which they were bound; each piece of theirs takes memory that the earlier ones
//! left, in parts where it must, and new memory only where none is left that it may have.
//!
//! What may share is what plans at the captures' ends would have let share. An output that lived until
//! later than another graph was bound is kept from that graph, and no output lies on what an earlier graph
//! overwrites: where that has blocks of its own, unless they were outputs too and freed by then.

use std::collections::BTreeSet;

/// How many times smaller than what is missing a part may be before a larger piece is cut instead.
const SMALLEST: u64 = 4;

/// A piece as one graph uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Its size, in bytes.
    pub bytes: u64,
    /// When the last of the outputs was freed that every page of it held; `None` if no page held any:
    /// then the graph writes there for itself alone.
    pub freed: Option<u64>,
}

/// A graph whose pieces may be exchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// When it got its memory. What was freed at that moment or before was free for it.
    pub bound: u64,
    /// Its pieces: at one time it may use all of them.
    pub pieces: Vec<Used>,
}

/// Pieces for several graphs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Their sizes, in bytes.
    pub pieces: Vec<u64>,
    /// By graph and by piece of its own: which of these take that one's place, one behind the other.
    pub parts: Vec<Vec<Vec<usize>>>,
}

impl Compacted {
    /// Finds pieces for graphs in the order in which they were bound, no two of which ever run at once.
    /// The same input always leads to the same pieces.
    ///
    /// If no outputs were freed, the pieces have as many bytes as the largest graph's. Takes time that
    /// grows with the graphs times the pieces, times the logarithm of these.
    pub fn new(users: &[User]) -> Self {
        let mut tape = Tape::default();
        let taken: Vec<_> = users.iter().map(|user| tape.serve(user)).collect();
        let mut numbers = vec![None; tape.pieces.len()];
        let mut pieces = Vec::new();
        for (piece, number) in tape.pieces.iter().zip(&mut numbers) {
            if piece.cut.is_none() {
                *number = Some(pieces.len());
                pieces.push(piece.bytes);
            }
        }
        let resolved = |parts: Vec<usize>| {
            let mut found = Vec::new();
            let mut open: Vec<usize> = parts.into_iter().rev().collect();
            while let Some(piece) = open.pop() {
                match tape.pieces[piece].cut {
                    Some((first, rest)) => open.extend([rest, first]),
                    None => found.extend(numbers[piece]),
                }
            }
            found
        };
        let parts = taken.into_iter().map(|all| all.into_iter().map(resolved).collect()).collect();
        Self { pieces, parts }
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().sum()
    }
}

/// Memory, and what the graphs that use it ask of later ones.
#[derive(Clone, Copy, Debug)]
struct Memory {
    bytes: u64,
    /// When the last output there was freed.
    freed: Option<u64>,
    /// Whether a graph overwrites it that had no output there.
    overwritten: bool,
    /// The two that it was cut into.
    cut: Option<(usize, usize)>,
}

/// Memory by size.
type Open = BTreeSet<(u64, usize)>;

#[derive(Debug, Default)]
struct Tape {
    pieces: Vec<Memory>,
}

impl Tape {
    /// Finds memory for all pieces of a graph.
    fn serve(&mut self, user: &User) -> Vec<Vec<usize>> {
        // What an output may lie on, and what only other blocks may.
        let mut open = [Open::new(), Open::new()];
        for (number, piece) in self.pieces.iter().enumerate() {
            if piece.cut.is_none() && piece.freed.is_none_or(|freed| freed <= user.bound) {
                open[usize::from(piece.overwritten)].insert((piece.bytes, number));
            }
        }
        let mut order: Vec<usize> = (0..user.pieces.len()).collect();
        order.sort_by_key(|&own| {
            let Used { bytes, freed } = user.pieces[own];
            (freed.is_none(), std::cmp::Reverse(bytes))
        });
        let mut taken = vec![Vec::new(); user.pieces.len()];
        for own in order {
            let Used { bytes, freed } = user.pieces[own];
            let mut missing = bytes;
            while missing > 0 {
                let part = self.part(&mut open, missing, freed.is_some());
                let piece = &mut self.pieces[part];
                piece.freed = piece.freed.max(freed);
                piece.overwritten |= freed.is_none();
                missing -= piece.bytes;
                taken[own].push(part);
            }
        }
        taken
    }

    /// The next part of what is missing, at most as large.
    fn part(&mut self, open: &mut [Open; 2], missing: u64, output: bool) -> usize {
        // What outputs may have is taken last where others will do.
        let allowed: &[usize] = if output { &[0] } else { &[1, 0] };
        let below = |which: usize| open[which].range(..=(missing, usize::MAX)).next_back().copied();
        let above = |which: usize| open[which].range((missing + 1, 0)..).next().copied();
        let most = |found: Option<(u64, usize)>, which: usize| match (found, below(which)) {
            (Some(found), Some(other)) if other.0 > found.0 => Some(other),
            (found, other) => found.or(other),
        };
        let smaller = allowed.iter().fold(None, |found, &which| most(found, which));
        let larger = || allowed.iter().find_map(|&which| above(which));
        let worth = |&(bytes, _): &(u64, usize)| bytes.saturating_mul(SMALLEST) >= missing;
        let found = smaller.filter(worth).or_else(larger).or(smaller);
        let Some((bytes, number)) = found else {
            self.pieces.push(Memory { bytes: missing, freed: None, overwritten: false, cut: None });
            return self.pieces.len() - 1;
        };
        let here = &mut open[usize::from(self.pieces[number].overwritten)];
        here.remove(&(bytes, number));
        if bytes <= missing {
            return number;
        }
        let (first, rest) = (self.pieces.len(), self.pieces.len() + 1);
        let piece = self.pieces[number];
        self.pieces[number].cut = Some((first, rest));
        self.pieces.push(Memory { bytes: missing, ..piece });
        self.pieces.push(Memory { bytes: bytes - missing, ..piece });
        here.insert((bytes - missing, rest));
        first
    }
}
