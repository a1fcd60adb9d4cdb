//! One capture.

use std::sync::Arc;

use regraph::engine::PoolConfig;
use regraph::plan::Options;

use super::{launch, planned, range, Bench, Device, MIB, PAGE};

twins! {
    a_capture_takes_no_more_than_the_least
    small_blocks_share_pages
    a_plan_tells_its_cost_before_it_is_carried_out
    bounds_on_mappings_are_kept
    a_capture_can_do_without
}

/// Streams that do not wait for one another, then one that waits for all.
fn a_capture_takes_no_more_than_the_least<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t]) = planned(driver, Options::default()).with_streams();
    let body = |capture: &_| {
        bench.driver.wait(t, s)?;
        // 4 + 8 MiB at most on each, at any time against each other.
        let a = bench.line(capture, s, (100, &[8 * MIB, 4 * MIB, 8 * MIB, 4 * MIB]))?;
        let b = bench.line(capture, t, (200, &[4 * MIB, 8 * MIB, 4 * MIB]))?;
        bench.driver.wait(s, t)?;
        b.record_stream(s)?;
        let all = capture.allocate(16 * MIB, s)?;
        launch(&*bench.driver, s, (&[range(&a, 103), range(&b, 202)], &[range(&all, 1)]), 1_000);
        Ok(all)
    };
    let (graph, all) = bench.capture(s, body).unwrap();
    let report = graph.report();
    let plan = report.plan.unwrap();
    // Both chains, or their last blocks and the one that reads them.
    assert_eq!((bench.reserved(), plan.bytes, plan.minimum_bytes), (24 * MIB, 24 * MIB, 24 * MIB));
    assert!(report.verified);
    for _ in 0..20 {
        graph.launch(s).unwrap();
    }
    assert_eq!(bench.wrong(), 0);
    assert!(bench.holds(&all, 1));
    bench.close_after((graph, all));
}

fn small_blocks_share_pages<P: Device>(driver: &Arc<P>) {
    let (bench, [s]) = planned(driver, Options::default()).with_streams();
    let (graph, _) = bench
        .capture(s, |capture| {
            let small: Vec<_> =
                (0..40).map(|_| capture.allocate(24 << 10, s)).collect::<Result<_, _>>()?;
            for (number, memory) in small.iter().enumerate() {
                launch(&*bench.driver, s, (&[], &[range(memory, number as u64)]), 100);
            }
            for (number, memory) in small.iter().enumerate() {
                launch(&*bench.driver, s, (&[range(memory, number as u64)], &[]), 100);
            }
            drop(small);
            // Three halves: two pages, for the last one of one block is the first one of the next.
            let first = capture.allocate(3 * MIB, s)?;
            let second = capture.allocate(5 * MIB, s)?;
            launch(&*bench.driver, s, (&[], &[range(&first, 7), range(&second, 8)]), 100);
            launch(&*bench.driver, s, (&[range(&first, 7), range(&second, 8)], &[]), 100);
            Ok(())
        })
        .unwrap();
    // The page of the small ones has gone on to them.
    assert_eq!(bench.reserved(), 8 * MIB);
    graph.launch(s).unwrap();
    assert_eq!(bench.wrong(), 0);
    bench.close_after(graph);
}

fn a_plan_tells_its_cost_before_it_is_carried_out<P: Device>(driver: &Arc<P>) {
    let (bench, [s]) = planned(driver, Options::default()).with_streams();
    let mut told = None;
    let (graph, _) = bench
        .capture(s, |capture| {
            let last = bench.line(capture, s, (100, &[4 * MIB, 6 * MIB, 4 * MIB, 8 * MIB]))?;
            drop(last);
            told = bench.engine.plans().preview_plan(capture.id())?.pop();
            Ok(())
        })
        .unwrap();
    let (pool, told) = told.unwrap();
    let plan = graph.report().plan.unwrap();
    assert_eq!(pool, bench.pool.id());
    assert_eq!((told.bytes(), told.mappings.len()), (plan.bytes, plan.mappings));
    bench.close_after(graph);
}

fn bounds_on_mappings_are_kept<P: Device>(driver: &Arc<P>) {
    let sizes: Vec<u64> = (0..40).map(|step| (1 + step % 5) * PAGE).collect();
    let mut before = u64::MAX;
    for most in [1, 4, 8, 16, 32, 64] {
        let (bench, [s]) =
            planned(driver, Options::default().max_mappings(Some(most))).with_streams();
        let (graph, _) =
            bench.capture(s, |capture| bench.line(capture, s, (100, &sizes)).map(drop)).unwrap();
        let plan = graph.report().plan.unwrap();
        assert!(plan.mappings <= most, "{most}: {plan:?}");
        assert!(plan.bytes <= before, "more mappings are no worse: {most}: {plan:?}");
        before = plan.bytes;
        graph.launch(s).unwrap();
        assert_eq!(bench.wrong(), 0);
        bench.close_after(graph);
    }
    assert_eq!(before, 9 * PAGE, "with enough of them, the least");
}

/// One capture of a pool with plans goes without, and one of a pool without has one.
fn a_capture_can_do_without<P: Device>(driver: &Arc<P>) {
    for (config, plan) in
        [(PoolConfig::default().plan(Options::default()), false), (PoolConfig::default(), true)]
    {
        let (bench, [s]) = Bench::with(driver, config).with_streams();
        let (graph, _) = bench
            .capture(s, |capture| {
                bench.engine.plans().plan_capture(capture.id(), plan.then(Options::default))?;
                bench.line(capture, s, (100, &[4 * MIB, 4 * MIB, 4 * MIB])).map(drop)
            })
            .unwrap();
        assert_eq!(graph.report().plan.is_some(), plan);
        assert_eq!(bench.reserved(), 8 * MIB);
        graph.launch(s).unwrap();
        assert_eq!(bench.wrong(), 0);
        bench.close_after(graph);
    }
}
