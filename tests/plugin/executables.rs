//! Graphs that the plug-in launches for its host, by executables within a budget.

use regraph::driver::{Driver, ErrorKind, Functions, GraphHandle, StreamHandle};
use regraph::engine::{self, Config, Lent, PoolRefusal, StreamRefusal};
use regraph::graphs::ExecutableOptions;
use regraph_plugin::{Error, Graph, PoolKey};
use regraph_sim::{Call, SimDriver};

use super::host::{host_with, Host};
use crate::common::noted::Notes;

type Taken<'a> = Graph<'a, std::sync::Arc<SimDriver>>;

/// What an executable takes for each node, in bytes.
const NODE: u64 = 64 << 10;
const POOL: PoolKey = (0, 1);
const OTHER: PoolKey = (0, 2);

struct Bench {
    host: Host,
    streams: [StreamHandle; 2],
    notes: Notes,
}

fn bench() -> Bench {
    let host = host_with(Config::default().report_leaks(false));
    host.driver.charge_executables(NODE);
    let streams = [(); 2].map(|()| host.stream());
    Bench { host, streams, notes: Notes::default() }
}

fn shared() -> ExecutableOptions {
    ExecutableOptions::default().sharing(Functions::Same)
}

impl Bench {
    fn driver(&self) -> &SimDriver {
        &self.host.driver
    }

    /// A chain of kernels with these numbers over a temporary block, as PyTorch captures it.
    fn capture(&self, key: PoolKey, numbers: &[u64]) -> GraphHandle {
        let stream = self.streams[0];
        self.host.announce(stream, key, true);
        let block = self.host.allocate(stream);
        numbers.iter().for_each(|&number| self.notes.note(self.driver(), stream, number));
        self.host.free(block);
        self.host.finish(stream, key)
    }

    fn graph(&self, key: PoolKey, numbers: &[u64]) -> Taken<'_> {
        let graph = self.capture(key, numbers);
        let taken = self.host.plugin.take_graph(0, key, graph).unwrap();
        let mut nodes = Vec::new();
        self.driver().nodes(graph, &mut nodes).unwrap();
        assert!(nodes.is_empty(), "the host's graph has no nodes any more");
        self.driver().nodes(taken.handle(), &mut nodes).unwrap();
        assert_eq!(nodes.len(), numbers.len());
        taken
    }

    fn keep(&self, key: Option<PoolKey>, options: ExecutableOptions) {
        self.host.plugin.keep_executables(0, key, options).unwrap();
    }

    /// What ran since the last call.
    fn ran(&self) -> Vec<u64> {
        self.driver().complete_all();
        self.notes.take()
    }

    fn counts(&self, key: Option<PoolKey>) -> (usize, usize, u64, u64, u64) {
        let it = self.host.plugin.executables(0, key).unwrap();
        (it.graphs, it.executables, it.made, it.updates, it.evicted)
    }
}

fn is_asleep(result: Result<(), Error>) -> bool {
    matches!(
        result,
        Err(Error::Engine(engine::Error::Pool { why: PoolRefusal::Suspended { .. }, .. }))
    )
}

#[test]
fn graphs_that_nothing_is_said_of_have_executables_of_their_own_from_their_first_launch_on() {
    let b = bench();
    let graphs = [10, 20].map(|number| b.graph(POOL, &[number, number + 1]));
    assert_eq!(b.counts(None), (2, 0, 0, 0, 0));
    assert_eq!(graphs[0].foreseen_bytes().unwrap(), 2 * NODE);
    for at in [0, 1, 0] {
        graphs[at].launch(b.streams[0]).unwrap();
    }
    assert_eq!(b.ran(), [10, 11, 20, 21, 10, 11]);
    assert_eq!(b.counts(None), (2, 2, 2, 0, 0));
    drop(graphs);
    assert_eq!((b.counts(None).0, b.driver().executables()), (0, 0));
}

#[test]
fn graphs_of_several_pools_share_one_within_a_budget() {
    let b = bench();
    b.keep(None, shared().budget(3 * NODE));
    let graphs = [(POOL, 10), (OTHER, 20), (POOL, 30)].map(|(key, it)| b.graph(key, &[it, it + 1]));
    let long = b.graph(OTHER, &[1, 2, 3]);
    // All are launched before the first has run, on two streams.
    for at in [0, 1, 1, 2, 0] {
        graphs[at].launch(b.streams[at % 2]).unwrap();
    }
    assert_eq!(b.ran(), [10, 11, 20, 21, 20, 21, 30, 31, 10, 11]);
    assert_eq!(b.counts(None), (4, 1, 1, 3, 0));
    // Another shape does not fit beside it, and one that runs is waited for.
    graphs[1].launch(b.streams[1]).unwrap();
    long.launch(b.streams[0]).unwrap();
    assert_eq!(b.notes.take(), [20, 21]);
    assert_eq!(b.ran(), [1, 2, 3]);
    assert_eq!(b.driver().executable_memory(), 3 * NODE);
    assert_eq!(b.counts(None).4, 1);
    // The one that was prepared is there.
    graphs[2].prepare(b.streams[0]).unwrap();
    let made = b.counts(None).2;
    graphs[2].launch(b.streams[0]).unwrap();
    assert_eq!((b.ran(), b.counts(None).2), (vec![30, 31], made));
}

#[test]
fn launches_on_every_stream_are_waited_for_before_an_executable_goes() {
    let b = bench();
    b.keep(None, ExecutableOptions::default().budget(2 * NODE));
    let graphs = [1, 2, 3].map(|number| b.graph(POOL, &[number]));
    for (graph, on) in graphs.iter().zip([0, 1, 1]) {
        graph.launch(b.streams[on]).unwrap();
    }
    let mut before = b.notes.take();
    before.sort_unstable();
    assert_eq!((before, b.ran()), (vec![1, 2], vec![3]));
}

#[test]
fn a_pool_that_is_named_has_a_budget_of_its_own() {
    let b = bench();
    b.keep(Some(POOL), shared().budget(NODE));
    let graphs = [1, 2].map(|number| b.graph(POOL, &[number]));
    let beside = b.graph(OTHER, &[3]);
    for graph in [&graphs[0], &beside, &graphs[1]] {
        graph.launch(b.streams[0]).unwrap();
    }
    assert_eq!(b.ran(), [1, 3, 2]);
    assert_eq!(b.counts(Some(POOL)), (2, 1, 1, 1, 0));
    assert_eq!(b.counts(None), (3, 2, 2, 1, 0), "all of the device");
    let plugin = &b.host.plugin;
    let refused = plugin.keep_executables(0, Some(OTHER), shared());
    assert!(matches!(refused, Err(Error::KeptWithOthers { key: OTHER, graphs: 1 })), "{refused:?}");
    let refused = plugin.executables(0, Some(OTHER));
    assert!(matches!(refused, Err(Error::NotKept { key: OTHER, .. })), "{refused:?}");
    assert_eq!(plugin.release_executables(0, Some(POOL)).unwrap(), NODE);
    assert_eq!(plugin.release_executables(0, None).unwrap(), NODE);
    graphs[0].launch(b.streams[1]).unwrap();
    assert_eq!(b.ran(), [1]);
    // No graph of the pool is left, so it may be named.
    drop(beside);
    b.keep(Some(OTHER), shared());
}

#[test]
fn what_is_pinned_stays_and_what_does_not_fit_beside_it_is_refused() {
    let b = bench();
    b.keep(Some(POOL), ExecutableOptions::default().budget(2 * NODE));
    let graphs = [1, 2, 3].map(|number| b.graph(POOL, &[number]));
    graphs[0].pin(true);
    for at in [0, 1, 2, 1, 0] {
        graphs[at].launch(b.streams[0]).unwrap();
    }
    assert_eq!((b.ran(), b.counts(Some(POOL)).2), (vec![1, 2, 3, 2, 1], 4));
    graphs[1].pin(true);
    let refused = graphs[2].launch(b.streams[0]);
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("raise the budget, or pin fewer"), "{told}");
    assert!(b.ran().is_empty());
}

#[test]
fn a_launch_comes_after_what_its_pool_has_lent_and_is_refused_while_that_lives() {
    let b = bench();
    let plugin = &b.host.plugin;
    let graph = b.graph(POOL, &[1]);
    graph.launch(b.streams[0]).unwrap();
    let route = plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
    let lent = b.host.allocate(b.streams[1]);
    assert_eq!(plugin.lent_bytes(0, POOL).unwrap(), 4 << 20);
    b.notes.note(b.driver(), b.streams[1], 2);
    let refused = graph.launch(b.streams[0]);
    assert!(
        matches!(
            refused,
            Err(Error::Engine(engine::Error::Pool { why: PoolRefusal::BlocksLent { .. }, .. }))
        ),
        "{refused:?}"
    );
    b.host.free(lent);
    plugin.end_borrowing(0, POOL, route).unwrap();
    graph.launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [1, 2, 1]);
    // What borrows next comes after that launch: it was seen.
    let route = plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
    let lent = b.host.allocate(b.streams[1]);
    assert_eq!(plugin.lent_bytes(0, POOL).unwrap(), 4 << 20);
    b.host.free(lent);
    plugin.end_borrowing(0, POOL, route).unwrap();
}

#[test]
fn a_stream_that_captures_gets_no_launch() {
    let b = bench();
    let graph = b.graph(POOL, &[1]);
    b.host.announce(b.streams[1], OTHER, true);
    for refused in [graph.launch(b.streams[1]), graph.prepare(b.streams[1])] {
        let Err(Error::Engine(engine::Error::Stream { why, .. })) = refused else { panic!() };
        assert!(matches!(why, StreamRefusal::LaunchWhileCapturing));
    }
    // Nor does one on another stream ruin the capture, even where an executable has to go.
    b.keep(None, ExecutableOptions::default().budget(NODE));
    graph.launch(b.streams[0]).unwrap();
    b.host.finish(b.streams[1], OTHER);
    let next = b.graph(POOL, &[2]);
    b.host.announce(b.streams[1], OTHER, true);
    next.launch(b.streams[0]).unwrap();
    b.host.finish(b.streams[1], OTHER);
    assert_eq!(b.ran(), [1, 2]);
    assert_eq!(b.counts(None).4, 1);
}

#[test]
fn a_graph_that_cannot_be_taken_leaves_nothing() {
    let b = bench();
    let graph = b.capture(POOL, &[1]);
    let refused = b.host.plugin.take_graph(0, OTHER, graph);
    assert!(matches!(refused, Err(Error::UnknownPool { key: OTHER, .. })));
    b.driver().fail_host_nth(0, ErrorKind::NotSupported);
    assert!(b.host.plugin.take_graph(0, POOL, graph).is_err());
    b.driver().fail_nth(Call::Nodes, 0, ErrorKind::NotSupported);
    let refused = b.host.plugin.take_graph(0, POOL, graph);
    assert!(matches!(refused, Err(Error::Driver(_))));
    assert_eq!(b.counts(None).0, 0);
    // A pool with graphs that are kept together with others' cannot be named; this one has none.
    b.keep(Some(POOL), shared());
}

#[test]
fn random_hosts_launch_each_graph_as_it_is_within_their_budgets() {
    const LENGTHS: [u64; 3] = [1, 2, 5];
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let b = bench();
        let plugin = &b.host.plugin;
        let options = |random: &mut fastrand::Rng| {
            let mut options = ExecutableOptions::default();
            options.budget = random.bool().then(|| random.u64(5..=12) * NODE);
            options.sharing = random.bool().then_some(Functions::Same);
            options
        };
        let mut budgets = [None, None];
        for (at, key) in [(0, None), (1, Some(POOL))] {
            let said = options(&mut random);
            b.keep(key, said);
            budgets[at] = said.budget;
        }
        let entered = plugin.enter_region(Some("graphs"));
        let (mut graphs, mut asleep, mut expected) = (Vec::new(), false, Vec::<u64>::new());
        for number in 0..120_u64 {
            let stream = b.streams[random.usize(..2)];
            match random.u32(..19) {
                0..4 if !asleep => {
                    let numbers: Vec<_> =
                        (0..LENGTHS[random.usize(..3)]).map(|at| number * 10 + at).collect();
                    let key = [POOL, OTHER][random.usize(..2)];
                    graphs.push((b.graph(key, &numbers), numbers));
                }
                4..14 if !graphs.is_empty() => {
                    let (graph, numbers) = &graphs[random.usize(..graphs.len())];
                    match graph.launch(stream) {
                        refused if asleep => assert!(is_asleep(refused)),
                        launched => {
                            launched.unwrap();
                            expected.extend(numbers);
                        }
                    }
                }
                14 if !graphs.is_empty() => {
                    let prepared = graphs[random.usize(..graphs.len())].0.prepare(stream);
                    assert!(if asleep { is_asleep(prepared) } else { prepared.is_ok() });
                }
                15 if !graphs.is_empty() => drop(graphs.swap_remove(random.usize(..graphs.len()))),
                16 => {
                    let key = random.bool().then_some(POOL);
                    plugin.release_executables(0, key).unwrap();
                }
                17 => {
                    match asleep {
                        false => plugin.sleep(None).unwrap(),
                        true => plugin.wake(None).unwrap(),
                    };
                    asleep = !asleep;
                }
                18 => {
                    let said = options(&mut random);
                    b.keep(Some(POOL), said);
                    budgets[1] = said.budget;
                }
                _ => {}
            }
            let [all, own] = [None, Some(POOL)].map(|key| plugin.executables(0, key).unwrap());
            if let Some(budget) = budgets[1] {
                assert!(own.bytes <= budget, "seed {seed}, {number}: {own:?}");
            }
            if let Some(budget) = budgets[0] {
                assert!(all.bytes - own.bytes <= budget, "seed {seed}, {number}: {all:?}");
            }
            assert_eq!(all.executables, b.driver().executables());
        }
        let mut ran = b.ran();
        ran.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ran, expected, "seed {seed}");
        drop(graphs);
        assert_eq!(b.driver().executables(), 0);
        plugin.leave_region(entered).unwrap();
    }
}

#[test]
fn a_graph_whose_pool_is_gone_is_not_launched() {
    let b = bench();
    let graph = b.graph(POOL, &[1]);
    graph.launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [1]);
    b.host.plugin.release_pool(0, POOL).unwrap();
    b.host.plugin.empty_pool(POOL).unwrap();
    b.host.plugin.empty_cache().unwrap();
    let refused = graph.launch(b.streams[0]);
    assert!(matches!(refused, Err(Error::UnknownPool { key: POOL, .. })), "{refused:?}");
    // Nor beside another pool of its name.
    let other = b.graph(POOL, &[2]);
    let refused = graph.launch(b.streams[0]);
    assert!(matches!(refused, Err(Error::UnknownPool { key: POOL, .. })), "{refused:?}");
    other.launch(b.streams[0]).unwrap();
    assert_eq!(b.ran(), [2]);
}

#[test]
fn how_a_pool_s_executables_are_kept_stays_with_its_name() {
    let b = bench();
    b.keep(Some(POOL), ExecutableOptions::default().budget(NODE));
    let (plugin, mut events) = (&b.host.plugin, Vec::new());
    for _ in 0..2 {
        let graphs = [1, 2].map(|number| b.graph(POOL, &[number]));
        let borrowing = plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
        plugin.end_borrowing(0, POOL, borrowing).unwrap();
        graphs.iter().for_each(|graph| graph.launch(b.streams[0]).unwrap());
        assert_eq!(b.ran(), [1, 2]);
        assert_eq!(b.driver().executable_memory(), NODE, "one at a time");
        drop(graphs);
        for _ in 0..2 {
            b.host.plugin.release_pool(0, POOL).unwrap();
        }
        b.host.plugin.empty_cache().unwrap();
        assert!(b.host.plugin.pools(0).unwrap().iter().all(|pool| pool.key != POOL));
        let [made, gone] = [Call::CreateEvent, Call::DestroyEvent].map(|it| b.driver().calls(it));
        events.push(made - gone);
    }
    assert_eq!(events[0], events[1], "nor do events stay");
}
