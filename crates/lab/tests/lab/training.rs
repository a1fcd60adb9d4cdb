//! The training-like workload is legal, deterministic and as large as documented.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regraph::engine::Config;
use regraph_lab::peer::Options;
use regraph_lab::training::{on_engine, on_peer, Operation, Policy, Workload};
use regraph_sim::{SimConfig, SimDriver};

const MIB: u64 = 1 << 20;

/// A small model, so that a few thousand operations make many steps.
fn small(streams: u16, seed: u64) -> Workload {
    Workload { operations: 6_000, seed, streams, layers: 2, hidden: 256, tokens: 2048 }
}

#[test]
fn there_are_as_many_as_asked_for() {
    for operations in [0, 1, 2, 77, 5_000] {
        let workload = Workload { operations, ..Workload::default() };
        assert_eq!(workload.generate().len(), operations as usize);
    }
    assert_eq!(Workload::default().generate().len(), 100_000);
}

#[test]
fn a_shorter_one_is_a_longer_one_cut() {
    let long = small(2, 3).generate();
    let short = Workload { operations: 1_000, ..small(2, 3) }.generate();
    assert_eq!(short, long[..1_000]);
}

#[test]
fn a_seed_gives_one_workload() {
    assert_eq!(small(2, 3).generate(), small(2, 3).generate());
    assert_ne!(small(2, 3).generate(), small(2, 4).generate());
}

/// What one stream knows of each stream: how many of its operations come before.
type Clock = Vec<usize>;

#[test]
fn every_operation_is_legal() {
    for streams in [0, 1, 2, 3, 5] {
        for operations in [small(streams, 1), small(streams, 2)].map(|it| it.generate()) {
            let streams = usize::from(streams.max(1));
            let mut clocks: Vec<Clock> = vec![vec![0; streams]; streams];
            // By block: its own stream, and how far that had come.
            let mut live: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
            let mut blocks = 0;
            for operation in operations {
                match operation {
                    Operation::Allocate { id, bytes, stream } => {
                        let stream = usize::from(stream);
                        assert_eq!(id, blocks);
                        blocks += 1;
                        assert!((512..=512 * MIB).contains(&bytes), "{bytes}");
                        live.insert(id, (stream, clocks[stream][stream]));
                    }
                    Operation::Use { id, stream } => {
                        let (own, point) = live[&id];
                        assert_ne!(own, usize::from(stream));
                        // What the block's place held before is over for this stream too.
                        assert!(clocks[usize::from(stream)][own] >= point);
                    }
                    Operation::Free { id } => assert!(live.remove(&id).is_some()),
                    Operation::Work { stream } => {
                        let stream = usize::from(stream);
                        clocks[stream][stream] += 1;
                    }
                    Operation::Wait { stream, on } => {
                        assert_ne!(stream, on);
                        let on = clocks[usize::from(on)].clone();
                        for (known, other) in clocks[usize::from(stream)].iter_mut().zip(on) {
                            *known = (*known).max(other);
                        }
                    }
                    Operation::Complete => {
                        let now: Clock =
                            (0..streams).map(|stream| clocks[stream][stream]).collect();
                        clocks.fill(now);
                    }
                }
            }
        }
    }
}

#[test]
fn what_stays_is_parameters_and_state_and_the_step_under_way() {
    let operations = small(2, 1).generate();
    let completes = |operation: &Operation| *operation == Operation::Complete;
    let steps = operations.iter().filter(|operation| completes(operation)).count();
    assert!(steps > 10, "{steps}");
    // At the end of every step the same is live, but for input batches and checkpoints.
    let mut live = BTreeSet::new();
    let mut kept = Vec::new();
    for operation in &operations {
        match *operation {
            Operation::Allocate { id, .. } => assert!(live.insert(id)),
            Operation::Free { id } => assert!(live.remove(&id)),
            Operation::Complete => kept.push(live.clone()),
            _ => {}
        }
    }
    let first = &kept[0];
    let parameters = 1 + 2 * 12;
    let for_ever: BTreeSet<_> = kept.iter().skip(1).fold(first.clone(), |common, at| &common & at);
    assert_eq!(for_ever.len(), parameters * (1 + 3));
    for at in kept {
        assert!(at.len() - for_ever.len() < 16, "{}", at.len() - for_ever.len());
    }
}

#[test]
fn sizes_are_mixed_and_change_from_step_to_step() {
    let operations = Workload { operations: 20_000, ..Workload::default() }.generate();
    let sizes: Vec<u64> = operations
        .iter()
        .filter_map(|operation| match operation {
            Operation::Allocate { bytes, .. } => Some(*bytes),
            _ => None,
        })
        .collect();
    let distinct: BTreeSet<_> = sizes.iter().collect();
    assert!(distinct.len() > 1_000, "{}", distinct.len());
    let share = |range: std::ops::Range<u64>| {
        let within = sizes.iter().filter(|bytes| range.contains(bytes)).count();
        within as f64 / sizes.len() as f64
    };
    assert!(share(0..MIB) > 0.2);
    assert!(share(MIB..10 * MIB) > 0.2);
    assert!(share(10 * MIB..100 * MIB) > 0.1);
    assert!(share(100 * MIB..1024 * MIB) > 0.005);
    let uses = operations.iter().filter(|it| matches!(it, Operation::Use { .. })).count();
    assert!(uses * 20 > sizes.len(), "{uses}");
}

#[test]
fn with_one_stream_nothing_is_shared() {
    for operation in small(1, 1).generate() {
        assert!(!matches!(operation, Operation::Use { .. } | Operation::Wait { .. }));
    }
}

#[test]
fn every_allocator_runs_it() {
    for streams in [1, 2, 4] {
        let operations = small(streams, 1).generate();
        let driver = Arc::new(SimDriver::new(SimConfig::default()));
        let ours = on_engine(&driver, &operations, Config::default()).unwrap();
        let plain = on_peer(&operations, Options::default()).unwrap();
        let expandable = Options { expandable: true, ..Options::default() };
        let expandable = on_peer(&operations, expandable).unwrap();
        assert_eq!(ours.policy, Policy::Regraph);
        assert_eq!(plain.policy, Policy::Pytorch);
        assert_eq!(expandable.policy, Policy::PytorchExpandable);
        for row in [ours, plain, expandable] {
            assert!(row.peak_reserved_bytes >= row.peak_allocated_bytes, "{row:?}");
            assert!(row.peak_reserved_bytes >= row.reserved_bytes, "{row:?}");
            assert!(row.ratio >= 1.0 && row.growth_calls > 0, "{row:?}");
        }
        // Both place blocks in multiples of 512 bytes and no more.
        assert_eq!(ours.peak_allocated_bytes, expandable.peak_allocated_bytes);
        assert!(plain.peak_allocated_bytes >= ours.peak_allocated_bytes);
        let again = on_engine(&driver, &operations, Config::default()).unwrap();
        assert_eq!(ours, again);
    }
}

#[test]
fn operations_that_make_no_sense_are_errors() {
    let free = [Operation::Free { id: 0 }];
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let error = on_engine(&driver, &free, Config::default()).unwrap_err();
    assert_eq!(error.to_string(), "operation 0: block 0 is not live");
    let error = on_peer(&free, Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "operation 0: block 0 is not live");
    let nothing = [Operation::Allocate { id: 0, bytes: 0, stream: 0 }];
    assert!(on_engine(&driver, &nothing, Config::default()).is_err());
    assert!(on_peer(&nothing, Options::default()).is_err());
}
