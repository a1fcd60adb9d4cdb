//! The model of PyTorch's allocator keeps to the documented policy.

use regraph_lab::peer::{BlockId, Options, Peer};
use regraph_lab::training::{Operation, Workload};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn plain() -> Peer {
    Peer::new(Options::default())
}

fn expandable() -> Peer {
    Peer::new(Options { expandable: true, ..Options::default() })
}

fn limited(options: Options, limit: u64) -> Peer {
    Peer::new(Options { limit: Some(limit), ..options })
}

/// Allocates on stream 0.
fn allocate(peer: &mut Peer, bytes: u64) -> BlockId {
    peer.allocate(bytes, 0).unwrap()
}

fn address(peer: &Peer, block: BlockId) -> u64 {
    peer.address(block).unwrap()
}

#[test]
fn each_size_has_its_block_and_its_segment() {
    for (bytes, allocated, reserved) in [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        // From 10 MiB on a segment of its own; what is left of it is too little to split off.
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
        (301 * MIB, 302 * MIB, 302 * MIB),
    ] {
        let mut peer = plain();
        allocate(&mut peer, bytes);
        let figures = peer.figures();
        assert_eq!((figures.allocated, figures.reserved), (allocated, reserved), "{bytes}");
        assert_eq!(figures.growth_calls, 1);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let mut peer = plain();
    assert_eq!(peer.allocate(0, 0), None);
    assert_eq!(peer.allocate(u64::MAX, 0), None);
    assert_eq!(expandable().allocate(1 << 60, 0), None);
    let block = allocate(&mut peer, 1);
    peer.free(block).unwrap();
    assert!(peer.free(block).is_err());
    assert!(peer.record_stream(block, 1).is_err());
    assert_eq!(peer.address(block), None);
    assert_eq!(peer.figures().allocated, 0);
}

#[test]
fn small_blocks_share_a_segment_and_never_one_with_large_blocks() {
    let mut peer = plain();
    for _ in 0..4096 {
        allocate(&mut peer, 512);
    }
    assert_eq!(peer.figures().reserved, 2 * MIB);
    let large = allocate(&mut peer, 2 * MIB);
    peer.free(large).unwrap();
    // 20 MiB are free, but for large blocks.
    allocate(&mut peer, 512);
    assert_eq!(peer.figures().reserved, 24 * MIB);
}

#[test]
fn a_small_rest_of_a_large_block_is_handed_out_too() {
    let mut peer = plain();
    let whole = allocate(&mut peer, 20 * MIB);
    peer.free(whole).unwrap();
    let first = allocate(&mut peer, 19 * MIB);
    assert_eq!(peer.figures().allocated, 20 * MIB);
    peer.free(first).unwrap();
    allocate(&mut peer, 19 * MIB - 512);
    assert_eq!(peer.figures().allocated, 19 * MIB - 512);
    // The rest serves any block that fits.
    let reserved = peer.figures().reserved;
    allocate(&mut peer, MIB + 512);
    assert_eq!(peer.figures().reserved, reserved);
}

#[test]
fn expandable_segments_always_split() {
    let mut peer = expandable();
    let whole = allocate(&mut peer, 20 * MIB);
    peer.free(whole).unwrap();
    allocate(&mut peer, 20 * MIB - 512);
    assert_eq!(peer.figures().allocated, 20 * MIB - 512);
}

#[test]
fn freed_neighbours_join() {
    for mut peer in [plain(), expandable()] {
        let blocks: Vec<_> = (0..4).map(|_| allocate(&mut peer, 5 * MIB)).collect();
        assert_eq!(peer.figures().reserved, 20 * MIB);
        for index in [0, 2, 1, 3] {
            peer.free(blocks[index]).unwrap();
        }
        let whole = allocate(&mut peer, 20 * MIB);
        assert_eq!(address(&peer, whole), 0);
        assert_eq!(peer.figures().reserved, 20 * MIB);
    }
}

#[test]
fn blocks_of_two_segments_do_not_join() {
    let mut peer = plain();
    let blocks: Vec<_> = (0..2).map(|_| allocate(&mut peer, 20 * MIB)).collect();
    for block in blocks {
        peer.free(block).unwrap();
    }
    allocate(&mut peer, 40 * MIB);
    assert_eq!(peer.figures().reserved, 80 * MIB);
}

#[test]
fn the_smallest_that_fits_serves_then_the_lowest() {
    let mut peer = plain();
    let blocks = [30, 20, 40, 20].map(|mebibytes| allocate(&mut peer, mebibytes * MIB));
    let at = blocks.map(|block| address(&peer, block));
    for block in blocks.into_iter().rev() {
        peer.free(block).unwrap();
    }
    let chosen = [19, 19, 19, 19].map(|mebibytes| {
        let block = allocate(&mut peer, mebibytes * MIB);
        address(&peer, block)
    });
    assert_eq!(chosen, [at[1], at[3], at[0], at[2]]);
}

#[test]
fn only_its_own_stream_takes_a_free_block() {
    for (mut peer, segment) in [(plain(), 4 * MIB), (expandable(), 20 * MIB)] {
        let bytes = segment;
        let block = peer.allocate(bytes, 3).unwrap();
        let at = address(&peer, block);
        peer.free(block).unwrap();
        let before = peer.figures().reserved;
        let other = peer.allocate(bytes, 4).unwrap();
        assert_ne!(address(&peer, other), at);
        assert!(peer.figures().reserved > before);
        let own = peer.allocate(bytes, 3).unwrap();
        assert_eq!(address(&peer, own), at);
    }
}

#[test]
fn a_block_waits_for_every_other_stream_that_used_it() {
    let mut peer = plain();
    let block = allocate(&mut peer, 30 * MIB);
    for stream in [0, 1, 2, 1] {
        peer.record_stream(block, stream).unwrap();
    }
    peer.free(block).unwrap();
    let figures = peer.figures();
    assert_eq!((figures.allocated, figures.active), (0, 30 * MIB));
    peer.complete(1);
    peer.complete(0);
    assert_eq!(peer.figures().active, 30 * MIB);
    allocate(&mut peer, 30 * MIB);
    assert_eq!(peer.figures().reserved, 60 * MIB);
    peer.complete(2);
    assert_eq!(peer.figures().active, 30 * MIB);
    allocate(&mut peer, 30 * MIB);
    assert_eq!(peer.figures().reserved, 60 * MIB);
}

#[test]
fn a_use_on_its_own_stream_makes_no_block_wait() {
    let mut peer = plain();
    let block = allocate(&mut peer, 30 * MIB);
    peer.record_stream(block, 0).unwrap();
    peer.free(block).unwrap();
    assert_eq!(peer.figures().active, 0);
}

#[test]
fn what_is_freed_behind_a_mark_waits_on() {
    let mut peer = plain();
    let blocks = [30, 40].map(|mebibytes| allocate(&mut peer, mebibytes * MIB));
    for block in blocks {
        peer.record_stream(block, 1).unwrap();
    }
    peer.free(blocks[0]).unwrap();
    let mark = peer.mark();
    peer.free(blocks[1]).unwrap();
    peer.complete_before(1, mark);
    assert_eq!(peer.figures().active, 40 * MIB);
    peer.complete_all();
    assert_eq!(peer.figures().active, 0);
}

#[test]
fn expandable_segments_grow_by_pages() {
    let mut peer = expandable();
    allocate(&mut peer, 512);
    assert_eq!((peer.figures().reserved, peer.figures().growth_calls), (2 * MIB, 1));
    let first = allocate(&mut peer, 30 * MIB);
    assert_eq!((peer.figures().reserved, peer.figures().growth_calls), (42 * MIB, 3));
    // 10 MiB are free at the end: 5 more are mapped, that is a page, and join them.
    let second = allocate(&mut peer, 15 * MIB);
    assert_eq!(peer.figures().reserved, 62 * MIB);
    assert_eq!(address(&peer, second), address(&peer, first) + 30 * MIB);
    // All of it is one range.
    let at = address(&peer, first);
    peer.free(first).unwrap();
    peer.free(second).unwrap();
    let third = allocate(&mut peer, 60 * MIB);
    assert_eq!(address(&peer, third), at);
    assert_eq!(peer.figures().reserved, 62 * MIB);
}

#[test]
fn unmapped_pages_are_mapped_again_lowest_first() {
    let mut peer = expandable();
    let blocks: Vec<_> = (0..4).map(|_| allocate(&mut peer, 20 * MIB)).collect();
    let at: Vec<_> = blocks.iter().map(|block| address(&peer, *block)).collect();
    peer.free(blocks[1]).unwrap();
    peer.empty_cache();
    assert_eq!((peer.figures().reserved, peer.figures().shrink_calls), (60 * MIB, 1));
    // Too large for the hole.
    let large = allocate(&mut peer, 40 * MIB);
    assert_eq!(address(&peer, large), at[3] + 20 * MIB);
    let small = allocate(&mut peer, 10 * MIB);
    assert_eq!(address(&peer, small), at[1]);
    assert_eq!(peer.figures().reserved, 120 * MIB);
}

#[test]
fn emptying_gives_back_whole_pages_only() {
    let mut peer = expandable();
    let blocks = [10, 60, 10].map(|mebibytes| allocate(&mut peer, mebibytes * MIB));
    assert_eq!(peer.figures().reserved, 80 * MIB);
    peer.free(blocks[1]).unwrap();
    peer.empty_cache();
    // From 10 to 70 MiB are free; the pages from 20 to 60 are wholly so.
    assert_eq!(peer.figures().reserved, 40 * MIB);
    // The hole is 60 MiB long as before.
    let again = allocate(&mut peer, 60 * MIB);
    assert_eq!(address(&peer, again), 10 * MIB);
    assert_eq!(peer.figures().reserved, 80 * MIB);
}

#[test]
fn at_the_limit_the_cache_is_emptied_once() {
    let mut peer = limited(Options::default(), 64 * MIB);
    let kept = allocate(&mut peer, 20 * MIB);
    let waiting = allocate(&mut peer, 40 * MIB);
    peer.record_stream(waiting, 1).unwrap();
    peer.free(waiting).unwrap();
    // The host waits for stream 1, and the segment goes back.
    let large = allocate(&mut peer, 44 * MIB);
    let figures = peer.figures();
    assert_eq!((figures.reserved, figures.active, figures.retries), (64 * MIB, 64 * MIB, 1));
    assert_eq!(figures.shrink_calls, 1);
    assert_eq!(peer.allocate(2 * MIB, 0), None);
    peer.free(large).unwrap();
    peer.free(kept).unwrap();
    assert!(peer.allocate(64 * MIB, 0).is_some());
}

#[test]
fn a_segment_with_a_live_block_is_not_given_back() {
    let mut peer = limited(Options::default(), 40 * MIB);
    let blocks = [5, 16].map(|mebibytes| allocate(&mut peer, mebibytes * MIB - 512));
    assert_eq!(peer.figures().reserved, 36 * MIB);
    peer.free(blocks[1]).unwrap();
    peer.empty_cache();
    assert_eq!(peer.figures().reserved, 20 * MIB);
    assert_eq!(peer.allocate(21 * MIB, 0), None);
    assert!(peer.allocate(20 * MIB, 0).is_some());
}

#[test]
fn expandable_pages_move_to_where_they_are_needed_at_the_limit() {
    let mut peer = limited(Options { expandable: true, limit: None }, 80 * MIB);
    let blocks: Vec<_> = (0..4).map(|_| allocate(&mut peer, 20 * MIB)).collect();
    peer.free(blocks[0]).unwrap();
    peer.free(blocks[2]).unwrap();
    // 40 MiB are free, but not in a row: two pages are unmapped there and mapped at the end.
    allocate(&mut peer, 40 * MIB);
    assert_eq!((peer.figures().reserved, peer.figures().retries), (80 * MIB, 1));
}

#[test]
fn the_free_block_that_can_grow_less_is_taken() {
    let mut peer = expandable();
    let blocks = [30, 10, 10].map(|mebibytes| allocate(&mut peer, mebibytes * MIB));
    // Free: 30 MiB between, and 10 MiB at the end, which may grow.
    peer.free(blocks[0]).unwrap();
    assert_eq!(peer.figures().reserved, 60 * MIB);
    let block = allocate(&mut peer, 8 * MIB);
    assert_eq!(address(&peer, block), 0);
}

#[test]
fn live_blocks_never_overlap() {
    let workload = Workload { operations: 4_000, streams: 3, layers: 3, ..Workload::default() };
    let operations = workload.generate();
    for expandable in [false, true] {
        let mut peer = limited(Options { expandable, limit: None }, 4 << 30);
        let mut blocks = std::collections::BTreeMap::new();
        let mut live = std::collections::BTreeMap::new();
        for operation in operations.iter().copied() {
            match operation {
                Operation::Allocate { id, bytes, stream } => {
                    let block = peer.allocate(bytes, stream).unwrap();
                    let start = address(&peer, block);
                    let before = live.range(..start + bytes).next_back();
                    assert!(before.is_none_or(|(at, bytes)| at + bytes <= start));
                    live.insert(start, bytes);
                    blocks.insert(id, block);
                }
                Operation::Use { id, stream } => peer.record_stream(blocks[&id], stream).unwrap(),
                Operation::Free { id } => {
                    let block = blocks.remove(&id).unwrap();
                    live.remove(&address(&peer, block));
                    peer.free(block).unwrap();
                }
                Operation::Complete => peer.complete_all(),
                Operation::Work { .. } | Operation::Wait { .. } => {}
            }
            let figures = peer.figures();
            assert!(figures.allocated <= figures.active && figures.active <= figures.reserved);
        }
        assert!(peer.figures().peak_reserved <= 4 << 30);
        for block in blocks.into_values() {
            peer.free(block).unwrap();
        }
        peer.empty_cache();
        assert_eq!(peer.figures().reserved, 0);
        assert_eq!(peer.figures().allocated, 0);
        assert!(peer.figures().peak_allocated > 256 * KIB);
    }
}
