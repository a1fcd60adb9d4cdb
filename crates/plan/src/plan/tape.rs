//! Physical pages in a row, and where they will have to be cut.
//!
//! The pages lie on a *tape* in the order in which they are first used. It falls into *parts*: in each, the pages have
//! always been passed on together. Two neighbouring parts are *glued* while every address that the one was mapped at
//! has the other behind it; then they still are one piece of memory. Splitting a part costs nothing until the glue
//! breaks, and then a mapping for every address that the pages have been used at.

use regraph_record::index::{define_index, Map};
use smallvec::SmallVec;

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

define_index! {
    /// A page that a part begins at, or has begun at.
    pub(super) PartRow
}

/// Parts, mostly one or two.
pub(super) type PartRows = SmallVec<[PartRow; 2]>;

/// A part of the tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The first page.
    pub start: u64,
    /// How many pages; none while no part begins here.
    pub pages: u64,
    /// Who had it last.
    pub owner: u32,
    /// How often it has been used.
    pub uses: u32,
    /// Whether the next part is its neighbour wherever either was used.
    pub glued: bool,
    before: Option<PartRow>,
    after: Option<PartRow>,
}

impl Part {
    /// The page behind it.
    pub fn end(&self) -> u64 {
        self.start + self.pages
    }
}

/// The parts, which leave no page out.
#[derive(Debug)]
pub(super) struct Tape {
    parts: Vec<Part>,
    /// By first page, parts that there are and that there were.
    rows: Map<u64, PartRow>,
    last: Option<PartRow>,
}

impl Tape {
    /// Without any pages, and with room for so many parts.
    pub fn new(parts: usize) -> Self {
        let mut rows = Map::default();
        rows.reserve(parts);
        Self { parts: Vec::with_capacity(parts), rows, last: None }
    }

    /// The page behind the last.
    pub fn end(&self) -> u64 {
        self.last.map_or(0, |last| self.part(last).end())
    }

    /// A part.
    pub fn part(&self, row: PartRow) -> &Part {
        &self.parts[row.index()]
    }

    /// The part that begins at a page.
    pub fn at(&self, page: u64) -> Option<PartRow> {
        self.rows.get(&page).copied().filter(|row| self.part(*row).pages > 0)
    }

    /// What it costs to part a part from the one before it; `None` if nothing holds them together.
    pub fn loss(&self, row: PartRow) -> Option<u64> {
        let before = self.part(self.part(row).before?);
        before.glued.then_some(u64::from(before.uses))
    }

    /// New pages behind the end.
    pub fn extend(&mut self, pages: u64, owner: u32) -> PartRow {
        let (start, before) = (self.end(), self.last);
        self.insert(Part { start, pages, owner, uses: 0, glued: false, before, after: None })
    }

    /// Parts an owner's part into two, which are glued. Returns the second.
    pub fn split(&mut self, row: PartRow, pages: u64) -> PartRow {
        let part = &mut self.parts[row.index()];
        let (start, rest) = (part.start + pages, part.pages - pages);
        let rest = Part { start, pages: rest, before: Some(row), ..*part };
        (part.pages, part.glued) = (pages, true);
        self.insert(rest)
    }

    /// Adds a part between its neighbours.
    fn insert(&mut self, part: Part) -> PartRow {
        let next = PartRow::new(self.parts.len());
        let row = *self.rows.entry(part.start).or_insert(next);
        match row == next {
            true => self.parts.push(part),
            false => self.parts[row.index()] = part,
        }
        self.link(part.before, Some(row));
        self.link(Some(row), part.after);
        row
    }

    fn link(&mut self, before: Option<PartRow>, after: Option<PartRow>) {
        if let Some(before) = before {
            self.parts[before.index()].after = after;
        }
        match after {
            Some(after) => self.parts[after.index()].before = before,
            None => self.last = before,
        }
    }

    /// A part is another's from now on.
    pub fn hand_over(&mut self, row: PartRow, owner: u32) {
        self.parts[row.index()].owner = owner;
    }

    /// Someone uses parts one behind the other, at the address behind the one of the page before `next`, if
    /// any. Returns them with those joined that stay together.
    pub fn take(&mut self, owner: u32, next: Option<u64>, parts: &[PartRow]) -> PartRows {
        let mut taken = PartRows::new();
        for &row in parts {
            let part = *self.part(row);
            let last = taken.last().copied();
            let next = last.map_or(next, |last| Some(self.part(last).end()));
            let together = next == Some(part.start) && self.joins(row);
            if !together {
                match last {
                    Some(last) => self.part_behind(last),
                    None => next.into_iter().for_each(|next| self.part_at(next)),
                }
                self.part_at(part.start);
            }
            let used = Part { owner, uses: part.uses + 1, ..part };
            match last.filter(|_| together) {
                Some(last) => {
                    let Part { start, pages, before, .. } = *self.part(last);
                    self.parts[row.index()].pages = 0;
                    let pages = pages + part.pages;
                    self.parts[last.index()] = Part { start, pages, before, ..used };
                    self.link(Some(last), used.after);
                }
                None => {
                    self.parts[row.index()] = used;
                    taken.push(row);
                }
            }
        }
        taken
    }

    /// Whether a part stays with the one before it, which is used right before it.
    fn joins(&mut self, row: PartRow) -> bool {
        let Part { uses, before, .. } = *self.part(row);
        let Some(before) = before else { return false };
        let before = &mut self.parts[before.index()];
        before.glued |= uses == 0 && before.uses == 1;
        before.glued
    }

    /// Nothing holds a part and the one behind it together any more.
    pub fn part_behind(&mut self, row: PartRow) {
        self.parts[row.index()].glued = false;
    }

    /// Nothing holds the pages before and at a page together any more, if a part ends there.
    pub fn part_at(&mut self, page: u64) {
        let at_end = page == self.end();
        let before =
            if at_end { self.last } else { self.at(page).and_then(|row| self.part(row).before) };
        if let Some(before) = before {
            self.part_behind(before);
        }
    }
}
