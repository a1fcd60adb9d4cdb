//! Whether the traces lead to the memory as it is.

use std::collections::BTreeMap;

use regraph::snapshot::{Action, BlockState, Snapshot, TraceEntry};

use super::InvalidSnapshot;

/// Follows each device's trace backwards from the blocks and segments as they are, as viewers
/// do, and checks that every entry can have led to what comes after it. What happened before
/// the oldest entry need not be known. Call [`validate`](super::validate) first.
///
/// # Errors
/// The latest entry that cannot have happened: viewers fail there, or show what never was.
pub fn validate_history(snapshot: &Snapshot) -> Result<(), InvalidSnapshot> {
    for (device, trace) in snapshot.device_traces.iter().enumerate() {
        let mut memory = Memory::at_the_end(snapshot, device);
        for (index, entry) in trace.iter().enumerate().rev() {
            let address = entry.addr.unwrap_or(0);
            memory.undo(entry, address).map_err(|problem| InvalidSnapshot::History {
                device,
                entry: index,
                action: entry.action,
                address,
                problem,
            })?;
        }
    }
    Ok(())
}

/// A device's memory before some entry of its trace.
struct Memory {
    /// By address: the end of what was asked for, and whether it has been freed.
    blocks: BTreeMap<u64, (u64, bool)>,
    /// By address: the end, and whether it is expandable.
    segments: BTreeMap<u64, (u64, bool)>,
}

impl Memory {
    fn at_the_end(snapshot: &Snapshot, device: usize) -> Self {
        let mut memory = Self { blocks: BTreeMap::new(), segments: BTreeMap::new() };
        for segment in snapshot.segments.iter().filter(|s| s.device as usize == device) {
            let end = segment.address.saturating_add(segment.total_size);
            memory.insert(segment.address, end, segment.is_expandable);
            for block in segment.blocks.iter().filter(|block| block.state.is_active()) {
                let end = block.address.saturating_add(block.requested_size);
                let freed = block.state == BlockState::ActivePendingFree;
                memory.blocks.insert(block.address, (end, freed));
            }
        }
        memory
    }

    fn undo(&mut self, entry: &TraceEntry, address: u64) -> Result<(), &'static str> {
        let Some(end) = address.checked_add(entry.size) else {
            return Err("which ends beyond all addresses");
        };
        match entry.action {
            Action::Alloc => match self.blocks.remove(&address) {
                Some((_, false)) => Ok(()),
                Some((_, true)) => Err("whose block is freed without a request"),
                None => Err("where no block is afterwards"),
            },
            Action::FreeRequested => match self.blocks.get_mut(&address) {
                Some((_, freed)) if *freed => {
                    *freed = false;
                    Ok(())
                }
                Some(_) => Err("though the block is live afterwards"),
                None => Err("where no block is afterwards"),
            },
            Action::FreeCompleted => {
                if self.holder(address, end).is_none() {
                    return Err("which lies in no segment");
                }
                let below = self.blocks.range(..=end.saturating_sub(1).max(address)).next_back();
                if below
                    .is_some_and(|(&other, &(its_end, _))| other == address || its_end > address)
                {
                    return Err("though a block lies there afterwards");
                }
                self.blocks.insert(address, (end, true));
                Ok(())
            }
            Action::SegmentAlloc => match self.segments.get(&address) {
                Some(&(found, false)) if found == end => self.cut(address, address, end),
                _ => Err("where no such segment is afterwards"),
            },
            Action::SegmentMap => match self.holder(address, end) {
                Some((start, true)) => self.cut(start, address, end),
                _ => Err("where no such memory is mapped afterwards"),
            },
            Action::SegmentFree | Action::SegmentUnmap => {
                let below = self.segments.range(..end).next_back();
                if below.is_some_and(|(_, &(other, _))| other > address) {
                    return Err("where memory is afterwards");
                }
                self.insert(address, end, entry.action == Action::SegmentUnmap);
                Ok(())
            }
            Action::Snapshot | Action::Oom => Ok(()),
        }
    }

    /// The segment that holds all of these addresses: its beginning, and whether it is expandable.
    fn holder(&self, address: u64, end: u64) -> Option<(u64, bool)> {
        let (&start, &(found, expandable)) = self.segments.range(..=address).next_back()?;
        (address < found && end <= found).then_some((start, expandable))
    }

    /// Adds memory. Expandable neighbours become one, since pieces may be mapped together and unmapped one by one.
    fn insert(&mut self, mut start: u64, mut end: u64, expandable: bool) {
        if expandable {
            if let Some(&(far, true)) = self.segments.get(&end) {
                self.segments.remove(&end);
                end = far;
            }
            if let Some((&lower, &(near, true))) = self.segments.range(..start).next_back() {
                if near == start {
                    start = lower;
                }
            }
        }
        self.segments.insert(start, (end, expandable));
    }

    /// Takes `address..end` out of the segment that begins at `start`.
    fn cut(&mut self, start: u64, address: u64, end: u64) -> Result<(), &'static str> {
        if self.blocks.range(address..end).next().is_some() {
            return Err("though a block is there before it");
        }
        if let Some((far, expandable)) = self.segments.remove(&start) {
            if start < address {
                self.segments.insert(start, (address, expandable));
            }
            if end < far {
                self.segments.insert(end, (far, expandable));
            }
        }
        Ok(())
    }
}
