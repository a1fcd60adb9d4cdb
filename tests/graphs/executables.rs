//! Executables that graphs of a pool share, within a budget.

use std::cell::Cell;
use std::sync::Arc;

use regraph::driver::{CaptureMode, ErrorKind, Functions, HostApi, StreamHandle};
use regraph::graphs::{Capture, ExecutableOptions, Executables, Lease, Means};
use regraph::{Config, Engine, Error, Graph, Pool, PoolConfig, PoolRefusal};
use regraph_sim::{SimConfig, SimDriver};

use crate::common::noted::{Noted, Notes};

/// What an executable takes for each node, in bytes: the simulated driver takes no more at once.
const NODE: u64 = 64 << 10;

struct Bench {
    engine: Arc<Engine<SimDriver>>,
    pool: Pool<SimDriver>,
    streams: [StreamHandle; 2],
    notes: Notes,
}

fn bench(options: ExecutableOptions) -> Bench {
    bench_on(SimConfig::default(), options)
}

fn bench_on(device: SimConfig, options: ExecutableOptions) -> Bench {
    let b = bench_without(device);
    b.pool.keep_executables(options).unwrap();
    b
}

/// With a pool in which each graph has an executable of its own.
fn bench_without(device: SimConfig) -> Bench {
    let driver = SimDriver::new(device);
    driver.charge_executables(NODE);
    let engine = Arc::new(Engine::new(driver, Config::default().report_leaks(false)));
    let pool = Pool::new(&engine, PoolConfig::default());
    let streams = [(); 2].map(|()| engine.driver().create_stream().unwrap());
    Bench { engine, pool, streams, notes: Notes::default() }
}

fn shared() -> ExecutableOptions {
    ExecutableOptions::default().sharing(Functions::Same)
}

fn apart() -> ExecutableOptions {
    ExecutableOptions::default()
}

impl Bench {
    fn driver(&self) -> &SimDriver {
        self.engine.driver()
    }

    /// A chain of kernels with these numbers.
    fn chain(&self, numbers: &[u64]) -> Graph<SimDriver> {
        self.chain_of(numbers.iter().map(|&number| Noted { number, ..Noted::default() }))
    }

    fn chain_of(&self, kernels: impl IntoIterator<Item = Noted> + Clone) -> Graph<SimDriver> {
        self.chain_in(&self.pool, kernels)
    }

    fn chain_in(
        &self,
        pool: &Pool<SimDriver>,
        kernels: impl IntoIterator<Item = Noted> + Clone,
    ) -> Graph<SimDriver> {
        let stream = self.streams[0];
        let captured = self.engine.capture(stream, pool, CaptureMode::Relaxed, |_| {
            for kernel in kernels.clone() {
                self.notes.launch(self.driver(), stream, kernel);
            }
            Ok::<_, Error>(())
        });
        captured.unwrap().0
    }

    /// What ran since the last call.
    fn ran(&self) -> Vec<u64> {
        self.driver().complete_all();
        self.notes.take()
    }

    fn counts(&self) -> (usize, u64, u64, u64, u64) {
        let it = self.pool.executables();
        (it.executables, it.made, it.updates, it.refused, it.evicted)
    }
}

#[test]
fn graphs_of_one_shape_share_an_executable_and_run_with_their_own_parameters() {
    let b = bench(shared());
    let graphs = [10, 20, 30].map(|number| b.chain(&[number, number + 1]));
    assert_eq!((b.driver().executables(), b.driver().executable_memory()), (0, 0));
    assert_eq!(graphs[0].foreseen_bytes().unwrap(), 2 * NODE);
    assert_eq!(graphs[0].executable(), None);
    // All are launched before the first has run.
    for at in [0, 1, 1, 2, 0, 2] {
        graphs[at].launch(b.streams[at % 2]).unwrap();
    }
    assert_eq!(b.ran(), [10, 11, 20, 21, 20, 21, 30, 31, 10, 11, 30, 31]);
    assert_eq!(b.counts(), (1, 1, 4, 0, 0));
    let figures = b.pool.executables();
    assert_eq!((figures.graphs, figures.graph_nodes, figures.nodes), (3, 6, 2));
    assert_eq!(
        (figures.graph_bytes, figures.bytes, figures.measured),
        (6 * NODE, 2 * NODE, 2 * NODE)
    );
    assert_eq!((graphs[0].driver_bytes(), graphs[1].driver_bytes()), (2 * NODE, 0));
    // The one that the executable was made of goes, and others go on with it.
    let [first, second, third] = graphs;
    drop((first, third));
    second.launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [20, 21]);
    assert_eq!(b.driver().executables(), 1);
    drop(second);
    assert_eq!(b.driver().executables(), 0);
    assert_eq!(b.pool.executables().graphs, 0);
}

#[test]
fn graphs_that_differ_by_more_than_parameters_have_executables_of_their_own() {
    let b = bench(shared());
    let kernel = |number| Noted { number, ..Noted::default() };
    let graphs = [
        b.chain_of([kernel(1), kernel(2)]),
        b.chain_of([kernel(3), Noted { attributes: 1, ..kernel(4) }]),
        b.chain_of([kernel(5), Noted { programmatic: true, ..kernel(6) }]),
        b.chain_of([kernel(7), Noted { function: 1, ..kernel(8) }]),
        b.chain_of([kernel(9), Noted { parameters: 1, ..kernel(10) }]),
        b.chain_of([kernel(11)]),
    ];
    graphs.iter().for_each(|graph| graph.launch(b.streams[0]).unwrap());
    assert_eq!(b.ran(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(b.counts(), (6, 6, 0, 0, 0));
    // With other functions two of them join the first.
    let any = ExecutableOptions::default().sharing(Functions::Any);
    b.pool.keep_executables(any).unwrap();
    assert_eq!(b.pool.release_executables().unwrap(), 11 * NODE);
    graphs.iter().for_each(|graph| graph.launch(b.streams[0]).unwrap());
    assert_eq!(b.ran(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(b.counts(), (4, 10, 2, 0, 6));
}

#[test]
fn a_refused_update_leaves_both_as_they_were_and_the_second_gets_its_own() {
    let b = bench(shared());
    let graphs = [10, 20, 30].map(|number| b.chain(&[number]));
    graphs[0].launch(b.streams[0]).unwrap();
    b.driver().fail_update_nth(0, ErrorKind::UpdateRefused);
    graphs[1].launch(b.streams[0]).unwrap();
    graphs[0].launch(b.streams[1]).unwrap();
    graphs[2].launch(b.streams[0]).unwrap();
    graphs[1].launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [10, 20, 10, 30, 20]);
    let (executables, made, _, refused, evicted) = b.counts();
    assert_eq!((executables, made, refused, evicted), (2, 2, 1, 0));
    // The second may be updated from the first's place no more, nor by its own: it gets another one.
    b.driver().fail_update_nth(0, ErrorKind::UpdateRefused);
    graphs[2].launch(b.streams[0]).unwrap();
    graphs[0].launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [30, 10]);
}

#[test]
fn after_an_update_that_failed_by_half_nothing_is_launched_by_what_is_left() {
    let b = bench(shared());
    let graphs = [10, 20].map(|number| b.chain(&[number, number + 1]));
    graphs[0].launch(b.streams[0]).unwrap();
    b.driver().fail_update_nth(0, ErrorKind::NotSupported);
    let failed = graphs[1].launch(b.streams[0]);
    assert!(matches!(failed, Err(Error::Driver(_))), "{failed:?}");
    assert_eq!(b.ran(), [10, 11]);
    graphs[0].launch(b.streams[0]).unwrap();
    graphs[1].launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [10, 11, 20, 21]);
    assert_eq!(b.counts(), (1, 1, 2, 0, 0));
}

#[test]
fn the_least_recently_launched_goes_where_the_budget_is_short() {
    let b = bench(apart().budget(2 * NODE));
    let graphs = [1, 2, 3].map(|number| b.chain(&[number]));
    graphs[0].launch(b.streams[0]).unwrap();
    graphs[1].launch(b.streams[0]).unwrap();
    graphs[0].launch(b.streams[0]).unwrap();
    // The second goes, and comes back for the first.
    graphs[2].launch(b.streams[0]).unwrap();
    graphs[0].launch(b.streams[0]).unwrap();
    assert_eq!(b.counts(), (2, 3, 0, 0, 1));
    graphs[1].launch(b.streams[1]).unwrap();
    assert_eq!(b.counts(), (2, 4, 0, 0, 2));
    assert_eq!(b.ran(), [1, 2, 1, 3, 1, 2]);
    assert_eq!((b.driver().used_bytes(), b.driver().executable_memory()), (2 * NODE, 2 * NODE));
    assert_eq!(b.pool.executables().counted, 2 * NODE);
}

#[test]
fn one_that_runs_is_waited_for_before_it_goes() {
    let b = bench(apart().budget(NODE));
    let graphs = [1, 2].map(|number| b.chain(&[number]));
    graphs[0].launch(b.streams[0]).unwrap();
    assert!(b.notes.take().is_empty());
    graphs[1].launch(b.streams[1]).unwrap();
    assert_eq!(b.notes.take(), [1]);
    assert_eq!(b.driver().used_bytes(), NODE);
    assert_eq!(b.ran(), [2]);
}

#[test]
fn what_is_pinned_stays() {
    let b = bench(apart().budget(2 * NODE));
    let graphs = [1, 2, 3].map(|number| b.chain(&[number]));
    graphs[0].pin(true);
    for at in [0, 1, 2, 1, 2] {
        graphs[at].launch(b.streams[0]).unwrap();
    }
    assert_eq!(b.counts(), (2, 5, 0, 0, 3));
    graphs[0].launch(b.streams[0]).unwrap();
    assert_eq!(b.counts(), (2, 5, 0, 0, 3));
    assert_eq!(b.ran(), [1, 2, 3, 2, 3, 1]);
    graphs[2].pin(true);
    let refused = graphs[1].launch(b.streams[0]);
    let Err(Error::Pool { why: PoolRefusal::NoExecutable { bytes, pinned, budget }, .. }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((bytes, pinned, budget), (NODE, 2 * NODE, 2 * NODE));
    assert!(b.ran().is_empty());
    assert_eq!(b.pool.release_executables().unwrap(), 0);
    graphs[2].pin(false);
    graphs[1].launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [2]);
    // One that is larger than the budget never fits.
    let large = b.chain(&[4, 5, 6]);
    let refused = large.launch(b.streams[0]);
    assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::NoExecutable { .. }, .. })));
    b.pool.keep_executables(apart().budget(4 * NODE)).unwrap();
    large.launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [4, 5, 6]);
    // A smaller budget holds at once, but for what is pinned.
    large.pin(true);
    b.pool.keep_executables(apart().budget(NODE)).unwrap();
    assert_eq!(b.pool.executables().executables, 2);
}

#[test]
fn a_graph_that_was_prepared_is_launched_as_it_is() {
    let b = bench(shared());
    let graphs = [10, 20].map(|number| b.chain(&[number]));
    graphs[0].prepare(b.streams[1]).unwrap();
    assert_eq!(b.counts(), (1, 1, 0, 0, 0));
    graphs[0].launch(b.streams[0]).unwrap();
    // While the first runs.
    graphs[1].prepare(b.streams[1]).unwrap();
    assert_eq!(b.counts(), (1, 1, 1, 0, 0));
    let calls = b.driver().host_calls();
    graphs[1].launch(b.streams[0]).unwrap();
    // Its number, and the launch.
    assert_eq!((b.driver().host_calls() - calls, b.counts()), (2, (1, 1, 1, 0, 0)));
    assert_eq!(b.ran(), [10, 20]);
    b.pool.suspend_discarding_outputs().unwrap();
    let refused = graphs[0].prepare(b.streams[0]);
    assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })));
}

#[test]
fn executables_of_a_pool_that_sleeps_go_and_come_back() {
    let b = bench(shared());
    let graphs = [10, 20].map(|number| b.chain(&[number]));
    graphs[0].launch(b.streams[0]).unwrap();
    b.pool.suspend_discarding_outputs().unwrap();
    assert_eq!(b.pool.release_executables().unwrap(), NODE);
    // Another pool has the memory.
    let other = Pool::new(&b.engine, PoolConfig::default());
    let beside = b.chain_in(&other, [Noted { number: 1, ..Noted::default() }]);
    assert_eq!((beside.driver_bytes(), b.driver().used_bytes()), (0, NODE));
    b.pool.resume().unwrap();
    graphs[1].launch(b.streams[0]).unwrap();
    beside.launch(b.streams[1]).unwrap();
    graphs[0].launch(b.streams[0]).unwrap();
    let mut ran = b.ran();
    ran.sort_unstable();
    assert_eq!(ran, [1, 10, 10, 20]);
    assert_eq!(b.counts(), (1, 2, 1, 0, 1));
}

#[test]
fn where_the_device_has_no_room_others_go() {
    let small = SimConfig { total_bytes: 3 * NODE, ..SimConfig::default() };
    let b = bench_on(small, apart());
    let graphs = [1, 2, 3, 4].map(|number| b.chain(&[number]));
    graphs.iter().for_each(|graph| graph.launch(b.streams[0]).unwrap());
    assert_eq!(b.counts(), (3, 4, 0, 0, 1));
    assert_eq!(b.ran(), [1, 2, 3, 4]);
    graphs.iter().for_each(|graph| graph.pin(true));
    let refused = graphs[0].launch(b.streams[0]);
    assert!(matches!(&refused, Err(Error::Driver(it)) if it.is_out_of_memory()), "{refused:?}");
    assert!(b.ran().is_empty());
}

#[test]
fn a_pool_that_keeps_executables_later_keeps_those_it_has() {
    let b = bench_without(SimConfig::default());
    let graphs = [1, 2, 3].map(|number| b.chain(&[number]));
    assert!(graphs[0].executable().is_some());
    assert_eq!((b.counts(), b.pool.executables().counted), ((3, 3, 0, 0, 0), 0));
    b.pool.keep_executables(shared().budget(2 * NODE)).unwrap();
    assert_eq!((b.counts(), graphs[2].executable()), ((2, 3, 0, 0, 1), None));
    graphs.iter().for_each(|graph| graph.launch(b.streams[0]).unwrap());
    assert_eq!(b.ran(), [1, 2, 3]);
    // The first got the one that was asked for longest ago, the second's, which got it back.
    assert_eq!(b.counts(), (2, 3, 2, 0, 1));
    // So do those that come then: the third's, and the second's.
    let late = [4, 5].map(|number| b.chain(&[number]));
    for graph in [&graphs[1], &late[0], &late[1], &late[0]] {
        graph.launch(b.streams[0]).unwrap();
    }
    assert_eq!(b.ran(), [2, 4, 5, 4]);
    assert_eq!(b.counts(), (2, 3, 4, 0, 1));
}

/// A launch that a host makes by itself holds the order of its pool's launches, not the table of executables.
#[test]
fn a_launch_of_the_host_may_look_at_executables() {
    let b = bench_without(SimConfig::default());
    let [graph, other] = [1, 2].map(|number| b.chain(&[number]));
    let lease = Lease::of(&b.engine, other.report().graph).unwrap();
    let looked = lease.launch(b.streams[1], |_| {
        graph.pin(true);
        let figures = b.pool.executables();
        let bytes = (graph.foreseen_bytes()?, graph.driver_bytes(), b.pool.driver_bytes());
        assert_eq!((figures.executables, bytes), (2, (NODE, NODE, 2 * NODE)));
        assert!(graph.executable().is_some());
        Ok::<_, Error>(())
    });
    looked.unwrap();
    lease.give_up();
}

#[test]
fn graphs_that_are_dropped_while_they_run_leave_their_executable_to_others() {
    let b = bench(shared());
    let graphs = [10, 20].map(|number| b.chain(&[number]));
    graphs.iter().for_each(|graph| graph.launch(b.streams[0]).unwrap());
    let [first, second] = graphs;
    drop(second);
    first.launch(b.streams[1]).unwrap();
    drop(first);
    assert_eq!(b.driver().executables(), 1);
    assert_eq!(b.ran(), [10, 20, 10]);
    b.pool.collect();
    assert_eq!(b.driver().executables(), 0);
}

#[test]
fn what_pools_take_meanwhile_counts_for_no_executable() {
    let b = bench(apart());
    let graphs = [1, 2].map(|number| b.chain(&[number]));
    let mut kept = Executables::new(apart());
    let [first, second] = graphs.each_ref().map(|it| kept.take(b.driver(), it.handle()).unwrap());
    let held = Cell::new(None);
    let idle = || b.pool.allocate(8 << 20, b.streams[0]).map(|block| held.set(Some(block)));
    let means = Means::new(&b.engine, b.pool.id(), "launch", &idle);
    kept.ready(first, &means).unwrap();
    // The first goes for it, after a wait in which another thread may ask for memory.
    b.driver().fail_host_nth(0, ErrorKind::OutOfMemory);
    kept.ready(second, &means).unwrap();
    let figures = kept.figures();
    assert_eq!((figures.evicted, figures.measured, figures.counted), (1, 0, NODE));
    assert_eq!(b.pool.reserved().unwrap(), 8 << 20);
    kept.evict_all(&means).unwrap();
}

/// What eager work has freed is the device's last memory: it goes before a graph is lost, or another's executable.
#[test]
fn free_memory_of_pools_goes_where_the_device_has_no_room_for_an_executable() {
    let device = SimConfig { total_bytes: 64 << 20, ..SimConfig::default() };
    for keeps in [false, true] {
        let b = bench_without(device);
        if keeps {
            b.pool.keep_executables(apart()).unwrap();
        }
        let eager = Pool::new(&b.engine, PoolConfig::default());
        drop(eager.allocate(64 << 20, b.streams[1]).unwrap());
        b.chain(&[1]).launch(b.streams[0]).unwrap();
        assert_eq!((b.ran(), eager.reserved().unwrap()), (vec![1], 0));
    }
}

#[test]
fn more_counts_where_executables_take_more_than_was_foreseen() {
    let b = bench(apart().budget(2 * NODE));
    b.driver().charge_executables(NODE / 4);
    let graphs = [1, 2].map(|number| b.chain(&[number]));
    graphs[0].launch(b.streams[0]).unwrap();
    // The device gave a whole piece.
    let figures = b.pool.executables();
    assert_eq!((figures.bytes, figures.measured, figures.counted), (NODE / 4, NODE, NODE));
    graphs[1].launch(b.streams[0]).unwrap();
    let figures = b.pool.executables();
    assert_eq!((figures.bytes, figures.counted, figures.evicted), (NODE / 2, NODE, 0));
    // It never counts for so much that a launch fails.
    b.pool.keep_executables(apart().budget(NODE / 2)).unwrap();
    assert_eq!(b.counts(), (1, 2, 0, 0, 1));
    graphs[0].launch(b.streams[0]).unwrap();
    assert_eq!((b.counts(), b.ran()), ((1, 3, 0, 0, 2), vec![1, 2, 1]));
}

/// What it took is the driver's, who gives nothing back, and serves those that come after it. No graph is lost.
#[test]
fn one_that_takes_more_than_the_budget_by_itself_goes_again() {
    const FORESEEN: u64 = 1 << 20;
    let b = bench(apart().budget(4 * FORESEEN));
    b.driver().charge_executables(FORESEEN);
    let graphs = [1, 2, 3].map(|number| b.chain(&[number]));
    graphs[0].launch(b.streams[0]).unwrap();
    b.driver().charge_executables(64 * FORESEEN);
    for _ in 0..2 {
        let refused = graphs[2].launch(b.streams[0]);
        let Err(Error::Pool { why: PoolRefusal::NoExecutable { bytes, pinned, budget }, .. }) =
            refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!((bytes, pinned, budget), (8 * FORESEEN, 0, 4 * FORESEEN));
        // It is not made twice.
        assert_eq!((b.counts().1, b.pool.executables().executables), (2, 0));
    }
    let taken = b.driver().taken_by_executables();
    assert_eq!(taken, 65 * FORESEEN);
    b.driver().charge_executables(FORESEEN);
    for at in [0, 1, 0, 1] {
        graphs[at].launch(b.streams[0]).unwrap();
    }
    assert_eq!(b.driver().taken_by_executables(), taken);
    b.pool.keep_executables(apart().budget(8 * FORESEEN)).unwrap();
    graphs[2].launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [1, 1, 2, 1, 2, 3]);
}

/// However often others take memory while it is made.
#[test]
fn one_never_counts_for_more_than_eight_times_what_was_foreseen() {
    const FORESEEN: u64 = 1 << 20;
    let b = bench(apart().budget(16 * FORESEEN));
    b.driver().charge_executables(FORESEEN);
    let graph = b.chain(&[1]);
    for taken in [64, 256, 1024] {
        b.driver().charge_executables(taken * FORESEEN);
        graph.launch(b.streams[0]).unwrap();
        assert_eq!(graph.foreseen_bytes().unwrap(), 8 * FORESEEN);
        b.pool.release_executables().unwrap();
    }
    assert_eq!(b.ran(), [1, 1, 1]);
}

#[test]
fn a_graph_that_its_host_captured_has_its_executable_from_the_pool() {
    let b = bench(shared());
    let stream = b.streams[0];
    let own = b.chain(&[10]);
    let take_over = |number| {
        b.driver().begin_capture(stream, CaptureMode::Relaxed).unwrap();
        let capture = Capture::adopt(&b.pool, stream).unwrap();
        b.notes.note(b.driver(), stream, number);
        let graph = b.driver().end_capture(stream).unwrap();
        let (lease, report) = capture.accept(graph).unwrap();
        (Graph::of(lease, graph, report, stream), graph)
    };
    let (taken, _) = take_over(20);
    let taken = taken.unwrap();
    [&own, &taken, &own].iter().for_each(|graph| graph.launch(stream).unwrap());
    assert_eq!((b.ran(), b.counts()), (vec![10, 20, 10], (1, 1, 2, 0, 0)));
    drop((own, taken));
    assert_eq!(b.driver().executables(), 0);
    // One that cannot be taken over is the host's still.
    let plain = Pool::new(&b.engine, PoolConfig::default());
    let b = Bench { pool: plain, ..b };
    b.driver().begin_capture(stream, CaptureMode::Relaxed).unwrap();
    let capture = Capture::adopt(&b.pool, stream).unwrap();
    let graph = b.driver().end_capture(stream).unwrap();
    let (lease, report) = capture.accept(graph).unwrap();
    b.driver().fail_host_nth(1, ErrorKind::NotSupported);
    let refused = Graph::of(lease, graph, report, stream);
    assert!(matches!(refused, Err(Error::Driver(_))), "{refused:?}");
    assert_eq!(b.driver().executables(), 0);
    b.driver().destroy_graph(graph).unwrap();
}

#[test]
fn threads_that_launch_graphs_of_one_shape_run_each_with_its_own() {
    let b = bench(shared());
    let graphs = [10, 20].map(|number| b.chain(&[number, number + 1]));
    std::thread::scope(|scope| {
        for (graph, stream) in graphs.iter().zip(b.streams) {
            scope.spawn(move || (0..50).for_each(|_| graph.launch(stream).unwrap()));
        }
    });
    let ran = b.ran();
    assert!(ran.chunks(2).all(|pair| pair[0] + 1 == pair[1]), "{ran:?}");
    assert_eq!(ran.iter().filter(|&&number| number == 10).count(), 50);
    assert_eq!(ran.len(), 200);
}
