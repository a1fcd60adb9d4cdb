//! A journal gives back the facts that it was given.

use proptest::prelude::*;
use regraph::driver::{CaptureId, Dependency, EdgeData, NodeHandle, StreamHandle};
use regraph_record::journal::{BlockNumber, Entry, Journal};

/// A fact with what it refers to.
#[derive(Clone, Debug)]
struct Fact {
    kind: u8,
    node: usize,
    stream: usize,
    list: Vec<Dependency>,
    numbers: [u64; 4],
}

impl Fact {
    fn entry(&self) -> Entry<'_> {
        let (stream, node) = (StreamHandle::from_bits(self.stream), self.node);
        let [number, address, bytes, offset] = self.numbers;
        let (block, graph) = (BlockNumber(number), CaptureId(address));
        match self.kind {
            0 | 1 => Entry::Terminals { stream, terminals: (&self.list).into() },
            2..=4 => {
                Entry::Node { node: NodeHandle::from_bits(node), dependencies: (&self.list).into() }
            }
            5 => Entry::Allocate { block, stream, address, bytes },
            6 => Entry::Use { block, stream },
            7 => Entry::LastUse { block, stream },
            8 => Entry::Outside { block },
            9 => Entry::Free { block },
            10 => Entry::Standing { block, address, bytes },
            11 => Entry::Settled { block },
            12 => Entry::Bound { address, bytes, memory: number, offset },
            13 => Entry::Shared { memory: number, bytes, graph },
            14 => Entry::OutputFreed { memory: number, graph },
            16 => Entry::Graphs,
            17 => Entry::Looked,
            15 => Entry::Pool { next: block, held: address, listed: bytes },
            _ => Entry::Input { block, stream },
        }
    }
}

/// Handles that lie near one another, and some that lie far away.
fn handle() -> impl Strategy<Value = usize> {
    const NEAR: usize = 0x7f00_0000_0000;
    prop_oneof![
        8 => (0..4096_usize).prop_map(|it| NEAR + (it << 4)),
        1 => any::<i32>().prop_map(|it| NEAR.wrapping_add_signed(it as isize)),
        1 => prop_oneof![any::<usize>(), Just(usize::MAX)],
    ]
}

/// Small numbers, multiples of 512 above an address, extremes, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..1000_u64,
        4 => (0..1_u64 << 20).prop_map(|it| (7 << 40) + (it << 9)),
        1 => prop::sample::select(&[1 << 59, (1 << 59) - 1, u64::MAX][..]),
        1 => any::<u64>(),
    ]
}

fn fact() -> impl Strategy<Value = Fact> {
    let [early, order] = [EdgeData::PROGRAMMATIC, EdgeData::LAUNCH_ORDER];
    let data = move || prop_oneof![18 => Just(EdgeData::FULL), 1 => Just(early), 1 => Just(order)];
    let dependency = move || {
        (handle(), data())
            .prop_map(|(node, edge)| Dependency { node: NodeHandle::from_bits(node), edge })
    };
    let list = prop_oneof![
        8 => prop::collection::vec(dependency(), 0..4),
        1 => prop::collection::vec(dependency(), 4..200),
    ];
    let numbers = [number(), number(), number(), number()];
    (0..19_u8, handle(), 0..40_usize, list, numbers)
        .prop_map(|(kind, node, stream, list, numbers)| Fact { kind, node, stream, list, numbers })
}

proptest! {
    #[test]
    fn facts_come_back_as_they_were(facts in prop::collection::vec(fact(), 0..200)) {
        let mut journal = Journal::new();
        facts.iter().for_each(|fact| journal.push(fact.entry()));
        prop_assert_eq!(journal.len(), facts.len());
        prop_assert!(journal.iter().eq(facts.iter().map(Fact::entry)));
        let nodes = facts.iter().filter_map(|fact| match fact.entry() {
            Entry::Node { node, dependencies } => Some((node, dependencies)),
            _ => None,
        });
        prop_assert!(journal.nodes().eq(nodes));
    }
}

#[test]
fn a_long_list_comes_back() {
    let nodes = (0..100_000).map(|it| Dependency::full(NodeHandle::from_bits(it)));
    let list: Vec<_> = nodes.collect();
    let (stream, terminals) = (StreamHandle::from_bits(1), (&list).into());
    let mut journal = Journal::new();
    assert!(journal.is_empty());
    journal.push(Entry::Terminals { stream, terminals });
    assert!(journal.iter().eq([Entry::Terminals { stream, terminals }]));
}
