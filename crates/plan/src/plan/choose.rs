//! Which pages a run takes of those that are there.
//!
//! What counts is mappings: one for each part taken, and one more for every earlier use of pages that
//! are parted. Parts that go on where the address before ends cost nothing. Of the rest, a sum of parts
//! is found that fits, or that fits up to a piece of a larger part or up to new pages, whichever costs
//! least.

use super::pool::{Claims, Pool};
use super::tape::Tape;
use super::threads::Weights;

/// So many parts are looked at, and so many of one size.
const LOOKS: (usize, usize) = (48, 8);
/// The same if there are more than so many runs.
const FEW_LOOKS: (usize, usize) = (12, 2);
const MANY: usize = 8192;
/// Beyond so many pages no sums are tried: the largest parts that fit are taken first.
const SUMMED: u64 = 512;
/// One mapping, in the unit of costs.
const MAPPING: u64 = 100;

/// Whether so much is paid for large new memory without a look at what is there.
fn cheap(cost: u64) -> bool {
    cost <= 2 * MAPPING
}

/// What has to be decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The row.
    pub row: u32,
    /// How many pages are missing.
    pub need: u64,
    /// How many of those that were promised to the row may be taken.
    pub promised: u64,
    /// How many may be new.
    pub fresh: u64,
    /// The page at the address before.
    pub before: Option<u64>,
}

/// The first pages of a part; new ones if it begins at the end of the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub start: u64,
    pub pages: u64,
}

/// A part that may be taken.
#[derive(Clone, Copy)]
struct Candidate {
    start: u64,
    pages: u64,
    uses: u64,
    cost: u64,
}

/// A cost, the sum of whole parts, pages of a larger one by its start, and new pages.
type Offer = (u64, usize, Option<(u64, u64)>, u64);

/// Decides, with its tables kept from one time to the next.
pub(super) struct Chooser {
    weights: Weights,
    /// How many parts are looked at, and how many of one size.
    looks: (usize, usize),
    candidates: Vec<Candidate>,
    /// By sum of pages: the least cost, and which candidates.
    sums: Vec<(u64, u64)>,
}

impl Chooser {
    pub fn new(weights: Weights, items: usize) -> Self {
        let looks = if items > MANY { FEW_LOOKS } else { LOOKS };
        Self { weights, looks, candidates: Vec::new(), sums: Vec::new() }
    }

    /// Picks for as much as possible of what is needed, at least for something.
    pub fn choose(
        &mut self,
        choice: &Choice,
        pool: &mut Pool,
        tape: &Tape,
        claims: &[Claims],
    ) -> Vec<Pick> {
        let row = choice.row;
        let open =
            |start: u64| tape.part(start).map_or(0, |part| claims[part.owner as usize].open(row));
        if let Some(picks) = self.follow(choice, tape, &open) {
            return picks;
        }
        if let Some(pick) = self.collect(choice, pool, tape, &open) {
            return vec![pick];
        }
        match choice.need {
            need if need > SUMMED && self.fresh(choice, tape, need).is_some_and(cheap) => {
                vec![Pick { start: tape.end(), pages: need }]
            }
            0..=SUMMED => self.sum(choice, tape, &open),
            _ => self.largest(choice, tape, &open),
        }
    }

    /// Goes on where the address before ends, if that is enough.
    fn follow(
        &self,
        choice: &Choice,
        tape: &Tape,
        open: &impl Fn(u64) -> u64,
    ) -> Option<Vec<Pick>> {
        let mut at = choice.before? + 1;
        let mut picks = Vec::new();
        let mut need = choice.need;
        while need > 0 {
            let part = tape.part(at).filter(|_| tape.glued(at))?;
            let pages = part.pages.min(need);
            if open(at) < pages || choice.promised < choice.need {
                return None;
            }
            picks.push(Pick { start: at, pages });
            need -= pages;
            at += part.pages;
        }
        Some(picks)
    }

    /// Looks for parts. Returns one that fits at no more than a mapping, if there is any.
    fn collect(
        &mut self,
        choice: &Choice,
        pool: &mut Pool,
        tape: &Tape,
        open: &impl Fn(u64) -> u64,
    ) -> Option<Pick> {
        let candidates = &mut self.candidates;
        candidates.clear();
        let parting = self.weights.parting;
        let there = |pages, start| {
            tape.part(start).is_some_and(|part| part.pages == pages) && open(start) > 0
        };
        let add = |pages: u64, start: u64, candidates: &mut Vec<Candidate>| {
            let Some(part) = tape.part(start) else { return };
            if candidates.iter().any(|it| it.start == start) {
                return;
            }
            let end = start + pages;
            let follows = choice.before.is_some_and(|before| before + 1 == start);
            let front = if follows { 0 } else { tape.loss(start) };
            let back = if part.glued { tape.loss(end) } else { 0 };
            let cost = MAPPING + (front * MAPPING + back * parting).min(1 << 40);
            let cost = if follows && tape.glued(start) { cost - MAPPING } else { cost };
            candidates.push(Candidate { start, pages, uses: u64::from(part.uses), cost });
        };
        let looks = self.looks;
        let mut size = (0, 0);
        let mut one = |pages: u64, start: u64, candidates: &mut Vec<Candidate>| {
            size = if size.0 == pages { (pages, size.1 + 1) } else { (pages, 1) };
            add(pages, start, candidates);
            size.1 < looks.1
        };
        pool.each((choice.need, choice.need), there, |pages, start| one(pages, start, candidates));
        let fits = |it: &&Candidate| it.cost <= MAPPING && open(it.start) >= it.pages;
        let fitting = candidates.iter().filter(fits).min_by_key(|it| (it.cost, it.start));
        if let Some(best) = fitting.filter(|_| choice.promised >= choice.need) {
            return Some(Pick { start: best.start, pages: best.pages });
        }
        pool.each((1, choice.need - 1), there, |pages, start| {
            candidates.len() < looks.0 && one(pages, start, candidates)
        });
        let full = candidates.len() + looks.0 / 4;
        pool.each((choice.need + 1, u64::MAX), there, |pages, start| {
            candidates.len() < full && one(pages, start, candidates)
        });
        None
    }

    /// What it costs to take new pages, if it is allowed.
    fn fresh(&self, choice: &Choice, tape: &Tape, pages: u64) -> Option<u64> {
        let beyond = pages.saturating_sub(choice.fresh);
        let beyond = match (beyond, self.weights.pages_a_mapping) {
            (0, _) => 0,
            (_, None | Some(0)) => return None,
            (_, Some(a_mapping)) => beyond.saturating_mul(MAPPING) / a_mapping,
        };
        let follows = choice.before.is_some_and(|before| before + 1 == tape.end());
        Some(beyond + self.weights.fresh + if follows { 0 } else { MAPPING })
    }

    /// The cheapest sum.
    fn sum(&mut self, choice: &Choice, tape: &Tape, open: &impl Fn(u64) -> u64) -> Vec<Pick> {
        let need = choice.need as usize;
        let most = choice.need.min(choice.promised);
        let sums = &mut self.sums;
        sums.clear();
        sums.resize(need + 1, (u64::MAX, 0));
        sums[0] = (0, 0);
        for (nth, it) in self.candidates.iter().enumerate().take(64) {
            let pages = it.pages as usize;
            if it.pages > most || open(it.start) < it.pages {
                continue;
            }
            for sum in (pages..=most as usize).rev() {
                let (cost, which) = sums[sum - pages];
                if cost != u64::MAX && cost + it.cost < sums[sum].0 {
                    sums[sum] = (cost + it.cost, which | 1 << nth);
                }
            }
        }
        let mut best: Option<Offer> = None;
        for sum in 0..=need {
            let (cost, which) = self.sums[sum];
            if cost == u64::MAX || best.is_some_and(|best| best.0 <= cost) {
                continue;
            }
            let rest = (need - sum) as u64;
            let mut offer = |cost, larger, new| {
                if best.is_none_or(|best| cost < best.0) {
                    best = Some((cost, sum, larger, new));
                }
            };
            if rest == 0 {
                offer(cost, None, 0);
                continue;
            }
            if let Some(fresh) = self.fresh(choice, tape, rest) {
                offer(cost + fresh, None, rest);
            }
            // All the rest of it, or all but the new pages that are allowed.
            let allowed = choice.fresh.min(rest - 1);
            let forced = (sum as u64 + rest).saturating_sub(choice.promised);
            for new in [forced, allowed.max(forced)] {
                let part = rest.saturating_sub(new);
                if part == 0 {
                    continue;
                }
                let new_cost = match new {
                    0 => 0,
                    new => match self.fresh(choice, tape, new) {
                        Some(cost) => cost,
                        None => continue,
                    },
                };
                for (nth, it) in self.candidates.iter().enumerate() {
                    let taken = nth < 64 && which >> nth & 1 == 1;
                    if !taken && it.pages > part && open(it.start) >= part {
                        let split = it.uses * MAPPING.min(self.weights.parting.max(1));
                        offer(cost + it.cost + split + new_cost, Some((it.start, part)), new);
                    }
                }
            }
        }
        let Some((_, sum, larger, new)) = best else { return self.largest(choice, tape, open) };
        let which = self.sums[sum].1;
        let chosen = self.candidates.iter().enumerate().take(64);
        let chosen = chosen.filter(|(nth, _)| which >> nth & 1 == 1);
        let mut picks: Vec<Pick> =
            chosen.map(|(_, it)| Pick { start: it.start, pages: it.pages }).collect();
        picks.extend(larger.map(|(start, pages)| Pick { start, pages }));
        if new > 0 {
            picks.push(Pick { start: tape.end(), pages: new });
        }
        picks
    }

    /// The largest part that fits, or something of a larger one, or new pages.
    fn largest(&self, choice: &Choice, tape: &Tape, open: &impl Fn(u64) -> u64) -> Vec<Pick> {
        let most = choice.need.min(choice.promised);
        let usable = |it: &&Candidate| open(it.start) >= it.pages && it.pages <= most;
        let whole = self.candidates.iter().filter(usable);
        if let Some(it) = whole.max_by_key(|it| (it.pages, u64::MAX - it.cost)) {
            return vec![Pick { start: it.start, pages: it.pages }];
        }
        if choice.fresh >= choice.need || choice.promised == 0 {
            return vec![Pick { start: tape.end(), pages: choice.need }];
        }
        let part = |it: &Candidate| it.pages.min(open(it.start)).min(most);
        match self.candidates.iter().max_by_key(|it| (part(it), u64::MAX - it.uses)) {
            Some(it) if part(it) > 0 => vec![Pick { start: it.start, pages: part(it) }],
            _ => vec![Pick { start: tape.end(), pages: choice.need }],
        }
    }
}
