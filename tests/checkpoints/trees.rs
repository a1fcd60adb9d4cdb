//! The plug-in, called as PyTorch's CUDA graph trees call an allocator: graphs are recorded in one pool, and
//! the host goes back to the end of one of them to record another behind it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::deref;
use crate::plugin::host::{self, host_with};
use regraph::driver::{CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{self, Checkpoint, Config};
use regraph::settings::{PlanChoice, Settings};
use regraph::snapshot::Action;
use regraph_plugin::{Error, Happening, PoolKey};
use regraph_tagged::{Program, Work};

const MIB: u64 = 1 << 20;
const POOL: PoolKey = (0, 7);

struct Trees {
    host: host::Host,
    stream: StreamHandle,
}

deref!(Trees.host as host::Host);

/// A graph that was recorded.
struct Node {
    outputs: Vec<u64>,
    checkpoint: Checkpoint,
}

impl Trees {
    fn new(config: Config) -> Self {
        let (host, [stream]) = host_with(config.check(true).find_late_uses(false)).with_streams();
        let trees = Self { host, stream };
        // An empty graph keeps the pool.
        trees.captured(|| {});
        trees
    }

    fn allocate(&self, bytes: u64) -> u64 {
        self.plugin.allocate(bytes, 0, self.stream).unwrap()
    }

    fn launch(&self) {
        self.driver.launch(self.stream, Work::default(), false).unwrap();
    }

    fn live(&self) -> Vec<u64> {
        self.plugin.live_in_pool(0, POOL).unwrap()
    }

    /// Eager work in the pool (`_use_cuda_memory_pool_manager`).
    fn eager<R>(&self, work: impl FnOnce() -> R) -> R {
        self.driver.complete_all();
        self.plugin.begin_pool(0, POOL, Arc::new(|_| true)).unwrap();
        let done = work();
        self.plugin.end_pool(0, POOL).unwrap();
        self.plugin.release_pool(0, POOL).unwrap();
        done
    }

    /// A run without a graph, whose output goes at once.
    fn warm_up(&self) {
        self.eager(|| {
            let [input, output] = [self.allocate(3 * MIB), self.allocate(4 * MIB)];
            self.launch();
            self.free(input);
            self.free(output);
        });
    }

    fn captured<R>(&self, work: impl FnOnce() -> R) -> R {
        self.host.record(self.stream, POOL, work).1
    }

    /// Records a graph with an input that is copied into the pool, something temporary, and outputs.
    fn record(&self, outputs: usize) -> Node {
        let input = self.eager(|| {
            let input = self.allocate(2 * MIB);
            self.launch();
            input
        });
        let before = self.live();
        let outputs: Vec<u64> = self.captured(|| {
            let temporary = self.allocate(5 * MIB);
            self.launch();
            self.free(input);
            let outputs = (0..outputs).map(|_| self.allocate(4 * MIB)).collect();
            self.launch();
            self.free(temporary);
            self.launch();
            outputs
        });
        let mut live: Vec<u64> = before.into_iter().filter(|&it| it != input).collect();
        live.extend(&outputs);
        live.sort_unstable();
        assert_eq!(self.live(), live);
        for (row, &address) in live.iter().enumerate() {
            assert!(live[..row].iter().all(|&below| below + 4 * MIB <= address), "{live:x?}");
        }
        let checkpoint = self.plugin.checkpoint(0, POOL).unwrap();
        Node { outputs, checkpoint }
    }

    fn go_back(&self, node: &Node) -> regraph_plugin::Restored {
        let before = self.live();
        let restored = self.plugin.restore(0, POOL, &node.checkpoint).unwrap();
        assert_eq!(restored.freed, before);
        assert_eq!(restored.live, self.live());
        let then: Vec<u64> = node.checkpoint.blocks().map(|(address, _)| address).collect();
        assert_eq!(restored.live, then);
        restored
    }
}

/// Blocks that were told to come and not to go.
#[derive(Default)]
struct Told(BTreeMap<u64, u64>);

impl Told {
    fn hear(&mut self, it: &Happening) {
        match it.action {
            Action::Alloc => {
                let before = self.0.insert(it.address, it.bytes);
                assert_eq!(before, None, "{it:?}");
            }
            Action::FreeRequested => {
                let before = self.0.remove(&it.address);
                assert_eq!(before, Some(it.bytes), "{it:?}");
            }
            _ => {}
        }
    }
}

fn grow_a_tree(config: Config) {
    let t = Trees::new(config);
    let told = Arc::new(Mutex::new(Told::default()));
    let hears = Arc::clone(&told);
    t.plugin.watch(Arc::new(move |it: &Happening| hears.lock().unwrap().hear(it)));
    let agrees = || {
        let told = told.lock().unwrap();
        assert!(told.0.keys().eq(t.live().iter()), "{:x?} {:x?}", told.0, t.live());
    };
    t.warm_up();
    let a = t.record(2);
    let b = t.record(1);
    // The tree runs again from its root: nothing of the last run is wanted.
    for &output in a.outputs.iter().chain(&b.outputs) {
        t.free(output);
    }
    assert!(t.live().is_empty());

    // Behind the first graph another one is recorded.
    let restored = t.go_back(&a);
    assert!(restored.freed.is_empty());
    agrees();
    let c = t.record(2);
    assert!(!c.outputs.iter().any(|output| a.outputs.contains(output)));

    // The first graph's outputs are live at both ends, and one of them has died since.
    let restored = t.go_back(&b);
    agrees();
    assert!(a.outputs.iter().all(|it| restored.freed.contains(it) && restored.live.contains(it)));
    t.free(a.outputs[0]);
    assert!(matches!(t.plugin.free(a.outputs[0], 0), Err(Error::UnknownAddress { .. })));
    let d = t.record(3);
    assert!(!d.outputs.contains(&a.outputs[1]) && !d.outputs.contains(&b.outputs[0]));

    // A warm-up in the middle of the tree.
    t.go_back(&c);
    t.warm_up();
    agrees();
    assert_eq!(t.live().len(), 4);
    for address in t.live() {
        t.free(address);
    }
    // The empty graph, and one more for each of the others.
    for _ in 0..5 {
        t.plugin.release_pool(0, POOL).unwrap();
    }
    for _ in 0..3 {
        t.driver.complete_all();
        t.plugin.empty_cache().unwrap();
    }
    assert_eq!(t.reserved(), 0);
    let gone = t.plugin.checkpoint(0, POOL);
    assert!(matches!(gone, Err(Error::UnknownPool { key: POOL, .. })), "{gone:?}");
    let gone = t.plugin.restore(0, POOL, &a.checkpoint);
    assert!(matches!(gone, Err(Error::UnknownPool { .. })), "{gone:?}");
}

#[test]
fn a_tree_grows_from_the_end_of_any_graph() {
    grow_a_tree(Config::default());
}

/// Its recording inputs lie in the pool before its first capture: no plan, also where the settings say so.
#[test]
fn a_tree_s_captures_have_no_plan() {
    let config = Config::default().settings(Settings::default().plan(PlanChoice::Exact));
    grow_a_tree(config);
}

#[test]
fn a_pool_whose_captures_had_a_plan_has_no_checkpoints() {
    let config = Config::default().settings(Settings::default().plan(PlanChoice::Exact));
    let t = Trees::new(config);
    let output = t.captured(|| {
        let output = t.allocate(4 * MIB);
        t.launch();
        output
    });
    let refused = t.plugin.checkpoint(0, POOL);
    let Err(Error::Engine(engine::Error::Checkpoint { call, why, .. })) = refused else { panic!() };
    assert!(matches!((call, why), ("checkpoint", engine::CheckpointRefusal::NoWayBack)));
    assert_eq!(t.live(), [output]);
}

/// What a tree copied into the pool before a capture, and freed in it, is the graphs' from then on: first that
/// capture's.
#[test]
fn a_recording_input_s_memory_goes_to_captures_alone() {
    let t = Trees::new(Config::default());
    let input = t.eager(|| {
        let input = t.allocate(4 * MIB);
        t.launch();
        input
    });
    t.captured(|| {
        t.launch();
        t.free(input);
        let temporary = t.allocate(4 * MIB);
        assert_eq!(temporary, input);
        t.launch();
        t.free(temporary);
    });
    assert!(t.live().is_empty());
    t.eager(|| {
        let warm = t.allocate(4 * MIB);
        assert_ne!(warm, input);
        t.free(warm);
    });
    t.captured(|| assert_eq!(t.allocate(4 * MIB), input));
    assert_eq!(t.live(), [input]);
}

/// A step of training: a forward graph whose outputs the backward graph frees one by one, each with a gradient
/// in its place; then the same step along another path of the tree.
#[test]
fn what_a_capture_frees_of_earlier_graphs_takes_its_blocks() {
    const LAYERS: usize = 16;
    let t = Trees::new(Config::default());
    let step = || {
        let input = t.eager(|| {
            let input = t.allocate(4 * MIB);
            t.launch();
            input
        });
        let saved: Vec<u64> = t.captured(|| {
            let saved = (0..LAYERS).map(|layer| {
                let output = t.allocate(4 * MIB);
                t.launch();
                if layer == 0 {
                    t.free(input);
                }
                output
            });
            saved.collect()
        });
        let held = t.reserved();
        let gradients: Vec<u64> = t.captured(|| {
            let gradients = saved.iter().rev().map(|&saved| {
                t.launch();
                t.free(saved);
                let gradient = t.allocate(4 * MIB);
                t.launch();
                gradient
            });
            gradients.collect()
        });
        assert_eq!(t.reserved(), held, "each gradient has a place");
        assert!(gradients.iter().all(|gradient| saved.contains(gradient)));
        gradients
    };
    let root = t.plugin.checkpoint(0, POOL).unwrap();
    step();
    assert_eq!(t.reserved(), 64 * MIB, "the input's place is an output's");
    t.plugin.restore(0, POOL, &root).unwrap();
    step();
    assert!(t.reserved() <= 68 * MIB, "the second input is the eager copy's own");
}

/// A tree that is gone leaves nothing, even of inputs that were freed in a capture.
#[test]
fn what_a_tree_held_goes_with_it() {
    for inputs in 0..3 {
        let t = Trees::new(Config::default());
        t.warm_up();
        let mut graphs = 1;
        for _ in 0..inputs {
            let node = t.record(1);
            graphs += 1;
            for output in node.outputs {
                t.free(output);
            }
        }
        for _ in 0..graphs {
            t.plugin.release_pool(0, POOL).unwrap();
        }
        t.plugin.empty_cache().unwrap();
        assert_eq!(t.reserved(), 0, "after {inputs} graphs with an input");
        assert_eq!(t.plugin.pools(0).unwrap().len(), 1);
    }
}

/// Work that still runs is waited for when the cache is emptied.
#[test]
fn a_pool_of_a_warm_up_alone_goes_with_the_cache() {
    let t = Trees::new(Config::default());
    t.plugin.release_pool(0, POOL).unwrap();
    t.plugin.empty_cache().unwrap();
    t.warm_up();
    assert!(t.reserved() > 0);
    t.plugin.empty_cache().unwrap();
    assert_eq!(t.reserved(), 0);
    assert_eq!(t.plugin.pools(0).unwrap().len(), 1);
}

/// So is work outside pools, and a capture that is under way does not mind.
#[test]
fn what_streams_freed_goes_with_the_cache() {
    let t = Trees::new(Config::default());
    t.plugin.release_pool(0, POOL).unwrap();
    let other = t.driver.create_stream().unwrap();
    let block = t.plugin.allocate(30 * MIB, 0, other).unwrap();
    t.driver.launch(other, Work::default(), false).unwrap();
    t.plugin.record_stream(block, t.stream).unwrap();
    t.launch();
    t.plugin.free(block, 0).unwrap();
    t.captured(|| {
        t.plugin.empty_cache().unwrap();
        let kept = t.allocate(MIB);
        t.launch();
        t.free(kept);
    });
    t.plugin.release_pool(0, POOL).unwrap();
    t.plugin.empty_cache().unwrap();
    assert_eq!(t.reserved(), 0);
}

/// Each call of the driver fails in turn while a tree goes back: it has gone back, or nothing has changed.
#[test]
fn every_call_may_fail_while_a_tree_goes_back() {
    for n in 0.. {
        let t = Trees::new(Config::default());
        let a = t.record(2);
        t.free(a.outputs[0]);
        let b = t.record(1);
        // Of another pool: the engine asks what of this one is in use there.
        let other = t.driver.create_stream().unwrap();
        t.begin_in(CaptureMode::ThreadLocal, other, (0, 8));
        t.plugin.allocate(MIB, 0, other).unwrap();
        let before = t.live();
        let calls = t.driver.total_calls();
        t.driver.fail_any_nth(n, ErrorKind::InvalidValue);
        let restored = t.plugin.restore(0, POOL, &a.checkpoint);
        let made = t.driver.total_calls() - calls;
        t.driver.forget_failures();
        let wanted: Vec<u64> = match restored {
            Ok(restored) => {
                assert_eq!(restored.freed, before);
                a.checkpoint.blocks().map(|(address, _)| address).collect()
            }
            Err(_) => before,
        };
        assert_eq!(t.live(), wanted);
        assert!(wanted.len() >= 2 && b.outputs.len() == 1);
        for address in wanted {
            t.free(address);
        }
        assert!(t.live().is_empty());
        if made <= n {
            assert!(n > 0, "the streams are asked where they are");
            break;
        }
    }
}

/// A checkpoint names addresses, from under which such captures move memory when they end.
#[test]
fn captures_after_a_checkpoint_neither_have_a_plan_nor_map_ahead() {
    for plan in [PlanChoice::Exact, PlanChoice::None] {
        let t = Trees::new(Config::default().settings(Settings::default().plan(plan)));
        if plan == PlanChoice::None {
            t.warm_up();
        }
        t.plugin.checkpoint(0, POOL).unwrap();
        let before = t.driver.used_bytes();
        let came = t.captured(|| {
            (0..2).for_each(|_| _ = t.allocate(40 * MIB));
            t.driver.used_bytes() - before
        });
        assert_eq!(came, 80 * MIB, "{plan:?}");
    }
}
