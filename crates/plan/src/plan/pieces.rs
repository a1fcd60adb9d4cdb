//! Where physical pages must be cut.

use super::held::Part;
use super::pages::Runs;
use super::tape::Interval;
use super::threads::Threads;

/// The pages cut into pieces, and where each is mapped.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// In pages, and whether they last: nothing does before [`Layout::mark`].
    pub pieces: Vec<(u64, bool)>,
    /// By address: the first page, and the piece.
    pub mappings: Vec<(u64, u32)>,
}

impl Layout {
    /// How many pages there are.
    pub fn pages(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.0).sum()
    }

    /// A layout of these pages whose pieces are the parts of this one's, and by part the held piece that it is, if any.
    pub fn parted(&self, parts: &[Vec<Part>], runs: &Runs) -> (Self, Vec<Option<u32>>) {
        let (mut parted, mut held) = (Self::default(), Vec::new());
        let mut first = Vec::with_capacity(parts.len());
        for parts in parts {
            first.push(held.len() as u32);
            held.extend(parts.iter().map(|part| part.1));
            parted.pieces.extend(parts.iter().map(|part| (part.0, false)));
        }
        for &(page, piece) in &self.mappings {
            let mut page = page;
            for (part, name) in parts[piece as usize].iter().zip(first[piece as usize]..) {
                parted.mappings.push((page, name));
                page += part.0;
            }
        }
        parted.mark(runs);
        (parted, held)
    }

    /// Says which pieces last: those behind any run of these that is not given back. Where such a run
    /// was joined to others, its pieces are not all of them.
    pub fn mark(&mut self, runs: &Runs) {
        self.pieces.iter_mut().for_each(|piece| piece.1 = false);
        for run in runs.runs().iter().filter(|run| !run.freed) {
            let pieces = &mut self.pieces;
            let ends = |&(page, piece): &(u64, u32)| page + pieces[piece as usize].0 <= run.first;
            let from = self.mappings.partition_point(ends);
            for mapping in self.mappings[from..].iter().take_while(|it| it.0 < run.end()) {
                pieces[mapping.1 as usize].1 = true;
            }
        }
    }
}

/// Cuts pages wherever they do not lie one behind the other everywhere, where some last and others do
/// not, and where a piece would have more than `most` pages.
pub(super) fn cut(runs: &Runs, threads: &Threads, most: u64) -> Layout {
    let segments = segments(runs, threads);
    let mut cuts = vec![0, threads.pages];
    for (_, interval) in &segments {
        cuts.extend([interval.start, interval.end()]);
    }
    let mut lasting: Vec<Interval> = Vec::new();
    for (run, behind) in runs.runs().iter().zip(&threads.behind) {
        if !run.freed {
            lasting.extend(behind);
        }
    }
    lasting.sort_unstable_by_key(|interval| interval.start);
    lasting.dedup_by(|next, last| {
        let joined = last.end() == next.start;
        last.pages += if joined { next.pages } else { 0 };
        joined
    });
    cuts.extend(lasting.iter().flat_map(|interval| [interval.start, interval.end()]));
    cuts.sort_unstable();
    cuts.dedup();

    let mut pieces = Vec::with_capacity(cuts.len());
    let mut starts = Vec::with_capacity(cuts.len());
    for pair in cuts.windows(2) {
        let mut start = pair[0];
        while start < pair[1] {
            let pages = (pair[1] - start).min(most);
            starts.push(start);
            pieces.push((pages, false));
            start += pages;
        }
    }
    let mut mappings = Vec::with_capacity(segments.len());
    for (page, interval) in segments {
        let mut piece = starts.partition_point(|start| *start < interval.start);
        while starts.get(piece).is_some_and(|start| *start < interval.end()) {
            mappings.push((page + (starts[piece] - interval.start), piece as u32));
            piece += 1;
        }
    }
    Layout { pieces, mappings }
}

/// What is neighbours in addresses and on the tape, by address.
fn segments(runs: &Runs, threads: &Threads) -> Vec<(u64, Interval)> {
    let mut segments: Vec<(u64, Interval)> = Vec::with_capacity(threads.behind.len());
    for (run, behind) in runs.runs().iter().zip(&threads.behind) {
        let mut page = run.first;
        for interval in behind {
            match segments.last_mut() {
                Some((first, last))
                    if *first + last.pages == page && last.end() == interval.start =>
                {
                    last.pages += interval.pages;
                }
                _ => segments.push((page, *interval)),
            }
            page += interval.pages;
        }
    }
    segments
}
