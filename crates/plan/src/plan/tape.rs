//! Physical pages in a row, and where they will have to be cut.
//!
//! The pages lie on a *tape* in the order in which they are first used. It falls into *parts*: in
//! each, the pages have always been passed on together. Two neighbouring parts are *glued* while
//! every address that the one was mapped at has the other behind it; then they still are one piece
//! of memory. Splitting a part costs nothing until the glue breaks, and then a mapping for every
//! address that the pages have been used at.

use std::collections::BTreeMap;

/// Physical pages, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// The first.
    pub start: u64,
    /// How many.
    pub pages: u64,
}

impl Interval {
    /// The page behind it.
    pub fn end(&self) -> u64 {
        self.start + self.pages
    }
}

/// A part of the tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// How many pages.
    pub pages: u64,
    /// Who had it last.
    pub owner: u32,
    /// How often it has been used.
    pub uses: u32,
    /// Whether the next part is its neighbour wherever either was used.
    pub glued: bool,
}

/// The parts by their first page.
#[derive(Debug, Default)]
pub(super) struct Tape {
    parts: BTreeMap<u64, Part>,
    end: u64,
}

impl Tape {
    /// The page behind the last.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The part that begins at a page.
    pub fn part(&self, start: u64) -> Option<&Part> {
        self.parts.get(&start)
    }

    /// The part that ends before a page.
    fn ending(&mut self, page: u64) -> Option<&mut Part> {
        let (start, part) = self.parts.range_mut(..page).next_back()?;
        (start + part.pages == page).then_some(part)
    }

    /// Whether the pages before and at a page are glued, or have not been parted.
    pub fn glued(&self, page: u64) -> bool {
        match self.parts.range(..page).next_back() {
            Some((start, part)) if start + part.pages == page => part.glued,
            Some((start, part)) => start + part.pages > page,
            None => false,
        }
    }

    /// What it costs to part a page from the one before it.
    pub fn loss(&self, page: u64) -> u64 {
        match self.parts.range(..page).next_back() {
            Some((_, part)) if self.glued(page) => u64::from(part.uses),
            _ => 0,
        }
    }

    /// New pages behind the end.
    pub fn extend(&mut self, pages: u64, owner: u32) -> Interval {
        let new = Interval { start: self.end, pages };
        self.parts.insert(new.start, Part { pages, owner, uses: 0, glued: false });
        self.end += pages;
        new
    }

    /// Parts an owner's part into two, which are glued.
    pub fn split(&mut self, start: u64, pages: u64) {
        let Some(part) = self.parts.get_mut(&start) else { return };
        let rest = Part { pages: part.pages - pages, ..*part };
        (part.pages, part.glued) = (pages, true);
        self.parts.insert(start + pages, rest);
    }

    /// A part is another's from now on.
    pub fn hand_over(&mut self, start: u64, owner: u32) {
        if let Some(part) = self.parts.get_mut(&start) {
            part.owner = owner;
        }
    }

    /// Someone uses parts one behind the other, behind a page used at the address before, if any.
    /// Returns them with those joined that stay together.
    pub fn take(&mut self, owner: u32, before: Option<u64>, parts: &[u64]) -> Vec<Interval> {
        let mut taken: Vec<Interval> = Vec::with_capacity(parts.len());
        for &start in parts {
            let Some(part) = self.parts.get(&start).copied() else { continue };
            let last = taken.last().map(|last| last.end() - 1).or(before);
            let together = last.is_some_and(|last| last + 1 == start) && self.joins(start);
            if !together {
                if let Some(last) = last {
                    self.part_at(last + 1);
                }
                self.part_at(start);
            }
            let uses = part.uses + 1;
            self.parts.insert(start, Part { owner, uses, ..part });
            match taken.last_mut().filter(|_| together) {
                Some(last) => {
                    self.parts.remove(&start);
                    last.pages += part.pages;
                    let joined = Part { pages: last.pages, owner, uses, glued: part.glued };
                    self.parts.insert(last.start, joined);
                }
                None => taken.push(Interval { start, pages: part.pages }),
            }
        }
        taken
    }

    /// Whether a part stays with the one before it, which is used right before it.
    fn joins(&mut self, start: u64) -> bool {
        let fresh = self.parts.get(&start).is_some_and(|part| part.uses == 0);
        match self.ending(start) {
            Some(before) if fresh && before.uses == 1 => {
                before.glued = true;
                true
            }
            Some(before) => before.glued,
            None => false,
        }
    }

    /// Nothing holds the pages before and at a page together any more.
    pub fn part_at(&mut self, page: u64) {
        if let Some(part) = self.ending(page) {
            part.glued = false;
        }
    }
}
