//! Lists of places by size class: entering, leaving and finding one cost the same however many
//! there are.
//!
//! Sizes up to 16 units of 512 bytes have a class each; above, every power of two has 16 (the
//! two-level classes of TLSF: Masmano et al., "TLSF: a new dynamic memory allocator for real-time
//! systems", 2004). A bitmap tells which classes are in use.

/// Entries that are compared with each other within one class, at most; a class whose first ones
/// are all too small is passed over for the next.
const COMPARED: usize = 32;

const WORDS: usize = 13;

/// A bitmap of size classes.
#[derive(Clone, Copy, Debug, Default)]
struct Classes([u64; WORDS]);

impl Classes {
    #[inline]
    fn add(&mut self, class: usize) {
        self.0[class / 64] |= 1 << (class % 64);
    }

    #[inline]
    fn remove(&mut self, class: usize) {
        self.0[class / 64] &= !(1 << (class % 64));
    }

    /// The first class from `from` on that is in the set.
    #[inline]
    fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.0.get(word)? & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(64 * word + bits.trailing_zeros() as usize);
            }
            word += 1;
            bits = *self.0.get(word)?;
        }
    }

    /// The last class below `end` that is in the set.
    fn last(&self, end: usize) -> Option<usize> {
        let mut word = end / 64;
        let mut bits = match self.0.get(word) {
            Some(bits) => bits & !(u64::MAX << (end % 64)),
            None => 0,
        };
        loop {
            if bits != 0 {
                return Some(64 * word + 63 - bits.leading_zeros() as usize);
            }
            word = word.checked_sub(1)?;
            bits = self.0[word];
        }
    }
}

/// Something with a size.
pub(crate) trait Sized512 {
    /// In bytes, at least 512.
    fn bytes(&self) -> u64;
}

/// Places by size class.
#[derive(Debug)]
pub(crate) struct Bins<E> {
    used: Classes,
    lists: Vec<Vec<E>>,
    len: usize,
}

/// Where an entry stands: its class and its position there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    class: u32,
    position: u32,
}

impl Slot {
    pub(crate) fn class(self) -> usize {
        self.class as usize
    }
}

/// The size class of a place.
#[inline]
pub(super) fn class(bytes: u64) -> usize {
    let units = bytes >> 9;
    match units.checked_ilog2() {
        Some(log) if log >= 4 => {
            let quarter = (units >> (log - 4)) & 15;
            16 * (log as usize - 3) + quarter as usize
        }
        _ => units as usize,
    }
}

impl<E> Default for Bins<E> {
    fn default() -> Self {
        Self { used: Classes::default(), lists: Vec::new(), len: 0 }
    }
}

impl<E: Copy + Sized512> Bins<E> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Enters a place and says where it stands.
    #[inline]
    pub(crate) fn insert(&mut self, entry: E) -> Slot {
        let class = class(entry.bytes());
        if self.lists.len() <= class {
            self.lists.resize_with(class + 1, Vec::new);
        }
        self.len += 1;
        let list = &mut self.lists[class];
        list.push(entry);
        if list.len() == 1 {
            self.used.add(class);
        }
        let list = &self.lists[class];
        Slot { class: class as u32, position: list.len() as u32 - 1 }
    }

    /// Takes an entry out. The one that moves to its place is returned: it stands at `slot` now.
    #[inline]
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<E> {
        let class = slot.class as usize;
        let list = &mut self.lists[class];
        list.swap_remove(slot.position as usize);
        self.len -= 1;
        if list.is_empty() {
            self.used.remove(class);
        }
        list.get(slot.position as usize).copied()
    }

    /// The least entry by `rank` in the first class that holds one of at least `bytes` which has a
    /// rank. Entries without one are out of date and are dropped.
    pub(crate) fn best<R: Ord>(
        &mut self,
        bytes: u64,
        mut rank: impl FnMut(&E) -> Option<R>,
    ) -> Option<E> {
        let mut from = class(bytes);
        while let Some(class) = self.next_class(from) {
            let best = self.best_in(class, bytes, &mut rank);
            if best.is_some() {
                return best;
            }
            from = class + 1;
        }
        None
    }

    /// The same within one class.
    pub(crate) fn best_in<R: Ord>(
        &mut self,
        class: usize,
        bytes: u64,
        mut rank: impl FnMut(&E) -> Option<R>,
    ) -> Option<E> {
        let mut best: Option<(R, E)> = None;
        let mut position = 0;
        while let Some(&entry) = self.lists[class].get(position).filter(|_| position < COMPARED) {
            if entry.bytes() < bytes {
                position += 1;
                continue;
            }
            match rank(&entry) {
                Some(rank) => {
                    if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                        best = Some((rank, entry));
                    }
                    position += 1;
                }
                None => {
                    self.remove(Slot { class: class as u32, position: position as u32 });
                }
            }
        }
        best.map(|(_, entry)| entry)
    }

    /// The first class from `from` on that holds anything.
    #[inline]
    pub(crate) fn next_class(&self, from: usize) -> Option<usize> {
        self.used.next(from)
    }

    /// Drops the entries that `keep` is false for; what stays may stand elsewhere then.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&E) -> bool) {
        self.len = 0;
        let mut from = 0;
        while let Some(class) = self.used.next(from) {
            let list = &mut self.lists[class];
            list.retain(&mut keep);
            self.len += list.len();
            if list.is_empty() {
                self.used.remove(class);
            }
            from = class + 1;
        }
    }

    /// All entries, small classes first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.lists.iter().flatten()
    }

    /// All entries, large classes first.
    pub(crate) fn largest(&self) -> impl Iterator<Item = &E> {
        let classes =
            std::iter::successors(self.used.last(64 * WORDS), |&class| self.used.last(class));
        classes.flat_map(|class| &self.lists[class])
    }
}

/// What was entered, in order, by size class: readers come back for what is new.
#[derive(Debug)]
pub(crate) struct FreedRanges<E> {
    used: Classes,
    lists: Vec<Vec<E>>,
}

/// How far a stream has read, by size class.
#[derive(Debug, Default)]
pub(crate) struct ReadPositions(Vec<usize>);

impl<E> Default for FreedRanges<E> {
    fn default() -> Self {
        Self { used: Classes::default(), lists: Vec::new() }
    }
}

impl<E: Copy> FreedRanges<E> {
    pub(crate) fn push(&mut self, bytes: u64, entry: E) {
        let class = class(bytes);
        if self.lists.len() <= class {
            self.lists.resize_with(class + 1, Vec::new);
        }
        self.used.add(class);
        self.lists[class].push(entry);
    }

    /// The first class from `from` on that holds something unread.
    #[inline]
    pub(crate) fn unread(&self, from: usize, read: &ReadPositions) -> Option<usize> {
        let mut from = from;
        loop {
            let class = self.used.next(from)?;
            if self.lists[class].len() > read.0.get(class).copied().unwrap_or(0) {
                return Some(class);
            }
            from = class + 1;
        }
    }

    /// What is unread in a class, which counts as read from now on.
    pub(crate) fn read(&self, class: usize, read: &mut ReadPositions) -> &[E] {
        if read.0.len() <= class {
            read.0.resize(self.lists.len(), 0);
        }
        let list = &self.lists[class];
        let from = std::mem::replace(&mut read.0[class], list.len());
        &list[from..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_with_size_and_fit_the_bitmap() {
        let mut last = 0;
        for shift in 9..60 {
            for step in 0..64u64 {
                let bytes = (1u64 << shift) + step * ((1u64 << shift) / 64);
                let class = class(bytes);
                assert!(class >= last && class < 64 * WORDS, "{bytes}");
                last = class;
            }
        }
    }
}
