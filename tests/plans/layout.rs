//! Layouts: blocks that lie over one another are in use one after the other, and all of them lie close together.

use crate::common::{Draw, MIB};
use crate::device::{simulated, trace};
use regraph::engine::Config;
use regraph::settings::Reuse;
use regraph::BlockNumber;
use regraph_cli::replay::{replay, Options, Plan};
use regraph_plan::layout::Layout;
use regraph_plan::lifetimes::{Lifetime, Lifetimes};

/// Blocks of a capture on some streams that wait for each other now and then, one of them not used
/// in eight and one in sixteen never freed; with their frees.
fn random(seed: u64, streams: usize, count: usize, live: u64) -> (Lifetimes, Vec<Option<u32>>) {
    let mut draw = Draw(seed);
    let mut clocks = vec![vec![0u32; streams]; streams];
    let mut blocks: Vec<(Lifetime, Vec<u32>, Vec<u32>)> = Vec::new();
    let mut frees = Vec::new();
    let mut held: Vec<usize> = Vec::new();
    while blocks.len() < count {
        let stream = draw.below(streams as u64) as usize;
        match draw.below(8) {
            0 => {
                let other = clocks[draw.below(streams as u64) as usize].clone();
                let mine = clocks[stream].iter_mut().zip(other);
                mine.for_each(|(mine, other)| *mine = (*mine).max(other));
            }
            1..=3 => clocks[stream][stream] += 1,
            4..=5 if held.len() as u64 >= live => {
                let block = held.remove(draw.below(held.len() as u64) as usize);
                let (lifetime, known, needed) = &mut blocks[block];
                needed.clone_from(&clocks[lifetime.stream as usize]);
                lifetime.worked = needed != known;
                lifetime.freed = true;
                frees[block] = Some(blocks.len() as u32);
            }
            _ if held.len() as u64 <= live => {
                let most = [4_000, 60, 60, 60][draw.below(4) as usize];
                let bytes = 512 * (1 + draw.below(most));
                let number = BlockNumber(blocks.len() as u64);
                let block = Lifetime::new(number, (0, bytes), stream as u32, false);
                let known = clocks[stream].clone();
                if draw.below(16) > 0 {
                    held.push(blocks.len());
                }
                blocks.push((block, known.clone(), known));
                frees.push(None);
            }
            _ => {}
        }
    }
    let mut lifetimes = Lifetimes::new(streams);
    for (block, known, needed) in blocks {
        lifetimes.push(block, &known, &needed);
    }
    (lifetimes, frees)
}

fn judge(lifetimes: &Lifetimes, frees: &[Option<u32>], layout: &Layout, across: bool) {
    let blocks = lifetimes.blocks();
    let places = layout.places();
    assert_eq!(places.len(), blocks.len());
    let mut streams = Vec::new();
    for (later, place) in places.iter().enumerate() {
        if !streams.contains(&blocks[later].stream) {
            streams.push(blocks[later].stream);
        }
        let stream = streams[place.stream as usize];
        assert_eq!((place.bytes, stream), (blocks[later].bytes, blocks[later].stream));
        assert_eq!(place.offset % 512, 0);
        assert!(place.offset + place.bytes <= layout.bytes());
    }
    // Those that lie over one another, from the lowest address on.
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&block| places[block].offset);
    let mut under: Vec<usize> = Vec::new();
    for one in order {
        under.retain(|&other| places[one].offset < places[other].offset + places[other].bytes);
        for &other in &under {
            let (earlier, later) = (one.min(other), one.max(other));
            assert!(lifetimes.precedes(earlier, later), "{earlier} and {later} are not ordered");
            assert!(frees[earlier].is_some_and(|at| at as usize <= later), "both are live at once");
            let own = places[earlier].stream == places[later].stream;
            assert!(across || own, "another stream's memory");
        }
        under.push(one);
    }
}

#[test]
fn blocks_over_one_another_are_ordered() {
    for seed in 0..40 {
        let streams = [1, 2, 3, 5, 8][seed as usize % 5];
        let (lifetimes, frees) = random(seed, streams, 20 + seed as usize * 3, 4 + seed % 20);
        for reuse in [Reuse::CrossStream, Reuse::OwnStream] {
            let layout = Layout::new(&lifetimes, &frees, reuse);
            judge(&lifetimes, &frees, &layout, reuse == Reuse::CrossStream);
            assert_eq!(layout, Layout::new(&lifetimes, &frees, reuse), "the same again");
        }
    }
}

#[test]
fn nothing_needs_nothing() {
    let layout = Layout::new(&Lifetimes::new(2), &[], Reuse::CrossStream);
    assert_eq!((layout.bytes(), layout.places().len()), (0, 0));
}

#[test]
fn thousands_of_blocks_are_laid_out() {
    for (count, live) in [(6_500, 40), (12_000, 100)] {
        let (lifetimes, frees) = random(count as u64, 3, count, live);
        let layout = Layout::new(&lifetimes, &frees, Reuse::CrossStream);
        if count < 10_000 {
            judge(&lifetimes, &frees, &layout, true);
        }
        let all: u64 = lifetimes.blocks().iter().map(|block| block.bytes).sum();
        assert!(layout.bytes() < all / 2, "{} of {all}", layout.bytes());
    }
}

/// A block from `from` to `to` on one stream, each a number of allocations.
fn intervals(blocks: &[(u32, u32, u64)]) -> (Lifetimes, Vec<Option<u32>>) {
    let mut order: Vec<_> = blocks.to_vec();
    order.sort_by_key(|&(from, ..)| from);
    let mut lifetimes = Lifetimes::new(1);
    let mut frees = Vec::new();
    for (row, &(from, to, bytes)) in order.iter().enumerate() {
        let block = Lifetime::new(BlockNumber(row as u64), (0, bytes), 0, true);
        lifetimes.push(block, &[from], &[to]);
        let allocated = order.partition_point(|&(other, ..)| other < to);
        frees.push(Some(allocated as u32));
    }
    (lifetimes, frees)
}

/// Intervals for [`intervals`], each of `longest` allocations and `most` units of 512 bytes at most.
fn drawn(seed: u64, count: u64, longest: u64, most: u64) -> Vec<(u32, u32, u64)> {
    let mut draw = Draw(seed);
    (0..count)
        .map(|_| {
            let from = draw.below(count) as u32;
            let to = from + 1 + draw.below(longest) as u32;
            (from, to, 512 * (1 + draw.below(most)))
        })
        .collect()
}

/// Too many for all pairs to be looked at, and close to the least all the same.
#[test]
fn thousands_of_intervals_come_close_to_their_depth() {
    for (seed, longest) in [(1, 60), (2, 2_000)] {
        let blocks = drawn(seed, 7_000, longest, 256);
        let (lifetimes, frees) = intervals(&blocks);
        let layout = Layout::new(&lifetimes, &frees, Reuse::CrossStream);
        judge(&lifetimes, &frees, &layout, true);
        let depth = deepest(&blocks);
        assert!(layout.bytes() * 100 <= depth * 105, "{longest}: {} of {depth}", layout.bytes());
    }
}

/// The most that is live at once.
fn deepest(blocks: &[(u32, u32, u64)]) -> u64 {
    let ends = |&(from, to, bytes): &(u32, u32, u64)| [(from, bytes as i64), (to, -(bytes as i64))];
    let mut ends: Vec<_> = blocks.iter().flat_map(ends).collect();
    // What ends at a time is not live with what begins then.
    ends.sort_unstable();
    let live = ends.iter().scan(0, |live, (_, bytes)| {
        *live += bytes;
        Some(*live)
    });
    live.max().unwrap() as u64
}

#[test]
fn one_streams_intervals_come_close_to_their_depth() {
    let (mut taken, mut least) = (0, 0);
    for seed in 0..12 {
        let count = 40 + 20 * seed;
        let blocks = drawn(seed, count, 1 + count / 6, 64);
        let (lifetimes, frees) = intervals(&blocks);
        let layout = Layout::new(&lifetimes, &frees, Reuse::CrossStream);
        judge(&lifetimes, &frees, &layout, true);
        let depth = deepest(&blocks);
        assert!(layout.bytes() >= depth);
        assert!(layout.bytes() * 100 <= depth * 107, "seed {seed}: {} of {depth}", layout.bytes());
        (taken, least) = (taken + layout.bytes(), least + depth);
    }
    assert!(taken * 100 <= least * 103, "{taken} of {least}");
}

#[test]
fn recorded_captures_come_close_to_the_least() {
    // Each with the least that any placement without new edges needs.
    let traces = [
        ("decoder_s1", 45.0, 1.001),
        ("moe_s6", 127.03, 1.001),
        ("googlenet_s4", 214.41, 1.001),
        ("pipeline_s5", 216.0, 1.04),
    ];
    for (name, least, ratio) in traces {
        let driver = simulated();
        let options =
            Options { config: Config::default(), plan: Plan::Twice, ..Options::default() };
        let replayed = replay(&driver, &trace(name), &options).unwrap();
        let [layout] = &replayed.layouts[..] else { panic!("one capture") };
        let taken = layout.planned_bytes as f64 / MIB as f64;
        assert!(taken <= least * ratio, "{name}: {taken} MiB of {least}");
        assert!(layout.is_whole(), "{name}: {layout}");
    }
}

/// Where memory comes by pages, blocks lie over one another only if they are ordered, beside each other on
/// a page only as in the layout, and need no more memory than it.
#[test]
fn pages_keep_offsets_and_need_no_more() {
    const UNIT: u64 = 8 << 10;
    let mut less = 0;
    for seed in 0..24 {
        let streams = [1, 2, 3, 5][seed as usize % 4];
        let (lifetimes, frees) = random(seed, streams, 30 + seed as usize * 2, 4 + seed % 16);
        let layout = Layout::searched(&lifetimes, &frees, Reuse::CrossStream, (Some(UNIT), 1));
        let alone = Layout::new(&lifetimes, &frees, Reuse::CrossStream);
        assert_eq!(alone.pages(), None);
        judge(&lifetimes, &frees, &layout, true);
        let pages = layout.pages().unwrap();
        let blocks = lifetimes.blocks();
        let place = |block: usize| (pages.offsets()[block], blocks[block].bytes);
        for later in 0..blocks.len() {
            let (begin, bytes) = place(later);
            assert_eq!(begin % UNIT, layout.places()[later].offset % UNIT);
            assert!(begin + bytes <= pages.span());
            for (earlier, free) in frees[..later].iter().enumerate() {
                let (other, size) = place(earlier);
                if other < begin + bytes && begin < other + size {
                    assert!(lifetimes.precedes(earlier, later));
                    assert!(free.is_some_and(|at| at as usize <= later));
                }
                let pages = |at: u64, bytes: u64| (at / UNIT, (at + bytes).div_ceil(UNIT));
                let (one, two) = (pages(begin, bytes), pages(other, size));
                if one.0 < two.1 && two.0 < one.1 {
                    let apart = layout.places()[later].offset.wrapping_sub(begin);
                    assert_eq!(layout.places()[earlier].offset.wrapping_sub(other), apart);
                }
            }
        }
        assert_eq!(pages.bytes() % UNIT, 0);
        assert!(pages.bytes() <= layout.bytes().next_multiple_of(UNIT));
        less += u32::from(pages.bytes() < layout.bytes());
    }
    assert!(less > 0, "some need less");
}
