//! Whether a cover is what it says, by the items alone.
//!
//! The memory flows as it may, so the minimum is enough; and no two of the antichain precede one
//! another, so less is not enough. In a row who precedes an item precedes all later ones: of the
//! antichain's items in a row it is enough to look at the last.

use super::{Cover, Items, Row};

impl Cover {
    /// Whether this is a cover of the items, and its antichain shows that none needs less.
    ///
    /// Trusts nothing that was found on the way. Takes a comparison for each entry, and one for each
    /// item of the antichain and row.
    pub fn is_proven(&self, items: &Items) -> bool {
        self.flows(items).is_some_and(|new| new == u128::from(self.minimum))
            && self.weighs(items).is_some_and(|weight| weight == u128::from(self.minimum))
    }

    /// The new memory, if every item is in one row once and takes only what it may have.
    fn flows(&self, items: &Items) -> Option<u128> {
        let count = items.items().len();
        let mut seen = vec![false; count];
        let mut left: Vec<u64> = items.items().iter().map(|item| item.weight).collect();
        let mut new = 0;
        for row in &self.rows {
            if (row.entries.len(), row.taken.len()) != (row.items.len(), row.items.len()) {
                return None;
            }
            let mut before = None;
            let mut available = 0_u128;
            for ((&item, entries), &taken) in row.items.iter().zip(&row.entries).zip(&row.taken) {
                let item = item as usize;
                if item >= count || std::mem::replace(&mut seen[item], true) {
                    return None;
                }
                if before.is_some_and(|before| !items.knows_within(before, item)) {
                    return None;
                }
                before = Some(item);
                for entry in entries {
                    let from = entry.from as usize;
                    if from >= count || from == item || !items.precedes(from, item) {
                        return None;
                    }
                    left[from] = left[from].checked_sub(entry.amount)?;
                    available += u128::from(entry.amount);
                }
                available = available.checked_sub(u128::from(taken))?;
                new += u128::from(items.items()[item].weight.checked_sub(taken)?);
            }
            if available > 0 {
                return None;
            }
        }
        seen.iter().all(|&seen| seen).then_some(new)
    }

    /// What the antichain weighs, if it is one.
    fn weighs(&self, items: &Items) -> Option<u128> {
        let count = items.items().len();
        let mut chosen = vec![false; count];
        let mut weight = 0;
        for &item in &self.antichain {
            let item = item as usize;
            if item >= count || std::mem::replace(&mut chosen[item], true) {
                return None;
            }
            weight += u128::from(items.items()[item].weight);
        }
        let last = |row: &Row| row.items.iter().rev().copied().find(|&it| chosen[it as usize]);
        let lasts: Vec<u32> = self.rows.iter().filter_map(last).collect();
        let precedes =
            |&item: &u32| lasts.iter().any(|&last| items.precedes(item as usize, last as usize));
        (!self.antichain.iter().any(precedes)).then_some(weight)
    }
}
