//! What other streams gave back: reading the log, and the best fit among what is proven.

use smallvec::SmallVec;

use super::bins::class;
use super::range::{CaptureSlot, RangeId};
use super::shelf::{Foreign, Shelf, Shelves};
use super::Heap;
use crate::capture::{NodeIndex, StreamIndex};

/// So many entries of other streams' ranges are kept without asking which are out of date.
const UNSORTED: usize = 32;

impl Heap {
    /// The best fit among ranges of other streams.
    pub(super) fn foreign_range(
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
            let shelves = self.shelves(capture);
            let shelf = &shelves.streams[stream.index()];
            let listed = shelf.foreign.next_class(from);
            // Every range of at least `bytes` was given back in this class or one above: it may
            // have shrunk since, but not grown.
            let unread = shelves.log.unread(from, &shelf.read);
            match (listed, unread) {
                (_, Some(unread)) if listed.is_none_or(|listed| unread <= listed) => {
                    let lowest = self.read_class(unread, capture, stream, prove);
                    from = unread.min(lowest).max(least);
                }
                (Some(listed), _) => {
                    let lowest = match self.best_foreign(listed, bytes, capture, stream, prove) {
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
    fn best_foreign(
        &mut self,
        class: usize,
        bytes: u64,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Result<RangeId, usize> {
        let mut foreign = std::mem::take(&mut self.shelf(capture, stream).foreign);
        let mut shrunk: SmallVec<[Foreign; 4]> = SmallVec::new();
        let found = foreign.best_in(class, bytes, |entry| {
            let (pending, now) = self.ranges.given(entry.given)?;
            if now != entry.bytes {
                shrunk.push(Foreign { bytes: now, ..*entry });
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
            lowest = lowest.min(foreign.insert(entry).class());
        }
        self.shelf(capture, stream).foreign = foreign;
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
            let shelves = self.shelves(capture);
            let read = &shelves.streams[stream.index()].read;
            let Some(class) = shelves.log.unread(from, read) else { return };
            self.read_class(class, capture, stream, prove);
            from = class + 1;
        }
    }

    /// Sorts in what is unread in one class of the log: on the shelf what is proven; the rest must
    /// wait. Returns the lowest class that something came to lie in.
    fn read_class(
        &mut self,
        class: usize,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> usize {
        let number = self.number;
        let Shelves { streams, log } = &mut self.shelves[capture.index()];
        let Shelf { foreign, read, .. } = &mut streams[stream.index()];
        let mut lowest = usize::MAX;
        for &given in log.read(class, read) {
            let Some((pending, bytes)) = self.ranges.given(given) else { continue };
            if pending.owner == stream {
                continue;
            }
            if prove(&pending.markers) {
                lowest = lowest.min(foreign.insert(Foreign { given, bytes }).class());
            } else {
                self.unproven.push((given.token(number), stream));
            }
        }
        lowest
    }

    /// Puts what became proven since the stream last looked on its shelf. Makes sure that it has
    /// one.
    fn sort_in_news(&mut self, capture: CaptureSlot, stream: StreamIndex) {
        self.shelf(capture, stream);
        let Shelf { foreign, news, foreign_kept, .. } =
            &mut self.shelves[capture.index()].streams[stream.index()];
        for given in news.drain(..) {
            let Some((_, bytes)) = self.ranges.given(given) else { continue };
            foreign.insert(Foreign { given, bytes });
        }
        if foreign.len() >= (2 * *foreign_kept).max(UNSORTED) {
            foreign.retain(|entry| self.ranges.is_current(entry.given));
            *foreign_kept = foreign.len();
        }
    }
}
