//! Whether a snapshot agrees with itself, and its history with what it led to.

mod history;

use regraph::snapshot::{Action, BlockState, Segment, Snapshot, TraceEntry};
use thiserror::Error;

pub use history::validate_history;

/// Addresses and sizes stay at or below this: viewers calculate in doubles.
pub const NUMBER_LIMIT: u64 = 1 << 53;

/// What is wrong with a snapshot. Segments are named by their addresses, entries by their place in
/// the device's trace, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidSnapshot {
    /// A device has segments and no trace, not even an empty one.
    #[error("device {device} has segments and no list in `device_traces`")]
    NoTrace {
        /// The device.
        device: u32,
    },
    /// A segment is empty or ends above [`NUMBER_LIMIT`].
    #[error("segment {segment:#x}: {total_size} bytes from there cannot be")]
    Extent {
        /// The segment.
        segment: u64,
        /// Its size.
        total_size: u64,
    },
    /// Two segments of a device share addresses.
    #[error("segment {segment:#x} begins inside segment {earlier:#x}")]
    Overlap {
        /// The higher one.
        segment: u64,
        /// The lower one.
        earlier: u64,
    },
    /// A block does not begin where the one before it ends.
    #[error("segment {segment:#x}: a block is at {address:#x} and should be at {expected:#x}")]
    Place {
        /// The segment.
        segment: u64,
        /// The block.
        address: u64,
        /// The end of the block before it, or the segment's beginning.
        expected: u64,
    },
    /// A block is empty or more was asked for than it holds.
    #[error("block {address:#x}: {requested_size} bytes asked for of {size}")]
    Size {
        /// The block.
        address: u64,
        /// Its size.
        size: u64,
        /// What was asked for.
        requested_size: u64,
    },
    /// A block waits for something though it has not been freed, or says that it waits and not for what.
    #[error("block {address:#x}: it is not one that waits")]
    Waiting {
        /// The block.
        address: u64,
    },
    /// A figure of a segment is not what its blocks add up to.
    #[error("segment {segment:#x}: `{field}` is {stated}, its blocks add up to {sum}")]
    Sum {
        /// The segment.
        segment: u64,
        /// The figure.
        field: &'static str,
        /// What it says.
        stated: u64,
        /// What it should be.
        sum: u64,
    },
    /// An entry lacks a field that its action has, or has one that it lacks.
    #[error("device {device}, entry {entry}: `addr` or `device_free` does not fit {action:?}")]
    Fields {
        /// The device.
        device: usize,
        /// The entry.
        entry: usize,
        /// Its action.
        action: Action,
    },
    /// Entries have categories and none of them is `unknown`.
    #[error("no entry has the category `unknown`, without which viewers fail")]
    Category,
    /// An entry cannot have led to what comes after it.
    #[error("device {device}, entry {entry}: {action:?} at {address:#x}, {problem}")]
    History {
        /// The device.
        device: usize,
        /// The entry.
        entry: usize,
        /// Its action.
        action: Action,
        /// Its address.
        address: u64,
        /// Why not.
        problem: &'static str,
    },
}

/// Checks that every viewer will show this and that it agrees with itself: blocks fill their
/// segments in address order, a segment's figures are the sums of its blocks', segments of a
/// device share no address, and entries have the fields of their actions.
///
/// # Errors
/// The first thing that is wrong.
pub fn validate(snapshot: &Snapshot) -> Result<(), InvalidSnapshot> {
    for segment in &snapshot.segments {
        if snapshot.device_traces.len() <= segment.device as usize {
            return Err(InvalidSnapshot::NoTrace { device: segment.device });
        }
        validate_segment(segment)?;
    }
    disjoint(snapshot)?;
    for (device, trace) in snapshot.device_traces.iter().enumerate() {
        let wrong = trace.iter().position(|entry| !has_its_fields(entry));
        if let Some(entry) = wrong {
            let action = trace[entry].action;
            return Err(InvalidSnapshot::Fields { device, entry, action });
        }
    }
    let mut categories =
        snapshot.device_traces.iter().flatten().filter_map(|entry| entry.category.as_deref());
    match categories.next() {
        Some(first) if first != "unknown" && !categories.any(|name| name == "unknown") => {
            Err(InvalidSnapshot::Category)
        }
        _ => Ok(()),
    }
}

fn disjoint(snapshot: &Snapshot) -> Result<(), InvalidSnapshot> {
    let mut order: Vec<&Segment> = snapshot.segments.iter().collect();
    order.sort_by_key(|segment| (segment.device, segment.address));
    for pair in order.windows(2) {
        let [earlier, segment] = [pair[0], pair[1]];
        if earlier.device == segment.device
            && earlier.address + earlier.total_size > segment.address
        {
            return Err(InvalidSnapshot::Overlap {
                segment: segment.address,
                earlier: earlier.address,
            });
        }
    }
    Ok(())
}

fn validate_segment(segment: &Segment) -> Result<(), InvalidSnapshot> {
    let end = segment.address.checked_add(segment.total_size);
    if segment.total_size == 0 || end.is_none_or(|end| end > NUMBER_LIMIT) {
        return Err(InvalidSnapshot::Extent {
            segment: segment.address,
            total_size: segment.total_size,
        });
    }
    let [mut total, mut allocated, mut active, mut requested] = [0_u64; 4];
    for block in &segment.blocks {
        let address = block.address;
        if address != segment.address + total {
            let expected = segment.address + total;
            return Err(InvalidSnapshot::Place { segment: segment.address, address, expected });
        }
        if block.size == 0 || block.requested_size > block.size {
            let (size, requested_size) = (block.size, block.requested_size);
            return Err(InvalidSnapshot::Size { address, size, requested_size });
        }
        if block
            .waiting
            .as_ref()
            .is_some_and(|waiting| waiting.is_empty() || block.state == BlockState::ActiveAllocated)
        {
            return Err(InvalidSnapshot::Waiting { address });
        }
        if block.size > segment.total_size - total {
            return Err(sum(
                segment,
                "total_size",
                segment.total_size,
                total.saturating_add(block.size),
            ));
        }
        total += block.size;
        if block.state == BlockState::ActiveAllocated {
            allocated += block.size;
        }
        if block.state.is_active() {
            active += block.size;
            requested += block.requested_size;
        }
    }
    let sums = [
        ("total_size", segment.total_size, total),
        ("allocated_size", segment.allocated_size, allocated),
        ("active_size", segment.active_size, active),
        ("requested_size", segment.requested_size, requested),
    ];
    match sums.into_iter().find(|(_, stated, sum)| stated != sum) {
        Some((field, stated, found)) => Err(sum(segment, field, stated, found)),
        None => Ok(()),
    }
}

fn sum(segment: &Segment, field: &'static str, stated: u64, sum: u64) -> InvalidSnapshot {
    InvalidSnapshot::Sum { segment: segment.address, field, stated, sum }
}

fn has_its_fields(entry: &TraceEntry) -> bool {
    let oom = entry.action == Action::Oom;
    entry.addr.is_some() != oom && entry.device_free.is_some() == oom
}
