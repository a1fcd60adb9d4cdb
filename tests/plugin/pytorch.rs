//! The plug-in, called as PyTorch calls its allocators.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::host::{filter, host_on, host_with, Host};
use crate::common::{once, remove_last_edge, while_it_waits};
use crate::device::graph_of;
use regraph::driver::{
    CaptureId, CaptureMode, Dependency, Driver, ErrorKind, GraphHandle, HostApi, StreamHandle,
};

use regraph::engine::{self, Config, Lent};
use regraph::settings::PlanChoice;
use regraph::settings::Settings;
use regraph::snapshot::Action;
use regraph_plugin::{EndedCapture, EndedGraph, Error, Filter, Plugin, PoolKey, FIGURES};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

const MIB: u64 = 1 << 20;
const POOL: PoolKey = (1, 0);

fn host() -> Host {
    host_with(Config::default())
}

/// A host with a capture under way, and its stream.
fn begun() -> (Host, StreamHandle) {
    let (host, [stream]) = host().with_streams();
    host.begin(stream, POOL);
    (host, stream)
}

#[test]
fn addresses_name_blocks() {
    let (h, [s]) = host().with_streams();
    assert_eq!(h.plugin.allocate(0, 0, s).unwrap(), 0);
    h.free(0);
    let (first, second) = (h.allocate(s), h.allocate(s));
    assert_ne!(first, second);
    h.free(first);
    assert!(matches!(h.plugin.free(first, 0), Err(Error::UnknownAddress { .. })));
    assert_eq!(h.allocate(s), first);
    assert!(h.plugin.record_stream(first, h.stream()).is_ok());
    assert!(matches!(h.plugin.record_use(7, s), Err(Error::UnknownAddress { .. })));
    assert!(h.plugin.allocate(1, 5, s).is_err());
    assert!(matches!(h.plugin.allocate(1, 64, s), Err(Error::UnknownDevice { device: 64 })));
}

/// What one thread does, and then another one while the first lives on without a request.
fn beside_idle_thread(first: impl FnOnce() + Send, then: impl FnOnce()) {
    let (done, is_done) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            first();
            done.send(()).unwrap();
            // Until the other end is gone.
            let _ = ended.recv();
        });
        is_done.recv().unwrap();
        then();
        drop(end);
    });
}

#[test]
fn memory_on_the_stream_of_an_idle_thread_goes_when_the_cache_is_emptied() {
    let (h, [s, t]) = host().with_streams();
    let shared = h.allocate(s);
    // As autograd's thread does: its frees come last on the stream, and it makes no request afterwards.
    let backward = || {
        let block = h.allocate(t);
        h.launch(t);
        h.plugin.record_stream(shared, t).unwrap();
        h.free(block);
        h.free(shared);
    };
    beside_idle_thread(backward, || {
        assert!(h.reserved() > 0);
        h.plugin.empty_cache().unwrap();
        assert_eq!(h.reserved(), 0);
    });
}

#[test]
fn a_pool_whose_graph_an_idle_thread_has_used_last_goes_when_the_cache_is_emptied() {
    let (h, s) = begun();
    let (first, output) = (h.allocate(s), h.allocate(s));
    h.launch_and_free(s, first);
    h.end(s, POOL);
    beside_idle_thread(
        || {
            h.plugin.record_stream(output, h.stream()).unwrap();
            h.launch_and_free(s, output);
        },
        || {
            h.plugin.release_pool(0, POOL).unwrap();
            h.plugin.empty_cache().unwrap();
            assert_eq!(h.held_by(POOL), 0);
        },
    );
}

/// As native PyTorch has it: a warm-up's output that the capture binds anew, gradients that it sets to `None`.
#[test]
fn what_eager_work_made_and_a_capture_frees_is_free_while_the_graph_lives() {
    let (h, [s, t]) = host().with_streams();
    let (own, shared) = (h.allocate(s), h.allocate(s));
    h.plugin.record_stream(shared, t).unwrap();
    h.driver.complete_all();
    h.announce(s, POOL, true);
    h.launch(s);
    h.driver.wait(t, s).unwrap();
    h.launch_and_free(t, own);
    h.free(shared);
    // What was submitted before may go on, so nothing is free before the capture ends.
    h.plugin.empty_cache().unwrap();
    assert!(h.reserved() - h.held_by(POOL) >= 8 * MIB);
    h.driver.wait(s, t).unwrap();
    h.finish(s, POOL);
    h.empty();
    assert_eq!(h.reserved(), h.held_by(POOL));
}

/// The earlier graph writes it again before each launch of the later one.
#[test]
fn a_graph_s_output_that_another_pool_s_capture_frees_stays_while_that_graph_lives() {
    const LATER: PoolKey = (2, 0);
    let (h, [s]) = host().with_streams();
    h.announce(s, POOL, true);
    let output = h.allocate(s);
    h.launch(s);
    h.finish(s, POOL);
    h.announce(s, LATER, true);
    h.launch_and_free(s, output);
    h.finish(s, LATER);
    for (gone, left) in [(POOL, 4 * MIB), (LATER, 0)] {
        h.plugin.release_pool(0, gone).unwrap();
        h.empty();
        assert_eq!(h.held_by(POOL), left);
    }
}

/// A thread that lets go of a pool may hold Python's lock, which work of the device may need.
#[test]
fn a_pool_is_let_go_of_while_a_call_waits_for_the_device() {
    type Waits = fn(&Host, StreamHandle);
    const GONE: PoolKey = (2, 0);
    let calls: [(&str, Waits); 6] = [
        ("sleep", |h, _| _ = h.plugin.sleep(None).unwrap()),
        ("compact", |h, _| _ = h.plugin.compact(0, None).unwrap()),
        ("empty_cache", |h, _| h.plugin.empty_cache().unwrap()),
        ("empty_pool", |h, _| h.plugin.empty_pool(GONE).unwrap()),
        ("forget_region", |h, _| h.plugin.forget_region("region").unwrap()),
        ("allocate", |h, s| drop(h.plugin.allocate(MIB << 17, 0, s))),
    ];
    for (name, call) in calls {
        let config = SimConfig { total_bytes: 128 * MIB, ..SimConfig::default() };
        let h = Arc::new(host_on(&Arc::new(SimDriver::new(config)), Config::default()));
        let s = h.stream();
        let graph = {
            h.announce(s, POOL, true);
            h.used(s);
            h.driver.instantiate(h.finish(s, POOL)).unwrap()
        };
        let entered = h.plugin.enter_region(Some("region"));
        h.announce(s, GONE, true);
        h.used(s);
        h.finish(s, GONE);
        h.plugin.leave_region(entered).unwrap();
        h.plugin.release_pool(0, GONE).unwrap();
        h.launch(s);
        let others = Arc::new(AtomicUsize::new(0));
        let (other, went) = (h.clone(), others.clone());
        h.driver.before(
            "cuCtxSynchronize",
            once(move || {
                let act = move || {
                    other.driver.replay(graph, s).unwrap();
                    other.plugin.release_pool(0, POOL).unwrap();
                    other.plugin.reserved_by_pools(0);
                    // It waits for another call that moves regions, and for no work.
                    let refused = (name != "sleep").then(|| other.plugin.try_sleep(None));
                    let runs = |it| matches!(it, Err(Error::DeviceRuns { device: 0 }));
                    assert!(refused.is_none_or(runs), "{name}");
                };
                went.fetch_add(usize::from(while_it_waits(act)), Ordering::SeqCst);
            }),
        );
        call(&h, s);
        assert_eq!(others.load(Ordering::SeqCst), 1, "{name}");
        assert_eq!(h.held_by(GONE) == 0, name != "compact", "{name}");
        assert!(h.held_by(POOL) > 0, "{name}: the graph was launched after the wait began");
        h.driver.before("cuCtxSynchronize", || ());
        h.plugin.wake(None).unwrap();
        h.empty();
        assert_eq!(h.reserved(), 0, "{name}");
    }
}

#[test]
fn nothing_waits_for_the_device_while_something_captures() {
    let (h, [s, t, other]) = host().with_streams();
    beside_idle_thread(
        || h.free(h.allocate(t)),
        || {
            h.begin(s, POOL);
            let block = h.allocate(s);
            h.plugin.empty_cache().unwrap();
            h.free(block);
            h.launch(s);
            h.free(h.allocate(other));
            // A wait would have ruined the capture, and its end would fail.
            h.end(s, POOL);
        },
    );
}

/// Nor where the capture has asked for nothing, as long as its stream is known.
#[test]
fn nothing_waits_for_the_device_while_a_known_stream_captures() {
    let (h, [s, t]) = host().with_streams();
    beside_idle_thread(
        || h.free(h.allocate(t)),
        || {
            h.free(h.allocate(s));
            h.driver.begin_capture(s, CaptureMode::Global).unwrap();
            h.launch(s);
            h.plugin.empty_cache().unwrap();
            h.driver.end_capture(s).unwrap();
            h.plugin.empty_cache().unwrap();
            assert_eq!(h.reserved(), 0);
        },
    );
}

#[test]
fn an_announced_capture_is_judged_before_its_end() {
    let (h, [s]) = host_with(Config::default().check(true).journal(true)).with_streams();
    h.announce(s, POOL, true);
    h.used(s);
    let mut shown = None;
    h.plugin
        .capture_ending(0, s, |capture, journal| shown = Some((capture, journal.clone())))
        .unwrap();
    assert_eq!(shown.unwrap().0, h.capture_of(s).unwrap());
    h.end(s, POOL);
    h.plugin.capture_ended(0, s).unwrap();
    let pools = h.plugin.pools(0).unwrap();
    assert_eq!(pools.iter().map(|pool| pool.graphs).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_capture_that_was_not_announced_is_judged_before_its_end() {
    let (h, s) = begun();
    h.plugin.capture_ending(0, s, |_, _| ()).unwrap();
    h.used(s);
    h.plugin.capture_ending(0, s, |_, _| ()).unwrap();
    h.end(s, POOL);
    assert_eq!(h.plugin.captures(0)[0].key, POOL);
    // Its graph has the memory as long as the pool.
    h.empty();
    assert_eq!(h.held_by(POOL), 4 * MIB);
    h.plugin.release_pool(0, POOL).unwrap();
    h.empty();
    assert_eq!(h.reserved(), 0);
}

/// The verdict comes when the host has its graph, and a refused one leaves nothing.
#[test]
fn the_verdict_comes_with_the_graph() {
    let (h, [s]) = host_with(Config::default().check(true).find_late_uses(false).judge_aside(0))
        .with_streams();
    for sound in [true, false] {
        h.announce(s, POOL, true);
        for _ in 0..2 {
            h.used(s);
        }
        if !sound {
            remove_last_edge(&h.driver, s);
        }
        h.plugin.capture_ending(0, s, |_, _| panic!("no journal was asked for")).unwrap();
        h.end(s, POOL);
        let ended = h.plugin.capture_ended(0, s);
        let refused = matches!(ended, Err(Error::Engine(engine::Error::Refused(_))));
        assert_eq!((ended.is_ok(), refused), (sound, !sound), "{ended:?}");
        // One of each sort has a report and a graph.
        assert_eq!(h.plugin.captures(0).len(), 1);
        let pools = h.plugin.pools(0).unwrap();
        assert_eq!(pools.iter().map(|pool| pool.graphs).sum::<usize>(), 1);
        assert_eq!(h.held_by(POOL), 4 * MIB);
    }
    h.plugin.release_pool(0, POOL).unwrap();
    h.plugin.release_pool(0, POOL).unwrap();
    h.empty();
    assert_eq!(h.reserved(), 0);
}

#[test]
fn short_of_memory_pools_without_graphs_go_first() {
    for routed in [false, true] {
        let limited = Settings::parse("memory_limit_mb:8").unwrap();
        let (h, [s]) = host_with(Config::default().settings(limited)).with_streams();
        h.begin(s, POOL);
        h.used(s);
        h.end(s, POOL);
        let full = h.plugin.allocate(8 * MIB, 0, s);
        assert!(full.is_err_and(|error| error.out_of_memory().is_some()));
        h.plugin.release_pool(0, POOL).unwrap();
        h.driver.complete_all();
        if routed {
            h.plugin.begin_thread_pool(0, (2, 0)).unwrap();
        }
        assert!(h.plugin.allocate(8 * MIB, 0, s).is_ok());
    }
}

#[test]
fn a_capture_that_fails_leaves_nothing() {
    let (h, [s]) = host_with(Config::default().check(true).find_late_uses(false).judge_aside(1))
        .with_streams();
    for judged in [false, true] {
        h.announce(s, POOL, true);
        h.used(s);
        if judged {
            h.plugin.capture_ending(0, s, |_, _| ()).unwrap();
        }
        h.driver.end_capture(s).unwrap();
        h.plugin.capture_failed(0, s).unwrap();
        assert!(!h.plugin.engine(0).unwrap().host().is_recording());
        h.empty();
        assert_eq!(h.reserved(), 0);
    }
    // A good one follows.
    h.begin(s, POOL);
    h.allocate(s);
    h.end(s, POOL);
    assert_eq!(h.held_by(POOL), 4 * MIB);
}

#[test]
fn a_host_that_lets_go_of_a_failed_capture_itself_does_so_once() {
    let (h, s) = begun();
    h.used(s);
    h.end(s, POOL);
    h.announce(s, POOL, true);
    h.driver.end_capture(s).unwrap();
    h.plugin.release_pool(0, POOL).unwrap();
    h.plugin.capture_failed(0, s).unwrap();
    h.empty();
    assert_eq!(h.held_by(POOL), 4 * MIB, "the first graph's");
}

#[test]
fn what_others_let_go_of_while_a_capture_is_under_way_is_not_taken_for_its_own() {
    let (h, [s]) = host().with_streams();
    h.announce(s, POOL, true);
    h.allocate(s);
    h.plugin.begin_thread_pool(0, POOL).unwrap();
    h.plugin.end_pool(0, POOL).unwrap();
    h.plugin.release_pool(0, POOL).unwrap();
    h.driver.end_capture(s).unwrap();
    h.plugin.capture_failing(0, s).unwrap();
    h.plugin.capture_failed(0, s).unwrap();
    assert_eq!(h.plugin.pool_use_count(0, POOL).unwrap(), 0);
}

#[test]
fn a_route_that_could_not_be_begun_goes_and_others_stay() {
    let (h, s) = begun();
    let inside = h.allocate(s);
    let route = h.plugin.begin_pool(0, (2, 0), Arc::new(|_| true)).unwrap();
    h.plugin.create_or_incref_pool(0, (2, 0), None).unwrap();
    h.plugin.begin_failed(0, route).unwrap();
    h.plugin.begin_failed(0, route).unwrap();
    assert_eq!(h.plugin.pool_use_count(0, (2, 0)).unwrap(), 1);
    h.launch_and_free(s, inside);
    assert_eq!(h.allocate(s), inside);
    h.end(s, POOL);
    assert_eq!(h.held_by((2, 0)), 0);
}

/// A host in C++, which announces nothing: its graph object tells the graph when it ends the pool.
struct Graphs {
    driver: Arc<SimDriver>,
    ended: Arc<Mutex<Option<(CaptureId, GraphHandle)>>>,
}

impl Graphs {
    fn new(h: &Host) -> Self {
        Self { driver: Arc::clone(&h.driver), ended: Arc::default() }
    }

    fn begin(&self, h: &Host, stream: StreamHandle, key: PoolKey) -> u64 {
        let (filter, id) = filter(&self.driver);
        let ended = Arc::clone(&self.ended);
        let graph_of: EndedGraph = Arc::new(move |capture| {
            let ended = *ended.lock().unwrap();
            ended.filter(|&(of, _)| of == capture).map(|(_, graph)| graph)
        });
        let route = h.plugin.begin_pool_of(0, key, filter, Some(graph_of)).unwrap();
        self.driver.begin_capture(stream, CaptureMode::Global).unwrap();
        id.store(h.capture_of(stream).unwrap().0 as usize, Ordering::Relaxed);
        route
    }

    fn end(&self, h: &Host, stream: StreamHandle, key: PoolKey) -> Result<(), Error> {
        let capture = h.capture_of(stream).unwrap();
        let graph = self.driver.end_capture(stream).unwrap();
        *self.ended.lock().unwrap() = Some((capture, graph));
        h.plugin.end_pool(0, key)
    }
}

#[test]
fn captures_that_are_not_announced_are_judged_by_the_graph_they_came_to() {
    let (h, [s, t]) = host_with(Config::default().check(true).find_late_uses(false)).with_streams();
    for sound in [true, false] {
        let graphs = Graphs::new(&h);
        graphs.begin(&h, s, POOL);
        let first = h.allocate(s);
        h.launch(s);
        if sound {
            // A helper stream that asks for nothing.
            h.driver.wait(t, s).unwrap();
            h.launch(t);
            h.driver.wait(s, t).unwrap();
        }
        h.free(first);
        let second = h.allocate(s);
        h.launch(s);
        if !sound {
            remove_last_edge(&h.driver, s);
        }
        h.free(second);
        // Behind the last call that the allocator saw.
        h.launch(s);
        let ended = graphs.end(&h, s, POOL);
        let refused = matches!(ended, Err(Error::Engine(engine::Error::Refused(_))));
        assert_eq!((ended.is_ok(), refused), (sound, !sound), "{ended:?}");
        assert!(!h.plugin.engine(0).unwrap().host().is_recording());
    }
    let told = h.plugin.captures(0);
    assert_eq!(told.iter().map(|it| it.key).collect::<Vec<_>>(), [POOL]);
    let pools = h.plugin.pools(0).unwrap();
    assert_eq!(pools.iter().map(|pool| pool.graphs).sum::<usize>(), 1);
}

/// A graph object that names none, or that of another capture, is as one that is not known.
#[test]
fn a_capture_whose_graph_is_not_known_is_not_judged() {
    let (h, [s]) = host_with(Config::default().check(true).find_late_uses(false)).with_streams();
    for told in [None, Some(CaptureId(u64::MAX))] {
        let graphs = Graphs::new(&h);
        graphs.begin(&h, s, POOL);
        h.allocate(s);
        let graph = h.driver.end_capture(s).unwrap();
        *graphs.ended.lock().unwrap() = told.map(|capture| (capture, graph));
        h.plugin.end_pool(0, POOL).unwrap();
        assert!(!h.plugin.engine(0).unwrap().host().is_recording());
    }
    // Nor is one that was announced, and whose end is told too late.
    h.announce(s, POOL, true);
    h.allocate(s);
    h.end(s, POOL);
    h.plugin.capture_ended(0, s).unwrap();
    assert_eq!(unjudged(&h), 3);
}

/// A route that some other call of the host's has begun, and whose filter takes the stream, is not taken
/// for that of the capture which is announced.
#[test]
fn a_capture_is_announced_for_its_own_route_alone() {
    let (h, [s]) = host().with_streams();
    let own = h.begin(s, POOL);
    let other = h.plugin.begin_pool(0, (2, 0), Arc::new(|_| true)).unwrap();
    let capture = h.plugin.capture_begun(0, s, own, false).unwrap();
    assert_eq!(capture, h.capture_of(s));
    h.plugin.begin_failed(0, other).unwrap();
    h.allocate(s);
    assert_eq!((h.held_by(POOL), h.held_by((2, 0))), (4 * MIB, 0));
    h.end(s, POOL);
    // One that does not stand has no capture.
    h.driver.begin_capture(s, CaptureMode::Global).unwrap();
    let others = h.plugin.begin_pool(0, POOL, Arc::new(|_| true)).unwrap();
    assert_eq!(h.plugin.capture_begun(0, s, other, false).unwrap(), None);
    assert!(!h.plugin.engine(0).unwrap().host().is_recording());
    h.plugin.begin_failed(0, others).unwrap();
    h.driver.end_capture(s).unwrap();
}

impl Host {
    /// Adds a conditional node to the capture of a stream, with a body that `inner` captures, as PyTorch does: the pool
    /// ends and begins around the body's capture. `within` runs in the body.
    fn body(&self, s: StreamHandle, inner: StreamHandle, within: impl FnOnce()) {
        let graph = graph_of(&self.driver, s);
        let start = self.driver.terminals(s).unwrap();
        let (node, body) = self.driver.add_conditional(graph, &start).unwrap();
        self.driver.set_terminals(s, &[Dependency::full(node)]).unwrap();
        self.plugin.end_pool(0, POOL).unwrap();
        let (takes, id) = filter(&self.driver);
        self.plugin.begin_pool(0, POOL, takes).unwrap();
        self.driver.begin_capture_to_graph(inner, body, CaptureMode::Relaxed).unwrap();
        id.store(self.capture_of(inner).unwrap().0 as usize, Ordering::Relaxed);
        within();
        self.driver.end_capture(inner).unwrap();
        self.plugin.end_pool(0, POOL).unwrap();
        let (takes, id) = filter(&self.driver);
        self.plugin.begin_pool(0, POOL, takes).unwrap();
        id.store(self.capture_of(s).unwrap().0 as usize, Ordering::Relaxed);
    }

    fn leads_to(&self, key: PoolKey) -> bool {
        matches!(self.plugin.set_no_split(0, key), Err(Error::PoolBegun { .. }))
    }
}

/// As PyTorch's `torch.cond` in a capture.
#[test]
fn a_body_has_memory_of_its_captures_pool_and_is_said_not_to_be_judged() {
    let (h, [s, inner]) =
        host_with(Config::default().check(true).find_late_uses(false)).with_streams();
    let capture = h.announce(s, POOL, true);
    let outer = h.allocate(s);
    h.launch(s);
    let mut bodies = Vec::new();
    let mut outputs = Vec::new();
    for _ in 0..2 {
        h.body(s, inner, || {
            let scratch = h.allocate(inner);
            let output = h.allocate(inner);
            h.launch_and_free(inner, scratch);
            assert_eq!(h.allocate(inner), scratch, "its own, in its order");
            h.launch_and_free(inner, scratch);
            assert_ne!(scratch, outer);
            outputs.push(output);
            bodies.push((h.capture_of(inner).unwrap(), false));
        });
        let next = h.allocate(s);
        assert!(next != outer && !outputs.contains(&next), "these are live");
        h.launch_and_free(s, next);
    }
    assert_eq!(h.held_by((0, 0)), 0, "all of it is the pool's");
    h.finish(s, POOL);
    assert_eq!(told(&h), [bodies[0], bodies[1], (capture, true)]);
    assert!(!h.leads_to(POOL), "no filter is asked any more");
}

/// Its filters look at a graph object that goes.
#[test]
fn a_capture_with_a_body_that_is_dropped_leaves_no_route() {
    for fails in [true, false] {
        let (h, [s, inner]) = host().with_streams();
        let capture = h.announce(s, POOL, true);
        h.allocate(s);
        h.launch(s);
        h.body(s, inner, || h.launch(inner));
        match fails {
            true => {
                h.driver.end_capture(s).unwrap();
                h.plugin.capture_failed(0, s).unwrap();
            }
            false => {
                h.plugin.capture_dropped(0, s, capture).unwrap();
                h.driver.end_capture(s).unwrap();
            }
        }
        assert!(!h.leads_to(POOL));
    }
}

#[test]
fn memory_at_an_address_is_a_block_as_any_other() {
    let (h, [s]) = host().with_streams();
    let address = h.allocate(s);
    assert!(!h.plugin.allocate_at(4 * MIB, 0, s, address).unwrap(), "it is live");
    h.free(address);
    assert!(h.plugin.allocate_at(4 * MIB, 0, s, address).unwrap());
    assert_ne!(h.allocate(s), address);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    h.free(address);
    h.plugin.watch(Arc::new(move |it| hears.lock().unwrap().push((it.action, it.address))));
    assert!(h.plugin.allocate_at(4 * MIB, 0, s, address).unwrap());
    assert_eq!(heard.lock().unwrap().last(), Some(&(Action::Alloc, address)));
    h.free(address);
}

#[test]
fn what_is_never_split_is_counted() {
    const LEAST: u64 = 20 * MIB;
    let settings = Settings::default().max_split_bytes(Some(LEAST));
    let (h, [s]) = host_with(Config::default().settings(settings)).with_streams();
    let told = |name: &str| {
        let all = h.plugin.statistics(0).unwrap();
        let figure = |part: &str| all[format!("oversize_{name}")][part].as_u64().unwrap();
        ["current", "peak", "allocated", "freed"].map(figure)
    };
    // By what a block occupies.
    let sizes = [4 * MIB, LEAST - 512, LEAST - 511, 2 * LEAST];
    let blocks = sizes.map(|bytes| h.plugin.allocate(bytes, 0, s).unwrap());
    assert_eq!(told("allocations"), [2, 2, 2, 0]);
    let pieces = told("segments")[0];
    // One for each such block, and the memory that both small ones lie in.
    assert_eq!(pieces, 3);
    let figures = h.plugin.figures(0).unwrap();
    assert_eq!(figures[FIGURES - 14..][..4], [2, 2, 2, 0]);
    h.free(blocks[3]);
    assert!(h.plugin.free(blocks[3], 0).is_err(), "it is counted out once");
    assert_eq!(told("allocations"), [1, 2, 2, 1]);
    h.plugin.reset_peaks(0).unwrap();
    h.plugin.reset_accumulated(0).unwrap();
    assert_eq!(told("allocations"), [1, 1, 0, 0]);
    blocks[..3].iter().for_each(|&block| h.free(block));
    h.empty();
    assert_eq!(told("allocations"), [0, 1, 0, 1]);
    assert_eq!(told("segments"), [0, pieces, 0, pieces]);
    // Without the setting nothing is.
    let h = host();
    let block = h.plugin.allocate(64 * MIB, 0, h.stream()).unwrap();
    assert_eq!(h.plugin.statistics(0).unwrap()["oversize_allocations"]["peak"], 0);
    h.free(block);
}

/// Of two threads that ask for a device at once, one has memory there when the other has made its own.
#[test]
fn what_is_never_split_is_counted_where_two_threads_make_a_device() {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let plugin: Arc<OnceLock<Plugin<_>>> = Arc::default();
    let (faster, s) = (Arc::clone(&plugin), driver.create_stream().unwrap());
    let faster = once(move || _ = faster.get().unwrap().allocate(40 * MIB, 0, s).unwrap());
    let connect = move |_| {
        faster();
        Ok(Arc::clone(&driver))
    };
    let settings = Settings::default().max_split_bytes(Some(20 * MIB));
    let plugin = plugin.get_or_init(|| Plugin::new(Config::default().settings(settings), connect));
    plugin.engine(0).unwrap();
    assert_eq!(plugin.statistics(0).unwrap()["oversize_segments"]["current"], 1);
}

fn told(h: &Host) -> Vec<(CaptureId, bool)> {
    h.plugin.captures(0).iter().map(|it| (it.report.capture, it.report.verified)).collect()
}

fn unjudged(h: &Host) -> u64 {
    h.plugin.statistics(0).unwrap()["unjudged_captures"].as_u64().unwrap()
}

/// A capture that the host's program begins by itself, with a block that is handed out twice.
fn capture_by_itself(h: &Host, s: StreamHandle) -> CaptureId {
    h.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let block = h.used(s);
    assert_eq!(h.allocate(s), block);
    h.free(block);
    h.capture_of(s).unwrap()
}

#[test]
fn a_capture_that_a_program_begins_by_itself_is_said_not_to_be_judged() {
    let (h, [s, t]) = host_with(Config::default().check(true)).with_streams();
    let first = capture_by_itself(&h, s);
    // It goes on, whatever other streams ask for, and other threads.
    h.allocate(t);
    std::thread::scope(|scope| _ = scope.spawn(|| h.plugin.notice_ends()));
    assert_eq!((h.plugin.engine(0).unwrap().host().is_recording(), unjudged(&h)), (true, 0));
    h.driver.end_capture(s).unwrap();
    // Any request from outside captures notices the end.
    h.allocate(t);
    assert_eq!((h.plugin.engine(0).unwrap().host().is_recording(), unjudged(&h)), (false, 1));
    // So does the question what captures came to, and a host that asks for nothing more says so.
    let second = capture_by_itself(&h, s);
    h.driver.end_capture(s).unwrap();
    assert_eq!(told(&h), [(first, false), (second, false)]);
    capture_by_itself(&h, t);
    h.driver.end_capture(t).unwrap();
    h.plugin.notice_ends();
    assert!(!h.plugin.engine(0).unwrap().host().is_recording());
    assert_eq!(unjudged(&h), 3);
    // So do the first request of the next such capture, and one for what is at hand.
    for number in 4..6 {
        h.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
        h.allocate(s);
        assert_eq!(unjudged(&h), number - 1);
        (0..3).for_each(|_| h.free(h.allocate(t)));
        h.driver.end_capture(s).unwrap();
    }
    h.plugin.allocate_on((), 4 * MIB, 0, t).unwrap();
    assert_eq!(unjudged(&h), 5);
}

#[test]
fn a_capture_that_a_program_begins_by_itself_is_judged_where_its_end_is_told_before() {
    let (h, [s]) = host_with(Config::default().check(true).find_late_uses(false)).with_streams();
    let judged = capture_by_itself(&h, s);
    h.plugin.judge_capture(0, s, |_, _| ()).unwrap();
    h.driver.end_capture(s).unwrap();
    h.allocate(s);
    assert_eq!((told(&h), unjudged(&h)), (vec![(judged, true)], 0));
    h.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let block = h.used(s);
    assert_eq!(h.allocate(s), block);
    h.launch(s);
    remove_last_edge(&h.driver, s);
    let ended = h.plugin.judge_capture(0, s, |_, _| ());
    assert!(matches!(ended, Err(Error::Engine(engine::Error::Refused(_)))), "{ended:?}");
    h.driver.end_capture(s).unwrap();
    h.allocate(s);
    assert_eq!((told(&h).len(), unjudged(&h)), (1, 0));
}

/// Whose end is told.
#[test]
fn a_capture_that_was_announced_is_judged_at_its_end_alone() {
    let (h, [s]) = host_with(Config::default().check(true)).with_streams();
    let not = h.plugin.judge_capture(0, s, |_, _| ());
    let Err(Error::Engine(engine::Error::Stream { call, why, .. })) = not else {
        panic!("{not:?}")
    };
    assert!(matches!(why, engine::StreamRefusal::NotCapturing) && call == "judge_capture");
    let capture = h.announce(s, POOL, true);
    h.allocate(s);
    h.launch(s);
    h.plugin.judge_capture(0, s, |_, _| ()).unwrap();
    assert_eq!(told(&h), []);
    h.allocate(s);
    h.finish(s, POOL);
    assert_eq!(told(&h), [(capture, true)]);
    assert_eq!(h.plugin.captures(0)[0].report.blocks, 2);
}

/// What was freed in it is free for other graphs then, in any order.
#[test]
fn a_capture_gets_no_memory_behind_its_verdict() {
    let (h, [s]) = host_with(Config::default().check(true)).with_streams();
    let capture = capture_by_itself(&h, s);
    h.plugin.judge_capture(0, s, |_, _| ()).unwrap();
    let late = h.plugin.allocate(4 * MIB, 0, s);
    assert!(matches!(late, Err(Error::CaptureJudged { capture: of }) if of == capture), "{late:?}");
    h.driver.end_capture(s).unwrap();
    h.allocate(s);
    assert_eq!(told(&h), [(capture, true)]);
}

/// What the host says of the next capture of a stream it says of one that it announces.
#[test]
fn a_capture_that_a_program_begins_by_itself_has_no_inputs() {
    let (h, s) = begun();
    let _output = h.allocate(s);
    h.end(s, POOL);
    h.plugin.capture_beginning(0, s).unwrap();
    capture_by_itself(&h, s);
    h.driver.end_capture(s).unwrap();
    assert_eq!(told(&h).len(), 2);
}

#[test]
fn figures_have_the_host_s_names() {
    let (h, [s]) = host().with_streams();
    let _held = h.allocate(s);
    let figures = h.plugin.statistics(0).unwrap();
    assert_eq!(figures["allocated_bytes"]["large_pool"]["current"], 4 * MIB);
    assert_eq!(figures["reserved_bytes"]["all"]["peak"], 4 * MIB);
    for name in ["num_ooms", "num_alloc_retries", "num_sync_all_streams", "num_device_alloc"] {
        assert!(figures[name].is_u64(), "{name}");
    }
    h.begin(s, POOL);
    let _output = h.allocate(s);
    h.end(s, POOL);
    let snapshot = h.plugin.snapshot().unwrap();
    let pools: Vec<_> = snapshot.segments.iter().map(|it| it.segment_pool_id).collect();
    assert!(pools.contains(&POOL) && pools.contains(&(0, 0)));
    let ranges = h.plugin.explain(0, s).unwrap();
    assert_eq!(ranges.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [(0, 0), POOL]);
}

#[test]
fn an_observer_hears_of_what_fails() {
    let settings = Settings::parse("memory_limit_mb:2").unwrap();
    let h = host_with(Config::default().settings(settings));
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    h.plugin.observe_out_of_memory(Arc::new(move |device, report| {
        assert_eq!((device, report.requested), (0, 4 * MIB));
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let failed = h.plugin.allocate(4 * MIB, 0, h.stream());
    assert!(matches!(failed, Err(Error::Engine(engine::Error::OutOfMemory(_)))));
    assert_eq!(heard.load(Ordering::Relaxed), 1);
}

/// Observers are told when the plug-in holds none of its locks.
#[test]
fn an_observer_may_call_the_plug_in_where_a_capture_gets_no_memory() {
    let settings = Settings::parse("memory_limit_mb:16,plan:exact").unwrap();
    let h = Arc::new(host_with(Config::default().check(true).settings(settings)));
    let heard = Arc::new(AtomicUsize::new(0));
    let (count, host) = (Arc::clone(&heard), Arc::downgrade(&h));
    h.plugin.observe_out_of_memory(Arc::new(move |_, _| {
        let Some(h) = host.upgrade() else { return };
        h.plugin.snapshot().unwrap();
        assert_eq!(h.plugin.pools(0).unwrap().iter().filter(|pool| pool.key == POOL).count(), 1);
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let (s, t) = (h.stream(), h.stream());
    h.announce(s, POOL, true);
    let blocks = [h.allocate(s), h.allocate(s), h.allocate(t), h.allocate(t), h.allocate(t)];
    h.launch(s);
    let ended = h.plugin.capture_ending(0, s, |_, _| ());
    let failed = ended.expect_err("memory is short");
    assert!(matches!(failed, Error::Engine(engine::Error::PlanOutOfMemory { .. })));
    assert!(failed.out_of_memory().is_some());
    assert_eq!(heard.load(Ordering::Relaxed), 1);
    blocks.into_iter().for_each(|block| h.free(block));
}

/// A pool that its graphs have let go of is given back before a request fails, and no observer hears of it.
#[test]
fn an_observer_does_not_hear_of_what_succeeds() {
    let settings = Settings::parse("memory_limit_mb:8").unwrap();
    let h = host_with(Config::default().settings(settings));
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    h.plugin.observe_out_of_memory(Arc::new(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let s = h.stream();
    h.begin(s, POOL);
    let blocks = [h.allocate(s), h.allocate(s)];
    h.launch(s);
    blocks.into_iter().for_each(|block| h.free(block));
    h.end(s, POOL);
    h.plugin.release_pool(0, POOL).unwrap();
    assert_eq!(h.held_by(POOL), 8 * MIB);
    h.free(h.allocate(s));
    assert_eq!(h.held_by(POOL), 0);
    let counts = h.plugin.engine(0).unwrap().statistics().unwrap().counts;
    assert_eq!((heard.load(Ordering::Relaxed), counts.num_ooms), (0, 0));
}

/// What the host keeps until memory is short is given back before a request fails, in a call of the plug-in's own.
#[test]
fn an_observer_does_not_hear_of_what_the_host_gives_back() {
    let settings = Settings::parse("memory_limit_mb:4").unwrap();
    let h = Arc::new(host_with(Config::default().settings(settings)));
    let s = h.stream();
    let kept = Mutex::new(Some(h.allocate(s)));
    let host = Arc::downgrade(&h);
    h.plugin.set_last_resort(Box::new(move || {
        let block = kept.lock().unwrap().take();
        let freed = host.upgrade().zip(block).map(|(h, block)| h.free(block));
        freed.is_some()
    }));
    h.free(h.allocate(s));
    assert!(h.plugin.allocate(8 * MIB, 0, s).is_err());
    let counts = h.plugin.engine(0).unwrap().statistics().unwrap().counts;
    assert_eq!(counts.num_ooms, 1);
}

#[test]
fn captures_that_no_route_takes_share_no_memory() {
    let (h, [s, t]) = host().with_streams();
    h.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let scratch = h.used(s);
    h.driver.end_capture(s).unwrap();
    h.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
    let output = h.allocate(t);
    assert_ne!(scratch, output, "a launch of the first would overwrite what the second gives out");
}

/// "Ruined" carries no capture's number: the stream may have left the one that it was last seen in.
#[test]
fn a_ruined_capture_takes_no_memory_from_a_graph_of_its_stream() {
    let (h, [s]) = host().with_streams();
    h.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let (scratch, output) = (h.allocate(s), h.allocate(s));
    h.launch_and_free(s, scratch);
    h.driver.end_capture(s).unwrap();
    h.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    h.driver.invalidate(s).unwrap();
    assert!(h.plugin.allocate(4 * MIB, 0, s).is_err());
    h.free(output);
    h.driver.end_capture(s).unwrap_err();
    h.empty();
    assert_eq!(h.reserved(), 8 * MIB, "the graph's");
    assert!(![scratch, output].contains(&h.allocate(s)));
}

#[test]
fn a_stray_capture_that_was_set_back_keeps_its_memory() {
    let (h, [s]) = host().with_streams();
    h.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let block = h.allocate(s);
    let before = h.driver.terminals(s).unwrap();
    h.launch_and_free(s, block);
    assert_eq!(h.allocate(s), block);
    h.driver.set_terminals(s, &before).unwrap();
    h.launch(s);
    let other = h.allocate(s);
    h.free(block);
    h.free(other);
    h.driver.end_capture(s).unwrap();
    h.empty();
    assert!(h.reserved() >= 4 * MIB, "its graph may run at any time");
    assert!(!h.plugin.engine(0).unwrap().host().is_recording());
}

#[test]
fn captures_into_one_pool_at_once_keep_their_routes() {
    let (h, [s, t]) = host().with_streams();
    for stream in [s, t] {
        h.announce(stream, POOL, true);
    }
    h.finish(s, POOL);
    let held = h.held_by(POOL);
    h.allocate(t);
    assert!(h.held_by(POOL) > held, "the second one's route stands");
    // One whose route has ended with it fails after all: no other one's goes.
    h.announce(s, POOL, true);
    h.plugin.capture_ending(0, s, |_, _| ()).unwrap();
    h.end(s, POOL);
    h.plugin.capture_failed(0, s).unwrap();
    let held = h.held_by(POOL);
    h.allocate(t);
    assert!(h.held_by(POOL) > held);
}

/// Each end of a pool is that of one route: of the capture's whose end the thread has told, and once.
#[test]
fn routes_that_end_beside_a_capture_s_end_are_their_own() {
    for is_shown in [false, true] {
        let (h, [s]) = host().with_streams();
        let other = (2, 0);
        let ended = |key| h.plugin.end_pool(0, key).unwrap();
        let goes = |key| {
            let held = h.held_by(key);
            h.plugin.allocate(64 * MIB, 0, h.stream()).unwrap();
            h.held_by(key) > held
        };
        h.announce(s, POOL, true);
        [POOL, other].iter().for_each(|&key| h.plugin.begin_thread_pool(0, key).unwrap());
        match is_shown {
            true => h.plugin.capture_shown(0, s, |_, _| ()).unwrap(),
            false => h.plugin.capture_ending(0, s, |_, _| ()).unwrap(),
        }
        std::thread::scope(|scope| {
            let theirs = || {
                h.plugin.begin_thread_pool(0, POOL).unwrap();
                ended(POOL);
                assert!(!goes(POOL));
            };
            scope.spawn(theirs);
        });
        ended(other);
        assert!(goes(POOL), "the thread's");
        h.driver.end_capture(s).unwrap();
        ended(POOL);
        assert!(goes(POOL), "that was the capture's");
        ended(POOL);
        assert!(!goes(POOL));
        h.plugin.capture_failed(0, s).unwrap();
    }
}

/// The driver answers no question about it then, and it is in no capture.
#[test]
fn the_legacy_stream_has_eager_memory_while_a_blocking_stream_captures() {
    let (h, legacy) = (host(), StreamHandle::from_bits(0));
    let blocking = h.driver.create_blocking_stream();
    h.begin(blocking, POOL);
    h.free(h.allocate(legacy));
    assert_eq!(h.held_by(POOL), 0);
    h.end(blocking, POOL);
    h.driver.begin_capture(blocking, CaptureMode::Relaxed).unwrap();
    h.free(h.allocate(legacy));
    h.driver.end_capture(blocking).unwrap();
}

#[test]
fn a_graph_that_is_dropped_while_it_captures_leaves_no_route() {
    let (h, [s]) = host().with_streams();
    let capture = h.announce(s, POOL, false);
    h.plugin.capture_dropped(0, s, capture).unwrap();
    h.allocate(s);
    assert_eq!(h.held_by(POOL), 0);
    h.driver.end_capture(s).unwrap();
    // Its host lets go of the pool when the graph goes.
    h.plugin.capture_failed(0, s).unwrap();
    assert_eq!(h.plugin.pool_use_count(0, POOL).unwrap(), 1);
}

/// A host that ends a capture without a word and drops its graph object when the next capture of the
/// stream is under way.
#[test]
fn a_graph_that_is_dropped_late_leaves_the_next_capture_of_its_stream_alone() {
    let (h, [s]) = host().with_streams();
    let first = h.announce(s, POOL, false);
    h.driver.end_capture(s).unwrap();
    let other = (2, 0);
    let second = h.announce(s, other, false);
    assert_ne!(first, second);
    h.plugin.capture_dropped(0, s, first).unwrap();
    h.allocate(s);
    assert_eq!((h.held_by(POOL), h.held_by(other)), (0, 4 * MIB));
    h.launch(s);
    h.finish(s, other);
    let told = h.plugin.captures(0);
    assert!(told.iter().any(|it| it.report.capture == second && it.key == other));
}

/// The filter of a capture that its stream has left is not asked any more once the stream's next
/// capture is announced: it may look at a graph object that is gone.
#[test]
fn the_next_capture_of_a_stream_takes_the_route_of_the_one_before_away() {
    let (h, [s]) = host().with_streams();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let driver = Arc::clone(&h.driver);
    let filter: Filter = Arc::new(move |stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        driver.is_capturing(stream).unwrap()
    });
    let route = h.plugin.begin_pool(0, POOL, filter).unwrap();
    h.driver.begin_capture(s, CaptureMode::Global).unwrap();
    h.plugin.capture_begun(0, s, route, false).unwrap().unwrap();
    h.driver.end_capture(s).unwrap();
    h.announce(s, (2, 0), false);
    asked.store(0, Ordering::Relaxed);
    h.allocate(s);
    h.allocate(h.stream());
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    // What waits for the device finds no capture there when the second one is over.
    h.launch(s);
    h.finish(s, (2, 0));
    h.plugin.compact(0, None).unwrap();
}

/// They look at a graph object, which is gone before its host can say so.
#[test]
fn what_tells_a_host_s_capture_goes_when_it_is_announced() {
    let (h, [s]) = host().with_streams();
    let (filter, _) = filter(&h.driver);
    let graph_of: EndedGraph = Arc::new(|_| None);
    let given = (Arc::downgrade(&filter), Arc::downgrade(&graph_of));
    let route = h.plugin.begin_pool_of(0, POOL, filter, Some(graph_of)).unwrap();
    h.driver.begin_capture(s, CaptureMode::Global).unwrap();
    assert_eq!((given.0.strong_count(), given.1.strong_count()), (1, 1));
    h.plugin.capture_begun(0, s, route, false).unwrap().unwrap();
    assert_eq!((given.0.strong_count(), given.1.strong_count()), (0, 0));
    // Where the engine is not asked which capture a stream is in, its route takes it all the same.
    h.plugin.begin_pool(0, (2, 0), Arc::new(|_| false)).unwrap();
    h.allocate(s);
    h.allocate(h.stream());
    assert_eq!((h.held_by(POOL), h.held_by((0, 0))), (4 * MIB, 4 * MIB));
}

/// As NCCL adds nodes to a capture: behind nothing, on no stream that the host names.
#[test]
fn nodes_that_a_library_adds_by_itself_are_no_reason_to_refuse() {
    let (h, [s]) = host_with(Config::default().check(true)).with_streams();
    h.announce(s, POOL, false);
    let graph = graph_of(&h.driver, s);
    for _ in 0..2 {
        h.used(s);
        h.driver.add_node(graph, &[], Work::default()).unwrap();
    }
    h.finish(s, POOL);
}

impl Host {
    /// A capture that is announced and judged, with three blocks that take turns.
    fn capture(&self, stream: StreamHandle, key: PoolKey, alone: bool) -> CaptureId {
        self.announce(stream, key, alone);
        let capture = self.capture_of(stream).unwrap();
        for _ in 0..3 {
            let block = self.allocate(stream);
            self.launch_and_free(stream, block);
        }
        self.finish(stream, key);
        capture
    }
}

#[test]
fn what_captures_came_to_is_told_when_they_are_over() {
    let (h, [s]) = host().with_streams();
    assert!(h.plugin.captures(0).is_empty());
    let announced = h.capture(s, POOL, true);
    // Its end is noticed.
    h.begin(s, (2, 0));
    let late = h.capture_of(s).unwrap();
    h.allocate(s);
    h.launch(s);
    h.allocate(s);
    h.end(s, (2, 0));
    // No pool claims it.
    h.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    h.launch(s);
    h.allocate(s);
    let stray = h.capture_of(s).unwrap();
    h.driver.end_capture(s).unwrap();
    h.empty();

    for _ in 0..2 {
        let all = h.plugin.captures(0);
        let row = |EndedCapture { key, report: it, .. }: &EndedCapture| {
            (it.capture, *key, it.nodes, it.blocks, it.reserved)
        };
        let told: Vec<_> = all.iter().map(row).collect();
        assert_eq!(
            told,
            [
                (announced, POOL, 3, 3, 4 * MIB),
                (late, (2, 0), 1, 2, 8 * MIB),
                (stray, (0, 0), 1, 1, 4 * MIB)
            ]
        );
        for it in all {
            assert!(it.minimum.is_none_or(|bytes| bytes <= it.report.reserved), "{it:?}");
            assert_eq!(it.report.plan, None);
        }
    }
}

/// `torch.cuda.memory_allocated(i)` for each device makes no context on those that the program does not use.
#[test]
fn figures_of_a_device_that_nothing_was_asked_of_are_zeros_and_make_no_engine() {
    let h = host();
    for device in [0, 1, 64] {
        let figures = h.plugin.figures(device).unwrap();
        assert!(figures[..FIGURES - 1].iter().all(|&figure| figure == 0));
        assert_eq!(figures[FIGURES - 1], -1);
        let all = h.plugin.statistics(device).unwrap();
        assert_eq!(all["allocated_bytes"]["all"]["peak"], 0);
        assert_eq!(all["unjudged_captures"], 0);
        h.plugin.reset_peaks(device).unwrap();
        h.plugin.reset_accumulated(device).unwrap();
        assert!(h.plugin.pools(device).unwrap().is_empty());
        assert!(h.plugin.captures(device).is_empty());
        assert!(h.plugin.reserved_by_pools(device).is_empty());
    }
    assert_eq!(h.plugin.engines().count(), 0);
}

#[test]
fn a_share_of_memory_that_was_set_before_its_device_is_used_counts_there() {
    let h = host();
    h.plugin.set_memory_fraction(0, 0.5).unwrap();
    assert!(h.plugin.set_memory_fraction(0, 1.5).is_err());
    assert_eq!((h.plugin.engines().count(), h.plugin.memory_fraction(0)), (0, 0.5));
    let limit = || h.plugin.engine(0).unwrap().memory_limit().unwrap().unwrap();
    let total = h.driver.memory_info().unwrap().total;
    assert_eq!(limit(), total / 2);
    h.plugin.set_memory_fraction(0, 0.25).unwrap();
    assert_eq!(limit(), total / 4);
    let settings = h.plugin.settings().memory_fraction(Some(0.75));
    h.plugin.change_settings(settings.clone()).unwrap();
    assert_eq!((limit(), h.plugin.memory_fraction(0)), (total / 4 * 3, 0.75));
    // Of a share and a limit in bytes the smaller counts, and goes on to count behind other settings.
    let settings = settings.memory_limit_bytes(Some(total / 8));
    h.plugin.change_settings(settings.clone()).unwrap();
    for (share, most) in [(0.5, total / 8), (0.0625, total / 16), (1.0, total / 8)] {
        h.plugin.set_memory_fraction(0, share).unwrap();
        h.plugin
            .change_settings(settings.clone().garbage_collection_threshold(Some(share / 2.0)))
            .unwrap();
        assert_eq!((limit(), h.plugin.memory_fraction(0)), (most, share));
    }
}

#[test]
fn of_many_captures_the_latest_are_told() {
    let (h, [s]) = host().with_streams();
    let captures: Vec<_> = (0..40).map(|_| h.capture(s, POOL, true)).collect();
    let told: Vec<_> = h.plugin.captures(0).iter().map(|it| it.report.capture).collect();
    assert_eq!(told, captures[8..]);
}

#[test]
fn a_capture_that_comes_to_nothing_is_not_told() {
    let (h, [s]) = host().with_streams();
    let good = h.capture(s, POOL, true);
    h.announce(s, POOL, true);
    h.allocate(s);
    h.launch(s);
    h.plugin.capture_ending(0, s, |_, _| ()).unwrap();
    h.driver.end_capture(s).unwrap();
    h.plugin.capture_failed(0, s).unwrap();
    let told: Vec<_> = h.plugin.captures(0).iter().map(|it| it.report.capture).collect();
    assert_eq!(told, [good]);
}

fn exact() -> Config {
    Config::default().settings(Settings::default().plan(PlanChoice::Exact))
}

#[test]
fn captures_beside_others_get_no_plan() {
    assert!(!host().plugin.plans_captures());
    let h = host_with(exact());
    assert!(h.plugin.plans_captures());
    let s = h.stream();
    h.capture(s, POOL, false);
    assert_eq!(h.plugin.captures(0)[0].report.plan, None);
    // One that is not announced: its end may be told when its graph has run.
    h.begin(s, POOL);
    h.allocate(s);
    h.launch(s);
    h.end(s, POOL);
    assert_eq!(h.plugin.captures(0)[1].report.plan, None);
}

#[test]
fn captures_that_are_alone_get_a_plan_where_the_settings_say_so() {
    let h = host_with(exact());
    h.capture(h.stream(), POOL, true);
    let told = h.plugin.captures(0);
    assert!(told[0].report.plan.is_some(), "{told:?}");
    // Captures that are not announced leave no eager work in their pool.
    let (s, key) = (h.stream(), (3, 0));
    h.begin(s, key);
    h.used(s);
    h.end(s, key);
    h.capture(s, key, true);
    assert!(h.plugin.captures(0)[2].report.plan.is_some());
    // A thread that borrows all that is free in it does.
    let borrowing = h.plugin.begin_borrowing(0, key, Lent::AllFree).unwrap();
    h.plugin.end_borrowing(0, key, borrowing).unwrap();
    h.capture(s, key, true);
    assert!(h.plugin.captures(0)[3].report.plan.is_none());
    // So does one whose requests it serves meanwhile.
    let served = (4, 0);
    h.plugin.begin_thread_pool(0, served).unwrap();
    h.capture(s, served, true);
    h.plugin.end_pool(0, served).unwrap();
    assert!(h.plugin.captures(0)[4].report.plan.is_none());
}

#[test]
fn pools_of_planned_captures_are_compacted() {
    const OTHER: PoolKey = (9, 1);
    let settings = Settings::default().plan(PlanChoice::Exact).plan_max_mappings(Some(1));
    let (h, [s]) = host_with(Config::default().settings(settings)).with_streams();
    for (key, pages) in [(POOL, 20), (POOL, 15), (OTHER, 9), (OTHER, 4)] {
        h.announce(s, key, true);
        let block = h.plugin.allocate(pages * 2 * MIB, 0, s).unwrap();
        h.launch_and_free(s, block);
        h.finish(s, key);
    }
    let excess = |key| h.plugin.excess_bytes(0, key).unwrap();
    let used = h.driver.used_bytes();
    assert_eq!((excess(None), excess(Some(OTHER))), ((15 + 4) * 2 * MIB, 4 * 2 * MIB));
    let unknown = h.plugin.compact(0, Some((7, 7)));
    assert!(matches!(unknown, Err(Error::UnknownPool { .. })), "{unknown:?}");
    // Nothing is compacted beside a capture, nor where one may begin: the wait for the device would ruin it.
    let refused = || {
        let refused = h.plugin.compact(0, Some(POOL));
        let because = matches!(&refused, Err(Error::Engine(engine::Error::DeviceCaptures { .. })));
        assert!(because, "{refused:?}");
    };
    let route = h.begin(s, OTHER);
    refused();
    h.plugin.capture_begun(0, s, route, true).unwrap();
    refused();
    assert_eq!((excess(Some(POOL)), excess(Some(OTHER))), (15 * 2 * MIB, 4 * 2 * MIB));
    let block = h.plugin.allocate(2 * MIB, 0, s).unwrap();
    h.launch_and_free(s, block);
    h.finish(s, OTHER);
    // A failure that leaves it short of a part is made up for by the next call.
    h.driver.fail_nth(Call::Unmap, 1, ErrorKind::InvalidValue);
    h.driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
    assert!(h.plugin.compact(0, Some(OTHER)).is_err());
    assert!(excess_refused(&h, OTHER));
    // A pool that cannot be compacted just now keeps none of the others from it.
    h.driver.fail_nth(Call::Map, 0, ErrorKind::InvalidValue);
    assert!(h.plugin.compact(0, None).is_err());
    assert_eq!(excess(Some(POOL)), 0);
    h.plugin.compact(0, None).unwrap();
    assert_eq!((excess(None), h.driver.used_bytes()), (0, (20 + 9) * 2 * MIB));
    assert!(h.driver.used_bytes() < used);
}

#[test]
fn a_compaction_holds_launches() {
    let h = Arc::new(host());
    h.capture(h.stream(), POOL, true);
    let (began, begins) = std::sync::mpsc::channel();
    let begins = Arc::new(Mutex::new(begins));
    let (other, early) = (h.clone(), Arc::new(AtomicUsize::new(0)));
    let (counted, later) = (early.clone(), begins.clone());
    let launch = move || {
        std::thread::spawn(move || {
            let launch = other.plugin.begin_launch(POOL, "replay");
            let _ = began.send(launch.is_ok());
        });
        // With nothing in its way it begins in no time.
        let begun = begins.lock().unwrap().recv_timeout(Duration::from_millis(100));
        counted.fetch_add(usize::from(begun.is_ok()), Ordering::SeqCst);
    };
    h.driver.before("cuCtxSynchronize", once(launch));
    h.plugin.compact(0, Some(POOL)).unwrap();
    assert_eq!(early.load(Ordering::SeqCst), 0);
    assert_eq!(later.lock().unwrap().recv_timeout(Duration::from_secs(60)), Ok(true));
}

#[test]
fn a_wake_that_waits_for_its_turn_goes_on() {
    let h = Arc::new(host());
    let entered = h.plugin.enter_region(Some("region"));
    h.allocate(h.stream());
    h.plugin.leave_region(entered).unwrap();
    h.plugin.sleep(None).unwrap();
    let (woke, wakes) = std::sync::mpsc::channel();
    let other = h.clone();
    let wake = move || {
        std::thread::spawn(move || woke.send(other.plugin.wake(None)));
        // It waits by then.
        std::thread::sleep(Duration::from_millis(100));
    };
    h.driver.before("cuMemMap", once(wake));
    assert_eq!(h.plugin.wake(None).unwrap(), 4 * MIB);
    assert_eq!(wakes.recv_timeout(Duration::from_secs(20)).unwrap().unwrap(), 0);
}

/// Also where the one that was begun before it is announced after it.
#[test]
fn a_capture_is_served_by_the_latest_route_that_was_begun_for_it() {
    const LATER: PoolKey = (8, 0);
    let (h, [s, t]) = host().with_streams();
    let earlier = h.begin(s, POOL);
    let later = h.plugin.begin_pool(0, LATER, filter(&h.driver).0).unwrap();
    h.driver.wait(t, s).unwrap();
    for (stream, route) in [(t, later), (s, earlier)] {
        h.plugin.capture_begun(0, stream, route, true).unwrap();
    }
    h.allocate(s);
    assert_eq!((h.held_by(POOL), h.held_by(LATER)), (0, 4 * MIB));
}

fn excess_refused(h: &Host, key: PoolKey) -> bool {
    let refused = h.plugin.excess_bytes(0, Some(key));
    matches!(
        refused,
        Err(Error::Engine(regraph::engine::Error::Pool {
            why: regraph::engine::PoolRefusal::Suspended { .. },
            ..
        }))
    )
}

#[test]
fn a_block_is_found_by_its_address_as_long_as_it_is_live() {
    let (host, [stream]) = host().with_streams();
    let (mut live, mut gone) = (Vec::new(), Vec::new());
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..30_000_u64 {
        // Up to 3,000 blocks of all sizes, then hardly any, and so on.
        if live.is_empty() || random.u64(..10) < 9 - step / 3_000 % 2 * 7 {
            let bytes = 512 << random.u32(..12);
            let address = host.plugin.allocate(bytes, 0, stream).unwrap();
            gone.retain(|&other| other != address);
            live.push(address);
        } else {
            let address = live.swap_remove(random.usize(..live.len()));
            host.free(address);
            gone.push(address);
        }
    }
    for address in gone.into_iter().rev().take(500) {
        let freed = host.plugin.free(address, 0);
        assert!(matches!(freed, Err(Error::UnknownAddress { .. })), "{freed:?}");
    }
    for address in live {
        host.plugin.record_stream(address, stream).unwrap();
        host.free(address);
    }
}

/// Settings that change count for devices in use as far as they can, and wholly for those to come.
#[test]
fn settings_change_while_devices_are_in_use() {
    let (h, [s]) = host().with_streams();
    let change = |text: &str| {
        let (settings, unused) = h.plugin.settings().overlaid_by_pytorch(text).unwrap();
        assert!(unused.is_empty());
        h.plugin.change_settings(settings).unwrap()
    };
    assert!(!change("max_split_size_mb:20"), "no device is in use");
    let large = h.plugin.allocate(40 * MIB, 0, s).unwrap();
    h.free(large);
    // Free memory of 40 MiB is not split.
    h.allocate(s);
    assert!(h.reserved() > 40 * MIB);
    assert_eq!(h.plugin.statistics(0).unwrap()["max_split_size"], 20 * MIB);
    assert_eq!(h.plugin.figures(0).unwrap().last(), Some(&(20 << 20)));
    assert!(change("roundup_power2_divisions:1,per_process_memory_fraction:0.5"));
    let engine = h.plugin.engine(0).unwrap();
    let total = h.driver.memory_info().unwrap().total;
    assert_eq!(engine.memory_limit().unwrap(), Some(total / 2));
    let live = || engine.statistics().unwrap().all.allocated_bytes.current;
    for (divisions, expected) in [(1, 9), (4, 10), (2, 12)] {
        change(&format!("roundup_power2_divisions:{divisions}"));
        let before = live();
        h.plugin.allocate(9 * MIB, 0, s).unwrap();
        assert_eq!(live() - before, expected * MIB);
    }
    // What is not named stays.
    assert_eq!(engine.memory_limit().unwrap(), Some(total / 2));
    assert_eq!(h.plugin.settings().max_split_bytes, Some(20 * MIB));
}
