//! Who has which physical pages.
//!
//! The cover says how much each run of pages takes from what its row has, and how much is new. Which
//! pages these are is open, and decides how many mappings there will be. The runs are walked in the
//! order of their allocation, and each chooses (`choose.rs`) among what has come to its row. A run may
//! take new pages where the cover has it take used ones, as long as later runs of its row can take
//! those instead of new ones.

use crate::cover::Cover;

use super::choose::{Choice, Chooser};
use super::pages::Runs;
use super::pool::{Claims, Pool};
use super::tape::{Interval, Tape};

/// How mappings and memory are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    /// What a mapping is worth, in pages of memory more than the least; `None` for no page at all.
    pub pages_a_mapping: Option<u64>,
    /// What it counts if a part is left that others follow, in hundredths of a mapping for every use.
    pub parting: u64,
    /// What it counts to take new pages while used ones are there, in hundredths of a mapping.
    pub fresh: u64,
}

/// The physical pages behind each run, by address.
pub(super) struct Threads {
    /// By run.
    pub behind: Vec<Vec<Interval>>,
    /// How many physical pages there are.
    pub pages: u64,
}

/// Where a row stands.
struct Row {
    pool: Pool,
    /// How much more has come than the cover's takers left.
    surplus: u64,
    /// How many new pages its items may still take.
    fresh: u64,
}

/// Decides.
pub(super) fn threads(runs: &Runs, order: &[u32], cover: &Cover, weights: Weights) -> Threads {
    let count = order.len();
    let mut claims: Vec<Claims> =
        order.iter().map(|run| Claims::new(runs.runs()[*run as usize].pages)).collect();
    // By item: where it stands in rows. The first place has its new pages.
    let mut places: Vec<Vec<(u32, u32)>> = vec![Vec::new(); count];
    let mut taken = vec![0; count];
    for (row, it) in cover.rows.iter().enumerate() {
        for (at, item) in it.items.iter().enumerate() {
            places[*item as usize].push((row as u32, at as u32));
            taken[*item as usize] += it.taken[at];
            for entry in &it.entries[at] {
                claims[entry.from as usize].promise(row as u32, entry.amount);
            }
        }
    }
    let mut rows: Vec<Row> =
        cover.rows.iter().map(|_| Row { pool: Pool::default(), surplus: 0, fresh: 0 }).collect();
    for (item, places) in places.iter().enumerate() {
        if let Some((row, _)) = places.first() {
            rows[*row as usize].fresh += runs.runs()[order[item] as usize].pages - taken[item];
        }
    }
    let mut walk = Walk {
        tape: Tape::default(),
        claims,
        owned: vec![Vec::new(); count],
        behind: vec![Vec::new(); count],
        chooser: Chooser::new(weights, count),
    };
    for (item, places) in places.iter().enumerate() {
        let run = order[item] as usize;
        let pages = runs.runs()[run].pages;
        let before = runs.touches(run).then(|| walk.behind[run - 1].last()).flatten();
        let before = before.map(|last| last.end() - 1);
        let mut parts = Vec::new();
        let mut need = pages;
        for (nth, &(row, at)) in places.iter().enumerate() {
            let (it, at) = (&cover.rows[row as usize], at as usize);
            let state = &mut rows[row as usize];
            for entry in &it.entries[at] {
                walk.enter(entry.from, row, state);
            }
            // New pages go with the first place; the others are as the cover says.
            let (share, fresh) = match nth {
                0 => (pages - (taken[item] - it.taken[at]), state.fresh),
                _ => (it.taken[at], 0),
            };
            let promised = state.surplus + it.taken[at];
            let choice = Choice { row, need: share, promised, fresh, before };
            let (used, new) = walk.take(item, choice, &mut rows, &mut parts);
            let state = &mut rows[row as usize];
            state.surplus = promised - used;
            state.fresh = state.fresh.saturating_sub(new);
            need -= share;
        }
        if need > 0 {
            parts.push(walk.tape.extend(need, item as u32).start);
        }
        walk.settle(item, run, before, parts);
        // A neighbour that was there first, or nothing: no one follows any more.
        let after = runs.runs().get(run + 1).is_some() && runs.touches(run + 1);
        let follower = walk.behind.get(run + 1).and_then(|next| next.first()).copied();
        if let Some(last) = walk.behind[run].last().copied() {
            match follower {
                Some(next) if next.start == last.end() => {}
                Some(next) => {
                    walk.tape.part_at(last.end());
                    walk.tape.part_at(next.start);
                }
                None if !after => walk.tape.part_at(last.end()),
                None => {}
            }
        }
    }
    Threads { behind: walk.behind, pages: walk.tape.end() }
}

/// What changes on the way.
struct Walk {
    tape: Tape,
    claims: Vec<Claims>,
    /// By item: the parts that it has or had and that no item took yet.
    owned: Vec<Vec<u64>>,
    behind: Vec<Vec<Interval>>,
    chooser: Chooser,
}

impl Walk {
    /// An item's gift comes to a row.
    fn enter(&mut self, from: u32, row: u32, state: &mut Row) {
        self.claims[from as usize].enter(row);
        for start in &self.owned[from as usize] {
            if let Some(part) = self.tape.part(*start) {
                state.pool.add(*start, part.pages);
            }
        }
    }

    /// Takes what a choice says, and adds the parts. Returns how many pages had been promised to the
    /// row, and how many are new.
    fn take(
        &mut self,
        item: usize,
        mut choice: Choice,
        rows: &mut [Row],
        parts: &mut Vec<u64>,
    ) -> (u64, u64) {
        let (mut used, mut new) = (0, 0);
        while choice.need > 0 {
            let need = choice.need;
            let pool = &mut rows[choice.row as usize].pool;
            let picks = self.chooser.choose(&choice, pool, &self.tape, &self.claims);
            for pick in picks {
                let Some(part) = self.tape.part(pick.start).copied() else {
                    // Beyond the end: new pages.
                    parts.push(self.tape.extend(pick.pages, item as u32).start);
                    choice.need -= pick.pages;
                    choice.fresh = choice.fresh.saturating_sub(pick.pages);
                    new += pick.pages;
                    continue;
                };
                let from = part.owner as usize;
                let open = self.claims[from].open(choice.row).min(choice.need);
                if open < pick.pages || part.pages < pick.pages || from == item {
                    continue;
                }
                if part.pages > pick.pages {
                    self.tape.split(pick.start, pick.pages);
                    let rest = pick.start + pick.pages;
                    self.owned[from].push(rest);
                    for row in self.claims[from].entered() {
                        rows[row as usize].pool.add(rest, part.pages - pick.pages);
                    }
                }
                let promised = self.claims[from].take(choice.row, pick.pages);
                self.owned[from].retain(|start| *start != pick.start);
                self.tape.hand_over(pick.start, item as u32);
                choice.promised -= promised;
                choice.need -= pick.pages;
                used += promised;
                parts.push(pick.start);
            }
            if choice.need == need {
                // Nothing fits any more, which the cover rules out: new pages are always right.
                parts.push(self.tape.extend(need, item as u32).start);
                return (used, new + need);
            }
        }
        (used, new)
    }

    /// Puts an item's parts behind its addresses: what belongs together stays together, and what
    /// goes on from the address before comes first.
    fn settle(&mut self, item: usize, run: usize, before: Option<u64>, mut parts: Vec<u64>) {
        parts.sort_unstable();
        let first = before.and_then(|before| parts.iter().position(|start| *start == before + 1));
        if let Some(first) = first {
            let tape = &self.tape;
            let end = (first + 1..parts.len()).find(|at| {
                let last = parts[at - 1];
                let end = last + tape.part(last).map_or(0, |part| part.pages);
                parts[*at] != end || !tape.glued(end)
            });
            let end = end.unwrap_or(parts.len());
            parts[..end].rotate_left(first);
        }
        let intervals = self.tape.take(item as u32, before, &parts);
        self.owned[item] = intervals.iter().map(|interval| interval.start).collect();
        self.behind[run] = intervals;
    }
}
