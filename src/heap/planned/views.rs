//! Pages of addresses on one page of memory.
//!
//! What is free of such a page is kept once, under one of its addresses: its *home*. The others are
//! *views* of it. Any of them can become the home.

use std::collections::BTreeMap;

/// Who lies on whose page.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// By view: the home.
    homes: BTreeMap<u64, u64>,
    /// By home: the views.
    views: BTreeMap<u64, Vec<u64>>,
    /// By page that has ever been a view: one that was there before it.
    ever: BTreeMap<u64, u64>,
}

impl Views {
    /// Where what is free of a page is kept.
    pub(super) fn home(&self, page: u64) -> u64 {
        self.homes.get(&page).copied().unwrap_or(page)
    }

    /// The views of a home.
    pub(super) fn of(&self, home: u64) -> &[u64] {
        self.views.get(&home).map_or(&[], Vec::as_slice)
    }

    /// The views among some addresses.
    pub(super) fn within(&self, first: u64, last: u64) -> Vec<u64> {
        self.homes.range(first..last).map(|(view, _)| *view).collect()
    }

    /// A page that no block has had lies on a home's from now on.
    pub(super) fn lie(&mut self, page: u64, home: u64) {
        self.homes.insert(page, home);
        self.views.entry(home).or_default().push(page);
        self.ever.insert(page, home);
    }

    /// Makes a view the home. Returns which it was before, if another.
    pub(super) fn turn_to(&mut self, page: u64) -> Option<u64> {
        let home = self.homes.remove(&page)?;
        let mut views = self.views.remove(&home).unwrap_or_default();
        for view in &mut views {
            if *view == page {
                *view = home;
            }
            self.homes.insert(*view, page);
        }
        self.views.insert(page, views);
        Some(home)
    }

    /// A home's page is one block's alone, or is not had again: its views are not had again.
    pub(super) fn drop(&mut self, home: u64) {
        for view in self.views.remove(&home).unwrap_or_default() {
            self.homes.remove(&view);
        }
    }

    /// The same of all homes among some addresses.
    pub(super) fn drop_within(&mut self, first: u64, last: u64) {
        if first < last {
            let homes: Vec<u64> = self.views.range(first..last).map(|(home, _)| *home).collect();
            homes.into_iter().for_each(|home| self.drop(home));
        }
    }

    /// All sets of pages that have ever lain on one.
    pub(super) fn sets(&self) -> Vec<Vec<u64>> {
        let mut sets: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for &page in self.ever.keys() {
            let mut root = page;
            while let Some(&before) = self.ever.get(&root) {
                root = before;
            }
            sets.entry(root).or_default().push(page);
        }
        let whole = sets.into_iter().map(|(root, mut pages)| {
            pages.push(root);
            pages.sort_unstable();
            pages
        });
        whole.collect()
    }
}
