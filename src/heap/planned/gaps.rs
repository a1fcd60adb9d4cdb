//! Gaps in pages of addresses that blocks have had, by whose page it is.

use crate::capture::StreamIndex;

/// Gaps in the pages of each stream, the smallest first. Those in pages that are no stream's are left out. A change
/// takes some steps and a move of what lies behind in the row.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// By stream: sizes and addresses.
    rows: Vec<Vec<(u64, u64)>>,
}

impl Gaps {
    pub(super) fn insert(&mut self, owner: Option<StreamIndex>, (start, end): (u64, u64)) {
        let Some(owner) = owner.filter(|_| start < end) else { return };
        if self.rows.len() <= owner.index() {
            self.rows.resize_with(owner.index() + 1, Vec::new);
        }
        let row = &mut self.rows[owner.index()];
        if let Err(at) = row.binary_search(&(end - start, start)) {
            row.insert(at, (end - start, start));
        }
    }

    pub(super) fn remove(&mut self, owner: Option<StreamIndex>, (start, end): (u64, u64)) {
        let row = owner.and_then(|owner| self.rows.get_mut(owner.index()));
        if let Some(row) = row.filter(|_| start < end) {
            if let Ok(at) = row.binary_search(&(end - start, start)) {
                row.remove(at);
            }
        }
    }

    /// The sizes and addresses of those of a stream that have so many bytes, the smallest first.
    pub(super) fn of(&self, owner: usize, bytes: u64) -> &[(u64, u64)] {
        let row = self.rows.get(owner).map_or(&[][..], Vec::as_slice);
        &row[row.partition_point(|gap| gap.0 < bytes)..]
    }
}
