//! Whole pages of addresses, what lies on each of their bytes, and the gaps in them.

use smallvec::SmallVec;

use crate::capture::{Markers, Proof, StreamIndex};

/// Whole pages: one, or more without a live block.
#[derive(Debug)]
pub(super) struct Stretch {
    start: u64,
    end: u64,
    /// Whose block it had first; `None` where there was none.
    owner: Option<StreamIndex>,
    /// All its bytes, by address. What is live lies between what is free.
    parts: SmallVec<[Part; 1]>,
}

#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    /// What must be proven to have it; none while a block lies there.
    given: Option<Markers>,
}

impl Part {
    fn is_free(&self) -> bool {
        self.given.is_some()
    }

    fn is_for(&self, proof: Proof<'_>) -> bool {
        self.given.as_ref().is_some_and(|markers| proof.covers(markers))
    }

    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

impl Stretch {
    /// Without a live block; who has it must have `given` proven.
    pub(super) fn idle(
        (start, end): (u64, u64),
        owner: Option<StreamIndex>,
        given: Markers,
    ) -> Self {
        let parts = SmallVec::from_buf([Part { start, end, given: Some(given) }]);
        Self { start, end, owner, parts }
    }

    /// Where it begins and ends.
    pub(super) fn extent(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    pub(super) fn owner(&self) -> Option<StreamIndex> {
        self.owner
    }

    /// It is a stream's from now on.
    pub(super) fn owned_by(self, owner: StreamIndex) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// What has been given back, each with what must be proven to have it.
    pub(super) fn given(&self) -> impl Iterator<Item = &Markers> {
        self.parts.iter().filter_map(|part| part.given.as_ref())
    }

    /// Whether there is more than one proof to be had for parts of it.
    pub(super) fn is_mixed(&self) -> bool {
        self.parts.len() > 1
    }

    /// How many live blocks have a part of it.
    pub(super) fn live(&self) -> usize {
        self.parts.iter().filter(|part| !part.is_free()).count()
    }

    /// Whether a stream may have all of it.
    pub(super) fn is_for(&self, proof: Proof<'_>) -> bool {
        self.parts.iter().all(|part| part.is_for(proof))
    }

    /// Whether a stream may have all that lies there of some addresses.
    pub(super) fn is_free(&self, (from, to): (u64, u64), proof: Proof<'_>) -> bool {
        let mut here = self.parts.iter().filter(|part| part.start < to && part.end > from);
        here.all(|part| part.is_for(proof))
    }

    /// How many bytes at its beginning are free for a stream.
    pub(super) fn start_gap(&self, proof: Proof<'_>) -> u64 {
        self.parts.iter().take_while(|part| part.is_for(proof)).map(Part::bytes).sum()
    }

    /// How many bytes at its end are free for a stream.
    pub(super) fn end_gap(&self, proof: Proof<'_>) -> u64 {
        self.parts.iter().rev().take_while(|part| part.is_for(proof)).map(Part::bytes).sum()
    }

    /// Whether no live block lies at its beginning.
    pub(super) fn begins_free(&self) -> bool {
        self.parts.first().is_some_and(Part::is_free)
    }

    /// Whether no live block lies at its end.
    pub(super) fn ends_free(&self) -> bool {
        self.parts.last().is_some_and(Part::is_free)
    }

    /// The first address of a gap at which a stream may have `bytes`.
    pub(super) fn fit(
        &self,
        (start, end): (u64, u64),
        bytes: u64,
        proof: Proof<'_>,
    ) -> Option<u64> {
        let mut begin = None;
        let gap = &self.parts[self.first_from(start)..self.first_from(end)];
        gap.iter().find_map(|part| {
            if !part.is_for(proof) {
                begin = None;
                return None;
            }
            let begin = *begin.get_or_insert(part.start);
            (part.end - begin >= bytes).then_some(begin)
        })
    }

    /// Cuts off what lies behind an address, where no live block does.
    pub(super) fn split_off(&mut self, at: u64) -> Self {
        self.part_at(at);
        let parts = self.parts.drain(self.first_from(at)..).collect();
        let end = std::mem::replace(&mut self.end, at);
        Self { start: at, end, owner: self.owner, parts }
    }

    /// A block lies in a gap from now on; adds what had to be proven for it. Returns the gap.
    pub(super) fn occupy(&mut self, (from, to): (u64, u64), beneath: &mut Markers) -> (u64, u64) {
        // It parts one into three at most.
        self.parts.reserve(2);
        self.part_at(from);
        self.part_at(to);
        let (first, behind) = (self.first_from(from), self.first_from(to));
        let here = self.parts.drain(first..behind);
        here.for_each(|part| add(beneath, part.given.as_slice()));
        self.parts.insert(first, Part { start: from, end: to, given: None });
        self.gap_around(first)
    }

    /// A block is gone from there. Returns the gap that there is then, if it was there.
    pub(super) fn vacate(&mut self, (from, to): (u64, u64), given: &Markers) -> Option<(u64, u64)> {
        let mut at = self.parts.binary_search_by_key(&from, |part| part.start).ok()?;
        self.parts.get(at).filter(|part| part.end == to && !part.is_free())?;
        let same = |part: &Part| part.given.as_ref() == Some(given);
        let mut gone = Part { start: from, end: to, given: Some(given.clone()) };
        if let Some(after) = self.parts.get(at + 1).filter(|part| same(part)) {
            gone.end = after.end;
            self.parts.remove(at + 1);
        }
        if let Some(before) = at.checked_sub(1).filter(|&before| same(&self.parts[before])) {
            gone.start = self.parts[before].start;
            self.parts.remove(at);
            at = before;
        }
        self.parts[at] = gone;
        Some(self.gap_around(at))
    }

    /// What lies side by side around a part without a live block.
    fn gap_around(&self, at: usize) -> (u64, u64) {
        let Part { start, end, .. } = self.parts[at];
        let before = self.parts[..at].iter().rev().take_while(|part| part.is_free()).last();
        let after = self.parts[at + 1..].iter().take_while(|part| part.is_free()).last();
        (before.map_or(start, |part| part.start), after.map_or(end, |part| part.end))
    }

    /// Parts what is around an address there.
    fn part_at(&mut self, at: u64) {
        let next = self.first_from(at);
        let around = next.checked_sub(1).map(|around| &mut self.parts[around]);
        let Some(around) = around.filter(|around| around.end > at) else { return };
        let rest = Part { start: at, end: around.end, given: around.given.clone() };
        around.end = at;
        self.parts.insert(next, rest);
    }

    /// Which part is the first that begins at an address or behind it.
    fn first_from(&self, at: u64) -> usize {
        self.parts.partition_point(|part| part.start < at)
    }
}

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

/// Adds markers that are not there yet.
pub(super) fn add<'a>(all: &mut Markers, given: impl IntoIterator<Item = &'a Markers>) {
    for marker in given.into_iter().flatten() {
        if !all.contains(marker) {
            all.push(*marker);
        }
    }
}
