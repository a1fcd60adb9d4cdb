//! Graphs of one shape that share an executable: each launch runs its own graph, also where the executable is updated
//! while launches before it have not begun.

use std::sync::Arc;

use regraph::driver::{CaptureMode, ErrorKind, Functions, GraphShape, HostApi, StreamHandle};
use regraph_tagged::Work;

use super::{launch, range as tagged, Bench, Device, KIB};

twins! {
    an_update_is_for_launches_that_come_after_it
    what_an_update_cannot_change_is_refused
    moved_nodes_run_and_leave_a_graph_that_does_nothing
}

fn an_update_is_for_launches_that_come_after_it<P: Device>(driver: &Arc<P>) {
    let (bench, [stream]) = Bench::new(driver).with_streams();
    let [a, b] = [(); 2].map(|()| bench.pool.allocate(64 * KIB, stream).unwrap());
    let capture = |from: u64, to: u64| {
        driver.begin_capture(stream, CaptureMode::ThreadLocal).unwrap();
        launch(&**driver, stream, (&[tagged(&a, from)], &[tagged(&a, to)]), 20_000);
        launch(&**driver, stream, (&[tagged(&a, to)], &[tagged(&b, to)]), 0);
        driver.end_capture(stream).unwrap()
    };
    let graphs = [capture(1, 2), capture(2, 3), capture(3, 1)];
    let executable = driver.instantiate(graphs[0]).unwrap();
    // Long enough for all updates to be done before the first launch begins.
    launch(&**driver, stream, (&[], &[tagged(&a, 1)]), 20_000_000);
    for _ in 0..50 {
        for graph in graphs {
            driver.update(executable, graph).unwrap();
            driver.replay(executable, stream).unwrap();
        }
    }
    launch(&**driver, stream, (&[tagged(&a, 1), tagged(&b, 1)], &[]), 0);
    assert_eq!(bench.wrong(), 0);
    // An executable may go while it runs, and graphs too.
    launch(&**driver, stream, (&[], &[tagged(&a, 1)]), 20_000_000);
    driver.update(executable, graphs[0]).unwrap();
    driver.replay(executable, stream).unwrap();
    driver.destroy_executable(executable).unwrap();
    graphs.into_iter().for_each(|graph| driver.destroy_graph(graph).unwrap());
    launch(&**driver, stream, (&[tagged(&a, 2), tagged(&b, 2)], &[]), 0);
    assert_eq!(bench.wrong(), 0);
    bench.close_after((a, b));
}

fn what_an_update_cannot_change_is_refused<P: Device>(driver: &Arc<P>) {
    let (bench, [stream, other]) = Bench::new(driver).with_streams();
    let block = bench.pool.allocate(64 * KIB, stream).unwrap();
    let (from, to) = ([tagged(&block, 1)], [tagged(&block, 1)]);
    let capture = |body: &dyn Fn()| {
        driver.begin_capture(stream, CaptureMode::ThreadLocal).unwrap();
        body();
        driver.end_capture(stream).unwrap()
    };
    let kernel = |on: StreamHandle, early| {
        driver.launch(on, Work { inputs: &from, outputs: &to, ..Work::default() }, early).unwrap();
    };
    let chain = |early: bool| {
        capture(&|| {
            kernel(stream, false);
            kernel(stream, early);
            kernel(stream, false);
        })
    };
    let fork = |filled: bool| {
        capture(&|| {
            kernel(stream, false);
            driver.wait(other, stream).unwrap();
            match filled {
                true => driver.fill(block.address(), 512, 0, stream).unwrap(),
                false => kernel(stream, false),
            }
            kernel(other, false);
            driver.wait(stream, other).unwrap();
            kernel(stream, false);
        })
    };
    let graphs = [chain(false), chain(true), fork(false), fork(true)];
    let again = [chain(false), chain(true), fork(false)];
    let shape = |graph| GraphShape::of(&**driver, graph).unwrap();
    for (at, one) in graphs.into_iter().enumerate() {
        for (other, second) in graphs.into_iter().enumerate() {
            let like = shape(one).is_like(&shape(second), Functions::Any);
            assert_eq!(like, at == other, "{at} {other}");
        }
    }
    for (one, second) in graphs.into_iter().zip(again) {
        assert!(shape(one).is_like(&shape(second), Functions::Same));
        let executable = driver.instantiate(one).unwrap();
        driver.update(executable, second).unwrap();
        driver.destroy_executable(executable).unwrap();
    }
    let executable = driver.instantiate(graphs[0]).unwrap();
    for graph in [graphs[2], graphs[3]] {
        let refused = driver.update(executable, graph).map_err(|error| error.kind);
        assert_eq!(refused, Err(ErrorKind::UpdateRefused));
    }
    println!("by an edge of another type: {:?}", driver.update(executable, graphs[1]));
    driver.destroy_executable(executable).unwrap();
    graphs.into_iter().chain(again).for_each(|graph| driver.destroy_graph(graph).unwrap());
    bench.close_after(block);
}

fn moved_nodes_run_and_leave_a_graph_that_does_nothing<P: Device>(driver: &Arc<P>) {
    let (bench, [stream, other]) = Bench::new(driver).with_streams();
    let [a, b] = [(); 2].map(|()| bench.pool.allocate(64 * KIB, stream).unwrap());
    driver.begin_capture(stream, CaptureMode::ThreadLocal).unwrap();
    launch(&**driver, stream, (&[tagged(&a, 1)], &[tagged(&a, 2)]), 0);
    driver.wait(other, stream).unwrap();
    launch(&**driver, other, (&[tagged(&a, 2)], &[tagged(&b, 3)]), 0);
    driver.wait(stream, other).unwrap();
    launch(&**driver, stream, (&[tagged(&b, 3)], &[tagged(&a, 4)]), 0);
    let graph = driver.end_capture(stream).unwrap();
    let before = GraphShape::of(&**driver, graph).unwrap();
    let moved = driver.move_nodes(graph).unwrap();
    let after = GraphShape::of(&**driver, moved).unwrap();
    assert_eq!((before.nodes(), GraphShape::of(&**driver, graph).unwrap().nodes()), (3, 0));
    assert!(before.is_like(&after, Functions::Same) && before == after);
    let [empty, whole] = [graph, moved].map(|graph| driver.instantiate(graph).unwrap());
    [graph, moved].iter().for_each(|&graph| driver.destroy_graph(graph).unwrap());
    for _ in 0..3 {
        launch(&**driver, stream, (&[], &[tagged(&a, 1), tagged(&b, 1)]), 0);
        driver.replay(empty, stream).unwrap();
        launch(&**driver, stream, (&[tagged(&a, 1), tagged(&b, 1)], &[]), 0);
        driver.replay(whole, stream).unwrap();
        launch(&**driver, stream, (&[tagged(&a, 4), tagged(&b, 3)], &[]), 0);
    }
    assert_eq!(bench.wrong(), 0);
    [empty, whole].iter().for_each(|&it| driver.destroy_executable(it).unwrap());
    bench.close_after((a, b));
}
