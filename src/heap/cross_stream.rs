//! What other streams gave back: reading the list of freed ranges, and the best fit among what is proven.

use smallvec::SmallVec;

use super::bins::class;
use super::free_list::{CaptureFreeLists, CrossStream, StreamFreeList};
use super::range::{CaptureSlot, RangeId};
use super::Heap;
use crate::capture::{NodeIndex, StreamIndex};

/// So many entries of other streams' ranges are kept without asking which are out of date.
const UNSORTED: usize = 32;

impl Heap {
    /// The best fit among ranges of other streams.
    pub(super) fn cross_stream_range(
        &mut self,
        bytes: u64,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        self.sort_in_news(capture, stream);
        let least = class(bytes);
        let mut from = least;
        loop {
            let free_lists = self.free_lists(capture);
            let free_list = &free_lists.streams[stream.index()];
            let listed = free_list.cross_stream.next_class(from);
            // Every range of at least `bytes` was given back in this class or one above: it may
            // have shrunk since, but not grown.
            let unread = free_lists.freed.unread(from, &free_list.read);
            match (listed, unread) {
                (_, Some(unread)) if listed.is_none_or(|listed| unread <= listed) => {
                    let lowest = self.read_class(unread, capture, stream, prove);
                    from = unread.min(lowest).max(least);
                }
                (Some(listed), _) => {
                    let lowest = match self.best_cross_stream(listed, bytes, capture, stream, prove)
                    {
                        Ok(found) => return Some(found),
                        Err(lowest) => lowest,
                    };
                    from = (listed + 1).min(lowest).max(least);
                }
                (None, _) => return None,
            }
        }
    }

    /// The same within one class; else the lowest class that an entry has moved to, having shrunk.
    fn best_cross_stream(
        &mut self,
        class: usize,
        bytes: u64,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Result<RangeId, usize> {
        let mut cross_stream = std::mem::take(&mut self.free_list(capture, stream).cross_stream);
        let mut shrunk: SmallVec<[CrossStream; 4]> = SmallVec::new();
        let found = cross_stream.best_in(class, bytes, |entry| {
            let (pending, now) = self.ranges.given(entry.given)?;
            if now != entry.bytes {
                shrunk.push(CrossStream { bytes: now, ..*entry });
                return None;
            }
            if !prove(&pending.markers) {
                // The stream was set back since this was proven.
                let token = self.token(entry.given.id);
                self.unproven.push((token, stream));
                return None;
            }
            Some(now)
        });
        let mut lowest = usize::MAX;
        for entry in shrunk {
            lowest = lowest.min(cross_stream.insert(entry).class());
        }
        self.free_list(capture, stream).cross_stream = cross_stream;
        found.map(|entry| entry.given.id).ok_or(lowest)
    }

    /// Sorts in everything that others gave back, or that became proven, since the stream last
    /// looked.
    pub(super) fn read_on(
        &mut self,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) {
        self.sort_in_news(capture, stream);
        let mut from = 0;
        loop {
            let free_lists = self.free_lists(capture);
            let read = &free_lists.streams[stream.index()].read;
            let Some(class) = free_lists.freed.unread(from, read) else { return };
            self.read_class(class, capture, stream, prove);
            from = class + 1;
        }
    }

    /// Sorts in what is unread of one class of freed ranges: on the free list what is proven; the rest must
    /// wait. Returns the lowest class that something came to lie in.
    fn read_class(
        &mut self,
        class: usize,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> usize {
        let number = self.number;
        let CaptureFreeLists { streams, freed } = &mut self.free_lists[capture.index()];
        let StreamFreeList { cross_stream, read, .. } = &mut streams[stream.index()];
        let mut lowest = usize::MAX;
        for &given in freed.read(class, read) {
            let Some((pending, bytes)) = self.ranges.given(given) else { continue };
            if pending.owner == stream {
                continue;
            }
            if prove(&pending.markers) {
                lowest = lowest.min(cross_stream.insert(CrossStream { given, bytes }).class());
            } else {
                self.unproven.push((given.token(number), stream));
            }
        }
        lowest
    }

    /// Puts what became proven since the stream last looked on its free list. Makes sure that it has
    /// one.
    fn sort_in_news(&mut self, capture: CaptureSlot, stream: StreamIndex) {
        self.free_list(capture, stream);
        let StreamFreeList { cross_stream, newly_proven, cross_stream_kept, .. } =
            &mut self.free_lists[capture.index()].streams[stream.index()];
        for given in newly_proven.drain(..) {
            let Some((_, bytes)) = self.ranges.given(given) else { continue };
            cross_stream.insert(CrossStream { given, bytes });
        }
        if cross_stream.len() >= (2 * *cross_stream_kept).max(UNSORTED) {
            cross_stream.retain(|entry| self.ranges.is_current(entry.given));
            *cross_stream_kept = cross_stream.len();
        }
    }
}
