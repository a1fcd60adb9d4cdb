//! The plug-in lends eager work what a pool's graphs do not keep: warm-ups of CUDA graph trees, and threads of hosts
//! that ask for it.

use std::sync::Arc;
use std::thread;

use crate::common::deref;
use crate::common::messages::messages_of;
use crate::common::{once, while_it_waits};
use crate::plugin::host::{self, filter, host_with};
use regraph::driver::{CaptureMode, ErrorKind, ExecutableHandle, HostApi, StreamHandle};

use regraph::engine::{self, Config, Lent};
use regraph_plugin::{Error, Plugin, PoolKey};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

const MIB: u64 = 1 << 20;
const POOL: PoolKey = (0, 7);
const BYTES: u64 = 4 * MIB;
const LAYERS: u64 = 8;

struct Host {
    host: host::Host,
    stream: StreamHandle,
}

deref!(Host.host as host::Host);

/// A forward and a backward graph, and what is copied into the pool before each launch.
struct Step {
    input: u64,
    graphs: [ExecutableHandle; 2],
    /// The backward graph's outputs.
    gradients: Vec<u64>,
}

fn at(address: u64, tag: u64) -> Tagged {
    Tagged { address, bytes: BYTES, tag }
}

fn is_refused(result: &Result<(), Error>) -> bool {
    matches!(
        result,
        Err(Error::Engine(engine::Error::Pool { why: engine::PoolRefusal::BlocksLent { .. }, .. }))
    )
}

impl Host {
    fn new() -> Self {
        Self::of(host_with(Config::default().check(true).find_late_uses(false)))
    }

    fn of(host: host::Host) -> Self {
        let stream = host.stream();
        let host = Self { host, stream };
        // An empty graph keeps the pool, and its end is a checkpoint.
        host.captured(|| {});
        host.plugin.checkpoint(0, POOL).unwrap();
        host
    }

    fn allocate(&self) -> u64 {
        self.plugin.allocate(BYTES, 0, self.stream).unwrap()
    }

    fn work(&self, inputs: &[Tagged], outputs: &[Tagged]) {
        self.work_on(self.stream, inputs, outputs);
    }

    fn work_on(&self, stream: StreamHandle, inputs: &[Tagged], outputs: &[Tagged]) {
        self.driver.launch(stream, Work { inputs, outputs, ..Work::default() }, false).unwrap();
    }

    fn lent(&self) -> u64 {
        self.lent_of(POOL)
    }

    fn lent_of(&self, pool: PoolKey) -> u64 {
        let reports = self.plugin.pools(0).unwrap();
        let report = reports.iter().find(|report| report.key == pool).unwrap();
        self.plugin.engine(0).unwrap().pool_statistics(report.pool).unwrap().lent
    }

    /// Eager work in the pool, as a graph tree does it (`_use_cuda_memory_pool_manager`).
    fn eager<R>(&self, work: impl FnOnce() -> R) -> R {
        self.driver.complete_all();
        self.plugin.begin_borrowing(0, POOL, Lent::AllFree).unwrap();
        let done = work();
        self.plugin.end_pool(0, POOL).unwrap();
        self.plugin.release_pool(0, POOL).unwrap();
        done
    }

    fn captured<R>(&self, work: impl FnOnce() -> R) -> (ExecutableHandle, R) {
        let (graph, done) = self.host.record(self.stream, POOL, work);
        (self.driver.instantiate(graph).unwrap(), done)
    }

    /// What the Python half does where a graph is launched.
    fn launch(&self, graph: ExecutableHandle, stream: StreamHandle) -> Result<(), Error> {
        let mut launch = self.plugin.begin_launch(POOL, "replay")?;
        if launch.device().is_some() {
            launch.follow(stream)?;
        }
        self.driver.replay(graph, stream).unwrap();
        Ok(())
    }

    /// A graph with a temporary block and an output, which its address and tag 2 name.
    fn graph(&self) -> (ExecutableHandle, u64) {
        self.captured(|| {
            let [temporary, output] = [(); 2].map(|()| self.allocate());
            self.work(&[], &[at(temporary, 1)]);
            self.work(&[at(temporary, 1)], &[at(output, 2)]);
            self.free(temporary);
            output
        })
    }

    /// Work on borrowed memory of `stream`, or on eager work's where nothing is lent; says which.
    fn borrow_once(&self, stream: StreamHandle, tag: u64) -> bool {
        let block = self.plugin.allocate(BYTES, 0, stream).unwrap();
        let lent = self.lent() > 0;
        self.work_on(stream, &[], &[at(block, tag)]);
        self.work_on(stream, &[at(block, tag)], &[]);
        self.free(block);
        lent
    }

    /// As long as the calling thread borrows for it.
    fn borrows(&self, stream: StreamHandle, tag: u64) -> bool {
        let borrowing = self.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
        let lent = self.borrow_once(stream, tag);
        self.plugin.end_borrowing(0, POOL, borrowing).unwrap();
        lent
    }

    /// Records a step: activations that the forward graph leaves to the backward one, which frees them.
    fn record(&self) -> Step {
        let input = self.eager(|| {
            let input = self.allocate();
            self.work(&[], &[at(input, 1)]);
            input
        });
        let (forward, saved) = self.captured(|| {
            let saved: Vec<u64> = (0..LAYERS).map(|_| self.allocate()).collect();
            for (layer, &address) in (0..).zip(&saved) {
                self.work(&[at(input, 1)], &[at(address, 100 + layer)]);
            }
            self.free(input);
            let temporary = self.allocate();
            self.work(&[], &[at(temporary, 2)]);
            self.work(&[at(temporary, 2)], &[]);
            self.free(temporary);
            saved
        });
        self.plugin.checkpoint(0, POOL).unwrap();
        let (backward, gradients) = self.captured(|| {
            let mut gradients = Vec::new();
            for (layer, &address) in (0..LAYERS).rev().zip(saved.iter().rev()) {
                let gradient = self.allocate();
                self.work(&[at(address, 100 + layer)], &[at(gradient, 200 + layer)]);
                self.free(address);
                gradients.push(gradient);
            }
            gradients
        });
        self.plugin.checkpoint(0, POOL).unwrap();
        Step { input, graphs: [forward, backward], gradients }
    }

    fn replay(&self, step: &Step) {
        self.work(&[], &[at(step.input, 1)]);
        for graph in step.graphs {
            self.launch(graph, self.stream).unwrap();
        }
        for (layer, &gradient) in (0..LAYERS).rev().zip(&step.gradients) {
            self.work(&[at(gradient, 200 + layer)], &[]);
        }
    }

    fn sound(&self) {
        self.driver.complete_all_checked().unwrap();
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
    }
}

#[test]
fn warm_ups_of_a_tree_borrow_what_its_graphs_do_not_keep() {
    let h = Host::new();
    let step = h.record();
    h.replay(&step);
    let held = h.reserved();
    for round in 0..3 {
        // The next generation: nothing of the last one is wanted.
        if round == 0 {
            step.gradients.iter().for_each(|&gradient| h.free(gradient));
        }
        let outputs = h.eager(|| {
            let blocks: Vec<u64> = (0..LAYERS).map(|_| h.allocate()).collect();
            for (number, &block) in (0..).zip(&blocks) {
                h.work(&[], &[at(block, 300 + number)]);
            }
            for (number, &block) in (0..).zip(&blocks) {
                h.work(&[at(block, 300 + number)], &[]);
            }
            blocks[2..].iter().for_each(|&block| h.free(block));
            blocks[..2].to_vec()
        });
        assert_eq!(h.reserved(), held, "the warm-up has memory of the graphs");
        assert_eq!(h.lent(), 2 * BYTES);
        assert!(is_refused(&h.launch(step.graphs[0], h.stream)));
        for (number, &output) in (0..).zip(&outputs) {
            h.work(&[at(output, 300 + number)], &[]);
            h.free(output);
        }
        h.replay(&step);
        h.sound();
    }
    assert_eq!(h.lent(), 0);
}

/// A second path of the tree: its recording input lies in memory that is lent, and is the graph's once it is captured.
#[test]
fn recording_inputs_borrow() {
    let h = Host::new();
    let first = h.record();
    h.replay(&first);
    first.gradients.iter().for_each(|&gradient| h.free(gradient));
    let held = h.reserved();
    let second = h.record();
    assert_eq!(h.reserved(), held, "the second path needs what the first one does");
    assert_eq!(h.lent(), 0);
    for step in [&second, &first, &second] {
        h.replay(step);
    }
    h.sound();
}

/// A warm-up runs on autograd's thread, and what it left is freed on another, which launches graphs.
#[test]
fn what_another_thread_has_borrowed_is_marked_or_waited_for() {
    let h = Host::new();
    let step = h.record();
    h.replay(&step);
    step.gradients.iter().for_each(|&gradient| h.free(gradient));
    h.driver.complete_all();
    let side = h.driver.create_stream().unwrap();
    let output = thread::scope(|scope| {
        let borrowed = scope.spawn(|| {
            h.plugin.begin_borrowing(0, POOL, Lent::AllFree).unwrap();
            let [first, output] = [(); 2].map(|()| h.plugin.allocate(BYTES, 0, side).unwrap());
            for address in [first, output] {
                h.work_on(side, &[], &[at(address, 9)]);
            }
            h.free(first);
            h.plugin.end_pool(0, POOL).unwrap();
            h.plugin.release_pool(0, POOL).unwrap();
            output
        });
        borrowed.join().unwrap()
    });
    // As PyTorch does when a warm-up ends: inputs are copied behind it.
    h.driver.wait(h.stream, side).unwrap();
    assert!(is_refused(&h.launch(step.graphs[0], h.stream)));
    h.free(output);
    h.replay(&step);
    h.sound();
}

/// The thread is still there, and its stream its own; the device is not waited for, as something captures.
#[test]
fn a_launch_comes_after_what_another_thread_has_borrowed() {
    let by_number: fn(&Host, StreamHandle) -> bool = |h, side| h.borrows(side, 9);
    for borrows in [by_number, |h, side| h.eager(|| h.borrow_once(side, 9))] {
        let h = Host::new();
        let (graph, output) = h.graph();
        h.driver.complete_all();
        let side = h.driver.create_stream().unwrap();
        thread::scope(|scope| {
            let (to_main, from_other) = std::sync::mpsc::channel();
            let (to_other, from_main) = std::sync::mpsc::channel::<()>();
            let h = &h;
            scope.spawn(move || {
                assert!(borrows(h, side));
                to_main.send(()).unwrap();
                from_main.recv().unwrap();
            });
            from_other.recv().unwrap();
            let captures = h.driver.create_stream().unwrap();
            h.begin_in(CaptureMode::Relaxed, captures, (9, 9));
            let block = h.plugin.allocate(BYTES, 0, captures).unwrap();
            h.launch(graph, h.stream).unwrap();
            h.free(block);
            h.end(captures, (9, 9));
            to_other.send(()).unwrap();
        });
        h.work(&[at(output, 2)], &[]);
        h.sound();
    }
}

/// It is not known when it ends, but that it does when the device is waited for.
#[test]
fn nothing_is_lent_after_a_launch_that_could_not_be_marked() {
    let h = Host::new();
    let side = h.driver.create_stream().unwrap();
    let (graph, output) = h.graph();
    let borrowing = h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
    let mut launch = h.plugin.begin_launch(POOL, "replay").unwrap();
    launch.follow(h.stream).unwrap();
    h.driver.replay(graph, h.stream).unwrap();
    h.driver.fail_nth(Call::CreateEvent, 0, ErrorKind::OutOfMemory);
    drop(launch);
    h.driver.forget_failures();
    assert!(!h.borrow_once(side, 70));
    h.plugin.end_borrowing(0, POOL, borrowing).unwrap();
    assert!(h.borrows(side, 80));
    h.work(&[at(output, 2)], &[]);
    h.sound();
}

#[test]
fn nothing_is_lent_where_graphs_may_be_launched_without_a_word() {
    let h = Host::new();
    let step = h.record();
    step.gradients.iter().for_each(|&gradient| h.free(gradient));
    let borrowed = h.eager(|| h.allocate());
    assert_eq!(h.lent(), BYTES);
    let refused = h.plugin.launches_elsewhere(POOL);
    assert!(is_refused(&refused), "{refused:?}");
    h.work(&[], &[]);
    h.free(borrowed);
    h.plugin.launches_elsewhere(POOL).unwrap();
    assert!(h.driver.is_idle().unwrap(), "no launch is told of that could come after it");
    let fresh = h.eager(|| h.allocate());
    assert_eq!(h.lent(), 0);
    h.launch(step.graphs[0], h.stream).unwrap();
    h.free(fresh);
    h.sound();
}

/// A capture that no announcement was made of: its graph is launched by who knows whom.
#[test]
fn nothing_is_lent_of_graphs_that_came_unannounced() {
    for judged in [false, true] {
        let h = Host::new();
        h.begin_in(CaptureMode::Relaxed, h.stream, POOL);
        let temporary = h.allocate();
        h.work(&[], &[at(temporary, 1)]);
        h.free(temporary);
        if judged {
            h.plugin.capture_ending(0, h.stream, |_, _| ()).unwrap();
        }
        h.driver.end_capture(h.stream).unwrap();
        h.plugin.end_pool(0, POOL).unwrap();
        for _ in 0..2 {
            let block = h.eager(|| h.allocate());
            assert_eq!(h.lent(), 0);
            h.free(block);
            // A launch that is told of changes nothing.
            drop(h.plugin.begin_launch(POOL, "replay").unwrap());
        }
    }
}

/// What was launched before a thread first borrowed may run still.
#[test]
fn nothing_is_lent_as_long_as_earlier_launches_cannot_be_waited_for() {
    let h: &'static Host = Box::leak(Box::new(Host::new()));
    let [side, captures] = [(); 2].map(|()| h.driver.create_stream().unwrap());
    let (graph, _) = h.graph();
    // One was begun before, and is made during the wait.
    let launch = h.plugin.begin_launch(POOL, "replay").unwrap();
    let launches = move || drop((h.driver.replay(graph, h.stream).unwrap(), launch));
    h.driver.before("cuCtxSynchronize", once(move || assert!(while_it_waits(launches))));
    assert!(!h.borrows(side, 5));
    h.begin_in(CaptureMode::Relaxed, captures, (9, 9));
    assert!(!h.borrows(side, 5));
    h.end(captures, (9, 9));
    assert!(h.borrows(side, 5));
    // A stream that captures waits for no launch from before, which would ruin the capture.
    h.launch(graph, h.stream).unwrap();
    h.driver.begin_capture(captures, CaptureMode::Relaxed).unwrap();
    assert!(!h.borrows(captures, 5));
    h.driver.end_capture(captures).unwrap();
    h.sound();
}

/// A launch of such a pool's graph does not say on which of them it is made.
#[test]
fn nothing_is_lent_of_a_pool_that_several_devices_have() {
    let first = SimDriver::new(SimConfig::default());
    let drivers = [first.add_device(SimConfig::default()), first].map(Arc::new);
    let driver = Arc::clone(&drivers[1]);
    let connect = move |device: u32| Ok(Arc::clone(&drivers[1 - device as usize]));
    let plugin = Plugin::new(Config::default(), connect);
    let h = Host::of(host::Host { driver, plugin });
    let _graph = h.graph();
    h.plugin.create_or_incref_pool(1, POOL, None).unwrap();
    h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
    assert!(!h.borrow_once(h.stream, 5));
}

/// A graph of one pool took memory of another: its host names the first alone when it launches the graph.
#[test]
fn nothing_is_lent_where_a_graph_of_another_pool_allocated() {
    const OTHER: PoolKey = (0, 77);
    let h = Host::new();
    h.plugin.create_or_incref_pool(0, OTHER, None).unwrap();
    let (graph, address) = h.captured(|| {
        h.plugin.begin_thread_pool(0, OTHER).unwrap();
        let temporary = h.allocate();
        h.work(&[], &[at(temporary, 1)]);
        h.work(&[at(temporary, 1)], &[]);
        h.free(temporary);
        h.plugin.end_pool(0, OTHER).unwrap();
        temporary
    });
    h.driver.complete_all();
    let borrowing = h.plugin.begin_borrowing(0, OTHER, Lent::Temporary).unwrap();
    let block = h.allocate();
    h.work(&[], &[at(block, 7)]);
    h.launch(graph, h.stream).unwrap();
    h.work(&[at(block, 7)], &[]);
    h.plugin.end_borrowing(0, OTHER, borrowing).unwrap();
    assert_eq!(h.lent_of(OTHER), 0);
    assert_ne!(block, address);
    h.free(block);
    h.sound();
}

/// A thread borrows from a pool that it has no other part in: only temporary memory, and all else is eager work's.
#[test]
fn a_thread_borrows_from_graphs_and_has_the_rest_as_ever() {
    let h = Host::new();
    let side = h.driver.create_stream().unwrap();
    let (graph, output) = h.graph();
    let held = h.reserved();
    for round in 0..4 {
        h.launch(graph, h.stream).unwrap();
        let borrowing = h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
        let [lent, other] = [(); 2].map(|()| h.plugin.allocate(BYTES, 0, side).unwrap());
        assert_eq!(h.lent(), BYTES, "one has the place of the temporary block");
        for (number, address) in [(0, lent), (1, other)] {
            h.work_on(side, &[], &[at(address, 10 + round + number)]);
        }
        // A launch in the middle, once it is given back.
        assert!(is_refused(&h.launch(graph, h.stream)));
        h.free(lent);
        h.launch(graph, h.stream).unwrap();
        h.work(&[at(output, 2)], &[]);
        let again = h.plugin.allocate(BYTES, 0, side).unwrap();
        h.work_on(side, &[], &[at(again, 50 + round)]);
        h.plugin.end_borrowing(0, POOL, borrowing).unwrap();
        h.free(again);
        h.free(other);
    }
    h.sound();
    assert!(h.reserved() <= held + 20 * MIB, "eager work has a segment of its own");
    // A part of another graph is launched whenever that is.
    let (filter, _) = filter(&h.driver);
    h.plugin.begin_pool(0, (0, 8), filter).unwrap();
    h.driver.begin_capture(side, CaptureMode::Relaxed).unwrap();
    let refused = h.launch(graph, side);
    let Err(Error::Engine(engine::Error::Stream { why, .. })) = refused else { panic!() };
    assert!(matches!(why, engine::StreamRefusal::LaunchWhileCapturing));
}

#[test]
fn that_a_pool_lends_nothing_is_said_once_with_the_reason() {
    let h = Host::new();
    let said = |key: PoolKey, calls: &dyn Fn()| -> Vec<String> {
        let pool = format!("pool ({}, {}) lends nothing", key.0, key.1);
        let all = messages_of(calls).into_iter().map(|(_, text)| text);
        all.filter(|line| line.starts_with(&pool)).collect()
    };
    let [borrowed, given] = [(9, 1), (9, 2)];
    for key in [borrowed, given] {
        h.plugin.create_or_incref_pool(0, key, None).unwrap();
    }
    let borrow = |key| {
        let borrowing = h.plugin.begin_borrowing(0, key, Lent::Temporary).unwrap();
        h.plugin.end_borrowing(0, key, borrowing).unwrap();
    };
    assert!(said(borrowed, &|| borrow(borrowed)).is_empty());
    let twice = || {
        for _ in 0..2 {
            h.plugin.launches_elsewhere(borrowed).unwrap();
            borrow(borrowed);
        }
    };
    let once = said(borrowed, &|| h.plugin.launches_elsewhere(borrowed).unwrap());
    assert!(matches!(&once[..], [once] if once.contains("a handle of one of its graphs")));
    assert!(said(borrowed, &twice).is_empty());
    // Of a pool that no thread borrows from nothing is said.
    assert!(said(given, &|| h.plugin.launches_elsewhere(given).unwrap()).is_empty());
    let twice = || (0..2).for_each(|_| borrow(given));
    assert_eq!(said(given, &twice).len(), 1);
}

/// Another thread begins to borrow between the question whether a graph may be launched and its launch.
#[test]
fn nothing_is_lent_while_a_graph_is_launched() {
    let h = Host::new();
    let side = h.driver.create_stream().unwrap();
    let (graph, output) = h.graph();
    for round in 0..3 {
        let mut launch = h.plugin.begin_launch(POOL, "replay").unwrap();
        assert_eq!(launch.device().is_some(), round > 0);
        launch.follow(h.stream).unwrap();
        let borrowing = h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
        assert!(!h.borrow_once(side, 70 + round), "the graph runs beside that");
        h.driver.replay(graph, h.stream).unwrap();
        drop(launch);
        // Of the first launch no more is known than that it was made: the next to borrow waits for it.
        assert_eq!(h.borrow_once(side, 80 + round), round > 0);
        h.plugin.end_borrowing(0, POOL, borrowing).unwrap();
        if round == 0 {
            assert!(h.borrows(side, 90));
        }
        h.work(&[at(output, 2)], &[]);
        h.sound();
    }
}

/// Threads launch and borrow at any moment, each in an order that the scheduler makes.
#[test]
fn threads_launch_while_others_begin_to_borrow() {
    for _ in 0..20 {
        let h = Host::new();
        let (graph, _) = h.graph();
        let sides = [(); 2].map(|()| h.driver.create_stream().unwrap());
        thread::scope(|scope| {
            for (number, side) in (0..).zip(sides) {
                let h = &h;
                scope.spawn(move || {
                    for round in 0..10 {
                        h.borrows(side, 1000 + 10 * number + round);
                    }
                });
            }
            for _ in 0..40 {
                use engine::PoolRefusal::{BlocksLent, LentWork};
                match h.launch(graph, h.stream) {
                    // What another thread's stream does now is waited for by the next attempt.
                    Err(Error::Engine(engine::Error::Pool { why, .. })) => {
                        assert!(matches!(why, BlocksLent { .. } | LentWork { .. }), "{why:?}");
                    }
                    launched => launched.unwrap(),
                }
            }
        });
        h.sound();
    }
}

/// A loan that another thread ends, such as a generator's that the collector ends there, is that one and no other.
#[test]
fn a_loan_ends_on_any_thread() {
    let h = Host::new();
    let side = h.driver.create_stream().unwrap();
    let (graph, _) = h.graph();
    let (to_main, from_other) = std::sync::mpsc::channel();
    let (to_other, from_main) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        let (h, to_other) = (&h, to_other);
        scope.spawn(move || {
            let borrowing = h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
            assert!(h.borrow_once(side, 5));
            to_main.send(borrowing).unwrap();
            from_main.recv().unwrap();
            assert!(!h.borrow_once(side, 6), "it was ended");
        });
        let theirs = from_other.recv().unwrap();
        let mine = h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
        h.plugin.end_borrowing(0, POOL, theirs).unwrap();
        h.launch(graph, h.stream).unwrap();
        assert!(h.borrow_once(h.stream, 7), "this one goes on");
        // A pool's end is that of what was begun by its name alone.
        h.plugin.end_pool(0, POOL).unwrap();
        assert!(h.borrow_once(h.stream, 8));
        h.plugin.end_borrowing(0, POOL, mine).unwrap();
        to_other.send(()).unwrap();
    });
    let users = h.plugin.pool_use_count(0, POOL).unwrap();
    h.plugin.release_pool(0, POOL).unwrap();
    assert_eq!(users, 2, "two graphs have it");
    h.sound();
}

/// No order of streams says when the library works on it: it may be at once, while the graph runs.
#[test]
fn memory_without_a_stream_is_not_borrowed() {
    let h = Host::new();
    let (graph, _) = h.graph();
    h.launch(graph, h.stream).unwrap();
    let borrowing = h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
    let block = h.plugin.allocate_unordered(BYTES, 0).unwrap();
    assert_eq!(h.lent(), 0);
    h.free(block);
    assert!(h.borrow_once(h.stream, 7), "a stream's request is");
    h.plugin.end_borrowing(0, POOL, borrowing).unwrap();
}

/// A stream that is gone has launched a graph; another one has its handle now.
#[test]
fn a_stream_with_the_handle_of_another_comes_after_its_launch() {
    let h = Host::new();
    let (graph, output) = h.graph();
    h.driver.give_streams_again();
    let gone = h.driver.create_stream().unwrap();
    let borrowing = h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
    h.launch(graph, gone).unwrap();
    h.driver.destroy_stream(gone).unwrap();
    let stream = h.driver.create_stream().unwrap();
    assert_eq!(stream, gone);
    let block = h.plugin.allocate(BYTES, 0, stream).unwrap();
    assert_eq!(h.lent(), BYTES);
    // Done before the launch unless it waits for that, and overwritten by it then.
    h.work_on(stream, &[], &[at(block, 7)]);
    h.driver.complete(stream).unwrap();
    h.work(&[], &[]);
    h.driver.complete_all();
    h.work_on(stream, &[at(block, 7)], &[]);
    h.free(block);
    h.plugin.end_borrowing(0, POOL, borrowing).unwrap();
    h.work(&[at(output, 2)], &[]);
    h.sound();
}

/// Generations in any order: a path is recorded, replayed from its root, or a warm-up runs on two streams and leaves
/// blocks behind until the next generation begins.
#[test]
fn random_generations_of_a_tree_keep_their_tags() {
    let mut borrowed = 0;
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let h = Host::new();
        h.driver.set_schedule_seed(seed);
        let side = h.driver.create_stream().unwrap();
        let mut steps: Vec<Step> = Vec::new();
        let mut tag = 1000;
        for _ in 0..24 {
            match random.u32(..6) {
                0 | 1 if steps.len() < 4 => {
                    let step = h.record();
                    h.replay(&step);
                    step.gradients.iter().for_each(|&gradient| h.free(gradient));
                    steps.push(step);
                }
                0..=2 => {
                    if let Some(step) = random.choice(&steps) {
                        h.replay(step);
                    }
                }
                _ => {
                    let mut left: Vec<(u64, u64)> = Vec::new();
                    h.eager(|| {
                        h.driver.wait(side, h.stream).unwrap();
                        for _ in 0..random.usize(1..24) {
                            let stream = if random.bool() { side } else { h.stream };
                            tag += 1;
                            let address = h.plugin.allocate(BYTES, 0, stream).unwrap();
                            h.work_on(stream, &[], &[at(address, tag)]);
                            if random.bool() {
                                let other = if stream == side { h.stream } else { side };
                                h.driver.wait(other, stream).unwrap();
                                h.plugin.record_stream(address, other).unwrap();
                                h.work_on(other, &[at(address, tag)], &[]);
                            }
                            left.push((address, tag));
                            if random.u32(..3) > 0 {
                                h.free(left.swap_remove(random.usize(..left.len())).0);
                            }
                        }
                    });
                    h.driver.wait(h.stream, side).unwrap();
                    borrowed += h.lent() / BYTES;
                    if let Some(step) = random.choice(&steps).filter(|_| h.lent() > 0) {
                        assert!(is_refused(&h.launch(step.graphs[0], h.stream)), "seed {seed}");
                    }
                    for (address, tag) in left {
                        h.work(&[at(address, tag)], &[]);
                        h.free(address);
                    }
                }
            }
            if random.bool() {
                h.driver.complete(if random.bool() { side } else { h.stream }).unwrap();
            }
        }
        h.sound();
    }
    assert!(borrowed > 100, "{borrowed} blocks were borrowed");
}

#[test]
fn launches_on_two_streams_in_turn_keep_no_more_events() {
    let h = Host::new();
    let other = h.stream();
    let (graph, _) = h.graph();
    let borrowing = h.plugin.begin_borrowing(0, POOL, Lent::Temporary).unwrap();
    let events = || {
        [h.stream, other].iter().for_each(|&stream| h.launch(graph, stream).unwrap());
        h.driver.calls(Call::CreateEvent) - h.driver.calls(Call::DestroyEvent)
    };
    let before = events();
    assert_eq!(events(), before);
    let made = h.driver.calls(Call::CreateEvent);
    h.launch(graph, other).unwrap();
    assert_eq!(h.driver.calls(Call::CreateEvent), made, "it has the event of the one before");
    h.plugin.end_borrowing(0, POOL, borrowing).unwrap();
}
