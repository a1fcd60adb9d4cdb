//! The part of what was asked for outside captures that a capture may be about to ask for again.
//!
//! A host runs its work a few times before it captures it, and nothing tells where a run begins and ends. So it is the
//! latest part that came twice in a row, up to the end of all requests but for a few; the last of these begins as the
//! capture does. Or it is all since a request that the capture begins with, where nearly the same was asked for before
//! that: libraries ask for a workspace in the first run, and hosts free at other moments from run to run. The former is
//! taken unless all that came again and again lies within the latter: then it is a layer of the work. A part of which most
//! stays in use is a model's weights, and no run.
//!
//! Parts that came twice are found as in Gusfield, Algorithms on Strings, Trees and Sequences, 1997, 1.4: how much the
//! requests have in common with themselves, shifted, is known for all shifts after one walk.

use std::ops::Range;

use super::requests::{Request, Requests};

/// So many requests at the end may be behind the last run.
const BEHIND: usize = 16;
/// A run of more blocks is none: a layout for it would take too long.
const MOST_BLOCKS: usize = 3_000;
/// Runs that are nearly the same have more blocks than this.
const FEW_BLOCKS: usize = 16;
/// And begin with as many that are the same.
const ALIKE_FIRST: usize = 6;
/// Of so many blocks of a run that is nearly the same as the one before, one may be missing there.
const LIKE: usize = 32;
/// How many sizes are left out at most where two runs differ, and how many where only the earlier asked for more, as for
/// what an optimizer keeps.
const LEFT_OUT: usize = 8;
const MORE: usize = 256;
/// The most sizes that are compared in search of such runs.
const COMPARED: usize = 4_000_000;

impl Requests {
    /// The latest run that begins with a request for so many bytes, as far as there was one. Costs a constant for each
    /// request, and some milliseconds at most where no run came twice just so.
    pub fn last_run(&self, bytes: u64) -> Option<Requests> {
        let mut steps = self.steps();
        let starts: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].begins(bytes)).collect();
        let alike = self.alike(&starts);
        // The latest first: runs are told by their ends.
        steps.reverse();
        let twice = (0..BEHIND.min(steps.len())).find_map(|behind| {
            let (run, times) = repeated(&steps[behind..])?;
            let end = steps.len() - behind;
            let first = starts.partition_point(|&start| start < end - run);
            // Its beginning may be a request behind the end, as the run before has it.
            let first = starts.get(first).copied()?;
            let first = if first + run > steps.len() { first.checked_sub(run)? } else { first };
            Some((first..first + run, times * run))
        });
        let alike = alike.filter(|it| twice.as_ref().is_none_or(|twice| twice.1 < it.len()));
        let run = self.part(alike.or_else(|| Some(twice?.0))?);
        let fits = (2..=MOST_BLOCKS).contains(&run.blocks());
        (fits && run.leaves_less_than_half()).then_some(run)
    }

    /// All since the place among these before which what came was the most like it, if it was nearly the same.
    fn alike(&self, starts: &[usize]) -> Option<Range<usize>> {
        let asked = self.all().iter().enumerate().filter_map(|(at, request)| match *request {
            Request::Allocate { bytes, .. } => Some((at, bytes)),
            _ => None,
        });
        let (places, sizes): (Vec<usize>, Vec<u64>) = asked.unzip();
        let starts: Vec<usize> =
            starts.iter().filter_map(|start| places.binary_search(start).ok()).collect();
        let mut left = COMPARED;
        let (mut best, mut least) = (None, usize::MAX);
        for &start in starts.iter().filter(|&&start| sizes.len() - start > FEW_BLOCKS) {
            let run = &sizes[start..];
            // The run before may have asked for more, which stays.
            let (fewest, most) = (run.len() - run.len() / LIKE, run.len() + run.len() / 2);
            let from = starts.partition_point(|&it| it + most < start);
            let all = starts[from..].iter().take_while(|&&it| it + fewest <= start);
            for &before in all.filter(|&&it| sizes[it..].starts_with(&run[..ALIKE_FIRST])) {
                if left == 0 {
                    return best;
                }
                let other = &sizes[before..start];
                let common = in_common(other, run, &mut left);
                let (lacks, more) = (run.len() - common, other.len() - common);
                // Of a thousand blocks, so that the longest of those as much alike is taken.
                let unlike = (lacks + more) * 1_000 / run.len();
                if lacks <= run.len() / LIKE && unlike < least {
                    (best, least) = (Some(places[start]..self.all().len()), unlike);
                }
            }
        }
        best
    }

    /// Whether less than half of what is asked for stays in use, in bytes.
    fn leaves_less_than_half(&self) -> bool {
        let mut sizes = Vec::with_capacity(self.blocks());
        let mut kept = 0_u64;
        for request in self.all() {
            match *request {
                Request::Allocate { bytes, .. } => {
                    sizes.push(bytes);
                    kept += bytes;
                }
                Request::Free { block } => kept -= sizes[block],
                Request::Use { .. } => {}
            }
        }
        kept < sizes.iter().sum::<u64>().div_ceil(2)
    }

    /// The requests with blocks told by how many were asked for since.
    fn steps(&self) -> Vec<Step> {
        let mut blocks = 0;
        let steps = self.all().iter().map(|request| match *request {
            Request::Allocate { bytes, stream } => {
                blocks += 1;
                Step::Allocate { bytes, stream }
            }
            Request::Use { block, stream, last } => Step::Use { ago: blocks - block, stream, last },
            Request::Free { block } => Step::Free { ago: blocks - block },
        });
        steps.collect()
    }
}

/// A request, told so that it is the same in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Allocate { bytes: u64, stream: usize },
    Use { ago: usize, stream: usize, last: bool },
    Free { ago: usize },
}

impl Step {
    fn begins(self, with: u64) -> bool {
        matches!(self, Self::Allocate { bytes, .. } if bytes == with)
    }
}

/// How many sizes two runs have in common, in order, where a few may be left out at a time; as far as the other one has not
/// too many of its own, and `left` is not used up, by as much as is compared.
fn in_common(one: &[u64], other: &[u64], left: &mut usize) -> usize {
    let (mut here, mut there, mut common) = (0, 0, 0);
    let most = other.len() / LIKE;
    while here < one.len() && there < other.len() && there - common <= most && *left > 0 {
        // The fewest left out after which two sizes are the same.
        let meets = |&(here, there): &(usize, usize)| {
            one.get(here) == other.get(there) && one.get(here + 1) == other.get(there + 1)
        };
        let ways = (0..=LEFT_OUT).flat_map(|sum| (0..=sum).map(move |skip| (skip, sum - skip)));
        let more = (LEFT_OUT + 1..=MORE).map(|skip| (skip, 0));
        let mut ways = ways.chain(more).map(|(skip, rest)| (here + skip, there + rest));
        *left = left.saturating_sub(1);
        if one[here] == other[there] {
            (here, there, common) = (here + 1, there + 1, common + 1);
            continue;
        }
        *left = left.saturating_sub(MORE);
        match ways.find(meets) {
            Some(next) => (here, there) = next,
            None => break,
        }
    }
    common
}

/// How long the part is that these steps, the latest first, begin with twice, and how often it comes: the longest, and
/// where that is itself a part several times over, the part.
fn repeated(steps: &[Step]) -> Option<(usize, usize)> {
    let common = common(steps);
    let longest = (1..=steps.len() / 2).rev().find(|&length| common[length] >= length)?;
    let parts = (1..=longest / 2).filter(|part| longest % part == 0);
    let part = parts.into_iter().find(|&part| common[part] >= longest - part);
    let part = part.unwrap_or(longest);
    Some((part, common[part] / part + 1))
}

/// How many steps from each place on are as from the first on.
fn common(steps: &[Step]) -> Vec<usize> {
    let mut common = vec![0; steps.len()];
    let (mut begin, mut end) = (0, 0);
    for at in 1..steps.len() {
        let mut length = if at < end { common[at - begin].min(end - at) } else { 0 };
        while steps.get(at + length).is_some_and(|step| *step == steps[length]) {
            length += 1;
        }
        if at + length > end {
            (begin, end) = (at, at + length);
        }
        common[at] = length;
    }
    common
}
