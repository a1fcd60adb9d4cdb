//! Whether a pool may be compacted as it is about to be.
//!
//! Graphs get other memory at the addresses that they have. What was judged of each capture stays true if
//! no two of its addresses come to share memory that did not before; what is left to see to is what
//! lasts from launch to launch, and what one graph reads of another's.

use std::collections::{BTreeMap, BTreeSet};

use super::violation::{Misplaced, Violation};
use regraph_record::journal::{Compaction, Extent, GraphMemory};

/// Where an address lies: the memory's number, and how far into it.
type Spot = (u64, u64);

/// A graph's memory, by address.
struct Laid<'a> {
    graph: &'a GraphMemory,
    before: Vec<Extent>,
    after: Vec<Extent>,
}

/// Outputs of a graph on one memory: from where to where, when each was freed, and its address.
type Stretches = Vec<(u64, u64, u64, u64)>;

/// Judges what compacting a pool is about to change.
///
/// # Errors
/// The first thing found wrong.
pub fn check_compaction(compaction: &Compaction) -> Result<(), Violation> {
    let laid: Vec<Laid<'_>> = compaction.graphs.iter().map(Laid::new).collect();
    let old: BTreeSet<u64> =
        laid.iter().flat_map(|it| &it.before).map(|extent| extent.memory).collect();
    for it in &laid {
        it.require_whole()?;
        it.require_kept(&compaction.kept, &old)?;
    }
    // By memory that is new, and then by graph: where it is mapped.
    let mut uses: BTreeMap<u64, BTreeMap<usize, Vec<Extent>>> = BTreeMap::new();
    for (row, it) in laid.iter().enumerate() {
        for extent in it.after.iter().filter(|extent| !old.contains(&extent.memory)) {
            let of_memory = uses.entry(extent.memory).or_default();
            of_memory.entry(row).or_default().push(*extent);
        }
    }
    for users in uses.values() {
        judge_memory(&laid, users, compaction.unit)?;
    }
    Ok(())
}

/// Judges who shares one new memory.
fn judge_memory(
    laid: &[Laid<'_>],
    users: &BTreeMap<usize, Vec<Extent>>,
    unit: u64,
) -> Result<(), Violation> {
    let unit = unit.max(1);
    let bytes = users.values().flatten().map(|extent| extent.bytes).max();
    for (&row, extents) in users {
        let it = &laid[row];
        for extent in extents {
            // Mapped whole, and by none but graphs that may be launched.
            if Some(extent.bytes) != bytes || !it.graph.launches || it.graph.beside {
                return Err(it.violation(extent.address, Misplaced::Strange));
            }
            if !it.shared_before(extents[0].address, extent.address, extent.bytes) {
                return Err(it.violation(extent.address, Misplaced::Folded));
            }
        }
    }
    let outputs: BTreeMap<usize, Stretches> =
        users.iter().map(|(&row, extents)| (row, laid[row].outputs_on(extents))).collect();
    for (&row, stretches) in &outputs {
        let own = laid[row].graph.planned;
        for &(start, end, freed, address) in stretches {
            for (&other, theirs) in outputs.iter().filter(|(other, _)| **other != row) {
                let planned = laid[other].graph.planned;
                if own < planned {
                    if planned < freed {
                        return Err(laid[row].violation(address, Misplaced::Read));
                    }
                    continue;
                }
                let mut pages = start / unit..end.div_ceil(unit);
                let is_excused = |page: u64| {
                    theirs.iter().any(|&(from, to, freed, _)| {
                        from < (page + 1) * unit && page * unit < to && freed <= own
                    })
                };
                if planned == own || !pages.all(is_excused) {
                    return Err(laid[row].violation(address, Misplaced::Overwritten));
                }
            }
        }
    }
    Ok(())
}

impl<'a> Laid<'a> {
    fn new(graph: &'a GraphMemory) -> Self {
        let sorted = |extents: &[Extent]| {
            let mut extents = extents.to_vec();
            extents.sort_unstable();
            extents
        };
        Self { graph, before: sorted(&graph.before), after: sorted(&graph.after) }
    }

    fn violation(&self, address: u64, why: Misplaced) -> Violation {
        Violation::Misplaced { graph: self.graph.graph, address, why }
    }

    /// What had memory has some, each address once, and nothing else has; of a graph that was released nothing is new.
    fn require_whole(&self) -> Result<(), Violation> {
        let strange = |address| self.violation(address, Misplaced::Strange);
        let before = runs(&self.before).map_err(strange)?;
        let after = runs(&self.after).map_err(strange)?;
        if !self.graph.launches {
            let new = self.after.iter().find(|it| self.before.binary_search(it).is_err());
            return new.map_or(Ok(()), |it| Err(strange(it.address)));
        }
        if let Some(run) = after.iter().find(|run| before.binary_search(run).is_err()) {
            let whole = before.iter().find(|it| it.0 <= run.0 && run.1 <= it.1);
            return Err(whole.map_or(strange(run.0), |whole| {
                let missing = if whole.0 < run.0 { whole.0 } else { run.1 };
                self.violation(missing, Misplaced::Unmapped)
            }));
        }
        let missing = before.iter().find(|run| after.binary_search(run).is_err());
        missing.map_or(Ok(()), |run| Err(self.violation(run.0, Misplaced::Unmapped)))
    }

    /// What is to stay stays, and nothing else comes to lie there.
    fn require_kept(&self, kept: &[(u64, u64)], old: &BTreeSet<u64>) -> Result<(), Violation> {
        let new = |extent: &&Extent| self.before.binary_search(extent).is_err();
        if let Some(joined) = self.after.iter().filter(|it| old.contains(&it.memory)).find(new) {
            return Err(self.violation(joined.address, Misplaced::Joined));
        }
        let stays = |extent: &&Extent| {
            let (start, end) = (extent.address, extent.address + extent.bytes);
            let here = |&(from, bytes): &(u64, u64)| from < end && start - from.min(start) < bytes;
            self.graph.beside || kept.iter().any(here)
        };
        let gone = |extent: &&Extent| self.after.binary_search(extent).is_err();
        let moved = self.before.iter().filter(gone).find(stays);
        moved.map_or(Ok(()), |it| Err(self.violation(it.address, Misplaced::Moved)))
    }

    /// Where an address lies now, and how many bytes from there on lie behind it.
    fn spot(&self, address: u64) -> Option<(Spot, u64)> {
        let row = self.before.partition_point(|extent| extent.address <= address).checked_sub(1)?;
        let extent = &self.before[row];
        let offset = address - extent.address;
        let left = extent.bytes.checked_sub(offset).filter(|&left| left > 0)?;
        Some(((extent.memory, offset), left))
    }

    /// Whether two address ranges lie on the same memory now.
    fn shared_before(&self, one: u64, other: u64, bytes: u64) -> bool {
        let mut at = 0;
        while one != other && at < bytes {
            match (self.spot(one + at), self.spot(other + at)) {
                (Some((spot, left)), Some((its, room))) if spot == its => at += left.min(room),
                _ => return false,
            }
        }
        true
    }

    /// The parts of freed outputs that lie on a memory with these addresses.
    fn outputs_on(&self, extents: &[Extent]) -> Stretches {
        let mut found = Stretches::new();
        for extent in extents {
            for output in &self.graph.freed {
                let start = output.address.max(extent.address);
                let end = (output.address + output.bytes).min(extent.address + extent.bytes);
                if start < end {
                    let (from, to) = (start - extent.address, end - extent.address);
                    found.push((from, to, output.freed, start));
                }
            }
        }
        found
    }
}

/// What extents cover, neighbours together; where two overlap, or one is none, its address.
fn runs(extents: &[Extent]) -> Result<Vec<(u64, u64)>, u64> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &Extent { address, bytes, .. } in extents {
        let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or(address)?;
        match runs.last_mut() {
            Some(last) if address < last.1 => return Err(address),
            Some(last) if address == last.1 => last.1 = end,
            _ => runs.push((address, end)),
        }
    }
    Ok(runs)
}
