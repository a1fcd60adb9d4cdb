//! Cutting a block out of free ranges.

use super::place::{Before, Placed};
use super::range::{Range, RangeId, State};
use super::Heap;
use crate::capture::Markers;

/// Where a block begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// At the low end of this range, reaching up.
    Low(RangeId),
    /// At the high end of this range, reaching down.
    High(RangeId),
}

/// What was taken off the lists for the sake of a range.
#[derive(Clone, Copy, Debug)]
enum Unlisted {
    /// Nothing: it was on none.
    None,
    /// The range alone.
    Single,
    /// The run that it begins or ends.
    Run { first: RangeId, last: RangeId },
}

impl Heap {
    /// Cuts a block out of the range at its edge and as many behind it as it needs, all of them
    /// free and theirs to take who asked.
    pub(super) fn carve(&mut self, edge: Edge, bytes: u64) -> Placed {
        let (mut at, low) = match edge {
            Edge::Low(first) => (first, true),
            Edge::High(last) => (last, false),
        };
        let address = match edge {
            Edge::Low(first) => self.ranges[first].address,
            Edge::High(last) => self.ranges[last].end() - bytes,
        };
        let mut before = Before { markers: Markers::new(), graphs: false };
        let mut missing = bytes;
        self.in_blocks += bytes;
        loop {
            let Range { segment, previous, next, bytes: size, .. } = self.ranges[at];
            let taken = size.min(missing);
            missing -= taken;
            self.unite(at, &mut before);
            if taken < size {
                let listed = self.unlist(at, low);
                let rest = &mut self.ranges[at];
                rest.bytes -= taken;
                // Entered before the rest is listed again: else the rest would take the range on
                // the block's other side for its neighbour.
                let sides = if low {
                    rest.address += taken;
                    (previous, Some(at))
                } else {
                    (Some(at), next)
                };
                let range = self.ranges.insert((address, bytes), segment, sides, State::Allocated);
                if sides.1.is_none() {
                    self.segment(segment).last = Some(range);
                }
                self.relist(at, listed);
                return Placed { range, address, bytes, before };
            }
            self.unlist_whole(at);
            if missing == 0 {
                self.ranges.set_state(at, State::Allocated);
                let range = &mut self.ranges[at];
                range.address = address;
                range.bytes = bytes;
                self.ranges.renew(at);
                return Placed { range: at, address, bytes, before };
            }
            self.ranges.remove(at);
            if next.is_none() {
                self.segment(segment).last = previous;
            }
            let beside = if low { next } else { previous };
            at = beside.unwrap_or_else(|| unreachable!("the extent was large enough"));
        }
    }

    /// Unites what a free range asks for with `before`.
    fn unite(&self, id: RangeId, before: &mut Before) {
        match &self.ranges[id].state {
            State::Idle { graphs, .. } => before.graphs |= graphs,
            State::StreamOrdered { .. } => {}
            State::Pending(pending) => {
                before.graphs |= pending.graphs;
                if before.markers.is_empty() {
                    before.markers.extend_from_slice(&pending.markers);
                    return;
                }
                for &marker in &pending.markers {
                    if !before.markers.contains(&marker) {
                        before.markers.push(marker);
                    }
                }
            }
            state => unreachable!("only free ranges are carved, not {state:?}"),
        }
    }

    /// Takes a free range off every list.
    fn unlist_whole(&mut self, id: RangeId) {
        match &self.ranges[id].state {
            State::Idle { .. } | State::StreamOrdered { .. } => self.unlist_single(id),
            // News and entries of other streams name the range and are compared with it on use.
            State::Pending(pending) if pending.in_run => self.leave_run(id),
            _ => {}
        }
    }

    /// The same for a range that will be listed again when it has lost its low or its high end.
    fn unlist(&mut self, id: RangeId, low: bool) -> Unlisted {
        let Range { previous, next, .. } = self.ranges[id];
        let State::Pending(pending) = &self.ranges[id].state else {
            self.unlist_whole(id);
            return Unlisted::Single;
        };
        if !pending.in_run {
            return Unlisted::None;
        }
        let end = pending.run_end;
        if self.run_mate(id, if low { previous } else { next }).is_some() {
            self.leave_run(id);
            return Unlisted::Single;
        }
        // At the end of its run: the rest of the run need not be touched.
        let (first, last) = if low { (id, end) } else { (end, id) };
        self.unlist_run(first);
        Unlisted::Run { first, last }
    }

    /// Puts a range back on the lists of its kind after it shrank.
    fn relist(&mut self, id: RangeId, unlisted: Unlisted) {
        match (unlisted, &self.ranges[id].state) {
            (Unlisted::None, _) => {}
            (Unlisted::Run { first, last }, _) => self.list_run(first, last),
            (Unlisted::Single, State::Idle { .. } | State::StreamOrdered { .. }) => {
                self.list_single(id)
            }
            (Unlisted::Single, _) => self.join_run(id),
        }
    }
}
