//! Where the blocks lie: which of them hold an address, or a byte of physical memory, one after the
//! other, and whether the earlier was gone by then.
//!
//! The blocks are laid down in the order of their allocation, on a map of which block was the last at each address.
//! Only that one is compared with the next: a block that was gone before its neighbour came was gone before all that
//! came later. And only neighbours among the blocks with users make pairs: completed-before is transitive, so where
//! `a`, `b`, `c` with users held an address in turn, and all users of `a` have completed before any of `b` starts, and
//! likewise `b` and `c`, any one user of `b` carries the order from `a` to `c`. A block with users outside may have no
//! node to carry it, but nothing with users may follow such a block.
//!
//! Physical memory is laid out likewise where it was bound at the capture's end. Three things differ, because the
//! memory came when the capture had ended. A block that nothing uses and that was freed had no memory at all: it is
//! left out. When the host freed another says nothing but what its users are, and they are judged: it may have been
//! after the next block's allocation, with no work in between. And of blocks from elsewhere only those count that still
//! stand at the end: what was freed by then never met the capture's work.

use super::bindings::{Bindings, Part};
use super::history::{BlockHistory, History, StandingHistory, NEVER};
use super::lists::Lists;
use super::users::Users;
use super::violation::{Common, Violation};

/// Two blocks of the capture with users, one handed out where the other had been.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub earlier: u32,
    pub later: u32,
    /// What both have: zero for addresses, else the place among [`Pairs::memory`], from one.
    common: u32,
}

impl Pair {
    /// The earlier block and the later one.
    pub fn blocks<'a>(&self, history: &'a History) -> [&'a BlockHistory; 2] {
        [self.earlier, self.later].map(|it| &history.blocks[it as usize])
    }
}

/// All pairs, by their later blocks.
#[derive(Default)]
pub(super) struct Pairs {
    pub all: Vec<Pair>,
    /// The first two blocks that lay in one place, of which the later one has no users: a node that no look saw may use
    /// it, and another one the earlier block.
    pub unused: Option<Pair>,
    /// The memories that pairs have in common.
    memory: Vec<Common>,
}

impl Pairs {
    fn add(&mut self, earlier: u32, later: u32, common: Common) {
        let pair = self.pair(earlier, later, common);
        self.all.push(pair);
    }

    fn pair(&mut self, earlier: u32, later: u32, common: Common) -> Pair {
        self.memory.extend(Some(common).filter(|it| !matches!(it, Common::Address)));
        let common = if matches!(common, Common::Address) { 0 } else { self.memory.len() as u32 };
        Pair { earlier, later, common }
    }

    /// What the blocks of a pair have in common.
    pub fn common(&self, pair: Pair) -> Common {
        let at = (pair.common as usize).checked_sub(1);
        at.map_or(Common::Address, |at| self.memory[at])
    }
}

/// Where a block begins to lie, and where it ends.
type Stretch = (u64, u64, u32);

/// The first thing found wrong.
#[derive(Default)]
pub(super) struct Wrong {
    /// When it came about: an entry of the journal; and which of the walks found it, and where.
    pub entry: u32,
    walk: u32,
    at: u64,
    pub violation: Option<Violation>,
}

impl Wrong {
    fn found(&mut self, entry: u32, (walk, at): (u32, u64), violation: impl FnOnce() -> Violation) {
        if self.violation.is_none() || (entry, walk, at) < (self.entry, self.walk, self.at) {
            *self = Self { entry, walk, at, violation: Some(violation()) };
        }
    }
}

/// All pairs, and the first thing that is wrong with where blocks lie.
pub(super) fn read(
    history: &History,
    users: &Users<'_>,
    bindings: Option<&Bindings>,
) -> (Pairs, Wrong) {
    let (pairs, wrong) = (Pairs::default(), Wrong::default());
    let mut places = Places { history, users, pairs, wrong, walks: 0 };
    let blocks = history.blocks.iter().zip(0..);
    let stretches = blocks.map(|(block, number)| (block.address, block.end, number));
    places.walk(stretches.clone(), |_| Common::Address);
    let standing = history.standing.iter().zip(0..);
    let standing: Vec<Stretch> =
        standing.map(|(block, number)| (block.place.address, block.end, number)).collect();
    places.keep_clear(stretches, &standing, |_| Common::Address);
    if let Some(bindings) = bindings {
        places.read_memory(bindings);
    }
    let Places { mut pairs, wrong, .. } = places;
    if pairs.all.is_empty() {
        return (pairs, wrong);
    }
    // By their later blocks, each once: at addresses where it is there.
    pairs.all.sort_by_key(|pair| pair.later);
    let mut known = vec![NEVER; history.blocks.len()];
    pairs.all.retain(|pair| {
        std::mem::replace(&mut known[pair.earlier as usize], pair.later) != pair.later
    });
    (pairs, wrong)
}

struct Places<'a, 'u> {
    history: &'a History,
    users: &'a Users<'u>,
    pairs: Pairs,
    wrong: Wrong,
    /// How many walks there were.
    walks: u32,
}

impl Places<'_, '_> {
    /// Judges the blocks that these stretches belong to, by addresses or in one memory. They come in the order of
    /// their blocks, and those of one block do not overlap.
    fn walk(
        &mut self,
        stretches: impl Iterator<Item = Stretch> + Clone,
        common: impl Fn(u64) -> Common,
    ) {
        let (users, mut all_used) = (self.users, true);
        let used = stretches.clone().filter(|it| {
            let is_used = users.any(it.2);
            all_used &= is_used;
            is_used
        });
        // One block meets none.
        let several = self.history.blocks.len() > 1;
        if several {
            neighbours(used, |one, other, at| self.met(one, other, at, common(at), true));
        }
        self.walks += 1;
        if several && !all_used {
            neighbours(stretches, |one, other, at| self.met(one, other, at, common(at), false));
        }
        self.walks += 1;
    }

    /// Judges two blocks of which one came directly after the other at an address, with what lies there.
    fn met(&mut self, earlier: u32, later: u32, at: u64, common: Common, with_users: bool) {
        let blocks = &self.history.blocks;
        let [first, second] = [earlier, later].map(|it| &blocks[it as usize]);
        let is_gone = match common {
            Common::Address => first.freed <= second.allocated,
            // The memory comes when the capture has ended.
            Common::Memory { .. } => first.freed != NEVER,
        };
        if is_gone && !with_users {
            if !self.users.any(later) && self.pairs.unused.is_none() {
                self.pairs.unused = Some(self.pairs.pair(earlier, later, common));
            }
            return;
        }
        if is_gone && !first.outside {
            return self.pairs.add(earlier, later, common);
        }
        let places = [earlier, later].map(|it| self.history.place(it));
        self.wrong.found(second.allocated, (self.walks, at), || {
            let [earlier, later] = places;
            match is_gone {
                true => Violation::OutsideUse { earlier, later, common },
                false => Violation::LiveOverlap { earlier, later, common },
            }
        });
    }

    /// Keeps blocks and standing blocks clear of one another.
    fn keep_clear(
        &mut self,
        stretches: impl Iterator<Item = Stretch>,
        standing: &[Stretch],
        common: impl Fn(u64) -> Common,
    ) {
        self.walks += 1;
        if standing.is_empty() {
            return;
        }
        let mut sorted = standing.to_vec();
        sorted.sort_unstable();
        // The furthest end of each and all before it.
        let mut furthest = 0;
        let ends = sorted.iter().map(|&(_, end, _)| {
            furthest = end.max(furthest);
            furthest
        });
        let ends: Vec<u64> = ends.collect();
        for (start, end, number) in stretches.filter(|it| it.0 < it.1) {
            let block = &self.history.blocks[number as usize];
            let below = sorted.partition_point(|it| it.0 < end);
            for at in (0..below).rev().take_while(|&at| ends[at] > start) {
                let (from, to, stands) = sorted[at];
                let StandingHistory { place: standing, entered, settled, .. } =
                    self.history.standing[stands as usize];
                let common = common(start.max(from));
                let ever = !matches!(common, Common::Address);
                let meet = entered < block.freed && block.allocated < settled && !ever;
                let stays = settled == NEVER && (ever || self.users.any(number));
                if from < to && to > start && (meet || stays) {
                    let entry = if meet { block.allocated.max(entered) } else { NEVER };
                    let (block, here) = (self.history.place(number), (self.walks, 0));
                    self.wrong.found(entry, here, || Violation::Standing {
                        standing,
                        block,
                        common,
                    });
                }
            }
        }
    }

    fn read_memory(&mut self, bindings: &Bindings) {
        let History { blocks, standing, .. } = self.history;
        let mut ours: Vec<(u32, Stretch)> = Vec::new();
        for (block, number) in blocks.iter().zip(0..) {
            let lasts = block.freed == NEVER;
            if !lasts && !self.users.any(number) {
                continue;
            }
            for Part { memory, start, end } in bindings.parts(block.address, block.end) {
                let is = &bindings.memories[memory as usize];
                // No node can tell when a use outside the capture is over.
                if is.shared && (lasts || block.outside) {
                    let (block, memory) = (self.history.place(number), is.number);
                    let entry = blocks[number as usize].allocated;
                    let here = (self.walks, 0);
                    self.wrong.found(entry, here, || Violation::Overwritten { block, memory });
                }
                ours.push((memory, (start, end, number)));
            }
        }
        let theirs = standing.iter().zip(0..).filter(|(it, _)| it.settled == NEVER);
        let theirs: Vec<(u32, Stretch)> = theirs
            .flat_map(|(it, number)| {
                let parts = bindings.parts(it.place.address, it.end);
                parts.map(move |part| (part.memory, (part.start, part.end, number)))
            })
            .collect();
        let count = bindings.memories.len();
        let [ours, theirs] = [ours, theirs].map(|it| Lists::new(count, it.iter().copied()));
        for (memory, is) in bindings.memories.iter().enumerate() {
            let common = |offset| Common::Memory { memory: is.number, offset };
            let (ours, theirs) = (ours.of(memory as u32), theirs.of(memory as u32));
            let apart = self.unfold(ours, common);
            self.walk(apart.iter().copied(), common);
            self.keep_clear(ours.iter().copied(), theirs, common);
        }
    }

    /// Refuses blocks that have a byte of one memory at two of their addresses, and answers the stretches of each
    /// block from below.
    fn unfold(&mut self, stretches: &[Stretch], common: impl Fn(u64) -> Common) -> Vec<Stretch> {
        let mut apart = stretches.to_vec();
        for of_block in apart.chunk_by_mut(|one, other| one.2 == other.2) {
            of_block.sort_unstable();
            let Some(two) = of_block.windows(2).find(|two| two[1].0 < two[0].1) else { continue };
            let (at, _, number) = two[1];
            let (block, common) = (self.history.place(number), common(at));
            let entry = self.history.blocks[number as usize].allocated;
            self.wrong.found(entry, (self.walks, at), || Violation::Folded { block, common });
        }
        apart
    }
}

/// A part of all addresses, up to the next one's start.
#[derive(Clone, Copy)]
struct Held {
    start: u64,
    /// The last block to have it, or [`NEVER`].
    block: u32,
}

/// The most parts of the map that are kept together, about.
const MOST: usize = 64;

/// Calls `met` for each two blocks that hold an address directly one after the other, the earlier
/// one first, and where, from below; for some more than once. Blocks come in their order, the stretches of one from
/// below. Takes time for each stretch and each part of an earlier one that it covers, and for a search among the parts.
fn neighbours(stretches: impl Iterator<Item = Stretch>, mut met: impl FnMut(u32, u32, u64)) {
    // All addresses, in parts by their starts; so many together that little is moved where some are put in between.
    // None of the chunks is empty. Of each where it starts.
    let mut chunks = vec![vec![Held { start: 0, block: NEVER }]];
    let mut starts: Vec<u64> = vec![0];
    for (start, end, block) in stretches.filter(|it| it.0 < it.1) {
        let at = starts.partition_point(|&it| it <= start) - 1;
        // All that it covers comes together.
        while starts.get(at + 1).is_some_and(|&next| next < end) {
            starts.remove(at + 1);
            let next = chunks.remove(at + 1);
            chunks[at].extend(next);
        }
        let behind_all = starts.get(at + 1).copied().unwrap_or(u64::MAX);
        let chunk = &mut chunks[at];
        let first = chunk.partition_point(|part| part.start <= start) - 1;
        let mut behind = first;
        let mut covered = chunk[first];
        for part in chunk[first..].iter().take_while(|part| part.start < end) {
            if part.block != block && part.block != NEVER {
                met(part.block, block, part.start.max(start));
            }
            covered = *part;
            behind += 1;
        }
        let to = chunk.get(behind).map_or(behind_all, |next| next.start);
        let right = (to > end).then_some(Held { start: end, ..covered });
        // What is left of the first part stays where it is. Mostly about as many parts come as go.
        let mut row = first + usize::from(chunk[first].start < start);
        for part in [Some(Held { start, block }), right].into_iter().flatten() {
            match row < behind {
                true => chunk[row] = part,
                false => chunk.insert(row, part),
            }
            row += 1;
        }
        chunk.drain(row..behind.max(row));
        if chunk.len() > MOST {
            let upper = chunk.split_off(MOST / 2);
            starts.insert(at + 1, upper[0].start);
            chunks.insert(at + 1, upper);
        }
    }
}
