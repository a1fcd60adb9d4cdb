//! Who has which physical pages.
//!
//! The cover says how much each run of pages takes from what its row has, and how much is new. Which pages these are is
//! open, and decides how many mappings there will be. The runs are walked in the order of their allocation, and each
//! chooses (`choose.rs`) among what has come to its row. A run may take new pages where the cover has it take used
//! ones, as long as later runs of its row can take those instead of new ones.

use smallvec::SmallVec;

use crate::cover::Cover;

use super::choose::{Choice, Chooser, Pick};
use super::pages::Runs;
use super::pool::{Claims, Pool};
use super::tape::{Interval, Part, PartRow, PartRows, Tape};

/// How mappings and memory are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    /// What a mapping is worth, in pages of memory more than the least; `None` for no page at all.
    pub pages_a_mapping: Option<u64>,
    /// What it counts if a part is left that others follow, in hundredths of a mapping for every use.
    pub parting: u64,
}

/// Physical pages, mostly in one piece.
pub(super) type Intervals = SmallVec<[Interval; 2]>;

/// The physical pages behind each run, by address.
pub(super) struct Threads {
    /// By run.
    pub behind: Vec<Intervals>,
    /// How many physical pages there are.
    pub pages: u64,
}

/// Where a row stands.
#[derive(Clone)]
struct Row {
    pool: Pool,
    /// How much more has come than the cover's takers left.
    surplus: u64,
    /// How many new pages its items may still take.
    fresh: u64,
}

/// What a cover says of runs, before any of them has pages.
pub(super) struct Threader<'a> {
    runs: &'a Runs,
    order: &'a [u32],
    cover: &'a Cover,
    /// By item: its row and its position there.
    places: Vec<(u32, u32)>,
    claims: Vec<Claims>,
    rows: Vec<Row>,
}

impl<'a> Threader<'a> {
    /// For the cover of these runs as items in this order.
    pub fn new(runs: &'a Runs, order: &'a [u32], cover: &'a Cover) -> Self {
        let pages = |item: u32| runs.runs()[order[item as usize] as usize].pages;
        let mut claims: Vec<Claims> =
            (0..order.len() as u32).map(|item| Claims::new(pages(item))).collect();
        let mut places = vec![(0, 0); order.len()];
        let mut rows = Vec::with_capacity(cover.rows.len());
        for (row, it) in (0..).zip(&cover.rows) {
            let mut fresh = 0;
            for ((at, &item), taken) in (0..).zip(&it.items).zip(&it.taken) {
                places[item as usize] = (row, at);
                fresh += pages(item) - taken;
            }
            for entry in it.entries.iter().flatten() {
                claims[entry.from as usize].promise(row, entry.amount);
            }
            rows.push(Row { pool: Pool::default(), surplus: 0, fresh });
        }
        Self { runs, order, cover, places, claims, rows }
    }

    /// Decides.
    pub fn threads(&self, weights: Weights) -> Threads {
        let &Self { runs, order, cover, .. } = self;
        let mut rows = self.rows.clone();
        let mut walk = Walk {
            tape: Tape::new(2 * order.len()),
            claims: self.claims.clone(),
            owned: vec![PartRows::new(); order.len()],
            behind: vec![Intervals::new(); order.len()],
            chooser: Chooser::new(weights, order.len()),
        };
        for (item, &(row, at)) in self.places.iter().enumerate() {
            let run = order[item] as usize;
            let next = runs.touches(run).then(|| walk.behind[run - 1].last()).flatten();
            let next = next.map(Interval::end);
            let (it, at) = (&cover.rows[row as usize], at as usize);
            let state = &mut rows[row as usize];
            for entry in &it.entries[at] {
                walk.enter(entry.from, row, state);
            }
            let (need, fresh) = (runs.runs()[run].pages, state.fresh);
            let promised = state.surplus + it.taken[at];
            let choice = Choice { row, need, promised, fresh, next };
            let mut parts = PartRows::new();
            let (used, new) = walk.take(item, choice, &mut rows, &mut parts);
            let state = &mut rows[row as usize];
            state.surplus = promised - used;
            state.fresh = state.fresh.saturating_sub(new);
            walk.settle(item, run, next, parts);
            // A neighbour that was there first, or nothing: no one follows any more.
            let after = runs.runs().get(run + 1).is_some() && runs.touches(run + 1);
            let follower = walk.behind.get(run + 1).and_then(|next| next.first()).copied();
            if let Some(last) = walk.owned[item].last().copied() {
                match follower {
                    Some(next) if next.start == walk.tape.part(last).end() => {}
                    Some(next) => {
                        walk.tape.part_behind(last);
                        walk.tape.part_at(next.start);
                    }
                    None if !after => walk.tape.part_behind(last),
                    None => {}
                }
            }
        }
        Threads { behind: walk.behind, pages: walk.tape.end() }
    }
}

/// What changes on the way.
struct Walk {
    tape: Tape,
    claims: Vec<Claims>,
    /// By item: the parts that it has or had and that no item took yet.
    owned: Vec<PartRows>,
    behind: Vec<Intervals>,
    chooser: Chooser,
}

impl Walk {
    /// An item's gift comes to a row.
    fn enter(&mut self, from: u32, row: u32, state: &mut Row) {
        self.claims[from as usize].enter(row);
        for part in &self.owned[from as usize] {
            state.pool.add(*part, self.tape.part(*part).pages);
        }
    }

    /// Takes what a choice says, and adds the parts. Returns how many pages had been promised to the
    /// row, and how many are new.
    fn take(
        &mut self,
        item: usize,
        mut choice: Choice,
        rows: &mut [Row],
        parts: &mut PartRows,
    ) -> (u64, u64) {
        let (mut used, mut new) = (0, 0);
        while choice.need > 0 {
            let need = choice.need;
            let pool = &mut rows[choice.row as usize].pool;
            let picks = self.chooser.choose(&choice, pool, &self.tape, &self.claims);
            for Pick { part, pages } in picks {
                let Some(row) = part else {
                    parts.push(self.tape.extend(pages, item as u32));
                    choice.need -= pages;
                    choice.fresh = choice.fresh.saturating_sub(pages);
                    new += pages;
                    continue;
                };
                let part = *self.tape.part(row);
                let from = part.owner as usize;
                let open = self.claims[from].open(choice.row).min(choice.need);
                if open < pages || part.pages < pages || from == item {
                    continue;
                }
                if part.pages > pages {
                    let rest = self.tape.split(row, pages);
                    self.owned[from].push(rest);
                    for row in self.claims[from].entered() {
                        rows[row as usize].pool.add(rest, part.pages - pages);
                    }
                }
                let promised = self.claims[from].take(choice.row, pages);
                self.owned[from].retain(|part| *part != row);
                self.tape.hand_over(row, item as u32);
                choice.promised -= promised;
                choice.need -= pages;
                used += promised;
                parts.push(row);
            }
            if choice.need == need {
                // Nothing fits any more, which the cover rules out: new pages are always right.
                parts.push(self.tape.extend(need, item as u32));
                return (used, new + need);
            }
        }
        (used, new)
    }

    /// Puts an item's parts behind its addresses: what belongs together stays together, and what
    /// goes on from the address before comes first.
    fn settle(&mut self, item: usize, run: usize, next: Option<u64>, mut parts: PartRows) {
        let tape = &mut self.tape;
        if parts.len() > 1 {
            parts.sort_unstable_by_key(|part| tape.part(*part).start);
            let goes_on = |part: &PartRow| next == Some(tape.part(*part).start);
            if let Some(first) = parts.iter().position(goes_on) {
                let apart = |at: &usize| {
                    let [before, part] = [parts[at - 1], parts[*at]];
                    let touch = tape.part(before).end() == tape.part(part).start;
                    !touch || tape.loss(part).is_none()
                };
                let end = (first + 1..parts.len()).find(apart).unwrap_or(parts.len());
                parts[..end].rotate_left(first);
            }
        }
        let parts = tape.take(item as u32, next, &parts);
        let interval = |part: &PartRow| {
            let Part { start, pages, .. } = *tape.part(*part);
            Interval { start, pages }
        };
        self.behind[run] = parts.iter().map(interval).collect();
        self.owned[item] = parts;
    }
}
