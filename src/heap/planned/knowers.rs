//! Which streams may have some free pages now, which come to know of what others gave back, and who shares pages in
//! use with whom. A set of streams is a bit each.
//!
//! A stream's proof is asked of pages again only once it has changed. What is known here decides which addresses are
//! had again, never who may have them.
//!
//! A page with blocks of two streams comes free only for who knows of both, and could only come from what both
//! knew. Where two streams wait for each other, that costs little. Where one never waits for the other, as a
//! pipeline's stage for those behind it, a page with blocks of both is lost to the one for good.

use crate::capture::{Capture, Moment, StreamIndex};

/// The bit of the streams behind.
const LAST_BIT: usize = 63;
/// So often a stream has been seen to know of another, and not the other way round, until it is taken to stay so.
/// A fork comes before its join.
const FORKS: u8 = 4;

/// Which streams may have some pages.
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

/// Which streams come to know of what others gave back, as far as was seen.
#[derive(Debug, Default)]
pub(super) struct Learners {
    /// By stream: which streams have come to know of anything that it gave back, or of what these gave back.
    of: Vec<u64>,
    /// By stream, and by one that knows of it: at how many requests that was seen, [`FORKS`] at most.
    seen: Vec<[u8; LAST_BIT]>,
}

/// A stream, and those with whose blocks its own may share a page in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peers {
    own: StreamIndex,
    others: u64,
}

impl Learners {
    /// Notes that at a request of a stream it may have what some streams have given back, and so may others: for
    /// each such place whose it was, and which others. Takes a few steps for each, and where anything is new one
    /// for each stream.
    pub(super) fn note(
        &mut self,
        asker: StreamIndex,
        given: impl Iterator<Item = (StreamIndex, u64)>,
    ) {
        let mut owners = 0;
        for (owner, knowers) in given {
            owners |= bit(owner);
            self.add(owner.index().min(LAST_BIT), knowers | bit(asker));
        }
        for owner in streams_of(owners & !(1 << LAST_BIT)) {
            if self.seen.len() <= owner {
                self.seen.resize(owner + 1, [0; LAST_BIT]);
            }
            if let Some(seen) = self.seen[owner].get_mut(asker.index()) {
                *seen = (*seen + 1).min(FORKS);
            }
        }
    }

    /// Learners of learners are learners.
    fn add(&mut self, owner: usize, learners: u64) {
        if learners & !self.of(owner) == 0 {
            return;
        }
        let all = streams_of(learners).fold(0, |all, learner| all | self.of(learner));
        let most = owner.max(LAST_BIT.saturating_sub(learners.leading_zeros() as usize));
        if self.of.len() <= most {
            let from = self.of.len();
            self.of.extend((from..=most).map(|stream| 1 << stream));
        }
        for known in self.of.iter_mut().filter(|known| **known >> owner & 1 == 1) {
            *known |= all;
        }
    }

    /// Which streams come to know of what a stream gives back, itself among them.
    pub(super) fn of(&self, stream: usize) -> u64 {
        self.of.get(stream).copied().unwrap_or(1 << stream)
    }

    /// With the blocks of which of the first `streams` streams those of a stream may share a page in use.
    pub(super) fn peers(&self, own: StreamIndex, streams: usize) -> Peers {
        let row = own.index();
        let reaches = |from: usize, to: usize| self.of(from) >> to & 1 == 1;
        let often = |from: usize, to: usize| self.seen.get(from).is_some_and(|it| it[to] == FORKS);
        let one_way =
            |from: usize, to: usize| reaches(from, to) && !reaches(to, from) && often(from, to);
        // Those whose bit is not theirs alone have none.
        let others = 0..if row < LAST_BIT { streams.min(LAST_BIT) } else { 0 };
        let others = others.filter(|&it| it != row && !one_way(row, it) && !one_way(it, row));
        Peers { own, others: others.fold(0, |all, other| all | 1 << other) }
    }
}

impl Peers {
    /// Whether it is one of them.
    pub(super) fn has(self, stream: StreamIndex) -> bool {
        let other = stream.index() < LAST_BIT && self.others >> stream.index() & 1 == 1;
        other || stream == self.own
    }

    /// The stream, then the others.
    pub(super) fn streams(self) -> impl Iterator<Item = usize> {
        std::iter::once(self.own.index()).chain(streams_of(self.others))
    }
}

/// The bit of a stream; all from the last on have one.
pub(super) fn bit(stream: StreamIndex) -> u64 {
    1 << stream.index().min(LAST_BIT)
}

/// The streams whose bits are set.
pub(super) fn streams_of(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let stream = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(stream)
    })
}
