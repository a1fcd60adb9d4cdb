//! What compaction makes of many graphs' pieces, and pools whose compaction fails or waits. What it gives back is in
//! `rules`, and `random::graphs` compacts pools of all kinds.

use std::sync::Arc;

use crate::common::Draw;
use crate::device::{launch, simulated};
use crate::owned::{range, Bench, MIB};
use regraph::driver::{CaptureMode, ErrorKind, StreamHandle};
use regraph::engine::{Error, PoolConfig, PoolRefusal};
use regraph::graphs::{Graph, Memory};
use regraph::plan::{Compacted, Options, Used, User};
use regraph::regions::{Regions, Tags};
use regraph_sim::{Call, SimDriver};

/// The device's unit of memory, in bytes.
const PAGE: u64 = 2 * MIB;

type Driver = Arc<SimDriver>;

/// With a stream, and a pool whose new pieces are as large as can be.
fn bench() -> (Bench<SimDriver>, StreamHandle) {
    let options = Options::default().max_mappings(Some(1));
    let (b, [s]) =
        Bench::with(&simulated(), PoolConfig::default().plan(options).tag("graphs")).with_streams();
    (b, s)
}

/// Captures a chain of blocks, each read, as are a source, by what writes the next, with a tag. The last may be left.
fn chain(
    b: &Bench<SimDriver>,
    s: StreamHandle,
    sizes: &[u64],
    (tag, source): (u64, Option<(&Memory<Driver>, u64)>),
    left: bool,
) -> (Graph<Driver>, Option<Memory<Driver>>) {
    let captured = b.engine.capture(s, &b.pool, CaptureMode::Relaxed, |capture| {
        let mut last: Option<Memory<Driver>> = None;
        for &bytes in sizes {
            let memory = capture.allocate(bytes, s)?;
            let read = last.iter().map(|last| range(last, tag));
            let inputs: Vec<_> = read.chain(source.map(|(it, tag)| range(it, tag))).collect();
            launch(&*b.driver, s, (&inputs, &[range(&memory, tag)]), 0);
            last = Some(memory);
        }
        Ok::<_, Error>(last.filter(|_| left))
    });
    captured.unwrap()
}

/// A pool that is short of a part is suspended like any other, if the host lets contents go.
#[test]
fn a_short_pool_can_be_suspended_and_released() {
    for discards in [true, false] {
        let (b, s) = bench();
        let chain = |pages: &[u64], tag, left, source| {
            let sizes: Vec<_> = pages.iter().map(|pages| pages * PAGE).collect();
            chain(&b, s, &sizes, (tag, source), left)
        };
        // Outputs that live, an output that is freed, a block of no graph, and memory that fits none of them.
        let (first, _) = chain(&[9, 5, 14], 1, false, None);
        let (second, freed) = chain(&[3, 20, 7], 2, true, None);
        let (third, _) = chain(&[8, 8, 8, 8], 3, false, None);
        drop((chain(&[23, 2], 4, true, None), freed));
        let (last, output) = chain(&[4, 11, 1], 5, true, None);
        let output = output.unwrap();
        let (reader, _) = chain(&[3, 2], 6, false, Some((&output, 5)));
        let own = b.pool.allocate(3 * PAGE, s).unwrap();
        b.write(s, &own, 7);
        let graphs = [first, second, third, last, reader];
        let launch = || {
            graphs.iter().for_each(|graph| graph.launch(s).unwrap());
            assert_eq!(b.wrong(), 0);
        };
        launch();
        // What no graph uses any more has gone by then.
        b.engine.empty_cache().unwrap();
        assert!(b.pool.excess_bytes().unwrap() > 0);
        b.driver.fail_nth(Call::Unmap, 1, ErrorKind::InvalidValue);
        b.driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
        let done = b.pool.compact();
        assert!(matches!(done, Err(Error::Driver(_))), "{done:?}");
        assert!(b.pool.is_short().unwrap() && b.holds(&output, 5) && b.holds(&own, 7));
        if discards {
            // Nothing has gone yet, so nothing is lost.
            b.driver.fail_nth(Call::Unmap, 0, ErrorKind::InvalidValue);
            assert!(b.pool.suspend_discarding_all().is_err() && b.pool.is_short().unwrap());
            assert!(b.holds(&output, 5) && b.holds(&own, 7));
            drop(own);
            b.pool.suspend_discarding_outputs().unwrap();
            assert!(!b.pool.is_short().unwrap() && b.pool.is_suspended());
            assert_eq!(b.reserved(), 0);
            b.pool.resume().unwrap();
            launch();
            b.pool.compact().unwrap();
            launch();
            assert!(b.holds(&output, 5));
            drop((graphs, output));
        } else {
            // What lacked its memory goes.
            drop((graphs, output));
            b.pool.resume().unwrap();
            assert!(b.holds(&own, 7));
            drop(own);
        }
        b.close();
    }
}

#[test]
fn a_pool_waits_for_its_graphs() {
    let (b, s) = bench();
    let pool = &b.pool;
    assert_eq!((pool.excess_bytes().unwrap(), pool.compact().unwrap()), (0, 0));
    pool.suspend_discarding_outputs().unwrap();
    assert!(pool.compact().is_err() && pool.is_suspended() && !pool.is_short().unwrap());
    pool.resume().unwrap();
    let graphs = [9, 4].map(|pages| chain(&b, s, &[pages * PAGE], (1, None), false).0);
    let launch = || graphs.iter().try_for_each(|graph| graph.launch(s));
    launch().unwrap();
    assert_eq!(pool.excess_bytes().unwrap(), 4 * PAGE);
    // It is short of a part then, and launches nothing.
    b.driver.fail_nth(Call::Unmap, 1, ErrorKind::InvalidValue);
    b.driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
    assert!(pool.compact().is_err() && pool.is_suspended() && pool.is_short().unwrap());
    let is_shut = |error| matches!(error, Error::Pool { why: PoolRefusal::Suspended { .. }, .. });
    assert!(is_shut(launch().unwrap_err()));
    // Nor can what it holds be read to be kept.
    assert!(is_shut(Regions::new(&b.engine).sleep(Tags::All).unwrap_err()));
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
