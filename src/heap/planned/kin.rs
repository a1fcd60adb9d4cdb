//! Which streams come to know of what others gave back, and who shares pages in use with whom.
//!
//! A page with blocks of two streams comes free only for who knows of both, and could only come from what both
//! knew. Where two streams wait for each other, that costs little. Where one never waits for the other, as a
//! pipeline's stage for those behind it, a page with blocks of both is lost to the one for good.

use std::collections::BTreeMap;

use crate::capture::StreamIndex;

/// The bit of the streams behind.
const LAST_BIT: usize = 63;
/// So often a stream has been seen to know of another, and not the other way round, until it is taken to stay so.
/// A fork comes before its join.
const FORKS: u32 = 4;

/// What was seen of who knows of whom. A set of streams is a bit each.
#[derive(Debug, Default)]
pub(super) struct Kin {
    /// By stream: which streams have come to know of anything that it gave back, or of what these gave back.
    heirs: Vec<u64>,
    /// By a stream and one that knows of it: at how many requests that was seen, [`FORKS`] at most.
    seen: BTreeMap<(usize, usize), u32>,
}

impl Kin {
    /// Notes that at a request of a stream it may have what some streams have given back, and so may the streams
    /// in `knowers`. Takes a step for each owner, and where anything is new one for each stream.
    pub(super) fn hear(&mut self, asker: StreamIndex, given: &BTreeMap<usize, u64>) {
        for (&owner, knowers) in given {
            let seen = self.seen.entry((owner, asker.index())).or_default();
            *seen = (*seen + 1).min(FORKS);
            self.inherit(owner.min(LAST_BIT), knowers | bit(asker));
        }
    }

    /// Heirs of heirs are heirs.
    fn inherit(&mut self, owner: usize, heirs: u64) {
        if heirs & !self.heirs_of(owner) == 0 {
            return;
        }
        let all = streams_of(heirs).fold(0, |all, heir| all | self.heirs_of(heir));
        let most = owner.max(LAST_BIT.saturating_sub(heirs.leading_zeros() as usize));
        if self.heirs.len() <= most {
            let from = self.heirs.len();
            self.heirs.extend((from..=most).map(|stream| 1 << stream));
        }
        for known in self.heirs.iter_mut().filter(|known| **known >> owner & 1 == 1) {
            *known |= all;
        }
    }

    /// Which streams come to know of what a stream gives back, itself among them.
    pub(super) fn heirs_of(&self, stream: usize) -> u64 {
        self.heirs.get(stream).copied().unwrap_or(1 << stream)
    }

    /// With the blocks of which other streams those of a stream may share a page in use.
    pub(super) fn peers(
        &self,
        stream: StreamIndex,
        streams: usize,
    ) -> impl Iterator<Item = usize> + '_ {
        let own = stream.index();
        let reaches = |from: usize, to: usize| self.heirs_of(from) >> to & 1 == 1;
        let often = |from: usize, to: usize| self.seen.get(&(from, to)) == Some(&FORKS);
        let one_way = move |from: usize, to: usize| {
            reaches(from, to) && !reaches(to, from) && often(from, to)
        };
        let others =
            (0..streams.min(LAST_BIT)).filter(move |other| *other != own && own < LAST_BIT);
        others.filter(move |&other| !one_way(own, other) && !one_way(other, own))
    }
}

/// The bit of a stream; all from the last on have one.
pub(super) fn bit(stream: StreamIndex) -> u64 {
    1 << stream.index().min(LAST_BIT)
}

/// The streams whose bits are set.
pub(super) fn streams_of(bits: u64) -> impl Iterator<Item = usize> {
    (0..=LAST_BIT).filter(move |stream| bits >> stream & 1 == 1)
}
