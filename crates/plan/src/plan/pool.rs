//! What has come to a row and may be taken there.

use std::collections::BTreeMap;

/// What an item has promised.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    /// By row: how much is promised to it and not taken yet, and whether it has come there.
    rows: Vec<(u32, u64, bool)>,
    /// What is promised to no block.
    spare: u64,
}

impl Claims {
    /// Promises nothing of so many pages.
    pub fn new(pages: u64) -> Self {
        Self { rows: Vec::new(), spare: pages }
    }

    /// Promises pages to a row.
    pub fn promise(&mut self, row: u32, pages: u64) {
        self.spare -= pages;
        match self.rows.iter_mut().find(|claim| claim.0 == row) {
            Some(claim) => claim.1 += pages,
            None => self.rows.push((row, pages, false)),
        }
    }

    /// The promise has come to the row.
    pub fn enter(&mut self, row: u32) {
        for claim in self.rows.iter_mut().filter(|claim| claim.0 == row) {
            claim.2 = true;
        }
    }

    /// How much the row may take.
    pub fn open(&self, row: u32) -> u64 {
        let claim = self.rows.iter().find(|claim| claim.0 == row && claim.2);
        claim.map_or(0, |claim| claim.1 + self.spare)
    }

    /// The row takes pages; returns how many of them were promised to it.
    pub fn take(&mut self, row: u32, pages: u64) -> u64 {
        let Some(claim) = self.rows.iter_mut().find(|claim| claim.0 == row) else { return 0 };
        let promised = claim.1.min(pages);
        claim.1 -= promised;
        self.spare -= pages - promised;
        promised
    }

    /// The rows to which something has come that they have not taken.
    pub fn entered(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().filter(|claim| claim.2).map(|claim| claim.0)
    }
}

/// A row's parts by size. Some may be gone: each is looked up before it is used.
#[derive(Debug, Default)]
pub(super) struct Pool {
    parts: BTreeMap<u64, Vec<u64>>,
}

impl Pool {
    /// A part has come.
    pub fn add(&mut self, start: u64, pages: u64) {
        self.parts.entry(pages).or_default().push(start);
    }

    /// Calls `see` with parts that are there, of sizes between two, by size; where it answers no, the
    /// next size follows. Parts that are gone are forgotten on the way.
    pub fn each(
        &mut self,
        (least, most): (u64, u64),
        mut open: impl FnMut(u64, u64) -> bool,
        mut see: impl FnMut(u64, u64) -> bool,
    ) {
        if least > most {
            return;
        }
        let mut empty = Vec::new();
        for (&pages, parts) in self.parts.range_mut(least..=most) {
            let mut at = parts.len();
            while at > 0 {
                at -= 1;
                let start = parts[at];
                if !open(pages, start) {
                    parts.swap_remove(at);
                } else if !see(pages, start) {
                    break;
                }
            }
            if parts.is_empty() {
                empty.push(pages);
            }
        }
        for pages in empty {
            self.parts.remove(&pages);
        }
    }
}
