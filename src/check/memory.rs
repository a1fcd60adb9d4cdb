//! The physical memory of a capture whose memory was bound at its end, walked in the order of
//! allocation, and the pairs of blocks that share a byte of it at addresses that may differ.
//!
//! As at addresses only neighbours are judged, and for the same reason. Three things differ, because
//! the memory came when the capture had ended. A block that nothing uses and that was freed had no
//! memory at all: it is left out. When the host freed another says nothing but what its users are, and
//! they are judged: it may have been after the next block's allocation, with no work in between. And of
//! blocks from elsewhere only those count that still stand at the end: what was freed by then never met
//! the capture's work.

use smallvec::SmallVec;

use super::bindings::{Bindings, Part};
use super::history::{BlockHistory, Event, History, NEVER};
use super::range_map::RangeMap;
use super::shadow::{has_users, Blocks, Former, Pair};
use super::users::Attribution;
use super::violation::{Common, Violation};

/// One physical memory, by offset.
struct Memory {
    exposed: Blocks,
    /// Blocks without users that were never freed.
    lasting: RangeMap<u32>,
}

/// Walks the journal's events and hands each pair to `judge`, with a byte that both lie on; it may
/// stop the walk. What it finds by itself, it answers.
pub(super) fn walk(
    history: &History,
    attribution: &Attribution<'_>,
    bindings: &Bindings,
    mut judge: impl FnMut(Pair, Common) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let blocks = &history.blocks;
    let new = |_: &_| Memory { exposed: Blocks::default(), lasting: RangeMap::new() };
    let mut memories: Vec<Memory> = bindings.memories.iter().map(new).collect();
    let common = |memory: u32, offset: u64| Common::Memory {
        memory: bindings.memories[memory as usize].number,
        offset,
    };
    let mut former = Former::new();
    for &event in &history.events {
        let Event::Allocate(number) = event else { continue };
        let block = &blocks[number as usize];
        let used = has_users(history, attribution, number);
        if !used && block.freed != NEVER {
            continue;
        }
        let lasts = |other: u32| other == number || blocks[other as usize].freed == NEVER;
        let mut earlier: SmallVec<[(u32, Common); 4]> = SmallVec::new();
        for part in bindings.parts(block.place.address, block.end) {
            require_unshared(block, part, bindings)?;
            let Part { memory, start, end } = part;
            let here = &mut memories[memory as usize];
            here.exposed.read(start, end, &mut former);
            let live = former.iter().map(|it| it.2).find(|&other| lasts(other));
            let live = live.or_else(|| here.lasting.overlapping(start, end).next().copied());
            if let Some(other) = live {
                let common = common(memory, start);
                let later = block.place;
                return Err(match &blocks[other as usize] {
                    _ if other == number => Violation::Folded { block: later, common },
                    other => Violation::LiveOverlap { earlier: other.place, later, common },
                });
            }
            if used {
                earlier.extend(former.iter().map(|it| (it.2, common(memory, it.0.max(start)))));
                here.exposed.put(start, end, number, &former);
            } else {
                here.lasting.replace(start, end, number);
            }
        }
        earlier.sort_by_key(|&(earlier, _)| earlier);
        earlier.dedup_by_key(|&mut (earlier, _)| earlier);
        for (earlier, common) in earlier {
            let outside = &blocks[earlier as usize];
            if outside.outside {
                let (earlier, later) = (outside.place, block.place);
                return Err(Violation::OutsideUse { earlier, later, common });
            }
            judge(Pair { earlier, later: number }, common)?;
        }
    }
    for standing in history.standing.iter().filter(|block| !block.settled) {
        for Part { memory, start, end } in bindings.parts(standing.place.address, standing.end) {
            let here = &memories[memory as usize];
            let exposed = here.exposed.overlapping(start, end).map(|(_, range)| range.block);
            let found = exposed.chain(here.lasting.overlapping(start, end).copied()).next();
            if let Some(block) = found {
                return Err(Violation::Standing {
                    standing: standing.place,
                    block: blocks[block as usize].place,
                    common: common(memory, start),
                });
            }
        }
    }
    Ok(())
}

/// A block that is in use beyond the capture lies on nothing that a graph overwrites, but for graphs
/// whose output there the host has freed. No node
/// can tell when a use outside the capture is over.
fn require_unshared(
    block: &BlockHistory,
    part: Part,
    bindings: &Bindings,
) -> Result<(), Violation> {
    let memory = &bindings.memories[part.memory as usize];
    if memory.shared && (block.freed == NEVER || block.outside) {
        return Err(Violation::Overwritten { block: block.place, memory: memory.number });
    }
    Ok(())
}
