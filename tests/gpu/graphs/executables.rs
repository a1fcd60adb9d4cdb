//! Graphs of one shape that share an executable: each launch runs its own graph, also where the executable is updated
//! while launches before it have not begun.

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use regraph::driver::{CaptureMode, ErrorKind, Functions, GraphShape, HostApi, StreamHandle};
use regraph::graphs::ExecutableOptions;
use regraph::{Error, Graph, Memory, Pool, PoolConfig};
use regraph_tagged::{Tagged, Work};

use super::{launch, range, Bench, Device, Shared, KIB};

twins! {
    thousands_of_switches_run_each_graph_as_it_is
    an_update_is_for_launches_that_come_after_it
    what_an_update_cannot_change_is_refused
    moved_nodes_run_and_leave_a_graph_that_does_nothing
}

const SHAPES: [usize; 3] = [3, 8, 40];
const GRAPHS: usize = 24;

struct Made<P: Device> {
    graph: Graph<Shared<P>>,
    /// What its last kernel writes.
    result: Arc<Memory<Shared<P>>>,
    tag: u64,
}

/// A graph on two streams whose kernels hand tags of its own on, the last one into a block from before the capture.
fn chain<P: Device>(
    bench: &Bench<P>,
    results: &Pool<Shared<P>>,
    [first, second]: [StreamHandle; 2],
    (tag, steps, delay): (u64, usize, u32),
) -> Made<P> {
    let driver = &*bench.driver;
    let result = Arc::new(results.allocate(64 * KIB, first).unwrap());
    let captured = bench.engine.capture(first, &bench.pool, CaptureMode::ThreadLocal, |capture| {
        capture.keep(result.clone());
        let mut last: Option<(Memory<_>, u64)> = None;
        driver.wait(second, first)?;
        for step in 0..steps {
            let (writer, reader) = if step % 2 == 0 { (first, second) } else { (second, first) };
            let memory = capture.allocate((64 + tag % 5 * 32) * KIB, writer)?;
            let own = tag + step as u64;
            let inputs: Vec<_> = last.iter().map(|(memory, tag)| range(memory, *tag)).collect();
            launch(driver, writer, (&inputs, &[range(&memory, own)]), delay);
            if let Some((last, _)) = &last {
                last.record_stream(writer)?;
            }
            driver.wait(reader, writer)?;
            last = Some((memory, own));
        }
        driver.wait(first, second)?;
        let (memory, own) = last.expect("there are steps");
        memory.record_stream(first)?;
        launch(driver, first, (&[range(&memory, own)], &[range(&result, tag)]), delay);
        Ok::<_, Error>(())
    });
    Made { graph: captured.unwrap().0, result, tag }
}

/// Spoils what a graph leaves, launches it and has its result checked, all behind `last`.
fn switch<P: Device>(
    bench: &Bench<P>,
    made: &Made<P>,
    last: StreamHandle,
    stream: StreamHandle,
    delay: u32,
) {
    if stream != last {
        bench.driver.wait(stream, last).unwrap();
    }
    made.result.record_stream(stream).unwrap();
    launch(&*bench.driver, stream, (&[], &[range(&made.result, 1)]), delay);
    made.graph.launch(stream).unwrap();
    launch(&*bench.driver, stream, (&[range(&made.result, made.tag)], &[]), 0);
}

fn thousands_of_switches_run_each_graph_as_it_is<P: Device>(driver: &Arc<P>) {
    for seed in 0..3 {
        driver.schedule(seed);
        let bench = Bench::new(driver);
        let results = Pool::new(&bench.engine, PoolConfig::default());
        let shared = ExecutableOptions::default().sharing(Functions::Same);
        bench.pool.keep_executables(shared).unwrap();
        let streams: [_; 4] = bench.streams();
        let mut random = Rng::with_seed(seed);
        let made: Vec<_> = (0..GRAPHS)
            .map(|number| {
                let shape = (1000 * (number as u64 + 1), SHAPES[number % 3], 0);
                chain(&bench, &results, [streams[0], streams[1]], shape)
            })
            .collect();
        assert_eq!(bench.pool.executables().executables, 0);
        let all = bench.pool.executables().graph_bytes;
        // That of one executable at a time, and no more.
        let foreseen = made.iter().map(|made| made.graph.foreseen_bytes().unwrap());
        let largest = foreseen.max().expect("there are graphs");
        let mut last = streams[0];
        for budget in [None, Some(all / 4), Some(largest)] {
            let mut options = shared;
            options.budget = budget;
            bench.pool.keep_executables(options).unwrap();
            let before = bench.pool.executables();
            let begun = Instant::now();
            for round in 0..1_500 {
                // Those behind a long launch are updated while it runs.
                let delay = if round % 150 == 0 { 5_000_000 } else { 0 };
                let (made, stream) = (&made[random.usize(..GRAPHS)], streams[random.usize(..4)]);
                if random.usize(..4) == 0 {
                    made.graph.prepare(stream).unwrap();
                }
                switch(&bench, made, last, stream, delay);
                last = stream;
            }
            let submitted = begun.elapsed();
            assert_eq!(bench.wrong(), 0, "seed {seed}");
            let figures = bench.pool.executables();
            println!(
                "{budget:?}: 1500 launches submitted in {submitted:?}, {} updates, {} made, {} evicted: {figures:?}",
                figures.updates - before.updates,
                figures.made - before.made,
                figures.evicted - before.evicted,
            );
            assert_eq!(figures.refused, 0);
            assert!(figures.updates - before.updates > 300, "{figures:?}");
            match budget {
                Some(budget) => assert!(figures.bytes <= budget, "{figures:?}"),
                None => assert_eq!((figures.executables, figures.made), (3, 3)),
            }
        }
        drop(made);
        bench.wrong();
        bench.pool.synchronize().unwrap();
        assert_eq!(bench.pool.executables().executables, 0);
        drop(results);
        bench.close();
    }
}

fn tagged<P: Device>(memory: &Memory<Shared<P>>, tag: u64) -> Tagged {
    range(memory, tag)
}

fn an_update_is_for_launches_that_come_after_it<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [stream] = bench.streams();
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
    drop((a, b));
    bench.close();
}

fn what_an_update_cannot_change_is_refused<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [stream, other] = bench.streams();
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
    drop(block);
    bench.close();
}

fn moved_nodes_run_and_leave_a_graph_that_does_nothing<P: Device>(driver: &Arc<P>) {
    let bench = Bench::new(driver);
    let [stream, other] = bench.streams();
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
    [graph, moved].into_iter().for_each(|graph| driver.destroy_graph(graph).unwrap());
    for _ in 0..3 {
        launch(&**driver, stream, (&[], &[tagged(&a, 1), tagged(&b, 1)]), 0);
        driver.replay(empty, stream).unwrap();
        launch(&**driver, stream, (&[tagged(&a, 1), tagged(&b, 1)], &[]), 0);
        driver.replay(whole, stream).unwrap();
        launch(&**driver, stream, (&[tagged(&a, 4), tagged(&b, 3)], &[]), 0);
    }
    assert_eq!(bench.wrong(), 0);
    [empty, whole]
        .into_iter()
        .for_each(|executable| driver.destroy_executable(executable).unwrap());
    drop((a, b));
    bench.close();
}
