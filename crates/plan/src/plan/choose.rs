//! Which pages a run takes of those that are there.
//!
//! What counts is mappings: one for each part taken, and one more for every earlier use of pages that are parted. Parts
//! that go on where the address before ends cost nothing. Of the rest, a sum of parts is found that fits, or that fits
//! up to a piece of a larger part or up to new pages, whichever costs least.

use smallvec::{smallvec, SmallVec};

use super::pool::{Claims, Pool};
use super::tape::{PartRow, Tape};
use super::threads::Weights;

/// So many parts are looked at, and so many of one size.
const LOOKS: (usize, usize) = (48, 8);
/// So many parts are looked at, and so many of one size, where there are more than [`MANY`] runs.
const FEW_LOOKS: (usize, usize) = (12, 2);
const MANY: usize = 8192;
/// Beyond so many pages no sums are tried: the largest parts that fit are taken first.
const SUMMED: u64 = 512;
/// One mapping, in the unit of costs.
const MAPPING: u64 = 100;

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
    /// The page that goes on where the address before ends.
    pub next: Option<u64>,
}

/// The first pages of a part, or new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub part: Option<PartRow>,
    pub pages: u64,
}

/// Mostly one.
pub(super) type Picks = SmallVec<[Pick; 4]>;

/// A part that may be taken.
#[derive(Clone, Copy)]
struct Candidate {
    part: PartRow,
    start: u64,
    pages: u64,
    /// How many of them the row may take.
    open: u64,
    uses: u64,
    cost: u64,
}

impl Candidate {
    fn pick(&self, pages: u64) -> Pick {
        Pick { part: Some(self.part), pages }
    }
}

/// A cost, the sum of whole parts, pages of a larger one, and new pages.
type Offer = (u64, usize, Option<Pick>, u64);

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
    ) -> Picks {
        let open = |part: PartRow| claims[tape.part(part).owner as usize].open(choice.row);
        if let Some(picks) = self.follow(choice, tape, &open) {
            return picks;
        }
        if let Some(pick) = self.collect(choice, pool, tape, &open) {
            return smallvec![pick];
        }
        // So much is paid for large new memory without a look at what is there.
        let cheap = |cost| cost <= 2 * MAPPING;
        match choice.need {
            need if need > SUMMED && self.fresh(choice, tape, need).is_some_and(cheap) => {
                smallvec![Pick { part: None, pages: need }]
            }
            0..=SUMMED => self.sum(choice, tape),
            _ => smallvec![self.largest(choice)],
        }
    }

    /// Goes on where the address before ends, if that is enough.
    fn follow(
        &self,
        choice: &Choice,
        tape: &Tape,
        open: &impl Fn(PartRow) -> u64,
    ) -> Option<Picks> {
        let mut at = choice.next?;
        let mut picks = Picks::new();
        let mut need = choice.need;
        while need > 0 {
            let row = tape.at(at).filter(|row| tape.loss(*row).is_some())?;
            let part = tape.part(row);
            let pages = part.pages.min(need);
            if open(row) < pages || choice.promised < choice.need {
                return None;
            }
            picks.push(Pick { part: Some(row), pages });
            need -= pages;
            at = part.end();
        }
        Some(picks)
    }

    /// Looks for parts. Returns one that fits at no more than a mapping, if there is any.
    fn collect(
        &mut self,
        choice: &Choice,
        pool: &mut Pool,
        tape: &Tape,
        open: &impl Fn(PartRow) -> u64,
    ) -> Option<Pick> {
        let candidates = &mut self.candidates;
        candidates.clear();
        let parting = self.weights.parting;
        let there = |pages, part| tape.part(part).pages == pages && open(part) > 0;
        let add = |row: PartRow, candidates: &mut Vec<Candidate>| {
            if candidates.iter().any(|it| it.part == row) {
                return;
            }
            let part = tape.part(row);
            let (start, uses, loss) = (part.start, u64::from(part.uses), tape.loss(row));
            let follows = choice.next == Some(start);
            let front = if follows { 0 } else { loss.unwrap_or(0) };
            let back = if part.glued { uses } else { 0 };
            let cost = MAPPING + (front * MAPPING + back * parting).min(1 << 40);
            let cost = if follows && loss.is_some() { cost - MAPPING } else { cost };
            let (pages, open) = (part.pages, open(row));
            candidates.push(Candidate { part: row, start, pages, open, uses, cost });
        };
        let looks = self.looks;
        let mut size = (0, 0);
        let mut one = |pages: u64, part: PartRow, candidates: &mut Vec<Candidate>| {
            size = if size.0 == pages { (pages, size.1 + 1) } else { (pages, 1) };
            add(part, candidates);
            size.1 < looks.1
        };
        pool.each((choice.need, choice.need), there, |pages, part| one(pages, part, candidates));
        let fits = |it: &&Candidate| it.cost <= MAPPING && it.open >= it.pages;
        let fitting = candidates.iter().filter(fits).min_by_key(|it| (it.cost, it.start));
        if let Some(best) = fitting.filter(|_| choice.promised >= choice.need) {
            return Some(best.pick(best.pages));
        }
        pool.each((1, choice.need - 1), there, |pages, part| {
            candidates.len() < looks.0 && one(pages, part, candidates)
        });
        let full = candidates.len() + looks.0 / 4;
        pool.each((choice.need + 1, u64::MAX), there, |pages, part| {
            candidates.len() < full && one(pages, part, candidates)
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
        Some(beyond + if choice.next == Some(tape.end()) { 0 } else { MAPPING })
    }

    /// The cheapest sum.
    fn sum(&mut self, choice: &Choice, tape: &Tape) -> Picks {
        let need = choice.need as usize;
        let most = choice.need.min(choice.promised);
        let sums = &mut self.sums;
        sums.clear();
        sums.resize(need + 1, (u64::MAX, 0));
        sums[0] = (0, 0);
        for (nth, it) in self.candidates.iter().enumerate().take(64) {
            let pages = it.pages as usize;
            if it.pages > most || it.open < it.pages {
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
                    if !taken && it.pages > part && it.open >= part {
                        let split = it.uses * MAPPING.min(self.weights.parting.max(1));
                        offer(cost + it.cost + split + new_cost, Some(it.pick(part)), new);
                    }
                }
            }
        }
        let Some((_, sum, larger, new)) = best else { return smallvec![self.largest(choice)] };
        let which = self.sums[sum].1;
        let chosen = self.candidates.iter().enumerate().take(64);
        let chosen = chosen.filter(|(nth, _)| which >> nth & 1 == 1);
        let mut picks: Picks = chosen.map(|(_, it)| it.pick(it.pages)).collect();
        picks.extend(larger);
        if new > 0 {
            picks.push(Pick { part: None, pages: new });
        }
        picks
    }

    /// The largest part that fits, or something of a larger one, or new pages.
    fn largest(&self, choice: &Choice) -> Pick {
        let most = choice.need.min(choice.promised);
        let usable = |it: &&Candidate| it.open >= it.pages && it.pages <= most;
        let whole = self.candidates.iter().filter(usable);
        if let Some(it) = whole.max_by_key(|it| (it.pages, u64::MAX - it.cost)) {
            return it.pick(it.pages);
        }
        let fresh = Pick { part: None, pages: choice.need };
        if choice.fresh >= choice.need || choice.promised == 0 {
            return fresh;
        }
        let part = |it: &Candidate| it.pages.min(it.open).min(most);
        match self.candidates.iter().max_by_key(|it| (part(it), u64::MAX - it.uses)) {
            Some(it) if part(it) > 0 => it.pick(part(it)),
            _ => fresh,
        }
    }
}
