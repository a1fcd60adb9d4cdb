//! Expandable segments: an address space for each queue, mapped page by page.

use super::layout::{Layout, Queue, State, Traffic};
use super::sizes::LARGE_SEGMENT;

/// The address space of a segment, in bytes: 10 TiB, more than any device has, in whole pages.
const SPACE: u64 = LARGE_SEGMENT << 19;

/// The best fit; of two neighbours in that order the one whose segment can grow less behind it.
pub(super) fn best_fit(layout: &Layout, queue: Queue, bytes: u64) -> Option<u64> {
    let reach = |address| {
        let behind = layout.behind(address).filter(|(_, chunk)| chunk.state == State::Unmapped);
        layout.chunk(address).bytes + behind.map_or(0, |(_, chunk)| chunk.bytes)
    };
    let mut fits = layout.fits(queue, bytes);
    let mut best = fits.next()?;
    for address in fits {
        if reach(address) >= reach(best) {
            break;
        }
        best = address;
    }
    Some(best)
}

/// Maps pages until a free chunk is large enough, if there is room for them.
pub(super) fn grow(
    layout: &mut Layout,
    queue: Queue,
    bytes: u64,
    room: u64,
) -> Option<(u64, Traffic)> {
    if bytes > SPACE {
        return None;
    }
    let start = match lowest_run(layout, queue, bytes) {
        Some(start) => start,
        None => layout.add_segment(SPACE, queue, State::Unmapped),
    };
    let (pieces, got) = plan(layout, queue, start, bytes);
    if got.bytes > room {
        return None;
    }
    let mut at = start;
    for (address, bytes) in pieces {
        if bytes < layout.chunk(address).bytes {
            layout.split(address, bytes);
        }
        layout.set_state(address, State::Free);
        at = layout.merge(address);
    }
    Some((at, got))
}

/// Gives back the whole pages that are free.
pub(super) fn release(layout: &mut Layout) -> Traffic {
    let mut given = Traffic::default();
    for address in layout.free() {
        let chunk = layout.chunk(address);
        let page = chunk.queue.class.page();
        let start = address.next_multiple_of(page);
        let end = (address + chunk.bytes) / page * page;
        if start >= end {
            continue;
        }
        if start > address {
            layout.split(address, start - address);
        }
        if end < address + chunk.bytes {
            layout.split(start, end - start);
        }
        layout.set_state(start, State::Unmapped);
        layout.merge(start);
        given.bytes += end - start;
        given.calls += (end - start) / page;
    }
    given
}

/// Where the lowest run of free and unmapped chunks begins that is long enough. It has an unmapped
/// chunk first, or one free chunk and an unmapped one behind it.
fn lowest_run(layout: &Layout, queue: Queue, bytes: u64) -> Option<u64> {
    layout.unmapped(queue).find_map(|unmapped| {
        let before = layout.before(unmapped).filter(|(_, chunk)| chunk.state == State::Free);
        let start = before.map_or(unmapped, |(address, _)| address);
        let mut length = 0;
        let mut next = Some((start, layout.chunk(start)));
        while let Some((address, chunk)) = next {
            if !matches!(chunk.state, State::Free | State::Unmapped) {
                return None;
            }
            length += chunk.bytes;
            if length >= bytes {
                return Some(start);
            }
            next = layout.behind(address);
        }
        None
    })
}

/// What to map of a run, as addresses and bytes, and its sum.
fn plan(layout: &Layout, queue: Queue, start: u64, bytes: u64) -> (Vec<(u64, u64)>, Traffic) {
    let page = queue.class.page();
    let (mut pieces, mut got) = (Vec::new(), Traffic::default());
    let mut length = 0;
    let mut next = Some((start, layout.chunk(start)));
    while let Some((address, chunk)) = next.filter(|_| length < bytes) {
        if chunk.state == State::Unmapped {
            let piece = (bytes - length).next_multiple_of(page).min(chunk.bytes);
            pieces.push((address, piece));
            got.bytes += piece;
            got.calls += piece / page;
            length += piece;
        } else {
            length += chunk.bytes;
        }
        next = layout.behind(address);
    }
    (pieces, got)
}
