//! What has come to a row and may be taken there.

use smallvec::SmallVec;

use super::tape::{PartRow, PartRows};

/// What an item has promised.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    /// By row: how much is promised to it and not taken yet, and whether it has come there.
    rows: SmallVec<[(u32, u64, bool); 2]>,
    /// What is promised to no block.
    spare: u64,
}

impl Claims {
    /// Promises nothing of so many pages.
    pub fn new(pages: u64) -> Self {
        Self { rows: SmallVec::new(), spare: pages }
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
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// Ascending.
    sizes: Vec<(u64, PartRows)>,
}

impl Pool {
    /// A part has come.
    pub fn add(&mut self, part: PartRow, pages: u64) {
        let at = self.sizes.partition_point(|size| size.0 < pages);
        if self.sizes.get(at).is_none_or(|size| size.0 != pages) {
            self.sizes.insert(at, (pages, PartRows::new()));
        }
        self.sizes[at].1.push(part);
    }

    /// Calls `see` with parts that are there, of sizes between two, by size; where it answers no, the
    /// next size follows. Parts that are gone are forgotten on the way.
    pub fn each(
        &mut self,
        (least, most): (u64, u64),
        mut open: impl FnMut(u64, PartRow) -> bool,
        mut see: impl FnMut(u64, PartRow) -> bool,
    ) {
        let from = self.sizes.partition_point(|size| size.0 < least);
        for (pages, parts) in self.sizes[from..].iter_mut().take_while(|size| size.0 <= most) {
            let mut at = parts.len();
            while at > 0 {
                at -= 1;
                if !open(*pages, parts[at]) {
                    parts.swap_remove(at);
                } else if !see(*pages, parts[at]) {
                    break;
                }
            }
        }
    }
}
