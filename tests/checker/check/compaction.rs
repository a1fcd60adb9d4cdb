//! Compactions of pools, as records made by hand: each is right but for one thing.

use regraph::driver::CaptureId;
use regraph_check::{check_compaction, Misplaced, Violation};
use regraph_record::journal::{Compaction, Extent, FreedOutput, GraphMemory};

/// The unit of memory, in bytes.
const PAGE: u64 = 1 << 21;

fn at(page: u64, pages: u64, memory: u64) -> Extent {
    Extent { address: page * PAGE, bytes: pages * PAGE, memory }
}

/// Two graphs, one with an output that was freed before the other was planned, and a block that lives.
/// Memories 1 to 5 become 11 to 13: the graphs come to share all but the block's.
fn right() -> Compaction {
    let first = GraphMemory {
        graph: CaptureId(1),
        planned: 1,
        launches: true,
        beside: false,
        before: vec![at(10, 4, 1), at(14, 2, 2), at(16, 4, 1), at(30, 3, 3)],
        after: vec![
            at(10, 1, 11),
            at(11, 3, 12),
            at(14, 2, 13),
            at(16, 1, 11),
            at(17, 3, 12),
            at(30, 3, 3),
        ],
        freed: vec![FreedOutput { address: 14 * PAGE, bytes: 2 * PAGE - 512, freed: 2 }],
    };
    let second = GraphMemory {
        graph: CaptureId(2),
        planned: 2,
        launches: true,
        beside: false,
        before: vec![at(50, 3, 4), at(53, 2, 5)],
        after: vec![at(50, 3, 12), at(53, 2, 13)],
        freed: vec![FreedOutput { address: 53 * PAGE, bytes: 700, freed: 9 }],
    };
    let kept = vec![(31 * PAGE, 700)];
    Compaction { unit: PAGE, kept, graphs: vec![first, second] }
}

/// Expects a record to be refused once it was changed.
fn refused(page: u64, why: Misplaced, change: impl FnOnce(&mut Compaction)) {
    let mut compaction = right();
    change(&mut compaction);
    match check_compaction(&compaction) {
        Err(Violation::Misplaced { address, why: found, .. }) => {
            assert_eq!((address / PAGE, found), (page, why));
        }
        other => panic!("{why:?}: {other:?}"),
    }
}

#[test]
fn a_right_one_is_accepted() {
    check_compaction(&right()).unwrap();
    check_compaction(&Compaction::default()).unwrap();
    let mut turned = right();
    turned.graphs.reverse();
    turned.graphs.iter_mut().for_each(|graph| graph.after.reverse());
    check_compaction(&turned).unwrap();
}

#[test]
fn nothing_may_be_left_without_memory() {
    refused(50, Misplaced::Unmapped, |it| it.graphs[1].after.clear());
    refused(53, Misplaced::Unmapped, |it| it.graphs[1].after.truncate(1));
    refused(50, Misplaced::Unmapped, |it| it.graphs[1].after = vec![at(53, 2, 13)]);
    refused(13, Misplaced::Unmapped, |it| it.graphs[0].after[1].bytes -= PAGE);
}

#[test]
fn no_memory_may_come_where_none_was_or_some_is() {
    refused(70, Misplaced::Strange, |it| it.graphs[1].after.push(at(70, 1, 14)));
    refused(54, Misplaced::Strange, |it| it.graphs[1].after.push(at(54, 1, 14)));
    refused(50, Misplaced::Strange, |it| it.graphs[1].launches = false);
    // A memory is mapped whole.
    refused(50, Misplaced::Strange, |it| {
        it.graphs[1].after = vec![at(50, 2, 12), at(52, 1, 14), at(53, 2, 13)];
    });
    refused(u64::MAX / PAGE, Misplaced::Strange, |it| {
        it.graphs[1].after.push(Extent { address: u64::MAX - 5, bytes: 9, memory: 14 });
    });
}

#[test]
fn what_lives_stays_where_it_is() {
    refused(30, Misplaced::Moved, |it| it.graphs[0].after[5].memory = 14);
    refused(14, Misplaced::Moved, |it| it.kept.push((15 * PAGE, 1)));
    refused(10, Misplaced::Moved, |it| it.graphs[0].beside = true);
    refused(50, Misplaced::Joined, |it| it.graphs[1].after[0].memory = 3);
    // At another place on the same memory.
    refused(10, Misplaced::Joined, |it| {
        it.graphs[0].after = vec![at(10, 3, 3), at(13, 1, 11), at(14, 2, 13), at(16, 4, 14)];
        it.graphs[0].after.push(at(30, 3, 3));
    });
}

#[test]
fn no_two_addresses_of_a_graph_come_to_share_memory() {
    refused(19, Misplaced::Folded, |it| {
        it.graphs[0].after[3] = at(16, 3, 12);
        it.graphs[0].after[4] = at(19, 1, 11);
    });
}

#[test]
fn outputs_are_kept_from_graphs_that_may_read_them() {
    // Freed only after the second graph was planned.
    refused(14, Misplaced::Read, |it| it.graphs[0].freed[0].freed = 3);
}

#[test]
fn outputs_lie_on_nothing_that_an_earlier_graph_overwrites() {
    refused(53, Misplaced::Overwritten, |it| it.graphs[0].freed.clear());
    // The first graph had its output on the other page only.
    refused(53, Misplaced::Overwritten, |it| {
        it.graphs[0].freed[0].address += PAGE;
        it.graphs[0].freed[0].bytes -= PAGE;
    });
    // Nothing says which is the earlier.
    refused(14, Misplaced::Overwritten, |it| it.graphs[1].planned = 1);
}
