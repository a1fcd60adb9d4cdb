//! Pools of many graphs whose captures were planned, compacted.
//!
//! Graphs are launched in the order of their captures, and some read what earlier ones have left, whose
//! outputs the host has freed by then or not. Each kernel checks what it reads. Random programs of this kind
//! are in `tests/random/graphs.rs`.

use std::sync::Arc;

use regraph::driver::{CaptureMode, ErrorKind, HostApi};
use regraph::engine::{Config, Engine, Error, PoolConfig, PoolRefusal, Unknown};
use regraph::graphs::Pool;
use regraph::plan::{Compacted, Options, Used, User};
use regraph::regions::{Regions, Tags};
use regraph_sim::Call;
use regraph_tagged::{Program, Work};

use super::many::{ManyGraphs, Shape, PAGE};
use crate::common::Draw;

/// New pieces are as large as can be.
fn undivided() -> Options {
    Options::default().max_mappings(Some(1))
}

fn host() -> ManyGraphs {
    ManyGraphs::new(Options::default())
}

/// A graph with blocks of so many pages.
fn shape(pages: &[u64], kept: usize, sources: &[usize]) -> Shape {
    let sizes = pages.iter().map(|pages| pages * PAGE).collect();
    Shape { sizes, kept, sources: sources.to_vec(), ..Shape::default() }
}

fn replay(host: &ManyGraphs) {
    host.replay(|_| None);
}

/// Compacts the pool between launches of all graphs.
fn compact(host: &ManyGraphs) {
    replay(host);
    host.compact();
    replay(host);
}

/// Pages of the blocks of graphs of ever other sizes.
fn sizes() -> [Vec<u64>; 4] {
    [vec![9, 5, 14], vec![3, 20, 7], vec![8, 8, 8, 8], vec![23, 2]]
}

#[test]
fn what_is_left_of_any_graphs_is_what_the_largest_of_them_needs() {
    let alone = |sizes: &[u64]| {
        let mut h = host();
        h.capture(shape(sizes, 0, &[]));
        h.reserved()
    };
    let alone = sizes().map(|sizes| alone(&sizes));
    for order in 0..24 {
        let mut left = vec![0, 1, 2, 3];
        let order: Vec<usize> = [(24, 4), (6, 3), (2, 2), (1, 1)]
            .map(|(each, n)| left.remove(order % each * n / each))
            .to_vec();
        for gone in 0..4 {
            let mut h = host();
            for &graph in &order {
                h.capture(shape(&sizes()[graph], 0, &[]));
            }
            h.release(gone);
            h.compact();
            replay(&h);
            let rest = order.iter().enumerate().filter(|(at, _)| *at != gone);
            let most = rest.map(|(_, graph)| alone[*graph]).max().unwrap();
            assert_eq!(h.reserved(), most, "{order:?} without the one at {gone}");
        }
    }
}

#[test]
fn a_freed_output_that_a_later_graph_reads_is_kept_from_it() {
    // Also with as few pieces as graphs can have.
    let few = ManyGraphs::new(Options::default().max_mappings(Some(1)));
    for (mut h, held) in [(host(), Some(6 + 10 + 30 + 20)), (few, None)] {
        let large = h.capture(shape(&[40], 0, &[]));
        let source = h.capture(shape(&[6], 1, &[]));
        h.capture(shape(&[10, 30, 20], 0, &[source]));
        h.drop_outputs(source, 1);
        h.capture(shape(&[6, 30], 0, &[]));
        h.release(large);
        replay(&h);
        h.compact();
        replay(&h);
        assert!(held.is_none_or(|held| h.reserved() == held * PAGE), "{}", h.reserved());
    }
}

/// What a capture freed and something outside still used is no output: its graph overwrites it whenever it is
/// launched, so no output of a later graph may come to lie there.
#[test]
fn what_was_only_held_is_overwritten() {
    let mut h = host();
    let large = h.capture(shape(&[40], 0, &[]));
    h.capture(Shape { held: 6 * PAGE, ..shape(&[1], 0, &[]) });
    h.excess();
    let source = h.capture(shape(&[6], 1, &[]));
    h.capture(shape(&[2], 0, &[source]));
    h.drop_outputs(source, 1);
    h.release(large);
    assert!(h.compact() > 0);
    // The one with the held block once more, after each of the others.
    h.replay(|_| Some(0));
}

/// A released graph's memory waited for a stream outside, and the new pieces that are found for the other graphs would be
/// more than theirs: nothing is exchanged then, and what waited goes.
#[test]
fn what_is_told_is_what_goes_where_new_pieces_would_be_more() {
    let mut h = ManyGraphs::new(undivided());
    for pages in [&[15][..], &[23, 13, 14]] {
        h.capture(shape(pages, 0, &[]));
    }
    let held = h.capture(Shape { held: 18 * PAGE, ..shape(&[22], 1, &[]) });
    compact(&h);
    h.drop_outputs(held, 1);
    let source = h.capture(shape(&[9, 8], 0, &[]));
    let output = h.capture(shape(&[13], 1, &[]));
    compact(&h);
    let reader = h.capture(shape(&[9], 1, &[source]));
    h.drop_outputs(output, 1);
    compact(&h);
    h.release(reader);
    compact(&h);

    let mut h = ManyGraphs::new(Options::default().max_mappings(Some(2)));
    let first = h.capture(shape(&[8, 13, 6, 8], 1, &[]));
    h.drop_outputs(first, 1);
    let gone = h.capture(shape(&[24], 1, &[]));
    h.release(gone);
    let last = h.capture(shape(&[15, 20, 2, 3, 24], 1, &[]));
    h.drop_outputs(last, 1);
    compact(&h);
}

#[test]
fn graphs_of_captures_beside_each_other_share_nothing() {
    let mut h = host();
    let other = h.driver.create_stream().unwrap();
    h.driver.begin_capture(other, CaptureMode::Relaxed).unwrap();
    let beside = h.engine.begin_capture(h.pool, other).unwrap();
    h.capture(shape(&[5], 0, &[]));
    let block = h.engine.allocate(h.pool, 7 * PAGE, other).unwrap();
    h.driver.launch(other, Work::default(), false).unwrap();
    h.engine.free(block.id).unwrap();
    let refused = h.engine.host().compact_pool(h.pool);
    assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::Busy { captures: 1, .. }, .. })));
    let graph = h.driver.end_capture(other).unwrap();
    h.engine.end_capture(beside, graph).unwrap();
    assert_eq!((h.compact(), h.reserved()), (0, 12 * PAGE));
}

#[test]
fn suspended_pools_and_unknown_ones_are_refused() {
    let mut h = host();
    h.capture(shape(&[5], 0, &[]));
    h.engine.host().suspend_discarding_outputs(h.pool).unwrap();
    let refused = h.engine.host().compact_pool(h.pool);
    assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })));
    let found = h.engine.host().excess_bytes(h.pool);
    assert!(matches!(found, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })));
    h.engine.host().resume_pool(h.pool).unwrap();
    let empty = h.engine.create_pool(PoolConfig::default());
    assert_eq!(h.engine.host().compact_pool(empty).unwrap(), 0);
    h.engine.destroy_pool(empty).unwrap();
    let result = h.engine.host().compact_pool(empty);
    assert!(matches!(result, Err(Error::Unknown { what: Unknown::Pool(_), .. })));
}

/// Outputs that live, outputs that were freed, a block of no graph, and memory that fits none of them.
fn torn() -> ManyGraphs {
    let mut h = ManyGraphs::new(undivided());
    for (pages, kept) in sizes().iter().zip([0, 1, 0, 1]) {
        h.capture(shape(pages, kept, &[]));
    }
    h.release(3);
    h.drop_outputs(1, 1);
    let last = h.capture(shape(&[4, 11, 1], 1, &[]));
    h.capture(shape(&[3, 2], 0, &[last]));
    h.keep_block(3 * PAGE);
    replay(&h);
    assert!(h.excess() > 0);
    h
}

/// A pool that is short of a part is suspended like any other, if the host lets contents go.
#[test]
fn a_short_pool_can_be_suspended_and_released() {
    for discards in [true, false] {
        let mut h = torn();
        // What no graph uses any more has gone by then.
        h.engine.empty_cache().unwrap();
        h.driver.fail_nth(Call::Unmap, 1, ErrorKind::InvalidValue);
        h.driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
        let done = h.engine.host().compact_pool(h.pool);
        assert!(matches!(done, Err(Error::Driver(_))), "{done:?}");
        assert!(h.engine.host().is_short(h.pool).unwrap());
        h.require();
        if discards {
            // Nothing has gone yet, so nothing is lost.
            h.driver.fail_nth(Call::Unmap, 0, ErrorKind::InvalidValue);
            assert!(h.engine.host().suspend_discarding_all(h.pool).is_err());
            assert!(h.engine.host().is_short(h.pool).unwrap());
            h.require();
            h.drop_block();
            h.engine.host().suspend_discarding_outputs(h.pool).unwrap();
            assert!(
                !h.engine.host().is_short(h.pool).unwrap()
                    && h.engine.host().is_suspended(h.pool).unwrap()
            );
            assert_eq!(h.reserved(), 0);
        } else {
            // What lacked its memory goes.
            h.graphs().into_iter().for_each(|graph| h.release(graph));
        }
        h.engine.host().resume_pool(h.pool).unwrap();
        h.finish();
    }
}

#[test]
fn a_pool_waits_for_its_graphs() {
    let h = host();
    let engine = Arc::new(Engine::new(h.driver.clone(), Config::default()));
    let pool = Pool::new(&engine, PoolConfig::default().plan(undivided()).tag("graphs"));
    assert_eq!((pool.excess_bytes().unwrap(), pool.compact().unwrap()), (0, 0));
    pool.suspend_discarding_outputs().unwrap();
    assert!(pool.compact().is_err() && pool.is_suspended() && !pool.is_short().unwrap());
    pool.resume().unwrap();
    let graph = |pages: u64| {
        let captured = engine.capture(h.stream, &pool, CaptureMode::Relaxed, |it| {
            let block = it.allocate(pages * PAGE, h.stream)?;
            h.driver.launch(h.stream, Work::default(), false)?;
            drop(block);
            Ok::<(), Error>(())
        });
        captured.unwrap().0
    };
    let graphs = [9, 4].map(graph);
    let launch = || graphs.iter().try_for_each(|graph| graph.launch(h.stream));
    launch().unwrap();
    assert_eq!(pool.excess_bytes().unwrap(), 4 * PAGE);
    // It is short of a part then, and launches nothing.
    h.driver.fail_nth(Call::Unmap, 1, ErrorKind::InvalidValue);
    h.driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
    assert!(pool.compact().is_err() && pool.is_suspended() && pool.is_short().unwrap());
    let is_shut = |error| matches!(error, Error::Pool { why: PoolRefusal::Suspended { .. }, .. });
    assert!(is_shut(launch().unwrap_err()));
    // Nor can what it holds be read to be kept.
    assert!(is_shut(Regions::new(&engine).sleep(Tags::All).unwrap_err()));
    pool.resume().unwrap();
    launch().unwrap();
    assert_eq!((pool.compact().unwrap(), pool.reserved().unwrap()), (4 * PAGE, 9 * PAGE));
    launch().unwrap();
    pool.synchronize().unwrap();
}

#[test]
fn each_graph_has_what_it_had_and_no_byte_twice() {
    for seed in 0..2000 {
        let mut draw = Draw(seed);
        let users: Vec<User> = (1..=1 + draw.below(6))
            .map(|bound| {
                let piece = |draw: &mut Draw| Used {
                    bytes: 1 + draw.below(40),
                    freed: (draw.below(3) == 0).then(|| bound + 1 + draw.below(5)),
                };
                User { bound, pieces: (0..draw.below(6)).map(|_| piece(&mut draw)).collect() }
            })
            .collect();
        let found = Compacted::new(&users);
        let sum = |user: &User| user.pieces.iter().map(|it| it.bytes).sum::<u64>();
        let most = users.iter().map(sum).max().unwrap();
        assert!(found.bytes() >= most);
        if users.iter().all(|user| user.pieces.iter().all(|it| it.freed.is_none())) {
            assert_eq!(found.bytes(), most);
        }
        // By piece: who lies there, in order.
        let mut here: Vec<Vec<(u64, Used)>> = vec![Vec::new(); found.pieces.len()];
        for (user, parts) in users.iter().zip(&found.parts) {
            for (own, parts) in user.pieces.iter().zip(parts) {
                assert_eq!(own.bytes, parts.iter().map(|&it| found.pieces[it]).sum::<u64>());
                parts.iter().for_each(|&it| here[it].push((user.bound, *own)));
            }
        }
        for here in here {
            assert!(!here.is_empty(), "memory that no graph uses");
            for (at, &(bound, own)) in here.iter().enumerate() {
                for &(earlier, was) in &here[..at] {
                    assert!(earlier < bound, "a graph uses a piece twice");
                    assert!(was.freed.is_none_or(|was| was <= bound), "an output lived");
                    let overwritten = own.freed.is_some() && was.freed.is_none();
                    assert!(!overwritten, "an earlier graph overwrites it");
                }
            }
        }
    }
}
