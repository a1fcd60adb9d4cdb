//! The part of what was asked for outside captures that a capture may be about to ask for again.
//!
//! A host runs its work once or more before it captures it, and nothing tells where a run begins and ends. Three ways find
//! the last run:
//! - the latest part of the requests that came twice in a row, just so, and ends at most a few requests before the
//!   last;
//! - all requests since one that is as large as the capture's first, if the requests directly before ask for nearly the
//!   same sizes on the same streams, though both may begin on another: hosts free at other moments from run to run, and
//!   blocks that libraries asked for in the first run and still use (workspaces) count for nothing. Where there are
//!   several, those are tried first that lie behind what ends as all requests do, and one is taken behind which no block
//!   from before is soon freed: within a run a layer passes its result on to the next;
//! - all requests since the first one that is as large as the capture's first and came behind the capture before, if no
//!   block from before it is soon freed, and it is no weight of a model: the host may have run its work once. What it
//!   still uses is left out, but for the last blocks: it is not asked for again.
//!
//! The first is taken, unless it comes twice within the second: then it may be a layer of the work, or the second may
//! be several runs. The third is taken where neither is there, or where what is taken is a layer, over which a block is
//! passed on. What is one part again and again, four times in the third, may be several runs: it is cut to a few hundred
//! blocks, or to one of these parts. A run ends where none of it is in use and another stream goes on. Requests of which
//! half the bytes or more stay in use are a model's weights, and no run.
//!
//! A part that came twice is as long as two requests like the capture's first are apart, so only such lengths are
//! tried.

use std::cmp::Reverse;
use std::ops::Range;

use super::requests::{Asked, Request, Requests};

/// So many requests at the end may be behind the last run.
const BEHIND: usize = 16;
/// A run of more blocks is none: a layout for it would take too long.
const MOST_BLOCKS: usize = 3_000;
/// What may be several runs in a row is cut to about so many blocks.
const ENOUGH_BLOCKS: usize = 600;
/// A run that is nearly the same as the one before has more blocks than this.
const FEW_BLOCKS: usize = 16;
/// The first requests of two runs that are nearly the same are equal, so many; a library may ask for a workspace next.
const EQUAL_FIRST: usize = 2;
/// One of so many requests of a run may be missing in the run before.
const ONE_MISSING_OF: usize = 32;
/// And so many in any case: PyTorch asks for two small blocks before a capture begins.
const SOME_MISSING: usize = 2;
/// So many of the first [`FEW_BLOCKS`] of a run that ran once may stay in use; a model's weights all do.
const SOME_KEPT: usize = 4;
/// So many equal parts may be layers of one run, and fewer are runs.
const MANY: usize = 4;
/// The most sizes in a row that are skipped, in both runs together, where two runs differ.
const MOST_SKIPPED: usize = 8;
/// The most sizes in a row that are skipped in the earlier run alone: an optimizer asks for its state there.
const MOST_SKIPPED_BEFORE: usize = 256;
/// The most sizes that are compared in search of such runs.
const MOST_COMPARED: usize = 4_000_000;

impl Requests {
    /// The latest run that begins with requests for so many bytes each, as far as there was one; on this stream, if that
    /// has ever begun so. One that ran once lies behind the first `captured` blocks. Where more than
    /// one request is known the second way alone is taken. Costs a look at each block, and some milliseconds at most.
    pub(super) fn last_run(
        &self,
        (first, stream): (&[u64], Option<usize>),
        captured: usize,
    ) -> Option<Requests> {
        let (&bytes, others) = first.split_first()?;
        // What stays in use is not asked for again.
        let goes_on = |start: usize| {
            let again = self.asked()[start + 1..].iter().filter(|it| it.is_freed());
            again.map(|it| &it.bytes).take(others.len()).eq(others)
        };
        let begins = |on: Option<usize>| -> Vec<usize> {
            let all = self.asked().iter().enumerate().filter(|(_, block)| block.bytes == bytes);
            all.filter(|(_, it)| on.is_none_or(|on| on == it.stream)).map(|it| it.0).collect()
        };
        let mut starts = begins(stream);
        // PyTorch asks for blocks on a capture's stream before it begins, and keeps them.
        if !starts.iter().any(|&start| self.asked()[start].is_freed()) {
            starts = begins(None);
        }
        starts.retain(|&start| goes_on(start));
        let run = match others.is_empty() {
            true => self.run_from(&starts, captured)?,
            // Three sizes are seldom a layer's by chance.
            false => self.part(self.alike(&starts, true, MOST_COMPARED)?),
        };
        let run = run.first_work();
        let fits = (2..=MOST_BLOCKS).contains(&run.blocks());
        Some(run).filter(|_| fits).filter(Self::frees_most)
    }

    /// The latest run from one of the blocks `starts` on, which may be a layer's.
    fn run_from(&self, starts: &[usize], captured: usize) -> Option<Requests> {
        let mut left = MOST_COMPARED;
        let all = self.all().len();
        let twice =
            (0..BEHIND.min(all)).find_map(|behind| self.repeated(starts, all - behind, &mut left));
        let alike = self.alike(starts, false, left);
        let frees_most = |run: &Range<usize>| self.part(run.clone()).frees_most();
        let run = match (twice.filter(frees_most), alike.filter(frees_most)) {
            // Where it comes twice in the other it is a part of the work, or that is several runs.
            (Some(twice), Some(alike)) if 2 * twice.len() <= alike.len() => {
                let parts = self.parts(&alike, &twice);
                Some(parts.map_or(alike.clone(), |parts| self.cut(alike, twice, parts)))
            }
            (twice, alike) => twice.or(alike),
        };
        let once = self.once(&starts[starts.partition_point(|&start| start < captured)..]);
        Some(match (run, once) {
            (Some(run), Some(once)) => self.longer(run, once),
            (Some(run), None) => self.part(run),
            (None, once) => self.asked_again(once?),
        })
    }

    /// What may be workspaces, which a library asks for once on each stream and keeps, in bytes and in ascending order: the
    /// sizes of blocks of 1 MiB or more that are still in use, each 8 times at most. They were asked for after the first
    /// block of `first` bytes that was freed, as a run's first block is. Costs a look at each block, and a sort.
    pub fn workspaces(&self, first: u64) -> Vec<u64> {
        const LEAST: u64 = 1 << 20;
        const MOST: usize = 8;
        let begins = |block: &&Asked| block.bytes == first && block.is_freed();
        let runs = self.asked().iter().skip_while(|block| !begins(block));
        let kept = runs.filter(|block| !block.is_freed() && block.bytes >= LEAST);
        let mut sizes: Vec<u64> = kept.map(|block| block.bytes).collect();
        sizes.sort_unstable();
        let equal = sizes.chunk_by(u64::eq);
        equal.flat_map(|equal| equal.iter().take(MOST)).copied().collect()
    }

    /// All requests since one of the blocks `starts`, if those directly before it ask for nearly the same sizes on the
    /// same streams: since the start where the two differ the least for their length, of those over which no block is
    /// passed on, if any, unless any start will do. No more than `left` comparisons are made.
    fn alike(&self, starts: &[usize], any: bool, mut left: usize) -> Option<Range<usize>> {
        let asked = self.asked();
        let (mut best, mut least) = (None, None);
        // How many of the blocks up to each one stay in use.
        let stay: Vec<usize> = asked
            .iter()
            .scan(0, |stay, it| {
                *stay += usize::from(!it.is_freed());
                Some(*stay)
            })
            .collect();
        // The run before ends as all requests do, but for some: such starts come first, while comparisons are left.
        let fits = |&&start: &&usize| asked.len() - start > FEW_BLOCKS;
        let ends = starts.iter().filter(fits).map(|&start| (self.ends_alike(start), start));
        let mut ends: Vec<((usize, usize), usize)> = ends.collect();
        ends.sort_by_key(|&((alike, _), _)| Reverse(alike));
        for ((_, behind), start) in ends {
            let run = &asked[start..];
            let first = &run[..EQUAL_FIRST];
            // The run before may have asked for more, which stayed in use.
            let begins = |it: &[Asked]| {
                let again = it.iter().filter(|it| it.is_freed()).take(EQUAL_FIRST);
                again.zip(first).all(|(other, first)| other.is_like_on((it, run), first))
            };
            let missing = missing(run.len());
            let (fewest, most) = (run.len() - missing, run.len() + run.len() / 2);
            let from = starts.partition_point(|&it| it + most < start);
            let all = starts[from..].iter().take_while(|&&it| it + fewest <= start);
            let mut all = all.filter(|&&it| begins(&asked[it..])).peekable();
            if all.peek().is_none() {
                continue;
            }
            left = left.saturating_sub(start.min(run.len()));
            let is_within = !any && self.is_within(start);
            // The least is the best. Differences are in thousandths: of runs that differ as little one is taken with few
            // blocks before that stayed in use, of these the shortest that has enough blocks, else the longest.
            let length = run.len();
            let rank = match length {
                _ if length > ENOUGH_BLOCKS => (false, length),
                _ => (true, ENOUGH_BLOCKS - length),
            };
            let unlike = |lacks: usize, more: usize, stay: usize| {
                let differ = (lacks.saturating_sub(behind) + more) * 1_000 / length;
                (length > MOST_BLOCKS, is_within, differ, stay, rank)
            };
            for &before in all {
                if left == 0 {
                    return best;
                }
                let other = &asked[before..start];
                let stay = stay[start - 1] - before.checked_sub(1).map_or(0, |before| stay[before]);
                let again = other.len() - stay;
                // They differ by this at least.
                let lacks = run.len().saturating_sub(other.len());
                let sure = unlike(lacks, again.saturating_sub(length), stay);
                if least.is_some_and(|least| sure >= least) {
                    continue;
                }
                let common = in_common(other, run, &mut left);
                let (lacks, more) = (run.len() - common, again.saturating_sub(common));
                let unlike = unlike(lacks, more, stay);
                if lacks <= missing && least.is_none_or(|least| unlike < least) {
                    (best, least) = (Some(asked[start].at..self.all().len()), Some(unlike));
                }
            }
        }
        best
    }

    /// How many of the blocks directly before `start` are of the sizes of the last ones, up to [`ENOUGH_BLOCKS`], and how
    /// many of all blocks are behind these.
    fn ends_alike(&self, start: usize) -> (usize, usize) {
        let sizes = |end: usize| self.asked()[..end].iter().rev().map(|it| it.bytes);
        let alike = |behind: usize| {
            let pairs = sizes(start).zip(sizes(self.blocks() - behind)).take(ENOUGH_BLOCKS);
            (pairs.take_while(|(before, last)| before == last).count(), behind)
        };
        let ways = (0..=SOME_MISSING).rev().map(alike);
        ways.max_by_key(|way| way.0).unwrap_or_default()
    }

    /// Whether a block from shortly before the block `start`, of a sixteenth of its bytes or more, is freed shortly behind
    /// it, as what a layer passes on. Costs a look at as many blocks as there are from `start` on.
    fn is_within(&self, start: usize) -> bool {
        let (asked, length) = (self.asked(), self.blocks() - start);
        let soon = start + 1..=start + length / 2;
        let least = asked[start].bytes / 16;
        asked[start - start.min(length)..start]
            .iter()
            .any(|it| it.bytes >= least && soon.contains(&it.freed))
    }

    /// All requests since the first of the blocks `starts` that is freed, as are most behind it, and over which no block
    /// is passed on; since another one shortly behind it, if fewer behind that one stay in use.
    fn once(&self, starts: &[usize]) -> Option<Range<usize>> {
        let (asked, mut left) = (self.asked(), MOST_COMPARED);
        let mut runs = starts.iter().filter_map(|&start| {
            let run = &asked[start..];
            let first = run.iter().take(FEW_BLOCKS);
            let kept = first.filter(|it| !it.is_freed()).count();
            let fits = (FEW_BLOCKS + 1..=MOST_BLOCKS).contains(&run.len());
            // Memory in which a weight is made goes when the weight is there.
            let fits = fits && (run[1].is_freed() || run[0].freed > start + 2);
            let ends = fits && run[0].is_freed() && kept <= SOME_KEPT;
            left = left.saturating_sub(if ends { run.len() } else { FEW_BLOCKS });
            (ends && left > 0 && !self.is_within(start)).then_some((kept, start))
        });
        let first = runs.next()?;
        // One that stays in use may be a workspace.
        let near = runs.take_while(|&(_, start)| start < first.1 + FEW_BLOCKS);
        let (_, start) = near.fold(first, |best, it| if it.0 + 1 < best.0 { it } else { best });
        Some(asked[start].at..self.all().len())
    }

    /// The requests of a run that ran once, but for those about what stays in use: libraries ask for workspaces once, and
    /// an optimizer for its state. The last blocks may be the run's results.
    fn asked_again(&self, run: Range<usize>) -> Requests {
        let results = self.blocks().saturating_sub(FEW_BLOCKS);
        self.picked(run, |block| block >= results || self.asked()[block].is_freed())
    }

    /// A run, or all of `once`, which ends as all requests do, where the run is a layer of it.
    fn longer(&self, run: Range<usize>, once: Range<usize>) -> Requests {
        let start = self.blocks_before(run.start);
        if self.is_within(start) {
            return self.asked_again(once);
        }
        let many = |all: &Requests, once: &Range<usize>, run: &Range<usize>| {
            let parts = all.parts(once, run).filter(|&parts| parts >= MANY)?;
            Some(all.part(all.cut(once.clone(), run.clone(), parts)))
        };
        if let Some(cut) = many(self, &once, &run) {
            return cut;
        }
        // A block is passed on to the run: it may be a layer, of which the first asked for more.
        if self.asked()[..start].iter().any(|it| it.is_freed() && it.freed > start) {
            let once = self.asked_again(once);
            let end = once.all().len().saturating_sub(self.all().len() - run.end);
            if let Some(cut) = many(&once, &(0..end), &(end.saturating_sub(run.len())..end)) {
                return cut;
            }
            // Or of a work that begins and ends in another way.
            let blocks = self.blocks_in(&run);
            let inside = start + 1..=start + blocks;
            let mut before = self.asked()[start.saturating_sub(blocks)..start].iter();
            if MANY * blocks <= once.blocks() && before.any(|it| inside.contains(&it.freed)) {
                return once;
            }
        }
        self.part(run)
    }

    /// The requests up to where none of the blocks is in use and the next one is for a stream that had none: the host has
    /// run several works in turn, each on a stream of its own.
    fn first_work(self) -> Self {
        // How many blocks were asked for when all were freed, and how many streams had one: they have their numbers in
        // this order.
        let (mut freed, mut streams) = (0, 0);
        let other = self.asked().iter().enumerate().find(|&(number, block)| {
            let is_other = number > 0 && freed <= number && block.stream >= streams;
            (freed, streams) = (freed.max(block.freed), streams.max(block.stream + 1));
            is_other
        });
        other.map(|(_, block)| self.part(0..block.at)).unwrap_or(self)
    }

    /// How many times a run is one part, if it is nothing else. The first of three or more may lack a few requests that ask
    /// for no block: a layer frees what the one before has passed on.
    fn parts(&self, run: &Range<usize>, part: &Range<usize>) -> Option<usize> {
        let (requests, blocks) = (part.len(), self.blocks_in(part));
        let all = part.end.saturating_sub(run.start);
        if requests == 0 {
            // None of its requests is among those that the caller has picked.
            return None;
        }
        let repeats =
            |from: usize| self.repeats(from..part.end, (requests, blocks), &mut all.clone());
        if all >= 2 * requests && repeats(run.start) {
            return Some(all / requests);
        }
        let parts = Some(all.div_ceil(requests)).filter(|&parts| parts > 2)?;
        let second = part.end - (parts - 1) * requests;
        let asked = |of: Range<usize>| {
            &self.asked()[self.blocks_before(of.start)..self.blocks_before(of.end)]
        };
        let (first, other) = (asked(run.start..second), asked(part.clone()));
        let like =
            first.len() == blocks && first.iter().zip(other).all(|(it, other)| it.is_like(other));
        (parts * requests - all <= SOME_MISSING && like && repeats(second)).then_some(parts)
    }

    /// As many of a run's parts as have [`ENOUGH_BLOCKS`], or one: the part may be all of the work, or a layer of it.
    fn cut(&self, run: Range<usize>, part: Range<usize>, parts: usize) -> Range<usize> {
        let parts = (ENOUGH_BLOCKS / self.blocks_in(&part).max(1)).clamp(1, parts);
        run.start.max(part.end.saturating_sub(parts * part.len()))..part.end
    }

    /// How many blocks are asked for in a part of the requests.
    fn blocks_in(&self, part: &Range<usize>) -> usize {
        self.blocks_before(part.end) - self.blocks_before(part.start)
    }

    /// The part of the requests up to `end` that came twice in a row, just so: the longest, and where that is itself a
    /// part several times over, the part; from one of the blocks `starts` on. Makes no more than `left` comparisons.
    fn repeated(&self, starts: &[usize], end: usize, left: &mut usize) -> Option<Range<usize>> {
        let at = |&start: &usize| self.asked()[start].at;
        let begun = &starts[..starts.partition_point(|start| at(start) < end)];
        let (last, before) = begun.split_last()?;
        // Where a run has its start, the one before it has another.
        let lengths = before.iter().map(|start| (at(last) - at(start), last - start));
        let mut lengths =
            lengths.filter(|&(length, _)| 2 * length <= end && at(last) + length >= end);
        let (longest, blocks) =
            lengths.find(|&period| self.repeats(end - 2 * period.0..end, period, left))?;
        let parts = (1..=longest / 2).filter(|part| longest % part == 0);
        let mut parts = parts.filter(|part| blocks * part % longest == 0);
        let part = parts
            .find(|&part| self.repeats(end - longest..end, (part, blocks * part / longest), left));
        let run = part.unwrap_or(longest);
        // Its beginning may be a request behind the end, as the run before has it.
        let first = at(starts.get(starts.partition_point(|start| at(start) < end - run))?);
        let first = if first + run > self.all().len() { first.checked_sub(run)? } else { first };
        Some(first..first + run)
    }

    /// Whether each request of a part is as the one so many before it, about the block so many before. Not where `left`
    /// comparisons do not tell.
    fn repeats(
        &self,
        part: Range<usize>,
        (period, blocks): (usize, usize),
        left: &mut usize,
    ) -> bool {
        let pairs = (part.start + period..part.end).rev().take(*left);
        let is_same = |&at: &usize| self.all()[at].is_later(blocks, self.all()[at - period]);
        let (all, same) = (part.len() - period, pairs.take_while(is_same).count());
        *left -= same;
        same == all
    }

    /// Whether more than half of what is asked for is freed, in bytes.
    fn frees_most(&self) -> bool {
        let freed = self.asked().iter().filter(|block| block.is_freed());
        let freed: u64 = freed.map(|block| block.bytes).sum();
        2 * freed > self.sizes().sum::<u64>()
    }
}

impl Request {
    /// Whether it asks for what another one asked for, about the block that is so many later.
    fn is_later(self, blocks: usize, other: Self) -> bool {
        match (self, other) {
            (Self::Use { block, stream, last }, Self::Use { block: before, .. }) => {
                other == Self::Use { block: before, stream, last } && block == before + blocks
            }
            (Self::Free { block }, Self::Free { block: before }) => block == before + blocks,
            _ => self == other,
        }
    }
}

impl Asked {
    /// Whether another block is of the same size, on the same stream.
    fn is_like(&self, other: &Self) -> bool {
        (self.bytes, self.stream) == (other.bytes, other.stream)
    }

    /// Whether a block of a run before is like this one of a run, which may have begun on another stream.
    fn is_like_on(&self, (before, run): (&[Self], &[Self]), other: &Self) -> bool {
        let renamed = self.stream == before[0].stream;
        let stream = if renamed { run[0].stream } else { self.stream };
        (self.bytes, stream) == (other.bytes, other.stream)
    }

    fn is_freed(&self) -> bool {
        self.freed < usize::MAX
    }
}

/// How many requests of so many may be missing in the run before.
fn missing(requests: usize) -> usize {
    SOME_MISSING.max(requests / ONE_MISSING_OF)
}

/// How many requests a run and the one before it have in common, in order, where a few may be skipped at a time. Counts
/// no further once too many of the run's are missing before, or once `left` comparisons are made.
fn in_common(before: &[Asked], run: &[Asked], left: &mut usize) -> usize {
    let (mut here, mut there, mut common) = (0, 0, 0);
    let missing = missing(run.len());
    while here < before.len() && there < run.len() && there - common <= missing && *left > 0 {
        // The fewest to skip so that the next two sizes are equal, with one more in the earlier run between them or
        // not: each stream may ask for a workspace there.
        let alike = |here: usize, there: usize| match (before.get(here), run.get(there)) {
            (Some(block), Some(other)) => block.is_like_on((before, run), other),
            (block, other) => block.is_none() && other.is_none(),
        };
        let meets = |&(here, there): &(usize, usize)| {
            alike(here, there) && (alike(here + 1, there + 1) || alike(here + 2, there + 1))
        };
        let ways = (0..=MOST_SKIPPED).flat_map(|sum| (0..=sum).map(move |skip| (skip, sum - skip)));
        let more = (MOST_SKIPPED + 1..=MOST_SKIPPED_BEFORE).map(|skip| (skip, 0));
        let mut ways = ways.chain(more).map(|(skip, rest)| (here + skip, there + rest));
        *left = left.saturating_sub(1);
        if before[here].is_like_on((before, run), &run[there]) {
            (here, there, common) = (here + 1, there + 1, common + 1);
            continue;
        }
        *left = left.saturating_sub(MOST_SKIPPED_BEFORE);
        match ways.find(meets) {
            Some(next) => (here, there) = next,
            None => break,
        }
    }
    common
}
