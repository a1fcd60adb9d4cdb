//! Lifetimes and minima against their definitions.

use regraph::driver::{Dependency, NodeHandle, StreamHandle};
use regraph::settings::Programmatic;
use regraph_plan::lifetimes::Lifetimes;
use regraph_plan::minimum::Minimum;
use regraph_record::journal::{BlockNumber, Entry, Journal};

use super::definition::Definition;
use super::journals::Writer;

#[test]
fn lifetimes_are_those_of_the_definition() {
    let (mut broken, mut idle, mut passed) = (0, 0, 0);
    for seed in 0..300 {
        let strange = [0.0, 0.1, 0.4][seed as usize % 3];
        let journal = Writer::random(seed, 120, strange);
        for &policy in Programmatic::ALL {
            let expected = Definition::new(&journal, policy);
            let lifetimes = Lifetimes::read(&journal, policy);
            assert!(lifetimes.is_exact());
            assert_eq!(lifetimes.blocks().len(), expected.blocks.len());
            for (row, (found, block)) in lifetimes.blocks().iter().zip(&expected.blocks).enumerate()
            {
                let what = format!("seed {seed}, {policy}, block {row}");
                let flags = (found.worked, found.freed, found.covered, found.bytes);
                let wanted = (block.worked, block.freed, block.covered, block.bytes);
                assert_eq!(flags, wanted, "{what}");
                broken += usize::from(!block.covered);
                idle += usize::from(!block.worked);
                for later in 0..expected.blocks.len() {
                    let precedes = expected.precedes(row, later);
                    assert_eq!(lifetimes.precedes(row, later), precedes, "{what}, {later}");
                    passed += usize::from(precedes);
                }
                if block.worked && block.covered {
                    assert!(!lifetimes.precedes(row, row), "{what}: used, and before itself");
                }
            }
            least_memory_is_that_of_the_definition(&lifetimes, &expected);
        }
    }
    assert!(broken > 100 && idle > 100 && passed > 1_000, "{broken} {idle} {passed}");
}

/// By every set of a capture's blocks, where they are few.
fn least_memory_is_that_of_the_definition(lifetimes: &Lifetimes, expected: &Definition) {
    let used = |&row: &usize| expected.blocks[row].worked && !expected.precedes(row, row);
    let rows: Vec<_> = (0..expected.blocks.len()).filter(used).collect();
    let minimum = Minimum::of(lifetimes);
    let bytes = |row: usize| expected.blocks[row].bytes;
    let number = |row: usize| lifetimes.blocks()[row].block;
    let chosen: Vec<_> =
        rows.iter().copied().filter(|&row| minimum.antichain.contains(&number(row))).collect();
    assert_eq!(chosen.len(), minimum.antichain.len());
    assert_eq!(chosen.iter().map(|&row| bytes(row)).sum::<u64>(), minimum.bytes);
    for &one in &chosen {
        assert!(!chosen.iter().any(|&other| expected.precedes(one, other)));
    }
    if rows.len() > 12 {
        return;
    }
    let most = (0..1_u32 << rows.len()).filter_map(|set| {
        let set: Vec<_> = (0..rows.len()).filter(|bit| set >> bit & 1 == 1).collect();
        let apart =
            |&one: &usize| !set.iter().any(|&other| expected.precedes(rows[one], rows[other]));
        set.iter().all(apart).then(|| set.iter().map(|&row| bytes(rows[row])).sum::<u64>())
    });
    assert_eq!(most.max(), Some(minimum.bytes));
}

#[test]
fn a_block_whose_stream_was_set_back_passes_its_memory_on_in_the_bound_alone() {
    let node = |number| NodeHandle::from_bits(number << 4);
    let stream = StreamHandle::from_bits(16);
    let mut journal = Journal::new();
    let launch = |journal: &mut Journal, number, behind: &[usize]| {
        let dependencies: Vec<_> = behind.iter().map(|&n| Dependency::full(node(n))).collect();
        journal.push(Entry::Node { node: node(number), dependencies: (&dependencies).into() });
        let terminals = [Dependency::full(node(number))];
        journal.push(Entry::Terminals { stream, terminals: (&terminals).into() });
    };
    let allocate = |journal: &mut Journal, block| {
        let (block, bytes) = (BlockNumber(block), 512);
        journal.push(Entry::Allocate { block, stream, address: 0, bytes });
    };
    launch(&mut journal, 1, &[]);
    allocate(&mut journal, 0);
    launch(&mut journal, 2, &[1]);
    journal.push(Entry::Terminals { stream, terminals: (&[Dependency::full(node(1))]).into() });
    launch(&mut journal, 3, &[1]);
    journal.push(Entry::Free { block: BlockNumber(0) });
    allocate(&mut journal, 1);
    launch(&mut journal, 4, &[3]);
    let both = [Dependency::full(node(2)), Dependency::full(node(4))];
    journal.push(Entry::Terminals { stream, terminals: (&both).into() });
    allocate(&mut journal, 2);
    launch(&mut journal, 5, &[2, 4]);

    let lifetimes = Lifetimes::read(&journal, Programmatic::Deny);
    assert!(!lifetimes.blocks()[0].covered && lifetimes.blocks()[0].freed);
    assert!(!lifetimes.precedes(0, 1), "node 2 may still run");
    assert!(lifetimes.precedes(0, 2));
    assert_eq!(Minimum::of(&lifetimes).bytes, 1024);
}

#[test]
fn branches_without_end_leave_the_bound_loose_and_no_block_free() {
    // Each block is used by a branch that nothing joins, on a stream of its own.
    let mut journal = Journal::new();
    for number in 0..4_200 {
        let (stream, block) = (StreamHandle::from_bits(number + 16), BlockNumber(number as u64));
        let node = NodeHandle::from_bits((number + 1) << 4);
        journal.push(Entry::Terminals { stream, terminals: (&[]).into() });
        if number >= 4_150 {
            journal.push(Entry::Allocate { block, stream, address: 0, bytes: 512 });
        }
        journal.push(Entry::Node { node, dependencies: (&[]).into() });
        journal.push(Entry::Terminals { stream, terminals: (&[Dependency::full(node)]).into() });
        if number >= 4_150 {
            journal.push(Entry::Free { block });
        }
    }
    let lifetimes = Lifetimes::read(&journal, Programmatic::Deny);
    assert!(!lifetimes.is_exact());
    assert!(lifetimes.blocks().iter().all(|block| !block.freed && !block.covered));
    let minimum = Minimum::of(&lifetimes);
    assert_eq!((minimum.bytes, minimum.exact), (50 * 512, false));
}
