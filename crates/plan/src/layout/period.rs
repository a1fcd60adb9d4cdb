//! The part of what was asked for outside captures that a capture may be about to ask for again.
//!
//! A host runs its work a few times before it captures it, and nothing tells where a run begins and ends. So it is the
//! latest part that came twice in a row, up to the end of all requests but for a few; the last of these begins as the
//! capture does. Where nothing came twice, or a part came so often that it may be a layer of the work, it is all since
//! the first request of which most blocks were freed by the end.
//!
//! Parts that came twice are found as in Gusfield, Algorithms on Strings, Trees and Sequences, 1997, 1.4: how much the
//! requests have in common with themselves, shifted, is known for all shifts after one walk.

use super::requests::{Request, Requests};

/// So many requests at the end may be behind the last run.
const BEHIND: usize = 16;
/// What came more often in a row may be a part of a run.
const OFTEN: usize = 4;
/// A run of more blocks is none: a layout for it would take too long.
const MOST_BLOCKS: usize = 3_000;
/// Half as many where it came once: it may be several.
const MOST_ONCE: usize = MOST_BLOCKS / 2;

impl Requests {
    /// The latest run that begins with a request for so many bytes, as far as there was one. Costs a constant for each
    /// request.
    pub fn last_run(&self, bytes: u64) -> Option<Requests> {
        let mut steps = self.steps();
        let starts: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].begins(bytes)).collect();
        // The latest first: runs are told by their ends.
        steps.reverse();
        let twice = (0..BEHIND.min(steps.len())).find_map(|behind| {
            let (run, times) = repeated(&steps[behind..])?;
            let end = steps.len() - behind;
            let first = starts.partition_point(|&start| start < end - run);
            // Its beginning may be a request behind the end, as the run before has it.
            let first = starts.get(first).copied()?;
            let first = if first + run > steps.len() { first.checked_sub(run)? } else { first };
            Some((first..first + run, times))
        });
        let once = || {
            let all = self.part(self.once(&starts)?..steps.len());
            (all.blocks() <= MOST_ONCE).then_some(all)
        };
        let once = if twice.as_ref().is_none_or(|it| it.1 > OFTEN) { once() } else { None };
        let repeated = || Some(self.part(twice?.0));
        once.or_else(repeated).filter(|run| (2..=MOST_BLOCKS).contains(&run.blocks()))
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

    /// The first of these places behind which most blocks were freed.
    fn once(&self, starts: &[usize]) -> Option<usize> {
        // By request, from the last: blocks asked for since, and those of them that live.
        let mut since = vec![(0, 0); self.all().len()];
        let (mut blocks, mut live) = (0, 0_i64);
        for (at, request) in self.all().iter().enumerate().rev() {
            match request {
                Request::Allocate { .. } => (blocks, live) = (blocks + 1, live + 1),
                Request::Free { .. } => live -= 1,
                Request::Use { .. } => {}
            }
            // A free of an older block counts as well: fewer live, and a later place would do too.
            since[at] = (blocks, live);
        }
        starts.iter().copied().find(|&start| 2 * since[start].1 <= since[start].0)
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
