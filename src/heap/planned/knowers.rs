//! Which streams may have some free pages, asked of a stream's proof again only once that has changed.
//!
//! What is known here decides which addresses are had again, never who may have them.

use super::learners::{bit, streams_of, LAST_BIT};
use crate::capture::{Capture, Moment, StreamIndex};

/// Which streams may have some pages. A set of streams is a bit each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Knowers {
    known: u64,
    /// Which streams are to be asked before `known` tells of them.
    unasked: u64,
}

/// A request of one stream, and the others.
#[derive(Debug)]
pub(super) struct OtherStreams<'a> {
    order: &'a Capture,
    but: StreamIndex,
    streams: u64,
    /// Which streams' proofs may not be those of the last request.
    changed: u64,
}

/// Up to which moment changes of proofs are known.
#[derive(Debug, Default)]
pub(super) struct Changes {
    seen: Moment,
}

impl Changes {
    /// A stream makes a request. Takes a step for each stream.
    pub(super) fn others<'a>(&mut self, order: &'a Capture, but: StreamIndex) -> OtherStreams<'a> {
        let since = std::mem::replace(&mut self.seen, order.moment());
        let streams = order.streams().filter(|stream| *stream != but);
        let streams = streams.fold(0, |all, stream| all | bit(stream));
        let changed = order.streams().filter(|stream| order.changed_since(*stream, since));
        // Those that share a bit are asked each time: the one that is left out may be any of them.
        let changed = changed.fold(1 << LAST_BIT, |all, stream| all | bit(stream));
        OtherStreams { order, but, streams, changed }
    }
}

impl Default for Knowers {
    fn default() -> Self {
        Self { known: 0, unasked: u64::MAX }
    }
}

impl Knowers {
    /// Whose proof has changed is to be asked again.
    pub(super) fn heed(&mut self, others: &OtherStreams<'_>) {
        self.unasked |= others.changed;
    }

    /// Which of the others may have the pages; `knows` is asked of those of which it is not known.
    pub(super) fn among(
        &mut self,
        others: &OtherStreams<'_>,
        knows: impl Fn(StreamIndex) -> bool,
    ) -> u64 {
        let ask = self.unasked & others.streams;
        self.unasked &= !ask;
        self.known &= !ask;
        let any = |bit: usize| {
            let behind = if bit == LAST_BIT { others.order.seen() } else { bit + 1 };
            let mut streams = (bit..behind).map(StreamIndex::new).filter(|it| *it != others.but);
            u64::from(streams.any(&knows)) << bit
        };
        self.known |= streams_of(ask).fold(0, |all, bit| all | any(bit));
        debug_assert!(streams_of(others.streams).all(|bit| self.known & 1 << bit == any(bit)));
        self.known & others.streams
    }
}
