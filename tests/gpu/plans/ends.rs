//! Memory that is short, and blocks that outlive their graph.

use std::sync::Arc;

use regraph::engine::PoolConfig;
use regraph::graphs::Error;
use regraph::plan::Options;

use super::{launch, planned, range, Bench, Device, MIB};

twins! {
    too_little_memory_refuses_the_capture_and_nothing_else
    blocks_outlive_their_graph
}

fn too_little_memory_refuses_the_capture_and_nothing_else<P: Device>(driver: &Arc<P>) {
    let bench =
        Bench::with(driver, PoolConfig::default().plan(Options::default()).max_bytes(24 * MIB));
    let [s] = bench.streams();
    let (graph, output) =
        bench.capture(s, |it| bench.line(it, s, (100, &[4 * MIB, 4 * MIB]))).unwrap();
    // Both blocks live at once, more than the pool may ever hold: no plan could help.
    let never = bench.capture(s, |it| bench.line(it, s, (200, &[16 * MIB, 12 * MIB]))).map(drop);
    assert!(matches!(never, Err(Error::OutOfMemory(_))), "{never:?}");
    // As much as the pool may hold, but not beside the output.
    let too_much = bench.capture(s, |it| bench.line(it, s, (200, &[12 * MIB, 10 * MIB]))).map(drop);
    let Err(Error::PlanOutOfMemory { room, new_bytes, .. }) = too_much else {
        panic!("{too_much:?}");
    };
    assert!(room.is_some_and(|room| room < new_bytes));
    assert_eq!(bench.reserved(), 8 * MIB);
    // As much as there is.
    let (more, _) = bench.capture(s, |it| bench.line(it, s, (300, &[12 * MIB, 8 * MIB]))).unwrap();
    more.launch(s).unwrap();
    graph.launch(s).unwrap();
    assert_eq!(bench.wrong(), 0);
    assert!(bench.holds(&output, 101));
    bench.close_after((graph, more, output));
}

fn blocks_outlive_their_graph<P: Device>(driver: &Arc<P>) {
    let (bench, [s]) = planned(driver, Options::default()).with_streams();
    let (graph, output) =
        bench.capture(s, |it| bench.line(it, s, (100, &[8 * MIB, 4 * MIB]))).unwrap();
    graph.launch(s).unwrap();
    bench.driver.synchronize().unwrap();
    drop(graph);
    bench.engine.empty_cache().unwrap();
    assert!(bench.holds(&output, 101));
    // Its address is as good as any.
    launch(&*bench.driver, s, (&[range(&output, 101)], &[range(&output, 9)]), 0);
    bench.driver.progress(s);
    assert!(bench.holds(&output, 9));
    assert_eq!(bench.reserved(), 4 * MIB);
    bench.close_after(output);
}
