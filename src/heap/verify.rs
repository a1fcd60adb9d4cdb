//! What holds of a heap between calls. `engine/verify.rs` has what holds of the rest, and asks for this.

use super::range::Users;
use super::range::{Range, RangeId, RangeState};
use super::segment::HeapSegment;
use super::suspend::runs;
use super::Heap;

/// Nothing, or what does not hold.
pub(crate) type Verdict = Result<(), String>;

/// Ends a check with what it found where something does not hold.
macro_rules! holds {
    ($that:expr, $($what:tt)+) => {
        if !$that {
            return Err(format!($($what)+));
        }
    };
}
pub(crate) use holds;

/// How often each row of a table is in a list.
pub(crate) fn times(
    list: impl IntoIterator<Item = usize>,
    rows: usize,
) -> Result<Vec<usize>, String> {
    let mut times = vec![0; rows];
    for row in list {
        holds!(row < rows, "row {row} is listed, of {rows}");
        times[row] += 1;
    }
    Ok(times)
}

impl Heap {
    pub(crate) fn verify(&self) -> Verdict {
        // A row of the table is a range or vacant, once; as many as are counted are free.
        self.ranges.verify()?;
        self.ranges_tile_segments()?;
        self.ranges_are_what_they_say()?;
        self.free_neighbours_are_merged()?;
        self.runs_are_the_free_ranges()?;
        self.pieces_lie_behind_ranges()?;
        self.sums_are_sums()
    }

    /// Every range with its row.
    pub(crate) fn each_range(&self) -> impl Iterator<Item = (RangeId, &Range)> {
        self.ranges.ids().map(|id| (id, &self.ranges[id]))
    }

    /// Every range with what it is.
    pub(crate) fn each_state(&self) -> impl Iterator<Item = (RangeId, RangeState)> + '_ {
        self.each_range().map(|(id, range)| (id, range.state()))
    }

    /// The addresses that it has reserved, or has in allocations, each with their end.
    pub(crate) fn reservations(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.segments.iter().flatten().map(|it| (it.address(), it.end()))
    }

    fn each_segment_there(&self) -> impl Iterator<Item = (usize, &HeapSegment)> {
        let segments = self.segments.iter().enumerate();
        segments.filter_map(|(number, segment)| Some((number, segment.as_ref()?)))
    }

    /// Ranges lie one behind the other in each segment, up to where memory is in use.
    fn ranges_tile_segments(&self) -> Verdict {
        let mut met = 0;
        for (number, segment) in self.each_segment_there() {
            let (mut end, mut next) = (segment.front(), None);
            let mut at = segment.last();
            while let Some(id) = at {
                let range = &self.ranges[id];
                let sized = range.bytes() > 0 && range.bytes().is_multiple_of(512);
                let linked = range.next() == next && range.segment().index() == number;
                holds!(
                    sized && linked && range.end() == end,
                    "{id:?} of segment {number} is no neighbour of {next:?}, at {end:#x}: {range:?}"
                );
                (end, next, at) = (range.address(), Some(id), range.previous());
                met += 1;
            }
            holds!(
                end == segment.address(),
                "the ranges of segment {number} at {:#x} begin at {end:#x}",
                segment.address()
            );
        }
        let all = self.ranges.ids().count();
        holds!(met == all, "{met} ranges lie in segments, of {all}");
        Ok(())
    }

    /// By state: whether there are markers, whether graphs keep the memory, and where holes may be.
    fn ranges_are_what_they_say(&self) -> Verdict {
        let mut holes = self.holes.clone();
        holes.sort_unstable();
        let found = self.each_range().filter(|it| it.1.state() == RangeState::Hole);
        let once = found.map(|it| it.0).eq(holes.iter().copied());
        holds!(once, "holes are listed otherwise than they are: {holes:?}");
        for (id, range) in self.each_range() {
            let bare = self.ranges[id].markers().is_empty();
            let is_hole = |id: RangeId| matches!(self.ranges[id].state(), RangeState::Hole);
            let place = (range.address(), range.end());
            let right = match range.state() {
                RangeState::Idle { users } | RangeState::Closed { users } => {
                    let (kept, until) = self.kept.at(range.address());
                    let known = match users {
                        Users::Eager | Users::Graphs => !kept && until >= range.end(),
                        Users::Kept => kept && until >= range.end(),
                        Users::Lent => false,
                    };
                    let open = matches!(range.state(), RangeState::Idle { .. });
                    bare && known && range.stamp() <= self.clock && (self.has_closed || open)
                }
                RangeState::StreamOrdered { users, .. } => {
                    bare && matches!(users, Users::Eager | Users::Lent)
                }
                RangeState::Pending { users, .. } => {
                    !bare && matches!(users, Users::Eager | Users::Graphs)
                }
                RangeState::Allocated | RangeState::Waiting => true,
                RangeState::Hole => {
                    let growable = self.segments[range.segment().index()].as_ref();
                    range.next().is_none_or(|next| !is_hole(next))
                        && growable.is_some_and(HeapSegment::is_growable)
                }
                RangeState::Vacant => false,
            };
            holds!(right, "{id:?} at {place:x?} is not what it says: {range:?}");
        }
        let kept: Vec<(u64, u64)> = self.kept_places().collect();
        let apart = kept.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0);
        holds!(apart, "what graphs keep is not apart: {kept:x?}");
        let grows = self.growing.map(|it| self.segments.get(it.index()).and_then(Option::as_ref));
        let grows = grows.is_none_or(|segment| segment.is_some_and(HeapSegment::is_growable));
        holds!(grows, "{:?} is to grow and cannot", self.growing);
        Ok(())
    }

    /// Idle neighbours of one kind are one range, and so are what one stream has given back of what was lent. What is
    /// a stream's own may stay apart: it may have been lent before, in other ranges, when the pool's last graph went.
    fn free_neighbours_are_merged(&self) -> Verdict {
        for (id, range) in self.each_range() {
            let lent =
                matches!(range.state(), RangeState::StreamOrdered { users: Users::Lent, .. });
            let merges = lent || range.state().idle_users().is_some();
            let next =
                range.next().filter(|&next| merges && self.ranges[next].state() == range.state());
            holds!(next.is_none(), "{id:?} and {next:?} should be one range: {range:?}");
        }
        Ok(())
    }

    /// The runs are, by address, the longest chains of free neighbours.
    fn runs_are_the_free_ranges(&self) -> Verdict {
        self.runs.verify()?;
        let is_free = |id: RangeId| self.ranges[id].state().is_free();
        let starts = self.each_range().filter(|(id, range)| {
            is_free(*id) && range.previous().is_none_or(|previous| !is_free(previous))
        });
        let mut free: Vec<(u64, u64, RangeId)> = Vec::new();
        for (first, range) in starts {
            let chain = std::iter::successors(Some(first), |&id| {
                self.ranges[id].next().filter(|&next| is_free(next))
            });
            free.push((range.address(), chain.map(|id| self.ranges[id].bytes()).sum(), first));
        }
        free.sort_unstable();
        let runs: Vec<_> = self.runs.iter().collect();
        holds!(runs == free, "runs {runs:x?}, free ranges {free:x?}");
        Ok(())
    }

    /// Behind every range but holes, and behind what is premapped, lie pieces of memory, or what stands for pieces that
    /// are away, each byte in one of them and nowhere else.
    fn pieces_lie_behind_ranges(&self) -> Verdict {
        for (number, segment) in self.each_segment_there() {
            let end = segment.front();
            holds!(
                end + segment.premapped() <= segment.end(),
                "segment {number} has more than it has addresses for: {segment:?}"
            );
            if segment.is_allocated() {
                let whole = end == segment.end();
                let plain = segment.inside(0, u64::MAX).next().is_none();
                holds!(whole && plain, "segment {number} is an allocation in part: {segment:?}");
                continue;
            }
            let behind: Vec<(u64, u64)> = segment.inside(0, u64::MAX).collect();
            let ranges = std::iter::successors(segment.last(), |&id| self.ranges[id].previous());
            let ranges = ranges.filter(|&id| self.ranges[id].state() != RangeState::Hole);
            let mut held: Vec<(u64, u64)> = ranges.map(|id| self.extent(id)).collect();
            held.reverse();
            let premapped = segment.premapped();
            held.extend((premapped > 0).then_some((end, premapped)));
            let together = |all: &[(u64, u64)]| -> Vec<(u64, u64)> {
                runs(all).map(|(place, _)| place).collect()
            };
            holds!(
                together(&behind) == together(&held),
                "segment {number} needs memory at {held:x?} and has it at {behind:x?}"
            );
            let ends = premapped == 0 || segment.open_pieces().last().as_ref() == behind.last();
            holds!(ends, "segment {number} has premapped memory and has lost its last piece");
        }
        Ok(())
    }

    /// What a heap counts by hand is what its ranges and segments come to. All of it is there while the heap is open.
    fn sums_are_sums(&self) -> Verdict {
        let (mut live, mut free, mut waiting, mut ordered) = (0, 0, (0, 0), 0);
        for (_, range) in self.each_range() {
            match range.state() {
                RangeState::Allocated => live += range.bytes(),
                RangeState::Waiting => waiting = (waiting.0 + 1, waiting.1 + range.bytes()),
                RangeState::StreamOrdered { .. } => {
                    (free, ordered) = (free + range.bytes(), ordered + 1)
                }
                state => free += if state.is_free() { range.bytes() } else { 0 },
            }
        }
        holds!(live == self.in_blocks, "{live} bytes in blocks, {} counted", self.in_blocks);
        let holding = &self.holding;
        holds!(waiting == holding.waiting(), "{waiting:?} wait, {:?} counted", holding.waiting());
        holds!(ordered == self.ordered, "streams ordered {ordered}, counted {}", self.ordered);
        let (mut pieces, mut held, mut premapped, mut gone) = (0, 0, 0, 0);
        for (_, segment) in self.each_segment_there() {
            let of_segment = segment.held();
            pieces += of_segment.len();
            held += of_segment.iter().map(|it| it.1).sum::<u64>();
            premapped += segment.premapped();
            gone += segment.away();
        }
        let sums = (pieces, held, premapped, gone);
        let (there, away) = ((holding.pieces(), holding.reserved()), holding.suspended());
        let counted = (there.0, there.1, self.premapped, away);
        holds!(
            sums == counted,
            "pieces, their bytes, premapped and suspended are {sums:?}, counted {counted:?}"
        );
        let all = live + free + waiting.1 + premapped;
        holds!(held + gone == all, "{held} bytes held and {gone} gone, {all} in ranges");
        let whole = self.is_whole() && gone == 0;
        holds!(whole || self.is_shut(), "memory is missing, and the heap is open");
        Ok(())
    }
}
